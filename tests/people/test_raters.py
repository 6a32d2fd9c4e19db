"""From what people answered to rows of the run, and what is refused on the way."""

import json
import shutil
import sqlite3
import stat
import subprocess
import sys
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
    seat_answers,
    small_run,
)

from heart_collect.judging.design import pair_replies
from heart_collect.people.assignment import StudyError
from heart_collect.people.exports import QUESTIONS, read_answers, read_potato, restore_answers
from heart_collect.people.raters import import_study, main
from heart_collect.people.study import load_settings, start_study, write_study
from heart_utils.report.provenance import note_tables
from heart_utils.runs import Run
from heart_utils.tables import check_table


@pytest.fixture(scope="session")
def template(tmp_path_factory):
    """A run with a rating study that nobody has begun, copied for each test: writing one anew takes
    a third of a second."""
    run = small_run(tmp_path_factory.mktemp("template") / "run")
    rating_study(run)
    return run


@pytest.fixture
def run(template, tmp_path):
    shutil.copytree(template.folder, tmp_path / "run")
    return Run("run", tmp_path / "run", template.root)


def rating_study(run, *, name=None, **rating):
    settings = load_settings(run)
    settings["rating"] |= {"raters_per_pair": 2, "load": 5, "n_checks": 1, "spare": 0.5} | rating
    return write_study(run, "rating", settings=settings, name=name)


@pytest.fixture
def study(run):
    return run.folder / "study" / "rating"


def test_choices_come_back_in_terms_of_a_and_b_whatever_side_they_were_on(run, study):
    answer_seat(study, "seat-001", "ann", seat_answers(study, "seat-001", "A", "4"))
    verdicts = import_study(run, study).verdicts
    assert len(verdicts) == 5
    first = verdicts["order"].map({"ab": "a", "ba": "b"})
    assert (verdicts["verdict"] == first).all()
    assert set(verdicts["order"]) == {"ab", "ba"}
    assert verdicts["margin"].tolist() == [4] * 5
    assert verdicts["seconds"].tolist() == [30] * 5
    shown = assignment(study).query("seat == 'seat-001' and task == 'rate'")
    assert verdicts["comparison_id"].tolist() == shown["comparison_id"].tolist()
    assert verdicts["position"].tolist() == shown["position"].tolist()


def test_verdicts_on_conversations_say_so_and_name_the_seeker(tmp_path):
    run = conversation_run(tmp_path / "run")
    study = rating_study(run, load=8, dimension="Who listens?", dimension_name="listening")
    given = seat_answers(study, "seat-001")
    rated = [item for item in given if ".check-" not in item]
    for item, side in zip(
        rated, ["Conversation A", "Conversation B", "No difference"] * 3, strict=False
    ):
        given[item]["dimension"] = side
    answer_seat(study, "seat-001", "ann", given)
    verdicts = import_study(run, study).verdicts
    assert set(verdicts["unit"]) == {"conversation"}
    assert set(verdicts["seeker"]) == {"s", "t"}
    assert (verdicts["history_id"].str.split("--").str[-1] == verdicts["seeker"]).all()
    listens = verdicts.query("dimension == 'listening'").sort_values("position")["verdict"]
    assert listens.isin(["a", "b", "tie"]).all()
    assert listens.tolist()[2] == "tie"


def test_an_order_that_potato_swapped_itself_is_swapped_back(run, study):
    answers = seat_answers(study, "seat-001", "A")
    swapped = {item: {"preference": [1, 0]} for item in answers}
    answer_seat(study, "seat-001", "ann", answers, instance_id_to_presentation_order=swapped)
    verdicts = import_study(run, study).verdicts
    shown = (
        assignment(study)
        .query("seat == 'seat-001' and task == 'rate'")
        .set_index("comparison_id")["order"]
    )
    assert (
        verdicts["verdict"] == verdicts["comparison_id"].map(shown).map({"ab": "b", "ba": "a"})
    ).all()
    assert (verdicts["order"] != verdicts["comparison_id"].map(shown)).all()


def test_a_study_in_which_nobody_has_typed_yet_can_go_on(run, study):
    answer_seat(study, "seat-001", "ann", {})
    with closing(sqlite3.connect(study / "project.sqlite")) as database:
        database.execute("CREATE TABLE sessions (id)")
        database.commit()
    assert restore_answers(study) == 0


