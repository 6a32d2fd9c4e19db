"""Replies and conversations of models and probes."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, TypeAlias, Unpack

import numpy as np
import pandas as pd

from heart_collect.calls.engine import Asking, ask_all
from heart_collect.calls.ledger import Ledger
from heart_collect.calls.models import Call, Model, Request
from heart_collect.calls.outcomes import CUT, UNSAID, is_blank
from heart_collect.calls.prices import text_bound
from heart_collect.calls.thoughts import without_thoughts
from heart_collect.judging.design import PROBES, RespondError, check_responders
from heart_collect.judging.judge import count_calls
from heart_collect.judging.prompts import (
    PROMPTS,
    REPLY_INSTRUCTIONS,
    SEEKER_INSTRUCTIONS,
    reply_messages,
    show_turns,
)
from heart_utils.sources.defaults import check_last_speaker
from heart_utils.sources.heart import MAX_SENTENCES, MAX_WORDS, flag_reply
from heart_utils.tables import ENDS, check_table, count_exchanges, empty_table

__all__ = ["collect_conversations", "collect_replies", "conversation_replies"]

#: Unless a model's own options say otherwise: 40 words take some 60 tokens.
REPLY_OPTIONS = {"max_tokens": 120}
FREE_OPTIONS = {"max_tokens": 600}  #: Where the length is the model's, as in HeartBench.

STAND_IN = " ".join(["filler"] * MAX_WORDS)
LABEL = re.compile(
    r"^\s*(?:\*\*)?(?:supporter|assistant|reply)(?:\*\*)?\s*:(?:\*\*)?\s*", re.IGNORECASE
)
SEEKER = re.compile(r"(?:^|\n)\s*(?:\*\*)?seeker(?:\*\*)?\s*:", re.IGNORECASE)
QUOTES = {'"': '"', "“": "”", "'": "'"}
NOTHING = (
    "author_id",
    "ttft_ms",
    "total_ms",
    "prompt_tokens",
    "completion_tokens",
    "cost_usd",
    "typing_ms",
    "call_id",
)


#: Cells of the table of replies, by column.
ReplyRow: TypeAlias = dict[str, object]


class ReplyQuestion(NamedTuple):
    """A history for a model or probe to answer."""

    history: Mapping[Any, Any]
    responder: str
    repeat: int = 0
    request: Request | None = None
    free: bool = False  #: Whether the answer is taken as it comes, however long.


def collect_replies(
    histories: pd.DataFrame,
    responders: Sequence[Model | str],
    *,
    ledger: Ledger,
    repeats: int = 1,
    instructions: str = REPLY_INSTRUCTIONS,
    language: str | None = None,
    max_concurrency: int | None = 1,
    **asking: Unpack[Asking],
) -> pd.DataFrame:
    """Let each responder answer each history, in at most forty words and three sentences.

    Parameters
    ----------
    histories : pandas.DataFrame
        Those flagged ``ends_with_supporter`` get no reply.
    responders : sequence of Model or str
        Models, and names of :data:`heart_collect.judging.design.PROBES`.
    ledger : Ledger
        Where calls are kept.
    repeats : int
        Replies of a model to a history.
    instructions : str
        Told to models first.
    language : str, optional
        Ask as HeartBench does, in ``"zh"`` or ``"en"``: no limit of length.
    max_concurrency : int, optional
        If more than 1, replies are flagged ``timed_beside_others``.
    **asking
        ``mode`` (``"dry"`` fills in 40 words, flagged ``planned``), ``budget_usd``,
        ``max_paid_calls``, ``progress``.

    Returns
    -------
    pandas.DataFrame
        The table ``replies``. Flags: ``unwrapped`` (a label or quotation marks taken off),
        ``thought`` (taken out), ``over_40_words``, ``over_3_sentences``, ``greeting``, ``closing``,
        ``writes_seeker``, ``truncated``, ``cut`` (far beyond its room), ``end_unsaid``.

    Raises
    ------
    RespondError
        If a history ends with the supporter unflagged, a probe is unknown, or a name repeats.

    Examples
    --------
    >>> from heart_collect import open_ledger
    >>> from heart_utils import load_histories
    >>> len(
    ...     collect_replies(
    ...         load_histories("sample").head(2),
    ...         ["echo", "advice-only"],
    ...         ledger=open_ledger("sqlite://"),
    ...     )
    ... )
    4
    """
    questions = reply_questions(
        check_table("histories", histories),
        responders,
        repeats=repeats,
        instructions=instructions,
        language=language,
    )
    return answer_replies(questions, ledger=ledger, max_concurrency=max_concurrency, **asking)


def reply_questions(
    histories: pd.DataFrame,
    responders: Sequence[Model | str],
    *,
    repeats: int,
    instructions: str,
    language: str | None,
) -> list[ReplyQuestion]:
    """Make :func:`collect_replies`' questions of checked histories."""
    check_responders(responders)
    check_last_speaker(histories, RespondError)
    skipped = set(skipped_histories(histories)["history_id"])
    questions = []
    for history in histories[~histories["history_id"].isin(skipped)].to_dict("records"):
        for responder in responders:
            if isinstance(responder, str):
                questions.append(ReplyQuestion(history, responder))
                continue
            for repeat in range(repeats):
                request = reply_request(history, responder, repeat, instructions, language)
                free = language is not None
                questions.append(ReplyQuestion(history, responder.name, repeat, request, free))
    return questions


