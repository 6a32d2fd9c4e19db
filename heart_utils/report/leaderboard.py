"""The leaderboard as files and as a page that sorts and searches offline, and the ranking under a reader's own weights."""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from heart_utils.ratings.scores import weigh_scores
from heart_utils.report.conversation import Reading, fill_page
from heart_utils.report.figures import POPULATION_NAMES
from heart_utils.runs import csv_text, write_atomically
from heart_utils.tables import check_table

__all__ = ["leaderboard_html", "weigh_by_hand", "write_leaderboard"]

HEADINGS = {
    "rank": "Rank",
    "responder": "Written by",
    "kind": "Kind",
    "rating": "Rating",
    "rating_low": "Low",
    "rating_high": "High",
    "win_probability": "Preferred to the field",
    "tie_share": "Ties",
    "n_verdicts": "Verdicts",
    "n_clusters": "Dialogues",
    "notes": "Notes",
}
GROUPS = ("data", "dimension", "slice", "group", "rater_kind", "rater")
WORDS = ("responder", "kind", "notes")
DIGITS = {"rating": 0, "rating_low": 0, "rating_high": 0, "win_probability": 2, "tie_share": 2}

NOTES = {
    "provisional": "fewer than 30 dialogues, or no interval at all",
    "penalised": "always won or always lost: no finite strength fits, so a quarter of a win and of a loss was lent",
    "simulated": "drawn by a program",
}