def test_checks_are_counted_and_are_no_verdicts(run, study):
    answer_seat(study, "seat-001", "ann", seat_answers(study, "seat-001"))
    answer_seat(study, "seat-002", "ben", seat_answers(study, "seat-002", pass_checks=False))
    imported = import_study(run, study)
    assert sorted(imported.raters["n_checks_passed"]) == [0, 1]
    assert imported.raters[
        ["n_checks", "n_shown", "n_answered"]
    ].drop_duplicates().to_numpy().tolist() == [[1, 5, 5]]
    assert len(imported.verdicts) == 10


def test_names_become_codes_and_the_key_file_stays_apart(run, study):
    answer_seat(study, "seat-001", "ann@example.org", seat_answers(study, "seat-001"))
    imported = import_study(run, study)
    imported.write(run)
    keys = run.folder / "keys" / "people.csv"
    assert stat.S_IMODE(keys.stat().st_mode) == 0o600
    code = imported.raters["rater"].item()
    assert set(run.read("verdicts", "people-rating")["rater"]) == {code}
    tables = b"".join(file.read_bytes() for file in run.folder.rglob("*.parquet"))
    assert b"ann@example.org" not in tables
    assert import_study(run, study).raters["rater"].item() == code
    keys.unlink()
    assert import_study(run, study).raters["rater"].item() != code


def test_the_tables_written_are_read_as_one_with_those_of_models(run, study):
    answer_seat(study, "seat-001", "ann", seat_answers(study, "seat-001"))
    imported = import_study(run, study)
    imported.write(run)
    machine = (
        imported.verdicts.head(1)
        .assign(rater="judge", rater_kind="model", protocol="heart")
        .drop(columns=["seconds", "position"])
    )
    run.write("verdicts", machine)
    both = run.read("verdicts")
    assert both["rater_kind"].value_counts().to_dict() == {"human": 5, "model": 1}
    assert len(run.read("comparisons")) == 5
    assert check_table("raters", run.read("raters"))["study"].item() == "rating"


def test_a_rehearsal_is_simulated_and_a_study_is_not(run, tmp_path):
    rehearsal = rating_study(run)
    answer_seat(rehearsal, "seat-001", "ann", seat_answers(rehearsal, "seat-001"))
    for said in (False, True):
        assert import_study(run, rehearsal, simulated=said).verdicts["simulated"].all()
    real = json.loads((rehearsal / "study.json").read_text())
    real["settings"] |= {"rehearsal": False, "statement": STATEMENT}
    (rehearsal / "study.json").write_text(json.dumps(real))
    imported = import_study(run, rehearsal)
    assert not imported.verdicts["simulated"].any()
    assert imported.raters[["population", "language", "pay"]].iloc[0].to_dict() == STATEMENT


def test_without_a_rater_statement_nothing_is_imported(run, study):
    real = json.loads((study / "study.json").read_text())
    real["settings"]["rehearsal"] = False
    (study / "study.json").write_text(json.dumps(real))
    answer_seat(study, "seat-001", "ann", seat_answers(study, "seat-001"))
    with pytest.raises(StudyError, match="statement lacks population, language, pay"):
        import_study(run, study)
    assert not import_study(run, study, statement=STATEMENT).verdicts["simulated"].any()


def test_ties_have_no_margin_and_the_second_question_may_stay_open(run):
    study = rating_study(
        run, ties=True, dimension="Which has understood better?", dimension_name="attunement"
    )
    answers = seat_answers(study, "seat-001", "tie")
    rated = [item for item, given in answers.items() if given["reason"] != "read"]
    answers[rated[0]]["dimension"] = "Reply A"
    answers[rated[1]]["dimension"] = "No difference"
    answer_seat(study, "seat-001", "ann", answers)
    verdicts = import_study(run, study).verdicts
    overall, second = (
        verdicts[verdicts["dimension"] == "overall"],
        verdicts[verdicts["dimension"] == "attunement"],
    )
    assert overall["verdict"].tolist() == ["tie"] * 5
    assert overall["margin"].isna().all()
    assert second["state"].value_counts().to_dict() == {"valid": 2, "abstained": 3}
    assert set(second["verdict"].dropna()) >= {"tie"}


def test_who_stops_half_way_keeps_what_they_gave(run, study):
    some = dict(list(seat_answers(study, "seat-001").items())[:2])
    answer_seat(study, "seat-001", "ann", some, current_phase_and_page=["annotation", None])
    rater = import_study(run, study).raters.iloc[0]
    assert not rater["completed"]
    assert rater["n_shown"] == 5
    assert rater["n_answered"] <= 2


