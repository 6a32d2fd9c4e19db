"""Studies with people, end to end: the real Potato server, a real browser, and then the import.

Each scripted person writes down what they did, and the import must give exactly that.
"""

import json
import re
import socket
import sqlite3
import subprocess
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from contextlib import closing, contextmanager
from http.cookiejar import CookieJar

import numpy as np
import pandas as pd
import pytest
from study_builders import assignment, small_run
from test_own_histories import own  # noqa: F401 (a fixture)

from heart_collect import collect
from heart_collect.judging.design import pair_replies
from heart_collect.people import raters
from heart_collect.people.arrivals import Door
from heart_collect.people.raters import import_study
from heart_collect.people.study import load_settings, start_study, stop_study, write_study
from heart_utils.runs import find_root, open_run
from tools.study_visitor import Visitor, potato_program

pytestmark = [pytest.mark.services, pytest.mark.apart]

NASTY = (
    "Here for you. </script><script>window.ran=1</script><img src=x onerror='window.ran=2'> =1+1"
)


@pytest.fixture(autouse=True)
def _potato(monkeypatch):
    program = potato_program()
    if program is None:
        pytest.skip(
            "needs potato: `make study` installs it in an environment of its own, or set"
            " HEART_POTATO"
        )
    # also for a study in a project that is elsewhere
    monkeypatch.setenv("HEART_POTATO", str(program))


@contextmanager
def served(study):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    server = start_study(study, port=port)
    try:
        about = json.loads((study / "study.json").read_text())
        address = f"http://127.0.0.1:{port}"
        LINKS[address] = Door(about["secret"], about["settings"]["arrival"], {}).link()
        yield address
    finally:
        stop_study(server)


LINKS = {}  #: Of each address that is served, the path of the link by which people come.


def settings_for(run, **changes):
    settings = load_settings(run)
    for kind, values in changes.items():
        settings[kind] |= {"spare": 0} | values
    return settings


def test_three_raters_rate_ten_pairs_and_the_import_gives_what_they_did(tmp_path, chromium):
    run = small_run(
        tmp_path / "run", n_histories=10, texts={"person": NASTY, "model": "I hear you."}
    )
    settings = settings_for(
        run, rating={"raters_per_pair": 3, "load": 10, "n_checks": 1, "ties": True}
    )
    study = write_study(run, "rating", settings=settings)
    seats = assignment(study).set_index("item_id")
    did = {}
    with served(study) as address:
        for number, name in enumerate(("first", "second", "third")):
            visitor = Visitor(chromium, address)
            visitor.arrive(LINKS[address], name)
            visitor.consent()
            visitor.practise(("A", "B") if number else ("B", "A"))
            for page in range(11):
                item, left, right = visitor.read()
                row = seats.loc[item]
                if row["task"] == "check":
                    side = (
                        row["check_side"]
                        if name != "third"
                        else {"A": "B", "B": "A"}[row["check_side"]]
                    )
                    visitor.rate(side, int(row["check_strength"]), "read")
                    continue
                shown = {"A": left.replace("\u2060", ""), "B": right.replace("\u2060", "")}
                assert set(shown.values()) == {NASTY, "I hear you."}
                side = ("A", "B", "tie")[(page + number) % 3]
                strength = None if side == "tie" else 1 + (page + number) % 5
                reason = f"{name} on page {page}: <b>warm</b>"
                visitor.rate(side, strength, reason)
                did[name, row["comparison_id"]] = (
                    "tie" if side == "tie" else shown[side],
                    strength,
                    reason,
                )
            assert visitor.page.evaluate("window.ran") is None
            assert visitor.outside == []
            visitor.next(".completion-card, .potato-page-card, body:not(:has(#debrief_text))")
    assert len(did) == 30
    with pytest.warns(UserWarning, match="30 reasons with markup"):
        imported = import_study(run, study)
    codes = pd.read_csv(run.folder / "keys" / "people.csv").set_index("person")["code"]
    texts = run.read("replies").set_index("reply_id")["text"]
    replies = imported.comparisons.set_index("comparison_id")
    verdicts = imported.verdicts.set_index(["rater", "comparison_id"])
    assert len(verdicts) == 30
    for (name, comparison), (chosen, strength, reason) in did.items():
        row = verdicts.loc[codes[name], comparison]
        said = (
            "tie"
            if row["verdict"] == "tie"
            else texts[replies.loc[comparison, f"reply_{row['verdict']}"]]
        )
        assert said == chosen
        assert (None if pd.isna(row["margin"]) else row["margin"]) == strength
        assert row["rationale"] == reason
        assert row["order"] == replies.loc[comparison, "order"]
        assert row["seconds"] > 0
    raters = imported.raters.set_index("rater")
    assert raters.loc[codes, "n_checks_passed"].tolist() == [
        1 if name != "third" else 0 for name in codes.index
    ]
    assert raters["completed"].all()
    assert raters["n_answered"].tolist() == [10, 10, 10]


