"""Replies: the protocol, the probes, and how an answer is read; histories told again so that the
seeker resists: what a rewrite may change, and what not."""

import dataclasses

import pandas as pd
import pytest
from server import Provider, serving

from heart_collect import accept_rewrites, check_rewrites
from heart_collect.calls.ledger import open_ledger
from heart_collect.calls.models import Call, Model
from heart_collect.collection import rewriting_step
from heart_collect.judging.design import PROBES, RespondError, describe_responders
from heart_collect.judging.prompts import REPLY_INSTRUCTIONS, reply_messages, show_turns
from heart_collect.judging.recipe import Recipe
from heart_collect.judging.respond import (
    ReplyQuestion,
    _reply,
    collect_replies,
    lengthen_planned,
    skipped_histories,
)
from heart_collect.judging.rewriting import collect_rewrites, read_turns
from heart_collect.judging.steps import Tables
from heart_utils import find_root, load_histories


def history(name, *texts, first="seeker", **columns):
    speakers = ["seeker", "supporter"] if first == "seeker" else ["supporter", "seeker"]
    turns = [{"speaker": speakers[i % 2], "text": text} for i, text in enumerate(texts)]
    nothing = dict.fromkeys(["twin_id", "emotion", "problem", "situation"])
    row = {
        "history_id": name,
        "dialogue_id": name,
        "source": "test",
        "slice": "standard",
        "turns": turns,
        "licence": "CC0-1.0",
    }
    return {**row, **nothing, "flags": [], "simulated": False, **columns}


HISTORIES = pd.DataFrame(
    [
        history("h1", "I lost my job.", "When was that?", "Last week, and I told nobody."),
        history("h2", "Hello, what brings you here?", "My dog died.", first="supporter"),
        history("h3", "I am sad.", "I hear you.", flags=["ends_with_supporter"]),
    ]
)


@pytest.fixture
def provider():
    with serving(
        Provider(answer="That sounds heavy to carry alone. What made you keep it to yourself?")
    ) as running:
        yield running


@pytest.fixture
def ledger(tmp_path):
    return open_ledger(f"sqlite:///{tmp_path}/ledger.sqlite")


def model(provider, name="m"):
    return Model(
        name,
        "openai/test",
        api_base=provider.address,
        price_prompt=1,
        price_completion=2,
        family="acme",
    )


def read(text, status="ok"):
    return _reply(ReplyQuestion(HISTORIES.iloc[0].to_dict(), "m"), Call("k", status, text=text))


def test_each_responder_answers_each_history_that_can_be_answered(provider, ledger):
    replies = collect_replies(HISTORIES, [model(provider), *PROBES], ledger=ledger, progress=False)
    assert sorted(replies["reply_id"]) == sorted(
        f"{h}--{r}" for h in ("h1", "h2") for r in ("m", *PROBES)
    )
    assert skipped_histories(HISTORIES)["history_id"].tolist() == ["h3"]
    assert provider.most_in_flight == 1
    mine = replies[replies["responder"] == "m"]
    assert (
        mine[["ttft_ms", "total_ms", "prompt_tokens", "completion_tokens", "cost_usd", "call_id"]]
        .notna()
        .all(axis=None)
    )
    assert (mine["ttft_ms"] < mine["total_ms"]).all()
    assert (mine["state"] == "valid").all()


def test_a_probe_has_no_latency_and_needs_no_call(ledger):
    replies = collect_replies(HISTORIES, list(PROBES), ledger=ledger, mode="replay")
    assert replies[["ttft_ms", "total_ms", "cost_usd", "call_id"]].isna().all(axis=None)
    texts = replies.pivot_table(
        index="history_id", columns="responder", values="text", aggfunc="first"
    )
    assert texts["echo"].to_dict() == {"h1": "Last week, and I told nobody.", "h2": "My dog died."}
    assert texts["generic-comfort"].nunique() == texts["advice-only"].nunique() == 1
    assert not replies["flags"].map(lambda flags: "over_40_words" in flags).any()


def test_replies_come_from_the_ledger_the_second_time(provider, ledger):
    first = collect_replies(HISTORIES, [model(provider)], ledger=ledger, progress=False)
    again = collect_replies(HISTORIES, [model(provider)], ledger=ledger, mode="replay")
    pd.testing.assert_frame_equal(first, again)
    assert len(provider.requests) == 2


def test_repeats_are_replies_of_their_own(provider, ledger):
    replies = collect_replies(
        HISTORIES.head(1), [model(provider), "echo"], ledger=ledger, repeats=2, progress=False
    )
    assert sorted(replies["reply_id"]) == ["h1--echo", "h1--m", "h1--m--r1"]
    assert len(provider.requests) == 2


