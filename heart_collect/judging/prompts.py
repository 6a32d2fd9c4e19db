"""Prompts of judges and coders, shared words first for caches."""

from __future__ import annotations

import hashlib
import json
import os
import random
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, TypeVar

import pandas as pd
from pydantic import Field, StringConstraints

import heart_utils
from heart_collect.calls.models import Call
from heart_collect.judging.readings import Reading, read_dimensions, read_hits, read_labels
from heart_utils.runs import find_root
from heart_utils.settings import JsonObject, Text, read_yaml
from heart_utils.sources.heart import MAX_SENTENCES, MAX_WORDS, Codebook
from heart_utils.tables import SPEAKERS

__all__ = [
    "REPLY_INSTRUCTIONS",
    "SEEKER_INSTRUCTIONS",
    "Dimension",
    "PromptTemplate",
    "Protocol",
    "ProtocolError",
    "Rubric",
    "RubricError",
]
__all__ += ["load_protocol", "load_rubric", "prompt_hash"]

T = TypeVar("T")
Line = Annotated[Text, StringConstraints(strip_whitespace=True)]
Messages = tuple[Mapping[str, str], ...]

# Beside the code and not in a run's own project: another word there asks another question.
# in a wheel, in a checkout
DATA = next(
    above / "data" for above in Path(heart_utils.__file__).parents[:2] if (above / "data").is_dir()
)
PROMPTS = read_yaml(DATA / "prompts.yaml", JsonObject, ValueError)
REPLY_INSTRUCTIONS: str = PROMPTS["reply"].format(sentences=MAX_SENTENCES, words=MAX_WORDS)
"""What whoever writes a reply is told: the same words for a model and for a person in a study."""

SEEKER_INSTRUCTIONS: str = PROMPTS["seeker"].format(sentences=MAX_SENTENCES, words=MAX_WORDS)
"""What a model is told that plays the seeker of a conversation."""
NEXT = {"supporter": "Your reply as the supporter:", "seeker": "Your next turn as the seeker:"}

LABELS = dict(zip(SPEAKERS, ("Seeker", "Supporter"), strict=True))
#: Names that the answer of a judge uses itself.
RESERVED = ("reasoning", "winner", "margin", "score")
#: For codes: no A and B, which sound like grades, and nothing that looks like a digit.
CODE_LETTERS = "CDEFGHJKLMNPRTVWX"
AUTHORS = {"expert": "an expert", "person": "a person", "ai": "an AI"}
"""The label of a reply -> whom raters are told it is from."""
LETTERS = ("A", "B")  #: What replies are called where one letter is the whole answer.
PLACES = ("‹first›", "‹second›")  #: Where codes stand in a text that is kept for all pairs.
MAX_REPEATED = 4_000  #: Characters of an unreadable answer that a repair question shows again.
REASON_PER_ITEM = 60

ORDERS_A_JUDGE = re.compile(PROMPTS["orders_a_judge"], re.VERBOSE)


class RubricError(ValueError):
    """A rubric's file does not say what a rubric must say."""


class ProtocolError(ValueError):
    """A protocol's file does not say what a protocol must say."""


@dataclass(frozen=True)
class Dimension:
    """A line of a rubric: name, question, and a reply at either end."""

    name: Line
    question: Line
    high: Line
    low: Line

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[a-z][a-z0-9]*(_[a-z0-9]+)*", self.name):
            raise ValueError(
                f"the name {self.name!r} is not in snake_case; write it as in 'task_following'."
            )
        if self.name in RESERVED:
            raise ValueError(
                f"the name {self.name!r} is a word that a judge's answer uses itself; choose"
                " another."
            )