def leaderboard_rows(ratings: pd.DataFrame | Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """Turn a ratings table into what a reader of a leaderboard looks for."""
    if isinstance(ratings, Mapping):
        return pd.concat([leaderboard_rows(table).assign(data=name) for name, table in ratings.items()], ignore_index=True)
    table = check_table("ratings", ratings)
    low, high = table["rank_low"], table["rank_high"]
    rank = low.astype("string").where(low == high, low.astype("string") + "-" + high.astype("string")).fillna("")
    notes = [
        ", ".join(word for word in ("provisional", "penalised", "simulated") if row[word])
        for row in table[["provisional", "penalised", "simulated"]].to_dict("records")
    ]
    shown = table.assign(rank=rank.astype("str"), kind=table["responder_kind"], notes=notes)
    return shown[[*GROUPS[1:], "population", "method", *HEADINGS]]


def leaderboard_html(
    ratings: pd.DataFrame | Mapping[str, pd.DataFrame], *, title: str = "Leaderboard", whole_page: bool = True
) -> str:
    """Make a page of leaderboards that sorts by any column and searches, with nothing loaded from anywhere.

    Parameters
    ----------
    ratings : pandas.DataFrame or mapping
        The table ``ratings``, or several by the name of their data; each leaderboard gets a table of its own.
    title : str
        Of the page.
    whole_page : bool
        Whether to give a page, or only the part to put into one.

    Returns
    -------
    str
        HTML, with the same rows as CSV and JSON to save from it. Without scripts it still shows the
        leaderboards, best first.

    Examples
    --------
    >>> from heart_utils.ratings.ratings import fit_ratings
    >>> duel = pd.DataFrame({"responder_a": "x", "responder_b": "y", "verdict": ["a", "b", "a"]})
    >>> leaderboard_html(fit_ratings(duel, n_resamples=0).table, whole_page=False).count("<table")
    1
    """
    rows = leaderboard_rows(ratings)
    files = [(ending, mime, base64.b64encode(text.encode()).decode()) for ending, mime, text in _as_text(rows, title)]
    keys = [name for name in (*GROUPS, "population", "method") if name in rows]
    boards = [
        _board(dict(zip(keys, group, strict=True)), board.sort_values("rating", ascending=False))
        for group, board in rows.groupby(keys, sort=False, dropna=False)
    ]
    return fill_page("leaderboard", title=title, whole_page=whole_page, files=files, boards=boards)


def write_leaderboard(ratings: pd.DataFrame, folder: Path, *, title: str = "Leaderboard") -> list[Path]:
    """Write the leaderboard as ``leaderboard.csv``, ``.json`` and ``.html``.

    Parameters
    ----------
    ratings : pandas.DataFrame
        The ratings table.
    folder : pathlib.Path
        Made if need be.
    title : str
        Of the page.

    Returns
    -------
    list of pathlib.Path
        The three files. They hold names and numbers, no texts.

    Examples
    --------
    >>> import tempfile
    >>> from heart_utils.ratings.ratings import fit_ratings
    >>> duel = pd.DataFrame({"responder_a": "x", "responder_b": "y", "verdict": ["a", "b", "a"]})
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     [file.name for file in write_leaderboard(fit_ratings(duel, n_resamples=0).table, Path(folder))]
    ['leaderboard.csv', 'leaderboard.json', 'leaderboard.html']
    """
    contents = {ending: content for ending, _, content in _as_text(leaderboard_rows(ratings), title)}
    contents["html"] = leaderboard_html(ratings, title=title)
    files = [folder / f"leaderboard.{ending}" for ending in contents]
    for file, content in zip(files, contents.values(), strict=True):
        write_atomically(file, content.encode())
    return files


def weigh_by_hand(
    means: pd.DataFrame,
    profiles: Mapping[str, Mapping[str, float]],
    *,
    scale: str,
    scores: pd.DataFrame | None = None,
    ci_level: float = 0.95,
    simulated: bool = False,
) -> Reading:
    """Make sliders for the weights of dimensions beside the ranking that they give.

    Parameters
    ----------
    means : pandas.DataFrame
        One row per responder and dimension: ``responder``, ``dimension``, ``score``.
    profiles : mapping of str to mapping of str to float
        Name -> weights with the sum 1; each becomes a button that sets the sliders to whole hundredths.
    scale : str
        What the scores are.
    scores : pandas.DataFrame, optional
        The single scores behind the means, with ``responder``, ``dialogue_id``, ``dimension`` and ``score``; with them each
        weighted score has an interval over dialogues, from how dimensions vary together.
    ci_level : float
        Of these intervals.
    simulated : bool
        Whether any score was simulated; it is then said beside the ranking.

    Returns
    -------
    Reading
        HTML with its own script. It opens with equal weights, and without scripts it shows that ranking.

    Raises
    ------
    heart_utils.ratings.scores.ScaleError
        If a responder lacks a dimension, or a profile's weights lack the sum 1 or name what nobody scored.

    Examples
    --------
    >>> means = pd.DataFrame({"responder": ["a", "a", "b", "b"], "dimension": ["safety", "warmth"] * 2, "score": [5, 1, 3, 4]})
    >>> "<td>1</td><td>b</td><td>3.50</td>" in weigh_by_hand(means, {}, scale="1 to 5")._repr_html_()
    True
    """
    dimensions = list(dict.fromkeys(means["dimension"]))
    ranking = weigh_scores(means, {name: 1 / len(dimensions) for name in dimensions})
    wide = means.pivot_table("score", "responder", "dimension")[dimensions]
    spread = {} if scores is None else _spread(scores, dimensions, ci_level)
    equal = np.full(len(dimensions), 1 / len(dimensions))
    reach = {name: float(np.sqrt(equal @ matrix @ equal)) for name, matrix in spread.items()}
    choices = {"equal weights": dict.fromkeys(dimensions, 50)}
    for name, weights in profiles.items():
        weigh_scores(means, weights)  # refuses weights that lack the sum 1 or fit no dimension
        choices[name] = {dimension: round(100 * weights.get(dimension, 0)) for dimension in dimensions}
    values = {"dimensions": dimensions, "choices": choices, "ranking": ranking.to_dict("records")}
    values["scores"] = dict(zip(wide.index, wide.to_numpy().tolist(), strict=True))
    values["spread"], values["reach"] = {name: matrix.round(8).tolist() for name, matrix in spread.items()}, reach
    return Reading(
        fill_page("leaderboard_weights", **values, scale=scale, simulated=simulated, ci_level=ci_level, json=json.dumps)
    )


def _spread(scores: pd.DataFrame, dimensions: list[str], ci_level: float) -> dict[str, Any]:
    """Give the covariance of each responder's mean scores over dialogues, times the squared quantile of an interval."""
    wide = scores.pivot_table("score", ["responder", "dialogue_id"], "dimension")[dimensions]
    return {
        str(name): rows.cov().to_numpy() / len(rows) * stats.t.ppf((1 + ci_level) / 2, len(rows) - 1) ** 2
        for name, rows in wide.groupby("responder")
    }


def _as_text(rows: pd.DataFrame, title: str) -> list[tuple[str, str, str]]:
    """Give the ending, the media type and the text of the files for programs."""
    records = json.loads(rows.to_json(orient="records", double_precision=15))
    structured = json.dumps({"title": title, "boards": records}, indent=1, ensure_ascii=False) + "\n"
    return [("csv", "text/csv", csv_text(rows)), ("json", "application/json", structured)]


def _board(group: dict[str, Any], board: pd.DataFrame) -> dict[str, Any]:
    """Give what one table shows: its caption, its headings, its cells and the notes that it uses."""
    used = {word: meaning for word, meaning in NOTES.items() if board["notes"].str.contains(word).any()}
    shown = [name for name in HEADINGS if name != "notes" or used]
    said = {name.replace("_", " "): group[name] for name in GROUPS if not pd.isna(group.get(name))}
    ends = board[["rating_low", "rating_high"]].to_numpy(float)
    drawn = bool(np.isfinite(ends).all())
    least = float(ends.min())
    scale = 100.0 / (float(ends.max()) - least) if drawn and ends.max() > least else 0.0
    rows = [
        {
            "cells": [(HEADINGS[name], *_cell(name, row[name]), name in WORDS) for name in shown],
            "bar": drawn and [round(scale * length, 1) for length in _bar(row, least)],
        }
        for row in board.to_dict("records")
    ]
    return {
        "group": said,
        "name": ", ".join(str(said[name]) for name in said if name != "data" and said[name] not in ("all", "standard"))
        or "all",
        "drawn": drawn,
        "method": group["method"],
        "population": "" if board["rating_low"].isna().all() else POPULATION_NAMES[group["population"]],
        "simulated": "simulated" in used,
        "notes": used,
        "heads": [(HEADINGS[name], name in WORDS) for name in shown],
        "rows": rows,
    }


def _bar(row: dict[Any, Any], least: float) -> tuple[float, float, float]:
    """Give where an interval begins, how long it is, and where the rating lies in it."""
    return row["rating_low"] - least, row["rating_high"] - row["rating_low"], row["rating"] - least


def _cell(name: str, value: Any) -> tuple[str, str | None]:
    """Give what a cell shows, and what it is sorted by where that is something else."""
    if not isinstance(value, str) and pd.isna(value):
        return "", ""
    if name == "rank":
        return str(value), str(value).split("-")[0]
    if isinstance(value, float) and math.isinf(value):
        return "no limit", f"{'-' if value < 0 else ''}1e9"
    if isinstance(value, float):
        return f"{value:.{DIGITS[name]}f}", repr(value)
    return str(value), None
