"""People who talk with simulated seekers: what is kept of each turn, and what becomes of it."""

import importlib
import json
import multiprocessing
import stat
import sys

import numpy as np
import pandas as pd
import pytest
from chat_case import (
    LINKS,
    StandIn,
    Talker,
    first_talk,
    kept,
    recipe,
    sent,
    serving_chats,
    set_recipe,
    study_with,
    talking,
)
from study_builders import STATEMENT

from heart_collect.judging.design import DesignError, cross_seekers, pair_replies
from heart_collect.people import chats, raters, study
from heart_collect.people.assignment import StudyError, assign_conversations
from heart_collect.people.chats import LONGEST
from heart_collect.people.raters import import_study
from heart_collect.people.study import ASKED_OF_PUBLIC, write_study
from heart_utils import load_histories
from heart_utils.runs import RunError


def words_of(talker):
    return [words for who, words in talker.turns if who == "You"]


def test_each_turn_is_on_the_disk_before_its_answer_is_shown(folder):
    seen = []

    def ask(request):
        seen.append([len(talk["turns"]) for talk in kept(folder)["talks"].values()])
        return seeker(request)

    seeker = StandIn()
    with serving_chats(folder, ask) as address:
        ann = Talker(address)
        ann.begin("Ann")
        ann.say("What happened?")
        assert ann.turns[-2:] == [("You", "What happened?"), ("Seeker", "Answer 1 of mine.")]
        ann.say("And then?")
    assert seen == [[1, 0], [3, 0]]
    said = [turn["text"] for turn in first_talk(folder)["turns"]]
    assert said == ["What happened?", "Answer 1 of mine.", "And then?", "Answer 2 of mine."]


def test_people_s_conversations_stand_beside_those_of_models_under_codes(run, folder):
    with talking(folder, name="Ann Example") as ann:
        for pasted in ("5", "4"):  # of nine letters
            ann.say("What happened?", typing_ms="1200", pasted="0")
            ann.say("And then?", typing_ms="300", pasted=pasted)
            ann.next()
        assert ann.main == "debrief"
        ann.send(do="comments", comments="It was fine.")
        assert ann.main == "thanks"
    imported = import_study(run, folder)
    talks, replies = imported.conversations, imported.replies
    assert talks["author_id"].str.fullmatch(r"writer-[0-9a-f]{8}").all()
    assert talks["history_id"].str.split("--").str[-1].tolist() == talks["seeker"].tolist()
    assert talks["cost_usd"].tolist() == pytest.approx([0.002] * 2)
    columns = ["responder", "stop_reason", "typing_ms"]
    assert talks[columns].to_numpy().tolist() == [["human", "length", 1500.0]] * 2
    assert talks["flags"].tolist() == [["pasted"], []]
    assert talks["call_ids"][0] == [None, "call-1", None, "call-2"]
    assert [ms > 0 for ms in talks["turn_ms"][0]] == [True, False, True, False]
    assert replies["reply_id"].tolist() == talks["conversation_id"].tolist()
    assert replies["text"][0].startswith("Supporter: What happened?\nSeeker: Answer 1 of mine.")
    assert (replies["total_ms"] > 0).all()
    assert imported.responders["responder_kind"].tolist() == ["human"]
    counts = imported.raters[["n_shown", "n_answered", "completed"]]
    assert counts.to_numpy().tolist() == [[2, 2, True]]
    imported.write(run)
    for table in ("conversations", "replies"):
        file = run.folder / table / "people-conversation.parquet"
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert "Ann Example" not in pd.read_parquet(file).to_csv()
    pd.testing.assert_frame_equal(run.read("conversations"), talks)


def test_addresses_and_numbers_reach_neither_the_seeker_nor_the_run(run, folder):
    told = "Should I call +44 20 7946 0958, or write to eve@example.org?"
    with talking(folder, told, name="ann@example.org") as ann:
        ann.say("Write to ann@example.org or see www.example.org/ann, I am @ann_here.")
        ann.say("Is that so?")
    asked = "".join(request.messages_json() for request in ann.seeker.asked)
    assert "Supporter: Write to [email] or see [link] I am [handle]." in asked
    assert "ann@" not in asked
    assert "ann_here" not in asked
    imported = import_study(run, folder)
    imported.write(run)
    said = imported.conversations["turns"][0]
    assert said[1]["text"] == "Should I call [number], or write to [email]?"
    assert "redacted" in imported.conversations["flags"][0]
    written = b"".join(file.read_bytes() for file in run.folder.rglob("*.parquet"))
    assert b"example.org" not in written
    assert "ann@example.org" in (run.folder / "keys" / "people.csv").read_text()


