"""Verdicts, scores and codes by blinded judges."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
from typing import Any, NamedTuple, TypeAlias, Unpack

import pandas as pd

from heart_collect.calls.database import failed
from heart_collect.calls.engine import Asking, ask_all
from heart_collect.calls.ledger import Ledger
from heart_collect.calls.models import Call, Model, Request, collector_paused
from heart_collect.calls.prices import bound, plan_call, supports_schema
from heart_collect.judging.design import seeded
from heart_collect.judging.prompts import (
    LETTERS,
    Dimension,
    ItemsTemplate,
    LabelsTemplate,
    Messages,
    PromptTemplate,
    Protocol,
    Rubric,
    Template,
    draw_codes,
    history_block,
    instructs_judge,
    load_protocol,
    load_rubric,
    parts,
    show_turns,
)
from heart_collect.judging.readings import Reading, was_cut
from heart_utils.sources.heart import Codebook
from heart_utils.tables import KEYS, SPEAKERS, check_table, needed_columns, refuse_rows

__all__ = [
    "Answer",
    "JudgeError",
    "Question",
    "collect_verdicts",
    "plan_questions",
    "plan_verdicts",
]

CHUNK = 2_000
#: Under this and a model's digest the ledger notes whether the model is asked with a JSON schema.
SCHEMA = "schema"
LETTER_OPTIONS = {"max_tokens": 1, "logprobs": True, "top_logprobs": 20}


class JudgeError(ValueError):
    """Replies cannot be put to judges as asked."""


class Question(NamedTuple):
    """One call: a judge, the row `about`, the replies `shown`, the template."""

    about: Mapping[Any, Any]
    judge: Model
    template: Template
    history: str
    shown: tuple[str, ...]
    flags: tuple[str, ...] = ()
    repeat: int = 0

    @property
    def messages(self) -> Messages:
        """The prompt."""
        return self.template.messages(self.history, self.shown)

    @property
    def reply_is_there(self) -> bool:
        """Whether there is a reply to show; a failed one is not asked about."""
        return bool(self.about.get("state", "valid") == "valid")

    @property
    def in_json(self) -> bool:
        """Whether it is answered in JSON."""
        return self.template.answer_format == "json"

    def request(self, *, schema: bool) -> Request:
        """Make the request."""
        options: dict[str, object] = {}
        if not self.in_json:
            options |= LETTER_OPTIONS
        elif not self.judge.limits_max_tokens:
            base, per_cell = self.template.answer_tokens
            options["max_tokens"] = base + per_cell * len(self.template.cells)
        if schema and self.in_json:
            what = {"name": self.template.title, "strict": True, "schema": self.template.schema}
            options["response_format"] = {"type": "json_schema", "json_schema": what}
        return Request(
            self.judge, self.messages, options, self.repeat, tag=str(self.about["history_id"])
        )

    def repair(self, request: Request, answer: str, fault: str) -> Request:
        """Ask again, with what was wrong."""
        return replace(request, messages=(*request.messages, *self.template.again(answer, fault)))


@dataclass
class Answer:
    """The answer from one call, two if asked again, or none."""

    question: Question
    calls: Sequence[Call]

    @cached_property
    def first(self) -> tuple[list[Reading], str | None]:
        """The first answer's readings, and its fault."""
        return self.question.template.read(self.calls[0])

    def readings(self) -> list[tuple[Reading, Call | None, bool]]:
        """Read the answer, or its repair where that failed."""
        if not self.calls:
            return [(Reading(self.question.about["state"]), None, False)] * len(
                self.question.template.cells
            )
        merged: list[tuple[Reading, Call | None, bool]] = [
            (reading, self.calls[0], False) for reading in self.first[0]
        ]
        for call in self.calls[1:]:
            again, _ = self.question.template.read(call)
            for position, reading in enumerate(again):
                if merged[position][0].state == "unparsed" and reading.state in (
                    "valid",
                    "abstained",
                ):
                    merged[position] = (reading, call, True)
        return merged


