"""A study drawn from known strengths, marked as simulated in every row of every table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.special import expit

from heart_utils.analysis.bradley_terry import fit_strengths
from heart_utils.analysis.simulated_tables import (
    comparisons_table,
    histories_table,
    pairs_table,
    replies_table,
    responders_table,
    scores_table,
    verdicts_table,
    words,
)
from heart_utils.tables import RATER_KINDS, empty_table

__all__ = ["Panel", "Study", "simulate_study"]

Array = NDArray[np.float64]
Codes = NDArray[np.intp]

PEOPLE_SHARE = 4  # one responder in so many is a person
MARGIN_CUTS = (0.5, 1.0, 1.75, 2.75)
SCORE_CUTS = (-1.5, -0.5, 0.5, 1.5)
SEVERITY_SD = 0.5


@dataclass(frozen=True)
class Panel:
    """Raters of one kind, who judge alike but for their own tastes.

    Attributes
    ----------
    kind : {"human", "model"}
        The part they play.
    n_raters : int
        How many there are.
    votes : int
        How many of them judge each pair.
    discrimination : float
        By what a difference of strengths is multiplied: 0 is a coin, 1 is the truth.
    rater_sd : float
        Standard deviation of a rater's own taste for each responder, in log-odds.
    position_bias : float
        Log-odds that the reply shown first gains.
    ties : float
        Davidson's tie parameter nu; 0 for a forced choice. Two equals tie with probability
        nu / (2 + nu).
    failures : float
        Share of answers that cannot be read (state ``unparsed``).
    answer_format : {"json", "logprob"} or None
        With ``"logprob"`` each verdict carries ``p_a``.
    """

    kind: str
    n_raters: int
    votes: int
    discrimination: float = 1.0
    rater_sd: float = 0.0
    position_bias: float = 0.0
    ties: float = 0.0
    failures: float = 0.0
    answer_format: str | None = None


@dataclass(frozen=True, eq=False)
class Study:
    """The tables of a simulated study, and what is true of it.

    Attributes
    ----------
    histories, responders, replies, comparisons, verdicts, scores : pandas.DataFrame
        As in :mod:`heart_utils.tables`; ``scores`` has no rows unless asked for.
    truth : pandas.DataFrame
        Columns ``dimension``, ``slice``, ``rater_kind``, ``responder``, ``strength`` (in an average
        dialogue, for an average rater) and ``marginal``: what a fit to win probabilities averaged over
        dialogues and raters, each pair weighing the same, tends to. Both have mean zero. Averaging over
        unlike dialogues brings probabilities closer to a half, so marginal strengths are the smaller.
    """

    histories: pd.DataFrame
    responders: pd.DataFrame
    replies: pd.DataFrame
    comparisons: pd.DataFrame
    verdicts: pd.DataFrame
    scores: pd.DataFrame
    truth: pd.DataFrame


DEFAULT_PANELS = (
    Panel("human", 45, 1, rater_sd=0.35, position_bias=0.1, ties=0.4),
    Panel("model", 3, 1, discrimination=0.8, position_bias=0.4, ties=0.1),
)


def simulate_study(
    *,
    rng: np.random.Generator,
    strengths: Mapping[str, float] | None = None,
    n_responders: int = 17,
    n_dialogues: int = 300,
    n_twins: int = 0,
    pairs: int | str = 70,
    orders: str = "random",
    panels: Sequence[Panel] = DEFAULT_PANELS,
    dimensions: Sequence[str] = ("overall",),
    strength_sd: float = 0.6,
    dialogue_sd: float = 0.8,
    adversarial_sd: float = 0.5,
    correlation: float = 0.8,
    scores: bool = False,
) -> Study:
    r"""Draw a whole study: who wrote, what they wrote, who met whom, who judged and what they said.

    In dialogue :math:`d` rater :math:`r` prefers responder :math:`i`, shown first, to :math:`j` by
    :math:`\gamma (\theta_i + u_{di} + v_{ri} - \theta_j - u_{dj} - v_{rj}) + \delta` in log-odds, with
    :math:`u \sim N(0, s_d^2)` for a reply that turned out well or badly and :math:`v \sim N(0, s_r^2)`
    for taste. Ties follow Davidson; the margin is the distance at which a logistic answer landed on its
    side of zero, cut at 0.5, 1, 1.75 and 2.75.

    Parameters
    ----------
    rng : numpy.random.Generator
        The source of chance.
    strengths : mapping of str to float, optional
        Responder -> strength on the first dimension; drawn from :math:`N(0, \text{strength_sd}^2)` if
        absent. Who is called ``human...`` is a person.
    n_responders : int
        How many, where strengths are drawn; every fourth is a person.
    n_dialogues : int
        Of the slice ``standard``, one history each.
    n_twins : int
        Further dialogues with two histories each, ``adversarial`` and ``calm_twin``.
    pairs : int or "all"
        Pairs of replies compared a history, without repetition.
    orders : {"random", "both"}
        Whether a rater sees a pair in one order by chance, or in both.
    panels : sequence of Panel
        Who judges.
    dimensions : sequence of str
        Lines of the rubric.
    strength_sd, dialogue_sd : float
        Standard deviations in log-odds of strengths, and of a responder's replies about their strength.
    adversarial_sd : float
        Standard deviation of what each responder gains or loses in the adversarial slice.
    correlation : float
        Between any two dimensions, of strengths and of replies.
    scores : bool
        Whether each panel also scores each reply from 1 to 5.

    Returns
    -------
    Study
        Tables that fit :mod:`heart_utils.tables`, and the truth.

    Raises
    ------
    ValueError
        If a number cannot be, such as more pairs than there are.

    Examples
    --------
    >>> two = {"human": 0.5, "model": -0.5}
    >>> study = simulate_study(rng=np.random.default_rng(1), strengths=two, n_dialogues=4, pairs="all")
    >>> study.verdicts[["responder_a", "responder_b", "rater_kind", "simulated"]].value_counts().to_dict()
    {('human', 'model', 'human', True): 4, ('human', 'model', 'model', True): 4}
    """
    if orders not in ("random", "both"):
        raise ValueError(f"orders is {orders!r}, expected random or both.")
    names = _name_responders(strengths, n_responders)
    slices = np.array(["standard"] * n_dialogues + ["adversarial", "calm_twin"] * n_twins, dtype=object)
    theta = _draw_strengths(rng, strengths, len(names), len(dimensions), strength_sd, adversarial_sd, correlation)
    in_slice = theta[:, (slices == "adversarial").astype(int)]
    there = in_slice + dialogue_sd * _correlated(rng, in_slice.shape, correlation)
    histories = histories_table(slices, n_dialogues)
    met = _draw_pairs(rng, len(slices), len(names), pairs)
    pairs_met = pairs_table(histories, names, *met)
    verdicts = pd.concat(
        [_judge(rng, panel, number, there, met, pairs_met, orders, dimensions) for number, panel in enumerate(panels)],
        ignore_index=True,
    )
    scored = [_score(rng, panel, number, there, histories, names, dimensions) for number, panel in enumerate(panels) if scores]
    return Study(
        histories=histories,
        responders=responders_table(names),
        replies=replies_table(histories, names),
        comparisons=comparisons_table(pairs_met, verdicts),
        verdicts=verdicts,
        scores=pd.concat(scored, ignore_index=True) if scores else empty_table("scores"),
        truth=_truth(theta, panels, names, dimensions, dialogue_sd, n_twins),
    )


def _name_responders(strengths: Mapping[str, float] | None, n_responders: int) -> list[str]:
    """Give names in the order of the alphabet."""
    if strengths is None:
        n_people = max(1, n_responders // PEOPLE_SHARE)
        names = [f"human_{number + 1:02d}" for number in range(n_people)]
        names += [f"model_{number + 1:02d}" for number in range(n_responders - n_people)]
    else:
        names = sorted(strengths)
    if len(names) < 2:
        raise ValueError(f"A study needs two responders or more, not {len(names)}.")
    return names


def _draw_strengths(
    rng: np.random.Generator,
    strengths: Mapping[str, float] | None,
    size: int,
    n_dimensions: int,
    strength_sd: float,
    adversarial_sd: float,
    correlation: float,
) -> Array:
    """Draw strengths of shape (dimensions, plain or adversarial, responders), each with mean zero."""
    plain = strength_sd * _correlated(rng, (n_dimensions, size), correlation)
    if strengths is not None:
        given = np.array([strengths[name] for name in sorted(strengths)], dtype=float)
        plain[1:] += correlation * (given - plain[0])
        plain[0] = given
    shift = adversarial_sd * _correlated(rng, (n_dimensions, size), correlation)
    theta = np.stack([plain, plain + shift], axis=1)
    return np.asarray(theta - theta.mean(axis=-1, keepdims=True))


def _correlated(rng: np.random.Generator, shape: tuple[int, ...], correlation: float) -> Array:
    """Draw standard normals, any two along the first axis correlated alike."""
    common = rng.normal(size=(1, *shape[1:]))
    return np.asarray(np.sqrt(correlation) * common + np.sqrt(1.0 - correlation) * rng.normal(size=shape))


def _draw_pairs(rng: np.random.Generator, n_histories: int, size: int, pairs: int | str) -> tuple[Codes, Codes, Codes]:
    """Draw which responders meet in which history, the first of the alphabet first."""
    one, other = np.triu_indices(size, k=1)
    n_pairs = len(one) if pairs == "all" else int(pairs)
    if not 1 <= n_pairs <= len(one):
        raise ValueError(f"pairs is {pairs!r}; {size} responders make {len(one)} pairs, so give a number up to that, or 'all'.")
    chosen = np.argsort(rng.random((n_histories, len(one))), axis=1)[:, :n_pairs]
    return np.repeat(np.arange(n_histories), n_pairs), one[chosen].ravel(), other[chosen].ravel()


def _judge(
    rng: np.random.Generator,
    panel: Panel,
    number: int,
    there: Array,
    met: tuple[Codes, Codes, Codes],
    pairs: pd.DataFrame,
    orders: str,
    dimensions: Sequence[str],
) -> pd.DataFrame:
    """Let one panel judge: `there` holds strengths in each dialogue, (dimensions, histories, responders)."""
    raters = _names_of(panel, number)
    pair, rater, a_first = _show(rng, len(pairs), panel, orders)
    history, one, other = (part[pair] for part in met)
    taste = rng.normal(0.0, panel.rater_sd, (len(dimensions), panel.n_raters, there.shape[2]))
    gap = there[:, history, one] + taste[:, rater, one] - there[:, history, other] - taste[:, rater, other]
    lean = (panel.discrimination * gap + panel.position_bias * np.where(a_first, 1.0, -1.0)).ravel()
    wins, ties = _davidson(lean, panel.ties)
    luck, failed = rng.random(len(lean)), rng.random(len(lean)) < panel.failures
    said = np.select([luck < wins, luck < wins + ties], [0, 2], 1)
    if panel.answer_format == "logprob":  # the likelier letter is the answer, so that it does not contradict `p_a`
        said = np.where(lean > 0.0, 0, 1)
    said = np.where(failed, 3, said)
    dimension = np.repeat(np.arange(len(dimensions)), len(pair))
    return verdicts_table(
        pairs,
        np.tile(pair, len(dimensions)),
        np.tile(a_first, len(dimensions)),
        rater=words(raters, np.tile(rater, len(dimensions))),
        rater_kind=words([panel.kind], np.zeros(len(lean), int)),
        dimension=words(dimensions, dimension),
        dimension_position=pd.array(dimension, dtype="Int64"),
        verdict=words(["a", "b", "tie", None], said),
        margin=np.where(said < 2, _margins(rng, np.where(said == 1, -lean, lean)), np.nan),
        p_a=np.where(failed | (panel.answer_format != "logprob"), np.nan, expit(lean)),
        state=words(["valid", "unparsed"], failed.astype(int)),
        answer_format=words([panel.answer_format], np.zeros(len(lean), int)),
    )


def _show(rng: np.random.Generator, n_pairs: int, panel: Panel, orders: str) -> tuple[Codes, Codes, NDArray[np.bool_]]:
    """Hand each pair to some raters of a panel, none of them twice, in one order or both."""
    rater = np.argpartition(rng.random((n_pairs, panel.n_raters)), panel.votes - 1, axis=1)[:, : panel.votes].ravel()
    pair = np.repeat(np.arange(n_pairs), panel.votes)
    if orders == "both":
        return np.repeat(pair, 2), np.repeat(rater, 2), np.tile([True, False], len(pair))
    return pair, rater, rng.random(len(pair)) < 0.5


def _davidson(lean: Array, ties: float) -> tuple[Array, Array]:
    """Give the probabilities that a wins and of a tie."""
    up, down = np.exp(lean / 2.0), np.exp(-lean / 2.0)
    return up / (up + down + ties), ties / (up + down + ties)


def _margins(rng: np.random.Generator, lean: Array) -> Array:
    """Draw how far from zero a logistic answer lands, given that it lands on the winner's side, and cut it to 1..5."""
    floor = expit(-lean)
    luck = floor + (1.0 - floor) * rng.random(len(lean))
    distance = lean + np.log(luck) - np.log1p(-np.minimum(luck, 1.0 - 1e-12))
    return np.asarray(1.0 + np.searchsorted(MARGIN_CUTS, distance))


