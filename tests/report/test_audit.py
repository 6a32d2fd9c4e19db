"""The audit names a planted fault, and raises no alarm about sound votes."""

import json
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from audit_case import (
    FAULTS,
    JUDGES,
    SOUND,
    asked_again,
    by_day,
    never_reads,
    sound_votes,
    texts,
)

from heart_utils.ratings.verdicts import RatingsError
from heart_utils.report import commands
from heart_utils.report.audit import (
    ALARMS,
    CHECKS,
    LEVELS,
    OF_JUDGES,
    PAGES,
    _in_one_dimension,
    _Sheet,
    audit_votes,
)
from heart_utils.report.commands import heart_audit as main
from heart_utils.report.commands import report_audit

ROOT = Path(__file__).parents[2]


def alarms(audit):
    return audit.findings.loc[audit.findings["level"].isin(ALARMS), "check"].tolist()


def levels_of(votes, check, replies=None):
    """Ask one check of votes, after the leaderboards; a judge's also of each dimension alone."""
    sheet = _Sheet(votes, replies, 50.0, 50, None)
    found = [list(CHECKS[name][0](sheet)) for name in ("board", check)][1]
    if check in OF_JUDGES:
        found += [one for _, one in _in_one_dimension(sheet, {*OF_JUDGES} - {check})]
    return [one.level for one in found]


@pytest.fixture(scope="module")
def votes():
    return sound_votes(np.random.default_rng(5))


@pytest.fixture(scope="module")
def blind(votes):
    return audit_votes(never_reads(votes, None), n_resamples=50)


@pytest.mark.parametrize(
    ("spoil", "check"), FAULTS.items(), ids=lambda one: getattr(one, "__name__", one)
)
def test_a_planted_fault_is_named(votes, spoil, check):
    assert {*levels_of(spoil(votes, np.random.default_rng(3)), check)} & {*ALARMS}


def test_a_judge_that_never_reads_comes_first(blind):
    found = blind.findings
    assert (found["check"][0], found["level"][0]) == ("reading", "unsupported")
    assert JUDGES[0] in found["sentence"][0]
    assert set(found["check"]) >= set(CHECKS) - {"kinds"}


def longer(votes, replies):
    """Name the longer of two replies."""
    words = replies.set_index(["history_id", "responder"])["text"].str.len()
    of_a, of_b = (
        words.loc[pd.MultiIndex.from_frame(votes[["history_id", side]])].to_numpy()
        for side in ("responder_a", "responder_b")
    )
    return pd.Series(np.where(of_a > of_b, "a", "b"), votes.index)


def led_by_length(votes, who, share):
    """Let some raters follow the longer reply in a share of pairs; give texts, too."""
    rng = np.random.default_rng(4)
    replies = texts(votes, rng)
    led = who & (rng.random(len(votes)) < share)
    return votes.assign(verdict=votes["verdict"].mask(led, longer(votes, replies))), replies


def test_length_that_people_prefer_too_is_no_fault_of_the_judge(votes):
    cases = [
        (votes["rater"].eq(JUDGES[0]), 0.7, {"unsupported"}),
        (votes["rater"].eq("nobody"), 0.0, {"sound"}),
        (votes["rater"].ne("nobody"), 0.6, {"look"}),
    ]
    for who, share, levels in cases:
        spoilt, replies = led_by_length(votes, who, share)
        found = set(levels_of(spoilt, "length", replies))
        assert found & levels == levels, (share, found)
        assert bool(found & {*ALARMS}) == bool(levels & {*ALARMS})


def test_length_is_left_open_where_no_person_decided(votes):
    judges = votes[votes["rater_kind"].eq("model")]
    spoilt, replies = led_by_length(judges, judges["rater"].ne(""), 0.7)
    assert set(levels_of(spoilt, "length", replies)) == {"undecided"}


