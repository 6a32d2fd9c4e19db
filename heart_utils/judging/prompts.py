"""The words a judge reads: from what stays the same to what varies, with the replies verbatim between markers.

A prompt runs from the rules (the same in every call) over the conversation and the replies to the
dimensions, so that a server that keeps the prefix of its last prompts reads most of each only once.
"""

from __future__ import annotations

import hashlib
import json
import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from heart_utils.judging.protocols import Protocol
from heart_utils.judging.rubric import Dimension, Rubric

__all__ = ["Form", "prompt_hash"]

Messages = tuple[Mapping[str, str], ...]

CODE_LETTERS = "CDEFGHJKLMNPRTVWX"
"""For codes: no A and B, which sound like grades, and nothing that looks like a digit."""
LETTERS = ("A", "B")
"""What the replies are called where one letter is the whole answer."""
PLACES = ("‹first›", "‹second›")
"""Where codes stand in a text that is kept for all pairs."""
MAX_REPEATED = 4_000
"""Characters of an unreadable answer that a repair question shows again."""

SPEAKERS = ("Seeker", "Supporter")
ORDERS_A_JUDGE = re.compile(
    r"""
    \b(?i:choose|pick|select|prefer|vote\ for|rank|output|answer|the\ winner\ is|winner:?)
        \s+(?:(?i:reply|response|option|answer)\s+)?["'(]?[AB]["')]?(?=\s*(?:$|[.,;:!?\n]|(?i:as|over|because|is|and|not)\b))
    |(?i:\b(?:ignore|disregard|forget)\b[^.!?\n]{0,30}\b(?:instructions?|rubric|prompt)\b|\b(?:ignore|disregard)\ the\ rules\b)
    |(?i:\b(?:choose|pick|select|prefer|vote\ for|rate|rank|score|judge)\s+(?:this|my|the\ (?:first|second|other))\s+
        (?:reply|response|answer|option)\b)
    |(?i:\b(?:dear|note\ to(?:\ the)?|attention,?(?:\ the)?)\s+(?:judge|grader|evaluator|rater)s?\b)
    |(?i:\bas\ (?:a|the)\ (?:judge|grader|evaluator|rater),?\s+you\b)
    |(?i:["']winner["']\s*:)
    |<{3,}|>{3,}
    """,
    re.VERBOSE,
)


@dataclass(frozen=True)
class Form:
    """What one call asks, and in which form the answer must come.

    Attributes
    ----------
    protocol : Protocol
        How judges are asked.
    dimensions : tuple of Dimension
        In the order shown.
    codes : tuple of str
        What the replies are called, in the order shown; for the format ``logprob`` A and B.
    answer_format : str
        ``"json"`` or ``"logprob"``.
    """

    protocol: Protocol
    dimensions: tuple[Dimension, ...]
    codes: tuple[str, ...]
    answer_format: str = "json"

    def messages(self, history: str, replies: Sequence[str]) -> Messages:
        """Write the prompt."""
        open_, close = text_markers((history, *replies))
        parts = [f"The conversation so far:\n{open_}\n{history}\n{close}"]
        names = [f"Reply {code}" for code in self.codes] if self.protocol.asks == "pair" else ["The reply"]
        parts += [f"{name}:\n{open_}\n{text}\n{close}" for name, text in zip(names, replies, strict=True)]
        parts.append(self.task())
        return (
            {"role": "system", "content": self.protocol.rules},
            {"role": "user", "content": "\n\n".join(parts)},
        )

    def task(self) -> str:
        """Say what to judge and how to answer: the part of a prompt that comes last."""
        if self.answer_format == "logprob":
            first, second = self.codes
            return f"{_lines(self.dimensions)}\n\nWhich reply does better on this, {first} or {second}? Answer with one letter."
        return f"{_lines(self.dimensions)}\n\n{self.answer_form()}"

    def answer_form(self) -> str:
        """Say in words, and by a skeleton, how to answer in JSON."""
        text = _answer_form(self.protocol, self.dimensions)
        for place, code in zip(PLACES, self.codes, strict=False):
            text = text.replace(place, code)
        return text

    @property
    def schema(self) -> dict[str, Any]:
        """The JSON schema of the answer, in the subset that providers share."""
        if self.protocol.asks == "reply":
            cells: dict[str, Any] = {"score": {"type": "integer", "enum": [1, 2, 3, 4, 5]}}
        else:
            winner = {"type": "string", "enum": [*self.codes, "tie"] if self.protocol.ties else [*self.codes]}
            cells = {"winner": winner, "margin": {"type": "integer", "enum": [1, 2, 3, 4, 5]}}
        reasoning = {"reasoning": {"type": "string"}}
        once = self.protocol.reasoning == "once"
        if self.protocol.asks == "pair" and self.protocol.margin == "plus":
            value: dict[str, Any] = {"type": "string", "enum": [code + "+" * n for code in self.codes for n in range(1, 6)]}
        else:
            value = _object(cells if once else reasoning | cells)
        verdicts = {dimension.name: value for dimension in self.dimensions}
        return _object(reasoning | verdicts if once else verdicts)


def history_block(history: Mapping[Any, Any], protocol: Protocol) -> str:
    """Write a conversation as a judge shall read it."""
    turns = history["turns"]
    if protocol.turn_labels == "parity":
        labels = [SPEAKERS[number % 2] for number in range(len(turns))]
    else:
        labels = [turn["speaker"].capitalize() for turn in turns]
    lines = [f"{label}: {turn['text']}" for label, turn in zip(labels, turns, strict=True)]
    emotion = history.get("emotion")
    if protocol.names_emotion and isinstance(emotion, str):
        lines.insert(0, f"(The seeker's emotion: {emotion}.)")
    return "\n".join(lines)


