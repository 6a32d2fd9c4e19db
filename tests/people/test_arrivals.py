"""What strangers can do at the door of a study, and what one visitor can do to the others."""

import json
import os
import socket
import subprocess
import sys
import threading
import time
import urllib.parse

import pytest
import yaml
from chat_case import (
    FORM,
    LINKS,
    StandIn,
    Talker,
    few,
    kept,
    sent,
    serving_chats,
)

from heart_collect.people import chats as chats_module
from heart_collect.people.arrivals import Door
from heart_collect.people.chats import SILENT_S, Chats
from heart_collect.people.study import write_study

PID = "5f3a9c0e1b2d4c6a7e8f9a0b"


@pytest.fixture
def by_platform(run):
    settings = yaml.safe_load((run.folder / "study.yaml").read_text())
    (run.folder / "study.yaml").write_text(yaml.safe_dump(settings | {"arrival": "prolific"}))
    return write_study(run, "conversation")


def arrive(talker, person):
    """Come by the platform's link; return the code, if there is one."""
    link = f"{LINKS[talker.address]}{urllib.parse.quote(person)}"
    status, talker.page = 200, ""
    try:
        talker.get(link)
    except Exception as error:
        status, talker.page = error.code, error.read().decode()
    return status


@pytest.mark.parametrize(
    "made_up",
    [
        "made-up-1",
        "{{%PROLIFIC_PID%}}",
        "a" * 5_000,
        "../../etc/passwd",
        "",
        PID.upper(),
        PID + "\n",
        f"{PID}\udcff",
    ],
)
def test_a_made_up_id_takes_no_seat(by_platform, made_up):
    with serving_chats(by_platform, StandIn()) as address:
        talker = Talker(address)
        link = LINKS[address] + urllib.parse.quote(made_up, errors="surrogateescape")
        assert sent(address, "GET", link)[0] == 403
        talker.send(do="consent", age="yes", agree="yes")
        assert talker.main == "link"
    assert not (by_platform / "answers").exists()


def test_without_the_link_of_the_study_nobody_comes_in(by_platform):
    with serving_chats(by_platform, StandIn()) as address:
        other = Door("another secret", "prolific", {}).link()
        for path in ("/", f"/?PROLIFIC_PID={PID}", f"/arrive?PROLIFIC_PID={PID}", other + PID):
            assert sent(address, "GET", path)[0] == 403, path
        assert sent(address, "GET", LINKS[address].replace("key=all", "key=allo") + PID)[0] == 403


def test_who_knows_a_name_or_a_number_does_not_read_its_words(by_platform):
    with serving_chats(by_platform, StandIn()) as address:
        ann, stranger = Talker(address), Talker(address)
        assert arrive(ann, PID) == 200
        assert arrive(stranger, PID) == 200  # nobody has agreed yet: two browsers with one link
        for one in (ann, stranger):
            one.send(do="consent", age="yes", agree="yes")
        assert stranger.main == "link"
        ann.send(do="begin")
        ann.say("Mine alone.")
        assert arrive(stranger, PID) == 403
        assert stranger.main == "code"
        stranger.send(
            "/arrive",
            key=LINKS[address].split("key=")[1].split("&")[0],
            PROLIFIC_PID=PID,
            code="AAAA-BBBB-CCCC",
        )
        assert stranger.main == "code"
        assert "Mine alone." not in stranger.page
        for do in ("turn", "next", "stop", "resume", "comments", "again"):
            stranger.send(do=do, page="x", text="x", n="1")
            assert "Mine alone." not in stranger.page
        assert len(next(iter(kept(by_platform)["talks"].values()))["turns"]) == 2


def test_the_code_brings_one_back_in_another_browser(folder):
    with serving_chats(folder, StandIn()) as address:
        ann, again = Talker(address), Talker(address)
        ann.begin("Ann")
        ann.say("Once.")
        again.knock("ANN", ann.code.lower())
        assert again.turns == ann.turns
        assert Talker(address).knock("Ann", "").count("another browser")


def test_a_link_for_one_person_shared_on_a_forum_lets_one_in(run):
    settings = yaml.safe_load((run.folder / "study.yaml").read_text())
    (run.folder / "study.yaml").write_text(yaml.safe_dump(settings | {"arrival": "link"}))
    place = write_study(run, "conversation")
    links = (place / "links.csv").read_text().splitlines()[1:]
    assert (place / "links.csv").stat().st_mode & 0o077 == 0
    path = links[0].split(",")[1]
    with serving_chats(place, StandIn()) as address:
        first = Talker(address)
        first.get(path)
        first.send(do="consent", age="yes", agree="yes")
        first.send(do="begin")
        first.say("Mine alone.")
        for _ in range(20):
            status, page = sent(address, "GET", path)
            assert (status, "Mine alone." in page) == (403, False)
        assert sent(address, "GET", LINKS[address])[0] == 403  # the link for all is none here
    assert len(list((place / "answers").iterdir())) == 1


