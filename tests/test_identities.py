"""Who is taken for a person, what becomes of their ids in tables, and what messages and packed
files may hold."""

import os
import re
import stat
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pandas as pd
import pytest

from heart_utils import (
    combine_orders,
    load_replies,
    load_scores,
    load_verdicts,
    open_run,
    pairwise_agreement,
)
from heart_utils.identities import find_identities, looks_like_person, redact_contacts
from heart_utils.runs import RunError, code_people
from heart_utils.tables import DataError

PROLIFIC = "5f3c1b2a9d8e7f6a5b4c3d2e"
WORKER = "A1B2C3D4E5F6G7"
CODED = "ids are codes now"
PEOPLE = [
    "ann@example.org",
    "Anna Schmidt",
    "Bernd M.",
    "Müller, Jörg",
    PROLIFIC,
    WORKER,
    "A5X",
    "+49 30 1234567",
    "anna.schmidt",
]
NOBODY = [
    "r1",
    "rater-0001",
    "rater-1a2b3c4d",
    "expert panel",
    "crowd_average",
    "gpt-4o-2024-08-06",
    "Rater B",
    "people",
    "A1",
]


@pytest.fixture
def keys(tmp_path, monkeypatch):
    monkeypatch.setenv("HEART_KEYS", str(tmp_path / "keys"))
    return tmp_path / "keys" / "people.csv"


def votes(*raters, **columns):
    rows = {
        "history_id": [f"c{place}" for place in range(len(raters))],
        "responder_a": "x",
        "responder_b": "y",
    }
    return pd.DataFrame(rows | {"rater": raters, "rater_kind": "human", "verdict": "a"} | columns)


@pytest.mark.parametrize("word", PEOPLE + NOBODY)
def test_an_address_a_full_name_and_an_id_are_people_and_a_code_a_role_and_a_number_nobody(word):
    assert looks_like_person(word) == (word in PEOPLE)


@pytest.mark.parametrize(
    "word", ["claude-3-5-sonnet@20240620", "Claude Opus", "openai/gpt-4o", "llama.cpp"]
)
def test_a_model_may_have_a_name_like_a_person_s(word):
    assert not looks_like_person(word, human=False)
    rows = load_verdicts(votes(word, rater_kind="model"))
    assert rows["rater"].tolist() == [word]


@pytest.mark.parametrize("word", PEOPLE)
def test_a_rater_who_is_a_person_is_a_code_that_stays_as_long_as_the_key_file(word, keys):
    with pytest.warns(UserWarning, match=CODED):
        code = load_verdicts(votes(word, "r1"))["rater"].tolist()[0]
    again = load_scores(
        pd.DataFrame(
            {
                "history_id": ["h"],
                "responder": "m",
                "rater": word,
                "dimension": "empathy",
                "score": 4,
            }
        ),
        always={"rater_kind": "human"},
    )
    assert again["rater"].tolist() == [code]
    assert code.startswith("rater-")
    assert stat.S_IMODE(keys.stat().st_mode) == 0o600
    assert (keys.parent / ".gitignore").read_text() == "*\n"
    keys.unlink()
    with pytest.warns(UserWarning, match=CODED):
        assert load_verdicts(votes(word))["rater"].tolist() != [code]


def test_ids_stay_or_all_become_codes_on_request_or_by_a_header_of_people(keys):
    rows = votes("ann@example.org", "r1", rationale=["write to ann@example.org", None])
    kept = load_verdicts(rows, keep_ids=True)
    assert kept["rater"].tolist() == ["ann@example.org", "r1"]
    assert kept["rationale"].tolist()[0] == "write to ann@example.org"
    assert not keys.exists()
    header = rows.rename(columns={"rater": "WorkerId"}).assign(WorkerId=["u1", "u2"])
    for given, options in (
        (rows, {"keep_ids": False}),
        (header, {"columns": {"WorkerId": "rater"}}),
    ):
        with pytest.warns(UserWarning, match=CODED):
            coded = load_verdicts(given, **options)["rater"]
        assert coded.str.fullmatch("rater-[0-9a-f]{8}").all()


def test_a_writer_and_the_ids_made_of_an_address_are_coded_alike_in_every_table(keys):
    reply = {
        "history_id": ["h"],
        "responder": "jo@example.org",
        "author_id": "Jo Doe",
        "text": "Mail me: a@b.org",
    }
    with pytest.warns(UserWarning, match=CODED):
        replies = load_replies(pd.DataFrame(reply))
    verdicts = load_verdicts(votes("r1").assign(responder_a="jo@example.org", history_id="h"))
    assert verdicts["responder_a"].tolist() == replies["responder"].tolist()
    assert replies["reply_id"].tolist() == ["h--" + replies["responder"].item()]
    assert verdicts["pair_id"].tolist() == [f"h--{replies['responder'].item()}--y"]
    assert replies["author_id"].str.startswith("writer-").all()
    assert replies["text"].tolist() == ["Mail me: [email]"]


def test_reasons_lose_contacts_and_say_so(keys):
    reason = f"I am jo@example.org, {PROLIFIC}, {WORKER}, 192.0.2.1, +49 30 1234567"
    with pytest.warns(UserWarning, match="contacts in 1 texts"):
        rows = load_verdicts(votes("r1", "r2", rationale=[reason, "The left one listens."]))
    assert rows["rationale"].tolist() == [
        "I am [email], [id], [id], [ip], [number]",
        "The left one listens.",
    ]
    assert rows["flags"].tolist() == [["redacted"], []]