@dataclass(frozen=True)
class Rubric:
    """Dimensions in the order of their file."""

    name: Line
    title: Line
    dimensions: Annotated[tuple[Dimension, ...], Field(min_length=1)]
    about: str = ""

    def __post_init__(self) -> None:
        twice = sorted({name for name in self.names if self.names.count(name) > 1})
        if twice:
            raise ValueError(f"the name {twice[0]!r} stands twice; expected each dimension once.")

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the dimensions."""
        return tuple(dimension.name for dimension in self.dimensions)

    def select(self, names: Iterable[str] | None) -> Rubric:
        """Keep some dimensions, in the rubric's order; all if none are named."""
        if names is None:
            return self
        wanted = [names] if isinstance(names, str) else list(names)
        if not wanted or len({*wanted} & {*self.names}) < len(wanted):
            expected = (
                f"expected some of them, each once, got {', '.join(map(repr, wanted)) or 'none'}"
            )
            raise RubricError(
                f"The rubric {self.name!r} has the dimensions {', '.join(self.names)}; {expected}."
            )
        return replace(self, dimensions=tuple(one for one in self.dimensions if one.name in wanted))


def load_rubric(name_or_path: str | os.PathLike[str]) -> Rubric:
    """Read a rubric and check it.

    Parameters
    ----------
    name_or_path : str or path
        In ``data/rubrics``, such as ``"heart"``; with a separator or suffix, a YAML file.

    Returns
    -------
    Rubric
        ``dimensions``, their ``names``, ``title``, and ``about`` (where the words come from).

    Raises
    ------
    RubricError
        If the file or a key is missing, a key unknown or empty, or a name unusable or repeated.

    Examples
    --------
    >>> rubric = load_rubric("heart")
    >>> rubric.names[:3]
    ('human_alignment', 'empathic_responsiveness', 'attunement')
    """
    return _read_from(name_or_path, Rubric, RubricError)[1]


@dataclass(frozen=True)
class Protocol:
    """How judges are asked."""

    name: Text  #: The word in the column ``protocol``.
    about: Text  #: A line for captions.
    asks: Literal["pair", "reply"]  #: About a ``pair`` of replies, or one ``reply`` alone.
    rubric: Text  #: The rubric it asks about, by name or path.
    rules: Text  #: What a judge is told first; the same in every call.
    #: As stored, or the first turn as the seeker's, the second the supporter's, ...
    turn_labels: Literal["speaker", "parity"]
    #: ``shuffled`` for each call, or ``fixed`` as in the rubric.
    dimension_order: Literal["shuffled", "fixed"]
    dimensions_per_call: Literal["all", "one"]
    #: Before ``each`` dimension's verdict, or ``once`` before all of them.
    reasoning: Literal["each", "once"]
    #: Whether the judge is told the seeker's emotion, where the history has one.
    names_emotion: bool
    orders: Literal["both", "random"] = "both"  #: Of a pair: ``both``, or one at ``random``.
    ties: bool = True  #: Whether a judge may call a tie.
    #: A ``number`` from 1 to 5, or one to five ``plus`` signs.
    margin: Literal["number", "plus"] = "number"
    #: What the reply shown first and the second are called; drawn for each pair if empty.
    codes: tuple[str, ...] = ()
    #: Whether each reply is shown with whom it is said to be from (its ``label``).
    tells_author: bool = False
    #: Whether what is judged is a ``reply``, or how a whole ``conversation`` went on.
    unit: Literal["reply", "conversation"] = "reply"
    #: Who is asked: the run's ``judges``, or its simulated ``seekers``, each about its own
    #: conversations.
    raters: Literal["judges", "seekers"] = "judges"

    def __post_init__(self) -> None:
        if self.tells_author and self.asks != "pair":
            raise ValueError(
                "tells_author is true where one reply is asked about: expected asks: pair."
            )
        if self.raters == "seekers" and (self.asks, self.unit) != ("reply", "conversation"):
            raise ValueError(
                "raters is seekers: expected asks: reply and unit: conversation, since a seeker is"
                " asked about each of its conversations alone."
            )
        if self.margin == "plus" and self.reasoning == "each":
            raise ValueError(
                "plus signs stand beside a code, with no room for reasoning: expected reasoning:"
                " once."
            )
        if self.codes and (len(self.codes) != 2 or len(set(self.codes)) < 2 or not all(self.codes)):
            raise ValueError(
                f"codes is {list(self.codes)!r}, expected two different texts, for the first and"
                " second reply."
            )

    @property
    def answers(self) -> str:
        """Return what is answered on each dimension."""
        return "score" if self.asks == "reply" else self.margin


