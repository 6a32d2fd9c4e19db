"""The leaderboard as files and offline page, and a ranking under a reader's weights."""

from __future__ import annotations

import base64
import io
import json
import math
import os
import re
import warnings
import zipfile
from collections.abc import Hashable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from scipy import stats

from heart_utils.identities import refuse_identities
from heart_utils.judges import NOT_CALIBRATED, Record, words_of_record
from heart_utils.ratings.ratings import count_orders
from heart_utils.ratings.verdicts import is_simulated
from heart_utils.replies.conversations import fault_of_seekers, seekers_in_words
from heart_utils.report import WORDS, Html, fill_page
from heart_utils.report.figures import (
    POPULATION_NAMES,
    book_style,
    plot_boards,
    plot_leaderboard,
    ratings_table,
)
from heart_utils.runs import csv_text, known_people, visible_text, write_together
from heart_utils.scores import weigh_scores
from heart_utils.settings import MissingExtraError, extra
from heart_utils.tables import check_table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from heart_utils.ratings.ratings import Ratings

__all__ = ["leaderboard_html", "weigh_by_hand", "write_leaderboard"]

HEADINGS: dict[str, str] = WORDS["leaderboard"]
NOTES: dict[str, str] = WORDS["notes"]
#: What tells leaderboards apart.
SETTINGS = ["dimension", "slice", "group", "rater_kind", "rater", "population", "method"]
COUNTED = ["n_joined", "n_inconsistent"]  #: Of a responder's verdicts.
DIGITS = {"rating": 0, "rating_low": 0, "rating_high": 0, "win_probability": 2, "tie_share": 2}
WIDTHS = {"column": 3.35, "page": 6.9}  #: Of a figure in a paper of two columns, in inches.
UNDATED = datetime(1980, 1, 1, tzinfo=UTC)  #: Of a workbook: the earliest day that a zip knows.
MODIFIED = re.compile(rb"(<dcterms:modified[^>]*>)[^<]*")
LATEX = str.maketrans({letter: f"\\{letter}" for letter in "&%$#_{}"} | {
    "\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "\n": " ",
})  # fmt: skip


def leaderboard_rows(
    ratings: pd.DataFrame | Mapping[str, pd.DataFrame], records: Sequence[Record] = ()
) -> pd.DataFrame:
    if isinstance(ratings, Mapping):
        parts = [
            leaderboard_rows(table, records).assign(data=name) for name, table in ratings.items()
        ]
        return pd.concat(parts, ignore_index=True)
    table = check_table("ratings", ratings)
    # tables that were written before say nothing of these
    table = table.assign(
        **{column: table.get(column, 0) for column in COUNTED},
        unvaried=table.get("unvaried", False),
    )
    low, high = table["rank_low"].astype("string"), table["rank_high"].astype("string")
    kinds = table[["rater_kind", "rater", "dimension"]].to_dict("records")
    rows = table.assign(
        rank=low.where(low == high, low + "-" + high).fillna("").astype("str"),
        kind=table["responder_kind"],
        notes=[
            ", ".join(word for word in NOTES if row[word])
            for row in table[list(NOTES)].to_dict("records")
        ],
        calibration=pd.Series(
            [_of_judges(row, records) for row in kinds], table.index, dtype="str"
        ),
    )
    return rows[[*SETTINGS, *HEADINGS, *COUNTED, "calibration"]]


def _of_judges(board: Mapping[Hashable, Any], records: Sequence[Record]) -> str:
    if board["rater_kind"] not in ("model", "trained"):
        return ""
    dimension = board["dimension"]
    if board["rater"] != "all":
        return words_of_record(records, board["rater"], dimension=dimension)
    named = sorted({record.judge for record in records if record.dimension == dimension})
    known = [f"{judge}: {words_of_record(records, judge, dimension=dimension)}" for judge in named]
    return "; ".join([*known, "any other judge: not calibrated"] if known else [NOT_CALIBRATED])


