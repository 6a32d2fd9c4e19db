"""HeartBench scores from item-wise hits, and the leaderboard of their means.

A score follows the published formula, with a veto, or a plainer rule.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from heart_utils.ratings.resampling import (
    ENOUGH_CLUSTERS,
    Rng,
    as_rng,
    check_resamples,
    interval_ends,
    ratio,
)
from heart_utils.ratings.verdicts import Array
from heart_utils.tables import need_columns

__all__ = ["RubricError", "ability_variance", "rubric_board", "score_rubric", "simulate_hits"]

SPECIAL = "special"
MEANS = ("ability", "question", "item")
VETOES = ("paper", "released")
STRATA = ("difficulty", "scene")
QUESTION = ["rater", "responder", "question_id"]


class RubricError(ValueError):
    """A rubric, or a list of hits against it, does not hold what the formula needs."""


def score_rubric(
    questions: pd.DataFrame, hits: pd.DataFrame, *, veto: str = "paper"
) -> pd.DataFrame:
    r"""Score every ability of every question, from 0 to 100, by HeartBench's formula.

    With :math:`r` the points of the items hit, :math:`l` the sum of the negative and :math:`h` of
    the positive points of one ability in one question, the score is
    :math:`100 \ln(r - l + 1) / \ln(h - l + 1)` [1]_. Hitting nothing is therefore worth more than
    nothing wherever an ability has penalties, and all of 100 where it has only penalties.

    Parameters
    ----------
    questions : pandas.DataFrame
        One row per rubric item: ``question_id``, ``item`` (unique), ``ability`` and ``points``,
        which only the veto item, whose ability is ``"special"``, may lack. Columns ``difficulty``
        and ``scene`` are carried along.
    hits : pandas.DataFrame
        Rows of the table ``scores``, one per responder, rater and item, with ``score`` 1 for a hit
        and 0 for none. A question that was answered has all its items; failures keep their rows,
        with a state and no score.
    veto : str
        ``"paper"``: a hit on the veto item makes the whole question 0. ``"released"``: only if that
        item has positive points, which no item in the data has.

    Returns
    -------
    pandas.DataFrame
        One row per rater, responder, question and ability: ``score``, ``raw``, ``lowest`` and
        ``highest`` (points), ``n_items``, ``vetoed`` and ``state``. Where an item, or with the
        paper's rule the veto item, has no valid answer, the score is missing.

    Raises
    ------
    RubricError
        If a question has no positive item, an item has 0 points, or hits are not 0 or 1 or not one
        for each item.

    References
    ----------
    .. [1] Liu et al. (2025), https://arxiv.org/abs/2512.21849, and its release at 6c79c080.

    Examples
    --------
    >>> questions = pd.DataFrame(
    ...     {"question_id": "q", "item": ["q-1", "q-2"], "ability": "warmth", "points": [3, -4]}
    ... )
    >>> hits = pd.DataFrame(
    ...     {
    ...         "responder": "quiet",
    ...         "rater": "judge",
    ...         "item": ["q-1", "q-2"],
    ...         "score": 0,
    ...         "state": "valid",
    ...     }
    ... )
    >>> float(score_rubric(questions, hits)["score"].round(1)[0])  # ln 5 / ln 8: no hit at all
    77.4
    """
    if veto not in VETOES:
        raise RubricError(f"veto={veto!r} is not known; expected one of {', '.join(VETOES)}.")
    rows = _items_judged(questions, hits)
    cells = _ability_sums(rows[rows["ability"] != SPECIAL])
    fires = rows[rows["ability"].eq(SPECIAL) & (rows["points"].gt(0) | (veto == "paper"))].groupby(
        QUESTION
    )
    vetoes = pd.DataFrame(
        {"vetoed": fires["hit"].any(), "veto_state": fires["failure"].first().fillna("valid")}
    )
    cells = cells.merge(vetoes.reset_index(), on=QUESTION, how="left")
    cells["vetoed"] = cells["vetoed"].eq(True)
    unsure = cells["veto_state"].notna() & cells["veto_state"].ne("valid") & ~cells["vetoed"]
    cells["state"] = cells["state"].mask(unsure & cells["state"].eq("valid"), cells["veto_state"])
    cells["state"] = cells["state"].mask(cells["vetoed"], "valid")
    room = cells["highest"] - cells["lowest"]
    earned = 100 * np.log1p((cells["raw"] - cells["lowest"]).to_numpy()) / np.log1p(room.to_numpy())
    cells["score"] = np.where(cells["vetoed"], 0.0, earned)
    cells[["raw", "score"]] = cells[["raw", "score"]].where(cells["state"] == "valid")
    columns = [
        *QUESTION,
        "ability",
        *_strata(rows),
        "n_items",
        "raw",
        "lowest",
        "highest",
        "vetoed",
        "state",
        "score",
    ]
    return cells[columns]


def simulate_hits(
    questions: pd.DataFrame, skills: Mapping[str, float], *, rng: np.random.Generator
) -> pd.DataFrame:
    """Draw hits for responders of known skill.

    A bonus is hit with log-odds skill minus difficulty, a penalty with minus skill minus
    difficulty; difficulties are normal with spread 1, and veto items never hit.

    Parameters
    ----------
    questions
        As in :func:`score_rubric`.
    skills
        Responder -> skill in log-odds.
    rng
        Draws difficulties and hits.

    Returns
    -------
    pandas.DataFrame
        `hits` for :func:`score_rubric`, by the rater ``simulated judge``, with a column
        ``simulated``.

    Examples
    --------
    >>> questions = pd.DataFrame(
    ...     {"question_id": "q", "item": ["q-1", "q-2"], "ability": "warmth", "points": [3, -4]}
    ... )
    >>> simulate_hits(questions, {"saint": 99.0}, rng=np.random.default_rng(1))["score"].tolist()
    [1.0, 0.0]
    """
    rubric = _check_questions(questions)
    hardness = rng.normal(size=len(rubric))
    direction = np.sign(rubric["points"].fillna(0).to_numpy())
    special = rubric["ability"].eq(SPECIAL).to_numpy()
    log_odds = np.array(list(skills.values()))[:, None] * direction - hardness
    chance = np.where(special, 0.0, 1 / (1 + np.exp(-np.clip(log_odds, -50, 50))))
    drawn = rng.random(chance.shape) < chance
    hits = pd.DataFrame(
        {"responder": np.repeat(list(skills), len(rubric)), "rater": "simulated judge"}
    )
    items, score = np.tile(rubric["item"].to_numpy(), len(skills)), drawn.ravel().astype(float)
    return hits.assign(item=items, score=score, state="valid", simulated=True)


def _check_questions(questions: pd.DataFrame) -> pd.DataFrame:
    need_columns(questions, ["question_id", "item", "ability", "points"], RubricError)
    rubric = questions.reset_index(drop=True)
    points, scored = pd.to_numeric(rubric["points"], errors="coerce"), rubric["ability"] != SPECIAL
    wrong = rubric["points"].notna() & points.isna() | scored & ~points.abs().gt(0)
    if wrong.any():
        row = rubric[wrong].iloc[0]
        raise RubricError(
            f"questions.points: item {row['item']!r} has {row['points']}, expected a number above 0"
            " for a bonus or below 0 for a penalty. Give it points, or drop it: it can change no"
            " score."
        )
    rubric["points"] = points
    twice = rubric["item"].duplicated()
    if twice.any():
        raise RubricError(
            f"questions.item: {rubric.loc[twice, 'item'].iloc[0]!r} stands for two items; expected"
            " each once."
        )
    best = rubric["points"].where(scored, -np.inf).groupby(rubric["question_id"]).max()
    hopeless = best[~(best > 0)]
    if len(hopeless):
        raise RubricError(
            f"question {hopeless.index[0]!r} has no positive item ({len(hopeless)} such), so a"
            " reply can only lose there. Add what a good reply does, or drop the question."
        )
    return rubric


def _items_judged(questions: pd.DataFrame, hits: pd.DataFrame) -> pd.DataFrame:
    """Join each hit with its item, ordered by rater, responder and item, and check the hits."""
    rubric = _check_questions(questions)
    need_columns(hits, ["responder", "rater", "item", "score", "state"], RubricError)
    if hits.empty:
        raise RubricError("hits: no row; expected one per responder, rater and item.")
    item_position = pd.Index(rubric["item"]).get_indexer(hits["item"])
    if (item_position < 0).any():
        raise RubricError(
            f"hits.item: {hits['item'].to_numpy()[item_position < 0][0]!r} is no item of these"
            " questions."
        )
    score = pd.to_numeric(hits["score"], errors="coerce").to_numpy(dtype=float)
    valid = hits["state"].to_numpy() == "valid"
    wrong = valid & ~np.isin(score, (0.0, 1.0))
    if wrong.any():
        row = int(np.flatnonzero(wrong)[0])
        raise RubricError(
            f"hits.score: expected 0 or 1 where the state is valid; row {row} (item"
            f" {hits['item'].iloc[row]!r}) has {hits['score'].iloc[row]}. What could not be judged"
            " needs a state that says so, such as 'abstained'."
        )
    rows = rubric.iloc[item_position].assign(
        rater=hits["rater"].to_numpy(), responder=hits["responder"].to_numpy()
    )
    rows = rows.assign(
        hit=valid & (score == 1),
        failure=hits["state"].where(~valid).to_numpy(dtype=object),
        place=item_position,
    )
    rows = pd.DataFrame(rows.sort_values(["rater", "responder", "place"], ignore_index=True))
    given = (
        rows.assign(new=~rows.duplicated(["rater", "responder", "item"]))
        .groupby(QUESTION)["new"]
        .agg(["size", "sum"])
    )
    size = (
        rubric.groupby("question_id")
        .size()
        .reindex(given.index.get_level_values("question_id"))
        .to_numpy()
    )
    bad = given[given.ne(size, axis=0).any(axis=1)]
    if len(bad):
        rater, responder, question = bad.index[0]
        n, different = bad.iloc[0]
        raise RubricError(
            f"hits: {responder!r} judged by {rater!r} has {n} hits of {different} items for"
            f" question {question!r}; expected one for each of its"
            f" {(rubric['question_id'] == question).sum()}. Ask the judge again, or keep the items"
            " with the state 'unparsed'; give repeated judgements names of their own in `rater`."
        )
    return rows


def _ability_sums(rows: pd.DataFrame) -> pd.DataFrame:
    """Sum points by question and ability for each rater and responder.

    The state is that of the first item that failed.
    """
    points = rows["points"].astype(float)
    parts = rows.assign(
        raw=points * rows["hit"], lowest=points.clip(upper=0), highest=points.clip(lower=0)
    )
    cells = parts.groupby([*QUESTION, "ability", *_strata(rows)], sort=False, dropna=False)
    sums = (
        cells[["raw", "lowest", "highest"]]
        .sum()
        .assign(n_items=cells.size(), state=cells["failure"].first())
    )
    ability_rows: pd.DataFrame = sums.assign(state=sums["state"].fillna("valid")).reset_index()
    return ability_rows


def _strata(rows: pd.DataFrame) -> list[str]:
    return [column for column in STRATA if column in rows]


def rubric_board(
    cells: pd.DataFrame,
    *,
    mean: str = "ability",
    n_resamples: int = 1000,
    ci_level: float = 0.95,
    rng: Rng = None,
) -> pd.DataFrame:
    """Average scores into a leaderboard, with intervals over questions.

    They are resampled within difficulty and scene if the table has these.

    Parameters
    ----------
    cells
        What :func:`score_rubric` gives.
    mean
        What weighs the same in ``overall``: each ``"ability"`` (as released), ``"question"`` or
        ``"item"``.
    n_resamples, ci_level, rng
        As in :func:`~heart_utils.ratings.resampling.bootstrap_ci`.

    Returns
    -------
    pandas.DataFrame
        One row per rater, responder and ability, best in ability ``"overall"`` first: ``score``,
        ``ci_low``, ``ci_high``, ``ci_level``, ``n_questions``, ``n_unscored`` (cells),
        ``n_vetoed``, ``provisional`` (fewer than 30 questions). Intervals take replies and answers
        as they are; all responders meet the same questions in a replicate.

    Raises
    ------
    RubricError
        If nothing was scored, or `mean` is not known.

    Examples
    --------
    >>> cells = pd.DataFrame(
    ...     {
    ...         "rater": "judge",
    ...         "responder": "r",
    ...         "question_id": ["p", "q", "q"],
    ...         "n_items": 1,
    ...         "ability": ["warmth", "warmth", "humor"],
    ...         "state": "valid",
    ...         "score": [100.0, 50.0, 15.0],
    ...     }
    ... )
    >>> rubric_board(cells, n_resamples=0).set_index("ability")[
    ...     "score"
    ... ].to_dict()  # 45 = (75 + 15) / 2
    {'overall': 45.0, 'humor': 15.0, 'warmth': 75.0}
    """
    index, estimate = _replicates(cells, mean, 0, None)
    low, high, counts = (
        np.full_like(estimate[0], np.nan),
        np.full_like(estimate[0], np.nan),
        _counts(cells).reindex(index),
    )
    if n_resamples:
        n = counts["n_questions"].fillna(0).to_numpy(int).reshape(low.shape)
        replicates = _replicates(cells, mean, n_resamples, rng)[1]
        low, high = interval_ends(estimate[0], replicates, n, ci_level, least=0.0, most=100.0)
    ends = {
        "ci_low": low.ravel(),
        "ci_high": high.ravel(),
        "ci_level": ci_level if n_resamples else np.nan,
    }
    by_responder = pd.DataFrame({"score": estimate[0].ravel(), **ends}, index).join(counts)
    by_responder["provisional"] = by_responder["n_questions"] < ENOUGH_CLUSTERS
    overall = (
        by_responder["score"]
        .groupby(level=["rater", "responder"], sort=False)
        .transform(lambda of_one: of_one.iloc[0])
    )
    rows = by_responder.assign(_overall=overall).reset_index()
    rows = rows.sort_values(["rater", "_overall"], ascending=[True, False], ignore_index=True)
    return rows.drop(columns="_overall")


def ability_variance(
    cells: pd.DataFrame, *, n_resamples: int = 1000, rng: np.random.Generator
) -> pd.DataFrame:
    """Compute how much of the uncertainty of the overall score each ability contributes.

    The overall score is the abilities' mean; a share is an ability's covariance with it over
    resampled questions, over the sum.

    Parameters
    ----------
    cells, n_resamples, rng
        As in :func:`rubric_board`.

    Returns
    -------
    pandas.DataFrame
        A row per rater, responder and ability, largest share first: ``n_questions``, ``sd``
        (points), ``share``.

    Examples
    --------
    >>> cells = pd.DataFrame(
    ...     {
    ...         "rater": "judge",
    ...         "responder": "r",
    ...         "question_id": list("abcd") * 2,
    ...         "n_items": 1,
    ...         "ability": ["warmth"] * 4 + ["humor"] * 4,
    ...         "state": "valid",
    ...         "score": [50.0] * 4 + [0, 100, 0, 100],
    ...     }
    ... )
    >>> ability_variance(cells, rng=np.random.default_rng(1))[["ability", "share"]].values.tolist()
    [['humor', 1.0], ['warmth', 0.0]]
    """
    index, replicates = _replicates(cells, "ability", n_resamples, rng)
    centred = replicates - _mean(replicates)
    covariance = _mean(centred * centred[:, :, :1])[:, 1:]
    share = ratio(covariance, covariance.sum(axis=1, keepdims=True))
    of_ability = index[index.get_level_values("ability") != "overall"]
    table = pd.DataFrame(
        {"sd": np.sqrt(_mean(centred**2))[:, 1:].ravel(), "share": share.ravel()}, of_ability
    )
    table = table.join(_counts(cells)["n_questions"]).reset_index()
    table["order"] = -table.groupby("ability")["share"].transform("mean")
    table = table.sort_values(["rater", "responder", "order"], ignore_index=True)
    return table[["rater", "responder", "ability", "n_questions", "sd", "share"]]


def _replicates(
    cells: pd.DataFrame, mean: str, n_resamples: int, rng: Rng
) -> tuple[pd.MultiIndex, Array]:
    """Average each ability and all of them in every replicate, the overall mean first.

    The index names the last two axes.
    """
    if mean not in MEANS:
        raise RubricError(f"mean={mean!r} is not known; expected one of {', '.join(MEANS)}.")
    valid = cells[cells["state"] == "valid"]
    if valid.empty:
        states = ", ".join(
            f"{count} {state}" for state, count in cells["state"].value_counts().items()
        )
        raise RubricError(
            f"No question was scored ({states or 'no rows'}); nothing can be averaged."
        )
    key, keys = pd.factorize(pd.MultiIndex.from_frame(cells[["rater", "responder"]]), sort=True)
    ability, abilities = pd.factorize(cells["ability"], sort=True)
    question, questions = pd.factorize(cells["question_id"], sort=True)
    draws = _draws(cells, question, len(questions), n_resamples, rng)
    good = (cells["state"] == "valid").to_numpy()
    shape = (len(questions), len(keys), len(abilities))
    score, present, items = np.zeros(shape), np.zeros(shape), np.zeros(shape)
    cell = (question[good], key[good], ability[good])
    score[cell], present[cell], items[cell] = cells["score"][good], 1.0, cells["n_items"][good]
    by_ability = _weighted(draws, score, present)
    if mean == "ability":
        has_score = ~np.isnan(by_ability)
        overall = ratio(np.nansum(by_ability, axis=2), has_score.sum(axis=2).astype(float))
    elif mean == "question":
        n = present.sum(axis=2)
        own = np.nan_to_num(ratio(score.sum(axis=2), n))
        overall = _weighted(draws, own, (n > 0).astype(float))
    else:
        overall = _weighted(draws, (score * items).sum(axis=2), items.sum(axis=2))
    everything = np.concatenate([overall[:, :, None], by_ability], axis=2)
    names = [(*key, ability) for key in keys for ability in ("overall", *abilities)]
    return pd.MultiIndex.from_tuples(names, names=["rater", "responder", "ability"]), everything


def _draws(
    cells: pd.DataFrame, question: NDArray[np.int64], size: int, n_resamples: int, rng: Rng
) -> Array:
    """Draw how often each question counts, within difficulty and scene.

    All count once where nothing is resampled.
    """
    if not n_resamples:
        return np.ones((1, size))
    check_resamples(n_resamples)
    rng = as_rng(rng)
    strata = [column for column in STRATA if column in cells]
    first = np.unique(question, return_index=True)[1]
    stratum = (
        pd.factorize(pd.MultiIndex.from_frame(cells.iloc[first][strata].fillna("")))[0]
        if strata
        else np.zeros(size, int)
    )
    draws = np.zeros((n_resamples, size))
    for number in np.unique(stratum):
        members = np.flatnonzero(stratum == number)
        draws[:, members] = rng.multinomial(
            len(members), np.full(len(members), 1 / len(members)), size=n_resamples
        )
    return draws


def _weighted(draws: Array, score: Array, weight: Array) -> Array:
    """Average weighted scores over questions in each replicate, ``nan`` if none was drawn."""
    flat = (len(score), -1)
    return ratio(draws @ score.reshape(flat), draws @ weight.reshape(flat)).reshape(
        len(draws), *score.shape[1:]
    )


def _mean(replicates: Array) -> Array:
    return ratio(np.nansum(replicates, axis=0), (~np.isnan(replicates)).sum(axis=0).astype(float))


def _counts(cells: pd.DataFrame) -> pd.DataFrame:
    table = cells.assign(n_questions=cells["state"] == "valid", n_vetoed=cells.get("vetoed", False))
    table["n_unscored"] = ~table["n_questions"]
    aggregations = {"n_questions": "any", "n_unscored": "sum", "n_vetoed": "any"}
    overall = (
        table.groupby(["rater", "responder", "question_id"])
        .agg(aggregations)
        .reset_index()
        .assign(ability="overall")
    )
    counts: pd.DataFrame = (
        pd.concat([table, overall])
        .groupby(["rater", "responder", "ability"])[list(aggregations)]
        .sum()
    )
    return counts.astype(int)
