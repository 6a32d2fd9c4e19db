"""Writing a study: what is in the folder, and what keeps it from being written or started."""

import html
import json
import os
import re
import signal
import socket
import stat
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml
from builders import full_disk
from study_builders import (
    STATEMENT,
    answer_seat,
    assignment,
    conversation_run,
    seat_answers,
    small_run,
)
from worker import begin_command

from heart_collect.calls.ledger import open_ledger
from heart_collect.judging.prompts import REPLY_INSTRUCTIONS
from heart_collect.judging.recipe import read_recipe
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


@pytest.fixture
def run(tmp_path):
    return small_run(tmp_path / "run")


def filled_in() -> str:
    return yaml.safe_dump(
        {"rehearsal": False, "statement": STATEMENT, **dict.fromkeys(ASKED_OF_PUBLIC, "told")}
    )


def small(run, **rating):
    settings = load_settings(run)
    settings["rating"] |= {"raters_per_pair": 3, "load": 5, "n_checks": 1, "spare": 0} | rating
    return settings


def pages(study: Path) -> dict[str, str]:
    return {
        file.stem: file.read_text(encoding="utf-8") for file in (study / "pages").glob("*.json")
    }


def seats_and_pages(study: Path) -> tuple[int, int]:
    shown = assignment(study)
    return shown["seat"].nunique(), len(shown)


def test_a_rating_study_holds_every_page_and_seat(run):
    study = write_study(run, "rating", settings=small(run))
    assert seats_and_pages(study) == (3, 18)  # 5 pairs * 3 raters / 5 each, and a check each
    config = yaml.safe_load((study / "config.yaml").read_text())
    order = config["phases"]["order"]
    assert order[:4] == ["consent", "declined", "instructions", "practice_1"]
    assert order[-2:] == ["annotation", "debrief"]
    assert set(pages(study)) == set(order) - {"annotation"}
    types = [config["phases"][page]["type"] for page in order]
    assert len(
        [one for one, before in zip(types, [None, *types], strict=False) if one != before]
    ) == len(set(types)), "Potato shows all pages of one type where the first of them stands"
    items = {
        json.loads(line)["id"]: json.loads(line)
        for line in (study / "items.jsonl").read_text().splitlines()
    }
    seats = {group["name"]: group["instances"] for group in config["batch_assignment"]["groups"]}
    assert [item for seat in seats.values() for item in seat] == list(items)
    assert {group["max_annotators"] for group in config["batch_assignment"]["groups"]} == {1}


def test_the_sample_makes_a_study_with_the_settings_that_come_with_the_project(tmp_path):
    run, recipe = Run("sample", tmp_path, find_root()), read_recipe("sample")
    histories, ledger = (
        recipe.choose_histories(),
        open_ledger("sqlite://", seed_file=find_root() / recipe.recorded),
    )
    run.write("histories", histories)
    run.write("replies", recipe.answer(histories, ledger=ledger, mode="replay", progress=False))
    study = write_study(run, "rating")
    # 36 histories * 10 pairs * 15 raters / 30 each, and a fifth more
    assert seats_and_pages(study) == (216, 216 * 33)


def test_raters_read_each_reply_on_the_side_that_was_assigned(run):
    study = write_study(run, "rating", settings=small(run))
    items = {
        json.loads(line)["id"]: json.loads(line)
        for line in (study / "items.jsonl").read_text().splitlines()
    }
    for row in assignment(study).query("task == 'rate'").to_dict("records"):
        # model-... is the smaller id, so it is a
        shown = [f"model {row['history_id']}", f"person {row['history_id']}"]
        assert items[row["item_id"]]["replies"] == (shown if row["order"] == "ab" else shown[::-1])


def test_nothing_on_a_page_tells_who_wrote_a_reply(run):
    """The texts of this run name their responders; with those taken out, no file that Potato serves
    does."""
    blind = small_run(
        run.folder.parent / "blind", texts={"person": "I am here.", "model": "I hear you."}
    )
    study = write_study(blind, "rating", settings=small(blind))
    served = "".join(
        file.read_text() for file in [study / "items.jsonl", *(study / "pages").glob("*.json")]
    )
    items = (study / "items.jsonl").read_text()
    assert "responder" not in served
    assert "person-" not in items
    assert "model" not in items


