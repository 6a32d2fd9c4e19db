"""A judge with known faults, to see whether the measures of a judge's steadiness find them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations, product
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from heart_utils.judges.position import compare_answers, position_bias
from heart_utils.ratings.resampling import Interval, bootstrap_ci, share_ci
from heart_utils.ratings.verdicts import combine_orders

__all__ = ["PLANTED", "Faults", "recover_faults"]

DIMENSIONS = ("warmth", "attunement", "guidance")
CORRELATION = 0.5  # between what a pair's replies are worth on any two dimensions
CALLS = (("heart", 0), ("heart", 1), ("heart-reworded", 0), ("heart-single", 0))
LARGEST, SMALLEST = 5.0, 1.0
WORD = np.array(["a", "b", "tie"])
TIE = 2
ENDS = ["ci_low", "ci_high"]


@dataclass(frozen=True)
class Faults:
    """How often a judge errs in each way; a judge without faults has zeros."""

    forgets: float = 0.0  #: share of answers that are a coin's
    leans: float = 0.0  #: share of pairs and dimensions in which it takes what it is shown first
    hangs_on_words: float = 0.0  #: share in which other words turn the answer around
    #: share in which a dimension's answer is that of the first dimension of its call
    carries_over: float = 0.0
    boasts: float = 0.0  #: share of margins that are 5, whatever the lead
    tires: float = 0.0  #: share of ties that each further dimension of a call adds


PLANTED = (
    ("forgets", Faults(forgets=0.2)),
    ("leans", Faults(leans=0.3)),
    ("hangs on words", Faults(hangs_on_words=0.15)),
    ("carries over", Faults(carries_over=0.5)),
    ("boasts", Faults(leans=0.3, boasts=0.8)),
    ("tires", Faults(tires=0.1)),
)
"""One judge a fault. Only a judge that contradicts itself shows that it boasts, so that one leans
too."""


def simulate_judge(faults: Faults, *, rng: np.random.Generator, n_pairs: int = 280) -> pd.DataFrame:
    size = (n_pairs, len(DIMENSIONS))
    common, own = rng.normal(size=(n_pairs, 1)), rng.normal(size=size)
    worth = np.sqrt(CORRELATION) * common + np.sqrt(1.0 - CORRELATION) * own
    lead = 1.0 + rng.integers(0, 5, size)
    position = np.argsort(rng.random(size), axis=1)  # of each dimension in its call
    bound, turned, copied, tired = (
        rng.random(size) < share
        for share in (
            faults.leans,
            faults.hangs_on_words,
            faults.carries_over,
            faults.tires * position,
        )
    )
    tables = []
    for (protocol, repeat), order in product(CALLS, ("ab", "ba")):
        together = protocol != "heart-single"
        answer = np.where(bound, 0 if order == "ab" else 1, (worth < 0).astype(int))
        if protocol == "heart-reworded":
            answer = np.where(turned, 1 - answer, answer)
        if together:
            first = np.take_along_axis(answer, np.argmin(position, axis=1)[:, None], axis=1)
            answer = np.where(copied, first, answer)
            answer = np.where(tired, TIE, answer)
        answer = np.where(rng.random(size) < faults.forgets, rng.integers(0, 2, size), answer)
        margin = np.where(
            rng.random(size) < faults.boasts, LARGEST, np.where(bound, SMALLEST, lead)
        )
        tables.append(
            _lay_out(
                answer,
                margin,
                position if together else np.zeros_like(position),
                protocol,
                repeat,
                order,
            )
        )
    return pd.concat(tables, ignore_index=True)


def recover_faults(
    *, rng: np.random.Generator, n_resamples: int = 1000, ci_level: float = 0.95, n_pairs: int = 280
) -> pd.DataFrame:
    """Measure judges with one known fault each, and compare what is found with what was planted.

    Parameters
    ----------
    rng, n_resamples, ci_level
        As in :func:`~heart_utils.ratings.resampling.bootstrap_ci`.
    n_pairs
        Number of pairs of each judge.

    Returns
    -------
    pandas.DataFrame
        By judge and ``measure`` its ``fault`` moves: ``planted``, ``found`` with its interval.

    Examples
    --------
    >>> found = recover_faults(rng=np.random.default_rng(1), n_pairs=40, n_resamples=20)
    >>> found.set_index("fault")["planted"].round(2)["forgets"].item()  # the same answer again
    0.82
    """
    resampling = {"rng": rng, "n_resamples": n_resamples, "ci_level": ci_level}
    rows = []
    for name, faults in PLANTED:
        drawn = simulate_judge(faults, rng=rng, n_pairs=n_pairs)
        measured = _measure(name, drawn, faults, resampling)
        rows += [
            (name, measure, planted, *estimated, ci_level, True)
            for measure, planted, estimated in measured
        ]
    return pd.DataFrame(
        rows,
        columns=[
            "fault",
            "measure",
            "planted",
            "found",
            "ci_low",
            "ci_high",
            "ci_level",
            "simulated",
        ],
    )


def _lay_out(
    answer: NDArray[np.int_],
    margin: NDArray[np.float64],
    position: NDArray[np.intp],
    protocol: str,
    repeat: int,
    order: str,
) -> pd.DataFrame:
    pair = np.repeat([f"p{number:05d}" for number in range(len(answer))], len(DIMENSIONS))
    return pd.DataFrame(
        {
            "pair_id": pair,
            "dialogue_id": pair,
            "rater": "judge",
            "dimension": np.tile(DIMENSIONS, len(answer)),
            "dimension_position": position.ravel(),
            "verdict": WORD[answer.ravel()],
            "state": "valid",
            "order": order,
            "margin": np.where(answer.ravel() == TIE, np.nan, margin.ravel()),
            "protocol": protocol,
            "repeat": repeat,
            "simulated": True,
        }
    )


def _measure(
    name: str, drawn: pd.DataFrame, faults: Faults, resampling: dict[str, Any]
) -> Iterator[tuple[str, float, Any]]:
    one = drawn[drawn["dimension"] == DIMENSIONS[0]]
    alone = one[one["protocol"] == "heart-single"]
    if name == "forgets":
        repeated = compare_answers(one[one["protocol"] == "heart"], by="repeat", **resampling).iloc[
            0
        ]
        kept = (1.0 - faults.forgets) ** 2
        yield (
            "the same answer when asked once more",
            kept + (1.0 - kept) / 2.0,
            repeated[["same_share", *ENDS]],
        )
    elif name == "hangs on words":
        pair_rows = one[one["protocol"].isin(["heart", "heart-reworded"])]
        repeated = compare_answers(pair_rows, by="protocol", **resampling).iloc[0]
        yield (
            "the same answer in other words",
            1.0 - faults.hangs_on_words,
            repeated[["same_share", *ENDS]],
        )
    elif name == "leans":
        shares = position_bias(alone, **resampling).set_index("measure")[["value", *ENDS]]
        yield "wins of the reply shown first", 0.5 + faults.leans / 2.0, shares.loc["first_share"]
        yield (
            "pairs contradicted in the other order",
            faults.leans,
            shares.loc["inconsistent_share"],
        )
    elif name == "boasts":
        by_pair = alone.groupby("pair_id", as_index=False).agg(
            margin=("margin", "mean"), n_said=("verdict", "nunique")
        )
        sums = pd.DataFrame({"yes": by_pair["n_said"] == 1, "no": by_pair["n_said"] == 2}).astype(
            float
        )
        sums[["yes_sum", "no_sum"]] = sums.mul(by_pair["margin"], axis=0)
        gap = bootstrap_ci(
            sums,
            lambda s: s["yes_sum"] / s["yes"] - s["no_sum"] / s["no"],
            cluster=by_pair["pair_id"],
            **resampling,
        )
        # leads from 1 to 5 are as frequent as each other
        by_hand = (3.0 - SMALLEST) * (1.0 - faults.boasts)
        yield "margin where its orders agree, minus where they do not", by_hand, _ends(gap)
    elif name == "carries over":
        by_chance = 0.5 + np.arcsin(CORRELATION) / np.pi  # two normals correlated so have one sign
        share = faults.carries_over  # of three dimensions, two pairs hold the first
        together = by_chance + (1 - by_chance) * (2.0 * share + share**2) / 3.0
        joined = combine_orders(drawn[drawn["repeat"] == 0])
        answers = joined.assign(
            said=joined["verdict"].where(joined["state"] == "valid", "inconsistent")
        )
        overlap = {}
        for protocol, wide in answers.pivot_table(
            "said", ["protocol", "pair_id"], "dimension", "first"
        ).groupby("protocol"):
            same = np.sum(
                [wide[one] == wide[other] for one, other in combinations(DIMENSIONS, 2)], axis=0
            )
            overlap[protocol] = _ends(
                share_ci(
                    same, len(DIMENSIONS), cluster=wide.index.to_frame()["pair_id"], **resampling
                )
            )
        yield "two dimensions alike, one a call", by_chance, overlap["heart-single"]
        yield "two dimensions alike, all in one call", together, overlap["heart"]
    else:
        last = drawn[
            (drawn["protocol"] == "heart") & (drawn["dimension_position"] == len(DIMENSIONS) - 1)
        ]
        ties = share_ci(last["verdict"].eq("tie"), 1, cluster=last["dialogue_id"], **resampling)
        planted = faults.tires * (len(DIMENSIONS) - 1)
        yield "ties on the dimension asked last", planted, _ends(ties)


def _ends(interval: Interval) -> tuple[float, float, float]:
    return interval.estimate, interval.ci_low, interval.ci_high
