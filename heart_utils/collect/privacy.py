"""What keeps people in a study from being recognised, and others' texts from doing anything but being read."""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterable
from io import StringIO
from pathlib import Path
from typing import Any

import pandas as pd

from heart_utils.runs import write_atomically

__all__ = [
    "REDACTIONS",
    "PrivacyError",
    "code_people",
    "csv_text",
    "read_csv_text",
    "redact_text",
    "suspicious_text",
    "visible_text",
]

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
COMPUTED = re.compile(r"[' ]*[=+\-@\t\r]")
"""What a spreadsheet may take for a formula, and what was escaped so that it does not."""
OBEYED = re.compile("[\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f-\u009f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
"""Controls, halves of characters, and marks that turn the direction of what follows. Marks of right-to-left scripts that
turn nothing but the blank beside them, and joiners, are letters' own business and stay."""


class PrivacyError(ValueError):
    """A key file cannot be used."""


def code_people(people: Iterable[str], key_file: Path, *, prefix: str = "rater") -> dict[str, str]:
    """Give each person a random code, the same one each time as long as the key file is there.

    The key file is the only link between codes and people. Delete it, and the raw answers with it, and
    nobody can tell whose verdicts are whose; who is imported again then gets a new code.

    Parameters
    ----------
    people : iterable of str
        Names or platform ids.
    key_file : pathlib.Path
        CSV of ``code`` and ``person``; made if need be, readable by its owner alone.
    prefix : str
        What codes begin with.

    Returns
    -------
    dict
        Person -> code, such as ``rater-9f2c41d7``.

    Raises
    ------
    PrivacyError
        If the key file is damaged, or gives a person or a code twice.

    Examples
    --------
    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> once = code_people(["ann", "ben"], folder / "keys.csv")
    >>> again = code_people(["ben", "cy"], folder / "keys.csv")
    >>> once["ben"] == again["ben"], len({*once.values(), *again.values()})
    (True, 3)
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
    """Take out of a free text what could tell who wrote it.

    Parameters
    ----------
    text : str or None
        As written.
    level : str
        ``"contacts"`` replaces addresses, handles and long numbers by a word in brackets; names of
        people are not recognised. ``"all"`` keeps nothing, ``"none"`` everything.

    Returns
    -------
    str or None
        The text that is left.

    Raises
    ------
    PrivacyError
        If the level is not known.

    Examples
    --------
    >>> redact_text("Write to me@example.org or call +44 20 7946 0000, at 5 pm.")
    'Write to [email] or call [number], at 5 pm.'
    """
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

    Parameters
    ----------
    text : str or None
        As written.

    Returns
    -------
    list of str
        ``"formula"``, ``"markup"``, both or neither.

    Examples
    --------
    >>> suspicious_text('=HYPERLINK("x")'), suspicious_text("it <b>listens</b>"), suspicious_text("a < b - fine")
    (['formula'], ['markup'], [])
    """
    if not text:
        return []
    return [*(["formula"] if FORMULA.search(text) else []), *(["markup"] if MARKUP.search(text) else [])]


def csv_text(table: pd.DataFrame) -> str:
    """Write a table as CSV in which no text is a formula to the spreadsheet that opens it.

    Parameters
    ----------
    table : pandas.DataFrame
        Its index is left out.

    Returns
    -------
    str
        Texts that begin like a formula have an apostrophe before them, as OWASP advises [1]_. Numbers are as they were.

    References
    ----------
    .. [1] OWASP, CSV Injection, https://owasp.org/www-community/attacks/CSV_Injection

    Examples
    --------
    >>> print(csv_text(pd.DataFrame({"name": ["=1+1", "ann"], "gap": [-0.5, 2.0]})), end="")
    name,gap
    '=1+1,-0.5
    ann,2.0
    """
    escaped = table.map(lambda cell: f"'{cell}" if isinstance(cell, str) and COMPUTED.match(cell) else cell)
    return str(escaped.to_csv(index=False))


def read_csv_text(text: str, **how: Any) -> pd.DataFrame:
    """Read what :func:`csv_text` wrote, with its texts as they were.

    Parameters
    ----------
    text : str
        The file's content.
    **how
        As :func:`pandas.read_csv` takes it.

    Returns
    -------
    pandas.DataFrame
        The table.

    Examples
    --------
    >>> read_csv_text(csv_text(pd.DataFrame({"name": ["=1+1", "' -", "ann"]})))["name"].tolist()
    ['=1+1', "' -", 'ann']
    """
    table: pd.DataFrame = pd.read_csv(StringIO(text), **how)
    for name in table.columns[table.dtypes == "str"]:
        table[name] = table[name].str.replace(rf"^'(?={COMPUTED.pattern})", "", regex=True)
    return table


def visible_text(text: str) -> str:
    r"""Show characters that would be obeyed unseen: controls, and marks that turn the direction of a text.

    Parameters
    ----------
    text : str
        As written.

    Returns
    -------
    str
        With the number of each such character in brackets, in its place. Line ends and tabs stay.

    Examples
    --------
    >>> visible_text("I hear you. \u202eyrros")
    'I hear you. [U+202E]yrros'
    """
    return OBEYED.sub(lambda found: f"[U+{ord(found[0]):04X}]", text)


def _read_keys(key_file: Path) -> pd.DataFrame:
    if not key_file.is_file():
        return pd.DataFrame({"code": [], "person": []}, dtype=str)
    try:
        keys = read_csv_text(key_file.read_text(encoding="utf-8"), dtype=str, keep_default_na=False)
    except (ValueError, UnicodeDecodeError) as error:
        raise PrivacyError(
            f"The key file {key_file} cannot be read ({error}). Restore it, or delete it to give everyone a new code."
        ) from None
    if list(keys.columns) != ["code", "person"]:
        raise PrivacyError(f"The key file {key_file} has the columns {list(keys.columns)}, expected code and person.")
    twice = (
        keys["code"].duplicated()
        | pd.DataFrame({"kind": keys["code"].str.split("-").str[0], "person": keys["person"]}).duplicated()
    )
    if twice.any():
        raise PrivacyError(
            f"The key file {key_file} gives {keys.loc[twice, 'code'].iloc[0]} or its person twice; each code belongs "
            f"to one person."
        )
    return keys
