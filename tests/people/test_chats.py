"""People who talk with simulated seekers: what is kept of each turn, and what becomes of it."""

import json
import stat
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
import yaml
from chat_case import (
    LINKS,
    StandIn,
    Talker,
    few,
    kept,
    project,
    recipe,
    sent,
    serving_chats,
)
from study_builders import STATEMENT, conversation_run, small_run

from heart_collect.judging.design import DesignError, cross_seekers, pair_replies
from heart_collect.people import raters, study
from heart_collect.people.assignment import StudyError, assign_conversations
from heart_collect.people.chats import LONGEST
from heart_collect.people.raters import import_study
from heart_collect.people.study import ASKED_OF_PUBLIC, load_settings, write_study
from heart_utils import load_histories, open_run
from heart_utils.runs import find_root


def imported(run, folder, **how):
    return import_study(run, folder, **how)


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
    first = next(iter(kept(folder)["talks"].values()))
    assert [turn["text"] for turn in first["turns"]] == [
        "What happened?",
        "Answer 1 of mine.",
        "And then?",
        "Answer 2 of mine.",
    ]


def test_people_s_conversations_stand_beside_those_of_models_under_codes(run, folder):
    with serving_chats(folder, StandIn()) as address:
        ann = Talker(address)
        ann.begin("Ann Example")
        for _ in range(2):
            ann.say("What happened?", typing_ms="1200", pasted="0")
            ann.say("And then?", typing_ms="300", pasted="9")
            ann.next()
        assert ann.main == "debrief"
        ann.send(do="comments", comments="It was fine.")
        assert ann.main == "thanks"
    study = imported(run, folder)
    talks = study.conversations
    assert talks["stop_reason"].tolist() == ["length"] * 2
    assert set(talks["responder"]) == {"human"}
    assert talks["author_id"].str.fullmatch(r"writer-[0-9a-f]{8}").all()
    assert talks["history_id"].str.split("--").str[-1].tolist() == talks["seeker"].tolist()
    assert talks["cost_usd"].tolist() == pytest.approx([0.002] * 2)
    assert talks["call_ids"][0] == [None, "call-1", None, "call-2"]
    assert [ms > 0 for ms in talks["turn_ms"][0]] == [True, False, True, False]
    assert talks["typing_ms"].tolist() == [1500.0] * 2
    assert talks["flags"].tolist() == [["pasted"]] * 2
    replies = study.replies
    assert replies["reply_id"].tolist() == talks["conversation_id"].tolist()
    assert replies["text"][0].startswith("Supporter: What happened?\nSeeker: Answer 1 of mine.")
    assert (replies["total_ms"] > 0).all()
    assert study.responders["responder_kind"].tolist() == ["human"]
    assert study.raters[["n_shown", "n_answered", "completed"]].to_numpy().tolist() == [
        [2, 2, True]
    ]
    study.write(run)
    for table in ("conversations", "replies"):
        file = run.folder / table / "people-conversation.parquet"
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert "Ann Example" not in pd.read_parquet(file).to_csv()
    pd.testing.assert_frame_equal(run.read("conversations"), talks)


def test_addresses_and_numbers_reach_neither_the_seeker_nor_the_run(run, folder):
    seeker = StandIn("Should I call +44 20 7946 0958, or write to eve@example.org?")
    with serving_chats(folder, seeker) as address:
        ann = Talker(address)
        ann.begin("ann@example.org")
        ann.say("Write to ann@example.org or see www.example.org/ann, I am @ann_here.")
        assert "You" in dict(ann.turns)
        ann.say("Is that so?")
    asked = seeker.asked[0].messages_json() + seeker.asked[1].messages_json()
    assert "Supporter: Write to [email] or see [link] I am [handle]." in asked
    assert "ann@" not in asked
    assert "ann_here" not in asked
    study = imported(run, folder)
    study.write(run)
    said = study.conversations["turns"][0]
    assert said[1]["text"] == "Should I call [number], or write to [email]?"
    assert "redacted" in study.conversations["flags"][0]
    written = b"".join(file.read_bytes() for file in run.folder.rglob("*.parquet"))
    assert b"example.org" not in written
    assert "ann@example.org" in (run.folder / "keys" / "people.csv").read_text()


