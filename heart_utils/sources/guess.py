"""Propose a call that may read a file, from its headers and the tool that wrote it.

Tools, headers and words are looked up in ``guess.yaml``. A guess is only ever printed.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
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
from heart_utils.sources.defaults import (
    ANSWERS,
    NEEDED,
    REST,
    SIDES,
    TEMPLATE,
    FileOptions,
    map_words,
    plain,
    text_of,
    word_of,
)
from heart_utils.sources.formats import RawTable, is_table
from heart_utils.sources.reshape import COLUMN, flatten, open_paths
from heart_utils.tables import RATER_KINDS, TABLES, DataError, called

__all__ = ["Proposal"]

FEW = 20  #: So many different words an answer may have.
MOST_NAMED = 100  #: So many raters may be called by name to say who is a model.
NAME_CHARACTERS = 60  #: What is longer is the text of a reply, not the name of who wrote it.
FILLED = "filled"  #: Of a column in which any cell that is not blank says that a row may not count.
MUST_BE_NAMED = {"verdicts": [*SIDES, "verdict"], "scores": ["responder", "score"]}
ONE_REPLY = (
    "a row compares two replies and says who wrote them; if it scores one (or ranks it, which is a"
    " score with a minus), load_scores says how to read it"
)
NO_SCORE = (
    "a column holds scores; if there is one for each dimension, columns says of each header that it"
    " is the score, and always={'dimension': '{column}'}; if for each rater, 'rater'"
)
UNSAID = {
    "rater": (
        "unnamed",
        "nobody is named who judged, so that all rows count as one rater's, `unnamed`",
    ),
    "rater_kind": (
        "human",
        "those who judged are of the kind {!r} (a person is 'human', a judge that is a model"
        " 'model')",
    ),
    "history_id": (
        "row-{row}",
        "each row is a conversation of its own, since nothing names one: otherwise intervals are"
        " too narrow",
    ),
    "responder": ("unnamed", "all rows have one responder, since nothing names it"),
    "dimension": ("overall", "all rows have one dimension, since nothing names it"),
}
"""Column -> what it holds in every row, and what must be confirmed."""

INSTEAD = {"p_a": ["verdict"]}  #: Column -> those beside which it is not looked for.
NO_SIDE = {
    "unsure": "a tie, and not 'abstained' or 'inconsistent'",
    "abstained": "no answer, and neither a tie",
}


@lru_cache
def facts() -> JsonObject:
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
    assumed: list[str] = field(default_factory=list)  #: Columns of which nothing here speaks.

    def text(self, given: object) -> str:
        """Write the call, with what must be confirmed and what is missing."""
        lines, kind = list[str](), f" (it looks like {self.tool})" if self.tool else ""
        if self.lacks:
            lines += [f"Nothing here says what is {', '.join(self.lacks)}. The columns{kind}:"]
            lines += [f"  {head}: {_examples(head, self.rows[head])}" for head in self.rows]
            kind = f", once you add {' and '.join(self.lacks)}"
        if self.options:
            path = "rows" if is_table(given) else repr(str(given))
            options = "".join(f"\n    {name}={value!r}," for name, value in self.options.items())
            lines += [f"What may be meant{kind}, to be checked before it is believed:"]
            lines += [f"load_{self.table}(\n    {path},{options}\n)"]
        if self.confirm:
            lines += ["Confirm that " + "; that ".join(self.confirm) + "."]
        return redact_message("\n".join([*lines, self.tried]).rstrip())

    def to_be_checked(self) -> dict[str, Any]:
        """Return the options, with dots for what must be filled in."""
        options: dict[str, Any] = dict(self.options)
        if self.assumed:
            options["always"] = {**options["always"], **dict.fromkeys(self.assumed, "...")}
        return options

    def add(self, option: str, entries: Mapping[str, Any]) -> None:
        """Add to an option what the user has not said."""
        self.options[option] = {**entries, **(self.options.get(option) or {})}

    def known(self) -> set[str]:
        """List the columns that the options or the headers give."""
        own = {plain(head) for head in self.rows.columns}
        known = {column for column in TABLES[self.table] if plain(column) in own}
        said = [str(name) for name in (self.options.get("columns") or {}).values()]
        known |= {*said, *(self.options.get("always") or {})}
        if "shown" in self.options:
            known |= {"history_id", *SIDES}
        if "p_a" in known or any(":" in name for name in said):
            known.add("verdict")
        return known

    def free(self) -> dict[str, str]:
        """List the headers that nothing explains, by plain name and last part."""
        options = self.options
        used = {plain(head) for name in ("columns", "only") for head in options.get(name) or {}}
        used |= {plain(name) for name in TABLES[self.table]}
        heads = [head for head in map(str, self.rows.columns) if plain(head) not in used]
        heads = [head for head in reversed(heads) if not self.rows[head].isna().all()]
        return {plain(_last(head)): head for head in heads} | {plain(head): head for head in heads}

    def find(self, names: Iterable[str]) -> list[str]:
        """List the free headers with one of the names, the likeliest first."""
        free = self.free()
        return list(dict.fromkeys(free[plain(name)] for name in names if plain(name) in free))

    def heads_of(self, *columns: str) -> list[str]:
        """List the headers that are read as these columns."""
        meant = {column: [column] for column in columns}
        for head, name in (self.options.get("columns") or {}).items():
            if name in meant:
                meant[name] = [*meant[name][:-1], head, name]
        return [head for heads in meant.values() for head in heads if head in self.rows]


def _last(head: str) -> str:
    parts = re.split(r"[.:]", head)
    return parts[-2] if parts[-1] == "value" and len(parts) > 1 else parts[-1]


def _examples(head: object, cells: pd.Series) -> str:
    """Show three cells, or only their kind where they may be people."""
    words = [word for word in map(str, cells.head(2000).dropna()) if word.strip()]
    few = list(dict.fromkeys(words))[:3]
    if names_people(head) or any(map(looks_like_person, few)):
        return describe_cells(words)
    return ", ".join(show_cell(str(head), word) for word in few) or "nothing"


def refuse_doubtful(table: str, raw: RawTable, options: FileOptions) -> None:
    """Refuse rows that may not count and an order not read, until options decide."""
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
            words = list(dict.fromkeys(values[wrong].map(str)))
            rest = list(dict.fromkeys(values[~wrong].map(str)))
            keep = f"only={{{head!r}: {_counted(rest)!r}}}" if rest else f"only={{{head!r}: ...}}"
            raise DataError(
                f"{int(wrong.sum())} of {len(values)} rows may not count: {head} is"
                f" {' or '.join(map(repr, words[:4]))}, first in {called(values.index[wrong][0])}."
                f" {keep} leaves them out; only={{{head!r}: {[*rest, *words][:8]!r}}} keeps all."
            )


def _counted(values: list[str]) -> str | list[str]:
    return values[0] if len(values) == 1 else values[:FEW]


def order_heads(rows: pd.DataFrame, options: Mapping[str, Any]) -> list[str]:
    """List headers that may say which reply was shown first, where no order is known."""
    columns = options.get("columns") or {}
    known = {*columns.values(), *(options.get("always") or {}), *map(plain, rows.columns)}
    sides = known & {"responder_a", "respondera"}
    if "order" in known or not (sides or options.get("shown") is not None):
        return []
    names = {
        word
        for head, name in columns.items()
        if name in SIDES and head in rows
        for word in map_words(rows[head], word_of).unique()
    }
    orders = {*map(plain, facts()["turned"]), *map(plain, facts()["first"])}
    given = {*map(plain, columns)}
    found = []
    for head in map(str, rows.columns):
        if plain(head) not in given and plain(_last(head)) in orders:
            words = set(map_words(rows[head], word_of).unique())
            filled = words - {""}
            if len(words) > 1 and filled and (len(filled) <= 2 or filled <= names):
                found.append(head)
    return found


def doubtful_rows(rows: pd.DataFrame) -> dict[str, pd.Series]:
    """Find columns by which rows may not count: header -> where."""
    values = {plain(name): words for name, words in facts()["doubtful"].items()}
    found = {}
    for head in map(str, rows.columns):
        last = head.rsplit(".", 1)[-1]
        status = words_of(last)[-1:] == ["status"]
        doubtful = values.get(plain(last), values["status"] if status else None)
        if doubtful is None:
            continue
        cells = map_words(rows[head], word_of)
        if doubtful == FILLED:
            wrong = cells.ne("") & ("AssignmentStatus" in rows.columns)
        else:
            coded = plain(last) == "status" and "0" in set(cells)
            wrong = cells.isin([*doubtful, *(facts()["status_codes"] if coded else ())])
        if wrong.any():
            found[head] = wrong
    return found


def with_tool(table: str, rows: pd.DataFrame, options: FileOptions) -> FileOptions:
    """Add what is known of a tool; what the user says goes first."""
    if not (tool := options.get("tool")):
        return options
    names = {plain(name): name for name in facts()["tools"]}
    if plain(tool) not in names:
        raise DataError(f"tool is {tool!r}; known are {', '.join(names.values())}.")
    proposal = Proposal(table, flatten(rows), {**options}, names[plain(tool)])
    _apply_tool(proposal)
    _propose_form(proposal)
    del proposal.options["tool"]
    chosen: FileOptions = proposal.options
    return chosen


def propose(table: str, raw: RawTable, options: FileOptions) -> Proposal:
    """Look up how a file may be meant; what the user has said stays."""
    proposal = Proposal(table, flatten(raw.rows), {**options})
    proposal.tool = _tool_of(table, proposal.rows) if table in MUST_BE_NAMED else ""
    about = facts()["tools"].get(proposal.tool, {})
    _apply_tool(proposal)
    named = [*(proposal.options.get("columns") or {}), *(proposal.options.get("only") or {})]
    try:
        proposal.rows = open_paths(proposal.rows, [*about.get("within", ()), *map(str, named)])
    except DataError:
        return proposal
    if table == "verdicts":
        _propose_sides(proposal)
    if heads := _propose_form(proposal):
        _ask_shown(proposal, COLUMN, heads)
    for column, names in facts()["columns"].items():
        known = proposal.known()
        if column in TABLES[table] and not known & {column, *INSTEAD.get(column, ())}:
            _name_column(proposal, column, names)
    for own in ("item", "dialogue_id"):
        known = proposal.known()
        if own in proposal.rows and own in TABLES[table] and "history_id" not in known:
            proposal.add("always", {"history_id": f"{{{own}}}"})
    if about.get("shown") and not {*SIDES} & proposal.known():
        for head in proposal.heads_of("history_id")[:1]:
            _ask_shown(proposal, head, _values(proposal.rows[head]))
    if table in MUST_BE_NAMED:
        _propose_rest(proposal)
    return proposal


def _propose_form(proposal: Proposal) -> list[str]:
    """Take a form's columns of answers, one row a person."""
    named = {*(proposal.options.get("columns") or {}).values()}
    form = facts()["tools"].get(proposal.tool, {}).get("form")
    if not form or named & {*SIDES, "verdict"}:
        return []
    rows, explained = proposal.rows, {*map(word_of, proposal.options.get("words") or {})}
    heads = [head for head in map(str, rows) if _are_answers(rows[head], explained)]
    proposal.add("columns", dict.fromkeys(heads, ANSWERS[proposal.table]))
    return heads


