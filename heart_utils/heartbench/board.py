"""From scored questions to a board: means over abilities, questions or items, and how sure they are."""

from __future__ import annotations

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from heart_utils.heartbench.formula import STRATA, RubricError
from heart_utils.ratings.resampling import ENOUGH_CLUSTERS, as_rng, check_resamples, interval_ends

__all__ = ["ability_variance", "rubric_board"]

LEAST, MOST = 0.0, 100.0
"""The range of a score."""

MEANS = ("ability", "question", "item")


def rubric_board(
    cells: pd.DataFrame,
    *,
    mean: str = "ability",
    n_resamples: int = 1000,
    ci_level: float = 0.95,
    rng: np.random.Generator | None = None,
) -> pd.DataFrame:
    """Average scores into a board, with an interval over questions like these.

    Questions are resampled within difficulty and scene, where the table has these columns; all
    responders meet the same questions in a replicate. The interval speaks of other questions
    drawn alike; replies and the judge's answers are taken as they are.

    Parameters
    ----------
    cells : pandas.DataFrame
        What :func:`score_rubric` or :func:`score_points` gives.
    mean : str
        How abilities and questions weigh in ``overall``: ``"ability"`` (each ability the same, as
        released), ``"question"`` (each question the same, its abilities averaged first) or
        ``"item"`` (each ability of a question by its number of items).
    n_resamples : int
        Bootstrap replicates; 0 for none, and no intervals.
    ci_level : float
        Of the intervals (``interval_ends``).
    rng : numpy.random.Generator, optional
        The source of chance; by default one with a fixed seed.

    Returns
    -------
    pandas.DataFrame
        One row per rater, responder and ability, and one with the ability ``"overall"``:
        ``score``, ``ci_low``, ``ci_high``, ``ci_level``, ``n_questions`` that entered, ``n_unscored``
        ability cells that could not, ``n_vetoed`` and ``provisional`` (fewer than 30 questions). Best overall first.

    Raises
    ------
    RubricError
        If nothing was scored, or `mean` is not known.

    Examples
    --------
    >>> cells = pd.DataFrame({"rater": "judge", "responder": "r", "question_id": ["p", "q", "q"], "n_items": 1,
    ...     "ability": ["warmth", "warmth", "humor"], "state": "valid", "score": [100.0, 50.0, 15.0]})
    >>> rubric_board(cells, n_resamples=0).set_index("ability")["score"].to_dict()  # 45 = (75 + 15) / 2
    {'overall': 45.0, 'humor': 15.0, 'warmth': 75.0}
    """
    keys, abilities, estimate = _replicates(cells, mean, 0, None)
    low = high = np.full_like(estimate[0], np.nan)
    if n_resamples:
        replicates = _replicates(cells, mean, n_resamples, rng)[2]
        low, high = _ends(cells, keys, abilities, estimate[0], replicates, ci_level)
    board = pd.DataFrame(
        {
            "rater": np.repeat([key[0] for key in keys], len(abilities)),
            "responder": np.repeat([key[1] for key in keys], len(abilities)),
            "ability": np.tile(abilities, len(keys)),
            "score": estimate[0].ravel(),
            "ci_low": low.ravel(),
            "ci_high": high.ravel(),
            "ci_level": ci_level if n_resamples else np.nan,
        }
    )
    board = board.merge(_counts(cells), on=["rater", "responder", "ability"], how="left")
    board["provisional"] = board["n_questions"] < ENOUGH_CLUSTERS
    overall = board[board["ability"] == "overall"].set_index(["rater", "responder"])["score"]
    board["_overall"] = overall.reindex(pd.MultiIndex.from_frame(board[["rater", "responder"]])).to_numpy()
    board["_first"] = board["ability"] != "overall"
    board = board.sort_values(
        ["rater", "_overall", "responder", "_first", "ability"], ascending=[True, False, True, True, True]
    )
    return board.drop(columns=["_overall", "_first"]).reset_index(drop=True)