def test_no_words_and_too_many_are_told_and_not_sent(folder):
    with talking(folder) as ann:
        ann.say(" \n ")
        assert "There were no words in it" in ann.page
        ann.say("x" * (LONGEST + 1))
        assert "too long for one turn" in ann.page
        assert "x" * LONGEST in ann.page  # what was written is not lost
        ann.say("x" * LONGEST)
    assert len(ann.seeker.asked) == 1


def test_a_page_that_was_overtaken_adds_no_turn_and_who_stopped_by_mistake_goes_on(folder):
    with talking(folder) as ann:
        page, n = ann.field("page"), ann.field("n")
        ann.say("Once.")
        for other in (
            {"page": page, "n": n, "text": "Twice, from another tab."},
            {"page": "seat-009.001.h--s", "n": "0", "text": "Of somebody else."},
        ):
            ann.send(do="turn", **other)
            assert "had been overtaken" in ann.page
        ann.send(do="stop")
        assert ann.main == "stopped"
        ann.send(do="resume")
        assert ann.main == "talk"
        assert words_of(ann) == ["Once."]
        assert len(ann.seeker.asked) == 1
        ann.say("Twice.")
        assert "This conversation ends here" in ann.page


@pytest.mark.parametrize("answered", [True, False])
def test_who_comes_back_after_the_server_was_stopped_goes_on_where_they_were(folder, answered):
    with talking(folder) as ann:
        ann.say("Once.")
    file = folder / "answers" / "seat-001.json"
    state = json.loads(file.read_text())
    first = next(iter(state["talks"].values()))
    if not answered:
        first["turns"], first["calls"] = first["turns"][:1], first["calls"][:1]
        file.write_text(json.dumps(state))
    with serving_chats(folder, StandIn("Later.")) as address:
        again, stranger = Talker(address), Talker(address)  # other browsers
        stranger.knock("ann")
        assert stranger.main == "code"
        again.knock("ANN", ann.code.lower())
        again.wait()
        assert again.turns == (ann.turns if answered else [*ann.turns[:-1], ("Seeker", "Later.")])
        again.say("Twice.")
        assert words_of(again) == ["Once.", "Twice."]
        assert again.turns[-1][0] == "Seeker"


@pytest.mark.parametrize("failure", [("error", "timeout"), ValueError("the budget is used up")])
def test_a_seeker_that_does_not_answer_is_told_kept_and_asked_again(run, folder, failure):
    with talking(folder, "Well.", failure, failure, "At last.") as ann:
        ann.say("Once.")
        ann.say("Twice.")
        assert "did not answer. What you wrote is kept." in ann.page
        row = import_study(run, folder).conversations.iloc[0]
        assert row[["stop_reason", "stopped_by", "state"]].tolist() == ["error", "seeker", "error"]
        for told in ("did not answer", "At last."):
            ann.send(do="again", page=next(iter(kept(folder)["talks"])))
            ann.wait()
            assert told in ann.page
    row = import_study(run, folder).conversations.iloc[0]
    assert row[["stop_reason", "state", "n_exchanges"]].tolist() == ["length", "valid", 2]


ENDINGS = {
    "seeker_ended": ("Thank you. [END]", "valid", "left the conversation here"),
    "ended_at_once": ("[END]", "abstained", "before a word"),
    "wrong_role": ("Supporter: I hear you.", "unparsed", "fell out of its part"),
    "repeated": ("The flat is <b>empty</b> now.", "unparsed", "began to repeat itself"),
    "refused": (("refused", "a filter"), "refused", "would not answer that"),
    "too_long": (("error", "maximum context length"), "error", "too long for the program"),
}


def test_how_the_seeker_ends_is_told_to_its_writer_and_kept(run):
    folder = study_with(run, n_writers=4, writers_per_history=2)
    expected = {reason: state for reason, (_, state, _) in ENDINGS.items()}
    with serving_chats(folder, StandIn(*(answer for answer, _, _ in ENDINGS.values()))) as address:
        for number, (_, _, told) in enumerate(ENDINGS.values()):
            if number % 2 == 0:
                talker = Talker(address)
                talker.begin(f"p{number}")
            talker.say("Once.")
            assert told in talker.page
            talker.next()
            assert "Conversation 2 of 2" in talker.page or number % 2
    talks = import_study(run, folder).conversations
    assert talks.set_index("stop_reason")["state"].to_dict() == expected


