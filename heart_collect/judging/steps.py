"""The steps of a recipe: replies first, then what judges and coders say of them.

A step plans, which counts what it would take, and runs, which gives its table. A further step is a
class here, named in :data:`JUDGING` if it asks about replies or pairs that are there.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import ClassVar, Unpack

import pandas as pd

from heart_collect.calls.engine import Asking
from heart_collect.calls.ledger import Ledger
from heart_collect.calls.models import Model
from heart_collect.judging.converse import (
    Talk,
    conversation_replies,
    plan_talks,
    start_talks,
    talk,
)
from heart_collect.judging.judge import (
    AGAIN,
    collect_answers,
    make_questions,
    plan_again,
    plan_codes,
    plan_hits,
    plan_verdicts,
)
from heart_collect.judging.probes import make_probes, rewrite_replies
from heart_collect.judging.prompts import Protocol
from heart_collect.judging.questions import Question
from heart_collect.judging.recipe import Recipe, RecipeError, chosen_questions
from heart_collect.judging.respond import (
    ReplyQuestion,
    answer_replies,
    lengthen_planned,
    plan_replies,
    reply_questions,
)
from heart_collect.judging.rewriting import check_rewrites, rewrite_questions
from heart_utils.sources.heart import load_codebooks
from heart_utils.sources.load import load_replies
from heart_utils.tables import check_table, empty_table

__all__: list[str] = []


@dataclass(frozen=True, eq=False)
class Tables:
    """What a step asks about; each table was checked where it came in or was made."""

    histories: pd.DataFrame = field(default_factory=partial(empty_table, "histories"))
    replies: pd.DataFrame = field(default_factory=partial(empty_table, "replies"))
    comparisons: pd.DataFrame = field(default_factory=partial(empty_table, "comparisons"))

    @classmethod
    def checked(cls, tables: Sequence[pd.DataFrame]) -> Tables:
        """Check tables that somebody else gives, in the order of the fields."""
        names = ("histories", "replies", "comparisons")
        return cls(*map(check_table, names, tables))


@dataclass(frozen=True)
class Step(ABC):
    """One thing that the models of a recipe are asked for."""

    recipe: Recipe
    name: ClassVar[str]  #: As plans and messages call it.
    table: ClassVar[str]  #: The table of its answers.
    by: ClassVar[str] = "rater"  #: The column of that table that names who answered.

    @abstractmethod
    def plan(self, tables: Tables, ledger: Ledger) -> pd.DataFrame:
        """Count the calls of each model, those recorded, and what the others would take."""

    @abstractmethod
    def run(
        self,
        tables: Tables,
        ledger: Ledger,
        *,
        max_concurrency: int | None = None,
        **asking: Unpack[Asking],
    ) -> pd.DataFrame:
        """Ask for what the ledger lacks, and make the table of all answers."""


class Replies(Step):
    """The replies that came with the histories, those of models, and those by rule."""

    name, table, by = "replies", "replies", "responder"

    def plan(self, tables: Tables, ledger: Ledger) -> pd.DataFrame:
        """Count the calls of each responder."""
        return plan_replies(self._questions(tables.histories), ledger)

    def run(
        self,
        tables: Tables,
        ledger: Ledger,
        *,
        max_concurrency: int | None = 1,
        **asking: Unpack[Asking],
    ) -> pd.DataFrame:
        """Let responders answer, one call at a time by default, so that times are those of each."""
        questions = self._questions(tables.histories)
        answered = answer_replies(
            questions, ledger=ledger, max_concurrency=max_concurrency, **asking
        )
        given = self._given(tables.histories) if self.recipe.given_replies else answered.head(0)
        return check_table("replies", pd.concat([rows for rows in (given, answered) if len(rows)]))

    def made(
        self,
        histories: pd.DataFrame,
        ledger: Ledger,
        *,
        max_concurrency: int | None,
        **asking: Unpack[Asking],
    ) -> dict[str, pd.DataFrame]:
        """Run, and give all tables that come of it, by name."""
        replies = self.run(Tables(histories), ledger, max_concurrency=max_concurrency, **asking)
        return {"replies": replies}

    def longest(self, tables: Tables, ledger: Ledger) -> pd.DataFrame:
        """Pad planned replies to their limit, so that the most that judging costs is known."""
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
        """Load the replies that came with the histories, or rewritings of them."""
        recipe = self.recipe
        given = load_replies(recipe.histories, twins=recipe.twins)
        given = given[given["history_id"].isin(set(histories["history_id"]))]
        if not recipe.rewritten_replies:
            return given
        return rewrite_replies(
            given, recipe.rewritten_replies, labels=recipe.labels, seed=recipe.seed
        )


class Conversations(Replies):
    """Whole conversations of the responders with the recipe's seekers; each is a row of replies."""

    def plan(self, tables: Tables, ledger: Ledger) -> pd.DataFrame:
        """Count the turns of each speaker's models."""
        return plan_talks(self._talks(tables.histories), self.recipe.exchanges, ledger)

    def run(
        self,
        tables: Tables,
        ledger: Ledger,
        *,
        max_concurrency: int | None = None,
        **asking: Unpack[Asking],
    ) -> pd.DataFrame:
        """Let all conversations take their turns, and give each as a reply."""
        made = self.made(tables.histories, ledger, max_concurrency=max_concurrency, **asking)
        return made["replies"]

    def made(
        self,
        histories: pd.DataFrame,
        ledger: Ledger,
        *,
        max_concurrency: int | None,
        **asking: Unpack[Asking],
    ) -> dict[str, pd.DataFrame]:
        """Run, and return the conversations too.

        No times are measured, so that many may be asked at once.
        """
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
    """Return the step that collects what the others ask about."""
    return Conversations(recipe) if recipe.unit == "conversation" else Replies(recipe)


