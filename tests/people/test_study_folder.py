"""Writing a study: what is in the folder, and what keeps it from being written or started."""

import html
import json
import os
import re
import shutil
import signal
import socket
import stat
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import pytest
import yaml
from builders import full_disk
from study_builders import (
    STATEMENT,
    answer_seat,
    assignment,
    conversation_run,
    small_run,
)
from worker import begin_command

from heart_collect.judging.prompts import REPLY_INSTRUCTIONS
from heart_collect.people.assignment import StudyError
from heart_collect.people.raters import import_study
from heart_collect.people.study import (
    ASKED_OF_PUBLIC,
    load_settings,
    main,
    start_study,
    write_study,
)
from heart_utils.runs import Run, find_root
from tools.shoot_study import checksum_of_pages

RULES = {"raters_per_pair": 3, "load": 5, "n_checks": 1, "spare": 0}
SMALL = f"rating: {json.dumps(RULES)}\n"


@pytest.fixture(scope="session")
def written(tmp_path_factory):
    """A rating study that no test changes."""
    run = small_run(tmp_path_factory.mktemp("written") / "run")
    return contents(small_study(run))


@pytest.fixture
def run(written, tmp_path):
    """Its run, without the study."""
    template = written.folder.parents[1]
    shutil.copytree(template, tmp_path / "run", ignore=shutil.ignore_patterns("study"))
    return Run("run", tmp_path / "run", find_root())


def set_up(run, text):
    (run.folder / "study.yaml").write_text(text)


def small_study(run, *, name=None, settings=None, **rating):
    more = load_settings(run) | (settings or {})
    more["rating"] = more["rating"] | RULES | rating
    return write_study(run, "rating", settings=more, name=name)


def contents(folder):
    """Read what a study holds: its server's settings, seats, pages of the task and around it."""
    config = yaml.load((folder / "config.yaml").read_text(), yaml.CSafeLoader)
    lines = (folder / "items.jsonl").read_text().splitlines()
    items = {item["id"]: item for item in map(json.loads, lines)}
    pages = {file.stem: file.read_text() for file in (folder / "pages").glob("*.json")}
    shown = assignment(folder)
    return SimpleNamespace(folder=folder, config=config, items=items, pages=pages, shown=shown)


def filled_in(**more) -> str:
    told = dict.fromkeys(ASKED_OF_PUBLIC, "told")
    return yaml.safe_dump({"rehearsal": False, "statement": STATEMENT, **told, **more})


def seats_and_pages(study: Path) -> tuple[int, int]:
    shown = assignment(study)
    return shown["seat"].nunique(), len(shown)


def write_command(run, *more):
    return main([str(run.folder), "rating", "--write-only", *more])


def test_a_rating_study_holds_every_page_and_seat(written):
    assert seats_and_pages(written.folder) == (3, 18)  # 5 pairs * 3 raters / 5, and a check each
    phases = written.config["phases"]
    order = phases["order"]
    assert order[:4] == ["consent", "declined", "instructions", "practice_1"]
    assert order[-2:] == ["annotation", "debrief"]
    assert set(written.pages) == set(order) - {"annotation"}
    types = [phases[page]["type"] for page in order]
    runs = [one for one, before in zip(types, [None, *types], strict=False) if one != before]
    assert len(runs) == len(set(types)), "Potato shows all pages of one type where the first is"
    groups = written.config["batch_assignment"]["groups"]
    assert [item for group in groups for item in group["instances"]] == list(written.items)
    assert {group["max_annotators"] for group in groups} == {1}
    assert written.config["instance_display"]["resizable"] is False  # long ones are shown whole


def test_who_says_no_leaves_at_once(written):
    declined = written.config["phases"]["declined"]
    for rule in (declined, declined["exit_when"]):
        asked = [(one["schema"], one["value"]) for one in rule["show_when"]]
        assert asked == [("consent_age", "no"), ("consent_agree", "no")]
        assert rule["logic"] == "any"


