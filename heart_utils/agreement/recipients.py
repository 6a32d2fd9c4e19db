"""Recipients against observers: does what raters or coders see follow what the seeker said of it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from heart_utils.ratings.resampling import ENOUGH_CLUSTERS, as_rng, draw_weights, interval_of
from heart_utils.ratings.verdicts import AgreementError, Array, Codes
from heart_utils.tables import need_columns

__all__ = ["OUTCOMES", "track_recipients"]

OUTCOMES = ("seeker_empathy", "seeker_relevance", "distress_drop")
"""The seeker's scores of the supporter, and distress before minus distress after."""

HIGHEST = 5.0
CHUNK = 200


def track_recipients(
    values: pd.DataFrame,
    histories: pd.DataFrame,
    *,
    by: Sequence[str] = ("code",),
    outcomes: Sequence[str] = OUTCOMES,
    n_resamples: int = 1000,
    ci_level: float = 0.95,
    rng: np.random.Generator | None = None,
) -> pd.DataFrame:
    r"""Correlate what observers saw in a dialogue with what its seeker said.

    Spearman's correlation, over dialogues, of a value (the share of raters who preferred the supporter's
    reply, a judge's score, how often a strategy was used) with each of the seeker's outcomes. It is no
    effect: supporters choose strategies by how the talk goes. Two things keep it small whatever the
    truth: most seekers give the highest score (``top_share``), and not all gave one (``n_missing``).

    Parameters
    ----------
    values : pandas.DataFrame
        ``history_id``, ``value`` and the columns of `by`; one row a history and combination of these.
    histories : pandas.DataFrame
        ``history_id``, the column named by `cluster`, and ``seeker_empathy``, ``seeker_relevance``,
        ``distress_before`` and ``distress_after`` as far as `outcomes` need them.
    by : sequence of str
        Columns of `values`.
    outcomes : sequence of str
        Of :data:`OUTCOMES`.
    n_resamples, ci_level, rng
        As in :func:`~heart_utils.ratings.resampling.bootstrap_ci`.

    Returns
    -------
    pandas.DataFrame
        One row a combination and outcome: the columns of `by`, ``outcome``, ``correlation``, ``ci_low``, ``ci_high``,
        ``ci_level``, ``n`` (with an outcome), ``n_missing`` (without), ``mean_with`` and ``mean_without`` (of the value: they
        differ if those who answered were not like the rest), ``top_share`` (outcomes at 5; of a drop, distress that could not
        fall further, at 1 before), ``n_clusters``, ``provisional``. Where a value or an outcome does not vary, ``nan``.

    Raises
    ------
    AgreementError
        If a column is missing, a history appears twice in a combination, or no value has an outcome.

    Examples
    --------
    >>> told = pd.DataFrame({"history_id": list("ghij"), "dialogue_id": list("ghij"), "seeker_empathy": [2, 3, 5, None]})
    >>> seen = pd.DataFrame({"history_id": list("ghij"), "code": "Question", "value": [0.1, 0.2, 0.4, 0.3]})
    >>> found = track_recipients(seen, told, outcomes=["seeker_empathy"], n_resamples=0)
    >>> found[["correlation", "n", "n_missing"]].values.tolist()
    [[1.0, 3.0, 1.0]]
    """
    told = _outcomes(histories, outcomes)
    need_columns(values, ["history_id", "value", *by], AgreementError)
    if values.duplicated(["history_id", *by]).any():
        row = values.loc[values.duplicated(["history_id", *by]), ["history_id", *by]].iloc[0]
        raise AgreementError(f"{dict(row)} has more than one value; average them first, or add what tells them apart to `by`.")
    joined = values.dropna(subset="value").merge(told, on="history_id")
    if joined.empty or joined[list(outcomes)].isna().to_numpy().all():
        raise AgreementError("No history with a value has an outcome by its seeker.")
    rng = as_rng(rng)
    rows = []
    for outcome in outcomes:
        # One draw serves all groups: the dialogues are the same.
        clusters = pd.Index(joined.loc[joined[outcome].notna(), "dialogue_id"].unique())
        drawn = draw_weights(len(clusters), n_resamples, rng)
        for group, part in joined.groupby(list(by), sort=True) if by else [((), joined)]:
            found = _correlate(part, outcome, clusters.get_indexer(pd.Index(part["dialogue_id"])), drawn, ci_level)
            rows.append({**dict(zip(by, group, strict=True)), "outcome": outcome, **found})
    return pd.DataFrame(rows)