def test_who_withdraws_is_left_out_and_counted(run, study):
    answer_seat(study, "seat-001", "ann", seat_answers(study, "seat-001"))
    answer_seat(study, "seat-002", "ben", seat_answers(study, "seat-002"))
    imported = import_study(run, study, withdrawn=["ann"])
    assert (len(imported.verdicts), len(imported.raters), imported.n_withdrawn) == (5, 1, 1)
    assert "ann" not in (run.folder / "keys" / "people.csv").read_text()
    with pytest.raises(StudyError, match="1 of the 1 names to leave out took no part"):
        import_study(run, study, withdrawn=["cy"])
    with pytest.raises(StudyError, match="Nobody who took part is left"):
        import_study(run, study, withdrawn=["ann", "ben"])


def test_who_did_not_agree_has_no_row_and_may_have_no_answers(run, study):
    answer_seat(study, "seat-001", "ann", seat_answers(study, "seat-001"))
    refused = {
        "consent": {"consent": [AGREED[0], [{"schema": "consent_agree", "name": "no"}, "no"]]}
    }
    answer_seat(study, "seat-002", "ben", {}, phase_to_page_to_label_to_value=refused)
    answer_seat(study, "seat-003", "cy", {}, phase_to_page_to_label_to_value={})
    assert len(import_study(run, study).raters) == 1
    answer_seat(
        study,
        "seat-002",
        "dee",
        seat_answers(study, "seat-002"),
        phase_to_page_to_label_to_value=refused,
    )
    with pytest.raises(StudyError, match="answers of somebody who did not agree"):
        import_study(run, study)


def test_reasons_are_redacted_and_formulas_and_scripts_kept_as_text(run, study):
    answers = seat_answers(study, "seat-001")
    rated = [item for item, given in answers.items() if given["reason"] != "read"]
    for item, reason in zip(
        rated,
        ["=1+1", "<script>alert(1)</script>", "mail me@example.org", "kind", "kind"],
        strict=True,
    ):
        answers[item]["reason"] = reason
    answer_seat(study, "seat-001", "ann", answers)
    with pytest.warns(UserWarning, match="1 reasons with formula and 1 .* markup.* kept as text"):
        verdicts = import_study(run, study).verdicts
    assert verdicts["rationale"].tolist()[:3] == [
        "=1+1",
        "<script>alert(1)</script>",
        "mail [email]",
    ]
    assert verdicts["flags"].tolist()[:4] == [["formula"], ["markup"], ["redacted"], []]
    assert import_study(run, study, redact="all").verdicts["rationale"].isna().all()


def test_a_state_cut_short_is_named(run, study):
    file = answer_seat(study, "seat-001", "ann", seat_answers(study, "seat-001"))
    file.write_text(file.read_text()[:400])
    with pytest.raises(StudyError, match=r"user_state.json is not whole JSON .* cut short"):
        import_study(run, study)
    file.write_text('{"user_id": "ann"}')
    with pytest.raises(StudyError, match="lacks user_id or instance_id_ordering"):
        import_study(run, study)


def test_a_folder_nobody_answered_says_so(run, study):
    with pytest.raises(StudyError, match="holds no answers"):
        import_study(run, study)


def test_a_rater_who_appears_twice_is_refused(run, study):
    answer_seat(study, "seat-001", "ann", seat_answers(study, "seat-001"))
    answer_seat(study, "seat-002", "ANN ", seat_answers(study, "seat-002"))
    with pytest.raises(StudyError, match="same rater appears twice"):
        import_study(run, study)


def test_two_people_in_one_seat_are_refused(run, study):
    answer_seat(study, "seat-001", "ann", seat_answers(study, "seat-001"))
    answer_seat(study, "seat-001", "ben", seat_answers(study, "seat-001"))
    with pytest.raises(StudyError, match="2 people answered in seat-001"):
        import_study(run, study)


def test_an_answer_to_a_page_never_shown_is_refused(run, study):
    answers = seat_answers(study, "seat-001") | {"seat-009.001.nothing": {"preference": "A"}}
    file = answer_seat(study, "seat-001", "ann", answers)
    with pytest.raises(
        StudyError,
        match=(
            "1 answers are to pages that were never shown in this study, first"
            " 'seat-009.001.nothing'"
        ),
    ):
        import_study(run, study)
    file.unlink()
    file.parent.rmdir()
    answer_seat(
        study, "seat-001", "ann", seat_answers(study, "seat-001") | seat_answers(study, "seat-002")
    )
    with pytest.raises(StudyError, match="answered pages of 2 seats"):
        import_study(run, study)


