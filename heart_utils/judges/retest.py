"""Asking a judge again: reliability, the price of repeats, and drift between dates."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pandas as pd

from heart_utils.judges.position import SAME, BiasError
from heart_utils.ratings.resampling import Rng, bootstrap_ci, p_value, ratio
from heart_utils.ratings.verdicts import Array, won_by_a
from heart_utils.tables import need_columns

__all__ = ["measure_drift", "repeat_reliability"]

LEAST_DIALOGUES = 2


def repeat_reliability(
    verdicts: pd.DataFrame, *, rng: Rng = None, n_resamples: int = 1000, ci_level: float = 0.95
) -> pd.DataFrame:
    r"""Compute the share of variance of a judge's answers that repeats reproduce.

    A judge that is asked the same question twice may answer differently. Noise of this kind lowers
    agreement and widens intervals, and repeats can average it out, unlike a bias. An answer is 1,
    1/2 or 0 for a win of a, a tie or a win of b. The share is the intraclass correlation of one-way
    analysis of variance, :math:`(B - W) / (B + (k - 1) W)` with mean squares between and within
    questions and :math:`k` repeats: 1 if each answer comes back, 0 if answers to one question are
    no more alike than answers to two [1]_.

    Parameters
    ----------
    verdicts : pandas.DataFrame
        Orders not joined, with the column ``repeat`` (0, 1, ...) that numbers the answers to one
        question.
    rng, n_resamples, ci_level
        As in :func:`~heart_utils.ratings.resampling.bootstrap_ci`.

    Returns
    -------
    pandas.DataFrame
        One row a rater and dimension: ``reliability``, ``ci_low``, ``ci_high``, ``ci_level``,
        ``n_questions`` asked twice or more (a pair in one order), ``repeats`` (their mean number of
        answers), ``n_failed`` answers, ``n_clusters`` dialogues, ``provisional``. No interval where
        one dialogue was asked again; ``nan`` where all answers are the same.

    Raises
    ------
    BiasError
        If nothing was asked again.

    References
    ----------
    .. [1] Shrout and Fleiss (1979), case 1, https://doi.org/10.1037/0033-2909.86.2.420

    Examples
    --------
    >>> votes = pd.DataFrame(
    ...     {
    ...         "dialogue_id": list("ddeeff"),
    ...         "pair_id": list("ppqqrr"),
    ...         "repeat": [0, 1] * 3,
    ...         "order": "ab",
    ...         "verdict": ["a", "a", "b", "b", "a", "b"],
    ...         "rater": "judge",
    ...         "dimension": "overall",
    ...         "state": "valid",
    ...     }
    ... )
    >>> found = repeat_reliability(votes)
    >>> found["reliability"].round(2).tolist()  # (B - W) / (B + W) with B = 1/2, W = 1/6
    [0.5]
    """
    need_columns(
        verdicts,
        ["rater", "dimension", "dialogue_id", "pair_id", "verdict", "state", "repeat"],
        BiasError,
    )
    key = question_columns(verdicts, without="repeat")
    rows = []
    for (rater, dimension), theirs in verdicts.groupby(["rater", "dimension"], sort=True):
        valid = theirs[theirs["state"] == "valid"]
        answers = valid.assign(won=np.asarray(won_by_a(valid), dtype=float))
        questions = (
            answers.groupby([*key, "dialogue_id"], dropna=False)["won"]
            .agg(["size", "mean", "var"])
            .reset_index()
        )
        questions = questions[questions["size"] > 1]
        if questions.empty:
            continue
        size, mean = questions["size"], questions["mean"]
        sums = pd.DataFrame(
            {
                "questions": 1.0,
                "answers": size,
                "squared_sizes": size**2,
                "total": size * mean,
                "between": size * mean**2,
                "within": (size - 1) * questions["var"],
                "dialogue_id": questions["dialogue_id"],
            }
        )
        n_clusters = int(sums["dialogue_id"].nunique())
        row = {
            "rater": rater,
            "dimension": dimension,
            "ci_level": ci_level,
            "n_questions": len(questions),
        }
        row |= {
            "repeats": float(size.mean()),
            "n_failed": len(theirs) - len(valid),
            "n_clusters": n_clusters,
        }
        if n_clusters < LEAST_DIALOGUES:
            value = float(_intraclass(sums.drop(columns="dialogue_id").sum().to_frame().T)[0])
            rows.append(
                row
                | {
                    "reliability": value,
                    "ci_low": np.nan,
                    "ci_high": np.nan,
                    "provisional": True,
                }
            )
            continue
        interval = bootstrap_ci(
            sums,
            _intraclass,
            cluster="dialogue_id",
            rng=rng,
            n_resamples=n_resamples,
            ci_level=ci_level,
            least=-1.0,
            most=1.0,
        )
        ends = {
            "ci_low": interval.ci_low,
            "ci_high": interval.ci_high,
            "provisional": interval.provisional,
        }
        rows.append(row | {"reliability": interval.estimate} | ends)
    if not rows:
        raise BiasError(
            "No pair was asked again in the same order: a repeat has the same pair_id and order,"
            " and another repeat."
        )
    columns = [
        "rater",
        "dimension",
        "reliability",
        "ci_low",
        "ci_high",
        "ci_level",
        "n_questions",
        "repeats",
        "n_failed",
        "n_clusters",
        "provisional",
    ]
    return pd.DataFrame(rows)[columns]


def measure_drift(
    verdicts: pd.DataFrame,
    *,
    by: str = "date",
    rng: Rng = None,
    n_resamples: int = 1000,
    ci_level: float = 0.95,
) -> pd.DataFrame:
    """Compare changes of answers between two dates with changes within one date.

    A judge that is not certain contradicts itself on any day, so only what changes beyond that is
    drift. An answer that abstains, refuses or cannot be read is an answer of that kind: a judge
    that begins to fail has changed. Calls that failed are left out.

    Parameters
    ----------
    verdicts : pandas.DataFrame
        Orders not joined; each date asks the same questions, at least one of them twice (column
        ``repeat``).
    by : str
        The column of the date.
    rng, n_resamples, ci_level
        As in :func:`~heart_utils.ratings.resampling.bootstrap_ci`.

    Returns
    -------
    pandas.DataFrame
        One row a rater, dimension and two dates ``one`` and ``other``: ``same_within`` and
        ``same_between``, the shares of equal answers, ``drift``, the first less the second (0 for a
        judge that is the same), its ``ci_low``, ``ci_high``, ``ci_level``, ``p``, ``n_questions``,
        ``n_clusters``, ``provisional``.

    Raises
    ------
    BiasError
        If there are not two dates, or no date asked a question twice.

    Examples
    --------
    >>> rows = [
    ...     (f"d{n}", date, repeat, "b" if date == "june" and n % 4 == 0 else "a")
    ...     for n in range(40)
    ...     for date in ("may", "june")
    ...     for repeat in (0, 1)
    ... ]
    >>> votes = pd.DataFrame(rows, columns=["dialogue_id", "date", "repeat", "verdict"])
    >>> names = {"rater": "judge", "dimension": "overall", "state": "valid", "order": "ab"}
    >>> measure_drift(votes.assign(pair_id=votes["dialogue_id"], **names))["drift"].tolist()
    [0.25]
    """
    need_columns(
        verdicts,
        ["rater", "dimension", "dialogue_id", "pair_id", "verdict", "state", "repeat", by],
        BiasError,
    )
    valid = verdicts[verdicts["state"] != "error"]
    valid = valid.assign(verdict=valid["verdict"].where(valid["state"] == "valid", valid["state"]))
    dates = sorted(valid[by].dropna().unique())
    if len(dates) < 2:
        raise BiasError(
            f"Verdicts in the column {by!r} are of {len(dates)} dates; drift needs two."
        )
    key = [*question_columns(valid, without="repeat"), "dialogue_id"]
    key = [column for column in key if column != by]
    # a setting that is absent is one, too
    sizes = valid.groupby([*key, by, "verdict"], dropna=False).size()
    counts = sizes.unstack([by, "verdict"], fill_value=0)  # noqa: PD010 - a pivot table drops absent settings
    rows = []
    for one, other in combinations(dates, 2):
        for (rater, dimension), theirs in counts.groupby(level=["rater", "dimension"], sort=True):
            earlier, later = theirs[one], theirs[other]
            words = sorted({*earlier, *later})
            earlier, later = (
                side.reindex(columns=words, fill_value=0).to_numpy(float)
                for side in (earlier, later)
            )
            in_both = (earlier.sum(axis=1) > 0) & (later.sum(axis=1) > 0)
            within = _equal(earlier) + _equal(later)
            pairs = _pairs(earlier.sum(axis=1)) + _pairs(later.sum(axis=1))
            sums = pd.DataFrame(
                {
                    "within": ratio(within, pairs, 0.0),
                    "between": ratio(
                        (earlier * later).sum(axis=1), earlier.sum(axis=1) * later.sum(axis=1), 0.0
                    ),
                    "met": 1.0,
                    "dialogue_id": theirs.index.get_level_values("dialogue_id"),
                }
            )[in_both & (pairs > 0)]
            if sums["dialogue_id"].nunique() < LEAST_DIALOGUES:
                continue
            drift = bootstrap_ci(
                sums,
                _beyond,
                cluster="dialogue_id",
                rng=rng,
                n_resamples=n_resamples,
                ci_level=ci_level,
                least=-1.0,
                most=1.0,
            )
            rows.append(
                {
                    "rater": rater,
                    "dimension": dimension,
                    "one": one,
                    "other": other,
                    "same_within": float(sums["within"].mean()),
                    "same_between": float(sums["between"].mean()),
                    "drift": drift.estimate,
                    "ci_low": drift.ci_low,
                    "ci_high": drift.ci_high,
                    "ci_level": ci_level,
                    "p": p_value(drift.estimate, drift.replicates, drift.n_clusters),
                    "n_questions": len(sums),
                    "n_clusters": drift.n_clusters,
                    "provisional": drift.provisional,
                }
            )
    if not rows:
        raise BiasError(
            "No two dialogues were asked twice on one date and once on another; drift is what"
            " changes beyond that."
        )
    return pd.DataFrame(rows)


def question_columns(verdicts: pd.DataFrame, *, without: str) -> list[str]:
    """Name the columns that two answers to one question share."""
    return [column for column in SAME if column in verdicts and column != without]


def _intraclass(sums: pd.DataFrame) -> Array:
    n_questions, n_answers = sums["questions"], sums["answers"]
    between = (sums["between"] - sums["total"] ** 2 / n_answers) / (n_questions - 1.0)
    within = sums["within"] / (n_answers - n_questions)
    repeats = (n_answers - sums["squared_sizes"] / n_answers) / (n_questions - 1.0)
    return ratio((between - within).to_numpy(), (between + (repeats - 1.0) * within).to_numpy())


def _pairs(n: Array) -> Array:
    return n * (n - 1.0) / 2.0


def _equal(side: Array) -> Array:
    """Count the pairs of equal answers to each question."""
    return np.asarray(_pairs(side).sum(axis=1))


def _beyond(sums: pd.DataFrame) -> pd.Series:
    return (sums["within"] - sums["between"]) / sums["met"]
