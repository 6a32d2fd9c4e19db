"""Whole conversations: a responder and a simulated seeker, turn by turn through one ledger."""

import itertools
import re
import time
from collections import Counter

import numpy as np
import pandas as pd
import pytest
import server
from conversation_case import PAID, collected_once, copied, settings, shown, speak
from worker import begin_command

from heart_collect import open_ledger
from heart_collect.calls.models import read_models
from heart_collect.collect import main
from heart_collect.judging.design import RespondError, cross_seekers
from heart_collect.judging.prompts import NEXT
from heart_collect.judging.recipe import read_recipe
from heart_collect.judging.respond import (
    collect_conversations,
    collect_replies,
    conversation_replies,
)
from heart_collect.judging.steps import first_step
from heart_utils import (
    GateRule,
    combine_orders,
    compare_responders,
    fit_boards,
    fit_ratings,
    load_histories,
    pairwise_agreement,
)
from heart_utils.report.leaderboard import leaderboard_html
from heart_utils.runs import find_root, open_run


def models(provider, *names):
    return read_models(
        [{"name": name, "model": f"openai/{name}", "api_base": provider.address, **PAID}
         for name in names]
    )  # fmt: skip


def talk(provider, answers, *, exchanges=9, responder="m", **how):
    """Let one responder talk with one seeker, each saying what `answers` holds for it in turn."""
    lines = {name: iter(said) for name, said in answers.items()}
    provider.answer = lambda body: next(lines[body["model"]])
    [m, s] = models(provider, "m", "s")
    who = m if responder == "m" else responder
    starts = cross_seekers(load_histories("sample").head(1), ["s"])
    asked = {"ledger": open_ledger("sqlite://"), "progress": False, "exchanges": exchanges} | how
    found = collect_conversations(starts, [who], [s], **asked)
    return found.iloc[0]


@pytest.fixture(scope="module")
def held(tmp_path_factory):
    """Hold and judge the conversations of the recipe once."""
    folder = tmp_path_factory.mktemp("held")
    with collected_once(folder) as (provider, _):
        yield folder, provider


@pytest.fixture
def collected(held, tmp_path, monkeypatch):
    """A copy of that project, what writes its settings, and its provider."""
    folder, provider = held
    return copied(folder, tmp_path / "copy", provider.address, monkeypatch), provider


ONE = {"slices": {"standard": 1, "adversarial": 0}}
"""One start: 5 turns of each responder, since the first is shared, 6 of each seeker, 4 verdicts."""
NEW = [f"Something new of number {i}." for i in range(300)]


def test_responder_and_seeker_alternate_for_k_exchanges(collected):
    run, provider = open_run("mine"), collected[1]
    talks, histories = run.read("conversations"), run.read("histories").set_index("history_id")
    assert len(talks) == 3 * 2 * 2  # starts, responders, seekers
    assert set(talks["stop_reason"]) == {"length"}
    for one in talks.to_dict("records"):
        start = histories.loc[one["history_id"]]
        assert start["seeker"] == one["seeker"]
        assert one["history_id"] == f"{one['start_id']}--{one['seeker']}"
        speakers = [turn["speaker"] for turn in one["turns"]]
        assert speakers == ["supporter", "seeker"] * 3
        # each turn was asked for with all turns before it, and by who speaks
        for place, turn in enumerate(one["turns"], start=len(start["turns"]) + 1):
            who = one["responder"] if turn["speaker"] == "supporter" else one["seeker"]
            assert turn["text"] == f"This is turn {place}, word {who} says."
        assert len(one["call_ids"]) == 6
    # a first turn does not know its seeker, so two seekers share it: 3 * 2 + 3 * 2 * 2 * 5
    asked = provider.requests[: 3 * 2 + 12 * 5 + 12]  # with a verdict in both orders of 6 pairs
    assert sum(body["model"] != "j" for body in asked) == 3 * 2 + 12 * 5


def test_a_recorded_run_asks_nothing_again_and_a_longer_one_only_what_is_new(collected):
    project, provider = collected
    n, before = len(provider.requests), open_run("mine").read("conversations")
    assert main(["mine", "--quiet", "--yes"]) == 0
    assert main(["mine", "--check"]) == 0
    assert len(provider.requests) == n
    pd.testing.assert_frame_equal(open_run("mine").read("conversations"), before)
    project(exchanges=4, protocols={"conversation": ["overall"]}, judges=[])
    assert main(["mine", "--quiet", "--yes"]) == 0
    assert len(provider.requests) == n + 12 * 2