def wait_for_notes(folder, n_pages, seconds=60):
    """Wait until the server has written down how each of so many pages was typed."""
    for _ in range(10 * seconds):
        with closing(sqlite3.connect(folder / "project.sqlite")) as database:
            if (
                database.execute(
                    "SELECT COUNT(DISTINCT instance_id) FROM typing_sessions"
                ).fetchone()[0]
                >= n_pages
            ):
                return
        time.sleep(0.1)
    raise AssertionError(f"no notes on how {n_pages} pages were typed within {seconds} s")


def forget_last_answer(file, wrote):
    """Leave the state as one of two writes at once may: without the last answer, which the history
    has."""
    state = json.loads(file.read_text())
    answers = state["instance_id_to_label_to_value"]
    last = state["instance_id_ordering"][len(wrote) - 1]
    assert len(answers) >= len(wrote) - 1
    answers.pop(last, None)
    state["current_instance_index"] = len(wrote) - 1
    file.write_text(json.dumps(state))


def test_two_writers_write_three_replies_across_a_restart(tmp_path, chromium):
    run = small_run(tmp_path / "run", n_histories=3)
    study = write_study(
        run, "reply", settings=settings_for(run, reply={"writers_per_history": 2, "n_writers": 2})
    )
    histories = assignment(study).set_index("item_id")["history_id"]
    wrote = {}

    def write(visitor, name, page):
        item = visitor.item()
        pasted = (name, page) == ("beth", 2)
        text = f"{name} here, on page {page}. It's a lot & you <3 said so."
        visitor.write(text, paste=pasted)
        wrote[name, histories[item]] = (text, pasted, page)

    with served(study) as address:
        early = Visitor(chromium, address)
        code = early.arrive(LINKS[address], "al")
        early.consent()
        early.next('textarea[schema="reply"]')
        write(early, "al", 0)
        write(early, "al", 1)
        wait_for_notes(study, 2)  # how a page was typed is sent as it is left, in the background
    forget_last_answer(study / "answers" / "al" / "user_state.json", wrote)
    with served(study) as address:
        for name, first in (("al", 2), ("beth", 0)):
            visitor = Visitor(chromium, address)
            visitor.page.context.grant_permissions(
                ["clipboard-read", "clipboard-write"], origin=address
            )
            if first:
                visitor.arrive(LINKS[address], name, code=code, until='textarea[schema="reply"]')
                # the page they left, with the words they left on it
                text, _, _ = wrote["al", histories[visitor.item()]]
                assert visitor.page.input_value('textarea[schema="reply"]') == text
                visitor.turn_page()
            else:
                visitor.arrive(LINKS[address], name)
                visitor.consent()
                visitor.next('textarea[schema="reply"]')
            for page in range(first, 3):
                write(visitor, name, page)
            visitor.page.wait_for_selector("#debrief_text")
    imported = import_study(run, study)
    codes = pd.read_csv(run.folder / "keys" / "people.csv").set_index("person")["code"]
    replies = imported.replies.set_index(["author_id", "history_id"])
    assert len(replies) == len(wrote) == 6
    for (name, history), (text, pasted, page) in wrote.items():
        row = replies.loc[codes[name], history]
        assert row["text"] == text
        assert ("pasted" in row["flags"]) == pasted
        assert pasted or row["typing_ms"] > 0
        # Potato keeps the time on a page in memory until the person's next answer. That of the last
        # page before the
        # server is stopped, or before somebody closes the debrief unsent, is lost; it is empty
        # then, never zero.
        last = page == 2 or (name, page) == ("al", 1)
        assert row["total_ms"] > 0 or (last and pd.isna(row["total_ms"]))
    assert imported.responders["responder_kind"].tolist() == ["human"]
    assert imported.raters["n_answered"].tolist() == [3, 3]