def test_raters_read_each_reply_on_the_side_that_was_assigned(written):
    for row in written.shown.query("task == 'rate'").to_dict("records"):
        # model-... is the smaller id, so it is a
        sides = [f"model {row['history_id']}", f"person {row['history_id']}"]
        expected = sides if row["order"] == "ab" else sides[::-1]
        assert written.items[row["item_id"]]["replies"] == expected


def test_raters_are_shown_no_rubric(written):
    said = " ".join(text for name, text in written.pages.items() if name != "debrief").lower()
    assert re.findall("empath|attun|resonan|rubric|criteri", said) == []


def test_checks_say_what_they_want_and_the_assignment_knows_it(written):
    checks = written.shown.query("task == 'check'").to_dict("records")
    assert len(checks) == 3
    for row in checks:
        asks = written.items[row["item_id"]]["replies"]["AB".index(row["check_side"])]
        firm = int(row["check_strength"])
        assert f"this reply, {row['check_side']}, with strength {firm}" in asks


def test_the_settings_that_come_with_the_project_make_a_study(tmp_path):
    run = small_run(tmp_path / "run", n_histories=10, responders=("r1", "r2", "r3", "r4", "r5"))
    # 10 histories * 10 pairs * 15 raters / 30 each, and a fifth more; three checks each
    assert seats_and_pages(write_study(run, "rating")) == (60, 60 * 33)


def test_nothing_on_a_page_tells_who_wrote_a_reply(tmp_path):
    """The texts of other runs name their responders; with those taken out, no file that Potato
    serves does."""
    run = small_run(tmp_path / "run", texts={"person": "I am here.", "model": "I hear you."})
    study = contents(small_study(run))
    items = json.dumps(study.items)
    assert "responder" not in items + "".join(study.pages.values())
    assert "person-" not in items
    assert "model" not in items


def test_raters_of_conversations_read_them_whole_and_are_asked_about_conversations(tmp_path):
    run = conversation_run(tmp_path / "run")
    study = contents(small_study(run, load=8, n_checks=1, dimension="Who listens?"))
    checks = [one["replies"] for name, one in study.items.items() if ".check-" in name]
    shown = [side for name, one in study.items.items() if ".check-" not in name
             for side in one["replies"]]  # fmt: skip
    told = {"Supporter: model says one", "Seeker: s says two", "Seeker: t says two"}
    assert told <= {turn for side in shown for turn in side}
    assert {len(side) for side in shown} == {4}
    for sides in checks:
        turns = [turn for side in sides for turn in side]
        assert sum("Please choose this conversation" in turn for turn in turns) == 1
    around = "".join(study.pages.values())
    assert "Conversation A" in around
    assert "Reply A" not in str(study.config)
    assert not re.search(r"\b(reply|replies)\b", around)
    config = study.config
    practice = config["phases"]["practice_1_usual"]["show_when"][0]
    assert practice["value"] == "Conversation A"
    assert config["annotation_schemes"][0]["description"].startswith("In which conversation")
    assert config["instance_display"]["fields"][0]["label"] == "How the conversation began"
    # nine pages of four minutes, and ten around them; of two replies they would be 19
    assert "about 46 minutes" in study.pages["consent"]
    with pytest.raises(StudyError, match="one reply cannot be compared with a whole conversation"):
        write_study(run, "reply")


def test_what_a_reply_holds_runs_nowhere_and_a_formula_in_an_id_comes_back(tmp_path):
    """A script cannot close the script that it is put in, and a mark cannot turn the page round."""
    script = "</script><script>alert(1)</script><!--"
    texts = {"=cmd": script, "model": "Fine \u202eyrros\x00"}
    run = small_run(tmp_path / "run", responders=("=cmd", "model"), texts=texts)
    study = small_study(run)
    items = (study / "items.jsonl").read_text()
    # <b> is in the history
    for mark in ("</script", "<script", "<!--", "<b>", "\u202e", "\\u0000"):
        assert mark not in items
    # nothing else was lost: two in each of 15 pages
    assert items.replace("\u2060", "").count("</script>") == 30
    assert "Fine [U+202E]yrros[U+0000]" in items
    assert ",'=cmd" in (study / "assignment.csv").read_text()
    answer_seat(study)
    verdicts = import_study(run, study).verdicts
    assert "=cmd" in {*verdicts["responder_a"], *verdicts["responder_b"]}


