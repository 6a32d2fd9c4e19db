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
from heart_utils.runs import RunError


def run_gate(baseline, candidate, *, run=None, protocol=None, **options):
    """However few the dialogues: most of these tests are of what happens to a verdict, not of when
    there is one."""
    rng = options.pop("rng")
    rule = GateRule(**{"max_detectable": np.inf, **options})
    return read_sides(baseline, candidate, run=run, protocol=protocol).compare(rule=rule, rng=rng)


@pytest.fixture
def two_runs(tmp_path):
    write_run(tmp_path / "before", THETA)
    write_run(tmp_path / "after", {"new": -2.0, "x": 1.4, "y": -1.4}, seed=2)
    return tmp_path


def test_two_runs_are_joined_over_their_common_opponents(two_runs, rng):
    sides = read_sides(f"{two_runs}/before:old", f"{two_runs}/after:new")
    pairs = {
        frozenset(pair)
        for pair in zip(sides.verdicts["responder_a"], sides.verdicts["responder_b"], strict=True)
    }
    assert pairs == {
        frozenset(pair)
        for pair in (("old", "x"), ("old", "y"), ("x", "y"), ("new", "x"), ("new", "y"))
    }
    assert len(sides.verdicts) == 24 * 5 * len(DIMENSIONS)  # two orders made one
    found = run_gate(f"{two_runs}/before:old", f"{two_runs}/after:new", rng=rng)
    assert found.table["outcome"].tolist() == ["failed", "failed"]


def test_one_responder_in_two_runs_carries_the_run_in_its_name(tmp_path, rng):
    for name, seed in (("before", 1), ("after", 2)):
        write_run(tmp_path / name, THETA, seed=seed)
    sides = read_sides(f"{tmp_path}/before:old", f"{tmp_path}/after:old")
    assert (sides.baseline, sides.candidate) == ("before:old", "after:old")
    asked = {"max_inconsistent": 0.7, "rng": rng}  # this judge turns in two pairs of five
    assert run_gate(f"{tmp_path}/before:old", f"{tmp_path}/after:old", **asked).passed


def test_two_responders_of_one_run_meet_each_other_too(tmp_path, rng):
    write_run(tmp_path / "one", {**THETA, "vendor/new:free": -2.0})
    sides = read_sides("old", "vendor/new:free", run=str(tmp_path / "one"))
    assert {"old", "vendor/new:free", "x", "y"} == set(sides.verdicts["responder_a"]) | set(
        sides.verdicts["responder_b"]
    )
    assert not run_gate("old", "vendor/new:free", run=str(tmp_path / "one"), rng=rng).passed


UNLIKE = {
    r"do not share all protocols: 0 in common, 1 for 'old' alone \(heart\); 1 for 'new' alone \(heart-release\)": {
        "protocol": "heart-release"
    },
    "do not share all histories: 20 in common, 4 for 'old' alone": {"n": 20},
    "24 histories have the same name but other words in 'before' and 'after', such as 'h0'": {
        "words": " Really."
    },
    r"48 replies of opponents have .* other words in 'before' and 'after', such as \('x', 'h0'\)": {
        "opponents_say": " again"
    },
}


@pytest.mark.parametrize("message", UNLIKE)
def test_runs_that_do_not_match_are_refused(tmp_path, message):
    write_run(tmp_path / "before", THETA)
    write_run(tmp_path / "after", {"new": 0.0, "x": 1.4, "y": -1.4}, **UNLIKE[message])
    with pytest.raises(GateError, match=message):
        run_gate(f"{tmp_path}/before:old", f"{tmp_path}/after:new", rng=None)


def test_runs_with_other_judges_are_refused(tmp_path, rng):
    write_run(tmp_path / "before", THETA)
    write_run(tmp_path / "after", {"new": 0.0, "x": 1.4, "y": -1.4}, judge="another judge")
    with pytest.raises(GateError, match="do not share all raters: 0 in common"):
        run_gate(f"{tmp_path}/before:old", f"{tmp_path}/after:new", rng=rng)


