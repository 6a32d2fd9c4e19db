"""A judge that may abstain: how confident it must be so that its error against people stays below a stated risk."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from scipy import stats

from heart_utils.ratings.resampling import check_level
from heart_utils.ratings.verdicts import AgreementError, Array

__all__ = ["calibrate_abstention"]

COVERAGES = (0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)


def calibrate_abstention(
    wrong: ArrayLike,
    confidence: ArrayLike,
    cluster: ArrayLike,
    *,
    risk: float = 0.1,
    error: float = 0.05,
    coverages: Sequence[float] = COVERAGES,
) -> pd.DataFrame:
    r"""Choose from people's votes the confidence from which a judge's verdicts are accepted.

    Thresholds are tested one after another, from the fewest accepted verdicts to the most, until one fails (learn then
    test, with a fixed sequence [1]_). A threshold passes if the upper bound on its risk, the share of accepted verdicts that
    people contradict, is at most `risk`. Then the risk among all such questions exceeds `risk` with a probability of at
    most `error`. The bound is Clopper and Pearson's; as votes on one question err together, it is taken at the number
    of independent votes that would vary as much (Korn and Graubard [2]_).

    Parameters
    ----------
    wrong : array-like
        One entry a vote of a person: 1 if the judge's verdict differs, 0 if it agrees.
    confidence : array-like
        How sure the judge is of this verdict, from what it said alone, such as ``abs(2 * p_a - 1)`` over both orders.
        Never from the votes given here.
    cluster : array-like
        What was sampled, such as the question.
    risk : float
        Highest share of wrong verdicts among the accepted ones.
    error : float
        Probability that the risk is exceeded all the same.
    coverages : sequence of float
        Shares of verdicts to accept, each the threshold of a test; equal confidences are accepted together.

    Returns
    -------
    pandas.DataFrame
        One row a threshold, the highest first: ``threshold``, ``coverage``, ``risk``, ``risk_high`` (the bound), ``n_votes``,
        ``n_clusters`` and ``passed``. The lowest threshold that passed is the one to use; if none did, the judge
        always abstains.

    Raises
    ------
    AgreementError
        If the lengths differ, `wrong` is not 0 or 1, a confidence is missing or there are fewer than two clusters.

    Notes
    -----
    In 1,000 simulated studies each (``make bench NAME=abstain``) a risk of 10 % was exceeded in at most 3.7 % of studies with
    40 questions or more, and with 20 questions in 6.7 % where these differ as strongly as a standard deviation of 1.5 in
    log-odds (17.6 % if votes are counted as if independent). Below 40 questions take the promise as approximate.

    References
    ----------
    .. [1] Angelopoulos, Bates, Candès, Jordan and Lei (2021), https://arxiv.org/abs/2110.01052; for judges: Jung, Brahman
       and Choi (2024), https://arxiv.org/abs/2407.18370
    .. [2] Korn and Graubard (1998), Survey Methodology 24, 193-201.

    Examples
    --------
    >>> wrong, question = [0] * 90 + [1] * 10 + [0, 1] * 50, [*range(20)] * 10
    >>> found = calibrate_abstention(wrong, [0.9] * 100 + [0.1] * 100, question, risk=0.2)
    >>> found[["threshold", "coverage", "risk", "passed"]].values.tolist()
    [[0.9, 0.5, 0.1, True], [0.1, 1.0, 0.3, False]]
    """
    check_level(1.0 - error)
    wrong, confidence = np.asarray(wrong, float), np.asarray(confidence, float)
    where, clusters = pd.factorize(np.asarray(cluster))
    if not len(wrong) == len(confidence) == len(where):
        raise AgreementError(
            f"One entry a vote: got {len(wrong)} errors, {len(confidence)} confidences, {len(where)} clusters."
        )
    if len(clusters) < 2 or (where < 0).any() or np.isnan(confidence).any() or not np.isin(wrong, (0.0, 1.0)).all():
        raise AgreementError("wrong must be 0 or 1, confidence and cluster complete, with two clusters or more.")
    places = np.clip(np.ceil(np.sort(coverages) * len(wrong)).astype(int) - 1, 0, len(wrong) - 1)
    rows = []
    for threshold in dict.fromkeys(np.sort(confidence)[::-1][places]):
        taken = confidence >= threshold
        n = np.bincount(where[taken], minlength=len(clusters)).astype(float)
        said = np.bincount(where[taken], wrong[taken], len(clusters)).astype(float)
        share = said.sum() / n.sum()
        found = {"threshold": threshold, "coverage": taken.mean(), "risk": share, "risk_high": risk_bound(said, n, error)}
        rows.append({**found, "n_votes": int(n.sum()), "n_clusters": int((n > 0).sum())})
    table = pd.DataFrame(rows)
    return table.assign(passed=(table["risk_high"] <= risk).cummin())


def risk_bound(wrong: Array, n: Array, error: float) -> float:
    """Bound a share from above, from its counts by cluster."""
    wrong, n = wrong[n > 0], n[n > 0]
    share, votes, clusters = float(wrong.sum() / n.sum()), float(n.sum()), len(n)
    if clusters < 2 or share == 1.0:
        return 1.0
    spread = ((wrong - share * n) ** 2).sum() * clusters / (clusters - 1.0)
    inflation = max(spread / (votes * share * (1.0 - share)), 1.0) if share else 1.0
    few = stats.t.ppf(1.0 - error, votes - 1.0) / stats.t.ppf(1.0 - error, clusters - 1.0)
    worth = votes / inflation * few**2
    return float(stats.beta.ppf(1.0 - error, worth * share + 1.0, worth * (1.0 - share)))
