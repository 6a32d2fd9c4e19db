"""The record of a judge: its figures by hand, what it is bound to, when it expires, and on whose
labels it may rest."""

import datetime
import json

import numpy as np
import pandas as pd
import pytest

from heart_collect.judging.calibration import LabelSource, calibrate_judge
from heart_collect.judging.recipe import RecipeError, read_recipe
from heart_utils import (
    describe_judges,
    fit_boards,
    fit_ratings,
    load_verdicts,
    methods,
    open_run,
    repeat_reliability,
    write_leaderboard,
)
from heart_utils.ratings.verdicts import combine_orders
from heart_utils.report.calibration import CalibrationError, load_calibration
from heart_utils.report.leaderboard import leaderboard_html

JUDGE = {
    "model": "openai/gpt-4o",
    "prompt": "Which reply is better?",
    "rubric": "overall",
    "options": {"temperature": 0},
}
DAY = datetime.date(2026, 11, 1)
LABELS = LabelSource("a test", made_on=DAY, valid_days=90)
PEOPLE = ["ann", "bob", "cyd", "dee", "eve"]


def votes_on_pairs(n_dialogues=160, right=0.9, seed=1, lean_to_x=0.6):
    """Five people prefer x with a probability; the judge says the same with another one, whoever
    wrote."""
    rng = np.random.default_rng(seed)
    person = np.where(rng.random(n_dialogues) < lean_to_x, "a", "b")
    same = rng.random(n_dialogues) < right
    said = np.where(same, person, np.where(person == "a", "b", "a"))
    names = [f"d{number}" for number in range(n_dialogues)]
    common = {
        **dict.fromkeys(("dialogue_id", "history_id", "pair_id"), names),
        "responder_a": "x",
        "responder_b": "y",
        "dimension": "overall",
        "state": "valid",
        "protocol": "heart",
        "repeat": 0,
    }
    raters = np.resize(PEOPLE, n_dialogues)
    people = pd.DataFrame(common | {"verdict": person, "rater": raters, "order": None})
    judge = pd.DataFrame(common | {"verdict": said, "rater": "judge", "order": "ab"})
    return judge.assign(rater_kind="model"), people.assign(rater_kind="human")


def calibrate(judge, people, labels=LABELS, bound_to=JUDGE, n_resamples=50, **options):
    options = {"bound_to": bound_to, "labels": labels, "n_resamples": n_resamples, **options}
    return calibrate_judge(judge, people, **options)


@pytest.fixture(scope="module")
def record():
    return calibrate(*votes_on_pairs(), n_resamples=200)


def test_agreement_errors_lead_and_lean_to_length_are_those_counted_by_hand():
    judge, people = votes_on_pairs(n_dialogues=10)
    people["verdict"] = list("aaaaaabbbb")
    judge["verdict"] = list("aaaabbbbba")  # wrong on two of x's wins and one of y's
    words = pd.DataFrame({"words": [5, 5, 5, 5, -3, 4, -1, -1, -1, 2]}, index=judge["pair_id"])
    record = calibrate(judge, people, words=words)
    assert record.agreement == pytest.approx(7 / 10)
    assert record.wrongly_preferred == pytest.approx({"x": 1 / 10, "y": 2 / 10})
    assert record.wrongly_passed_over == pytest.approx({"x": 2 / 10, "y": 1 / 10})
    assert record.first_share == pytest.approx(5 / 10)  # a was shown first, and won five
    # of its errors it took b (longer), b (shorter), a (longer)
    assert record.longer_when_wrong == pytest.approx(2 / 3)


def test_repeats_say_how_often_it_answers_the_same():
    judge, people = votes_on_pairs(n_dialogues=20)
    turned = judge["verdict"].map({"a": "b", "b": "a"}).where(judge.index < 5, judge["verdict"])
    both = pd.concat([judge, judge.assign(repeat=1, verdict=turned)])
    record = calibrate(both, people)
    assert record.same_when_asked_again == pytest.approx(15 / 20)
    assert record.reliability == repeat_reliability(both, n_resamples=2)["reliability"].item()
    assert record.reliability_low < record.reliability < record.reliability_high


@pytest.mark.parametrize(
    ("part", "now", "days", "words"),
    [
        *(
            (part, JUDGE[part] + " ", 0, [f"{part} changed", "hours"])
            for part in ("model", "prompt", "rubric")
        ),
        ("options", {"temperature": 1}, 0, ["options changed", "hours"]),
        ("model", JUDGE["model"], 91, ["91 days old, 90 are allowed"]),
        ("model", JUDGE["model"], -1, ["still to come"]),
        ("model", JUDGE["model"], 0, []),
        ("model", JUDGE["model"], 90, []),
    ],
)
def test_a_record_of_a_good_judge_expires_with_each_of_its_parts_and_with_age(
    record, part, now, days, words
):
    faults = record.faults(bound_to=JUDGE | {part: now}, today=DAY + datetime.timedelta(days))
    assert len(faults) == bool(words)
    assert all(word in faults[0] for word in words)


