"""What strangers can do at the door of a study, and what one visitor can do to the others."""

import csv
import json
import logging
import os
import socket
import threading
import time
from urllib.parse import quote

import pytest
from chat_case import (
    FORM,
    LINKS,
    StandIn,
    Talker,
    first_talk,
    kept,
    sent,
    serving_chats,
    study_with,
    talking,
)
from worker import begin_command

from heart_collect.people import chats as chats_module
from heart_collect.people.arrivals import Door
from heart_collect.people.chats import SILENT_S, Chats

PID = "5f3a9c0e1b2d4c6a7e8f9a0b"
MADE_UP = (
    "made-up-1",
    "{{%PROLIFIC_PID%}}",
    "a" * 5_000,
    "../../etc/passwd",
    "",
    PID.upper(),
    f"{PID}\n",
    f"{PID}\udcff",
)


@pytest.fixture
def by_platform(run):
    return study_with(run, arrival="prolific")


def test_a_made_up_id_or_another_link_takes_no_seat(by_platform):
    with serving_chats(by_platform, StandIn()) as address:
        link = LINKS[address]
        for made_up in MADE_UP:
            path = link + quote(made_up, errors="surrogateescape")
            assert sent(address, "GET", path)[0] == 403, made_up
        other = Door("another secret", "prolific", {}).link()
        for path in ("/", f"/?PROLIFIC_PID={PID}", f"/arrive?PROLIFIC_PID={PID}", other + PID):
            assert sent(address, "GET", path)[0] == 403, path
        assert sent(address, "GET", link.replace("key=all", "key=allo") + PID)[0] == 403
        talker = Talker(address)
        talker.agree()
        assert talker.main == "link"
    assert not (by_platform / "answers").exists()


def test_who_knows_a_name_or_a_number_does_not_read_its_words(by_platform):
    with serving_chats(by_platform, StandIn()) as address:
        link = LINKS[address] + PID
        ann, stranger = Talker(address), Talker(address)
        for one in (ann, stranger):
            one.get(link)
            assert one.status == 200  # nobody has agreed yet: two browsers with one link
        for one in (ann, stranger):
            one.agree()
        assert stranger.main == "link"
        ann.send(do="begin")
        ann.say("Mine alone.")
        for code in ("", "&code=AAAA-BBBB-CCCC"):
            stranger.get(link + code)
            assert (stranger.status, stranger.main) == (403, "code")
        for do in ("turn", "next", "stop", "resume", "comments", "again"):
            stranger.send(do=do, page="x", text="x", n="1")
            assert "Mine alone." not in stranger.page
        assert len(first_talk(by_platform)["turns"]) == 2


def test_a_link_for_one_person_shared_on_a_forum_lets_one_in(run):
    place = study_with(run, arrival="link")
    links = place / "links.csv"
    assert links.stat().st_mode & 0o077 == 0
    path = next(csv.DictReader(links.open()))["link"]
    with serving_chats(place, StandIn()) as address:
        first = Talker(address)
        first.get(path)
        first.agree()
        first.send(do="begin")
        first.say("Mine alone.")
        for _ in range(20):
            status, page = sent(address, "GET", path)
            assert (status, "Mine alone." in page) == (403, False)
        assert sent(address, "GET", LINKS[address])[0] == 403  # the link for all is none here
    assert len(list((place / "answers").iterdir())) == 1


def test_a_thousand_who_only_look_push_nobody_out(folder):
    with serving_chats(folder, StandIn()) as address:
        ann = Talker(address)
        ann.knock("Ann")
        assert ann.main == "consent"
        study = Chats(folder)
        door = Door(study.about["secret"], "name", study)
        key = LINKS[address].split("key=")[1]
        for number in range(1_000):
            assert door.knock({"key": key, "person": f"made-up-{number}"}, "").page == "enter"
        for number in range(10):
            sent(address, "GET", f"{LINKS[address]}&person=made-up-{number}")
        ann.agree()
        assert ann.main == "instructions"


def test_a_seat_without_a_word_is_freed_for_the_next_after_a_time(folder):
    with talking(folder) as ann:
        ann.say("A word.")
        silent, late = Talker(ann.address), Talker(ann.address)
        silent.begin("Ben")
        late.knock("late")
        late.agree()
        assert late.main == "full"
        files = folder / "answers"
        for file in files.iterdir():
            os.utime(file, (time.time() - SILENT_S - 60,) * 2)
        late.agree()
        assert late.main == "instructions"
        people = {json.loads(file.read_text())["person"] for file in files.iterdir()}
        assert people == {"Ann", "late"}
        ann.get()
        assert ann.main == "talk"


def test_try_again_is_bounded(folder):
    with talking(folder, *[("error", "down")] * 50) as ann:
        ann.say("Once.")
        page = next(iter(kept(folder)["talks"]))
        for _ in range(6):
            ann.send(do="again", page=page)
            ann.wait()
        assert len(ann.seeker.asked) == 3  # the first, and two presses
        assert "Let it try again" not in ann.page


def test_one_participant_does_not_use_up_the_budget_of_all(folder, capsys):
    seeker = StandIn()  # 0.001 USD a turn
    with serving_chats(folder, seeker, budget_usd=0.001) as address:
        ann, ben = Talker(address), Talker(address)
        ann.begin("Ann")
        ann.say("Once.")
        ann.say("Twice.")
        assert "did not answer. What you wrote is kept." in ann.page
        assert "Let it try again" not in ann.page
        ben.begin("Ben")
        ben.say("Once.")
        assert ben.turns[-1][0] == "Seeker"
    assert len(seeker.asked) == 2
    assert "has used up its share" in capsys.readouterr().err


