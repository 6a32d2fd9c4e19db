"""Verdicts, scores and codes by blinded judges.

What is drawn depends on seed, pair, protocol and repeat alone.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias, Unpack

import pandas as pd

from heart_collect.calls.engine import Asking
from heart_collect.calls.ledger import Ledger
from heart_collect.calls.models import Model
from heart_collect.judging.design import seeded
from heart_collect.judging.prompts import (
    LETTERS,
    Dimension,
    ItemsTemplate,
    LabelsTemplate,
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
from heart_collect.judging.questions import (
    Answer,
    JudgeError,
    Question,
    ask_questions,
    collector_paused,
    count_calls,
    question_requests,
)
from heart_utils.sources.heart import Codebook
from heart_utils.tables import KEYS, SPEAKERS, check_table, needed_columns, refuse_rows

__all__ = ["JudgeError", "collect_verdicts", "plan_questions", "plan_verdicts"]

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
    """Ask every judge its questions about comparisons, or about replies alone.

    Each call is kept in the ledger as soon as it is answered, and what the ledger holds is not
    asked again: after an interruption the same call goes on where it stopped. An answer that cannot
    be read is asked for once more; what cannot be read then is ``unparsed``, a row that counts as a
    failure and never as a tie.

    Parameters
    ----------
    questions : sequence of Question
        What :func:`plan_questions` returns.
    ledger : Ledger
        Where calls and their costs are kept, from :func:`~heart_collect.calls.records.open_ledger`.
    max_concurrency : int, optional
        Calls in flight at once, all judges together; by default what each judge's settings allow.
    **asking
        ``mode`` : ``"missing"`` (the default) asks what the ledger lacks, ``"replay"`` asks
        nothing. ``budget_usd`` : dollars that the ledger may spend, ever. ``max_paid_calls`` :
        calls that cost money, at most. ``scheduler`` : address of a Dask scheduler whose workers
        ask. ``progress`` : whether a bar is drawn.

    Returns
    -------
    pandas.DataFrame
        The table ``verdicts``, one row per comparison, judge, dimension and repeat, or ``scores``
        from 1 to 5, of replies alone. Flags: ``own_reply`` (one of the two is the judge's own),
        ``judge_is_responder`` (it answered histories of this run), ``own_family``,
        ``instructs_judge``, ``roles_swapped`` (turns were shown under the wrong speaker),
        ``repaired``, ``little_mass`` (A and B together had less than half of the next token's
        probability), ``uncalibrated`` (a probability that was not held against people: see
        :func:`~heart_utils.judges.confidence.calibrate_probabilities`), and ``truncated`` (what
        was whole of an answer that was cut off).

    Raises
    ------
    JudgeError
        If the mode is another, before the first call.

    Examples
    --------
    >>> from heart_collect import open_ledger
    >>> from heart_utils import load_histories, load_replies
    >>> from heart_collect.calls.models import Model
    >>> judge = Model(
    ...     "judge", "openai/gpt-4o", options={"mock_response": "Both are fine."}
    ... )  # litellm answers itself
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
    """Ask judges their questions and make a table of the answers."""
    answers = ask_questions(questions, ledger=ledger, max_concurrency=max_concurrency, **asking)
    return answer_rows(table, answers)


def plan_verdicts(questions: Sequence[Question], ledger: Ledger) -> pd.DataFrame:
    """Count what the questions would take; nothing is asked.

    Parameters
    ----------
    questions : sequence of Question
        What :func:`plan_questions` returns.
    ledger : Ledger
        Whose calls need not be made again.

    Returns
    -------
    pandas.DataFrame
        One row a judge, protocol and answer format, with calls, tokens and US dollars.

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
    """Turn answers into verdicts, scores or codes.

    A failed answer is a state, never a tie, a number or an absence.
    """
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
    """Build every question about comparisons, or about replies alone, to a panel of judges.

    No model is asked. Look at the questions to see exactly what a judge would read, or count them.
    What is drawn at random (codes of the replies, order of dimensions) depends on the seed, the
    pair, the protocol and the repeat alone, and is the same for both orders and for every judge.

    Parameters
    ----------
    histories
        The table of histories.
    replies
        The table of replies.
    comparisons
        The table of comparisons; if None, each valid reply is asked about alone.
    judges : sequence of Model
        A panel of one or more, with different names.
    responders : pandas.DataFrame, optional
        The table of responders, which shows which judges share a family with a responder; their
        answers are flagged.
    protocol
        How judges are asked, such as ``"heart"``; by default what each comparison says, and
        ``likert`` of replies alone.
    dimensions
        Names of dimensions; by default all of the rubric's.
    repeats
        How often each is asked, 1 or more.
    seed
        Decides what is drawn.

    Returns
    -------
    list of Question
        One question a call, judge by judge, by history and the reply shown first, so that a
        server's cache of prefixes applies. Each has the ``judge``, the row it is ``about``, the
        replies ``shown`` and the prompt ``template``, which writes its messages.

    Raises
    ------
    JudgeError
        If a comparison does not fit the tables or protocol or has no order, or a judge is named
        twice.
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
    """Make the questions of :func:`plan_questions` from tables that were checked."""
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
    """Ask which labels hold of every reply, one call a codebook, sorted by history."""

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
    """Ask which items of a question's rubric each reply hits, as HeartBench does.

    HeartBench's release repairs lists of a wrong length.
    """
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
    """Ask judges again about one pair of each of so many histories.

    In every order in which it was shown, and in every arm.
    """
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
    """Ask each judge about each row, by the prompt templates that are made for it."""
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
    """Return comparisons or replies, with what is shown of them, sorted by shared prefix.

    A server's cache of prefixes then applies.
    """
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
    """Draw the templates of each pair or reply once, the same for both orders and all judges."""
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
    """Draw the codes and the order of dimensions for a pair, or for a reply alone."""
    generator, order = seeded(seed, about, protocol.name, repeat), rubric.dimensions
    # first: which dimensions are asked must not change them
    codes = protocol.codes or draw_codes(generator, texts)
    shuffled = protocol.dimension_order == "shuffled"
    return codes, tuple(sorted(order, key=lambda _: generator.random())) if shuffled else order


def _history_blocks(histories: pd.DataFrame, protocol: Protocol) -> PromptHistories:
    """Write every conversation as judges read it, and say where the labels are wrong."""
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
    """Flag how a judge is related to each responder whom it judges."""
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
    """Return rows as mappings, several times faster than pandas does for Arrow's text."""
    columns = [str(name) for name in table]
    cells = [table[column].to_numpy(dtype=object) for column in columns]
    return [dict(zip(columns, row, strict=True)) for row in zip(*cells, strict=True)]


def _in_json(judges: Sequence[Model]) -> list[Model]:
    """Leave out, with a warning, models that answer with one letter.

    They do not apply where there is nothing to choose from.
    """
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
    """Refuse a panel that cannot be told apart in the tables."""
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
    """Refuse comparisons of other replies than those given, before anything is asked."""

    def refuse(column: str, wrong: pd.Series, expected: str) -> None:
        refuse_rows("comparisons", column, wrong, comparisons[column], expected)

    of = replies.set_index("reply_id")
    for side in ("a", "b"):
        ids = comparisons[f"reply_{side}"]
        refuse(f"reply_{side}", ~ids.isin(of.index), "a reply of the table replies")
        refuse(
            f"reply_{side}",
            ids.map(of["state"]) != "valid",
            "a valid reply (pair_replies leaves others out)",
        )
        refuse(
            "history_id",
            ids.map(of["history_id"]) != comparisons["history_id"],
            f"the history of its reply_{side}",
        )
        responder = f"responder_{side}"
        refuse(
            responder,
            ids.map(of["responder"]) != comparisons[responder],
            f"the responder of its reply_{side}",
        )
    refuse(
        "reply_a",
        comparisons["reply_a"] >= comparisons["reply_b"],
        "the smaller reply_id of the two as a",
    )
    refuse("order", comparisons["order"].isna(), "ab or ba, so that it is known what to show first")


def _check_replies(histories: pd.DataFrame, replies: pd.DataFrame) -> None:
    """Refuse replies that no judge could read."""
    lost = ~replies["history_id"].isin(histories["history_id"])
    refuse_rows("replies", "history_id", lost, replies["history_id"], "a history that is given too")
    silent = (replies["state"] == "valid") & (replies["text"].fillna("").str.strip() == "")
    refuse_rows("replies", "text", silent, replies["reply_id"], "a text where the state is valid")