def test_two_answers_to_one_question_are_refused(run, study):
    file = answer_seat(study, "seat-001", "ann", seat_answers(study, "seat-001"))
    state = json.loads(file.read_text())
    item = next(iter(state["instance_id_to_label_to_value"]))
    state["instance_id_to_label_to_value"][item].append(
        [{"schema": "preference", "name": "selection"}, "B"]
    )
    file.write_text(json.dumps(state))
    with pytest.raises(StudyError, match="two answers .*'seat-001"):
        import_study(run, study)


def test_a_page_without_a_side_is_no_tie(run, study):
    answers = seat_answers(study, "seat-001")
    item = next(item for item, given in answers.items() if given["reason"] != "read")
    del answers[item]["preference"]
    answer_seat(study, "seat-001", "ann", answers)
    verdicts = import_study(run, study).verdicts
    assert verdicts["state"].value_counts().to_dict() == {"valid": 4, "abstained": 1}
    answers[item]["preference"] = "C"
    (study / "answers" / "ann" / "user_state.json").unlink()
    (study / "answers" / "ann").rmdir()
    answer_seat(study, "seat-001", "ann", answers)
    with pytest.raises(StudyError, match="has the side 'C', expected A, B or tie"):
        import_study(run, study)


def test_a_folder_that_is_no_study_is_refused(run):
    with pytest.raises(StudyError, match="no study written here"):
        import_study(run, run.folder)


# What Potato's state lacks and its history has


def last_lost(study, typed=None):
    """The state of somebody whose last page was overwritten by an older state, and the history with
    all pages."""
    answers = seat_answers(study, "seat-001")
    items = list(answers)
    last = answers.pop(items[-1])
    summaries = {items[-1]: {"total_time_ms": 9_000, "typing_summaries": typed or {}}}
    file = answer_seat(study, "seat-001", "ann", answers, instance_id_to_behavioral_data=summaries)
    actions = [
        (items[-1], question, {"reason": "text_box"}.get(question, value), value)
        for question, value in last.items()
    ]
    return file, items[-1], note_history(file, "ann", *actions)


def test_an_answer_that_the_state_lost_comes_back_from_the_history(run, study):
    _, item, _ = last_lost(study, {"reason:::text_box": {"final_chars": 10}})
    found = read_potato(study).set_index("item_id")
    assert found["answered"].all()
    assert found.loc[item].dropna().index.intersection(QUESTIONS).tolist() == [
        "preference",
        "strength",
        "reason",
    ]
    assert found.loc[item, "seconds"] == 9


def test_who_comes_back_after_a_restart_finds_what_the_state_lost(run, study):
    file, item, _ = last_lost(study, {"reason:::text_box": {"final_chars": 10}})
    others = json.loads(file.read_text())["instance_id_to_label_to_value"]
    assert item not in others
    assert restore_answers(study) == 3
    state = json.loads(file.read_text())["instance_id_to_label_to_value"]
    assert {item: state[item] for item in others} == others
    assert [label["schema"] for label, _ in state[item]] == ["preference", "strength", "reason"]
    assert state[item][2][0]["name"] == "text_box"
    assert restore_answers(study) == 0


def test_a_study_with_a_state_cut_short_says_so_before_it_starts(run, study, monkeypatch):
    file = answer_seat(study, "seat-001", "ann", {})
    file.write_text(file.read_text()[:-40])
    monkeypatch.setattr("heart_collect.people.study._find_potato", lambda: Path("/nowhere/potato"))
    with pytest.raises(StudyError, match="user_state.json is not whole JSON"):
        start_study(study, port=0)


def test_a_text_wiped_before_leaving_stays_wiped(run, study):
    _, item, _ = last_lost(study, {"reason:::text_box": {"final_chars": 0}})
    page = read_potato(study).set_index("item_id").loc[item]
    assert page.dropna().index.intersection(QUESTIONS).tolist() == ["preference", "strength"]


def test_the_last_word_in_the_history_counts(run, study):
    file = answer_seat(study, "seat-001", "ann", seat_answers(study, "seat-001", side="A"))
    item = json.loads(file.read_text())["instance_id_ordering"][0]
    note_history(
        file, "ann", (item, "preference", "selection", "A"), (item, "preference", "selection", "B")
    )
    assert read_potato(study).set_index("item_id").loc[item, "preference"] == "B"