def test_writers_read_exactly_what_models_are_told(run):
    study = contents(write_study(run, "reply"))
    [told, *_] = json.loads(study.pages["instructions"])[0]["labels"]
    assert html.escape(REPLY_INSTRUCTIONS) in told
    assert set(study.pages) == {"consent", "declined", "instructions", "debrief"}
    assert [scheme["name"] for scheme in study.config["annotation_schemes"]] == ["reply", "stop"]
    logged = study.config["keystroke_logging"]
    assert (logged["enabled"], logged["fidelity"]) == (True, "summary")
    assert logged["disclose_to_annotators"] is True
    assert study.shown["seat"].nunique() == 15  # twelve writers and a fifth of them


@pytest.mark.parametrize("kind", ["rating", "reply"])
def test_every_page_says_that_one_can_stop_and_whom_to_call(run, written, kind):
    set_up(run, filled_in(support_line="116 123 <at night>"))
    study = contents(write_study(run, kind))
    [said] = study.config["annotation_schemes"][-1]["labels"]
    assert "You can stop at any time" in said
    for page in (said, study.pages["consent"]):
        assert "116 123 &lt;at night&gt;" in page
        assert "not filled in" not in page
    assert "[not filled in: support_line]" in written.pages["consent"]  # of a rehearsal


@pytest.mark.parametrize(
    ("arrival", "login", "provider", "id_param"),
    [
        ("prolific", "PROLIFIC_PID", "prolific", None),
        ("mturk", "workerId", "mturk", None),
        ("name", "person", "generic", "person"),
    ],
)
def test_a_platform_s_parameters_and_codes_are_used_if_asked(run, arrival, login, provider, id_param):  # fmt: skip
    codes = {"arrival": arrival, "completion_code": "C1", "screened_out_code": "C2"}
    study = contents(small_study(run, settings=codes))
    assert study.config["login"] == {"type": "url_direct", "url_argument": login}
    # at the top level it would be shown to who declined, too
    assert "completion_code" not in study.config
    platform = study.config["crowdsourcing"][provider]
    assert platform["completion"] == {"code": "C1", "screened_out_code": "C2"}
    assert platform.get("id_param") == id_param
    told = "a code that tells Mechanical Turk so" in study.pages["declined"]
    assert told == (arrival == "mturk")


def test_a_study_is_its_owner_s_alone_whatever_the_umask_and_its_key_fresh(run, monkeypatch, written):  # fmt: skip
    seen = set()
    replace = os.replace

    def watched(part, file):
        places = (part, part.parent) if part.is_file() else (part,)
        seen.update(stat.S_IMODE(place.stat().st_mode) for place in places)
        replace(part, file)

    monkeypatch.setattr(os, "replace", watched)
    before = os.umask(0)
    try:
        study = contents(small_study(run))
    finally:
        os.umask(before)
    assert seen == {0o600, 0o700}
    modes = {file.is_file(): stat.S_IMODE(file.stat().st_mode) for file in study.folder.rglob("*")}
    assert modes == {True: 0o600, False: 0o700}
    assert stat.S_IMODE(study.folder.stat().st_mode) == 0o700
    assert study.config["secret_key"] != written.config["secret_key"]


