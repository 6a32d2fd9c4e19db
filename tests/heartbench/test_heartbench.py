"""HeartBench: the formula by hand and by a second implementation, the release's own counts, the
printed tables, and a linter that finds what is wrong with the rule."""

import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heart_utils.heartbench import (
    REPLIES,
    RubricError,
    ability_variance,
    degenerate_replies,
    lint_rubric,
    lint_rule,
    rubric_board,
    score_rubric,
    simulate_hits,
)
from heart_utils.runs import find_root
from heart_utils.sources.heart import load_rubric_items
from heart_utils.tables import check_table

PUBLISHED = {
    file.stem.removeprefix("heartbench_"): pd.read_csv(file)
    for file in sorted((find_root() / "data" / "published").glob("heartbench_*.csv"))
}


def make_questions(rows):
    """Rows are (question, ability, points); items are numbered within the question."""
    table = pd.DataFrame(rows, columns=["question_id", "ability", "points"])
    number = table.groupby("question_id").cumcount() + 1
    return table.assign(item=table["question_id"] + "-" + number.astype(str))


def make_hits(questions, score, responder="r", rater="judge", state="valid"):
    columns = {"responder": responder, "rater": rater, "score": score, "state": state}
    return questions[["item"]].assign(**columns)


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
    cells = score_rubric(questions, make_hits(questions, [1, 0, 1, 1]), veto="released")
    assert cells["vetoed"].all()


rubrics = st.lists(
    st.tuples(
        st.just("q"),
        st.sampled_from(["warmth", "humor", "special"]),
        st.integers(-10, 10).filter(lambda points: points != 0),
    ),
    min_size=1,
    max_size=8,
).filter(lambda rows: any(ability != "special" and points > 0 for _, ability, points in rows))


@settings(max_examples=15)
@given(rows=rubrics, seed=st.integers(0, 99), veto=st.sampled_from(["paper", "released"]))
def test_a_plain_loop_gives_the_same_scores(rows, seed, veto):
    questions = make_questions(rows)
    questions.loc[questions["ability"] == "special", "points"] = np.nan
    hit = np.random.default_rng(seed).integers(0, 2, len(rows))
    cells = score_rubric(questions, make_hits(questions, hit), veto=veto)
    expected = plain_score(rows, hit.tolist(), veto)
    assert cells.set_index("ability")["score"].to_dict() == pytest.approx(expected)


@settings(max_examples=15)
@given(rows=rubrics, seed=st.integers(0, 99))
def test_scores_lie_on_the_scale_and_a_bonus_more_never_costs(rows, seed):
    questions = make_questions(rows)
    drawn = pd.Series(np.random.default_rng(seed).integers(0, 2, len(rows)))
    hit = drawn.where(questions["ability"] != "special", 0)
    better = hit.mask(questions["points"].gt(0) & questions["ability"].ne("special"), 1)
    before, after = (
        score_rubric(questions, make_hits(questions, hits), veto="released")["score"]
        for hits in (hit, better)
    )
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
    """On the veto item it leaves nothing scored, by the paper's rule."""
    one = make_hits(TWO, [1, None, 1, 0]).assign(state=["valid", "abstained", "valid", "valid"])
    veto = make_hits(TWO, [1, 0, 1, None]).assign(state=["valid", "valid", "valid", "abstained"])
    cells = score_rubric(TWO, one).set_index("ability")
    assert cells["state"].to_dict() == {"warmth": "abstained", "humor": "valid"}
    assert score_rubric(TWO, veto, veto="paper")["state"].tolist() == ["abstained"] * 2
    assert score_rubric(TWO, veto, veto="released")["score"].tolist() == [100.0, 100.0]


def as_cells(score, **columns):
    """Scores of one responder on one ability, a question each unless told otherwise."""
    questions = [f"q{i}" for i in range(len(score))]
    cells = pd.DataFrame({"question_id": questions, "score": score, "rater": "j", "responder": "r"})
    return cells.assign(**{"ability": "warmth", "state": "valid", "n_items": 1} | columns)


@pytest.mark.parametrize(
    ("mean", "expected"),
    [
        ("ability", (50 + 40) / 2),
        ("question", (70 + 0) / 2),
        ("item", (300 + 40 + 0) / 5),
    ],
)
def test_three_means_by_hand(mean, expected):
    of = {"question_id": ["p", "p", "q"], "ability": ["warmth", "humor", "warmth"]}
    cells = as_cells([100.0, 40.0, 0.0], n_items=[3, 1, 1], **of)
    board = rubric_board(cells, mean=mean, n_resamples=0).set_index("ability")
    assert board.loc["overall", "score"] == pytest.approx(expected)


