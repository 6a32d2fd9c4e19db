"""What a file of votes can support: the book's checks, asked at once."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import stats
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from heart_utils.agreement.panel import agreement_with_baselines
from heart_utils.gate import Answers
from heart_utils.identities import show_rater
from heart_utils.judges.position import BiasError, feature_bias, text_features
from heart_utils.ratings.ratings import POINTS, Ratings, fit_ratings
from heart_utils.ratings.resampling import (
    ENOUGH_CLUSTERS,
    Rng,
    clustered_error,
    error_ends,
    estimate_rng,
    holm,
)
from heart_utils.ratings.verdicts import (
    BOTH,
    AgreementError,
    Array,
    RatingsError,
    is_simulated,
    join_orders,
    need,
    need_cluster,
    won_by_a,
)
from heart_utils.report import fill_page
from heart_utils.settings import MissingExtraError
from heart_utils.sources.defaults import read_dates
from heart_utils.sources.guess import looks_like_model

__all__ = ["LEVELS", "Audit", "audit_votes"]

LEVELS = {
    "unsupported": "What these votes cannot support",
    "undecided": "What these votes leave open",
    "look": "What to look at",
    "not run": "Checks that could not run",
    "sound": "What holds",
}
"""Level of a finding, most serious first -> its heading."""

HEADLINES = {
    "unsupported": "These votes do not bear every conclusion.",
    "undecided": "These votes leave open whether they bear a conclusion.",
    "sound": "Nothing serious was found.",
}
"""Outcome of an audit -> what it says first."""

ERROR = 0.05
"""Chance that a check raises an alarm about sound votes."""

PAGES = {
    "the-raters": ("chapter 4, How are people asked?", "notebooks/04_the_raters.ipynb"),
    "who-is-preferred": ("chapter 5, Who is preferred?", "notebooks/05_who_is_preferred.ipynb"),
    "do-judges-agree": (
        "chapter 6, Do judges agree with people?",
        "notebooks/06_do_judges_agree.ipynb",
    ),
    "can-the-judges-be-trusted": (
        "chapter 7, Can judges be trusted?",
        "notebooks/07_can_judges_be_trusted.ipynb",
    ),
    "what-a-study-can-tell": (
        "chapter 14, What can a study tell?",
        "notebooks/14_what_a_study_can_tell.ipynb",
    ),
    "adapt-files": ("the page Files that you have", "book/adapt/tables.md"),
}
"""Label of a page -> what it is called, and its file in the repository."""

ALARMS = ("unsupported", "undecided")
READING_ERROR = 0.01  # the chance to take a judge that never reads for one that does
MOST = 0.5  # of all votes, by one rater or on one dialogue
LARGEST_TIES = 0.5
LEAST_LENGTH = np.log(1.5)  # log-odds: a reply twice as long wins three times in five
LEAST_FAMILY = 0.05
LEAST_LEAD = 0.02  # over a guess from the names, where a judge does not go with people otherwise
ENOUGH_PAIRS = 20  # dialogues on which a judge and people both decided
TRIED = 12  # raters with the most votes, of whom each is left out once
LEAST_EVEN = 15  # dialogues with equal votes that would tell as much
LEAST_TURNED = 0.3  # of pairs in which a judge that does not read contradicts itself
LEAST_FIRST = 0.18  # beyond a half, of verdicts for the reply that was shown first
LEAST_CHANGE = 0.05  # of wins, from one half of the dates to the other
TURNED = 20  # pairs that come twice, from which on a rater that never contradicts itself is odd
THREAD = 5  # dialogues by which two parts of a leaderboard hang together
DATES = ("date", "position")
SIDES = ["responder_a", "responder_b"]
ASKED = ["dialogue_id", "history_id", *SIDES, "rater", "dimension", "order"]


@dataclass(frozen=True)
class Finding:
    level: str
    sentence: str
    collect: str = ""  # what would decide it, where something can be collected


@dataclass(frozen=True)
class Audit:
    """What a file of votes can support, most serious first."""

    #: a row a finding: ``check``, ``level`` (:data:`LEVELS`), ``sentence``, ``collect`` (what to
    #: collect so that it can be decided) and ``page`` (a label of the book)
    findings: pd.DataFrame
    #: by dimension
    boards: dict[str, Ratings]
    #: what the file is, in counts
    counts: dict[str, int]
    #: a row a dimension and judge: ``with_people``, ``people``, and ``difference`` with
    #: ``ci_low``, ``ci_high``, on pairs of replies that two people or more and the judge decided
    agreement: pd.DataFrame
    simulated: bool

    @property
    def outcome(self) -> str:
        """The worst level: ``unsupported``, else ``undecided``, else ``sound``."""
        levels = set(self.findings["level"])
        return next((level for level in ALARMS if level in levels), "sound")

    def __str__(self) -> str:
        return self.fill("audit.txt").rstrip()

    def fill(self, page: str, **more: Any) -> str:
        """Fill ``audit.txt``, ``audit.md`` or ``audit.html`` with the findings, by level."""
        by_level = dict(list(self.findings.groupby("level")))
        return fill_page(
            page,
            audit=self,
            headline=HEADLINES[self.outcome],
            parts={
                heading: by_level[level].to_dict("records")
                for level, heading in LEVELS.items()
                if level in by_level
            },
            names={label: name for label, (name, _) in PAGES.items()},
            **more,
        )


def audit_votes(
    votes: pd.DataFrame,
    *,
    replies: pd.DataFrame | None = None,
    smallest_gap: float = 50.0,
    n_resamples: int = 1000,
    rng: Rng = None,
) -> Audit:
    """Ask of votes what they can support, most serious first.

    Each check raises a false alarm about sound votes in 5 % of files at most.

    Parameters
    ----------
    votes
        The table ``verdicts``, orders not joined; ``date`` or ``position`` tells when.
    replies
        The table ``replies``, for the check of length.
    smallest_gap
        Rating points between two responders that should be found four times in five.
    n_resamples, rng
        As in :func:`~heart_utils.ratings.resampling.bootstrap_ci`.

    Returns
    -------
    Audit

    Raises
    ------
    RatingsError
        If there is no verdict, or columns are missing.

    Examples
    --------
    >>> votes = pd.DataFrame({"dialogue_id": range(40), "order": "ab", "verdict": "a"})
    >>> votes = votes.assign(responder_a="x", responder_b="y", rater="judge", rater_kind="model")
    >>> turned = votes.assign(order="ba", verdict="b")  # always the first
    >>> audit = audit_votes(pd.concat([votes, turned], ignore_index=True), n_resamples=50)
    >>> audit.outcome, audit.findings["check"][0]
    ('unsupported', 'reading')
    """
    need_cluster(votes, "dialogue_id")
    need(votes, [*SIDES, "rater", "rater_kind", "verdict"])
    if votes.empty:
        raise RatingsError("There is no vote to audit.")
    sheet = _Sheet(votes, replies, smallest_gap, n_resamples, rng)
    found = [(name, one) for name, (check, _) in CHECKS.items() for one in check(sheet)]
    found += _in_one_dimension(sheet, {name for name, one in found if one.level in ALARMS})
    findings = pd.DataFrame(
        [{"check": name, **vars(one), "page": CHECKS[name][1]} for name, one in found]
    )
    ranks = findings["level"].map(list(LEVELS).index)
    findings = findings.loc[ranks.sort_values(kind="stable").index].reset_index(drop=True)
    return Audit(findings, sheet.boards, sheet.counts, sheet.agreement, is_simulated(votes))


@dataclass(frozen=True)
class _Sheet:
    """Votes, and what several checks need of them."""

    votes: pd.DataFrame
    replies: pd.DataFrame | None
    smallest_gap: float
    n_resamples: int
    rng: Rng
    error: float = ERROR
    boards: dict[str, Ratings] = field(default_factory=dict)

    @cached_property
    def rows(self) -> pd.DataFrame:
        """All votes but copies, with the optional columns."""
        filled = {"dimension": "overall", "state": "valid", "order": None}
        known = {name: value for name, value in filled.items() if name not in self.votes}
        rows = self.votes.assign(**known)[~self.copies].reset_index(drop=True)
        if "repeat" in rows:
            return rows
        asked = rows.groupby([name for name in ASKED if name in rows], dropna=False)
        return rows.assign(repeat=asked.cumcount())

    @cached_property
    def copies(self) -> NDArray[np.bool_]:
        """Which rows repeat what the same rater said of the same two replies."""
        key = [*ASKED, "repeat", "verdict", "protocol", "group", "slice", *DATES]
        return self.votes.duplicated([name for name in key if name in self.votes]).to_numpy()

    @cached_property
    def joined(self) -> pd.DataFrame:
        """Verdicts given, the two orders of a pair joined."""
        joined = join_orders(self.rows)
        rows = self.rows if joined is None else joined
        rows = rows[rows["state"].isin(["valid", "inconsistent"])].reset_index(drop=True)
        # A contradiction can be known of joined orders alone: where some are marked, all were.
        marked = rows["rater"].isin(rows.loc[rows["state"].eq("inconsistent"), "rater"])
        return rows.assign(order=rows["order"].where(rows["order"].notna() | ~marked, BOTH))

    @cached_property
    def share(self) -> Array:
        """How far a won each joined verdict: 1, 1/2 or 0."""
        return np.asarray(won_by_a(self.joined), dtype=float)

    @cached_property
    def question_key(self) -> list[str]:
        about = [name for name in ("pair_id", "history_id", "dialogue_id") if name in self.joined]
        return [about[0], *SIDES, "dimension"]

    @cached_property
    def question(self) -> NDArray[np.int64]:
        """Of joined verdicts, a number of the replies and dimension."""
        grouped = self.joined.groupby(self.question_key, dropna=False, sort=False)
        return np.asarray(grouped.ngroup(), dtype=np.int64)

    @cached_property
    def turn(self) -> Array:
        """Of joined verdicts, 1 where a's name is first in the alphabet, else -1."""
        return np.where(self.joined["responder_a"] > self.joined["responder_b"], -1.0, 1.0)

    @cached_property
    def pair(self) -> NDArray[np.int64]:
        """Of joined verdicts, a number of the authors and dimension."""
        authors = np.sort(self.joined[SIDES].to_numpy(str), axis=1)
        key = [authors[:, 0], authors[:, 1], self.joined["dimension"].to_numpy(str)]
        return np.asarray(self.joined.groupby(key).ngroup(), dtype=np.int64)

    @cached_property
    def people(self) -> NDArray[np.bool_]:
        return self.joined["rater_kind"].eq("human").to_numpy()

    @cached_property
    def counts(self) -> dict[str, int]:
        kinds = self.rows.drop_duplicates("rater")["rater_kind"].value_counts()
        left_out = int(self.votes.attrs.get("notes", {}).get("copies of another row", 0))
        counts = {"rows": len(self.votes) + left_out, "copies": int(self.copies.sum()) + left_out}
        counts |= {f"raters ({kind})": int(number) for kind, number in kinds.items()}
        counts |= {
            "responders": len(pd.unique(self.rows[SIDES].to_numpy().ravel())),
            "dialogues": self.rows["dialogue_id"].nunique(),
            "pairs in both orders": int(self.joined["order"].eq(BOTH).sum()),
            "votes of unknown order": int(self.joined["order"].isna().sum()),
        }
        states = self.rows["state"].value_counts()
        return counts | {str(state): int(number) for state, number in states.items()}

    @cached_property
    def judges(self) -> list[str]:
        return sorted(self.joined.loc[~self.people, "rater"].astype(str).unique())

    @cached_property
    def suspects(self) -> dict[str, str]:
        """Raters entered as people who may be judges, and why."""
        rows = self.joined[self.people]
        both = rows["order"].eq(BOTH).groupby(rows["rater"]).agg(["mean", "size"])
        found = {}
        for name, share, number in both.itertuples():
            if looks_like_model(name):
                found[str(name)] = "is called as a model is"
            elif share > 0.9 and number >= TURNED:
                found[str(name)] = "was asked each pair in both orders, as judges are"
        return found

    def asked(self, of: NDArray[np.bool_]) -> Array:
        """How far a won each question by these verdicts; empty without any."""
        by_question = pd.Series(self.share[of]).groupby(self.question[of]).mean()
        return np.asarray(by_question.reindex(self.question), dtype=float)

    def own_family(self, judge: str) -> Array:
        """1 where a alone is of the judge's family, -1 where b is, else 0."""
        of_a, of_b = (_are_of(judge, self.joined[side]) for side in SIDES)
        return of_a.astype(np.float64) - of_b

    @cached_property
    def agreement(self) -> pd.DataFrame:
        """How far judges agree with people, and people with each other, on the same pairs."""
        return _beside_people(self)

    def of(self, rater: str) -> NDArray[np.bool_]:
        return self.joined["rater"].eq(rater).to_numpy()

    def n_dialogues(self, of: NDArray[np.bool_]) -> int:
        return int(self.joined.loc[of, "dialogue_id"].nunique())

    def generator(self, name: str) -> Rng:
        return self.rng if isinstance(self.rng, np.random.Generator) else estimate_rng(0, name)


