"""Coefficients of agreement beyond chance: one body for kappa, Fleiss' kappa, AC1, alpha and intraclass correlations.

`krippendorff`, statsmodels, scikit-learn and pingouin give the same values (tests hold that); here the clusters of
42,000 votes are resampled a thousand times in half a second.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from heart_utils.ratings.resampling import ENOUGH_CLUSTERS, Rng, draw_weights, interval_of, sums_by
from heart_utils.ratings.verdicts import AgreementError, Array, Codes, Votes, need, read_votes, unit_values
from heart_utils.tables import need_columns

__all__ = ["Coefficient", "cohen_kappa", "fleiss_kappa", "gwet_ac", "icc", "judge_reliability", "krippendorff_alpha"]

LEVELS = ("nominal", "ordinal", "interval")
KINDS = ("C,1", "A,1", "C,k", "A,k")
CHUNK_CELLS = 2_000_000
How = tuple[int, float, Rng]
"""Resamples, level of the interval, source of chance."""


@dataclass(frozen=True)
class Coefficient:
    """One number for how far raters agree, with its interval."""

    name: str  # such as ``"Gwet's AC1"``
    value: float
    ci_low: float  # the ends are ``nan`` where no interval can be had
    ci_high: float
    ci_level: float
    disagreement: float  # `value` is one minus this over what chance brings; ``nan`` for intraclass correlations
    n_units: int  # what entered
    n_raters: int
    n_answers: int
    n_clusters: int
    n_undefined: int  # resamples in which it has no value (one category only), left out of the interval
    provisional: bool  # fewer than 30 clusters
    left_out: pd.Series  # state -> answers that do not count


def cohen_kappa(
    table: pd.DataFrame,
    *,
    weights: str | None = None,
    cluster: str | None = "dialogue_id",
    n_resamples: int = 1000,
    ci_level: float = 0.95,
    rng: Rng = None,
) -> Coefficient:
    r"""Compute Cohen's kappa of two raters, plain or weighted.

    :math:`\kappa = 1 - \sum_{ck} (1 - w_{ck}) p_{ck} / \sum_{ck} (1 - w_{ck}) p_{c\cdot} p_{\cdot k}`
    [1]_: chance means that each rater keeps their own habits. Of verdicts the names a and b mean
    nothing, so the table is averaged with itself turned round; without ties kappa, pi and AC1 are then
    one number, :math:`2 p_o - 1`.

    Parameters
    ----------
    table : pandas.DataFrame
        Verdicts or scores on one dimension.
    weights : {"linear", "quadratic"}, optional
        Credit for near misses, by the distance of the categories' values. None gives no credit.
    cluster : str or None
        Column of what is resampled together; None takes each unit as its own.
    n_resamples, ci_level, rng
        As in :func:`~heart_utils.ratings.resampling.bootstrap_ci`.

    Returns
    -------
    Coefficient
        Units that only one of the two answered do not enter.

    Raises
    ------
    AgreementError
        If the table does not hold two raters who share a unit, or only one category occurs.

    References
    ----------
    .. [1] Cohen (1968), https://doi.org/10.1037/h0026256

    Examples
    --------
    >>> said = pd.DataFrame({"reply_id": list("rstu") * 2, "rater": ["x"] * 4 + ["y"] * 4, "score": [1, 2, 2, 3, 1, 2, 3, 3]})
    >>> round(cohen_kappa(said, cluster=None, n_resamples=0).value, 3)  # (3/4 - 5/16) / (1 - 5/16)
    0.636
    """
    votes, scale = _read(table, cluster)
    credit = _credit_table(weights, scale)
    if len(votes.raters) != 2:
        raise AgreementError(
            f"Cohen's kappa is of two raters; the table holds {len(votes.raters)} ({', '.join(map(str, votes.raters[:5]))}"
            f"{', ...' if len(votes.raters) > 5 else ''}). Keep the rows of two, or use fleiss_kappa."
        )
    place = np.full((2, len(votes.units)), -1)
    place[votes.rater, votes.unit] = votes.value
    both = (place >= 0).all(axis=0)
    _refuse_one_category(place[:, both], votes)
    size = len(scale)
    cells = cluster_of_unit(votes)[both], place[0, both] * size + place[1, both]
    sums = sums_by(cells, 1.0, len(votes.clusters), size**2)

    def parts(cells: Array) -> tuple[Array, Array]:
        counts = cells.reshape(*cells.shape[:-1], size, size)
        shares = _turned(counts, votes) / counts.sum(axis=(-1, -2), keepdims=True)
        expected = shares.sum(axis=-1)[..., :, None] * shares.sum(axis=-2)[..., None, :]
        return ((1.0 - credit) * shares).sum(axis=(-1, -2)), ((1.0 - credit) * expected).sum(axis=(-1, -2))

    name = "Cohen's kappa" if weights is None else f"weighted kappa ({weights})"
    entered = (int(both.sum()), 2, 2 * int(both.sum()))
    return _coefficient(name, sums, parts, entered, votes, (n_resamples, ci_level, rng))


def fleiss_kappa(
    table: pd.DataFrame,
    *,
    cluster: str | None = "dialogue_id",
    n_resamples: int = 1000,
    ci_level: float = 0.95,
    rng: Rng = None,
) -> Coefficient:
    r"""Compute Fleiss' kappa of any number of raters, who may differ from unit to unit.

    Chance means that all raters draw from one common habit: :math:`p_e = \sum_k \pi_k^2`
    [1]_, :math:`\pi` being the mean over units of the share of each category. With two raters who both answered
    every unit it is Scott's pi, which is never above Cohen's kappa; units with one answer move the habit, and
    where nearly all answers are the same a few of them move the coefficient by half. Of verdicts the names a
    and b mean nothing, so :math:`\pi` is the same for both.

    Parameters
    ----------
    table : pandas.DataFrame
        Verdicts or scores on one dimension.
    cluster, n_resamples, ci_level, rng
        As in :func:`cohen_kappa`.

    Returns
    -------
    Coefficient
        Units with one answer enter the habit, not the agreement.

    Raises
    ------
    AgreementError
        As in :func:`cohen_kappa`.

    References
    ----------
    .. [1] Gwet (2014), Handbook of Inter-Rater Reliability, 4th edition, for raters that differ in number.

    Examples
    --------
    >>> said = pd.DataFrame({"reply_id": list("rstu") * 2, "rater": ["x"] * 4 + ["y"] * 4, "score": [1, 2, 2, 3, 1, 2, 3, 3]})
    >>> round(fleiss_kappa(said, cluster=None, n_resamples=0).value, 3)  # (3/4 - 22/64) / (1 - 22/64)
    0.619
    """
    votes, _ = _read(table, cluster)
    return _from_habits("Fleiss' kappa", lambda habit: 1.0 - (habit**2).sum(axis=-1), votes, (n_resamples, ci_level, rng))


def gwet_ac(
    table: pd.DataFrame,
    *,
    cluster: str | None = "dialogue_id",
    n_resamples: int = 1000,
    ci_level: float = 0.95,
    rng: Rng = None,
) -> Coefficient:
    r"""Compute Gwet's AC1 of any number of raters.

    Chance means a blind guess, as likely as the unit is hard to call:
    :math:`p_e = \frac{1}{q - 1} \sum_k \pi_k (1 - \pi_k)` [1]_, with q categories that occur. It
    does not collapse where nearly all answers are the same, as kappa does.

    Parameters
    ----------
    table : pandas.DataFrame
        Verdicts or scores on one dimension.
    cluster, n_resamples, ci_level, rng
        As in :func:`cohen_kappa`.

    Returns
    -------
    Coefficient
        Units with one answer enter the shares :math:`\pi`, not the agreement.

    Raises
    ------
    AgreementError
        As in :func:`cohen_kappa`.

    References
    ----------
    .. [1] Gwet (2008), https://doi.org/10.1348/000711006X126600

    Examples
    --------
    >>> said = pd.DataFrame({"reply_id": list("rstu") * 2, "rater": ["x"] * 4 + ["y"] * 4, "score": [1, 2, 2, 3, 1, 2, 3, 3]})
    >>> round(gwet_ac(said, cluster=None, n_resamples=0).value, 3)  # (3/4 - 21/64) / (1 - 21/64)
    0.628
    """
    votes, scale = _read(table, cluster)

    def by_chance(habit: Array) -> Array:
        return np.asarray(1.0 - (habit * (1.0 - habit)).sum(axis=-1) / (len(scale) - 1.0))

    return _from_habits("Gwet's AC1", by_chance, votes, (n_resamples, ci_level, rng))


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

    :math:`\alpha = 1 - D_o / D_e` [1]_, where both are mean squared distances between answers: within
    units, and between any two answers whatever the unit. Each unit weighs as many answers as it has.

    Parameters
    ----------
    table : pandas.DataFrame
        Verdicts or scores on one dimension.
    level : {"nominal", "ordinal", "interval"}
        What distance means. Verdicts are ordered a, tie, b.
    cluster, n_resamples, ci_level, rng
        As in :func:`cohen_kappa`.

    Returns
    -------
    Coefficient
        Units with one answer do not enter.

    Raises
    ------
    AgreementError
        If fewer than two raters share a unit, only one category occurs, or the level is unknown.

    References
    ----------
    .. [1] Krippendorff (2011), Computing Krippendorff's Alpha-Reliability,
       https://repository.upenn.edu/asc_papers/43

    Examples
    --------
    >>> said = pd.DataFrame({"reply_id": list("rstu") * 2, "rater": ["x"] * 4 + ["y"] * 4, "score": [1, 2, 2, 3, 1, 2, 3, 3]})
    >>> round(krippendorff_alpha(said, cluster=None, n_resamples=0).value, 3)  # 1 - (2 / 8) / (42 / 56)
    0.667
    """
    if level not in LEVELS:
        raise AgreementError(f"level must be one of {', '.join(LEVELS)}; got {level!r}.")
    votes, scale = _read(table, cluster)
    counts = _count_answers(votes)
    several = counts.sum(axis=1) >= 2
    size, sums = len(scale), _coincidences(counts[several], cluster_of_unit(votes)[several], len(votes.clusters))

    def parts(cells: Array) -> tuple[Array, Array]:
        table = _turned(cells.reshape(*cells.shape[:-1], size, size), votes)
        margin = table.sum(axis=-1)
        total = margin.sum(axis=-1)
        distance = _squared_distance(level, scale, margin)
        between = margin[..., :, None] * margin[..., None, :]
        observed = (table * distance).sum(axis=(-1, -2)) / np.where(total > 0, total, np.nan)
        return observed, (between * distance).sum(axis=(-1, -2)) / np.where(total > 1, total * (total - 1.0), np.nan)

    entered = (int(several.sum()), len(votes.raters), int(counts[several].sum()))
    return _coefficient(f"Krippendorff's alpha ({level})", sums, parts, entered, votes, (n_resamples, ci_level, rng))


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
    raters : sequence of str, optional
        Which raters; by default all.
    cluster : str or None
        Column of what is resampled together; None takes each reply as its own.
    n_resamples, ci_level, rng
        As in :func:`~heart_utils.ratings.resampling.bootstrap_ci`.

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
    votes = read_votes(need(scores, ["score"], "This needs scores."), cluster=cluster)
    one_dimension(votes)
    chosen = list(votes.raters) if raters is None else list(raters)
    missing = [name for name in chosen if name not in votes.raters]
    if missing or len(set(chosen)) < 2:
        raise AgreementError(f"Name two raters or more of {', '.join(map(str, votes.raters))}; got {chosen}.")
    table = answer_sheet(votes)[:, votes.raters.get_indexer(pd.Index(chosen))]
    complete = ~np.isnan(table).any(axis=1)
    if not complete.any():
        raise AgreementError(f"The raters {', '.join(map(str, chosen))} share no reply that all of them scored.")
    table, where = table[complete], cluster_of_unit(votes)[complete]
    if len(table) < 2:
        raise AgreementError("An intraclass correlation needs two rows or more that all raters scored; there is 1.")
    sums = sums_by(where, _squares(table), len(votes.clusters))
    entered = len(table), len(chosen), table.size
    found = _coefficient(
        f"ICC({kind})", sums, lambda cells: _variances(cells, kind), entered, votes, (n_resamples, ci_level, rng)
    )
    if np.isnan(found.value):
        raise AgreementError("All rows have the same score: without variance there is nothing to have in common.")
    return replace(found, disagreement=float("nan"))