def _tool_of(table: str, rows: pd.DataFrame) -> str:
    for tool, about in facts()["tools"].items():
        heads = _signs(about, rows)
        counts = [rows[head] for head in heads[-2:] if about.get("counts") and head]
        if _section(table) in about and all(heads) and all(map(_are_numbers, counts)):
            return str(tool)
    return ""


def _section(table: str) -> str:
    return "scores" if table == "scores" else "options"


def _signs(about: JsonObject, rows: pd.DataFrame) -> list[str]:
    """Find the headers that a tool's files must have; "" for a missing one."""
    return [
        next((head for head in map(str, rows) if re.fullmatch(sign, head, re.IGNORECASE)), "")
        for sign in about["signs"]
    ]


def _apply_tool(proposal: Proposal) -> None:
    about, options = facts()["tools"].get(proposal.tool, {}), proposal.options
    heads = [str(head) for head in proposal.rows]
    columns = dict(about.get("columns", {}))
    for side, form in about.get("counts", {}).items():
        columns |= dict.fromkeys(_fits(form, heads), f"count:{side}")
    if about.get("winner_loser"):
        columns |= dict(zip(_signs(about, proposal.rows)[-2:], SIDES, strict=True))
    if about.get("marks"):
        marks = {head: _meaning_of(head.rpartition(":::")[2]) for head in heads if ":::" in head}
        stem = next((head.rpartition(":::")[0] for head, side in marks.items() if side == "a"), "")
        own = {head: side for head, side in marks.items() if head.startswith(f"{stem}:::")}
        columns |= {head: f"verdict:{side}" for head, side in own.items() if side}
    section = {**about.get(_section(proposal.table), {})}
    if columns:
        section["columns"] = {**columns, **section.get("columns", {})}
    tops = {head.split(".")[0] for head in heads}
    meant = {*(options.get("columns") or {}).values(), *(options.get("always") or {})}
    for option, value in section.items():
        if not isinstance(value, Mapping):
            options.setdefault(option, value)
            continue
        entries = {name: what for name, what in value.items() if not {name, str(what)} & meant}
        if option in ("columns", "only"):
            entries = {
                head: what
                for head, what in entries.items()
                if head in (*heads, REST) or ("." in head and head.split(".")[0] in tops)
            }
        if entries:
            proposal.add(option, entries)
    if proposal.table != "scores" or "options" not in about:
        proposal.confirm += about.get("confirm", ())


