r"""Whether judges favour replies of their own family, on the same replies.

Judge :math:`j` gives the reply of responder :math:`r` in conversation :math:`c` the score

.. math:: y_{crj} = \alpha_{cr} + \beta_j + \gamma_{rj} + \varepsilon_{crj}

where :math:`\alpha_{cr}` is what the reply is worth to anyone. With :math:`O_j` the responders of the
judge's family and :math:`N` those of no judge's family, self-preference is

.. math:: b_j = [\bar y_j(O_j) - \bar y_j(N)] - \operatorname{mean}_{k} [\bar y_k(O_j) - \bar y_k(N)]

over judges :math:`k` of other families, all means over the same replies, so that :math:`\alpha` falls
out [1]_. With people in place of the other judges the same difference is called *divergence from people*:
it holds whatever model judges have in common against people, and is not self-preference.

.. rubric:: References

.. [1] Nearest work: Spiliopoulou et al. (2025), https://arxiv.org/abs/2508.06709
"""

from __future__ import annotations

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import special

from heart_utils.ratings.resampling import (
    ENOUGH_CLUSTERS,
    Rng,
    check_clusters,
    draw_weights,
    holm,
    interval_of,
    p_value,
    standard_error,
)
from heart_utils.ratings.verdicts import Array

__all__ = ["SelfPreferenceError", "family_ties", "self_preference"]


OWN = "own_family"
LOWEST, HIGHEST = 1.0, 5.0
SCALES = ("score", "logit")


class SelfPreferenceError(ValueError):
    """These scores cannot tell whether judges favour their own."""


def family_ties(scores: pd.DataFrame, responders: pd.DataFrame) -> pd.DataFrame:
    """Tell which responders are each judge's own, and which are nobody's.

    Parameters
    ----------
    scores : pandas.DataFrame
        The table of scores; the flag ``own_family`` marks a judge's own.
    responders : pandas.DataFrame
        The table of responders; only models may be neutral.

    Returns
    -------
    pandas.DataFrame
        One row a model judge: ``rater``, ``own`` and ``neutral`` (lists of responders), ``others``
        (judges that share no responder's family with it).

    Raises
    ------
    SelfPreferenceError
        If no judge has own replies, or no model's family is neutral.

    Examples
    --------
    >>> rows = [("j", "mine", ["own_family"]), ("j", "free", []), ("k", "mine", []), ("k", "free", [])]
    >>> scores = pd.DataFrame(rows, columns=["rater", "responder", "flags"]).assign(rater_kind="model")
    >>> who = pd.DataFrame({"responder": ["mine", "free"], "responder_kind": "model"})
    >>> family_ties(scores, who).values.tolist()
    [['j', ['mine'], ['free'], ['k']]]
    """
    judged = scores[scores["rater_kind"] == "model"]
    marked = judged[judged["flags"].map(lambda flags: OWN in flags).astype(bool)]
    own = {str(rater): set(rows) for rater, rows in marked.groupby("rater")["responder"]}
    models = set(responders.loc[responders["responder_kind"] == "model", "responder"]) & set(judged["responder"])
    neutral = sorted(models - set().union(*own.values()))
    if not own:
        raise SelfPreferenceError(
            f"No score of {judged['rater'].nunique()} model judges has the flag {OWN}, so nobody judged their own family. "
            f"Name families in the tables of responders and judges."
        )
    if not neutral:
        raise SelfPreferenceError("Every model among the responders shares a family with a judge; one that does not is needed.")
    judges = sorted(judged["rater"].unique())
    rows = [(rater, sorted(theirs), neutral, [k for k in judges if not own.get(k, set()) & theirs and k != rater])
            for rater, theirs in sorted(own.items())]  # fmt: skip
    return pd.DataFrame(rows, columns=["rater", "own", "neutral", "others"])