def test_the_first_turn_is_the_reply_that_a_run_of_replies_has_recorded(provider):
    [m, s] = models(provider, "m", "s")
    histories, ledger = load_histories("sample").head(2), open_ledger("sqlite://")
    replies = collect_replies(histories, [m], ledger=ledger, progress=False)
    n = len(provider.requests)
    found = collect_conversations(
        cross_seekers(histories, ["s"]), [m], [s], ledger=ledger, exchanges=1, progress=False
    )
    assert [turns[0]["text"] for turns in found["turns"]] == replies["text"].tolist()
    assert [calls[0] for calls in found["call_ids"]] == replies["call_id"].tolist()
    assert {body["model"] for body in provider.requests[n:]} == {"s"}


def test_a_dry_run_counts_every_turn_and_bounds_what_they_cost(project, provider, capsys):
    project(**ONE)
    assert main(["mine", "--dry-run"]) == 0
    said = capsys.readouterr().out
    assert provider.requests == []
    assert "2 histories, each start with each of 2 seekers." in said
    rows = {
        (row[0], row[1]): row[2:]
        for row in re.findall(
            r"(turns of \w+|verdicts) +(\w) +(\d+) +(\d+) +(\d+) +(\d+) +([0-9.]+) +([0-9.]+)", said
        )
    }
    # a first turn is one call for two seekers: 1 + 2 * 2
    assert rows["turns of supporters", "m"][:2] == ("5", "0")
    assert rows["turns of seekers", "s"][:2] == ("6", "0")
    assert rows["verdicts", "j"][:2] == ("4", "0")
    expected, most = map(
        float, re.search(r"for ([0-9]+\.[0-9]+) USD.* at most ([0-9]+\.[0-9]+)", said).groups()
    )
    # the longest turns: nobody stops, every word is long and each turn is read again by the next
    provider.answer = lambda body: (
        speak(body) if body["model"] == "j" else f"turn {len(shown(body))} " + "word" * 10_000
    )
    assert main(["mine", "--quiet", "--yes"]) == 0
    spent = float(re.search(r"Spent on this ledger so far: ([0-9.]+)", capsys.readouterr().out)[1])
    assert expected < spent <= most + 0.005


def test_a_budget_stops_a_conversation_and_more_goes_on_with_it(project, provider, capsys):
    project(budget_usd=0.002, judges=[], **ONE)
    assert main(["mine", "--quiet", "--yes"]) == 1
    assert "does not reach for another call" in capsys.readouterr().err
    n = len(provider.requests)
    assert n < 22
    project(budget_usd=1, judges=[], **ONE)
    assert main(["mine", "--quiet", "--yes"]) == 0
    assert len(provider.requests) == 22  # and none of them twice


