"""Coefficients of agreement beyond chance, with intervals."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from heart_utils.identities import show_rater
from heart_utils.ratings.resampling import ENOUGH_CLUSTERS, Rng, draw_weights, interval_of, sums_by
from heart_utils.ratings.verdicts import (
    AgreementError,
    Array,
    Codes,
    Votes,
    need,
    read_votes,
    unit_values,
)

__all__ = [
    "Coefficient",
    "cohen_kappa",
    "gwet_ac",
    "icc",
    "judge_reliability",
    "krippendorff_alpha",
]

LEVELS = ("nominal", "ordinal", "interval")
KINDS = ("C,1", "A,1", "C,k", "A,k")
POWERS = {None: 0, "linear": 1, "quadratic": 2}
Parts = Callable[[Array], tuple[Array, Array]]
"""Turns sums over units into the disagreement that is seen and the one that chance brings."""


@dataclass(frozen=True)
class Coefficient:
    """One number for how far raters agree, with its interval."""

    name: str  #: such as ``"Gwet's AC1"``
    value: float
    ci_low: float  #: the ends are ``nan`` where no interval can be had
    ci_high: float
    ci_level: float
    #: `value` is one minus this over what chance brings, or over the whole variance
    disagreement: float
    n_units: int  #: what entered
    n_clusters: int
    #: resamples in which it has no value (one category only), left out of the interval
    n_undefined: int
    provisional: bool  #: fewer than 30 clusters
    left_out: pd.Series  #: state -> answers that do not count


def cohen_kappa(
    table: pd.DataFrame,
    *,
    weights: str | None = None,
    cluster: str | None = "dialogue_id",
    n_resamples: int = 1000,
    ci_level: float = 0.95,
    rng: Rng = None,
) -> Coefficient:
    """Compute Cohen's kappa of two raters, plain or weighted.

    Tables of verdicts are averaged with their transpose. Source: Cohen (1968),
    https://doi.org/10.1037/h0026256

    Parameters
    ----------
    table
        Verdicts or scores on one dimension.
    weights
        Credit for near misses: ``"linear"``, ``"quadratic"`` or None.
    cluster
        What is resampled together; None takes each unit as its own.
    n_resamples, ci_level, rng
        As in :func:`~heart_utils.ratings.resampling.bootstrap_ci`.

    Returns
    -------
    Coefficient
        Units that only one of the two answered are left out.

    Raises
    ------
    AgreementError
        If there are not two raters who share a unit, or only one category occurs.

    Examples
    --------
    >>> votes = pd.DataFrame({"reply_id": list("rstu") * 2, "rater": list("xxxxyyyy")})
    >>> votes = votes.assign(score=[1, 2, 2, 3, 1, 2, 3, 3])
    >>> round(cohen_kappa(votes, cluster=None, n_resamples=0).value, 3)  # (3/4 - 5/16) / (1 - 5/16)
    0.636
    """
    if weights not in POWERS:
        raise AgreementError(f"weights must be 'linear' or 'quadratic'; got {weights!r}.")
    votes, scale = _read(table, cluster)
    if len(votes.raters) != 2:
        raise AgreementError(
            f"Cohen's kappa is of two raters; the table holds {len(votes.raters)}. Or use"
            " krippendorff_alpha."
        )
    category = np.full((2, len(votes.units)), -1)
    category[votes.rater, votes.unit] = votes.value
    both = (category >= 0).all(axis=0)
    _refuse_one_category(category[:, both], votes)
    size = len(scale)
    cells = cluster_of_unit(votes)[both], category[0, both], category[1, both]
    apart = np.abs(scale[:, None] - scale) / (scale[-1] - scale[0])
    lost = np.where(apart > 0, apart ** POWERS[weights], 0.0)

    def parts(counts: Array) -> tuple[Array, Array]:
        shares = _turned(counts, votes) / counts.sum(axis=(-1, -2), keepdims=True)
        expected = shares.sum(axis=-1)[..., :, None] * shares.sum(axis=-2)[..., None, :]
        return (lost * shares).sum(axis=(-1, -2)), (lost * expected).sum(axis=(-1, -2))

    name = "Cohen's kappa" if weights is None else f"weighted kappa ({weights})"
    sums = sums_by(cells, 1.0, len(votes.clusters), size, size)
    return _coefficient(name, sums, parts, int(both.sum()), votes, (n_resamples, ci_level, rng))


def gwet_ac(
    table: pd.DataFrame,
    *,
    cluster: str | None = "dialogue_id",
    n_resamples: int = 1000,
    ci_level: float = 0.95,
    rng: Rng = None,
) -> Coefficient:
    r"""Compute Gwet's AC1, which does not collapse where nearly all answers are the same.

    Chance is a guess among the q categories that occur: :math:`p_e = \frac{1}{q - 1} \sum_k \pi_k
    (1 - \pi_k)`. Source: Gwet (2008), https://doi.org/10.1348/000711006X126600

    Parameters
    ----------
    table, cluster, n_resamples, ci_level, rng
        As in :func:`cohen_kappa`; a unit with one answer counts in :math:`\pi` alone.

    Returns
    -------
    Coefficient

    Raises
    ------
    AgreementError
        If no two raters share a unit, or only one category occurs.

    Examples
    --------
    >>> votes = pd.DataFrame({"reply_id": list("rstu") * 2, "rater": list("xxxxyyyy")})
    >>> votes = votes.assign(score=[1, 2, 2, 3, 1, 2, 3, 3])
    >>> round(gwet_ac(votes, cluster=None, n_resamples=0).value, 3)  # (3/4 - 21/64) / (1 - 21/64)
    0.628
    """
    votes, scale = _read(table, cluster)
    counts = _count_answers(votes)
    answers = counts.sum(axis=1)
    equal = np.divide(
        (counts * (counts - 1.0)).sum(axis=1),
        answers * (answers - 1.0),
        out=0.0 * answers,
        where=answers >= 2,
    )
    shares = counts / answers[:, None]
    if votes.kind == "verdict":
        shares = (shares + shares[:, ::-1]) / 2.0
    columns = np.column_stack([equal, answers >= 2, np.ones(len(answers)), shares])

    def parts(cells: Array) -> tuple[Array, Array]:
        habit = cells[..., 3:] / cells[..., 2:3]
        n_several = np.where(cells[..., 1] > 0, cells[..., 1], np.nan)
        return 1.0 - cells[..., 0] / n_several, 1.0 - (habit * (1.0 - habit)).sum(axis=-1) / (
            len(scale) - 1.0
        )

    sums = sums_by(cluster_of_unit(votes), columns, len(votes.clusters))
    return _coefficient(
        "Gwet's AC1", sums, parts, int((answers >= 2).sum()), votes, (n_resamples, ci_level, rng)
    )


def krippendorff_alpha(
    table: pd.DataFrame,
    *,
    level: str = "nominal",
    cluster: str | None = "dialogue_id",
    n_resamples: int = 1000,
    ci_level: float = 0.95,
    rng: Rng = None,
) -> Coefficient:
    r"""Compute Krippendorff's alpha of any number of raters, with answers missing anywhere.

    :math:`\alpha = 1 - D_o / D_e`, mean squared distances within units and of any two answers.
    Source: Krippendorff (2011), https://repository.upenn.edu/asc_papers/43

    Parameters
    ----------
    table
        As in :func:`cohen_kappa`.
    level
        ``"nominal"``, ``"ordinal"`` or ``"interval"`` distance; verdicts are ordered a, tie, b.
    cluster, n_resamples, ci_level, rng
        As in :func:`cohen_kappa`.

    Returns
    -------
    Coefficient

    Raises
    ------
    AgreementError
        If no two raters share a unit, only one category occurs, or the level is unknown.

    Examples
    --------
    >>> votes = pd.DataFrame({"reply_id": list("rstu") * 2, "rater": list("xxxxyyyy")})
    >>> votes = votes.assign(score=[1, 2, 2, 3, 1, 2, 3, 3])
    >>> round(krippendorff_alpha(votes, cluster=None, n_resamples=0).value, 3)
    0.667
    """
    if level not in LEVELS:
        raise AgreementError(f"level must be one of {', '.join(LEVELS)}; got {level!r}.")
    votes, scale = _read(table, cluster)
    counts, where = _count_answers(votes), cluster_of_unit(votes)
    several = counts.sum(axis=1) >= 2
    sums = _coincidences(counts[several], where[several], len(votes.clusters))

    def parts(cells: Array) -> tuple[Array, Array]:
        table = _turned(cells, votes)
        margin = table.sum(axis=-1)
        total = margin.sum(axis=-1)
        # Of ordinal answers: how many there are from the middle of one category to the middle of
        # the other.
        position = np.cumsum(margin, axis=-1) - margin / 2.0 if level == "ordinal" else scale
        gap = position[..., :, None] - position[..., None, :]
        distance = np.sign(gap**2) if level == "nominal" else gap**2
        between = margin[..., :, None] * margin[..., None, :]
        observed = (table * distance).sum(axis=(-1, -2)) / np.where(total > 0, total, np.nan)
        return observed, (between * distance).sum(axis=(-1, -2)) / np.where(
            total > 1, total * (total - 1.0), np.nan
        )

    name, resampling = f"Krippendorff's alpha ({level})", (n_resamples, ci_level, rng)
    alpha = _coefficient(name, sums, parts, int(several.sum()), votes, resampling)
    if np.isnan(alpha.value):  # among the units that several raters answered
        _refuse_one_category(votes.value[several[votes.unit]], votes)
    return alpha


def icc(
    scores: pd.DataFrame,
    *,
    kind: str = "A,1",
    raters: Sequence[str] | None = None,
    cluster: str | None = "dialogue_id",
    n_resamples: int = 1000,
    ci_level: float = 0.95,
    rng: Rng = None,
) -> Coefficient:
    """Compute an intraclass correlation: the share of the variance that raters have in common.

    :math:`ICC(C,1) = (MS_R - MS_E) / (MS_R + (k - 1) MS_E)` with n rows and k raters; A adds
    :math:`k (MS_C - MS_E) / n` below. Source: McGraw and Wong (1996),
    https://doi.org/10.1037/1082-989X.1.1.30

    Parameters
    ----------
    scores
        The scores table, on one dimension.
    kind
        ``"A,1"``, ``"C,1"``, ``"A,k"`` or ``"C,k"``: agreement or consistency, of one or of the
        mean of k.
    raters
        Which raters; by default all.
    cluster
        What is resampled together; None takes each reply as its own.
    n_resamples, ci_level, rng
        As in :func:`~heart_utils.ratings.resampling.bootstrap_ci`.

    Returns
    -------
    Coefficient
        Only replies that all raters scored enter.

    Raises
    ------
    AgreementError
        If fewer than two raters share two rows or more, or nothing varies.

    Examples
    --------
    >>> scores = pd.DataFrame({"reply_id": list("rst") * 2, "rater": list("xxxyyy")})
    >>> scores = scores.assign(score=[1, 2, 3, 2, 3, 4])
    >>> round(icc(scores, cluster=None, n_resamples=0).value, 3)  # 2 / (2 + 2 / 3 * 1.5)
    0.667
    """
    votes = read_votes(need(scores, ["score"], "This needs scores."), cluster=cluster)
    one_dimension(votes)
    chosen = list(votes.raters) if raters is None else list(raters)
    if len(set(chosen)) < 2 or not set(chosen) <= set(votes.raters):
        raise AgreementError(
            f"Name two raters or more of {', '.join(map(show_rater, votes.raters))}; got {chosen}."
        )
    table = answer_sheet(votes)[:, votes.raters.get_indexer(pd.Index(chosen))]
    complete = ~np.isnan(table).any(axis=1)
    if complete.sum() < 2:
        raise AgreementError(
            f"{' and '.join(map(str, chosen))} share {complete.sum()} replies; this needs two or"
            " more."
        )
    sums = sums_by(cluster_of_unit(votes)[complete], _squares(table[complete]), len(votes.clusters))
    coefficient = _coefficient(
        f"ICC({kind})",
        sums,
        lambda cells: _variances(cells, kind),
        int(complete.sum()),
        votes,
        (n_resamples, ci_level, rng),
    )
    if np.isnan(coefficient.value):
        raise AgreementError(
            "All rows have the same score: without variance there is nothing to have in common."
        )
    return coefficient


def judge_reliability(
    scores: pd.DataFrame,
    *,
    person: str,
    of: str | None = "responder",
    kinds: Sequence[str] = ("C,1",),
) -> pd.DataFrame:
    """Correlate each judge's scores with a person's, by dimension, without an interval.

    Parameters
    ----------
    scores
        The scores table.
    person
        With whom each judge is compared.
    of
        Rows are means of each ``"responder"``, or replies (None).
    kinds
        As `kind` of :func:`icc`.

    Returns
    -------
    pandas.DataFrame
        By ``dimension``, ``judge`` and ``kind``: ``value`` (``nan`` without variance), ``n_rows``.

    Raises
    ------
    AgreementError
        If the person scored nothing, or shares fewer than two rows with a judge.

    Examples
    --------
    >>> scores = pd.DataFrame({"reply_id": list("rst") * 2, "responder": list("uvw") * 2})
    >>> scores = scores.assign(rater=np.repeat(["ann", "judge"], 3), score=[1, 2, 3, 2, 3, 3])
    >>> scores["dimension"] = "warmth"
    >>> judge_reliability(scores, person="ann")["value"].round(2).tolist()
    [0.75]
    """
    results = []
    for dimension, rows in need(
        scores, ["score", "dimension", "responder"], "This needs scores."
    ).groupby("dimension"):
        votes = read_votes(rows, cluster=None)
        if person not in votes.raters:
            raise AgreementError(
                f"{person} has no score that counts. Raters:"
                f" {', '.join(map(show_rater, votes.raters))}."
            )
        sheet = pd.DataFrame(answer_sheet(votes), columns=votes.raters)
        author = unit_values(votes, "responder")
        for judge in votes.raters.drop(person):
            both = sheet[[person, judge]].dropna()
            means = (both if of is None else both.groupby(author).mean()).to_numpy()
            if len(means) < 2:
                raise AgreementError(
                    f"{person} and {judge} share {len(means)} rows; a correlation needs two or"
                    " more."
                )
            for kind in kinds:
                rest, whole = _variances(_squares(means - means.mean()).sum(axis=0), kind)
                value = float(1.0 - rest / whole) if whole > 1e-12 else float("nan")
                results.append((dimension, judge, kind, value, len(means)))
    return pd.DataFrame(results, columns=["dimension", "judge", "kind", "value", "n_rows"])


def one_dimension(votes: Votes) -> None:
    """Refuse answers on several dimensions."""
    dimensions = list(votes.units.get("dimension", pd.Series(dtype=object)).unique())
    if len(dimensions) > 1:
        names = ", ".join(map(str, dimensions[:6]))
        raise AgreementError(
            f"The table holds several dimensions ({names}); a coefficient is of one. Choose one."
        )


def cluster_of_unit(votes: Votes) -> Codes:
    """Return the cluster of each unit."""
    clusters = np.zeros(len(votes.units), np.intp)
    clusters[votes.unit] = votes.cluster
    return clusters


def answer_sheet(votes: Votes) -> Array:
    """Arrange answers as units by raters; verdicts as 1, 0 and -1."""
    values = votes.categories.astype(float) if votes.kind == "score" else np.array([1.0, 0.0, -1.0])
    sheet = np.full((len(votes.units), len(votes.raters)), np.nan)
    sheet[votes.unit, votes.rater] = values[votes.value]
    return sheet


def _read(table: pd.DataFrame, cluster: str | None) -> tuple[Votes, Array]:
    votes = read_votes(table, cluster=cluster)
    one_dimension(votes)
    if len(votes.raters) < 2:
        raise AgreementError(
            f"Agreement needs two raters or more; there is only {votes.raters[0]}."
        )
    if np.bincount(votes.unit).max() < 2:
        raise AgreementError(
            f"The {len(votes.raters)} raters share no unit, so they cannot be compared."
        )
    _refuse_one_category(votes.value, votes)
    if votes.kind == "score":
        return votes, votes.categories.astype(float)
    if 1 in votes.value:
        return votes, np.array([0.0, 1.0, 2.0])
    # Without ties there are two categories: AC1 would otherwise guess among three.
    return replace(votes, value=votes.value // 2, categories=votes.categories[[0, 2]]), np.array(
        [0.0, 2.0]
    )


def _refuse_one_category(value: Codes, votes: Votes) -> None:
    if value.min() == value.max():
        name = votes.categories[value.flat[0]]
        raise AgreementError(
            f"All answers are {name if votes.kind == 'verdict' else f'{name:g}'}: agreement is 1,"
            " and with one category only there is no chance to correct for. Report the agreement"
            " and say so."
        )


def _count_answers(votes: Votes) -> Array:
    return sums_by((votes.unit, votes.value), 1.0, len(votes.units), len(votes.categories))


def _turned(tables: Array, votes: Votes) -> Array:
    """Symmetrise tables of verdicts: which reply is a is arbitrary."""
    return tables if votes.kind == "score" else np.asarray((tables + tables[..., ::-1, ::-1]) / 2.0)


def _coincidences(counts: Array, cluster: Codes, n_clusters: int) -> Array:
    one = counts / (counts.sum(axis=1, keepdims=True) - 1.0)
    sums = np.stack(
        [sums_by(cluster, share[:, None] * counts, n_clusters) for share in one.T], axis=1
    )
    sums[:, range(counts.shape[1]), range(counts.shape[1])] -= sums_by(cluster, one, n_clusters)
    return sums


def _squares(table: Array) -> Array:
    return np.column_stack(
        [np.ones(len(table)), (table**2).sum(axis=1), table.sum(axis=1) ** 2, table]
    )


def _variances(sums: Array, kind: str) -> tuple[Array, Array]:
    if kind not in KINDS:
        raise AgreementError(f"kind must be one of {', '.join(KINDS)}; got {kind!r}.")
    n, squares, row_squares, by_rater = sums[..., 0], sums[..., 1], sums[..., 2], sums[..., 3:]
    n_raters = by_rater.shape[-1]
    centre = by_rater.sum(axis=-1) ** 2 / (n * n_raters)
    total, rows = squares - centre, row_squares / n_raters - centre
    raters = (by_rater**2).sum(axis=-1) / n - centre
    freedom = np.where(n > 1, n - 1.0, np.nan)
    rest = np.maximum(total - rows - raters, 0.0) / (freedom * (n_raters - 1.0))
    rows, raters = rows / freedom, raters / (n_raters - 1.0)
    shift = (raters - rest) / n if kind[0] == "A" else 0.0
    whole = rows + (n_raters - 1.0) * rest + n_raters * shift if kind[2] == "1" else rows + shift
    return np.asarray(whole - (rows - rest)), np.asarray(whole)


def _coefficient(
    name: str,
    sums: Array,
    parts: Parts,
    n_units: int,
    votes: Votes,
    resampling: tuple[int, float, Rng],
) -> Coefficient:
    n_resamples, ci_level, rng = resampling
    sums = sums[sums.reshape(len(sums), -1).any(axis=1)]
    n_clusters = len(sums)
    weights = np.vstack([np.ones(n_clusters), draw_weights(n_clusters, n_resamples, rng)])
    observed, chance = parts((weights @ sums.reshape(n_clusters, -1)).reshape(-1, *sums.shape[1:]))
    values = 1.0 - observed / np.where(chance > 1e-12, chance, np.nan)
    value, replicates = float(values[0]), values[1:]
    low, high = interval_of(value, replicates, n_clusters, ci_level, most=1.0)
    counts = n_units, n_clusters, int(np.isnan(replicates).sum()), n_clusters < ENOUGH_CLUSTERS
    return Coefficient(
        name, value, low, high, ci_level, float(observed[0]), *counts, votes.left_out
    )
