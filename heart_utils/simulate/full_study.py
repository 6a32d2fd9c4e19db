"""A simulated study of HEART's size with the published margins; models' SD is assumed."""

from __future__ import annotations

from dataclasses import astuple, dataclass

import numpy as np
from scipy import optimize, stats
from scipy.special import expit

from heart_utils.ratings.verdicts import Array
from heart_utils.simulate.power import davidson, normal_nodes
from heart_utils.simulate.study import Panel, Spread, Study, simulate_study

__all__ = ["LAYOUTS", "Margins", "Settings", "calibrate", "simulate_heart"]

N_MODELS = 16
N_RATERS = 300
MODEL_SD = 0.6
RATER_SD = 0.35
N_JUDGES = 3
N_TWINS = 20
LAYOUTS: dict[str, tuple[int, int | str, int]] = {
    "fifteen raters": (280, 10, 15),
    "one rater": (300, "all", 1),
}
"""Histories, pairs of each, votes a pair: two designs that both come to about 42,000 votes."""


@dataclass(frozen=True)
class Margins:
    """What the paper's digest reports."""

    human_wins: float = 0.358  #: shares of people's votes between a person's reply and a model's
    ties: float = 0.174
    #: shares of agreement of two people, and of a person and a judge, over votes that are no ties:
    #: how ties count is not said
    human_agreement: float = 0.795
    judge_agreement: float = 0.787


@dataclass(frozen=True)
class Settings:
    """What the simulation needs."""

    human: float  #: strength of people's replies where models have mean zero
    dialogue_sd: float  #: of a reply about its author's strength, in log-odds
    ties: float  #: davidson's nu
    discrimination: float  #: of judges, relative to people


def calibrate() -> Settings:
    """Find the settings under which a simulated study shows the shares that HEART published.

    These are of :class:`Margins`; how far models and raters' tastes differ is assumed.

    Returns
    -------
    Settings
        ``human`` and ``dialogue_sd`` are in log-odds.

    Examples
    --------
    >>> settings = calibrate()
    >>> 0 < settings.ties < 2 and settings.dialogue_sd > 0
    True
    """

    def settings(x: Array) -> Settings:
        return Settings(float(x[0]), *np.exp(x[1:]).tolist())

    def miss(x: Array) -> Array:
        return np.asarray(_margins(settings(x)) - np.array(astuple(Margins())))

    start, bounds = np.array([-0.3, 0.5, -0.5, 0.0]), ([-8, -4, -8, -6], [8, 2.5, 4, 4])
    return settings(optimize.least_squares(miss, start, bounds=bounds).x)


def simulate_heart(
    *,
    rng: np.random.Generator,
    layout: str = "fifteen raters",
    settings: Settings | None = None,
    scores: bool = False,
) -> Study:
    """Draw a study of HEART's size: 16 models and people, judged by people and by three judges.

    Parameters
    ----------
    rng
        The source of chance.
    layout
        How the published 42,000 votes are spread: ``"fifteen raters"`` or ``"one rater"``.
    settings
        :func:`calibrate`'s, if not given.
    scores
        Whether raters also score replies from 1 to 5.

    Returns
    -------
    Study
        Every row is marked as simulated; ``human`` stands for whoever wrote for people.

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
    strengths = dict(
        zip([f"model_{k + 1:02d}" for k in range(N_MODELS)], _models().tolist(), strict=True)
    )
    discrimination = chosen.discrimination
    panels = (
        Panel("human", N_RATERS, votes, rater_sd=RATER_SD, ties=chosen.ties, scores=scores),
        Panel("model", N_JUDGES, N_JUDGES, discrimination=discrimination, scores=scores),
    )
    # no published figure says how far anybody moves in adversarial histories
    spread = Spread(dialogues=chosen.dialogue_sd, adversarial=0.0)
    return simulate_study(
        rng=rng,
        strengths=strengths | {"human": chosen.human},
        panels=panels,
        n_dialogues=n_dialogues,
        n_twins=N_TWINS,
        pairs=pairs,
        spread=spread,
    )


def _models() -> Array:
    """Spread the models' strengths like a normal sample without luck."""
    return np.asarray(MODEL_SD * stats.norm.ppf((np.arange(N_MODELS) + 0.5) / N_MODELS))


def _margins(settings: Settings) -> Array:
    nodes, weights = normal_nodes(31)
    models = _models()
    against = settings.human - models
    among = (models[:, None] - models[None, :])[np.triu_indices(N_MODELS, 1)]
    taste = np.sqrt(2.0) * RATER_SD * nodes
    shares = []
    for gaps in (against, np.concatenate([against, among])):
        dialogue_gaps = (
            gaps[:, None] + np.sqrt(2.0) * settings.dialogue_sd * nodes
        )  # (pairs, dialogues)
        shares.append(
            [share @ weights for share in davidson(dialogue_gaps[..., None] + taste, settings.ties)]
        )
    judged = expit(settings.discrimination * dialogue_gaps)
    wins, _, ties = (share @ weights for share in shares[0])
    won, lost, _ = shares[1]
    decided = (((won + lost) ** 2) @ weights).mean()
    people = ((won**2 + lost**2) @ weights).mean() / decided
    judges = ((won * judged + lost * (1.0 - judged)) @ weights).mean() / (
        (won + lost) @ weights
    ).mean()
    return np.array([wins.mean(), ties.mean(), people, judges])
