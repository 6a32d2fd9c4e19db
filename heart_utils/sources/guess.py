"""Guess what a file means from its headers and words, and propose a call to paste.

The proposal separates what is certain from what must be confirmed.

A guess is only ever printed. Facts about tools are in ``guess.yaml``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import pandas as pd
import yaml

from heart_utils.identities import (
    looks_like_person,
    names_people,
    redact_message,
    show_answer,
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
PLACES = {"left", "right", "links", "rechts", "izquierda", "derecha", "gauche", "droite"}
ID_CHARACTERS = 60  #: What is longer is the text of a reply, not the name of who wrote it.


@lru_cache
def facts() -> JsonObject:
    """Read how tools name things."""
    text = Path(__file__).with_name("guess.yaml").read_text(encoding="utf-8")
    tools: JsonObject = yaml.load(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    return tools


@dataclass
class Proposal:
    """Options that may be meant, and what only the user can say."""

    tool: str = ""
    options: FileOptions = field(default_factory=FileOptions)
    confirm: list[str] = field(default_factory=list)
    tried: str = ""  #: What came of reading the file so.

    def text(self, table: str, given: object) -> str:
        """Write the call, ready to paste, with what must be confirmed."""
        path = "rows" if is_table(given) else repr(str(given))
        options = "".join(f"\n    {name}={value!r}," for name, value in self.options.items())
        kind = f" (it looks like {self.tool})" if self.tool else ""
        lines = [
            f"What may be meant{kind}, to be checked before it is believed:",
            f"load_{table}(\n    {path},{options}\n)",
        ]
        if self.confirm:
            lines.append("Confirm that " + "; that ".join(self.confirm) + ".")
        return redact_message("\n".join([*lines, *([self.tried] if self.tried else [])]))


def refuse_doubtful(raw: RawTable, options: FileOptions) -> None:
    """Refuse rows marked as not to count, or as turned, until options say what this means."""
    decided = {plain(head) for head in options.get("only") or {}} | {
        plain(head) for head in options.get("columns") or {} if _kept(options, head)
    }
    explained = decided | {plain(head) for head in options.get("columns") or {}}
    for head, turned in _marked(raw.rows, facts()["turned"]).items():
        if plain(head) not in explained:
            raise DataError(
                f"{int(turned.sum())} of {len(turned)} rows say that their sides were changed:"
                f" {head} is {str(raw.rows.loc[turned, head].iloc[0])!r}, first in"
                f" {called(turned.index[turned][0])}. Nothing here can know whether the answers are"
                " in terms of the sides before or after. If the answer names the replies as the"
                f" columns of responders do, say columns={{{head!r}: None}}; if it names the places"
                " on the screen, change a and b in those rows first."
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


def _kept(options: FileOptions, head: str) -> bool:
    """Check whether the user names a column of the table, so that its values are read."""
    return (options.get("columns") or {}).get(head) is not None


def _marked(rows: pd.DataFrame, names: list[str]) -> dict[str, pd.Series]:
    """Find columns of marks by their headers: header -> whether each row is marked."""
    known, marked_columns = set(map(plain, names)), {}
    for head in rows.columns:
        if plain(str(head).rsplit(".", 1)[-1]) in known:
            cells = map_words(rows[head], lambda cell: word_of(cell) if _is_plain(cell) else "")
            if set(cells.unique()) <= {*ON, *OFF} and (marks := cells.isin(list(ON))).any():
                marked_columns[str(head)] = marks
    return marked_columns


def _is_plain(cell: object) -> bool:
    return not isinstance(cell, dict | list)


def doubtful_rows(rows: pd.DataFrame) -> dict[str, pd.Series]:
    """Find columns by which rows may not count: header -> whether each row is such."""
    doubtful_columns = {}
    for name, values in facts()["doubtful"].items():
        for head in rows.columns:
            last = str(head).rsplit(".", 1)[-1]
            status = name == "Status" and words_of(last)[-1:] == ["status"]
            if (status or plain(last) == plain(name)) and _is_plain(rows[head].iloc[0]):
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


def propose(table: str, raw: RawTable, options: FileOptions) -> Proposal:
    """Find out from headers and words how a file may be meant; what the user has said stays.

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
    proposal = Proposal(options=FileOptions(**options))
    if table != "verdicts":
        return _propose_columns(table, raw, proposal)
    rows = _with_tool(raw, proposal)
    if rows is None:
        return proposal
    _propose_only(rows, proposal)
    if proposal.tool and facts()["tools"][proposal.tool].get("form"):
        _propose_form(rows, raw, proposal)
    _propose_winners(rows, proposal)
    _propose_marks(rows, proposal)
    _propose_sides(rows, proposal)
    _propose_counts(rows, proposal)
    _propose_verdict(rows, proposal)
    _propose_chance(rows, proposal)
    _propose_rater(rows, proposal)
    _propose_history(rows, proposal)
    _propose_shown(rows, proposal)
    _propose_words(rows, proposal)
    if len(names := _names(rows, proposal)) and {meaning_of(name) for name in names} <= {"a", "b"}:
        proposal.confirm.append(
            f"{' and '.join(sorted(names))} are names of who wrote the replies, and not of sides or"
            " places"
        )
    _name_kept(rows, proposal)
    _propose_rest(table, rows, proposal)
    return proposal