def test_runs_without_a_common_opponent_are_refused(tmp_path):
    write_run(tmp_path / "before", THETA)
    write_run(tmp_path / "after", {"new": 0.0, "u": 0.4, "v": -0.4})
    with pytest.raises(GateError, match="opponent: x, y .* 'before', u, v .* 'after'"):
        read_sides(f"{tmp_path}/before:old", f"{tmp_path}/after:new")


def test_names_that_are_not_there_list_those_that_are(two_runs):
    with pytest.raises(GateError, match="'nobody' .* 'before'; there are old, x, y"):
        read_sides("old", "nobody", run=f"{two_runs}/before")
    with pytest.raises(GateError, match="'nowhere:old' names no run that is here.*Runs here: "):
        read_sides("nowhere:old", f"{two_runs}/after:new")
    with pytest.raises(GateError, match="'old' names no run that is here. Write run:responder"):
        read_sides("old", "x")
    with pytest.raises(GateError, match="'nobody' .* 'after'; there are new, x, y"):
        read_sides(f"{two_runs}/before:old", f"{two_runs}/after:nobody")
    with pytest.raises(RunError, match="There is no run"):
        read_sides("old", "x", run=f"{two_runs}/nowhere")


def test_a_run_with_two_protocols_asks_which(tmp_path):
    run = write_run(tmp_path / "one", {**THETA, "new": 0.0})
    verdicts = run.read("verdicts")
    run.write("verdicts", pd.concat([verdicts, verdicts.assign(protocol="heart-release")]))
    with pytest.raises(GateError, match="under heart, heart-release; choose one"):
        read_sides("old", "new", run=str(tmp_path / "one"))
    assert set(
        read_sides("old", "new", run=str(tmp_path / "one"), protocol="heart").verdicts["protocol"]
    ) == {"heart"}
    with pytest.raises(
        GateError, match="no verdicts by a judge .* under 'likert'; there are heart, heart-release"
    ):
        read_sides("old", "new", run=str(tmp_path / "one"), protocol="likert")


def test_peoples_verdicts_do_not_enter(tmp_path):
    run = write_run(tmp_path / "one", {**THETA, "new": 0.0})
    verdicts = run.read("verdicts")
    run.write("verdicts", verdicts.assign(rater="somebody", rater_kind="human"), part="people")
    assert set(read_sides("old", "new", run=str(tmp_path / "one")).verdicts["rater"]) == {"judge"}


@pytest.fixture
def failing(two_runs, rng):
    return run_gate(f"{two_runs}/before:old", f"{two_runs}/after:new", rng=rng)


def test_reports_are_written_and_then_the_build_stops(failing, tmp_path):
    files = write_reports(failing, tmp_path / "out", note="A note with <brackets>.")
    assert [file.name for file in files] == ["gate.html", "gate.xml", "gate.md"]
    page = files[0].read_text(encoding="utf-8")
    assert "new did not pass against old" in page
    assert "&lt;brackets&gt;" in page
    assert '<figure><div role="img" aria-label="Drop by dimension' in page
    assert "<svg " in page
    assert "Simulated" in page
    assert "http://" not in page.replace("http://www.w3.org/", "").replace(
        "http://purl.org/", ""
    ).replace("http://creativecommons", "")
    with pytest.raises(GateFailedError, match="attunement: worse than the baseline; drop"):
        failing.require_pass()


def test_the_same_gate_writes_the_same_bytes(failing, tmp_path):
    first = [file.read_bytes() for file in write_reports(failing, tmp_path / "one")]
    second = [file.read_bytes() for file in write_reports(failing, tmp_path / "two")]
    assert first == second