def leaderboard_html(
    ratings: pd.DataFrame | Mapping[str, pd.DataFrame],
    *,
    title: str = "Leaderboard",
    whole_page: bool = True,
    records: Sequence[Record] = (),
    cards: pd.DataFrame | None = None,
) -> str:
    """Build a page of leaderboards that sorts and searches, without loading anything.

    Parameters
    ----------
    ratings
        The table ``ratings``, or several by the name of their data.
    title
        Title of the page.
    whole_page
        Whether to give a page, or only a part of one.
    records
        Of the judges; one without is called "not calibrated".
    cards
        Of simulated seekers, from :func:`~heart_utils.report.seekers.check_seekers`.

    Returns
    -------
    str
        HTML, with the same rows as CSV and JSON to save.

    Examples
    --------
    >>> from heart_utils.ratings.ratings import fit_ratings
    >>> duel = pd.DataFrame({"responder_a": "x", "responder_b": "y", "verdict": ["a", "b", "a"]})
    >>> leaderboard_html(fit_ratings(duel, n_resamples=0).table, whole_page=False).count("<table")
    1
    """
    rows = leaderboard_rows(ratings, records)
    refuse_identities({"ratings": rows}, {"the title": title}, known=known_people())
    files = [
        (ending, mime, base64.b64encode(text.encode()).decode())
        for ending, mime, text in _as_text(rows, title)
    ]
    return fill_page(
        "leaderboard.html",
        title=title,
        whole_page=whole_page,
        files=files,
        boards=_boards(rows, cards),
        heads=HEADINGS,
    )


def write_leaderboard(
    ratings: Ratings | pd.DataFrame | Mapping[Any, Ratings],
    folder: str | os.PathLike[str],
    *,
    title: str = "Leaderboard",
    records: Sequence[Record] = (),
    cards: pd.DataFrame | None = None,
) -> list[Path]:
    """Write the leaderboard as files for programs, readers and papers.

    Parameters
    ----------
    ratings
        A fit, several from :func:`heart_utils.fit_boards`, or the table ``ratings``.
    folder
        Made if need be.
    title, records, cards
        As in :func:`leaderboard_html`.

    Returns
    -------
    list of pathlib.Path
        ``leaderboard.csv``, ``.json``, ``.html``, ``.tex``, ``.xlsx``; ``leaderboard-column`` (one
        column of a paper wide) and ``leaderboard-page`` (two), as ``.pdf`` and ``.svg``.

    Warns
    -----
    UserWarning
        If what draws figures or writes ``.xlsx`` is not installed, and of conversations whose
        seekers models played, without `cards` or with one not to be trusted.

    Examples
    --------
    >>> import tempfile
    >>> from heart_utils import fit_ratings
    >>> duel = pd.DataFrame({"responder_a": "x", "responder_b": "y", "verdict": ["a", "b", "a"]})
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_leaderboard(fit_ratings(duel, n_resamples=0), folder)[0].name
    'leaderboard.csv'
    """
    table = ratings_table(ratings)
    rows = leaderboard_rows(table, records)
    refuse_identities(
        {"ratings": rows}, {"the title": title, "the folder": str(folder)}, known=known_people()
    )
    for population in sorted(set(table["population"])):
        if fault := fault_of_seekers(population, cards):
            warnings.warn(f"{folder}: {fault}.", stacklevel=2)
    contents = {ending: content for ending, _, content in _as_text(rows, title)}
    contents["html"] = leaderboard_html(table, title=title, records=records, cards=cards)
    contents["tex"] = fill_page(
        "leaderboard.tex",
        title=title,
        boards=_boards(rows, cards),
        level=f"{table['ci_level'].max():.0%}",
        heads=HEADINGS,
        tex=lambda text: text.translate(LATEX),
    )
    stem = Path(folder) / "leaderboard"
    files = {stem.with_suffix(f".{ending}"): text.encode() for ending, text in contents.items()}
    try:
        files[stem.with_suffix(".xlsx")] = as_workbook({"leaderboard": rows})
    except MissingExtraError as error:
        warnings.warn(f"{folder} has no .xlsx: {error}", stacklevel=2)
    try:
        files |= _figures(table, stem)
    except MissingExtraError as error:
        warnings.warn(f"{folder} has no PDF and no SVG: {error}", stacklevel=2)
    write_together(files)
    return list(files)


def _figures(table: pd.DataFrame, stem: Path) -> dict[Path, bytes]:
    with extra("plots"):
        import matplotlib as mpl
        import matplotlib.pyplot as plt
        import seaborn  # noqa: F401

    files = {}
    for name, width in WIDTHS.items():
        style = {**book_style(), "figure.hooks": [], "font.size": 7 if name == "column" else 9}
        with mpl.rc_context(style):
            figure = _figure(table, width)
            for ending, dated in (("pdf", "CreationDate"), ("svg", "Date")):
                drawn = io.BytesIO()
                tight: dict[str, Any] = {"bbox_inches": "tight", "pad_inches": 0.02}
                figure.savefig(drawn, format=ending, metadata={dated: None}, **tight)
                files[stem.with_name(f"leaderboard-{name}.{ending}")] = drawn.getvalue()
            plt.close(figure)
    return files