def _score(
    rng: np.random.Generator,
    panel: Panel,
    number: int,
    there: Array,
    histories: pd.DataFrame,
    names: list[str],
    dimensions: Sequence[str],
) -> pd.DataFrame:
    """Let one rater of a panel score each reply: its strength there, the rater's severity, noise, cut to 1..5."""
    dimension, history, responder = np.unravel_index(np.arange(there.size), there.shape)
    rater = np.broadcast_to(rng.integers(0, panel.n_raters, (1, *there.shape[1:])), there.shape).ravel()
    severity = rng.normal(0.0, SEVERITY_SD, panel.n_raters)
    felt = panel.discrimination * there.ravel() + severity[rater] + rng.logistic(0.0, 0.5, there.size)
    return scores_table(
        histories,
        history,
        responder=words(names, responder),
        rater=words(_names_of(panel, number), rater),
        rater_kind=words([panel.kind], np.zeros(there.size, int)),
        dimension=words(dimensions, dimension),
        score=1.0 + np.searchsorted(SCORE_CUTS, felt),
    )


def _names_of(panel: Panel, number: int) -> list[str]:
    """Check a panel and name its raters."""
    if panel.kind not in RATER_KINDS:
        raise ValueError(f"A panel's kind is {panel.kind!r}, expected one of {', '.join(RATER_KINDS)}.")
    if not 1 <= panel.votes <= panel.n_raters:
        raise ValueError(f"{panel.votes} of {panel.n_raters} raters cannot judge each pair; votes must be from 1 to n_raters.")
    word = "judge" if panel.kind == "model" else "rater"
    return [f"{word}_{number + 1}_{rater + 1:03d}" for rater in range(panel.n_raters)]