def test_no_words_and_too_many_are_told_and_not_sent(folder):
    seeker = StandIn()
    with serving_chats(folder, seeker) as address:
        ann = Talker(address)
        ann.begin("Ann")
        ann.say(" \n ")
        assert "There were no words in it" in ann.page
        ann.say("x" * (LONGEST + 1))
        assert "too long for one turn" in ann.page
        assert "x" * LONGEST in ann.page  # what was written is not lost
        ann.say("x" * LONGEST)
    assert len(seeker.asked) == 1


def test_a_page_that_was_overtaken_adds_no_turn(folder):
    seeker = StandIn()
    with serving_chats(folder, seeker) as address:
        ann = Talker(address)
        ann.begin("Ann")
        page, n = ann.field("page"), ann.field("n")
        ann.say("Once.")
        ann.send(do="turn", page=page, n=n, text="Twice, from another tab.")
        assert "had been overtaken" in ann.page
        ann.send(do="turn", page="seat-009.001.h--s", n="0", text="Of somebody else.")
        assert "had been overtaken" in ann.page
        assert [words for who, words in ann.turns if who == "You"] == ["Once."]
    assert len(seeker.asked) == 1


def test_who_comes_back_after_the_server_was_stopped_goes_on_where_they_were(folder):
    with serving_chats(folder, StandIn()) as address:
        ann = Talker(address)
        ann.begin("Ann")
        ann.say("Once.")
        turns = ann.turns
    with serving_chats(folder, StandIn("Later.")) as address:
        again = Talker(address)  # another browser
        again.knock("Ann", ann.code)
        assert again.turns == turns
        again.say("Twice.")
        assert again.turns[-1] == ("Seeker", "Later.")


def test_a_turn_that_was_not_answered_before_a_stop_is_answered_after_it(folder):
    with serving_chats(folder, StandIn()) as address:
        ann = Talker(address)
        ann.begin("Ann")
        ann.say("Once.")
    file = folder / "answers" / "seat-001.json"
    said = json.loads(file.read_text())
    first = next(iter(said["talks"].values()))
    first["turns"], first["calls"] = first["turns"][:1], first["calls"][:1]
    file.write_text(json.dumps(said))
    with serving_chats(folder, StandIn("After the stop.")) as address:
        again = Talker(address)
        again.knock("Ann", ann.code)
        again.wait()
        ann = again
        assert ann.turns[-1] == ("Seeker", "After the stop.")


@pytest.mark.parametrize("failure", [("error", "timeout"), ValueError("the budget is used up")])
def test_a_seeker_that_does_not_answer_is_told_kept_and_asked_again(run, folder, failure):
    with serving_chats(folder, StandIn("Well.", failure, failure, "At last.")) as address:
        ann = Talker(address)
        ann.begin("Ann")
        ann.say("Once.")
        ann.say("Twice.")
        assert "did not answer. What you wrote is kept." in ann.page
        assert next(iter(kept(folder)["talks"].values()))["reason"] == "error"
        row = imported(run, folder).conversations.iloc[0]
        assert row[["stop_reason", "stopped_by", "state"]].tolist() == ["error", "seeker", "error"]
        again = {"do": "again", "page": next(iter(kept(folder)["talks"]))}
        ann.send(**again)
        ann.wait()
        assert "did not answer" in ann.page
        ann.send(**again)
        ann.wait()
        assert ann.turns[-1] == ("Seeker", "At last.")
    row = imported(run, folder).conversations.iloc[0]
    assert row[["stop_reason", "state", "n_exchanges"]].tolist() == ["length", "valid", 2]


@pytest.mark.parametrize(
    ("answer", "reason", "state", "told"),
    [
        ("Thank you. [END]", "seeker_ended", "valid", "left the conversation here"),
        ("[END]", "ended_at_once", "abstained", "before a word"),
        ("Supporter: I hear you.", "wrong_role", "unparsed", "fell out of its part"),
        ("The flat is <b>empty</b> now.", "repeated", "unparsed", "began to repeat itself"),
        (("refused", "a filter"), "refused", "refused", "would not answer that"),
        (("error", "maximum context length"), "too_long", "error", "too long for the program"),
    ],
)
def test_how_the_seeker_ends_is_told_to_its_writer_and_kept(
    run, folder, answer, reason, state, told
):
    with serving_chats(folder, StandIn(answer)) as address:
        ann = Talker(address)
        ann.begin("Ann")
        ann.say("Once.")
        assert told in ann.page
        ann.next()
        assert "Conversation 2 of 2" in ann.page
    row = imported(run, folder).conversations.iloc[0]
    assert row[["stop_reason", "state"]].tolist() == [reason, state]


