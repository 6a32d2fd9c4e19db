"""Protocols as data: what a judge is shown, what it is asked, and how it may answer."""

from __future__ import annotations

import dataclasses
import os
from dataclasses import dataclass
from typing import Any

from heart_utils.judging.rubric import read_settings
from heart_utils.runs import find_root

__all__ = ["Protocol", "ProtocolError", "load_protocol"]

CHOICES: dict[str, tuple[Any, ...]] = {
    "asks": ("pair", "reply"),
    "orders": ("both", "random"),
    "turn_labels": ("speaker", "parity"),
    "dimension_order": ("shuffled", "fixed"),
    "dimensions_per_call": ("all", "one"),
    "ties": (True, False),
    "margin": ("number", "plus"),
    "reasoning": ("each", "once"),
    "names_emotion": (True, False),
}


class ProtocolError(ValueError):
    """A protocol's file does not say what a protocol must say."""


@dataclass(frozen=True)
class Protocol:
    """How judges are asked.

    Attributes
    ----------
    name : str
        The word in the column ``protocol``.
    about : str
        A line for captions.
    asks : str
        About a ``pair`` of replies, or one ``reply`` alone.
    rubric : str
        The rubric it asks about, by name or path.
    rules : str
        What a judge is told first; the same in every call.
    turn_labels : str
        By ``speaker`` as stored, or by ``parity``: the first turn is labelled as the seeker's,
        the second as the supporter's and so on, whoever spoke.
    dimension_order : str
        ``shuffled`` for each call, or ``fixed`` as in the rubric.
    dimensions_per_call : str
        ``all`` in one call, or ``one``.
    reasoning : str
        Before ``each`` dimension's verdict, or ``once`` before all of them.
    names_emotion : bool
        Whether the judge is told the seeker's emotion, where the history has one.
    orders : str
        Of a pair: ``both``, or one at ``random``.
    ties : bool
        Whether a judge may call a tie.
    margin : str
        A ``number`` from 1 to 5, or one to five ``plus`` signs.
    codes : tuple of str
        What the reply shown first and the one shown second are called; drawn for each pair if empty.
    """

    name: str
    about: str
    asks: str
    rubric: str
    rules: str
    turn_labels: str
    dimension_order: str
    dimensions_per_call: str
    reasoning: str
    names_emotion: bool
    orders: str = "both"
    ties: bool = True
    margin: str = "number"
    codes: tuple[str, ...] = ()


def load_protocol(name_or_path: str | os.PathLike[str]) -> Protocol:
    """Read a protocol and check it.

    Parameters
    ----------
    name_or_path : str or path
        A bare name means ``data/protocols/<name>.yaml`` of the project; else a file of the user's,
        with the keys of ``data/protocols/heart.yaml``.

    Returns
    -------
    Protocol
        What the file says.

    Raises
    ------
    ProtocolError
        If there is no such file, it is not YAML, a key is missing, unknown or empty, or a value is
        none of its choices.

    Examples
    --------
    >>> load_protocol("heart-release").turn_labels
    'parity'
    """
    file, content = read_settings(name_or_path, folder="protocols", kind="protocol", error=ProtocolError)
    fields = {field.name: field.default is dataclasses.MISSING for field in dataclasses.fields(Protocol)}
    missing = [name for name, needed in fields.items() if needed and name not in content]
    unknown = [str(name) for name in content if name not in fields]
    if missing or unknown:
        faults = ([f"lacks {', '.join(missing)}"] if missing else []) + (
            [f"has unknown {', '.join(unknown)}"] if unknown else []
        )
        raise ProtocolError(f"{file} {' and '.join(faults)}. The keys are {', '.join(fields)}.")
    for key, value in content.items():
        if key in CHOICES and value not in CHOICES[key]:
            raise ProtocolError(f"{file}: {key} is {value!r}, expected one of {', '.join(str(one) for one in CHOICES[key])}.")
        if key not in CHOICES and key != "codes" and not (isinstance(value, str) and value.strip()):
            raise ProtocolError(f"{file}: {key} is {value!r}, expected text.")
    if content.get("margin") == "plus" and content["reasoning"] == "each":
        raise ProtocolError(f"{file}: plus signs stand beside a code, with no room for reasoning: expected reasoning: once.")
    if file.parent == find_root() / "data" / "protocols" and content["name"] != file.stem:
        raise ProtocolError(
            f"{file}: name is {content['name']!r}, expected the file's own, {file.stem!r}: it finds the file again."
        )
    codes = content.pop("codes", ())
    if codes and (len(codes) != 2 or len(set(codes)) < 2 or not all(isinstance(code, str) and code for code in codes)):
        raise ProtocolError(f"{file}: codes is {codes!r}, expected two different texts, for the reply shown first and second.")
    return Protocol(**content, codes=tuple(codes))
