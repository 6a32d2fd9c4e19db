"""From the raw text of an answer to readings: what can be read without guessing is read, what cannot is never a tie."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from heart_utils.calls.models import Call

__all__ = ["Reading"]

MAX_MARGIN = 5
ENOUGH_MASS = 0.5
DECODER = json.JSONDecoder(strict=False)  # a raw line break inside a string is no reason to lose a verdict
TRAILING_COMMA = re.compile(r",(\s*[}\]])")
WHOLE = re.compile(r"\s*([1-5])(?:\.0)?(?:\s*/\s*5)?\s*")
CALLED = re.compile(r"^(?:the\s+)?(?:reply|response|respondent)\s+")
PLUS_SIGNS = re.compile(r"[^\w+]*(\w+)[^\w+]*(\+*)[^\w+]*")
WRAPPERS = ("dimensions", "verdicts", "scores", "answer", "result", "judgement", "judgment", "scales")
TRUTHS = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
NO_ANSWER = ("abstain", "none", "cannot judge", "n/a")
REFUSAL = re.compile(
    r"""^\W*(?:[^.!?\n]{0,40}(?:\bsorry\b|\bapologi[sz]e\b|\bunfortunately\b|\bas\ an\ ai\b)[^.!?\n]{0,60}?)?
    \bi(?:\ can(?:no|['’])t|\ can\ not|\ won['’]t|\ will\ not|\ must\ decline\ to|\ decline\ to
        |(?:\ am|['’]m)\ (?:not\ able|unable)\ to)
    \s+(?:\w+\s+){0,2}?(?:assist|help|comply|provide|do|judge|rate|compare|evaluate|continue|engage|fulfil|assess|participate)""",
    re.IGNORECASE | re.VERBOSE,
)


class Reading(NamedTuple):
    """What an answer says on one dimension, label or item, in terms of the order shown."""

    state: str
    winner: str | None = None  # first, second or tie
    margin: float | None = None  # 1 to 5; None for a tie, or where the answer gives none that can be read
    p_first: float | None = None  # the probability that the reply shown first is better
    score: float | None = None
    rationale: str | None = None
    little_mass: bool = False  # whether both letters together had less than half of the next token's probability


def read_dimensions(
    call: Call, names: Sequence[str], words: Mapping[str, str], *, answers: str, letter: bool, once: bool
) -> tuple[list[Reading], str | None]:
    """Read a judgement of a pair (what its sides and a tie are called -> first, second, tie), or of one reply alone."""
    if letter:
        failed = call.status in ("error", "refused")
        return [Reading(call.status) if failed else _read_letter(call, list(words)[:2])], None
    found, failure = _answer(call, names, len(names), "of the form asked for")
    if found is None:
        return failure
    shared = _text(found.get("reasoning")) if once else None
    read = [
        _read_cell(name, found[name], words, answers, shared) if name in found else (Reading("unparsed"), f"{name} is missing")
        for name in names
    ]
    return [reading for reading, _ in read], "; ".join(fault for _, fault in read if fault) or None


def read_labels(call: Call, names: Sequence[str]) -> tuple[list[Reading], str | None]:
    """Read which labels hold; one that is left out is ``unparsed``, never absent."""
    found, failure = _answer(call, names, len(names), "with the labels")
    if found is None:
        return failure
    said = {name: found.get(name) for name in names}
    read = {name: one if isinstance(one, bool) else TRUTHS.get(str(one).strip().lower()) for name, one in said.items()}
    faults = [f"{name} is {json.dumps(found.get(name))[:40]}" for name, value in read.items() if value is None]
    readings = [Reading("unparsed") if value is None else Reading("valid", score=float(value)) for value in read.values()]
    return readings, f"{', '.join(faults)}; expected true or false" if faults else None


def read_hits(call: Call, n: int) -> tuple[list[Reading], str | None]:
    """Read exactly as many hits as items, each 1, 0 or null, or none at all."""
    found, failure = _answer(call, ["hits"], n, "with hits")
    if found is None:
        return failure
    hits, fault = found["hits"], None
    if not isinstance(hits, list):
        fault = f"hits is {type(hits).__name__}, expected a list"
    elif len(hits) != n:
        fault = f"hits has {len(hits)} entries, expected {n}"
    elif wrong := [at for at, hit in enumerate(hits) if not (hit is None or (type(hit) is int and hit in (0, 1)))]:
        fault = f"entry {wrong[0] + 1} of hits is {json.dumps(hits[wrong[0]])[:40]}, expected 1, 0 or null"
    elif _text(found.get("reason")) is None:
        fault = "it gives no reason"
    if fault is not None:
        return [Reading("unparsed")] * n, fault
    return [Reading("abstained") if hit is None else Reading("valid", score=hit) for hit in hits], None


def _answer(
    call: Call, names: Sequence[str], n_cells: int, form: str
) -> tuple[dict[str, Any] | None, tuple[list[Reading], str | None]]:
    """Find the object in an answer; where there is none, what every cell is then, and what is wrong."""
    found, fault = find_object(call.text, names), f"it holds no JSON object {form}"
    state = "unparsed"
    if call.status not in ("ok", "truncated"):
        found, state = None, "refused" if call.status == "refused" else "error"
    elif found is None and REFUSAL.match(call.text):
        state = "refused"
    return found, ([Reading(state)] * n_cells, fault if state == "unparsed" else None)


def _read_letter(call: Call, codes: Sequence[str]) -> Reading:
    """Renormalise the next token's probability over two letters; one not listed counts as the least probable token listed."""
    listed = [(_letter(token), math.exp(logprob)) for token, logprob in call.logprobs or ()]
    mass = [sum(share for letter, share in listed if letter == code) for code in codes]
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


def find_object(text: str, names: Sequence[str]) -> dict[str, Any] | None:
    """Find the last object in a text that speaks of the dimensions, whole or cut short."""
    try:
        return _speaking(DECODER.decode(text), names)
    except (ValueError, RecursionError):
        pass
    for candidate in (text, TRAILING_COMMA.sub(r"\1", text)):
        # Dimension by dimension only where no whole object speaks of them: the answer was cut short.
        found = _last(candidate, lambda content: _speaking(content, names)) or _pieces(candidate, names)
        if found is not None:
            return found
    return None


def _last(text: str, take: Callable[[Any], dict[str, Any] | None]) -> dict[str, Any] | None:
    """Go through the objects in a text, and give the last that is taken."""
    found, start = None, text.find("{")
    while start >= 0:
        end = start + 1
        try:
            content, end = DECODER.raw_decode(text, start)
            found = take(content) or found
        except (ValueError, RecursionError):
            pass
        start = text.find("{", end)
    return found


def _speaking(content: Any, names: Sequence[str]) -> dict[str, Any] | None:
    """Give the mapping of dimensions in an answer, out of its wrapping and with its keys in snake_case."""
    if isinstance(content, list):
        lines = [line for line in content if isinstance(line, dict)]
        content = {str(line.get("dimension") or line.get("name")): line for line in lines}
    if not isinstance(content, dict):
        return None
    if any(name in content for name in names):
        return content
    tidy = {re.sub(r"\W+", "_", str(key).strip().lower()): value for key, value in content.items()}
    if any(name in tidy for name in names):
        return tidy
    if len(names) == 1 and ("winner" in tidy or "score" in tidy):
        return {names[0]: tidy}
    inner = (_speaking(tidy[key], names) for key in WRAPPERS if isinstance(tidy.get(key), dict | list))
    found = next((one for one in inner if one is not None), None)
    return None if found is None else {"reasoning": tidy.get("reasoning"), **found}


def _pieces(text: str, names: Sequence[str]) -> dict[str, Any] | None:
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


def _read_cell(name: str, value: Any, words: Mapping[str, str], answers: str, shared: str | None) -> tuple[Reading, str | None]:
    """Read what is said on one dimension, and what is wrong with it."""
    cells = value if isinstance(value, dict) else {}
    rationale = shared or _text(cells.get("reasoning"))
    if answers == "score":
        score = _whole(said := cells.get("score", value))
        fault = f"the score on {name} is {said!r}, expected one of 1, 2, 3, 4, 5" if score is None else None
        return Reading("unparsed" if fault else "valid", score=score, rationale=rationale), fault
    said, margin = cells.get("winner", value), _whole(cells.get("margin"))
    if answers == "plus" and isinstance(said, str) and (signs := PLUS_SIGNS.fullmatch(said)):
        said, count = signs[1], len(signs[2])
        margin = margin if not count else float(count) if count <= MAX_MARGIN else None
    if (isinstance(said, str) and said.strip().lower() in NO_ANSWER) or (said is None and "winner" in cells):
        return Reading("abstained", rationale=rationale), None
    winner = (words.get(said) or _loosely(said, words)) if isinstance(said, str) else None
    if winner is None:
        shown = repr(said) if isinstance(said, str) else repr(type(said).__name__)
        fault = f"the winner on {name} is {shown}, expected one of {', '.join(words)}"
        return Reading("unparsed", rationale=rationale), fault
    return Reading("valid", winner, None if winner == "tie" else margin, rationale=rationale), None


def _loosely(said: str, words: Mapping[str, str]) -> str | None:
    """Read "Reply k482." as K482, and nothing else: what names both, or more than a code, is not a verdict."""
    bare = CALLED.sub("", said.strip(" \t\n\"'*.()[]").lower())
    return next((meaning for word, meaning in words.items() if word.lower() == bare), None)


def _whole(value: Any) -> float | None:
    """Read 4, "4", 4.0 and "4/5" as 4, and nothing that is not a whole number from 1 to 5."""
    digits = WHOLE.fullmatch(str(value)) if type(value) in (int, float, str) else None
    return float(digits[1]) if digits else None


def _text(value: Any) -> str | None:
    return value.strip() or None if isinstance(value, str) else None
