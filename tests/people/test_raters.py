"""From what people answered to rows of the run, whom to pay, and what is refused on the way."""

import json
import shutil
import sqlite3
import stat
from contextlib import closing
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from study_builders import (
    AGREED,
    STATEMENT,
    answer_seat,
    assignment,
    conversation_run,
    note_history,
    rated,
    seat_answers,
    small_run,
)
from worker import begin_command

from heart_collect.judging.design import pair_replies
from heart_collect.people.assignment import StudyError
from heart_collect.people.exports import (
    QUESTIONS,
    _behaviour,
    _times,
    read_answers,
    read_potato,
    restore_answers,
)
from heart_collect.people.raters import import_study, main, write_payments
from heart_collect.people.study import load_settings, start_study, write_study
from heart_utils.report.tables import note_tables
from heart_utils.runs import Run, read_csv_text


@pytest.fixture(scope="session")
def template(tmp_path_factory):
    """A run with a rating study that nobody has begun, copied for each test, and the comparisons
    of its models."""
    run = small_run(tmp_path_factory.mktemp("template") / "run")
    rating_study(run)
    compared = pair_replies(run.read("replies"), rng=np.random.default_rng(1))
    run.write("comparisons", compared)
    return run


@pytest.fixture
def compared(template, tmp_path):
    shutil.copytree(template.folder, tmp_path / "run")
    return Run("run", tmp_path / "run", template.root)


@pytest.fixture
def run(compared):
    (compared.folder / "comparisons.parquet").unlink()
    return compared


def rating_study(run, *, name=None, **rating):
    settings = load_settings(run)
    settings["rating"] |= {"raters_per_pair": 2, "load": 5, "n_checks": 1, "spare": 0.5} | rating
    return write_study(run, "rating", settings=settings, name=name)


@pytest.fixture
def study(compared):
    return compared.folder / "study" / "rating"


def make_real(study, **settings):
    """Turn a rehearsal into a study with people."""
    about = json.loads((study / "study.json").read_text())
    about["settings"] |= {"rehearsal": False, **settings}
    (study / "study.json").write_text(json.dumps(about))


def test_choices_come_back_in_terms_of_a_and_b_whatever_side_they_were_on(run, study):
    answer_seat(study)
    verdicts = import_study(run, study).verdicts
    shown = assignment(study).query("seat == 'seat-001' and task == 'rate'")
    for column in ("comparison_id", "position", "order"):
        assert verdicts[column].tolist() == shown[column].tolist()
    assert (verdicts["verdict"] == verdicts["order"].str[0]).all()
    assert set(verdicts["order"]) == {"ab", "ba"}
    assert verdicts[["margin", "seconds"]].to_numpy().tolist() == [[3, 30]] * 5


def test_an_order_that_potato_swapped_itself_is_swapped_back(run, study):
    swapped = {item: {"preference": [1, 0]} for item in seat_answers(study)}
    answer_seat(study, instance_id_to_presentation_order=swapped)
    verdicts = import_study(run, study).verdicts
    shown = assignment(study).query("seat == 'seat-001' and task == 'rate'")
    assert verdicts["order"].tolist() == shown["order"].str[::-1].tolist()
    assert (verdicts["verdict"] == verdicts["order"].str[0]).all()


def test_verdicts_on_conversations_say_so_and_name_the_seeker(tmp_path):
    run = conversation_run(tmp_path / "run")
    study = rating_study(run, load=8, dimension="Who listens?", dimension_name="listening")
    given = seat_answers(study)
    sides = ["Conversation A", "Conversation B", "No difference"] * 3
    for item, side in zip(rated(given), sides, strict=False):
        given[item]["dimension"] = side
    answer_seat(study, answers=given)
    verdicts = import_study(run, study).verdicts
    assert set(verdicts["unit"]) == {"conversation"}
    assert set(verdicts["seeker"]) == {"s", "t"}
    assert (verdicts["history_id"].str.split("--").str[-1] == verdicts["seeker"]).all()
    listens = verdicts.query("dimension == 'listening'").sort_values("position")["verdict"]
    assert listens.isin(["a", "b", "tie"]).all()
    assert listens.tolist()[2] == "tie"