def test_a_history_stopped_in_its_last_line_is_read_and_one_broken_before_is_not(run, study):
    _, item, history = last_lost(study)
    history.write_text(history.read_text() + '{"user_id": "an')
    assert read_potato(study).set_index("item_id").loc[item, "answered"]
    lines = history.read_text().splitlines()
    history.write_text("\n".join([lines[0][:-9], *lines[1:]]))
    with pytest.raises(StudyError, match="annotation_history.jsonl, line 1 is not whole JSON"):
        read_potato(study)


def test_how_a_text_was_typed_comes_from_the_database_of_notes(run, study):
    file, item, _ = last_lost(study)
    rows = [
        {"active_ms": 400, "final_chars": 4, "pasted_chars": 0},
        {"active_ms": 100, "final_chars": 20, "pasted_chars": 16, "external_insert_chars": 16},
    ]
    with closing(sqlite3.connect(study / "project.sqlite")) as database:
        database.execute(
            "CREATE TABLE typing_sessions (user_id, instance_id, schema_name, label_name, ended_at,"
            " summary)"
        )
        for number, row in enumerate(rows):
            note = ("ann", item, "reason", "text_box", number, json.dumps(row))
            database.execute("INSERT INTO typing_sessions VALUES (?, ?, ?, ?, ?, ?)", note)
        database.commit()
    page = read_potato(study).set_index("item_id").loc[item]
    assert page[["typing_ms", "pasted_share"]].tolist() == [500, 0.8]
    assert page.dropna().index.intersection(QUESTIONS).tolist() == [
        "preference",
        "strength",
        "reason",
    ]
    (study / "project.sqlite").write_bytes(b"SQLite format 3\0cut")
    with pytest.raises(StudyError, match="project.sqlite cannot be read"):
        read_potato(study)


def test_consent_withdrawn_on_the_first_page_counts_from_the_history_too(run, study):
    file = answer_seat(study, "seat-001", "ann", {})
    note_history(file, "ann", ("__phase_page__", "consent_agree", "no", "no"))
    assert read_potato(study).empty


# Writing study


def writing_study(run, *, name=None, **behaviour):
    settings = load_settings(run)
    settings["reply"] |= {"writers_per_history": 2, "n_writers": 5, "spare": 0}
    folder = write_study(run, "reply", settings=settings, name=name)
    items = assignment(folder).query("seat == 'seat-001'")["item_id"].tolist()
    texts = ["I am glad you wrote.", " ".join(["long"] * 41)]
    summary = {
        "reply:::text_box": (
            {
                "final_chars": 20,
                "pasted_chars": 0,
                "external_insert_chars": 0,
                "active_ms": 9000,
            }
            | behaviour
        )
    }
    data = {item: {"total_time_ms": 45_000, "typing_summaries": summary} for item in items}
    answers = {item: {"reply": text} for item, text in zip(items, texts, strict=True)}
    answer_seat(folder, "seat-001", "ann", answers, instance_id_to_behavioral_data=data)
    return folder


def test_replies_of_people_are_human_and_their_writers_coded(run):
    imported = import_study(run, writing_study(run))
    assert imported.responders[["responder", "responder_kind"]].to_numpy().tolist() == [
        ["human", "human"]
    ]
    replies = imported.replies
    assert replies["author_id"].str.startswith("writer-").all()
    assert replies["typing_ms"].tolist() == [9000, 9000]
    assert replies["total_ms"].tolist() == [45_000, 45_000]
    assert sorted(replies["flags"].tolist()) == [[], ["over_40_words"]]
    imported.write(run)
    assert set(run.read("replies")["responder"]) == {"person", "model", "human"}
    comparisons = pair_replies(run.read("replies"), rng=np.random.default_rng(1))
    assert "human" in set(comparisons["responder_a"]) | set(comparisons["responder_b"])


@pytest.mark.parametrize(("pasted_chars", "flagged"), [(20, True), (10, True), (9, False)])
def test_a_text_of_which_half_or_more_was_pasted_is_flagged(run, pasted_chars, flagged):
    """Of 20 letters."""
    replies = import_study(run, writing_study(run, pasted_chars=pasted_chars)).replies
    assert [("pasted" in flags) for flags in replies["flags"]] == [flagged, flagged]