def _set(options: Any, option: str, **entries: Any) -> None:
    """Add to an option what the user has not said."""
    options[option] = {**entries, **(options.get(option) or {})}


def _with_tool(raw: RawTable, proposal: Proposal) -> pd.DataFrame | None:
    """Find the tool by its headers, apply what its files need, and flatten the rows."""
    rows = flatten(raw.rows)
    heads = [str(head) for head in rows.columns]
    proposal.tool = _tool_of(heads)
    if proposal.tool:
        proposal.confirm += facts()["tools"][proposal.tool].get("confirm", ())
    tool_options: Mapping[str, Any] = (
        facts()["tools"][proposal.tool]["options"] if proposal.tool else {}
    )
    options: Any = proposal.options
    for option in (
        *("explode", "split", "rater_columns", "dimension_columns"),
        *("winner_columns", "winner_loser", "soft"),
    ):
        if option in tool_options and option not in options:
            options[option] = _as_written(tool_options[option], heads)
    if not options.get("explode") and (
        lists := [head for head in heads if _has_answers(rows[head])]
    ):
        options["explode"] = lists[0]
        proposal.confirm.append(f"each entry of {lists[0]} is an answer")
    try:
        rows = reshape(
            "verdicts", raw, FileOptions(explode=listed(options.get("explode"))), "verdict"
        ).rows
    except DataError:
        return None
    if not _name_sides(heads):
        known = set(map(plain, facts()["columns"]["rater"]))
        lists = [head for head in map(str, rows.columns) if plain(head) not in known]
        if two := next((head for head in lists if _are_two_names(rows[head])), None):
            _set(options, "columns", **{f"{two}.0": "responder_a", f"{two}.1": "responder_b"})
            proposal.confirm.append(f"{two} names who wrote the two replies")
    for option in ("columns", "words", "always", "only"):
        if option in tool_options:
            here = {
                name: value
                for name, value in tool_options[option].items()
                if option in ("words", "always") or _is_in(rows, name)
            }
            _set(options, option, **here)
    return resolve(rows, list(options.get("columns") or {}))


def _name_sides(heads: Iterable[str]) -> bool:
    """Check whether two headers, or their last parts, name the two responders of a row."""
    near = {plain(part) for head in heads for part in (head, re.split(r"[.:]", head)[-1])}
    return any(plain(one) in near and plain(other) in near for one, other in facts()["sides"])


def _has_answers(cells: pd.Series) -> bool:
    """Check whether cells are lists of objects, and a key of these is a header of answers."""
    lists = [cell for cell in cells if cell is not None and cell == cell]
    entries = [entry for cell in lists if isinstance(cell, list) for entry in cell]
    answers = set(map(plain, facts()["columns"]["verdict"]))
    return (
        bool(entries)
        and all(isinstance(cell, list) for cell in lists)
        and all(isinstance(entry, dict) and answers & set(map(plain, entry)) for entry in entries)
    )


def _are_two_names(cells: pd.Series) -> bool:
    """Check whether each cell is a list of two short texts that differ."""
    return len(cells) > 0 and all(
        isinstance(cell, list)
        and len(cell) == 2
        and all(isinstance(name, str) and 0 < len(name) <= ID_CHARACTERS for name in cell)
        and cell[0] != cell[1]
        for cell in cells
    )


def _tool_of(heads: list[str]) -> str:
    """Find the first tool whose files have such headers, if any."""
    for tool, about in facts()["tools"].items():
        if all(
            any(re.fullmatch(sign, head, re.IGNORECASE) for head in heads)
            for sign in about["signs"]
        ):
            return str(tool)
    return ""


