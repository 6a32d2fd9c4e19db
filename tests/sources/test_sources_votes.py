import functools
import io
import json
import logging

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import cohen_kappa_score
from source_builders import mentalalign_cell, mentalalign_files, mirrored

from data.make import mentalalign as mentalalign_module
from data.make.mentalalign import ATTRIBUTES, find_blocks
from data.make.official import PUBLISHED, derive
from heart_utils.sources.load import (
    load_responders,
    load_scores,
    load_verdicts,
    scores_to_verdicts,
)
from heart_utils.tables import RESPONDER_KINDS, DataError, check_table

# MT-Bench ---------------------------------------------------------------------------------------


def mtbench(monkeypatch, tmp_path, people, judge=()):
    files = {"human.jsonl": people, "gpt4_pair.jsonl": judge}
    content = {
        name: "".join(json.dumps(row) + "\n" for row in rows).encode()
        for name, rows in files.items()
    }
    mirrored(monkeypatch, tmp_path, "mtbench", content)
    return derive("mtbench")


def vote(a, b, winner, judge="expert_1", question=81, turn=1):
    return {
        "question_id": question,
        "turn": turn,
        "model_a": a,
        "model_b": b,
        "winner": winner,
        "judge": judge,
    }


JUDGED = [
    vote("gpt-4", "claude-v1", "tie (inconsistent)", "gpt4_pair"),
    vote("llama-13b", "alpaca-13b", "model_b", "gpt4_pair"),
]


def test_a_is_the_first_in_the_alphabet_whatever_side_the_release_had_it_on(monkeypatch, tmp_path):
    people = [
        vote("gpt-4", "claude-v1", "model_a"),
        vote("claude-v1", "gpt-4", "model_a", turn=2),
        vote("gpt-4", "claude-v1", "tie", question=82),
    ]
    found = mtbench(monkeypatch, tmp_path, people, JUDGED).query("rater_kind == 'human'")
    assert found["responder_a"].unique().tolist() == ["claude-v1"]
    assert found["verdict"].tolist() == ["b", "a", "tie"]
    assert found["group"].tolist() == ["turn_1", "turn_2", "turn_1"]
    assert found["dialogue_id"].tolist() == ["mtbench-081", "mtbench-081", "mtbench-082"]
    assert found["order"].isna().all()


def test_a_contradiction_between_gpt4s_orders_is_a_state_and_never_a_tie(monkeypatch, tmp_path):
    found = mtbench(monkeypatch, tmp_path, [vote("gpt-4", "claude-v1", "tie")], JUDGED).query(
        "rater_kind == 'model'"
    )
    assert found["rater"].unique().tolist() == ["gpt-4"]
    assert found["state"].tolist() == ["inconsistent", "valid"]
    assert found["verdict"].isna().tolist() == [True, False]
    assert found["verdict"].iloc[1] == "a"
    assert found["flags"].tolist() == [["own_family"], []]


def test_a_second_vote_of_one_person_is_kept_counted_and_said(monkeypatch, tmp_path, caplog):
    people = [
        vote("gpt-4", "claude-v1", "model_a"),
        vote("claude-v1", "gpt-4", "model_a"),
        vote("claude-v1", "gpt-4", "tie", "expert_2"),
    ]
    with caplog.at_level(logging.INFO):
        found = mtbench(monkeypatch, tmp_path, people, JUDGED)
    assert found.loc[found["rater_kind"] == "human", "repeat"].tolist() == [0, 1, 0]
    assert found.attrs["notes"]["votes by which one rater answered a pair again"] == 1
    assert "1 vote(s) repeat an earlier one" in caplog.text


def test_a_winner_that_nobody_knows_is_an_error(monkeypatch, tmp_path):
    with pytest.raises(DataError, match="row 0 has winner 'both bad'; expected model_a or"):
        mtbench(monkeypatch, tmp_path, [vote("gpt-4", "claude-v1", "both bad")], JUDGED)


@pytest.mark.mirror
def test_the_counts_of_mtbench_follow_from_the_files(mirror):
    """The counts that the dataset's card and the paper give, and one repeated vote found here."""
    votes = load_verdicts("mtbench")
    people = votes[votes["rater_kind"] == "human"]
    assert votes["rater_kind"].value_counts().to_dict() == {"human": 3355, "model": 2400}
    assert people[["rater", "pair_id"]].nunique().tolist() == [65, 1814]
    assert (votes["state"] == "inconsistent").sum() == 380
    assert people.loc[people["repeat"] > 0, "rater"].tolist() == ["author_0"]
    by_kind = people["rater"].str.partition("_")[0].value_counts().to_dict()
    assert by_kind == {"expert": 2668, "author": 687}
    assert not votes["simulated"].any()


