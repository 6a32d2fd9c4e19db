"""Files of known kinds that came out in another way: read by the call that is proposed, or refused
with what to say."""

import json
import warnings

import numpy as np
import pandas as pd
import pytest
from test_files_that_people_have import proposed

from heart_utils.sources.load import load_verdicts
from heart_utils.tables import DataError

SHOWN = [
    ("q1", "alpha", "beta"),
    ("q2", "beta", "alpha"),
    ("q3", "alpha", "beta"),
    ("q4", "beta", "alpha"),
]
WON = ["alpha", "alpha", "tie", "alpha"]


def battles(words, column="winner"):
    return [
        {"question_id": history, "model_a": first, "model_b": second, column: word, "judge": "ann"}
        for (history, first, second), word in zip(SHOWN, words, strict=True)
    ]


def write(tmp_path, name, content, encoding="utf-8"):
    file = tmp_path / name
    if name.endswith(".jsonl"):
        content = "\n".join(map(json.dumps, content))
    elif name.endswith(".json"):
        content = json.dumps(content)
    file.write_bytes(content.encode(encoding))
    return file


def winners(table):
    columns = (
        table[["responder_a", "responder_b", "verdict", "state"]].astype(object).to_numpy().tolist()
    )
    return [{"a": a, "b": b, "tie": "tie"}.get(verdict, state) for a, b, verdict, state in columns]


def twice(given):
    """Load by the proposed call; give the table and the message that proposed it."""
    with pytest.raises(DataError) as caught:
        load_verdicts(given)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return load_verdicts(given, **proposed(caught.value)), str(caught.value)


@pytest.mark.parametrize(
    ("first", "second", "tie"),
    [
        ("Response A", "Response B", "Tie"),
        ("Left", "Right", "Both equal"),
        ("A>>B", "B>A", "A=B"),
        ("[[A>B]]", "[[B>>A]]", "[[A=B]]"),
        ("[[A]]", "[[B]]", "[[C]]"),
        ("model_1", "model_2", "tie"),
        ("Assistant A", "Assistant B", "both good"),
        ("Chatbot A is better", "Chatbot B is better", "They are equally good"),
        ("A is slightly better", "The response B is much better", "About the same"),
        ("Option 1", "Option 2", "both bad"),
        ("model_a", "model_b", "tie (bothbad)"),
    ],
)
def test_words_of_many_tools_are_known(tmp_path, first, second, tie):
    table, _ = twice(write(tmp_path, "votes.json", battles([first, second, tie, second])))
    assert winners(table) == WON


def test_a_winner_by_name_is_read_even_if_one_won_all(tmp_path):
    table, _ = twice(write(tmp_path, "votes.json", battles(["alpha", "alpha", "tie", "alpha"])))
    assert winners(table) == WON


@pytest.mark.parametrize("words", [[1, 2, 0, 2], [0, 1, 0, 1], [1, 7, 4, 6]])
def test_numbers_are_asked_about_and_steps_can_be_read_as_such(tmp_path, words):
    file = write(tmp_path, "votes.csv", pd.DataFrame(battles(words)).to_csv(index=False))
    with pytest.raises(DataError, match=rf"row 0 says '{words[0]}'"):
        load_verdicts(file, **proposed(pytest.raises(DataError, load_verdicts, file).value))
    if max(words) == 7:
        how = proposed(pytest.raises(DataError, load_verdicts, file).value)
        how |= {
            "columns": {**how["columns"], "winner": "p_a"},
            "words": {"p_a": {"1": 1, "7": 0}},
        }
        assert winners(load_verdicts(file, **how)) == WON


@pytest.mark.parametrize(
    ("encoding", "mark"), [("cp1252", ";"), ("utf-8-sig", ","), ("utf-16", "\t")]
)
def test_encodings_and_separators_of_spreadsheets_are_found(tmp_path, encoding, mark):
    german = {
        "question_id": "Gespräch",
        "model_a": "links",
        "model_b": "rechts",
        "winner": "Urteil",
        "judge": "Prüfer",
    }
    rows = pd.DataFrame(battles(["links", "rechts", "beide gut", "rechts"])).rename(
        columns=german | {"judge": "rater"}
    )
    table, _ = twice(write(tmp_path, "votes.csv", rows.to_csv(index=False, sep=mark), encoding))
    assert winners(table) == WON