def plan_replies(questions: Sequence[ReplyQuestion], ledger: Ledger) -> pd.DataFrame:
    requests = [((one.responder,), one.request) for one in questions if one.request is not None]
    return count_calls(requests, by=("responder",), ledger=ledger)


def answer_replies(
    questions: Sequence[ReplyQuestion],
    *,
    ledger: Ledger,
    max_concurrency: int | None,
    **asking: Unpack[Asking],
) -> pd.DataFrame:
    """Ask models, and make the table of theirs and probes' replies."""
    requests = [one.request for one in questions if one.request is not None]
    calls = iter(ask_all(requests, ledger=ledger, max_concurrency=max_concurrency, **asking))
    rows = [_by_rule(one) if one.request is None else _reply(one, next(calls)) for one in questions]
    return check_table("replies", pd.DataFrame(rows)) if rows else empty_table("replies")


def lengthen_planned(replies: pd.DataFrame, models: Sequence[Model], *, free: bool) -> pd.DataFrame:
    """Pad planned replies to their limit, so that the most is priced."""
    planned = replies["flags"].map(lambda flags: "planned" in flags).astype(bool)
    if not planned.any():
        return replies
    room = FREE_OPTIONS if free else REPLY_OPTIONS
    rooms = {
        model.name: text_bound(Request(model, (), {} if model.limits_max_tokens else room))
        for model in models
    }
    fill = [("filler " * rooms[name])[: rooms[name]] for name in replies.loc[planned, "responder"]]
    return replies.assign(
        text=replies["text"].mask(
            planned, pd.Series(fill, index=replies.index[planned], dtype=object)
        )
    )


def skipped_histories(histories: pd.DataFrame) -> pd.DataFrame:
    """List histories that cannot be answered: the supporter spoke last."""
    return histories[
        histories["turns"].map(lambda turns: turns[-1]["speaker"] == "supporter").astype(bool)
    ]


def reply_request(
    history: Mapping[Any, Any], model: Model, repeat: int, instructions: str, language: str | None
) -> Request:
    options = {} if model.limits_max_tokens else REPLY_OPTIONS if language is None else FREE_OPTIONS
    messages = reply_messages(history["turns"], instructions, language)
    return Request(model, messages, options, repeat, stream=True, tag=str(history["history_id"]))


def _by_rule(question: ReplyQuestion) -> ReplyRow:
    text = PROBES[question.responder](question.history["turns"])
    return {**_row(question, text, "valid"), "flags": turn_flags(question.history, text)}


def _reply(question: ReplyQuestion, call: Call) -> ReplyRow:
    text, state, flags = read_turn(call, as_it_came=question.free)
    flags += [] if question.free else turn_flags(question.history, text)
    text = STAND_IN if call.status == "planned" else text
    measured = {name: getattr(call, name) for name in NOTHING if hasattr(call, name)}
    return {
        **_row(question, text if state == "valid" else None, state),
        **measured,
        "flags": ["planned"] if call.status == "planned" else flags if state == "valid" else [],
    }


