"""How often intervals hold the truth: studies drawn from known strengths, many times over."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import stats

from heart_utils.analysis.bradley_terry import BradleyTerry, fit_strengths
from heart_utils.analysis.intervals import bootstrap_draws, product_draws
from heart_utils.analysis.power import Design, expected_share
from heart_utils.analysis.resampling import interval_ends
from heart_utils.analysis.sandwich import one_way, two_way
from heart_utils.analysis.wins import Codes, Entries

__all__ = ["INTERVALS", "draw_study", "simulate_coverage", "tends_to"]

Array = NDArray[np.float64]
Pairs = tuple[Codes, Codes]

INTERVALS = {
    "released formula": "none",
    "verdicts": "none",
    "dialogues": "dialogues",
    "dialogues, sandwich": "dialogues",
    "dialogues, for other raters": "dialogues_and_raters",
    "dialogues and raters": "dialogues_and_raters",
    "dialogues and raters, product weights": "dialogues_and_raters",
}
"""Kinds of interval, and whom the truth they are held against speaks of; where it is nobody, dialogues."""

STRENGTH_SD = 0.6
NODES, WEIGHTS = np.polynomial.hermite_e.hermegauss(31)
WEIGHTS = WEIGHTS / WEIGHTS.sum()


def simulate_coverage(
    design: Design,
    *,
    rng: np.random.Generator,
    n_studies: int = 200,
    n_resamples: int = 400,
    ci_level: float = 0.95,
) -> pd.DataFrame:
    r"""Draw studies of one design and count how often each kind of interval holds the truth.

    Strengths are drawn from a normal distribution with standard deviation 0.6. In a dialogue a
    responder's strength is off by the design's ``dialogue_sd``, and a rater's taste for a responder by
    its ``rater_sd``. The truth is what a fit to averaged win probabilities tends to: over dialogues like
    these with these raters, or over dialogues and raters like these. The released formula
    (:math:`\pm 1.96 / \sqrt{n}` for n verdicts on a responder) and the bootstrap over verdicts speak of
    neither, and are held against the first.

    Parameters
    ----------
    design : Design
        Without ties.
    rng : numpy.random.Generator
        The source of chance.
    n_studies : int
        Two or more.
    n_resamples : int
        Of each bootstrap.
    ci_level : float
        What the intervals promise. The released formula promises 0.95 whatever this is.

    Returns
    -------
    pandas.DataFrame
        One row a kind of interval: ``interval``, ``population`` (of the truth that it is held against),
        ``quantity`` (``"strength"`` or ``"difference"`` of two), ``coverage`` (the mean over studies of
        the share that holds), ``mc_error`` (its Monte Carlo standard error), ``width`` (mean, in
        log-odds), ``promised``, ``n_studies``, ``simulated``.

    Raises
    ------
    ValueError
        If the design has ties or one study only is asked for.

    Examples
    --------
    >>> from heart_utils.analysis.power import Design
    >>> design = Design(n_dialogues=40, n_responders=4, pairs=6, votes=3, n_raters=25)
    >>> found = simulate_coverage(design, rng=np.random.default_rng(1), n_studies=20, n_resamples=50)
    >>> coverage = found.query("quantity == 'strength'").set_index("interval")["coverage"]
    >>> bool(coverage["released formula"] < coverage["dialogues and raters"])
    True
    """
    if design.tie_share:
        raise ValueError(f"tie_share is {design.tie_share}, but these studies are drawn without ties. Set it to 0.")
    if n_studies < 2:
        raise ValueError(f"n_studies is {n_studies}; the Monte Carlo error needs two or more.")
    held: dict[tuple[str, str], list[tuple[float, float]]] = defaultdict(list)
    for _ in range(n_studies):
        for key, found in _one_study(design, rng, n_resamples, ci_level).items():
            held[key].append(found)
    rows = []
    for (interval, quantity), shares in held.items():
        holds, width = np.array(shares).T
        rows.append(
            {
                "interval": interval,
                "population": INTERVALS[interval],
                "quantity": quantity,
                "coverage": holds.mean(),
                "mc_error": holds.std(ddof=1) / np.sqrt(n_studies),
                "width": width.mean(),
                "promised": ci_level,
                "n_studies": n_studies,
                "simulated": True,
            }
        )
    return pd.DataFrame(rows)


def _one_study(
    design: Design, rng: np.random.Generator, n_resamples: int, ci_level: float
) -> dict[tuple[str, str], tuple[float, float]]:
    """Draw a study; give the part of intervals that hold and their mean width, by kind and quantity."""
    size, n_dialogues, n_raters = design.n_responders, design.n_dialogues, design.n_raters
    pairs = np.triu_indices(size, k=1)
    theta = rng.normal(0.0, STRENGTH_SD, size)
    tastes = rng.normal(0.0, design.rater_sd, (n_raters, size))
    entries, rater = draw_study(design, rng, theta, tastes, pairs)
    varying = design.rater_sd > 0
    here = tends_to(theta + tastes if varying else theta[None], design.dialogue_sd, pairs)
    anywhere = tends_to(theta[None], np.hypot(design.dialogue_sd, design.rater_sd), pairs) if varying else here
    model = BradleyTerry.fit(entries, "pairs")
    found = {}

    def hold_draws(interval: str, draws: Array, n_clusters: int, truth: Array) -> None:
        many = np.full(size, n_clusters), np.full(len(pairs[0]), n_clusters)
        gaps = draws[:, pairs[0]] - draws[:, pairs[1]]
        found[interval, "strength"] = _held(*interval_ends(model.theta, draws, many[0], ci_level), truth)
        ends = interval_ends(_gaps(model.theta, pairs), gaps, many[1], ci_level)
        found[interval, "difference"] = _held(*ends, _gaps(truth, pairs))

    def hold_covariance(interval: str, covariance: Array, n_clusters: int, truth: Array) -> None:
        t, variance = stats.t.ppf((1 + ci_level) / 2, n_clusters - 1), np.diag(covariance)
        reach = t * np.sqrt(variance)
        found[interval, "strength"] = _held(model.theta - reach, model.theta + reach, truth)
        spread = variance[pairs[0]] + variance[pairs[1]] - 2 * covariance[pairs]
        gap, reach = _gaps(model.theta, pairs), t * np.sqrt(np.maximum(spread, 0.0))
        found[interval, "difference"] = _held(gap - reach, gap + reach, _gaps(truth, pairs))

    draws = bootstrap_draws(model, n_resamples, rng)[0]
    hold_draws("dialogues", draws, n_dialogues, here)
    hold_draws("dialogues, for other raters", draws, n_dialogues, anywhere)
    hold_covariance("dialogues, sandwich", one_way(model), n_dialogues, here)
    fewest = min(n_dialogues, n_raters)
    hold_covariance("dialogues and raters", two_way(model, rater, n_raters), fewest, anywhere)
    product = product_draws(model, rater, n_raters, n_resamples // 2, rng)[0]
    hold_draws("dialogues and raters, product weights", product, fewest, anywhere)
    wins = model.tally().sum()[0, 0]
    cells = rng.multinomial(len(rater), (wins / wins.sum()).ravel(), size=n_resamples).reshape(-1, size, size)
    single = fit_strengths(cells.astype(float), np.zeros(size, bool), model.theta)
    hold_draws("verdicts", single, len(rater), here)
    reach = 1.96 / np.sqrt(np.bincount(entries.a, minlength=size) + np.bincount(entries.b, minlength=size))
    found["released formula", "strength"] = _held(model.theta - reach, model.theta + reach, here)
    return found


def draw_study(design: Design, rng: np.random.Generator, theta: Array, tastes: Array, pairs: Pairs) -> tuple[Entries, Codes]:
    """Draw verdicts: some pairs, or all, in every dialogue, each judged by some raters.

    Parameters
    ----------
    design : Design
        How many of what.
    rng : numpy.random.Generator
        The source of chance.
    theta : numpy.ndarray
        Strength of each responder.
    tastes : numpy.ndarray
        Shape (raters, responders): what each rater adds.
    pairs : tuple of numpy.ndarray
        The two responders of each possible pair.

    Returns
    -------
    entries : Entries
        The verdicts, ties by Davidson's model.
    rater : numpy.ndarray
        Rater of each.

    Examples
    --------
    >>> from heart_utils.analysis.power import Design
    >>> design = Design(n_dialogues=3, n_responders=3, pairs=2, votes=2, n_raters=5)
    >>> rng, pairs = np.random.default_rng(1), np.triu_indices(3, k=1)
    >>> entries, rater = draw_study(design, rng, np.zeros(3), np.zeros((5, 3)), pairs)
    >>> np.bincount(entries.cluster)  # 2 pairs in each dialogue, 2 votes on each
    array([4, 4, 4])
    """
    size, n_dialogues, votes = design.n_responders, design.n_dialogues, design.votes
    pair = np.tile(np.arange(len(pairs[0])), (n_dialogues, 1))
    if design.pairs < pair.shape[1]:
        pair = np.argpartition(rng.random(pair.shape), design.pairs, axis=1)[:, : design.pairs]
    dialogue = np.repeat(np.arange(n_dialogues), pair.shape[1] * votes)
    if votes == 1:
        rater = rng.integers(0, design.n_raters, pair.size)
    else:
        luck = rng.random((pair.size, design.n_raters))
        rater = np.argpartition(luck, votes - 1, axis=1)[:, :votes].ravel()
    there = theta + rng.normal(0.0, design.dialogue_sd, (n_dialogues, size))
    a, b = (side[np.repeat(pair.ravel(), votes)] for side in pairs)
    gap = there[dialogue, a] - there[dialogue, b] + tastes[rater, a] - tastes[rater, b]
    share, tie = expected_share(gap, design.ties)
    luck = rng.random(len(gap))
    word = np.where(luck < share - tie / 2.0, 0, np.where(luck < share + tie / 2.0, 1, 2))
    nobody = np.zeros(len(a), bool)
    names, rows = pd.Index([f"r{k}" for k in range(size)]), np.arange(len(a))
    clusters, left_out = pd.RangeIndex(n_dialogues), pd.Series(dtype=int)
    return Entries(names, clusters, a, b, dialogue, 1.0 - word / 2.0, word, nobody, rows, left_out), rater


def tends_to(strengths: Array, spread: float, pairs: Pairs, nu: float = 0.0) -> Array:
    """Give the strengths that averaged win probabilities tend to, for a panel of raters (rows) as it is.

    Parameters
    ----------
    strengths : numpy.ndarray
        Shape (raters, responders).
    spread : float
        Standard deviation of a responder's strength between dialogues.
    pairs : tuple of numpy.ndarray
        The two responders of each possible pair.
    nu : float
        Davidson's tie parameter.

    Returns
    -------
    numpy.ndarray
        One strength a responder, with mean zero.

    Examples
    --------
    >>> pair, gap = np.triu_indices(2, k=1), np.array([[0.5, -0.5]])
    >>> tends_to(gap, 0.0, pair).round(3), tends_to(gap, 1.0, pair).round(3)  # what varies between dialogues evens out
    (array([ 0.5, -0.5]), array([ 0.366, -0.366]))
    """
    gap = _gaps(strengths, pairs)
    share = (expected_share(gap[..., None] + np.sqrt(2.0) * spread * NODES, nu)[0] @ WEIGHTS).mean(axis=0)
    size = strengths.shape[1]
    wins = np.zeros((1, size, size))
    wins[0, pairs[0], pairs[1]], wins[0, pairs[1], pairs[0]] = share, 1.0 - share
    return np.asarray(fit_strengths(wins, np.zeros(size, bool))[0])


def _gaps(strengths: Array, pairs: Pairs) -> Array:
    return np.asarray(strengths[..., pairs[0]] - strengths[..., pairs[1]])


def _held(low: Array, high: Array, truth: Array) -> tuple[float, float]:
    """Give the part of intervals that hold the truth, and their mean width."""
    return float(((low <= truth) & (truth <= high)).mean()), float((high - low).mean())