@pytest.mark.parametrize("leaves", ["closes the page", "stops", "goes on to the next"])
def test_half_a_conversation_is_kept_and_never_judged(run, folder, leaves):
    with serving_chats(folder, StandIn()) as address:
        ann = Talker(address)
        ann.begin("Ann")
        ann.say("Once.")
        if leaves == "stops":
            ann.get("/stop")
            ann.send(do="stop")
            assert ann.main == "stopped"
        if leaves == "goes on to the next":
            ann.get("/stop")
            ann.next()
            assert "Conversation 2 of 2" in ann.page
    study = imported(run, folder)
    row = study.conversations.iloc[0]
    assert row[["stop_reason", "stopped_by", "state"]].tolist() == [
        "left",
        "supporter",
        "abstained",
    ]
    assert row["n_exchanges"] == 1
    assert len(study.conversations) == 1  # what was not begun is none
    assert study.replies["text"].isna().all()
    assert study.raters[["n_shown", "n_answered", "completed"]].to_numpy().tolist() == [
        [2, 0, False]
    ]
    other = study.replies.assign(
        reply_id="m", responder="model", text="Supporter: a", state="valid"
    )
    with pytest.raises(DesignError), pytest.warns(UserWarning, match="1 abstained"):
        pair_replies(pd.concat([study.replies, other]), rng=np.random.default_rng(1))


def test_who_stopped_by_mistake_goes_on(folder):
    with serving_chats(folder, StandIn()) as address:
        ann = Talker(address)
        ann.begin("Ann")
        ann.say("Once.")
        ann.send(do="stop")
        ann.send(do="resume")
        assert ann.main == "talk"
        ann.say("Twice.")
        assert "This conversation ends here" in ann.page


def test_who_declines_leaves_nothing_and_takes_no_seat(folder):
    with serving_chats(folder, StandIn()) as address:
        no = Talker(address)
        no.arrive("no-thanks", agree="no")
        assert no.main == "declined"
        assert not (folder / "answers").exists()
        for name in ("Ann", "Ben"):
            Talker(address).begin(name)
        late = Talker(address)
        late.arrive("Cy")
        assert late.main == "full"
        wrong = Talker(address)
        wrong.knock("ann")
        assert wrong.main == "code"
        assert "no-thanks" not in "".join(
            file.read_text() for file in (folder / "answers").iterdir()
        )


def test_every_page_says_what_the_seeker_is_and_where_help_is(run):
    told = {"support_line": "116 123 <at night>"}
    said = (
        few(n_writers=2) | {"statement": STATEMENT, **dict.fromkeys(ASKED_OF_PUBLIC, "told")} | told
    )
    (run.folder / "study.yaml").write_text(yaml.safe_dump(said))
    folder = write_study(run, "conversation")
    with serving_chats(folder, StandIn()) as address:
        ann = Talker(address)
        pages = [sent(address, "GET", path)[1] for path in ("/", LINKS[address])]
        ann.knock("Ann")
        assert "is made by four and three and may run elsewhere" in ann.page
        assert "content-note" in ann.page
        pages.append(ann.page)
        ann.send(do="consent", age="yes", agree="yes")
        pages.append(ann.page)
        ann.send(do="begin")
        assert "I am a program that plays a person" in ann.page
        assert "content-note" in ann.page
        assert "Stop here" in ann.page
        pages.append(ann.page)
        ann.get("/stop")
        pages.append(ann.page)
    assert all("116 123 &lt;at night&gt;" in page for page in pages)


def test_words_run_nowhere_and_no_address_of_who_took_part_is_kept(folder):
    nasty = "</div><script>window.ran=1</script> {{ 7 * 7 }} \u202egnola"
    with serving_chats(folder, StandIn(nasty)) as address:
        ann = Talker(address)
        ann.begin("<b>Ann</b>")
        ann.say(nasty)
        assert "<script>window" not in ann.page
        assert ann.page.count("&lt;script&gt;window.ran=1") == 2
        assert "49" not in ann.page
        assert "\u202e" not in ann.page
        with ann.opener.open(address) as answer:
            assert "default-src 'none'" in answer.headers["Content-Security-Policy"]
            assert answer.headers["Referrer-Policy"] == "same-origin"
    written = "".join(file.read_text() for file in folder.rglob("*.json"))
    assert "127.0.0.1" not in written
    assert "Python-urllib" not in written


