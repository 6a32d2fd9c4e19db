"""A recipe's steps: replies first, then what judges and coders say."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import ClassVar, Unpack

import pandas as pd

from heart_collect.calls.engine import Asking
from heart_collect.calls.ledger import Ledger
from heart_collect.calls.models import Model
from heart_collect.judging.design import make_probes, rewrite_replies
from heart_collect.judging.judge import (
    AGAIN,
    Question,
    collect_answers,
    make_questions,
    plan_again,
    plan_codes,
    plan_hits,
    plan_verdicts,
)
from heart_collect.judging.prompts import Protocol
from heart_collect.judging.recipe import Recipe, chosen_questions
from heart_collect.judging.respond import (
    ReplyQuestion,
    Talk,
    answer_replies,
    conversation_replies,
    lengthen_planned,
    plan_replies,
    plan_talks,
    reply_questions,
    start_talks,
    talk,
)
from heart_utils.sources.heart import load_codebooks
from heart_utils.sources.load import load_replies
from heart_utils.tables import check_table, empty_table

__all__: list[str] = []


@dataclass(frozen=True, eq=False)
class Tables:
    """What a step asks about, already checked."""

    histories: pd.DataFrame = field(default_factory=partial(empty_table, "histories"))
    replies: pd.DataFrame = field(default_factory=partial(empty_table, "replies"))
    comparisons: pd.DataFrame = field(default_factory=partial(empty_table, "comparisons"))

    @classmethod
    def checked(cls, tables: Sequence[pd.DataFrame]) -> Tables:
        """Check tables given by others, in field order."""
        names = ("histories", "replies", "comparisons")
        return cls(*map(check_table, names, tables))


@dataclass(frozen=True)
class Replies:
    """Replies: given ones, those of models, and by rule."""

    recipe: Recipe
    name: ClassVar[str] = "replies"

    def plan(self, tables: Tables, ledger: Ledger) -> pd.DataFrame:
        """Count the calls of each responder."""
        return plan_replies(self._questions(tables.histories), ledger)

    def made(
        self,
        histories: pd.DataFrame,
        ledger: Ledger,
        *,
        max_concurrency: int | None = 1,
        **asking: Unpack[Asking],
    ) -> dict[str, pd.DataFrame]:
        """Collect the replies; give all tables by name."""
        questions = self._questions(histories)
        answered = answer_replies(
            questions, ledger=ledger, max_concurrency=max_concurrency, **asking
        )
        given = self._given(histories) if self.recipe.given_replies else answered.head(0)
        replies = pd.concat([rows for rows in (given, answered) if len(rows)])
        return {"replies": check_table("replies", replies)}

    def longest(self, tables: Tables, ledger: Ledger) -> pd.DataFrame:
        """Pad planned replies, so that judging's highest cost is known."""
        free = bool(self.recipe.questions)
        return lengthen_planned(tables.replies, self.recipe.responders, free=free)

    def _questions(self, histories: pd.DataFrame) -> list[ReplyQuestion]:
        recipe = self.recipe
        return reply_questions(
            histories,
            [*recipe.responders, *recipe.probes],
            repeats=recipe.repeats,
            instructions=recipe.instructions,
            language=recipe.language if recipe.questions else None,
        )

    def _given(self, histories: pd.DataFrame) -> pd.DataFrame:
        recipe = self.recipe
        given = load_replies(recipe.histories, twins=recipe.twins)
        given = given[given["history_id"].isin(set(histories["history_id"]))]
        if not recipe.rewritten_replies:
            return given
        return rewrite_replies(
            given, recipe.rewritten_replies, labels=recipe.labels, seed=recipe.seed
        )


class Conversations(Replies):
    """Conversations of responders with the recipe's seekers, each a row of replies."""

    def plan(self, tables: Tables, ledger: Ledger) -> pd.DataFrame:
        """Count the turns of each model."""
        return plan_talks(self._talks(tables.histories), self.recipe.exchanges, ledger)

    def made(
        self,
        histories: pd.DataFrame,
        ledger: Ledger,
        *,
        max_concurrency: int | None = 1,
        **asking: Unpack[Asking],
    ) -> dict[str, pd.DataFrame]:
        """Let all take turns, many at once: no times are measured."""
        talks = talk(
            self._talks(histories),
            self.recipe.exchanges,
            ledger=ledger,
            max_concurrency=self.recipe.max_concurrency,
            **asking,
        )
        return {"conversations": talks, "replies": conversation_replies(talks)}

    def longest(self, tables: Tables, ledger: Ledger) -> pd.DataFrame:
        """Let what is only planned fill all its room."""
        if not tables.replies["flags"].map(lambda flags: "planned" in flags).any():
            return tables.replies
        talks = self._talks(tables.histories, longest=True)
        conversations = talk(
            talks, self.recipe.exchanges, ledger=ledger, max_concurrency=None, mode="dry"
        )
        replies = conversation_replies(conversations)
        others = tables.replies[~tables.replies["reply_id"].isin(replies["reply_id"])]
        return check_table("replies", pd.concat([replies, others])) if len(others) else replies

    def _talks(self, histories: pd.DataFrame, *, longest: bool = False) -> list[Talk]:
        recipe = self.recipe
        return start_talks(
            histories,
            [*recipe.responders, *recipe.probes],
            recipe.seekers,
            repeats=recipe.repeats,
            instructions=recipe.instructions,
            seeker_instructions=recipe.seeker_instructions,
            longest=longest,
        )


def first_step(recipe: Recipe) -> Replies:
    """Return the step that collects replies."""
    return Conversations(recipe) if recipe.unit == "conversation" else Replies(recipe)