def load_protocol(name_or_path: str | os.PathLike[str]) -> Protocol:
    """Read a protocol and check it.

    Parameters
    ----------
    name_or_path : str or path
        As in :func:`load_rubric`, of ``data/protocols``.

    Returns
    -------
    Protocol
        What the file says.

    Raises
    ------
    ProtocolError
        If the file or a key is missing, or a key or value unknown.

    Examples
    --------
    >>> load_protocol("heart-release").turn_labels
    'parity'
    """
    file, protocol = _read_from(name_or_path, Protocol, ProtocolError)
    if file.parent == find_root() / "data" / "protocols" and protocol.name != file.stem:
        raise ProtocolError(
            f"{file}: name is {protocol.name!r}, expected the file's own, {file.stem!r}: it finds"
            " the file."
        )
    return protocol


def _read_from(
    name_or_path: str | os.PathLike[str], kind: type[T], error: type[ValueError]
) -> tuple[Path, T]:
    given, word = os.fspath(name_or_path), kind.__name__.lower()
    shelf = find_root() / "data" / f"{word}s"
    bare = Path(given).name == given and not Path(given).suffix
    file = shelf / f"{given}.yaml" if bare else Path(given).expanduser().resolve()
    if not file.is_file():
        known_names = ", ".join(sorted(path.stem for path in shelf.glob("*.yaml")))
        error_message = f"There is no {word} {given!r} (looked for {file})"
        raise error(
            f"{error_message}. By name there are {known_names}; or give a path to a YAML file."
        )
    return file, read_yaml(file, kind, error)


def show_turns(turns: Sequence[Mapping[str, str]], language: str | None = None) -> str:
    words, colon = (LABELS, ": ") if language is None else (PROMPTS["items"][language], "：")
    return "\n".join(
        f"{words[turn['speaker']]}{colon}{' '.join(turn['text'].split())}" for turn in turns
    )


def reply_messages(
    turns: Sequence[Mapping[str, str]],
    instructions: str = REPLY_INSTRUCTIONS,
    language: str | None = None,
    *,
    speaker: str = "supporter",
) -> Messages:
    """Write messages that ask for a speaker's next turn."""
    # One message, since a conversation may begin with either speaker, and not every provider lets
    # an assistant speak first.
    if language is not None:
        prompt = PROMPTS["items"][language]["reply"].format(history=show_turns(turns, language))
        return ({"role": "user", "content": prompt},)
    prompt = f"The conversation so far:\n\n{show_turns(turns)}\n\n{NEXT[speaker]}"
    return {"role": "system", "content": instructions}, {"role": "user", "content": prompt}