def test_what_is_judged_says_its_unit_and_its_seeker_and_the_rest_is_as_with_replies(
    project, provider
):
    s, t = settings(provider.address)["seekers"]
    protocols = {"conversation": None, "conversation-likert": ["overall"]}
    project(
        exchanges=1, protocols=protocols, seekers=[s | {"family": "ONE"}, t], allow=["own_family"]
    )
    assert main(["mine", "--quiet", "--yes"]) == 0
    run = open_run("mine")
    replies, comparisons, verdicts = map(run.read, ("replies", "comparisons", "verdicts"))
    talks, scores = run.read("conversations"), run.read("scores")
    flagged = talks[talks["flags"].map(lambda flags: "seeker_own_family" in flags)]
    assert set(zip(flagged["responder"], flagged["seeker"], strict=True)) == {("m", "s")}
    pd.testing.assert_frame_equal(conversation_replies(talks), replies.sort_index())
    # never two starts or two seekers in one pair
    of = talks.set_index("conversation_id")
    for side in ("start_id", "seeker"):
        a, b = (comparisons[f"reply_{one}"].map(of[side]) for one in "ab")
        assert (a == b).all()
    assert len(comparisons) == 6 * 2
    for table in (verdicts, scores):
        assert set(table["unit"]) == {"conversation"}
        assert set(table["seeker"]) == {"s", "t"}
    joined = combine_orders(verdicts)
    assert set(joined["state"]) == {"valid"}
    board = fit_ratings(joined, dimension="overall", n_resamples=50)
    assert board.strength.index.tolist() == ["m", "n"]
    assert "these seekers: they are fixed" in repr(board)
    assert set(board.table["population"]) == {"dialogues_these_seekers"}
    with pytest.raises(ValueError, match="2 of 'seeker' are too few to stand for others"):
        fit_ratings(joined, dimension="overall", cluster=["dialogue_id", "seeker"])
    with pytest.raises(
        ValueError, match=r"fit each by itself, as with fit_boards\(by=\['unit'\]\)"
    ):
        fit_ratings(pd.concat([joined, joined.assign(unit=None, repeat=1)]), dimension="overall")
    by = fit_boards(joined, by=["seeker"], dimension="overall", n_resamples=0)
    assert [table.table["group"][0] for table in by.values()] == ["seeker=s", "seeker=t"]
    people = joined.assign(rater="ann", rater_kind="human", unit=joined["unit"])
    agreed = pairwise_agreement(pd.concat([joined, people]), n_resamples=0)
    assert agreed.table["agreement"].tolist() == [1.0] * 6  # on each of the six dimensions
    gate = compare_responders(
        joined, baseline="n", candidate="m", dimensions=["overall"], rule=GateRule(n_resamples=50),
        rng=np.random.default_rng(1),
    )  # fmt: skip
    assert gate.baseline == "n"
    assert "with these simulated seekers" in leaderboard_html(board.table)


def test_a_killed_run_goes_on_where_each_conversation_stood(project, provider):
    project(**ONE)
    provider.latency_s = 0.05
    process = begin_command("heart_collect.collect", "mine", "--quiet", "--yes")
    while len(provider.requests) < 10:
        assert process.is_alive()
        time.sleep(0.01)
    process.kill()
    process.join()
    assert main(["mine", "--quiet", "--yes"]) == 0
    talks = open_run("mine").read("conversations")
    assert set(talks["state"]) == {"valid"}
    for one in talks.to_dict("records"):
        places = [int(re.search(r"turn (\d+)", turn["text"])[1]) for turn in one["turns"]]
        assert places == list(range(places[0], places[0] + 6))
    asked = Counter((body["model"], str(body["messages"])) for body in provider.requests)
    assert len(asked) == 22 + 4  # turns and verdicts
    assert sum(n - 1 for n in asked.values()) <= 8  # what was in flight at the kill


@pytest.mark.parametrize(
    ("answers", "reason", "by", "state", "n", "flag"),
    [
        (["I leave. [END]"], "seeker_ended", "seeker", "valid", 1, None),
        (["Well.", "[end]"], "seeker_ended", "seeker", "valid", 1, None),
        (["[END]"], "ended_at_once", "seeker", "abstained", 0, None),
        (["Supporter: I hear you."], "wrong_role", "seeker", "unparsed", 1, None),
        (["I'm so sorry to hear that you feel so."], "wrong_role", "seeker", "unparsed", 1, None),
        (["You should try to sleep more."], "wrong_role", "seeker", "unparsed", 1, None),
        (["It got worse today, and nobody called."] * 2, "repeated", "seeker", "unparsed", 2, None),
        (["No.", "No!", "no"], "repeated", "seeker", "unparsed", 3, None),
        (["Something new of number 0."], "repeated", "seeker", "unparsed", 1, None),
        (["Seeker: Worse.\nSupporter: Why?"], "length", None, "valid", 1, "writes_supporter"),
        (["Seeker: Worse."], "length", None, "valid", 1, "unwrapped"),
    ],
)
def test_a_seeker_that_does_not_play_its_part_ends_the_conversation_in_a_state(
    provider, answers, reason, by, state, n, flag
):
    k = len(answers)
    found = talk(provider, {"m": NEW, "s": answers}, exchanges=k)
    assert [found["stop_reason"], found["state"], found["n_exchanges"]] == [reason, state, n]
    assert (found["stopped_by"] == by) if by else pd.isna(found["stopped_by"])
    assert flag is None or flag in found["flags"]
    replies = conversation_replies(pd.DataFrame([found]))
    assert replies["text"].notna().tolist() == [state == "valid"]


