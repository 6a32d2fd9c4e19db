"""People must not be named: find ids that look like a person's, and redact texts.

The key that says whose each code is belongs to :mod:`heart_utils.runs`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path

import numpy as np
import pandas as pd
import yaml

__all__ = [
    "IdentityError",
    "find_identities",
    "looks_like_person",
    "redact_contacts",
    "refuse_identities",
]


class IdentityError(ValueError):
    """What is to be passed on names people."""


# One hyphen may stand in an address, and two in a row separate the parts of an id:
# c1--ann@example.org--bot.
_PART = r"\w+(?:-\w+)*"
_START = r"(?<![\w.+])(?<![\w.+]-)"
# The same spelt out, of bounded length: ann (at) example (dot) org, ann[at]example.org, ann at
# example dot org, and full-width signs. Of words alone only with an ending that is a common one.
_OWN = rf"{_START}[\w.+]{{1,64}}(?:-[\w.+]{{1,64}}){{0,4}}"
_HOST = r"\w{1,63}(?:-\w{1,63}){0,4}"
_OPEN, _CLOSE = r"\s{0,2}[(\[{<（［【]\s?", r"\s?[)\]}>）］】]\s{0,2}"
_AT = rf"(?:{_OPEN}(?:at|ät|arroba|arobase|アット|[@＠]){_CLOSE}|\s[@＠]\s|[@＠])"
_WORD_AT = r"(?:\s{1,2}(?:at|ät|arroba|arobase|アット)\s{1,2}|-at-)"
_WORD_DOT = r"(?:\s{1,2}(?:dot|punkt|punto|ドット)\s{1,2}|-dot-)"
_DOT = rf"(?:{_OPEN}(?:dot|punkt|punto|point|[.．]){_CLOSE}|{_WORD_DOT}|\s\.\s|[.．。｡])"
_END = "com|org|net|edu|gov|info|biz|io|eu|de|uk|fr|es|nl|ch|ca|au|jp|cn|br|ru|se|dk|fi|pl|pt|ie|nz"
EMAIL = re.compile(
    rf"{_START}[\w.+]+(?:-[\w.+]+)*@{_PART}(?:\.{_PART})*\.[^\W\d_]{{2,}}"
    rf"|(?:{_OWN}{_WORD_DOT})?{_OWN}{_AT}{_HOST}(?:{_DOT}{_HOST}){{0,5}}{_DOT}[^\W\d_]{{2,24}}"
    rf"|(?:{_OWN}{_WORD_DOT})?{_OWN}{_WORD_AT}{_HOST}(?:{_WORD_DOT}{_HOST}){{0,5}}{_WORD_DOT}"
    rf"(?:{_END})(?!\w)"
    r"|(?<!\w)[^\W_]{1,64}_at_[^\W_]{1,63}(?:_dot_[^\W_]{1,63}){1,5}(?!\w)",
    re.IGNORECASE,
)
PROLIFIC = re.compile(r"(?<![0-9A-Za-z])[0-9a-fA-F]{24}(?![0-9A-Za-z])")
WORKER = re.compile(
    r"(?<![0-9A-Za-z])A(?=[A-Z]*\d[A-Z]*\d)(?=\d*[A-Z])[0-9A-Z]{9,20}(?![0-9A-Za-z])"
)
IP = re.compile(r"(?<![\w.])(?:\d{1,3}\.){3}\d{1,3}(?![\w.])")
LINK = re.compile(r"\b(?:https?://|www\.)\S+", re.IGNORECASE)
# An account's: two letters and two digits, the bank's letters, and digits, with blanks or without.
IBAN = re.compile(
    r"(?<!\w)[a-z]{2}\d{2}(?:[ -]?[a-z]){0,6}(?:[ -]?\d){8,}[a-z0-9]*(?!\w)", re.IGNORECASE
)
NUMBER = re.compile(r"(?<!\w)\+?\d(?:[\s().-]{0,2}\d){6,}(?!\w)")

CONTACTS = (
    (EMAIL, "[email]"),
    (LINK, "[link]"),
    (re.compile(r"(?<!\w)@\w{2,}"), "[handle]"),
    (IP, "[ip]"),
    (IBAN, "[number]"),
    (NUMBER, "[number]"),
    (PROLIFIC, "[id]"),
    (WORKER, "[id]"),
)
"""Mail and web addresses, names on platforms, addresses of machines, accounts, telephone and other
long numbers, the ids of Prolific and of Mechanical Turk, in this order."""

CODE = re.compile(r"(?:rater|writer)-[0-9a-f]{8}")  #: What a person is called once coded.
SHORT_WORKER = re.compile(r"A(?=[A-Z]*\d)(?=\d*[A-Z])[0-9A-Z]{2,20}")
_LETTERS = r"[^\W\d_]+(?:['’-][^\W\d_]+)*\.?"
NAME = re.compile(rf"(?=.*[^\W\d_]{{2}}){_LETTERS}(?:(?:, ?| +|[._]){_LETTERS})+")

WORDS = {
    name: frozenset(words.split())
    for name, words in yaml.safe_load(
        Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8")
    ).items()
}
"""What ids, headers and answers are made of, by what that says of them."""

PEOPLE = {"rater": "rater", "coder": "rater", "author_id": "writer"}
"""Column that holds people -> what their codes begin with."""

WRITERS = ("responder", "responder_a", "responder_b")
"""Columns of names that are contestants' own to choose: only what is an address or an id of a
platform is coded."""

WORDS_OF_PEOPLE = ("rationale", "reason")  #: What raters wrote.
#: What raters read: it may name a helpline, which has to stay.
READ_TEXTS = ("text", "turns", "situation", "problem")
#: Columns of which no message shows a cell.
HIDDEN = frozenset({*PEOPLE, *WORDS_OF_PEOPLE, *READ_TEXTS, "person"})

KINDS = (
    (re.compile(r".*@.*"), "e-mail addresses"),
    (PROLIFIC, "ids of 24 hex digits"),
    (SHORT_WORKER, "ids of workers"),
    (IP, "addresses of machines"),
    (LINK, "links"),
    (re.compile(r"[+-]?\d*[.,]?\d+(?:[eE][+-]?\d+)?"), "numbers"),
    (
        re.compile(r"\d{1,4}[-/.]\d{1,2}[-/.]\d{1,4}\b.*|[A-Z][a-z]{2} [A-Z][a-z]{2} \d+ .*"),
        "dates",
    ),
    (re.compile(r"\S{1,30}"), "single words"),
)
"""What all cells of a column match -> what they are called in a message; the first that fits."""

SINGLE = {
    "e-mail addresses": "an e-mail address",
    "ids of 24 hex digits": "an id of 24 hex digits",
    "ids of workers": "an id of a worker",
    "addresses of machines": "the address of a machine",
    "links": "a link",
    "numbers": "a number",
    "dates": "a date",
    "single words": "a word",
    "texts": "a text",
    "nothing": "nothing",
}


def looks_like_person(word: object, *, human: bool = True) -> bool:
    """Check whether an id looks like a person: an address, a platform's id, a full name.

    Parameters
    ----------
    word
        The id.
    human
        Whether the id is a person's for sure; else only addresses and ids of 24 hex digits count.

    Returns
    -------
    bool
        False for a code that stands for a person already.

    Examples
    --------
    >>> [looks_like_person(word) for word in ("ann@example.org", "Anna Schmidt", "expert panel")]
    [True, True, False]
    """
    text = str(word).strip()
    if CODE.fullmatch(text):
        return False
    if EMAIL.search(text) or PROLIFIC.search(text):
        return True
    if not human:
        return False
    contact = (
        "@" in text
        or any(pattern.search(text) for pattern in (LINK, IP, WORKER))
        or NUMBER.fullmatch(text)
    )
    return bool(contact) or _names_somebody(text)


def _names_somebody(text: str) -> bool:
    if SHORT_WORKER.fullmatch(text):
        return True
    parts = re.findall(r"[^\W\d_]+", text.casefold())
    return bool(NAME.fullmatch(text)) and not any(
        part in WORDS["roles"] or part.removesuffix("s") in WORDS["roles"] for part in parts
    )


def names_people(head: object) -> bool:
    """Check whether a header says that its values are people, such as ``WorkerId``."""
    return not WORDS["naming"].isdisjoint(words_of(head))


def words_of(head: object) -> list[str]:
    spaced = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", str(head))
    return re.findall(r"[^\W\d_]+", spaced.casefold().replace("e-mail", "email"))


def redact_contacts(text: str) -> str:
    """Take addresses, names on platforms, long numbers and ids out of a text.

    Parameters
    ----------
    text
        What somebody wrote.

    Returns
    -------
    str
        With ``[email]``, ``[link]``, ``[handle]``, ``[ip]``, ``[number]`` or ``[id]`` in their
        places.

    Examples
    --------
    >>> redact_contacts("mail jo@example.org, my id is 5f3c1b2a9d8e7f6a5b4c3d2e")
    'mail [email], my id is [id]'
    """
    for pattern, word in CONTACTS:
        text = pattern.sub(word, text)
    return text


def redact_message(message: str) -> str:
    """Remove addresses and ids from a message."""
    for pattern, word in ((EMAIL, "[email]"), (PROLIFIC, "[id]"), (WORKER, "[id]")):
        message = pattern.sub(word, message)
    return message


def describe_people(people: Iterable[str]) -> str:
    """Describe whether people were called by addresses, ids or names."""
    kind = describe_cells(people)
    return "names" if kind in ("texts", "single words") else kind


def describe_cells(cells: Iterable[object]) -> str:
    """Describe a column's kind of values, without any of them."""
    filled = [
        str(cell).strip()
        for cell in cells
        if cell is not None and cell == cell and str(cell).strip()
    ]
    if not filled:
        return "nothing"
    if any("@" in cell for cell in filled):
        return KINDS[0][1]
    return next(
        (called for pattern, called in KINDS if all(map(pattern.fullmatch, filled))), "texts"
    )