def test_ids_as_floats_are_whole_numbers_and_an_empty_one_is_named():
    rows = pd.DataFrame(battles(["model_a", "model_b", "tie", "model_b"])).assign(
        question_id=[1.0, 2.0, 3.0, 4.0]
    )
    assert twice(rows)[0]["history_id"].tolist() == ["1", "2", "3", "4"]
    rows.loc[2, "question_id"] = np.nan
    with pytest.raises(
        DataError, match=r"history_id: expected text, in every row; row 2 has nothing"
    ):
        twice(rows)


def test_label_studios_short_json_is_read_and_its_ids_are_no_answers(tmp_path):
    rows = [
        {
            "id": place,
            "prompt": history,
            "model1": first,
            "model2": second,
            "comparison": word,
            "annotator": 1,
        }
        for place, ((history, first, second), word) in enumerate(
            zip(SHOWN, ["left", "right", "left", "right"], strict=True)
        )
    ]
    assert winners(twice(write(tmp_path, "votes.json", rows))[0]) == ["alpha"] * 4


def test_argillas_discarded_responses_do_not_count(tmp_path):
    rows = [
        {
            "id": history,
            "fields": {"prompt": "p"},
            "metadata": {"model_a": first, "model_b": second},
            "responses": [
                {"user_id": user, "values": {"preference": {"value": word}}, "status": status}
                for user, status in (("u1", "submitted"), ("u2", "discarded"))
            ],
        }
        for (history, first, second), word in zip(
            SHOWN, ["response_a", "response_b", "tie", "response_b"], strict=True
        )
    ]
    table, said = twice(write(tmp_path, "votes.jsonl", rows))
    assert winners(table) == WON
    assert "only={'responses.status': 'submitted'}" in said


def test_doccanos_label_is_a_list_of_one_word(tmp_path):
    rows = [
        {"id": place, "text": "t", "label": [word], "model_a": first, "model_b": second}
        for place, ((_, first, second), word) in enumerate(
            zip(SHOWN, ["A", "B", "tie", "B"], strict=True)
        )
    ]
    assert winners(twice(write(tmp_path, "votes.jsonl", rows))[0]) == WON


def test_a_reason_for_rejecting_work_leaves_it_out(tmp_path):
    text = (
        "HITId,WorkerId,AssignmentStatus,Input.model_a,Input.model_b,Answer.choice,Approve,Reject\n"
        "H1,A1B2C3D4E5F6G,Submitted,alpha,beta,left,x,\nH2,A1B2C3D4E5F6G,Submitted,beta,alpha,right,,wrong\n"
    )
    table, said = twice(write(tmp_path, "votes.csv", text))
    assert winners(table) == ["alpha"]
    assert (
        "1 of 2 rows may not count: Reject is 'wrong', first in row 1. only={'Reject': ''} leaves"
        " them out" in said
    )


def test_qualtrics_second_header_is_found_without_its_row_of_import_ids(tmp_path):
    text = (
        "StartDate,EndDate,Finished,ResponseId,Q1,Q2\nStart Date,End Date,Finished,Response"
        " ID,Which?,Which?\n2024-01-01,2024-01-01,True,R_1,Reply A,Reply"
        " B\n2024-01-01,2024-01-01,True,R_2,Reply A,Equal\n"
    )
    file = write(tmp_path, "votes.csv", text)
    how = proposed(pytest.raises(DataError, load_verdicts, file).value)
    assert {"Q1": "verdict", "Q2": "verdict"}.items() <= how["columns"].items()
    with pytest.raises(DataError, match=r"shown still has '\.\.\.'"):
        load_verdicts(file, **how)
    pairs = [
        {"column": name, "history_id": name, "responder_a": "alpha", "responder_b": "beta"}
        for name in ("Q1", "Q2")
    ]
    with pytest.warns(UserWarning, match="rows of headers by Qualtrics"):
        table = load_verdicts(file, **{**how, "shown": pairs})
    assert winners(table) == ["alpha", "alpha", "beta", "tie"]


