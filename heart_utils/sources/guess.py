"""Propose a call that may read a file, from its headers and the tool that wrote it.

What cells mean is not inferred: known tools and known headers are looked up in ``guess.yaml``, and
for the rest the message lists the columns with examples of each. A guess is only ever printed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import pandas as pd
import yaml

from heart_utils.identities import (
    describe_cells,
    looks_like_person,
    names_people,
    redact_message,
    show_answer,
    show_cell,
    words_of,
)
from heart_utils.settings import JsonObject
from heart_utils.sources.catalogue import DataError
from heart_utils.sources.columns import map_words
from heart_utils.sources.formats import RawTable, is_table
from heart_utils.sources.options import FileOptions, listed, plain, word_of
from heart_utils.sources.reshape import OFF, ON, flatten, reshape, resolve
from heart_utils.tables import TABLES, called

__all__ = ["Proposal"]

FEW = 20  #: So many different words an answer may have.
#: Said of a column in which any cell that is not blank says that its row may not count.
FILLED = "filled"
NAME_CHARACTERS = 60  #: What is longer is the text of a reply, not the name of who wrote it.


@lru_cache
def facts() -> JsonObject:
    """Read how tools name things."""
    text = Path(__file__).with_name("guess.yaml").read_text(encoding="utf-8")
    tools: JsonObject = yaml.load(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    return tools


@dataclass
class Proposal:
    """Options that may be meant, and what only the user can say."""

    table: str
    rows: pd.DataFrame  #: With a column for each entry of nested objects.
    options: Any  #: FileOptions, filled by name.
    tool: str = ""
    confirm: list[str] = field(default_factory=list)
    lacks: list[str] = field(default_factory=list)  #: Columns that only the user can name.
    tried: str = ""  #: What came of reading the file so.

    def text(self, given: object) -> str:
        """Write the call, ready to paste, with what must be confirmed; else list the columns."""
        kind = f" (it looks like {self.tool})" if self.tool else ""
        if self.lacks:
            lines = [f"Nothing here says what is {', '.join(self.lacks)}. The columns{kind}:"]
            lines += [f"  {head}: {_examples(head, self.rows[head])}" for head in self.rows]
            compared = {"responder", "responder_a"} & {
                *(self.options.get("columns") or {}).values()
            }
            if not compared:
                return redact_message("\n".join([*lines, *_sentences(self.confirm)]))
            kind = f", once you add {' and '.join(self.lacks)}"
            return redact_message("\n".join([*lines, *self._call(given, kind)]))
        return redact_message(
            "\n".join([*self._call(given, kind), *([self.tried] if self.tried else [])])
        )

    def _call(self, given: object, kind: str) -> list[str]:
        path = "rows" if is_table(given) else repr(str(given))
        options = "".join(f"\n    {name}={value!r}," for name, value in self.options.items())
        return [
            f"What may be meant{kind}, to be checked before it is believed:",
            f"load_{self.table}(\n    {path},{options}\n)",
            *_sentences(self.confirm),
        ]

    def add(self, option: str, **entries: Any) -> None:
        """Add to an option what the user has not said."""
        self.options[option] = {**entries, **(self.options.get(option) or {})}

    def name(self, head: str, column: str) -> None:
        """Propose that a header is a column."""
        self.add("columns", **{head: column})

    def known(self) -> set[str]:
        """List the columns of the table that the options, or the file's own headers, give."""
        options = self.options
        own = {plain(head) for head in self.rows.columns}
        known = {column for column in TABLES[self.table] if plain(column) in own}
        known |= {name for name in (options.get("columns") or {}).values() if name}
        known |= {*(options.get("always") or {}), *(options.get("made_of") or {})}
        for pattern in (options.get("split") or {}).values():
            known |= set(re.findall(r"\?P<(\w+)>", pattern))
        answer = "score" if self.table == "scores" else "verdict"
        made = {
            ("winner_columns", "counts", "pair_columns"): {answer},
            ("rater_columns",): {"rater", answer},
            ("dimension_columns",): {"dimension", answer},
            ("winner_loser",): {"responder_a", "responder_b", answer},
            ("shown",): {"history_id", "responder_a", "responder_b"},
        }
        for names, columns in made.items():
            known |= columns if any(options.get(name) is not None for name in names) else set()
        return known | ({answer} if "p_a" in known else set())

    def free(self) -> dict[str, str]:
        """List the headers that nothing explains yet, by plain name and by their last part."""
        options = self.options
        used = {
            plain(name)
            for option in ("columns", "only", "split", "winner_columns", "counts")
            for name in options.get(option) or {}
        }
        for option in ("winner_loser", "pair_columns", "rater_columns", "dimension_columns"):
            used |= {plain(name) for name in listed(options.get(option))}
        used |= {plain(name) for name in TABLES[self.table]}
        heads = [head for head in map(str, self.rows.columns) if plain(head) not in used]
        heads = [head for head in heads if not self.rows[head].isna().all()]
        free: dict[str, str] = {}
        for name in (str, _last):
            for head in heads:
                free.setdefault(plain(name(head)), head)
        return free

    def find(self, column: str) -> list[str]:
        """List the free headers that are known to name a column, the likeliest first."""
        free = self.free()
        heads = {**facts()["columns"], **facts()["kept"]}[column]
        named = (free[plain(name)] for name in heads if plain(name) in free)
        return list(dict.fromkeys(named))

    def heads_of(self, column: str) -> list[str]:
        """List the headers that are read as a column."""
        named = [
            head for head, name in (self.options.get("columns") or {}).items() if name == column
        ]
        return [head for head in named or [column] if head in self.rows]


