"""Pairs put to a judge again: the arms ask what they say, and nothing is asked twice that is
recorded."""

from dataclasses import replace

import pytest
from judging_case import JUDGE, StandIn, choose, codes_in, dimensions_in, make_study

from heart_collect.calls.ledger import open_ledger
from heart_collect.calls.models import Call
from heart_collect.judging.judge import (
    ARMS,
    JudgeError,
    collect_answers,
    collect_verdicts,
    plan_again,
    plan_questions,
)
from heart_collect.judging.recipe import RecipeError, read_recipe
from heart_collect.judging.rewriting import collect_rewrites
from heart_utils.runs import find_root

TWO = ["overall", "attunement"]
LETTERS = replace(JUDGE, answer_format="logprob")


def say(request):
    if "logprobs" in request.options:
        return Call("", "ok", "A", logprobs=(("A", -0.2), ("B", -1.8)))
    return choose(0)(request)


def ask_again(*study, ledger, **how):
    return collect_answers("verdicts", plan_again(*study, **how), ledger=ledger)


def test_one_pair_a_history_is_asked_about_in_each_arm_and_order(monkeypatch):
    ledger = StandIn(monkeypatch, say)
    found = ask_again(
        *make_study(),
        [LETTERS],
        ledger=ledger,
        n_pairs=2,
        dimensions=["overall"],
        several=TWO,
        seed=3,
    )
    assert found["pair_id"].nunique() == 2
    assert found["history_id"].nunique() == 2
    assert found.index.tolist() == list(range(4 * 3 + 4 * 2 * 2))
    per_pair = found.groupby(["protocol", "answer_format", "repeat", "dimension"]).size()
    assert per_pair.to_dict() == {
        ("heart", "logprob", 0, "overall"): 4,
        ("heart", "logprob", 1, "overall"): 4,
        ("heart-reworded", "logprob", 0, "overall"): 4,
        **{("heart", "json", 0, name): 4 for name in TWO},
        **{("heart-single", "json", 0, name): 4 for name in TWO},
    }
    in_json = [request for request in ledger.asked if "logprobs" not in request.options]
    assert sorted(len(dimensions_in(request)) for request in in_json) == [1] * 8 + [2] * 4
    assert all(len(codes_in(request)) == 2 for request in in_json)


def test_what_the_run_asked_before_is_not_asked_anew(monkeypatch):
    ledger = StandIn(monkeypatch, say)
    study = make_study()
    collect_verdicts(
        plan_questions(*study, [LETTERS], dimensions=["overall"], seed=3), ledger=ledger
    )
    before = len(ledger.asked)
    ask_again(
        *study, [LETTERS], ledger=ledger, n_pairs=2, dimensions=["overall"], several=TWO, seed=3
    )
    repeats = [request for request in ledger.asked[before:] if "logprobs" in request.options]
    assert sum(request.repeat == 1 for request in repeats) == 4
    assert len(repeats) == 4 + 4  # once more, and in other words


def test_a_judge_that_answers_in_json_has_no_row_twice(monkeypatch):
    found = ask_again(
        *make_study(), [JUDGE], ledger=StandIn(monkeypatch, say), n_pairs=1, dimensions=TWO, seed=3
    )
    assert not found.duplicated(
        ["comparison_id", "rater", "dimension", "protocol", "answer_format", "repeat"]
    ).any()
    assert found.index.tolist() == list(range(len(found)))
    assert set(found["protocol"]) == {protocol for protocol, _, _ in ARMS}


def test_what_cannot_be_asked_is_said(monkeypatch):
    ledger, study = StandIn(monkeypatch, say), make_study()
    with pytest.raises(
        JudgeError,
        match="3 pairs .* 2 histories .*`asked_again: 2`",
    ):
        ask_again(*study, [JUDGE], ledger=ledger, n_pairs=3)
    with pytest.raises(JudgeError, match="together and apart is the same"):
        ask_again(*study, [JUDGE], ledger=ledger, n_pairs=1, dimensions=["overall"])
    assert ledger.asked == []


def test_a_recipe_without_the_setting_asks_nothing_again_and_a_negative_number_is_refused(tmp_path):
    file = tmp_path / "mine.yaml"
    file.write_text("collect: {histories: sample}\n")
    assert read_recipe(str(file.with_suffix(""))).asked_again == 0
    file.write_text("collect: {histories: sample, asked_again: -1}\n")
    with pytest.raises(RecipeError, match="asked_again is -1, expected 0 or more"):
        read_recipe(str(file.with_suffix("")))


def recorded(run):
    """Give a run's recipe, its tables, and how to take its calls from those that come with the
    project."""
    recipe = read_recipe(run)
    replay = {
        "ledger": open_ledger("sqlite://", seed_file=find_root() / recipe.recorded),
        "mode": "replay",
        "progress": False,
    }
    histories = recipe.choose_histories()
    replies = recipe.answer(histories, **replay)
    return recipe, (histories, replies, recipe.pair(replies)), replay


def test_the_recorded_calls_answer_what_the_sample_asks_again_and_codes():
    recipe, (histories, replies, comparisons), replay = recorded("sample")
    again = recipe.ask("again", histories, replies, comparisons, **replay)
    assert again.groupby("protocol")["pair_id"].nunique().to_dict() == {
        "heart": recipe.asked_again,
        "heart-reworded": recipe.asked_again,
        "heart-single": recipe.asked_again,
    }
    assert again["dimension"].nunique() == 2
    codes = recipe.ask("codes", histories, replies, **replay)
    assert codes["reply_id"].nunique() == 36 * len(recipe.coded)
    assert set(codes["state"]) <= {"valid", "unparsed"}


def test_the_recorded_calls_answer_what_the_sample_s_judge_is_asked_of_rewritten_replies():
    recipe, tables, replay = recorded("conjoint")
    verdicts = recipe.ask("verdicts", *tables, **replay)
    assert verdicts.groupby(["protocol", "order"]).size().to_dict() == {
        ("told", "ab"): 36,
        ("told", "ba"): 36,
    }
    assert (verdicts["state"] == "valid").all()


def test_the_recorded_calls_answer_heart_s_whole_protocol_once():
    recipe, tables, replay = recorded("whole")
    verdicts = recipe.ask("verdicts", *tables, **replay)
    by_dimension = verdicts.groupby("dimension")
    assert by_dimension["order"].value_counts().unstack().eq(12).all(axis=None)
    assert by_dimension.ngroups == 6
    valid = verdicts[verdicts["state"] == "valid"]
    assert valid["rationale"].str.len().gt(0).mean() > 0.9
    assert valid["margin"].between(1, 5).mean() > 0.9
    scores = recipe.ask("scores", *tables[:2], **replay)
    assert len(scores) == 12 * 6
    rewrites = collect_rewrites(tables[0], recipe.rewriters, **replay)
    assert rewrites["flags"].str.len().gt(0).all()  # a model that does not read rewrites nothing
