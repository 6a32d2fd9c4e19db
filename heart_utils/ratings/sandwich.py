"""Robust covariances of strengths, and what each verdict does to them."""

from __future__ import annotations

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from heart_utils.ratings.bradley_terry import BradleyTerry
from heart_utils.ratings.davidson import Levels
from heart_utils.ratings.resampling import crossed, refuse_few_raters
from heart_utils.ratings.verdicts import Codes, Entries, RatingsError, name_codes, need

__all__ = ["Model"]

Array = NDArray[np.float64]

Model = BradleyTerry | Levels


def one_way(model: Model) -> Array:
    """Give the covariance of strengths if clusters were drawn again.

    With S the sums of scores a cluster and A the information, it is A^-1 (sum of S S') A^-1, times G / (G - 1) for G
    clusters. Source: Liang and Zeger (1986), https://doi.org/10.1093/biomet/73.1.13
    """
    n_clusters = len(model.entries.clusters)
    sums = _sums(model, model.entries.cluster, n_clusters)
    return _covariance(model, sums.T @ sums * n_clusters / (n_clusters - 1.0))


def two_way(model: Model, other: Codes, n_other: int) -> Array:
    """Give the covariance of strengths if clusters and raters were drawn again.

    With S the sums of scores, A^-1 (sum over dialogues S S' + sum over raters S S' - sum over dialogues by raters S
    S') A^-1, negative eigenvalues cut, times G / (G - 1) for the smaller number G. Source: Cameron, Gelbach and
    Miller (2011), https://doi.org/10.1198/jbes.2010.07136
    """
    n_clusters = len(model.entries.clusters)
    cell, n_cells = crossed(model.entries.cluster, n_clusters, other, n_other)
    by_cluster, by_other = _sums(model, model.entries.cluster, n_clusters), _sums(model, other, n_other)
    by_cell = _sums(model, cell, n_cells)
    fewest = min(n_clusters, n_other)
    meat = by_cluster.T @ by_cluster + by_other.T @ by_other - by_cell.T @ by_cell
    return _covariance(model, meat * fewest / (fewest - 1.0))


def influences(model: Model, residual: Array | None = None) -> Array:
    """Tell how far each entry moves the strengths: to first order, what removing it takes away."""
    size, residual = len(model.theta), model.residuals() if residual is None else residual
    bread = _bread(model)[:size]
    moved = residual[:, :1] * (bread[:, model.entries.a] - bread[:, model.entries.b]).T
    return np.asarray(moved + residual[:, 1:] @ bread[:, size:].T)


def rater_codes(verdicts: pd.DataFrame, entries: Entries, cluster: str, column: str) -> tuple[Codes, int]:
    """Give numbers to the raters of entries, once they can stand for raters like them."""
    need(verdicts, [column])
    names, (codes,) = name_codes(verdicts, [column], entries.rows)
    refuse_few_raters(entries.cluster, codes, (cluster, column), RatingsError)
    return codes, len(names)


def _sums(model: Model, group: Codes, n_groups: int) -> Array:
    """Sum the scores a group, shape (groups, parameters)."""
    size, residual = len(model.theta), model.residuals()
    a, b = group * size + model.entries.a, group * size + model.entries.b
    gap = np.bincount(a, residual[:, 0], n_groups * size) - np.bincount(b, residual[:, 0], n_groups * size)
    rest = [np.bincount(group, column, n_groups) for column in residual[:, 1:].T]
    return np.column_stack([gap.reshape(n_groups, size), *rest])


def _covariance(model: Model, meat: Array) -> Array:
    size, bread = len(model.theta), _bread(model)
    found = (bread @ meat @ bread)[:size, :size]
    values, vectors = np.linalg.eigh((found + found.T) / 2.0)
    return np.asarray((vectors * np.maximum(values, 0.0)) @ vectors.T)


def _bread(model: Model) -> Array:
    """Invert the information where it is not flat: strengths have mean zero."""
    size, information = len(model.theta), model.information().copy()
    flat = np.zeros(len(information))
    flat[:size] = 1.0 / np.sqrt(size)
    scale = np.trace(information[:size, :size]) / size
    bread = np.linalg.inv(information + scale * np.outer(flat, flat))
    centre = np.eye(len(information)) - np.outer(flat, flat)
    return np.asarray(centre @ bread @ centre)