def _as_written(value: Any, heads: list[str]) -> Any:
    """Return the headers that a tool's options name, as this file writes them."""
    if isinstance(value, list):
        near = {plain(head).replace("generator", "model"): head for head in heads}
        return tuple(near.get(plain(name), name) for name in value) if len(value) == 2 else value
    return value


def _is_in(rows: pd.DataFrame, name: str) -> bool:
    return (
        name in rows
        or name.split(".")[0] in rows
        or any(str(head).startswith(name) for head in rows.columns)
    )


def _done(proposal: Proposal) -> set[str]:
    """List the columns of the table that the options give so far."""
    options = proposal.options
    done = (
        {name for name in (options.get("columns") or {}).values() if name}
        | set(options.get("always") or {})
        | set(options.get("made_of") or {})
    )
    for pattern in (options.get("split") or {}).values():
        done |= set(re.findall(r"\?P<(\w+)>", pattern))
    done |= (
        {"verdict"}
        if options.get("winner_columns")
        or options.get("counts")
        or options.get("pair_columns")
        or "p_a" in done
        else set()
    )
    done |= {"rater", "verdict"} if options.get("rater_columns") else set()
    done |= {"dimension", "verdict"} if options.get("dimension_columns") else set()
    done |= {"responder_a", "responder_b", "verdict"} if options.get("winner_loser") else set()
    if options.get("shown") is not None:
        done |= {"history_id", "responder_a", "responder_b"}
    return done


def _lacks(rows: pd.DataFrame, proposal: Proposal, column: str) -> bool:
    return column not in _done(proposal) and plain(column) not in {
        plain(head) for head in rows.columns
    }


def _free(rows: pd.DataFrame, proposal: Proposal) -> dict[str, str]:
    """List the headers that nothing explains yet, by plain name and last part."""
    options = proposal.options
    mappings = (
        options.get("columns"),
        options.get("only"),
        options.get("split"),
        options.get("winner_columns"),
        options.get("counts"),
    )
    lists = (options.get("winner_loser"), options.get("pair_columns"))
    used = {plain(name) for mapping in mappings for name in mapping or {}}
    used |= {plain(name) for names in lists for name in listed(names)}
    used |= {plain(name) for name in TABLES["verdicts"]}
    free: dict[str, str] = {}
    for head in map(str, rows.columns):
        if plain(head) not in used and not rows[head].isna().all():
            free.setdefault(plain(head), head)
            parts = re.split(r"[.:]", head)
            free.setdefault(
                plain(parts[-2] if parts[-1] == "value" and len(parts) > 1 else parts[-1]), head
            )
    return free


def _are_names(cells: pd.Series) -> bool:
    """Check whether cells may be names of authors, and not texts."""
    texts = cells.dropna().head(2000)
    return bool(len(texts)) and bool(
        (
            texts.map(lambda cell: isinstance(cell, str) and 0 < len(cell.strip()) <= ID_CHARACTERS)
        ).all()
    )


def _propose_only(rows: pd.DataFrame, proposal: Proposal) -> None:
    for head, wrong in doubtful_rows(rows).items():
        rest = list(dict.fromkeys(map_words(rows[head][~wrong], lambda cell: str(cell).strip())))
        if 0 < len(rest) < FEW and head not in (proposal.options.get("only") or {}):
            _set(proposal.options, "only", **{head: rest[0] if len(rest) == 1 else rest})
            proposal.confirm.append(f"the {int(wrong.sum())} other rows by {head} do not count")


def _propose_form(rows: pd.DataFrame, raw: RawTable, proposal: Proposal) -> None:
    """Find the columns of a form that hold answers to pairs: a row is a person there."""
    options: Any = proposal.options
    if "pair_columns" in options or not _lacks(rows, proposal, "verdict"):
        return
    if _name_sides(_free(rows, proposal).values()):
        return  # each row says who wrote the two replies: it is an answer, and not a person
    known = {word for words in facts()["words"].values() for word in words}
    about = {
        head: set(map_words(rows[head].dropna(), word_of).unique()) - {""}
        for head in map(str, rows.columns)
    }
    heads = [
        head
        for head, words in about.items()
        if words and words <= known and not words <= {"1", "0", "true", "false"}
    ]
    # numbers are answers only where no column has words
    worded = [head for head in heads if not about[head] <= {"1", "2"}]
    if heads := worded or heads:
        options["pair_columns"] = heads
        if "shown" not in options:
            options["shown"] = [
                {"pair": head, "history_id": "...", "responder_a": "...", "responder_b": "..."}
                for head in heads[:2]
            ]
            proposal.confirm.append(
                f"shown has a row for each of the {len(heads)} columns of answers, which says who"
                " wrote the two replies (a list, a DataFrame or a file)"
            )