@dataclass(frozen=True)
class PromptTemplate:
    """The prompt of a question about a pair or reply."""

    protocol: Protocol
    dimensions: tuple[Dimension, ...]
    codes: tuple[str, ...]
    answer_format: str = "json"
    labels: tuple[str, ...] = ()
    title: ClassVar[str] = "judgement"
    #: Tokens for an answer in JSON: so many, and for each cell.
    answer_tokens: ClassVar[tuple[int, int]] = (200, 120)
    #: Ends of a call after which what cannot be read is asked for once more.
    repairable: ClassVar[tuple[str, ...]] = ("ok",)

    @property
    def name(self) -> str:
        """The word in the column ``protocol``."""
        return self.protocol.name

    @property
    def cells(self) -> list[tuple[str, str | None]]:
        """What each reading is about: dimension, and item if any."""
        return [(dimension.name, None) for dimension in self.dimensions]

    def again(self, answer: str, fault: str) -> Messages:
        """Ask again for an unreadable answer."""
        return _once_more(answer.strip()[:MAX_REPEATED], fault, self.title, self.answer_form())

    def read(self, call: Call) -> tuple[list[Reading], str | None]:
        """Read an answer: one reading a cell, and its fault."""
        settings, names = self.protocol, [dimension.name for dimension in self.dimensions]
        words = dict(zip(self.codes, ("first", "second"), strict=False)) | (
            {"tie": "tie"} if settings.ties else {}
        )
        letter, once = self.answer_format == "logprob", settings.reasoning == "once"
        return read_dimensions(
            call, names, words, answers=settings.answers, letter=letter, once=once
        )

    def messages(self, history: str, replies: Sequence[str]) -> Messages:
        """Write the prompt."""
        words = PROMPTS["units"][self.protocol.unit]
        names = (
            [f"{words['name']} {code}" for code in self.codes]
            if self.protocol.asks == "pair"
            else [words["alone"]]
        )
        if self.protocol.tells_author:
            names = [
                f"{name}, written by {AUTHORS[label]}"
                for name, label in zip(names, self.labels, strict=True)
            ]
        texts = {words["before"]: history, **dict(zip(names, replies, strict=True))}
        return _between_markers(self.protocol.rules, texts, self.task())

    def task(self) -> str:
        """Write what to judge and how: a prompt's last part."""
        if self.answer_format == "json":
            return f"{_lines(self.dimensions)}\n\n{self.answer_form()}"
        first, second = self.codes
        noun = PROMPTS["units"][self.protocol.unit]["noun"]
        return (
            f"{_lines(self.dimensions)}\n\nWhich {noun} does better on this, {first} or {second}?"
            " Answer with one letter."
        )

    def answer_form(self) -> str:
        """Describe the JSON to answer with."""
        text = _answer_form(self.protocol, self.dimensions)
        for placeholder, code in zip(PLACES, self.codes, strict=False):
            text = text.replace(placeholder, code)
        return text

    @property
    def schema(self) -> JsonObject:
        """The answer's JSON schema, in the subset that providers share."""
        scale, once = (
            {"type": "integer", "enum": [1, 2, 3, 4, 5]},
            self.protocol.reasoning == "once",
        )
        words = [*self.codes, "tie"] if self.protocol.ties else [*self.codes]
        cells: JsonObject = {"winner": {"type": "string", "enum": words}, "margin": scale}
        cells = {"score": scale} if self.protocol.asks == "reply" else cells
        reasoning = {"reasoning": {"type": "string"}}
        value: JsonObject = _object(cells if once else reasoning | cells)
        if self.protocol.answers == "plus":
            value = {
                "type": "string",
                "enum": [code + "+" * n for code in self.codes for n in range(1, 6)],
            }
        verdicts = {dimension.name: value for dimension in self.dimensions}
        return _object(reasoning | verdicts if once else verdicts)


#: What coders are asked about unless a recipe says otherwise.
CODEBOOKS = ("release", "esconv", "focus", "safety")


@dataclass(frozen=True)
class LabelsTemplate:
    """Which labels of a codebook apply to a reply."""

    codes: Codebook
    name: ClassVar[str] = "codes"
    answer_format: ClassVar[str] = "json"
    title: ClassVar[str] = "labels"
    answer_tokens: ClassVar[tuple[int, int]] = (60, 16)
    repairable: ClassVar[tuple[str, ...]] = ("ok", "truncated")

    @property
    def cells(self) -> list[tuple[str, str | None]]:
        return [(code.name, None) for code in self.codes]

    def messages(self, history: str, replies: Sequence[str]) -> Messages:
        labels = "\n".join(f"- {code.name}: {code.says}" for code in self.codes)
        words = PROMPTS["units"]["reply"]
        return _between_markers(
            PROMPTS["coder"],
            {words["before"]: history, words["alone"]: replies[0]},
            f"Labels:\n{labels}\n\n{self.answer_form()}",
        )

    def answer_form(self) -> str:
        pattern = json.dumps(dict.fromkeys((code.name for code in self.codes), "true or false"))
        return (
            "Answer with one JSON object and nothing else, every label with true or false, after"
            f" this pattern:\n{pattern}"
        )

    def again(self, answer: str, fault: str) -> Messages:
        return _once_more(answer.strip(), fault, self.title, self.answer_form())

    @property
    def schema(self) -> JsonObject:
        return _object({code.name: {"type": "boolean"} for code in self.codes})

    def read(self, call: Call) -> tuple[list[Reading], str | None]:
        return read_labels(call, [code.name for code in self.codes])


