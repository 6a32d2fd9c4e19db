"""Intraclass correlations: how much of the variance of scores raters have in common."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from heart_utils.analysis.coefficients import Coefficient, one_dimension
from heart_utils.analysis.resampling import ENOUGH_CLUSTERS, draw_weights, interval_of
from heart_utils.analysis.votes import AgreementError, Array, Codes, Votes, read_votes, scores_only, unit_values

__all__ = ["icc"]

KINDS = ("C,1", "A,1", "C,k", "A,k")


def icc(
    scores: pd.DataFrame,
    *,
    kind: str = "A,1",
    of: str | None = None,
    raters: Sequence[str] | None = None,
    cluster: str | None = "dialogue_id",
    n_resamples: int = 1000,
    ci_level: float = 0.95,
    rng: np.random.Generator | None = None,
) -> Coefficient:
    r"""Compute an intraclass correlation: the share of the variance that raters have in common.

    From the mean squares of rows, raters and rest in a two-way table with n rows and k raters [1]_,

    .. math::

        ICC(C,1) &= \frac{MS_R - MS_E}{MS_R + (k - 1) MS_E}, \\
        ICC(A,1) &= \frac{MS_R - MS_E}{MS_R + (k - 1) MS_E + \frac{k}{n} (MS_C - MS_E)}

    and for the mean of k raters :math:`(MS_R - MS_E) / MS_R`, and with
    :math:`(MS_C - MS_E) / n` added below. A constant shift of one rater lowers A, not C.

    Parameters
    ----------
    scores : pandas.DataFrame
        The scores table, one dimension.
    kind : {"A,1", "C,1", "A,k", "C,k"}
        Absolute agreement or consistency, of a single rater or of the mean of all.
    of : str, optional
        What is a row: by default each reply; ``"responder"`` takes the means of each responder, which
        is another, easier question.
    raters : sequence of str, optional
        Which raters; by default all.
    cluster : str or None
        Column of what is resampled together; None takes each reply as its own.
    n_resamples : int
        Bootstrap resamples; 0 for the value alone.
    ci_level : float
        Of the interval. With ``of="responder"`` it speaks of other dialogues, not of other responders.
    rng : numpy.random.Generator, optional
        The source of chance; by default one with a fixed seed.

    Returns
    -------
    Coefficient
        Only replies that all raters scored enter.

    Raises
    ------
    AgreementError
        If there are fewer than two raters or rows that all of them scored, or no variance.

    References
    ----------
    .. [1] McGraw and Wong (1996), https://doi.org/10.1037/1082-989X.1.1.30

    Examples
    --------
    >>> scores = pd.DataFrame({"reply_id": list("rst") * 2, "rater": ["x"] * 3 + ["y"] * 3, "score": [1, 2, 3, 2, 3, 4]})
    >>> icc(scores, kind="C,1", cluster=None, n_resamples=0).value
    1.0
    >>> round(icc(scores, kind="A,1", cluster=None, n_resamples=0).value, 3)  # 2 / (2 + 2 / 3 * 1.5)
    0.667
    """
    if kind not in KINDS:
        raise AgreementError(f"kind must be one of {', '.join(KINDS)}; got {kind!r}.")
    votes = read_votes(scores_only(scores), cluster=cluster)
    one_dimension(votes)
    table, cluster_of_row = _complete(votes, raters)
    if of is None:
        row, n_rows = np.arange(len(table)), len(table)
    else:
        name = unit_values(votes, scores, of).to_numpy(dtype=object)
        row, names = pd.factorize(name[cluster_of_row[:, 0]])
        n_rows = len(names)
    # Only clusters with a complete reply can be drawn: the others hold nothing that this coefficient rests on.
    clusters, drawn_from = pd.factorize(cluster_of_row[:, 1], sort=True)
    if n_rows < 2:
        raise AgreementError(f"An intraclass correlation needs two rows or more that all raters scored; there is {n_rows}.")
    n_clusters, n_raters = len(drawn_from), table.shape[1]
    squares = _squares_of_means if of is not None else _squares_of_rows
    estimate = float(_icc(*squares(table, row, clusters, n_rows, np.ones((1, n_clusters))), n_raters, kind)[0])
    if np.isnan(estimate):
        raise AgreementError("All rows have the same score: without variance there is nothing to have in common.")
    drawn = draw_weights(n_clusters, n_resamples, rng)
    replicates = _icc(*squares(table, row, clusters, n_rows, drawn), n_raters, kind) if len(drawn) else np.zeros(0)
    low, high = interval_of(estimate, replicates, n_clusters, ci_level, most=1.0)
    n_undefined = int(np.isnan(replicates).sum())
    nan = float("nan")
    return Coefficient(
        f"ICC({kind})",
        estimate,
        low,
        high,
        ci_level,
        nan,
        nan,
        n_rows,
        n_raters,
        table.size,
        n_clusters,
        n_undefined,
        n_clusters < ENOUGH_CLUSTERS,
        votes.left_out,
    )


def icc_of_table(table: Array, row: Codes, kinds: Sequence[str], *, means: bool) -> list[float]:
    """Compute intraclass correlations of a complete table of replies by raters, each reply in its row; no interval."""
    n_rows = int(row.max()) + 1
    squares = _squares_of_means if means else _squares_of_rows
    parts = squares(table, row, np.zeros(len(table), np.intp), n_rows, np.ones((1, 1)))
    return [float(_icc(*parts, table.shape[1], kind)[0]) for kind in kinds]


def _complete(votes: Votes, raters: Sequence[str] | None) -> tuple[Array, Codes]:
    """Give the table of replies that all raters scored, with the unit and the cluster of each row."""
    chosen = list(votes.raters) if raters is None else list(raters)
    missing = [name for name in chosen if name not in votes.raters]
    if missing or len(set(chosen)) < 2:
        raise AgreementError(f"Name two raters or more of {', '.join(map(str, votes.raters))}; got {chosen}.")
    table = np.full((len(votes.units), len(votes.raters)), np.nan)
    table[votes.unit, votes.rater] = votes.categories.astype(float)[votes.value]
    table = table[:, votes.raters.get_indexer(pd.Index(chosen))]
    cluster = np.zeros(len(votes.units), np.intp)
    cluster[votes.unit] = votes.cluster
    complete = np.flatnonzero(~np.isnan(table).any(axis=1))
    if not len(complete):
        raise AgreementError(f"The raters {', '.join(map(str, chosen))} share no reply that all of them scored.")
    return table[complete], np.column_stack([complete, cluster[complete]])


def _squares_of_rows(
    table: Array, row: Codes, cluster: Codes, n_rows: int, weights: Array
) -> tuple[Array, Array, Array, Array]:
    """Give mean squares under cluster weights, where each reply is a row and lies in one cluster."""
    n_raters = table.shape[1]
    whole = table.sum(axis=1)
    columns = np.column_stack([np.ones(len(table)), (table**2).sum(axis=1), whole**2, table])
    sums = np.zeros((weights.shape[1], columns.shape[1]))
    np.add.at(sums, cluster, columns)
    drawn = weights @ sums
    n, squares, row_squares, by_rater = drawn[:, 0], drawn[:, 1], drawn[:, 2], drawn[:, 3:]
    centre = by_rater.sum(axis=1) ** 2 / (n * n_raters)
    return _mean_squares(n, squares - centre, row_squares / n_raters - centre, (by_rater**2).sum(axis=1) / n - centre, n_raters)


def _squares_of_means(
    table: Array, row: Codes, cluster: Codes, n_rows: int, weights: Array
) -> tuple[Array, Array, Array, Array]:
    """Give mean squares under cluster weights, where a row is a mean over replies in many clusters."""
    n_raters, n_clusters = table.shape[1], weights.shape[1]
    sums = np.zeros((n_clusters, n_rows, n_raters + 1))
    np.add.at(sums, (cluster, row), np.column_stack([table, np.ones(len(table))]))
    drawn = (weights @ sums.reshape(n_clusters, -1)).reshape(-1, n_rows, n_raters + 1)
    counts = drawn[:, :, -1:]
    means = np.divide(drawn[:, :, :-1], counts, out=np.full_like(drawn[:, :, :-1], np.nan), where=counts > 0)
    means = means - means.mean(axis=(1, 2), keepdims=True)
    n = np.full(len(means), float(n_rows))
    rows, raters = n_raters * (means.mean(axis=2) ** 2).sum(axis=1), n_rows * (means.mean(axis=1) ** 2).sum(axis=1)
    return _mean_squares(n, (means**2).sum(axis=(1, 2)), rows, raters, n_raters)


def _mean_squares(n: Array, total: Array, rows: Array, raters: Array, n_raters: int) -> tuple[Array, Array, Array, Array]:
    rest = np.maximum(total - rows - raters, 0.0)
    freedom = np.where(n > 1, n - 1.0, np.nan)
    return n, rows / freedom, raters / (n_raters - 1.0), rest / (freedom * (n_raters - 1.0))


def _icc(n: Array, rows: Array, raters: Array, rest: Array, n_raters: int, kind: str) -> Array:
    shift = (raters - rest) / n if kind[0] == "A" else np.zeros(len(n))
    below = rows + (n_raters - 1.0) * rest + n_raters * shift if kind[2] == "1" else rows + shift
    return np.asarray((rows - rest) / np.where(np.abs(below) > 1e-12, below, np.nan))