def test_checks_are_counted_and_are_no_verdicts(run, study):
    answer_seat(study)
    failed = seat_answers(study, "seat-002", pass_checks=False)
    answer_seat(study, "seat-002", "ben", failed)
    imported = import_study(run, study)
    columns = ["n_checks_passed", "n_checks", "n_shown", "n_answered"]
    assert sorted(imported.raters[columns].to_numpy().tolist()) == [[0, 1, 5, 5], [1, 1, 5, 5]]
    assert len(imported.verdicts) == 10


def test_names_become_codes_and_who_is_named_stays_apart(run, study):
    answer_seat(study, person="ann@example.org")
    imported = import_study(run, study)
    imported.write(run)
    write_payments(run, imported)
    keys = run.folder / "keys"
    assert stat.S_IMODE(keys.stat().st_mode) == 0o700
    for name in ("people", "payments-rating"):
        file = keys / f"{name}.csv"
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert "ann@example.org" in file.read_text()
    code = imported.raters["rater"].item()
    assert set(run.read("verdicts", "people-rating")["rater"]) == {code}
    tables = b"".join(file.read_bytes() for file in run.folder.rglob("*.parquet"))
    assert b"ann@example.org" not in tables
    assert import_study(run, study).raters["rater"].item() == code
    (keys / "people.csv").unlink()
    assert import_study(run, study).raters["rater"].item() != code


def test_a_rehearsal_is_simulated_and_a_study_is_not_and_says_who_its_raters_are(run, study):
    answer_seat(study)
    for said in (False, True):
        assert import_study(run, study, simulated=said).verdicts["simulated"].all()
    import_study(run, study).write(run)
    [note] = note_tables(run, tables=["verdicts"])
    assert note.rows == {"rehearsal": 5}
    make_real(study)
    with pytest.raises(StudyError, match="statement lacks population, language, pay"):
        import_study(run, study)
    assert not import_study(run, study, statement=STATEMENT).verdicts["simulated"].any()
    make_real(study, statement=STATEMENT)
    raters = import_study(run, study).raters
    assert raters[["population", "language", "pay"]].iloc[0].to_dict() == STATEMENT


def test_ties_have_no_margin_and_the_second_question_may_stay_open(run):
    asks = {"dimension": "Which has understood better?", "dimension_name": "attunement"}
    study = rating_study(run, ties=True, **asks)
    answers = seat_answers(study, side="tie")
    first, second, *_ = rated(answers)
    answers[first]["dimension"] = "Reply A"
    answers[second]["dimension"] = "No difference"
    answer_seat(study, answers=answers)
    verdicts = import_study(run, study).verdicts
    overall = verdicts[verdicts["dimension"] == "overall"]
    other = verdicts[verdicts["dimension"] == "attunement"]
    assert overall["verdict"].tolist() == ["tie"] * 5
    assert overall["margin"].isna().all()
    assert other["state"].value_counts().to_dict() == {"valid": 2, "abstained": 3}
    assert set(other["verdict"].dropna()) >= {"tie"}


def test_who_withdraws_is_left_out_and_counted(run, study):
    for seat, person in (("seat-001", "ann"), ("seat-002", "ben")):
        answer_seat(study, seat, person)
    imported = import_study(run, study, withdrawn=["ann"])
    assert (len(imported.verdicts), len(imported.raters), len(imported.withdrawn)) == (5, 1, 1)
    assert "ann" not in (run.folder / "keys" / "people.csv").read_text()
    with pytest.raises(StudyError, match="1 of the 1 names to leave out took no part"):
        import_study(run, study, withdrawn=["cy"])
    with pytest.raises(StudyError, match="Nobody who took part is left"):
        import_study(run, study, withdrawn=["ann", "ben"])


REFUSED = {"consent": {"consent": [AGREED[0], [{"schema": "consent_agree", "name": "no"}, "no"]]}}