class Judging(Step):
    """A step whose questions are all known before the first is asked."""

    @property
    def panel(self) -> tuple[Model, ...]:
        """Who is asked."""
        return self.recipe.judges

    @property
    def is_asked(self) -> bool:
        """Whether the recipe asks for it."""
        return bool(self.panel)

    @abstractmethod
    def questions(self, tables: Tables) -> list[Question]:
        """Make its questions; called where the recipe asks for it."""

    def plan(self, tables: Tables, ledger: Ledger) -> pd.DataFrame:
        """Count the calls of each judge by protocol and answer format."""
        return plan_verdicts(self.questions(tables) if self.is_asked else [], ledger)

    def run(
        self,
        tables: Tables,
        ledger: Ledger,
        *,
        max_concurrency: int | None = None,
        **asking: Unpack[Asking],
    ) -> pd.DataFrame:
        """Ask the panel its questions; no row where the recipe asks for none."""
        questions = self.questions(tables) if self.is_asked else []
        if not questions:
            return empty_table(self.table)
        return collect_answers(
            self.table, questions, ledger=ledger, max_concurrency=max_concurrency, **asking
        )


class Verdicts(Judging):
    """Which of two replies is better, under each protocol that compares."""

    name = table = "verdicts"

    def questions(self, tables: Tables) -> list[Question]:
        """Ask about every comparison under its own protocol."""
        comparisons = tables.comparisons
        return [
            question
            for protocol in self.recipe.protocols_that_ask("pair")
            for question in self._about(
                tables, comparisons[comparisons["protocol"] == protocol.name], protocol
            )
        ]

    def _about(
        self,
        tables: Tables,
        comparisons: pd.DataFrame | None,
        protocol: Protocol,
        panel: Sequence[Model] | None = None,
    ) -> list[Question]:
        recipe = self.recipe
        return make_questions(
            tables.histories,
            tables.replies,
            comparisons,
            self.panel if panel is None else panel,
            responders=recipe.list_responders(),
            protocol=protocol,
            dimensions=recipe.protocols[protocol.name],
            repeats=1 if comparisons is None else recipe.judge_repeats,
            seed=recipe.seed,
        )


class Scores(Verdicts):
    """How good a reply is by itself, under each protocol that scores, or item by item."""

    name = table = "scores"

    @property
    def is_asked(self) -> bool:
        """Whether the recipe asks for it: of judges, or of seekers about their conversations."""
        return super().is_asked or bool(self.recipe.protocols_that_ask("reply"))

    def questions(self, tables: Tables) -> list[Question]:
        """Ask about every reply alone."""
        recipe = self.recipe
        if recipe.questions:
            return plan_hits(
                chosen_questions(recipe),
                tables.histories,
                tables.replies,
                self.panel,
                responders=recipe.list_responders(),
                language=recipe.language,
            )
        return [
            question
            for protocol in recipe.protocols_that_ask("reply")
            for panel, asked in self._raters(tables, protocol)
            for question in self._about(asked, None, protocol, panel)
        ]

    def _raters(self, tables: Tables, protocol: Protocol) -> list[tuple[Sequence[Model], Tables]]:
        """Say who is asked about what: each seeker about the conversations that it took part in."""
        if protocol.raters == "judges":
            return [(self.panel, tables)]
        played = tables.histories.set_index("history_id")["seeker"]
        by = tables.replies["history_id"].map(played)
        valid = tables.replies["state"] == "valid"
        return [
            ([seeker], replace(tables, replies=tables.replies[by == seeker.name]))
            for seeker in self.recipe.seekers
            if (valid & (by == seeker.name)).any()
        ]


