"""The gate from runs to reports: names read, runs joined only if they match, files written, and a
build that stops."""

from xml.etree import ElementTree

import numpy as np
import pandas as pd
import pytest
from gate_case import DIMENSIONS, THETA, write_run

from heart_utils.gate import GateFailedError, GateRule, compare_responders
from heart_utils.report.commands import (
    GateError,
    plot_drops,
    read_sides,
    report_text,
    write_reports,
)
from heart_utils.runs import RunError, open_run

OTHERS = {"x": 1.4, "y": -1.4}


def run_gate(baseline, candidate, *, run=None, protocol=None, **options):
    """However few the dialogues: most of these tests are of what happens to a verdict, not of when
    there is one."""
    rule = GateRule(**{"max_detectable": np.inf, "n_resamples": 50, **options})
    sides = read_sides(baseline, candidate, run=run, protocol=protocol)
    return sides.compare(rule=rule, rng=np.random.default_rng(1))


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A run with the baseline, one with a worse candidate, and one with both."""
    folder = tmp_path_factory.mktemp("runs")
    write_run(folder / "before", THETA)
    write_run(folder / "again", THETA, seed=2)
    write_run(folder / "after", {"new": -2.0} | OTHERS, seed=2)
    write_run(folder / "one", THETA | {"vendor/new:free": -2.0, "alike": 0.1})
    return folder


@pytest.fixture(scope="module")
def failing(runs):
    return run_gate(f"{runs}/before:old", f"{runs}/after:new")


def test_two_runs_are_joined_over_their_common_opponents(runs, failing):
    verdicts = read_sides(f"{runs}/before:old", f"{runs}/after:new").verdicts
    pairs = {*zip(verdicts["responder_a"], verdicts["responder_b"], strict=True)}
    assert pairs == {("old", "x"), ("old", "y"), ("x", "y"), ("new", "x"), ("new", "y")}
    assert len(verdicts) == 24 * 5 * len(DIMENSIONS)  # two orders made one
    assert failing.table["outcome"].tolist() == ["failed", "failed"]


def test_one_responder_in_two_runs_carries_the_run_in_its_name(runs):
    sides = f"{runs}/before:old", f"{runs}/again:old"
    gate = run_gate(*sides, max_inconsistent=0.7)  # this judge turns in two pairs of five
    assert (gate.baseline, gate.candidate) == ("before:old", "again:old")
    gate.require_pass()


def test_two_responders_of_one_run_meet_each_other_too(runs):
    one = str(runs / "one")
    verdicts = read_sides("old", "vendor/new:free", run=one).verdicts
    assert {"old", "vendor/new:free"} < {*verdicts["responder_a"], *verdicts["responder_b"]}
    assert run_gate("old", "vendor/new:free", run=one).outcome == "failed"
    run_gate("old", "alike", run=one).require_pass()


UNLIKE = {
    r"all protocols: 0 in common, 1 for 'old' alone \(heart\); 1 for 'new' alone \(heart-release\)": {
        "protocol": "heart-release"
    },
    "do not share all histories: 20 in common, 4 for 'old' alone": {"n": 20},
    "do not share all raters: 0 in common": {"judge": "another judge"},
    "24 histories have the same name but other words in 'before' and 'after', such as 'h0'": {
        "words": " Really."
    },
    r"48 replies of opponents have .* other words in 'before' and 'after', such as \('x', 'h0'\)": {
        "opponents_say": " again"
    },
    "opponent: x, y .* 'before', u, v .* 'after'": {"theta": {"new": 0.0, "u": 0.4, "v": -0.4}},
}


@pytest.mark.parametrize("message", UNLIKE)
def test_runs_that_do_not_match_are_refused(runs, tmp_path, message):
    write_run(tmp_path / "after", **{"theta": {"new": 0.0} | OTHERS, **UNLIKE[message]})
    with pytest.raises(GateError, match=message):
        run_gate(f"{runs}/before:old", f"{tmp_path}/after:new")


@pytest.mark.parametrize(
    ("baseline", "candidate", "run", "error", "message"),
    [
        ("old", "nobody", "before", GateError, "'nobody' .* 'before'; there are old, x, y"),
        ("nowhere:old", "after:new", None, GateError, "'nowhere:old' names no run .*Runs here: "),
        ("old", "x", None, GateError, "'old' names no run that is here. Write run:responder"),
        ("before:old", "after:nobody", None, GateError, "'nobody' .* 'after'; there are new, x, y"),
        ("old", "x", "nowhere", RunError, "There is no run"),
    ],
)
def test_names_that_are_not_there_list_those_that_are(
    runs, monkeypatch, baseline, candidate, run, error, message
):
    monkeypatch.chdir(runs)
    sides = [
        f"./{name}" if name[:6] in ("before", "after:") else name for name in (baseline, candidate)
    ]
    with pytest.raises(error, match=message):
        read_sides(*sides, run=run and f"./{run}")


def test_peoples_verdicts_do_not_enter_and_of_two_protocols_one_is_chosen(runs, tmp_path):
    rows = open_run(runs / "one").read("verdicts")
    run = write_run(tmp_path / "two", {"old": 0.0, "alike": 0.0})
    run.write("verdicts", rows.assign(rater="somebody", rater_kind="human"), part="people")
    run.write("verdicts", pd.concat([rows, rows.assign(protocol="heart-release")]))
    sides = {"baseline": "old", "candidate": "alike", "run": str(run.folder)}
    with pytest.raises(GateError, match="under heart, heart-release; choose one"):
        read_sides(**sides)
    with pytest.raises(GateError, match="by a judge .* under 'likert'; there are heart, heart-re"):
        read_sides(**sides, protocol="likert")
    verdicts = read_sides(**sides, protocol="heart").verdicts
    assert {*verdicts["protocol"], *verdicts["rater"]} == {"heart", "judge"}


def test_reports_are_written_alike_each_time_and_then_the_build_stops(failing, tmp_path):
    files = write_reports(failing, tmp_path / "out", note="A note with <brackets>.")
    again = write_reports(failing, tmp_path / "two", note="A note with <brackets>.")
    assert [file.name for file in files] == ["gate.html", "gate.xml", "gate.md"]
    assert [file.read_bytes() for file in files] == [file.read_bytes() for file in again]
    page = files[0].read_text(encoding="utf-8")
    figure = '<figure><div role="img" aria-label="Drop by dimension'
    for said in ("new did not pass against old", "&lt;brackets&gt;", figure, "<svg ", "Simulated"):
        assert said in page
    names = ("http://www.w3.org/", "http://purl.org/", "http://creativecommons")
    assert page.count("http://") == sum(page.count(name) for name in names)
    with pytest.raises(GateFailedError, match="attunement: worse than the baseline; drop"):
        failing.require_pass()


def cannot_tell(dimension="overall", **rule):
    """Ask a judge whose two orders contradict each other every time."""
    rows = pd.DataFrame({"dialogue_id": [f"d{i}" for i in range(9)], "responder_a": "old"})
    rows = rows.assign(responder_b="new", history_id=rows["dialogue_id"], rater="judge")
    rows = rows.assign(dimension=dimension, state="inconsistent", verdict=None)
    rng, sides = np.random.default_rng(1), {"baseline": "old", "candidate": "new"}
    return compare_responders(rows, rule=GateRule(**rule), rng=rng, **sides)


def test_junit_counts_failures_and_errors(failing):
    suite = ElementTree.fromstring(report_text(failing, "gate.xml").split("\n", 1)[1])
    assert [suite.get(name) for name in ("tests", "failures", "errors")] == ["2", "2", "0"]
    messages = [failure.get("message") for failure in suite.iter("failure")]
    assert all("worse than the baseline" in message for message in messages)
    cannot = cannot_tell("<&>")
    suite = ElementTree.fromstring(report_text(cannot, "gate.xml").split("\n", 1)[1])
    assert [suite.get(name) for name in ("failures", "errors")] == ["0", "1"]
    with pytest.raises(GateFailedError, match="inconclusive on 'new' against 'old'. <&>: no verdi"):
        cannot.require_pass()


def test_a_drop_that_nobody_knows_is_on_the_page_and_not_drawn_as_zero():
    cannot = cannot_tell()
    assert "cannot tell" in report_text(cannot, "gate.html")
    ax = plot_drops(cannot)
    drawn = [line.get_xdata() for line in ax.lines if line.get_label() == "cannot tell"]
    assert all(pd.isna(ends).all() for ends in drawn)
    assert "no estimate" in [text.get_text() for text in ax.texts]


def test_the_summary_is_a_table_that_holds_each_dimension(failing):
    lines = report_text(failing, "gate.md").splitlines()
    rows = [line.split(" | ")[0].strip("| ") for line in lines if line.startswith("| ")]
    assert lines[0] == "## new did not pass against old"
    assert rows[2:] == list(DIMENSIONS)
    assert {line.count("|") for line in lines if line.startswith("|")} == {11}


@pytest.mark.parametrize(
    ("mode", "alpha", "series"), [("regression", 0.05, "34%"), ("non-inferiority", 0.01, "8%")]
)
def test_the_report_says_that_the_error_rate_is_for_one_run(mode, alpha, series):
    """1 - 0.95^8 = 0.337 and 1 - 0.99^8 = 0.077: eight runs against one baseline, were their luck
    not shared."""
    gate = cannot_tell(mode=mode, alpha=alpha)
    summary = report_text(gate, "gate.md")
    assert f"error rate {alpha:g} for this run" in summary
    assert f"with a probability of up to {series}" in summary
    assert f"one-sided {100 * (1 - alpha):g}% bounds" in report_text(gate, "gate.html")


def test_a_judge_that_reads_nothing_passes_nobody():
    """The sample's embedded judge follows the order in every pair of these two."""
    gate = run_gate("reference", "echo", run="sample", protocol="heart")
    with pytest.raises(GateFailedError, match=r"(\d+) of \1 pairs .* 50% or more is no pass"):
        gate.require_pass()