def _fits(form: str, heads: Iterable[str]) -> list[str]:
    return [head for head in heads if re.fullmatch(form, head, re.IGNORECASE)]


def _meaning_of(word: str) -> str:
    near = {plain(word_of(word)), word_of(word)}
    for meaning, words in facts()["words"].items():
        if near & {*words, *map(plain, words)}:
            return str(meaning)
    phrases = facts()["phrases"].items()
    return next((str(name) for name, form in phrases if re.fullmatch(form, word_of(word))), "")


def _are_numbers(cells: pd.Series) -> bool:
    return bool(pd.to_numeric(cells, errors="coerce").notna().all())


def _are_answers(cells: pd.Series, explained: Collection[str]) -> bool:
    words = _words_in(cells)
    known = all(word_of(word) in explained or _meaning_of(word) for word in words)
    return any(words) and known and not _are_numbers(pd.Series(words))


def _propose_sides(proposal: Proposal) -> None:
    for third in proposal.find(facts()["thirds"])[:1]:
        proposal.confirm.append(f"{third} names no third, as its header seems to say")
        return
    for pair in facts()["sides"]:
        heads = proposal.find(pair) if not {*SIDES} & proposal.known() else []
        if len(heads) == 2 and all(_are_names(proposal.rows[head]) for head in heads):
            proposal.add("columns", dict(zip(heads, SIDES, strict=True)))