def ask_questions(
    questions: Sequence[Question],
    *,
    ledger: Ledger,
    max_concurrency: int | None = None,
    **asking: Unpack[Asking],
) -> list[Answer]:
    """Ask what the ledger lacks, and once more for what cannot be read."""
    mode = asking.get("mode", "missing")
    if mode not in ("missing", "replay"):
        raise JudgeError(
            f"mode is {mode!r}, expected 'missing' or 'replay'; a plan says what would be asked."
        )
    answerable = [question for question in questions if question.reply_is_there]
    calls, missing = _look_up(answerable, ledger, again=mode != "replay")
    new: list[Call] = []
    if missing:
        if mode != "replay":
            judges = [answerable[n].judge for n in missing if answerable[n].in_json]
            note_schemas(judges, ledger)
        new = ask_all(
            list(missing.values()), ledger=ledger, max_concurrency=max_concurrency, **asking
        )
        calls |= zip(missing, new, strict=True)
    answers = [Answer(question, [calls[n]]) for n, question in enumerate(answerable)]
    unread = [
        one
        for one in answers
        if one.calls[0].status in one.question.template.repairable and one.first[1]
    ]
    first_requests = question_requests([answer.question for answer in unread], ledger)
    repairs = [
        (answer, answer.question.repair(request, answer.calls[0].text, str(answer.first[1])))
        for answer, request in zip(unread, first_requests, strict=True)
    ]
    if mode == "replay":  # takes only what was asked, so that a new parser needs no call
        known = ledger.find([request.key for _, request in repairs])
        repairs = [(answer, request) for answer, request in repairs if request.key in known]
    if repairs:
        paid_calls = asking.get("max_paid_calls")
        if paid_calls is not None:
            n_paid = len({call.call_id for call in new if call.cost_usd != 0})
            asking["max_paid_calls"] = max(paid_calls - n_paid, 0)
        repaired = ask_all(
            [request for _, request in repairs],
            ledger=ledger,
            max_concurrency=max_concurrency,
            **asking,
        )
        for (answer, _), call in zip(repairs, repaired, strict=True):
            answer.calls = [*answer.calls, call]
    if mode != "replay":
        _tell_of_cut_answers(answers)
    return [
        *answers,
        *(Answer(question, ()) for question in questions if not question.reply_is_there),
    ]


def _tell_of_cut_answers(answers: Sequence[Answer]) -> None:
    n_asked: dict[str, int] = {}
    cut: dict[str, int] = {}
    for answer in answers:
        name, (readings, _) = answer.question.judge.name, answer.first
        unread = answer.question.in_json and any(
            reading.state == "unparsed" for reading in readings
        )
        n_asked[name] = n_asked.get(name, 0) + 1
        cut[name] = cut.get(name, 0) + (unread and was_cut(answer.calls[0]))
    for name, n in cut.items():
        if n:
            warnings.warn(
                f"{name}: {n} of {n_asked[name]} answers ended within a thought, or were cut off"
                " before they were whole; what they say is no verdict. If this judge thinks before"
                " it answers, give it more room (`max_tokens: 4000` under `options:`) or less to"
                " think (`reasoning_effort: low`). Either asks all its questions anew.",
                stacklevel=4,
            )


def count_calls(
    requests_by: Iterable[tuple[tuple[str, ...], Request]], *, by: Sequence[str], ledger: Ledger
) -> pd.DataFrame:
    rows: list[tuple[Any, ...]] = []
    requests_by = iter(requests_by)
    while chunk := list(islice(requests_by, CHUNK)):
        # what is damaged is an error, and asked again
        known = ledger.find([request.key for _, request in chunk])
        for who, request in chunk:
            call = (
                plan_call(request)
                if request.key not in known or failed(known[request.key])
                else None
            )
            takes: tuple[Any, ...] = (0, 0, 0.0, 0.0)
            if call is not None:
                takes = (call.prompt_tokens, call.completion_tokens, call.cost_usd, bound(request))
            rows.append((*who, 1, int(call is None), *takes))
    takes_of = ["prompt_tokens", "completion_tokens", "cost_usd", "at_most_usd"]
    table = pd.DataFrame(rows, columns=[*by, "n_calls", "n_recorded", *takes_of])
    table = table.astype({"cost_usd": float, "at_most_usd": float})
    # one unknown price leaves the sum unknown
    return table.groupby(list(by), sort=False).sum(skipna=False).reset_index()


def takes_schema(model: Model, ledger: Ledger) -> bool:
    if model.json_schema is not None:
        return model.json_schema
    noted = ledger.notes([f"{SCHEMA} {model.identity_digest}"])
    return "yes" in noted.values() if noted else supports_schema(model)