def test_a_full_disk_leaves_the_study_that_was_there_and_nothing_half_written(
    run, monkeypatch, capsys
):
    set_up(run, SMALL)
    place = run.folder / "study"

    def files():
        return {file: file.read_bytes() for file in place.rglob("*") if file.is_file()}

    with full_disk(monkeypatch, after=3):
        assert write_command(run) == 1
    assert "could not be written (No space left on device)" in capsys.readouterr().err
    assert list(place.iterdir()) == []
    assert write_command(run) == 0
    before = files()
    with full_disk(monkeypatch, after=3):
        assert write_command(run) == 1
    assert files() == before


STAND_IN = """\
import http.server, os, pathlib, signal, subprocess, sys, time
def end(*_):
    os.kill(os.getppid(), signal.SIGTERM)  # make passes on what a terminal has told everybody already
    time.sleep(0.5)
    os._exit(0)
signal.signal(signal.SIGTERM, end)
child = subprocess.Popen(["sh", "-c", "trap '' TERM; exec sleep 600"])
answers = pathlib.Path("answers", "kim")
answers.mkdir(parents=True)
(answers / "user_state.json").write_text('{"user_id": "kim", "instance_id_ordering": []}')
pathlib.Path("admin_api_key.txt").write_text("key")
pathlib.Path("pids").write_text(f"{os.getpid()} {child.pid}")
port = int(sys.argv[sys.argv.index("-p") + 1])
http.server.HTTPServer(("127.0.0.1", port), http.server.SimpleHTTPRequestHandler).serve_forever()
"""


@pytest.fixture
def potato(tmp_path, monkeypatch):
    """Write a program to be started in Potato's place."""

    def write(text):
        program = tmp_path / "potato"
        program.write_text(text)
        program.chmod(0o755)
        monkeypatch.setenv("HEART_POTATO", str(program))

    return write


@pytest.mark.parametrize("word", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_study_that_is_stopped_leaves_nobody_listening_and_its_answers_are_private(
    run, tmp_path, potato, word
):
    potato(f"#!{sys.executable}\n{STAND_IN}")
    set_up(run, SMALL)
    said = tmp_path / "said"
    arguments = (str(run.folder), "rating", "--port", str(free_port()))
    study = begin_command("heart_collect.people.study", *arguments, out=said, umask=0)
    folder = run.folder / "study" / "rating"
    try:
        while "\nOpen http" not in f"\n{said.read_text() if said.exists() else ''}":
            assert study.is_alive()
            time.sleep(0.01)
        modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in folder.rglob("*")}
        assert {name: mode for name, mode in modes.items() if mode & 0o077} == {}
        os.kill(study.pid, word)
        study.join(60)
        assert study.exitcode == 0
    finally:
        alive = [pid for pid in map(int, (folder / "pids").read_text().split()) if is_alive(pid)]
        for pid in alive:
            os.kill(pid, signal.SIGKILL)
        study.kill()
    assert alive == []


def is_alive(pid: int) -> bool:
    """Tell whether a process still runs a minute later; one that nobody buried does not."""
    for _ in range(600):
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
        except OSError:
            return False
        if state == "Z":
            return False
        time.sleep(0.1)
    return True


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def test_the_seed_decides_the_seats(run, written):
    again = assignment(small_study(run, name="again"))
    other = assignment(small_study(run, name="other", settings={"seed": 2}))
    pd.testing.assert_frame_equal(again, written.shown)
    assert not other.equals(written.shown)


def test_pairs_may_be_fewer_than_all(tmp_path):
    run = small_run(tmp_path / "run", n_histories=6, responders=("r1", "r2", "r3", "r4"))
    rated = assignment(small_study(run, pairs_per_history=2, load=12)).query("task == 'rate'")
    assert rated.groupby("history_id")["pair_id"].nunique().tolist() == [2] * 6


def test_spare_seats_come_last_and_hold_whole_seats(run):
    shown = assignment(small_study(run, spare=0.5))
    seats = shown.groupby("seat")
    # half of three, rounded up
    assert seats["spare"].first().tolist() == [False] * 3 + [True] * 2
    assert seats.size().tolist() == [6] * 5
    assert not shown.duplicated(["seat", "pair_id"]).loc[shown["task"] == "rate"].any()