def _sentences(confirm: list[str]) -> list[str]:
    return ["Confirm that " + "; that ".join(confirm) + "."] if confirm else []


def _last(head: str) -> str:
    """Return the last part of a header such as ``Input.left`` or ``values.choice.value``."""
    parts = re.split(r"[.:]", head)
    return parts[-2] if parts[-1] == "value" and len(parts) > 1 else parts[-1]


def _examples(head: object, cells: pd.Series) -> str:
    """Show three cells of a column, or only their kind where they may be people."""
    words = [word for word in map(str, cells.head(2000).dropna()) if word.strip()]
    few = list(dict.fromkeys(words))[:3]
    if names_people(head) or any(map(looks_like_person, few)):
        return describe_cells(words)
    return ", ".join(show_cell(str(head), word) for word in few) or "nothing"


def refuse_doubtful(table: str, raw: RawTable, options: FileOptions) -> None:
    """Refuse rows that may not count, and an order that is not read, until options decide."""
    columns = options.get("columns") or {}
    decided = {plain(head) for head in options.get("only") or {}}
    decided |= {plain(head) for head, name in columns.items() if name is not None}
    explained = decided | {plain(head) for head in columns}
    for head in order_heads(raw.rows, options) if table == "verdicts" else ():
        if plain(head) not in explained:
            words = [word for word in _words_in(raw.rows[head]) if word]
            examples = " and ".join(show_answer(head, word) for word in words[:2])
            raise DataError(
                f"{head} may say which reply was shown first: it holds {examples}. If so, read it"
                f" as the order: columns={{{head!r}: 'order'}}, and words={{'order': {{...}}}} says"
                " of each of its words whether the first of the two responders was shown first"
                f" ('ab') or second ('ba'). If not, columns={{{head!r}: None}} leaves it out. The"
                " answers must name the replies as the columns of responders do; if they name"
                " places on the screen, turn them first."
            )
    for head, wrong in doubtful_rows(raw.rows).items():
        if plain(head) not in decided:
            values = raw.rows[head]
            row = values.index[wrong][0]
            words = list(dict.fromkeys(values[wrong].map(str)))
            rest = list(dict.fromkeys(values[~wrong].map(str)))
            keep = (
                f"only={{{head!r}: {(rest[0] if len(rest) == 1 else rest)!r}}}"
                if 0 < len(rest) < FEW
                else f"only={{{head!r}: ...}}"
            )
            raise DataError(
                f"{int(wrong.sum())} of {len(values)} rows may not count: {head} is"
                f" {' or '.join(map(repr, words[:4]))}, first in {called(row)}. {keep} leaves them"
                f" out; only={{{head!r}: {[*rest, *words][:8]!r}}} keeps all."
            )