def test_raters_are_shown_no_rubric(run):
    said = pages(write_study(run, "rating", settings=small(run)))
    for word in ("empath", "attun", "resonan", "rubric", "criteri"):
        assert not any(word in text.lower() for name, text in said.items() if name != "debrief"), (
            word
        )


def test_checks_say_what_they_want_and_the_assignment_knows_it(run):
    study = write_study(run, "rating", settings=small(run, n_checks=2))
    items = {
        json.loads(line)["id"]: json.loads(line)
        for line in (study / "items.jsonl").read_text().splitlines()
    }
    checks = assignment(study).query("task == 'check'")
    assert len(checks) == 6
    for row in checks.to_dict("records"):
        asks = items[row["item_id"]]["replies"]["AB".index(row["check_side"])]
        assert (
            f"this reply, {row['check_side']}, with strength {int(row['check_strength'])}" in asks
        )


def test_raters_of_conversations_read_them_whole_and_are_asked_about_conversations(tmp_path):
    run = conversation_run(tmp_path / "run")
    study = write_study(run, "rating", settings=small(run, dimension="Who listens?"))
    items = [json.loads(line) for line in (study / "items.jsonl").read_text().splitlines()]
    told = {"Supporter: model says one", "Seeker: s says two", "Seeker: t says two"}
    shown = [side for item in items for side in item["replies"]]
    assert told <= {turn for side in shown for turn in side}
    assert {
        len(side) for item in items if ".check-" not in item["id"] for side in item["replies"]
    } == {4}
    checks = [item for item in items if ".check-" in item["id"]]
    assert all(sum("Please choose this conversation" in turn for side in one["replies"] for turn in side) == 1
               for one in checks)  # fmt: skip
    served = (study / "config.yaml").read_text() + "".join(pages(study).values())
    assert "Conversation A" in served
    assert "Reply A" not in served
    assert not re.search(r"\b(reply|replies)\b", "".join(pages(study).values()))
    config = yaml.safe_load((study / "config.yaml").read_text())
    assert config["phases"]["practice_1_usual"]["show_when"][0]["value"] == "Conversation A"
    assert config["annotation_schemes"][0]["description"].startswith("In which conversation")
    assert config["instance_display"]["fields"][0]["label"] == "How the conversation began"


def test_a_page_of_two_conversations_is_reckoned_longer_than_one_of_two_replies(tmp_path):
    told = []
    for run in (small_run(tmp_path / "one", 8), conversation_run(tmp_path / "other")):
        settings = small(run, load=8, n_checks=0)
        consent = pages(write_study(run, "rating", settings=settings))["consent"]
        told.append(re.search(r"about (\d+) minutes", consent)[1])
    assert told == ["18", "42"]  # 8 pages of one and of four minutes, and ten around them


def test_one_reply_is_not_asked_for_where_conversations_are_compared(tmp_path):
    run = conversation_run(tmp_path / "run")
    with pytest.raises(StudyError, match="one reply cannot be compared with a whole conversation"):
        write_study(run, "reply")


def test_a_reply_with_a_script_cannot_close_the_script_it_is_put_in(tmp_path):
    run = small_run(tmp_path / "run", texts={"model": "</script><script>alert(1)</script><!--"})
    study = write_study(run, "rating", settings=small(run))
    text = (study / "items.jsonl").read_text()
    assert "</script" not in text
    assert "<script" not in text
    assert "<!--" not in text
    assert "<b>" not in text  # of the history
    # nothing else was lost: two in each of 15 pages
    assert text.replace("\u2060", "").count("</script>") == 30


def test_a_text_that_would_turn_the_page_round_is_shown_and_a_formula_in_an_id_comes_back(tmp_path):
    run = small_run(
        tmp_path / "run", responders=("=cmd", "model"), texts={"model": "Fine \u202eyrros\x00"}
    )
    study = write_study(run, "rating", settings=small(run))
    items = (study / "items.jsonl").read_text()
    assert "Fine [U+202E]yrros[U+0000]" in items
    assert "\u202e" not in items
    assert "\\u0000" not in items
    assert ",'=cmd" in (study / "assignment.csv").read_text()
    answer_seat(study, "seat-001", "ann", seat_answers(study, "seat-001"))
    verdicts = import_study(run, study).verdicts
    assert "=cmd" in {*verdicts["responder_a"], *verdicts["responder_b"]}