def test_a_top_up_asks_for_what_is_missing(run):
    set_up(run, SMALL)
    first = write_study(run, "rating")
    answer_seat(first)
    import_study(run, first).write(run)
    more = write_study(run, "rating", name="rating-2", top_up=True)
    # of 3, one is there
    rated = assignment(more).query("task == 'rate'")
    assert rated["pair_id"].value_counts().tolist() == [2] * 5
    set_up(run, SMALL.replace("3", "1"))
    with pytest.raises(StudyError, match="Each of the 5 pairs has its 1 verdicts"):
        write_study(run, "rating", name="rating-3", top_up=True)


# What is refused


def test_answers_are_never_overwritten_and_a_folder_of_the_server_s_own_is_no_person(run, capsys):
    set_up(run, SMALL)
    assert write_command(run) == 0
    answers = run.folder / "study" / "rating" / "answers"
    (answers / "pocket").mkdir(parents=True)
    (answers / "pocket" / "device_visits.json").write_text("{}")
    assert write_command(run) == 0  # nobody has begun: written anew
    assert "3 people, 18 pages between them, 0 have begun" in capsys.readouterr().out
    file = answer_seat(run.folder / "study" / "rating", answers={})
    assert write_command(run) == 1
    said = "already holds answers of 1 people, and is never overwritten"
    assert said in capsys.readouterr().err
    assert file.is_file()
    assert write_command(run, "--resume") == 0
    assert "1 have begun" in capsys.readouterr().out
    assert write_command(run, "--name", "other", "--resume") == 1
    assert "There is no study in" in capsys.readouterr().err


def test_a_folder_of_somebody_else_is_left_alone(run):
    (run.folder / "study" / "rating").mkdir(parents=True)
    (run.folder / "study" / "rating" / "notes.txt").write_text("mine")
    with pytest.raises(StudyError, match="was not written here"):
        small_study(run)


def test_the_pictures_in_the_book_are_of_the_pages_as_they_are():
    kept = (find_root() / "book" / "images" / "study" / "pages.sha256").read_text().strip()
    assert kept == checksum_of_pages(find_root()), (
        "the pages changed; take their pictures again: python -m tools.shoot_study"
    )


CODES = ("completion_code", "stopped_code", "screened_out_code")


def on_platform(arrival="prolific", **more):
    return filled_in(arrival=arrival, **(dict(zip(CODES, ("C1", "C3", "C2"), strict=True)) | more))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("suport_line: 116 123\n", "has unknown suport_line. The keys are rehearsal, language"),
        ("rating: {raters: 3}\n", "rating: has unknown raters"),
        ("a: [1\n", "is not YAML"),
        ("just words\n", "study.yaml: the whole is 'just words', expected a mapping"),
        (filled_in(support_line=""), r"needs support_line\. .*distress"),
        ("rehearsal: false\n", "support_line, researcher, review_board, .* statement: population"),
        (on_platform(completion_code=""), "it needs completion_code: "),
        (on_platform(screened_out_code=" "), "it needs screened_out_code: "),
        (on_platform(screened_out_code="c1"), "the same, so who declines or stops would be paid"),
        (filled_in(arrival="mturk"), " and ".join(CODES)),
        *(
            (f"minutes: {minutes}\n", "minutes is .*, expected (a number|a finite number|more tha)")
            for minutes in ("-5", "0", ".inf", ".nan", "true", "[30]")
        ),
        ("rating: {spare: 2}", "spare is 2, expected 1 or less"),
        (SMALL + "minutes: 15", "minutes is 15, and the study takes 16 minutes a person"),
        (SMALL + "language: Spanish", "language is Spanish, and there is no translation of con"),
        ("rating: {slices: [adversarial]}", "no history of adversarial that ends with the seeker"),
    ],
)
def test_a_study_whose_settings_do_not_hold_is_not_written(run, capsys, text, message):
    set_up(run, text)
    with pytest.raises(StudyError, match=message):
        write_study(run, "rating")
    assert write_command(run) == 1
    assert not (run.folder / "study").exists()