def _in_one_dimension(sheet: _Sheet, named: set[str]) -> Iterator[tuple[str, Finding]]:
    """Ask of each dimension alone where nothing was found in all."""
    dimensions = sheet.rows["dimension"].unique()
    for dimension in dimensions if len(dimensions) > 1 else ():
        votes = sheet.rows[sheet.rows["dimension"].eq(dimension)]
        part = replace(sheet, votes=votes, error=ERROR / len(dimensions), boards={})
        for name in (name for name in OF_JUDGES if name not in named):
            for finding in CHECKS[name][0](part):
                if finding.level in ALARMS:
                    sentence = finding.sentence.removeprefix(f"{dimension}: ")
                    yield name, replace(finding, sentence=f"{dimension}: {sentence}")


def _mean(values: Array, dialogues: pd.Series) -> tuple[float, float, float]:
    influence = (values - values.mean()) / len(values)
    return _interval(values.mean(), influence, dialogues, ERROR)


def _interval(
    estimate: float, influence: Array, dialogues: pd.Series, error: float
) -> tuple[float, float, float]:
    codes = pd.factorize(dialogues)[0]
    se, even = clustered_error(influence, np.ones(len(codes)), codes)
    low, high = error_ends(estimate, se, even, 1 - error, least=-1.0, most=1.0)
    return float(estimate), float(low), float(high)