def test_who_does_not_agree_sees_no_conversation(tmp_path, chromium):
    run = small_run(tmp_path / "run", n_histories=2)
    settings = settings_for(
        run, rating={"raters_per_pair": 1, "load": 5, "n_checks": 0, "spare": 1}
    )
    study = write_study(run, "rating", settings=settings | {"completion_code": "CODE-OF-SUCCESS"})
    with served(study) as address:
        visitor = Visitor(chromium, address)
        visitor.arrive(LINKS[address], "no-thanks")
        visitor.consent(agree=False)
        assert "You chose not to take part" in visitor.page.inner_text("body")
        visitor.next("text=/thank you/i")
        assert "CODE-OF-SUCCESS" not in visitor.page.inner_text("body")
        agreeing = Visitor(chromium, address)
        agreeing.arrive(LINKS[address], "yes-please")
        agreeing.consent()
        agreeing.practise()
        agreeing.rate("A", 1, "so")
    imported = import_study(run, study)
    # who declined is not in it, and a spare seat was there for the next
    assert len(imported.raters) == 1
    assert len(imported.verdicts) == 1


def test_a_rehearsal_without_prolific_asks_for_a_name(tmp_path, chromium):
    run = small_run(tmp_path / "run", n_histories=2)
    settings = load_settings(run)
    settings["rating"] |= {"raters_per_pair": 1, "load": 5, "n_checks": 0}
    study = write_study(run, "rating", settings=settings)
    with served(study) as address:
        visitor = Visitor(chromium, address)
        visitor.arrive(LINKS[address], "Ada")
        visitor.consent()


def test_who_logs_out_goes_on_where_they_were_and_two_studies_and_a_file_stand_side_by_side(
    tmp_path, chromium
):
    run = small_run(tmp_path / "run", n_histories=3)
    run.write("comparisons", pair_replies(run.read("replies"), rng=np.random.default_rng(1)))
    for name in ("rating", "second"):
        settings = load_settings(run)
        settings["rating"] |= {"raters_per_pair": 1, "load": 3, "n_checks": 0, "spare": 0}
        study = write_study(run, "rating", settings=settings, name=name)
        with served(study) as address:
            visitor = Visitor(chromium, address)
            code = visitor.arrive(LINKS[address], f"Ada of {name}")
            visitor.consent()
            visitor.practise()
            visitor.rate("A", 3, "warm")
            page = visitor.item()
            # An answer that comes after a logout must not log the person in again, so it carries no
            # cookie.
            assert "set-cookie" not in visitor.page.request.get(address).headers
            visitor.page.click('a[href$="/logout"]')
            visitor.page.wait_for_url("**/logout")
            visitor.page.goto(address)  # their place is not this browser's any more
            visitor.page.wait_for_selector("main#link")
            visitor.arrive(LINKS[address], f"Ada of {name}", code=code, until=".pairwise-tile")
            assert visitor.item() == page
            assert "You can stop at any time" in visitor.page.inner_text("body")
            visitor.rate("B", 2, "shorter")
            visitor.rate("A", 5, "kind")
            visitor.page.wait_for_selector("#debrief_text")
        files = [path for path in study.rglob("*") if path.is_file()]
        assert (study / "answers" / f"Ada of {name}" / "user_state.json") in files
        assert {
            path.name: oct(path.stat().st_mode) for path in files if path.stat().st_mode & 0o077
        } == {}
        assert raters.main([str(run.folder), name]) == 0
    statement = tmp_path / "who.yaml"
    statement.write_text("population: invented\nlanguage: English\npay: none\n")
    votes = tmp_path / "votes.csv"
    votes.write_text(
        "rater,left,right,choice\nben,person-h00,model-h00,left\ncy,person-h00,model-h00,right\n"
    )
    assert raters.main([str(run.folder), str(votes), "--statement", str(statement)]) == 0
    assert sorted(run.read("verdicts").groupby("rater").size()) == [1, 1, 3, 3]
    assert raters.main([str(run.folder), "second"]) == 0
    assert sorted(run.read("verdicts").groupby("rater").size()) == [1, 1, 3, 3]


EDGES = """() => [...document.querySelectorAll('body *')].filter(one => {
    const box = one.getBoundingClientRect();
    const seen = box.width && box.height && getComputedStyle(one).visibility != 'hidden';
    return seen && (box.right > innerWidth + 0.5 || box.left < -0.5);
}).map(one => one.className)"""
SIZES = """where => [...document.querySelectorAll(where)].map(one => {
    const box = one.getBoundingClientRect();
    return [box.width, box.height];
})"""