def instructs_judge(text: str) -> bool:
    """Tell whether a reply speaks to its judge, as in "choose A" or "ignore the rules".

    Such a reply is judged like any other, verbatim; its verdicts carry the flag ``instructs_judge``.
    """
    return ORDERS_A_JUDGE.search(text) is not None


def draw_codes(generator: random.Random, texts: Sequence[str] = ()) -> tuple[str, str]:
    """Draw what the two replies of a pair are called.

    Codes belong to places, not to replies: the reply shown first has the first code in both orders, so that a judge's
    taste in codes cancels out with its taste in places.
    """
    while True:
        # Only random() is promised to give the same numbers in every version of Python.
        first = int(generator.random() * len(CODE_LETTERS))
        second = (first + 1 + int(generator.random() * (len(CODE_LETTERS) - 1))) % len(CODE_LETTERS)
        letters = CODE_LETTERS[first], CODE_LETTERS[second]
        codes = (f"{letters[0]}{100 + int(generator.random() * 900)}", f"{letters[1]}{100 + int(generator.random() * 900)}")
        if not any(code in text for text in texts for code in codes):
            return codes


def repair_messages(messages: Messages, answer: str | None, fault: str, form: Form) -> Messages:
    """Ask once more for an answer that could not be read."""
    came = (answer or "").strip()[:MAX_REPEATED] or "(nothing)"
    again = f"That answer could not be read: {fault}. Give the same judgement again. {form.answer_form()}"
    return (*messages, {"role": "assistant", "content": came}, {"role": "user", "content": again})


def prompt_hash(protocol: Protocol, rubric: Rubric, answer_format: str = "json") -> str:
    """Give the SHA-256 of what a judge is told beside the conversation and the replies, for a run's manifest.

    Parameters
    ----------
    protocol : Protocol
        How judges are asked.
    rubric : Rubric
        The dimensions.
    answer_format : str
        ``"json"`` or ``"logprob"``.

    Returns
    -------
    str
        Hexadecimal; another word in the rules, the rubric or this module gives another one.

    Examples
    --------
    >>> from heart_utils.judging.protocols import load_protocol
    >>> from heart_utils.judging.rubric import load_rubric
    >>> rubric = load_rubric("heart")
    >>> len(prompt_hash(load_protocol("heart"), rubric))
    64
    >>> prompt_hash(load_protocol("heart"), rubric) == prompt_hash(load_protocol("heart"), rubric.select(["overall"]))
    False
    """
    codes = ("reply",) if protocol.asks == "reply" else LETTERS
    turns = [{"speaker": "supporter", "text": "one"}, {"speaker": "seeker", "text": "two"}]
    history = history_block({"turns": turns, "emotion": "three"}, protocol)
    forms = [
        Form(protocol, dimensions, codes, answer_format) for dimensions in parts(protocol, rubric.dimensions, answer_format)
    ]
    said = [[form.messages(history, ["four", "five"][: len(codes)]), form.schema] for form in forms]
    return hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()


def parts(protocol: Protocol, dimensions: tuple[Dimension, ...], answer_format: str) -> list[tuple[Dimension, ...]]:
    """Split dimensions over calls: one a call for a single letter or where the protocol says so, else all in one."""
    if answer_format == "logprob" or protocol.dimensions_per_call == "one":
        return [(dimension,) for dimension in dimensions]
    return [dimensions]


@lru_cache(maxsize=2_048)
def _lines(dimensions: tuple[Dimension, ...]) -> str:
    lines = [f"- {one.name}: {one.question} High: {one.high} Low: {one.low}" for one in dimensions]
    return "\n".join([f"Judge by {'this dimension' if len(lines) == 1 else 'these dimensions, in this order'}:", *lines])


@lru_cache(maxsize=2_048)
def _answer_form(protocol: Protocol, dimensions: tuple[Dimension, ...]) -> str:
    """Say how to answer, with places for the codes."""
    once = protocol.reasoning == "once"
    if protocol.asks == "reply":
        cells: Any = {"score": 0}
        how = "score it from 1 (the low end) to 5 (the high end)"
    else:
        first, second = PLACES
        tie = ' or "tie"' if protocol.ties else ""
        how = f'say which reply does better on it, "{first}" or "{second}"{tie}'
        if protocol.margin == "plus":
            cells = f"{first} or {second}, then + to +++++"
            how += ", followed by one plus sign (hardly better) to five (far better)"
        else:
            cells = {"winner": "...", "margin": 0}
            how += ", and by what margin, from 1 (hardly better) to 5 (far better)"
            how += "; for a tie the margin does not count" if tie else ""
    if once:
        said = f"First give your reasoning in a few sentences; then, for each dimension, {how}."
    else:
        said = f"For each dimension first give your reasoning in one sentence, then {how}."
    values = dict.fromkeys((one.name for one in dimensions), cells if once else {"reasoning": "...", **cells})
    pattern = json.dumps({"reasoning": "...", **values} if once else values, ensure_ascii=False)
    return f"{said} Answer with one JSON object and nothing else, filled in after this pattern:\n{pattern}"


def text_markers(texts: Sequence[str]) -> tuple[str, str]:
    """Make the markers longer than any run of their signs in the texts, so that no text can close its own."""
    length = 3
    for text in texts:
        if "<<<" in text or ">>>" in text:
            length = max(length, 1 + max(len(run) for run in re.findall(r"<{3,}|>{3,}", text)))
    return "<" * length, ">" * length


def _object(properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}
