"""HeartBench's formula: values by hand, a second implementation, the release's own counts, and what
bad input says."""

import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heart_utils.heartbench import (
    RubricError,
    ability_variance,
    rubric_board,
    score_rubric,
    simulate_hits,
)
from heart_utils.sources.heart import load_rubric_items


def make_questions(rows):
    """Rows are (question, ability, points); items are numbered within the question."""
    table = pd.DataFrame(rows, columns=["question_id", "ability", "points"])
    number = table.groupby("question_id").cumcount() + 1
    return table.assign(item=table["question_id"] + "-" + number.astype(str))


def make_hits(questions, score, responder="r", rater="judge", state="valid"):
    return pd.DataFrame(
        {
            "responder": responder,
            "rater": rater,
            "item": questions["item"],
            "score": score,
            "state": state,
        }
    )


def plain_score(rubric, hit, veto):
    """The protocol's words as a loop: question -> ability -> score."""
    if veto == "paper" and any(
        ability == "special" and h for (_, ability, _), h in zip(rubric, hit, strict=True)
    ):
        return {ability: 0.0 for _, ability, _ in rubric if ability != "special"}
    scores = {}
    for ability in {ability for _, ability, _ in rubric if ability != "special"}:
        low = high = raw = 0
        for (_, name, points), h in zip(rubric, hit, strict=True):
            if name == ability:
                low += min(points, 0)
                high += max(points, 0)
                raw += points * h
        scores[ability] = 100 * math.log(raw - low + 1) / math.log(high - low + 1)
    return scores


TWO = make_questions(
    [("q", "warmth", 3), ("q", "warmth", -4), ("q", "humor", 2), ("q", "special", np.nan)]
)


def test_scores_by_hand():
    cells = score_rubric(TWO, make_hits(TWO, [1, 1, 0, 0])).set_index("ability")
    assert cells.loc["warmth", "raw"] == -1
    # ln(-1 + 4 + 1) / ln(3 + 4 + 1)
    assert cells.loc["warmth", "score"] == pytest.approx(100 * math.log(4) / math.log(8))
    assert cells.loc["humor", "score"] == 0.0


def test_the_papers_veto_zeroes_the_question_and_the_released_one_never_fires():
    hits = make_hits(TWO, [1, 0, 1, 1])
    assert score_rubric(TWO, hits, veto="paper")["score"].tolist() == [0.0, 0.0]
    assert score_rubric(TWO, hits, veto="released")["score"].tolist() == [100.0, 100.0]


def test_a_veto_item_with_positive_points_would_fire_as_released():
    questions = TWO.assign(points=[3, -4, 2, 5])
    assert score_rubric(questions, make_hits(questions, [1, 0, 1, 1]), veto="released")[
        "vetoed"
    ].all()


rubrics = st.lists(
    st.tuples(
        st.just("q"),
        st.sampled_from(["warmth", "humor", "special"]),
        st.integers(-10, 10).filter(lambda points: points != 0),
    ),
    min_size=1,
    max_size=8,
).filter(lambda rows: any(ability != "special" and points > 0 for _, ability, points in rows))


@settings(max_examples=25)
@given(rows=rubrics, seed=st.integers(0, 99), veto=st.sampled_from(["paper", "released"]))
def test_a_plain_loop_gives_the_same_scores(rows, seed, veto):
    questions = make_questions(rows)
    questions.loc[questions["ability"] == "special", "points"] = np.nan
    hit = np.random.default_rng(seed).integers(0, 2, len(rows))
    cells = score_rubric(questions, make_hits(questions, hit), veto=veto)
    expected = plain_score(rows, hit.tolist(), veto)
    assert cells.set_index("ability")["score"].to_dict() == pytest.approx(expected)


@settings(max_examples=25)
@given(rows=rubrics, seed=st.integers(0, 99))
def test_scores_lie_on_the_scale_and_a_bonus_more_never_costs(rows, seed):
    questions = make_questions(rows)
    hit = np.random.default_rng(seed).integers(0, 2, len(rows)) * (
        questions["ability"] != "special"
    )
    before = score_rubric(questions, make_hits(questions, hit), veto="released")["score"]
    better = hit.where(questions["points"] < 0, 1).where(questions["ability"] != "special", 0)
    after = score_rubric(questions, make_hits(questions, better), veto="released")["score"]
    assert before.between(0, 100 + 1e-9).all()
    assert (after >= before - 1e-9).all()


def test_a_failed_answer_is_never_a_score_of_zero():
    hits = pd.concat(
        [make_hits(TWO, [1, 0, 1, 0], "good"), make_hits(TWO, None, "lost", state="unparsed")]
    )
    cells = score_rubric(TWO, hits)
    lost = cells[cells["responder"] == "lost"]
    assert lost["score"].isna().all()
    assert lost["state"].tolist() == ["unparsed", "unparsed"]
    board = rubric_board(cells, n_resamples=0).set_index(["responder", "ability"])
    assert board.loc[("lost", "overall"), "n_unscored"] == 2
    assert np.isnan(board.loc[("lost", "overall"), "score"])


