"""Adversarial rewriting: a model makes a history's seeker resist."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from difflib import SequenceMatcher
from typing import TYPE_CHECKING, Any, Unpack

import pandas as pd

from heart_collect.calls.models import Model, Request
from heart_collect.judging.prompts import LABELS, PROMPTS, Messages, show_turns
from heart_utils.replies.codes import code_by_words
from heart_utils.sources.defaults import complete
from heart_utils.sources.heart import Code, load_codebooks
from heart_utils.tables import check_table, empty_table, need_columns

if TYPE_CHECKING:
    from heart_collect.calls.engine import Asking
    from heart_collect.calls.ledger import Ledger
    from heart_collect.judging.respond import ReplyQuestion

__all__ = ["accept_rewrites", "check_rewrites"]

FACTS = 0.4  #: Least share of the content words of the seeker that a rewrite must keep.
LENGTHS = 0.5, 2.0  #: Words of the seeker, as a multiple of the original's.
SAME = 0.9  #: Likeness from 0 to 1 of two turns from which one counts as the other, kept.
SPOKEN = re.compile(
    r"^\W*(Seeker|Supporter)\W*:\s*(.*?)(?=^\W*(?:Seeker|Supporter)\W*:|\Z)", re.M | re.S
)
PEOPLE = re.compile(PROMPTS["people"], re.VERBOSE | re.IGNORECASE)
NAME = re.compile(r"(?<=[a-z] )[A-Z][a-z]+")  #: A capital within a sentence.


def rewrite_messages(turns: Sequence[Mapping[str, str]]) -> Messages:
    prompt = f"The conversation:\n\n{show_turns(turns)}\n\nThe rewritten conversation:"
    return {"role": "system", "content": PROMPTS["rewrite"]}, {"role": "user", "content": prompt}


def rewrite_questions(histories: pd.DataFrame, rewriters: Sequence[Model]) -> list[ReplyQuestion]:
    """Ask each rewriter about each standard history ending with the seeker."""
    from heart_collect.judging.respond import ReplyQuestion  # which asks, and needs the extra

    questions = []
    for history in histories[histories["slice"] == "standard"].to_dict("records"):
        turns = history["turns"]
        if turns[-1]["speaker"] != "seeker":
            continue
        room = {"max_tokens": 2 * len(show_turns(turns).split()) + 200}  # 1.5 tokens a word
        for model in rewriters:
            options = {} if model.limits_max_tokens else room
            tag = str(history["history_id"])
            request = Request(model, rewrite_messages(turns), options, tag=tag)
            questions.append(ReplyQuestion(history, model.name, 0, request, free=True))
    return questions


def collect_rewrites(
    histories: pd.DataFrame,
    rewriters: Sequence[Model],
    *,
    ledger: Ledger,
    max_concurrency: int | None = None,
    **asking: Unpack[Asking],
) -> pd.DataFrame:
    """Let rewriters rewrite standard histories; flags say why one is refused."""
    from heart_collect.judging.respond import answer_replies

    questions = rewrite_questions(histories, rewriters)
    if not questions:
        return empty_table("replies")
    rewrites = answer_replies(questions, ledger=ledger, max_concurrency=max_concurrency, **asking)
    why = check_rewrites(histories, rewrites)["why"]
    return rewrites.assign(flags=rewrites["flags"] + why)


def read_turns(text: str | None) -> list[dict[str, str]]:
    """Read turns that begin with their speaker; what comes before is left out."""
    speakers = {label: speaker for speaker, label in LABELS.items()}
    found = SPOKEN.findall(text or "")
    return [{"speaker": speakers[who], "text": " ".join(said.split())} for who, said in found]


def check_rewrites(histories: pd.DataFrame, rewrites: pd.DataFrame) -> pd.DataFrame:
    """Say what each rewrite kept of its original, and why it is refused, if so.

    Counting words cannot see whether a fact was turned round, so read what is accepted.

    Parameters
    ----------
    histories : pandas.DataFrame
        The originals, with ``history_id``, ``turns`` and ``situation``.
    rewrites : pandas.DataFrame
        With ``history_id``, ``state``, and ``text``: turns after ``Seeker:`` or ``Supporter:``.

    Returns
    -------
    pandas.DataFrame
        By rewrite: ``facts_kept`` (share of the seeker's content words), ``supporter_kept`` (share
        of the supporter's turns), ``pushes_back`` (seeker's turns), ``length`` (seeker's words, as
        a multiple), ``why`` (reasons to refuse it; none if it is accepted).

    Raises
    ------
    ValueError
        If a rewrite's history is not given.

    Examples
    --------
    >>> from heart_collect.judging.prompts import show_turns
    >>> from heart_utils import load_histories
    >>> one = load_histories("sample").head(1)
    >>> same = pd.DataFrame({"history_id": one["history_id"], "state": "valid"})
    >>> checked = check_rewrites(one, same.assign(text=one["turns"].map(show_turns)))
    >>> checked["why"][0]
    ['it is the original', 'the seeker does not push back']
    """
    need_columns(rewrites, ["history_id", "state", "text"], ValueError)
    originals = {row["history_id"]: row for row in histories.to_dict("records")}
    strange = sorted(set(rewrites["history_id"]) - originals.keys())
    if strange:
        raise ValueError(f"rewrites: {', '.join(strange)} is none of the histories.")
    codes = {one.name: one for book in load_codebooks().values() for one in book}
    rows = [_check(originals[row["history_id"]], row, codes) for row in rewrites.to_dict("records")]
    columns = ["history_id", "facts_kept", "supporter_kept", "pushes_back", "length", "why"]
    return pd.DataFrame(rows, columns=columns, index=rewrites.index)


def accept_rewrites(histories: pd.DataFrame, rewrites: pd.DataFrame) -> pd.DataFrame:
    """Make histories of rewrites that pass, as the slice ``adversarial`` with their twins.

    Parameters
    ----------
    histories, rewrites : pandas.DataFrame
        As in :func:`check_rewrites`; a history's first rewrite that passes counts.

    Returns
    -------
    pandas.DataFrame
        The table ``histories``; ``twin_id`` names the original.

    Examples
    --------
    >>> from heart_utils import load_histories
    >>> one = load_histories("sample").head(1)
    >>> none = pd.DataFrame({"history_id": one["history_id"], "state": "error", "text": None})
    >>> len(accept_rewrites(one, none))
    0
    """
    passed = rewrites[check_rewrites(histories, rewrites)["why"].str.len() == 0]
    texts = dict(zip(passed["history_id"][::-1], passed["text"][::-1], strict=True))
    made = histories[histories["history_id"].isin(texts)].copy()
    made["twin_id"], made["slice"] = made["history_id"], "adversarial"
    made["turns"] = pd.Series([read_turns(texts[one]) for one in made["twin_id"]], made.index)
    made["history_id"] += "--resists"
    return check_table("histories", complete("histories", made))


def _check(
    original: Mapping[Any, Any], row: Mapping[Any, Any], codes: Mapping[str, Code]
) -> dict[str, Any]:
    about: dict[str, Any] = {"history_id": original["history_id"]}
    turns = read_turns(row["text"]) if row["state"] == "valid" else []
    if not turns:
        fault = "no conversation came" if row["state"] == "valid" else f"the call: {row['state']}"
        return about | {"why": [fault]}
    before, after = _said(original["turns"], "seeker"), _said(turns, "seeker")
    old, new = _said(original["turns"], "supporter"), _said(turns, "supporter")
    likeness = [max((_alike(one, other) for other in new), default=0.0) for one in old]
    facts, words = content_words(before), sum(len(one.split()) for one in before)
    about["facts_kept"] = len(facts & content_words(after)) / max(len(facts), 1)
    about["supporter_kept"] = sum(like >= SAME for like in likeness) / max(len(old), 1)
    about["pushes_back"] = _count(after, codes["pushes_back"])
    about["length"] = sum(len(one.split()) for one in after) / max(words, 1)
    told = " ".join([*before, *old, str(original["situation"])])
    strangers = sorted(_people(" ".join(after)) - _people(told))
    faults = {
        "it is the original": _alike(" ".join(before), " ".join(after)) >= SAME,
        "the last turn is not the seeker's": turns[-1]["speaker"] != "seeker",
        "a turn of the seeker is missing or new": len(after) != len(before),
        "the seeker's facts are not kept": about["facts_kept"] < FACTS,
        "a turn of the supporter is not kept": bool(old) and about["supporter_kept"] < 1,
        f"it adds somebody: {', '.join(strangers)}": bool(strangers),
        "the seeker does not push back": not about["pushes_back"],
        "it is too short or too long": not LENGTHS[0] <= about["length"] <= LENGTHS[1],
        "it speaks of harm": (_count(after, codes["risk_cue"]) > _count(before, codes["risk_cue"])),
    }
    return about | {"why": [fault for fault, holds in faults.items() if holds]}


def _said(turns: Iterable[Mapping[str, str]], speaker: str) -> list[str]:
    return [turn["text"] for turn in turns if turn["speaker"] == speaker]


def _alike(one: str, other: str) -> float:
    return SequenceMatcher(None, one.casefold(), other.casefold(), autojunk=False).ratio()


def content_words(texts: Iterable[str]) -> set[str]:
    """List the words and numbers that carry what is told."""
    from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS

    words = re.findall(r"\w{3,}", " ".join(texts).casefold())
    return {word for word in words if word not in ENGLISH_STOP_WORDS}


def _people(text: str) -> set[str]:
    names = content_words(NAME.findall(text))
    return {one.casefold().removesuffix("s") for one in [*PEOPLE.findall(text), *names]}


def _count(texts: Sequence[str], code: Code) -> int:
    rows = pd.DataFrame({"reply_id": range(len(texts)), "text": texts})
    coded = code_by_words(rows.assign(state="valid", simulated=False), [code])
    return int(coded["probability"].sum())