def test_who_did_not_agree_has_no_row(run, study):
    answer_seat(study)
    answer_seat(study, "seat-002", "ben", {}, phase_to_page_to_label_to_value=REFUSED)
    answer_seat(study, "seat-003", "cy", {}, phase_to_page_to_label_to_value={})
    changed = answer_seat(study, "seat-002", "dee", {})
    note_history(changed, "dee", ("__phase_page__", "consent_agree", "no", "no"))
    assert len(import_study(run, study).raters) == 1


def test_reasons_are_redacted_and_formulas_and_scripts_kept_as_text(run, study):
    answers = seat_answers(study)
    reasons = ["=1+1", "<script>alert(1)</script>", "mail me@example.org", "kind", "kind"]
    for item, reason in zip(rated(answers), reasons, strict=True):
        answers[item]["reason"] = reason
    answer_seat(study, answers=answers)
    with pytest.warns(UserWarning, match="1 reasons with formula and 1 .* markup.* kept as text"):
        verdicts = import_study(run, study).verdicts
    assert verdicts["rationale"].tolist() == [*reasons[:2], "mail [email]", "kind", "kind"]
    assert verdicts["flags"].tolist()[:4] == [["formula"], ["markup"], ["redacted"], []]
    assert import_study(run, study, redact="all").verdicts["rationale"].isna().all()


def test_a_page_without_a_side_is_no_tie(run, study):
    answers = seat_answers(study)
    del answers[rated(answers)[0]]["preference"]
    answer_seat(study, answers=answers)
    states = import_study(run, study).verdicts["state"]
    assert states.value_counts().to_dict() == {"valid": 4, "abstained": 1}


def cut_short(study):
    file = answer_seat(study)
    file.write_text(file.read_text()[:400])


def answered_twice(study):
    file = answer_seat(study)
    state = json.loads(file.read_text())
    given = next(iter(state["instance_id_to_label_to_value"].values()))
    given.append([{"schema": "preference", "name": "selection"}, "B"])
    file.write_text(json.dumps(state))


def in_one_seat(study, *people, seat="seat-001"):
    for person in ("ann", *people):
        answer_seat(study, seat if person != "ann" else "seat-001", person)


def with_pages(study, **more):
    answer_seat(study, answers=seat_answers(study) | more)


def chosen(study, side):
    answers = seat_answers(study)
    answers[rated(answers)[0]]["preference"] = side
    answer_seat(study, answers=answers)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (cut_short, r"user_state.json is not whole JSON .* cut short"),
        (lambda study: answer_seat(study).write_text('{"user_id": "ann"}'),
         "lacks user_id or instance_id_ordering"),
        (lambda study: None, "holds no answers"),
        (lambda study: (study / "study.json").unlink(), "There is no study in"),
        (lambda study: in_one_seat(study, "ANN ", seat="seat-002"), "same rater appears twice"),
        (lambda study: in_one_seat(study, "ben"), "2 people answered in seat-001"),
        (lambda study: with_pages(study, nothing={"preference": "A"}),
         "1 answers are to pages that were never shown in this study, first 'nothing'"),
        (lambda study: with_pages(study, **seat_answers(study, "seat-002")),
         "answered pages of 2 seats"),
        (answered_twice, "two answers .*'seat-001"),
        (lambda study: chosen(study, "C"), "has the side 'C', expected A, B or tie"),
        (lambda study: answer_seat(study, phase_to_page_to_label_to_value=REFUSED),
         "answers of somebody who did not agree"),
    ],
)  # fmt: skip
def test_answers_that_cannot_be_of_this_study_are_refused_and_nothing_is_written(
    run, study, spoil, message
):
    spoil(study)
    before = sorted(run.folder.rglob("*.parquet"))
    with pytest.raises(StudyError, match=message):
        import_study(run, study)
    assert sorted(run.folder.rglob("*.parquet")) == before
    assert not (run.folder / "keys").exists()