def _doubled(sheet: _Sheet) -> Iterator[Finding]:
    if number := sheet.counts["copies"]:
        yield Finding(
            "unsupported",
            f"{number:,} of {sheet.counts['rows']:,} rows are copies of another row. They are left"
            " out here: counted, they would narrow every interval.",
            "Take them out, or number answers that were asked for again (repeat).",
        )
    else:
        yield Finding("sound", "No row comes twice.")
    for name, rows in sheet.joined.groupby("rater"):
        turned = rows[rows["order"].eq(BOTH)]
        once = len(rows) - len(turned)
        if turned["state"].eq("valid").all() and TURNED <= len(turned) <= once:
            yield Finding(
                "undecided",
                f"{show_rater(str(name))} gave one answer in all {len(turned):,} pairs that come"
                f" twice with the sides changed, and {once:,} pairs come once: asked again, or"
                " copies of rows?",
                "Name the order of each answer (ab, ba), or take the copies out.",
            )


def _kinds(sheet: _Sheet) -> Iterator[Finding]:
    for name, why in sheet.suspects.items():
        yield Finding(
            "undecided",
            f"{show_rater(name)} counts as a person and {why}. If it is a model, the checks of"
            " judges leave it out, and it is no standard for them.",
            "Say of each rater whether it is human or model (rater_kind).",
        )