def test_writers_read_exactly_what_models_are_told(run):
    study = write_study(run, "reply")
    assert (
        html.escape(REPLY_INSTRUCTIONS) in json.loads(pages(study)["instructions"])[0]["labels"][0]
    )
    assert set(pages(study)) == {"consent", "declined", "instructions", "debrief"}
    config = yaml.safe_load((study / "config.yaml").read_text())
    assert [scheme["name"] for scheme in config["annotation_schemes"]] == ["reply", "stop"]
    assert config["keystroke_logging"] | {"detection": 0} == {
        "enabled": True,
        "fidelity": "summary",
        "disclose_to_annotators": True,
        "detection": 0,
    }


def test_a_rehearsal_shows_what_is_not_filled_in_and_a_study_what_is(run):
    assert (
        "[not filled in: support_line]"
        in pages(write_study(run, "rating", settings=small(run)))["consent"]
    )

    (run.folder / "study.yaml").write_text(
        filled_in().replace("support_line: told", "support_line: '116 123 <at night>'")
    )
    consent = pages(write_study(run, "rating", settings=load_settings(run)))["consent"]
    assert "116 123 &lt;at night&gt;" in consent
    assert "not filled in" not in consent


@pytest.mark.parametrize("kind", ["rating", "reply"])
def test_every_page_of_the_task_says_that_one_can_stop_and_whom_to_call(run, kind):
    (run.folder / "study.yaml").write_text(
        filled_in().replace("support_line: told", "support_line: '116 123 <at night>'")
    )
    config = yaml.safe_load((write_study(run, kind) / "config.yaml").read_text())
    [said] = config["annotation_schemes"][-1]["labels"]
    assert "You can stop at any time" in said
    assert "116 123 &lt;at night&gt;" in said


def test_who_says_no_leaves_at_once(run):
    config = yaml.safe_load(
        (write_study(run, "rating", settings=small(run)) / "config.yaml").read_text()
    )
    declined = config["phases"]["declined"]
    for rule in (declined, declined["exit_when"]):
        assert [(one["schema"], one["value"]) for one in rule["show_when"]] == [
            ("consent_age", "no"),
            ("consent_agree", "no"),
        ]
        assert rule["logic"] == "any"
    assert config["phases"]["order"][:2] == ["consent", "declined"]


def test_a_platform_s_parameters_and_codes_are_used_if_asked(run):
    settings = small(run) | {"arrival": "prolific", "completion_code": "C1"}
    config = yaml.safe_load(
        (write_study(run, "rating", settings=settings) / "config.yaml").read_text()
    )
    assert config["login"] == {"type": "url_direct", "url_argument": "PROLIFIC_PID"}
    # At the top level it would be shown to who declined, too.
    assert "completion_code" not in config
    assert config["crowdsourcing"]["prolific"]["completion"] == {
        "code": "C1",
        "screened_out_code": "",
    }
    turk = small(run) | {"arrival": "mturk", "completion_code": "C1", "screened_out_code": "C2"}
    folder = write_study(run, "rating", settings=turk)
    config = yaml.safe_load((folder / "config.yaml").read_text())
    assert config["login"] == {"type": "url_direct", "url_argument": "workerId"}
    assert config["crowdsourcing"] == {
        "provider": "mturk", "mturk": {"completion": {"code": "C1", "screened_out_code": "C2"}}
    }  # fmt: skip
    assert "a code that tells Mechanical Turk so" in pages(folder)["declined"]
    named = small(run) | {"arrival": "name", "completion_code": "C1"}
    config = yaml.safe_load(
        (write_study(run, "rating", settings=named) / "config.yaml").read_text()
    )
    assert "completion_code" not in config
    assert config["crowdsourcing"]["generic"] == {
        "id_param": "person", "completion": {"code": "C1", "screened_out_code": ""}
    }  # fmt: skip


def test_the_key_that_signs_sessions_is_fresh_and_private(run):
    def key(name: str) -> str:
        file = write_study(run, "reply", name=name) / "config.yaml"
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        return yaml.safe_load(file.read_text())["secret_key"]

    assert key("one") != key("two")