def read_turn(call: Call, *, as_it_came: bool = False) -> tuple[str, str, list[str]]:
    """Read a turn without thoughts: words, state, flags."""
    answer = without_thoughts(call.text)
    text, unwrapped = ((answer or "").strip(), False) if as_it_came else unwrap(answer or "")
    state = {"ok": "valid", "truncated": "valid", "planned": "valid", "refused": "refused"}.get(
        call.status, "error"
    )
    thought = answer != call.text
    empty = not text or (thought and is_blank(text))
    state = "error" if state == "valid" and call.status != "planned" and empty else state
    flags = [
        flag
        for flag, applies in (
            ("unwrapped", unwrapped),
            ("thought", thought),
            ("truncated", call.status == "truncated"),
            ("cut", call.finish_reason == CUT),
            ("end_unsaid", call.finish_reason == UNSAID),
            ("timed_beside_others", call.in_flight > 1),
            # fmt: skip
            ("writes_seeker", bool(SEEKER.search(text))),
        )
        if applies
    ]
    return text, state, flags


def _row(question: ReplyQuestion, text: str | None, state: str) -> ReplyRow:
    history, responder, repeat = question.history, question.responder, question.repeat
    name = f"{history['history_id']}--{responder}" + (f"--r{repeat}" if repeat else "")
    about = {
        "reply_id": name,
        "history_id": history["history_id"],
        "responder": responder,
        "text": text,
        "state": state,
    }
    return {**dict.fromkeys(NOTHING), **about, "simulated": history["simulated"]}


def turn_flags(history: Mapping[Any, Any], text: str) -> list[str]:
    before = sum(turn["speaker"] == "supporter" for turn in history["turns"])
    sentences = len(re.findall(r"[.!?…。！？]+(?=\s|$|[\"”')])", text.strip()))
    flags = flag_reply(text, n_before=before, n_after=0)
    return [*flags, "over_3_sentences"] if sentences > MAX_SENTENCES else flags


def unwrap(text: str, label: re.Pattern[str] = LABEL) -> tuple[str, bool]:
    """Take off a label and quotation marks."""
    bare = label.sub("", text.strip(), count=1).strip()
    if len(bare) > 1 and QUOTES.get(bare[0]) == bare[-1] and bare[0] not in bare[1:-1]:
        bare = bare[1:-1].strip()
    return bare, bare != text.strip()


ENDED = re.compile(r"\[\s*END\s*\]", re.IGNORECASE)
"""By what a seeker says that this person would leave; its instructions must name it."""
SEEKER_LABEL = re.compile(r"^\s*(?:\*\*)?seeker(?:\*\*)?\s*:(?:\*\*)?\s*", re.IGNORECASE)
SUPPORTER_LABEL = re.compile(r"(?:^|\n)\s*(?:\*\*)?supporter(?:\*\*)?\s*:", re.IGNORECASE)
SUPPORTS = re.compile(PROMPTS["supports"], re.VERBOSE)
TOO_LONG = re.compile(
    r"context.{0,40}(?:length|window|size)|maximum.{0,20}(?:context|tokens)|too (?:long|large)"
    r"|(?:input|prompt).{0,30}exceeds",
    re.IGNORECASE,
)
"""What providers say of a conversation that does not fit into a model's window."""
MANY_WORDS = 5  #: A turn of so many words is not said twice by chance; a shorter one, three times.
COUNTED = ("prompt_tokens", "completion_tokens", "cost_usd")
OF_PEOPLE = ("author_id", "typing_ms")
OWN_TURN = ("over_40_words", "over_3_sentences")
OF_SEEKER = ("truncated", "thought")  #: Flags that a seeker's turn shares with a supporter's.

Ask = Callable[[str, Sequence["Talk"], Sequence[Request | None]], Iterable[Call]]


