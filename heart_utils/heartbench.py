"""HeartBench: scores from item-wise hits, their leaderboard, and a linter of rules."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

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
from heart_utils.settings import read_yaml
from heart_utils.tables import need_columns, needed_columns

__all__ = [
    "RubricError",
    "ability_variance",
    "lint_rubric",
    "lint_rule",
    "rubric_board",
    "score_rubric",
    "simulate_hits",
]

SPECIAL = "special"
MEANS = ("ability", "question", "item")
VETOES = ("paper", "released")
STRATA = ("difficulty", "scene")
QUESTION = ["rater", "responder", "question_id"]


class RubricError(ValueError):
    """A rubric, or hits against it, lack what the formula needs."""


def score_rubric(
    questions: pd.DataFrame, hits: pd.DataFrame, *, veto: str = "paper"
) -> pd.DataFrame:
    r"""Score every ability of every question, from 0 to 100, by HeartBench's formula.

    With :math:`r` the points hit, :math:`l` the sum of the negative and :math:`h` of the positive
    points of an ability in a question, it is :math:`100 \ln(r - l + 1) / \ln(h - l + 1)`. Source:
    Liu et al. (2025), https://arxiv.org/abs/2512.21849.

    Parameters
    ----------
    questions
        One row a rubric item: ``question_id``, ``item`` (unique), ``ability`` and ``points``, which
        only the veto item (ability ``"special"``) may lack.
    hits
        Of the table ``scores``, one row a responder, rater and item; ``score`` 1 for a hit or 0.
    veto
        ``"paper"``: a hit on the veto item makes the question 0. ``"released"``: only if it has
        positive points.

    Returns
    -------
    pandas.DataFrame
        One row a rater, responder, question and ability: ``score``, ``raw``, ``lowest`` and
        ``highest`` (points), ``n_items``, ``vetoed`` and ``state``.

    Raises
    ------
    RubricError
        If a question has no positive item, an item has 0 points, or not one hit of 0 or 1.

    Examples
    --------
    >>> questions = pd.DataFrame({"item": ["q-1", "q-2"], "points": [3, -4]})
    >>> questions = questions.assign(question_id="q", ability="warmth")
    >>> hits = pd.DataFrame({"item": ["q-1", "q-2"], "score": 0, "state": "valid"})
    >>> hits = hits.assign(responder="quiet", rater="judge")
    >>> score_rubric(questions, hits)["score"].round(1).tolist()  # ln 5 / ln 8
    [77.4]
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
    difficulty, a veto item never; difficulties are standard normal.

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
        `hits` for :func:`score_rubric`, by the rater ``simulated judge``.

    Examples
    --------
    >>> questions = pd.DataFrame({"item": ["q-1", "q-2"], "points": [3, -4]})
    >>> questions = questions.assign(question_id="q", ability="warmth")
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
        row = int(np.argmax(wrong))
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
    return pd.DataFrame(sums.fillna({"state": "valid"}).reset_index())


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

    These are resampled within difficulty and scene, if the table has them.

    Parameters
    ----------
    cells
        From :func:`score_rubric`.
    mean
        What weighs the same in ``overall``: each ``"ability"``, ``"question"`` or ``"item"``.
    n_resamples, ci_level, rng
        As in :func:`~heart_utils.ratings.resampling.bootstrap_ci`.

    Returns
    -------
    pandas.DataFrame
        One row a rater, responder and ability, best ``"overall"`` first: ``score``, ``ci_low``,
        ``ci_high``, ``ci_level``, ``n_questions``, ``n_unscored`` (cells), ``n_vetoed``,
        ``provisional`` (fewer than 30 questions).

    Raises
    ------
    RubricError
        If nothing was scored, or `mean` unknown.

    Examples
    --------
    >>> cells = pd.DataFrame({"question_id": list("pqq"), "score": [100, 50, 15]})
    >>> cells = cells.assign(ability=["warmth", "warmth", "humor"], n_items=1, state="valid")
    >>> cells = cells.assign(rater="judge", responder="r")
    >>> board = rubric_board(cells, n_resamples=0).set_index("ability")
    >>> board["score"].to_dict()  # 45 = (75 + 15) / 2
    {'overall': 45.0, 'humor': 15.0, 'warmth': 75.0}
    """
    index, [estimate] = _replicates(cells, mean, 0, None)
    counts = _counts(cells).reindex(index)
    low = high = np.full_like(estimate, np.nan)
    if n_resamples:
        n = counts["n_questions"].fillna(0).to_numpy(int).reshape(low.shape)
        replicates = _replicates(cells, mean, n_resamples, rng)[1]
        low, high = interval_ends(estimate, replicates, n, ci_level, least=0.0, most=100.0)
    ends = {"ci_low": low.ravel(), "ci_high": high.ravel()}
    by_responder = pd.DataFrame({"score": estimate.ravel(), **ends}, index).assign(
        ci_level=ci_level if n_resamples else np.nan
    )
    by_responder = by_responder.join(counts)
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

    A share is its covariance with the abilities' mean over resampled questions, over the sum.

    Parameters
    ----------
    cells, n_resamples, rng
        As in :func:`rubric_board`.

    Returns
    -------
    pandas.DataFrame
        One row a rater, responder and ability, largest share first: ``n_questions``, ``sd``,
        ``share``.

    Examples
    --------
    >>> cells = pd.DataFrame({"question_id": [*"abab"], "score": [50, 50, 0, 100]})
    >>> cells = cells.assign(ability=np.repeat(["warmth", "humor"], 2), n_items=1, state="valid")
    >>> cells = cells.assign(rater="judge", responder="r")
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
    by_ability = pd.concat([table, overall]).groupby(["rater", "responder", "ability"])
    return pd.DataFrame(by_ability[list(aggregations)].sum().astype(int))


FEW_QUESTIONS = 30

REPLIES: dict[str, str] = read_yaml(
    Path(__file__).with_name("linter.yaml"), dict[str, str], RubricError
)

Rule = Callable[[pd.DataFrame, pd.DataFrame], pd.Series]
Scorer = Callable[[pd.DataFrame, pd.DataFrame], pd.DataFrame]


def lint_rule(
    rule: Rule, questions: pd.DataFrame, *, n_questions: int = 20, rng: np.random.Generator
) -> pd.DataFrame:
    """Test a scoring rule with degenerate hits, and check what every rule should keep.

    Parameters
    ----------
    rule
        Callable of questions and hits; gives a series of scores, 0 to 100, by responder.
    questions
        One row a rubric item.
    n_questions
        How many are drawn, in which single items are flipped.
    rng
        Draws all.

    Returns
    -------
    pandas.DataFrame
        One row a check: ``check``, ``found``, ``expected``, ``passed``.

    Examples
    --------
    >>> questions = pd.DataFrame({"item": ["q-1", "q-2"], "points": [1, -1]})
    >>> questions = questions.assign(question_id="q", ability="warmth")
    >>> def always_half(questions, hits):
    ...     return pd.Series(50.0, index=hits["responder"].unique())
    >>> found = lint_rule(always_half, questions, rng=np.random.default_rng(1))
    >>> found.loc[0, ["check", "found"]].tolist()
    ['no item hit', '50.00']
    """
    scores, floor = rule(questions, degenerate_hits(questions)), "0, the lowest score"
    ends = {"no item hit": (0, f"{floor}: nothing was done"), "penalties only": (0, floor)}
    ends["bonuses only"] = (100, "100, the highest score")
    rows = [
        _check(name, f"{scores[name]:.2f}", words, abs(scores[name] - end) <= 0.5)
        for name, (end, words) in ends.items()
    ]
    everything, words = (
        scores["everything at once"],
        "at most 50, the middle: it triggers every penalty too",
    )
    rows.append(_check("everything at once", f"{everything:.2f}", words, everything <= 50))
    if (questions["ability"] == SPECIAL).any():
        vetoed = scores["bonuses and the veto item"]
        rows.append(_check("bonuses and the veto item", f"{vetoed:.2f}", floor, abs(vetoed) <= 0.5))
    rows += _flips(rule, questions, n_questions, rng)
    return pd.DataFrame([*rows, _reordered(rule, questions, rng), *_weights(questions)])


def lint_rubric(score: Scorer, histories: pd.DataFrame, *, low: float, high: float) -> pd.DataFrame:
    """Send replies that say nothing through anything that scores replies.

    Parameters
    ----------
    score
        Callable that takes ``histories`` and ``replies`` and gives ``scores``.
    histories
        The table of histories.
    low, high
        The ends of the scale.

    Returns
    -------
    pandas.DataFrame
        One row a rater, dimension and degenerate reply: ``mean``, ``n`` valid, ``n_failed`` and
        ``passed``: the mean is below the scale's middle (missing where failed answers could turn
        it).

    Examples
    --------
    >>> turns = [{"speaker": "seeker", "text": "Hi."}]
    >>> histories = pd.DataFrame({"history_id": ["h"], "dialogue_id": ["d"], "turns": [turns]})
    >>> def flatterer(histories, replies):
    ...     return replies.assign(rater="ruler", dimension="overall", score=100)
    >>> lint_rubric(flatterer, histories, low=0, high=100)["passed"].tolist()
    [False, False, False, False]
    """
    probes = degenerate_replies(histories)
    scores = score(histories, probes)
    need_columns(scores, ["reply_id", "rater", "dimension", "score", "state"], RubricError)
    mine = scores.merge(probes[["reply_id", "responder"]], on="reply_id", suffixes=("_given", ""))
    mine["score"] = pd.to_numeric(mine["score"]).where(mine["state"] == "valid")
    groups = mine.groupby(["rater", "dimension", "responder"])["score"]
    table = pd.DataFrame(
        {"mean": groups.mean(), "n": groups.count(), "n_failed": groups.size() - groups.count()}
    )
    n_all, total = table["n"] + table["n_failed"], groups.sum()
    worst, best = ((total + end * table["n_failed"]) / n_all for end in (high, low))
    middle = (low + high) / 2
    decided = (table["n"] > 0) & ((worst < middle) | (best >= middle))
    table["passed"] = (worst < middle).astype(object).where(decided, None)
    return table.reset_index(names=["rater", "dimension", "reply"])


def degenerate_hits(questions: pd.DataFrame) -> pd.DataFrame:
    """Build hits that show a rule's floor, ceiling and veto, one a responder."""
    special = (questions["ability"] == SPECIAL).to_numpy()
    bonus = questions["points"].gt(0).to_numpy() & ~special
    penalty = questions["points"].lt(0).to_numpy() & ~special
    patterns = {
        "no item hit": np.zeros_like(bonus),
        "everything at once": ~special,
        "bonuses only": bonus,
    }
    return _hits(
        questions,
        patterns | {"penalties only": penalty, "bonuses and the veto item": bonus | special},
    )