def question_requests(questions: Iterable[Question], ledger: Ledger) -> Iterator[Request]:
    questions = iter(questions)
    while chunk := list(islice(questions, CHUNK)):
        judges = {
            (one.judge.identity_digest, one.judge.json_schema): one.judge
            for one in chunk
            if one.in_json
        }
        schemas = {who: takes_schema(judge, ledger) for who, judge in judges.items()}
        wanted = [
            one.in_json and schemas[one.judge.identity_digest, one.judge.json_schema]
            for one in chunk
        ]
        requests = [
            question.request(schema=schema) for question, schema in zip(chunk, wanted, strict=True)
        ]
        known = ledger.statuses([request.key for request in requests])
        others = {
            position: question.request(schema=not wanted[position])
            for position, question in enumerate(chunk)
            if question.in_json
            and question.judge.json_schema is None
            and requests[position].key not in known
        }
        recorded = ledger.statuses([request.key for request in others.values()])
        for position, request in enumerate(requests):
            yield (
                others[position]
                if position in others and others[position].key in recorded
                else request
            )


def note_schemas(models: Iterable[Model], ledger: Ledger) -> None:
    """Record whether models are asked with a schema."""
    schema_support = {
        model.identity_digest: takes_schema(model, ledger)
        for model in models
        if model.json_schema is None
    }
    ledger.note(
        {
            f"{SCHEMA} {digest}": "yes" if schema else "no"
            for digest, schema in schema_support.items()
        }
    )


@collector_paused()
def _look_up(
    questions: Sequence[Question], ledger: Ledger, *, again: bool
) -> tuple[dict[int, Call], dict[int, Request]]:
    calls: dict[int, Call] = {}
    missing: dict[int, Request] = {}
    all_requests = question_requests(questions, ledger)
    for start in range(0, len(questions), CHUNK):
        requests = list(islice(all_requests, CHUNK))
        known = ledger.find([request.key for request in requests])
        for position, request in enumerate(requests, start):
            call = known.get(request.key)
            if call is None or (again and call.status == "error"):
                missing[position] = request
            else:
                calls[position] = call
    return calls, missing


UNITS = ("reply", "conversation")
UNIT = ("unit", "seeker")
"""Columns of verdicts and scores that say what was judged, where any of it is a conversation."""

Rows: TypeAlias = list[dict[str, Any]]
#: A history -> as judges read it, and flags of what they read.
PromptHistories: TypeAlias = Mapping[str, tuple[str, tuple[str, ...]]]
MakeTemplates: TypeAlias = Callable[[Model, Mapping[str, Any], str], Iterator[tuple[Template, int]]]
"""Make the prompt templates by which one judge is asked about one row in one history, each with the
number of its repeat."""


def collect_verdicts(
    questions: Sequence[Question],
    *,
    ledger: Ledger,
    max_concurrency: int | None = None,
    **asking: Unpack[Asking],
) -> pd.DataFrame:
    """Ask every judge its questions.

    An answer that cannot be read is asked for once more, and is then ``unparsed``: never a tie.

    Parameters
    ----------
    questions : sequence of Question
        What :func:`plan_questions` returns.
    ledger : Ledger
        What it holds is not asked again.
    max_concurrency : int, optional
        Calls at once.
    **asking
        ``mode`` (``"missing"``, or ``"replay"``, which asks nothing), ``budget_usd`` (of the
        ledger, ever), ``max_paid_calls``, ``scheduler`` (a Dask address), ``progress``.

    Returns
    -------
    pandas.DataFrame
        The table ``verdicts``, or ``scores`` from 1 to 5. Flags: ``own_reply``, ``own_family``,
        ``judge_is_responder``, ``instructs_judge``, ``roles_swapped``, ``repaired``, ``truncated``,
        ``little_mass`` (of A and B together), ``uncalibrated`` (a raw probability).

    Raises
    ------
    JudgeError
        If the mode is unknown.

    Examples
    --------
    >>> from heart_collect import open_ledger
    >>> from heart_utils import load_histories, load_replies
    >>> from heart_collect.calls.models import Model
    >>> judge = Model("judge", "openai/gpt-4o", options={"mock_response": "Both are fine."})
    >>> histories, replies = load_histories("sample"), load_replies("sample").head(1)
    >>> asked = plan_questions(histories, replies, None, [judge], dimensions=["overall"])
    >>> scores = collect_verdicts(asked, ledger=open_ledger("sqlite://"), progress=False)
    >>> scores[["dimension", "score", "state"]].values.tolist()
    [['overall', nan, 'unparsed']]
    """
    of_pairs = not questions or questions[0].about.get("order") is not None
    return collect_answers(
        "verdicts" if of_pairs else "scores",
        questions,
        ledger=ledger,
        max_concurrency=max_concurrency,
        **asking,
    )