@dataclass
class Talk:
    start: Mapping[Any, Any]
    responder: Model | str
    seeker: Model
    repeat: int
    instructions: Mapping[str, str]  # of the supporter and of the seeker
    longest: bool  # whether a turn that is only planned fills all its room
    turns: list[dict[str, str]] = field(default_factory=list)
    calls: list[Call | None] = field(default_factory=list)
    flags: list[str] = field(default_factory=list)
    reason: str | None = None
    by: str | None = None

    @property
    def planned(self) -> bool:
        """Whether a turn is a guess, so that the next is not asked."""
        return "planned" in self.flags

    @property
    def so_far(self) -> list[dict[str, str]]:
        return [*self.start["turns"], *self.turns]

    def request(self, speaker: str) -> Request | None:
        """Request the next turn, from turns so far and the repeat alone."""
        if speaker == "supporter":
            if isinstance(self.responder, str):
                return None
            history = {**self.start, "turns": self.so_far}
            instructions = self.instructions["supporter"]
            return reply_request(history, self.responder, self.repeat, instructions, None)
        messages = reply_messages(self.so_far, self.instructions["seeker"], speaker="seeker")
        options = {} if self.seeker.limits_max_tokens else REPLY_OPTIONS
        tag = str(self.start["history_id"])
        return Request(self.seeker, messages, options, self.repeat, stream=True, tag=tag)

    def take(self, speaker: str, request: Request | None, call: Call | None) -> None:
        self.calls.append(call)
        if request is None or call is None:
            return self._say(speaker, PROBES[str(self.responder)](self.so_far), [])
        if call.status == "planned":
            room = text_bound(request)
            text = ("filler " * room)[:room] if self.longest else STAND_IN
            return self._say(speaker, text, ["planned"])
        text, state, flags = read_turn(call, as_it_came=speaker == "seeker")
        if state != "valid":
            return self._end(_why(call), speaker)
        flags = [flag for flag in flags if flag != "timed_beside_others"]  # no times are kept
        if speaker == "supporter":
            return self._say(speaker, text, flags)
        return self._read_seeker(text, [flag for flag in flags if flag in OF_SEEKER])

    def _read_seeker(self, answer: str, flags: list[str]) -> None:
        words, *left = ENDED.split(answer, maxsplit=1)
        text, unwrapped = unwrap(words, SEEKER_LABEL)
        own, *others = SUPPORTER_LABEL.split(text, maxsplit=1)
        own = own.strip()
        flags += ["unwrapped"] * unwrapped + ["writes_supporter"] * bool(others)
        if others and not own:
            return self._end("wrong_role", "seeker", text.strip(), flags)
        if not own:
            return self._end("seeker_ended" if self.exchanges else "ended_at_once", "seeker")
        if SUPPORTS.search(own):
            return self._end("wrong_role", "seeker", own, flags)
        if self._says_again(own):
            return self._end("repeated", "seeker", own, flags)
        if left:
            return self._end("seeker_ended", "seeker", own, flags)
        return self._say("seeker", own, flags)

    @property
    def exchanges(self) -> int:
        """How many supporter's turns were answered."""
        return count_exchanges(self.turns)

    def _says_again(self, text: str) -> bool:
        words = plain_words(text)
        own = [plain_words(turn["text"]) for turn in self.so_far if turn["speaker"] == "seeker"]
        if len(words) >= MANY_WORDS:
            return words in own or words == plain_words(self.turns[-1]["text"])
        return own[-2:] == [words, words]

    def _say(self, speaker: str, text: str, flags: list[str]) -> None:
        own_turns = [turn["text"] for turn in self.turns if turn["speaker"] == speaker]
        if speaker == "supporter" and "planned" not in flags:
            marks = turn_flags({"turns": self.so_far}, text)
            flags = [*flags, *(flag for flag in marks if flag in OWN_TURN)]
            again = plain_words(text) in [plain_words(one) for one in own_turns]
            flags += ["supporter_repeats"] * again
        self.turns.append({"speaker": speaker, "text": text})
        self.flags += flags

    def _end(
        self, reason: str, speaker: str, text: str | None = None, flags: Sequence[str] = ()
    ) -> None:
        if text is not None:
            self.turns.append({"speaker": speaker, "text": text})
        self.flags += flags
        self.reason, self.by = reason, speaker

    def row(self) -> dict[str, Any]:
        name = self.responder if isinstance(self.responder, str) else self.responder.name
        reason, start = self.reason or "length", self.start
        family = None if isinstance(self.responder, str) else self.responder.family
        related = _same_family(family, self.seeker.family)
        made = [call for call in self.calls if call is not None]
        counted = {what: [getattr(call, what) for call in made] for what in COUNTED}
        sums = {
            what: None if None in numbers else sum(numbers) for what, numbers in counted.items()
        }
        numbered = f"--r{self.repeat}" if self.repeat else ""
        return {
            **{column: start[column] for column in ("history_id", "dialogue_id", "slice")},
            "conversation_id": f"{start['history_id']}--{name}{numbered}",
            "start_id": start["start_id"],
            "responder": name,
            "seeker": self.seeker.name,
            "repeat": self.repeat,
            "turns": self.turns,
            "n_exchanges": self.exchanges,
            "stop_reason": reason,
            "stopped_by": self.by,
            "state": ENDS[reason],
            "flags": [*dict.fromkeys(self.flags), *["seeker_own_family"] * related],
            **sums,
            "call_ids": [call and call.call_id for call in self.calls],
            "simulated": start["simulated"],
        }


