"""A gate that knows its judge: only a record that fits the judge as it is now lets it pass or fail a build."""

import datetime
import re

import numpy as np
import pytest
import yaml
from gate_case import THETA, write_run

from heart_utils import load_verdicts
from heart_utils.judging.calibration import calibrate_judge
from heart_utils.report.gate_report import main

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
NOW = {"model": "openai/gpt-4o", "prompt": "Which is better?", "rubric": "overall", "options": {"temperature": 0}}
WIDE = ["--max-detectable", "400"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Votes on a baseline, a candidate like it and a worse one, people's votes on the baseline, and what the judge is."""
    folder = tmp_path_factory.mktemp("votes")
    for number, (name, strength) in enumerate({"old": 0.0, "worse": -2.0, "alike": 0.1}.items()):
        who = THETA if name == "old" else {"new": strength, "x": 1.4, "y": -1.4}
        run = write_run(folder / f"run-{name}", who, seed=number, n=40)
        rows = run.read("verdicts").query("dimension == 'attunement'")
        rows[COLUMNS].assign(rater="judge", dimension="overall").to_csv(folder / f"{name}.csv", index=False)
    (folder / "judges.yaml").write_text(yaml.safe_dump({"judge": NOW}))
    return folder


def record_of(folder, name, *, right, bound_to=NOW, n=300, seed=5, day=None):
    """Calibrate the judge on people who say what it says in a share of `n` votes, and the opposite in the rest."""
    judge = load_verdicts(folder / "old.csv")
    first = judge[judge["verdict"].isin(["a", "b"]) & (judge["order"] == "ab")].drop_duplicates("pair_id")
    people = first.sample(n, replace=True, random_state=seed).reset_index(drop=True)
    same = np.random.default_rng(seed).random(n) < right
    opposite = people["verdict"].map({"a": "b", "b": "a"})
    people = people.assign(
        verdict=people["verdict"].where(same, opposite), rater_kind="human", rater=[f"p{number}" for number in range(n)]
    ).assign(order=None)
    record = calibrate_judge(
        judge, people, bound_to=bound_to, labels_from="a test", made_on=day, valid_days=30, n_resamples=200
    )
    return record.save(folder / f"{name}.json")


def gate(folder, candidate, *options):
    return main([str(folder / "old.csv"), str(folder / candidate), *WIDE, *map(str, options)])


def test_a_calibrated_judge_decides_both_ways(folder, capsys):
    record = record_of(folder, "good", right=0.97)
    asked = ("--require-calibration", record, "--judges", folder / "judges.yaml", "--least-lead", -1)
    assert gate(folder, "worse.csv", *asked) == 1
    assert gate(folder, "alike.csv", *asked) == 0
    assert "passes on at least 0." in capsys.readouterr().out


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
def test_a_judge_without_a_fitting_record_neither_fails_nor_passes(folder, capsys, candidate, faulty, sentence):
    record = record_of(folder, "faulty", **{"right": 0.97, **faulty})
    assert gate(folder, candidate, "--require-calibration", record, "--judges", folder / "judges.yaml", "--least-lead", -1) == 3
    printed = capsys.readouterr().out
    assert sentence in printed
    assert "neither a pass nor a failure" in printed
    assert "drop" in printed  # what was found is reported all the same


def test_a_lead_that_is_asked_for_must_be_shown(folder, capsys):
    record = record_of(folder, "good", right=0.97)
    assert (
        gate(folder, "worse.csv", "--require-calibration", record, "--judges", folder / "judges.yaml", "--least-lead", 0.9) == 3
    )
    assert "lower end must lie above 0.9" in capsys.readouterr().out


def test_a_file_of_votes_must_be_told_what_its_judge_is(folder, capsys):
    record = record_of(folder, "good", right=0.97)
    assert gate(folder, "worse.csv", "--require-calibration", record) == 3
    assert "as --judges FILE" in capsys.readouterr().out


def test_an_edited_record_is_bad_input(folder, capsys):
    record = record_of(folder, "edited", right=0.97)
    record.write_text(record.read_text().replace('"n_labels": 300', '"n_labels": 900'))
    assert gate(folder, "worse.csv", "--require-calibration", record, "--judges", folder / "judges.yaml") == 2
    assert "changed after it was saved" in capsys.readouterr().err


def test_the_limits_shrink_by_what_the_judge_passes_on(folder, capsys):
    """Agreement 0.75 passes on half of a difference, so what must be found shrinks to less than half."""
    record = record_of(folder, "half", right=0.75, n=2000)
    asked = ("--require-calibration", record, "--judges", folder / "judges.yaml", "--least-lead", -1)
    gate(folder, "alike.csv", "--max-detectable", 1)
    detectable = float(re.search(r"a drop of (\d+) would be found", capsys.readouterr().out)[1])
    assert gate(folder, "alike.csv", "--max-detectable", 1.5 * detectable) == 0
    assert gate(folder, "alike.csv", "--max-detectable", 1.5 * detectable, *asked) == 3
    assert gate(folder, "alike.csv", "--max-detectable", 3 * detectable, *asked) == 0