def show_cell(column: str, value: object) -> str:
    """Return a cell for a message, or its kind if it may be a person or their words."""
    if isinstance(value, float) and value != value:
        return "nothing"
    if column in HIDDEN or (isinstance(value, str) and not may_be_shown(value, at_most=80)):
        return SINGLE[describe_cells([value])]
    text = redact_message(repr(value.item() if isinstance(value, np.generic) else value))
    return text if len(text) <= 80 else text[:77] + "..."


def show_rater(rater: object) -> str:
    return "(somebody)" if looks_like_person(rater) else str(rater)


def show_row(cells: pd.Series) -> dict[str, object]:
    return {str(column): cell for column, cell in cells.dropna().items() if column not in HIDDEN}


def show_answer(head: object, word: str) -> str:
    """Return a word found as a verdict, or its kind if it may name a rater."""
    capital = all(part[0].isupper() for part in re.findall(r"[^\W\d_]+", word))
    named = capital and _names_somebody(word) and WORDS["sides"].isdisjoint(words_of(word))
    return (
        SINGLE[describe_cells([word])]
        if names_people(head) or named
        else show_cell("verdict", word)
    )


def may_be_shown(word: str, *, at_most: int = 40) -> bool:
    """Check that a word is short and neither an address nor an id."""
    if len(word) > at_most or "@" in word:
        return False
    known = any(pattern.search(word) for pattern, _ in CONTACTS) or SHORT_WORKER.fullmatch(word)
    return not known


