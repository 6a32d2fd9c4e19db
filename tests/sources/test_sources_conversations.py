"""Studies of whole conversations: each shipped figure a second way from the files, with loops and
textbooks' formulas."""

import csv
import itertools
import re
import shutil
from collections import Counter, defaultdict
from statistics import mean

import numpy as np
import pandas as pd
import pytest

from data.make.conversations import CONVERSATIONS
from data.make.official import derive
from heart_utils.ratings.resampling import two_way_error
from heart_utils.runs import find_root, open_run
from heart_utils.sources import catalogue
from heart_utils.tables import DataError

ROWS = ("sage", "ieval", "mibot", "can_ai_relate")  # what licences let go on as rows


@pytest.fixture(scope="module")
def shipped():
    run = open_run("public")
    tables = dict.fromkeys(ROWS, "scores") | {"reflections": "tallies"}
    return {name: run.read(tables.get(name, "estimates"), name) for name in CONVERSATIONS}


def read_rows(mirror, name):
    with open(mirror / name, encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def estimate(table, quantity, stratum, outcome=None):
    rows = table[(table["quantity"] == quantity) & (table["stratum"] == stratum)]
    rows = rows if outcome is None else rows[rows["outcome"] == outcome]
    assert len(rows) == 1
    return rows.iloc[0]


@pytest.mark.mirror
def test_waiting_within_client_and_counsellor_is_what_taking_means_away_in_turn_gives(
    mirror, shipped
):
    rows = pd.read_csv(mirror / "kokorochat" / "sessions.csv")
    y = (rows["score"] - rows["score"].mean()) / rows["score"].std()
    x = np.log(rows["lat_med"])
    for _ in range(300):
        for who in ("client_id", "counselor_id"):
            x, y = (column - column.groupby(rows[who]).transform("mean") for column in (x, y))
    slope = (x * y).sum() / (x**2).sum()
    moves = x * (y - slope * x)
    by_client, by_counsellor, by_both = (
        (moves.groupby([rows[who] for who in whose]).sum() ** 2).sum()
        for whose in (["client_id"], ["counselor_id"], ["client_id", "counselor_id"])
    )
    # Cameron, Gelbach and Miller: both ways less what both have in common; without a factor for few
    # clusters.
    error = np.sqrt(by_client + by_counsellor - by_both) / (x**2).sum()
    row = estimate(
        shipped["kokorochat"], "SD per doubling of the wait", "same client and counsellor"
    )
    assert row["value"] == pytest.approx(slope * np.log(2), abs=2e-5)
    assert row["se"] == pytest.approx(error * np.log(2), rel=0.005)
    assert row["value"] == pytest.approx(-0.24, abs=0.005)


@pytest.mark.mirror
def test_two_experts_agree_as_often_as_a_loop_counts(mirror, shipped):
    given = defaultdict(list)
    for row in read_rows(mirror, "mindeval/scores.csv"):
        if row["score"] != "0":  # not applicable
            given[row["conversation"], row["profile"], row["model"], row["expert"]].append(
                int(row["score"])
            )
    seen = defaultdict(dict)
    for (conversation, profile, model, expert), scores in given.items():
        seen[profile, conversation, model][expert] = round(mean(scores), 6)
    agreed = untied = tied = 0
    for one, other in itertools.combinations(sorted(seen), 2):
        if one[0] == other[0] and one[2] != other[2]:
            for first, second in itertools.combinations(("e1", "e2", "e3", "e4"), 2):
                product = (seen[one][first] - seen[other][first]) * (
                    seen[one][second] - seen[other][second]
                )
                agreed, untied, tied = (
                    agreed + (product > 0),
                    untied + (product != 0),
                    tied + (product == 0),
                )
    row = estimate(shipped["mindeval"], "two experts agree", "all")
    assert (
        (row["n"], row["value"])
        == (untied, pytest.approx(agreed / untied, abs=1e-6))
        == (417, pytest.approx(273 / 417))
    )
    ties = estimate(shipped["mindeval"], "a tie for one of two experts", "all")["value"]
    assert ties == pytest.approx(tied / (tied + untied), abs=1e-6)


@pytest.mark.mirror
def test_the_intraclass_correlation_of_experts_is_shrout_and_fleiss(mirror, shipped):
    rows = pd.read_csv(mirror / "mindeval" / "scores.csv")
    applicable = rows[rows["score"] > 0]
    table = applicable.pivot_table(
        index="conversation", columns="expert", values="score"
    ).to_numpy()
    n, k = table.shape
    ms_rows = k * table.mean(axis=1).var(ddof=1)
    ms_columns = n * table.mean(axis=0).var(ddof=1)
    rest = table - table.mean(axis=1, keepdims=True) - table.mean(axis=0) + table.mean()
    ms_rest = (rest**2).sum() / ((n - 1) * (k - 1))
    single = (ms_rows - ms_rest) / (ms_rows + (k - 1) * ms_rest + k * (ms_columns - ms_rest) / n)
    same_strictness = (ms_rows - ms_rest) / (ms_rows + (k - 1) * ms_rest)
    of_four = (ms_rows - ms_rest) / ms_rows
    by_hand = {"ICC(2,1)": single, "ICC(3,1)": same_strictness, "ICC(3,4)": of_four}
    for quantity, value in by_hand.items():
        row = estimate(shipped["mindeval"], quantity, "all")
        assert row["value"] == pytest.approx(value, abs=1e-4)
        assert row["ci_low"] < value < row["ci_high"]
    assert (round(single, 2), round(same_strictness, 2), round(of_four, 2)) == (0.13, 0.23, 0.54)


def test_the_printed_leaderboard_of_sage_follows_from_its_rows(shipped):
    printed = pd.read_csv(find_root() / "data" / "published" / "sage_board.csv").dropna(
        subset="responder"
    )
    ends = defaultdict(dict)
    for row in shipped["sage"].query("rater == 'deepseek-v3'").sort_values("item").itertuples():
        ends[row.responder][row.history_id] = row.score  # the last one stays
    assert len(printed) == len(ends) == 12
    for row in printed.itertuples():
        final = list(ends[row.responder].values())
        assert len(final) == 100
        assert mean(final) == pytest.approx(row.score, abs=0.0501)  # as printed, a half rounded up
        assert (sum(one >= 100 for one in final), sum(one < 10 for one in final)) == (
            row.success,
            row.failure,
        )


@pytest.mark.mirror
def test_rows_of_people_are_the_numbers_of_the_file_and_nobodys_ids(mirror, shipped):
    smokers = read_rows(mirror, "mibot/survey.csv")
    told = shipped["mibot"].groupby(["dimension", "group"])["score"].mean()
    for group, prefix in {"before": "Pre", "after": "Post", "week_later": "WeekLater"}.items():
        expected = mean(float(row[f"{prefix}RulerConfidence"]) for row in smokers)
        assert told["confidence", group] == pytest.approx(expected)
    care = [
        10 * mean(int(row[f"CAREQ{k}"]) for k in range(1, 11) if row[f"CAREQ{k}"] != "0")
        for row in smokers
    ]
    ours = shipped["mibot"].query("dimension == 'care'").groupby("rater")["score"].mean()
    assert 10 * ours.mean() == pytest.approx(mean(care)) == pytest.approx(42.3, abs=0.05)
    likes = Counter(
        (row["bot"].lower(), row["L"]) for row in read_rows(mirror, "ieval/ratings.csv")
    )
    rows = shipped["ieval"].query("dimension == 'likable'")
    assert (
        Counter(zip(rows["responder"], rows["score"].astype(int).astype(str), strict=True)) == likes
    )
    for name, form in {
        "mibot": r"smoker_\d{3}",
        "ieval": r"seeker_\d{3}",
        "can_ai_relate": r"clinician_[12]",
    }.items():
        assert all(re.fullmatch(form, rater) for rater in shipped[name]["rater"].unique())


# Bad input
# ------------------------------------------------------------------------------------------


@pytest.mark.mirror
@pytest.mark.parametrize(
    ("name", "change", "said"),
    [
        (
            "sage/conversations.csv",
            {"model": "hal-9000"},
            "row 0 has model 'hal-9000'; expected claude3.7 or",
        ),
        (
            "sage/conversations.csv",
            {"final_emotion": 101},
            "row 0 has final_emotion 101; expected 0 to 100",
        ),
        ("sage/conversations.csv", {"path": "40 50"}, "1 paths do not end at final_emotion"),
        ("mibot/survey.csv", {"CAREQ3": 6}, r"row \d+ has CAREQ3 6; expected 0 to 5"),
        ("ieval/ratings.csv", {"bot": "Mauve"}, "row 0 has bot 'Mauve'; expected Pink or"),
        ("mindeval/scores.csv", {"score": 7}, "row 0 has score 7; expected 0 to 6"),
        (
            "reflections/annotations.csv",
            {"reflection_source": "Eliza"},
            "row 0 has reflection_source 'Eliza'; expected Human or",
        ),
        ("kokorochat/sessions.csv", {"score": 120}, r"row \d+ has score 120; expected 0 to 100"),
    ],
)
def test_a_file_with_something_unknown_is_refused_with_its_row(
    mirror, tmp_path, monkeypatch, name, change, said
):
    folder = name.partition("/")[0]
    shutil.copytree(mirror / folder, tmp_path / folder, copy_function=shutil.copyfile)
    (tmp_path / folder).chmod(0o755)
    rows = pd.read_csv(mirror / name)
    for column, value in change.items():
        rows[column] = rows[column].astype(object)
        rows.loc[0, column] = value
    rows.to_csv(tmp_path / name, index=False)
    monkeypatch.setattr(catalogue, "_check", lambda source, file, path, keep: path)
    monkeypatch.setenv("HEART_DATA_MIRROR", str(tmp_path))
    with pytest.raises(DataError, match=said):
        derive(folder)


@pytest.mark.parametrize(
    ("influence", "dialogue", "rater", "variance"),
    [
        # dialogues 3 and -1, raters 2 and 0, cells 2, 1, 0 and -1: 10 + 4 - 6 = 8, less than 10
        ([2, 1, 0, -1], [0, 0, 1, 1], [0, 1, 0, 1], 10 * 2),
        ([2, 2, 1, 1], [0, 0, 1, 1], [0, 1, 0, 1], (20 + 18 - 10) * 2),
        # less than that of raters alone, it is theirs
        (
            np.tile([-1, -1, 2], 4) / 36,
            np.repeat(range(4), 3),
            np.tile(range(3), 4),
            3 / 2 * 6 / 81,
        ),
    ],
)
def test_a_statistic_of_dialogues_and_raters_has_the_two_way_error(
    influence, dialogue, rater, variance
):
    parts = np.array(influence, float), np.array(dialogue), np.array(rater)
    assert two_way_error(*parts) ** 2 == pytest.approx(variance)
