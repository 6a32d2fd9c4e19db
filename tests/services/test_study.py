"""Studies with people, end to end: the real Potato server, a real browser, and then the import.

Each scripted person writes down what they did, and the import must give exactly that. A start of
the server takes seconds, so that whoever comes by name to rate comes to one study.
"""

import json
import re
import socket
import sqlite3
import subprocess
import threading
import time
from contextlib import closing, contextmanager
from types import SimpleNamespace

import pandas as pd
import pytest
import requests
from study_builders import assignment, small_run

from heart_collect.people.arrivals import Door
from heart_collect.people.raters import import_study
from heart_collect.people.study import load_settings, start_study, stop_study, write_study
from heart_utils.runs import find_root
from tools.study_visitor import Visitor, potato_program

pytestmark = pytest.mark.services

WORDS = (
    "I hear how much this weighs on you, and that nobody noticed. What would help you tonight, and"
    " who could be there?"
)
NASTY = (
    "Here for you. </script><script>window.ran=1</script><img src=x onerror='window.ran=2'> =1+1 "
)
TEXTS = {"person": NASTY + WORDS, "model": f"{WORDS} {WORDS[::-1]}"}


@pytest.fixture(autouse=True, scope="module")
def _potato():
    if potato_program() is None:
        pytest.skip("needs potato: `make study` installs it, or set HEART_POTATO")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HEART_POTATO", str(potato_program()))  # a project may be elsewhere
        yield