def code_rows(
    rows: pd.DataFrame,
    code: Callable[[Iterable[str], str], Mapping[str, str]],
    *,
    every: Collection[str] = (),
    texts: bool = True,
) -> tuple[pd.DataFrame, dict[str, str]]:
    """Replace people in a table by codes, and addresses in its texts by marks.

    `code` maps people, and what their codes begin with, to codes. In columns of `every`, each id is
    a person's, of models only addresses. `texts`: whether what raters read is redacted, too.
    Returns the table, and column -> what kind of values were replaced.
    """
    rows, human, changes = rows.copy(), _human(rows), dict[str, str]()
    people = {
        column: _people(column, rows[column], human, column in every)
        for column in (*PEOPLE, *WRITERS)
        if column in rows
    }
    ids = {column: _addressed(rows[column]) for column in _id_columns(rows)}
    codes: dict[str, Mapping[str, str]] = {"rater": {}, "writer": {}}
    for prefix in codes:
        named = {
            person
            for column, people_found in people.items()
            for person in people_found
            if PEOPLE.get(column, "writer") == prefix
        }
        named |= {
            person
            for cells in ids.values()
            for cell in cells
            for person in EMAIL.findall(cell)
            if prefix == "writer"
        }
        codes[prefix] = code(sorted(named), prefix) if named else {}
    for column, people_found in people.items():
        if people_found:
            rows[column] = rows[column].replace(
                {person: codes[PEOPLE.get(column, "writer")][person] for person in people_found}
            )
            changes[column] = describe_people(people_found)
    for column, cells in ids.items():
        if changed := {
            cell: now for cell in cells if (now := _without_people(cell, codes["writer"])) != cell
        }:
            rows[column] = rows[column].replace(changed)
            changes[column] = KINDS[0][1]
    for column in [
        name for name in (*WORDS_OF_PEOPLE, *(READ_TEXTS if texts else ())) if name in rows
    ]:
        kept = _redacted(column, rows[column], human)
        if (changed := kept.ne(rows[column]) & rows[column].notna()).any():
            rows[column], changes[column] = kept, f"contacts in {int(changed.sum())} texts"
            if "flags" in rows and column in WORDS_OF_PEOPLE:
                rows["flags"] = _flagged(rows["flags"], changed)
    return rows, changes