def order_heads(rows: pd.DataFrame, options: Mapping[str, Any]) -> list[str]:
    """List headers that may say which reply was shown first, where no order is known.

    Their cells have two values, or are names of the two responders.
    """
    columns = options.get("columns") or {}
    known = {*columns.values(), *(options.get("always") or {}), *map(plain, rows.columns)}
    sides = known & {"responder_a", "respondera"} or options.get("winner_loser")
    if "order" in known or not (sides or options.get("shown") is not None):
        return []
    names = {
        word
        for head, name in columns.items()
        if name in ("responder_a", "responder_b") and head in rows
        for word in map_words(rows[head], word_of).unique()
    }
    orders = {*map(plain, facts()["turned"]), *map(plain, facts()["first"])}
    given = {*map(plain, columns), *map(plain, options.get("winner_columns") or {})}
    heads = [head for head in map(str, rows.columns) if plain(head) not in given]
    heads = [head for head in heads if plain(_last(head)) in orders]
    found = []
    for head in heads:
        words = set(map_words(rows[head], word_of).unique())
        filled = words - {""}
        if len(words) > 1 and filled and (len(filled) <= 2 or filled <= names):
            found.append(head)
    return found


def doubtful_rows(rows: pd.DataFrame) -> dict[str, pd.Series]:
    """Find columns by which rows may not count: header -> whether each row is such."""
    doubtful_columns = {}
    for name, values in facts()["doubtful"].items():
        for head in rows.columns:
            last = str(head).rsplit(".", 1)[-1]
            status = name == "Status" and words_of(last)[-1:] == ["status"]
            if (status or plain(last) == plain(name)) and not isinstance(
                rows[head].iloc[0], dict | list
            ):
                cells = map_words(rows[head], word_of)
                wrong = (
                    cells.isin(values)
                    if values != FILLED
                    else cells.ne("") & ("AssignmentStatus" in rows.columns)
                )
                if status and plain(last) != "status":  # of another tool, whose numbers mean others
                    wrong &= ~cells.isin(["1", "2", "8"])
                if wrong.any() and not (name == "Status" and not _is_status(rows[head], values)):
                    doubtful_columns[str(head)] = wrong
    return doubtful_columns


def _is_status(cells: pd.Series, values: list[str]) -> bool:
    """Check whether a column holds a survey's status, in numbers or words."""
    words = set(map_words(cells, word_of).unique())
    return not words <= {"1", "2", "8"} or "0" in words


def with_tool(table: str, rows: pd.DataFrame, options: FileOptions) -> FileOptions:
    """Add what is known of a tool that the user has named; what the user says goes first."""
    if not (tool := options.get("tool")):
        return options
    names = {plain(name): name for name in facts()["tools"]}
    if plain(tool) not in names:
        raise DataError(f"tool is {tool!r}; known are {', '.join(names.values())}.")
    proposal = Proposal(table, flatten(rows), {**options}, names[plain(tool)])
    _apply_tool(proposal)
    del proposal.options["tool"]
    chosen: FileOptions = proposal.options
    return chosen