def test_an_abstention_on_one_item_leaves_the_other_abilities_scored():
    hits = make_hits(TWO, [1, None, 1, 0]).assign(state=["valid", "abstained", "valid", "valid"])
    cells = score_rubric(TWO, hits).set_index("ability")
    assert cells["state"].to_dict() == {"warmth": "abstained", "humor": "valid"}


def test_an_abstention_on_the_veto_item_leaves_nothing_scored_by_the_papers_rule():
    hits = make_hits(TWO, [1, 0, 1, None]).assign(state=["valid", "valid", "valid", "abstained"])
    assert score_rubric(TWO, hits, veto="paper")["state"].tolist() == ["abstained"] * 2
    assert score_rubric(TWO, hits, veto="released")["score"].tolist() == [100.0, 100.0]


def test_three_means_by_hand():
    cells = pd.DataFrame(
        {
            "question_id": ["p", "p", "q"],
            "ability": ["warmth", "humor", "warmth"],
            "score": [100.0, 40.0, 0.0],
        }
    ).assign(rater="judge", responder="r", state="valid", n_items=[3, 1, 1])

    def overall(mean):
        board = rubric_board(cells, mean=mean, n_resamples=0)
        return board.loc[board["ability"] == "overall", "score"].item()

    assert overall("ability") == pytest.approx((50 + 40) / 2)
    assert overall("question") == pytest.approx((70 + 0) / 2)
    assert overall("item") == pytest.approx((300 + 40 + 0) / 5)


def test_strata_keep_their_number_of_questions(rng):
    """Two strata that hardly vary: resampling within them can move next to nothing."""
    cells = pd.DataFrame(
        {"question_id": [f"q{i}" for i in range(20)], "difficulty": ["hard", "normal"] * 10}
    )
    cells = cells.assign(rater="j", responder="r", ability="warmth", state="valid", n_items=1)
    cells["score"] = cells["difficulty"].map({"hard": 10.0, "normal": 90.0}) + np.tile(
        [0.5, 0.5, -0.5, -0.5], 5
    )
    board = rubric_board(cells, rng=rng)
    assert board["ci_low"].tolist() == pytest.approx([50.0, 50.0], abs=1.0)
    assert board["ci_high"].tolist() == pytest.approx([50.0, 50.0], abs=1.0)
    unstratified = rubric_board(cells.drop(columns="difficulty"), rng=rng)
    assert unstratified["ci_high"][0] - unstratified["ci_low"][0] > 20


def test_the_standard_error_of_a_mean_is_recovered(rng):
    score = rng.normal(50, 10, 200)
    cells = pd.DataFrame(
        {
            "question_id": [f"q{i}" for i in range(200)],
            "score": score,
            "rater": "j",
            "responder": "r",
        }
    )
    cells = cells.assign(ability="warmth", state="valid", n_items=1)
    board = rubric_board(cells, n_resamples=4000, rng=rng).iloc[0]
    assert (board["ci_high"] - board["ci_low"]) / (2 * 1.96) == pytest.approx(
        score.std() / math.sqrt(200), rel=0.05
    )


def test_intervals_cover_the_score_over_all_questions(rng):
    """Questions drawn from a large pool: 95 % intervals cover the pool's score in at least 34 of 40
    simulated studies."""
    pool = make_questions(
        [
            (f"q{i}", ability, points)
            for i in range(400)
            for ability in ("warmth", "humor")
            for points in (3, -2)
        ]
    )
    cells = score_rubric(pool, simulate_hits(pool, {"r": 0.5}, rng=rng))
    truth = rubric_board(cells, n_resamples=0)["score"][0]
    ids = cells["question_id"].unique()
    covered = 0
    for _ in range(40):
        chosen = set(rng.choice(ids, 60, replace=False))
        board = rubric_board(
            cells[cells["question_id"].isin(chosen)], n_resamples=100, rng=rng
        ).iloc[0]
        covered += board["ci_low"] <= truth <= board["ci_high"]
    assert covered >= 34


def test_skill_is_ranked_right(rng):
    questions = make_questions(
        [(f"q{i}", "warmth", points) for i in range(100) for points in (3, 2, -2)]
    )
    hits = simulate_hits(questions, {"weak": -1.0, "middling": 0.0, "strong": 1.0}, rng=rng)
    assert hits["simulated"].all()
    board = rubric_board(score_rubric(questions, hits), n_resamples=0)
    assert board.loc[board["ability"] == "overall", "responder"].tolist() == [
        "strong",
        "middling",
        "weak",
    ]