def _human(rows: pd.DataFrame) -> pd.Series:
    return (
        rows["rater_kind"] != "model"
        if "rater_kind" in rows
        else pd.Series("coder" not in rows, rows.index)
    )


def _people(column: str, cells: pd.Series, human: pd.Series, every: bool) -> set[str]:
    # contestants may have any name, so of them only addresses and ids of platforms are people
    if column in WRITERS:
        named = (word for word in cells.unique() if pd.notna(word))
        return {word for word in named if looks_like_person(word, human=False)}
    if not every:  # most columns name nobody, and a million rows need not be told apart then
        likely = [word for word in cells.unique() if pd.notna(word) and looks_like_person(word)]
        if not likely:
            return set()
        chosen = cells.isin(likely)
        cells, human = cells[chosen], human[chosen]
    theirs = human | (column == "author_id")
    of_models = {
        word for word in cells[~theirs].dropna().unique() if looks_like_person(word, human=False)
    }
    of_people = {
        word for word in cells[theirs].dropna().unique() if every or looks_like_person(word)
    }
    return of_models | {word for word in of_people if not CODE.fullmatch(word)}


def _id_columns(rows: pd.DataFrame) -> list[str]:
    other = {*PEOPLE, *WRITERS, *WORDS_OF_PEOPLE, *READ_TEXTS}
    return [
        name
        for name in map(str, rows)
        if name not in other and pd.api.types.is_string_dtype(rows[name])
    ]


def _addressed(cells: pd.Series) -> list[str]:
    """List the ids that hold an address or a person's id."""
    filled = cells.dropna()
    # a million at once, of which few are as long as an address or an id of Prolific
    lengths = filled.str.len()
    if not (lengths >= len("a@b.cc")).any():
        return []
    likely = filled.str.contains("@", regex=False)
    if (long := lengths >= 24).any():
        likely = likely | filled.where(long, "").str.contains("[0-9a-fA-F]{24}")
    likely = filled[likely]
    return [cell for cell in likely.unique() if "@" in cell or PROLIFIC.search(cell)]


def _without_people(cell: str, codes: Mapping[str, str]) -> str:
    """Replace people in an id by their codes."""
    cell = EMAIL.sub(lambda match: codes[match[0]], cell)
    return PROLIFIC.sub(lambda match: codes.get(match[0], match[0]), cell)