def test_a_study_is_its_owner_s_alone_whatever_the_umask(run, monkeypatch):
    seen = set()
    replace = os.replace

    def watched(part, file):
        seen.update(
            {
                stat.S_IMODE(path.stat().st_mode)
                for path in (part, *([part.parent] if part.is_file() else []))
            }
        )
        replace(part, file)

    monkeypatch.setattr(os, "replace", watched)
    before = os.umask(0)
    try:
        folder = write_study(run, "rating", settings=small(run))
    finally:
        os.umask(before)
    assert seen == {0o600, 0o700}
    assert {stat.S_IMODE(path.stat().st_mode) for path in folder.rglob("*") if path.is_file()} == {
        0o600
    }
    assert {stat.S_IMODE(path.stat().st_mode) for path in (folder, folder / "pages")} == {0o700}


def test_a_full_disk_leaves_the_study_that_was_there_and_nothing_half_written(
    run, monkeypatch, capsys
):
    (run.folder / "study.yaml").write_text(
        "rating: {raters_per_pair: 3, load: 5, n_checks: 1, spare: 0}\n"
    )
    command = [str(run.folder), "rating", "--write-only"]
    with full_disk(monkeypatch, after=3):
        assert main(command) == 1
    assert "could not be written (No space left on device)" in capsys.readouterr().err
    assert list((run.folder / "study").iterdir()) == []
    assert main(command) == 0
    before = {
        file: file.read_bytes()
        for file in (run.folder / "study" / "rating").rglob("*")
        if file.is_file()
    }
    with full_disk(monkeypatch, after=3):
        assert main(command) == 1
    assert {
        file: file.read_bytes() for file in (run.folder / "study").rglob("*") if file.is_file()
    } == before


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


@pytest.mark.parametrize("word", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_study_that_is_stopped_leaves_nobody_listening_and_its_answers_are_private(
    run, tmp_path, monkeypatch, word
):
    program = tmp_path / "potato"
    program.write_text(f"#!{sys.executable}\n{STAND_IN}")
    program.chmod(0o755)
    (run.folder / "study.yaml").write_text(
        "rating: {raters_per_pair: 3, load: 5, n_checks: 1, spare: 0}\n"
    )
    monkeypatch.setenv("HEART_POTATO", str(program))
    said = tmp_path / "said"
    arguments = (str(run.folder), "rating", "--port", str(free_port()))
    study = begin_command("heart_collect.people.study", *arguments, out=said, umask=0)
    try:
        while "\nOpen http" not in f"\n{said.read_text() if said.exists() else ''}":
            assert study.is_alive()
            time.sleep(0.01)
        folder = run.folder / "study" / "rating"
        modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in folder.rglob("*")}
        assert {name: mode for name, mode in modes.items() if mode & 0o077} == {}
        os.kill(study.pid, word)
        study.join(60)
        assert study.exitcode == 0
    finally:
        pids = [int(pid) for pid in (run.folder / "study" / "rating" / "pids").read_text().split()]
        alive = [pid for pid in pids if is_alive(pid)]
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


def test_the_seed_decides_the_seats(run):
    def seats(seed: int, name: str) -> pd.DataFrame:
        return assignment(
            write_study(run, "rating", settings=small(run) | {"seed": seed}, name=name)
        )

    pd.testing.assert_frame_equal(seats(1, "one"), seats(1, "again"))
    assert not seats(1, "first").equals(seats(2, "second"))


def test_pairs_may_be_fewer_than_all(tmp_path):
    run = small_run(tmp_path / "run", n_histories=6, responders=("r1", "r2", "r3", "r4"))
    rated = assignment(
        write_study(run, "rating", settings=small(run, pairs_per_history=2, load=12))
    ).query("task == 'rate'")
    assert rated.groupby("history_id")["pair_id"].nunique().tolist() == [2] * 6


