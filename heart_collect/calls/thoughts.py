"""Thoughts that a model writes before its answer, and the marks around them."""

from __future__ import annotations

import re
from typing import NamedTuple

__all__: list[str] = []

_NO_WIDTH = r"[\u200b-\u200d\u2060\ufeff]*"  # MiniMax M3 has such signs within its marks
_THOUGHT = r"(?:think(?:ing)?|thoughts?|reasoning)"


class Marks(NamedTuple):
    """What opens and what ends a thought, as regular expressions."""

    opening: str
    end: str
    #: The ends that count without an opening; a prompt's template may have opened the thought.
    alone: str = ""


def _tags(names: str) -> Marks:
    """Return a tag's marks, with any prefix or attributes: ``<seed:think>``."""
    name = rf"(?:\w+[:_])?(?:{names})"
    return Marks(rf"<{_NO_WIDTH}{name}(?:\s[^<>]*)?>", rf"<{_NO_WIDTH}/{_NO_WIDTH}{name}\s*>")


MARKS = (
    # DeepSeek, Qwen, GLM, Nemotron, MiniMax, Kimi K2, Phi, OLMo, Ernie, Step, EXAONE, Seed, LongCat
    _tags("think(?:ing)?|thoughts?"),
    *map(_tags, ("reasoning", "reflection", "scratchpad", "analysis")),
    # Cohere <|START_THINKING|>, OpenThoughts <|begin_of_thought|>, Solar <|think:start|>
    Marks(
        rf"<\|(?:(?:begin|start)(?:_of)?_)?{_THOUGHT}(?:[:_](?:start|begin))?\|>",
        rf"<\|(?:end(?:_of)?_{_THOUGHT}|{_THOUGHT}[:_]end|/{_THOUGHT})\|>",
    ),
    # gpt-oss: channels of which only "final" is the answer
    Marks(
        r"(?:<\|start\|>\s*assistant\s*)?<\|channel\|>\s*(?:analysis|commentary)\b"
        r"(?:[^<]*<\|message\|>)?",
        r"(?:<\|end\|>\s*)?(?:<\|start\|>\s*assistant\s*)?<\|channel\|>\s*final\b"
        r"(?:[^<]*<\|message\|>)?|<\|end\|>",
        alone=r"\bfinal\b",
    ),
    # gpt-oss where the server drops the signs of its channels
    Marks(r"\A\s*(?-i:analysis(?=[A-Z]))", r"(?-i:assistantfinal)"),
    Marks(r"\[THINK\]", r"\[/THINK\]"),  # Magistral
    Marks(r"◁think▷", r"◁/think▷"),  # Kimi
    Marks(r"<\|open\|>\s*think\s*<\|sep\|>", r"<\|close\|>\s*think\s*<\|sep\|>"),  # Kimi K3
    Marks(r"<\|channel>\s*thought\b", r"<channel\|>"),  # Gemma 4
    Marks(r"<(?:unused|ctrl)94>(?:thought)?", r"<(?:unused|ctrl)95>"),  # MedGemma, Gemini
    Marks(r"\[unused16\]", r"\[unused17\]"),  # Pangu
    Marks(r"<\|inner_prefix\|>", r"<\|inner_suffix\|>"),  # Apertus
    # Granite
    Marks(
        r"\A\W*Here(?: is|['’]s) my thought process:",
        r"Here(?: is|['’]s) my response:\W*",
        alone=r"(?!)",
    ),
)
"""As the readers of vLLM, SGLang and llama.cpp know them in November 2026."""

#: What models that mark their thoughts put before and behind the answer itself.
BEFORE = (
    r"(?:\s*(?:<(?:answer|response|output)>|<\|(?:begin_of_solution|start_(?:response|text))\|>"
    r"|<\|open\|>\s*response\s*<\|sep\|>|<\|start\|>\s*assistant|<\|message\|>))*"
)
BEHIND = re.compile(
    r"(?:(?:</(?:answer|response|output)>|<\|(?:end_of_solution|end_(?:response|text))\|>"
    r"|<\|close\|>\s*(?:response|message)\s*<\|sep\|>|<\|(?:return|end|im_end)\|>|<turn\|>)\s*)+\Z",
    re.IGNORECASE,
)


def _either(n: int, marks: Marks) -> str:
    return rf"(?P<open{n}>{marks.opening})|(?P<end{n}>(?:{marks.end}){BEFORE})"


_NAMED = [(_either(n, marks), marks.opening.startswith(r"\A")) for n, marks in enumerate(MARKS)]
_OF_SIGNS = "|".join(one for one, in_words in _NAMED if not in_words)
_OF_WORDS = "|".join(one for one, in_words in _NAMED if in_words)
# What a mark begins with is looked at first, which is ten times as fast.
MARK = re.compile(rf"(?=[<\[◁aH]|\A)(?:(?=[<\[◁])(?:{_OF_SIGNS})|{_OF_WORDS})", re.IGNORECASE)
HINTS = ("<", "[", "◁", "analysis", "assistantfinal", "rocess:")  #: Each mark holds one of these.
ALONE = [re.compile(marks.alone, re.IGNORECASE) for marks in MARKS]
QUOTES = ("``", '""', "''", "“”", "‘’", "«»")  #: A mark between two of these is only spoken of.


def without_thoughts(text: str) -> str | None:
    """Take out a model's thoughts; None where one has no end.

    Examples
    --------
    >>> from heart_collect.calls.thoughts import without_thoughts
    >>> without_thoughts("<think>The person is sad.</think>That sounds hard.")
    'That sounds hard.'
    >>> without_thoughts("<think>The person is") is None
    True
    """
    spans = spoken_spans(text)
    if spans is None or spans == [(0, len(text))]:
        return None if spans is None else text
    return BEHIND.sub("", "".join(text[start:end] for start, end in spans))


def spoken_spans(text: str) -> list[tuple[int, int]] | None:
    """Find a model's answer between its thoughts; None if the last has no end."""
    if not any(hint in text for hint in HINTS):  # most answers; a search for marks takes longer
        return [(0, len(text))]
    spans: list[tuple[int, int]] = []
    opened: list[int] = []  # which marks, the innermost last
    start = 0
    for mark in MARK.finditer(text):
        kind = int(re.sub(r"\D", "", str(mark.lastgroup)))
        opens = str(mark.lastgroup).startswith("open")
        around = text[max(mark.start() - 1, 0) : mark.start()] + text[mark.end() : mark.end() + 1]
        if around == "``" or (opens and around in QUOTES):
            continue
        if opens and kind not in opened:
            if not opened:
                spans.append((start, mark.start()))
            opened.append(kind)
        elif not opens and kind in opened:
            del opened[opened.index(kind) :]
            start = mark.end()
        elif not opens and not opened and ALONE[kind].search(mark[0]):
            spans, start = [], mark.end()
    return None if opened else [*spans, (start, len(text))]


def answer_start(text: str) -> int | None:
    """Find where an answer begins, after thoughts; None where it says nothing."""
    spans = spoken_spans(text) or []
    places = (at for start, end in spans for at in range(start, end))
    return next((at for at in places if not text[at].isspace()), None)