def _are_names(cells: pd.Series) -> bool:
    texts = cells.dropna().head(2000)
    return bool(len(texts)) and all(
        isinstance(cell, str) and 0 < len(cell.strip()) <= NAME_CHARACTERS for cell in texts
    )


def _ask_shown(proposal: Proposal, key: str, values: list[str]) -> None:
    about = {"history_id": "..."} if key == COLUMN else {}
    about |= dict.fromkeys(SIDES, "...")
    proposal.options.setdefault("shown", [{key: value, **about} for value in values[:2]])
    proposal.confirm.append(
        f"shown says of each of the {len(values)} values of {key} who wrote the two replies, which"
        " nothing here does (a list, a DataFrame or a file)"
    )


def _name_column(proposal: Proposal, column: str, names: list[str]) -> None:
    """Take the likeliest header for a column; of two equal ones none."""
    found = [head for head in proposal.find(names) if f"{head}.1" not in proposal.rows]
    turn = proposal.find(["turn"]) if column == "history_id" else []
    if found and turn and len(_values(proposal.rows[turn[0]])) > 1:
        proposal.add("columns", {found[0]: "dialogue_id"})
        proposal.add("always", {"history_id": f"{{{found[0]}}}-{{{turn[0]}}}"})
    elif found:
        proposal.add("columns", {found[0]: column})
        if column == "verdict":
            proposal.confirm += [f"{head} is not the answer" for head in found[1:]]
        elif column == "date":
            proposal.confirm.append(f"{found[0]} is when each answer was given")
        elif column == "p_a":
            proposal.confirm.append(f"{found[0]} is the chance that the first of the two is better")