def _redacted(column: str, cells: pd.Series, human: pd.Series) -> pd.Series:
    """Take contacts out of what people wrote, and mail addresses out of what they read."""
    if column in WORDS_OF_PEOPLE:
        return (
            cells.map(redact_contacts, na_action="ignore").astype(cells.dtype).where(human, cells)
        )
    if column == "turns":
        return cells.map(
            lambda turns: [{**turn, "text": EMAIL.sub("[email]", turn["text"])} for turn in turns]
        )
    return cells.map(lambda text: EMAIL.sub("[email]", text), na_action="ignore").astype(
        cells.dtype
    )


def _flagged(flags: pd.Series, changed: pd.Series) -> pd.Series:
    both = zip(flags, changed, strict=True)
    added = [
        [*given, "redacted"] if now and "redacted" not in given else given for given, now in both
    ]
    return pd.Series(added, flags.index, dtype=object)


def find_identities(rows: pd.DataFrame, known: Collection[str] = ()) -> dict[str, str]:
    """Look for people who were left in a table that is to be passed on.

    Parameters
    ----------
    rows
        The table.
    known
        People whom a key file names.

    Returns
    -------
    dict
        Column -> kind of values and number of rows, never the values.

    Examples
    --------
    >>> find_identities(pd.DataFrame({"rater": ["ann@example.org", "r2"]}))
    {'rater': 'e-mail addresses (1 row)'}
    """
    human, sure = _human(rows), [person for person in known if looks_like_person(person)]
    findings: dict[str, str] = {}
    for column in map(str, rows.columns):
        texts = rows[column].dropna().map(str)
        if rows[column].dtype.kind in "biuf" or texts.empty:
            continue
        left = {word: _left_in(column, word, sure, known) for word in texts.unique()}
        people = {word for word in left if column in PEOPLE and looks_like_person(word)}
        wrong = texts.isin([word for word, is_left in left.items() if is_left])
        wrong |= texts.isin(people) & human.reindex(texts.index)
        if n := int(wrong.sum()):
            kind = (
                describe_people(texts[wrong]) if column in PEOPLE else describe_cells(texts[wrong])
            )
            findings[column] = f"{kind} ({n} {'row' if n == 1 else 'rows'})"
    return findings


def _left_in(column: str, word: str, sure: Collection[str], known: Collection[str]) -> bool:
    if column in (*PEOPLE, *WRITERS) and (word in known or PROLIFIC.search(word)):
        return True
    if column in WORDS_OF_PEOPLE and redact_contacts(word) != word:
        return True
    return bool(EMAIL.search(word)) or any(person in word for person in sure)


def refuse_identities(
    tables: Mapping[str, pd.DataFrame],
    texts: Mapping[str, str] | None = None,
    *,
    known: Collection[str] = (),
    kept: Collection[str] = (),
) -> None:
    """Refuse tables that would name people where they are passed on.

    Parameters
    ----------
    tables
        Name -> table.
    texts
        Name -> what else is written, as text.
    known
        People whom a key file names.
    kept
        Tables whose ids of people stay, as their licence permits.

    Raises
    ------
    IdentityError
        If anybody is left; it names tables, columns and files, but no person.

    Examples
    --------
    >>> refuse_identities({"verdicts": pd.DataFrame({"rater": ["ann@example.org"]})})
    Traceback (most recent call last):
    heart_utils.identities.IdentityError: People are named in verdicts.rater: ...
    """
    faults = []
    for name, rows in tables.items():
        findings = find_identities(rows, known).items()
        faults += [
            f"{name}.{column}: {kind}"
            for column, kind in findings
            if name not in kept or column not in PEOPLE
        ]
    sure = [person for person in known if looks_like_person(person)]
    for name, text in (texts or {}).items():
        if EMAIL.search(text):
            faults.append(f"{redact_message(name)}: an e-mail address")
        elif any(person in text for person in sure):
            faults.append(f"{redact_message(name)}: somebody whom a key file names")
    if faults:
        raise IdentityError(
            f"People are named in {'; '.join(faults)}. Nothing was written. Load that table again"
            " and write it with `run.write`, which put codes in their place, or leave the column"
            " out."
        )