def propose(table: str, raw: RawTable, options: FileOptions) -> Proposal:
    """Look up how a file may be meant, by its headers; what the user has said stays.

    Parameters
    ----------
    table : str, as which it is read
    raw : RawTable
    options : FileOptions, what the user has said so far

    Returns
    -------
    Proposal

    Examples
    --------
    >>> from heart_utils.sources.formats import RawTable
    >>> from heart_utils.sources.guess import propose
    >>> from heart_utils.sources.options import FileOptions
    >>> votes = RawTable(
    ...     pd.DataFrame(
    ...         {"question_id": ["q"], "model_a": ["x"], "model_b": ["y"], "winner": ["model_a"]}
    ...     )
    ... )
    >>> propose("verdicts", votes, FileOptions()).options["columns"]["winner"]
    'verdict'
    """
    proposal = Proposal(table, flatten(raw.rows), {**options})
    if table in ("verdicts", "scores"):
        proposal.tool = _tool_of(table, proposal.rows)
        _apply_tool(proposal)
        try:
            exploded = FileOptions(explode=listed(proposal.options.get("explode")))
            rows = reshape(table, raw, exploded, "verdict").rows
        except DataError:
            return proposal
        proposal.rows = resolve(rows, list(proposal.options.get("columns") or {}))
    if table == "verdicts":
        _propose_verdicts(proposal)
    elif table == "scores":
        _propose_scores(proposal)
    else:
        for column in [name for name in facts()["columns"] if name in TABLES[table]]:
            if column not in proposal.known() and (found := proposal.find(column)):
                proposal.name(found[0], column)
    return proposal


def _tool_of(table: str, rows: pd.DataFrame) -> str:
    """Find the first tool whose files have such headers, if any."""
    for tool, about in facts()["tools"].items():
        heads = _signs(about, rows)
        numbers = heads[-2:] if about.get("numbers") else []
        if (
            _section(table) in about
            and all(heads)
            and all(_are_numbers(rows[head]) for head in numbers)
        ):
            return str(tool)
    return ""


def _section(table: str) -> str:
    return "scores" if table == "scores" else "options"


def _signs(about: JsonObject, rows: pd.DataFrame) -> list[str]:
    """Find the headers that a tool's files must have; "" for one that is not there."""
    return [
        next((head for head in map(str, rows) if re.fullmatch(sign, head, re.IGNORECASE)), "")
        for sign in about["signs"]
    ]


def _apply_tool(proposal: Proposal) -> None:
    """Set what a tool's files need, as far as this file has it and the user has not said it."""
    if not proposal.tool:
        return
    about, options = facts()["tools"][proposal.tool], proposal.options
    meant = {*(options.get("columns") or {}).values(), *(options.get("always") or {})}
    heads = [str(head) for head in proposal.rows]
    tops = {head.split(".")[0] for head in heads}
    section = about[_section(proposal.table)]
    for option, value in section.items():
        if option in ("columns", "only"):
            here = {
                head: name
                for head, name in value.items()
                if head in heads or ("." in head and head.split(".")[0] in tops)
            }
            new = {head: name for head, name in here.items() if str(name) not in meant}
            proposal.add(option, **(new if option == "columns" else here))
        elif option == "always":
            proposal.add(
                option, **{name: what for name, what in value.items() if name not in meant}
            )
        elif option == "words":
            proposal.add(option, **value)
        elif option == "dimension_columns" and "explode" not in section:
            if any(re.fullmatch(value, head) for head in heads):
                options.setdefault(option, value)
        else:
            options.setdefault(option, value)
    if about.get("winner_loser"):
        options.setdefault("winner_loser", tuple(_signs(about, proposal.rows)[-2:]))
    if _section(proposal.table) == "options" or "options" not in about:
        proposal.confirm += about.get("confirm", ())