def test_what_a_full_disk_refuses_is_told_and_can_be_sent_again(folder, monkeypatch):
    from heart_collect.people import chats
    from heart_utils.runs import RunError

    with serving_chats(folder, StandIn()) as address:
        ann = Talker(address)
        ann.begin("Ann")
        write = chats.write_atomically

        def full(*_, **__):
            raise RunError("No space left on device")

        monkeypatch.setattr(chats, "write_atomically", full)
        ann.say("Once.")
        assert "could not be kept just now" in ann.page
        assert "Once.</textarea>" in ann.page
        monkeypatch.setattr(chats, "write_atomically", write)
        ann.say("Once.")
        assert [words for who, words in ann.turns if who == "You"] == ["Once."]


def test_each_start_meets_each_seeker_and_nobody_meets_a_start_twice():
    histories = cross_seekers(load_histories("sample").head(12), ["s", "t", "u"])
    shared = assign_conversations(
        histories, writers_per_history=2, n_writers=9, rng=np.random.default_rng(1)
    )
    assert shared["history_id"].value_counts().eq(2).all()
    assert set(shared["history_id"]) == set(histories["history_id"])
    parts = shared["history_id"].str.rsplit("--", n=1, expand=True)
    assert not pd.concat([shared["seat"], parts[0]], axis=1).duplicated().any()
    met = pd.crosstab(shared["seat"], parts[1])
    assert met.sum(axis=1).eq(8).all()
    assert met.to_numpy().max() - met.to_numpy().min() <= 2
    with pytest.raises(StudyError, match="9 writers a history out of 6"):
        assign_conversations(
            histories, writers_per_history=3, n_writers=6, rng=np.random.default_rng(1)
        )


def test_a_start_that_the_supporter_ended_is_not_shown(run):
    histories = run.read("histories")
    ended = histories["start_id"] == "h00"
    turns = [
        talk[:1] if last else talk for talk, last in zip(histories["turns"], ended, strict=True)
    ]
    flags = [["ends_with_supporter"] * bool(last) for last in ended]
    run.write("histories", histories.assign(turns=turns, flags=flags))
    folder = write_study(run, "conversation")
    assert set(pd.read_csv(folder / "assignment.csv")["history_id"]) == {"h01--s", "h01--t"}


def test_a_run_of_replies_has_nobody_to_talk_with(tmp_path):
    with pytest.raises(StudyError, match="has no seeker to talk with"):
        write_study(small_run(tmp_path / "run"), "conversation")


@pytest.mark.parametrize("change", [{"model": "openai/other"}, {"options": {"temperature": 0}}])
def test_another_seeker_under_the_same_name_is_refused(run, folder, change, capsys):
    said = recipe()
    said["seekers"][0] |= change
    (run.root / "params" / "mine.yaml").write_text(
        yaml.safe_dump({"chapters": [], "collect": said})
    )
    assert study.main(["mine", "conversation", "--resume", "--write-only"]) == 1
    assert "s: the seeker is not there any more, or its model" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("change", "told"),
    [({"family": "four"}, "all are of one family"), ({"name": "t"}, "t appears more than once")],
)
def test_seekers_are_checked_as_they_are_for_models(run, change, told, capsys):
    said = recipe()
    said["seekers"][0] |= change
    text = yaml.safe_dump({"chapters": [], "collect": said})
    (run.root / "params" / "mine.yaml").write_text(text)
    assert study.main(["mine", "conversation", "--write-only"]) == 1
    assert told in capsys.readouterr().err
    assert not (run.folder / "study").exists()


