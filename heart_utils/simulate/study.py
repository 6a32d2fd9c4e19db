"""Simulated studies with known truth: one study, one of HEART's size, power, raters, writers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, astuple, dataclass, field, fields, replace
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
from numpy.random import Generator
from numpy.typing import NDArray
from scipy import optimize, stats
from scipy.special import expit

from heart_utils.ratings.bradley_terry import fit_strengths
from heart_utils.ratings.ratings import POINTS, simultaneous_quantile
from heart_utils.ratings.resampling import FEW_RATERS
from heart_utils.ratings.verdicts import Array, Codes
from heart_utils.tables import RATER_KINDS, check_table, empty_table, needed_columns

__all__ = [
    "BEHAVIOURS",
    "Behaviour",
    "Design",
    "LAYOUTS",
    "Margins",
    "NotReckonedError",
    "Panel",
    "Settings",
    "SimulatedRaters",
    "Spread",
    "Study",
    "calibrate",
    "minimum_gap",
    "plan_study",
    "simulate_heart",
    "simulate_raters",
    "simulate_study",
    "simulate_writers",
]

Met = tuple[Codes, Codes, Codes]


@dataclass(frozen=True)
class Behaviour:
    """How a simulated rater works."""

    discrimination: float  #: by what a difference in log-odds is multiplied: 0 is a coin
    first: float  #: chance of taking the reply shown first without looking
    seconds: float  #: median time on a page; times are log-normal with a standard deviation of 0.5
    passes: float  #: chance of passing an attention check


BEHAVIOURS = {
    "careful": Behaviour(1.0, 0.0, 40.0, 0.98),
    "hurried": Behaviour(0.8, 0.05, 15.0, 0.95),
    "coin": Behaviour(0.0, 0.0, 5.0, 0.1),
    "first_side": Behaviour(0.0, 0.9, 5.0, 0.1),
    "patient_coin": Behaviour(0.0, 0.0, 40.0, 0.98),
    "careless_reader": Behaviour(0.2, 0.0, 12.0, 0.5),
}
"""Assumptions, as are ``SPREAD`` and ``TIES``. Only ``careful`` and ``hurried`` do the task."""

# standard deviation between pairs of the log-odds by which a careful rater prefers one reply
SPREAD = 1.5
N_CHECKS = 3
TIES = 0.2  # chance of a tie between equals; it falls with the difference


@dataclass(frozen=True, eq=False)
class SimulatedRaters:
    """A simulated study and who was who in it."""

    #: as in :mod:`heart_utils.tables`, all marked as simulated
    verdicts: pd.DataFrame = field(repr=False)
    raters: pd.DataFrame = field(repr=False)
    truth: pd.DataFrame  #: ``rater`` and ``behaviour``


def simulate_raters(
    behaviours: Mapping[str, int],
    *,
    rng: Generator,
    load: int = 30,
    votes: int = 5,
    advantage: float = 0.0,
) -> SimulatedRaters:
    """Draw a rating study with so many raters of each behaviour, with three attention checks.

    Parameters
    ----------
    behaviours
        Name in :data:`BEHAVIOURS` -> how many raters behave so.
    rng
        The source of chance.
    load
        Pairs a rater, give or take one.
    votes
        Raters of each pair.
    advantage
        Log-odds with which a careful rater prefers the responder ``x``.

    Returns
    -------
    SimulatedRaters
        Each pair is a dialogue of its own, between the responders ``x`` and ``y``.

    Raises
    ------
    ValueError
        If a behaviour is not known, or a pair would need more raters than there are.

    Examples
    --------
    >>> study = simulate_raters({"careful": 4, "coin": 1}, rng=np.random.default_rng(1), load=10)
    >>> len(study.verdicts), study.truth["behaviour"].value_counts().to_dict()
    (50, {'careful': 4, 'coin': 1})
    """
    unknown = sorted(set(behaviours) - set(BEHAVIOURS))
    if unknown:
        raise ValueError(
            f"There is no behaviour called {unknown[0]!r}. There are {', '.join(BEHAVIOURS)}."
        )
    kinds = [name for name, count in behaviours.items() for _ in range(count)]
    n_raters = len(kinds)
    if votes > n_raters:
        raise ValueError(f"{votes} votes a pair need as many raters, and there are {n_raters}.")
    n_pairs = -(-n_raters * load // votes)
    pair = np.repeat(np.arange(n_pairs), votes)
    rater = _share_out(n_raters, n_pairs, votes, rng)
    style = pd.DataFrame([BEHAVIOURS[kind] for kind in kinds])
    discrimination, first, seconds = (
        style[name].to_numpy()[rater] for name in ("discrimination", "first", "seconds")
    )
    pull = rng.normal(advantage, SPREAD, n_pairs)[pair] * discrimination
    a_first = rng.random(len(pair)) < 0.5
    chosen = np.where(rng.random(len(pair)) < expit(pull), "a", "b")
    blind = rng.random(len(pair)) < first
    chosen = np.where(blind, np.where(a_first, "a", "b"), chosen)
    chosen = np.where(
        ~blind & (rng.random(len(pair)) < TIES * np.exp(-np.abs(pull))), "tie", chosen
    )
    seconds = np.exp(rng.normal(np.log(seconds), 0.5))
    names = np.array([f"rater-{number + 1:04d}" for number in range(n_raters)])
    ids = pd.Series([f"pair-{number:05d}" for number in range(n_pairs)])
    pairs = pd.DataFrame(dict.fromkeys(("pair_id", "history_id", "dialogue_id"), ids))
    pairs = pairs.assign(slice="standard", responder_a="x", responder_b="y")
    margin = np.where(chosen == "tie", np.nan, rng.integers(1, 6, len(pair)))
    verdicts = verdicts_table(
        pairs,
        pair,
        a_first,
        rater=names[rater],
        rater_kind="human",
        dimension="overall",
        verdict=chosen,
        margin=margin,
        state="valid",
    ).assign(seconds=seconds)
    verdicts["position"] = verdicts.groupby("rater").cumcount() + 1
    done = np.bincount(rater, minlength=n_raters)
    raters = pd.DataFrame(
        {
            "rater": names,
            "n_checks": N_CHECKS,
            "n_checks_passed": rng.binomial(N_CHECKS, style["passes"]),
            "n_shown": done,
            "n_answered": done,
            "rater_kind": "human",
            "study": "simulated",
            "population": "simulated",
            "language": "none",
            "pay": "none",
            "completed": True,
            "simulated": True,
        }
    )
    truth = pd.DataFrame({"rater": names, "behaviour": kinds})
    return SimulatedRaters(check_table("verdicts", verdicts), check_table("raters", raters), truth)


def _share_out(n_raters: int, n_pairs: int, votes: int, rng: Generator) -> np.ndarray:
    """Assign each pair to raters who have the fewest so far."""
    done = np.zeros(n_raters, dtype=int)
    chosen = []
    for _ in range(n_pairs):
        who = np.lexsort((rng.random(n_raters), done))[:votes]
        done[who] += 1
        chosen.append(who)
    return np.concatenate(chosen)


def histories_table(slices: NDArray[np.object_], n_dialogues: int) -> pd.DataFrame:
    number = np.arange(len(slices))
    dialogue = np.where(number < n_dialogues, number, n_dialogues + (number - n_dialogues) // 2)
    other = number + np.where((number - n_dialogues) % 2, -1, 1)
    twins = words(
        [None if at < n_dialogues else f"h{to:05d}" for at, to in zip(number, other, strict=True)],
        number,
    )
    turns = [
        [{"speaker": "seeker", "text": f"(a simulated history, number {at})"}] for at in number
    ]
    return _finish(
        "histories",
        history_id=[f"h{at:05d}" for at in number],
        dialogue_id=[f"d{at:05d}" for at in dialogue],
        source="simulated",
        slice=slices,
        twin_id=twins,
        turns=turns,
        licence="CC0-1.0",
    )


def replies_table(histories: pd.DataFrame, names: list[str]) -> pd.DataFrame:
    history = histories["history_id"].repeat(len(names)).reset_index(drop=True)
    responder = words(names, np.tile(np.arange(len(names)), len(histories)))
    return _finish(
        "replies",
        reply_id=history + "-" + responder,
        history_id=history,
        responder=responder,
        text="(a simulated reply)",
        state="valid",
    )


def pairs_table(
    histories: pd.DataFrame, names: list[str], history: Codes, one: Codes, other: Codes
) -> pd.DataFrame:
    rows = histories[["history_id", "dialogue_id", "slice"]].take(history).reset_index(drop=True)
    a, b = words(names, one), words(names, other)
    reply_a, reply_b = rows["history_id"] + "-" + a, rows["history_id"] + "-" + b
    return rows.assign(
        pair_id=reply_a + "+" + b, reply_a=reply_a, reply_b=reply_b, responder_a=a, responder_b=b
    )


def verdicts_table(
    pairs: pd.DataFrame, pair: Codes, a_first: NDArray[np.bool_], **columns: Any
) -> pd.DataFrame:
    rows, order = pairs.take(pair).reset_index(drop=True), np.where(a_first, 0, 1)
    rows["comparison_id"] = rows["pair_id"] + words([":ab", ":ba"], order)
    return _finish(
        "verdicts",
        **rows,
        order=words(["ab", "ba"], order),
        protocol="simulated",
        repeat=0,
        **columns,
    )


def words(of: Sequence[str | None], codes: Codes) -> pd.Series:
    return pd.Series(pd.array(list(of), dtype="str").take(codes))


def _finish(table: str, **columns: Any) -> pd.DataFrame:
    rows = pd.DataFrame({**columns, "simulated": True})
    if "flags" in needed_columns(table):
        rows["flags"] = pd.Series([[] for _ in range(len(rows))], dtype=object)
    bare = empty_table(table).reindex(rows.index)
    return pd.concat([rows, bare[bare.columns.difference(rows.columns)]], axis=1)[list(bare)]


PEOPLE_SHARE = 4  # one responder in so many is a person
MARGIN_CUTS = (0.5, 1.0, 1.75, 2.75)
SCORE_CUTS = (-1.5, -0.5, 0.5, 1.5)
SEVERITY_SD = 0.5
CORRELATION = 0.8  # between any two dimensions, of strengths and of replies


@dataclass(frozen=True)
class Panel:
    """Raters of one kind, who judge alike but for their own tastes."""

    kind: str  #: "human" or "model"
    n_raters: int
    votes: int  #: how many of them judge each pair
    #: by what a difference of strengths is multiplied: 0 is a coin, 1 is the truth
    discrimination: float = 1.0
    #: standard deviation of a rater's own taste for each responder, in log-odds
    rater_sd: float = 0.0
    position_bias: float = 0.0  #: log-odds that the reply shown first gains
    #: Davidson's nu; 0 for a forced choice. Two equals tie with probability nu / (2 + nu)
    ties: float = 0.0
    failures: float = 0.0  #: share of answers that cannot be read (state ``unparsed``)
    answer_format: str | None = None  #: with "logprob" each verdict carries ``p_a``; "json" or None
    scores: bool = False  #: whether they also score each reply from 1 to 5


@dataclass(frozen=True)
class Spread:
    """How far a simulated study's strengths differ: standard deviations in log-odds."""

    strengths: float = 0.6  #: of responders, where strengths are drawn
    dialogues: float = 0.8  #: of a responder's replies about their strength
    adversarial: float = 0.5  #: of what each responder gains or loses in the adversarial slice


