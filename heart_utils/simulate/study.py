"""Simulated studies with known truth: whole studies, raters and writers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
from numpy.random import Generator
from numpy.typing import NDArray
from scipy.special import expit

from heart_utils.ratings.bradley_terry import fit_strengths
from heart_utils.ratings.verdicts import Array, Codes
from heart_utils.simulate.power import davidson, expected_share, normal_nodes
from heart_utils.tables import RATER_KINDS, check_table, empty_table, needed_columns

__all__ = [
    "BEHAVIOURS",
    "Behaviour",
    "Panel",
    "SimulatedRaters",
    "Spread",
    "Study",
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
