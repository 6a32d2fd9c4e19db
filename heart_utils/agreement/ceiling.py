"""How high agreement with people can go: a judge without noise meets one noisy person, not two."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy import stats

from heart_utils.agreement.kappa import cluster_of_unit
from heart_utils.ratings.resampling import ENOUGH_CLUSTERS, Rng, draw_weights, interval_of, sums_by
from heart_utils.ratings.verdicts import AgreementError, Array, Codes, people_only, read_votes

__all__ = ["Ceiling", "ceiling_bounds", "estimate_ceiling"]

GRID = np.linspace(0.5, 1.0, 41)
N_STEPS = 500
"""EM steps from a flat start. Stopping there smooths: more steps change the mean little and its spread for the worse."""

LEAST_VOTES = 3
ENOUGH_VOTES = 5


@dataclass(frozen=True)
class Ceiling:
    """How often the best possible judge would agree with one person, where neither calls a tie."""

    agreement: float  # of two people, the mean over pairs of replies
    agreement_low: float
    agreement_high: float
    bound_low: float  # between which the ceiling lies if that agreement is right, whatever the pairs are like
    bound_high: float
    estimate: float  # the ceiling, from how the votes on a pair split
    ci_low: float
    ci_high: float
    # whether half of the pairs have five votes or more. If not, the splits say little more than how often two people agree:
    # the ends are then those of the bounds, and the estimate is a guess.
    decides: bool
    ci_level: float
    n_pairs: int  # pairs of replies with three decided votes or more, and what they hold
    n_votes: int
    n_clusters: int
    provisional: bool


def ceiling_bounds(agreement: float) -> tuple[float, float]:
    r"""Bound the agreement of the best judge with one person, given how often two people agree.

    If a share p of people prefers a, two of them agree with probability :math:`p^2 + (1-p)^2`, and a
    judge who knows what most prefer agrees with one of them with probability :math:`\max(p, 1-p)`. So
    with agreement A the ceiling lies between A (each pair is either clear to all or a coin) and
    :math:`(1 + \sqrt{2A - 1}) / 2` (all pairs are equally hard). A judge can agree with a person more
    often than a second person does.

    Parameters
    ----------
    agreement : float
        Of two people, without ties; from 0.5 to 1.

    Returns
    -------
    tuple of float
        Lower and upper bound.

    Raises
    ------
    AgreementError
        If the agreement is not between 0.5 and 1: no share p gives less than 0.5.

    Examples
    --------
    >>> [round(bound, 3) for bound in ceiling_bounds(0.795)]
    [0.795, 0.884]
    """
    if not 0.5 <= agreement <= 1.0:
        raise AgreementError(f"Agreement of two people without ties lies between 0.5 and 1; got {agreement}.")
    return agreement, float(_highest(np.array(agreement)))


def estimate_ceiling(verdicts: pd.DataFrame, *, n_resamples: int = 1000, ci_level: float = 0.95, rng: Rng = None) -> Ceiling:
    r"""Estimate the ceiling from pairs of replies that three or more people judged.

    How the votes on a pair split tells of the distribution of :math:`m = \max(p, 1-p)` over pairs: it is
    fitted without assuming a shape (a mixture over a grid of m, 500 EM steps from a flat start), and its
    mean is the ceiling. With three votes a pair the data say no more than A itself, and the estimate
    leans on the flat start: the interval is then that of the two bounds. From five on they decide.

    Parameters
    ----------
    verdicts : pandas.DataFrame
        The verdicts table; people's decided verdicts count, ties do not.
    n_resamples, ci_level, rng
        As in :func:`~heart_utils.ratings.resampling.bootstrap_ci`.

    Returns
    -------
    Ceiling
        Each pair of replies weighs the same.

    Raises
    ------
    AgreementError
        If no pair has three decided votes by different people.

    Examples
    --------
    >>> votes = pd.DataFrame({"pair_id": np.repeat(["p", "q"], 4), "dialogue_id": np.repeat(["d", "e"], 4),
    ...     "rater": list("wxyz") * 2, "rater_kind": "human", "verdict": ["a"] * 4 + ["a", "a", "b", "b"]})
    >>> found = estimate_ceiling(votes, n_resamples=0)
    >>> round(found.agreement, 3), found.bound_low < found.estimate < found.bound_high
    (0.667, True)
    """
    votes = read_votes(people_only(verdicts))
    if votes.kind != "verdict":
        raise AgreementError("The ceiling is estimated from verdicts; the table holds scores.")
    n_units = len(votes.units)
    for_a = np.bincount(votes.unit[votes.value == 0], minlength=n_units)
    decided = for_a + np.bincount(votes.unit[votes.value == 2], minlength=n_units)
    kept = decided >= LEAST_VOTES
    if not kept.any():
        raise AgreementError(
            f"No pair has {LEAST_VOTES} decided votes by people (the most is {decided.max()}). "
            f"With fewer, only `ceiling_bounds` of their agreement can be had."
        )
    present, where = np.unique(cluster_of_unit(votes)[kept], return_inverse=True)
    kinds, sums, agree = _splits(decided[kept], np.maximum(for_a, decided - for_a)[kept], where, len(present))
    weights = np.vstack([np.ones((1, len(present))), draw_weights(len(present), n_resamples, rng)])
    drawn = weights @ sums
    agreement = drawn @ agree / drawn.sum(axis=1)
    low, high = interval_of(float(agreement[0]), agreement[1:], len(present), ci_level, least=0.0, most=1.0)
    decides = bool((decided[kept] >= ENOUGH_VOTES).mean() >= 0.5)
    some = slice(None) if decides else slice(1)  # the ends of the bounds need no resampled mixture
    ceiling = np.clip(_mean_of_mixture(drawn[some], kinds), agreement[some], _highest(agreement[some]))
    ends = interval_of(float(ceiling[0]), ceiling[1:], len(present), ci_level, most=1.0)
    if not decides:
        ends = max(low, 0.5), float(_highest(np.array(high)))
    bounds = ceiling_bounds(float(np.clip(agreement[0], 0.5, 1.0)))
    found = (float(agreement[0]), low, high, *bounds, float(ceiling[0]), *ends)
    counts = int(kept.sum()), int(decided[kept].sum()), len(present)
    return Ceiling(*found, decides, ci_level, *counts, provisional=len(present) < ENOUGH_CLUSTERS)


def _highest(agreement: Array) -> Array:
    """Give the ceiling if all pairs are equally hard."""
    return np.asarray((1.0 + np.sqrt(np.maximum(2.0 * agreement - 1.0, 0.0))) / 2.0)


def _splits(decided: Codes, larger: Codes, cluster: Codes, n_clusters: int) -> tuple[Codes, Array, Array]:
    """Count pairs by cluster and split; give the splits, and how often two of their votes agree."""
    kinds, number = np.unique(np.column_stack([decided, larger]), axis=0, return_inverse=True)
    sums = sums_by((cluster, number.ravel()), 1.0, n_clusters, len(kinds))
    n, most = kinds[:, 0], kinds[:, 1]
    agree = (most * (most - 1) + (n - most) * (n - most - 1)) / (n * (n - 1.0))
    return kinds, sums, agree


def _mean_of_mixture(counts: Array, kinds: Codes) -> Array:
    """Fit the distribution of m to counts of splits, one row a resample, and give its mean."""
    n, most = kinds[:, :1], kinds[:, 1:]
    # A split of k to n - k comes about both ways round; only ratios within a split matter here.
    chance = stats.binom.pmf(most, n, GRID) + stats.binom.pmf(n - most, n, GRID)
    shares = counts / counts.sum(axis=1, keepdims=True)
    mixture = np.full((len(counts), len(GRID)), 1.0 / len(GRID))
    for _ in range(N_STEPS):
        mixture *= (shares / (mixture @ chance.T)) @ chance
    return np.asarray(mixture @ GRID)