def _reading(sheet: _Sheet) -> Iterator[Finding]:
    for name in [*sheet.judges, *sheet.suspects]:
        yield _reads(show_rater(name), sheet.joined[sheet.of(name)])
    people = sheet.joined[sheet.people]
    if len(people) and Answers(people, (), MOST, READING_ERROR, anytime=False).follow_place():
        said = "People's answers follow the place of the replies."
        yield Finding("unsupported", said, "Show each reply first as often as second.")


def _reads(who: str, rows: pd.DataFrame) -> Finding:
    if "protocol" in rows and rows["protocol"].eq("from_scores").all():
        said = f"Verdicts of {who} were made from scores of single replies"
        return Finding("not run", f"{said}, which are shown in no order.")
    answers = Answers(rows, (), MOST, READING_ERROR, anytime=False)
    held, first = answers.held, answers.first
    if len(held):
        share = held.lt(0).mean()
        said = (
            f"{who} contradicted itself in {held.lt(0).sum():,} of the {len(held):,} pairs that it"
            " decided in both orders. A judge that never reads does so in half or more"
        )
        if share > LEAST_TURNED and not answers.lowest(held) > 0:
            said = f"{said}, and this may be one."
            return Finding("unsupported", said, "Use a judge that reads.")
        level = "look" if share > LEAST_TURNED or len(held) < TURNED else "sound"
        return Finding(level, f"{said}.")
    both = "Ask each pair in both orders, and name the order of each answer (ab, ba)."
    if len(first):
        share = float(first.gt(0).mean())
        said = f"{who} was asked in one order a pair, and preferred the first in {share:.0%}"
        follows = min(answers.lowest(first), answers.lowest(-first)) <= -MOST
        if follows and abs(share - 0.5) > LEAST_FIRST:
            return Finding("unsupported", f"{said}: it may follow the place.", both)
        return Finding("look", f"{said}; one that flips a coin would not be seen.", both)
    said = f"The order shown is not known for any verdict of {who}"
    if rows["order"].notna().any():
        said = f"{who} decided nothing"
    return Finding("undecided", f"{said}: whether it reads cannot be told.", both)


def _board(sheet: _Sheet) -> Iterator[Finding]:
    for dimension, rows in sheet.joined.groupby("dimension", sort=True):
        name = str(dimension)
        apart, thread = _thread(rows)
        if thread:
            yield replace(thread, sentence=f"{name}: {thread.sentence}")
        if apart:
            continue
        if rows["dialogue_id"].nunique(dropna=False) < 2:
            yield Finding("unsupported", f"{name}: one dialogue allows no interval.")
            continue
        try:
            board = fit_ratings(
                rows, dimension=name, n_resamples=sheet.n_resamples, rng=sheet.generator(name)
            )
        except RatingsError as error:
            yield Finding("unsupported", f"{name}: {error}")
            continue
        sheet.boards[name] = board
        told_apart = int((board.differences()["ci_low"] > 0).sum())
        pairs = len(board.strength) * (len(board.strength) - 1) // 2
        yield Finding(
            "sound" if told_apart else "look",
            f"{name}: {told_apart} of {pairs} pairs of responders can be distinguished (all"
            " compared at once).",
        )


def _thread(rows: pd.DataFrame) -> tuple[bool, Finding | None]:
    met = rows.groupby(SIDES, observed=True)["dialogue_id"].nunique().reset_index()
    names = pd.unique(met[SIDES].to_numpy().ravel())
    ends = np.array([pd.Index(names).get_indexer(met[side]) for side in SIDES])
    number, part = _parts(ends, len(names))
    if number > 1:
        apart = ", ".join(map(str, names[part != part[0]][:3]))
        said = f"{apart} never met the others: no common scale."
        collect = "Let each part meet a responder of the other."
        return True, Finding("unsupported", said, collect)
    for row in np.flatnonzero(met["dialogue_id"] < ENOUGH_CLUSTERS) if len(names) > 2 else ():
        if _parts(np.delete(ends, row, axis=1), len(names))[0] > 1:
            one, other, number = met.iloc[row]
            return False, Finding(
                "unsupported" if number < THREAD else "look",
                f"two parts of the leaderboard meet in {number} dialogues alone, between {one} and"
                f" {other}.",
                "Let more of both parts meet.",
            )
    return False, None


def _parts(ends: NDArray[np.int64], size: int) -> tuple[int, NDArray[np.int64]]:
    graph = coo_array((np.ones(ends.shape[1]), (ends[0], ends[1])), shape=(size, size))
    number, part = connected_components(graph, directed=False)
    return int(number), part


def _dialogues(sheet: _Sheet) -> Iterator[Finding]:
    more = f"Judge replies in {ENOUGH_CLUSTERS} dialogues or more."
    alarmed = False
    for name, dialogues in sheet.joined.groupby("dimension")["dialogue_id"]:
        sizes = dialogues.value_counts()
        largest = sizes.iloc[0] / sizes.sum()
        even = sizes.sum() ** 2 / (sizes**2).sum()  # groups that would tell as much (Kish)
        level = "unsupported"
        if len(sizes) > 1 and largest > MOST:
            said = f"one dialogue of {len(sizes)} has {largest:.0%} of all votes and carries the"
            said += " result."
        elif len(sizes) < ENOUGH_CLUSTERS:
            of = "1 dialogue" if len(sizes) == 1 else f"{len(sizes)} dialogues"
            said = f"votes are on {of}; an interval needs {ENOUGH_CLUSTERS}."
        elif even < ENOUGH_CLUSTERS:
            level = "look" if even >= LEAST_EVEN else level
            said = (
                f"{len(sizes)} dialogues have so unequal numbers of votes that they tell as much as"
                f" {even:.0f} equal ones (the largest has {largest:.0%} of all votes); an interval"
                f" needs {ENOUGH_CLUSTERS}."
            )
        else:
            continue
        alarmed |= level == "unsupported"
        yield Finding(level, f"{name}: {said}", more)
    if not alarmed:
        number = sheet.joined["dialogue_id"].nunique()
        yield Finding("sound", f"Votes are on {number} dialogues.")


