"""A gate that knows its judge: only a record that fits the judge as it is now lets it pass or fail
a build."""

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
SIDES = ["responder_a", "responder_b"]


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


@pytest.fixture(scope="module")
def answers(folder):
    """The judge's decided answers on the baseline, one a pair."""
    rows = load_verdicts(folder / "old.csv")
    return rows[rows["verdict"].isin(["a", "b"]) & (rows["order"] == "ab")]


def by_people(rows, right, seed, **columns):
    """People say what the judge says in a share of votes, and the opposite in the rest."""
    opposite = rows["verdict"].map({"a": "b", "b": "a"})
    same = np.random.default_rng(seed).random(len(rows)) < right
    return rows.assign(verdict=rows["verdict"].where(same, opposite), order=None, **columns)


def record_of(folder, answers, name, *, right, n=300, seed=5):
    """Calibrate the judge on people who say what it says in a share of `n` votes."""
    asked = answers.drop_duplicates("pair_id").sample(n, replace=True, random_state=seed)
    raters = [f"p{number}" for number in range(n)]
    people = by_people(asked.reset_index(drop=True), right, seed, rater_kind="human", rater=raters)
    judge, labels = load_verdicts(folder / "old.csv"), LabelSource("a test", valid_days=30)
    record = calibrate_judge(judge, people, bound_to=NOW, labels=labels, n_resamples=50)
    return record.save(folder / f"{name}.json")


@pytest.fixture(scope="module")
def good(folder, answers):
    return record_of(folder, answers, "good", right=0.97)


def gate(folder, candidate, *options):
    """Return the exit code of a gate that finds large drops alone."""
    sides = [str(folder / "old.csv"), str(folder / candidate)]
    return main([*sides, "--max-detectable", "400", *map(str, options)])


def asked(folder, record, least_lead=-1):
    judges = folder / "judges.yaml"
    return ["--require-calibration", record, "--judges", judges, "--least-lead", least_lead]


def test_a_calibrated_judge_decides_both_ways(folder, good, capsys):
    assert gate(folder, "worse.csv", *asked(folder, good)) == 1
    assert gate(folder, "alike.csv", *asked(folder, good)) == 0
    printed = capsys.readouterr().out
    assert re.search(r"responders that its record knows, the judge passes on at least 0\.", printed)
    assert "never met new: nothing shows what the judge passes on there" in printed


@pytest.mark.parametrize("candidate", ["worse.csv", "alike.csv"])
def test_where_no_record_fits_the_gate_neither_fails_nor_passes(folder, good, capsys, candidate):
    """The lead that is asked for is not shown; what was found is reported all the same."""
    assert gate(folder, candidate, *asked(folder, good, least_lead=0.9)) == 3
    printed = capsys.readouterr().out
    for said in ("lower end must lie above 0.9", "neither a pass nor a failure", "drop"):
        assert said in printed


def test_a_file_of_votes_must_be_told_what_its_judge_is(folder, good, capsys):
    assert gate(folder, "worse.csv", "--require-calibration", good) == 3
    assert "as --judges FILE" in capsys.readouterr().out


def test_an_edited_record_is_bad_input(folder, good, capsys):
    edited = folder / "edited.json"
    edited.write_text(good.read_text().replace('"n_labels": 300', '"n_labels": 900'))
    assert gate(folder, "worse.csv", *asked(folder, edited)) == 2
    assert "changed after it was saved" in capsys.readouterr().err


def test_the_limits_shrink_by_what_the_judge_passes_on(folder, answers, capsys):
    """Agreement 0.75 passes on half of a difference, so what must be found shrinks to less than
    half."""
    record = record_of(folder, answers, "half", right=0.75, n=2000)
    gate(folder, "alike.csv", "--max-detectable", 1)
    found = float(re.search(r"a drop of (\d+) would be found", capsys.readouterr().out)[1])
    codes = {(1.5, False): 0, (1.5, True): 3, (3, True): 0}
    for (times, calibrated), code in codes.items():
        options = asked(folder, record) if calibrated else []
        assert gate(folder, "alike.csv", "--max-detectable", times * found, *options) == code