def degenerate_replies(histories: pd.DataFrame) -> pd.DataFrame:
    """Write replies that deserve no points: empty, an echo, one line for all, all at once."""
    last = histories["turns"].map(
        lambda turns: next((t["text"] for t in reversed(turns) if t["speaker"] == "seeker"), "")
    )
    texts: dict[str, pd.Series | str] = {"echo": last, "empty": "", **REPLIES}
    replies = pd.concat(
        [
            histories[["history_id"]].assign(responder=name, text=text)
            for name, text in texts.items()
        ]
    )
    replies["reply_id"] = replies["history_id"] + ":lint-" + replies["responder"]
    replies["flags"] = [["degenerate"] for _ in range(len(replies))]
    return (
        replies.assign(state="valid", simulated=False)
        .reindex(columns=needed_columns("replies"))
        .reset_index(drop=True)
    )


def _hits(questions: pd.DataFrame, patterns: dict[str, np.ndarray]) -> pd.DataFrame:
    items = np.tile(questions["item"].to_numpy(), len(patterns))
    hits = pd.DataFrame(
        {"responder": np.repeat(list(patterns), len(questions)), "rater": "linter", "item": items}
    )
    return hits.assign(score=np.concatenate(list(patterns.values())).astype(float), state="valid")


def _check(check: str, found: str, expected: str, passed: bool) -> dict[str, object]:
    return {"check": check, "found": found, "expected": expected, "passed": bool(passed)}