def _carried(sheet: _Sheet) -> Iterator[Finding]:
    votes = sheet.joined["rater"].value_counts()
    if len(votes) == 1:
        said = f"All votes are by {show_rater(votes.index[0])}: the result is that rater's."
        yield Finding("look", said, "Ask others, and show how far they agree.")
        return
    for (name, kind), raters in sheet.joined.groupby(["dimension", "rater_kind"])["rater"]:
        shares = raters.value_counts(normalize=True)
        # Halfway from an equal share to all: of two raters one has half or more of the votes.
        most = (1 + 1 / len(shares)) / 2
        if len(shares) > 1 and shares.iloc[0] > most:
            yield Finding(
                "unsupported",
                f"{name}: of {len(shares)} raters ({kind}), {show_rater(shares.index[0])} gave"
                f" {shares.iloc[0]:.0%} of the votes: the result is that rater's.",
                "Deal votes evenly.",
            )
            return
    for name, board in sheet.boards.items():
        apart = board.differences().query("ci_low > 0")
        rows = sheet.joined[sheet.joined["dimension"] == name]
        for rater in rows["rater"].value_counts().index[:TRIED] if len(votes) > 2 else []:
            turned = _turned(rows[rows["rater"] != rater], apart, name)
            if turned > len(apart) / 4:
                said = f"{name}: without {show_rater(rater)}, {turned} of {len(apart)} pairs that"
                said += " are told apart stand the other way round."
                yield Finding("unsupported", said, "Ask more raters.")
                return
    yield Finding("sound", "No rater carries the result alone.")


def _turned(rows: pd.DataFrame, apart: pd.DataFrame, dimension: str) -> int:
    try:
        strength = fit_ratings(rows, dimension=dimension, n_resamples=0).strength
    except RatingsError:
        return len(apart)
    gaps = strength.reindex(apart["better"]).to_numpy() - strength.reindex(apart["worse"])
    return int((gaps.to_numpy() < 0).sum())


def _ties(sheet: _Sheet) -> Iterator[Finding]:
    tied = (sheet.share == 0.5) & sheet.joined["state"].eq("valid").to_numpy()
    for kind, rows in sheet.joined.assign(tied=tied).groupby("rater_kind"):
        ties = rows.groupby("dimension")["tied"].mean()
        many = [f"{name} {share:.0%}" for name, share in ties[ties >= LARGEST_TIES].items()]
        if many:
            said = f"Most verdicts ({kind}) are ties and say nothing of who is better:"
            collect = "Ask for the better of two, or compare replies that differ more."
            yield Finding("unsupported", f"{said} {', '.join(many)}.", collect)
        else:
            yield Finding("sound", f"{rows['tied'].mean():.0%} of verdicts ({kind}) are ties.")


def _names_alone(sheet: _Sheet) -> Iterator[Finding]:
    if not sheet.judges or not sheet.people.any():
        collect = "Let people and a judge decide on the same pairs."
        yield Finding("not run", "There are not both people and a judge.", collect)
        return
    try:
        table = agreement_with_baselines(
            sheet.joined.drop_duplicates(["rater", *sheet.question_key]),
            by=["dimension", "rater"],
            n_resamples=sheet.n_resamples,
            rng=sheet.generator("names"),
        )
    except AgreementError as error:
        yield Finding("not run", str(error))
        return
    leads: dict[tuple[str, str], list[str]] = {}
    for row in table[table["who"] == "author_only"].to_dict("records"):
        judge, dimension, low = str(row["rater"]), str(row["dimension"]), row["lead_low"]
        level = "sound" if low > 0 else "look"
        if low <= LEAST_LEAD and not _follows_people(sheet, judge, dimension):
            level = "unsupported"
        lead = f"{row['lead']:+.1%} [{low:+.1%}, {row['lead_high']:+.1%}]"
        if np.isnan(row["lead"]):
            level, lead = "not run", "no pair that both decided"
        leads.setdefault((judge, level), []).append(f"{dimension} {lead}")
    added = {
        "unsupported": ": nothing shows that it reads more than who wrote.",
        "look": ": less than the names, or not shown to be more.",
    }
    for (judge, level), of_judge in leads.items():
        yield Finding(
            level,
            f"{show_rater(judge)}'s agreement with people, less that of a guess from the authors'"
            f" names: {', '.join(of_judge)}{added.get(level, '.')}",
            "Compare replies by equals, or of one author." if level in added else "",
        )


def _follows_people(sheet: _Sheet, judge: str, dimension: str) -> bool:
    """Whether a judge goes with people among two authors' pairs."""
    rows = sheet.joined.assign(own=sheet.asked(sheet.of(judge)), people=sheet.asked(sheet.people))
    rows = rows.assign(question=sheet.question)[sheet.of(judge)]
    both = rows[rows["dimension"].eq(dimension)].drop_duplicates("question")
    both = both.dropna(subset="people")
    if both["dialogue_id"].nunique() < THREAD:
        return False
    centred = both[["own", "people"]] - both.groupby(SIDES)[["own", "people"]].transform("mean")
    product = centred["own"].to_numpy() * centred["people"].to_numpy()
    return _mean(product, both["dialogue_id"])[1] > 0


