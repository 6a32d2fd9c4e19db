"""From official files, in their own shapes, to the columns that are kept; the files here are made up."""

import gzip
import io
import json
import tarfile

import pytest

from data.make import download
from data.make.cuts import cut_official, plain_form, read_words
from data.make.download import fetch_data
from heart_utils.sources.catalogue import SOURCES
from heart_utils.tables import DataError

SECRET = "a-word-that-nobody-may-keep"


def lines(*rows):
    return "\n".join(json.dumps(row, ensure_ascii=False) for row in rows).encode()


def csv_of(*rows):
    return "\n".join(",".join(map(str, row)) for row in rows).encode()


def archive(**sessions):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for name, session in sessions.items():
            content = json.dumps(session).encode()
            folder = "" if "/" in name else "KokoroChat-1/kokorochat_dialogues/"
            member = tarfile.TarInfo(f"{folder}{name}.json")
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return gzip.compress(out.getvalue())


def session(client, *turns):
    review = {"client_id": client, "counselor_id": 7, "score": 72}
    review |= {"felt_heard_and_understood": 3, "conversation_had_good_rhythm": 2}
    said = [
        {"role": role, "time": f"2020-01-01T00:00:{second:02d}", "utterance": text}
        for role, second, text in turns
    ]
    return {"dialogue": said, "review_by_client_en": review, "topic": SECRET}


def talk(name, onlookers):
    """Write a conversation of DUO with the scores of who had it, and of those who look on."""
    scales = ("empathy", "preference", "consistency", "stylistic_similarity")
    judged = {f"{scale}_scores": onlookers for scale in scales} if onlookers else None
    return {
        "dialogue": [{"user_id": name, "message": SECRET}, {"system_id": "0", "message": SECRET}],
        "subjective_evaluation": dict.fromkeys(scales, 4.0),
        "objective_evaluation": judged,
        "episode": SECRET,
    }