def test_half_a_conversation_is_kept_and_never_judged(run, capsys):
    folder = study_with(run, n_writers=4, writers_per_history=2)
    with serving_chats(folder, StandIn()) as address:
        for name in ("closes the page", "stops", "goes on to the next"):
            talker = Talker(address)
            talker.begin(name)
            talker.say("Once.")
            talker.get("/" if name == "closes the page" else "/stop")
            if name == "stops":
                talker.send(do="stop")
                assert talker.main == "stopped"
        talker.next()
        assert "Conversation 2 of 2" in talker.page
    assert raters.main(["mine", "conversation"]) == 0
    # what was not begun is none
    said = "3 people, 0 verdicts, 3 conversations (left 3); 0 withdrew"
    assert said in capsys.readouterr().out
    assert run.manifest["tables"]["conversations/people-conversation"]["origin"] == "rehearsal"
    columns = ["stop_reason", "stopped_by", "state", "n_exchanges"]
    rows = run.read("conversations")[columns].to_numpy().tolist()
    assert rows == [["left", "supporter", "abstained", 1]] * 3
    counts = run.read("raters")[["n_shown", "n_answered", "completed"]].to_numpy().tolist()
    assert counts == [[2, 0, False]] * 3
    replies = run.read("replies")
    assert replies["text"].isna().all()
    other = replies.assign(reply_id="m", responder="model", text="Supporter: a", state="valid")
    both = pd.concat([replies.head(1), other.head(1)])
    with pytest.raises(DesignError), pytest.warns(UserWarning, match="1 abstained"):
        pair_replies(both, rng=np.random.default_rng(1))


def test_who_declines_leaves_nothing_and_takes_no_seat(folder):
    with serving_chats(folder, StandIn()) as address:
        no, late = Talker(address), Talker(address)
        no.knock("no-thanks")
        no.agree("no")
        assert no.main == "declined"
        assert not (folder / "answers").exists()
        for name in ("Ann", "Ben"):
            Talker(address).begin(name)
        late.knock("Cy")
        late.agree()
        assert late.main == "full"
    files = (folder / "answers").iterdir()
    assert "no-thanks" not in "".join(file.read_text() for file in files)


def test_every_page_says_what_the_seeker_is_and_where_help_is(run):
    told = dict.fromkeys(ASKED_OF_PUBLIC, "told") | {"support_line": "116 123 <at night>"}
    folder = study_with(run, statement=STATEMENT, **told)
    with serving_chats(folder, StandIn()) as address:
        ann = Talker(address)
        pages = [sent(address, "GET", path)[1] for path in ("/", LINKS[address])]
        pages += [ann.knock("Ann"), ann.agree(), ann.send(do="begin"), ann.get("/stop")]
    assert all("116 123 &lt;at night&gt;" in page for page in pages)
    consent, _, talk, _ = pages[2:]
    assert "is made by four and three and may run elsewhere" in consent
    assert "content-note" in consent
    for words in ("I am a program that plays a person", "content-note", "Stop here"):
        assert words in talk


def test_words_run_nowhere_and_no_address_of_who_took_part_is_kept(folder):
    nasty = "</div><script>window.ran=1</script> {{ 7 * 7 }} \u202egnola"
    with talking(folder, nasty, name="<b>Ann</b>") as ann:
        ann.say(nasty)
        assert "<script>window" not in ann.page
        assert ann.page.count("&lt;script&gt;window.ran=1") == 2
        assert "49" not in ann.page
        assert "\u202e" not in ann.page
        headers = ann.session.get(ann.address).headers
        assert "default-src 'none'" in headers["Content-Security-Policy"]
        assert headers["Referrer-Policy"] == "same-origin"
    written = "".join(file.read_text() for file in folder.rglob("*.json"))
    assert "127.0.0.1" not in written
    assert "python-requests" not in written


