"""Which votes to ask people for: designs that ask for a part of them.

They are evaluated on published votes or with known truth.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from scipy.optimize import brentq
from scipy.special import expit

from heart_utils.agreement.prediction_powered import PoweredRatings, prediction_powered_ratings
from heart_utils.ratings.verdicts import Array
from heart_utils.simulate.coverage import label_some
from heart_utils.simulate.study import Panel, simulate_study

__all__ = ["compare_designs", "simulate_designs"]

# of all votes, what a design asks for; and of these, what the first of two waves does
SHARE, FIRST = 0.5, 0.75
CELL = ["dialogue_id", "responder_a", "responder_b"]
# chance, in the second wave, of a pair of a dialogue that nobody was asked about in the first:
# never below
LEAST = 0.2


def ask_for_votes(
    verdicts: pd.DataFrame, n_votes: float, *, first: float = 1.0, rng: np.random.Generator
) -> pd.DataFrame:
    """Keep about so many of people's votes, spread evenly, and all of the judges'.

    They are spread over all dialogues and pairs.

    After a share `first` of them a second wave asks where differences are still open.
    ``stands_for`` is one over the known chance of having been asked, over the votes there; with two
    waves their mean, by weights fixed beforehand.
    """
    people, judges = (
        verdicts[(verdicts["rater_kind"] == "human") == human] for human in (True, False)
    )
    # any vote on a cell is as likely as any other to be the first
    people = people.iloc[rng.permutation(len(people))]
    by_cell = people.groupby(CELL, sort=False)
    cells = by_cell.size().rename("most").reset_index()
    cell, vote_number, most = (
        by_cell.ngroup().to_numpy(),
        by_cell.cumcount().to_numpy(),
        cells["most"].to_numpy(float),
    )

    def ask(expected: Array) -> Array:
        return np.asarray(np.floor(expected) + (rng.random(len(expected)) < expected % 1.0))

    def rows(votes: Array, counts: Array) -> pd.DataFrame:
        sampled = vote_number < votes[cell]
        return pd.concat(
            [
                people[sampled].assign(stands_for=(counts / np.maximum(votes, 1.0))[cell[sampled]]),
                judges,
            ]
        )

    even = np.ones(len(cells))
    expected = _spread(even, first * n_votes, 0.0 * even, most)
    chance, votes = np.minimum(expected, 1.0), ask(expected)
    if first == 1.0:
        return rows(votes, 1.0 / chance)
    so_far = prediction_powered_ratings(rows(votes, 1.0 / chance), stands_for="stands_for")
    worth, early = _worth_of_pairs(so_far), votes > 0
    places = (worth.index.get_indexer(pd.Index(cells[side])) for side in CELL[1:])
    expected = _spread(
        worth.to_numpy()[tuple(places)], n_votes, np.where(early, votes, LEAST), most
    )
    before, after = chance.mean(), _spread(even, n_votes, 0.0 * even, most).clip(max=1.0).mean()
    # best where chances are even
    second = (after - before) / (1.0 - before) / after if before < 1.0 else 1.0
    counts = np.where(early, (1.0 - second) / chance + second, second / np.minimum(expected, 1.0))
    return rows(ask(expected), counts)


def _spread(worth: Array, n: float, low: Array, most: Array) -> Array:
    """Share out n expected votes by worth, each within its bounds."""
    n, worth = (
        float(np.clip(n, low.sum(), most.sum())),
        worth + 1e-6 * max(float(worth.max()), 1e-6),
    )
    top = float((most / worth).max()) + 1.0
    scale = brentq(lambda scale: float(np.clip(scale * worth, low, most).sum()) - n, 0.0, top)
    return np.asarray(np.clip(scale * worth, low, most))


def _worth_of_pairs(estimate: PoweredRatings) -> pd.DataFrame:
    """Compute how far votes on each pair change the differences that are still open.

    It is the root of the summed squares.
    """
    ranks = estimate.ranks()
    low, high, theta = (
        ranks["rank_low"].to_numpy(),
        ranks["rank_high"].to_numpy(),
        estimate.table["strength"].to_numpy(),
    )
    chance = expit(theta[:, None] - theta)
    information = chance * (1.0 - chance) * (1.0 - np.eye(len(theta)))
    moves = np.linalg.pinv(np.diag(information.sum(axis=1)) - information)
    one, other = np.nonzero(np.triu((low[:, None] <= high) & (low <= high[:, None]), 1))
    gaps = moves[one] - moves[other]
    worth = np.sqrt(((gaps[:, :, None] - gaps[:, None, :]) ** 2).sum(axis=0))
    return pd.DataFrame(worth, ranks["responder"], ranks["responder"])


def compare_designs(
    verdicts: pd.DataFrame,
    *,
    sizes: Sequence[int] = (),
    truth: pd.Series | None = None,
    rng: np.random.Generator,
) -> pd.DataFrame:
    """Ask for half of people's votes in several ways, and tell what each way knows of the ranks.

    Parameters
    ----------
    verdicts
        Verdicts of people and a judge.
    sizes : sequence of int
        For further designs: all votes on so many random dialogues.
    truth
        Strengths by responder, if known.
    rng
        The source of chance.

    Returns
    -------
    pandas.DataFrame
        One row a design, from people alone and with the judge: ``votes`` (share asked for),
        ``apart`` (pairs told apart), ``range`` (mean ranks in a range), ``width`` (of intervals),
        ``saving``, ``most_saving``; where the truth is known, ``covered`` (share of strengths),
        ``false`` (whether a range is wrong), ``error`` (sum of squares).

    Examples
    --------
    >>> from heart_utils.simulate.study import simulate_study
    >>> votes = simulate_study(
    ...     rng=np.random.default_rng(1), strengths=3, n_dialogues=60, pairs="all"
    ... ).verdicts
    >>> compare_designs(votes, rng=np.random.default_rng(1))["design"].unique().tolist()
    ['all votes', 'half of the dialogues', 'every dialogue', 'every dialogue, two waves']
    """
    people = verdicts["rater_kind"] == "human"
    dialogues, n_votes = verdicts.loc[people, "dialogue_id"].nunique(), int(people.sum())
    designs = {
        "all votes": verdicts,
        "half of the dialogues": label_some(verdicts, round(SHARE * dialogues), rng),
    }
    designs["every dialogue"] = ask_for_votes(verdicts, SHARE * n_votes, rng=rng)
    designs["every dialogue, two waves"] = ask_for_votes(
        verdicts, SHARE * n_votes, first=FIRST, rng=rng
    )
    designs |= {f"{n} dialogues": label_some(verdicts, n, rng) for n in sizes}
    rows = []
    for design, sampled in designs.items():
        stands_for = "stands_for" if "stands_for" in sampled else None
        # nothing is left to the judge, or it is not asked
        weight = 0.0 if sampled is verdicts else None
        estimate = prediction_powered_ratings(
            sampled, rater="rater", stands_for=stands_for, weight=weight
        )
        row = {"design": design, "votes": (sampled["rater_kind"] == "human").sum() / n_votes}
        rows += [row | {"judge": judge} | _known(estimate, judge, truth) for judge in (False, True)]
    return pd.DataFrame(rows)


def _known(estimate: PoweredRatings, judge: bool, truth: pd.Series | None) -> dict[str, float]:
    """Measure what one estimate knows, and where the truth is known, whether that is right."""
    ranks, table = estimate.ranks(judge=judge), estimate.table
    low, high = (table[f"{'ci' if judge else 'people'}_{end}"] for end in ("low", "high"))
    row = {
        "apart": float((ranks["rank_low"] - 1).sum()),
        "range": float((ranks["rank_high"] - ranks["rank_low"] + 1).mean()),
    }
    row |= {
        "width": float((high - low).mean()),
        "saving": estimate.saving,
        "most_saving": estimate.most_saving,
    }
    if truth is None:
        return row
    true = table["responder"].map(truth).to_numpy()
    ahead = (true > true[:, None] + 1e-9).sum(axis=1)
    behind = (true < true[:, None] - 1e-9).sum(axis=1)
    wrong = (ranks["rank_low"] > 1 + ahead) | (ranks["rank_high"] < len(true) - behind)
    error = ((table["strength" if judge else "people_strength"] - true) ** 2).sum()
    return row | {
        "covered": float(((low <= true) & (true <= high)).mean()),
        "false": float(wrong.any()),
        "error": float(error),
    }


def simulate_designs(
    strengths: Mapping[str, float],
    *,
    n_studies: int,
    rng: np.random.Generator,
    people: Panel,
    judge: Panel,
    sizes: Sequence[int] = (),
    **design: Any,
) -> pd.DataFrame:
    """Compare designs in studies with known truth.

    Parameters
    ----------
    strengths
        Responder -> strength.
    n_studies
        How many studies are drawn.
    rng
        As in :func:`compare_designs`.
    people
        The people who judge; all of their votes are the full design.
    judge
        The judge.
    sizes
        As in :func:`compare_designs`.
    **design
        Options of :func:`heart_utils.simulate.study.simulate_study`.

    Returns
    -------
    pandas.DataFrame
        As :func:`compare_designs` gives, with ``study``.

    Examples
    --------
    >>> from heart_utils.simulate.study import Panel
    >>> how = {"n_dialogues": 40, "people": Panel("human", 30, 2), "judge": Panel("model", 1, 1)}
    >>> simulate_designs(
    ...     {"x": 0.5, "y": 0.0, "z": -0.5}, n_studies=2, rng=np.random.default_rng(1), **how
    ... )["study"].nunique()
    2
    """
    rows = []
    for study in range(n_studies):
        drawn = simulate_study(
            rng=rng, strengths=strengths, panels=(people, judge), **{"pairs": "all"} | design
        )
        truth = drawn.truth.query("rater_kind == 'human'").set_index("responder")["marginal"]
        rows.append(
            compare_designs(drawn.verdicts, sizes=sizes, truth=truth, rng=rng).assign(study=study)
        )
    return pd.concat(rows, ignore_index=True)