def _propose_rest(proposal: Proposal) -> None:
    rows, options, table = proposal.rows, proposal.options, proposal.table
    explained = {*(options.get("columns") or {}), *(options.get("only") or {})}
    for head, wrong in doubtful_rows(rows).items():
        if head not in explained and (rest := _values(rows[head][~wrong])):
            proposal.add("only", {head: _counted(rest)})
            proposal.confirm.append(f"the {int(wrong.sum())} other rows by {head} do not count")
    known = proposal.known()
    lacks = [column for column in MUST_BE_NAMED[table] if column not in known]
    proposal.lacks = [column for column in lacks if column not in UNSAID]
    if not known & {*MUST_BE_NAMED[table][:2]}:
        proposal.lacks = lacks
        proposal.confirm.append(ONE_REPLY if table == "verdicts" else NO_SCORE)
        return
    if "score" in lacks:
        proposal.confirm.append(NO_SCORE)
        known.add("dimension")  # which the headers may name
    _propose_kinds(proposal)
    known |= proposal.known()
    for column in NEEDED[table]:
        if column in UNSAID and column not in known:
            value, sentence = UNSAID[column]
            proposal.add("always", {column: value})
            proposal.confirm.append(sentence.format(value))
            proposal.assumed += [column] if column == "rater_kind" else []
    if table == "verdicts":
        _propose_order(proposal)
        _propose_words(proposal)
    for column, names in facts()["kept"].items() if table == "verdicts" else ():
        for head in proposal.find(names)[:1] if column not in known else ():
            keep = f"(columns={{{head!r}: {column!r}}} keeps it)"
            proposal.confirm.append(f"{head} may be left out {keep}")
    composed = TEMPLATE.findall(str(options.get("always")))
    if {*proposal.free().values()} - {*composed}:
        proposal.options["columns"] = {**(options.get("columns") or {}), REST: None}


def _propose_kinds(proposal: Proposal) -> None:
    rows, known = proposal.rows, proposal.known()
    if "rater_kind" in known:
        return
    found = [head for head in proposal.find(facts()["kinds"]) if any(_words_in(rows[head]))]
    if found and "rater" not in known:
        proposal.add("always", {"rater": f"{{{found[0]}}}"})
        proposal.confirm.append(
            f"nobody is named who judged, so that all rows with one {found[0]} are one rater's"
        )
    names = [name for head in proposal.heads_of("rater") for name in _values(rows[head]) if name]
    models = list(filter(_looks_like_judge, names))
    if found:
        kinds = {word: kind_of(word) for word in _words_in(rows[found[0]]) if word}
        proposal.add("columns", {found[0]: "rater_kind"})
        meant = {word: kind for word, kind in kinds.items() if kind not in ("", word_of(word))}
        open_words = [word for word, kind in kinds.items() if not kind]
        proposal.confirm += [
            f"you say in words of rater_kind what {show_answer(found[0], word)} is: human or model"
            for word in open_words
        ]
    elif models and models == names:
        proposal.add("always", {"rater_kind": "model"})
        proposal.confirm.append(UNSAID["rater_kind"][1].format("model"))
        return
    elif models and len(names) <= MOST_NAMED:
        head = proposal.heads_of("rater")[0]
        proposal.add("always", {"rater_kind": f"{{{head}}}"})
        meant = {name: "model" if name in models else "human" for name in names}
        proposal.confirm.append(f"{', '.join(models)} are models, and all other raters people")
    else:
        return
    if meant:
        proposal.add("words", {"rater_kind": meant})