def _truth(
    theta: Array, panels: Sequence[Panel], names: list[str], dimensions: Sequence[str], dialogue_sd: float, n_twins: int
) -> pd.DataFrame:
    """Say what is true: strengths, and what boards over dialogues and raters tend to."""
    kinds = {kind: [panel for panel in panels if panel.kind == kind] for kind in ("human", "model")}
    boards = {kind: chosen for kind, chosen in {**kinds, "all": list(panels)}.items() if chosen}
    parts = []
    for kind, chosen in boards.items():
        for number, dimension in enumerate(dimensions):
            for where in ("standard", *(("adversarial", "calm_twin") if n_twins else ())):
                strength = theta[number, int(where == "adversarial")]
                votes = np.array([panel.votes for panel in chosen], dtype=float)
                shares = np.average([_mean_share(strength, panel, dialogue_sd) for panel in chosen], axis=0, weights=votes)
                marginal = fit_strengths(shares[None], np.zeros(len(names), bool))[0]
                columns = {"dimension": dimension, "slice": where, "rater_kind": kind, "responder": names}
                parts.append(pd.DataFrame({**columns, "strength": strength, "marginal": marginal}))
    return pd.concat(parts, ignore_index=True)


def _mean_share(strength: Array, panel: Panel, dialogue_sd: float) -> Array:
    """Average over dialogues, raters and orders what each responder wins of each other."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(61)
    spread = np.sqrt(2.0 * (dialogue_sd**2 + panel.rater_sd**2))
    gap = panel.discrimination * ((strength[:, None] - strength[None, :])[..., None] + spread * nodes)
    share = np.zeros_like(strength[:, None] - strength[None, :])
    for side in (1.0, -1.0):
        wins, ties = _davidson(gap + side * panel.position_bias, panel.ties)
        share += (wins + ties / 2.0) @ weights / weights.sum() / 2.0
    np.fill_diagonal(share, 0.0)
    return share
