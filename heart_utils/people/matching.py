"""Which comparison an answer is about, and whether it was shown to the one who gave it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from heart_utils.people.exports import PotatoAnswers
from heart_utils.runs import read_csv_text

__all__ = ["StudyImportError"]

TIE = "No difference"
QUESTIONS = ("preference", "strength", "reason", "dimension")
MATCHED = [
    *("person", "comparison_id", "pair_id", "dimension", "verdict", "margin"),
    *("order", "reason", "seconds", "position", "pasted_share", "where"),
]


class StudyImportError(ValueError):
    """Answers do not fit the study they are said to come from."""


def match_pages(folder: Path, found: PotatoAnswers) -> pd.DataFrame:
    r"""Join each answered page with the assignment."""
    assignment = read_csv_text((folder / "assignment.csv").read_text(encoding="utf-8"), dtype={"check": "Int64"})
    pages = found.pages.merge(assignment, on="item_id", how="left", validate="many_to_one")
    strange = pages[pages["seat"].isna()]
    if len(strange):
        first = strange.iloc[0]
        raise StudyImportError(
            f"{len(strange)} answers are to pages that were never shown in this study, first {first['item_id']!r} by "
            f"{first['person']!r}. "
            f"Are the answers from another folder, or was the assignment changed?"
        )
    seats = pages.groupby("person")["seat"].nunique()
    if (seats > 1).any():
        raise StudyImportError(
            f"{seats.idxmax()!r} answered pages of {seats.max()} seats; each person has one. Pages of another's seat "
            f"were never shown to them."
        )
    sitters = pages.groupby("seat")["person"].nunique()
    if (sitters > 1).any():
        raise StudyImportError(
            f"{sitters.max()} people answered in {sitters.idxmax()}, which was made for one. The same rater may have "
            f"come twice under two names."
        )
    return pages[["person", "item_id", *[column for column in assignment.columns if column != "item_id"]]]


def match_potato(folder: Path, found: PotatoAnswers, asked: Mapping[str, Any]) -> tuple[pd.DataFrame, pd.DataFrame]:
    r"""Read a rating study's answers in terms of a and b, and its attention checks."""
    shown = match_pages(folder, found)
    twice = found.answers.duplicated(["person", "item_id", "question"])
    if twice.any():
        first = found.answers[twice].iloc[0]
        raise StudyImportError(
            f"{first['person']!r} gave two answers to the question {first['question']} of the page "
            f"{first['item_id']!r}; the export is damaged."
        )
    given = found.answers.pivot_table(index=["person", "item_id"], columns="question", values="value", aggfunc="first")
    given = given.reindex(columns=list(QUESTIONS))
    pages = shown.merge(found.pages, on=["person", "item_id"]).join(given, on=["person", "item_id"])
    rated = pages[pages["task"] == "rate"].assign(dimension_name="overall")
    if asked["dimension"]:
        second = rated.assign(preference=rated["dimension"].str.removeprefix("Reply "), dimension_name=asked["dimension_name"])
        rated = pd.concat([rated, second.assign(strength=None, reason=None)], ignore_index=True)
    side = rated["preference"].replace(TIE, "tie")
    odd = side.notna() & ~side.isin(["A", "B", "tie"])
    if odd.any():
        raise StudyImportError(
            f"The page {rated.loc[odd, 'item_id'].iloc[0]!r} has the side {side[odd].iloc[0]!r}, expected A, B or tie."
        )
    left_is_a = (rated["order"] == "ab") ^ rated["swapped"].astype(bool)
    chosen = pd.Series(
        ["a" if left == (one == "A") else "b" for one, left in zip(side, left_is_a, strict=True)], index=rated.index
    )
    verdict = side.where(side.isna() | (side == "tie"), chosen)
    matched = rated.assign(
        verdict=verdict,
        margin=pd.to_numeric(rated["strength"], errors="coerce").where(verdict.isin(["a", "b"])),
        order=left_is_a.map({True: "ab", False: "ba"}),
        dimension=rated["dimension_name"],
        where=rated["item_id"],
    )
    return matched[MATCHED], _with_checks(people_of(found, shown), pages, folder)


def match_table(rows: pd.DataFrame, comparisons: pd.DataFrame, name: str) -> pd.DataFrame:
    """Find the comparison that each row of a table of sides is about."""
    people = rows["person"].drop_duplicates()
    plain = people.str.strip().str.casefold()
    if plain.duplicated().any():
        same = people[plain == plain[plain.duplicated()].iloc[0]].tolist()
        raise StudyImportError(
            f"The same rater appears twice in {name}, as {' and as '.join(map(repr, same))}. Give each person one spelling."
        )
    by_sides: dict[tuple[str, str], dict[Any, Any]] = {}
    for row in comparisons.to_dict("records"):
        left, right = (row["reply_a"], row["reply_b"]) if row["order"] == "ab" else (row["reply_b"], row["reply_a"])
        by_sides.setdefault((left, right), row)  # the run's own come first, and no study imported since takes their place
    found = []
    for row in rows.to_dict("records"):
        shown = by_sides.get((row["left"], row["right"]))
        if shown is None:
            raise StudyImportError(
                f"{row['where']}: {row['left']!r} on the left of {row['right']!r} was never shown; the run has no such "
                f"comparison. "
                f"Check the reply ids, and which side was which."
            )
        left, right = shown["order"]
        sides: dict[object, str] = {"left": left, "right": right, "tie": "tie"}
        verdict = sides.get(row["choice"])
        judged = dict(row)
        judged.update({name: shown[name] for name in ("comparison_id", "pair_id", "order")})
        judged.update(verdict=verdict, margin=row["margin"] if verdict in ("a", "b") else None)
        found.append(judged)
    table = pd.DataFrame(found)
    return table.assign(position=table.groupby("person").cumcount() + 1, pasted_share=0.0)


def people_of(found: PotatoAnswers, shown: pd.DataFrame) -> pd.DataFrame:
    """Count what each person was shown and answered, checks apart."""
    answered = shown[shown["task"] != "check"].groupby("person").size()
    raters = found.people.assign(n_answered=found.people["person"].map(answered).fillna(0).astype(int))
    return raters.assign(n_checks=0, n_checks_passed=0)


def _with_checks(raters: pd.DataFrame, pages: pd.DataFrame, folder: Path) -> pd.DataFrame:
    """Count the attention checks that each person answered, and passed: the side and the strength that the page asked for."""
    checks = pages[pages["task"] == "check"]
    passed = (checks["preference"] == checks["check_side"]) & (
        pd.to_numeric(checks["strength"], errors="coerce") == checks["check_strength"]
    )
    raters["n_checks"] = raters["person"].map(checks.groupby("person").size()).fillna(0).astype(int)
    raters["n_checks_passed"] = raters["person"].map(passed.groupby(checks["person"]).sum()).fillna(0).astype(int)
    assignment = pd.read_csv(folder / "assignment.csv")
    per_seat = (assignment["task"] == "check").groupby(assignment["seat"]).sum()
    seat = pages.drop_duplicates("person").set_index("person")["seat"]
    return raters.assign(n_shown=raters["n_shown"] - raters["person"].map(seat.map(per_seat)).fillna(0).astype(int))