def judge_reliability(
    scores: pd.DataFrame,
    *,
    person: str,
    of: str | None = "responder",
    kinds: Sequence[str] = ("C,1",),
    own: Mapping[str, str] | None = None,
    leave_out: Sequence[str] = (),
) -> pd.DataFrame:
    """Correlate each judge's scores with a person's, on each dimension, with all authors and without some of them.

    Each value is that of :func:`icc` on the scores of the two, without an interval.

    Parameters
    ----------
    scores : pandas.DataFrame
        The scores table, with a column ``dimension``.
    person : str
        The rater whom all others are held against.
    of : str or None
        What is a row: ``"responder"`` takes the means of each author; None takes each reply.
    kinds : sequence of str
        As `kind` of :func:`icc`.
    own : mapping of str to str, optional
        Judge -> the responder that stays out for this judge, such as a member of its family.
    leave_out : sequence of str
        Responders; each is also left out alone.

    Returns
    -------
    pandas.DataFrame
        One row per dimension, judge, kind and responder left out (``""`` is none): ``dimension``, ``judge``,
        ``kind``, ``left_out``, ``value``, and ``n_rows`` that enter. ``nan`` where there is no variance.

    Raises
    ------
    AgreementError
        If the person scored nothing, or shares fewer than two rows with a judge.

    Examples
    --------
    >>> scores = pd.DataFrame({"reply_id": list("rst") * 2, "responder": list("uvw") * 2, "dimension": "warmth",
    ...     "rater": ["ann"] * 3 + ["judge"] * 3, "score": [1, 2, 3, 2, 3, 3]})
    >>> judge_reliability(scores, person="ann", leave_out=["w"])[["judge", "left_out", "value"]].round(2).values.tolist()
    [['judge', '', 0.75], ['judge', 'w', 1.0]]
    """
    if unknown := [kind for kind in kinds if kind not in KINDS]:
        raise AgreementError(f"kinds must be of {', '.join(KINDS)}; got {', '.join(map(repr, unknown))}.")
    need_columns(need(scores, ["score"], "This needs scores."), ["dimension", "responder"], AgreementError)
    found = []
    for dimension, rows in scores.groupby("dimension"):
        votes = read_votes(rows, cluster=None)
        if person not in votes.raters:
            raise AgreementError(f"{person} has no score that counts. Raters: {', '.join(map(str, votes.raters))}.")
        table, author = answer_sheet(votes), unit_values(votes, rows, "responder").to_numpy(dtype=object)
        for judge in (name for name in votes.raters if name != person):
            two = table[:, votes.raters.get_indexer(pd.Index([person, judge]))]
            shared = ~np.isnan(two).any(axis=1) & (author != (own or {}).get(judge))
            for name in ("", *leave_out):
                kept = shared & (author != name)
                means = two[kept] if of is None else pd.DataFrame(two[kept]).groupby(author[kept]).mean().to_numpy()
                if len(means) < 2:
                    raise AgreementError(f"{person} and {judge} share {len(means)} rows; a correlation needs two or more.")
                for kind in kinds:
                    rest, whole = _variances(_squares(means - means.mean()).sum(axis=0), kind)
                    value = float(1.0 - rest / whole) if whole > 1e-12 else float("nan")
                    found.append((dimension, judge, kind, name, value, len(means)))
    return pd.DataFrame(found, columns=["dimension", "judge", "kind", "left_out", "value", "n_rows"])