def test_on_a_telephone_no_page_is_wider_than_the_screen_and_a_finger_hits_each_choice(
    tmp_path, chromium
):
    words = (
        "I hear how much this weighs on you, and that nobody noticed. What would help you tonight,"
        " and who could be there? " * 2
    )
    run = small_run(tmp_path / "run", n_histories=3, texts={"person": words, "model": words[::-1]})
    study = write_study(
        run,
        "rating",
        settings=settings_for(run, rating={"raters_per_pair": 1, "load": 3, "n_checks": 1}),
    )
    with served(study) as address:
        visitor = Visitor(chromium, address, width=360, height=740)
        page = visitor.page
        visitor.arrive(LINKS[address], "phone")
        wide = {"consent": page.evaluate(EDGES)}
        visitor.consent()
        wide["instructions"] = page.evaluate(EDGES)
        visitor.practise()
        wide["rating"] = page.evaluate(EDGES)
        assert min(width for width, _ in page.evaluate(SIZES, ".pairwise-content")) >= 290
        assert min(height for _, height in page.evaluate(SIZES, ".pairwise-tile")) >= 44
        assert min(height for _, height in page.evaluate(SIZES, ".shadcn-radio-label")) >= 44
        first, choice = (
            page.locator(where).first.bounding_box()["y"]
            for where in (".pairwise-cell", ".pairwise-tile")
        )
        assert choice - first < 740  # the choice is within a screen of the first reply
        while page.query_selector(".pairwise-tile"):
            visitor.rate("A", 3, "warm")
        page.wait_for_selector("#debrief_text")
        wide["debrief"] = page.evaluate(EDGES)
    assert wide == {name: [] for name in wide}
    kept = {
        file.name
        for file in study.rglob("*")
        if file.is_file() and re.search(rb"127\.0\.0\.1|Mozilla", file.read_bytes())
    }
    assert kept == set(), "no address and no browser of who took part is kept"
    assert not (study / "answers" / "pocket").exists()


def ask(address, path="/", body=None, *, browser=None, **headers):
    """Send a request without a browser; return its status, words and headers."""
    opener = browser or urllib.request.build_opener(urllib.request.HTTPCookieProcessor(CookieJar()))
    request = urllib.request.Request(address + path, body, headers)
    try:
        with opener.open(request, timeout=60) as answer:
            return answer.status, answer.read().decode(), answer.headers
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode(), error.headers


def test_nobody_is_somebody_else_by_a_name_an_id_or_a_link(tmp_path):
    """What a stranger could do: be Ada by typing Ada, be framed, send 30 MB."""
    run = small_run(tmp_path / "run", n_histories=3)
    settings = settings_for(run, rating={"raters_per_pair": 1, "load": 3, "n_checks": 0})
    study = write_study(run, "rating", settings=settings)
    with served(study) as address:
        link = LINKS[address]
        ada = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(CookieJar()))
        assert ask(address, f"{link}&person=Ada", browser=ada)[0] == 200
        status, page, headers = ask(address, browser=ada)
        assert (status, "consent_text" in page) == (200, True)
        assert "frame-ancestors 'none'" in headers["Content-Security-Policy"]
        for path in ("/", "/?person=Ada", "/?PROLIFIC_PID=Ada", "/annotate", "/consent?person=Ada"):
            status, page, _ = ask(address, path)
            assert (status, "consent_text" in page) == (403, False), path
        for path in (f"{link}&person=Ada", f"{link}&person=ada", f"{link}&person=Ada&code=AAAA"):
            stranger = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(CookieJar()))
            assert ask(address, path, browser=stranger)[0] == 403
            assert ask(address, browser=stranger)[0] == 403
        for path in ("/auth", "/login", "/register", "/admin", "/admin/user_state/Ada"):
            assert ask(address, path, b"email=Ada", browser=ada)[0] == 404
        assert ask(address, "/consent", b"x" * 1_100_000, browser=ada)[0] == 413
        assert ask(address, "/consent", b"x", browser=ada, Origin="http://evil.example")[0] == 403
        for cookie in ("place=Ada", "place=\xff", "session=Ada"):
            assert ask(address, Cookie=cookie)[0] == 403
    assert list(json.loads((study / "browsers.json").read_text())) == ["ada"]