def test_the_command_imports_and_says_what(run, capsys):
    writing_study(run)
    assert main([str(run.folder), "reply"]) == 0
    said = capsys.readouterr().out
    assert "1 people, 0 verdicts, 2 replies; 0 withdrew" in said
    assert "keys/people.csv" in said
    assert main([str(run.folder), "nothing"]) == 1
    assert "There is no nothing" in capsys.readouterr().err


def test_the_command_runs_as_it_is_written_in_the_book(run):
    command = [sys.executable, "-m", "heart_collect.people.raters", str(run.folder), "rating"]
    done = subprocess.run(command, cwd=run.root, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "holds no answers" in done.stderr


# CSV


@pytest.fixture
def compared(run):
    run.write("comparisons", pair_replies(run.read("replies"), rng=np.random.default_rng(1)))
    return run


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


def test_a_plain_csv_becomes_verdicts(compared):
    imported = import_study(compared, csv_file(compared, GOOD), statement=STATEMENT)
    verdicts = imported.verdicts.set_index("margin", drop=False)
    # model-h00 is the smaller id, so it is a.
    assert verdicts.loc[3, ["verdict", "order", "seconds"]].tolist() == ["b", "ba", 12.5]
    assert verdicts.loc[5, ["verdict", "order", "rationale"]].tolist() == [
        "a",
        "ab",
        "short, clear",
    ]
    assert imported.verdicts["state"].value_counts().to_dict() == {"valid": 3, "abstained": 1}
    assert not imported.verdicts["simulated"].any()
    assert len(imported.raters) == 4


def test_a_csv_separated_by_another_mark_is_read(compared):
    other = GOOD.replace("short, clear", "short and clear").replace(",", ";")
    assert len(import_study(compared, csv_file(compared, other), statement=STATEMENT).verdicts) == 4


def test_answers_that_a_program_gave_are_marked_in_every_table(compared):
    imported = import_study(compared, csv_file(compared, GOOD), statement=STATEMENT, simulated=True)
    assert all(table["simulated"].all() for table in (imported.verdicts, imported.raters))
    imported.write(compared)
    [part] = compared.parts("verdicts")
    assert compared.manifest["tables"][f"verdicts/{part}"]["origin"] == "simulated"


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (
            lambda text: text.replace("choice", "winner"),
            "unknown winner .*missing choice.*as a file for --reading:\ncolumns:\n  winner: choice",
        ),
        (
            lambda text: text.replace("left,3", "A,3"),
            "choice: expected one of left, .* line 2 of votes.csv has 'A'",
        ),
        (
            lambda text: text.replace("left,3", "left,7"),
            "margin: expected a whole number .* line 2 of votes.csv has 7",
        ),
        (
            lambda text: text.replace("ann,person-h00", "ann,"),
            "answers.left: expected .* line 2 of votes.csv has nothing",
        ),
        (
            lambda text: text.replace("ann,", ","),
            "answers.rater: expected text, .* line 2 of votes.csv has nothing",
        ),
        (
            lambda text: text.replace("12.5", "soon"),
            "seconds: expected a number of .* line 2 of votes.csv has 'soon'",
        ),
        (
            lambda text: text[:-8],
            (
                "line 5 of votes.csv has fewer cells than the header. The file may have been cut"
                " short there"
            ),
        ),
        (
            lambda text: text.replace('clear"', "clear"),
            "cannot be read as CSV .* may have been cut short",
        ),
        (lambda text: text.splitlines()[0] + "\n", "holds no answer"),
        (
            lambda text: text.replace("ann,person-h00,model-h00", "ann,person-h00,model-h09"),
            "line 2 of votes.csv: 'person-h00' on the left of 'model-h09' was never shown",
        ),
        (
            lambda text: text.replace("cy,", "ben,"),
            (
                "2 rows repeat another row's rater, left, right, dimension; .* line 3 of votes.csv:"
                " .* line 4 of votes.csv: "
            ),
        ),
        (
            lambda text: text.replace("ben,", "Ann,"),
            (
                "rater: line 2 of votes.csv has a word and line 3 of votes.csv has a word, which"
                " differ in capitals"
            ),
        ),
    ],
)
def test_a_csv_that_does_not_fit_is_refused_with_its_line(compared, spoil, message):
    with pytest.raises(ValueError, match=f"(?s){message}"):
        import_study(compared, csv_file(compared, spoil(GOOD)), statement=STATEMENT)