# MentalAlign ------------------------------------------------------------------------------------

N = 60
TWOS = mentalalign_cell((2,) * 7)
CHANGES = {
    ("Human_judge", 3, "qwen_2"): mentalalign_cell((0,) * 7),
    ("Human_judge", 4, "qwen_2"): mentalalign_cell((6, 5, 4, 3, 2, 1, None)),
    ("Human_judge", 5, "original"): None,
    ("gemini_llm_judge", 6, "gemini"): "I cannot rate this.",
    ("claude_llm_judge", 7, "original"): '{"Guidance": 4, "Explanation": "he said "no" to it"}',
    ("gpt-4o_llm_judge", 31, "llama_3"): "```json\n" + TWOS + "\n```",
    ("gpt-4o_llm_judge", 32, "llama_3"): "```\n" + TWOS + "```",
    ("gpt-4o_llm_judge", 33, "llama_3"): "I'll evaluate this.\n\n" + TWOS,
    ("gpt-4o_llm_judge", 34, "llama_3"): "Here:\n```json\n" + TWOS + "\n```",
    ("gpt-4o_llm_judge", 35, "llama_3"): mentalalign_cell((2,) * 7, Explanation="SECRET words"),
    ("Human_judge", 10, "claude"): mentalalign_cell((1,) * 7),
    ("Human_judge", 12, "claude"): mentalalign_cell((1,) * 7),
}
#: Row 10 repeats row 9 in the people's file, 11 to 13 are one row late, 14 is in step again.
QUESTIONS = {row: f"Question number {row - 1}?" for row in (10, 11, 12, 13)}
QUESTIONS |= {20: "As a counsellor, I would say this.", 25: "SECRET question"}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Five workbooks with every kind of bad cell and question, read and as published."""
    with pytest.MonkeyPatch.context() as patch:
        files = mentalalign_files(N, CHANGES, QUESTIONS)
        mirrored(patch, tmp_path_factory.mktemp("made"), "mentalalign", files)
        patch.setattr(mentalalign_module, "_read", functools.cache(mentalalign_module._read))
        return derive("mentalalign"), derive("mentalalign", as_published=True)


def of(table, rater, row, responder):
    """One rater's scores of one reply, by dimension."""
    rows = table[(table["rater"] == rater) & (table["responder"] == responder)]
    return rows[rows["history_id"] == f"mentalalign-{row + 1:04d}"].set_index("dimension")


def test_every_kind_of_bad_cell_has_its_state_and_flag_and_no_score(made):
    found, _ = made
    zeros = of(found, "clinicians", 3, "qwen-2.5-7b")
    assert set(zeros["state"]) == {"error"}
    assert zeros["flags"].tolist() == [["all_zeros"]] * 7
    mixed = of(found, "clinicians", 4, "qwen-2.5-7b")
    assert mixed.loc[["informativeness", "helpfulness"], "score"].tolist() == [5, 1]
    for rows, dimension, state, flags in (
        (mixed, "guidance", "error", ["out_of_range"]),
        (mixed, "understanding", "abstained", ["null"]),
        (of(found, "clinicians", 5, "original"), "safety", "abstained", ["empty"]),
        (of(found, "gemini-2.5-flash", 6, "gemini-2.0-flash"), "safety", "unparsed", ["not_json", "own_family"]),
        (of(found, "claude-3.7-sonnet", 7, "original"), "guidance", "unparsed", ["not_json"]),
    ):  # fmt: skip
        assert rows.loc[dimension, ["state", "flags"]].tolist() == [state, flags]
    assert found.loc[found["state"] != "valid", "score"].isna().all()
    assert (found["state"] != "valid").sum() == 7 + 2 + 7 + 7 + 7
    counted = {"cells": 600, "all_zeros": 1, "out_of_range": 1, "with null": 1, "empty": 1}
    notes = found.attrs["notes"]
    assert counted.items() <= notes["clinicians"].items()
    assert notes["gemini-2.5-flash"]["not_json"] == notes["claude-3.7-sonnet"]["not_json"] == 1


def test_zeros_and_sixes_are_scores_only_as_published(made):
    _, published = made
    assert of(published, "clinicians", 3, "qwen-2.5-7b")["score"].tolist() == [0.0] * 7
    mixed = of(published, "clinicians", 4, "qwen-2.5-7b")
    assert mixed.loc["guidance", "score"] == 6
    assert mixed.loc["understanding", "state"] == "abstained"