def test_spare_seats_come_last_and_hold_whole_seats(run):
    seats = assignment(write_study(run, "rating", settings=small(run, spare=0.5)))
    # half of three, rounded up
    assert seats.groupby("seat")["spare"].first().tolist() == [False] * 3 + [True] * 2
    assert seats.groupby("seat").size().tolist() == [6] * 5
    assert not seats.duplicated(["seat", "pair_id"]).loc[seats["task"] == "rate"].any()
    # twelve writers and a fifth of them
    assert assignment(write_study(run, "reply", name="w"))["seat"].nunique() == 15
    with pytest.raises(StudyError, match="spare is 2, expected 1 or less"):
        write_study(run, "rating", settings=small(run, spare=2))


def test_long_conversations_are_shown_whole(run):
    config = yaml.safe_load(
        (write_study(run, "rating", settings=small(run)) / "config.yaml").read_text()
    )
    assert config["instance_display"]["resizable"] is False


def test_a_top_up_asks_for_what_is_missing(run):
    first = write_study(run, "rating", settings=small(run))
    answer_seat(first, "seat-001", "ann", seat_answers(first, "seat-001"))
    import_study(run, first).write(run)
    more = write_study(run, "rating", settings=small(run), name="rating-2", top_up=True)
    # of 3, one is there
    assert assignment(more).query("task == 'rate'")["pair_id"].value_counts().tolist() == [2] * 5
    with pytest.raises(StudyError, match="Each of the 5 pairs has its 1 verdicts"):
        write_study(
            run, "rating", settings=small(run, raters_per_pair=1), name="rating-3", top_up=True
        )


# What is refused


def test_answers_are_never_overwritten(run):
    study = write_study(run, "rating", settings=small(run))
    write_study(run, "rating", settings=small(run))  # nobody has begun: written anew
    file = answer_seat(study, "seat-001", "ann", {})
    with pytest.raises(
        StudyError, match="already holds answers of 1 people, and is never overwritten"
    ):
        write_study(run, "rating", settings=small(run))
    assert file.is_file()


def test_a_folder_of_the_server_s_own_is_no_person(run, capsys):
    study = write_study(run, "rating", settings=small(run))
    (study / "answers" / "pocket").mkdir(parents=True)
    (study / "answers" / "pocket" / "device_visits.json").write_text("{}")
    assert main([str(run.folder), "rating", "--write-only", "--resume"]) == 0
    assert "0 have begun" in capsys.readouterr().out


def test_a_folder_of_somebody_else_is_left_alone(run):
    (run.folder / "study" / "rating").mkdir(parents=True)
    (run.folder / "study" / "rating" / "notes.txt").write_text("mine")
    with pytest.raises(StudyError, match="was not written here"):
        write_study(run, "rating", settings=small(run))


def test_a_study_with_real_people_needs_a_support_line_and_all_else_they_must_be_told(run):
    (run.folder / "study.yaml").write_text(
        filled_in().replace("support_line: told", "support_line: ''")
    )
    with pytest.raises(
        StudyError,
        match=r"needs support_line\. .*distress",
    ):
        load_settings(run)
    (run.folder / "study.yaml").write_text("rehearsal: false\n")
    with pytest.raises(
        StudyError, match="support_line, researcher, review_board, .* statement: population"
    ):
        load_settings(run)


def test_the_pictures_in_the_book_are_of_the_pages_as_they_are():
    kept = (find_root() / "book" / "images" / "study" / "pages.sha256").read_text().strip()
    assert kept == checksum_of_pages(find_root()), (
        "the pages changed; take their pictures again: python -m tools.shoot_study"
    )


CODES = "arrival: prolific\ncompletion_code: C1\nstopped_code: C3\nscreened_out_code: C2\n"