def test_shares_of_variance_add_up_to_one(rng):
    questions = make_questions(
        [(f"q{i}", a, p) for i in range(40) for a in ("warmth", "humor") for p in (3, -2)]
    )
    shares = ability_variance(
        score_rubric(questions, simulate_hits(questions, {"a": 0.0, "b": 1.0}, rng=rng)), rng=rng
    )
    assert shares.groupby("responder")["share"].sum().tolist() == pytest.approx([1.0, 1.0])


BAD_QUESTIONS = {
    "has no positive item": TWO.assign(points=[-3, -4, -2, None]),
    "item 'q-2' has 0.0, expected a number above 0": TWO.assign(points=[3, 0, 2, None]),
    "item 'q-2' has many, expected a number": TWO.assign(points=[3, "many", 2, None]),
    "item 'q-2' has nan, expected": TWO.assign(points=[3, None, 2, None]),
    "stands for two items": TWO.assign(item="q-1"),
    "no column points": TWO.drop(columns="points"),
}


@pytest.mark.parametrize("message", BAD_QUESTIONS)
def test_a_bad_rubric_says_what_is_wrong(message):
    with pytest.raises(RubricError, match=message):
        score_rubric(BAD_QUESTIONS[message], make_hits(TWO, 1))


GOOD = make_hits(TWO, [1, 0, 1, 0])
BAD_HITS = {
    r"'r' judged by 'judge' has 3 hits of 3 items for question 'q'; expected one for each of its 4": GOOD.iloc[
        :3
    ],
    r"has 5 hits of 4 items .* names of their own in `rater`": pd.concat([GOOD, GOOD.iloc[3:]]),
    r"has 4 hits of 3 items": GOOD.assign(item=["q-1", "q-2", "q-3", "q-3"]),
    r"'q-5' is no item": GOOD.assign(item=["q-1", "q-2", "q-3", "q-5"]),
    r"expected 0 or 1 where the state is valid; row 1 \(item 'q-2'\) has 2": GOOD.assign(
        score=[1, 2, 0, 0]
    ),
    r"expected 0 or 1 .* row 0 .* has nan": GOOD.assign(score=[np.nan, 0, 0, 0]),
    r"row 1 .* has no.*such as 'abstained'": GOOD.assign(score=[1, "no", 0, 0]),
    r"no column rater": GOOD.drop(columns="rater"),
    r"no row": GOOD.iloc[:0],
}


@pytest.mark.parametrize("message", BAD_HITS)
def test_bad_hits_say_what_is_wrong(message):
    with pytest.raises(RubricError, match=message):
        score_rubric(TWO, BAD_HITS[message])


def test_unknown_options_name_those_there_are(rng):
    with pytest.raises(RubricError, match="paper, released"):
        score_rubric(TWO, GOOD, veto="both")
    with pytest.raises(RubricError, match="ability, question, item"):
        rubric_board(score_rubric(TWO, GOOD), mean="median", n_resamples=0)
    with pytest.raises(RubricError, match="2 unparsed"):
        rubric_board(score_rubric(TWO, make_hits(TWO, None, state="unparsed")), n_resamples=0)


@pytest.fixture(scope="module")
def questions():
    return load_rubric_items()


@pytest.fixture(scope="module")
def nothing(questions):
    return score_rubric(questions, make_hits(questions, 0, "nothing"), veto="released")


def test_a_reply_that_hits_nothing_earns_17_43(nothing):
    board = rubric_board(nothing, n_resamples=0).set_index("ability")["score"]
    assert board["overall"] == pytest.approx(17.43, abs=0.005)
    published = {"verbal_expression": 98.8, "self_awareness": 62.1, "morality": 31.9}
    assert board[list(published)].to_dict() == pytest.approx(published, abs=0.05)


def test_302_of_1869_cells_have_penalties_only(nothing):
    assert len(nothing) == 1869
    assert (nothing["highest"] == 0).sum() == 302


def test_the_released_veto_never_fires_even_if_every_item_is_hit(questions):
    assert not score_rubric(questions, make_hits(questions, 1), veto="released")["vetoed"].any()
    special = questions.loc[questions["ability"] == "special", "points"]
    assert (special.isna().sum(), (special == -4).sum(), len(special)) == (295, 1, 296)


def test_one_question_escapes_the_papers_veto(questions):
    cells = score_rubric(questions, make_hits(questions, 1), veto="paper")
    assert len(cells.loc[~cells["vetoed"], "question_id"].drop_duplicates()) == 1


def test_thirteen_simulated_models_are_scored(questions, rng):
    """The bench measures how fast."""
    hits = simulate_hits(questions, {f"m{i}": i / 6 - 1 for i in range(13)}, rng=rng)
    board = rubric_board(score_rubric(questions, hits), n_resamples=1000, rng=rng)
    assert len(board) == 13 * 16
    assert (board["ci_low"] < board["score"]).all()
    assert (board["score"] < board["ci_high"]).all()
