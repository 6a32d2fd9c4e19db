"""Laying fitted strengths out as the ratings table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from heart_utils.analysis.resampling import ENOUGH_CLUSTERS
from heart_utils.analysis.wins import Entries, RatingsError
from heart_utils.tables import RESPONDER_KINDS, TABLES

__all__ = ["POINTS", "clusters_met", "lay_out"]

Array = NDArray[np.float64]

POINTS = 400.0 / np.log(10.0)
"""Rating points a unit of strength."""

CENTRE = 1500.0


def lay_out(
    verdicts: pd.DataFrame,
    responders: pd.DataFrame | None,
    entries: Entries,
    settings: Mapping[str, Any],
    found: Mapping[str, Any],
) -> pd.DataFrame:
    """Lay out the ratings table, in the order of the responders' names.

    Parameters
    ----------
    verdicts, responders : pandas.DataFrame
        The tables that came in.
    entries : Entries
        What was fitted.
    settings : mapping
        What the board was made with: ``dimension``, ``method``, ``population``, ``ci_level``.
    found : mapping
        ``strength``, ``ci_low``, ``ci_high``, ``chance``, ``penalised``, ``n_clusters``, and
        ``rank_low`` and ``rank_high`` or None.

    Returns
    -------
    pandas.DataFrame
        As :mod:`heart_utils.tables` describes it.

    Examples
    --------
    >>> from heart_utils.analysis.wins import read_verdicts
    >>> votes = pd.DataFrame({"responder_a": "x", "responder_b": "y", "verdict": list("aaab")})
    >>> entries, none = read_verdicts(votes, dimension="overall", cluster=None), np.full(2, np.nan)
    >>> settings = {"dimension": "overall", "method": "bradley-terry", "population": "none", "interval": None}
    >>> found = {"strength": np.log([3**0.5, 3**-0.5]), "ci_low": none, "ci_high": none, "rank_low": None, "rank_high": None}
    >>> found |= {"chance": np.array([[0.5, 0.75], [0.25, 0.5]]), "penalised": False, "n_clusters": np.zeros(2, int)}
    >>> table = lay_out(votes, None, entries, settings | {"ci_level": 0.95}, found)
    >>> table[["responder", "rating", "win_probability", "n_verdicts", "provisional"]].round(2).values.tolist()
    [['x', 1595.42, 0.75, 4, True], ['y', 1404.58, 0.25, 4, True]]
    """
    size = len(entries.responders)
    n_verdicts = np.bincount(entries.a, minlength=size) + np.bincount(entries.b, minlength=size)
    n_ties = np.bincount(entries.a, entries.tie, size) + np.bincount(entries.b, entries.tie, size)
    theta, low, high = found["strength"], found["ci_low"], found["ci_high"]
    others = ~np.eye(size, dtype=bool)
    columns = {
        **{column: _common(verdicts, column, entries) for column in ("slice", "group", "rater", "rater_kind")},
        **{column: settings[column] for column in ("dimension", "method", "population")},
        "responder": entries.responders.astype("str"),
        "responder_kind": _kinds(responders, entries.responders),
        "strength": theta,
        "ci_low": low,
        "ci_high": high,
        "ci_level": settings["ci_level"] if settings["interval"] else np.nan,
        "rating": CENTRE + POINTS * theta,
        "rating_low": CENTRE + POINTS * low,
        "rating_high": CENTRE + POINTS * high,
        "rank_low": _counts(found["rank_low"], size),
        "rank_high": _counts(found["rank_high"], size),
        "win_probability": np.where(others, found["chance"], 0.0).sum(axis=1) / (size - 1),
        "n_verdicts": n_verdicts,
        "n_clusters": found["n_clusters"],
        "tie_share": n_ties / n_verdicts,
        "penalised": found["penalised"],
        "provisional": (found["n_clusters"] < ENOUGH_CLUSTERS) | np.isnan(low) | found["penalised"],
        "simulated": bool(verdicts["simulated"].iloc[entries.rows].any()) if "simulated" in verdicts else False,
    }
    return pd.DataFrame({column: columns[column] for column in TABLES["ratings"]})


def clusters_met(entries: Entries, codes: NDArray[np.intp], n_clusters: int) -> NDArray[np.int64]:
    """Count the clusters in which each responder was judged.

    Parameters
    ----------
    entries : Entries
        What was fitted.
    codes : numpy.ndarray
        Cluster of each entry.
    n_clusters : int
        How many clusters there are.

    Returns
    -------
    numpy.ndarray
        One count a responder.

    Examples
    --------
    >>> from heart_utils.analysis.wins import read_verdicts
    >>> votes = pd.DataFrame({"dialogue_id": list("dde"), "responder_a": "x", "responder_b": list("yzz"), "verdict": "a"})
    >>> entries = read_verdicts(votes, dimension="overall", cluster="dialogue_id")
    >>> clusters_met(entries, entries.cluster, len(entries.clusters))  # of x, y and z
    array([2, 1, 2])
    """
    met = np.zeros((n_clusters, len(entries.responders)), bool)
    met[codes, entries.a] = met[codes, entries.b] = True
    return np.asarray(met.sum(axis=0))


def _counts(values: Array | None, size: int) -> Any:
    return pd.Series([None] * size if values is None else list(values), dtype="Int64")


def _common(verdicts: pd.DataFrame, column: str, entries: Entries) -> str | None:
    """Give the one value that all verdicts of a board share, or say that there are several."""
    mixed = None if column == "group" else "all"
    if column not in verdicts:
        return mixed
    values = verdicts[column].iloc[entries.rows].unique()
    return str(values[0]) if len(values) == 1 and not pd.isna(values[0]) else mixed


def _kinds(responders: pd.DataFrame | None, names: pd.Index) -> Any:
    """Look up who is a person and who a model."""
    if responders is None:
        return "source"
    kinds = responders.set_index("responder")["responder_kind"].reindex(names)
    unknown = kinds.index[~kinds.isin(RESPONDER_KINDS)]
    if len(unknown):
        raise RatingsError(
            f"responders do not say what kind {', '.join(unknown)} is of; "
            f"`responder_kind` must be one of {', '.join(RESPONDER_KINDS)}."
        )
    return kinds.to_numpy()