OFFICIAL = {
    "duo": {
        "x": archive(
            **{
                "duo-1/ed/en/1": talk("0412", [3.0, 4.0, 5.0]),
                "duo-1/ed/en/2": talk("0007", None),
                "duo-1/ed/ja/1": talk("0412", [1.0, 1.0, 2.0]),
                "duo-1/wow/en/1": talk("0412", None),
            }
        )
    },
    "kokorochat": {
        "x": archive(
            **{
                "1": session(
                    "ann",
                    ("counselor", 0, "abc"),
                    ("client", 5, SECRET),
                    ("client", 9, "x"),
                    ("counselor", 20, "de"),
                ),
                "2": session("bob", ("client", 0, "x"), ("counselor", 3, "y"), ("client", 4, "z")),
            }
        )
    },
    "mindeval": {
        "x": lines(
            {
                "model": "azure/m1",
                "member_attributes": {"name": "Zoe"},
                "conversation": SECRET,
                "criterion_1.responses": [3, 5],
                "criterion_1.responses.users": ["u9", "u1"],
                "criterion11.responses": [2, 4],
                "criterion11.responses.users": ["u9", "u1"],
                "score_justification.responses": [SECRET],
            }
        )
    },
    "ieval": {
        "x": json.dumps(
            [
                {
                    "TEQ_raw": [1],
                    **{
                        valence: {
                            "emotion": "proud",
                            "prompt": SECRET,
                            "Pink": {"chat_log": SECRET, **dict.fromkeys("PALRS", 2)}
                            | {"^P": 1, "^A": 1, "EU": 3, "ER": 4, "Rating": 2},
                        }
                        for valence in ("positive", "negative")
                    },
                }
            ]
        ).encode()
    },
    "sage": {
        "a/s1_based_simulator/m1_result.jsonl": lines(
            {
                "id": "one",
                "emo_point": 50,
                "history": [
                    {"role": "user", "emotion-point": 40, "content": SECRET + "\u2028"},
                    {"role": "assistant", "content": "x"},
                    {"role": "user", "emotion-point": 50},
                ],
            }
        ),
        "a/s1_based_simulator/m2_result.jsonl": lines(
            {"id": "two", "emo_point": 40, "history": [{"role": "user", "emotion-point": 40}]},
            {"id": "one", "emo_point": 40, "history": [{"role": "user", "emotion-point": 40}]},
        ),
    },
    "can_ai_relate": {
        "answers.csv": csv_of(
            ["IPAddress", "LocationLatitude", "Q1", "Q2", "Q3", "Q4", "Q5", "Q6", "Q14_1"],
            ["words"] * 9,
            ["{}"] * 9,
            [SECRET, 1.5, "No", "a shallow one", "Yes", "6: N/A", "3: often", "1: x", 60],
            [
                SECRET,
                2.5,
                "feelings are not explicitly",
                "No",
                "is generic",
                "2: x",
                "5: y",
                "1",
                35,
            ],
        ),
        "shown.csv": csv_of(["Post", "Response", "Type"], [SECRET, SECRET, "AI -  3 lines"]),
    },
    "mibot": {
        "x": csv_of(
            ["ParticipantID", *SOURCES["mibot"].reading["used"], "FeedbackQ1"],
            [SECRET, *[7] * 19, SECRET],
            ["p1", *[3] * 19, ""],
        )
    },
    "reflections": {
        "x": csv_of(
            ["dialogue_context", *SOURCES["reflections"].reading["used"]],
            [SECRET, 5, "BART", "Expert 2", "No"],
        )
    },
    "relationship_seeking": {
        "x": lines(
            *[
                dict.fromkeys(SOURCES["relationship_seeking"].reading["used"], 1)
                | {"ppt_id": name, "understanding": value, "note": SECRET}
                for name, value in (("ppt9", 3), ("ppt2", None), ("ppt9", 5))
            ]
        )
    },
}
EXPECTED = {
    "duo": [
        ["en", "0", *["4.0", "3.0", "4.0", "5.0"] * 4],
        ["en", "1", *["4.0", "", "", ""] * 4],
        ["ja", "0", *["4.0", "1.0", "1.0", "2.0"] * 4],
    ],
    # messages, the counsellor's, median waits of client and of counsellor, letters, ids in the order
    # of sorted rows, scores
    "kokorochat": [
        ["3", "1", "3.0", "1.0", "1", "0", "0", "72", "3", "2"],
        ["4", "2", "11.0", "5.0", "5", "1", "0", "72", "3", "2"],
    ],
    "mindeval": [
        ["m00", "m1", "p00", "criterion_1", "e2", "3"],
        ["m00", "m1", "p00", "criterion_1", "e1", "5"],
        ["m00", "m1", "p00", "criterion_11", "e2", "2"],
        ["m00", "m1", "p00", "criterion_11", "e1", "4"],
    ],
    "ieval": [
        ["0", valence, "Pink", "2", "1", "2", "1", "3", "4", "2", "2", "2", "2"]
        for valence in ("positive", "negative")
    ],
    "sage": [
        ["s1", "m1", "s000", "50", "40 50"],
        ["s1", "m2", "s001", "40", "40"],
        ["s1", "m2", "s000", "40", "40"],
    ],
    "can_ai_relate": [
        [expert, "0", scale, score, "gpt4_short"]
        for expert, scores in (("expert1", "012 31"), ("expert2", "101251"))
        for scale, score in zip(("er", "ip", "ex", "ct", "st", "pa"), scores, strict=True)
    ],
    "mibot": [["3"] * 19, ["7"] * 19],
    "reflections": [["5", "BART", "Expert 2", "No"]],
    "relationship_seeking": [
        [name, "1", "1", "1", "1", "1", value, "1", "1", "1"]
        for name, value in (("0", "3"), ("1", ""), ("0", "5"))
    ],
}


@pytest.mark.parametrize("name", sorted(OFFICIAL))
def test_a_cut_keeps_named_columns_in_one_form_and_nothing_else(name):
    reading = SOURCES[name].reading
    kept = plain_form(reading, cut_official(name, OFFICIAL[name]))
    assert SECRET not in kept.decode()
    table = read_words(kept)
    assert list(table) == reading["used"]
    expected = [[cell.strip() for cell in row] for row in EXPECTED[name]]
    assert table.to_numpy().tolist() == expected
    assert plain_form(reading, table) == kept  # what was cut once stays as it is


def test_every_set_that_is_cut_has_a_cut_and_a_place():
    cut = {
        name for name, source in SOURCES.items() if source.files and source.files[0].kept == "cut"
    }
    assert cut == set(OFFICIAL)
    for name in cut:
        urls = SOURCES[name].urls(SOURCES[name].files[0])
        assert all(url.startswith("https://") for url in urls.values())
    assert len(SOURCES["sage"].urls(SOURCES["sage"].files[0])) == 19


def test_an_official_file_that_has_changed_is_refused_and_nothing_is_kept(monkeypatch, tmp_path):
    monkeypatch.delenv("HEART_DATA_MIRROR", raising=False)
    monkeypatch.setenv("HEART_DATA_CACHE", str(tmp_path))
    monkeypatch.setattr(download, "_download", lambda source, url: OFFICIAL["ieval"]["x"])
    with pytest.raises(DataError, match="its checksum is not the one known"):
        fetch_data("ieval")
    monkeypatch.setattr(download, "_download", lambda source, url: b'[{"positive": 3}]')
    with pytest.raises(DataError, match=r"another layout.*Nothing was kept"):
        fetch_data("ieval")
    assert not list(tmp_path.rglob("*.csv"))
