"""Whether judges favour their own family, as Spiliopoulou et al.

(2025) ask (https://arxiv.org/abs/2508.06709).
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import special

from heart_utils.judges.position import BiasError, tested
from heart_utils.ratings.resampling import (
    ENOUGH_CLUSTERS,
    Rng,
    check_clusters,
    draw_weights,
    holm,
    ratio,
    standard_error,
)
from heart_utils.ratings.verdicts import Array

__all__ = ["self_preference"]

OWN = "own_family"
LOWEST, HIGHEST = 1.0, 5.0


def family_ties(scores: pd.DataFrame, responders: pd.DataFrame) -> pd.DataFrame:
    """Sort responders by their relation to each judge: own, neutral, or of another judge.

    A judge's own responders are found by a flag; neutral models belong to no judge's family.
    """
    judged = scores[scores["rater_kind"] == "model"]
    marked = judged[judged["flags"].map(lambda flags: OWN in flags).astype(bool)]
    own = {str(rater): set(rows) for rater, rows in marked.groupby("rater")["responder"]}
    models = set(responders.loc[responders["responder_kind"] == "model", "responder"]) & set(
        judged["responder"]
    )
    neutral = sorted(models - set().union(*own.values()))
    if not own:
        n_judges = judged["rater"].nunique()
        raise BiasError(
            f"No score of {n_judges} model judges has the flag {OWN}: name families of responders"
            " and of judges."
        )
    if not neutral:
        raise BiasError(
            "Every model among the responders shares a family with a judge; one that does not is"
            " needed."
        )
    judges = sorted(judged["rater"].unique())
    rows = [
        (
            rater,
            sorted(theirs),
            neutral,
            [k for k in judges if not own.get(k, set()) & theirs and k != rater],
        )
        for rater, theirs in sorted(own.items())
    ]
    return pd.DataFrame(rows, columns=["rater", "own", "neutral", "others"])


def self_preference(
    scores: pd.DataFrame,
    responders: pd.DataFrame,
    *,
    rng: Rng = None,
    n_resamples: int = 1000,
    ci_level: float = 0.95,
) -> pd.DataFrame:
    """Estimate self-preference of each judge and dimension, and its divergence from people.

    The judge's mean of its own family's replies less that of neutral models', minus the same
    difference of judges of other families, or of people. A reply counts where all gave it a valid
    score. On the scale ``logit`` each mean is taken to its place between the lowest and the highest
    score.

    Parameters
    ----------
    scores, responders
        The tables of these names.
    rng, n_resamples, ci_level
        As in :func:`~heart_utils.ratings.resampling.bootstrap_ci`.

    Returns
    -------
    pandas.DataFrame
        One row a judge, dimension, ``against`` (``"judges"`` or ``"people"``) and ``scale``:
        ``estimate``, ``se``, ``ci_low``, ``ci_high``, ``p``, ``p_holm`` (over judges and
        dimensions), ``own_judge`` and ``own_others`` (the two differences), ``ceiling`` (share of
        these scores at the top), ``n_replies``, ``n_left_out``, ``n_clusters``, ``provisional``,
        ``why``.

    Raises
    ------
    BiasError
        If no judge has own replies, or no model's family is neutral.

    Examples
    --------
    >>> from dataclasses import replace
    >>> from heart_utils.simulate.study import DEFAULT_PANELS, simulate_study
    >>> panels = [replace(panel, scores=True) for panel in DEFAULT_PANELS]
    >>> rng = np.random.default_rng(1)
    >>> study = simulate_study(rng=rng, strengths=4, n_dialogues=40, pairs="all", panels=panels)
    >>> own = (study.scores["rater_kind"] == "model") & (study.scores["responder"] == "model_02")
    >>> scores = study.scores.assign(
    ...     rater=study.scores["rater_kind"], flags=own.map({True: ["own_family"], False: []})
    ... )
    >>> self_preference(scores, study.responders, rng=np.random.default_rng(1), n_resamples=50)[
    ...     "against"
    ... ].tolist()
    ['people', 'people']
    """
    ties = family_ties(scores, responders)
    people = sorted(scores.loc[scores["rater_kind"] == "human", "rater"].unique())
    clusters = np.unique(scores["dialogue_id"].to_numpy(str))
    check_clusters(len(clusters), "dialogue_id")
    weights = np.vstack([np.ones(len(clusters)), draw_weights(len(clusters), n_resamples, rng)])
    rows = []
    for dimension, of_dimension in scores.groupby("dimension", sort=True):
        sheet = of_dimension.assign(
            score=of_dimension["score"].where(of_dimension["state"] == "valid")
        )
        by_reply = sheet.set_index(["reply_id", "dialogue_id", "responder", "rater"])["score"]
        wide = by_reply.unstack("rater").reset_index()  # noqa: PD010
        codes = np.searchsorted(clusters, wide["dialogue_id"].to_numpy(str))
        for judge, theirs, neutral, rivals in ties.itertuples(index=False):
            own = wide["responder"].isin(theirs).to_numpy()
            compared = own | wide["responder"].isin(neutral).to_numpy()
            for against, others in (("judges", rivals), ("people", people)):
                if others:
                    values = wide[[judge, *others]].to_numpy(float, na_value=np.nan)
                    complete = compared & ~np.isnan(values).any(axis=1)
                    ceiling = (
                        float((values[complete, 0] == HIGHEST).mean()) if complete.any() else np.nan
                    )
                    about = {
                        "rater": judge,
                        "dimension": dimension,
                        "against": against,
                        "ceiling": ceiling,
                    }
                    about |= {
                        "n_replies": int(complete.sum()),
                        "n_left_out": int((compared & ~complete).sum()),
                    }
                    contrasts = _contrast(
                        values[complete], own[complete], codes[complete], weights, ci_level
                    )
                    rows += [about | row for row in contrasts]
    table = pd.DataFrame(rows)
    table["provisional"] = table["n_clusters"] < ENOUGH_CLUSTERS
    return table.assign(p_holm=holm(table["p"], [table["against"], table["scale"]]))


def _contrast(
    values: Array, own: NDArray[np.bool_], codes: NDArray[np.intp], weights: Array, ci_level: float
) -> Iterator[dict[str, object]]:
    """Compute the difference of the first rater from the others, on both scales.

    The first value is that of the data, the others are of the resamples.
    """
    n_clusters, means = len(np.unique(codes)), []
    for side in (own, ~own):
        columns = [
            np.bincount(codes[side], column, weights.shape[1])
            for column in (*values[side].T, np.ones(side.sum()))
        ]
        sums = weights @ np.column_stack(columns)
        means.append(ratio(sums[:, :-1], sums[:, -1:]))
    for scale in ("score", "logit"):
        with np.errstate(invalid="ignore"):
            placed = (
                means
                if scale == "score"
                else [special.logit((mean - LOWEST) / (HIGHEST - LOWEST)) for mean in means]
            )
            judge, others = (
                (placed[0] - placed[1])[:, 0],
                (placed[0] - placed[1])[:, 1:].mean(axis=1),
            )
            gap = np.where(np.isfinite(judge - others), judge - others, np.nan)
        se = float(standard_error(gap[1:, None], n_clusters)[0])
        why = "" if se > 0 else "the scores do not vary"
        why = (
            "a mean lies at the end of the scale, or a side has no reply"
            if np.isnan(gap[0])
            else why
        )
        ends = (
            dict.fromkeys(("ci_low", "ci_high", "p"), np.nan)
            if why
            else tested(gap, n_clusters, ci_level)
        )
        row = {
            "scale": scale,
            "estimate": gap[0],
            "own_judge": judge[0],
            "own_others": others[0],
            "why": why,
        }
        yield row | ends | {"se": np.nan if np.isnan(gap[0]) else se, "n_clusters": n_clusters}