def _propose_verdicts(proposal: Proposal) -> None:
    """Look up the columns of votes; who was compared must be said by headers or by the tool."""
    about = facts()["tools"].get(proposal.tool, {})
    _propose_only(proposal)
    _propose_marks(proposal)
    _propose_sides(proposal)
    if "responder_a" not in proposal.known() and about.get("form"):
        _propose_form(proposal)
    if "responder_a" not in proposal.known() and not about.get("shown"):
        proposal.lacks = ["responder_a", "responder_b", "verdict"]
        proposal.confirm.append(
            "a row compares two replies and says who wrote them; if it scores one (or ranks it,"
            " which is a score with a minus), load_scores says how to read it"
        )
        return
    _propose_answer(proposal)
    _propose_rater(proposal)
    _propose_history(proposal)
    if "responder_a" not in proposal.known():
        _propose_shown(proposal)
    _propose_order(proposal)
    _propose_words(proposal)
    _propose_rest(proposal)


def _propose_only(proposal: Proposal) -> None:
    rows, columns = proposal.rows, proposal.options.get("columns") or {}
    for head, wrong in doubtful_rows(rows).items():
        rest = list(dict.fromkeys(map_words(rows[head][~wrong], lambda cell: str(cell).strip())))
        decided = {*(proposal.options.get("only") or {}), *columns}
        if 0 < len(rest) < FEW and head not in decided:
            proposal.add("only", **{head: rest[0] if len(rest) == 1 else rest})
            proposal.confirm.append(f"the {int(wrong.sum())} other rows by {head} do not count")


def _propose_marks(proposal: Proposal) -> None:
    """Find answers with a column each, below headers such as ``pick:::A`` or ``choice.left``."""
    if "verdict" in proposal.known() and not proposal.options.get("winner_loser"):
        return
    if proposal.options.get("winner_loser"):
        draws = [head for name, head in proposal.free().items() if name in facts()["draws"]]
        if draws:
            proposal.add("winner_columns", **dict.fromkeys(draws, "tie"))
        proposal.confirm += [f"{head} marks the rows in which neither won" for head in draws]
        return
    groups: dict[str, dict[str, str]] = {}
    for head in map(str, proposal.rows):
        *stem, mark = re.split(r":::|\.", head)
        words = set(_words_in(proposal.rows[head]))
        if stem and meaning_of(mark) in ("a", "b", "tie") and {*map(word_of, words)} <= {*ON, *OFF}:
            groups.setdefault(str(stem), {})[head] = str(meaning_of(mark))
    for marked in groups.values():
        if {"a", "b"} <= set(marked.values()):
            proposal.add("winner_columns", **marked)
            return


def meaning_of(word: str) -> str | None:
    """Return the known meaning of a word of an answer, if any."""
    near = {plain(word_of(word)), word_of(word)}
    for meaning, words in facts()["words"].items():
        if near & {*words, *map(plain, words)}:
            return str(meaning)
    phrases = facts()["phrases"].items()
    return next((str(name) for name, form in phrases if re.fullmatch(form, word_of(word))), None)


def _propose_sides(proposal: Proposal) -> None:
    if {"responder_a", "responder_b"} & proposal.known():
        return
    free, rows = proposal.free(), proposal.rows
    for one, other in facts()["sides"]:
        first, second = free.get(plain(one), ""), free.get(plain(other), "")
        if first and second and _are_names(rows[first]) and _are_names(rows[second]):
            after = plain(second)[:-1] + {"b": "c", "2": "3"}.get(plain(second)[-1], "-")
            if after in free:
                proposal.confirm.append(f"{free[after]} names no third, as its header seems to say")
                return
            proposal.add("columns", **{first: "responder_a", second: "responder_b"})
            if re.search("reply|response|output|option|answer|antwort", plain(one)):
                proposal.confirm.append(
                    f"{first} and {second} hold the names of who wrote the replies, and not the"
                    " replies"
                )
            return


def _are_names(cells: pd.Series) -> bool:
    """Check that cells are no texts of replies."""
    texts = cells.dropna().head(2000)
    return bool(len(texts)) and all(
        isinstance(cell, str) and 0 < len(cell.strip()) <= NAME_CHARACTERS for cell in texts
    )