def test_a_made_up_id_takes_no_seat_of_raters(tmp_path):
    run = small_run(tmp_path / "run", n_histories=3)
    settings = settings_for(run, rating={"raters_per_pair": 1, "load": 3, "n_checks": 0})
    study = write_study(run, "rating", settings=settings | {"arrival": "prolific"})
    with served(study) as address:
        for made_up in (
            "made-up-1",
            "{{%25PROLIFIC_PID%25}}",
            "a" * 5_000,
            "../../etc",
            "",
            "A" * 24,
        ):
            assert ask(address, LINKS[address] + made_up)[0] == 403
        assert ask(address, "/?PROLIFIC_PID=" + "a" * 24)[0] == 403  # no link
        assert ask(address, "/arrive?PROLIFIC_PID=" + "a" * 24)[0] == 403
        assert ask(address, LINKS[address] + "a" * 24)[0] == 200
    assert list(json.loads((study / "browsers.json").read_text())) == ["a" * 24]


def test_what_people_write_in_a_browser_comes_before_the_judges(own, chromium):  # noqa: F811
    assert collect.main(["own", "--quiet", "--yes"]) == 0
    run = open_run("own")
    study = write_study(
        run, "reply", settings=settings_for(run, reply={"writers_per_history": 2, "n_writers": 2})
    )
    wrote = set()
    with served(study) as address:
        for name in ("al", "beth"):
            visitor = Visitor(chromium, address)
            visitor.arrive(LINKS[address], name)
            visitor.consent()
            visitor.next('textarea[schema="reply"]')
            for page in range(4):
                wrote.add(f"{name} on page {page}: that sounds lonely.")
                visitor.write(f"{name} on page {page}: that sounds lonely.")
            visitor.page.wait_for_selector("#debrief_text")
    assert raters.main(["own", "reply"]) == 0
    assert collect.main(["own", "--quiet", "--yes"]) == 0
    replies, verdicts = run.read("replies"), run.read("verdicts")
    theirs = replies[replies["responder"] == "human"]
    assert set(theirs["text"]) == wrote
    met = verdicts[(verdicts["responder_a"] == "human") | (verdicts["responder_b"] == "human")]
    assert len(met) == 8 * 3 * 2  # eight replies, three others each, both orders
    assert (met["state"] == "valid").all()
    shown = run.read("comparisons").set_index("comparison_id").loc[met["comparison_id"]]
    assert set(theirs["reply_id"]) <= {*shown["reply_a"], *shown["reply_b"]}


class Scripted:
    """A rater without a browser, who sends what the pages send."""

    def __init__(self, address: str, name: str) -> None:
        self.address, self.name = address, name
        self.opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(CookieJar()))
        self.did: dict[str, tuple[str, str, str]] = {}

    def get(self, path: str = "/") -> str:
        with self.opener.open(self.address + path, timeout=120) as answer:
            return answer.read().decode()

    def post(self, path: str, body: dict) -> None:
        request = urllib.request.Request(
            self.address + path, json.dumps(body).encode(), {"Content-Type": "application/json"}
        )
        with self.opener.open(request, timeout=120) as answer:
            assert answer.status == 200, (self.name, path, answer.status)

    def send(self, item: str, annotations: dict[str, str]) -> None:
        """Send the answers and how they were typed at the same time, as a page does; the server's
        state may lose one."""
        common = {
            "instance_id": item,
            "annotations": annotations,
            "cleared_schemas": [],
            "span_annotations": [],
        }
        typing = threading.Thread(
            target=self.note_typing, args=(item, annotations.get("reason:text_box", ""))
        )
        typing.start()
        self.post("/updateinstance", common)
        typing.join()
        self.post("/annotate", {"action": "next_instance", "instance_id": item})

    def note_typing(self, item: str, text: str) -> None:
        if text:
            event = {
                "t_ms": 5,
                "input_type": "insertText",
                "key_class": "letter",
                "pos": 0,
                "delta": len(text),
            }
            session = {
                "schema_name": "reason",
                "label_name": "text_box",
                "final_chars": len(text),
                "events": [event],
            }
            self.post("/api/track_typing", {"instance_id": item, "sessions": [session]})

    def take_part(self, n_pages: int, start: threading.Barrier) -> None:
        start.wait()
        query = urllib.parse.urlencode({"person": self.name})
        self.get(f"{LINKS[self.address]}&{query}")
        self.get("/")
        first = {"consent_age:yes": "yes", "consent_agree:yes": "yes"}
        practice = [{"practice_1:Reply A": "Reply A"}, {}, {"practice_2:Reply B": "Reply B"}, {}]
        for answers in [first, {}, *practice]:
            self.send("__phase_page__", answers)
            page = self.get()
        for number in range(n_pages):
            item = re.search(
                r'id="instance_id"[^>]*value="([^"]+)"|value="([^"]+)"[^>]*id="instance_id"', page
            )
            assert item, (self.name, number)
            item_id = item[1] or item[2]
            choice = (
                "AB"[(number + len(self.name)) % 2],
                str(1 + number % 5),
                f"{self.name} {number}",
            )
            self.did[item_id] = choice
            self.send(
                item_id,
                {
                    "preference:selection": choice[0],
                    f"strength:{choice[1]}": choice[1],
                    "reason:text_box": choice[2],
                },
            )
            page = self.get()
        assert "debrief_text" in page, self.name