def test_code_fences_and_words_around_an_answer_are_read_past_and_counted(made):
    found, _ = made
    for row in (31, 32, 33, 34):
        assert of(found, "gpt-4o", row, "llama-3.1-8b")["score"].tolist() == [2.0] * 7
    notes = found.attrs["notes"]["gpt-4o"]
    assert (notes["code_fence"], notes["words_around"]) == (3, 2)


def test_people_are_joined_to_judges_by_the_question_and_only_as_published_by_row(made):
    found, published = made
    moved = of(found, "clinicians", 11, "claude-3.5-haiku")
    assert moved.loc["empathy", ["score", "flags"]].tolist() == [1.0, ["moved"]]
    again = found[
        (found["history_id"] == "mentalalign-0010-again")
        & (found["responder"] == "claude-3.5-haiku")
    ]
    assert again["score"].tolist() == [1.0] * 7
    assert again["flags"].iloc[0] == ["repeated_question"]
    assert again["dialogue_id"].unique().tolist() == ["mentalalign-0010"]
    people = found[found["rater"] == "clinicians"].groupby("history_id")
    assert "mentalalign-0014" not in people.groups
    assert people.get_group("mentalalign-0021-people")["flags"].iloc[0] == ["other_question"]
    assert of(published, "clinicians", 12, "claude-3.5-haiku").loc["empathy", "score"] == 1
    for table in made:
        assert table.groupby("history_id")["dialogue_id"].nunique().max() == 1
    late = published[published["history_id"] == "mentalalign-0011"]
    assert late["dialogue_id"].unique().tolist() == ["mentalalign-0010"]


def test_no_text_of_the_files_leaves_the_loader(made):
    said = made[0].to_csv() + str(made[0].attrs)
    assert "SECRET" not in said
    assert "Question" not in said


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"context": "Another question?"}, "the questions of o4-mini are not those of gpt-4o"),
        ({"judge_response_claude": None}, "o4-mini_llm_judge.xlsx: missing claude"),
    ],
)
def test_judges_that_saw_other_questions_or_a_missing_column_are_errors(
    monkeypatch, tmp_path, change, said
):
    files = mentalalign_files(3, {})
    other = pd.read_excel(io.BytesIO(files["o4-mini_llm_judge.xlsx"]), engine="openpyxl").assign(
        **change
    )
    book = io.BytesIO()
    other.dropna(axis="columns", how="all").to_excel(book, index=False)
    files["o4-mini_llm_judge.xlsx"] = book.getvalue()
    mirrored(monkeypatch, tmp_path, "mentalalign", files)
    with pytest.raises(DataError, match=said):
        derive("mentalalign")


@pytest.fixture(scope="module")
def real():
    return load_scores("mentalalign")


@pytest.fixture(scope="module")
def published():
    return load_scores("mentalalign", as_published=True)


@pytest.mark.mirror
def test_the_published_means_of_the_clinicians_follow_but_for_one_printed_figure(published, mirror):
    """Qwen-3-4B's Guidance is printed as 3.07; the file gives 2.76.

    All other 71 figures follow within 0.01.
    """
    printed = pd.read_csv(mirror / "mentalalign70k" / "published_human_means.csv")
    names = {
        "DeepSeek-LLaMA-8B": "deepseek-llama-8b",
        "DeepSeek-Qwen-7B": "deepseek-qwen-7b",
        "Qwen-2.5-7B": "qwen-2.5-7b",
        "Qwen-3-4B": "qwen-3-4b",
    }
    printed.index = printed["model"].map(lambda model: names.get(model, model.lower()))
    people = published[(published["rater"] == "clinicians") & (published["state"] == "valid")]
    ours = people.pivot_table(
        index="responder", columns="dimension", values="score", aggfunc="mean"
    )
    ours["average"] = ours.mean(axis=1)
    theirs = printed[[*ATTRIBUTES, "average"]].astype(float)
    difference = (ours.loc[theirs.index, theirs.columns] - theirs).abs()
    off = [
        (model, column)
        for column in difference
        for model in difference.index[difference[column] > 0.01]
    ]
    assert off == [("qwen-3-4b", "guidance")]
    # The average printed beside it, 3.64, follows from 2.76; from 3.07 it would be 3.69.
    assert ours.loc["qwen-3-4b", "guidance"] == pytest.approx(2.762, abs=5e-4)