@dataclass(frozen=True, eq=False)
class Study:
    """The tables of a simulated study, and what is true of it."""

    #: as in :mod:`heart_utils.tables`; ``scores`` has no rows unless asked for
    histories: pd.DataFrame
    responders: pd.DataFrame
    replies: pd.DataFrame
    comparisons: pd.DataFrame
    verdicts: pd.DataFrame
    scores: pd.DataFrame
    #: ``strength`` for an average dialogue and rater; ``marginal``, what a fit to averaged win
    #: probabilities tends to; mean zero
    truth: pd.DataFrame


DEFAULT_PANELS = (
    Panel("human", 45, 1, rater_sd=0.35, position_bias=0.1, ties=0.4),
    Panel("model", 3, 1, discrimination=0.8, position_bias=0.4, ties=0.1),
)


DEFAULT_SPREAD = Spread()


def simulate_study(
    *,
    rng: Generator,
    strengths: Mapping[str, float] | int = 17,
    n_dialogues: int = 300,
    n_twins: int = 0,
    pairs: int | str = 70,
    orders: str = "random",
    panels: Sequence[Panel] = DEFAULT_PANELS,
    dimensions: Sequence[str] = ("overall",),
    spread: Spread = DEFAULT_SPREAD,
) -> Study:
    r"""Simulate a whole study with known truth: histories, replies, pairs and verdicts.

    In dialogue :math:`d` rater :math:`r` prefers responder :math:`i`, shown first, to :math:`j` by
    :math:`\gamma (\theta_i + u_{di} + v_{ri} - \theta_j - u_{dj} - v_{rj}) + \delta` in log-odds,
    with :math:`u \sim N(0, s_d^2)` for a reply that turned out well or badly and
    :math:`v \sim N(0, s_r^2)` for taste. Ties follow Davidson; margins are cut from a logistic.

    Parameters
    ----------
    rng
        The source of chance.
    strengths
        Responder -> strength on the first dimension (``human...`` is a person); or how many, every
        fourth a person.
    n_dialogues
        Of the slice ``standard``, one history each.
    n_twins
        Further dialogues with two histories each, ``adversarial`` and ``calm_twin``.
    pairs
        Pairs compared a history, or ``"all"``.
    orders
        ``"random"`` or ``"both"``.
    panels
        Who judges, with discrimination :math:`\gamma`, taste :math:`s_r`, position bias
        :math:`\delta`.
    dimensions
        Lines of the rubric; any two correlate by 0.8.
    spread
        How far responders, their replies (:math:`s_d`) and slices differ.

    Returns
    -------
    Study
        The tables of :mod:`heart_utils.tables`, each row marked ``simulated``; and ``truth``.

    Raises
    ------
    ValueError
        If a number cannot be, such as more pairs than there are.

    Examples
    --------
    >>> two = {"human": 0.5, "model": -0.5}
    >>> study = simulate_study(
    ...     rng=np.random.default_rng(1), strengths=two, n_dialogues=4, pairs="all"
    ... )
    >>> study.verdicts.groupby(["responder_a", "responder_b", "rater_kind"]).size().to_dict()
    {('human', 'model', 'human'): 4, ('human', 'model', 'model'): 4}
    """
    if orders not in ("random", "both"):
        raise ValueError(f"orders is {orders!r}, expected random or both.")
    names = _name_responders(strengths)
    if len(names) < 2:
        raise ValueError(f"A study needs two responders or more, not {len(names)}.")
    slices = np.array(
        ["standard"] * n_dialogues + ["adversarial", "calm_twin"] * n_twins, dtype=object
    )
    plain = spread.strengths * _correlated(rng, (len(dimensions), len(names)))
    if not isinstance(
        strengths, int
    ):  # given for the first dimension, with which the others correlate
        given = np.array([strengths[name] for name in names], dtype=float)
        plain[1:] += CORRELATION * (given - plain[0])
        plain[0] = given
    theta = np.stack([plain, plain + spread.adversarial * _correlated(rng, plain.shape)], axis=1)
    # of shape (dimensions, plain or adversarial, responders)
    theta -= theta.mean(axis=-1, keepdims=True)
    in_slice = theta[:, (slices == "adversarial").astype(int)]
    strength_in = in_slice + spread.dialogues * _correlated(rng, in_slice.shape)
    histories = histories_table(slices, n_dialogues)
    kinds = ["human" if name.startswith("human") else "model" for name in names]
    pairs_drawn = _draw_pairs(rng, len(slices), len(names), pairs)
    pairs_met = pairs_table(histories, names, *pairs_drawn)
    lines = list(dimensions)
    every = [(panel, _names_of(panel, number)) for number, panel in enumerate(panels)]
    judged = [
        _judge(rng, *panel, strength_in, pairs_drawn, pairs_met, orders, lines) for panel in every
    ]
    scored = [
        _score(rng, *panel, strength_in, histories, names, lines)
        for panel in every
        if panel[0].scores
    ]
    verdicts = pd.concat(judged, ignore_index=True)
    orders_drawn = verdicts[["comparison_id", "pair_id", "order"]].drop_duplicates("comparison_id")
    return Study(
        histories=histories,
        responders=_finish("responders", responder=names, responder_kind=kinds, family=names),
        replies=replies_table(histories, names),
        comparisons=_finish(
            "comparisons", **orders_drawn.merge(pairs_met, on="pair_id"), protocol="simulated"
        ),
        verdicts=verdicts,
        scores=pd.concat(scored, ignore_index=True) if scored else empty_table("scores"),
        truth=_truth(theta, panels, names, dimensions, spread.dialogues, n_twins),
    )