def _figure(table: pd.DataFrame, width: float) -> Figure:
    import matplotlib.pyplot as plt

    if table["responder"].duplicated().any():
        varied = [name for name in SETTINGS if len(table[name].unique()) > 1]
        names = table[varied].astype(object).fillna("").agg(", ".join, axis=1)
        figure = plot_boards(table.assign(board=names), by="board")
        figure.set_figwidth(width)
        return figure
    figure, ax = plt.subplots(figsize=(width, 1.5 + 0.22 * len(table)), layout="constrained")
    plot_leaderboard(table, ax=ax)
    return figure


def weigh_by_hand(
    scores: pd.DataFrame,
    profiles: Mapping[str, Mapping[str, float]],
    *,
    scale: str,
    ci_level: float = 0.95,
) -> Html:
    """Make sliders for the weights of dimensions beside the ranking that they give.

    Parameters
    ----------
    scores
        One row per responder, dialogue and dimension; intervals need two dialogues of each
        responder.
    profiles
        Name of a button -> weights of dimensions with the sum 1.
    scale
        What the scores are.
    ci_level
        Level of the intervals over dialogues.

    Returns
    -------
    Html
        With its own script; without scripts it shows the ranking under equal weights.

    Raises
    ------
    heart_utils.scores.ScaleError
        If a responder lacks a dimension, or weights lack the sum 1 or name what nobody scored.

    Examples
    --------
    >>> scores = pd.DataFrame(
    ...     {"responder": list("aabb"), "dialogue_id": "d", "score": [5, 1, 3, 4]}
    ... )
    >>> scores["dimension"] = ["safety", "warmth"] * 2
    >>> "<td>1</td><td>b</td><td>3.50</td>" in weigh_by_hand(scores, {}, scale="")._repr_html_()
    True
    """
    means = scores.groupby(["responder", "dimension"])["score"].mean().reset_index()
    dimensions = list(means["dimension"].unique())
    equal = np.full(len(dimensions), 1 / len(dimensions))
    choices = {"equal weights": dict.fromkeys(dimensions, 50)}
    for name, weights in profiles.items():
        weigh_scores(means, weights)  # refuses weights that lack the sum 1 or fit no dimension
        choices[name] = {
            dimension: round(100 * weights.get(dimension, 0)) for dimension in dimensions
        }
    ranking = weigh_scores(means, dict(zip(dimensions, equal, strict=True))).to_dict("records")
    each = scores.pivot_table("score", ["responder", "dialogue_id"], "dimension")[dimensions]
    known = bool(each.groupby("responder").size().min() > 1)
    for row in ranking:
        row["scores"] = means.loc[means["responder"] == row["responder"], "score"].tolist()
        if known:
            own = each.loc[row["responder"]]
            quantile = stats.t.ppf((1 + ci_level) / 2, len(own) - 1)
            # the covariance of the mean scores over dialogues, for an interval
            spread = own.cov().to_numpy() / len(own) * quantile**2
            reach = float(np.sqrt(equal @ spread @ equal))
            row |= {"spread": spread.round(8).tolist(), "reach": reach}
    return Html(
        fill_page(
            "leaderboard_weights.html",
            dimensions=dimensions,
            choices=choices,
            ranking=ranking,
            scale=scale,
            ci_level=ci_level,
            simulated=is_simulated(scores),
            known=known,
            json=json.dumps,
        )
    )


def _as_text(rows: pd.DataFrame, title: str) -> list[tuple[str, str, str]]:
    records = json.loads(rows.to_json(orient="records", double_precision=15))
    structured = (
        json.dumps({"title": title, "boards": records}, indent=1, ensure_ascii=False) + "\n"
    )
    return [("csv", "text/csv", csv_text(rows)), ("json", "application/json", structured)]