def self_preference(
    scores: pd.DataFrame, responders: pd.DataFrame, *, rng: Rng = None, n_resamples: int = 1000, ci_level: float = 0.95
) -> pd.DataFrame:
    """Estimate self-preference of each judge and dimension, and its divergence from people beside it.

    A reply counts where the judge and all it is compared with gave it a valid score. On the scale ``score`` means are
    differences of points; on ``logit`` each mean is taken to its place between the lowest and the highest score, 1 and 5,
    first, so that judges that are squeezed against the ceiling can be compared with those that are not.

    Parameters
    ----------
    scores, responders : pandas.DataFrame
        The tables of these names.
    rng, n_resamples, ci_level
        As in :func:`~heart_utils.ratings.resampling.bootstrap_ci`.

    Returns
    -------
    pandas.DataFrame
        One row a judge, dimension, ``against`` (``"judges"`` or ``"people"``) and ``scale``: ``estimate``, ``se``, ``ci_low``,
        ``ci_high``, ``p`` (two-sided, as its interval) and ``p_holm`` (over judges and dimensions), ``own_judge``,
        ``own_others`` (the two differences that are compared), ``ceiling`` (share of the judge's own and neutral scores at the
        top), ``n_replies``, ``n_left_out``, ``n_clusters``, ``provisional``, ``why`` (empty, or why there is no estimate).

    Raises
    ------
    SelfPreferenceError
        As :func:`family_ties`.

    Examples
    --------
    >>> rows = [(f"d{i}", rater, responder, 4.0 + i % 2 if (rater, responder) == ("j", "mine") else 3.0 + i % 2)
    ...     for i in range(40) for rater in "jk" for responder in ("mine", "free")]
    >>> scores = pd.DataFrame(rows, columns=["dialogue_id", "rater", "responder", "score"])
    >>> scores = scores.assign(history_id=scores["dialogue_id"], reply_id=scores["dialogue_id"] + scores["responder"],
    ...     rater_kind="model", dimension="empathy", state="valid")
    >>> scores["flags"] = [["own_family"] if (row.rater, row.responder) == ("j", "mine") else [] for row in scores.itertuples()]
    >>> who = pd.DataFrame({"responder": ["mine", "free"], "responder_kind": "model"})
    >>> found = self_preference(scores, who, rng=np.random.default_rng(1), n_resamples=50)
    >>> found.loc[(found["against"] == "judges") & (found["scale"] == "score"), "estimate"].tolist()
    [1.0]
    """
    ties = family_ties(scores, responders)
    people = sorted(scores.loc[scores["rater_kind"] == "human", "rater"].unique())
    clusters = np.unique(scores["dialogue_id"].to_numpy(str))
    check_clusters(len(clusters), "dialogue_id")
    weights = np.vstack([np.ones(len(clusters)), draw_weights(len(clusters), n_resamples, rng)])
    rows = []
    for dimension, of_dimension in scores.groupby("dimension", sort=True):
        sheet = of_dimension.assign(score=of_dimension["score"].where(of_dimension["state"] == "valid"))
        wide = sheet.set_index(["reply_id", "dialogue_id", "responder", "rater"])["score"].unstack("rater").reset_index()  # noqa: PD010
        codes = np.searchsorted(clusters, wide["dialogue_id"].to_numpy(str))
        sides, sums = [], []
        for judge, theirs, neutral, rivals in zip(*(ties[name] for name in ("rater", "own", "neutral", "others")), strict=True):
            own = wide["responder"].isin(list(theirs)).to_numpy()
            asked = own | wide["responder"].isin(list(neutral)).to_numpy()
            for against, others in (("judges", list(rivals)), ("people", people)):
                if others:
                    raters = [judge, *others]
                    values = wide[raters].to_numpy(float, na_value=np.nan)
                    there = asked & ~np.isnan(values).any(axis=1)
                    about = {"rater": judge, "dimension": dimension, "against": against}
                    n_clusters = len(np.unique(codes[there]))
                    ceiling = float((values[there, 0] == HIGHEST).mean()) if there.any() else float("nan")
                    counts: dict[str, object] = {"ceiling": ceiling, "n_replies": int(there.sum())}
                    counts |= {"n_left_out": int((asked & ~there).sum()), "n_clusters": n_clusters}
                    sides.append((about, counts, n_clusters, len(raters)))
                    sums.append(_sums(values, there & own, codes, len(clusters)))
                    sums.append(_sums(values, there & ~own, codes, len(clusters)))
        resampled = weights @ np.concatenate(sums, axis=1)  # one product for all judges: the weights are the large thing
        start = 0
        for about, counts, n_clusters, size in sides:
            found = _contrast(resampled[:, start : start + 2 * size + 2])
            start += 2 * size + 2
            rows += [about | _summary(scale, *found[scale], n_clusters, ci_level) | counts for scale in SCALES]
    table = pd.DataFrame(rows)
    table["provisional"] = table["n_clusters"] < ENOUGH_CLUSTERS
    return table.assign(p_holm=holm(table["p"], [table["against"], table["scale"]]))


def _sums(values: Array, there: NDArray[np.bool_], codes: NDArray[np.intp], n_clusters: int) -> Array:
    """Sum scores by cluster, one column a rater, and count the replies in a last column."""
    columns = [np.bincount(codes[there], column, n_clusters) for column in values[there].T]
    return np.column_stack([*columns, np.bincount(codes[there], minlength=n_clusters)])


def _contrast(sums: Array) -> dict[str, tuple[Array, Array]]:
    """Give the judge's own difference and that of the others, first in the data, then in each resample."""
    means = []
    for side in np.split(sums, 2, axis=1):
        with np.errstate(invalid="ignore", divide="ignore"):
            means.append(side[:, :-1] / side[:, -1:])
    found = {}
    for scale in SCALES:
        placed = means if scale == "score" else [special.logit((mean - LOWEST) / (HIGHEST - LOWEST)) for mean in means]
        with np.errstate(invalid="ignore"):
            gap = placed[0] - placed[1]
        found[scale] = gap[:, 0], gap[:, 1:].mean(axis=1)
    return found


def _summary(scale: str, judge: Array, others: Array, n_clusters: int, ci_level: float) -> dict[str, object]:
    with np.errstate(invalid="ignore"):
        gap = judge - others
    row: dict[str, object] = {"scale": scale, "estimate": gap[0], "own_judge": judge[0], "own_others": others[0]}
    replicates = gap[1:][np.isfinite(gap[1:])]
    se = float(standard_error(replicates[:, None], n_clusters)[0])
    if not np.isfinite(gap[0]):
        return row | {"estimate": np.nan, "se": np.nan, "ci_low": np.nan, "ci_high": np.nan, "p": np.nan,
                      "why": "a mean lies at the end of the scale, or a side has no reply"}  # fmt: skip
    if not se > 0:
        return row | {"se": se, "ci_low": np.nan, "ci_high": np.nan, "p": np.nan, "why": "the scores do not vary"}
    low, high = interval_of(float(gap[0]), replicates, n_clusters, ci_level)
    p = p_value(float(gap[0]), replicates, n_clusters)
    return row | {"se": se, "ci_low": low, "ci_high": high, "p": p, "why": ""}