def _are_numbers(cells: pd.Series) -> bool:
    return bool(pd.to_numeric(cells, errors="coerce").notna().all())


def _propose_form(proposal: Proposal) -> None:
    """Propose the columns of a form whose cells are all known answers: a row is a person there."""
    words_of_heads = {head: _words_in(proposal.rows[head]) for head in map(str, proposal.rows)}
    heads = [
        head
        for head, words in words_of_heads.items()
        if any(words) and all(map(meaning_of, words)) and not _are_numbers(pd.Series(words))
    ]
    if heads and "verdict" not in proposal.known():
        proposal.options["pair_columns"] = heads
    if "pair_columns" in proposal.options and "shown" not in proposal.options:
        proposal.options["shown"] = [
            {"pair": head, "history_id": "...", "responder_a": "...", "responder_b": "..."}
            for head in heads[:2]
        ]
        proposal.confirm.append(
            f"shown has a row for each of the {len(heads)} columns of answers, which says who"
            " wrote the two replies (a list, a DataFrame or a file)"
        )


def _propose_answer(proposal: Proposal) -> None:
    """Look up the column of answers, or those of tallies, of raters, or of chances."""
    rows, free = proposal.rows, proposal.free()
    if "verdict" in proposal.known():
        return
    counts = {
        head: side
        for side, form in facts()["tallies"].items()
        for name, head in free.items()
        if re.fullmatch(form, name) and _are_numbers(rows[head])
    }
    found = [head for head in proposal.find("verdict") if _words_in(rows[head])]
    chances = [head for head in proposal.find("p_a") if _are_numbers(rows[head].head(FEW))]
    if {"a", "b"} <= set(counts.values()):
        proposal.add("counts", **counts)
    elif found and f"{found[0]}.1" not in rows:
        proposal.name(found[0], "verdict")
        proposal.confirm += [f"{head} is not the answer" for head in found[1:]]
    elif not found and (raters := rater_columns(proposal)):
        proposal.options["rater_columns"] = raters
    elif not found and chances:
        proposal.name(chances[0], "p_a")
        proposal.confirm.append(f"{chances[0]} is the chance that the first of the two is better")
    else:
        proposal.lacks = ["verdict"]
        proposal.confirm += [f"you say which of {head} and {head}.1 it is" for head in found[:1]]


def rater_columns(proposal: Proposal) -> list[str]:
    """List headers such as ``annotator1`` or ``rater two``: a column for each rater."""
    raters = {*map(plain, facts()["columns"]["rater"]), *map(plain, facts()["experts"])}
    form = re.compile(rf"({'|'.join(map(re.escape, raters))})({'|'.join(facts()['numbers'])})")
    heads = [head for name, head in proposal.free().items() if form.fullmatch(name)]
    return sorted(set(heads), key=list(map(str, proposal.rows)).index) if len(heads) > 1 else []


def _propose_rater(proposal: Proposal) -> None:
    if "rater" not in proposal.known():
        if found := proposal.find("rater"):
            proposal.name(found[0], "rater")
        else:
            proposal.add("always", rater="unnamed")
            proposal.confirm.append(
                "nobody is named who judged, so that all rows count as one rater's, `unnamed`"
            )
    if "rater_kind" in proposal.known():
        return
    heads = proposal.heads_of("rater")
    people = any(
        names_people(head) or plain(_last(head)) in map(plain, facts()["people"]) for head in heads
    )
    names = [str(name) for head in heads for name in proposal.rows[head].dropna().unique()]
    model = bool(names) and all(re.search(facts()["models"], name, re.IGNORECASE) for name in names)
    kind = "model" if model and not people else "human"
    proposal.add("always", rater_kind=kind)
    if not people:
        proposal.confirm.append(
            f"those who judged are of the kind {kind!r} (a person is 'human', a judge that is a"
            " model 'model')"
        )


