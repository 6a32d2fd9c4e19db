"""Whom to pay is proposed with a reason, in a file for its owner alone; and an answer that was
changed later is told."""

import stat

import pytest
from study_builders import answer_seat, assignment, note_history, seat_answers, small_run

from heart_collect.people.raters import import_study, main, write_payments
from heart_collect.people.study import load_settings, write_study
from heart_utils.runs import read_csv_text


@pytest.fixture
def run(tmp_path):
    return small_run(tmp_path / "run", n_histories=12)


@pytest.fixture
def study(run):
    settings = load_settings(run)
    settings["rating"] |= {"raters_per_pair": 4, "load": 12, "n_checks": 3, "spare": 0}
    return write_study(run, "rating", settings=settings)


def preferring_the_model(study, seat):
    """Answer a seat as somebody who prefers one responder, whichever side it is on."""
    answers = seat_answers(study, seat)
    for row in assignment(study).query("seat == @seat and task == 'rate'").to_dict("records"):
        answers[row["item_id"]]["preference"] = "A" if row["order"] == "ab" else "B"
    return answers


def payments_of(run):
    return read_csv_text((run.folder / "keys" / "payments-rating.csv").read_text()).set_index(
        "person"
    )


def test_each_person_is_approved_reviewed_or_rejected_with_the_rule_s_reason(run, study, capsys):
    answer_seat(
        study, "seat-001", "5f1a2b3c4d5e6f7a8b9c0d1e", preferring_the_model(study, "seat-001")
    )
    answer_seat(study, "seat-002", "careless", seat_answers(study, "seat-002", pass_checks=False))
    half = dict(list(preferring_the_model(study, "seat-003").items())[:7])
    answer_seat(study, "seat-003", "stopped", half)
    hasty = seat_answers(study, "seat-004")
    times = {item: {"total_time_ms": 2_000, "typing_summaries": {}} for item in hasty}
    answer_seat(study, "seat-004", "hasty", hasty, instance_id_to_behavioral_data=times)
    assert main([str(run.folder), "rating"]) == 0
    assert "payments-rating.csv, with reasons: " in capsys.readouterr().out
    proposed = payments_of(run)
    assert proposed["decision"].to_dict() == {
        "5f1a2b3c4d5e6f7a8b9c0d1e": "approve",
        "careless": "reject",
        "stopped": "review",
        "hasty": "review",
    }
    assert proposed.loc["careless", "reason"] == "failed 3 of 3 attention checks; the rule allows 1"
    assert proposed.loc["stopped", "reason"].startswith("stopped after ")
    assert proposed.loc["hasty", "reason"].startswith("left out of the analysis as fast and ")


def test_the_file_of_payments_is_its_owner_s_alone_and_no_table_names_anybody(run, study):
    answer_seat(study, "seat-001", "5f1a2b3c4d5e6f7a8b9c0d1e", seat_answers(study, "seat-001"))
    imported = import_study(run, study)
    imported.write(run)
    file, _ = write_payments(run, imported)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    assert "5f1a2b3c4d5e6f7a8b9c0d1e" in file.read_text()
    assert b"5f1a2b3c4d5e6f7a8b9c0d1e" not in b"".join(
        table.read_bytes() for table in run.folder.rglob("*.parquet")
    )


def test_who_withdrew_has_worked_and_is_paid(run, study):
    for seat, name in (("seat-001", "ann"), ("seat-002", "ben")):
        answer_seat(study, seat, name, seat_answers(study, seat))
    assert main([str(run.folder), "rating", "--withdraw", "ben"]) == 0
    assert payments_of(run).loc["ben", ["decision", "reason"]].tolist() == [
        "approve",
        "withdrew their answers, having worked",
    ]


def test_an_answer_that_is_changed_after_another_page_is_flagged_and_told(run, study):
    answers = seat_answers(study, "seat-001")
    rated = [item for item in answers if ".check-" not in item]
    first, second = rated[:2]
    file = answer_seat(study, "seat-001", "ann", answers)
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
    with pytest.warns(
        UserWarning, match="1 answers were changed after another page had been answered"
    ):
        verdicts = import_study(run, study).verdicts
    flagged = verdicts[verdicts["flags"].map(lambda flags: "changed_later" in flags)]
    assert flagged["comparison_id"].tolist() == [first.split(".", 2)[2]]
    order = flagged["order"].item()
    assert flagged["verdict"].item() == order[1]  # B stood right