def _people(sheet: _Sheet) -> Iterator[Finding]:
    if sheet.agreement.empty:
        said = "No pair of replies was decided by two people and a judge."
        yield Finding("not run", said, "Let two people or more decide on each pair.")
    for row in sheet.agreement.to_dict("records"):
        yield Finding(
            "look" if row["ci_high"] < 0 else "sound",
            f"{row['dimension']}: {show_rater(row['rater'])} agrees with a person in"
            f" {row['with_people']:.1%}, people with each other in {row['people']:.1%} of the same"
            f" {row['n_pairs']:,} pairs: {row['difference']:+.1%} [{row['ci_low']:+.1%},"
            f" {row['ci_high']:+.1%}].",
        )


def _beside_people(sheet: _Sheet) -> pd.DataFrame:
    rows = sheet.joined[["dimension", "rater"]].assign(
        question=sheet.question,
        dialogue_id=sheet.joined.groupby(sheet.question)["dialogue_id"].transform("first"),
        a_won=sheet.share > 0.5,
    )
    rows = rows[sheet.share != 0.5]
    people = rows[sheet.people[rows.index]].groupby("question")["a_won"].agg(["sum", "size"])
    people = people[people["size"] > 1]
    for_a, n = people["sum"].astype(float), people["size"]
    agree = (for_a * (for_a - 1) + (n - for_a) * (n - for_a - 1)) / (n * (n - 1))
    known = pd.DataFrame({"toward_a": for_a / n, "agree": agree})
    found = []
    for judge in sheet.judges:
        own = rows[rows["rater"].eq(judge)].groupby("question")
        both = own[["dimension", "dialogue_id"]].first()
        both = both.assign(lean=own["a_won"].mean()).join(known, how="inner")
        both["right"] = both["lean"] * both["toward_a"] + (1 - both["lean"]) * (
            1 - both["toward_a"]
        )
        for dimension, part in both.groupby("dimension", sort=False):
            if part["dialogue_id"].nunique() >= 2:
                difference = (part["right"] - part["agree"]).to_numpy()
                means = part["right"].mean(), part["agree"].mean()
                interval = _mean(difference, part["dialogue_id"])
                found.append((str(dimension), judge, *means, *interval, len(part)))
    columns = ["dimension", "rater", "with_people", "people", "difference", "ci_low", "ci_high"]
    return pd.DataFrame(found, columns=[*columns, "n_pairs"])


def _length(sheet: _Sheet) -> Iterator[Finding]:
    if sheet.replies is None or "history_id" not in sheet.joined:
        said = "Without the replies' texts nothing tells whether the longer one wins."
        yield Finding("not run", said, "Give the replies (history, responder, text).")
        return
    key = sheet.replies["history_id"].astype(str) + "\n" + sheet.replies["responder"].astype(str)
    texts = pd.DataFrame({"reply_id": key, "text": sheet.replies["text"]})
    features = text_features(texts.drop_duplicates("reply_id"))[["log2_words"]]
    rows = sheet.joined.assign(pair_id=sheet.question.astype(str))
    history = rows["history_id"].astype(str) + "\n"
    pairs = rows[["pair_id"]].assign(
        reply_a=history + rows["responder_a"], reply_b=history + rows["responder_b"]
    )
    words_a, words_b = (
        features["log2_words"].reindex(pairs[side]).to_numpy() for side in ("reply_a", "reply_b")
    )
    alarmed = False
    beside = []
    for judge, mean, low, high in _longer(sheet, sheet.turn * (words_a - words_b)):
        beside.append(judge)
        if abs(mean) > LEAST_FAMILY and not low <= 0 <= high:
            alarmed = True
            yield Finding(
                "unsupported",
                f"{show_rater(judge)} gives the {'longer' if mean > 0 else 'shorter'} of two"
                f" replies more wins than people do: {mean:+.1%} [{low:+.1%}, {high:+.1%}] for"
                " twice the words, among replies of the same authors.",
                "Compare replies of equal length, or rewritten to another length.",
            )
    rest = ~rows["rater"].isin(beside)
    for finding in _by_length(sheet, rows[rest], pairs[rest], features):
        alarmed = True
        yield finding
    if not alarmed:
        said = "Length does not decide among the same authors' replies"
        said += ", or no more than it does with people." if beside else "."
        yield Finding("sound", said)


def _longer(sheet: _Sheet, longer: Array) -> Iterator[tuple[str, float, float, float]]:
    """How many more wins than people a judge gives to twice the words."""
    expected = sheet.asked(sheet.people) - 0.5
    known = ~np.isnan(expected) & ~np.isnan(longer)
    kept = {judge: sheet.of(judge) & known for judge in sheet.judges}
    kept = {judge: of for judge, of in kept.items() if sheet.n_dialogues(of) >= ENOUGH_PAIRS}
    for judge, of in kept.items():
        own = np.zeros(len(longer))
        within = pd.Series(longer[of])
        own[of] = within - within.groupby(sheet.pair[of]).transform("mean")
        if own[of].std() > 0:
            lead, _ = _own_lead(sheet, of, sheet.turn * own, expected, sheet.error / len(kept))
            yield judge, *lead