def _propose_winners(rows: pd.DataFrame, proposal: Proposal) -> None:
    """Find a list of winners and losers, and in it the mark of a draw, in which neither won."""
    options: Any = proposal.options
    if proposal.tool and not options.get("winner_loser") and _lacks(rows, proposal, "verdict"):
        signs = facts()["tools"][proposal.tool]["signs"]
        heads = [
            next((head for head in map(str, rows) if re.fullmatch(sign, head, re.IGNORECASE)), "")
            for sign in signs
        ]
        if "loser" in signs[-1] and all(heads):
            options["winner_loser"] = tuple(heads)
    if options.get("winner_loser") and (draws := _marked(rows, facts()["draws"])):
        _set(options, "winner_columns", **dict.fromkeys(draws, "tie"))
        proposal.confirm.append(f"{' and '.join(draws)} marks the rows in which neither won")


def _propose_marks(rows: pd.DataFrame, proposal: Proposal) -> None:
    """Find answers that have a column each, marked where they were chosen.

    Their headers are such as ``Answer.choice.left`` or ``preference:::A``.
    """
    if not _lacks(rows, proposal, "verdict"):
        return
    groups: dict[str, dict[str, str]] = {}
    for head in map(str, rows.columns):
        stem, mark = _cut(head)
        meaning = meaning_of(mark)
        words = set(map_words(rows[head], word_of).unique())
        if (
            meaning in ("a", "b", "tie")
            and stem
            and words <= {"", "0", "1", "true", "false", "x", "yes", "no"}
        ):
            groups.setdefault(stem, {})[head] = meaning
    for marked in groups.values():
        if {"a", "b"} <= set(marked.values()):
            _set(proposal.options, "winner_columns", **marked)
            return


def _cut(head: str) -> tuple[str, str]:
    parts = re.split(r":::|\.", head)
    return (head[: -len(parts[-1])], parts[-1]) if len(parts) > 1 else ("", head)


def meaning_of(word: str) -> str | None:
    """Return the known meaning of a word of an answer, if any."""
    cleaned = word_of(word)
    near = plain(cleaned)
    for meaning, words in facts()["words"].items():
        if cleaned in words or near in map(plain, words):
            return str(meaning)
    return next(
        (str(name) for name, form in facts()["phrases"].items() if re.fullmatch(form, cleaned)),
        None,
    )


def _propose_sides(rows: pd.DataFrame, proposal: Proposal) -> None:
    if not (_lacks(rows, proposal, "responder_a") and _lacks(rows, proposal, "responder_b")):
        return
    free = _free(rows, proposal)
    for one, other in facts()["sides"]:
        heads = free.get(plain(one)), free.get(plain(other))
        if all(head and _are_names(rows[head]) for head in heads):
            if third := _third(str(heads[1]), free):
                proposal.confirm.append(
                    f"a row compares two replies, which this file does not: {third} names a third."
                    " Write a row for each pair"
                )
                return
            _set(
                proposal.options,
                "columns",
                **{str(heads[0]): "responder_a", str(heads[1]): "responder_b"},
            )
            if re.search("reply|response|output|option|answer", plain(one)):
                proposal.confirm.append(
                    f"{heads[0]} and {heads[1]} hold the names of who wrote the replies, and not"
                    " the replies"
                )
            return
    for first, second in [*_twins(free), *_same_heads(rows, free)]:
        one, other = rows[first], rows[second]
        if _are_authors(one) and _are_authors(other) and (one != other).mean() > 0.5:
            _set(proposal.options, "columns", **{first: "responder_a", second: "responder_b"})
            proposal.confirm.append(
                f"{first} and {second} hold the names of who wrote the two replies"
            )
            return


def _third(second: str, free: Mapping[str, str]) -> str | None:
    """Find the header of a third author, where that of the second is ``model_b`` or ``model_2``."""
    after = {"b": "c", "2": "3"}.get(plain(second)[-1:])
    return free.get(plain(second)[:-1] + after) if after else None


