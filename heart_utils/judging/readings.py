"""From the raw text of an answer to readings: strict about the vocabulary, tolerant of the wrapping.

Models put JSON into code fences, add a sentence before or after it, leave a comma too many, wrap the
whole in another object, or stop half way. What can be read without guessing is read; what cannot is
``unparsed``, never a tie.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from heart_utils.calls.models import Call
from heart_utils.judging.prompts import Form

__all__ = ["Reading"]

MAX_MARGIN = 5
ENOUGH_MASS = 0.5
DECODER = json.JSONDecoder(strict=False)  # a raw line break inside a string is no reason to lose a verdict
TRAILING_COMMA = re.compile(r",(\s*[}\]])")
PLUS_SIGNS = re.compile(r"[^\w+]*(\w+)[^\w+]*(\+*)[^\w+]*")
WRAPPERS = ("dimensions", "verdicts", "scores", "answer", "result", "judgement", "judgment", "scales")
NO_ANSWER = ("abstain", "none", "cannot judge", "n/a")
REFUSAL = re.compile(
    r"""^\W*(?:[^.!?\n]{0,40}(?:\bsorry\b|\bapologi[sz]e\b|\bunfortunately\b|\bas\ an\ ai\b)[^.!?\n]{0,60}?)?
    \bi(?:\ can(?:no|['’])t|\ can\ not|\ won['’]t|\ will\ not|\ must\ decline\ to|\ decline\ to
        |(?:\ am|['’]m)\ (?:not\ able|unable)\ to)
    \s+(?:\w+\s+){0,2}?(?:assist|help|comply|provide|do|judge|rate|compare|evaluate|continue|engage|fulfil|assess|participate)""",
    re.IGNORECASE | re.VERBOSE,
)


class Reading(NamedTuple):
    """What an answer says on one dimension, in terms of the order shown.

    Attributes
    ----------
    state : str
        ``valid``, ``abstained``, ``refused``, ``unparsed`` or ``error``.
    winner : str or None
        ``first``, ``second`` or ``tie``.
    margin : float or None
        1 to 5; None for a tie, or where the answer gives none that can be read.
    p_first : float or None
        The probability that the reply shown first is better.
    score : float or None
        1 to 5, for a reply alone.
    rationale : str or None
        The reason given.
    little_mass : bool
        Whether the two letters together had less than half of the next token's probability.
    """

    state: str
    winner: str | None = None
    margin: float | None = None
    p_first: float | None = None
    score: float | None = None
    rationale: str | None = None
    little_mass: bool = False


def read_call(call: Call, form: Form) -> tuple[list[Reading], str | None]:
    """Read what a call answered."""
    names = [dimension.name for dimension in form.dimensions]
    if call.status in ("error", "refused"):
        return [Reading(call.status)] * len(names), None
    if form.answer_format == "logprob":
        return [_read_letter(call, form)], None
    found = _find_object(call.text, names)
    if found is None:
        if REFUSAL.match(call.text):
            return [Reading("refused")] * len(names), None
        return [Reading("unparsed")] * len(names), "it holds no JSON object of the form asked for"
    shared = _text(found.get("reasoning")) if form.protocol.reasoning == "once" else None
    readings, faults = [], []
    for name in names:
        reading, fault = _read_dimension(name, found, form, shared)
        readings.append(reading)
        if fault:
            faults.append(fault)
    return readings, "; ".join(faults) or None


def _read_letter(call: Call, form: Form) -> Reading:
    """Renormalise the next token's probability over the two letters.

    A letter that is not listed is taken to be as probable as the least probable token listed: the most it can be, so
    that no certainty is made up. With neither listed there is no answer.
    """
    listed = [(_letter(token), math.exp(logprob)) for token, logprob in call.logprobs or ()]
    mass = [sum(share for letter, share in listed if letter == code) for code in form.codes]
    if not any(mass):
        return Reading("unparsed")
    least = min(share for _, share in listed)
    first, second = (share or least for share in mass)
    p_first = first / (first + second)
    winner = "first" if p_first > 0.5 else "second" if p_first < 0.5 else "tie"
    return Reading("valid", winner=winner, p_first=p_first, little_mass=sum(mass) < ENOUGH_MASS)


@lru_cache(maxsize=10_000)
def _letter(token: str) -> str:
    """Strip what tokenizers and models put around a letter."""
    return token.strip(" \t\n▁Ġ*\"'().")


def _find_object(text: str, names: list[str]) -> dict[str, Any] | None:
    """Find the last object in a text that speaks of the dimensions, whole or cut short."""
    try:
        return _speaking(DECODER.decode(text), names)
    except (ValueError, RecursionError):
        pass
    for candidate in (text, TRAILING_COMMA.sub(r"\1", text)):
        found, start = None, candidate.find("{")
        while start >= 0:
            try:
                content, end = DECODER.raw_decode(candidate, start)
                found = _speaking(content, names) or found
            except (ValueError, RecursionError):
                end = start + 1
            start = candidate.find("{", end)
        # Dimension by dimension only where no whole object speaks of them: the answer was cut short.
        found = found or _pieces(candidate, names)
        if found is not None:
            return found
    return None


def _speaking(content: Any, names: list[str]) -> dict[str, Any] | None:
    """Give the mapping of dimensions in an answer, out of its wrapping and with its keys in snake_case."""
    if isinstance(content, list):
        lines = [line for line in content if isinstance(line, dict)]
        content = {str(line.get("dimension") or line.get("name")): line for line in lines}
    if not isinstance(content, dict):
        return None
    for name in names:
        if name in content:
            return content
    tidy = {re.sub(r"\W+", "_", str(key).strip().lower()): value for key, value in content.items()}
    if any(name in tidy for name in names):
        return tidy
    if len(names) == 1 and ("winner" in tidy or "score" in tidy):
        return {names[0]: tidy}
    inner = [tidy[key] for key in WRAPPERS if isinstance(tidy.get(key), dict | list)]
    for wrapped in inner:
        found = _speaking(wrapped, names)
        if found is not None:
            return {"reasoning": tidy.get("reasoning"), **found}
    return None


def _pieces(text: str, names: list[str]) -> dict[str, Any] | None:
    """Read the values that are whole in an object that is not."""
    found: dict[str, Any] = {}
    for name in (*names, "reasoning"):
        opened = re.search(rf'"{name}"\s*:\s*(?=["{{])', text)
        if opened:
            try:
                found[name], _ = DECODER.raw_decode(text, opened.end())
            except (ValueError, RecursionError):
                continue
    return found if any(name in found for name in names) else None


def _read_dimension(name: str, found: Mapping[str, Any], form: Form, shared: str | None) -> tuple[Reading, str | None]:
    if name not in found:
        return Reading("unparsed"), f"{name} is missing"
    value = found[name]
    cells = value if isinstance(value, dict) else {}
    rationale = shared or _text(cells.get("reasoning"))
    if form.protocol.asks == "reply":
        said = cells.get("score", value)
        score = _whole(said)
        if score is None:
            return Reading("unparsed", rationale=rationale), f"the score on {name} is {said!r}, expected one of 1, 2, 3, 4, 5"
        return Reading("valid", score=score, rationale=rationale), None
    said, margin = cells.get("winner", value), _whole(cells.get("margin"))
    if form.protocol.margin == "plus" and isinstance(said, str):
        signs = PLUS_SIGNS.fullmatch(said)
        if signs:
            said, count = signs[1], len(signs[2])
            margin = margin if not count else float(count) if count <= MAX_MARGIN else None
    if (isinstance(said, str) and said.strip().lower() in NO_ANSWER) or (said is None and "winner" in cells):
        return Reading("abstained", rationale=rationale), None
    words = {form.codes[0]: "first", form.codes[1]: "second"} | ({"tie": "tie"} if form.protocol.ties else {})
    winner = words.get(said) if isinstance(said, str) else None
    if winner is None:
        winner = _loosely(said, words)
    if winner is None:
        shown = said if isinstance(said, str) else type(said).__name__
        return Reading(
            "unparsed", rationale=rationale
        ), f"the winner on {name} is {shown!r}, expected one of {', '.join(words)}"
    return Reading("valid", winner, None if winner == "tie" else margin, None, None, rationale), None


def _loosely(said: Any, words: Mapping[str, str]) -> str | None:
    """Read "Reply k482." as K482, and nothing else: what names both, or more than a code, is not a verdict."""
    if not isinstance(said, str):
        return None
    bare = re.sub(
        r"^(?:the\s+)?(?:reply|response|respondent)\s+", "", said.strip(" \t\n\"'*.()[]"), flags=re.IGNORECASE
    ).lower()
    return next((meaning for word, meaning in words.items() if word.lower() == bare), None)


def _whole(value: Any) -> float | None:
    """Read 4, "4", 4.0 and "4/5" as 4, and nothing that is not a whole number from 1 to 5."""
    if isinstance(value, str):
        digits = re.fullmatch(r"\s*([1-5])(?:\.0)?(?:\s*/\s*5)?\s*", value)
        return float(digits[1]) if digits else None
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if value in (1, 2, 3, 4, 5) else None


def _text(value: Any) -> str | None:
    return value.strip() or None if isinstance(value, str) else None