def test_all_faults_of_the_settings_are_told_at_once(run):
    set_up(
        run,
        "rehearsal: false\narrival: sona\nminutes: thirty\nsupport_line: 0116123\nfoo: 1\n"
        "rating: {load: 0, spare: 2, pairs_per_history: few, bar: 2}\ncost: {pay_per_hour: -1}\n",
    )
    with pytest.raises(StudyError) as error:
        load_settings(run)
    said = str(error.value)
    for words in (
        "has unknown foo. The keys are rehearsal, ",
        "rating: has unknown bar.",
        "needs researcher, review_board,",
        "minutes is 'thirty', expected a number.",
        "support_line is 40019, expected text (in quotes).",
        "arrival is 'sona', expected one of 'name', 'link', 'prolific' or 'mturk'.",
        "rating: load is 0, expected 1 or more.",
        "rating: spare is 2, expected 1 or less.",
        "rating: pairs_per_history is 'few', expected one of 'all' or a whole number.",
        "cost: pay_per_hour is -1, expected 0 or more.",
    ):
        assert words in said, words


@pytest.mark.parametrize("arrival", ["prolific", "mturk"])
def test_a_study_on_a_platform_has_two_codes_that_differ_however_it_was_written(run, arrival):
    set_up(run, on_platform(arrival) + SMALL)
    folder = write_study(run, "rating")
    platform = contents(folder).config["crowdsourcing"][arrival]
    assert platform["completion"] == {"code": "C1", "screened_out_code": "C2"}
    file = folder / "study.json"
    about = json.loads(file.read_text())
    about["settings"]["completion_code"] = ""  # as an earlier version would have written it
    file.write_text(json.dumps(about))
    with pytest.raises(StudyError, match="needs completion_code: "):
        start_study(folder)


COST = "cost: {fee_share: 0.25, seconds_a_page: {reply: 240}}\n"


@pytest.mark.parametrize(
    ("changes", "told", "consent"),
    [
        # six pages of a minute and ten minutes around them, at 12 GBP an hour; 3 * 16 minutes with
        # a quarter as fee
        (COST, ["16 minutes a person, 0.8 hours: 12.00 GBP, at 12 an hour and a fee of 25 %"],
         "about 16 minutes. You get 3.20 GBP for it, which is 12.00 GBP an hour."),
        # more than reckoned: paid for what people are told
        ("minutes: 20\n",
         ["20 minutes a person (16 by the reckoning of `cost:`), 1.0 hours: 15.96 GBP"],
         "about 20 minutes. You get 4.00 GBP"),
        ("cost: {pay_per_hour: 0}\n", ["0.8 hours: 0.00 GBP"], "about 16 minutes. "),
        (COST + SMALL.replace('"spare": 0', '"spare": 0.5'),
         ["3 people and 2 spare seats, 30 pages between them",
          "0.8 hours: 12.00 GBP, and 20.00 if all 2 spare seats are taken too"],
         "about 16 minutes. You get 3.20 GBP"),
    ],
)  # fmt: skip
def test_people_are_told_the_time_that_is_reckoned_and_what_it_is_an_hour(
    run, capsys, changes, told, consent
):
    set_up(run, changes if "rating:" in changes else SMALL + changes)
    assert write_command(run) == 0
    out = capsys.readouterr().out
    for words in (*told, consent):
        assert words in out
    page = contents(run.folder / "study" / "rating").pages["consent"]
    assert consent.strip() in page
    assert ("You get" in page) == ("You get" in consent)


def test_writers_are_told_their_time_too(run, capsys):
    set_up(run, COST + "reply: {writers_per_history: 2, n_writers: 2, spare: 0}\n")
    assert main([str(run.folder), "reply", "--write-only"]) == 0
    # each of two writes to each of five histories: 5 * 4 + 10 minutes; 2 * 30 / 60 * 12 * 1.25
    assert "30 minutes a person, 1.0 hours: 15.00 GBP" in capsys.readouterr().out