def test_a_thousand_who_only_look_push_nobody_out(folder, monkeypatch):
    with serving_chats(folder, StandIn()) as address:
        ann = Talker(address)
        ann.knock("Ann")
        assert ann.main == "consent"
        door = Door(Chats(folder).about["secret"], "name", Chats(folder))
        for number in range(1_000):
            key = LINKS[address].split("key=")[1]
            assert door.knock({"key": key, "person": f"made-up-{number}"}, "").page == "enter"
        for number in range(50):
            sent(address, "GET", f"{LINKS[address]}&person=made-up-{number}")
        ann.send(do="consent", age="yes", agree="yes")
        assert ann.main == "instructions"


def test_a_seat_without_a_word_is_freed_for_the_next_after_a_time(folder):
    with serving_chats(folder, StandIn()) as address:
        names = [f"p{number}" for number in range(len(Chats(folder).seats))]
        people = {name: Talker(address) for name in names}
        for name, talker in people.items():
            talker.begin(name)
        people["p0"].say("A word.")
        late = Talker(address)
        late.arrive("late")
        assert late.main == "full"
        for file in (folder / "answers").iterdir():
            os.utime(file, (time.time() - SILENT_S - 60,) * 2)
        late.arrive("late")
        assert late.main == "instructions"
        assert "p0" in {
            json.loads(file.read_text())["person"] for file in (folder / "answers").iterdir()
        }
        people["p0"].get()
        assert people["p0"].main == "talk"


def test_try_again_is_bounded_and_within_ones_share_of_the_budget(folder):
    seeker = StandIn(*[("error", "down")] * 50)
    with serving_chats(folder, seeker) as address:
        ann = Talker(address)
        ann.begin("Ann")
        ann.say("Once.")
        page = next(iter(kept(folder)["talks"]))
        for _ in range(6):
            ann.send(do="again", page=page)
            ann.wait()
        assert len(seeker.asked) == 3  # the first, and two presses
        assert "Let it try again" not in ann.page


def test_one_participant_does_not_use_up_the_budget_of_all(folder, capsys):
    seeker = StandIn()  # 0.001 USD a turn
    seats = len(Chats(folder).seats)
    with serving_chats(folder, seeker, budget_usd=0.0005 * seats) as address:
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


@pytest.mark.parametrize("words", [0, 1, 2])
def test_who_wrote_nothing_gets_another_code_than_who_finished(run, words):
    settings = yaml.safe_load((run.folder / "study.yaml").read_text())
    codes = {"completion_code": "DONE-1", "stopped_code": "LEFT-2"}
    (run.folder / "study.yaml").write_text(yaml.safe_dump(settings | codes))
    with serving_chats(write_study(run, "conversation"), StandIn()) as address:
        ann = Talker(address)
        ann.begin("Ann")
        for number in range(2):
            for _ in range(2 * (number < words)):
                ann.say("A word.")
            ann.get("/stop") if number >= words else None
            ann.next()
        ann.send(do="comments", comments="")
        assert ann.main == "thanks"
        assert ("DONE-1" in ann.page, "LEFT-2" in ann.page) == (words == 2, words < 2)


def test_seekers_that_hang_stall_nobody_else(run, monkeypatch):
    """Before, six seekers that hung kept a seventh person waiting."""
    settings = few(n_writers=12, writers_per_history=3)
    (run.folder / "study.yaml").write_text(yaml.safe_dump(settings))
    place = write_study(run, "conversation")
    release = threading.Event()

    def ask(request):
        if "hang" in request.messages_json():
            release.wait(60)
        return seeker(request)

    seeker = StandIn()
    many = [f"p{number}" for number in range(9)]
    with serving_chats(place, ask) as address:
        hanging = [Talker(address) for _ in many]
        for name, talker in zip(many, hanging, strict=True):
            talker.begin(name)
        with monkeypatch.context() as patient:
            patient.setattr(chats_module, "WAIT_S", 0.1)
            for talker in hanging:
                talker.send(do="turn", page=talker.field("page"), n="0", text="hang")
        well = Talker(address)
        well.begin("well")
        start = time.monotonic()
        well.say("How are you?")
        assert time.monotonic() - start < 2.5
        assert well.turns[-1][0] == "Seeker"
        release.set()