def _name_responders(strengths: Mapping[str, float] | int) -> list[str]:
    if not isinstance(strengths, int):
        return sorted(strengths)
    n_people = max(1, strengths // PEOPLE_SHARE)
    people = [f"human_{k + 1:02d}" for k in range(n_people)]
    return people + [f"model_{k + 1:02d}" for k in range(strengths - n_people)]


def _correlated(rng: Generator, shape: tuple[int, ...]) -> Array:
    common = rng.normal(size=(1, *shape[1:]))
    return np.asarray(
        np.sqrt(CORRELATION) * common + np.sqrt(1.0 - CORRELATION) * rng.normal(size=shape)
    )


def _draw_pairs(rng: Generator, n_histories: int, size: int, pairs: int | str) -> Met:
    one, other = np.triu_indices(size, k=1)
    n_pairs = len(one) if pairs == "all" else int(pairs)
    if not 1 <= n_pairs <= len(one):
        raise ValueError(
            f"pairs is {pairs!r}; {size} responders make {len(one)} pairs, so give a number up to"
            " that, or 'all'."
        )
    chosen = np.argsort(rng.random((n_histories, len(one))), axis=1)[:, :n_pairs]
    return np.repeat(np.arange(n_histories), n_pairs), one[chosen].ravel(), other[chosen].ravel()


def _judge(
    rng: Generator,
    panel: Panel,
    raters: list[str],
    strength_in: Array,
    pairs_drawn: Met,
    pairs: pd.DataFrame,
    orders: str,
    lines: list[str],
) -> pd.DataFrame:
    pair, rater, a_first = _show(rng, len(pairs), panel, orders)
    history, one, other = (part[pair] for part in pairs_drawn)
    taste = rng.normal(0.0, panel.rater_sd, (len(lines), panel.n_raters, strength_in.shape[2]))
    gap = (
        strength_in[:, history, one]
        + taste[:, rater, one]
        - strength_in[:, history, other]
        - taste[:, rater, other]
    )
    lean = (panel.discrimination * gap + panel.position_bias * np.where(a_first, 1.0, -1.0)).ravel()
    wins, _, ties = davidson(lean, panel.ties)
    luck, failed = rng.random(len(lean)), rng.random(len(lean)) < panel.failures
    answer = np.select([luck < wins, luck < wins + ties], [0, 2], 1)
    # the likelier letter is the answer, so that it does not contradict `p_a`
    if panel.answer_format == "logprob":
        answer = np.where(lean > 0.0, 0, 1)
    answer = np.where(failed, 3, answer)
    n, dimension = len(lines), np.repeat(np.arange(len(lines)), len(pair))
    return verdicts_table(
        pairs,
        np.tile(pair, n),
        np.tile(a_first, n),
        rater=words(raters, np.tile(rater, n)),
        rater_kind=panel.kind,
        dimension=words(lines, dimension),
        dimension_position=pd.array(dimension, dtype="Int64"),
        verdict=words(["a", "b", "tie", None], answer),
        state=words(["valid", "unparsed"], failed.astype(int)),
        margin=np.where(answer < 2, _margins(rng, np.where(answer == 1, -lean, lean)), np.nan),
        p_a=np.where(failed | (panel.answer_format != "logprob"), np.nan, expit(lean)),
        answer_format=words([panel.answer_format], np.zeros(len(lean), int)),
    )


def _show(
    rng: Generator, n_pairs: int, panel: Panel, orders: str
) -> tuple[Codes, Codes, NDArray[np.bool_]]:
    """Hand each pair to some raters, in one order or both."""
    rater = np.argsort(rng.random((n_pairs, panel.n_raters)), axis=1)[:, : panel.votes].ravel()
    pair = np.repeat(np.arange(n_pairs), panel.votes)
    if orders == "both":
        return np.repeat(pair, 2), np.repeat(rater, 2), np.tile([True, False], len(pair))
    return pair, rater, rng.random(len(pair)) < 0.5


def _margins(rng: Generator, lean: Array) -> Array:
    """Draw the winner's margin, 1 to 5."""
    floor = expit(-lean)
    luck = floor + (1.0 - floor) * rng.random(len(lean))
    distance = lean + np.log(luck) - np.log1p(-np.minimum(luck, 1.0 - 1e-12))
    return np.asarray(1.0 + np.searchsorted(MARGIN_CUTS, distance))


def _score(
    rng: Generator,
    panel: Panel,
    raters: list[str],
    strength_in: Array,
    histories: pd.DataFrame,
    names: list[str],
    lines: list[str],
) -> pd.DataFrame:
    dimension, history, responder = np.unravel_index(np.arange(strength_in.size), strength_in.shape)
    rater = np.broadcast_to(
        rng.integers(0, panel.n_raters, (1, *strength_in.shape[1:])), strength_in.shape
    ).ravel()
    severity = rng.normal(0.0, SEVERITY_SD, panel.n_raters)
    felt = (
        panel.discrimination * strength_in.ravel()
        + severity[rater]
        + rng.logistic(0.0, 0.5, strength_in.size)
    )
    rows = histories[["history_id", "dialogue_id"]].take(history).reset_index(drop=True)
    author, by = words(names, responder), words(raters, rater)
    rows = rows.assign(reply_id=rows["history_id"] + "-" + author, responder=author, rater=by)
    rows["rater_kind"], rows["dimension"] = panel.kind, words(lines, dimension)
    return _finish(
        "scores",
        **rows,
        score=1.0 + np.searchsorted(SCORE_CUTS, felt),
        state="valid",
        protocol="simulated",
    )


def _names_of(panel: Panel, number: int) -> list[str]:
    if panel.kind not in RATER_KINDS:
        raise ValueError(
            f"A panel's kind is {panel.kind!r}, expected one of {', '.join(RATER_KINDS)}."
        )
    if not 1 <= panel.votes <= panel.n_raters:
        raise ValueError(
            f"{panel.votes} of {panel.n_raters} raters cannot judge each pair; votes must be from 1"
            " to n_raters."
        )
    word = "judge" if panel.kind == "model" else "rater"
    return [f"{word}_{number + 1}_{rater + 1:03d}" for rater in range(panel.n_raters)]


def _truth(
    theta: Array,
    panels: Sequence[Panel],
    names: list[str],
    dimensions: Sequence[str],
    dialogue_sd: float,
    n_twins: int,
) -> pd.DataFrame:
    parts = []
    slices = ("standard", *(("adversarial", "calm_twin") if n_twins else ()))
    for kind, (number, dimension), where in product(
        ("human", "model", "all"), enumerate(dimensions), slices
    ):
        if chosen := [panel for panel in panels if kind in (panel.kind, "all")]:
            strength = theta[number, int(where == "adversarial")]
            shares = [_mean_share(strength, panel, dialogue_sd) for panel in chosen]
            share = np.average(shares, axis=0, weights=[float(panel.votes) for panel in chosen])
            marginal = fit_strengths(share[None], np.zeros(len(names), bool))[0]
            parts.append(
                pd.DataFrame(
                    {
                        "dimension": dimension,
                        "slice": where,
                        "rater_kind": kind,
                        "responder": names,
                        "strength": strength,
                        "marginal": marginal,
                    }
                )
            )
    return pd.concat(parts, ignore_index=True)


def _mean_share(strength: Array, panel: Panel, dialogue_sd: float) -> Array:
    nodes, weights = normal_nodes(61)
    spread = np.sqrt(2.0 * (dialogue_sd**2 + panel.rater_sd**2))
    gap = panel.discrimination * ((strength[:, None] - strength)[..., None] + spread * nodes)
    sides = (
        expected_share(gap + lean, panel.ties)[0] @ weights
        for lean in (panel.position_bias, -panel.position_bias)
    )
    share = np.asarray(sum(sides) / 2.0)
    np.fill_diagonal(share, 0.0)
    return share


def simulate_writers(
    models: Mapping[str, float],
    *,
    rng: Generator,
    writer_sd: float = 0.5,
    n_writers: int = 12,
    writers_per_history: int = 3,
    n_dialogues: int = 100,
    dialogue_sd: float = 0.8,
) -> Study:
    """Simulate a study in which human writers meet the models, but never each other.

    Parameters
    ----------
    models
        Model -> strength.
    rng
        The source of chance.
    writer_sd
        Of writers' strengths, in log-odds.
    n_writers, writers_per_history
        Writers in the pool, and those who write for each history.
    n_dialogues
        One history each.
    dialogue_sd
        Of replies about their writer's strength, in log-odds.

    Returns
    -------
    Study
        All writers are the responder ``human``; ``truth`` has ``strength`` less the models' mean.

    Raises
    ------
    ValueError
        If a history would need more writers than there are.

    Examples
    --------
    >>> study = simulate_writers(
    ...     {"m": 0.0, "n": 0.2}, rng=np.random.default_rng(1), n_dialogues=8, n_writers=4
    ... )
    >>> study.replies.groupby("responder").size().to_dict()
    {'human': 24, 'm': 8, 'n': 8}
    """
    if writers_per_history > n_writers:
        raise ValueError(
            f"{writers_per_history} writers a history need as many, and there are {n_writers}."
        )
    names = [f"human_{number + 1:02d}" for number in range(n_writers)]
    strengths = dict(zip(names, rng.normal(0.0, writer_sd, n_writers), strict=True)) | dict(models)
    study = simulate_study(
        rng=rng,
        strengths=strengths,
        panels=(Panel("human", 20, 3),),
        n_dialogues=n_dialogues,
        pairs="all",
        spread=Spread(dialogues=dialogue_sd),
    )
    turns = rng.permutation(n_writers)[np.arange(n_dialogues * writers_per_history) % n_writers]
    histories = np.repeat(study.histories["history_id"].to_numpy(), writers_per_history)
    wrote = pd.MultiIndex.from_arrays([histories, np.array(names, dtype=object)[turns]])
    was_written = pd.MultiIndex.from_frame(study.replies[["history_id", "responder"]]).isin(wrote)
    replies = study.replies[was_written | study.replies["responder"].isin(list(models))]
    both_kept = study.comparisons[["reply_a", "reply_b"]].isin(set(replies["reply_id"])).all(axis=1)
    both = study.comparisons[["responder_a", "responder_b"]].isin(names).all(axis=1)
    comparisons = study.comparisons[both_kept & ~both]
    verdicts = study.verdicts[study.verdicts["comparison_id"].isin(comparisons["comparison_id"])]
    author = "writer-" + replies["responder"].str.removeprefix("human_")
    replies = replies.assign(author_id=author.where(replies["responder"].isin(names), None))
    writers = ["human/" + name.replace("human_", "writer-") for name in names]
    centre = float(np.mean(list(models.values())))
    truth = pd.DataFrame(
        {"responder": writers, "strength": [strengths[name] - centre for name in names]}
    )
    pooled = {
        column: dict.fromkeys(names, "human")
        for column in ("responder", "responder_a", "responder_b")
    }
    return replace(
        study,
        verdicts=verdicts.replace(pooled).reset_index(drop=True),
        comparisons=comparisons.replace(pooled).reset_index(drop=True),
        replies=replies.replace(pooled),
        responders=study.responders.replace(pooled).drop_duplicates("responder"),
        truth=truth,
    )


LEAST_A_PAIR = 6  # dialogues a pair, on average, below which the formula was not simulated
LARGEST_GAP = 16.0
OTHERS = 0.5  # how far the other responders lie above or below the middle, on the scale of the fit
PLANNED = (
    "n_verdicts",
    "gap",
    "gap_points",
    "win_probability",
    "verdicts",
    "dialogues",
    "raters",
    "why",
)


class NotReckonedError(ValueError):
    """The formula does not hold for a design."""


@dataclass(frozen=True)
class Design:
    """A study of pairwise verdicts, and how much its dialogues and raters differ."""

    n_dialogues: int
    n_responders: int
    pairs: int  #: of responders, compared a dialogue, of n (n - 1) / 2
    votes: int  #: raters a pair and dialogue
    #: among whom votes are dealt; under 20 they are fixed, and their tastes are part of what is
    #: measured
    n_raters: int
    #: of a responder's replies about their strength, in log-odds of a verdict that is no tie
    dialogue_sd: float = 0.8
    rater_sd: float = 0.35  #: of a rater's taste for a responder, in the same unit
    tie_share: float = 0.0  #: share of verdicts that are ties, from 0 to below 1

    @property
    def n_verdicts(self) -> int:
        """How many verdicts the study collects."""
        return self.n_dialogues * self.pairs * self.votes

    @property
    def ties(self) -> float:
        """Davidson's nu under which equals tie as often as ``tie_share`` says."""
        gap, weights = _gaps(2.0 * (self.dialogue_sd**2 + self.rater_sd**2))
        # Half of this upper end is enough, by Jensen's inequality.
        most = 4.0 * float(np.cosh(gap / 2.0) @ weights) * self.tie_share / (1.0 - self.tie_share)

        def missed(nu: float) -> float:
            return float(davidson(gap, nu)[2] @ weights) - self.tie_share

        return float(optimize.brentq(missed, 0.0, most)) if self.tie_share else 0.0

    @property
    def raters_vary(self) -> bool:
        """Whether raters stand for others like them, and differ."""
        return self.n_raters >= FEW_RATERS and self.rater_sd > 0

    @property
    def n_compared(self) -> int:
        """How many pairs of responders there are."""
        return self.n_responders * (self.n_responders - 1) // 2

    @property
    def dialogues_a_pair(self) -> float:
        """In how many dialogues a pair is compared, on average."""
        return self.n_dialogues * self.pairs / self.n_compared

    @property
    def n_effective(self) -> float:
        """Count the equal clusters that carry as much information."""
        # What a pair tells of the difference between two responders: 4 where the two meet, 1 where
        # either meets another.
        total, squares = 2.0 * self.n_responders, 2.0 * self.n_responders + 12.0
        uneven = squares / total**2
        missed, part = 1.0 / max(self.n_compared - 1, 1), self.pairs / self.n_compared
        by_dialogue = (1.0 - part) / part * (uneven * self.n_compared - 1.0) * missed
        dialogues = self.n_dialogues / (1.0 + by_dialogue)
        if not self.raters_vary:
            return dialogues
        a_rater = self.n_verdicts / self.n_raters
        by_rater = (
            (1.0 - self.votes / self.n_raters)
            * (uneven * self.n_compared - 1.0 / self.n_raters)
            / a_rater
        )
        return min(dialogues, self.n_raters / (1.0 + by_rater))


def minimum_gap(
    design: Design, *, power: float = 0.8, ci_level: float = 0.95, n_contrasts: int | None = None
) -> float:
    r"""Return the smallest true gap of strengths that is found with some probability.

    A gap is found if the interval of the difference excludes zero. It is
    :math:`c\, r + z_\text{power} \sqrt{1 + c^2 / 2 \nu}` standard errors, with c the critical value
    on :math:`\nu` degrees of freedom, and r the leaderboard's standard error over that of the
    estimates. Half of the others lie 0.5 above the middle of the two and half 0.5 below.

    Parameters
    ----------
    design
        Ties follow Davidson's model.
    power
        The probability of finding the gap.
    ci_level
        Of the interval.
    n_contrasts
        How many must hold at once (Bonferroni), 1 for one chosen beforehand; by default all pairs.

    Returns
    -------
    float
        In units of strength; times 400 / ln 10 in rating points.

    Raises
    ------
    ValueError
        If the design cannot be.
    NotReckonedError
        If a pair is compared in fewer than six dialogues, or no gap is large enough.

    Notes
    -----
    With K responders, D dialogues, R raters, v votes, N verdicts a responder, each
    pair in M dialogues on average, and P pairs of which p are compared a dialogue, the variance is

    .. math::

        \frac{2 C_1 (K - 2)}{K D} \frac{1 - 1 / p}{1 - 1 / P} + S C_2 E(1 / M) + \frac{E(1 / M)}{v}
        (U - S (C_2 + 2 C_r)) + 2 C_r \left(\frac{1}{R} + \frac{1 - v / R}{N} M E(1 / M)\right)

    without 1 / R where raters are fixed. :math:`C_1`, :math:`C_2`, :math:`C_r` are 16 times the
    covariance of two verdicts that share one reply, both, or the rater's taste; U and S are sums
    over pairs of a verdict's variance and of its squared slope, over the squared sum of slopes.

    Examples
    --------
    >>> from heart_utils.ratings.ratings import POINTS
    >>> paper = Design(n_dialogues=300, n_responders=17, pairs=47, votes=3, n_raters=3)
    >>> [round(minimum_gap(paper, n_contrasts=n) * POINTS) for n in (None, 1)]
    [50, 32]
    """
    _check(design, power, ci_level)
    if design.dialogues_a_pair < LEAST_A_PAIR:
        raise NotReckonedError(
            f"not reckoned for fewer than {LEAST_A_PAIR} dialogues a pair; here it is"
            f" {design.dialogues_a_pair:.1f}. Compare more pairs in a dialogue, or ask for more"
            " dialogues."
        )
    df = design.n_effective - 1.0
    reach = critical_value(design.n_responders, df, ci_level=ci_level, n_contrasts=n_contrasts)
    # The estimate and its error both vary: the usual approximation to a noncentral t.
    errors = _excess(design) * reach * (1.0 - 0.25 / df) + stats.norm.ppf(power) * np.sqrt(
        1.0 + reach**2 / (2.0 * df)
    )

    def missed(gap: float) -> float:
        return float(errors * np.sqrt(sum(_parts(design, gap).values()))) - gap

    most = 1.0
    while missed(most) > 0.0:
        if most > LARGEST_GAP:
            raise NotReckonedError(
                f"no gap up to {LARGEST_GAP:.0f} log-odds is found. Ask for more dialogues or more"
                " raters."
            )
        most *= 2.0
    return float(optimize.brentq(missed, 0.0, most))


def critical_value(
    n_responders: int, df: float, *, ci_level: float = 0.95, n_contrasts: int | None = None
) -> float:
    """Compute how many standard errors a found difference must exceed."""
    if n_contrasts is None:
        return simultaneous_quantile(n_responders, df + 1.0, ci_level)
    return float(stats.t.isf((1.0 - ci_level) / (2.0 * max(n_contrasts, 1)), df))


def normal_nodes(n: int) -> tuple[Array, Array]:
    nodes, weights = np.polynomial.hermite_e.hermegauss(n)
    return nodes, weights / weights.sum()


def davidson(gap: Array, nu: float) -> tuple[Array, Array, Array]:
    """Compute shares of wins, losses and ties by gap."""
    up, down = np.exp(gap / 2.0), np.exp(-gap / 2.0)
    total = up + down + nu
    return up / total, down / total, nu / total


def expected_share(gap: Array, nu: float) -> tuple[Array, Array]:
    """Compute the expected share of a verdict by gap, and ties."""
    wins, _, ties = davidson(gap, nu)
    return wins + ties / 2.0, ties


def plan_study(
    designs: list[Design],
    *,
    power: float = 0.8,
    ci_level: float = 0.95,
    n_contrasts: int | None = None,
) -> pd.DataFrame:
    """Compute the smallest gap that each study design can detect, one row a design.

    Parameters
    ----------
    designs
        One row each.
    power, ci_level, n_contrasts
        As in :func:`minimum_gap`.

    Returns
    -------
    pandas.DataFrame
        Designs with ``n_verdicts``; ``gap`` (log-odds), ``gap_points``; ``win_probability`` there;
        ``verdicts``, ``dialogues``, ``raters``: shares of the variance; ``why`` there is no gap.

    Raises
    ------
    ValueError
        If a design cannot be, such as more pairs than there are.

    Examples
    --------
    >>> design = Design(n_dialogues=100, n_responders=17, pairs=47, votes=3, n_raters=3)
    >>> plan_study([design])[["n_verdicts", "gap_points"]].round().values.tolist()
    [[14100.0, 89.0]]
    """
    rows = []
    for design in designs:
        try:
            gap = minimum_gap(design, power=power, ci_level=ci_level, n_contrasts=n_contrasts)
        except NotReckonedError as error:
            rows.append(asdict(design) | {"n_verdicts": design.n_verdicts, "why": str(error)})
            continue
        parts = _parts(design, gap)
        total = sum(parts.values())
        shares = {name: part / total for name, part in parts.items()}
        detectable = {"gap": gap, "gap_points": POINTS * gap, "win_probability": expit(gap)}
        planned = asdict(design) | {"n_verdicts": design.n_verdicts, "why": ""}
        rows.append(planned | detectable | shares)
    return pd.DataFrame(rows, columns=[*(field.name for field in fields(Design)), *PLANNED])


def _excess(design: Design) -> float:
    """Compute how much the leaderboard's standard error exceeds the estimates'."""
    # A jackknife counts a verdict's own leverage once too often, and with raters each of three sums
    # does; of those, the draws
    # from the covariance are corrected as resamples of the fewer clusters are.
    leverage = (
        (design.n_responders - 1.0)
        / design.n_verdicts
        * design.dialogues_a_pair
        * inverse_met(design)
    )
    if not design.raters_vary:
        return float(np.sqrt(1.0 + leverage))
    fewest = min(design.n_dialogues, design.n_raters)
    return float(np.sqrt((1.0 + 3.0 * leverage) * fewest / (fewest - 1.0)))


def inverse_met(design: Design) -> float:
    """Compute the mean of one over a pair's number of dialogues."""
    n_dialogues = design.dialogues_a_pair
    uneven = (1.0 - design.pairs / design.n_compared) / n_dialogues
    return (1.0 + uneven + 2.0 * uneven**2 + 6.0 * uneven**3) / n_dialogues


def _parts(design: Design, gap: float) -> dict[str, float]:
    """Compute the variance of a difference at this gap, by source."""
    others = design.n_responders - 2
    shared, inverse = shared_covariances(design), inverse_met(design)
    # The pair itself, which counts twice, and the pairs of either with the others.
    distance = np.array([gap, gap / 2.0 - OTHERS, gap / 2.0 + OTHERS])
    times = np.array([4.0, others, others])
    slope = 0.25 / np.cosh(distance / 2.0) ** 2
    near = design.tie_share * np.sqrt(4.0 * slope)
    ties = near / (1.0 - design.tie_share + near)
    total = float(np.array([2.0, others / 2.0, others / 2.0]) @ slope) ** 2
    squares, verdict = float(times @ slope**2) / total, float(times @ (slope - ties / 4.0)) / total
    alone = verdict - squares * (shared["replies"] + 2.0 * shared["taste"])
    together = (
        (1.0 - 1.0 / design.pairs) / (1.0 - 1.0 / design.n_compared)
        if design.n_compared > 1
        else 1.0
    )
    own = 2.0 * shared["reply"] * others / (design.n_responders * design.n_dialogues) * together
    # Who is dealt which pair is chance even where the raters are fixed, unless all judge
    # everything.
    of_responder = 2.0 * design.n_verdicts / design.n_responders
    dealt = (
        (1.0 - design.votes / design.n_raters) / of_responder * design.dialogues_a_pair * inverse
    )
    drawn = 1.0 / design.n_raters if design.n_raters >= FEW_RATERS else 0.0
    return {
        "verdicts": alone * inverse / design.votes,
        "dialogues": own + squares * shared["replies"] * inverse,
        "raters": 2.0 * shared["taste"] * (dealt + drawn),
    }


def shared_covariances(design: Design) -> dict[str, float]:
    """Compute 16 times verdicts' covariance by shared replies or taste."""
    reply, taste = design.dialogue_sd**2, design.rater_sd**2
    variance = 2.0 * (reply + taste)
    if variance == 0:
        return dict.fromkeys(("reply", "replies", "taste"), 0.0)
    gap, weights = _gaps(variance)
    nu = design.ties
    lead = expected_share(gap, nu)[0] - 0.5

    def covariance(correlation: float) -> float:
        other = correlation * gap[:, None] + np.sqrt(1.0 - correlation**2) * gap
        return 16.0 * float((lead * ((expected_share(other, nu)[0] - 0.5) @ weights)) @ weights)

    wanted = {"reply": reply, "replies": 2.0 * reply, "taste": taste}
    return {name: covariance(common / variance) for name, common in wanted.items()}


def _gaps(variance: float) -> tuple[Array, Array]:
    nodes, weights = normal_nodes(61)
    return np.sqrt(variance) * nodes, weights


def _check(design: Design, power: float, ci_level: float) -> None:
    if (
        design.n_responders < 2
        or design.n_dialogues < 2
        or design.votes < 1
        or design.n_raters < design.votes
    ):
        raise ValueError(
            "A study needs two responders, two dialogues and as many raters as votes a pair; this"
            f" is {design}."
        )
    if not 1 <= design.pairs <= design.n_compared:
        raise ValueError(
            f"{design.n_responders} responders make {design.n_compared} pairs; {design.pairs}"
            " cannot meet in a dialogue."
        )
    if not 0 <= design.tie_share < 1:
        raise ValueError(f"tie_share is {design.tie_share}; it lies from 0 to below 1.")
    if not 0 < power < 1 or not 0 < ci_level < 1:
        raise ValueError(f"power is {power} and ci_level {ci_level}; both lie between 0 and 1.")


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
        return np.asarray(_drawn_margins(settings(x)) - np.array(astuple(Margins())))

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


def _drawn_margins(settings: Settings) -> Array:
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