def _twins(free: Mapping[str, str]) -> list[tuple[str, str]]:
    """List the headers that differ in a word for their side alone: ``a.model`` and ``b.model``."""
    twins = []
    for one, other in facts()["twins"]:
        for head in dict.fromkeys(free.values()):
            parts = re.split(r"([\W_]+|(?<=[a-z])(?=[A-Z0-9]))", head)
            for position, part in enumerate(parts):
                if part and part.casefold() == one:
                    twin = plain("".join([*parts[:position], other, *parts[position + 1 :]]))
                    if twin in free and free[twin] != head:
                        twins.append((head, free[twin]))
    named = [pair for pair in twins if re.search(facts()["authors"], pair[0], re.IGNORECASE)]
    return [*named, *(pair for pair in twins if pair not in named)]


def _same_heads(rows: pd.DataFrame, free: Mapping[str, str]) -> list[tuple[str, str]]:
    """List headers that a file has twice, which pandas calls ``model`` and ``model.1``."""
    return [
        (head, f"{head}.1") for head in dict.fromkeys(free.values()) if f"{head}.1" in rows.columns
    ]


def _are_authors(cells: pd.Series) -> bool:
    """Check whether cells may be authors: short, no numbers or answers, and few.

    They must be few where rows are many.
    """
    if not _are_names(cells):
        return False
    words = [str(word) for word in cells.dropna().unique()]
    many = len(words) > max(30, len(cells) / 2)
    return not many and not any(
        re.fullmatch(r"[-+\d.,%]+", word.strip()) or meaning_of(word) for word in words
    )


def _propose_verdict(rows: pd.DataFrame, proposal: Proposal) -> None:
    if not _lacks(rows, proposal, "verdict"):
        return
    free = _free(rows, proposal)
    named = [free[plain(name)] for name in facts()["columns"]["verdict"] if plain(name) in free]
    names = _names(rows, proposal)
    named = [head for head in named if not (_names_lost(head) and _are_people(rows[head], names))]
    fits = [head for head in named if _may_be_verdicts(rows[head], names, sides=1)]
    others = [
        head
        for head in dict.fromkeys(free.values())
        if _may_be_verdicts(rows[head], names, sides=2)
        and not (_names_lost(head) and _are_people(rows[head], names))
    ]
    others = [head for head in others if not _are_numbers(rows[head])]
    if not fits and len(others) > 1 and not proposal.tool:
        proposal.options["dimension_columns"] = others
        proposal.confirm.append(
            f"{', '.join(others)} are answers to a question each, which become dimensions"
        )
        return
    fits += [*others, *(head for head in named if _are_few(rows[head]))]
    if fits and f"{fits[0]}.1" in rows.columns:
        proposal.confirm.append(
            f"{fits[0]} stands above two columns, read as {fits[0]!r} and {fits[0] + '.1'!r}: say"
            " which of them is 'verdict'"
        )
    elif fits:
        _set(proposal.options, "columns", **{fits[0]: "verdict"})
    if len(rest := [head for head in others if head not in fits[:1]]) and fits:
        proposal.confirm.append(
            f"only {fits[0]} is the answer, and {', '.join(rest)} may be left out"
        )


def _propose_chance(rows: pd.DataFrame, proposal: Proposal) -> None:
    """Find how sure a judge was that the first is better, where it gives no word."""
    if not _lacks(rows, proposal, "verdict"):
        return
    free = _free(rows, proposal)
    names = [free[plain(name)] for name in facts()["columns"]["p_a"] if plain(name) in free]
    if head := next((name for name in names if _are_numbers(rows[name].head(FEW))), None):
        _set(proposal.options, "columns", **{head: "p_a"})
        proposal.confirm.append(f"{head} is the chance that the first of the two is better")


def _names_lost(head: str) -> bool:
    """Check whether a header names who lost, so that the other one won."""
    return not set(facts()["lost"]).isdisjoint(words_of(head))


def _are_people(cells: pd.Series, names: set[str]) -> bool:
    return bool(names & set(_words_in(cells)))


def _are_few(cells: pd.Series) -> bool:
    return 0 < len(_words_in(cells)) <= FEW


def _are_numbers(cells: pd.Series) -> bool:
    return all(re.fullmatch(r"-?\d+(\.\d+)?", word) for word in _words_in(cells) if word)


def _names(rows: pd.DataFrame, proposal: Proposal) -> set[str]:
    heads = {name: head for head, name in (proposal.options.get("columns") or {}).items()}
    sides = [heads.get(side, side) for side in ("responder_a", "responder_b")]
    return {str(name) for side in sides if side in rows for name in rows[side].dropna().unique()}


