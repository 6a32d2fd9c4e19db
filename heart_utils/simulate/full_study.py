"""A study of HEART's size, drawn so that its margins are the published ones. Everything it gives is simulated.

The published figures fix four numbers of the simulation: how far people's replies lie below the mean
model's, how far replies vary about their author's strength, how often raters tie, and how sharply judges
discriminate. What they do not fix (how far models differ, raters' tastes) is assumed and named.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import optimize, stats

from heart_utils.ratings.verdicts import Array
from heart_utils.simulate.power import davidson, normal_nodes
from heart_utils.simulate.study import Panel, Study, simulate_study

__all__ = ["LAYOUTS", "Margins", "Settings", "calibrate", "simulate_heart"]


N_MODELS = 16
N_RATERS = 300
MODEL_SD = 0.6
RATER_SD = 0.35
N_JUDGES = 3
N_TWINS = 20
LAYOUTS: dict[str, tuple[int, int | str, int]] = {"fifteen raters": (280, 10, 15), "one rater": (300, "all", 1)}
"""Histories, pairs of each, votes a pair.

Two designs that both come to about 42,000 votes: 280 x 10 x 15, and 300 histories with every pair of 17 once."""


@dataclass(frozen=True)
class Margins:
    """What the paper's digest reports."""

    human_wins: float = 0.358  # shares of people's votes between a person's reply and a model's
    ties: float = 0.174
    # shares of agreement between two people, and between a person and a judge. Taken over votes that are no ties: how ties
    # were counted is not said
    human_agreement: float = 0.795
    judge_agreement: float = 0.787


@dataclass(frozen=True)
class Settings:
    """What the simulation needs."""

    human: float  # strength of people's replies where models have mean zero
    dialogue_sd: float  # of a reply about its author's strength, in log-odds
    ties: float  # davidson's nu
    discrimination: float  # of judges, relative to people


def calibrate() -> Settings:
    """Find the settings under which the simulation's margins are the published ones.

    Returns
    -------
    Settings
        Solved by quadrature, not by simulation.

    Examples
    --------
    >>> settings = calibrate()
    >>> 0 < settings.ties < 2, settings.human < 0
    (True, True)
    """
    wanted = Margins()
    target = np.array([wanted.human_wins, wanted.ties, wanted.human_agreement, wanted.judge_agreement])

    def miss(x: Array) -> Array:
        return np.asarray(_margins(Settings(x[0], np.exp(x[1]), np.exp(x[2]), np.exp(x[3]))) - target)

    found = optimize.least_squares(miss, np.array([-0.3, 0.5, -0.5, 0.0]), bounds=([-8, -4, -8, -6], [8, 2.5, 4, 4]))
    return Settings(float(found.x[0]), *(float(value) for value in np.exp(found.x[1:])))


def simulate_heart(
    *, rng: np.random.Generator, layout: str = "fifteen raters", settings: Settings | None = None, scores: bool = False
) -> Study:
    """Draw a study of HEART's size: 16 models and people, judged by people and by three judges.

    Parameters
    ----------
    rng : numpy.random.Generator
        The source of chance.
    layout : str
        One of :data:`LAYOUTS`: how the published 42,000 votes may be spread.
    settings : Settings, optional
        :func:`calibrate`'s, if not given.
    scores : bool
        Whether each panel scores replies too.

    Returns
    -------
    Study
        Every row is marked as simulated. The responder ``human`` stands for whoever wrote for people.

    Raises
    ------
    ValueError
        If the layout is unknown.

    Examples
    --------
    >>> study = simulate_heart(rng=np.random.default_rng(1))
    >>> len(study.responders), bool(study.verdicts["simulated"].all())
    (17, True)
    """
    if layout not in LAYOUTS:
        raise ValueError(f"layout is {layout!r}, expected one of {', '.join(LAYOUTS)}.")
    chosen = settings or calibrate()
    n_dialogues, pairs, votes = LAYOUTS[layout]
    strengths = {f"model_{number + 1:02d}": float(value) for number, value in enumerate(_models())} | {"human": chosen.human}
    panels = (
        Panel("human", N_RATERS, votes, rater_sd=RATER_SD, ties=chosen.ties),
        Panel("model", N_JUDGES, N_JUDGES, discrimination=chosen.discrimination),
    )
    size: dict[str, Any] = {"n_dialogues": n_dialogues, "n_twins": N_TWINS, "pairs": pairs, "dialogue_sd": chosen.dialogue_sd}
    # No published figure says how far anybody moves in adversarial histories.
    return simulate_study(rng=rng, strengths=strengths, panels=panels, **size, adversarial_sd=0.0, scores=scores)


def _models() -> Array:
    """Spread the models' strengths like a normal sample without luck."""
    return np.asarray(MODEL_SD * stats.norm.ppf((np.arange(N_MODELS) + 0.5) / N_MODELS))


def _margins(settings: Settings) -> Array:
    """Give human wins, ties, agreement of people and of people with judges, by quadrature."""
    nodes, weights = normal_nodes(31)
    models = _models()
    against = settings.human - models
    among = (models[:, None] - models[None, :])[np.triu_indices(N_MODELS, 1)]
    taste = np.sqrt(2.0) * RATER_SD * nodes
    shares = []
    for gaps in (against, np.concatenate([against, among])):
        there = gaps[:, None] + np.sqrt(2.0) * settings.dialogue_sd * nodes  # (pairs, dialogues)
        wins, losses, ties = (share @ weights for share in davidson(there[..., None] + taste, settings.ties))
        judged = 1.0 / (1.0 + np.exp(-settings.discrimination * there))
        shares.append((wins, losses, ties, judged))
    wins, losses, ties, _ = (share @ weights for share in shares[0])
    won, lost, _, judged = shares[1]
    decided = (((won + lost) ** 2) @ weights).mean()
    people = ((won**2 + lost**2) @ weights).mean() / decided
    judges = ((won * judged + lost * (1.0 - judged)) @ weights).mean() / ((won + lost) @ weights).mean()
    return np.array([wins.mean(), ties.mean(), people, judges])
