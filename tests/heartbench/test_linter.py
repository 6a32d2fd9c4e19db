"""The linter finds what is wrong with HeartBench's rule, finds nothing wrong with a sound one, and
takes any scorer."""

import numpy as np
import pandas as pd
import pytest

from heart_utils.heartbench import (
    REPLIES,
    RubricError,
    degenerate_replies,
    lint_rubric,
    lint_rule,
    rubric_board,
    score_rubric,
)
from heart_utils.sources.heart import load_rubric_items
from heart_utils.tables import check_table


def make_questions(n=31, special=True):
    rows = [
        (f"q{i}", ability, points)
        for i in range(n)
        for ability, points in (("warmth", 3), ("warmth", -9), ("humor", 2))
    ]
    rows += [(f"q{i}", "special", np.nan) for i in range(n)] if special else []
    table = pd.DataFrame(rows, columns=["question_id", "ability", "points"])
    number = table.groupby("question_id").cumcount() + 1
    return table.assign(item=table["question_id"] + "-" + number.astype(str))


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


def test_a_sound_rule_on_a_sound_rubric_passes_every_check():
    assert failed(points, make_questions(special=False)) == set()


def test_the_released_rule_pays_for_nothing_and_its_veto_is_idle():
    assert failed(released, make_questions()) == {
        "no item hit",
        "everything at once",
        "bonuses and the veto item",
        "every item can change the score",
        "veto items have points, as the released code asks",
    }


def test_the_papers_veto_mends_two_of_these():
    mended = failed(released, make_questions()) - failed(paper, make_questions())
    assert mended == {"bonuses and the veto item", "every item can change the score"}


def test_a_rule_that_pays_for_penalties_is_found():
    def upside_down(questions, hits):
        return 100 * hits["score"].groupby(hits["responder"]).mean()

    assert "more good never costs, more bad never pays" in failed(
        upside_down, make_questions(special=False)
    )


def test_a_rule_that_hangs_on_the_order_of_rows_is_found():
    def first_row(questions, hits):
        return 100 * hits.groupby("responder")["score"].first()

    assert "order of rows and names of abilities do not matter" in failed(
        first_row, make_questions(special=False)
    )


def test_penalties_alone_and_rare_abilities_are_found():
    questions = make_questions(n=30, special=False)
    questions.loc[questions["ability"] == "humor", "points"] = -2
    assert {
        "every ability of a question can be earned",
        "every ability rests on more than 30 questions",
    } <= failed(points, questions)


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


def test_heartbench_as_released_pays_85_for_hitting_everything():
    questions = load_rubric_items()
    found = lint_rule(released, questions, n_questions=5, rng=np.random.default_rng(1)).set_index(
        "check"
    )["found"]
    assert found["no item hit"] == "17.43"
    assert found["everything at once"] == "85.24"
    assert found["every ability rests on more than 30 questions"] == "7 of 15 do not (down to 18)"
    fair = lint_rule(points, questions, n_questions=5, rng=np.random.default_rng(1)).set_index(
        "check"
    )
    assert fair.loc[["no item hit", "everything at once"], "passed"].all()


def lint_scores(scores, state="valid"):
    histories = pd.DataFrame({"history_id": [f"h{k}" for k in range(20)], "dialogue_id": range(20)})
    histories["turns"] = [[{"speaker": "seeker", "text": "Hi."}]] * 20

    def scorer(histories, replies):
        own = np.resize(scores, len(replies)), np.resize(state, len(replies))
        return replies.assign(rater="r", dimension="overall", score=own[0], state=own[1])

    return lint_rubric(scorer, histories, low=0, high=100)["passed"].tolist()


def test_a_scorer_that_gives_the_middle_or_seldom_answers_does_not_pass():
    assert lint_scores([50.0]) == [False] * 4
    assert lint_scores([10.0]) == [True] * 4
    assert lint_scores([10.0], ["valid"] + ["unparsed"] * 19) == [None] * 4
    assert lint_scores([10.0], ["valid"] * 19 + ["unparsed"]) == [True] * 4


def test_a_rule_that_sometimes_gives_no_score_fails():
    def gaps(questions, hits):
        score = points(questions, hits)
        return score.where(~score.index.astype(str).str.contains("1"))

    found = lint_rule(gaps, make_questions(), rng=np.random.default_rng(1)).set_index("check")
    assert not found.loc["more good never costs, more bad never pays", "passed"]
    assert not found.loc["order of rows and names of abilities do not matter", "passed"]