def flat_verdicts(dimension):
    """A judge whose two orders contradict each other every time."""
    flat = pd.DataFrame(
        [(f"d{i}", "old", "new") for i in range(9)],
        columns=["dialogue_id", "responder_a", "responder_b"],
    )
    return flat.assign(
        history_id=flat["dialogue_id"],
        rater="judge",
        dimension=dimension,
        state="inconsistent",
        verdict=None,
    )


def test_junit_counts_failures_and_errors(failing, rng):
    suite = ElementTree.fromstring(report_text(failing, "gate.xml").split("\n", 1)[1])
    assert (suite.get("tests"), suite.get("failures"), suite.get("errors")) == ("2", "2", "0")
    assert all(
        "worse than the baseline" in failure.get("message") for failure in suite.iter("failure")
    )
    cannot = compare_responders(flat_verdicts("<&>"), baseline="old", candidate="new", rng=rng)
    suite = ElementTree.fromstring(report_text(cannot, "gate.xml").split("\n", 1)[1])
    assert (suite.get("failures"), suite.get("errors")) == ("0", "1")
    with pytest.raises(
        GateFailedError,
        match="inconclusive on 'new' against 'old'. <&>: no verdict",
    ):
        cannot.require_pass()


def test_a_page_is_written_even_where_nothing_can_be_told(tmp_path, rng):
    cannot = compare_responders(flat_verdicts("overall"), baseline="old", candidate="new", rng=rng)
    assert "cannot tell" in write_reports(cannot, tmp_path)[0].read_text(encoding="utf-8")


def test_a_drop_that_nobody_knows_is_not_drawn_as_zero(rng):
    cannot = compare_responders(flat_verdicts("overall"), baseline="old", candidate="new", rng=rng)
    ax = plot_drops(cannot)
    assert all(
        pd.isna(line.get_xdata()).all() for line in ax.lines if line.get_label() == "cannot tell"
    )
    assert "no estimate" in [text.get_text() for text in ax.texts]


def test_the_summary_is_a_table_that_holds_each_dimension(failing):
    lines = report_text(failing, "gate.md").splitlines()
    assert lines[0] == "## new did not pass against old"
    assert [line.split(" | ")[0].strip("| ") for line in lines if line.startswith("| ")][
        2:
    ] == list(DIMENSIONS)
    assert {line.count("|") for line in lines if line.startswith("|")} == {11}


@pytest.mark.parametrize(
    ("mode", "alpha", "series"), [("regression", 0.05, "34%"), ("non-inferiority", 0.01, "8%")]
)
def test_the_report_says_that_the_error_rate_is_for_one_run(rng, mode, alpha, series):
    """1 - 0.95^8 = 0.337 and 1 - 0.99^8 = 0.077: eight runs against one baseline, were their luck
    not shared."""
    gate = compare_responders(
        flat_verdicts("overall"),
        baseline="old",
        candidate="new",
        rule=GateRule(mode=mode, alpha=alpha, n_resamples=50),
        rng=rng,
    )
    summary = report_text(gate, "gate.md")
    assert f"error rate {alpha:g} for this run" in summary
    assert f"with a probability of up to {series}" in summary
    assert f"one-sided {100 * (1 - alpha):g}% bounds" in report_text(gate, "gate.html")


def test_a_passing_gate_lets_the_build_go_on(tmp_path, rng):
    write_run(tmp_path / "one", {**THETA, "new": 0.1})
    run_gate("old", "new", run=str(tmp_path / "one"), rng=rng).require_pass()


def test_a_judge_that_reads_nothing_passes_nobody(rng):
    """The sample's embedded judge follows the order in every pair of these two."""
    gate = run_gate("reference", "echo", run="sample", protocol="heart", n_resamples=50, rng=rng)
    assert gate.table["outcome"].tolist() == ["cannot tell"]
    with pytest.raises(GateFailedError, match=r"(\d+) of \1 pairs .* 50% or more is no pass"):
        gate.require_pass()