def test_tallies_of_r_have_points_in_their_headers(tmp_path):
    file = write(tmp_path, "votes.csv", "home.team,away.team,home.wins,away.wins\nalpha,beta,2,1\n")
    assert winners(twice(file)[0]) == ["alpha", "alpha", "beta"]


def test_several_columns_of_answers_are_asked_about_and_none_is_dropped_in_silence(tmp_path):
    text = "question_id,model_a,model_b,judge,empathy,clarity\nq1,alpha,beta,ann,model_a,model_b\nq2,beta,alpha,ann,model_b,tie\n"
    file = write(tmp_path, "votes.csv", text)
    said = pytest.raises(DataError, load_verdicts, file)
    assert "Nothing here says what is verdict" in str(said.value)
    assert "  empathy: 'model_a', 'model_b'" in str(said.value)
    how = proposed(said.value)
    how["columns"] |= {"empathy": "verdict", "clarity": "verdict"}
    how["always"]["dimension"] = "{column}"
    table = load_verdicts(file, **how, words={"model_a": "a", "model_b": "b"})
    assert table.set_index(["history_id", "dimension"])["verdict"].to_dict() == {
        ("q1", "empathy"): "a",
        ("q1", "clarity"): "b",
        ("q2", "empathy"): "a",
        ("q2", "clarity"): "tie",
    }


def test_preferences_on_another_scale_than_alpaca_evals_are_refused(tmp_path):
    rows = [
        {
            "instruction": history,
            "generator_1": first,
            "generator_2": second,
            "annotator": "gpt4",
            "preference": share,
        }
        for (history, first, second), share in zip(SHOWN, [0.1, 0.9, 0.5, 1.0], strict=True)
    ]
    with pytest.raises(DataError, match=r"row 0 has 0.1.*Say which number means a for sure"):
        twice(write(tmp_path, "votes.json", rows))


def test_arena_hards_baseline_must_be_named(tmp_path):
    games = [
        {
            "question_id": f"q{n}",
            "model": "alpha",
            "judge": "gpt",
            "games": [{"score": "A>B"}, {"score": "B>>A"}],
        }
        for n in "12"
    ]
    file = write(tmp_path, "votes.jsonl", games)
    how = proposed(pytest.raises(DataError, load_verdicts, file).value)
    with pytest.raises(DataError, match=r"always still has '\.\.\.'"):
        load_verdicts(file, **how)
    table = load_verdicts(file, **{**how, "always": {**how["always"], "responder_a": "base"}})
    assert winners(table) == ["base", "base"]


def test_names_that_are_only_sides_must_be_confirmed(tmp_path):
    task = {
        "text": "q1",
        "_task_hash": 1,
        "options": [{"id": "A"}, {"id": "B"}],
        "accept": ["A"],
        "answer": "accept",
    }
    _, said = twice(write(tmp_path, "votes.jsonl", [{**task, "_annotator_id": "db-ann"}]))
    assert "A and B are names of who wrote the replies, and not of sides or places" in said


@pytest.mark.mirror
def test_mt_bench_by_its_own_published_files_agrees_as_its_paper_prints(mirror):
    """Zheng et al.

    2023, table 5; the released files hold more pairs of votes than the table counts (first turn:
    1,343).
    """
    people, judge = (
        twice(mirror / "mtbench_human" / name)[0] for name in ("human.jsonl", "gpt4_pair.jsonl")
    )
    assert (len(people), len(judge)) == (3355, 2400)
    both = people.merge(judge, on="pair_id", suffixes=("", "_judge"))
    printed = {"1": (0.66, 0.85), "2": (0.66, 0.85)}  # ties included, ties left out
    for turn, (with_ties, without_ties) in printed.items():
        votes = both[both["history_id"].str.endswith(f"-{turn}")]
        decided = votes[(votes["verdict"] != "tie") & (votes["verdict_judge"] != "tie")]
        assert (votes["verdict"] == votes["verdict_judge"]).mean() == pytest.approx(
            with_ties, abs=0.01
        )
        assert (decided["verdict"] == decided["verdict_judge"]).mean() == pytest.approx(
            without_ties, abs=0.01
        )