@dataclass(frozen=True)
class ItemsTemplate:
    """Which rubric items a reply hits, reasons first."""

    items: tuple[Mapping[str, Any], ...]
    language: str
    #: Whether the schema fixes the number of hits; not every provider takes that.
    exact: bool = False
    name: ClassVar[str] = "heartbench"
    answer_format: ClassVar[str] = "json"
    title: ClassVar[str] = "hits"
    answer_tokens: ClassVar[tuple[int, int]] = (500, 60)
    repairable: ClassVar[tuple[str, ...]] = ("ok", "truncated")

    @property
    def cells(self) -> list[tuple[str, str | None]]:
        """Each item with its ability."""
        return [(item["ability"], item["item"]) for item in self.items]

    def messages(self, history: str, replies: Sequence[str]) -> Messages:
        points = ["" if pd.isna(item["points"]) else f"{item['points']:+g}" for item in self.items]
        item_list = "\n".join(
            f"{number}. [{item['ability']}][{worth}] {item['content']}"
            for number, (item, worth) in enumerate(zip(self.items, points, strict=True), start=1)
        )
        wording = PROMPTS["items"][self.language]["judge"]
        return (
            {
                "role": "user",
                "content": wording.format(
                    n=len(self.items), history=history, reply=replies[0], items=item_list
                ),
            },
        )

    def again(self, answer: str, fault: str) -> Messages:
        prompt = PROMPTS["items"][self.language]["again"].format(fault=fault, n=len(self.items))
        return {"role": "assistant", "content": answer}, {"role": "user", "content": prompt}

    @property
    def schema(self) -> JsonObject:
        n = len(self.items)
        hits: JsonObject = {"type": "array", "items": {"enum": [1, 0, None]}}
        reason: JsonObject = {"type": "string"}
        if self.exact:
            hits |= {"minItems": n, "maxItems": n}
            reason |= {"minLength": 1, "maxLength": REASON_PER_ITEM * n}
        return _object({"reason": reason, "hits": hits})

    def read(self, call: Call) -> tuple[list[Reading], str | None]:
        """Read an answer: all items or none."""
        return read_hits(call, len(self.items))


Template = PromptTemplate | LabelsTemplate | ItemsTemplate


def _between_markers(rules: str, texts: Mapping[str, str], task: str) -> Messages:
    open_, close = text_markers(tuple(texts.values()))
    parts = [f"{name}:\n{open_}\n{text}\n{close}" for name, text in texts.items()]
    return {"role": "system", "content": rules}, {
        "role": "user",
        "content": "\n\n".join([*parts, task]),
    }


def _once_more(answer: str, fault: str, what: str, how_to_answer: str) -> Messages:
    prompt = f"That answer could not be read: {fault}. Give the same {what} again. {how_to_answer}"
    return {"role": "assistant", "content": answer or "(nothing)"}, {
        "role": "user",
        "content": prompt,
    }


def history_block(history: Mapping[Any, Any], protocol: Protocol) -> str:
    turns = history["turns"]
    speakers = [turn["speaker"] for turn in turns]
    speakers = (
        [SPEAKERS[number % 2] for number in range(len(turns))]
        if protocol.turn_labels == "parity"
        else speakers
    )
    lines = [
        f"{LABELS[speaker]}: {turn['text']}" for speaker, turn in zip(speakers, turns, strict=True)
    ]
    emotion = history.get("emotion")
    if protocol.names_emotion and isinstance(emotion, str):
        lines.insert(0, f"(The seeker's emotion: {emotion}.)")
    return "\n".join(lines)


def instructs_judge(text: str) -> bool:
    """Check whether a reply addresses its judge, as in "choose A"."""
    return ORDERS_A_JUDGE.search(text) is not None


