"""Codes for people, the key file, redaction."""

import stat

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heart_utils.collect.privacy import PrivacyError, code_people, redact_text, suspicious_text


def test_codes_are_random_and_stay_as_long_as_the_key_file(tmp_path):
    here, there = tmp_path / "a.csv", tmp_path / "b.csv"
    codes = code_people(["ann", "ben"], here)
    assert code_people(["ben", "ann", "cy"], here).items() >= codes.items()
    assert code_people(["ann"], there)["ann"] != codes["ann"]
    here.unlink()
    assert code_people(["ann"], here)["ann"] != codes["ann"]


def test_only_the_owner_reads_the_key_file_and_its_order_tells_nothing(tmp_path):
    file = tmp_path / "keys" / "people.csv"
    code_people([f"person {number}" for number in range(40)], file)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    codes = [line.split(",")[0] for line in file.read_text().splitlines()[1:]]
    assert codes == sorted(codes)


def test_one_person_is_one_rater_and_one_writer(tmp_path):
    file = tmp_path / "people.csv"
    rater, writer = code_people(["ann"], file)["ann"], code_people(["ann"], file, prefix="writer")["ann"]
    assert rater.startswith("rater-")
    assert writer.startswith("writer-")
    assert code_people(["ann"], file)["ann"] == rater


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("name,code\nann,rater-1\n", "expected code and person"),
        ("code,person\nrater-1,ann\nrater-1,ben\n", "gives rater-1 or its person twice"),
        ("code,person\nrater-1,ann\nrater-2,ann\n", "gives rater-2 or its person twice"),
        ('code,person\nrater-1,"ann', "cannot be read"),
    ],
)
def test_a_damaged_key_file_is_refused(tmp_path, content, message):
    file = tmp_path / "people.csv"
    file.write_text(content)
    with pytest.raises(PrivacyError, match=message):
        code_people(["ann"], file)


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("mail me: jo.doe+x@mail.example.org!", "mail me: [email]!"),
        ("see https://example.org/a?b=c for it", "see [link] for it"),
        ("I am @jo_doe there", "I am [handle] there"),
        ("call 020 7946-0000 or +44 (20) 7946 0000", "call [number] or [number]"),
        ("my id is 5f3c1b2a9d8e7f6a5b4c3d2e", "my id is [id]"),
        ("in 2019, 3 of 15 said so", "in 2019, 3 of 15 said so"),
        ("Reply A wins 10-0", "Reply A wins 10-0"),
    ],
)
def test_contacts_go_and_words_stay(text, left):
    assert redact_text(text) == left


def test_all_and_none_do_what_they_say():
    assert redact_text("a@b.org", "none") == "a@b.org"
    assert redact_text("kind", "all") is None
    assert redact_text(None) is None
    with pytest.raises(PrivacyError, match="no redaction 'some'"):
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