def test_a_history_that_went_missing_is_named(run, study):
    answer_seat(study)
    histories = run.read("histories")
    run.write("histories", histories[histories["history_id"] != "h00"])
    with pytest.raises(StudyError, match="no history 'h00' any more"):
        import_study(run, study)


# What Potato's state lacks and its history has


def last_lost(study, final_chars=10):
    """The state of somebody whose last page was overwritten by an older state, and the history with
    all pages."""
    answers = seat_answers(study)
    item, last = answers.popitem()
    typed = {"reason:::text_box": {"final_chars": final_chars}}
    seen = {item: {"total_time_ms": 9_000, "typing_summaries": typed}}
    file = answer_seat(study, answers=answers, instance_id_to_behavioral_data=seen)
    names = {"reason": "text_box"}
    actions = [(item, asked, names.get(asked, value), value) for asked, value in last.items()]
    return file, item, note_history(file, "ann", *actions)


def page_of(study, item):
    return read_potato(study).set_index("item_id").loc[item]


@pytest.mark.parametrize(("final_chars", "n"), [(10, 3), (0, 2)])
def test_an_answer_that_the_state_lost_comes_back_and_a_text_wiped_does_not(run, study, final_chars, n):  # fmt: skip
    file, item, _ = last_lost(study, final_chars)
    questions = ["preference", "strength", "reason"][:n]
    page = page_of(study, item)
    assert page["answered"]
    assert page["seconds"] == 9
    assert page.dropna().index.intersection(QUESTIONS).tolist() == questions
    # and to who comes back after a restart
    others = json.loads(file.read_text())["instance_id_to_label_to_value"]
    assert restore_answers(study) == n
    state = json.loads(file.read_text())["instance_id_to_label_to_value"]
    restored = state.pop(item)
    assert state == others
    assert [label["schema"] for label, _ in restored] == questions
    assert restored[-1][0]["name"] in ("text_box", "3")
    assert restore_answers(study) == 0


def test_a_study_with_a_state_cut_short_says_so_before_it_starts(run, study, monkeypatch):
    cut_short(study)
    monkeypatch.setattr("heart_collect.people.study._find_potato", lambda: Path("/nowhere/potato"))
    with pytest.raises(StudyError, match="user_state.json is not whole JSON"):
        start_study(study, port=0)


def test_the_last_word_in_the_history_counts(run, study):
    file = answer_seat(study)
    first = next(iter(seat_answers(study)))
    for side in "AB":
        note_history(file, "ann", (first, "preference", "selection", side))
        assert page_of(study, first)["preference"] == side


def test_a_history_stopped_in_its_last_line_is_read_and_one_broken_before_is_not(run, study):
    _, item, history = last_lost(study)
    history.write_text(history.read_text() + '{"user_id": "an')
    assert page_of(study, item)["answered"]
    history.write_text("{" + history.read_text())
    with pytest.raises(StudyError, match="annotation_history.jsonl, line 1 is not whole JSON"):
        read_potato(study)


TYPING = "typing_sessions (user_id, instance_id, schema_name, label_name, ended_at, summary)"


def test_how_a_text_was_typed_comes_from_the_database_of_notes(run, study):
    _, item, _ = last_lost(study)
    rows = [
        {"active_ms": 400, "final_chars": 4, "pasted_chars": 0},
        {"active_ms": 100, "final_chars": 20, "pasted_chars": 16, "external_insert_chars": 16},
    ]
    notes = [("ann", item, "reason", "text_box", n, json.dumps(row)) for n, row in enumerate(rows)]
    file = study / "project.sqlite"
    with closing(sqlite3.connect(file)) as database, database:
        database.execute("CREATE TABLE sessions (id)")
        assert restore_answers(study) == 3  # nobody has typed yet
        database.execute(f"CREATE TABLE {TYPING}")
        database.executemany("INSERT INTO typing_sessions VALUES (?, ?, ?, ?, ?, ?)", notes)
    page = page_of(study, item)
    assert page[["typing_ms", "pasted_share"]].tolist() == [500, 0.8]
    file.write_bytes(b"SQLite format 3\0cut")
    with pytest.raises(StudyError, match="project.sqlite cannot be read"):
        read_potato(study)