def collect_answers(
    table: str,
    questions: Sequence[Question],
    *,
    ledger: Ledger,
    max_concurrency: int | None = None,
    **asking: Unpack[Asking],
) -> pd.DataFrame:
    answers = ask_questions(questions, ledger=ledger, max_concurrency=max_concurrency, **asking)
    return answer_rows(table, answers)


def plan_verdicts(questions: Sequence[Question], ledger: Ledger) -> pd.DataFrame:
    """Count what questions would take, without asking.

    Parameters
    ----------
    questions : sequence of Question
        From :func:`plan_questions`.
    ledger : Ledger
        Its calls are not made again.

    Returns
    -------
    pandas.DataFrame
        Calls, tokens and USD by judge, protocol and answer format.

    Examples
    --------
    >>> from heart_collect import open_ledger
    >>> plan_verdicts([], open_ledger("sqlite://")).empty
    True
    """
    answerable = [question for question in questions if question.reply_is_there]
    requests = (
        ((question.judge.name, question.template.name, question.template.answer_format), request)
        for question, request in zip(answerable, question_requests(answerable, ledger), strict=True)
    )
    return count_calls(requests, by=("rater", "protocol", "answer_format"), ledger=ledger)


@collector_paused()
def answer_rows(table: str, answers: Sequence[Answer]) -> pd.DataFrame:
    columns = needed_columns(table)
    if any(answer.question.about.get("seeker") for answer in answers):
        columns = [*columns, *UNIT]
    rows: list[list[Any]] = []
    for answer in answers:
        question, template = answer.question, answer.question.template
        order, name = question.about.get("order"), question.judge.name
        sides: dict[str | None, str] = (
            {"first": order[0], "second": order[1], "tie": "tie"} if order else {}
        )
        about = {
            **question.about,
            "rater": name,
            "coder": name,
            "rater_kind": "model",
            "protocol": template.name,
            "answer_format": template.answer_format,
            "repeat": question.repeat,
            "group": None,
        }
        cells = [*enumerate(zip(template.cells, answer.readings(), strict=True))]
        if table == "codes":
            cells.sort(key=lambda cell: cell[1][0])
        for position, ((dimension, item), (reading, call, repaired)) in cells:
            own_flags = {
                "repaired": repaired,
                "little_mass": reading.little_mass,
                "uncalibrated": reading.p_first is not None,
                "truncated": (
                    reading.state == "valid" and call is not None and call.status == "truncated"
                ),
            }
            made = about | {
                "dimension": dimension,
                "code": dimension,
                "item": item,
                "dimension_position": position,
                "verdict": sides.get(reading.winner),
                "margin": reading.margin,
                "rationale": reading.rationale,
                "p_a": reading.p_first
                if order == "ab" or reading.p_first is None
                else 1 - reading.p_first,
                "score": reading.score,
                "probability": reading.score,
                "state": reading.state,
                "flags": [*question.flags, *(flag for flag, holds in own_flags.items() if holds)],
                "call_id": call and call.call_id,
            }
            rows.append([made[column] for column in columns])
    made_of = pd.DataFrame(rows, columns=columns)
    # of those asked again in JSON, arms share calls
    return check_table(table, made_of.drop_duplicates(KEYS[table]))