def _flips(
    rule: Rule, questions: pd.DataFrame, n_questions: int, rng: np.random.Generator
) -> Iterator[dict[str, object]]:
    ids = questions["question_id"].unique()
    chosen = rng.choice(ids, size=min(n_questions, len(ids)), replace=False)
    wrong, idle, tried = list[str](), list[str](), 0
    for question in chosen:
        one = questions[questions["question_id"] == question].reset_index(drop=True)
        special = (one["ability"] == SPECIAL).to_numpy()
        starts = {
            "best": one["points"].gt(0).to_numpy() & ~special,
            "random": (rng.random(len(one)) < 0.5) & ~special,
        }
        places = range(len(one))
        patterns = {
            (name, i): start ^ (np.arange(len(one)) == i)
            for name, start in starts.items()
            for i in [-1, *places]
        }
        scores = rule(
            one, _hits(one, {f"{name} {i}": pattern for (name, i), pattern in patterns.items()})
        )
        moved = np.zeros(len(one), dtype=bool)
        for name, start in starts.items():
            change = np.array([scores[f"{name} {i}"] - scores[f"{name} -1"] for i in places])
            helps = np.where(one["points"].gt(0) & ~special, 1, -1) * np.where(start, -1, 1)
            wrong += one["item"][~(change * helps >= -1e-7)].tolist()  # no score is wrong, too
            moved |= np.abs(change) > 1e-7
        idle += one["item"][~moved].tolist()
        tried += len(one)
    checks = {
        "more good never costs, more bad never pays": sorted(set(wrong)),
        "every item can change the score": idle,
    }
    for check, items in checks.items():
        some = f" (such as {', '.join(items[:3])})" if items else ""
        yield _check(check, f"{len(items)} of {tried} items fail{some}", "0", not items)


