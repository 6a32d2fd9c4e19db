"""Codes for people, the key file, redaction."""

import os
import stat
from io import StringIO

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from heart_collect.people.assignment import StudyError
from heart_collect.people.raters import redact_text, suspicious_text
from heart_utils.runs import RunError, code_people, csv_text, read_csv_text, visible_text


def test_codes_are_random_stay_as_long_as_the_key_file_and_their_order_tells_nothing(tmp_path):
    here, there = tmp_path / "a.csv", tmp_path / "b.csv"
    people = [f"person {number}" for number in range(40)]
    codes = code_people(people[:20], here)
    assert code_people(people, here).items() >= codes.items()
    listed = [line.split(",")[0] for line in here.read_text().splitlines()[1:]]
    assert listed == sorted(listed)
    assert code_people(people[:1], there)[people[0]] != codes[people[0]]
    here.unlink()
    assert code_people(people[:1], here)[people[0]] != codes[people[0]]


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
def test_the_key_file_is_its_owner_s_alone_from_the_first_byte(tmp_path, monkeypatch, umask):
    seen, keys = set(), tmp_path / "keys"

    def look():
        seen.update(stat.S_IMODE(file.stat().st_mode) for file in keys.iterdir())

    def watched(doing):
        def do(*given, **named):
            look()
            done = doing(*given, **named)
            look()
            return done

        return do

    for name in ("replace", "chmod", "fsync"):
        monkeypatch.setattr(os, name, watched(getattr(os, name)))
    before = os.umask(umask)
    try:
        for people in (["ann"], ["ann", "ben"]):
            code_people(people, keys / "people.csv")
    finally:
        os.umask(before)
    assert seen == {0o600}
    assert stat.S_IMODE(keys.stat().st_mode) == 0o700


def test_a_name_that_is_a_formula_is_none_in_the_key_file_and_keeps_its_code(tmp_path):
    file = tmp_path / "people.csv"
    names = ["=cmd|'/C calc'!A0", "@SUM(1)", "'=1", "' -", "-", "ann"]
    codes = code_people(names, file)
    assert code_people(names, file) == codes
    assert not any(
        line.split(",", 1)[1].lstrip('"')[0] in "=+-@" for line in file.read_text().splitlines()[1:]
    )


def test_one_person_is_one_rater_and_one_writer(tmp_path):
    file = tmp_path / "people.csv"
    kinds = ("rater", "writer", "rater")
    rater, writer, again = (code_people(["ann"], file, prefix=kind)["ann"] for kind in kinds)
    assert (rater[:6], writer[:7]) == ("rater-", "writer-")
    assert again == rater


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("name,code\nann,rater-1\n", "not code and person alone"),
        ("code,person\nrater-1,ann\nrater-1,ben\n", "gives rater-1 or its person twice"),
        ("code,person\nrater-1,ann\nrater-2,ann\n", "gives rater-2 or its person twice"),
        ('code,person\nrater-1,"ann', "cannot be read"),
    ],
)
def test_a_damaged_key_file_is_refused(tmp_path, content, message):
    file = tmp_path / "people.csv"
    file.write_text(content)
    with pytest.raises(RunError, match=message):
        code_people(["ann"], file)


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("mail me: jo.doe+x@mail.example.org!", "mail me: [email]!"),
        ("see https://example.org/a?b=c for it", "see [link] for it"),
        ("I am @jo_doe there", "I am [handle] there"),
        ("call 020 7946-0000 or +44 (20) 7946 0000", "call [number] or [number]"),
        ("my id is 5f3c1b2a9d8e7f6a5b4c3d2e", "my id is [id]"),
        ("pay DE89370400440532013000 or NL91 ABNA 0417 1643 00", "pay [number] or [number]"),
        ("in 2019, 3 of 15 said so", "in 2019, 3 of 15 said so"),
        ("by a2 and b12 at 10 am", "by a2 and b12 at 10 am"),
        ("Reply A wins 10-0", "Reply A wins 10-0"),
    ],
)
def test_contacts_go_and_words_stay(text, left):
    assert redact_text(text) == left


def test_all_and_none_do_what_they_say():
    assert redact_text("a@b.org", "none") == "a@b.org"
    assert redact_text("kind", "all") is None
    assert redact_text(None) is None
    with pytest.raises(StudyError, match="no redaction 'some'"):
        redact_text("kind", "some")


@given(st.text())
def test_redacting_twice_changes_nothing_more(text):
    once = redact_text(text)
    assert redact_text(once) == once


@pytest.mark.parametrize(
    ("text", "flags"),
    [
        ("=1+1", ["formula"]),
        ("@SUM(A1)", ["formula"]),
        ("+cmd|' /C calc'!A0", ["formula"]),
        ("-2+3", ["formula"]),
        ("- it listens", ["formula"]),
        ("<script>alert(1)</script>", ["markup"]),
        ("=<img src=x>", ["formula", "markup"]),
        ("2 < 3 and a > b", []),
        ("", []),
        (None, []),
    ],
)
def test_texts_that_would_compute_or_run_are_flagged(text, flags):
    assert suspicious_text(text) == flags


@given(
    st.lists(
        st.text(
            st.characters(exclude_categories=["Cs", "Cc"]) | st.sampled_from("=+-@' "), min_size=1
        ),
        min_size=1,
    )
)
def test_texts_come_back_from_a_csv_in_which_none_is_a_formula(texts):
    written = csv_text(pd.DataFrame({"text": texts}))
    assert read_csv_text(written, keep_default_na=False, dtype=str)["text"].tolist() == texts
    cells = pd.read_csv(StringIO(written), keep_default_na=False, dtype=str)["text"]
    assert not cells.str.match(r"\s*[=+\-@]").any()


def test_numbers_below_zero_stay_numbers():
    assert csv_text(pd.DataFrame({"gap": [-1.5], "n": [-2]})) == "gap,n\n-1.5,-2\n"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("before \u202eyrros\u202c after", "before [U+202E]yrros[U+202C] after"),
        ("\u2066in\u2069", "[U+2066]in[U+2069]"),
        ("a\x00b\x1b[31m", "a[U+0000]b[U+001B][31m"),
        ("one\ntwo\tthree", "one\ntwo\tthree"),
        ("שלום, مرحبا\u200f!", "שלום, مرحبا\u200f!"),
        ("👩\u200d👧", "👩\u200d👧"),
    ],
)
def test_characters_that_would_be_obeyed_are_shown(text, shown):
    assert visible_text(text) == shown