class Codes(Judging):
    """What a reply does, in the words of codebooks."""

    name, table, by = "codes", "codes", "coder"

    @property
    def panel(self) -> tuple[Model, ...]:
        """Who labels."""
        return self.recipe.coders

    def questions(self, tables: Tables) -> list[Question]:
        """Ask about the replies that the recipe has labelled, once a codebook."""
        recipe, replies = self.recipe, tables.replies
        if recipe.coded:
            replies = replies[replies["responder"].isin(recipe.coded)].reset_index(drop=True)
        books = load_codebooks()
        codebooks = {name: books[name] for name in recipe.codebooks}
        return plan_codes(
            tables.histories, replies, self.panel, codebooks=codebooks, seed=recipe.seed
        )


class Probes(Judging):
    """Verdicts on pairs of which one reply is known to be worse, for a judge's report card."""

    name, table = "probes", "verdicts"

    @property
    def is_asked(self) -> bool:
        """Whether the recipe asks for it."""
        return bool(self.panel) and self.recipe.report_card

    def questions(self, tables: Tables) -> list[Question]:
        """Ask about texts of this project, whatever the tables hold."""
        return probe_questions(self.panel, seed=self.recipe.seed)


class Again(Judging):
    """Verdicts on some pairs once more, in other words and several dimensions at once."""

    name, table = "again", "verdicts"

    @property
    def is_asked(self) -> bool:
        """Whether the recipe asks for it."""
        return bool(self.panel) and self.recipe.asked_again > 0

    def questions(self, tables: Tables) -> list[Question]:
        """Ask about one pair of each of so many histories."""
        recipe = self.recipe
        return plan_again(
            tables.histories,
            tables.replies,
            tables.comparisons,
            self.panel,
            n_pairs=recipe.asked_again,
            dimensions=recipe.protocols.get(AGAIN),
            several=recipe.together or None,
            responders=recipe.list_responders(),
            seed=recipe.seed,
        )


class Rewrites(Judging):
    """Histories told again so that the seeker resists: replies whose text is a conversation.

    Flags say why one is refused.
    """

    name, table, by = "rewrites", "replies", "responder"

    @property
    def panel(self) -> tuple[Model, ...]:
        """Who rewrites."""
        return self.recipe.rewriters

    def questions(self, tables: Tables) -> list[Question]:
        """Make none: a rewrite is asked for as a reply is."""
        return []

    def plan(self, tables: Tables, ledger: Ledger) -> pd.DataFrame:
        """Count the calls of each rewriter."""
        return plan_replies(rewrite_questions(tables.histories, self.panel), ledger)

    def run(
        self,
        tables: Tables,
        ledger: Ledger,
        *,
        max_concurrency: int | None = None,
        **asking: Unpack[Asking],
    ) -> pd.DataFrame:
        """Let each rewriter rewrite each standard history, and check what comes."""
        questions = rewrite_questions(tables.histories, self.panel)
        if not questions:
            return empty_table(self.table)
        rewrites = answer_replies(
            questions, ledger=ledger, max_concurrency=max_concurrency, **asking
        )
        why = check_rewrites(tables.histories, rewrites)["why"]
        return rewrites.assign(flags=rewrites["flags"] + why)


JUDGING: dict[str, type[Judging]] = {
    step.name: step for step in (Verdicts, Scores, Codes, Probes, Again, Rewrites)
}
"""What is asked once the replies are there, in this order."""


def probe_questions(judges: Sequence[Model], *, seed: int) -> list[Question]:
    """Ask judges to compare each probe with its original, in both orders.

    They are asked about ``overall`` alone.
    """
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


def judging_step(recipe: Recipe, name: str) -> Judging:
    """Return the step of a recipe by its name."""
    if name not in JUDGING:
        raise RecipeError(f"There is no step {name!r}; there are {', '.join(JUDGING)}.")
    return JUDGING[name](recipe)