def ability_variance(cells: pd.DataFrame, *, n_resamples: int = 1000, rng: np.random.Generator) -> pd.DataFrame:
    """Tell how much of the uncertainty of the overall score each ability brings.

    The overall score is the plain mean of the abilities, so its variance over resampled questions
    is the mean of their covariances with it; each ability's share is its own covariance over the
    sum. Abilities that few questions have weigh as much as the others and vary more.

    Parameters
    ----------
    cells : pandas.DataFrame
        What :func:`score_rubric` gives.
    n_resamples : int
        Bootstrap replicates of the questions.
    rng : numpy.random.Generator
        Draws them.

    Returns
    -------
    pandas.DataFrame
        One row per rater, responder and ability: ``n_questions``, ``sd`` (points) and ``share``;
        shares of a responder add up to 1. Largest mean share first.

    Examples
    --------
    >>> cells = pd.DataFrame({"rater": "judge", "responder": "r", "question_id": list("abcd") * 2, "n_items": 1,
    ...     "ability": ["warmth"] * 4 + ["humor"] * 4, "state": "valid", "score": [50.0] * 4 + [0, 100, 0, 100]})
    >>> ability_variance(cells, rng=np.random.default_rng(1))[["ability", "share"]].values.tolist()
    [['humor', 1.0], ['warmth', 0.0]]
    """
    keys, abilities, replicates = _replicates(cells, "ability", n_resamples, rng)
    centred = replicates - _mean(replicates)
    covariance = _mean(centred * centred[:, :, :1])[:, 1:]
    total = covariance.sum(axis=1, keepdims=True)
    share = np.divide(covariance, total, out=np.full_like(covariance, np.nan), where=total > 0)
    table = pd.DataFrame(
        {
            "rater": np.repeat([key[0] for key in keys], len(abilities) - 1),
            "responder": np.repeat([key[1] for key in keys], len(abilities) - 1),
            "ability": np.tile(abilities[1:], len(keys)),
            "sd": np.sqrt(_mean(centred**2))[:, 1:].ravel(),
            "share": share.ravel(),
        }
    )
    table = table.merge(_counts(cells)[["rater", "responder", "ability", "n_questions"]], how="left")
    order = table.groupby("ability")["share"].mean().sort_values(ascending=False)
    table["ability"] = pd.Categorical(table["ability"], order.index)
    table = table.sort_values(["rater", "responder", "ability"], ignore_index=True)
    table["ability"] = table["ability"].astype(str)
    return table[["rater", "responder", "ability", "n_questions", "sd", "share"]]


def _replicates(
    cells: pd.DataFrame, mean: str, n_resamples: int, rng: np.random.Generator | None
) -> tuple[list[tuple[str, str]], list[str], NDArray[np.float64]]:
    """Average each ability and all of them, in every replicate; with no resamples, once over all questions.

    The last array is indexed by replicate, rater and responder, and ability, the overall first.
    """
    if mean not in MEANS:
        raise RubricError(f"mean={mean!r} is not known; expected one of {', '.join(MEANS)}.")
    valid = cells[cells["state"] == "valid"]
    if valid.empty:
        states = ", ".join(f"{count} {state}" for state, count in cells["state"].value_counts().items())
        raise RubricError(f"No question was scored ({states or 'no rows'}); nothing can be averaged.")
    key, keys = pd.factorize(pd.MultiIndex.from_frame(cells[["rater", "responder"]]), sort=True)
    ability, abilities = pd.factorize(cells["ability"], sort=True)
    question, questions = pd.factorize(cells["question_id"], sort=True)
    draws = _draws(cells, question, len(questions), n_resamples, rng)
    good = (cells["state"] == "valid").to_numpy()
    shape = (len(questions), len(keys), len(abilities))
    score, present, items = np.zeros(shape), np.zeros(shape), np.zeros(shape)
    place = (question[good], key[good], ability[good])
    score[place], present[place], items[place] = cells["score"][good], 1.0, cells["n_items"][good]
    by_ability = _weighted(draws, score, present)
    if mean == "ability":
        there = ~np.isnan(by_ability)
        overall = _ratio(np.nansum(by_ability, axis=2), there.sum(axis=2).astype(float))
    elif mean == "question":
        n = present.sum(axis=2)
        own = np.nan_to_num(_ratio(score.sum(axis=2), n))
        overall = _weighted(draws, own, (n > 0).astype(float))
    else:
        overall = _weighted(draws, (score * items).sum(axis=2), items.sum(axis=2), multiply=False)
    everything = np.concatenate([overall[:, :, None], by_ability], axis=2)
    return list(keys), ["overall", *abilities], everything