TYPED = {"reply:::text_box": {"final_chars": 40, "active_ms": 9000, "pasted_chars": 10}}


@pytest.mark.parametrize(
    ("page", "times"),
    [
        ("page-1", (60.0, 9000.0, 0.25)),  # 10 / 40
        ("page-2", (None, 9000.0, 0.25)),
        ("page-3", (None, None, 0.0)),
        ("page-4", (None, 0.0, 0.0)),  # of no letters that are left nothing was pasted
    ],
)
def test_how_a_page_was_typed_joins_how_long_it_was_open(page, times):
    data = {"page-1": {"total_time_ms": 60_000}}
    wiped = {"reply:::text_box": {"pasted_chars": 5}}
    typed = {("ann", "page-1"): TYPED, ("ann", "page-2"): TYPED, ("ann", "page-4"): wiped}
    state = {"user_id": "ann", "instance_id_to_behavioral_data": data}
    noted = _behaviour(state, typed | {("ben", "page-1"): {}, ("ben", "page-3"): TYPED})
    assert tuple(_times(noted.get(page, {})).values()) == times


# Whom to pay


def test_each_person_is_approved_reviewed_or_rejected_with_the_rule_s_reason(tmp_path, capsys):
    run = small_run(tmp_path / "run", n_histories=12)
    study = rating_study(run, raters_per_pair=4, load=12, n_checks=3, spare=0)
    finished, stopped, hasty = (seat_answers(study, f"seat-00{seat}") for seat in (1, 3, 4))
    shown = assignment(study).query("task == 'rate'").set_index("item_id")["order"]
    for answers in (finished, stopped):  # who prefer one responder, whichever side it is on
        for item in rated(answers):
            answers[item]["preference"] = {"ab": "A", "ba": "B"}[shown[item]]
    half = dict([*stopped.items()][:7])
    times = {item: {"total_time_ms": 2_000, "typing_summaries": {}} for item in hasty}
    answer_seat(study, "seat-001", "finished", finished)
    careless = seat_answers(study, "seat-002", pass_checks=False)
    answer_seat(study, "seat-002", "careless", careless)
    answer_seat(study, "seat-003", "stopped", half)
    answer_seat(study, "seat-004", "hasty", hasty, instance_id_to_behavioral_data=times)
    assert main([str(run.folder), "rating"]) == 0
    assert "payments-rating.csv, with reasons: " in capsys.readouterr().out
    table = read_csv_text((run.folder / "keys" / "payments-rating.csv").read_text())
    proposed = table.set_index("person")[["decision", "reason"]].T.to_dict("list")
    n = len(rated(half))
    assert proposed == {
        "finished": ["approve", "finished"],
        "careless": ["reject", "failed 3 of 3 attention checks; the rule allows 1"],
        "stopped": ["review", f"stopped after {n} pages; pay what the first page promises"],
        "hasty": ["review", "left out of the analysis as fast and one sided and straight line and"
                  " unreliable, which is no proof that nobody read"],
    }  # fmt: skip


def test_an_answer_that_is_changed_after_another_page_is_flagged_and_told(run, study):
    file = answer_seat(study)
    first, second, *_ = rated(seat_answers(study))
    note_history(
        file,
        "ann",
        (first, "preference", "selection", "B"),
        (first, "preference", "selection", "A"),  # on the same page: no more than a change of mind
        (second, "preference", "selection", "A"),
        (first, "preference", "selection", "A"),  # sent again, unchanged
    )
    assert "changed_later" not in import_study(run, study).verdicts["flags"].explode().tolist()
    # a second tab that was left open
    note_history(file, "ann", (first, "preference", "selection", "B"))
    with pytest.warns(UserWarning, match="1 answers were changed after another page had been"):
        verdicts = import_study(run, study).verdicts
    changed = verdicts["flags"].map(lambda flags: "changed_later" in flags)
    [flagged] = verdicts[changed].to_dict("records")
    assert flagged["comparison_id"] == first.split(".", 2)[2]
    assert flagged["verdict"] == flagged["order"][1]  # B stood right