def _reordered(rule: Rule, questions: pd.DataFrame, rng: np.random.Generator) -> dict[str, object]:
    patterns = {f"random {i}": rng.random(len(questions)) < 0.5 for i in range(3)}
    hits = _hits(
        questions,
        {
            name: hit & (questions["ability"] != SPECIAL).to_numpy()
            for name, hit in patterns.items()
        },
    )
    names = questions["ability"].unique()
    renamed = {
        name: SPECIAL if name == SPECIAL else f"z{i}"
        for i, name in enumerate(rng.permutation(names))
    }
    shuffled = questions.assign(ability=questions["ability"].map(renamed)).iloc[
        rng.permutation(len(questions))
    ]
    before, after = rule(questions, hits), rule(shuffled, hits.iloc[rng.permutation(len(hits))])
    largest = float((before - after.reindex(before.index)).abs().fillna(np.inf).max())
    check = "order of rows and names of abilities do not matter"
    return _check(check, f"moves by {largest:.2g}", "0", largest <= 1e-7)


def _weights(questions: pd.DataFrame) -> Iterator[dict[str, object]]:
    scored = questions[questions["ability"] != SPECIAL]
    cells = scored.groupby(["question_id", "ability"])["points"].max()
    only = int((cells <= 0).sum())
    yield _check(
        "every ability of a question can be earned",
        f"{only} of {len(cells)} have penalties only",
        "0",
        only == 0,
    )
    per_ability = scored.groupby("ability")["question_id"].nunique()
    few = per_ability[per_ability <= FEW_QUESTIONS]
    found = f"{len(few)} of {len(per_ability)} do not" + (
        f" (down to {few.min()})" if len(few) else ""
    )
    yield _check(
        f"every ability rests on more than {FEW_QUESTIONS} questions", found, "0", few.empty
    )
    if len(questions) != len(scored):
        veto = questions.loc[questions["ability"] == SPECIAL, "points"]
        positive = int((veto > 0).sum())
        check = "veto items have points, as the released code asks"
        yield _check(
            check, f"{positive} of {len(veto)} above 0", f"{len(veto)}", positive == len(veto)
        )