def _draws(
    cells: pd.DataFrame, question: NDArray[np.int64], size: int, n_resamples: int, rng: np.random.Generator | None
) -> NDArray[np.float64]:
    """Draw how often each question counts, within difficulty and scene; all once where nothing is resampled."""
    if not n_resamples:
        return np.ones((1, size))
    check_resamples(n_resamples)
    rng = as_rng(rng)
    strata = [column for column in STRATA if column in cells]
    first = np.unique(question, return_index=True)[1]
    stratum = pd.factorize(pd.MultiIndex.from_frame(cells.iloc[first][strata].fillna("")))[0] if strata else np.zeros(size, int)
    draws = np.zeros((n_resamples, size))
    for number in np.unique(stratum):
        members = np.flatnonzero(stratum == number)
        draws[:, members] = rng.multinomial(len(members), np.full(len(members), 1 / len(members)), size=n_resamples)
    return draws


def _weighted(
    draws: NDArray[np.float64], score: NDArray[np.float64], weight: NDArray[np.float64], *, multiply: bool = True
) -> NDArray[np.float64]:
    """Average over questions in each replicate; a replicate that drew none of them has no value."""
    flat = (len(score), -1)
    top = draws @ (score * weight if multiply else score).reshape(flat)
    bottom = draws @ weight.reshape(flat)
    return _ratio(top, bottom).reshape(len(draws), *score.shape[1:])


def _ratio(top: NDArray[np.float64], bottom: NDArray[np.float64]) -> NDArray[np.float64]:
    """Divide, and leave what was divided by nothing missing."""
    return np.divide(top, bottom, out=np.full_like(top, np.nan), where=bottom > 0)


def _mean(replicates: NDArray[np.float64]) -> NDArray[np.float64]:
    """Average over the replicates that have a value."""
    return _ratio(np.nansum(replicates, axis=0), (~np.isnan(replicates)).sum(axis=0).astype(float))


def _ends(
    cells: pd.DataFrame,
    keys: list[tuple[str, str]],
    abilities: list[str],
    estimate: NDArray[np.float64],
    replicates: NDArray[np.float64],
    ci_level: float,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Put intervals on scores from 0 to 100, with as many clusters as questions entered."""
    counts = _counts(cells).set_index(["rater", "responder", "ability"])["n_questions"]
    n = np.array([[counts.get((*key, ability), 0) for ability in abilities] for key in keys])
    flat = replicates.reshape(len(replicates), -1)
    low, high = interval_ends(estimate.ravel(), flat, n.ravel(), ci_level, least=LEAST, most=MOST)
    return low.reshape(estimate.shape), high.reshape(estimate.shape)


def _counts(cells: pd.DataFrame) -> pd.DataFrame:
    """Count questions that entered and cells that could not, by ability and over all."""
    keys = ["rater", "responder", "ability"]
    table = cells.assign(scored=cells["state"] == "valid", vetoed=cells.get("vetoed", False))
    table["n_unscored"] = ~table["scored"]
    counted = table.rename(columns={"scored": "n_questions", "vetoed": "n_vetoed"})
    counts = ["n_questions", "n_unscored", "n_vetoed"]
    by_ability = counted.groupby(keys)[counts].sum().reset_index()
    by_question = counted.groupby(["rater", "responder", "question_id"])[counts].agg(
        {"n_questions": "any", "n_unscored": "sum", "n_vetoed": "any"}
    )
    overall = by_question.groupby(["rater", "responder"]).sum().reset_index().assign(ability="overall")
    both = pd.concat([by_ability, overall], ignore_index=True)
    return both[[*keys, *counts]].astype(dict.fromkeys(counts, int))