@dataclass(frozen=True)
class Judging:
    """A step about replies or pairs, all questions known before."""

    recipe: Recipe
    name: str  #: As plans and messages call it.
    table: str  #: The table of its answers.
    is_asked: bool  #: Whether the recipe asks for it.
    make: Callable[[Recipe, Tables], list[Question]] | None = None
    by: str = "rater"  #: The column of that table that names who answered.

    def questions(self, tables: Tables) -> list[Question]:
        """Make its questions, if any."""
        return self.make(self.recipe, tables) if self.is_asked and self.make else []

    def plan(self, tables: Tables, ledger: Ledger) -> pd.DataFrame:
        """Count calls by judge, protocol and format."""
        return plan_verdicts(self.questions(tables), ledger)

    def run(
        self,
        tables: Tables,
        ledger: Ledger,
        *,
        max_concurrency: int | None = None,
        **asking: Unpack[Asking],
    ) -> pd.DataFrame:
        """Ask what the ledger lacks; empty if none are asked for."""
        questions = self.questions(tables)
        if not questions:
            return empty_table(self.table)
        return collect_answers(
            self.table, questions, ledger=ledger, max_concurrency=max_concurrency, **asking
        )


def judging_steps(recipe: Recipe) -> dict[str, Judging]:
    """Return what is asked about replies, by name, in order."""
    judged = bool(recipe.judges)
    scored = judged or bool(recipe.protocols_that_ask("reply"))
    steps = [
        Judging(recipe, "verdicts", "verdicts", judged, _ask_about_pairs),
        Judging(recipe, "scores", "scores", scored, _ask_about_replies),
        Judging(recipe, "codes", "codes", bool(recipe.coders), _ask_for_codes, by="coder"),
        # On pairs of which one reply is known to be worse, for a judge's report card.
        Judging(recipe, "probes", "verdicts", judged and recipe.report_card, _ask_about_probes),
        # Once more, in other words and several dimensions at once.
        Judging(recipe, "again", "verdicts", judged and recipe.asked_again > 0, _ask_again),
    ]
    return {step.name: step for step in steps}


def _ask_about_pairs(recipe: Recipe, tables: Tables) -> list[Question]:
    comparisons = tables.comparisons
    return [
        question
        for protocol in recipe.protocols_that_ask("pair")
        for question in _by_protocol(
            recipe,
            replace(tables, comparisons=comparisons[comparisons["protocol"] == protocol.name]),
            protocol,
            recipe.judges,
        )
    ]


def _ask_about_replies(recipe: Recipe, tables: Tables) -> list[Question]:
    """Ask about replies alone, by protocol or by item."""
    if recipe.questions:
        return plan_hits(
            chosen_questions(recipe),
            tables.histories,
            tables.replies,
            recipe.judges,
            responders=recipe.list_responders(),
            language=recipe.language,
        )
    return [
        question
        for protocol in recipe.protocols_that_ask("reply")
        for panel, asked in _raters(recipe, tables, protocol)
        for question in _by_protocol(recipe, asked, protocol, panel)
    ]


def _raters(
    recipe: Recipe, tables: Tables, protocol: Protocol
) -> list[tuple[Sequence[Model], Tables]]:
    """List who is asked about what: a seeker about its own conversations."""
    if protocol.raters == "judges":
        return [(recipe.judges, tables)]
    played = tables.histories.set_index("history_id")["seeker"]
    by = tables.replies["history_id"].map(played)
    valid = tables.replies["state"] == "valid"
    return [
        ([seeker], replace(tables, replies=tables.replies[by == seeker.name]))
        for seeker in recipe.seekers
        if (valid & (by == seeker.name)).any()
    ]


def _by_protocol(
    recipe: Recipe, tables: Tables, protocol: Protocol, panel: Sequence[Model]
) -> list[Question]:
    alone = protocol.asks == "reply"
    return make_questions(
        tables.histories,
        tables.replies,
        None if alone else tables.comparisons,
        panel,
        responders=recipe.list_responders(),
        protocol=protocol,
        dimensions=recipe.protocols[protocol.name],
        repeats=1 if alone else recipe.judge_repeats,
        seed=recipe.seed,
    )


def _ask_for_codes(recipe: Recipe, tables: Tables) -> list[Question]:
    replies, books = tables.replies, load_codebooks()
    if recipe.coded:
        replies = replies[replies["responder"].isin(recipe.coded)].reset_index(drop=True)
    codebooks = {name: books[name] for name in recipe.codebooks}
    return plan_codes(
        tables.histories, replies, recipe.coders, codebooks=codebooks, seed=recipe.seed
    )


def _ask_about_probes(recipe: Recipe, _: Tables) -> list[Question]:
    return probe_questions(recipe.judges, seed=recipe.seed)


def probe_questions(judges: Sequence[Model], *, seed: int) -> list[Question]:
    """Compare each probe with its original, in both orders, overall."""
    probes = make_probes()
    return make_questions(
        probes["histories"],
        probes["replies"],
        probes["comparisons"],
        judges,
        responders=probes["responders"],
        dimensions=["overall"],
        seed=seed,
    )


def _ask_again(recipe: Recipe, tables: Tables) -> list[Question]:
    return plan_again(
        tables.histories,
        tables.replies,
        tables.comparisons,
        recipe.judges,
        n_pairs=recipe.asked_again,
        dimensions=recipe.protocols.get(AGAIN),
        several=recipe.together or None,
        responders=recipe.list_responders(),
        seed=recipe.seed,
    )