def draw_codes(generator: random.Random, texts: Sequence[str] = ()) -> tuple[str, str]:
    """Draw a pair's codes, for both orders."""
    while True:
        # Only random() is promised to give the same numbers in every version of Python.
        first = int(generator.random() * len(CODE_LETTERS))
        second = (first + 1 + int(generator.random() * (len(CODE_LETTERS) - 1))) % len(CODE_LETTERS)
        one, two = (
            f"{CODE_LETTERS[at]}{100 + int(generator.random() * 900)}" for at in (first, second)
        )
        if not any(code in text for text in texts for code in (one, two)):
            return one, two


def prompt_hash(protocol: Protocol, rubric: Rubric, answer_format: str = "json") -> str:
    """Hash a judge's instructions (SHA-256), without conversation and replies.

    Parameters
    ----------
    protocol : Protocol
        How judges are asked.
    rubric : Rubric
        About which dimensions.
    answer_format : str
        ``"json"`` or ``"logprob"``.

    Returns
    -------
    str
        Hexadecimal; changes with the words of rules, rubric or package.

    Examples
    --------
    >>> protocol, rubric = load_protocol("heart"), load_rubric("heart")
    >>> prompt_hash(protocol, rubric) == prompt_hash(protocol, rubric.select(["overall"]))
    False
    """
    codes = ("reply",) if protocol.asks == "reply" else LETTERS
    turns = [{"speaker": "supporter", "text": "one"}, {"speaker": "seeker", "text": "two"}]
    history = history_block({"turns": turns, "emotion": "three"}, protocol)
    templates = [
        PromptTemplate(protocol, part, codes, answer_format)
        for part in parts(protocol, rubric.dimensions, answer_format)
    ]
    prompts = [
        [template.messages(history, ["four", "five"][: len(codes)]), template.schema]
        for template in templates
    ]
    return hashlib.sha256(json.dumps(prompts, sort_keys=True).encode()).hexdigest()


def parts(
    protocol: Protocol, dimensions: tuple[Dimension, ...], answer_format: str
) -> list[tuple[Dimension, ...]]:
    """Split dimensions over calls."""
    if answer_format == "logprob" or protocol.dimensions_per_call == "one":
        return [(dimension,) for dimension in dimensions]
    return [dimensions]


@lru_cache(maxsize=2_048)
def _lines(dimensions: tuple[Dimension, ...]) -> str:
    lines = [f"- {one.name}: {one.question} High: {one.high} Low: {one.low}" for one in dimensions]
    return "\n".join(
        [
            (
                "Judge by"
                f" {'this dimension' if len(lines) == 1 else 'these dimensions, in this order'}:"
            ),
            *lines,
        ]
    )


@lru_cache(maxsize=2_048)
def _answer_form(protocol: Protocol, dimensions: tuple[Dimension, ...]) -> str:
    words, (first, second) = PROMPTS["answer"], PLACES
    ties = words["ties"] if protocol.ties else dict.fromkeys(words["ties"], "")
    noun = PROMPTS["units"][protocol.unit]["noun"]
    instruction = words[protocol.answers].format(first=first, second=second, unit=noun, **ties)
    plus = f"{first} or {second}, then + to +++++"
    cells: Any = {"score": {"score": 0}, "number": {"winner": "...", "margin": 0}, "plus": plus}[
        protocol.answers
    ]
    once = protocol.reasoning == "once"
    values = dict.fromkeys(
        (one.name for one in dimensions), cells if once else {"reasoning": "...", **cells}
    )
    pattern = json.dumps({"reasoning": "...", **values} if once else values, ensure_ascii=False)
    return f"{words[protocol.reasoning].format(how=instruction)} {words['form']}:\n{pattern}"


def text_markers(texts: Sequence[str]) -> tuple[str, str]:
    """Make markers longer than any run of their signs in the texts."""
    # few, and quicker found than by a pattern
    with_runs = [text for text in texts if "<<<" in text or ">>>" in text]
    length = max(
        (1 + len(run) for text in with_runs for run in re.findall(r"<{3,}|>{3,}", text)), default=3
    )
    return "<" * length, ">" * length


def _object(properties: JsonObject) -> JsonObject:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }
