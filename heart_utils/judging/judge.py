"""From comparisons and replies over calls to verdicts, scores and codes, blinded.

The tables are a pure function of the tables asked about and of the ledger's calls. What is drawn for a request
(codes, the order of dimensions) depends on the seed, the pair, the protocol and the number of the
repeat alone, so that the same tables ask the same questions in any order, on any machine.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from heart_utils.calls.ledger import Ledger
from heart_utils.calls.models import Model
from heart_utils.judging.design import seeded
from heart_utils.judging.prompts import (
    LANGUAGES,
    LETTERS,
    Codebook,
    Dimension,
    Form,
    Items,
    Labels,
    Protocol,
    Rubric,
    draw_codes,
    history_block,
    instructs_judge,
    load_protocol,
    load_rubric,
    parts,
    show_turns,
    transcript,
)
from heart_utils.judging.questions import (
    Answer,
    JudgeError,
    Question,
    ask_questions,
    collector_paused,
    count_calls,
    question_requests,
)
from heart_utils.tables import SPEAKERS, check_table, needed_columns

__all__ = ["ARMS", "Arm", "JudgeError", "collect_scores", "collect_verdicts", "plan_questions"]

ABOUT = ("comparison_id", "pair_id", "history_id", "dialogue_id", "slice", "responder_a", "responder_b", "order", "simulated")
"""What a verdict takes over; the first seven are its first columns."""
ABOUT_REPLY = ("reply_id", "history_id", "dialogue_id", "responder", "text", "state", "simulated")
ASKING = ("mode", "max_concurrency", "budget_usd", "max_paid_calls", "scheduler", "progress")
"""What is said about asking; the other options are about what is asked."""


def collect_verdicts(
    histories: pd.DataFrame,
    replies: pd.DataFrame,
    comparisons: pd.DataFrame,
    judges: Sequence[Model],
    *,
    ledger: Ledger,
    plan: bool = False,
    **how: Any,
) -> pd.DataFrame:
    """Ask every judge about every comparison, and give the verdicts.

    What the ledger holds is not asked again. An answer that cannot be read is asked for once more,
    with what was wrong with it; what cannot be read then is ``unparsed``, and its text stays in the ledger.

    Parameters
    ----------
    histories, replies, comparisons : pandas.DataFrame
        The tables of these names.
    judges : sequence of Model
        A panel of one or more. Each answers in its own ``answer_format``.
    ledger : Ledger
        Where calls are kept.
    plan : bool
        Ask nothing, and say what it would take: a row for each judge, protocol and answer format.
    **how
        What :func:`plan_questions` takes (``responders``, ``protocol``, ``dimensions``, ``repeats``, ``seed``), and what
        ``ask_all`` takes: ``mode`` (``"missing"`` asks what the ledger lacks, ``"replay"``
        nothing), ``max_concurrency``, ``budget_usd``, ``max_paid_calls``, ``scheduler``, ``progress``.

    Returns
    -------
    pandas.DataFrame
        The table ``verdicts``, or the plan: one row per comparison, judge, dimension and repeat. Flags: ``own_reply`` (one of
        the two is the judge's own), ``judge_is_responder`` (the judge answered histories of this run), ``own_family``,
        ``instructs_judge``, ``roles_swapped`` (turns were shown under the wrong speaker), ``repaired``, and ``little_mass``
        (A and B together had less than half of the next token's probability).

    Raises
    ------
    JudgeError
        If the tables do not fit each other, or an option is unknown; before the first call.

    Examples
    --------
    >>> from heart_utils.calls.ledger import open_ledger
    >>> from heart_utils.judging.recipe import read_recipe, recipe_comparisons, recipe_histories, recipe_replies
    >>> from heart_utils.runs import find_root
    >>> recipe = read_recipe("sample")
    >>> ledger = open_ledger("sqlite://", seed_file=find_root() / recipe.recorded)  # the calls that come with the project
    >>> histories = recipe_histories(recipe)
    >>> replies = recipe_replies(recipe, histories, ledger=ledger, mode="replay")
    >>> comparisons = recipe_comparisons(recipe, replies).query("protocol == 'heart'").head(2)
    >>> how = {"dimensions": ["overall"], "seed": recipe.seed, "mode": "replay"}
    >>> verdicts = collect_verdicts(histories, replies, comparisons, recipe.judges, ledger=ledger, **how)
    >>> verdicts[["rater", "order", "state"]].values.tolist()
    [['SmolLM2-135M-judge', 'ab', 'valid'], ['SmolLM2-135M-judge', 'ba', 'valid']]
    """
    asking = _asking(how)
    questions = plan_questions(histories, replies, comparisons, judges, **how)
    return collect(questions, parse_answers, ledger=ledger, plan=plan, **asking)


def collect(
    questions: Sequence[Question],
    rows: Callable[[Sequence[Answer]], pd.DataFrame],
    *,
    ledger: Ledger,
    plan: bool = False,
    **asking: Any,
) -> pd.DataFrame:
    """Put questions to their judges and make `rows` of the answers, or say what that would take."""
    if not plan:
        return rows(ask_questions(questions, ledger=ledger, **asking))
    there = [question for question in questions if question.reply_is_there]
    asked = (
        ((question.judge.name, question.form.name, question.form.answer_format), request)
        for question, request in zip(there, question_requests(there, ledger), strict=True)
    )
    return count_calls(asked, by=("rater", "protocol", "answer_format"), ledger=ledger)


@collector_paused()
def plan_questions(
    histories: pd.DataFrame,
    replies: pd.DataFrame,
    comparisons: pd.DataFrame,
    judges: Sequence[Model],
    *,
    responders: pd.DataFrame | None = None,
    protocol: Protocol | str | None = None,
    dimensions: Sequence[str] | None = None,
    repeats: int = 1,
    seed: int = 0,
) -> list[Question]:
    """Make every question that comparisons put to judges.

    Parameters
    ----------
    histories, replies, comparisons, judges
        As in :func:`collect_verdicts`.
    responders : pandas.DataFrame, optional
        The table of this name; tells which judges share a family with a responder.
    protocol : Protocol or str, optional
        How judges are asked; what each comparison says if not given.
    dimensions : sequence of str, optional
        Some of the rubric's; all if not given.
    repeats, seed : int
        How often each question is asked; what is drawn depends on the seed.

    Returns
    -------
    list of Question
        Judge by judge, and sorted by history and by the reply shown first, so that a server that keeps the prefix of its last
        prompts is served.

    Raises
    ------
    JudgeError
        If a comparison does not fit the tables or has no order, judges repeat each other, or the protocol asks about one reply.

    Examples
    --------
    >>> from heart_utils.calls.ledger import open_ledger
    >>> from heart_utils.calls.models import Model
    >>> from heart_utils.judging.design import pair_replies
    >>> from heart_utils.judging.respond import collect_replies
    >>> from heart_utils.sources.load import load_histories
    >>> histories = load_histories("sample").head(2)
    >>> replies = collect_replies(histories, ["echo", "advice-only"], ledger=open_ledger("sqlite://"))
    >>> comparisons = pair_replies(replies, rng=np.random.default_rng(1))
    >>> questions = plan_questions(histories, replies, comparisons, [Model("judge", "openai/gpt-4o")])
    >>> len(questions), questions[0].judge.name  # two pairs, both orders, all dimensions in one call
    (4, 'judge')
    """
    histories, replies = check_table("histories", histories), check_table("replies", replies)
    comparisons = check_table("comparisons", comparisons)
    _check_judges(judges)
    if isinstance(repeats, bool) or not isinstance(repeats, int) or repeats < 1:
        raise JudgeError(f"repeats is {repeats!r}, expected a whole number, 1 or more.")
    _check_comparisons(histories, replies, comparisons)
    texts = dict(zip(replies["reply_id"], replies["text"], strict=True))
    labels = dict(zip(replies["reply_id"], replies["label"], strict=True)) if "label" in replies else {}
    orders_judge = {reply_id for reply_id, text in texts.items() if isinstance(text, str) and instructs_judge(text)}
    shown = comparisons.merge(histories[["history_id", "dialogue_id", "slice"]], on="history_id", how="left")
    shown["first"] = shown["reply_a"].where(shown["order"] == "ab", shown["reply_b"])
    shown["second"] = shown["reply_b"].where(shown["order"] == "ab", shown["reply_a"])
    shown = shown.sort_values(["history_id", "first", "second", "comparison_id"])
    present = {*comparisons["responder_a"], *comparisons["responder_b"]}
    related = [_judge_flags(judge, responders, present) for judge in judges]
    questions: list[Question] = []
    for name, rows in shown.groupby("protocol", sort=False):
        how = protocol if isinstance(protocol, Protocol) else load_protocol(protocol or str(name))
        if how.asks != "pair":
            raise JudgeError(f"The protocol {how.name!r} asks about one reply alone; collect_scores does that.")
        if how.tells_author and not {*rows["first"], *rows["second"]} <= {
            one for one in labels if isinstance(labels[one], str)
        }:
            raise JudgeError(f"The protocol {how.name!r} tells who wrote, and some replies have no label; see `rewrites:`.")
        rubric = load_rubric(how.rubric).select(dimensions)
        blocks = _history_blocks(histories, how)
        records = _rows_of(rows, (*ABOUT, "first", "second"))
        forms: dict[tuple[str, int, str], list[Form]] = {}
        words: dict[tuple[str, ...], tuple[str, ...]] = {}
        for judge, flags_of in zip(judges, related, strict=True):
            for about in records:
                history, swapped = blocks[about["history_id"]]
                pair = texts[about["first"]], texts[about["second"]]
                ordered = ("instructs_judge",) if about["first"] in orders_judge or about["second"] in orders_judge else ()
                flags = flags_of[about["responder_a"]] + flags_of[about["responder_b"]] + swapped + ordered
                flags = words.setdefault(flags, tuple(dict.fromkeys(flags)))
                for repeat in range(repeats):
                    key = about["pair_id"], repeat, judge.answer_format
                    if key not in forms:
                        codes, order = draw_form(how, rubric, seed, about["pair_id"], repeat, texts=(history, *pair))
                        codes = LETTERS if judge.answer_format == "logprob" else codes
                        split = parts(how, order, judge.answer_format)
                        forms[key] = [Form(how, part, codes, judge.answer_format) for part in split]
                    told = (labels[about["first"]], labels[about["second"]]) if how.tells_author else ()
                    asked = [replace(form, labels=told) for form in forms[key]] if told else forms[key]
                    questions += [Question(about, judge, form, history, pair, flags, repeat) for form in asked]
    return questions


@collector_paused()
def parse_answers(answers: Sequence[Answer]) -> pd.DataFrame:
    """Turn answers into verdicts; a failed answer is a state, never a tie."""
    rows: list[tuple[Any, ...]] = []
    for answer in answers:
        question = answer.question
        about, form = question.about, question.form
        ab = about["order"] == "ab"
        word = {"first": "a" if ab else "b", "second": "b" if ab else "a", "tie": "tie", None: None}
        start = tuple(about[name] for name in ABOUT[:7])
        for position, ((name, _), (reading, call, repaired)) in enumerate(zip(form.cells, answer.readings(), strict=True)):
            p_a = reading.p_first if ab or reading.p_first is None else 1 - reading.p_first
            flags = [*question.flags, *(["repaired"] if repaired else []), *(["little_mass"] if reading.little_mass else [])]
            rows.append((
                *start, question.judge.name, "model", name, position,
                word[reading.winner], reading.margin, p_a, reading.state, about["order"], form.name,
                form.answer_format, question.repeat, None, flags, reading.rationale, call and call.call_id, about["simulated"],
            ))  # fmt: skip
    return check_table("verdicts", pd.DataFrame(rows, columns=needed_columns("verdicts")))


def _check_comparisons(histories: pd.DataFrame, replies: pd.DataFrame, comparisons: pd.DataFrame) -> None:
    """Refuse what could not be shown to a judge, before anything is asked."""
    shown = {*comparisons["reply_a"], *comparisons["reply_b"]}
    _check_replies(histories, replies[replies["reply_id"].isin(shown)])
    ids = pd.Index(replies["reply_id"])
    there = {column: replies[column].to_numpy(dtype=object) for column in ("history_id", "responder")}
    for side in ("a", "b"):
        rows = ids.get_indexer(comparisons[f"reply_{side}"])
        _refuse(comparisons, rows < 0, f"reply_{side}", "a reply of the table replies")
        for column, stands in (("history_id", "history_id"), ("responder", f"responder_{side}")):
            wrong = there[column][rows] != comparisons[stands].to_numpy(dtype=object)
            _refuse(comparisons, wrong, f"reply_{side}", f"a reply with the {column} that the comparison names")
    unordered = (comparisons["reply_a"] >= comparisons["reply_b"]).to_numpy()
    _refuse(comparisons, unordered, "reply_a", "the smaller reply_id of the two as a")
    _refuse(comparisons, comparisons["order"].isna().to_numpy(), "order", "ab or ba, so that it is known what to show first")


def _refuse(comparisons: pd.DataFrame, wrong: npt.NDArray[np.bool_], column: str, expected: str) -> None:
    if wrong.any():
        row = comparisons.loc[wrong].iloc[0]
        said = f"comparisons.{column}: {int(wrong.sum())} of {len(comparisons)} rows do not fit, first {row['comparison_id']!r}"
        raise JudgeError(f"{said} with {row[column]!r}; expected {expected}.")


def collect_scores(
    histories: pd.DataFrame, replies: pd.DataFrame, judges: Sequence[Model], *, ledger: Ledger, plan: bool = False, **how: Any
) -> pd.DataFrame:
    """Ask every judge about every reply alone, from 1 to 5 on each dimension, reasoning first.

    Parameters
    ----------
    histories, replies : pandas.DataFrame
        The tables of these names.
    judges : sequence of Model
        A panel of one or more, answering in JSON.
    ledger : Ledger
        Where calls are kept.
    plan : bool
        Ask nothing, and say what it would take.
    **how
        ``responders``, ``protocol``, ``dimensions`` and ``seed``, and how to ask, as in :func:`collect_verdicts`.

    Returns
    -------
    pandas.DataFrame
        The table ``scores``, or the plan: one row per reply, judge and dimension; states and flags as in
        :func:`collect_verdicts`.

    Raises
    ------
    JudgeError
        If the tables do not fit each other, or an option is unknown; before the first call.

    Examples
    --------
    >>> from heart_utils.calls.models import Model
    >>> from heart_utils.calls.ledger import open_ledger
    >>> from heart_utils.sources.load import load_histories, load_replies
    >>> histories, replies = load_histories("sample"), load_replies("sample").head(1)
    >>> judge = Model("judge", "openai/gpt-4o", options={"mock_response": "Both are fine."})  # litellm answers itself
    >>> asked = {"dimensions": ["empathic_responsiveness"], "ledger": open_ledger("sqlite://"), "progress": False}
    >>> collect_scores(histories, replies, [judge], **asked)[["dimension", "score", "state"]].values.tolist()
    [['empathic_responsiveness', nan, 'unparsed']]
    """
    asking = _asking(how)
    return collect(plan_score_questions(histories, replies, judges, **how), score_rows, ledger=ledger, plan=plan, **asking)


@collector_paused()
def plan_score_questions(
    histories: pd.DataFrame,
    replies: pd.DataFrame,
    judges: Sequence[Model],
    *,
    responders: pd.DataFrame | None = None,
    protocol: Protocol | str = "likert",
    dimensions: Sequence[str] | None = None,
    seed: int = 0,
) -> list[Question]:
    """Make every question that replies alone put to judges."""
    histories, replies = check_table("histories", histories), check_table("replies", replies)
    _check_judges(judges)
    letters = [judge.name for judge in judges if judge.answer_format != "json"]
    if letters:
        said = f"{', '.join(letters)} answers in the format logprob, which compares A with B; a score needs json"
        if len(letters) == len(judges):
            raise JudgeError(f"{said}.")
        warnings.warn(f"{said}: left out.", stacklevel=3)
    judges = [judge for judge in judges if judge.answer_format == "json"]
    how = protocol if isinstance(protocol, Protocol) else load_protocol(protocol)
    if how.asks != "reply":
        raise JudgeError(f"The protocol {how.name!r} asks about pairs; collect_verdicts does that.")
    valid = replies[replies["state"] == "valid"]
    if valid.empty:
        raise JudgeError(f"None of the {len(replies)} replies is valid, so there is nothing to score.")
    _check_replies(histories, valid)
    shown, blocks = _shown(histories, valid), _history_blocks(histories, how)
    rubric = load_rubric(how.rubric).select(dimensions)
    questions: list[Question] = []
    for judge in judges:
        flags_of = _judge_flags(judge, responders, set(valid["responder"]))
        for about in shown:
            history, swapped = blocks[about["history_id"]]
            ordered = ("instructs_judge",) if instructs_judge(about["text"]) else ()
            flags = flags_of[about["responder"]] + swapped + ordered
            _, order = draw_form(how, rubric, seed, about["reply_id"], 0, texts=())
            for part in parts(how, order, judge.answer_format):
                questions.append(Question(about, judge, Form(how, part, ("reply",)), history, (about["text"],), flags))
    return questions


def plan_hits(
    questions: pd.DataFrame,
    histories: pd.DataFrame,
    replies: pd.DataFrame,
    judges: Sequence[Model],
    *,
    responders: pd.DataFrame | None = None,
    language: str = "zh",
) -> list[Question]:
    """Ask which items of a question's rubric each reply hits, as HeartBench does, sorted by history.

    Where the release mends a judge's list of hits by padding or cutting it, here the judge is asked once more, and
    the items are ``unparsed`` if that does not help.
    """
    if language not in LANGUAGES:
        raise JudgeError(f"language={language!r} is not known; expected one of {', '.join(LANGUAGES)}.")
    _check_judges(judges)
    columns = ("item", "ability", "points", "content")
    rubric = {name: tuple(_rows_of(its.sort_values("position"), columns)) for name, its in questions.groupby("question_id")}
    said = {row["history_id"]: transcript(row["turns"], language) for row in _rows_of(histories, ("history_id", "turns"))}
    unknown = sorted(set(replies["history_id"]) - (set(rubric) & set(said)))
    if unknown:
        raise JudgeError(f"{len(unknown)} replies answer no question that is given, such as {unknown[0]!r}.")
    made: list[Question] = []
    for judge in judges:
        flags_of = _judge_flags(judge, responders, set(replies["responder"]))
        for about in _shown(histories, replies):
            form = Items(rubric[about["history_id"]], language, exact=judge.checksum is not None)
            flags = flags_of[about["responder"]] + (() if about["state"] == "valid" else ("no_reply",))
            made.append(Question(about, judge, form, said[about["history_id"]], (about["text"],), flags))
    return made


@collector_paused()
def score_rows(answers: Sequence[Answer]) -> pd.DataFrame:
    """Turn answers into scores; a failed answer is a state, never a number."""
    rows: list[tuple[Any, ...]] = []
    for answer in answers:
        question = answer.question
        about, form = question.about, question.form
        start = tuple(about[name] for name in ABOUT_REPLY[:4])
        for (dimension, item), (reading, call, repaired) in zip(form.cells, answer.readings(), strict=True):
            flags = [*question.flags, *(["repaired"] if repaired else [])]
            rows.append((
                *start, question.judge.name, "model", dimension, item, reading.score, reading.state,
                form.name, None, flags, call and call.call_id, about["simulated"],
            ))  # fmt: skip
    return check_table("scores", pd.DataFrame(rows, columns=needed_columns("scores")))


def code_rows(answers: Sequence[Answer]) -> pd.DataFrame:
    """Turn answers into codes, those of a reply in the order of the alphabet."""
    rows = []
    for answer in answers:
        about, cells = answer.question.about, zip(answer.question.form.cells, answer.readings(), strict=True)
        for (code, _), (reading, _, _) in sorted(cells, key=lambda cell: cell[0][0]):
            rows.append((about["reply_id"], answer.question.judge.name, code, reading.score, reading.state, about["simulated"]))
    return check_table("codes", pd.DataFrame(rows, columns=needed_columns("codes")))


def plan_codes(
    histories: pd.DataFrame,
    replies: pd.DataFrame,
    coders: Sequence[Model],
    *,
    codebooks: Mapping[str, Codebook],
    seed: int = 0,
) -> list[Question]:
    """Ask which labels hold of every reply, one call a codebook, sorted by history."""
    histories, replies = check_table("histories", histories), check_table("replies", replies)
    _check_judges(coders)
    letters = [coder.name for coder in coders if coder.answer_format != "json"]
    if letters:
        raise JudgeError(f"{', '.join(letters)} answers in the format logprob; a coder answers in json.")
    _check_replies(histories, replies[replies["state"] == "valid"])
    said = {row["history_id"]: show_turns(row["turns"]) for row in _rows_of(histories, ("history_id", "turns"))}
    made: list[Question] = []
    for coder in coders:
        for about in _shown(histories, replies):
            for name, codes in codebooks.items():
                generator = seeded(seed, about["reply_id"], f"codes-{name}", 0)
                order = tuple(sorted(codes, key=lambda _: generator.random()))  # noqa: B023 - used at once
                made.append(Question(about, coder, Labels(order), said.get(about["history_id"], ""), (about["text"],)))
    return made


AGAIN = "heart"  #: Whose comparisons are asked about again.


@dataclass(frozen=True)
class Arm:
    """One way of asking again: under which protocol, how often, and whether about several dimensions, in JSON."""

    name: str
    about: str
    protocol: str
    repeats: int = 1
    together: bool = False


ARMS = (
    Arm("once more", "the same question, asked a second time", "heart", repeats=2),
    Arm("other words", "the rules said in other words", "heart-reworded"),
    Arm("all at once", "several dimensions in one call", "heart", together=True),
    Arm("one a call", "the same dimensions, one a call", "heart-single", together=True),
)


def ask_again(
    histories: pd.DataFrame,
    replies: pd.DataFrame,
    comparisons: pd.DataFrame,
    judges: Sequence[Model],
    *,
    ledger: Ledger,
    n_pairs: int,
    dimensions: Sequence[str] | None = None,
    several: Sequence[str] | None = None,
    seed: int = 0,
    plan: bool = False,
    **how: Any,
) -> pd.DataFrame:
    """Ask judges about some pairs again, in every arm of :data:`ARMS`.

    What comes back says how steady a judge is. It is no part of a run's verdicts, so that boards rest on each question once.
    """
    chosen = _choose(comparisons, n_pairs, seed)
    several = dimensions if several is None else several
    if several is not None and len(several) < 2:
        raise JudgeError(f"Asking about {', '.join(several)} together and apart is the same; name two dimensions or more.")
    tables = []
    for arm in ARMS:
        asked: dict[str, Any] = {"dimensions": several if arm.together else dimensions, "repeats": arm.repeats, "seed": seed}
        panel = [replace(judge, answer_format="json") if arm.together else judge for judge in judges]
        shown = chosen.assign(protocol=arm.protocol)
        tables.append(collect_verdicts(histories, replies, shown, panel, ledger=ledger, plan=plan, **asked, **how))
    made = pd.concat(tables, ignore_index=True)
    key = ["comparison_id", "rater", "dimension", "protocol", "answer_format", "repeat"]
    return made if plan else made.drop_duplicates(key, ignore_index=True)  # a judge in JSON meets one arm's calls in another


def _choose(comparisons: pd.DataFrame, n_pairs: int, seed: int) -> pd.DataFrame:
    """Take one pair of each of so many histories, in every order in which it was shown."""
    theirs = comparisons[comparisons["protocol"] == AGAIN]
    histories = sorted(theirs["history_id"].unique())
    if n_pairs > len(histories):
        raise JudgeError(
            f"{n_pairs} pairs were to be asked about again, one a history, and {len(histories)} histories have comparisons "
            f"under the protocol {AGAIN!r}: set `asked_again: {len(histories)}` in the run's settings, or name it there."
        )
    spread = [histories[place * len(histories) // n_pairs] for place in range(n_pairs)]
    met = theirs[theirs["history_id"].isin(spread)].drop_duplicates("pair_id")
    luck = met["pair_id"].map(lambda pair_id: seeded(seed, pair_id, "again").random())
    return theirs[theirs["pair_id"].isin(met.loc[luck.groupby(met["history_id"]).idxmin(), "pair_id"])]


def _asking(how: dict[str, Any]) -> dict[str, Any]:
    """Take out of some options those about how to ask."""
    return {name: how.pop(name) for name in ASKING if name in how}


def _shown(histories: pd.DataFrame, replies: pd.DataFrame) -> list[dict[str, Any]]:
    """Give replies as mappings, with their dialogues, sorted so that a server's cache of prefixes serves them."""
    known = replies.merge(histories[["history_id", "dialogue_id"]], on="history_id", how="left")
    return _rows_of(known.sort_values(["history_id", "reply_id"]), ABOUT_REPLY)


def draw_form(
    protocol: Protocol, rubric: Rubric, seed: int, about: str, repeat: int, *, texts: Sequence[str]
) -> tuple[tuple[str, str], tuple[Dimension, ...]]:
    """Draw the codes and the order of dimensions for a pair, or for a reply alone."""
    generator = seeded(seed, about, protocol.name, repeat)
    # Codes first: which dimensions are asked must not change them.
    codes = (protocol.codes[0], protocol.codes[1]) if protocol.codes else draw_codes(generator, texts)
    dimensions = rubric.dimensions
    if protocol.dimension_order == "shuffled":
        dimensions = tuple(sorted(dimensions, key=lambda _: generator.random()))
    return codes, dimensions


def _history_blocks(histories: pd.DataFrame, protocol: Protocol) -> dict[str, tuple[str, tuple[str, ...]]]:
    """Write every conversation as judges read it, and say where the labels are wrong."""
    blocks: dict[str, tuple[str, tuple[str, ...]]] = {}
    for row in _rows_of(histories, ("history_id", "turns", "emotion")):
        swapped = protocol.turn_labels == "parity" and any(
            turn["speaker"] != SPEAKERS[number % 2] for number, turn in enumerate(row["turns"])
        )
        blocks[row["history_id"]] = (history_block(row, protocol), ("roles_swapped",) if swapped else ())
    return blocks


def _judge_flags(judge: Model, responders: pd.DataFrame | None, present: set[str]) -> dict[str, tuple[str, ...]]:
    """Say what a judge has to do with each of those whom it judges."""
    known: dict[str, dict[str, Any]] = {"family": {}, "model": {}}
    if responders is not None:
        table = check_table("responders", responders)
        known = {column: dict(zip(table["responder"], table[column], strict=True)) for column in known}
    itself = {name for name in present if name == judge.name or known["model"].get(name) == judge.model}
    family = judge.family.casefold() if judge.family else None
    flags = {}
    for name in present:
        of = known["family"].get(name)
        related = name in itself or (family is not None and isinstance(of, str) and of.casefold() == family)
        words = (("own_reply", name in itself), ("own_family", related), ("judge_is_responder", bool(itself)))
        flags[name] = tuple(word for word, holds in words if holds)
    return flags


def _rows_of(table: pd.DataFrame, columns: Sequence[str]) -> list[dict[str, Any]]:
    """Give rows as mappings, several times faster than pandas does for text kept in Arrow."""
    cells = [table[column].to_numpy(dtype=object) for column in columns]
    return [dict(zip(columns, row, strict=True)) for row in zip(*cells, strict=True)]


def _check_judges(judges: Sequence[Model]) -> None:
    """Refuse a panel that cannot be told apart in the tables."""
    if not judges:
        raise JudgeError("No judge was given; name at least one model.")
    seen = [(judge.name, judge.answer_format) for judge in judges]
    twice = sorted({name for name, how in seen if seen.count((name, how)) > 1})
    if twice:
        raise JudgeError(f"The judges {', '.join(twice)} are named twice with the same answer format; name each apart.")


def _check_replies(histories: pd.DataFrame, replies: pd.DataFrame) -> None:
    """Refuse replies that no judge could read."""
    faults = {
        "answer a history that is not in the table histories": ~replies["history_id"].isin(histories["history_id"]),
        "are not valid (pair_replies leaves such replies out)": replies["state"] != "valid",
        "have no text": replies["text"].isna() | (replies["text"].str.strip() == ""),
    }
    for fault, wrong in faults.items():
        if wrong.any():
            first = replies.loc[wrong].iloc[0]
            said = f"replies: {int(wrong.sum())} of the {len(replies)} to judge {fault}, first {first['reply_id']!r}"
            raise JudgeError(f"{said} to {first['history_id']!r} (state {first['state']}).")