@pytest.mark.mirror
def test_the_published_reliabilities_follow_when_people_are_joined_by_row(published, real, mirror):
    """ICC(C,1) between means of responders, less the judge's own; within .005 as published, not
    otherwise."""
    printed = pd.read_csv(mirror / "mentalalign70k" / "published_icc.csv")
    judges = {
        "Claude-3.7-Sonnet": ("claude-3.7-sonnet", "claude-3.5-haiku"),
        "GPT-4o": ("gpt-4o", "gpt-4o"),
        "Gemini-2.5-Flash": ("gemini-2.5-flash", "gemini-2.0-flash"),
        "o4-mini": ("o4-mini", "gpt-4o-mini"),
    }

    def worst(scores):
        valid = scores[scores["state"] == "valid"]
        wide = valid.pivot_table(
            index=["history_id", "responder", "dimension"], columns="rater", values="score"
        ).reset_index()
        found = []
        for row in printed.itertuples():
            judge, own = judges[row.judge]
            both = wide[(wide["dimension"] == row.attribute) & (wide["responder"] != own)].dropna(
                subset=["clinicians", judge]
            )
            means = both.groupby("responder")[["clinicians", judge]].mean().to_numpy()
            n, k = means.shape
            rows, columns = means.mean(axis=1, keepdims=True), means.mean(axis=0)
            between = k * ((rows - means.mean()) ** 2).sum() / (n - 1)
            rest = ((means - rows - columns + means.mean()) ** 2).sum() / ((n - 1) * (k - 1))
            found.append(abs((between - rest) / (between + (k - 1) * rest) - row.icc_c1))
        return max(found)

    assert worst(published) < 0.005
    assert worst(real) > 0.02


@pytest.mark.mirror
def test_every_trap_of_mentalalign_is_counted(real):
    notes = real.attrs["notes"]
    people = notes["clinicians"]
    assert (people["empty"], people["all_zeros"], people["out_of_range"], people["with null"]) == (
        57,
        33,
        3,
        7,
    )
    assert (
        people["rows moved"],
        people["rows repeated_question"],
        people["rows other_question"],
    ) == (10, 8, 1)
    unreadable = {
        rater: counts.get("not_json", 0) + counts.get("empty", 0) for rater, counts in notes.items()
    }
    assert unreadable == {
        "clinicians": 57,
        "claude-3.7-sonnet": 3,
        "gpt-4o": 0,
        "gemini-2.5-flash": 8,
        "o4-mini": 4,
    }
    assert (notes["claude-3.7-sonnet"]["code_fence"], notes["gpt-4o"]["code_fence"]) == (2315, 9971)
    zeros = real[real["flags"].map(lambda flags: "all_zeros" in flags)]
    assert (zeros["responder"].value_counts() / 7).to_dict() == {
        "qwen-2.5-7b": 20,
        "qwen-3-4b": 10,
        "original": 2,
        "deepseek-qwen-7b": 1,
    }
    assert len(real) == 5 * 1000 * 10 * 7
    assert real.loc[real["state"] == "valid", "score"].between(1, 5).all()


@pytest.mark.mirror
def test_the_clinicians_change_at_five_rows_and_no_judge_changes_at_any(published):
    starts = [0, 299, 399, 548, 624, 798]
    people = published[published["rater"] == "clinicians"]
    blocks = people.drop_duplicates("history_id").sort_values("history_id")["group"].tolist()
    changes = [row for row in range(1, 1000) if blocks[row] != blocks[row - 1]]
    assert [0, *changes] == starts
    for rater, rows in published[published["score"].between(1, 5)].groupby("rater"):
        means = rows.pivot_table(index="history_id", columns="dimension", values="score").to_numpy()
        expected = starts if rater == "clinicians" else [0]
        assert find_blocks(means) == expected
        if rater == "clinicians":
            assert all(
                find_blocks(means, strictness=strictness) == starts for strictness in (2.5, 4, 5)
            )


@pytest.mark.mirror
def test_original_is_never_called_human(real):
    authors = load_responders("mentalalign").set_index("responder")["responder_kind"]
    assert authors["original"] == "source"
    assert set(authors.drop("original")) == {"model"}
    assert set(real["responder"]) == set(authors.index)
    assert real.loc[real["rater_kind"] == "human", "rater"].unique().tolist() == ["clinicians"]