def test_no_thought_is_part_of_a_turn_nor_shown_to_the_other(provider):
    answers = {
        "m": [
            "<think>I am a model. [END]</think>What happened?",
            "Sad.</think>That is hard.",
            "Oh.",
        ],
        "s": ["[THINK]I play Ada. [END][/THINK]She left.", "<think>Say bye.</think>Bye. [END]"],
    }
    row = talk(provider, answers)
    assert [turn["text"] for turn in row["turns"]] == [
        "What happened?", "She left.", "That is hard.", "Bye.",
    ]  # fmt: skip
    assert (row["stop_reason"], row["flags"]) == ("seeker_ended", ["thought"])
    asked = "".join(str(body["messages"]) for body in provider.requests)
    assert not re.search(r"think|play Ada|I am a model", asked.split("She left")[1], re.IGNORECASE)


@pytest.mark.parametrize("said", ["<think>I play Ada.", "I play Ada.</think>", "[THINK]Ada. [END]"])
@pytest.mark.parametrize("who", ["m", "s"])
def test_a_turn_of_nothing_but_a_thought_ends_the_conversation(provider, said, who):
    row = talk(provider, {"m": ["What happened?"], "s": ["She left."]} | {who: [said]})
    assert (row["stop_reason"], row["state"]) == ("empty", "error")
    assert [turn["text"] for turn in row["turns"]] == ["What happened?"][: who == "s"]
    assert len(provider.requests) == 1 + (who == "s")


def test_turns_that_go_round_in_circles_stop(provider):
    circle = [f"This is what I say on day number {i % 7}." for i in range(400)]
    found = talk(provider, {"m": circle, "s": circle[3:]}, exchanges=200)
    assert [found["stop_reason"], found["state"]] == ["repeated", "unparsed"]
    assert len(found["turns"]) < 20


def test_a_supporter_that_repeats_itself_goes_on_and_is_flagged(provider):
    found = talk(provider, {"s": NEW}, exchanges=4, responder="generic-comfort")
    assert [found["stop_reason"], found["state"]] == ["length", "valid"]
    assert "supporter_repeats" in found["flags"]
    assert [call is None for call in found["call_ids"]] == [True, False] * 4


@pytest.mark.parametrize(
    ("fault", "reason", "state"),
    [("refusal", "refused", "refused"), ("filter", "refused", "refused"), ("400", "error", "error"),
     ("empty", "empty", "error")],
)  # fmt: skip
def test_a_turn_that_fails_later_is_kept_in_its_state_and_never_judged(
    provider, fault, reason, state
):
    """At turn 3: one exchange is whole, and the conversation is not."""
    provider.script = [None] * 2 + [fault] * (4 if fault == "empty" else 1)
    found = talk(provider, {"m": NEW, "s": NEW[50:]})
    assert [found["stop_reason"], found["stopped_by"], found["state"]] == [
        reason,
        "supporter",
        state,
    ]
    assert found["n_exchanges"] == 1
    assert len(found["call_ids"]) == 3
    assert conversation_replies(pd.DataFrame([found]))["text"].isna().all()


@pytest.mark.parametrize(
    "words",
    [
        "This model's maximum context length is 2048 tokens.",
        "the request exceeds the available context size",
        "prompt is too long: 9000 tokens",
    ],
)
def test_a_conversation_longer_than_a_models_window_says_so(provider, words, monkeypatch):
    plain = server.refusal
    monkeypatch.setattr(
        server,
        "refusal",
        lambda status, _, *rest, **named: plain(status, words, *rest, **named),
    )
    provider.script = [None, None, "400"]
    found = talk(provider, {"m": NEW, "s": NEW[50:]})
    assert [found["stop_reason"], found["state"], found["n_exchanges"]] == ["too_long", "error", 1]