@contextmanager
def served(study):
    """Serve a study, and give its address and the path by which people come."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    server = start_study(study, port=port)
    try:
        about = json.loads((study / "study.json").read_text())
        door = Door(about["secret"], about["settings"]["arrival"], {})
        yield f"http://127.0.0.1:{port}", door.link()
    finally:
        stop_study(server)


def new_study(run, kind, rules, **changes):
    settings = load_settings(run) | changes
    settings[kind] |= {"spare": 0} | rules
    return write_study(run, kind, settings=settings)


def codes_of(run):
    return pd.read_csv(run.folder / "keys" / "people.csv", dtype=str).set_index("person")["code"]


@pytest.fixture(scope="module")
def rating(tmp_path_factory):
    """A served study for three raters of six pairs, with three spare seats."""
    run = small_run(tmp_path_factory.mktemp("rating") / "run", n_histories=6, texts=TEXTS)
    rules = {"raters_per_pair": 3, "load": 6, "n_checks": 1, "ties": True, "spare": 1}
    study = new_study(run, "rating", rules, completion_code="CODE-OF-SUCCESS")
    with served(study) as (address, link):
        yield SimpleNamespace(run=run, study=study, address=address, link=link)


def test_who_does_not_agree_sees_no_conversation(rating, chromium):
    visitor = Visitor(chromium, rating.address)
    visitor.arrive(rating.link, "no-thanks")
    visitor.consent(agree=False)
    assert "You chose not to take part" in visitor.page.inner_text("body")
    visitor.next("text=/thank you/i")
    assert "CODE-OF-SUCCESS" not in visitor.page.inner_text("body")


def ask(address, path="/", body=None, *, browser=requests, **headers):
    """Send a request without a browser; return its status, words and headers."""
    method = "GET" if body is None else "POST"
    answer = browser.request(method, address + path, data=body, headers=headers, timeout=60)
    return answer.status_code, answer.text, answer.headers


def test_nobody_is_somebody_else_by_a_name_an_id_or_a_link(rating):
    """What a stranger could do: be Ada by typing Ada, be framed, send 30 MB."""
    address, link = rating.address, rating.link
    ada = requests.Session()
    assert ask(address, f"{link}&person=Ada", browser=ada)[0] == 200
    status, page, headers = ask(address, browser=ada)
    assert (status, "consent_text" in page) == (200, True)
    assert "frame-ancestors 'none'" in headers["Content-Security-Policy"]
    for path in ("/", "/?person=Ada", "/?PROLIFIC_PID=Ada", "/annotate", "/consent?person=Ada"):
        status, page, _ = ask(address, path)
        assert (status, "consent_text" in page) == (403, False), path
    for who in ("Ada", "ada", "Ada&code=AAAA"):
        stranger = requests.Session()
        assert ask(address, f"{link}&person={who}", browser=stranger)[0] == 403
        assert ask(address, browser=stranger)[0] == 403
    for path in ("/auth", "/login", "/register", "/admin", "/admin/user_state/Ada"):
        assert ask(address, path, b"email=Ada", browser=ada)[0] == 404
    assert ask(address, "/consent", b"x" * 1_100_000, browser=ada)[0] == 413
    assert ask(address, "/consent", b"x", browser=ada, Origin="http://evil.example")[0] == 403
    for cookie in ("place=Ada", "place=\xff", "session=Ada"):
        assert ask(address, Cookie=cookie)[0] == 403
    taken = json.loads((rating.study / "browsers.json").read_text())
    assert set(taken) == {"no-thanks", "ada"}


EDGES = """() => [...document.querySelectorAll('body *')].filter(one => {
    const box = one.getBoundingClientRect();
    const seen = box.width && box.height && getComputedStyle(one).visibility != 'hidden';
    return seen && (box.right > innerWidth + 0.5 || box.left < -0.5);
}).map(one => one.className)"""
SIZES = """where => [...document.querySelectorAll(where)].map(one => {
    const box = one.getBoundingClientRect();
    return [box.width, box.height];
})"""


def look_at_sizes(page):
    """See that a finger hits each choice on a telephone, within a screen of the first reply."""
    assert min(width for width, _ in page.evaluate(SIZES, ".pairwise-content")) >= 290
    for choice in (".pairwise-tile", ".shadcn-radio-label"):
        assert min(height for _, height in page.evaluate(SIZES, choice)) >= 44
    cell, choice = (
        page.locator(where).first.bounding_box()["y"]
        for where in (".pairwise-cell", ".pairwise-tile")
    )
    assert choice - cell < 740


def log_out_and_come_back(visitor, link, name, code):
    page, item = visitor.page, visitor.item()
    # an answer that comes after a logout must not log the person in again: it carries no cookie
    assert "set-cookie" not in page.request.get(visitor.address).headers
    page.click('a[href$="/logout"]')
    page.wait_for_url("**/logout")
    page.goto(visitor.address)  # their place is not this browser's any more
    page.wait_for_selector("main#link")
    visitor.arrive(link, name, code=code, until=".pairwise-tile")
    assert visitor.item() == item
    assert "You can stop at any time" in page.inner_text("body")


def test_three_raters_rate_six_pairs_and_the_import_gives_what_they_did(rating, chromium):
    """The second logs out and comes back, and the third has a telephone and fails the check."""
    seats = assignment(rating.study).set_index("item_id")
    did = {}
    for number, name in enumerate(("first", "second", "third")):
        size = {"width": 360, "height": 740} if name == "third" else {}
        visitor = Visitor(chromium, rating.address, **size)
        page = visitor.page
        code = visitor.arrive(rating.link, name)
        wide = page.evaluate(EDGES)
        visitor.consent()
        wide += page.evaluate(EDGES)
        visitor.practise(("A", "B") if number else ("B", "A"))
        if name == "third":
            look_at_sizes(page)
        for place in range(7):
            if (name, place) == ("second", 1):
                log_out_and_come_back(visitor, rating.link, name, code)
            wide += page.evaluate(EDGES)
            item, *sides = visitor.read()
            row = seats.loc[item]
            if row["task"] == "check":
                passes = (row["check_side"] == "A") == (name != "third")
                visitor.rate("A" if passes else "B", int(row["check_strength"]), "read")
                continue
            shown = dict(zip("AB", (side.replace("\u2060", "") for side in sides), strict=True))
            assert set(shown.values()) == set(TEXTS.values())
            side = ("A", "B", "tie")[(place + number) % 3]
            strength = None if side == "tie" else 1 + (place + number) % 5
            reason = f"{name} on page {place}: <b>warm</b>"
            visitor.rate(side, strength, reason)
            did[name, row["comparison_id"]] = (shown.get(side, "tie"), strength, reason)
        wide += page.evaluate(EDGES)
        assert page.evaluate("window.ran") is None
        assert visitor.outside == []
        assert wide == []
        visitor.next(".completion-card, .potato-page-card, body:not(:has(#debrief_text))")
    with pytest.warns(UserWarning, match="18 reasons with markup"):
        imported = import_study(rating.run, rating.study)
    codes = codes_of(rating.run)
    assert set(codes.index) == {"first", "second", "third"}  # neither who declined nor who looked
    texts = rating.run.read("replies").set_index("reply_id")["text"]
    replies = imported.comparisons.set_index("comparison_id")
    verdicts = imported.verdicts.set_index(["rater", "comparison_id"])
    assert len(verdicts) == len(did) == 18
    for (name, comparison), (chosen, strength, reason) in did.items():
        row = verdicts.loc[codes[name], comparison]
        said = "tie"
        if row["verdict"] != "tie":
            said = texts[replies.loc[comparison, f"reply_{row['verdict']}"]]
        margin = None if pd.isna(row["margin"]) else row["margin"]
        assert (said, margin, row["rationale"]) == (chosen, strength, reason)
        assert row["order"] == replies.loc[comparison, "order"]
        assert row["seconds"] > 0
    theirs = imported.raters.set_index("rater").loc[codes[["first", "second", "third"]]]
    assert theirs["n_checks_passed"].tolist() == [1, 1, 0]
    assert theirs["completed"].all()
    assert theirs["n_answered"].tolist() == [6, 6, 6]
    files = [path for path in rating.study.rglob("*") if path.is_file()]
    assert rating.study / "answers" / "first" / "user_state.json" in files
    assert {path.name for path in files if path.stat().st_mode & 0o077} == set()
    telling = {
        file.name for file in files if re.search(rb"127\.0\.0\.1|Mozilla", file.read_bytes())
    }
    assert telling == set(), "no address and no browser of who took part is kept"
    assert not (rating.study / "answers" / "pocket").exists()


def wait_for_notes(folder, n_pages, seconds=60):
    """Wait until the server has written down how each of so many pages was typed."""
    query = "SELECT COUNT(DISTINCT instance_id) FROM typing_sessions"
    for _ in range(10 * seconds):
        with closing(sqlite3.connect(folder / "project.sqlite")) as database:
            if database.execute(query).fetchone()[0] >= n_pages:
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


@pytest.mark.apart
def test_two_writers_write_three_replies_across_a_restart(tmp_path, chromium):
    run = small_run(tmp_path / "run", n_histories=3)
    study = new_study(run, "reply", {"writers_per_history": 2, "n_writers": 2})
    histories = assignment(study).set_index("item_id")["history_id"]
    box = 'textarea[schema="reply"]'
    wrote = {}

    def write(visitor, name, *pages):
        for page in pages:
            key = name, histories[visitor.item()]
            text = f"{name} here, on page {page}. It's a lot & you <3 said so."
            pasted = (name, page) == ("beth", 2)
            visitor.write(text, paste=pasted)
            wrote[key] = (text, pasted, page)

    with served(study) as (address, link):
        early = Visitor(chromium, address)
        code = early.arrive(link, "al")
        early.consent()
        early.next(box)
        write(early, "al", 0, 1)
        wait_for_notes(study, 2)  # how a page was typed is sent as it is left, in the background
    forget_last_answer(study / "answers" / "al" / "user_state.json", wrote)
    with served(study) as (address, link):
        al, beth = Visitor(chromium, address), Visitor(chromium, address)
        al.arrive(link, "al", code=code, until=box)
        # the page they left, with the words they left on it
        assert al.page.input_value(box) == wrote["al", histories[al.item()]][0]
        al.turn_page()
        write(al, "al", 2)
        clipboard = ["clipboard-read", "clipboard-write"]
        beth.page.context.grant_permissions(clipboard, origin=address)
        beth.arrive(link, "beth")
        beth.consent()
        beth.next(box)
        write(beth, "beth", 0, 1, 2)
        for visitor in (al, beth):
            visitor.page.wait_for_selector("#debrief_text")
    imported = import_study(run, study)
    codes = codes_of(run)
    replies = imported.replies.set_index(["author_id", "history_id"])
    assert len(replies) == len(wrote) == 6
    for (name, history), (text, pasted, page) in wrote.items():
        row = replies.loc[codes[name], history]
        assert (row["text"], "pasted" in row["flags"]) == (text, pasted)
        assert pasted or row["typing_ms"] > 0
        # Potato keeps the time on a page in memory until the person's next answer. That of the last
        # page before the server is stopped, or before somebody closes the debrief unsent, is lost;
        # it is empty then, never zero.
        last = page == 2 or (name, page) == ("al", 1)
        assert row["total_ms"] > 0 or (last and pd.isna(row["total_ms"]))
    assert imported.responders["responder_kind"].tolist() == ["human"]
    assert imported.raters["n_answered"].tolist() == [3, 3]


class Scripted:
    """A rater without a browser, who sends what the pages send."""

    def __init__(self, address: str, name: str) -> None:
        self.address, self.name = address, name
        self.session = requests.Session()
        self.did: dict[str, tuple[str, str, str]] = {}

    def get(self, path: str = "/") -> str:
        answer = self.session.get(self.address + path, timeout=120)
        answer.raise_for_status()
        return answer.text

    def post(self, path: str, body: dict) -> None:
        self.session.post(self.address + path, json=body, timeout=120).raise_for_status()

    def send(self, item: str, answers: dict[str, str]) -> None:
        """Send the answers and how they were typed at the same time, as a page does; the server's
        state may lose one."""
        common = {"cleared_schemas": [], "span_annotations": []}
        words = answers.get("reason:text_box", "")
        typing = threading.Thread(target=self.note_typing, args=(item, words))
        typing.start()
        self.post("/updateinstance", {"instance_id": item, "annotations": answers, **common})
        typing.join()
        self.post("/annotate", {"action": "next_instance", "instance_id": item})

    def note_typing(self, item: str, text: str) -> None:
        if text:
            event = {"t_ms": 5, "input_type": "insertText", "key_class": "letter", "pos": 0}
            session = {"schema_name": "reason", "label_name": "text_box", "final_chars": len(text)}
            session["events"] = [event | {"delta": len(text)}]
            self.post("/api/track_typing", {"instance_id": item, "sessions": [session]})

    def take_part(self, link: str, n_pages: int, start: threading.Barrier) -> None:
        start.wait()
        self.get(link + self.name)
        self.get("/")
        first = {"consent_age:yes": "yes", "consent_agree:yes": "yes"}
        practice = [{"practice_1:Reply A": "Reply A"}, {}, {"practice_2:Reply B": "Reply B"}, {}]
        for answers in [first, {}, *practice]:
            self.send("__phase_page__", answers)
        shown = r'id="instance_id"[^>]*value="([^"]+)"|value="([^"]+)"[^>]*id="instance_id"'
        for number in range(n_pages):
            found = re.search(shown, self.get())
            assert found, (self.name, number)
            item = found[1] or found[2]
            side, firm = "AB"[(number + int(self.name, 16)) % 2], str(1 + number % 5)
            reason = f"{self.name[-2:]} {number}"
            self.did[item] = side, firm, reason
            answers = {"preference:selection": side, f"strength:{firm}": firm}
            self.send(item, answers | {"reason:text_box": reason})
        assert "debrief_text" in self.get(), self.name


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


MADE_UP = ("made-up-1", "{{%25PROLIFIC_PID%25}}", "a" * 5_000, "../../etc", "", "A" * 24)


@pytest.mark.apart
def test_raters_of_a_platform_at_once_lose_no_verdict_and_made_up_ids_take_no_seat(tmp_path):
    run = small_run(tmp_path / "run", n_histories=25)
    rules = {"raters_per_pair": 5, "load": 5, "n_checks": 1}
    study = new_study(run, "rating", rules, arrival="prolific")
    names = [f"{number:024x}" for number in range(25)]
    assert assignment(study)["seat"].nunique() == len(names)
    failures: list[str] = []
    start = threading.Barrier(len(names))
    with served(study) as (address, link):
        for made_up in MADE_UP:
            assert ask(address, link + made_up)[0] == 403
        for no_link in ("/?", "/arrive?"):
            assert ask(address, f"{no_link}PROLIFIC_PID={names[0]}")[0] == 403
        people = [Scripted(address, name) for name in names]

        def run_one(person: Scripted) -> None:
            try:
                person.take_part(link, 6, start)
            except Exception as error:  # a thread's failure must reach the test
                failures.append(f"{person.name}: {type(error).__name__}: {error}")

        threads = [threading.Thread(target=run_one, args=(person,)) for person in people]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(timeout=300)
        assert not failures
    assert set(json.loads((study / "browsers.json").read_text())) == set(names)
    imported = import_study(run, study)
    assert len(imported.verdicts) == 125
    assert imported.raters["completed"].sum() == len(names)
    codes = codes_of(run)
    rated = assignment(study).query("task == 'rate'").set_index("item_id")
    verdicts = imported.verdicts.set_index(["rater", "comparison_id"])
    for person in people:
        for item in rated.index.intersection([*person.did]):
            side, strength, reason = person.did[item]
            row = rated.loc[item]
            verdict = verdicts.loc[codes[person.name], row["comparison_id"]]
            assert verdict["verdict"] == row["order"]["AB".index(side)]
            assert (verdict["margin"], verdict["rationale"]) == (float(strength), reason)
    assert imported.verdicts.groupby("pair_id")["rater"].nunique().eq(5).all()