@pytest.mark.parametrize("arrival", ["prolific", "mturk"])
def test_a_study_on_a_platform_needs_two_codes_that_differ_however_it_is_written(
    run, capsys, arrival
):
    file, platform = run.folder / "study.yaml", CODES.replace("prolific", arrival)
    for codes, said in (
        (platform.replace("C1", "''"), r"it needs completion_code: "),
        (platform.replace("C2", "' '"), r"it needs screened_out_code: "),
        (platform.replace("C2", "c1"), r"are the same, so who declines or stops would be paid"),
    ):
        file.write_text(filled_in() + codes)
        with pytest.raises(StudyError, match=said):
            load_settings(run)
        assert main([str(run.folder), "rating", "--write-only"]) == 1
        assert not (run.folder / "study").exists()
    settings = (
        small(small_run(run.folder.parent / "other"))
        | yaml.safe_load(filled_in())
        | {"arrival": arrival}
    )
    with pytest.raises(
        StudyError, match="needs completion_code and stopped_code and screened_out_code"
    ):
        write_study(run, "rating", settings=settings)
    capsys.readouterr()
    file.write_text(
        filled_in() + platform + "rating: {raters_per_pair: 3, load: 5, n_checks: 1, spare: 0}\n"
    )
    folder = write_study(run, "rating")
    completion = yaml.safe_load((folder / "config.yaml").read_text())["crowdsourcing"][arrival][
        "completion"
    ]
    assert completion == {"code": "C1", "screened_out_code": "C2"}
    about = json.loads((folder / "study.json").read_text())
    about["settings"]["completion_code"] = ""  # as an earlier version would have written it
    (folder / "study.json").write_text(json.dumps(about))
    with pytest.raises(StudyError, match="needs completion_code: "):
        start_study(folder)