def _propose_history(proposal: Proposal) -> None:
    rows = proposal.rows
    if "history_id" in proposal.known():
        return
    # what is one value in all rows may be the instruction to all
    found = proposal.find("history_id")
    varied = [head for head in found if len(_values(rows[head])) > 1]
    head = next(iter([*varied, *found]), None)
    turn = proposal.free().get("turn")
    if head is None and "dialogue_id" in rows:
        proposal.add("made_of", history_id="{dialogue_id}")
    elif head is None:
        proposal.add("made_of", history_id="row-{row}")
        proposal.confirm.append(
            "each row is a conversation of its own, since nothing names one: otherwise intervals"
            " are too narrow"
        )
    elif turn and len(_values(rows[turn])) > 1 and "dialogue_id" not in proposal.known():
        proposal.name(head, "dialogue_id")
        proposal.add("made_of", history_id=f"{{{head}}}-{{{turn}}}")
    else:
        proposal.name(head, "history_id")


def _values(cells: pd.Series) -> list[str]:
    return list(dict.fromkeys(map_words(cells, lambda cell: str(cell).strip())))


def _propose_shown(proposal: Proposal) -> None:
    """Ask for a table of what was shown where nothing says who wrote the replies."""
    if proposal.options.get("shown") is None and (heads := proposal.heads_of("history_id")):
        values = _values(proposal.rows[heads[0]])
        proposal.options["shown"] = [
            {heads[0]: value, "responder_a": "...", "responder_b": "..."} for value in values[:2]
        ]
        proposal.confirm.append(
            f"shown says of each of the {len(values)} values of {heads[0]} who wrote the two"
            " replies, which nothing here does (a list, a DataFrame or a file)"
        )


def _propose_order(proposal: Proposal) -> None:
    """Propose which column says who was shown first, or that the sides are the places."""
    rows, options = proposal.rows, proposal.options
    if "order" in proposal.known():
        return
    if heads := order_heads(rows, options):
        head, given = heads[0], options.get("words") or {}
        codes = facts()["turned_codes"] if _is_turned(head) else facts()["first_codes"]
        meanings = {word: codes.get(word_of(word)) for word in _words_in(rows[head]) if word}
        proposal.name(head, "order")
        if all(meanings.values()) and "order" not in given:
            options["words"] = {**given, "order": meanings}
        proposal.confirm.append(
            f"{head} says which reply was shown first ('ab': that of responder_a), and the answers"
            " name the replies as the columns do, and not their places"
        )
        return
    words = {
        part
        for head in (*_side_heads(proposal), *(options.get("winner_columns") or {}))
        for part in words_of(head)
    }
    raters = [head for head in listed(options.get("rater_columns")) if head in rows]
    for head in (*proposal.heads_of("verdict"), *raters):
        words |= {part for word in _words_in(rows[head]) for part in words_of(word)}
    if places := [name for name in facts()["places"] if name in words]:
        proposal.add("always", order="ab")
        proposal.confirm.append(
            f"the reply called {places[0]} was shown first in every row, and is that of"
            f" {' and '.join(_side_heads(proposal)[:1]) or 'responder_a'}"
        )


def _is_turned(head: str) -> bool:
    return plain(_last(head)) in map(plain, facts()["turned"])


def _side_heads(proposal: Proposal) -> list[str]:
    return [head for side in ("responder_a", "responder_b") for head in proposal.heads_of(side)]