def _may_be_verdicts(cells: pd.Series, names: set[str], sides: int) -> bool:
    """Check whether cells may be verdicts.

    Words for so many of the sides, or names of those who are compared.
    """
    words = [word for word in _words_in(cells) if word]
    meanings = {meaning_of(word) for word in words}
    meant = meanings & {"a", "b"}
    # where rows are few, nobody may have taken the other side
    if sides > 1 and meant and None not in meanings:
        return True
    return (0 < len(words) <= FEW and len(meant) >= sides) or len(set(words) & names) >= sides


def _propose_counts(rows: pd.DataFrame, proposal: Proposal) -> None:
    """Find tallies: a number for each side."""
    if not _lacks(rows, proposal, "verdict"):
        return
    free = {plain(head): str(head) for head in rows.columns}
    forms = {
        "a": r"(n_?)?wins?_?(1|a)|home\.?wins",
        "b": r"(n_?)?wins?_?(2|b)|away\.?wins",
        "tie": r"(n_?)?(ties?|draws?)",
    }
    count_columns = {
        head: side
        for side, form in forms.items()
        for name, head in free.items()
        if re.fullmatch(form, name)
    }
    if {"a", "b"} <= set(count_columns.values()):
        _set(proposal.options, "counts", **count_columns)


def _propose_rater(rows: pd.DataFrame, proposal: Proposal) -> None:
    if _lacks(rows, proposal, "rater"):
        free = _free(rows, proposal)
        named = (free[plain(name)] for name in facts()["columns"]["rater"] if plain(name) in free)
        head = next((head for head in named), None) or next(
            (head for head in dict.fromkeys(free.values()) if _holds_people(rows[head])), None
        )
        if head:
            _set(proposal.options, "columns", **{head: "rater"})
        else:
            _set(proposal.options, "always", rater="unnamed")
            proposal.confirm.append(
                "nobody is named who judged, so that all rows count as one rater's, `unnamed`"
            )
    if _lacks(rows, proposal, "rater_kind"):
        kind, sure = _rater_kind(rows, proposal)
        _set(proposal.options, "always", rater_kind=kind)
        if not sure:
            proposal.confirm.append(
                f"those who judged are of the kind {kind!r} (a person is 'human', a judge that is a"
                " model 'model')"
            )


def _holds_people(cells: pd.Series) -> bool:
    """Check whether the first filled cells all look like people."""
    filled = [cell for cell in cells.head(FEW) if isinstance(cell, str) and cell.strip()]
    dates = all(re.match(r"\d{4}-\d\d-\d\d|\d\d?[./]\d\d?[./]\d{4}", cell) for cell in filled)
    return bool(filled) and not dates and all(map(looks_like_person, filled))


def _rater_kind(rows: pd.DataFrame, proposal: Proposal) -> tuple[str, bool]:
    heads = {name: head for head, name in (proposal.options.get("columns") or {}).items()}
    head = heads.get("rater", "rater")
    if names_people(head) or plain(re.split(r"[.:]", head)[-1]) in map(plain, facts()["people"]):
        return "human", True
    names: list[str] = list(rows[head].dropna().map(str).unique()) if head in rows else []
    if len(names) and all(re.search(facts()["models"], name, re.IGNORECASE) for name in names):
        return "model", False
    return "human", False


def _propose_history(rows: pd.DataFrame, proposal: Proposal) -> None:
    if not _lacks(rows, proposal, "history_id"):
        return
    free = _free(rows, proposal)
    head = next(
        (free[plain(name)] for name in facts()["columns"]["history_id"] if plain(name) in free),
        None,
    )
    turn = free.get("turn")
    if proposal.options.get("winner_loser") and head is None or head is None:
        _set(proposal.options, "made_of", history_id="row-{row}")
        proposal.confirm.append(
            "each row is a conversation of its own, since nothing names one: otherwise intervals"
            " are too narrow"
        )
    elif turn and len(rows[turn].unique()) > 1 and _lacks(rows, proposal, "dialogue_id"):
        _set(proposal.options, "columns", **{head: "dialogue_id"})
        _set(proposal.options, "made_of", history_id=f"{{{head}}}-{{{turn}}}")
    else:
        _set(proposal.options, "columns", **{head: "history_id"})