def test_all_faults_of_the_settings_are_told_at_once(run):
    (run.folder / "study.yaml").write_text(
        "rehearsal: false\narrival: sona\nminutes: thirty\nsupport_line: 0116123\nfoo: 1\n"
        "rating: {load: 0, spare: 2, pairs_per_history: few, bar: 2}\ncost: {pay_per_hour: -1}\n"
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


@pytest.mark.parametrize("minutes", ["-5", "0", ".inf", ".nan", "true", "[30]"])
def test_minutes_are_a_positive_number(run, minutes):
    (run.folder / "study.yaml").write_text(f"minutes: {minutes}\n")
    with pytest.raises(
        StudyError, match="minutes is .*, expected (a number|a finite number|more than 0)"
    ):
        load_settings(run)


def test_people_are_told_the_time_that_is_reckoned_and_what_it_is_an_hour(run, capsys):
    """Six pages of a minute and ten minutes around them: 16 minutes at 12 GBP an hour are 3.20."""
    rules = "rating: {raters_per_pair: 3, load: 5, n_checks: 1, spare: 0}\n"
    (run.folder / "study.yaml").write_text(rules)
    assert main([str(run.folder), "rating", "--write-only"]) == 0
    promise = "about 16 minutes. You get 3.20 GBP for it, which is 12.00 GBP an hour."
    assert promise in capsys.readouterr().out
    assert promise in pages(run.folder / "study" / "rating")["consent"]
    # more than reckoned: paid for what people are told
    (run.folder / "study.yaml").write_text(rules + "minutes: 20\n")
    assert main([str(run.folder), "rating", "--write-only"]) == 0
    assert (
        "20 minutes a person (16 by the reckoning of `cost:`), 1.0 hours: 15.96 GBP"
        in capsys.readouterr().out
    )
    assert "about 20 minutes. You get 4.00 GBP" in pages(run.folder / "study" / "rating")["consent"]
    (run.folder / "study.yaml").write_text(rules + "cost: {pay_per_hour: 0}\n")
    write_study(run, "rating")
    assert "You get" not in pages(run.folder / "study" / "rating")["consent"]


def test_less_time_than_is_reckoned_is_refused_unless_a_reason_is_given_and_kept(run):
    with pytest.raises(StudyError, match="minutes is 15, and the study takes 16 minutes a person"):
        write_study(run, "rating", settings=small(run) | {"minutes": 15})
    assert not (run.folder / "study" / "rating").exists()
    overruled = {"overruled": {"minutes": "the pilot took 12"}}
    write_study(run, "rating", settings=small(run) | {"minutes": 15} | overruled)
    assert run.manifest["studies"]["rating"] == {
        "overruled": {"minutes": "the pilot took 12"},
        "minutes": 15,
        "reckoned": 16,
    }


def test_pages_that_nobody_translated_are_refused(run):
    with pytest.raises(
        StudyError, match=r"language is Spanish, and there is no translation of consent.html, "
    ):
        write_study(run, "rating", settings=small(run) | {"language": "Spanish"})
    write_study(run, "rating", settings=small(run) | {"language": "en-GB"})


def test_translated_pages_in_the_run_take_the_place_of_the_project_s(run):
    theirs = run.folder / "study-texts"
    theirs.mkdir()
    for name in ("consent", "instructions-rating", "debrief-rating", "stop"):
        (theirs / f"{name}.html").write_text(
            "<p>Le pedimos que tome parte en un estudio sobre conversaciones. Dura {minutes}"
            " minutos.</p>"
        )
    for name in ("checks", "practice"):
        text = (find_root() / "data" / "study" / f"{name}.yaml").read_text()
        words = yaml.safe_load(text)
        (theirs / f"{name}.yaml").write_text(yaml.safe_dump(_in_spanish(words), allow_unicode=True))
    study = write_study(run, "rating", settings=small(run) | {"language": "Spanish"})
    assert "Dura 16 minutos" in pages(study)["consent"]
    assert "esta respuesta" in (study / "items.jsonl").read_text()


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


def test_a_rehearsal_starts_on_this_machine_only(run):
    study = write_study(run, "rating", settings=small(run))
    with pytest.raises(StudyError, match="needs support_line"):
        start_study(study, host="0.0.0.0", port=1)
    told = small(run) | dict.fromkeys(ASKED_OF_PUBLIC, "told") | {"statement": STATEMENT}
    study = write_study(run, "rating", settings=told)
    with pytest.raises(StudyError, match="is a rehearsal, so it starts on this machine only"):
        start_study(study, host="0.0.0.0", port=1)


def test_settings_that_are_none_are_refused(run):
    (run.folder / "study.yaml").write_text("suport_line: 116 123\n")
    with pytest.raises(
        StudyError, match="has unknown suport_line. The keys are rehearsal, language"
    ):
        load_settings(run)
    (run.folder / "study.yaml").write_text("rating: {raters: 3}\n")
    with pytest.raises(StudyError, match="rating: has unknown raters"):
        load_settings(run)
    (run.folder / "study.yaml").write_text("a: [1\n")
    with pytest.raises(StudyError, match="is not YAML"):
        load_settings(run)
    (run.folder / "study.yaml").write_text("just words\n")
    with pytest.raises(
        StudyError, match="study.yaml: the whole is 'just words', expected a mapping"
    ):
        load_settings(run)


def test_potato_that_is_not_there_is_named_with_the_remedy(run, tmp_path, monkeypatch):
    study = write_study(run, "rating", settings=small(run))
    monkeypatch.setenv("HEART_POTATO", str(tmp_path / "nowhere"))
    with pytest.raises(
        StudyError,
        match=r"Potato .*nowhere\)\. `make study`",
    ):
        start_study(study)


def test_a_port_that_is_taken_is_named(run, tmp_path, monkeypatch):
    study = write_study(run, "rating", settings=small(run))
    program = tmp_path / "potato"
    program.write_text("#!/bin/sh\n")
    monkeypatch.setenv("HEART_POTATO", str(program))
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(
            StudyError, match=rf"Port {port} on 127.0.0.1 cannot be used .* PORT={port + 1}"
        ):
            start_study(study, port=port)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def test_a_server_that_stops_at_once_is_quoted(run, tmp_path, monkeypatch):
    study = write_study(run, "rating", settings=small(run))
    program = tmp_path / "potato"
    program.write_text("#!/bin/sh\necho the cellar is flooded\nexit 3\n")
    program.chmod(0o755)
    monkeypatch.setenv("HEART_POTATO", str(program))
    with pytest.raises(StudyError, match=r"stopped at once \(exit 3\)(.|\n)*the cellar is flooded"):
        start_study(study, port=free_port())


def test_a_study_that_cannot_be_balanced_says_what_to_try(tmp_path):
    """Four responders answered the first history, two the other twenty: 18 of 78 ratings are of one
    history."""
    run = small_run(tmp_path / "run", n_histories=21, responders=("r1", "r2", "r3", "r4"))
    replies = run.read("replies")
    run.write(
        "replies",
        replies[(replies["history_id"] == "h00") | replies["responder"].isin(["r1", "r2"])],
    )
    (run.folder / "study.yaml").write_text("rating: {raters_per_pair: 3, load: 12, spare: 0}")
    with pytest.raises(StudyError, match=r"(?s)not balanced.*the same history.*smaller"):
        write_study(run, "rating")
    (run.folder / "study.yaml").write_text("rating: {raters_per_pair: 3, load: 9, spare: 0}")
    # 78 / 9, and no seat meets it more than 18 / 9 = 2 times
    assert seats_and_pages(write_study(run, "rating"))[0] == 9


def test_a_run_without_such_histories_says_so(run):
    settings = small(run) | {}
    settings["rating"]["slices"] = ["adversarial"]
    with pytest.raises(StudyError, match="has no history of adversarial that ends with the seeker"):
        write_study(run, "rating", settings=settings)


def test_the_command_says_what_people_take_and_cost_with_checks_practice_fee_and_spares(
    run, capsys
):
    """Three people: six pages of a minute, one a check, and ten minutes around them; 12 GBP an
    hour, a quarter as fee."""
    write = (
        "rating: {raters_per_pair: 3, load: 5, n_checks: 1, spare: %s}\ncost: {fee_share: 0.25,"
        " seconds_a_page: {reply: 240}}\n"
    )
    (run.folder / "study.yaml").write_text(write % 0)
    assert main([str(run.folder), "rating", "--write-only"]) == 0
    said = capsys.readouterr().out  # 3 * 16 minutes; 0.8 * 12 * 1.25
    assert "16 minutes a person, 0.8 hours: 12.00 GBP, at 12 an hour and a fee of 25 %" in said
    (run.folder / "study.yaml").write_text(write % 0.5)
    assert main([str(run.folder), "rating", "--name", "more", "--write-only"]) == 0
    assert (
        "0.8 hours: 12.00 GBP, and 20.00 if all 2 spare seats are taken too"
        in capsys.readouterr().out
    )
    (run.folder / "study.yaml").write_text(
        write % 0 + "reply: {writers_per_history: 2, n_writers: 2, spare: 0}\n"
    )
    assert main([str(run.folder), "reply", "--write-only"]) == 0
    n = len(assignment(run.folder / "study" / "reply")) // 2  # each writes to each history
    assert (
        f"{4 * n + 10} minutes a person, {2 * (4 * n + 10) / 60:.1f} hours:"
        f" {2 * (4 * n + 10) / 4:.2f} GBP" in capsys.readouterr().out
    )


def test_the_command_writes_resumes_and_explains(run, capsys):
    (run.folder / "study.yaml").write_text(
        "rating: {raters_per_pair: 3, load: 5, n_checks: 1, spare: 0}\n"
    )
    assert main([str(run.folder), "rating", "--write-only"]) == 0
    assert "3 people, 18 pages between them, 0 have begun" in capsys.readouterr().out
    folder = run.folder / "study" / "rating"
    answer_seat(folder, "seat-001", "ann", {})
    assert main([str(run.folder), "rating", "--write-only"]) == 1
    assert "error: " in capsys.readouterr().err
    assert main([str(run.folder), "rating", "--write-only", "--resume"]) == 0
    assert "1 have begun" in capsys.readouterr().out
    assert main([str(run.folder), "rating", "--name", "other", "--resume"]) == 1
    assert "There is no study in" in capsys.readouterr().err


def test_spare_seats_are_told_apart_from_the_people_who_are_paid_for(run, capsys):
    """Hours and money are those of the people who are needed, so the line names these."""
    (run.folder / "study.yaml").write_text(
        "rating: {raters_per_pair: 3, load: 5, n_checks: 1, spare: 0.5}\n"
        "cost: {pay_per_hour: 12, fee_share: 0, seconds_a_page: {rating: 100, reply: 180},"
        " minutes_around: 10, currency: GBP}\n"
    )
    assert main([str(run.folder), "rating", "--write-only"]) == 0
    out = capsys.readouterr().out
    assert "3 people and 2 spare seats, 30 pages between them" in out
    assert "20 minutes a person, 1.0 hours: 12.00 GBP" in out
    assert "20.00 if all 2 spare seats are taken too" in out


def test_a_hundred_seats_are_written_within_a_breath(tmp_path):
    """15 raters on each of 200 pairs, 30 each: 100 people, 3,300 pages."""
    run = small_run(tmp_path / "run", n_histories=200)
    study = write_study(run, "rating", settings=small(run, raters_per_pair=15, load=30, n_checks=3))
    assert seats_and_pages(study) == (100, 3300)
    assert np.isin(assignment(study)["task"], ["rate", "check"]).all()