def test_what_a_full_disk_refuses_is_told_and_can_be_sent_again(folder, monkeypatch):
    def full(*_, **__):
        raise RunError("No space left on device")

    with talking(folder) as ann:
        with monkeypatch.context() as patch:
            patch.setattr(chats, "write_atomically", full)
            ann.say("Once.")
        assert "could not be kept just now" in ann.page
        assert "Once.</textarea>" in ann.page
        ann.say("Once.")
        assert words_of(ann) == ["Once."]


def test_each_start_meets_each_seeker_and_nobody_meets_a_start_twice():
    histories = cross_seekers(load_histories("sample").head(12), ["s", "t", "u"])
    rng = np.random.default_rng(1)
    shared = assign_conversations(histories, writers_per_history=2, n_writers=9, rng=rng)
    assert shared["history_id"].value_counts().eq(2).all()
    assert set(shared["history_id"]) == set(histories["history_id"])
    parts = shared["history_id"].str.rsplit("--", n=1, expand=True)
    assert not pd.concat([shared["seat"], parts[0]], axis=1).duplicated().any()
    met = pd.crosstab(shared["seat"], parts[1])
    assert met.sum(axis=1).eq(8).all()
    assert met.to_numpy().max() - met.to_numpy().min() <= 2
    with pytest.raises(StudyError, match="9 writers a history out of 6"):
        assign_conversations(histories, writers_per_history=3, n_writers=6, rng=rng)


def test_a_start_that_the_supporter_ended_is_not_shown(run):
    histories = run.read("histories")
    ended = histories["start_id"] == "h00"
    both = zip(histories["turns"], ended, strict=True)
    turns = [talk[:1] if last else talk for talk, last in both]
    flags = [["ends_with_supporter"] * bool(last) for last in ended]
    run.write("histories", histories.assign(turns=turns, flags=flags))
    shown = pd.read_csv(write_study(run, "conversation") / "assignment.csv")
    assert set(shown["history_id"]) == {"h01--s", "h01--t"}


@pytest.mark.parametrize(
    ("change", "more", "told"),
    [
        ({"model": "openai/other"}, ["--resume"], "s: the seeker is not there any more, or its"),
        ({"options": {"temperature": 0}}, ["--resume"], "s: the seeker is not there any more"),
        ({"family": "four"}, [], "all are of one family"),  # as for models
    ],
)
def test_another_seeker_under_the_same_name_is_refused(run, change, more, told, capsys):
    set_recipe(run.root, recipe(change))
    assert study.main(["mine", "conversation", "--write-only", *more]) == 1
    assert told in capsys.readouterr().err


def test_nothing_is_paid_that_nobody_agreed_to(run, capsys, monkeypatch):
    monkeypatch.setattr("sys.stdin", None)
    command = ["mine", "conversation"]
    assert study.main(command) == 2
    out, err = capsys.readouterr()
    assert "asked for up to 8 turns if all seats are taken, for about 0.00 USD" in out
    assert "8 calls cost money, and no more than 1 USD. Nobody is there to ask" in err
    set_recipe(run.root, recipe(budget_usd=None))
    assert study.main(command) == 2
    assert "No budget is set" in capsys.readouterr().err
    assert study.main([*command, "--write-only"]) == 0


def test_answers_are_not_written_over_and_named_if_cut_short_or_of_another_study(run, folder):
    with talking(folder):
        pass
    with pytest.raises(StudyError, match="already holds answers of 1 people"):
        write_study(run, "conversation")
    file = folder / "answers" / "seat-001.json"
    whole = file.read_text()
    for damaged, told in (
        (whole[: len(whole) // 2], "seat-001.json is not whole JSON"),
        (
            whole.replace("h00--", "h77--").replace("h01--", "h78--"),
            r"never shown in this study, 'seat-001\.001",
        ),
        (whole.replace('"began"', '"begun"'), "lacks began"),
    ):
        file.write_text(damaged)
        with pytest.raises(StudyError, match=told):
            import_study(run, folder)
    file.unlink()
    with pytest.raises(StudyError, match="holds no answers"):
        import_study(run, folder)


def import_for_raters():
    for name in [*sys.modules]:
        if name.startswith(("aiohttp", "heart_collect.people")):
            del sys.modules[name]
    sys.modules["aiohttp"] = None
    importlib.import_module("heart_collect.people.study")


def test_who_rates_or_writes_replies_needs_no_package_of_those_who_talk():
    importing = multiprocessing.get_context("fork").Process(target=import_for_raters)
    importing.start()
    importing.join()
    assert importing.exitcode == 0