def one_dimension(votes: Votes) -> None:
    """Refuse answers on several dimensions."""
    if "dimension" in votes.units:
        found = votes.units["dimension"].unique()
        if len(found) > 1:
            names = ", ".join(map(str, found[:6]))
            raise AgreementError(f"The table holds several dimensions ({names}); a coefficient is of one. Choose one.")


def cluster_of_unit(votes: Votes) -> Codes:
    """Give the cluster of each unit."""
    found = np.zeros(len(votes.units), np.intp)
    found[votes.unit] = votes.cluster
    return found


def answer_sheet(votes: Votes) -> Array:
    """Lay answers out as units by raters: scores, or 1, 0 and -1 for a, a tie and b; ``nan`` where there is none."""
    values = votes.categories.astype(float) if votes.kind == "score" else np.array([1.0, 0.0, -1.0])
    sheet = np.full((len(votes.units), len(votes.raters)), np.nan)
    sheet[votes.unit, votes.rater] = values[votes.value]
    return sheet


def _read(table: pd.DataFrame, cluster: str | None) -> tuple[Votes, Array]:
    """Read the answers on one dimension, and give the categories' values."""
    votes = read_votes(table, cluster=cluster)
    one_dimension(votes)
    if len(votes.raters) < 2:
        raise AgreementError(f"Agreement needs two raters or more; there is only {votes.raters[0]}.")
    if np.bincount(votes.unit).max() < 2:
        raise AgreementError(f"The {len(votes.raters)} raters share no unit, so they cannot be compared.")
    _refuse_one_category(votes.value, votes)
    if votes.kind == "score":
        return votes, votes.categories.astype(float)
    if 1 in votes.value:
        return votes, np.array([0.0, 1.0, 2.0])
    # Without ties there are two categories: AC1 would otherwise guess among three.
    return replace(votes, value=votes.value // 2, categories=votes.categories[[0, 2]]), np.array([0.0, 2.0])


def _credit_table(weights: str | None, scale: Array) -> Array:
    """Give the credit for each two categories, from 0 to 1."""
    powers = {None: 0.0, "linear": 1.0, "quadratic": 2.0}
    if weights not in powers:
        raise AgreementError(f"weights must be 'linear' or 'quadratic'; got {weights!r}.")
    apart = np.abs(scale[:, None] - scale[None, :]) / (scale[-1] - scale[0])
    return np.asarray(1.0 - np.where(apart > 0, apart ** powers[weights], 0.0))


def _refuse_one_category(value: Codes, votes: Votes) -> None:
    """Refuse answers that are all the same."""
    if value.min() == value.max():
        name = votes.categories[value.flat[0]]
        raise AgreementError(
            f"All answers are {name if votes.kind == 'verdict' else f'{name:g}'}: agreement is 1, and with one category "
            f"only there is no chance to correct for. Report the agreement and say so."
        )


def _count_answers(votes: Votes) -> Array:
    """Count answers by unit and category."""
    size = len(votes.categories)
    flat = np.bincount(votes.unit * size + votes.value, minlength=len(votes.units) * size)
    return flat.reshape(len(votes.units), size).astype(float)


def _turned(tables: Array, votes: Votes) -> Array:
    """Symmetrise tables of verdicts: average each with its transpose in a and b, since these are arbitrary labels."""
    if votes.kind == "score":
        return tables
    return np.asarray((tables + tables[..., ::-1, ::-1]) / 2.0)


def _from_habits(name: str, by_chance: Callable[[Array], Array], votes: Votes, how: How) -> Coefficient:
    """Estimate a coefficient whose chance follows from the mean share of each category."""
    counts = _count_answers(votes)
    answers = counts.sum(axis=1)
    several = answers >= 2
    agreeing = (counts * (counts - 1.0)).sum(axis=1)
    equal = np.divide(agreeing, answers * (answers - 1.0), out=np.zeros(len(answers)), where=several)
    shares = counts / answers[:, None]
    if votes.kind == "verdict":
        shares = (shares + shares[:, ::-1]) / 2.0
    columns = np.column_stack([equal, several, np.ones(len(answers)), shares])
    sums = sums_by(cluster_of_unit(votes), columns, len(votes.clusters))

    def parts(cells: Array) -> tuple[Array, Array]:
        n_several = np.where(cells[..., 1] > 0, cells[..., 1], np.nan)
        return 1.0 - cells[..., 0] / n_several, by_chance(cells[..., 3:] / cells[..., 2:3])

    return _coefficient(name, sums, parts, (int(several.sum()), len(votes.raters), len(votes.value)), votes, how)


def _coincidences(counts: Array, cluster: Codes, n_clusters: int) -> Array:
    """Sum the coincidence tables of units by cluster: how often each two answers are given to one unit."""
    size = counts.shape[1]
    sums = np.zeros((n_clusters, size**2))
    chunk = max(1, CHUNK_CELLS // size**2)
    for first in range(0, len(counts), chunk):
        some = counts[first : first + chunk]
        tables = some[:, :, None] * some[:, None, :]
        tables[:, np.arange(size), np.arange(size)] -= some
        tables /= (some.sum(axis=1) - 1.0)[:, None, None]
        np.add.at(sums, cluster[first : first + chunk], tables.reshape(-1, size**2))
    return sums


def _squared_distance(level: str, scale: Array, margin: Array) -> Array:
    if level == "nominal":
        return 1.0 - np.eye(len(scale))
    if level == "ordinal":
        # The number of answers from the middle of one category to the middle of the other.
        rank = np.cumsum(margin, axis=-1) - margin / 2.0
        return np.asarray((rank[..., :, None] - rank[..., None, :]) ** 2)
    return np.asarray((scale[:, None] - scale[None, :]) ** 2)


def _squares(table: Array) -> Array:
    """Give for each row of a complete table what the sums of squares add up: one, squares, the total squared, and itself."""
    return np.column_stack([np.ones(len(table)), (table**2).sum(axis=1), table.sum(axis=1) ** 2, table])


def _variances(sums: Array, kind: str) -> tuple[Array, Array]:
    """Give the variance that an intraclass correlation leaves over, and the whole, from sums over rows."""
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
    name: str, sums: Array, parts: Callable[[Array], tuple[Array, Array]], entered: tuple[int, int, int], votes: Votes, how: How
) -> Coefficient:
    """Turn sums over clusters into one less a ratio of two parts, and resample the clusters that hold something of it."""
    n_resamples, ci_level, rng = how
    sums = sums[sums.any(axis=1)]
    observed, chance = (float(part) for part in parts(sums.sum(axis=0)))
    n_clusters = len(sums)
    value = 1.0 - observed / chance if chance > 1e-12 else float("nan")
    seen, expected = parts(draw_weights(n_clusters, n_resamples, rng) @ sums)
    replicates = 1.0 - seen / np.where(expected > 1e-12, expected, np.nan)
    low, high = interval_of(value, replicates, n_clusters, ci_level, most=1.0)
    n_undefined = int(np.isnan(replicates).sum())
    return Coefficient(
        name, value, low, high, ci_level, observed, *entered, n_clusters, n_undefined,
        n_clusters < ENOUGH_CLUSTERS, votes.left_out,
    )  # fmt: skip