def people_on(folder, candidate, name, *, right=0.97, n_dialogues=25, kind="human", without=""):
    """Write people's votes on both sides in some dialogues."""
    rows = pd.concat([load_verdicts(folder / "old.csv"), load_verdicts(folder / candidate)])
    rows = rows[rows["verdict"].isin(["a", "b"]) & (rows["order"] == "ab")]
    rows = rows[rows["dialogue_id"].isin([f"h{number}" for number in range(n_dialogues)])]
    rows = rows.drop_duplicates(["dialogue_id", *SIDES])
    rows = rows[~rows[SIDES].eq(without).any(axis=1)]
    path = folder / f"{name}.csv"
    votes = by_people(rows, right, 3, rater="ann", rater_kind=kind)
    votes[[column for column in COLUMNS if column != "order"]].to_csv(path, index=False)
    return path


def test_people_on_a_part_of_the_dialogues_decide_with_the_judge_of_the_rest(folder, capsys):
    people = people_on(folder, "worse.csv", "people-worse")
    assert gate(folder, "worse.csv", "--people", people) == 1
    printed = capsys.readouterr().out
    assert re.search(r"rests on \d+ votes by people on 25 of 40 dialogues", printed)


def test_a_judge_against_people_cannot_stop_a_candidate_that_they_hold_equal(folder):
    """The judge says worse; people say the opposite, and an interval of their opinion follows
    them."""
    assert gate(folder, "worse.csv") == 1
    people = people_on(folder, "worse.csv", "against", right=0.3)
    assert gate(folder, "worse.csv", "--people", people) != 1


def test_too_few_votes_by_people_are_named_with_their_hours(folder, capsys):
    votes = people_on(folder, "alike.csv", "few", n_dialogues=12)
    assert gate(folder, "alike.csv", "--max-detectable", 40, "--people", votes) == 3
    needed = r"About \d+ more are missing\. \d+ labels cost people about \d+\.\d hours"
    assert re.search(needed, capsys.readouterr().out)


@pytest.mark.parametrize(
    ("people", "options", "message"),
    [
        ({"kind": "model"}, [], "takes people's alone"),
        ({"without": "new"}, [], "hold none on 'new'"),
        ({}, ["--anytime"], "without --anytime"),
    ],
)
def test_votes_that_cannot_correct_a_judge_are_refused(folder, capsys, people, options, message):
    votes = people_on(folder, "alike.csv", "refused", **people)
    assert gate(folder, "alike.csv", "--people", votes, *options) == 2
    assert message in capsys.readouterr().err


def test_labels_drawn_by_a_program_decide_nothing_about_measured_verdicts(folder, good):
    judge = load_verdicts(folder / "old.csv")
    drawn = replace(load_calibration(good), simulated=True).save(folder / "drawn.json")
    options = {"run": None, "judges": folder / "judges.yaml", "least_lead": -1, "least_labels": 100}
    measured = check_calibration(judge, [drawn], **options)
    simulated = check_calibration(judge.assign(simulated=True), [drawn], **options)
    assert not judge["simulated"].any()
    assert "labels drawn by a program" in measured.faults[0]
    assert simulated.faults == ()


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
    of_both = powered.covariances[0].loc[[best, worst], [best, worst]].to_numpy()
    se = np.sqrt(np.array([1, -1]) @ of_both @ np.array([1, -1]))
    points = 400 / np.log(10)
    assert found["drop"] == pytest.approx(points * (strength[best] - strength[worst]))
    assert found["se"] == pytest.approx(points * se)
    assert found["drop_low"] == pytest.approx(found["drop"] - stats.t.ppf(0.95, 39) * found["se"])
