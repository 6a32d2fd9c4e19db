"""The leaderboard as files: CSV and JSON for programs, and a page that sorts and searches offline."""

from __future__ import annotations

import base64
import html
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from heart_utils.report.figures import POPULATION_NAMES
from heart_utils.runs import csv_text, write_atomically
from heart_utils.tables import check_table

__all__ = ["leaderboard_html", "write_leaderboard"]

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
DIGITS = {"rating": 0, "rating_low": 0, "rating_high": 0, "win_probability": 2, "tie_share": 2}

NOTES = {
    "provisional": "fewer than 30 dialogues, or no interval at all",
    "penalised": "always won or always lost: no finite strength fits, so a quarter of a win and of a loss was lent",
    "simulated": "drawn by a program",
}

SCRIPT = """
for (const table of document.querySelectorAll("table.board")) {
  const body = table.tBodies[0], part = table.closest("section"), said = part.querySelector(".said");
  const search = part.querySelector("input");
  search.addEventListener("input", () => {
    const words = search.value.toLowerCase().split(/\\s+/);
    let shown = 0;
    for (const row of body.rows) {
      const text = row.textContent.toLowerCase();
      row.hidden = !words.every((word) => text.includes(word));
      shown += row.hidden ? 0 : 1;
    }
    said.textContent = shown + " of " + body.rows.length + " rows";
  });
  const buttons = table.tHead.querySelectorAll("button");
  buttons.forEach((button, column) => button.addEventListener("click", () => {
    const heading = button.parentElement;
    const up = heading.getAttribute("aria-sort") !== "ascending";
    buttons.forEach((other) => other.parentElement.removeAttribute("aria-sort"));
    heading.setAttribute("aria-sort", up ? "ascending" : "descending");
    const value = (row) => row.cells[column].dataset.value ?? row.cells[column].textContent;
    const compare = (one, other) => {
      const a = value(one), b = value(other);
      if (a === "" || b === "") return (a === "") - (b === "");
      const gap = a - b;
      return (up ? 1 : -1) * (Number.isNaN(gap) ? a.localeCompare(b) : gap);
    };
    body.append(...Array.from(body.rows).sort(compare));
  }));
}
"""