def _by_length(
    sheet: _Sheet, rows: pd.DataFrame, pairs: pd.DataFrame, features: pd.DataFrame
) -> Iterator[Finding]:
    """With whom length decides, of people and of judges not beside people."""
    if rows.empty:
        return
    try:
        table = feature_bias(rows, pairs, features)
    except (BiasError, MissingExtraError) as error:
        yield Finding("not run", str(error))
        return
    always = table["why"].str.contains("without exception")
    sure = (table["log_odds"].abs() > LEAST_LENGTH) & (holm(table["p"]) < sheet.error)
    for row in table.assign(always=always)[sure | always].to_dict("records"):
        which = "longer" if row["log_odds"] > 0 else "shorter"
        odds = f": odds of the {which}, at twice, x {np.exp(abs(row['log_odds'])):.1f}"
        said = (
            f"{row['dimension']}: with {show_rater(row['rater'])} the length of replies by the same"
            f" authors decides{', always' if row['always'] else odds}."
        )
        if row["rater"] in sheet.judges:
            said += " Whether it does so with people, too, nothing tells."
            yield Finding("undecided", said, "Let people decide on the same pairs.")
        else:
            yield Finding("look", said)


def _family_of(name: str) -> str:
    found = re.match(r"[a-z]+", name.lower().replace("chatgpt", "gpt").rpartition("/")[2])
    return found.group() if found else name


def _are_of(judge: str, names: pd.Series) -> NDArray[np.bool_]:
    """Tell which of a million names are of a judge's family; each is read once."""
    own = [name for name in names.unique() if _family_of(name) == _family_of(judge)]
    return names.isin(own).to_numpy()


def _family(sheet: _Sheet) -> Iterator[Finding]:
    """Whether a judge favours its own family more than others' votes lead to expect."""
    others = "people" if sheet.people.any() else "other judges"
    tried = []
    for judge in sheet.judges:
        own, who = sheet.own_family(judge), sheet.of(judge)
        expected = sheet.asked(sheet.people if sheet.people.any() else ~who) - 0.5
        kept = who & ~np.isnan(expected)
        if sheet.n_dialogues(kept & (own != 0)) > 1:
            tried.append((judge, kept, own, expected))
    if not tried:
        said = "No judge decided on a reply of its own family (by name) that others decided on too."
        yield Finding("not run", said)
    for judge, kept, own, expected in tried:
        error = sheet.error / len(tried)
        (mean, low, high), allowed = _own_lead(sheet, kept, own, expected, error)
        said = (
            f"Share of wins that {show_rater(judge)} gives its own family, less what the votes of"
            f" {others} lead to expect: {mean:+.1%} [{low:+.1%}, {high:+.1%}]."
        )
        level = "sound" if low <= 0 else "look"
        if level == "look" and mean > LEAST_FAMILY and allowed:
            level, added = _beside_judges(sheet, judge, error)
            said += added
        collect = "Use a judge of another family, too." if level != "sound" else ""
        yield Finding(level, said, collect)


def _beside_judges(sheet: _Sheet, judge: str, error: float) -> tuple[str, str]:
    """Compare with judges of other families, who may share a taste people lack."""
    others = sheet.asked(~sheet.people & ~_are_of(judge, sheet.joined["rater"])) - 0.5
    own, kept = sheet.own_family(judge), sheet.of(judge) & ~np.isnan(others)
    if not sheet.people.any() or sheet.n_dialogues(kept & (own != 0)) < ENOUGH_PAIRS:
        return "unsupported", ""
    (mean, low, high), _ = _own_lead(sheet, kept, own, others, error)
    said = f" Less what judges of other families lead to expect: {mean:+.1%} [{low:+.1%},"
    return "unsupported" if mean > LEAST_FAMILY else "look", f"{said} {high:+.1%}]."


def _own_lead(
    sheet: _Sheet, kept: NDArray[np.bool_], own: Array, expected: Array, error: float
) -> tuple[tuple[float, float, float], bool]:
    """Compute a family's lead with its interval, and whether a surer judge is allowed for.

    Surer is found over pairs of authors, whose means are the instrument of single answers.
    """
    own, expected, turn = own[kept], expected[kept], sheet.turn[kept]
    given = sheet.share[kept] - 0.5
    of_pair = turn * pd.Series(turn * expected).groupby(sheet.pair[kept]).transform("mean")
    found, instruments = np.column_stack([own, expected]), np.column_stack([own, of_pair])
    allowed = np.linalg.matrix_rank(instruments.T @ instruments, tol=1e-6 * len(own)) == 2
    if not allowed:  # two authors: as sure as the others
        given, found, instruments = given - expected, found[:, :1], instruments[:, :1]
    inverse = np.linalg.inv(instruments.T @ found)
    lead = inverse @ instruments.T @ given
    influence = (instruments * (given - found @ lead)[:, np.newaxis]) @ inverse[0]
    dialogues = sheet.joined.loc[kept, "dialogue_id"]
    return _interval(lead[0], influence, dialogues, error), bool(allowed)