def test_the_same_pair_with_its_sides_changed_is_a_second_order_of_an_imported_file_too(compared):
    both = GOOD.replace("cy,model-h00,person-h00", "ben,person-h00,model-h00")
    verdicts = import_study(compared, csv_file(compared, both), statement=STATEMENT).verdicts
    twice = verdicts[verdicts["rater"].duplicated(keep=False)]
    assert sorted(twice["order"]) == ["ab", "ba"]


def test_an_imported_file_may_have_headers_and_words_of_its_own_and_rejected_rows(compared):
    batch = "WorkerId,Input.left,Input.right,Answer.choice,AssignmentStatus,Approve,Reject\n"
    batch += "A1XYZ23456789,person-h00,model-h00,L,Approved\nA2XYZ23456789,model-h00,person-h00,R,Rejected\n"
    named = {
        "WorkerId": "rater",
        "Input.left": "left",
        "Input.right": "right",
        "Answer.choice": "choice",
    }
    how = {
        "columns": named,
        "words": {"L": "left", "R": "right"},
        "only": {"AssignmentStatus": "Approved"},
    }
    imported = import_study(compared, csv_file(compared, batch), statement=STATEMENT, **how)
    assert imported.verdicts[["verdict", "order"]].to_numpy().tolist() == [["b", "ba"]]
    with pytest.raises(
        StudyError, match="1 of 2 rows may not count: AssignmentStatus is 'Rejected'"
    ):
        import_study(
            compared,
            csv_file(compared, batch),
            statement=STATEMENT,
            columns=named,
            words=how["words"],
        )


def test_a_csv_needs_a_rater_statement_too(compared, tmp_path, capsys):
    file = csv_file(compared, GOOD)
    with pytest.raises(StudyError, match="statement lacks population, language, pay"):
        import_study(compared, file)
    said = tmp_path / "statement.yaml"
    said.write_text("population: friends\nlanguage: English\npay: none\n")
    assert main([str(compared.folder), str(file), "--statement", str(said)]) == 0
    assert "4 people, 4 verdicts" in capsys.readouterr().out
    assert set(compared.read("raters")["population"]) == {"friends"}
    said.write_text("friends")
    assert main([str(compared.folder), str(file), "--statement", str(said)]) == 1
    assert "statement.yaml: the whole is 'friends', expected a mapping" in capsys.readouterr().err


# Several imports side by side


def test_two_rating_studies_a_writing_study_and_two_files_of_one_name_stand_side_by_side(
    compared, study, tmp_path
):
    answer_seat(study, "seat-001", "ann", seat_answers(study, "seat-001"))
    import_study(compared, study).write(compared)
    second = rating_study(compared, name="later")
    answer_seat(second, "seat-001", "bea", seat_answers(second, "seat-001"))
    import_study(compared, second).write(compared)
    import_study(compared, writing_study(compared)).write(compared)
    for folder, rater in (("one", "cleo"), ("other", "dee")):
        file = tmp_path / folder / "votes.csv"
        file.parent.mkdir()
        file.write_text(f"rater,left,right,choice\n{rater},person-h00,model-h00,left\n")
        import_study(compared, file, statement=STATEMENT).write(compared)
    assert sorted(compared.read("verdicts")["rater"].value_counts()) == [1, 1, 5, 5]
    assert compared.read("raters")["study"].nunique() == 5
    assert len(compared.read("replies")) == 12
    assert set(compared.read("verdicts")["comparison_id"]) <= set(
        compared.read("comparisons")["comparison_id"]
    )
    assert compared.read("responders")["responder"].tolist() == ["human"]


def test_a_study_or_a_file_imported_again_replaces_its_own_rows_only(compared, study):
    answer_seat(study, "seat-001", "gil", seat_answers(study, "seat-001"))
    import_study(compared, study).write(compared)
    import_study(compared, csv_file(compared, GOOD), statement=STATEMENT).write(compared)
    assert len(compared.read("verdicts")) == 5 + 4
    import_study(
        compared, csv_file(compared, "\n".join(GOOD.splitlines()[:3])), statement=STATEMENT
    ).write(compared)
    assert len(compared.read("verdicts")) == 5 + 2
    answer_seat(study, "seat-002", "hal", seat_answers(study, "seat-002"))
    import_study(compared, study, withdrawn=["gil"]).write(compared)
    assert sorted(compared.read("verdicts")["rater"].value_counts()) == [1, 1, 5]
    assert len(compared.read("raters")) == 3