def looks_like_model(name: str) -> bool:
    return re.search(facts()["models"], str(name), re.IGNORECASE) is not None


def _looks_like_judge(name: str) -> bool:
    """Check whether a rater is called like a model or a judge that is one."""
    judges = re.search(facts()["judges"], str(name), re.IGNORECASE)
    return judges is not None or looks_like_model(name)


def kind_of(word: str) -> str:
    """Return the kind of rater that a word means, or nothing."""
    if (small := word_of(word)) in RATER_KINDS:
        return small
    if re.search(facts()["persons"], word, re.IGNORECASE):
        return "human"
    return "model" if _looks_like_judge(word) else ""


def _propose_order(proposal: Proposal) -> None:
    rows, options = proposal.rows, proposal.options
    sides = proposal.heads_of(*SIDES)
    for head in order_heads(rows, options)[:1]:
        turned = plain(_last(head)) in map(plain, facts()["turned"])
        codes = facts()["turned_codes" if turned else "first_codes"]
        meanings = {word: codes.get(word_of(word)) for word in _words_in(rows[head]) if word}
        proposal.add("columns", {head: "order"})
        if all(meanings.values()):
            proposal.add("words", {"order": meanings})
        proposal.confirm.append(
            f"{head} says which reply was shown first ('ab': that of responder_a), and the answers"
            " name the replies as the columns do, and not their places"
        )
    columns = options.get("columns") or {}
    said = [*sides, *(head for head, name in columns.items() if str(name).startswith("verdict:"))]
    said += [word for head in proposal.heads_of("verdict") for word in _words_in(rows[head])]
    words = {part for word in said for part in words_of(word)}
    places = [name for name in facts()["places"] if name in words]
    if places and "order" not in proposal.known():
        proposal.add("always", {"order": "ab"})
        proposal.confirm.append(
            f"the reply called {places[0]} was shown first in every row, and is that of"
            f" {next(iter(sides), 'responder_a')}"
        )


def _propose_words(proposal: Proposal) -> None:
    """Look up the answers' words; numbers mean sides only where sides are numbered."""
    rows, sides = proposal.rows, proposal.heads_of(*SIDES)
    names = {name for head in sides for name in _values(rows[head]) if name}
    side_of = {plain(head): side for head, side in zip(sides, ("a", "b"), strict=False)}
    form = facts()["tools"].get(proposal.tool, {}).get("form")
    explained = {*map(word_of, [*names, *(proposal.options.get("words") or {})])}
    for head in proposal.heads_of("verdict"):
        for word in _words_in(rows[head]):
            key, meaning = word_of(word), side_of.get(plain(word)) or _meaning_of(word)
            if word in ("a", "b", "tie") or key in explained or (key == "" and form):
                continue
            explained.add(key)
            if not meaning or (key in ("1", "2") and not sides[0].endswith("1")):
                proposal.confirm.append(f"you add to words what {show_answer(head, word)} means")
                continue
            proposal.add("words", {word: "tie" if meaning == "unsure" else meaning})
            if meaning in NO_SIDE:
                proposal.confirm.append(f"{word!r} is {NO_SIDE[meaning]}")
    if names and {_meaning_of(name) for name in names} <= {"a", "b"}:
        proposal.confirm.append(
            f"{' and '.join(sorted(names))} are names of who wrote the replies, and not of sides"
            " or places"
        )


def _words_in(cells: pd.Series) -> list[str]:
    words = _values(
        cells.map(lambda cell: cell[0] if isinstance(cell, list) and len(cell) == 1 else cell)
    )
    return words if len(words) <= FEW else []


def _values(cells: pd.Series) -> list[str]:
    return list(dict.fromkeys(map_words(cells, text_of)))