# Writing study


def writing_study(run, *, name=None, pasted_chars=0):
    settings = load_settings(run)
    settings["reply"] |= {"writers_per_history": 2, "n_writers": 5, "spare": 0}
    folder = write_study(run, "reply", settings=settings, name=name)
    items = assignment(folder).query("seat == 'seat-001'")["item_id"].tolist()
    texts = ["I am glad you wrote.", " ".join(["long"] * 41)]
    typed = {"final_chars": 20, "pasted_chars": pasted_chars, "active_ms": 9000}
    page = {"total_time_ms": 45_000, "typing_summaries": {"reply:::text_box": typed}}
    seen = dict.fromkeys(items, page)
    answers = {item: {"reply": text} for item, text in zip(items, texts, strict=True)}
    answer_seat(folder, answers=answers, instance_id_to_behavioral_data=seen)
    return folder


def test_replies_of_people_are_human_and_their_writers_coded(run, capsys):
    writing_study(run)
    assert main([str(run.folder), "reply"]) == 0
    said = capsys.readouterr().out
    assert "1 people, 0 verdicts, 2 replies; 0 withdrew" in said
    assert "keys/people.csv" in said
    responders = run.read("responders")[["responder", "responder_kind"]]
    assert responders.to_numpy().tolist() == [["human", "human"]]
    replies = run.read("replies", "people-reply")
    assert replies["author_id"].str.startswith("writer-").all()
    assert replies[["typing_ms", "total_ms"]].to_numpy().tolist() == [[9000, 45_000]] * 2
    assert sorted(replies["flags"].tolist()) == [[], ["over_40_words"]]
    assert set(run.read("replies")["responder"]) == {"person", "model", "human"}
    comparisons = pair_replies(run.read("replies"), rng=np.random.default_rng(1))
    assert "human" in set(comparisons["responder_a"]) | set(comparisons["responder_b"])


@pytest.mark.parametrize(("pasted_chars", "flagged"), [(10, True), (9, False)])
def test_a_text_of_which_half_or_more_was_pasted_is_flagged(run, pasted_chars, flagged):
    """Of 20 letters."""
    replies = import_study(run, writing_study(run, pasted_chars=pasted_chars)).replies
    assert [("pasted" in flags) for flags in replies["flags"]] == [flagged, flagged]


@pytest.mark.parametrize(
    ("source", "told"), [("rating", "holds no answers"), ("nothing", "There is no nothing")]
)
def test_the_command_runs_as_it_is_written_in_the_book(run, tmp_path, source, told):
    said = tmp_path / "said"
    command = begin_command("heart_collect.people.raters", str(run.folder), source, out=said)
    command.join()
    assert command.exitcode == 1
    assert told in said.read_text()


# A table


def csv_file(run, text: str):
    file = run.folder / "votes.csv"
    file.write_text(text)
    return file


GOOD = """\
rater,left,right,choice,margin,reason,seconds
ann,person-h00,model-h00,left,3,kind,12.5
ben,model-h00,person-h00,left,5,"short, clear",9
cy,model-h00,person-h00,tie,,,
dee,model-h00,person-h00,,,,
"""


@pytest.mark.parametrize("simulated", [False, True])
def test_a_plain_csv_becomes_verdicts_and_a_program_s_are_marked(compared, simulated):
    file = csv_file(compared, GOOD)
    imported = import_study(compared, file, statement=STATEMENT, simulated=simulated)
    verdicts = imported.verdicts.set_index("margin", drop=False)
    # model-h00 is the smaller id, so it is a.
    first = verdicts.loc[3, ["verdict", "order", "seconds", "rationale"]]
    other = verdicts.loc[5, ["verdict", "order", "seconds", "rationale"]]
    assert first.tolist() == ["b", "ba", 12.5, "kind"]
    assert other.tolist() == ["a", "ab", 9, "short, clear"]
    assert verdicts["state"].value_counts().to_dict() == {"valid": 3, "abstained": 1}
    assert len(imported.raters) == 4
    assert set(verdicts["simulated"]) == set(imported.raters["simulated"]) == {simulated}
    imported.write(compared)
    [part] = compared.parts("verdicts")
    origin = compared.manifest["tables"][f"verdicts/{part}"]["origin"]
    assert origin == ("simulated" if simulated else "live")


