"""MentalAlign-70k: what clinicians and four models gave ten replies to each of 1,000 questions.

Three things about the release that its files show and its description does not:

- The people's file is out of step with the judges' in 19 of 1,000 rows. In 8 it repeats the
  question of a neighbouring row (7 exactly), and in 10 (164 and 501 to 509, from 0) each question
  stands one row late. The scores go with the question, not with the row: less each responder's
  mean, people's scores in those 10 rows correlate at .26 to .43 with what the four judges gave one
  row up, at .08 to .10 with the same row; in all other rows at .29 to .35. So people are joined to
  judges by the question. ``as_published`` joins by row, and the published reliabilities follow.
- One row (534) holds what a counsellor would say where the judges' file has a question. It stays a
  history of its own.
- Mean and spread of the people's scores jump at five rows while the judges' stay flat. Other people
  probably scored from there on; the release does not say who scored what.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from heart_utils.sources.catalogue import SOURCES, Source
from heart_utils.sources.load import load_responders
from heart_utils.tables import DataError

__all__ = ["ATTRIBUTES"]

#: Keeps a stretch of equal means, as judges give, from having a likelihood without bound.
SMALLEST_VARIANCE = 0.01


def find_blocks(series: npt.ArrayLike, *, strictness: float = 3.0, shortest: int = 30) -> list[int]:
    r"""Find the first row of each block of rows that share a mean and a spread.

    Source: Killick, Fearnhead and Eckley (2012), https://doi.org/10.1080/01621459.2012.737745
    """
    values = np.array(series, dtype=float)
    values = np.where(np.isnan(values), np.nanmean(values, axis=0), values)
    n, columns = values.shape
    penalty = strictness * 2 * columns * np.log(n)
    sums = np.vstack([np.zeros(columns), values.cumsum(axis=0)])
    squares = np.vstack([np.zeros(columns), (values**2).cumsum(axis=0)])
    best = np.full(n + 1, np.inf)
    best[0] = -penalty
    start_of = np.zeros(n + 1, dtype=int)
    for end in range(shortest, n + 1):
        starts = np.arange(end - shortest + 1)
        rows = (end - starts)[:, None]
        variance = (squares[end] - squares[starts]) / rows - (
            (sums[end] - sums[starts]) / rows
        ) ** 2
        cost = (rows * np.log(np.maximum(variance, SMALLEST_VARIANCE))).sum(axis=1)
        total = best[starts] + cost + penalty
        start_of[end] = int(total.argmin())
        best[end] = total[start_of[end]]
    blocks = [int(start_of[n])]
    while blocks[-1] > 0:
        blocks.append(int(start_of[blocks[-1]]))
    return blocks[::-1]


FACTS = SOURCES["mentalalign"].reading
CLINICIANS, RESPONDERS = FACTS["clinicians"], FACTS["responders"]
ATTRIBUTES = tuple(FACTS["dimensions"])
"""The seven attributes. The judges also gave an overall score, which the clinicians did not; it is
left out."""

LOW, HIGH = 1, 5
CELL_FLAGS = ("empty", "not_json", "all_zeros")
ROW_FLAGS = ("moved", "repeated_question", "other_question")
FENCE = re.compile(r"```(?:json)?\s*")


def read_mentalalign(
    _source: Source, files: Mapping[str, Path], *, as_published: bool = False
) -> pd.DataFrame:
    """Scores of five raters, 1,000 questions, ten replies, seven attributes."""
    tables = {rater: _read(files[name]) for rater, name in FACTS["raters"].items()}
    first = tables["gpt-4o"]
    for rater, table in tables.items():
        if not table["ConvID"].equals(first["ConvID"]):
            raise DataError(
                f"mentalalign: the rows of {rater} are not numbered as those of gpt-4o."
            )
        if rater != CLINICIANS and not _plain(table["context"]).equals(_plain(first["context"])):
            raise DataError(f"mentalalign: the questions of {rater} are not those of gpt-4o.")
    people = tables[CLINICIANS]
    places = _join(people["context"], first["context"], as_published)
    judged = places[["history_id", "dialogue_id"]] if as_published else None
    cells = [
        _cells(rater, table, places if rater == CLINICIANS else judged)
        for rater, table in tables.items()
    ]
    notes = {rater: _count(table) for rater, table in zip(tables, cells, strict=True)}
    notes[CLINICIANS] |= {f"rows {flag}": int(places[flag].sum()) for flag in ROW_FLAGS}
    scores = pd.concat([_scores(table, as_published) for table in cells], ignore_index=True)
    scores["group"] = _blocks(scores, places)
    scores.attrs["notes"] = notes
    return scores


def _read(file: Path) -> pd.DataFrame:
    table = pd.read_excel(file, dtype=str, engine="calamine")
    table.columns = [
        re.sub(r"^(human|judge)_response_", "", column.strip()) for column in table.columns
    ]
    used = ["ConvID", "context", *RESPONDERS]
    if missing := [column for column in used if column not in table]:
        raise DataError(f"{file}: missing {', '.join(missing)}.")
    return table[used]


def _plain(questions: pd.Series) -> pd.Series:
    """Compare questions by their letters and digits alone."""
    return questions.astype(str).str.lower().str.replace(r"\W+", "", regex=True)


def _join(people: pd.Series, judges: pd.Series, as_published: bool) -> pd.DataFrame:
    """Join each row of the people's file with its history.

    It is that of the judges' row with the same question, or with its number.
    """
    numbers = pd.Series([f"mentalalign-{row + 1:04d}" for row in range(len(judges))])
    rated, judged = _plain(people), _plain(judges)
    match = pd.Series(numbers.to_numpy(), index=judged).reindex(rated).reset_index(drop=True)
    twice = rated.duplicated(keep=False)
    places = pd.DataFrame(
        {
            "other_question": match.isna(),
            "repeated_question": twice & match.notna() & (match != numbers),
        }
    )
    places["moved"] = match.notna() & (match != numbers) & ~twice
    if as_published:
        first = pd.Series(numbers.to_numpy(), index=rated)
        return places.assign(
            history_id=numbers, dialogue_id=rated.map(first[~first.index.duplicated()])
        )
    dialogue = match.where(match.notna(), numbers + "-people")
    return places.assign(
        history_id=dialogue.where(~places["repeated_question"], dialogue + "-again"),
        dialogue_id=dialogue,
    )


def _cells(rater: str, table: pd.DataFrame, places: pd.DataFrame | None) -> pd.DataFrame:
    """Read every cell of one rater: seven values as they stand, and marks for what was odd."""
    numbers = [f"mentalalign-{int(number):04d}" for number in table["ConvID"]]
    if places is None:
        places = pd.DataFrame({"history_id": numbers, "dialogue_id": numbers})
    where = {str(column): places[column].to_numpy() for column in places}
    parts = []
    for column, responder in RESPONDERS.items():
        read = [_read_cell(cell) for cell in table[column]]
        part = pd.DataFrame([scores for scores, _ in read], columns=list(ATTRIBUTES), dtype=object)
        marks = pd.Series([marks for _, marks in read], dtype=object)
        flag_columns = {flag: [flag in cell for cell in marks] for flag in CELL_FLAGS}
        parts.append(part.assign(responder=responder, marks=marks, **flag_columns, **where))
    return pd.concat(parts, ignore_index=True).assign(rater=rater)


def _read_cell(cell: Any) -> tuple[list[Any], list[str]]:
    """Read one cell: the seven values as they stand, and marks for what was odd about it."""
    nothing = [None] * len(ATTRIBUTES)
    if pd.isna(cell) or not str(cell).strip():
        return nothing, ["empty"]
    text = str(cell).strip()
    opening = FENCE.match(text)
    bare = text[opening.end() if opening else 0 :].removesuffix("```").rstrip()
    marks = ["code_fence"] if bare != text else []
    inner = bare[bare.find("{") : bare.rfind("}") + 1]
    marks += ["words_around"] if inner != bare and inner else []
    try:
        content = json.loads(inner)
    except json.JSONDecodeError:
        return nothing, [*marks, "not_json"]
    values = [content.get(attribute.capitalize()) for attribute in ATTRIBUTES]
    return values, [*marks, "all_zeros"] if all(value == 0 for value in values) else marks


def _scores(cells: pd.DataFrame, as_published: bool) -> pd.DataFrame:
    """Turn cells into one row an attribute, each with its state and flags."""
    ids = [column for column in cells if column not in (*ATTRIBUTES, "marks")]
    long = cells.melt(ids, value_vars=list(ATTRIBUTES), var_name="dimension", value_name="said")
    numbers = pd.to_numeric(long["said"], errors="coerce")
    fits = numbers.notna() if as_published else numbers.between(LOW, HIGH) & (numbers % 1 == 0)
    state = pd.Series("valid", index=long.index).where(fits, "error")
    state = state.where(long["said"].notna() | fits, "abstained")
    families = load_responders("mentalalign").set_index("responder")["family"]
    flags = {
        **{flag: long[flag] for flag in CELL_FLAGS},
        "null": long["said"].isna() & ~long["empty"] & ~long["not_json"],
        "out_of_range": long["said"].notna() & ~numbers.between(LOW, HIGH) & (numbers != 0),
        "own_family": (
            long["responder"].map(families) == FACTS["families"].get(long["rater"].iloc[0])
        ),
        **{flag: long[flag] for flag in ROW_FLAGS if flag in long},
    }
    kept = ["history_id", "dialogue_id", "responder", "rater", "dimension"]
    rows = long[kept].assign(protocol="likert", score=numbers.where(fits))
    rows["rater_kind"] = "human" if long["rater"].iloc[0] == CLINICIANS else "model"
    rows["reply_id"] = long["history_id"] + "--" + long["responder"]
    rows["flags"] = _flags(pd.DataFrame(flags))
    return rows.assign(state=state.where(~long["not_json"], "unparsed"))


def _flags(table: pd.DataFrame) -> list[list[str]]:
    """Turn columns of truth values into a list of their names in each row."""
    truth = table.to_numpy(dtype=bool)
    bits = 2 ** np.arange(truth.shape[1])
    kinds, codes = np.unique(truth @ bits, return_inverse=True)
    names = [
        [str(name) for name, bit in zip(table.columns, bits, strict=True) if kind & bit]
        for kind in kinds
    ]
    return [list(names[code]) for code in codes]


def _count(cells: pd.DataFrame) -> dict[str, int]:
    """Count the cells of one rater, and those in which something was odd."""
    marks = cells["marks"].explode().value_counts()
    values = cells[list(ATTRIBUTES)]
    numbers = values.apply(pd.to_numeric, errors="coerce")
    read = ~cells["empty"] & ~cells["not_json"]
    counts = {"cells": len(cells), **{str(mark): int(count) for mark, count in marks.items()}}
    counts["with null"] = int((values.isna().any(axis=1) & read).sum())
    counts["out_of_range"] = int(
        (((numbers < LOW) | (numbers > HIGH)) & (numbers != 0)).any(axis=1).sum()
    )
    return counts


def _blocks(scores: pd.DataFrame, places: pd.DataFrame) -> pd.Series:
    """Return for each question the block that holds its row of the clinicians' file."""
    people = scores[(scores["rater"] == CLINICIANS) & scores["score"].between(LOW, HIGH)]
    means = people.pivot_table(
        index="history_id", columns="dimension", values="score", aggfunc="mean"
    )
    in_file = means.reindex(places["history_id"])[list(ATTRIBUTES)]
    starts = find_blocks(in_file.to_numpy())
    block = "block_" + pd.Series(
        np.searchsorted(starts, np.arange(len(places)), side="right")
    ).astype(str)
    of_history = pd.Series(block.to_numpy(), index=places["history_id"])
    # A question that only the judges have stands between its neighbours: it takes the block of its
    # row.
    of_row = pd.Series(
        block.to_numpy(), index=[f"mentalalign-{row + 1:04d}" for row in range(len(places))]
    )
    blocks = scores["history_id"].map(of_history)
    return blocks.where(blocks.notna(), scores["history_id"].map(of_row))