def test_length_is_not_checked_where_statsmodels_is_missing(votes, monkeypatch):
    judges = votes[votes["rater_kind"].eq("model")]
    spoilt, replies = led_by_length(judges, judges["rater"].ne(""), 0.7)
    monkeypatch.setitem(sys.modules, "statsmodels.api", None)
    found = audit_votes(spoilt, replies=replies, n_resamples=50).findings.set_index("check")
    assert found.loc["length", "level"] == "not run"
    assert "comes with the extra stats: pip install" in found.loc["length", "sentence"]


@pytest.mark.slow
def test_sound_votes_raise_an_alarm_in_one_file_of_twenty_at_most():
    """Over 120 files of six kinds and three sizes, with texts."""
    raised = Counter()
    for number in range(120):
        rng = np.random.default_rng(1000 + number)
        votes = SOUND[number % len(SOUND)](rng, (40, 60, 100)[number // len(SOUND) % 3])
        found = audit_votes(votes, replies=texts(votes, rng), n_resamples=100, rng=rng)
        raised.update(set(alarms(found)))
    # 5 % of 120 and two standard errors.
    assert {check: n for check, n in raised.items() if n > 10} == {}


@pytest.mark.parametrize("kind", SOUND, ids=lambda kind: kind.__name__)
def test_a_sound_file_of_each_kind_raises_no_alarm(kind):
    votes = kind(np.random.default_rng(21), 60)
    assert alarms(audit_votes(votes, n_resamples=50)) == []


def test_a_judge_that_changed_on_the_same_pairs_is_named():
    rng = np.random.default_rng(6)
    votes = asked_again(rng, 60)
    late = votes["date"].eq("2026-03-01") & votes["responder_a"].eq("gpt-4")
    votes["verdict"] = votes["verdict"].mask(late & (rng.random(len(votes)) < 0.5), "b")
    found = list(CHECKS["drift"][0](_Sheet(votes, None, 50.0, 50, None)))
    assert all(one.level == "unsupported" for one in found)
    assert all("same pairs" in one.sentence for one in found)


@pytest.mark.parametrize("kind", ["human", "model"])
def test_people_alone_or_judges_alone_are_told_what_is_missing(votes, kind):
    found = audit_votes(votes[votes["rater_kind"].eq(kind)], n_resamples=50)
    missing = found.findings.query("level == 'not run'")
    assert {"names", "people"} <= set(missing["check"])
    assert missing["collect"].ne("").any()
    assert found.outcome == "sound"


def test_ties_alone_and_a_single_vote_have_no_leaderboard(votes):
    for some in (votes.assign(verdict="tie"), votes.head(1).assign(verdict="tie")):
        found = audit_votes(some, n_resamples=20)
        assert found.boards == {}
        assert found.outcome == "unsupported"
    with pytest.raises(RatingsError, match="no vote"):
        audit_votes(votes.head(0))


def test_agreement_is_compared_on_the_same_pairs(votes):
    """By hand: one judge who always sides with the first of two people, who agree in half."""
    rows = [
        (f"d{n}", rater, "human", "b" if rater == "bea" and n % 2 else "a")
        for n in range(40)
        for rater in ("ann", "bea")
    ]
    rows += [(f"d{n}", "judge", "model", "a") for n in range(40)]
    table = pd.DataFrame(rows, columns=["dialogue_id", "rater", "rater_kind", "verdict"])
    found = audit_votes(table.assign(responder_a="x", responder_b="y"), n_resamples=20).agreement
    assert found[["with_people", "people", "difference"]].to_numpy().tolist() == [[0.75, 0.5, 0.25]]
    assert found["ci_low"][0] < 0.25 < found["ci_high"][0]


def test_the_command_reads_a_file_and_writes_what_is_asked(votes, tmp_path, capsys):
    """A person is not named, and each finding names the page that explains it."""
    named = votes.assign(rater=votes["rater"].replace("person-0", "anna.smith@example.org"))
    pd.concat([never_reads(named, None), named.head(3)]).to_csv(tmp_path / "votes.csv", index=False)
    written = {kind: tmp_path / f"audit.{kind}" for kind in ("html", "markdown", "json")}
    options = [part for kind, file in written.items() for part in (f"--{kind}", str(file))]
    assert main([str(tmp_path / "votes.csv"), *options]) == 1
    said = capsys.readouterr()
    assert said.out.index("cannot support") < said.out.index("gpt-5-judge")
    assert said.out.index("gpt-5-judge") < said.out.index("Leaderboard")
    assert said.err.startswith("heart-audit: note: 2,523 rows were read")
    assert ".py" not in said.err
    text = {kind: file.read_text() for kind, file in written.items()}
    record = json.loads(text["json"])
    assert (record["exit_code"], record["findings"][0]["check"]) == (1, "reading")
    assert {row["level"] for row in record["findings"]} <= set(LEVELS)
    assert "Simulated" in text["html"]
    assert "<svg" in text["html"]
    assert text["markdown"].startswith("## ")
    assert "anna" not in said.out + text["html"] + text["markdown"]


def test_the_command_refuses_what_is_no_file_of_votes(votes, tmp_path, capsys):
    votes.head(0).to_csv(tmp_path / "empty.csv", index=False)
    scores = votes[["history_id", "rater", "rater_kind"]].assign(responder="x", score=3)
    scores.to_csv(tmp_path / "scores.csv", index=False)
    assert main([str(tmp_path / "empty.csv")]) == 2
    assert main([str(tmp_path / "scores.csv")]) == 2
    assert "scores_to_verdicts" in capsys.readouterr().err


def turned(votes):
    """Name the sides the other way round, which changes no answer."""
    sides = {"responder_a": "responder_b", "responder_b": "responder_a"}
    words = {"a": "b", "b": "a"}, {"ab": "ba", "ba": "ab"}
    verdict, order = (
        votes[name].replace(new) for name, new in zip(("verdict", "order"), words, strict=True)
    )
    return votes.rename(columns=sides).assign(verdict=verdict, order=order)


@pytest.mark.parametrize("change", [lambda rows: rows, turned])
def test_copies_are_counted_though_the_reader_left_them_out(votes, change, tmp_path, capsys):
    copies = change(votes.sample(40, random_state=1))
    pd.concat([votes, copies]).to_csv(tmp_path / "votes.csv", index=False)
    assert main([str(tmp_path / "votes.csv")]) == 1
    assert "40 of 2,560 rows are copies" in capsys.readouterr().out


@pytest.fixture(scope="module")
def few(votes):
    """Of thirty dialogues, the least that leave nothing to say of them."""
    return votes[votes["history_id"].isin([f"h{n}" for n in range(30)])]


def own_file(votes):
    """The columns of somebody who never heard of this project."""
    headers = {"responder_a": "model_a", "responder_b": "model_b", "verdict": "winner"}
    kept = ["history_id", *headers, "order", "rater"]
    return votes[kept].rename(columns=headers | {"history_id": "prompt_id", "rater": "annotator"})


def proposed(file, capsys):
    """Take the lines that the command proposes for reading.yaml."""
    assert main([str(file)]) == 2
    reading = file.with_suffix(".yaml")
    reading.write_text(capsys.readouterr().err.partition("add --reading reading.yaml:")[2])
    return reading


def audited(table, tmp_path, capsys, *options):
    file = tmp_path / "own.csv"
    table.to_csv(file, index=False)
    reading = proposed(file, capsys)
    return main([str(file), "--reading", str(reading), *options]), reading.read_text()


def test_kinds_of_raters_are_read_from_a_column_of_types_or_their_names(few, tmp_path, capsys):
    types = few["rater_kind"].map({"human": "human", "model": "gpt-4"})
    own = own_file(never_reads(few, None)).assign(annotator_type=types)
    code, reading = audited(own, tmp_path, capsys)
    assert (code, "gpt-4: model" in reading) == (1, True)
    assert JUDGES[0] in capsys.readouterr().out
    code, reading = audited(own.drop(columns="annotator"), tmp_path, capsys)
    assert "rater: '{annotator_type}'" in reading
    assert "raters (model): 1" in capsys.readouterr().out
    code, reading = audited(own.drop(columns="annotator_type"), tmp_path, capsys)
    assert "gpt-5-judge: model" in reading
    assert "raters (human): 6, raters (model): 2" in capsys.readouterr().out


def test_kinds_that_nothing_tells_are_asked_for_and_never_taken_for_people(few, tmp_path, capsys):
    codes = {name: f"r{number}" for number, name in enumerate(few["rater"].unique())}
    own = own_file(few.assign(rater=few["rater"].map(codes)))
    code, reading = audited(own, tmp_path, capsys)
    assert (code, "rater_kind: '...'" in reading) == (2, True)
    assert "human or model" in capsys.readouterr().err
    all_people = tmp_path / "people.yaml"
    all_people.write_text(reading.replace("'...'", "human"))
    assert main([str(tmp_path / "own.csv"), "--reading", str(all_people)]) == 3
    assert "in both orders, as judges are" in capsys.readouterr().out


def test_a_person_who_is_called_like_a_model_leaves_the_audit_open(few):
    people = few[few["rater_kind"].eq("human")]
    named = people.assign(rater=people["rater"].replace("person-1", "gpt-4o"))
    assert levels_of(people, "kinds") == []
    assert levels_of(named, "kinds") == ["undecided"]


@pytest.mark.parametrize("header", ["created_at", "tstamp"])
def test_when_an_answer_was_given_is_read_under_other_names(few, header, tmp_path, capsys):
    days = by_day(few)["date"]
    own = own_file(few).assign(**{header: days.map(pd.Timestamp.timestamp)})
    if header != "tstamp":
        own[header] = days.dt.strftime("%d %b %Y, %H:%M")
    _, reading = audited(own, tmp_path, capsys)
    assert f"{header}: date" in reading
    assert "No judge's answers changed over time" in capsys.readouterr().out


def test_copies_that_look_like_a_second_order_leave_the_audit_open(votes):
    people = votes[votes["rater"].eq("person-1")].assign(order="ab")
    copies = people.sample(30, random_state=1).assign(order="ba")
    rest = votes[votes["rater"].ne("person-1")]
    assert "undecided" in levels_of(pd.concat([rest, people, copies]), "doubled")


def test_votes_on_one_dialogue_of_three_count_as_few(votes):
    """One dialogue has 37 % of all votes and 59 the rest: 1 / (.37^2 + .63^2 / 59) = 7."""
    third = np.random.default_rng(1).random(len(votes)) < 1 / 3
    spoilt = votes.assign(dialogue_id=votes["dialogue_id"].mask(third, "h0"))
    [found] = CHECKS["dialogues"][0](_Sheet(spoilt, None, 50.0, 50, None))
    assert found.level == "unsupported"
    assert "as much as 7 equal ones" in found.sentence


def test_each_finding_names_the_page_that_explains_it(blind, monkeypatch):
    audit = blind
    assert set(audit.findings["page"]) <= set(PAGES)
    assert "(see chapter 7)" in str(audit)
    monkeypatch.setattr(commands, "addresses", dict)
    assert "(chapter 7, Can judges be trusted?)" in report_audit(audit, "audit.md")
    links = {label: f"https://example.org/{file}" for label, (_, file) in PAGES.items()}
    monkeypatch.setattr(commands, "addresses", lambda: links)
    address = "https://example.org/notebooks/07_can_judges_be_trusted.ipynb"
    assert f"[chapter 7, Can judges be trusted?]({address})" in report_audit(audit, "audit.md")
    assert f'<a href="{address}">chapter 7' in report_audit(audit, "audit.html")


def test_pages_are_called_as_their_titles_are():
    for label, (name, file) in PAGES.items():
        text = (ROOT / file).read_text()
        title = name.partition(", ")[2] or name.removeprefix("the page ")
        assert f"({label})=" in text
        assert f"# {title}" in text
        if file.startswith("notebooks"):
            assert f"chapter {int(Path(file).name[:2])}" in name