def collect_conversations(
    histories: pd.DataFrame,
    responders: Sequence[Model | str],
    seekers: Sequence[Model],
    *,
    ledger: Ledger,
    exchanges: int,
    repeats: int = 1,
    instructions: str = REPLY_INSTRUCTIONS,
    seeker_instructions: str = SEEKER_INSTRUCTIONS,
    **asking: Unpack[Asking],
) -> pd.DataFrame:
    """Let responders go on from each start with its seeker.

    Parameters
    ----------
    histories : pandas.DataFrame
        Starts, each with a ``seeker`` and a ``start_id``.
    responders : sequence of Model or str
        Models, and names of probes.
    seekers : sequence of Model
        Who plays the seekers, by name.
    ledger : Ledger
        Where calls are kept.
    exchanges : int
        Turns of the responder with the seeker's answer, unless somebody ends it before.
    repeats : int
        Conversations of each responder from each start.
    instructions, seeker_instructions : str
        What each is told.
    **asking
        ``mode``, ``budget_usd``, ``max_paid_calls`` (of all turns together), ``progress``.

    Returns
    -------
    pandas.DataFrame
        The table ``conversations``. The seeker ends with ``[END]`` (``seeker_ended``); not judged
        are ``ended_at_once``, ``wrong_role``, ``repeated``, ``too_long``, refused or failed.

    Raises
    ------
    RespondError
        If a start's seeker is not given, a probe is unknown, or a name repeats.

    Examples
    --------
    >>> from heart_collect import open_ledger
    >>> from heart_utils import load_histories
    >>> from heart_collect.calls.models import Model
    >>> seeker = Model("s", "openai/gpt-4o", options={"mock_response": "It got worse. [END]"})
    >>> from heart_collect.judging.design import cross_seekers
    >>> starts = cross_seekers(load_histories("sample").head(1), ["s"])
    >>> asked = {"ledger": open_ledger("sqlite://"), "exchanges": 3, "progress": False}
    >>> talks = collect_conversations(starts, ["echo"], [seeker], **asked)
    >>> talks[["n_exchanges", "stop_reason", "state"]].values.tolist()
    [[1, 'seeker_ended', 'valid']]
    """
    talks = start_talks(
        check_table("histories", histories),
        responders,
        seekers,
        repeats=repeats,
        instructions=instructions,
        seeker_instructions=seeker_instructions,
    )
    return talk(talks, exchanges, ledger=ledger, max_concurrency=None, **asking)


def start_talks(
    histories: pd.DataFrame,
    responders: Sequence[Model | str],
    seekers: Sequence[Model],
    *,
    repeats: int,
    instructions: str,
    seeker_instructions: str,
    longest: bool = False,
) -> list[Talk]:
    check_responders([*responders, *seekers])
    check_last_speaker(histories, RespondError)
    skipped = set(skipped_histories(histories)["history_id"])
    by_name = {seeker.name: seeker for seeker in seekers}
    alone = sorted(set(histories.get("seeker", ["nobody"])) - by_name.keys())
    if alone:
        raise RespondError(
            f"histories.seeker: {', '.join(map(str, alone))} is none of the seekers"
            f" ({', '.join(by_name) or 'there are none'})."
        )
    instructions_of = {"supporter": instructions, "seeker": seeker_instructions}
    return [
        Talk(history, responder, by_name[history["seeker"]], repeat, instructions_of, longest)
        for history in histories.to_dict("records")
        if history["history_id"] not in skipped
        for responder in responders
        for repeat in range(repeats)
    ]


def talk(
    talks: Sequence[Talk],
    exchanges: int,
    *,
    ledger: Ledger,
    max_concurrency: int | None,
    **asking: Unpack[Asking],
) -> pd.DataFrame:
    """Run conversations turn by turn, by the ledger or by asking."""
    left = asking.get("max_paid_calls")

    def ask(_: str, __: Sequence[Talk], requests: Sequence[Request | None]) -> Iterable[Call]:
        nonlocal left
        wanted = [request for request in requests if request is not None]
        if not wanted:
            return []
        known = set() if left is None else set(ledger.statuses([one.key for one in wanted]))
        asking["max_paid_calls"] = left
        calls = ask_all(wanted, ledger=ledger, max_concurrency=max_concurrency, **asking)
        if left is not None:
            paid = {call.call_id for call in calls if call.cost_usd != 0} - known
            left = max(left - len(paid), 0)
        return calls

    _walk(talks, exchanges, ask)
    rows = [one.row() for one in talks]
    return (
        check_table("conversations", pd.DataFrame(rows)) if rows else empty_table("conversations")
    )