def _outcomes(histories: pd.DataFrame, outcomes: Sequence[str]) -> pd.DataFrame:
    unknown = [name for name in outcomes if name not in OUTCOMES]
    if unknown:
        raise AgreementError(f"outcomes must be of {', '.join(OUTCOMES)}; got {', '.join(unknown)}.")
    needed = {name: ["distress_before", "distress_after"] if name == "distress_drop" else [name] for name in outcomes}
    missing = [column for columns in needed.values() for column in columns if column not in histories]
    missing += [column for column in ("history_id", "dialogue_id") if column not in histories]
    if missing:
        raise AgreementError(f"histories have no column {', '.join(missing)}; only ESConv's seekers answered.")
    told = histories[["history_id", "dialogue_id"]].copy()
    for name in outcomes:
        if name == "distress_drop":
            told[name] = histories["distress_before"] - histories["distress_after"]
            told["distress_drop_top"] = (histories["distress_before"] <= 1).astype(float)
        else:
            told[name] = histories[name]
            told[f"{name}_top"] = (histories[name] >= HIGHEST).astype(float)
    return told


def _correlate(part: pd.DataFrame, outcome: str, where: Codes, drawn: Array, ci_level: float) -> dict[str, object]:
    there = part[outcome].notna().to_numpy()
    rows, where = part[there], where[there]
    n_clusters = len(np.unique(where))
    x, y = (np.unique(rows[column].to_numpy(float), return_inverse=True)[1] for column in ("value", outcome))
    estimate = _spearman(x, y, np.ones((1, len(rows)))) if len(rows) else np.array([np.nan])
    low = high = float("nan")
    if len(drawn) and n_clusters > 1 and not np.isnan(estimate[0]):
        found = np.concatenate([_spearman(x, y, drawn[i : i + CHUNK][:, where]) for i in range(0, len(drawn), CHUNK)])
        low, high = interval_of(float(estimate[0]), found, n_clusters, ci_level, least=-1.0, most=1.0)
    return {
        "correlation": float(estimate[0]),
        "ci_low": low,
        "ci_high": high,
        "ci_level": ci_level,
        "n": len(rows),
        "n_missing": int((~there).sum()),
        "mean_with": float(rows["value"].mean()),
        "mean_without": float(part.loc[~there, "value"].mean()),
        "top_share": float(rows[f"{outcome}_top"].mean()),
        "n_clusters": n_clusters,
        "provisional": n_clusters < ENOUGH_CLUSTERS,
    }


def _spearman(x: Codes, y: Codes, weights: Array) -> Array:
    """Correlate ranks, ties at their middle, under each row of weights."""
    rank_x, rank_y = _ranks(x, weights), _ranks(y, weights)
    total = weights.sum(axis=1, keepdims=True)
    rank_x = rank_x - (weights * rank_x).sum(axis=1, keepdims=True) / total
    rank_y = rank_y - (weights * rank_y).sum(axis=1, keepdims=True) / total
    together = (weights * rank_x * rank_y).sum(axis=1)
    room = np.sqrt((weights * rank_x**2).sum(axis=1) * (weights * rank_y**2).sum(axis=1))
    return np.asarray(np.divide(together, room, out=np.full(len(room), np.nan), where=room > 1e-9))


def _ranks(codes: Codes, weights: Array) -> Array:
    """Give the middle rank of each entry, where an entry counts as often as its weight."""
    order = np.argsort(codes, kind="stable")
    starts = np.searchsorted(codes[order], np.arange(int(codes.max()) + 1))
    counts = np.add.reduceat(weights[:, order], starts, axis=1)
    return np.asarray((np.cumsum(counts, axis=1) - counts / 2.0)[:, codes])