def _propose_shown(rows: pd.DataFrame, proposal: Proposal) -> None:
    """Ask for a table of what was shown where nothing says who wrote the replies."""
    if not _lacks(rows, proposal, "responder_a") or proposal.options.get("shown") is not None:
        return
    free = _free(rows, proposal)
    about = facts()["columns"]
    authors, numbers, ranks = (
        [free[plain(name)] for name in about[column] if plain(name) in free]
        for column in ("responder", "score", "rank")
    )
    if authors and ranks and not numbers:
        proposal.confirm.append(
            f"a row is no reply alone, whose author is {authors[0]} and whose place {ranks[0]}:"
            f" with a column of scores that is higher for the better ({ranks[0]} with a minus, if"
            " 1 is the best), load_scores reads those, and scores_to_verdicts compares them"
        )
        return
    if authors and numbers:  # no table of pairs
        proposal.confirm.append(
            f"a row is no reply alone, whose author is {authors[0]} and whose number {numbers[0]}:"
            " load_scores reads those, and scores_to_verdicts compares them"
        )
        return
    heads = [
        head
        for head, name in (proposal.options.get("columns") or {}).items()
        if name == "history_id" and head in rows
    ]
    if heads:
        values = list(map_words(rows[heads[0]], lambda cell: str(cell).strip()).unique())
        proposal.options["shown"] = [
            {heads[0]: value, "responder_a": "...", "responder_b": "..."} for value in values[:2]
        ]
        proposal.confirm.append(
            f"shown says of each of the {len(values)} values of {heads[0]} who wrote the two"
            " replies, which nothing here does (a list, a DataFrame or a file)"
        )
    else:
        proposal.confirm.append("columns say who wrote the two replies, which nothing here does")


def _propose_words(rows: pd.DataFrame, proposal: Proposal) -> None:
    """Propose what the words of the answers mean.

    Numbers are read only where the sides are numbered too.
    """
    options: Any = proposal.options
    heads = [
        head for head, name in (options.get("columns") or {}).items() if name == "verdict"
    ] or (["verdict"] if "verdict" in rows else [])
    several = [*listed(options.get("pair_columns")), *listed(options.get("dimension_columns"))]
    heads += [head for head in several if head in rows]
    if options.get("rater_columns"):
        heads += [
            head for head in map(str, rows.columns) if head in listed(options["rater_columns"])
        ]
    explained_words = {
        word_of(word)
        for word, meaning in (options.get("words") or {}).items()
        if not isinstance(meaning, Mapping)
    }
    names = {word_of(name) for name in _names(rows, proposal)}
    words: dict[str, str] = {}  # each with the first header that has it
    for head in (head for head in heads if head in rows):
        words |= {word: head for word in _words_in(rows[head]) if word not in words}
    lost = [head for head in heads if _names_lost(head)]
    if lost:
        proposal.confirm.append(
            f"{' and '.join(lost)} says who was worse, so that words turns it: the other one won"
        )
    numbered = any(
        re.search(r"1$", str(head))
        for head, name in (options.get("columns") or {}).items()
        if name == "responder_a"
    )
    side_heads = {name: head for head, name in (options.get("columns") or {}).items()}
    sides_named = {
        plain(side_heads[side]): side[-1]
        for side in ("responder_a", "responder_b")
        if side in side_heads
    }
    at_places = any(
        set(words_of(side_heads.get(side, ""))) & PLACES for side in ("responder_a", "responder_b")
    )
    steps = sorted({float(word) for word in words if re.fullmatch(r"-?\d+(\.\d+)?", word)})
    if heads and len(steps) > 2:
        low, high = (f"{step:g}" for step in (steps[0], steps[-1]))
        proposal.confirm.append(
            "the numbers are codes of answers; if they are steps from one reply to the other,"
            f" columns={{{heads[0]!r}: 'p_a'}} and soft={{'a': {low}, 'b': {high}}} (or the other"
            " way round) read them"
        )
    for word, head in words.items():
        key = word_of(word)
        if (
            key in explained_words
            or (key in ("a", "b", "tie") and word == key and head not in lost)
            or key in names
            or (key == "" and several)
        ):
            continue
        # a header of the two says which side a word is: baseline, candidate
        meaning = sides_named.get(plain(word)) or meaning_of(word)
        if head in lost:
            meaning = {"a": "b", "b": "a"}.get(str(meaning), meaning)
        if meaning == "unsure":
            _set(options, "words", **{word: "tie"})
            proposal.confirm.append(f"{word!r} is a tie, and not 'abstained' or 'inconsistent'")
        elif meaning is None or (key in ("1", "2") and not numbered):
            proposal.confirm.append(f"you add to words what {show_answer(head, word)} means")
        else:
            _set(options, "words", **{word: meaning})
            if meaning in ("a", "b") and set(words_of(word)) & PLACES and not at_places:
                side = f"responder_{meaning}"
                proposal.confirm.append(f"{word!r} means {side_heads.get(side, side)} in every row")
            if meaning == "abstained":
                proposal.confirm.append(f"{word!r} is no answer, and neither a tie")
    if (
        options.get("columns")
        and "p_a" in options["columns"].values()
        and "" not in explained_words
    ):
        head = next(head for head, name in options["columns"].items() if name == "p_a")
        if head in rows and (map_words(rows[head], word_of) == "").any():
            _set(options, "words", **{"": "error"})
            proposal.confirm.append(f"an empty {head} is a judge that failed")