def _drift(sheet: _Sheet) -> Iterator[Finding]:
    tried = [
        (judge, *change)
        for judge, mine, late in _halves(sheet)
        for change in _changes(sheet, mine, late)
    ]
    if not tried:
        said = "No judge decided on the same authors at two dates (column date)."
        yield Finding("not run", said, "Keep when each vote was given, and ask again.")
        return
    table = pd.DataFrame(tried, columns=["judge", "responder", "change", "again", "p"])
    changed = table[table["change"].abs().gt(LEAST_CHANGE) & holm(table["p"]).lt(sheet.error / 2)]
    for row in changed.to_dict("records"):
        again = row["again"]
        added = " on the same pairs." if again else ": the judge changed, or its dialogues did."
        yield Finding(
            "unsupported" if again else "undecided",
            f"With {show_rater(row['judge'])}, {row['responder']} won {row['change']:+.0%} more"
            f" often in the later half of its votes, against the same authors{added}",
            "" if again else "Ask one set of pairs again, on both dates.",
        )
    if changed.empty:
        yield Finding("sound", "No judge's answers changed over time.")


def _halves(sheet: _Sheet) -> Iterator[tuple[str, NDArray[np.bool_], NDArray[np.bool_]]]:
    column = next((name for name in DATES if name in sheet.joined), None)
    if column is None:
        return
    when = sheet.joined[column]
    when = read_dates(when) if column == "date" else when
    for judge in sheet.judges:
        mine = sheet.of(judge) & when.notna().to_numpy()
        order = when[mine].rank(method="dense")
        if order.nunique() >= 2:
            middle = order.median() if order.nunique() > 2 else 1.5
            yield judge, mine, order.gt(middle).to_numpy()


def _changes(
    sheet: _Sheet, mine: NDArray[np.bool_], late: NDArray[np.bool_]
) -> Iterator[tuple[str, float, bool, float]]:
    """Compare how often each responder won, earlier and later, by dialogue.

    On pairs asked in both halves if any; else against the same authors (Welch), less people's.
    """
    columns = [*SIDES, "dimension", "dialogue_id"]
    rows = sheet.joined.loc[mine, columns].assign(share=sheet.share[mine], late=late)
    halves = pd.Series(late).groupby(sheet.question[mine]).transform("nunique").to_numpy()
    told = sheet.asked(sheet.people)[mine]
    again = rows.loc[halves > 1, "dialogue_id"].nunique() >= THREAD
    if again:
        rows = rows[halves > 1]
    elif np.mean(~np.isnan(told)) > MOST:
        rows["share"] += 0.5 - told
        rows = rows.dropna(subset="share")
    names = {"responder_a": "responder", "responder_b": "other"}
    turned = {"responder_b": "responder", "responder_a": "other"}
    other_side = rows.assign(share=1 - rows["share"]).rename(columns=turned)
    wins = pd.concat([rows.rename(columns=names), other_side], ignore_index=True)
    pairs = wins.groupby(["responder", "other", "dimension"])
    wins["share"] -= pairs["share"].transform("mean")
    wins = wins[pairs["late"].transform("nunique") > 1]
    means = wins.pivot_table("share", ["responder", "dialogue_id"], "late")
    for responder, of in means.groupby("responder"):
        early, later = (of[half].dropna() for half in (False, True))
        change = later.mean() - early.mean()
        if min(len(early), len(later)) > 2 and early.std() + later.std() > 0:
            test = stats.ttest_ind(later, early, equal_var=False)
            if again:
                test = stats.ttest_1samp((of[True] - of[False]).dropna(), 0)
            yield str(responder), float(change), bool(again), float(test.pvalue)


def _gap(sheet: _Sheet) -> Iterator[Finding]:
    for name, board in sheet.boards.items():
        spread = board.differences()
        width = (spread["ci_high"] - spread["difference"]).replace(np.inf, np.nan).median()
        n = board.n_clusters
        if not width > 0 or n < 3:
            continue
        quantile = stats.t.ppf(1 - ERROR / 2, n - 1) + stats.norm.ppf(0.8)
        simultaneous = stats.t.ppf(1 - ERROR / (2 * len(spread)), n - 1)
        found = POINTS * width / simultaneous * quantile
        needed = int(np.ceil(n * (found / sheet.smallest_gap) ** 2))
        collect = f"{sheet.smallest_gap:.0f} points take about {needed:,} dialogues in all."
        yield Finding(
            "look" if needed > n else "sound",
            f"{name}: between two responders named in advance a gap of {found:.0f} points would be"
            f" found four times in five ({n} dialogues).",
            collect if needed > n else "",
        )


CHECKS: dict[str, tuple[Callable[[_Sheet], Iterator[Finding]], str]] = {
    "kinds": (_kinds, "adapt-files"),
    "reading": (_reading, "can-the-judges-be-trusted"),
    "doubled": (_doubled, "adapt-files"),
    "board": (_board, "who-is-preferred"),
    "dialogues": (_dialogues, "what-a-study-can-tell"),
    "carried": (_carried, "the-raters"),
    "ties": (_ties, "who-is-preferred"),
    "names": (_names_alone, "do-judges-agree"),
    "people": (_people, "do-judges-agree"),
    "length": (_length, "can-the-judges-be-trusted"),
    "family": (_family, "can-the-judges-be-trusted"),
    "drift": (_drift, "can-the-judges-be-trusted"),
    "gap": (_gap, "what-a-study-can-tell"),
}
"""Check -> what it asks of votes, and the label of the page of the book that explains it."""
OF_JUDGES = ("reading", "length", "family", "drift")  #: Asked of all dimensions at once.
