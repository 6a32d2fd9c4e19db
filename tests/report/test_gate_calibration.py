"""A gate that knows its judge: only a record that fits the judge as it is now lets it pass or fail
a build."""

import datetime
import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import yaml
from gate_case import THETA, write_run
from scipy import stats

from heart_collect.judging.calibration import LabelSource, calibrate_judge
from heart_utils import Panel, load_verdicts, prediction_powered_ratings, simulate_study
from heart_utils.ratings.verdicts import combine_orders
from heart_utils.report.calibration import check_calibration, compare_powered, load_calibration
from heart_utils.report.commands import heart_gate as main

COLUMNS = [
    "history_id",
    "responder_a",
    "responder_b",
    "rater",
    "rater_kind",
    "dimension",
    "order",
    "verdict",
    "state",
    "protocol",
]
NOW = {
    "model": "openai/gpt-4o",
    "prompt": "Which is better?",
    "rubric": "overall",
    "options": {"temperature": 0},
}
WIDE = ["--max-detectable", "400"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Votes on a baseline, a candidate like it and a worse one, people's votes on the baseline, and
    what the judge is."""
    folder = tmp_path_factory.mktemp("votes")
    for number, (name, strength) in enumerate({"old": 0.0, "worse": -2.0, "alike": 0.1}.items()):
        who = THETA if name == "old" else {"new": strength, "x": 1.4, "y": -1.4}
        run = write_run(folder / f"run-{name}", who, seed=number, n=40)
        rows = run.read("verdicts").query("dimension == 'attunement'")
        rows[COLUMNS].assign(rater="judge", dimension="overall").to_csv(
            folder / f"{name}.csv", index=False
        )
    (folder / "judges.yaml").write_text(yaml.safe_dump({"judge": NOW}))
    return folder


def record_of(folder, name, *, right, bound_to=NOW, n=300, seed=5, day=None):
    """Calibrate the judge on people who say what it says in a share of `n` votes, and the opposite
    in the rest."""
    judge = load_verdicts(folder / "old.csv")
    first = judge[judge["verdict"].isin(["a", "b"]) & (judge["order"] == "ab")].drop_duplicates(
        "pair_id"
    )
    people = first.sample(n, replace=True, random_state=seed).reset_index(drop=True)
    same = np.random.default_rng(seed).random(n) < right
    opposite = people["verdict"].map({"a": "b", "b": "a"})
    people = people.assign(
        verdict=people["verdict"].where(same, opposite),
        rater_kind="human",
        rater=[f"p{number}" for number in range(n)],
    ).assign(order=None)
    record = calibrate_judge(
        judge,
        people,
        bound_to=bound_to,
        labels=LabelSource("a test", made_on=day, valid_days=30),
        n_resamples=200,
    )
    return record.save(folder / f"{name}.json")


def gate(folder, candidate, *options):
    return main([str(folder / "old.csv"), str(folder / candidate), *WIDE, *map(str, options)])


def test_a_calibrated_judge_decides_both_ways(folder, capsys):
    record = record_of(folder, "good", right=0.97)
    asked = (
        "--require-calibration",
        record,
        "--judges",
        folder / "judges.yaml",
        "--least-lead",
        -1,
    )
    assert gate(folder, "worse.csv", *asked) == 1
    assert gate(folder, "alike.csv", *asked) == 0
    printed = capsys.readouterr().out
    assert re.search(r"responders that its record knows, the judge passes on at least 0\.", printed)
    assert "never met new: nothing shows what the judge passes on there" in printed


@pytest.mark.parametrize("candidate", ["worse.csv", "alike.csv"])
@pytest.mark.parametrize(
    ("faulty", "sentence"),
    [
        ({"bound_to": {**NOW, "prompt": "Which is better? "}}, "prompt changed"),
        ({"bound_to": {**NOW, "model": "openai/gpt-4o-mini"}}, "model changed"),
        ({"n": 60}, "60 labels by people; 100 are asked for"),
        ({"right": 0.5}, "agrees with people more than a coin"),
        ({"day": datetime.date(2020, 1, 1)}, "30 are allowed"),
    ],
)
def test_a_judge_without_a_fitting_record_neither_fails_nor_passes(
    folder, capsys, candidate, faulty, sentence
):
    record = record_of(folder, "faulty", **{"right": 0.97, **faulty})
    assert (
        gate(
            folder,
            candidate,
            "--require-calibration",
            record,
            "--judges",
            folder / "judges.yaml",
            "--least-lead",
            -1,
        )
        == 3
    )
    printed = capsys.readouterr().out
    assert sentence in printed
    assert "neither a pass nor a failure" in printed
    assert "drop" in printed  # what was found is reported all the same


def test_a_lead_that_is_asked_for_must_be_shown(folder, capsys):
    record = record_of(folder, "good", right=0.97)
    assert (
        gate(
            folder,
            "worse.csv",
            "--require-calibration",
            record,
            "--judges",
            folder / "judges.yaml",
            "--least-lead",
            0.9,
        )
        == 3
    )
    assert "lower end must lie above 0.9" in capsys.readouterr().out


def test_a_file_of_votes_must_be_told_what_its_judge_is(folder, capsys):
    record = record_of(folder, "good", right=0.97)
    assert gate(folder, "worse.csv", "--require-calibration", record) == 3
    assert "as --judges FILE" in capsys.readouterr().out


def test_an_edited_record_is_bad_input(folder, capsys):
    record = record_of(folder, "edited", right=0.97)
    record.write_text(record.read_text().replace('"n_labels": 300', '"n_labels": 900'))
    assert (
        gate(
            folder, "worse.csv", "--require-calibration", record, "--judges", folder / "judges.yaml"
        )
        == 2
    )
    assert "changed after it was saved" in capsys.readouterr().err


def test_the_limits_shrink_by_what_the_judge_passes_on(folder, capsys):
    """Agreement 0.75 passes on half of a difference, so what must be found shrinks to less than
    half."""
    record = record_of(folder, "half", right=0.75, n=2000)
    asked = (
        "--require-calibration",
        record,
        "--judges",
        folder / "judges.yaml",
        "--least-lead",
        -1,
    )
    gate(folder, "alike.csv", "--max-detectable", 1)
    detectable = float(re.search(r"a drop of (\d+) would be found", capsys.readouterr().out)[1])
    assert gate(folder, "alike.csv", "--max-detectable", 1.5 * detectable) == 0
    assert gate(folder, "alike.csv", "--max-detectable", 1.5 * detectable, *asked) == 3
    assert gate(folder, "alike.csv", "--max-detectable", 3 * detectable, *asked) == 0


def people_on(folder, candidate, name, *, right=0.97, n_dialogues=25, kind="human"):
    """Write people's votes on both sides in some dialogues: a share says what the judge says, the
    rest the opposite."""
    rows = pd.concat([load_verdicts(folder / "old.csv"), load_verdicts(folder / candidate)])
    rows = rows[rows["verdict"].isin(["a", "b"]) & (rows["order"] == "ab")]
    rows = rows[rows["dialogue_id"].isin([f"h{number}" for number in range(n_dialogues)])]
    rows = rows.drop_duplicates(["dialogue_id", "responder_a", "responder_b"])
    same = np.random.default_rng(3).random(len(rows)) < right
    opposite = rows["verdict"].map({"a": "b", "b": "a"})
    votes = rows.assign(
        verdict=rows["verdict"].where(same, opposite), rater="ann", rater_kind=kind, order=None
    )
    path = folder / f"{name}.csv"
    votes[[column for column in COLUMNS if column != "order"]].to_csv(path, index=False)
    return path


def test_people_on_a_part_of_the_dialogues_decide_with_the_judge_of_the_rest(folder, capsys):
    assert (
        gate(folder, "worse.csv", "--people", people_on(folder, "worse.csv", "people-worse")) == 1
    )
    printed = capsys.readouterr().out
    assert re.search(r"rests on \d+ votes by people on 25 of 40 dialogues", printed)


def test_a_judge_against_people_cannot_stop_a_candidate_that_they_hold_equal(folder):
    """The judge says worse; people say the opposite, and an interval of their opinion follows
    them."""
    assert gate(folder, "worse.csv") == 1
    assert (
        gate(folder, "worse.csv", "--people", people_on(folder, "worse.csv", "against", right=0.3))
        != 1
    )


def test_too_few_votes_by_people_are_named_with_their_hours(folder, capsys):
    votes = people_on(folder, "alike.csv", "few", n_dialogues=12)
    assert gate(folder, "alike.csv", "--max-detectable", 40, "--people", votes) == 3
    assert re.search(
        r"About \d+ more are missing\. \d+ labels cost people about \d+\.\d hours",
        capsys.readouterr().out,
    )


def test_votes_by_models_are_not_peoples(folder, capsys):
    assert (
        gate(
            folder, "alike.csv", "--people", people_on(folder, "alike.csv", "models", kind="model")
        )
        == 2
    )
    assert "takes people's alone" in capsys.readouterr().err


def test_people_must_have_judged_both_sides(folder, capsys):
    votes = pd.read_csv(people_on(folder, "alike.csv", "one-side"))
    votes = votes[(votes["responder_a"] != "new") & (votes["responder_b"] != "new")]
    votes.to_csv(folder / "one-side.csv", index=False)
    assert gate(folder, "alike.csv", "--people", folder / "one-side.csv") == 2
    assert "hold none on 'new'" in capsys.readouterr().err


def test_looking_again_and_again_with_people_is_refused(folder, capsys):
    assert (
        gate(folder, "alike.csv", "--anytime", "--people", people_on(folder, "alike.csv", "again"))
        == 2
    )
    assert "without --anytime" in capsys.readouterr().err


def test_labels_drawn_by_a_program_decide_nothing_about_measured_verdicts(folder, capsys):
    judge = load_verdicts(folder / "old.csv")
    record = load_calibration(record_of(folder, "drawn", right=0.97))
    drawn = replace(record, simulated=True).save(folder / "drawn.json")
    asked = ("--require-calibration", drawn, "--judges", folder / "judges.yaml", "--least-lead", -1)
    assert not judge["simulated"].any()
    assert gate(folder, "worse.csv", *asked) == 3
    assert "labels drawn by a program" in capsys.readouterr().out
    calibrated = check_calibration(
        judge.assign(simulated=True),
        [drawn],
        run=None,
        judges=folder / "judges.yaml",
        least_lead=-1,
        least_labels=100,
    )
    assert calibrated.faults == ()


def test_the_interval_of_peoples_opinion_is_that_of_prediction_powered_ratings():
    """Where the judge copies people with independent errors, the drop and its standard error are
    that function's own."""
    panels = [Panel("human", 5, 1), Panel("model", 1, 1, discrimination=0.7)]
    study = simulate_study(
        rng=np.random.default_rng(4), strengths=3, n_dialogues=120, pairs="all", panels=panels
    )
    rows = combine_orders(study.verdicts)
    judged, people = (rows[rows["rater_kind"] == kind] for kind in ("model", "human"))
    people = people[people["dialogue_id"].isin(people["dialogue_id"].unique()[:40])]
    powered = prediction_powered_ratings(pd.concat([judged, people]))
    best, *_, worst = powered.table["responder"]
    found = compare_powered(judged, people, baseline=best, candidate=worst).table.iloc[0]
    strength = powered.table.set_index("responder")["strength"]
    covariance = powered.covariances[0]
    variance = (
        covariance.loc[best, best] + covariance.loc[worst, worst] - 2 * covariance.loc[best, worst]
    )
    assert found["drop"] == pytest.approx(400 / np.log(10) * (strength[best] - strength[worst]))
    assert found["se"] == pytest.approx(400 / np.log(10) * np.sqrt(variance))
    assert found["drop_low"] == pytest.approx(found["drop"] - stats.t.ppf(0.95, 39) * found["se"])
