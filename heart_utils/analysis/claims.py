"""The claims ledger: published figures held against arithmetic, against each other and against what was released."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy import stats

__all__ = ["FINDINGS", "ClaimsError", "Outcome", "check_claims", "differing_sources"]

FINDINGS = (
    "reproduced",
    "adds up",
    "arithmetic fails",
    "present in the release, effect on the paper unknown",
    "contradicted between sources",
    "ill-defined in the source",
    "not testable without unreleased data",
)
"""What may be said of a published figure, and nothing else."""

REPRODUCED, ADDS_UP, FAILS, RELEASE, CONTRADICTED, ILL_DEFINED, NOT_TESTABLE = FINDINGS
READINGS = {"ill-defined": ILL_DEFINED, "release": RELEASE, "unreleased": NOT_TESTABLE}
"""What a reader found where nothing can be computed -> finding."""

RANKS = {"paper": 0, "release": 0, "report": 0, "readme": 0, "arithmetic": 0, "listing": 1, "digest": 1, "note": 1, "none": 1,
         "unreliable note": 2, "blog": 2}  # fmt: skip
"""How far a kind of source stands from the paper. A claim is contradicted only by one that stands as near or nearer."""

NEEDED = ("claim_id", "about", "quantity", "value", "source", "source_kind", "topic", "check", "reading", "note")
HALF = 0.05


class ClaimsError(ValueError):
    """The ledger names something that is not known."""


@dataclass(frozen=True)
class Outcome:
    """What a check computed.

    Attributes
    ----------
    finding : str
        One of :data:`FINDINGS`.
    ours : str
        Our figure, in words.
    """

    finding: str
    ours: str


def check_claims(claims: pd.DataFrame, tables: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """Find for each published figure what can be said of it.

    A failing sum comes first, then a contradiction by a source as near to the paper or nearer, then what a
    check found, then the reading of the source.

    Parameters
    ----------
    claims : pandas.DataFrame
        One row a figure: ``claim_id``, ``about``, ``quantity``, ``value``, ``source``, ``source_kind`` (of :data:`RANKS`),
        ``topic`` (claims of one topic exclude each other where their values differ), ``check`` (the name of one, with an
        argument after a colon), ``reading`` (a key of :data:`READINGS`), ``note``.
    tables : mapping of str to pandas.DataFrame
        ``heart_regular``, ``heart_adversarial`` (our indexes of the released histories), and HeartBench's published
        ``leaderboard_overall``, ``overall_by_ability``, ``hardset_by_ability``, ``counts``.

    Returns
    -------
    pandas.DataFrame
        The claims with ``finding`` and ``ours`` (our figure, or the contradicting value, or the note).

    Raises
    ------
    ClaimsError
        If a word or a check is unknown, or a claim stands twice.

    Examples
    --------
    >>> claims = pd.DataFrame([{"claim_id": "x", "about": "HEART", "quantity": "share of model wins", "value": "46.8",
    ...     "source": "s", "source_kind": "digest", "topic": "", "check": "shares", "reading": "unreleased", "note": ""}])
    >>> check_claims(claims, {})[["finding", "ours"]].values.tolist()
    [['adds up', '46.8 + 35.8 + 17.4 = 100.0']]
    """
    missing = [column for column in NEEDED if column not in claims]
    if missing:
        raise ClaimsError(f"The ledger lacks the column {', '.join(missing)}.")
    claims = claims.fillna("").reset_index(drop=True)
    for column, words in (("source_kind", RANKS), ("reading", READINGS)):
        strange = sorted(set(claims[column]) - set(words))
        if strange:
            raise ClaimsError(f"{column}: unknown {', '.join(map(repr, strange))}; the words are {', '.join(words)}.")
    if claims["claim_id"].duplicated().any():
        raise ClaimsError(f"Claim {claims.loc[claims['claim_id'].duplicated(), 'claim_id'].iloc[0]} stands twice.")
    against = _contradictions(claims)
    rows = []
    for row in claims.to_dict("records"):
        outcome = _run(str(row["check"]), tables) if row["check"] else None
        if outcome is not None and outcome.finding == FAILS:
            rows.append(outcome)
        elif row["claim_id"] in against:
            rows.append(Outcome(CONTRADICTED, f"another source: {against[row['claim_id']]}"))
        else:
            rows.append(outcome or Outcome(READINGS[str(row["reading"])], str(row["note"])))
    return claims.assign(finding=[outcome.finding for outcome in rows], ours=[outcome.ours for outcome in rows])


def differing_sources(checked: pd.DataFrame) -> pd.DataFrame:
    """List the claims that stand further from the paper than what contradicts them, such as a blog's.

    Parameters
    ----------
    checked : pandas.DataFrame
        From :func:`check_claims`.

    Returns
    -------
    pandas.DataFrame
        Those of the farthest kinds, contradicted: ``claim_id``, ``source``, ``quantity``, ``value``, ``ours``.

    Examples
    --------
    >>> from heart_utils.analysis.claims import CONTRADICTED, RANKS
    >>> checked = pd.DataFrame({"claim_id": ["x", "y"], "source": ["a blog", "the paper"], "quantity": "votes",
    ...     "value": ["41", "42"], "ours": "42", "source_kind": [max(RANKS, key=RANKS.__getitem__), "paper"],
    ...     "finding": [CONTRADICTED, "adds up"]})
    >>> differing_sources(checked)[["claim_id", "value", "ours"]].values.tolist()
    [['x', '41', '42']]
    """
    far = checked["source_kind"].map(RANKS).eq(max(RANKS.values())) & checked["finding"].eq(CONTRADICTED)
    return checked.loc[far, ["claim_id", "source", "quantity", "value", "ours"]].reset_index(drop=True)


def _contradictions(claims: pd.DataFrame) -> dict[str, str]:
    """Find, for each claim, the value of a claim on the same topic that differs and stands as near to the paper or nearer."""
    found: dict[str, str] = {}
    for _, rows in claims[claims["topic"] != ""].groupby("topic", sort=False):
        for row in rows.to_dict("records"):
            nearer = rows["source_kind"].map(RANKS) <= RANKS[row["source_kind"]]
            other = rows[nearer & (rows["value"] != row["value"])]
            if len(other):
                best = other.iloc[int(other["source_kind"].map(RANKS).argmin())]
                found[row["claim_id"]] = f"{best['value']} ({best['source_kind']})"
    return found


def _run(check: str, tables: Mapping[str, pd.DataFrame]) -> Outcome:
    name, _, argument = check.partition(":")
    if name not in CHECKS:
        raise ClaimsError(f"There is no check {name!r}; the checks are {', '.join(CHECKS)}.")
    return CHECKS[name](tables, argument)


def _count(table: str, condition: Callable[[pd.DataFrame], pd.Series] | None, said: int, finding: str, of: str) -> Callable[
    [Mapping[str, pd.DataFrame], str], Outcome
]:  # fmt: skip
    """Make a check that counts rows of a table."""

    def check(tables: Mapping[str, pd.DataFrame], _: str) -> Outcome:
        rows = tables[table]
        n = len(rows) if condition is None else int(condition(rows).sum())
        return Outcome(finding if n == said else FAILS, f"{n} of {len(rows)} {of}")

    return check


def _heart_items(tables: Mapping[str, pd.DataFrame], _: str) -> Outcome:
    regular, adversarial = len(tables["heart_regular"]), len(tables["heart_adversarial"])
    return Outcome(REPRODUCED if regular + adversarial == 300 else FAILS, f"{regular} + {adversarial} in the release")


def _heart_turns(tables: Mapping[str, pd.DataFrame], _: str) -> Outcome:
    mean = tables["heart_regular"]["n_history"].mean()
    return Outcome(ILL_DEFINED, f"{mean:.1f} turns with one speaker's merged; whose turns are counted is not said")


def _human_replies(_: Mapping[str, pd.DataFrame], __: str) -> Outcome:
    return Outcome(ADDS_UP, f"300 x 3 = {300 * 3}: replies by people alone; 16 models would add {300 * 16:,}")


def _comparisons(_: Mapping[str, pd.DataFrame], __: str) -> Outcome:
    return Outcome(
        ILL_DEFINED,
        f"280 x 10 pairs x 15 raters = {280 * 10 * 15:,}, and 300 x 140 pairs by one = {300 * 140:,}: two designs",
    )


def _shares(_: Mapping[str, pd.DataFrame], __: str) -> Outcome:
    total = 46.8 + 35.8 + 17.4
    return Outcome(ADDS_UP if abs(total - 100) < HALF else FAILS, f"46.8 + 35.8 + 17.4 = {total:.1f}")


def _about_eighty(_: Mapping[str, pd.DataFrame], __: str) -> Outcome:
    return Outcome(ADDS_UP if round(78.7, -1) == 80 else FAILS, "78.7 elsewhere, to the nearest ten")


def _about_79(_: Mapping[str, pd.DataFrame], __: str) -> Outcome:
    return Outcome(ADDS_UP if round(78.7) == 79 else FAILS, "78.7 elsewhere, rounded")


def _spearman(_: Mapping[str, pd.DataFrame], __: str) -> Outcome:
    low, high = np.tanh(np.arctanh(0.53) + np.array([-1.0, 1.0]) * stats.norm.ppf(0.975) / np.sqrt(16 - 3))
    return Outcome(NOT_TESTABLE, f"on 16 models Fisher's 95% interval is {low:.2f} to {high:.2f}")


def _soft(score: float, said: float) -> Callable[[Mapping[str, pd.DataFrame], str], Outcome]:
    """Make a check of the rating gap at which a soft score is fitted exactly."""

    def check(_: Mapping[str, pd.DataFrame], __: str) -> Outcome:
        gap = 400 * np.log10(score / (1 - score))
        return Outcome(RELEASE if round(gap) == said else FAILS, f"400 log10({score:g} / {1 - score:.2g}) = {gap:.0f}")

    return check


def _coverage(_: Mapping[str, pd.DataFrame], __: str) -> Outcome:
    covered = 100 * (2 * stats.norm.cdf(stats.norm.ppf(0.975) / 2) - 1)
    return Outcome(RELEASE if round(covered) == 67 else FAILS, f"half of the width of a 95% interval holds {covered:.0f}%")


def _bench_items(tables: Mapping[str, pd.DataFrame], _: str) -> Outcome:
    counts = tables["counts"]
    total = int(counts.loc[counts["kind"].str.contains("ability") & counts["what"].eq("items"), "count"].sum())
    return Outcome(ADDS_UP if total == 2818 else FAILS, f"the 15 abilities sum to {total:,}")


def _bench_all_items(tables: Mapping[str, pd.DataFrame], _: str) -> Outcome:
    total = tables["counts"].query("kind == 'total'").set_index("what")["count"]
    items, questions = int(total["items"]), int(total["questions"])
    found = items + questions
    return Outcome(
        ADDS_UP if found == 3114 else FAILS, f"{items:,} and as many veto items as questions, {questions}: {found:,}"
    )


def _bench_questions(tables: Mapping[str, pd.DataFrame], _: str) -> Outcome:
    counts = tables["counts"]
    total = int(counts.loc[counts["kind"].eq("scene"), "count"].sum())
    return Outcome(ADDS_UP if total == 296 else FAILS, f"the five scenes sum to {total}")


def _bench_split(tables: Mapping[str, pd.DataFrame], _: str) -> Outcome:
    counts = tables["counts"]
    total = int(counts.loc[counts["kind"].eq("total") & counts["what"].eq("questions"), "count"].iloc[0])
    return Outcome(ADDS_UP if total == 212 + 84 else FAILS, f"212 + 84 = {212 + 84} of {total} questions")


def _bench_abilities(tables: Mapping[str, pd.DataFrame], _: str) -> Outcome:
    n = tables["overall_by_ability"]["ability"].nunique()
    return Outcome(ADDS_UP if n == 15 else FAILS, f"{n} columns in Figure 4")


def _bench_dimensions(tables: Mapping[str, pd.DataFrame], _: str) -> Outcome:
    kinds = tables["counts"]
    n = int((kinds["what"].eq("items") & kinds["kind"].str.contains("dimension")).sum())
    return Outcome(ADDS_UP if n == 5 else FAILS, f"{n} categories in the README's table")


def _bench_models(tables: Mapping[str, pd.DataFrame], _: str) -> Outcome:
    n = len(tables["leaderboard_overall"])
    return Outcome(ADDS_UP if n == 13 else FAILS, f"{n} rows in the leaderboard")


def _bench_mean(tables: Mapping[str, pd.DataFrame], model: str) -> Outcome:
    figure = tables["overall_by_ability"]
    mean = figure.loc[figure["model"] == model, "score"].mean()
    board = tables["leaderboard_overall"].set_index("model")["score"]
    if model not in board or np.isnan(mean):
        raise ClaimsError(f"HeartBench's tables have no model {model!r}.")
    return Outcome(ADDS_UP if abs(mean - board[model]) <= 0.01 else FAILS, f"mean of Figure 4: {mean:.2f}")


def _bench_mean_all(tables: Mapping[str, pd.DataFrame], _: str) -> Outcome:
    mean = tables["leaderboard_overall"]["score"].mean()
    return Outcome(ADDS_UP if abs(mean - 59.94) <= HALF else FAILS, f"mean of the 13 scores: {mean:.2f}")


def _bench_mean_hard(tables: Mapping[str, pd.DataFrame], _: str) -> Outcome:
    mean = tables["hardset_by_ability"].groupby("model")["score"].mean().mean()
    return Outcome(ADDS_UP if abs(mean - 43.49) <= HALF else FAILS, f"mean of the rows of Figure 5: {mean:.2f}")


def _bench_decline(_: Mapping[str, pd.DataFrame], __: str) -> Outcome:
    fall = 100 * (59.94 - 43.49)
    ok = abs(fall / 59.94 - 37.8) < HALF
    return Outcome(ADDS_UP if ok else FAILS, f"it is {fall / 59.94:.1f}% of 59.94, and {fall / 43.49:.1f}% of 43.49")


def _bench_rank(model: str, said: int) -> Callable[[Mapping[str, pd.DataFrame], str], Outcome]:
    """Make a check of a rank on the hard questions."""

    def check(tables: Mapping[str, pd.DataFrame], _: str) -> Outcome:
        rank = tables["hardset_by_ability"].groupby("model")["score"].mean().rank(ascending=False)
        found = rank[[name for name in rank.index if name.lower() == model.lower()][0]]
        return Outcome(ADDS_UP if found == said else FAILS, f"rank {found:.0f} by the rows of Figure 5")

    return check


def _bench_personality(tables: Mapping[str, pd.DataFrame], _: str) -> Outcome:
    counts = tables["counts"]
    share = 100 * counts.loc[counts["name"] == "personality", "count"].iloc[0] / 2818
    return Outcome(ADDS_UP if abs(share - 39) < 0.5 else FAILS, f"1,634 of 2,818 is {share:.1f}%")


CHECKS: dict[str, Callable[[Mapping[str, pd.DataFrame], str], Outcome]] = {
    "heart_items": _heart_items,
    "heart_regular": _count("heart_regular", None, 280, REPRODUCED, "items in the release"),
    "heart_adversarial": _count("heart_adversarial", None, 20, REPRODUCED, "items in the release"),
    "heart_from_esconv": _count("heart_regular", lambda rows: rows["esconv_row"].notna(), 280, REPRODUCED, "found in ESConv"),
    "heart_turns": _heart_turns,
    "swapped_regular": _count("heart_regular", lambda rows: rows["first_speaker"].eq("supporter"), 152, RELEASE,
                              "start with the supporter"),
    "swapped_adversarial": _count("heart_adversarial", lambda rows: rows["n_history"].eq(2 * rows["n_seeker_turns"]), 20,
                                  RELEASE, "start with the supporter"),
    "item_form": _count("heart_regular", lambda rows: rows["last_speaker"].eq("seeker"), 279, RELEASE, "end with the seeker"),
    "misplaced": _count("heart_regular", lambda rows: rows["baseline_misplaced"].astype(bool), 12, RELEASE, "replies"),
    "human_replies": _human_replies,
    "comparisons": _comparisons,
    "shares": _shares,
    "about_eighty": _about_eighty,
    "about_79": _about_79,
    "spearman": _spearman,
    "soft_one": _soft(0.55, 35),
    "soft_five": _soft(0.95, 512),
    "coverage": _coverage,
    "bench_items": _bench_items,
    "bench_all_items": _bench_all_items,
    "bench_questions": _bench_questions,
    "bench_split": _bench_split,
    "bench_abilities": _bench_abilities,
    "bench_dimensions": _bench_dimensions,
    "bench_models": _bench_models,
    "bench_mean": _bench_mean,
    "bench_mean_all": _bench_mean_all,
    "bench_mean_hard": _bench_mean_hard,
    "bench_decline": _bench_decline,
    "bench_rank_gemini": _bench_rank("Gemini-3-pro-preview", 8),
    "bench_rank_qwen": _bench_rank("Qwen3-235B-A22B-instruct-2507", 5),
    "bench_personality": _bench_personality,
}  # fmt: skip
"""Name -> what computes it."""