def test_nothing_is_paid_that_nobody_agreed_to(run, capsys, monkeypatch):
    monkeypatch.setattr("sys.stdin", None)
    command = ["mine", "conversation"]
    assert study.main(command) == 2
    out, err = capsys.readouterr()
    assert "asked for up to 8 turns if all seats are taken, for about 0.00 USD" in out
    assert "8 calls cost money, and no more than 1 USD. Nobody is there to ask" in err
    said = recipe(budget_usd=None)
    (run.root / "params" / "mine.yaml").write_text(
        yaml.safe_dump({"chapters": [], "collect": said})
    )
    assert study.main(command) == 2
    assert "No budget is set" in capsys.readouterr().err
    assert study.main([*command, "--write-only"]) == 0


def test_answers_cut_short_or_of_another_study_are_named(run, folder):
    with serving_chats(folder, StandIn()) as address:
        Talker(address).begin("Ann")
    file = folder / "answers" / "seat-001.json"
    whole = file.read_text()
    file.write_text(whole[: len(whole) // 2])
    with pytest.raises(StudyError, match="seat-001.json is not whole JSON"):
        import_study(run, folder)
    file.write_text(whole.replace("h00--", "h77--").replace("h01--", "h78--"))
    with pytest.raises(StudyError, match="never shown in this study"):
        import_study(run, folder)
    file.write_text(whole.replace('"began"', '"begun"'))
    with pytest.raises(StudyError, match="lacks began"):
        import_study(run, folder)
    file.unlink()
    with pytest.raises(StudyError, match="holds no answers"):
        import_study(run, folder)


def test_who_withdraws_leaves_no_conversation(run, folder):
    with serving_chats(folder, StandIn()) as address:
        for name in ("Ann", "Ben"):
            talker = Talker(address)
            talker.begin(name)
            talker.say(f"{name} says this.")
    study = import_study(run, folder, withdrawn=["Ann"])
    assert study.n_withdrawn == 1
    assert [talk[0]["text"] for talk in study.conversations["turns"]] == ["Ben says this."]


def test_a_study_that_holds_answers_is_not_written_over(run, folder):
    with serving_chats(folder, StandIn()) as address:
        Talker(address).begin("Ann")
    with pytest.raises(StudyError, match="already holds answers of 1 people"):
        write_study(run, "conversation")


def test_raters_may_judge_people_s_conversations_beside_those_of_models(tmp_path, monkeypatch):
    project(tmp_path, recipe())
    monkeypatch.setenv("HEART_ROOT", str(tmp_path))
    run = conversation_run(tmp_path / "runs" / "mine", n_starts=2)
    (run.folder / "study.yaml").write_text(yaml.safe_dump(few(n_writers=2)))
    run = open_run("mine")
    folder = write_study(run, "conversation")
    with serving_chats(folder, StandIn()) as address:
        ann = Talker(address)
        ann.begin("Ann")
        ann.say("Ann was here.")
        ann.say("And is still.")
    assert raters.main(["mine", "conversation"]) == 0
    settings = load_settings(run)
    settings["rating"] |= {"raters_per_pair": 1, "load": 3, "n_checks": 0, "spare": 0}
    rating = write_study(run, "rating", settings=settings)
    shown = [
        json.loads(line)["replies"] for line in (rating / "items.jsonl").read_text().splitlines()
    ]
    theirs = [side for sides in shown for side in sides if "Supporter: Ann was here." in side]
    assert len(theirs) == 2  # beside each of the two others
    assert theirs[0][1:] == ["Seeker: Answer 1 of mine.", "Supporter: And is still.",
                             "Seeker: Answer 2 of mine."]  # fmt: skip


def test_the_command_says_what_came_of_a_study(run, folder, capsys):
    with serving_chats(folder, StandIn()) as address:
        ann = Talker(address)
        ann.begin("Ann")
        ann.say("Once.")
        ann.say("Twice.")
        ann.next()
        ann.say("Only once.")
    assert raters.main(["mine", "conversation"]) == 0
    said = capsys.readouterr().out
    assert "1 people, 0 verdicts, 2 conversations (length 1, left 1); 0 withdrew" in said
    assert run.manifest["tables"]["conversations/people-conversation"]["origin"] == "rehearsal"


def test_a_study_of_conversations_imports_no_server_of_the_others(tmp_path):
    """Who rates or writes replies needs no package of those who talk."""
    check = "import sys, heart_collect.people.study, heart_collect.people.raters; print('aiohttp' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", check], capture_output=True, text=True, cwd=find_root(), check=True
    )
    assert done.stdout.strip() == "False"