def test_a_judge_that_follows_the_authors_names_alone_may_not_gate():
    judge, people = votes_on_pairs(lean_to_x=0.8)
    record = calibrate(judge.assign(verdict="a"), people, n_resamples=200)
    (fault,) = record.faults(bound_to=JUDGE, today=DAY)
    assert "lead over the authors' names" in fault


def test_too_few_labels_are_named_with_what_they_cost_and_a_judge_nothing_is_known_of(record):
    few = calibrate(*votes_on_pairs(n_dialogues=70, right=0.95), n_resamples=200)
    (fault,) = few.faults(bound_to=JUDGE, today=DAY)
    assert "70 labels by people; 100 are asked for. 30 labels cost people about 1.0 hours" in fault
    (fault,) = record.faults(today=DAY)
    assert "nothing says which model" in fault


def test_a_saved_record_is_the_same_and_an_edited_one_refused(record, tmp_path):
    path = record.save(tmp_path / "record.json")
    assert load_calibration(path) == record
    path.write_text(json.dumps(json.loads(path.read_text()) | {"lead_low": 0.5}))
    with pytest.raises(CalibrationError, match="changed after it was saved"):
        load_calibration(path)


@pytest.mark.parametrize(
    ("of_judge", "of_people", "message"),
    [
        ({}, {"rater_kind": "model"}, "never on another judge's"),
        ({"rater_kind": "human"}, {}, "rows by people"),
        ({"rater": ["j", "k"] * 80}, {}, "2 judges"),
        ({"pair_id": [f"o{n}" for n in range(160)]}, {}, "no pair in common"),
        ({}, {"verdict": "tie"}, "all are ties or failures"),
        ({}, {"dimension": "warmth"}, "No valid vote by a person is on 'overall'"),
        ({"dimension": "warmth"}, {}, "'judge' answered nothing on 'overall'; it answered warmth"),
        ({}, {"rater": "ann"}, "One person alone decided pairs"),
        ({}, {"rater": "judge"}, "not calibrated on its own answers"),
        ({"dialogue_id": "d"}, {"dialogue_id": "d"}, "Only one dialogue"),
    ],
)
def test_votes_that_calibrate_nothing_are_refused(of_judge, of_people, message):
    judge, people = votes_on_pairs()
    with pytest.raises(CalibrationError, match=message):
        calibrate(judge.assign(**of_judge), people.assign(**of_people))


def test_who_decided_nothing_is_no_second_person():
    judge, people = votes_on_pairs()
    idle = pd.concat([people.assign(rater="ann"), people.assign(rater="bob", verdict="tie")])
    with pytest.raises(CalibrationError, match="One person alone"):
        calibrate(judge, idle)


def test_a_judge_without_one_of_its_parts_an_address_and_days_gone_by_are_refused():
    parts = {"model": "m", "rubric": "r", "options": {}, "temperature": 0}
    with pytest.raises(CalibrationError, match="lacks prompt and has unknown temperature"):
        calibrate(*votes_on_pairs(), bound_to=parts)
    for label, days, said in (
        ("by ann@example.org", None, "labels_from"),
        (" ", None, "labels_from is empty"),
        ("a test", 0, "expected 1 or more"),
    ):
        with pytest.raises(ValueError, match=said):
            LabelSource(label, valid_days=days)


def test_the_identity_of_a_runs_judge_names_prompt_and_weights():
    recipe = read_recipe("sample")
    identity = recipe.identity_of("SmolLM2-135M-judge")
    assert "smollm2" in identity["model"].lower()
    assert len(identity["prompt"]) == 64
    with pytest.raises(RecipeError, match="has no judge 'nobody'; there are SmolLM2-135M-judge"):
        recipe.identity_of("nobody")
    with pytest.raises(RecipeError, match="does not ask by 'none'; it asks by heart"):
        recipe.identity_of("SmolLM2-135M-judge", protocol="none")


def test_a_record_says_lead_labels_date_and_expiry_in_words(record):
    words = record.describe(today=DAY)
    assert words.startswith(
        f"lead {record.lead:+.3f} [{record.lead_low:+.3f}, {record.lead_high:+.3f}], 160 labels by"
        " people"
    )
    assert words.endswith("people, 5 in all (a test), made on 2026-11-01, valid until 2027-01-30")
    assert record.describe(today=datetime.date(2027, 1, 31)).startswith("expired; lead")
    changed = {**JUDGE, "prompt": JUDGE["prompt"] + " "}
    assert record.describe(bound_to=changed, today=DAY).startswith("expired: prompt changed; lead")