def test_who_wrote_nothing_gets_another_code_than_who_finished(run):
    codes = {"completion_code": "DONE-1", "stopped_code": "LEFT-2"}
    folder = study_with(run, n_writers=4, writers_per_history=2, **codes)
    with serving_chats(folder, StandIn()) as address:
        for words, shown in ((0, "LEFT-2"), (1, "LEFT-2"), (2, "DONE-1")):
            talker = Talker(address)
            talker.begin(f"wrote in {words}")
            for number in range(2):
                for _ in range(2 * (number < words)):
                    talker.say("A word.")
                if number >= words:
                    talker.get("/stop")
                talker.next()
            talker.send(do="comments", comments="")
            assert talker.main == "thanks"
            assert [code for code in codes.values() if code in talker.page] == [shown]


def test_seekers_that_hang_stall_nobody_else(run, monkeypatch):
    """Before, six seekers that hung kept a seventh person waiting."""
    place = study_with(run, n_writers=12, writers_per_history=3)
    release, seeker = threading.Event(), StandIn()

    def ask(request):
        if "hang" in request.messages_json():
            release.wait(60)
        return seeker(request)

    with serving_chats(place, ask) as address:
        with monkeypatch.context() as patient:
            patient.setattr(chats_module, "WAIT_S", 0.1)
            for number in range(9):
                talker = Talker(address)
                talker.begin(f"p{number}")
                talker.send(do="turn", page=talker.field("page"), n="0", text="hang")
        well = Talker(address)
        well.begin("well")
        start = time.monotonic()
        well.say("How are you?")
        assert time.monotonic() - start < 2.5
        assert well.turns[-1][0] == "Seeker"
        release.set()


HEAD = (
    "POST / HTTP/1.1\r\nHost: x\r\nContent-Type: {Content-Type}\r\nContent-Length: 500\r\n\r\ndo="
)


def test_half_open_connections_stall_nobody_and_are_closed(folder, monkeypatch):
    monkeypatch.setattr("chat_case.HEADER_S", 1.5)
    monkeypatch.setattr(chats_module, "BODY_S", 1.5)
    halves = []
    with serving_chats(folder, StandIn()) as address:
        host, port = address.removeprefix("http://").split(":")
        for part in [b"GET / HTTP/1.1\r\nHost: x\r\n", HEAD.format(**FORM).encode()] * 40:
            halves.append(socket.create_connection((host, int(port)), timeout=30))
            halves[-1].sendall(part)
        start = time.monotonic()
        ann = Talker(address)
        ann.begin("Ann")
        assert ann.main == "talk"
        assert time.monotonic() - start < 3.0
        for one in halves:
            while one.recv(4096):
                pass
            one.close()


FILE = b'--b\r\nContent-Disposition: form-data; name="text"; filename="f"\r\n\r\nx\r\n--b--\r\n'
NO_TEXT = (
    (FILE, {"Content-Type": "multipart/form-data; boundary=b"}),
    (b"do=turn&text=%ff%fe", FORM),
    (b"do=turn&text=\xff\xfe", FORM),
    (b"do=turn", {"Content-Type": f"{FORM['Content-Type']}; charset=no-such"}),
    (b"{}", {"Content-Type": "application/json"}),
)


def test_a_bad_request_is_told_so_and_prints_no_address_and_no_cookie(run, tmp_path, monkeypatch):
    monkeypatch.setattr(logging.getLogger(), "handlers", [])  # pytest's: a terminal has none
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    said = tmp_path / "said"
    command = ("mine", "conversation", "--resume", "--yes", "--port", port)
    server = begin_command("heart_collect.people.study", *command, out=said)
    while "\nOpen http" not in (said.read_text() if said.exists() else ""):
        assert server.is_alive()
        time.sleep(0.01)
    before = said.read_text()
    address = f"http://127.0.0.1:{port}"
    for body, headers in NO_TEXT:
        assert sent(address, "POST", "/", body, headers)[0] == 400, body
    for cookie, status in (("secret" * 2_000, 400), ("\xffsecret", 403)):
        assert sent(address, "GET", "/", b"", {"Cookie": f"place={cookie}"})[0] == status
    server.terminate()
    server.join()
    assert said.read_text() == before


def test_a_form_of_another_site_is_refused(folder):
    with talking(folder) as ann:
        for origin in ("http://evil.example", "null", f"{ann.address}0"):
            ann.session.headers["Origin"] = origin
            ann.send(do="turn", page=ann.field("page"), n="0", text="Not mine.")
            assert "another site" in ann.page
            ann.get()
        ann.session.headers["Origin"] = ann.address
        ann.say("Mine.")
        assert ann.turns[-1][0] == "Seeker"
    assert len(ann.seeker.asked) == 1


@pytest.mark.parametrize(
    "thought", ["<think>Draft: I am told to be sad. I will", "<|channel|>analysis Draft: I am told"]
)
def test_a_seeker_s_thought_reaches_nobody(folder, thought):
    with talking(folder, thought, "<think>Draft: told.</think>Thank you for asking.") as ann:
        ann.say("Once.")
        assert "Draft" not in ann.page
        assert "What you wrote is kept." in ann.page
        ann.next()
        ann.say("Once.")
        assert ann.turns[-1] == ("Seeker", "Thank you for asking.")
        assert "Draft" not in ann.page