def test_strata_keep_their_number_of_questions(rng):
    """Two strata that hardly vary: resampling within them can move next to nothing."""
    score = np.tile([10.0, 90.0], 10) + np.tile([0.5, 0.5, -0.5, -0.5], 5)
    cells = as_cells(score, difficulty=["hard", "normal"] * 10)
    ends = rubric_board(cells, rng=rng)[["ci_low", "ci_high"]].to_numpy()
    assert ends == pytest.approx(np.full((2, 2), 50.0), abs=1.0)
    unstratified = rubric_board(cells.drop(columns="difficulty"), rng=rng)
    assert unstratified["ci_high"][0] - unstratified["ci_low"][0] > 20


def test_the_standard_error_of_a_mean_is_recovered(rng):
    score = rng.normal(50, 10, 200)
    board = rubric_board(as_cells(score), n_resamples=4000, rng=rng).iloc[0]
    error = (board["ci_high"] - board["ci_low"]) / (2 * 1.96)
    assert error == pytest.approx(score.std() / math.sqrt(200), rel=0.05)


def many_questions(n, points=(3, -2), abilities=("warmth", "humor")):
    return make_questions([(f"q{i}", a, p) for i in range(n) for a in abilities for p in points])


def test_intervals_cover_the_score_over_all_questions(rng):
    """Questions drawn from a large pool: 95 % intervals cover the pool's score in at least 34 of 40
    simulated studies."""
    pool = many_questions(300)
    cells = score_rubric(pool, simulate_hits(pool, {"r": 0.5}, rng=rng))
    truth = rubric_board(cells, n_resamples=0)["score"][0]
    ids = cells["question_id"].unique()
    covered = 0
    for _ in range(40):
        chosen = cells[cells["question_id"].isin(rng.choice(ids, 60, replace=False))]
        board = rubric_board(chosen, n_resamples=100, rng=rng).iloc[0]
        covered += board["ci_low"] <= truth <= board["ci_high"]
    assert covered >= 34


def test_skill_is_ranked_right_and_shares_of_variance_add_up_to_one(rng):
    questions = many_questions(100, (3, 2, -2))
    hits = simulate_hits(questions, {"weak": -1.0, "middling": 0.0, "strong": 1.0}, rng=rng)
    cells = score_rubric(questions, hits)
    board = rubric_board(cells, n_resamples=0)
    ranked = board.loc[board["ability"] == "overall", "responder"].tolist()
    assert hits["simulated"].all()
    assert ranked == ["strong", "middling", "weak"]
    sums = ability_variance(cells, rng=rng).groupby("responder")["share"].sum()
    assert sums.tolist() == pytest.approx([1.0] * 3)


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


def overall(cells):
    board = rubric_board(cells, n_resamples=0)
    return board[board["ability"] == "overall"].set_index("responder")["score"]


def released(questions, hits):
    return overall(score_rubric(questions, hits, veto="released"))


def paper(questions, hits):
    return overall(score_rubric(questions, hits, veto="paper"))


def points(questions, hits):
    cells = score_rubric(questions, hits, veto="released")
    sums = cells.groupby(["responder", "question_id"])[["raw", "highest"]].sum()
    return 100 * (sums["raw"] / sums["highest"]).clip(lower=0).groupby("responder").mean()


def failed(rule, questions):
    found = lint_rule(rule, questions, n_questions=4, rng=np.random.default_rng(3))
    return set(found.loc[~found["passed"], "check"])


def rubric(n=31, special=True):
    items = [("warmth", 3), ("warmth", -9), ("humor", 2), ("special", np.nan)]
    rows = [(f"q{i}", *item) for i in range(n) for item in items]
    questions = make_questions(rows)
    return questions if special else questions[questions["ability"] != "special"]


SOUND = rubric(special=False)


def test_a_sound_rule_on_a_sound_rubric_passes_every_check():
    assert failed(points, SOUND) == set()


def test_the_released_rule_pays_for_nothing_and_its_veto_is_idle():
    """The paper's veto mends two of these."""
    released_faults, mended = failed(released, rubric()), failed(paper, rubric())
    assert released_faults == {
        "no item hit",
        "everything at once",
        "bonuses and the veto item",
        "every item can change the score",
        "veto items have points, as the released code asks",
    }
    assert released_faults - mended == {
        "bonuses and the veto item",
        "every item can change the score",
    }


def upside_down(questions, hits):
    return 100 * hits["score"].groupby(hits["responder"]).mean()


def first_row(questions, hits):
    return 100 * hits.groupby("responder")["score"].first()


def gaps(questions, hits):
    score = points(questions, hits)
    return score.where(~score.index.astype(str).str.contains("1"))


def few_and_penalties_alone():
    questions = rubric(30, special=False)
    return questions.assign(points=questions["points"].mask(questions["ability"].eq("humor"), -2))


RARE = "every ability rests on more than 30 questions"
ORDER = "order of rows and names of abilities do not matter"
MORE = "more good never costs, more bad never pays"