def plan_talks(talks: Sequence[Talk], exchanges: int, ledger: Ledger) -> pd.DataFrame:
    """Count the calls of full-length conversations."""
    usual, most = (
        _plan(
            [replace(one, longest=longest, turns=[], calls=[], flags=[]) for one in talks],
            exchanges,
            ledger,
        )
        for longest in (False, True)
    )
    return usual.assign(at_most_usd=most["at_most_usd"])


def conversation_replies(conversations: pd.DataFrame) -> pd.DataFrame:
    """Make each conversation a row of replies, its later turns as text.

    Parameters
    ----------
    conversations : pandas.DataFrame
        The table.

    Returns
    -------
    pandas.DataFrame
        The table ``replies``, with the same ids; only valid conversations have a text.

    Examples
    --------
    >>> from heart_utils import load_conversations
    >>> turns = [
    ...     {"speaker": "supporter", "text": "What happened?"},
    ...     {"speaker": "seeker", "text": "She left."},
    ... ]
    >>> mine = pd.DataFrame(
    ...     {"history_id": ["h"], "responder": "ann", "seeker": "s1", "turns": [turns]}
    ... )
    >>> print(conversation_replies(load_conversations(mine))["text"][0])
    Supporter: What happened?
    Seeker: She left.
    """
    conversations = check_table("conversations", conversations)
    texts = conversations["turns"].map(show_turns).astype(object)
    made = [[call for call in calls if call] for calls in conversations["call_ids"]]
    times = conversations.reindex(columns=["turn_ms"])["turn_ms"]
    replies = conversations.reindex(
        columns=["history_id", "responder", *COUNTED, "flags", "state", "simulated", *OF_PEOPLE]
    ).assign(
        reply_id=conversations["conversation_id"],
        text=texts.where(conversations["state"] == "valid", None),
        call_id=pd.Series([calls[-1] if calls else None for calls in made]),
        ttft_ms=None,
        total_ms=[np.nansum(ms) if isinstance(ms, list) else np.nan for ms in times],
    )
    return check_table("replies", replies)


def _walk(talks: Sequence[Talk], exchanges: int, ask: Ask) -> None:
    for _ in range(exchanges):
        for speaker in ("supporter", "seeker"):
            live = [one for one in talks if one.reason is None]
            requests = [one.request(speaker) for one in live]
            calls = iter(ask(speaker, live, requests))
            for one, request in zip(live, requests, strict=True):
                one.take(speaker, request, None if request is None else next(calls))


def _plan(talks: Sequence[Talk], exchanges: int, ledger: Ledger) -> pd.DataFrame:
    planned: dict[Any, tuple[tuple[str, str], Request]] = {}

    def ask(
        speaker: str, live: Sequence[Talk], requests: Sequence[Request | None]
    ) -> Iterable[Call]:
        for one, request in zip(live, requests, strict=True):
            if request is None:
                continue
            # after a turn that is a guess, two conversations may look the same and will not be
            which = (id(one), len(one.turns)) if one.planned else request.key
            planned[which] = ((f"turns of {speaker}s", request.model.name), request)
        wanted = [request for request in requests if request is not None]
        return ask_all(wanted, ledger=ledger, mode="dry")

    _walk(talks, exchanges, ask)
    return count_calls(planned.values(), by=("step", "responder"), ledger=ledger)


def _why(call: Call) -> str:
    error = call.error or ""
    if call.status == "refused":
        return "refused"
    if TOO_LONG.search(error):
        return "too_long"
    return (
        "empty" if call.status != "error" or error.startswith("the answer was empty") else "error"
    )


def plain_words(text: str) -> list[str]:
    """Return a turn's words, plain, to find repetitions."""
    return re.findall(r"\w+", text.casefold())


def _same_family(one: str | None, other: str | None) -> bool:
    return one is not None and other is not None and one.casefold() == other.casefold()