@pytest.mark.parametrize(
    ("loads", "passes"), [([1, 1], 0), ([300, 1, 1], 0), ([300, 1], 0), ([60] * 5, 1)]
)
def test_few_people_or_one_who_gave_nearly_all_labels_may_not_decide(loads, passes):
    """The judge agrees in 90 % of 300 labels; five people of even load pass."""
    judge, people = votes_on_pairs(300)
    codes = np.repeat(PEOPLE[: len(loads)], np.ceil(np.array(loads) * 300 / sum(loads)).astype(int))
    people["rater"] = np.roll(codes, 7)[:300]
    record = calibrate(judge, people, n_resamples=200)
    assert record.n_people == len(loads)
    assert (record.faults(bound_to=JUDGE, today=DAY) == []) == passes


@pytest.mark.slow
def test_the_interval_of_a_record_holds_other_people_s_agreement():
    """Three people of taste: each agrees with the judge in a share of its own."""
    rng, held = np.random.default_rng(3), 0
    for _ in range(60):
        judge, people = votes_on_pairs(90, seed=rng.integers(2**32), right=1.0)
        share = np.clip(rng.normal(0.75, 0.08, 3), 0, 1)[np.arange(90) % 3]
        same = rng.random(90) < share
        opposite = people["verdict"].map({"a": "b", "b": "a"})
        people = people.assign(
            rater=np.resize(PEOPLE[:3], 90), verdict=people["verdict"].where(same, opposite)
        )
        record = calibrate(judge, people, n_resamples=20)
        held += record.agreement_low <= 0.75 <= record.agreement_high
    assert held >= 54  # over dialogues alone some 50


def test_a_person_who_answered_a_pair_twice_has_one_label(record):
    judge, people = votes_on_pairs()
    again = people.head(7).assign(repeat=1, verdict="tie")
    twice = calibrate(judge, pd.concat([people, again]))
    assert twice.n_labels == len(people)
    assert twice.agreement == record.agreement


@pytest.fixture(scope="module")
def two_judges():
    """Verdicts of a judge with a record and of one without."""
    judge, _ = votes_on_pairs()
    return pd.concat([judge, judge.assign(rater="other")], ignore_index=True)


def test_the_report_card_names_the_judge_without_a_record(record):
    grades = pd.DataFrame(
        {"rater": ["judge", "other"], "probe": "echo", "expected": "worse", "outcome": "recognised"}
    )
    cards = describe_judges(grades.assign(n=8, contradicted=0.0), records=[record]).set_index(
        "rater"
    )
    assert cards.loc["judge", "calibration"] == f"overall: {record.describe()}"
    assert cards.loc["other", "calibration"] == "not calibrated"


def test_the_leaderboard_prints_the_record_of_its_judge_in_each_file(
    two_judges, record, no_drawings, tmp_path
):
    boards = fit_boards(
        combine_orders(two_judges), by=["rater"], dimension="overall", n_resamples=0
    )
    csv, as_json, page, tex, *_ = write_leaderboard(boards, tmp_path, records=[record])
    for file in (csv, as_json, page, tex):
        written = file.read_text()
        assert f"{record.n_labels} labels by people" in written
        assert "not calibrated" in written
    table = pd.read_csv(csv).set_index("rater")["calibration"]
    assert set(table["judge"]) == {record.describe()}
    assert set(table["other"]) == {"not calibrated"}
    together = fit_ratings(combine_orders(two_judges), n_resamples=0).table
    assert "any other judge: not calibrated" in leaderboard_html(together, records=[record])
    _, people = votes_on_pairs()
    assert "calibrated" not in leaderboard_html(fit_ratings(people, n_resamples=0).table)


def test_the_methods_paragraph_reads_the_records_in_the_runs_folder(two_judges, record, tmp_path):
    run = open_run(tmp_path / "mine")
    run.write("verdicts", load_verdicts(two_judges))
    fit = fit_ratings(combine_orders(two_judges), n_resamples=0)
    assert "judge: not calibrated; other: not calibrated" in methods(run, fit)
    record.save(run.folder / "calibration" / "judge.json")
    assert f"judge: {record.describe()}; other: not calibrated" in methods(run, fit)
    (run.folder / "calibration" / "judge.json").write_text("{}")
    with pytest.raises(CalibrationError, match="judge.json"):
        methods(run, fit)