@pytest.mark.parametrize(
    ("rule", "questions", "faults"),
    [
        (upside_down, SOUND, {MORE}),
        (first_row, SOUND, {ORDER}),
        (gaps, rubric(), {MORE, ORDER}),
        (points, few_and_penalties_alone(), {"every ability of a question can be earned", RARE}),
    ],
)
def test_a_rule_with_a_fault_is_found(rule, questions, faults):
    """It pays for penalties, hangs on the order of rows, gives no score at times, or the rubric
    has abilities that are rare or only cost."""
    assert faults <= failed(rule, questions)


HISTORIES = pd.DataFrame(
    {
        "history_id": ["h1", "h2"],
        "dialogue_id": ["d1", "d2"],
        "turns": [
            [{"speaker": "seeker", "text": "My sister will not speak to me."}],
            [
                {"speaker": "seeker", "text": "I failed."},
                {"speaker": "supporter", "text": "What happened?"},
                {"speaker": "seeker", "text": "Everything."},
            ],
        ],
    }
)


def test_degenerate_replies_are_a_table_of_replies():
    replies = check_table("replies", degenerate_replies(HISTORIES))
    texts = replies.set_index(["history_id", "responder"])["text"]
    assert texts["h2", "echo"] == "Everything."
    assert texts["h1", "empty"] == ""
    assert texts["h1", "everything"] == texts["h2", "everything"] == REPLIES["everything"]


def test_a_lexicon_that_counts_kind_words_falls_for_the_generic_line():
    """HEART's dimensions scored by a word list: any rubric and any scorer go through the same
    door."""

    def kind_words(histories, replies):
        tables = []
        for dimension, words in {"attunement": "sorry|here", "task_following": "[.?!]"}.items():
            score = 1 + 2 * replies["text"].str.count(words).clip(upper=2)
            tables.append(replies.assign(rater="lexicon", dimension=dimension, score=score))
        return pd.concat(tables)

    found = lint_rubric(kind_words, HISTORIES, low=1, high=5).set_index(["dimension", "reply"])
    assert not found.loc[("attunement", "generic"), "passed"]
    assert found.loc[("attunement", "empty"), "passed"]
    assert not found.loc[("task_following", "everything"), "passed"]


def test_failed_answers_are_counted_and_pass_nothing():
    def broken(histories, replies):
        return replies.assign(rater="judge", dimension="overall", score=None, state="unparsed")

    found = lint_rubric(broken, HISTORIES, low=1, high=5)
    assert found["n"].tolist() == [0] * 4
    assert found["n_failed"].tolist() == [2] * 4
    assert found["passed"].isna().all()


def test_a_scorer_that_gives_no_scores_is_told_so():
    with pytest.raises(RubricError, match="no column rater, dimension, score"):
        lint_rubric(lambda histories, replies: replies, HISTORIES, low=1, high=5)


def test_heartbench_as_released_pays_85_for_hitting_everything(questions):
    found, fair = (
        lint_rule(rule, questions, n_questions=3, rng=np.random.default_rng(1)).set_index("check")
        for rule in (released, points)
    )
    assert found.loc[["no item hit", "everything at once"], "found"].tolist() == ["17.43", "85.24"]
    assert found.loc[RARE, "found"] == "7 of 15 do not (down to 18)"
    assert fair.loc[["no item hit", "everything at once"], "passed"].all()


@pytest.mark.parametrize(
    ("score", "states", "passed"),
    [
        (50.0, ["valid"], False),
        (10.0, ["valid"], True),
        (10.0, ["valid"] + ["unparsed"] * 19, None),
        (10.0, ["valid"] * 19 + ["unparsed"], True),
    ],
)
def test_a_scorer_that_gives_the_middle_or_seldom_answers_does_not_pass(score, states, passed):
    histories = pd.DataFrame({"history_id": [f"h{k}" for k in range(20)], "dialogue_id": range(20)})
    histories["turns"] = [[{"speaker": "seeker", "text": "Hi."}]] * 20

    def scorer(histories, replies):
        scored = replies.assign(rater="r", dimension="overall", score=score)
        return scored.assign(state=np.resize(states, len(replies)))

    found = lint_rubric(scorer, histories, low=0, high=100)
    assert found["passed"].tolist() == [passed] * 4


@pytest.mark.parametrize("name", PUBLISHED)
def test_every_row_of_the_printed_tables_names_its_source(name):
    commit = "6c79c0809c0c2dfe78dc090dd0685bd6ef69f245"
    assert PUBLISHED[name]["source"].str.contains(commit, regex=False).all()


def test_the_printed_table_adds_up_for_all_thirteen_models():
    """Each figure has fifteen abilities a model; what does not add up is in the claims."""
    board, figure = PUBLISHED["leaderboard_overall"], PUBLISHED["overall_by_ability"]
    mean = figure.groupby("model")["score"].mean()
    assert (mean - board.set_index("model")["score"]).abs().max() <= 0.01
    for table in (figure, PUBLISHED["hardset_by_ability"]):
        assert table.groupby("model")["ability"].nunique().tolist() == [15] * 13
    assert set(board.loc[board["placeholder"], "model"]) == {"GPT-5", "Gemini-3-pro-preview"}