def test_translated_pages_in_the_run_take_the_place_of_the_project_s(run):
    theirs = run.folder / "study-texts"
    theirs.mkdir()
    for name in ("consent", "instructions-rating", "debrief-rating", "stop"):
        words = "<p>Le pedimos que tome parte en un estudio. Dura {minutes} minutos.</p>"
        (theirs / f"{name}.html").write_text(words)
    for name in ("checks.yaml", "practice.yaml"):
        words = yaml.safe_load((find_root() / "data" / "study" / name).read_text())
        (theirs / name).write_text(yaml.safe_dump(_in_spanish(words), allow_unicode=True))
    study = contents(small_study(run, settings={"language": "Spanish"}))
    assert "Dura 16 minutos" in study.pages["consent"]
    assert "esta respuesta" in str(study.items)
    shutil.rmtree(theirs)
    small_study(run, settings={"language": "en-GB"})


def _in_spanish(words):
    """Put Spanish in the place of every sentence of a file of texts."""
    if isinstance(words, dict):
        return {name: _in_spanish(value) for name, value in words.items()}
    if isinstance(words, list):
        return [_in_spanish(value) for value in words]
    return (
        "Por favor elija esta respuesta, {side}, {strength}."
        if isinstance(words, str) and " " in words
        else words
    )


def test_a_run_that_is_not_there_yet_says_which_command_makes_it(capsys, monkeypatch, tmp_path):
    monkeypatch.setattr("heart_utils.runs.find_home", lambda: tmp_path)
    assert main(["sample", "rating"]) == 1
    assert "`make collect RUN=sample` writes them" in capsys.readouterr().err


def test_a_rehearsal_starts_on_this_machine_only(run, written):
    with pytest.raises(StudyError, match="needs support_line"):
        start_study(written.folder, host="0.0.0.0", port=1)
    set_up(run, filled_in(rehearsal=True) + SMALL)
    with pytest.raises(StudyError, match="is a rehearsal, so it starts on this machine only"):
        start_study(write_study(run, "rating"), host="0.0.0.0", port=1)


def test_potato_that_is_not_there_a_port_taken_and_a_server_that_stops_are_named(
    run, monkeypatch, potato
):
    study, port = small_study(run), free_port()
    monkeypatch.setenv("HEART_POTATO", str(run.folder / "nowhere"))
    with pytest.raises(StudyError, match=r"Potato .*nowhere\)\. `make study`"):
        start_study(study)
    potato("#!/bin/sh\necho the cellar is flooded\nexit 3\n")
    with pytest.raises(StudyError, match=r"stopped at once \(exit 3\)(.|\n)*the cellar is flooded"):
        start_study(study, port=port)
    with socket.socket() as other:
        other.bind(("127.0.0.1", port))
        other.listen()
        told = rf"Port {port} on 127.0.0.1 cannot be used .* PORT={port + 1}"
        with pytest.raises(StudyError, match=told):
            start_study(study, port=port)


def test_a_study_that_cannot_be_balanced_says_what_to_try(tmp_path):
    """Four responders answered the first history, two the other twenty: 18 of 78 ratings are of one
    history."""
    run = small_run(tmp_path / "run", n_histories=21, responders=("r1", "r2", "r3", "r4"))
    replies = run.read("replies")
    few = replies["responder"].isin(["r1", "r2"])
    run.write("replies", replies[(replies["history_id"] == "h00") | few])
    with pytest.raises(StudyError, match=r"(?s)not balanced.*the same history.*smaller"):
        small_study(run, load=12, n_checks=0)
    # 78 / 9, and no seat meets it more than 18 / 9 = 2 times
    assert seats_and_pages(small_study(run, load=9, n_checks=0))[0] == 9