def test_the_roles_are_as_spoken_and_the_model_is_told_the_protocol(provider, ledger):
    collect_replies(HISTORIES, [model(provider)], ledger=ledger, progress=False)
    system, user = provider.requests[1]["messages"]
    assert "1 to 3 sentences" in system["content"]
    assert "no more than 40 words" in system["content"]
    assert "Supporter: Hello, what brings you here?\nSeeker: My dog died." in user["content"]
    assert provider.requests[1]["stream"] is True


def test_a_reply_has_room_for_120_tokens_in_ones_own_length_600_and_what_a_models_options_say_before(
    provider, ledger
):
    mine = dataclasses.replace(model(provider, "mine"), options={"max_tokens": 77})
    for language in (None, "en"):
        collect_replies(
            HISTORIES.head(1),
            [model(provider), mine],
            ledger=ledger,
            language=language,
            progress=False,
        )
    assert sorted(body["max_tokens"] for body in provider.requests) == [77, 77, 120, 600]


@pytest.mark.parametrize(
    ("free", "longest"), [(False, 200 + 8 * 4 * 120), (True, 200 + 8 * 4 * 600)]
)
def test_what_is_only_planned_is_made_as_long_as_it_may_be(provider, ledger, free, longest):
    mine = dataclasses.replace(model(provider, "mine"), options={"max_tokens": 10})
    models = [model(provider), mine]
    planned = collect_replies(HISTORIES, [*models, "echo"], ledger=ledger, mode="dry")
    long = lengthen_planned(planned, models, free=free)
    assert dict(zip(long["responder"], long["text"].str.len(), strict=True)) == {
        "m": longest,
        "mine": 520,
        "echo": 12,
    }
    echoes = long["responder"] == "echo"
    assert long[echoes].equals(planned[echoes])
    assert lengthen_planned(planned[echoes], models, free=free).equals(planned[echoes])


def test_people_and_models_are_told_the_same():
    assert reply_messages(HISTORIES["turns"][0])[0]["content"] == REPLY_INSTRUCTIONS


@pytest.mark.parametrize(
    ("raw", "text", "flags"),
    [
        ("I hear you.", "I hear you.", []),
        ("Supporter: I hear you.", "I hear you.", ["unwrapped"]),
        ("**Supporter:** I hear you.", "I hear you.", ["unwrapped"]),
        ('"I hear you."', "I hear you.", ["unwrapped"]),
        ("“I hear you.”", "I hear you.", ["unwrapped"]),
        ('"', '"', []),
        ('"I', '"I', []),
        ('"Alone" is a big word. Is it "true"?', '"Alone" is a big word. Is it "true"?', []),
        ("One. Two. Three.", "One. Two. Three.", []),
        ("One. Two! Three? Four.", "One. Two! Three? Four.", ["over_3_sentences"]),
        (" ".join(["word"] * 40), " ".join(["word"] * 40), []),
        (" ".join(["word"] * 41), " ".join(["word"] * 41), ["over_40_words"]),
        ("I hear you.\nSeeker: Thanks.", "I hear you.\nSeeker: Thanks.", ["writes_seeker"]),
        ("<script>alert(1)</script>", "<script>alert(1)</script>", []),
        ("<think>They are sad.</think>\n\nI hear you.", "I hear you.", ["thought"]),
        ("They are sad.</think> Supporter: I hear you.", "I hear you.", ["unwrapped", "thought"]),
        ("<think>Hello, dear.\nSeeker: No.</think>I hear you.", "I hear you.", ["thought"]),
    ],
)
def test_an_answer_is_read_as_it_stands_and_flagged(raw, text, flags):
    row = read(raw)
    assert (row["text"], row["flags"], row["state"]) == (text, flags, "valid")


@pytest.mark.parametrize(
    ("turns", "flags"),
    [
        (["I am sad.", "Hello.", "I said I am sad."], []),
        (["I am sad."], ["greeting"]),
        (["I am sad.", "Oh.", "Yes.", "No?", "No."], []),
    ],
)
def test_a_greeting_is_flagged_where_it_is_the_supporters_first_turn(turns, flags):
    question = ReplyQuestion(history("h", *turns), "m")
    row = _reply(question, Call("k", "ok", text="Hello, how are you?"))
    assert row["flags"] == flags


@pytest.mark.parametrize(("status", "state"), [("error", "error"), ("refused", "refused")])
def test_a_failure_is_a_state_and_has_no_text(status, state):
    row = read("half an ans", status)
    assert (row["state"], row["text"]) == (state, None)


