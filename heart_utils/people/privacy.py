"""What keeps people in a study from being recognised, and others' texts from doing anything but being read."""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterable
from pathlib import Path

import pandas as pd

from heart_utils.runs import csv_text, read_csv_text, write_atomically

__all__ = ["REDACTIONS", "PrivacyError"]

REDACTIONS = ("none", "contacts", "all")

CONTACTS = (
    (re.compile(r"\b[\w.+-]+@[\w-]+(?:\.[\w-]+)+"), "[email]"),
    (re.compile(r"\b(?:https?://|www\.)\S+", re.IGNORECASE), "[link]"),
    (re.compile(r"(?<!\w)@\w{2,}"), "[handle]"),
    (re.compile(r"(?<!\w)\+?\d(?:[\s().-]{0,2}\d){6,}(?!\w)"), "[number]"),
    (re.compile(r"\b[0-9a-f]{24}\b"), "[id]"),
)
"""Mail and web addresses, names on platforms, telephone and other long numbers, and Prolific's ids, in this order."""

FORMULA = re.compile(r"^\s*[=+@\t\r]|^\s*-(?=\s*[\w(=@])")
MARKUP = re.compile(r"<[/!?a-zA-Z]|javascript:", re.IGNORECASE)


class PrivacyError(ValueError):
    """A key file cannot be used."""


def code_people(people: Iterable[str], key_file: Path, *, prefix: str = "rater") -> dict[str, str]:
    """Give each person a random code, the same one each time as long as the key file is there.

    The key file is the only link between codes and people. Delete it, and the raw answers with it, and nobody can
    tell whose verdicts are whose; who is imported again then gets a new code.
    """
    known = _read_keys(key_file)
    taken = set(known["code"])
    codes = {person: code for code, person in zip(known["code"], known["person"], strict=True) if code.startswith(f"{prefix}-")}
    fresh = []
    for person in people:
        while person not in codes:
            code = f"{prefix}-{secrets.token_hex(4)}"
            if code not in taken:
                codes[person] = code
                taken.add(code)
                fresh.append((code, person))
    if fresh:
        both = pd.concat([known, pd.DataFrame(fresh, columns=["code", "person"])], ignore_index=True)
        # By code, since the order of arrival would tell who is who to whoever watched.
        write_atomically(key_file, csv_text(both.sort_values("code")).encode(), private=True)
    return codes


def redact_text(text: str | None, level: str = "contacts") -> str | None:
    """Take out of a free text what could tell who wrote it."""
    if level not in REDACTIONS:
        raise PrivacyError(f"There is no redaction {level!r}; there are {', '.join(REDACTIONS)}.")
    if text is None or level == "all":
        return None
    if level == "contacts":
        for pattern, word in CONTACTS:
            text = pattern.sub(word, text)
    return text


def suspicious_text(text: str | None) -> list[str]:
    """Flag a free text that a spreadsheet would compute or a page would run.

    It is kept as it is: tables hold text, and whatever shows it must show it as text.
    """
    if not text:
        return []
    return [*(["formula"] if FORMULA.search(text) else []), *(["markup"] if MARKUP.search(text) else [])]


def _read_keys(key_file: Path) -> pd.DataFrame:
    if not key_file.is_file():
        return pd.DataFrame({"code": [], "person": []}, dtype=str)
    try:
        keys = read_csv_text(key_file.read_text(encoding="utf-8"), dtype=str, keep_default_na=False)
    except (ValueError, UnicodeDecodeError) as error:
        said = "Restore it, or delete it to give everyone a new code."
        raise PrivacyError(f"The key file {key_file} cannot be read ({error}). {said}") from None
    if list(keys.columns) != ["code", "person"]:
        raise PrivacyError(f"The key file {key_file} has the columns {list(keys.columns)}, expected code and person.")
    twice = (
        keys["code"].duplicated()
        | pd.DataFrame({"kind": keys["code"].str.split("-").str[0], "person": keys["person"]}).duplicated()
    )
    if twice.any():
        first = keys.loc[twice, "code"].iloc[0]
        raise PrivacyError(f"The key file {key_file} gives {first} or its person twice; each code belongs to one person.")
    return keys