def _boards(rows: pd.DataFrame, cards: pd.DataFrame | None) -> list[dict[str, object]]:
    boards = []
    keys = [name for name in ("data", *SETTINGS, "calibration") if name in rows]
    settings: Any
    for settings, unsorted in rows.groupby(keys, sort=False, dropna=False):
        board = unsorted.sort_values("rating", ascending=False)
        group = {
            name: value for name, value in zip(keys, settings, strict=True) if not pd.isna(value)
        }
        population, method, calibration = (
            group.pop(name) for name in ("population", "method", "calibration")
        )
        used = {
            word: board.loc[board["notes"].str.contains(word), "responder"].tolist()
            for word in NOTES
        }
        notes = {word: (NOTES[word], names) for word, names in used.items() if names}
        ends = board[["rating_low", "rating_high"]].to_numpy(float)
        drawn, least = bool(np.isfinite(ends).all()), float(ends.min())
        scale = 100.0 / (float(ends.max()) - least) if drawn and ends.max() > least else 0.0
        cells = []
        for row in board.to_dict("records"):
            low, high, rating = (row[name] for name in ("rating_low", "rating_high", "rating"))
            bar = drawn and [
                round(scale * length, 1) for length in (low - least, high - low, rating - least)
            ]
            texts = {name: _cell(name, row[name]) for name in HEADINGS if name != "notes" or notes}
            cells.append({"cells": texts, "bar": bar, "plus_minus": _plus_minus(rating, low, high)})
        seekers = seekers_in_words(population, cards)
        joined, turned = (int(board[column].sum()) // 2 for column in COUNTED)
        population = "" if board["rating_low"].isna().all() else POPULATION_NAMES[population]
        shared_settings = {
            "group": group,
            "population": population,
            "method": method,
            "notes": notes,
            "calibration": calibration,
            "seekers": seekers,
            "orders": count_orders(joined, turned) if joined or turned else "",
        }
        boards.append({**shared_settings, "drawn": drawn, "rows": cells, "shown": list(texts)})
    return boards


def _cell(name: str, value: Any) -> tuple[str, str | None]:
    if not isinstance(value, str) and pd.isna(value):
        return "", ""
    if name == "rank":
        return str(value), str(value).split("-")[0]
    if isinstance(value, float) and math.isinf(value):
        return "no limit", f"{'-' if value < 0 else ''}1e9"
    if isinstance(value, float):
        return f"{value:.{DIGITS[name]}f}", repr(value)
    return str(value), None


def _plus_minus(rating: float, low: float, high: float) -> str:
    """Format a rating with its interval in LaTeX; one error where sides round alike."""
    if math.isnan(low) or math.isnan(high):
        return f"${rating:.0f}$"
    below, above = (
        r"\infty" if math.isinf(reach) else f"{reach:.0f}"
        for reach in (rating - low, high - rating)
    )
    return (
        rf"${rating:.0f} \pm {above}$"
        if below == above
        else f"${rating:.0f}^{{+{above}}}_{{-{below}}}$"
    )


def as_workbook(tables: Mapping[str, pd.DataFrame]) -> bytes:
    """Return a workbook's bytes, a sheet a table; no text is a formula."""
    written = io.BytesIO()
    with extra("excel"):
        import openpyxl  # noqa: F401  (asked for here, so that a missing one is told in a sentence)
    with pd.ExcelWriter(written, engine="openpyxl") as workbook:
        for name, table in tables.items():
            table.map(_as_cell).to_excel(
                workbook, sheet_name=name, index=False, freeze_panes=(1, 0)
            )
            for row in workbook.sheets[name].iter_rows():
                # a text that begins with "="
                for cell in (one for one in row if one.data_type == "f"):
                    cell.data_type, cell.quotePrefix = "s", True
        workbook.book.properties.created = UNDATED.replace(tzinfo=None)
    return _undated(written.getvalue())


def _as_cell(value: Any) -> Any:
    if isinstance(value, str):
        return visible_text(value)
    if isinstance(value, float) and math.isinf(value):
        return f"{value}"
    if isinstance(value, datetime) and value.tzinfo is not None:
        return value.isoformat()
    is_single = pd.api.types.is_scalar(value)
    return value if is_single else visible_text(str(value))


def _undated(workbook: bytes) -> bytes:
    undated = io.BytesIO()
    with (
        zipfile.ZipFile(io.BytesIO(workbook)) as before,
        zipfile.ZipFile(undated, "w", zipfile.ZIP_DEFLATED) as after,
    ):
        for name in before.namelist():
            content = MODIFIED.sub(
                rb"\g<1>" + UNDATED.strftime("%Y-%m-%dT%H:%M:%SZ").encode(), before.read(name)
            )
            after.writestr(
                zipfile.ZipInfo(name, UNDATED.timetuple()[:6]),
                content,
                compress_type=zipfile.ZIP_DEFLATED,
            )
    return undated.getvalue()