@pytest.mark.parametrize(
    "raw",
    ["", "Supporter:", '""', "Reply: “”", "<think>Sad.</think>", 'Sad.</think> "', "<think>Sad"],
)
@pytest.mark.parametrize("status", ["ok", "truncated"])
@pytest.mark.parametrize("free", [False, True])
def test_an_answer_of_nothing_but_a_thought_a_label_or_marks_is_an_error(raw, status, free):
    row = _reply(
        ReplyQuestion(HISTORIES.iloc[0].to_dict(), "m", free=free and "think" in raw),
        Call("k", status, text=raw),
    )
    assert (row["state"], row["text"], row["flags"]) == ("error", None, [])


@pytest.mark.parametrize("fault", [None, "whole"])  # streamed, and not
def test_a_thought_stays_in_the_ledger_and_out_of_the_reply(provider, ledger, fault):
    provider.answer = "<|channel|>analysis<|message|>Sad.<|end|><|channel|>final<|message|>I hear."
    provider.faults = {fault: 1.0} if fault else {}
    [reply] = collect_replies(
        HISTORIES.head(1), [model(provider)], ledger=ledger, progress=False
    ).to_dict("records")
    assert (reply["text"], reply["state"], reply["flags"]) == ("I hear.", "valid", ["thought"])
    assert ledger.find([reply["call_id"]])[reply["call_id"]].text == provider.answer


def test_a_reply_whose_end_nobody_gave_a_reason_for_is_flagged():
    question = ReplyQuestion(history("h", "I am sad."), "m")
    row = _reply(question, Call("k", "ok", text="I hear you.", finish_reason="unsaid"))
    assert (row["state"], row["flags"]) == ("valid", ["end_unsaid"])


def test_a_truncated_reply_is_kept_and_flagged():
    row = read("I hear you, and", "truncated")
    assert (row["state"], row["flags"]) == ("valid", ["truncated"])


def test_times_taken_beside_other_calls_are_flagged(provider, ledger):
    provider.latency_s = 0.1
    replies = collect_replies(
        HISTORIES, [model(provider)], ledger=ledger, max_concurrency=4, progress=False
    )
    assert replies["flags"].map(lambda flags: "timed_beside_others" in flags).any()


def test_a_dry_run_gives_filler_for_estimates(provider, ledger):
    replies = collect_replies(HISTORIES, [model(provider)], ledger=ledger, mode="dry")
    assert replies["flags"].tolist() == [["planned"], ["planned"]]
    assert {len(text.split()) for text in replies["text"]} == {40}
    assert provider.requests == []


def test_a_history_that_ends_with_the_supporter_is_an_error_unless_it_is_flagged(ledger):
    ends = pd.DataFrame([history("h9", "I am sad.", "I hear you.")])
    with pytest.raises(RespondError, match=r"1 histories end with the supporter \(h9\)"):
        collect_replies(ends, ["echo"], ledger=ledger)
    assert collect_replies(HISTORIES.tail(1), ["echo"], ledger=ledger).empty


def test_unknown_probes_and_shared_names_are_refused(provider, ledger):
    with pytest.raises(RespondError, match="no probe ecko; the probes are generic-comfort"):
        collect_replies(HISTORIES, ["ecko"], ledger=ledger)
    with pytest.raises(RespondError, match="echo appears more than once"):
        collect_replies(HISTORIES, ["echo", model(provider, "echo")], ledger=ledger)


def test_responders_are_described(provider):
    table = describe_responders([model(provider), "echo"]).set_index("responder")
    assert table["responder_kind"].to_dict() == {"m": "model", "echo": "probe"}
    assert (table.loc["m", "family"], table.loc["m", "price"]) == ("acme", pytest.approx(2.0))


# Histories told again so that the seeker resists

TURNS = [
    {"speaker": "seeker", "text": "My landlord sold the flat in June and I sleep on a sofa."},
    {"speaker": "supporter", "text": "Since June. Whose sofa is it?"},
    {"speaker": "seeker", "text": "My brother lets me, but his lease forbids guests after Sunday."},
]
GOOD = [
    {
        "speaker": "seeker",
        "text": "Landlord sold the flat in June, I sleep on a sofa. Why bother telling you.",
    },
    TURNS[1],
    {
        "speaker": "seeker",
        "text": "My brother's. Lease forbids guests after Sunday. So what, you people only ask.",
    },
]
HISTORY = pd.DataFrame({"history_id": ["h"], "turns": [TURNS], "dialogue_id": "h"})


@pytest.fixture(scope="module")
def one_history():
    return load_histories(HISTORY)


def rewrite(*texts, state="valid"):
    return pd.DataFrame({"history_id": "h", "state": state, "text": list(texts)})


def changed(number, **what):
    return [turn | what if at == number else turn for at, turn in enumerate(GOOD)]


def why(one_history, turns):
    (reasons,) = check_rewrites(one_history, rewrite(show_turns(turns)))["why"]
    return reasons