def test_what_failed_is_asked_for_again_and_the_conversation_goes_on(project, provider):
    project(exchanges=2, judges=[], **ONE)
    provider.script = [None] * 7 + ["400"]  # two first turns, four answers, and of four turns one
    assert main(["mine", "--quiet", "--yes"]) == 3
    talks = open_run("mine").read("conversations")
    assert talks["state"].value_counts().to_dict() == {"valid": 3, "error": 1}
    assert main(["mine", "--quiet", "--yes"]) == 0
    assert set(open_run("mine").read("conversations")["state"]) == {"valid"}


def test_a_start_without_a_seekers_turn_is_refused_by_name_or_left_out_where_it_is_flagged(
    provider,
):
    [m, s] = models(provider, "m", "s")
    histories = load_histories("sample").head(2)
    spoilt = histories.assign(
        turns=[[{"speaker": "supporter", "text": "Hello."}], histories["turns"].iloc[1]]
    )
    asked = {"ledger": open_ledger("sqlite://"), "exchanges": 1, "progress": False}
    first = spoilt["history_id"].iloc[0]
    with pytest.raises(RespondError, match=f"1 histories end with the supporter .{first}--s"):
        collect_conversations(cross_seekers(spoilt, ["s"]), [m], [s], **asked)
    flagged = spoilt.assign(flags=[["ends_with_supporter"], []])
    assert len(collect_conversations(cross_seekers(flagged, ["s"]), [m], [s], **asked)) == 1
    with pytest.raises(RespondError, match=r"histories.seeker: x is none of the seekers \(s\)"):
        collect_conversations(cross_seekers(flagged, ["x"]), [m], [s], **asked)


def test_twins_stay_linked_with_the_same_seeker(project):
    crossed = read_recipe("mine").choose_histories()
    twins = crossed.dropna(subset="twin_id")
    assert twins["twin_id"].str.rsplit("--").str[-1].tolist() == twins["seeker"].tolist()


def test_instructions_in_another_language_reach_both(project, provider):
    told = {"instructions": "Antworte auf Deutsch.", "seeker_instructions": "Sprich weiter."}
    project(exchanges=1, judges=[], **ONE, **told)
    assert main(["mine", "--quiet", "--yes"]) == 0
    told = {(body["messages"][0]["content"], body["messages"][-1]["content"].rsplit("\n", 1)[-1])
            for body in provider.requests}  # fmt: skip
    assert told == {
        ("Antworte auf Deutsch.", NEXT["supporter"]),
        ("Sprich weiter.", NEXT["seeker"]),
    }


def test_repeats_are_conversations_of_their_own(provider):
    count = itertools.count()
    provider.answer = lambda body: f"Nothing that was said before, {next(count)}."
    [m, s] = models(provider, "m", "s")
    starts = cross_seekers(load_histories("sample").head(1), ["s"])
    asked = {"ledger": open_ledger("sqlite://"), "exchanges": 2, "progress": False}
    found = collect_conversations(starts, [m], [s], repeats=2, **asked)
    names = found["conversation_id"].tolist()
    assert names[1] == f"{names[0]}--r1"
    one, two = found["turns"]
    assert not {turn["text"] for turn in one} & {turn["text"] for turn in two}


def test_the_recorded_demo_replays_and_asks_nobody():
    recipe = read_recipe("conversations")
    ledger = open_ledger("sqlite://", seed_file=find_root() / recipe.recorded)
    histories = recipe.choose_histories()
    how = {"ledger": ledger, "mode": "replay", "progress": False}
    talks = first_step(recipe).made(histories, **how)["conversations"]
    assert talks[["responder", "seeker"]].drop_duplicates().shape == (3, 2)
    related = talks["flags"].map(lambda flags: "seeker_own_family" in flags)
    assert (related == (talks["responder"] == "SmolLM2-135M-Instruct")).all()
    replies = conversation_replies(talks)
    comparisons = recipe.pair(replies)
    verdicts = recipe.ask("verdicts", histories, replies, comparisons, **how)
    assert len(verdicts) == 3 * 3 * 2  # three starts, three pairs, both orders
    assert set(verdicts["state"]) == {"valid"}
    assert set(verdicts["seeker"]) == {"SmolLM2-135M-seeker"}
    scores = recipe.ask("scores", histories, replies, **how)
    assert len(scores) == 3 * 3  # by the seeker itself, of each conversation that it was in
    assert set(scores["rater"]) == {"SmolLM2-135M-seeker"}