@pytest.mark.parametrize(
    ("was", "now", "message"),
    [
        ("choice", "winner",
         "unknown winner .*missing choice.*as a file for --reading:\ncolumns:\n  winner: choice"),
        ("left,3", "A,3", "choice: expected one of left, .* line 2 of votes.csv has 'A'"),
        ("left,3", "left,7", "margin: expected a whole number .* line 2 of votes.csv has 7"),
        ("ann,person-h00", "ann,", "answers.left: expected .* line 2 of votes.csv has nothing"),
        ("ann,", ",", "answers.rater: expected text, .* line 2 of votes.csv has nothing"),
        ("12.5", "soon", "seconds: expected a number of .* line 2 of votes.csv has 'soon'"),
        ("n-h00,,,,\n", "n-h00", "line 5 of votes.csv has fewer cells than the header. The file may"
         " have been cut short there"),
        ('clear"', "clear", "cannot be read as CSV .* may have been cut short"),
        (GOOD[GOOD.index("ann") :], "", "holds no answer"),
        ("ann,person-h00,model-h00", "ann,person-h00,model-h09",
         "line 2 of votes.csv: 'person-h00' on the left of 'model-h09' was never shown"),
        ("cy,", "ben,", "2 rows repeat another row's rater, left, right, dimension; .* line 3 of"
         " votes.csv: .* line 4 of votes.csv: "),
        ("ben,", "Ann,", "rater: line 2 of votes.csv has a word and line 3 of votes.csv has a word,"
         " which differ in capitals"),
    ],
)  # fmt: skip
def test_a_csv_that_does_not_fit_is_refused_with_its_line(template, tmp_path, was, now, message):
    assert was in GOOD
    file = tmp_path / "votes.csv"
    file.write_text(GOOD.replace(was, now))
    with pytest.raises(ValueError, match=f"(?s){message}"):
        import_study(template, file, statement=STATEMENT)
    with pytest.raises(StudyError, match="no such file"):
        read_answers(tmp_path / "absent.csv")


def test_the_same_pair_with_its_sides_changed_is_a_second_order_of_an_imported_file_too(compared):
    both = GOOD.replace("cy,model-h00,person-h00", "ben,person-h00,model-h00")
    verdicts = import_study(compared, csv_file(compared, both), statement=STATEMENT).verdicts
    twice = verdicts[verdicts["rater"].duplicated(keep=False)]
    assert sorted(twice["order"]) == ["ab", "ba"]


BATCH = """\
WorkerId,Input.left,Input.right,Answer.choice,AssignmentStatus,Approve,Reject
A1XYZ23456789,person-h00,model-h00,L,Approved
A2XYZ23456789,model-h00,person-h00,R,Rejected
"""
OF_BATCH = {
    "columns": {
        "WorkerId": "rater",
        "Input.left": "left",
        "Input.right": "right",
        "Answer.choice": "choice",
    },
    "words": {"L": "left", "R": "right"},
}
LABEL_STUDIO = """[{"id": 7, "data": {"left_reply": "person-h00", "right_reply": "model-h00"},
"annotations": [{"completed_by": 3, "was_cancelled": false, "result": [
{"type": "pairwise", "value": {"selected": "left"}}]}]}]"""
OF_LABEL_STUDIO = {
    "columns": {
        "*": None,
        "annotations.completed_by": "rater",
        "data.left_reply": "left",
        "data.right_reply": "right",
        "annotations.result.value.selected": "choice",
    },
    "only": {"annotations.was_cancelled": "false", "annotations.result.type": "pairwise"},
}