def test_verdicts_of_mentalalign_are_pairs_of_its_scores(real):
    people = real.query("dimension == 'empathy' and rater_kind == 'human'")
    found = scores_to_verdicts(people)
    assert len(found) == 1000 * 45
    assert set(zip(found["dimension"], found["rater"], strict=True)) == {("empathy", "clinicians")}
    pd.testing.assert_frame_equal(found, check_table("verdicts", found))


# Blocks -----------------------------------------------------------------------------------------


def test_blocks_are_found_where_they_were_put(rng):
    """Simulated: three blocks that differ in mean, and two that differ in spread alone."""
    parts = [rng.normal(mean, spread, (100, 3)) for mean, spread in [(3, 1), (4.2, 1), (4.2, 0.2)]]
    starts = find_blocks(np.vstack(parts))
    assert len(starts) == 3
    assert np.abs(np.array(starts) - [0, 100, 200]).max() <= 2


def test_a_short_stretch_is_a_block_where_short_ones_are_looked_for(rng):
    series = rng.normal(3, 0.5, (100, 3))
    series[60:72] += 3
    assert find_blocks(series, shortest=10) == [0, 60, 72]
    assert min(np.diff([*find_blocks(series), 100])) >= 30


def test_one_stretch_of_scores_stays_one_block():
    """Simulated: 40 series without a change give none, so the rule is strict."""
    found = [
        find_blocks(np.random.default_rng(seed).normal(4, 0.7, (400, 7))) for seed in range(40)
    ]
    assert found == [[0]] * 40


def test_missing_rows_do_not_stop_the_search(rng):
    series = np.vstack([rng.normal(3, 0.5, (80, 2)), rng.normal(4.5, 0.5, (80, 2))])
    series[[5, 40, 100]] = np.nan
    assert find_blocks(series) == [0, 80]


# Empathic communication -------------------------------------------------------------------------

SETS = {
    "Empathetic Dialogues": "empatheticdialogues",
    "EPITOME": "epitome",
    "Lend an Ear": "lend_an_ear",
    "Perceived Empathy": "perceived_empathy",
}


@pytest.mark.mirror
def test_the_ratings_of_conversations_are_whole(mirror):
    scores = load_scores("empathic_comm")
    assert scores["history_id"].nunique() == 200
    assert scores.groupby("group")["dimension"].nunique().to_dict() == {
        "empatheticdialogues": 3,
        "epitome": 3,
        "lend_an_ear": 6,
        "perceived_empathy": 9,
    }
    assert len(scores) == 7 * 50 * 21
    people = scores[scores["rater_kind"] == "human"]
    assert sorted(people["rater"].unique()) == ["crowd", "expert1", "expert2", "expert3"]
    assert (
        scores["flags"].map(lambda flags: "aggregated" in flags) == (scores["rater"] == "crowd")
    ).all()
    crowd = people[people["rater"] == "crowd"].groupby("group")["score"]
    assert crowd.apply(lambda score: (score % 1 == 0).mean())["epitome"] == 1
    assert crowd.apply(lambda score: (score * 2 % 1 == 0).mean())["empatheticdialogues"] == 1
    assert set(load_responders("empathic_comm")["responder"]) == set(scores["responder"])


@pytest.mark.mirror
def test_the_published_kappas_between_experts_follow(mirror):
    """Quadratic weights; 63 pairs of experts, printed with two digits."""
    scores = load_scores("empathic_comm")
    printed = pd.read_csv(mirror / "empathic_comm_judges" / "table_kappa.csv")
    wide = scores.pivot_table(
        index=["group", "dimension", "history_id"], columns="rater", values="score"
    )
    off = []
    for row in printed.itertuples(index=False):
        one, other = (name.strip("() '") for name in row[2].split(","))
        if one.startswith("expert1") or one in ("expert2", "expert3"):
            both = wide.loc[(SETS[row[0]], row[1])]
            labels = sorted(set(both[one]) | set(both[other]))
            found = cohen_kappa_score(
                both[one].map(labels.index), both[other].map(labels.index), weights="quadratic"
            )
            off.append(abs(found - row[3]))
    assert len(off) == 63
    assert max(off) < 0.0051


# Responders -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [*PUBLISHED, "esconv", "heart", "sample"])
def test_every_set_says_who_wrote_its_replies_without_any_file(monkeypatch, name):
    monkeypatch.delenv("HEART_DATA_MIRROR", raising=False)
    assert set(load_responders(name)["responder_kind"]) <= set(RESPONDER_KINDS)


def test_a_set_without_responders_is_an_error_that_lists_the_others():
    with pytest.raises(DataError, match="heartbench.*mtbench, mentalalign"):
        load_responders("heartbench")