def _propose_words(proposal: Proposal) -> None:
    """Look up the words of the answers; numbers mean sides only where the sides are numbered."""
    rows, options = proposal.rows, proposal.options
    heads = proposal.heads_of("verdict")
    several = [
        head
        for option in ("pair_columns", "dimension_columns", "rater_columns")
        for head in map(str, rows)
        if head in listed(options.get(option))
    ]
    explained = {word_of(word) for word in options.get("words") or {}}
    sides = _side_heads(proposal)
    written = {str(name) for head in sides for name in rows[head].dropna().unique()}
    names = {*map(word_of, written)}
    if names & explained:  # what a tool's words mean is nobody's name
        for head in sides:
            options["columns"].pop(head, None)
        proposal.lacks = ["responder_a", "responder_b"]
        return
    side_of = {plain(head): side for head, side in zip(sides, ("a", "b"), strict=False)}
    numbered = any(head.endswith("1") for head in sides)
    for head in [*heads, *several]:
        for word in _words_in(rows[head]):
            key, meaning = word_of(word), side_of.get(plain(word)) or meaning_of(word)
            own = key in ("a", "b", "tie") and word == key
            if own or key in explained | names or (key == "" and several):
                continue
            explained.add(key)
            if meaning is None or (key in ("1", "2") and not numbered):
                proposal.confirm.append(f"you add to words what {show_answer(head, word)} means")
                continue
            proposal.add("words", **{word: "tie" if meaning == "unsure" else meaning})
            if meaning == "unsure":
                proposal.confirm.append(f"{word!r} is a tie, and not 'abstained' or 'inconsistent'")
            elif meaning == "abstained":
                proposal.confirm.append(f"{word!r} is no answer, and neither a tie")
    if written and {meaning_of(name) for name in written} <= {"a", "b"}:
        proposal.confirm.append(
            f"{' and '.join(sorted(written))} are names of who wrote the replies, and not of sides"
            " or places"
        )


def _words_in(cells: pd.Series) -> list[str]:
    """List the words of a column that has few, a list of one word being the word."""
    cells = cells.map(lambda cell: cell[0] if isinstance(cell, list) and len(cell) == 1 else cell)
    words = [
        "" if word_of(word) == "" else str(word).strip() for word in map_words(cells, str_or_blank)
    ]
    distinct = list(dict.fromkeys(words))
    return distinct if len(distinct) <= FEW else []


def str_or_blank(cell: object) -> str:
    """Return a cell as text, and nothing as an empty one."""
    if cell is None or cell != cell:
        return ""
    return f"{cell:g}" if isinstance(cell, float) else str(cell)


def _propose_rest(proposal: Proposal) -> None:
    """Leave the other columns out, and name those that verdicts could keep."""
    for column in facts()["kept"] if proposal.table == "verdicts" else ():
        if column not in proposal.known() and (found := proposal.find(column)):
            proposal.confirm.append(
                f"{found[0]} may be left out (columns={{{found[0]!r}: {column!r}}} keeps it)"
            )
    composed = " ".join((proposal.options.get("made_of") or {}).values())
    if any(f"{{{head}}}" not in composed for head in proposal.free().values()):
        proposal.options.setdefault("others", "drop")


def _propose_scores(proposal: Proposal) -> None:
    """Look up the columns of scores; a column for each dimension must be named by the user."""
    rows, options = proposal.rows, proposal.options
    for column in ("responder", "rater", "dimension", "score", "reply_id"):
        if column not in proposal.known() and (found := proposal.find(column)):
            proposal.name(found[0], column)
    if "score" not in proposal.known():
        if raters := rater_columns(proposal):
            options["rater_columns"] = raters
        else:
            numbers = [head for head in proposal.free().values() if _are_numbers(rows[head])]
            heads = list(dict.fromkeys(numbers))[:8]
            named = f": dimension_columns={heads} if these are" if heads else ""
            proposal.lacks = ["score"]
            proposal.confirm.append(f"a column holds scores, or one for each dimension{named}")
            if "responder" not in proposal.known():
                return
    if "history_id" not in proposal.known() and "item" in rows:
        proposal.name("item", "history_id")
    _propose_rater(proposal)
    _propose_history(proposal)
    for column, value in {"responder": "unnamed", "dimension": "overall"}.items():
        if column not in proposal.known() and not (column == "dimension" and proposal.lacks):
            proposal.add("always", **{column: value})
            proposal.confirm.append(f"all rows have one {column}, since nothing names it")
    _propose_rest(proposal)