def plan_questions(
    histories: pd.DataFrame,
    replies: pd.DataFrame,
    comparisons: pd.DataFrame | None,
    judges: Sequence[Model],
    *,
    responders: pd.DataFrame | None = None,
    protocol: Protocol | str | None = None,
    dimensions: Sequence[str] | None = None,
    repeats: int = 1,
    seed: int = 0,
) -> list[Question]:
    """Build all questions to judges about comparisons, or replies alone; no model is asked.

    What is drawn (codes of the replies, order of dimensions) depends on seed, pair, protocol and
    repeat alone, and is the same for all judges and orders.

    Parameters
    ----------
    histories, replies : pandas.DataFrame
        The tables.
    comparisons : pandas.DataFrame or None
        If None, each valid reply is asked about alone.
    judges : sequence of Model
        Of different names.
    responders : pandas.DataFrame, optional
        By which answers about a judge's own family are flagged.
    protocol : str or Protocol, optional
        By default the comparison's, and ``likert`` of replies alone.
    dimensions : sequence of str, optional
        By default all of the rubric's.
    repeats : int
        How often each is asked, 1 or more.
    seed : int
        Of what is drawn.

    Returns
    -------
    list of Question
        One a call: ``judge``, the row it is ``about``, replies ``shown``, prompt ``template``.

    Raises
    ------
    JudgeError
        If a comparison has no order or does not fit, or a judge is named twice.
    heart_utils.tables.TableError
        If a table lacks a column.

    Examples
    --------
    >>> from heart_utils import load_histories, load_replies
    >>> from heart_collect.calls.models import Model
    >>> judge = Model("judge", "openai/gpt-4o")
    >>> replies = load_replies("sample").head(2)
    >>> questions = plan_questions(load_histories("sample"), replies, None, [judge])
    >>> len(questions), questions[0].judge.name
    (2, 'judge')
    """
    if isinstance(repeats, bool) or not isinstance(repeats, int) or repeats < 1:
        raise JudgeError(f"repeats is {repeats!r}, expected a whole number, 1 or more.")
    replies = check_table("replies", replies)
    if comparisons is not None:
        comparisons = check_table("comparisons", comparisons)
        _check_comparisons(replies, comparisons)
    return make_questions(
        check_table("histories", histories),
        replies,
        comparisons,
        judges,
        responders=None if responders is None else check_table("responders", responders),
        protocol=protocol,
        dimensions=dimensions,
        repeats=repeats,
        seed=seed,
    )


@collector_paused()
def make_questions(
    histories: pd.DataFrame,
    replies: pd.DataFrame,
    comparisons: pd.DataFrame | None,
    judges: Sequence[Model],
    *,
    responders: pd.DataFrame | None = None,
    protocol: Protocol | str | None = None,
    dimensions: Sequence[str] | None = None,
    repeats: int = 1,
    seed: int = 0,
) -> list[Question]:
    """Make :func:`plan_questions`' questions from checked tables."""
    if comparisons is None:
        judges = _in_json(judges)
        to_judge = replies[replies["state"] == "valid"].assign(protocol="likert")
        if to_judge.empty:
            raise JudgeError(
                f"None of the {len(replies)} replies is valid, so there is nothing to score."
            )
    else:
        to_judge = comparisons
    questions: list[Question] = []
    for name, rows in to_judge.groupby("protocol", sort=False):
        settings = (
            protocol if isinstance(protocol, Protocol) else load_protocol(protocol or str(name))
        )
        if (settings.asks == "reply") != (comparisons is None):
            does = {
                "reply": "one reply alone, and comparisons were given",
                "pair": "pairs, and no comparisons were given",
            }
            raise JudgeError(f"The protocol {settings.name!r} asks about {does[settings.asks]}.")
        subjects = _subjects(histories, replies, rows)
        if strange := [about["unit"] for about in subjects if about["unit"] != settings.unit]:
            other = "conversation" if settings.unit == "reply" else "heart"
            raise JudgeError(
                f"The protocol {settings.name!r} asks about one {settings.unit}, and {len(strange)}"
                f" of {len(subjects)} rows are of the unit {strange[0]}: use a protocol that says"
                f" `unit: {strange[0]}`, such as {other}."
            )
        if settings.tells_author and not all(
            isinstance(label, str) for about in subjects for label in about["labels"]
        ):
            raise JudgeError(
                f"The protocol {settings.name!r} tells who wrote, and some replies have no label;"
                " see `rewrites:`."
            )
        make_templates = _draw_templates(
            settings, load_rubric(settings.rubric).select(dimensions), repeats, seed
        )
        questions += _questions_to(
            judges, subjects, _history_blocks(histories, settings), make_templates, responders
        )
    return questions