def test_a_rewrite_that_changes_how_help_is_taken_and_nothing_else_is_accepted(one_history):
    assert why(one_history, GOOD) == []
    (made,) = accept_rewrites(one_history, rewrite(show_turns(GOOD))).to_dict("records")
    assert (made["slice"], made["twin_id"], made["dialogue_id"]) == ("adversarial", "h", "h")
    assert made["history_id"] != "h"
    assert made["turns"] == GOOD


@pytest.mark.parametrize(
    ("turns", "reason"),
    [
        (TURNS, "it is the original"),
        (GOOD[:2], "the last turn is not the seeker's"),
        (GOOD[:2], "a turn of the seeker is missing or new"),
        ([*GOOD, GOOD[0]], "a turn of the seeker is missing or new"),
        (changed(1, text="You should talk to him."), "a turn of the supporter is not kept"),
        (changed(2, text=GOOD[2]["text"] + " Ask my sister."), "it adds somebody: sister"),
        (
            changed(2, text=GOOD[2]["text"] + " Says Mister Hartigan."),
            "it adds somebody: hartigan, mister",
        ),
        (changed(2, text="So what. I want to die."), "it speaks of harm"),
        (changed(2, text=GOOD[2]["text"] * 4), "it is too short or too long"),
        (
            [GOOD[0] | {"text": "Whatever."}, GOOD[1], GOOD[2] | {"text": "Forget it."}],
            "the seeker's facts are not kept",
        ),
        (
            [TURNS[0], TURNS[1], changed(2, text="My brother's, until Sunday, by his lease.")[2]],
            "the seeker does not push back",
        ),
    ],
)
def test_what_a_rewrite_must_not_change(one_history, turns, reason):
    assert reason in why(one_history, turns)
    assert accept_rewrites(one_history, rewrite(show_turns(turns))).empty


def test_of_several_rewrites_the_first_that_passes_counts_and_none_is_lost(one_history):
    several = rewrite(show_turns(TURNS), show_turns(GOOD), "I cannot do that.")
    assert check_rewrites(one_history, several)["why"].str.len().tolist() == [2, 0, 1]
    assert accept_rewrites(one_history, several)["turns"].tolist() == [GOOD]
    failed = rewrite(None, state="error")
    assert check_rewrites(one_history, failed)["why"].tolist() == [["the call: error"]]
    with pytest.raises(ValueError, match="other is none of the histories"):
        check_rewrites(one_history, failed.assign(history_id="other"))


def test_speakers_are_read_whatever_stands_around_them():
    text = "Here it is:\n**Seeker:** So what.\n\nSupporter: Tell me\nmore.\nSeeker: No."
    assert [turn["speaker"] for turn in read_turns(text)] == ["seeker", "supporter", "seeker"]
    assert read_turns(text)[1]["text"] == "Tell me more."


def test_every_history_of_the_sample_is_read_back_as_it_was_written_down():
    for turns in load_histories("sample")["turns"]:
        plain = [turn | {"text": " ".join(turn["text"].split())} for turn in turns]
        assert read_turns(show_turns(turns)) == plain


def test_the_step_asks_about_standard_histories_and_flags_what_it_refuses():
    rewriter = Model("m", "openai/gpt-4o", options={"mock_response": show_turns(TURNS)})
    recipe = Recipe("mine", "sample", rewrites="adversarial", rewriters=(rewriter,))
    ledger, histories = open_ledger("sqlite://"), load_histories("sample")
    histories = histories.groupby("slice").head(3)
    step, tables = rewriting_step(recipe), Tables(histories)
    assert step.plan(tables, ledger)["n_calls"].tolist() == [3]
    made = step.run(tables, ledger, progress=False)
    assert made["state"].eq("valid").all()
    assert len(made) == 3
    assert made["flags"].map(lambda flags: "the seeker's facts are not kept" in flags).all()
    assert accept_rewrites(histories, made).empty
    assert collect_rewrites(histories, (), ledger=ledger).empty


@pytest.mark.mirror
def test_the_facts_of_hearts_twenty_rewrites_follow_from_their_texts(mirror):
    histories = load_histories("heart", twins=True)
    adversarial = histories[histories["slice"] == "adversarial"]
    found = check_rewrites(
        histories,
        pd.DataFrame(
            {
                "history_id": adversarial["twin_id"],
                "state": "valid",
                "text": adversarial["turns"].map(show_turns),
            }
        ),
    ).reset_index(drop=True)
    kept = pd.read_csv(find_root() / "data" / "heart" / "heart_rewrites.csv", keep_default_na=False)
    numbers = ["facts_kept", "supporter_kept", "pushes_back", "length"]
    pd.testing.assert_frame_equal(found[numbers].round(3), kept[numbers], check_dtype=False)
    reasons = found["why"].map(lambda one: "; ".join(fault.split(":")[0] for fault in one))
    assert reasons.tolist() == kept["why"].tolist()