def test_half_open_connections_stall_nobody_and_are_closed(folder, monkeypatch):
    monkeypatch.setattr("chat_case.HEADER_S", 3.0)
    monkeypatch.setattr(chats_module, "BODY_S", 3.0)
    head = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Type: application/x-www-form-urlencoded\r\nContent-Length: 500\r\n\r\ndo="
    with serving_chats(folder, StandIn()) as address:
        host, port = address.removeprefix("http://").split(":")
        halves = []
        for part in (b"GET / HTTP/1.1\r\nHost: x\r\n", head):
            for _ in range(40):
                halves.append(socket.create_connection((host, int(port))))
                halves[-1].sendall(part)
        start = time.monotonic()
        ann = Talker(address)
        ann.begin("Ann")
        assert ann.main == "talk"
        assert time.monotonic() - start < 3.0
        for one in halves:
            one.settimeout(30)
            while one.recv(4096):
                pass
            one.close()


@pytest.mark.parametrize(
    ("body", "headers"),
    [
        (b'--b\r\nContent-Disposition: form-data; name="text"; filename="f"\r\n\r\nx\r\n--b--\r\n',
         {"Content-Type": "multipart/form-data; boundary=b"}),
        (b"do=turn&text=%ff%fe", FORM),
        (b"do=turn&text=\xff\xfe", FORM),
        (b"do=turn", {"Content-Type": "application/x-www-form-urlencoded; charset=no-such"}),
        (b"{}", {"Content-Type": "application/json"}),
    ],
)  # fmt: skip
def test_what_is_no_text_is_a_bad_request(folder, body, headers, capfd):
    with serving_chats(folder, StandIn()) as address:
        ann = Talker(address)
        ann.begin("Ann")
        status, page = sent(address, "POST", "/", body, headers)
        assert status == 400
        assert sent(address, "GET", "/", b"", {"Cookie": "place=\xff"})[0] == 403
        assert "FileField" not in json.dumps(kept(folder))
    said = "".join(capfd.readouterr())
    assert "127.0.0.1" not in said
    assert "Error handling" not in said


SERVE = """
import sys
from pathlib import Path
from heart_collect.people.chats import Chats, serve_chats
ready = lambda: print("ready", flush=True)
serve_chats(Chats(Path(sys.argv[1])), None, host="127.0.0.1", port=int(sys.argv[2]), ready=ready)
"""


def test_a_bad_request_prints_no_address_and_no_cookie(folder):
    """In a process of its own, since pytest takes what is logged."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    server = subprocess.Popen(
        [sys.executable, "-c", SERVE, str(folder), port],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert server.stdout.readline() == "ready\n"
    address = f"http://127.0.0.1:{port}"
    assert sent(address, "GET", "/", b"", {"Cookie": "place=" + "secret" * 2_000})[0] == 400
    assert sent(address, "GET", "/", b"", {"Cookie": "place=\xffsecret"})[0] == 403
    server.terminate()
    said, _ = server.communicate(timeout=60)
    assert "127.0.0.1" not in said
    assert "secret" not in said


def test_a_form_of_another_site_is_refused(folder):
    seeker = StandIn()
    with serving_chats(folder, seeker) as address:
        ann = Talker(address)
        ann.begin("Ann")
        for origin in ("http://evil.example", "null", f"{address}0"):
            ann.opener.addheaders = [("Origin", origin)]
            ann.send(do="turn", page=ann.field("page"), n="0", text="Not mine.")
            assert "another site" in ann.page
            ann.opener.addheaders = []
            ann.get()
        ann.opener.addheaders = [("Origin", address)]
        ann.say("Mine.")
        assert ann.turns[-1][0] == "Seeker"
    assert len(seeker.asked) == 1


@pytest.mark.parametrize(
    "thought", ["<think>Draft: I am told to be sad. I will", "<|channel|>analysis Draft: I am told"]
)
def test_a_seeker_s_thought_reaches_nobody(folder, thought):
    with serving_chats(
        folder, StandIn(thought, "<think>Draft: told.</think>Thank you for asking.")
    ) as address:
        ann = Talker(address)
        ann.begin("Ann")
        ann.say("Once.")
        assert "Draft" not in ann.page
        assert "What you wrote is kept." in ann.page
        ann.next()
        ann.say("Once.")
        assert ann.turns[-1] == ("Seeker", "Thank you for asking.")
        assert "Draft" not in ann.page