def run_in_potato(program: str) -> subprocess.CompletedProcess[str]:
    """Run a program in Potato's interpreter, as it is mended."""
    return subprocess.run(
        [potato_program().resolve().with_name("python"), "-c", program],
        env={"PYTHONPATH": str(find_root() / "data" / "study")},
        capture_output=True,
        text=True,
        check=False,
    )


COMPILE_TOGETHER = """
import threading, time
from flask import Flask, render_template
from jinja2 import DictLoader, Environment

def compile_slowly(environment, source, *given, compile=Environment.compile):
    print("compiled")
    time.sleep(0.1)
    return compile(environment, source, *given)

Environment.compile = compile_slowly
app = Flask(__name__)
app.jinja_loader = DictLoader({"page": "shown"})

def ask():
    with app.app_context():
        print(render_template("page"))

people = [threading.Thread(target=ask) for _ in range(5)]
for person in people:
    person.start()
"""


def test_a_page_that_many_ask_for_together_is_compiled_once():
    """Each of fifty raters who began together made the server compile each page anew."""
    done = run_in_potato(COMPILE_TOGETHER)
    assert done.stdout.split() == ["compiled", *["shown"] * 5], done.stderr


def test_items_can_be_taken_out_while_the_server_walks_through_them():
    """Potato's own deque ends in an error page here; with many raters at once it did."""
    walk = (
        "from potato.item_state_management import deque; left = deque('ab')\nfor x in left:"
        " left.remove(x)\nprint(*left)"
    )
    done = run_in_potato(walk)
    assert done.stdout == "\n", done.stderr


def test_fifty_raters_at_once_lose_no_verdict(tmp_path):
    run = small_run(tmp_path / "run", n_histories=25)
    study = write_study(
        run,
        "rating",
        settings=settings_for(run, rating={"raters_per_pair": 10, "load": 5, "n_checks": 1}),
    )
    assert assignment(study)["seat"].nunique() == 50
    failures: list[str] = []
    with served(study) as address:
        people = [Scripted(address, f"person-{number:02d}") for number in range(50)]
        start = threading.Barrier(50)

        def run_one(person: Scripted) -> None:
            try:
                person.take_part(6, start)
            except Exception as error:  # a thread's failure must reach the test
                failures.append(f"{person.name}: {type(error).__name__}: {error}")

        threads = [threading.Thread(target=run_one, args=(person,)) for person in people]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(timeout=300)
        assert not failures
    imported = import_study(run, study)
    assert len(imported.verdicts) == 250
    assert imported.raters["completed"].sum() == 50
    codes = pd.read_csv(run.folder / "keys" / "people.csv").set_index("person")["code"]
    seats = assignment(study).set_index("item_id")
    verdicts = imported.verdicts.set_index(["rater", "comparison_id"])
    for person in people:
        for item, (side, strength, reason) in person.did.items():
            row = seats.loc[item]
            if row["task"] == "check":
                continue
            verdict = verdicts.loc[codes[person.name], row["comparison_id"]]
            assert verdict["verdict"] == (row["order"] if side == "A" else row["order"][::-1])[0]
            assert (verdict["margin"], verdict["rationale"]) == (float(strength), reason)
    assert imported.verdicts.groupby("pair_id")["rater"].nunique().eq(10).all()