@pytest.mark.parametrize(
    ("name", "content", "how"),
    [
        ("batch.csv", BATCH, OF_BATCH | {"only": {"AssignmentStatus": "Approved"}}),
        ("export.json", LABEL_STUDIO, OF_LABEL_STUDIO),
    ],
)
def test_an_imported_file_may_have_headers_words_and_paths_of_its_own(compared, name, content, how):
    file = compared.folder / name
    file.write_text(content)
    verdicts = import_study(compared, file, statement=STATEMENT, **how).verdicts
    assert verdicts[["verdict", "order"]].to_numpy().tolist() == [["b", "ba"]]


def test_rows_of_an_imported_file_that_may_not_count_are_refused(template, tmp_path):
    file = tmp_path / "batch.csv"
    file.write_text(BATCH)
    with pytest.raises(StudyError, match="1 of 2 rows may not count: AssignmentStatus is 'Rej"):
        import_study(template, file, statement=STATEMENT, **OF_BATCH)


def test_a_csv_needs_a_rater_statement_too(compared, tmp_path, capsys):
    file, said = csv_file(compared, GOOD), tmp_path / "statement.yaml"
    with pytest.raises(StudyError, match="statement lacks population, language, pay"):
        import_study(compared, file)
    said.write_text("population: friends\nlanguage: English\npay: none\n")
    command = [str(compared.folder), str(file), "--statement", str(said)]
    assert main(command) == 0
    assert "4 people, 4 verdicts" in capsys.readouterr().out
    assert set(compared.read("raters")["population"]) == {"friends"}
    said.write_text("friends")
    assert main(command) == 1
    assert "statement.yaml: the whole is 'friends', expected a mapping" in capsys.readouterr().err


# Several imports side by side


def test_imports_stand_side_by_side_and_each_replaces_its_own_rows_only(compared, study, tmp_path):
    def bring(source, **how):
        imported = import_study(compared, source, statement=STATEMENT, **how)
        imported.write(compared)
        return imported

    def n_of_raters():
        return sorted(compared.read("verdicts")["rater"].value_counts())

    file = csv_file(compared, GOOD)
    alone = import_study(compared, file, statement=STATEMENT).verdicts
    answer_seat(study, person="gil")
    bring(study)
    for name in ("reply", "second"):  # ann writes in both, and has four replies
        bring(writing_study(compared, name=name))
    written = compared.read("replies").query("responder == 'human'")
    assert written[["author_id", "reply_id"]].nunique().tolist() == [1, 4]
    other = tmp_path / "other" / "votes.csv"
    other.parent.mkdir()
    other.write_text("rater,left,right,choice\ncleo,person-h00,model-h00,left\n")
    bring(other)
    pd.testing.assert_frame_equal(bring(file).verdicts, alone)  # whatever else was imported
    assert n_of_raters() == [1, 1, 1, 1, 1, 5]
    assert compared.read("raters")["study"].nunique() == 5
    assert compared.read("responders")["responder"].tolist() == ["human"]
    shown = set(compared.read("comparisons")["comparison_id"])
    assert set(compared.read("verdicts")["comparison_id"]) <= shown
    bring(csv_file(compared, "\n".join(GOOD.splitlines()[:3])))
    assert n_of_raters() == [1, 1, 1, 5]
    answer_seat(study, "seat-002", "hal")
    bring(study, withdrawn=["gil"])
    assert n_of_raters() == [1, 1, 1, 5]
    assert len(compared.read("raters")) == 6


def test_the_same_answers_from_another_place_are_refused_and_nothing_is_written(compared, tmp_path):
    import_study(compared, csv_file(compared, GOOD), statement=STATEMENT).write(compared)
    moved = tmp_path / "moved.csv"
    moved.write_text(GOOD)
    before = {file: file.read_bytes() for file in compared.folder.rglob("*.parquet")}
    imported = import_study(compared, moved, statement=STATEMENT)
    with pytest.raises(StudyError, match=r"4 of 4 verdicts .* already, .*'people-votes-\w{8}'"):
        imported.write(compared)
    assert {file: file.read_bytes() for file in compared.folder.rglob("*.parquet")} == before