def _words_in(cells: pd.Series) -> list[str]:
    cells = cells.map(lambda cell: cell[0] if isinstance(cell, list) and len(cell) == 1 else cell)
    words = [
        "" if word_of(word) == "" else str(word).strip()
        for word in map_words(cells, lambda cell: cell).map(str).where(cells.notna(), "")
    ]
    distinct = list(dict.fromkeys(words))
    return distinct if len(distinct) <= FEW else []


def _name_kept(rows: pd.DataFrame, proposal: Proposal) -> None:
    """Name columns that verdicts could keep, such as how sure a rater was, and what they take."""
    free = _free(rows, proposal)
    for column, names in facts()["kept"].items():
        head = next((free[plain(name)] for name in names if plain(name) in free), None)
        if head is None or not _lacks(rows, proposal, column):
            continue
        cells = rows[head].dropna()
        numbers = pd.to_numeric(cells, errors="coerce")
        keeps = f"columns={{{head!r}: {column!r}}} keeps it"
        if column == "rationale":
            advice = f"if it says why, {keeps}"
        elif column == "seconds":
            advice = f"if it is the time of one answer in seconds, {keeps}"
        else:
            advice = f"if it says by how much the better reply won, {keeps}"
            if numbers.isna().any():
                advice += f", with numbers from 1 to 5 by words={{{column!r}: {{...}}}}"
            elif not numbers.between(1, 5).all():
                advice += (
                    f" once its numbers, {numbers.min():g} to {numbers.max():g} here, are"
                    " from 1 to 5"
                )
        proposal.confirm.append(f"{head} may be left out ({advice})")


def _propose_rest(table: str, rows: pd.DataFrame, proposal: Proposal) -> None:
    mentioned = set(_free(rows, proposal).values())
    composed = " ".join((proposal.options.get("made_of") or {}).values())
    if any(
        f"{{{head}}}" not in composed and plain(head) not in map(plain, TABLES[table])
        for head in mentioned
    ):
        proposal.options.setdefault("others", "drop")


def _propose_columns(table: str, raw: RawTable, proposal: Proposal) -> Proposal:
    """Find the columns of scores, replies or histories by their names or by the tool."""
    rows = flatten(raw.rows)
    tool = _tool_of([str(head) for head in rows.columns])
    if table == "scores" and (score_options := facts()["tools"].get(tool, {}).get("scores")):
        proposal.tool = tool
        options: Any = proposal.options
        several = [
            head
            for head in map(str, rows.columns)
            if re.fullmatch(score_options["dimension_columns"], head)
        ]
        for option, value in score_options.items():
            if option == "dimension_columns":
                options.update({option: value} if several else {})
            elif isinstance(value, dict):
                names = {
                    name: what
                    for name, what in value.items()
                    if option != "columns" or name in rows
                }
                _set(options, option, **names)
            else:
                options.setdefault(option, value)
        if not several:
            _set(options, "always", dimension="overall")
        return proposal
    taken = {plain(head) for head in proposal.options.get("columns") or {}} | {
        plain(name) for name in TABLES[table]
    }
    for column, names in facts()["columns"].items():
        if column not in TABLES[table] or not _lacks(rows, proposal, column):
            continue
        free = {plain(head): str(head) for head in rows.columns if plain(head) not in taken}
        if head := next((free[plain(name)] for name in names if plain(name) in free), None):
            _set(proposal.options, "columns", **{head: column})
            taken.add(plain(head))
    return proposal