def plan_codes(
    histories: pd.DataFrame,
    replies: pd.DataFrame,
    coders: Sequence[Model],
    *,
    codebooks: Mapping[str, Codebook],
    seed: int = 0,
) -> list[Question]:
    """Ask which labels hold, one call a reply and codebook."""

    def make_templates(
        _: Model, about: Mapping[str, Any], __: str
    ) -> Iterator[tuple[LabelsTemplate, int]]:
        for name, codes in codebooks.items():
            generator = seeded(seed, about["reply_id"], f"codes-{name}", 0)
            yield (
                LabelsTemplate(tuple(sorted(codes, key=lambda _: generator.random()))),
                0,
            )  # noqa: B023 - used at once

    prompt_histories = {
        row["history_id"]: (show_turns(row["turns"]), ()) for row in _rows_of(histories)
    }
    return _questions_to(
        _in_json(coders), _subjects(histories, replies, replies), prompt_histories, make_templates
    )


def plan_hits(
    questions: pd.DataFrame,
    histories: pd.DataFrame,
    replies: pd.DataFrame,
    judges: Sequence[Model],
    *,
    responders: pd.DataFrame | None = None,
    language: str = "zh",
) -> list[Question]:
    """Ask which rubric items each reply hits, as HeartBench does."""
    rubric = {
        name: tuple(_rows_of(its.sort_values("position")))
        for name, its in questions.groupby("question_id")
    }
    histories = histories[histories["history_id"].isin(rubric)]

    def make_templates(
        judge: Model, about: Mapping[str, Any], _: str
    ) -> Iterator[tuple[ItemsTemplate, int]]:
        yield (
            ItemsTemplate(rubric[about["history_id"]], language, exact=judge.checksum is not None),
            0,
        )

    prompt_histories = {
        row["history_id"]: (show_turns(row["turns"], language), ()) for row in _rows_of(histories)
    }
    return _questions_to(
        judges, _subjects(histories, replies, replies), prompt_histories, make_templates, responders
    )


AGAIN = "heart"  #: Whose comparisons are asked about again.
ARMS = (
    ("heart", 2, False),
    ("heart-reworded", 1, False),
    ("heart", 1, True),
    ("heart-single", 1, True),
)
"""Under which protocol, how often, and whether about several dimensions, in JSON: the same
question a second time, the rules said in other words, several dimensions in one call, and the
same dimensions one a call."""