STYLE = """
.boards { font: 14px/1.4 system-ui, sans-serif; max-width: 70rem; }
.boards .scroll { overflow-x: auto; margin: .5rem 0 2rem; }
.boards table { border-collapse: collapse; width: 100%; margin: 0; }
.boards caption { caption-side: top; text-align: left; }
.boards caption span { position: sticky; left: 0; display: inline-block; max-width: min(44rem, 85vw); }
.boards th, .boards td { padding: .3rem .2rem; border-bottom: 1px solid #ccc; text-align: right; white-space: nowrap; }
.boards th { vertical-align: bottom; white-space: normal; }
.boards .word { text-align: left; }
.boards th button { font: inherit; font-weight: 600; border: 0; background: none; cursor: pointer; padding: 0; }
.boards th button { text-align: inherit; }
.boards th[aria-sort=ascending] button::after { content: " \\2191"; }
.boards th[aria-sort=descending] button::after { content: " \\2193"; }
.boards .simulated { background: #fff3cd; color: #222; border: 1px solid #b58900; padding: .3rem .6rem; }
.boards input { font: inherit; padding: .2rem .4rem; }
"""


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
    """Make a page of boards that sorts by any column and searches, with nothing loaded from anywhere.

    Parameters
    ----------
    ratings : pandas.DataFrame or mapping
        As for ``leaderboard_rows``; each board gets a table of its own.
    title : str
        Of the page.
    whole_page : bool
        Whether to give a page, or only the part to put into one.

    Returns
    -------
    str
        HTML, with the same rows as CSV and JSON to save from it. Without scripts it still shows the
        boards, best first.

    Examples
    --------
    >>> import numpy as np
    >>> from heart_utils.ratings.ratings import fit_ratings
    >>> from heart_utils.simulate.study import simulate_study
    >>> study = simulate_study(rng=np.random.default_rng(1), n_responders=4, n_dialogues=10, pairs="all")
    >>> ratings = fit_ratings(study.verdicts, responders=study.responders, n_resamples=20).table
    >>> leaderboard_html(ratings, whole_page=False).count("<table")
    1
    """
    rows = leaderboard_rows(ratings)
    parts = [f"<h1>{html.escape(title)}</h1>"] if whole_page else []
    links = [_download(kind, mime, content) for kind, mime, content in _as_text(rows, title)]
    parts.append(f"<p>All columns at full precision: {' '.join(links)}</p>")
    keys = [name for name in (*GROUPS, "population", "method") if name in rows]
    for group, board in rows.groupby(keys, sort=False, dropna=False):
        parts.append(_board(dict(zip(keys, group, strict=True)), board.sort_values("rating", ascending=False)))
    body = f'<div class="boards"><style>{STYLE}</style>{"".join(parts)}<script>{SCRIPT}</script></div>'
    if not whole_page:
        return body
    head = f'<meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>{html.escape(title)}</title>'
    return f'<!doctype html><html lang="en"><head>{head}</head><body>{body}</body></html>\n'


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
    >>> import numpy as np
    >>> import tempfile
    >>> from heart_utils.ratings.ratings import fit_ratings
    >>> from heart_utils.simulate.study import simulate_study
    >>> study = simulate_study(rng=np.random.default_rng(1), n_responders=4, n_dialogues=10, pairs="all")
    >>> ratings = fit_ratings(study.verdicts, responders=study.responders, n_resamples=20).table
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     [file.name for file in write_leaderboard(ratings, Path(folder))]
    ...
    ['leaderboard.csv', 'leaderboard.json', 'leaderboard.html']
    """
    contents = {ending: content for ending, _, content in _as_text(leaderboard_rows(ratings), title)}
    contents["html"] = leaderboard_html(ratings, title=title)
    files = [folder / f"leaderboard.{ending}" for ending in contents]
    for file, content in zip(files, contents.values(), strict=True):
        write_atomically(file, content.encode())
    return files


def _as_text(rows: pd.DataFrame, title: str) -> list[tuple[str, str, str]]:
    """Give the ending, the media type and the text of the files for programs."""
    records = json.loads(rows.to_json(orient="records", double_precision=15))
    structured = json.dumps({"title": title, "boards": records}, indent=1, ensure_ascii=False) + "\n"
    return [("csv", "text/csv", csv_text(rows)), ("json", "application/json", structured)]


def _download(ending: str, mime: str, content: str) -> str:
    data = base64.b64encode(content.encode()).decode()
    return f'<a download="leaderboard.{ending}" href="data:{mime};charset=utf-8;base64,{data}">{ending.upper()}</a>'


def _board(group: dict[str, Any], board: pd.DataFrame) -> str:
    """Make one table with its caption and its search field."""
    said = [
        f"{name.replace('_', ' ')} <b>{html.escape(str(group[name]))}</b>" for name in GROUPS if not pd.isna(group.get(name))
    ]
    note = '<p class="simulated">Simulated: drawn by a program from known strengths, measured on nobody.</p>'
    simulated = note if board["notes"].str.contains("simulated").any() else ""
    spoken = f"Intervals speak of {POPULATION_NAMES[group['population']]}; rank ranges hold for all at once."
    intervals = "There are no intervals." if board["rating_low"].isna().all() else spoken
    caption = f"{', '.join(said)}. Method: {html.escape(group['method'])}. {intervals}"
    used = [word for word in NOTES if board["notes"].str.contains(word).any()]
    legend = "".join(f"<li><b>{word}</b>: {NOTES[word]}</li>" for word in used)
    shown = [name for name in HEADINGS if name != "notes" or used]
    heads = "".join(f'<th scope="col"{_word(name)}><button type="button">{HEADINGS[name]}</button></th>' for name in shown)
    lines = "".join(f"<tr>{''.join(_cell(name, row[name]) for name in shown)}</tr>" for row in board.to_dict("records"))
    count = f"{len(board)} of {len(board)} rows"
    return (
        f'<section>{simulated}<label>Search <input type="search"></label> '
        f'<span class="said" aria-live="polite">{count}</span>'
        '<div class="scroll" tabindex="0" role="group" aria-label="Board">'
        f'<table class="board"><caption><span>{caption}</span></caption><thead><tr>{heads}</tr></thead>'
        f"<tbody>{lines}</tbody></table></div><ul>{legend}</ul></section>"
    )


def _word(name: str) -> str:
    return ' class="word"' if name in ("responder", "kind", "notes") else ""


def _cell(name: str, value: Any) -> str:
    if not isinstance(value, str) and pd.isna(value):
        return '<td data-value=""></td>'
    if name == "rank":
        return f'<td data-value="{html.escape(str(value).split("-")[0])}">{html.escape(value)}</td>'
    if isinstance(value, float) and math.isinf(value):
        return f'<td data-value="{"-" if value < 0 else ""}1e9">no limit</td>'
    if isinstance(value, float):
        return f'<td data-value="{value!r}">{value:.{DIGITS[name]}f}</td>'
    return f"<td{_word(name)}>{html.escape(str(value))}</td>"
