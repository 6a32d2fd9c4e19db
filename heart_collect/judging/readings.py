"""Readings of answers: nothing is guessed; a failure is never a tie."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache, partial
from typing import Any, NamedTuple

from heart_collect.calls.models import Call
from heart_collect.calls.thoughts import without_thoughts
from heart_utils.settings import JsonObject

__all__ = ["Reading"]

MAX_MARGIN = 5
ENOUGH_MASS = 0.5
NEAR = 60  #: Characters before an object in which words about it are looked for.
DRAFT = re.compile(
    r"\b(?:first,? i|at first|i (?:first )?thought|initial(?:ly)?|drafts?|tentative(?:ly)?)\b",
    re.IGNORECASE,
)
FINAL = re.compile(
    r"\b(?:final(?:ly)?|revised|correct(?:ed|ion)|reconsider(?:ed|ing)?|on reflection|second"
    r" thoughts?"
    r"|my (?:answer|verdict))\b",
    re.IGNORECASE,
)
WOULD = re.compile(
    r"\b(?:if|had|were|would|could|might|should|unless|otherwise|suppose|imagine|example|instance|hypothetical(?:ly)?|swapped"
    r"|not)\b|\be\.g\b|['’]d\b",
    re.IGNORECASE,
)
"""Words by which an earlier object was a draft, a later one is final, or is only what might have
been."""

#: In the place of a value whose key is there twice; nothing reads it as an answer.
TWICE = "given twice, in two ways"
#: Keys that decide nothing: of two, the last counts.
REASONS = ("reasoning", "reason", "rationale")
TRAILING_COMMA = re.compile(r",(\s*[}\]])")
WHOLE = re.compile(r"\s*([1-5])(?:\.0)?(?:\s*/\s*5)?\s*")
CALLED = re.compile(r"^(?:the\s+)?(?:reply|response|respondent)\s+")
PLUS_SIGNS = re.compile(r"[^\w+]*(\w+)[^\w+]*(\+*)[^\w+]*")
WRAPPERS = (
    "dimensions",
    "verdicts",
    "scores",
    "answer",
    "result",
    "judgement",
    "judgment",
    "scales",
)
TRUTHS = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
NO_ANSWER = ("abstain", "none", "cannot judge", "n/a")
REFUSAL = re.compile(
    r"""^\W*(?:[^.!?\n]{0,40}(?:\bsorry\b|\bapologi[sz]e\b|\bunfortunately\b|\bas\ an\ ai\b)
        [^.!?\n]{0,60}?)?
    \bi(?:\ can(?:no|['’])t|\ can\ not|\ won['’]t|\ will\ not|\ must\ decline\ to|\ decline\ to
        |(?:\ am|['’]m)\ (?:not\ able|unable)\ to)
    \s+(?:\w+\s+){0,2}?(?:assist|help|comply|provide|do|judge|rate|compare|evaluate
        |continue|engage|fulfil|assess|participate)""",
    re.IGNORECASE | re.VERBOSE,
)


def _once(pairs: Iterable[tuple[str, Any]]) -> JsonObject:
    content: JsonObject = {}
    for key, value in pairs:
        differs = (
            key in content and key not in REASONS and _deciding(content[key]) != _deciding(value)
        )
        content[key] = TWICE if differs else value
    return content


def _deciding(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    return {key: cell for key, cell in value.items() if key not in (*REASONS, "margin")}


# Not strict: a raw line break inside a string is no reason to lose a verdict.
DECODER = json.JSONDecoder(strict=False, object_pairs_hook=_once)


class Reading(NamedTuple):
    """What an answer says on a cell, in the order shown."""

    state: str
    winner: str | None = None  #: first, second or tie
    #: 1 to 5; None for a tie, or where the answer gives none that can be read
    margin: float | None = None
    p_first: float | None = None  #: the probability that the reply shown first is better
    score: float | None = None
    rationale: str | None = None
    #: whether both letters together had less than half of the next token's probability
    little_mass: bool = False


class _Found(NamedTuple):
    """An object that speaks of what was asked, and the words before it."""

    content: JsonObject
    introduction: str = ""


Readings = tuple[list[Reading], str | None]  #: One a cell; and what is wrong with the answer.


def read_dimensions(
    call: Call,
    names: Sequence[str],
    words: Mapping[str, str],
    *,
    answers: str,
    letter: bool,
    once: bool,
) -> tuple[list[Reading], str | None]:
    if letter:
        failed = call.status in ("error", "refused")
        return [Reading(call.status) if failed else _read_letter(call, list(words)[:2])], None
    read = partial(_read_cells, names=names, words=words, answers=answers, once=once)
    return _read_answer(call, names, names, read, "of the form asked for")


def read_labels(call: Call, names: Sequence[str]) -> Readings:
    """Read which labels hold; one left out is ``unparsed``, never absent."""
    return _read_answer(call, names, names, partial(_read_truths, names=names), "with the labels")


def read_hits(call: Call, n: int) -> Readings:
    """Read a hit (1, 0 or null) for each item, or none at all."""
    readings, fault = _read_answer(
        call, ["hits"], ["hits"] * n, partial(_read_list, n=n), "with hits"
    )
    whole = fault is None or call.status not in ("ok", "truncated")
    return (readings if whole else [Reading("unparsed")] * n), fault


def was_cut(call: Call) -> bool:
    """Check whether an answer ended while thinking or was cut."""
    return call.status in ("ok", "truncated") and _answer_in(call) is None


def _read_answer(
    call: Call,
    names: Sequence[str],
    cells: Sequence[str],
    read: Callable[[JsonObject], Readings],
    form: str,
) -> Readings:
    state, text = "unparsed", _answer_in(call)
    if call.status not in ("ok", "truncated"):
        state, text = ("refused" if call.status == "refused" else "error"), None
    objects = [] if text is None else find_objects(text, names)
    if not objects:
        state = "refused" if state == "unparsed" and REFUSAL.match(text or call.text) else state
        fault = f"it holds no JSON object {form}" if state == "unparsed" else None
        return [Reading(state)] * len(cells), fault
    last = objects[-1]
    readings, fault = read(last.content)
    in_two_ways: dict[str, None] = {}
    for earlier in objects[:-1]:
        if _is_draft(earlier, last):
            continue
        for position, (cell, before, now) in enumerate(
            zip(cells, read(earlier.content)[0], list(readings), strict=True)
        ):
            if _contradict(before, now):
                readings[position] = Reading("unparsed", rationale=now.rationale)
                in_two_ways[f"{cell} is answered in two ways"] = None
    return readings, "; ".join([*in_two_ways, *([fault] if fault else [])]) or None


def _contradict(one: Reading, other: Reading) -> bool:
    conclusive = ("valid", "abstained")
    both = one.state in conclusive and other.state in conclusive
    return both and (one.state, one.winner, one.score) != (other.state, other.winner, other.score)


def _is_draft(earlier: _Found, last: _Found) -> bool:
    named = DRAFT.search(earlier.introduction[-NEAR:]) or FINAL.search(last.introduction[-NEAR:])
    return named is not None and WOULD.search(last.introduction) is None


def _answer_in(call: Call) -> str | None:
    text = _unfenced(call.text)
    try:
        DECODER.decode(text)
    except (ValueError, RecursionError):
        spoken = without_thoughts(call.text)
    else:
        return text  # JSON from the first sign to the last, whatever its strings speak of
    if spoken is None or call.status != "truncated":
        return spoken
    text = _unfenced(spoken)
    return text if text.startswith(("{", "[")) and _is_open(text) else None


def _unfenced(text: str) -> str:
    bare = text.strip()
    if not bare.startswith("```"):
        return bare
    return bare.partition("\n")[2].removesuffix("```").strip()


def _is_open(text: str) -> bool:
    try:
        _, end = DECODER.raw_decode(text)
    except (ValueError, RecursionError):
        return True
    return not text[end:].strip("` \t\n")


def _read_letter(call: Call, codes: Sequence[str]) -> Reading:
    """Renormalise the next token's probability over two letters."""
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
    return token.strip(" \t\n▁Ġ*\"'().")


def find_objects(text: str, names: Sequence[str]) -> list[_Found]:
    """Find the whole objects about dimensions, or else the last's pieces."""
    try:
        whole = _speaking(DECODER.decode(text), names)
    except (ValueError, RecursionError):
        pass
    else:
        return [] if whole is None else [_Found(whole)]
    mended = TRAILING_COMMA.sub(r"\1", text)
    objects = _whole_objects(text, names)
    if mended != text and len(more := _whole_objects(mended, names)) > len(objects):
        objects = more
    # Dimension by dimension only where no whole object speaks of them: the answer was cut short.
    pieces = None if objects else _pieces(text, names) or _pieces(mended, names)
    return objects if pieces is None else [_Found(pieces)]


def _whole_objects(text: str, names: Sequence[str]) -> list[_Found]:
    objects: list[_Found] = []
    broken: set[str] = set()
    read_to, start = 0, text.find("{")
    while start >= 0:
        end = start + 1
        try:
            content, end = DECODER.raw_decode(text, start)
        except (ValueError, RecursionError):
            content = None
        mapping = _speaking(content, names)
        if mapping is not None:
            objects.append(_Found(mapping, text[read_to:start]))
            # without its own key
            broken |= _named(re.sub(r'"\w+"\s*:\s*$', "", text[read_to:start]), names)
            read_to = end
        start = text.find("{", end)
    if objects:
        broken |= _named(text[read_to:], names)
        last = objects[-1]
        objects[-1] = last._replace(content={**last.content, **dict.fromkeys(broken, TWICE)})
    return objects


def _named(text: str, names: Sequence[str]) -> set[str]:
    return {name for name in names if re.search(rf'"{name}"\s*:', text)}


def _speaking(content: Any, names: Sequence[str]) -> JsonObject | None:
    if isinstance(content, list):
        lines = [line for line in content if isinstance(line, dict)]
        content = _once((str(line.get("dimension") or line.get("name")), line) for line in lines)
    if not isinstance(content, dict):
        return None
    tidy = _once(
        (re.sub(r"\W+", "_", str(key).strip().lower()), value) for key, value in content.items()
    )
    if any(name in content for name in names):
        return {**content, **{name: TWICE for name in names if tidy.get(name) == TWICE}}
    if any(name in tidy for name in names):
        return tidy
    if len(names) == 1 and ("winner" in tidy or "score" in tidy):
        return {names[0]: tidy}
    inner = (
        _speaking(tidy[key], names) for key in WRAPPERS if isinstance(tidy.get(key), dict | list)
    )
    nested = next((one for one in inner if one is not None), None)
    return None if nested is None else {"reasoning": tidy.get("reasoning"), **nested}


def _pieces(text: str, names: Sequence[str]) -> JsonObject | None:
    values_read: JsonObject = {}
    for name in (*names, "reasoning"):
        opened = [match.end() for match in re.finditer(rf'"{name}"\s*:\s*(?=["{{])', text)]
        values = [
            value for value in (_value_at(text, start) for start in opened) if value is not None
        ]
        if values and (name == "reasoning" or len(values) == len(opened)):
            values_read |= _once(
                (name, value) for value in (values[:1] if name == "reasoning" else values)
            )
        elif values:
            values_read[name] = TWICE
    return values_read if any(name in values_read for name in names) else None


def _value_at(text: str, start: int) -> Any:
    try:
        return DECODER.raw_decode(text, start)[0]
    except (ValueError, RecursionError):
        return None


def _read_cells(
    content: JsonObject,
    *,
    names: Sequence[str],
    words: Mapping[str, str],
    answers: str,
    once: bool,
) -> Readings:
    shared = _text(content.get("reasoning")) if once else None
    read = [
        (
            _read_cell(name, content[name], words, answers, shared)
            if name in content
            else (Reading("unparsed"), f"{name} is missing")
        )
        for name in names
    ]
    return [reading for reading, _ in read], "; ".join(fault for _, fault in read if fault) or None


def _read_truths(content: JsonObject, *, names: Sequence[str]) -> Readings:
    values = {name: content.get(name) for name in names}
    read = {
        name: one if isinstance(one, bool) else TRUTHS.get(str(one).strip().lower())
        for name, one in values.items()
    }
    faults = [
        f"{name} is {json.dumps(content.get(name))[:40]}"
        for name, value in read.items()
        if value is None
    ]
    readings = [
        Reading("unparsed") if value is None else Reading("valid", score=float(value))
        for value in read.values()
    ]
    return readings, f"{', '.join(faults)}; expected true or false" if faults else None


def _read_list(content: JsonObject, *, n: int) -> Readings:
    hits: Any = content.get("hits")
    fault = None
    if not isinstance(hits, list):
        fault = f"hits is {type(hits).__name__}, expected a list"
    elif len(hits) != n:
        fault = f"hits has {len(hits)} entries, expected {n}"
    elif wrong := [
        at
        for at, hit in enumerate(hits)
        if not (hit is None or (type(hit) is int and hit in (0, 1)))
    ]:
        fault = (
            f"entry {wrong[0] + 1} of hits is {json.dumps(hits[wrong[0]])[:40]}, expected 1, 0 or"
            " null"
        )
    elif _text(content.get("reason")) is None:
        fault = "it gives no reason"
    if fault is not None:
        return [Reading("unparsed")] * n, fault
    return [
        Reading("abstained") if hit is None else Reading("valid", score=hit) for hit in hits
    ], None


def _read_cell(
    name: str, value: Any, words: Mapping[str, str], answers: str, shared: str | None
) -> tuple[Reading, str | None]:
    cells = value if isinstance(value, dict) else {}
    rationale = shared or _text(cells.get("reasoning"))
    if answers == "score":
        score = _whole(given := cells.get("score", value))
        fault = (
            f"the score on {name} is {given!r}, expected one of 1, 2, 3, 4, 5"
            if score is None
            else None
        )
        return Reading("unparsed" if fault else "valid", score=score, rationale=rationale), fault
    given, margin = cells.get("winner", value), _whole(cells.get("margin"))
    if (
        _once((str(key).strip().lower(), cell) for key, cell in cells.items()).get("winner")
        == TWICE
    ):
        given = TWICE
    if answers == "plus" and isinstance(given, str) and (signs := PLUS_SIGNS.fullmatch(given)):
        given, count = signs[1], len(signs[2])
        margin = margin if not count else float(count) if count <= MAX_MARGIN else None
    if (isinstance(given, str) and given.strip().lower() in NO_ANSWER) or (
        given is None and "winner" in cells
    ):
        return Reading("abstained", rationale=rationale), None
    winner = (words.get(given) or _loosely(given, words)) if isinstance(given, str) else None
    if winner is None:
        shown_value = repr(given) if isinstance(given, str) else repr(type(given).__name__)
        fault = f"the winner on {name} is {shown_value}, expected one of {', '.join(words)}"
        return Reading("unparsed", rationale=rationale), fault
    return Reading("valid", winner, None if winner == "tie" else margin, rationale=rationale), None


def _loosely(answer: str, words: Mapping[str, str]) -> str | None:
    bare = CALLED.sub("", answer.strip(" \t\n\"'*.()[]").lower())
    return next((meaning for word, meaning in words.items() if word.lower() == bare), None)


def _whole(value: Any) -> float | None:
    """Read 4, "4", 4.0 and "4/5" as 4; only whole numbers from 1 to 5."""
    digits = WHOLE.fullmatch(str(value)) if type(value) in (int, float, str) else None
    return float(digits[1]) if digits else None


def _text(value: Any) -> str | None:
    return value.strip() or None if isinstance(value, str) else None