def test_the_same_answers_from_another_place_are_refused_and_nothing_is_written(compared, tmp_path):
    import_study(compared, csv_file(compared, GOOD), statement=STATEMENT).write(compared)
    moved = tmp_path / "moved.csv"
    moved.write_text(GOOD)
    before = {file: file.read_bytes() for file in compared.folder.rglob("*.parquet")}
    with pytest.raises(
        StudyError,
        match=r"4 of 4 verdicts .* already, .*'people-votes-\w{8}'",
    ):
        import_study(compared, moved, statement=STATEMENT).write(compared)
    assert {file: file.read_bytes() for file in compared.folder.rglob("*.parquet")} == before


def test_what_a_file_s_rows_are_about_does_not_change_with_other_imports(compared, study):
    file = csv_file(compared, GOOD)
    alone = import_study(compared, file, statement=STATEMENT).verdicts
    answer_seat(study, "seat-001", "ann", seat_answers(study, "seat-001"))
    import_study(compared, study).write(compared)
    beside = import_study(compared, file, statement=STATEMENT).verdicts
    pd.testing.assert_frame_equal(alone, beside)


def test_somebody_who_writes_in_two_studies_has_two_replies(run):
    import_study(run, writing_study(run)).write(run)
    import_study(run, writing_study(run, name="second")).write(run)
    written = run.read("replies").query("responder == 'human'")
    assert (len(written), written["author_id"].nunique(), written["reply_id"].nunique()) == (
        4,
        1,
        4,
    )


def test_the_answers_to_a_rehearsal_count_as_a_rehearsal_s(run, study):
    answer_seat(study, "seat-001", "ann", seat_answers(study, "seat-001"))
    import_study(run, study).write(run)
    [note] = note_tables(run, tables=["verdicts"])
    assert note.rows == {"rehearsal": 5}


# Another tool's export


def test_an_export_of_label_studio_is_read_by_its_paths(compared):
    task = {
        "id": 7,
        "data": {"left_reply": "person-h00", "right_reply": "model-h00"},
        "annotations": [
            {
                "completed_by": 3,
                "was_cancelled": False,
                "result": [{"type": "pairwise", "value": {"selected": "left"}}],
            }
        ],
    }
    file = compared.folder / "export.json"
    file.write_text(json.dumps([task]))
    imported = import_study(
        compared,
        file,
        statement=STATEMENT,
        columns={
            "*": None,
            "annotations.completed_by": "rater",
            "data.left_reply": "left",
            "data.right_reply": "right",
            "annotations.result.value.selected": "choice",
        },
        only={"annotations.was_cancelled": "false", "annotations.result.type": "pairwise"},
    )
    assert imported.verdicts["verdict"].tolist() == ["b"]


def test_a_file_that_is_not_there_is_named(compared):
    with pytest.raises(StudyError, match="no such file"):
        read_answers(compared.folder / "absent.csv")


def test_potato_s_times_and_pastes_are_read(run, study):
    answers = seat_answers(study, "seat-001")
    typed = {
        "reason:::text_box": {
            "final_chars": 40,
            "pasted_chars": 30,
            "external_insert_chars": 30,
            "active_ms": 800,
        }
    }
    data = {item: {"total_time_ms": 12_000, "typing_summaries": typed} for item in answers}
    answer_seat(study, "seat-001", "ann", answers, instance_id_to_behavioral_data=data)
    pages = read_potato(study)
    assert pages[
        ["seconds", "typing_ms", "pasted_share"]
    ].drop_duplicates().to_numpy().tolist() == [[12, 800, 0.75]]
    assert all(flags == ["pasted"] for flags in import_study(run, study).verdicts["flags"])


def test_a_history_that_went_missing_is_named(run, study):
    answer_seat(study, "seat-001", "ann", seat_answers(study, "seat-001"))
    histories = run.read("histories")
    run.write("histories", histories[histories["history_id"] != "h00"])
    with pytest.raises(StudyError, match="no history 'h00' any more"):
        import_study(run, study)


def test_nothing_is_written_before_all_fits(run, study):
    answer_seat(
        study, "seat-001", "ann", seat_answers(study, "seat-001") | {"strange": {"preference": "A"}}
    )
    before = sorted(run.folder.rglob("*.parquet"))
    with pytest.raises(StudyError):
        import_study(run, study)
    assert sorted(run.folder.rglob("*.parquet")) == before
    assert not (run.folder / "keys").exists()
    assert isinstance(pd.read_csv(study / "assignment.csv"), pd.DataFrame)