def test_a_run_codes_what_no_loader_has_seen_and_keeps_it_from_other_readers(keys, tmp_path):
    run = open_run(tmp_path / "run")
    rows = load_verdicts(votes("Anna Schmidt", rationale="I am jo@example.org"), keep_ids=True)
    with pytest.warns(UserWarning, match=CODED):
        run.write("verdicts", rows)
    written = run.read("verdicts")
    assert written["rater"].str.startswith("rater-").all()
    assert written["rationale"].tolist() == ["I am [email]"]
    assert stat.S_IMODE((run.folder / "verdicts.parquet").stat().st_mode) == 0o600


def test_a_run_keeps_ids_under_a_licence_that_permits_it_alone(keys, tmp_path):
    run, rows = open_run(tmp_path / "run"), load_verdicts(votes("Anna Schmidt"), keep_ids=True)
    with pytest.raises(RunError, match=r"verdicts, and its licence is 'none stated'. Record one"):
        run.write("verdicts", rows, keep_ids=True)
    assert not (run.folder / "verdicts.parquet").exists()
    run.record(tables={"verdicts": {"licence": "CC-BY-4.0"}})
    run.write("verdicts", rows, keep_ids=True)
    assert run.read("verdicts")["rater"].tolist() == ["Anna Schmidt"]
    assert run.manifest["tables"]["verdicts"] == {"licence": "CC-BY-4.0", "ids": "kept"}
    assert not keys.exists()


def test_a_file_that_is_refused_leaves_no_key_behind(keys):
    with pytest.raises(DataError):
        load_verdicts(votes("ann@example.org", verdict="left"))
    assert not keys.parent.exists()


def test_a_key_file_that_cannot_be_written_is_a_sentence(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("HEART_KEYS", str(tmp_path / "file" / "keys"))
    with pytest.raises(DataError, match="could not be written.*HEART_KEYS names another folder"):
        load_verdicts(votes("ann@example.org"))


def _code(number: int, file: Path) -> dict[str, str]:
    return code_people([f"{place}@example.org" for place in range(number, number + 20)], file)


def test_processes_that_code_at_once_lose_nobody(tmp_path):
    file = tmp_path / "keys" / "people.csv"
    with ProcessPoolExecutor(4) as pool:
        codes = list(pool.map(_code, range(0, 40, 5), [file] * 8))
    kept = code_people([], file)
    assert len(kept) == 55
    assert all(kept[person] == code for each in codes for person, code in each.items())


def test_what_was_missed_is_found_and_not_shown(keys):
    rows = load_verdicts(
        votes("ann@example.org", PROLIFIC, "r3", rationale=["x", "y", f"my id: {PROLIFIC}"]),
        keep_ids=True,
    )
    found = find_identities(rows)
    assert found == {"rater": "e-mail addresses (2 rows)", "rationale": "texts (1 row)"}
    assert find_identities(
        rows.assign(rater="r", rationale=None, group="by Ann Lee"), known={"Ann Lee"}
    ) == {"group": "texts (3 rows)"}


def test_the_key_file_is_where_it_is_asked_for_and_people_are_told_once(
    monkeypatch, tmp_path, recwarn
):
    monkeypatch.setenv("HEART_KEYS", str(tmp_path / "safe"))
    for _ in range(2):
        load_verdicts(votes("ann@example.org"))
    [told] = recwarn
    assert str(tmp_path / "safe" / "people.csv") in str(told.message)
    assert sorted(os.listdir(tmp_path / "safe")) == [".gitignore", ".people.lock", "people.csv"]


def test_messages_of_statistics_name_no_rater_who_looks_like_a_person(keys):
    rows = load_verdicts(votes("ann@example.org", "Bernadette Plant", "r3"), keep_ids=True)
    for between in (("r7", "r3"), ("model", "r3")):
        with pytest.raises(
            ValueError, match=r"\(somebody\), \(somebody\), r3|rater_kind is: human"
        ) as caught:
            pairwise_agreement(rows, between=between)
        assert not [name for name in ("ann@", "Plant") if name in str(caught.value)]
    twice = pd.concat([rows, rows]).assign(order="ab")
    with pytest.raises(ValueError, match=r"rater '\(somebody\)'"):
        combine_orders(twice)


SPELT_OUT = """\
quill (at) example (dot) org|quill[at]example[dot]org|quill [at] example.org|quill {at} example {dot} co {dot} uk
quill at example dot org|quill AT example DOT com|anna dot quill at mail dot example dot com|quill(at)example.org
quill＠example．org|ｑｕｉｌｌ＠ｅｘａｍｐｌｅ．ｏｒｇ|quill（at）example（dot）org|quill (@) example (.) org
quill @ example . org|quill@example dot org|quill (ät) beispiel (punkt) de|quill arroba ejemplo punto es
quill-at-example-dot-org|quill_at_example_dot_org|quill <at> example <dot> org|quill アット example ドット jp"""


@pytest.mark.parametrize("address", re.split(r"[|\n]", SPELT_OUT))
def test_an_address_that_is_spelt_out_is_redacted_like_any_other(address):
    assert redact_contacts(address) == "[email]"
    assert redact_contacts(f"Write to {address}, please.") == "Write to [email], please."
    assert looks_like_person(address, human=False)
    assert find_identities(pd.DataFrame({"rationale": [f"Ask {address}."]}))


@pytest.mark.parametrize(
    "text",
    [
        "I was at home. Then I left.",
        "We are at this point in life.",
        "I looked at the dot in the middle of the polka dot dress.",
        "I woke at 5 (at least). Fine. He said (at night) nothing. Ok",
        "We met @ home. Then she left.",
        "She sat at a table. Dot came in.",
        "He is good at maths and dot products.",
        "in 2019, 3 of 15 said so",
        "Reply A wins 10-0",
        "version 1.2.3 is out",
    ],
)
def test_words_that_an_address_may_be_spelt_with_stay(text):
    assert redact_contacts(text) == text