def plan_again(
    histories: pd.DataFrame,
    replies: pd.DataFrame,
    comparisons: pd.DataFrame,
    judges: Sequence[Model],
    *,
    n_pairs: int,
    dimensions: Sequence[str] | None = None,
    several: Sequence[str] | None = None,
    responders: pd.DataFrame | None = None,
    seed: int = 0,
) -> list[Question]:
    """Ask again about one pair of each of so many histories."""
    theirs = comparisons[comparisons["protocol"] == AGAIN]
    names = sorted(theirs["history_id"].unique())
    if n_pairs > len(names):
        raise JudgeError(
            f"{n_pairs} pairs were to be asked about again, one a history, and {len(names)}"
            f" histories have comparisons under the protocol {AGAIN!r}: set `asked_again:"
            f" {len(names)}` in the run's settings, or name it there."
        )
    several = dimensions if several is None else several
    if several is not None and len(several) < 2:
        raise JudgeError(
            f"Asking about {', '.join(several)} together and apart is the same; name two dimensions"
            " or more."
        )
    spread = [names[number * len(names) // n_pairs] for number in range(n_pairs)]
    candidates = theirs[theirs["history_id"].isin(spread)].drop_duplicates("pair_id")
    luck = candidates["pair_id"].map(lambda pair_id: seeded(seed, pair_id, "again").random())
    chosen = theirs[
        theirs["pair_id"].isin(
            candidates.loc[luck.groupby(candidates["history_id"]).idxmin(), "pair_id"]
        )
    ]
    questions = []
    for protocol, repeats, together in ARMS:
        panel = [replace(judge, answer_format="json") if together else judge for judge in judges]
        questions += make_questions(
            histories,
            replies,
            chosen.assign(protocol=protocol),
            panel,
            responders=responders,
            dimensions=several if together else dimensions,
            repeats=repeats,
            seed=seed,
        )
    return questions


def _questions_to(
    judges: Sequence[Model],
    subjects: Rows,
    histories: PromptHistories,
    make_templates: MakeTemplates,
    responders: pd.DataFrame | None = None,
) -> list[Question]:
    _check_judges(judges)
    present = {name for about in subjects for name in about["by"]}
    questions: list[Question] = []
    words: dict[tuple[str, ...], tuple[str, ...]] = {}
    for judge in judges:
        flags_of = _judge_flags(judge, responders, present)
        for about in subjects:
            history, read = histories[about["history_id"]]
            flags = (
                *(flag for name in about["by"] for flag in flags_of[name]),
                *read,
                *about["text_flags"],
            )
            flags = words.setdefault(flags, tuple(dict.fromkeys(flags)))
            with_repeats = make_templates(judge, about, history)
            questions += [
                Question(about, judge, template, history, about["shown"], flags, repeat)
                for template, repeat in with_repeats
            ]
    return questions


def _subjects(histories: pd.DataFrame, replies: pd.DataFrame, items: pd.DataFrame) -> Rows:
    shown_ids, by, sort = ["reply_id"], ["responder"], ["history_id", "reply_id"]
    if "order" in items:
        ab = items["order"] == "ab"
        sides = {
            "first": items["reply_a"].where(ab, items["reply_b"]),
            "second": items["reply_b"].where(ab, items["reply_a"]),
        }
        items, shown_ids, by = (
            items.assign(**sides),
            ["first", "second"],
            ["responder_a", "responder_b"],
        )
        sort = ["history_id", *shown_ids, "comparison_id"]
    of = {row["reply_id"]: row for row in _rows_of(replies)}
    _check_replies(
        histories, replies[replies["reply_id"].isin(set(items[shown_ids].to_numpy().ravel()))]
    )
    speaks = {
        name
        for name, row in of.items()
        if isinstance(row["text"], str) and instructs_judge(row["text"])
    }
    of_history = [
        "history_id",
        "dialogue_id",
        "slice",
        *(["seeker"] if "seeker" in histories else []),
    ]
    table = items.merge(histories[of_history], on="history_id", how="left").sort_values(sort)
    rows = _rows_of(table)
    for about in rows:
        ids = [about[name] for name in shown_ids]
        about["by"] = tuple(about[name] for name in by)
        about["shown"], about["labels"] = (
            tuple(of[name].get(what) for name in ids) for what in ("text", "label")
        )
        about["text_flags"] = ("instructs_judge",) * (not speaks.isdisjoint(ids))
        if not isinstance(about.setdefault("seeker", None), str):
            about["seeker"] = None
        about["unit"] = UNITS[about["seeker"] is not None]
        about["text_flags"] += ("no_reply",) * (about.get("state", "valid") != "valid")
    return rows


def _draw_templates(protocol: Protocol, rubric: Rubric, repeats: int, seed: int) -> MakeTemplates:
    drawn: dict[tuple[str, int, str], list[PromptTemplate]] = {}
    alone = protocol.asks == "reply"

    def make_templates(
        judge: Model, about: Mapping[str, Any], history: str
    ) -> Iterator[tuple[PromptTemplate, int]]:
        for repeat in range(repeats):
            key = about["reply_id" if alone else "pair_id"], repeat, judge.answer_format
            if key not in drawn:
                texts = () if alone else (history, *about["shown"])
                codes, order = draw_codes_and_order(
                    protocol, rubric, seed, key[0], repeat, texts=texts
                )
                codes = (
                    ("reply",) if alone else LETTERS if judge.answer_format == "logprob" else codes
                )
                split = parts(protocol, order, judge.answer_format)
                drawn[key] = [
                    PromptTemplate(protocol, part, codes, judge.answer_format) for part in split
                ]
            for template in drawn[key]:
                yield (
                    (
                        replace(template, labels=about["labels"])
                        if protocol.tells_author
                        else template
                    ),
                    repeat,
                )

    return make_templates


def draw_codes_and_order(
    protocol: Protocol, rubric: Rubric, seed: int, about: str, repeat: int, *, texts: Sequence[str]
) -> tuple[tuple[str, ...], tuple[Dimension, ...]]:
    """Draw codes and dimensions' order for a pair or reply."""
    generator, order = seeded(seed, about, protocol.name, repeat), rubric.dimensions
    # first: which dimensions are asked must not change them
    codes = protocol.codes or draw_codes(generator, texts)
    shuffled = protocol.dimension_order == "shuffled"
    return codes, tuple(sorted(order, key=lambda _: generator.random())) if shuffled else order


def _history_blocks(histories: pd.DataFrame, protocol: Protocol) -> PromptHistories:
    blocks = {}
    for row in _rows_of(histories):
        true = [turn["speaker"] for turn in row["turns"]] == [
            SPEAKERS[at % 2] for at in range(len(row["turns"]))
        ]
        swapped = ("roles_swapped",) if protocol.turn_labels == "parity" and not true else ()
        blocks[row["history_id"]] = (history_block(row, protocol), swapped)
    return blocks


def _judge_flags(
    judge: Model, responders: pd.DataFrame | None, present: set[str]
) -> dict[str, tuple[str, ...]]:
    known: dict[str, dict[str, object]] = {"family": {}, "model": {}}
    if responders is not None:
        known = {
            column: dict(zip(responders["responder"], responders[column], strict=True))
            for column in known
        }
    itself = {
        name for name in present if name == judge.name or known["model"].get(name) == judge.model
    }
    family = judge.family.casefold() if judge.family else None
    flags = {}
    for name in present:
        of = known["family"].get(name)
        related = name in itself or (
            family is not None and isinstance(of, str) and of.casefold() == family
        )
        words = (
            ("own_reply", name in itself),
            ("own_family", related),
            ("judge_is_responder", bool(itself)),
        )
        flags[name] = tuple(word for word, holds in words if holds)
    return flags


def _rows_of(table: pd.DataFrame) -> Rows:
    columns = [str(name) for name in table]
    cells = [table[column].to_numpy(dtype=object) for column in columns]
    return [dict(zip(columns, row, strict=True)) for row in zip(*cells, strict=True)]


def _in_json(judges: Sequence[Model]) -> list[Model]:
    """Leave out, with a warning, models that answer by one letter."""
    letters = [judge.name for judge in judges if judge.answer_format != "json"]
    error_message = (
        f"{', '.join(letters)} answers in the format logprob, which compares A with B; a score or a"
        " code needs json"
    )
    if letters and len(letters) == len(judges):
        raise JudgeError(f"{error_message}.")
    if letters:
        warnings.warn(f"{error_message}: left out.", stacklevel=4)
    return [judge for judge in judges if judge.answer_format == "json"]


def _check_judges(judges: Sequence[Model]) -> None:
    if not judges:
        raise JudgeError("No judge was given; name at least one model.")
    identities = [(judge.name, judge.answer_format) for judge in judges]
    twice = sorted(
        {name for name, answer_format in identities if identities.count((name, answer_format)) > 1}
    )
    if twice:
        raise JudgeError(
            f"The judges {', '.join(twice)} are named twice with the same answer format; name each"
            " apart."
        )


def _check_comparisons(replies: pd.DataFrame, comparisons: pd.DataFrame) -> None:
    of = replies.set_index("reply_id")
    checks: list[tuple[str, pd.Series, str]] = []
    for side in ("a", "b"):
        reply, responder = f"reply_{side}", f"responder_{side}"
        known = of.reindex(comparisons[reply]).set_index(comparisons.index)
        other_history = known["history_id"] != comparisons["history_id"]
        other_author = known["responder"] != comparisons[responder]
        checks += [
            (reply, ~comparisons[reply].isin(of.index), "a reply of the table replies"),
            (reply, known["state"] != "valid", "a valid reply (pair_replies leaves others out)"),
            ("history_id", other_history, f"the history of its {reply}"),
            (responder, other_author, f"the responder of its {reply}"),
        ]
    not_smaller = comparisons["reply_a"] >= comparisons["reply_b"]
    checks += [
        ("reply_a", not_smaller, "the smaller reply_id of the two as a"),
        ("order", comparisons["order"].isna(), "ab or ba, so that it is known what to show first"),
    ]
    for column, wrong, expected in checks:
        refuse_rows("comparisons", column, wrong, comparisons[column], expected)


def _check_replies(histories: pd.DataFrame, replies: pd.DataFrame) -> None:
    lost = ~replies["history_id"].isin(histories["history_id"])
    refuse_rows("replies", "history_id", lost, replies["history_id"], "a history that is given too")
    silent = (replies["state"] == "valid") & (replies["text"].fillna("").str.strip() == "")
    refuse_rows("replies", "text", silent, replies["reply_id"], "a text where the state is valid")
