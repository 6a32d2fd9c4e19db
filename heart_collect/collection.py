"""A recipe at work on its run and its ledger: each step is planned before it is run."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal, Unpack

import pandas as pd

from heart_collect.calls.engine import Asking
from heart_collect.calls.ledger import Ledger
from heart_collect.calls.models import Request
from heart_collect.calls.prices import BudgetError
from heart_collect.judging.prompts import load_protocol
from heart_collect.judging.questions import note_schemas, question_requests, takes_schema
from heart_collect.judging.recipe import Recipe
from heart_collect.judging.steps import JUDGING, Judging, Replies, Step, Tables, first_step
from heart_collect.people.raters import add_people
from heart_utils.runs import Run, strictest_licence
from heart_utils.tables import empty_table

__all__: list[str] = []

PLANNED = ("n_calls", "n_recorded", "prompt_tokens", "completion_tokens", "cost_usd", "at_most_usd")
#: Tables that are written together, once both are whole. Codes stay in the ledger: the chapter
#: *What replies do* writes that table, with those that a program computes. Verdicts on probes and
#: on pairs asked again are no part of the run's own.
JUDGED = ("verdicts", "scores")


@dataclass
class Collection:
    """A recipe, the run that it fills, and the ledger through which models are asked.

    ``plan()`` counts what all steps would take. ``answer()``, ``pair()`` and ``judge()`` do the
    work, in this order; ``tables`` holds what they made.
    """

    recipe: Recipe
    run: Run
    ledger: Ledger
    reply_concurrency: int = 1  #: Replies at once; their times suffer above 1.
    #: How models' answers come, as the manifest says it; ``replayed`` where nothing is to be asked.
    origin: Literal["live", "replayed"] = "live"
    tables: dict[str, pd.DataFrame] = field(default_factory=dict, init=False)
    subjects: Tables = field(default_factory=Tables, init=False)  #: What is judged.

    @cached_property
    def histories(self) -> pd.DataFrame:
        """What is answered."""
        return self.recipe.choose_histories()

    @cached_property
    def of_people(self) -> pd.DataFrame:
        """Replies that people wrote in studies of this run; they take part beside the recipe's."""
        return add_people(self.run, empty_table("replies"), self.histories)

    @cached_property
    def replies(self) -> Replies:
        """The first step, whose table the others ask about."""
        return first_step(self.recipe)

    @cached_property
    def judging(self) -> list[Judging]:
        """The steps that follow, in their order."""
        return [step(self.recipe) for step in JUDGING.values()]

    def at_once(self, step: str) -> int | None:
        """Return how many calls of a step may be in flight together; None means no limit."""
        return self.reply_concurrency if step == Replies.name else self.recipe.max_concurrency

    def plan(self) -> pd.DataFrame:
        """Count the calls of each step and model, those to make (``n``), and what they would take.

        Replies that are not there yet are taken to have 40 words; for ``at_most_usd``, as many as
        fit.
        """
        drafts = self.replies.run(Tables(self.histories), self.ledger, mode="dry")
        replies = self._with_people(drafts)
        likely = Tables(self.histories, replies, self.recipe.pair(replies))
        longest = self.replies.longest(likely, self.ledger)
        at_most = replace(likely, replies=longest)
        plans = []
        for step in (self.replies, *self.judging):
            plan = self._plan_of(step, likely)
            if longest is not replies:
                plan["at_most_usd"] = self._plan_of(step, at_most)["at_most_usd"]
            plans.append(plan)
        columns = ["step", "model", *PLANNED]
        not_empty = [plan[columns] for plan in plans if len(plan)]
        plan = (
            pd.concat(not_empty, ignore_index=True) if not_empty else pd.DataFrame(columns=columns)
        )
        return plan.assign(n=plan["n_calls"] - plan["n_recorded"])

    def _plan_of(self, step: Step, tables: Tables) -> pd.DataFrame:
        names = {"responder": "model", "rater": "model"}
        plan = step.plan(tables, self.ledger).rename(columns=names)
        return plan if "step" in plan else plan.assign(step=step.name)

    def answer(self, **asking: Unpack[Asking]) -> pd.DataFrame:
        """Have the histories answered, and give all replies; what people wrote comes last."""
        made = self.replies.made(
            self.histories, self.ledger, max_concurrency=self.reply_concurrency, **asking
        )
        self.tables = {
            "histories": self.histories,
            "responders": self.recipe.list_responders(),
            **made,
        }
        self.subjects = Tables(self.histories, self._with_people(made["replies"]))
        return self.subjects.replies

    def pair(self) -> None:
        """Pair the replies, and write into the run what there is before anything is judged."""
        comparisons = self.recipe.pair(self.subjects.replies)
        self.subjects = replace(self.subjects, comparisons=comparisons)
        self.tables["comparisons"] = comparisons
        self._keep(*self.tables)

    def judge(self, **asking: Unpack[Asking]) -> Iterator[tuple[Judging, pd.DataFrame]]:
        """Ask the questions of each further step, and yield its table as it comes.

        Where the budget ends, what is free goes on, and the error is raised at the end.
        """
        short: BudgetError | None = None
        for step in self.judging:
            try:
                table = step.run(
                    self.subjects,
                    self.ledger,
                    max_concurrency=self.recipe.max_concurrency,
                    **asking,
                )
            except BudgetError as error:
                short = short or error
                continue
            self.tables[step.name] = table
            yield step, table
            if step.name == JUDGED[-1] and short is None:
                self._keep(*JUDGED)
                self._note_judges()
        if short is not None:
            raise short

    def requests(self) -> list[Request]:
        """List the requests to judges and coders, without repairs, which depend on answers."""
        questions = [
            question
            for step in self.judging
            if step.is_asked
            for question in step.questions(self.subjects)
            if question.reply_is_there
        ]
        requests = list(question_requests(questions, self.ledger))
        note_schemas([question.judge for question in questions if question.in_json], self.ledger)
        return requests

    def n_failed(self) -> int:
        """Count the rows that are errors."""
        answers = [self.subjects.replies]
        answers += [self.tables[step.name] for step in self.judging if step.name in self.tables]
        return sum(int((table["state"] == "error").sum()) for table in answers)

    def _with_people(self, replies: pd.DataFrame) -> pd.DataFrame:
        return add_people(self.run, replies, self.histories) if len(self.of_people) else replies

    def _note_judges(self) -> None:
        """Note in the manifest what each judge is, and in which form it is asked.

        Records of calibration are bound to the first. The second decides requests, and other
        ledgers need not agree.
        """
        models = (*self.recipe.judges, *self.recipe.coders)
        in_json = [model for model in models if model.answer_format == "json"]
        by_protocol = {name: load_protocol(name) for name in self.recipe.protocols}
        self.run.record(
            judges={
                model.name: {
                    name: self.recipe.identity_of(model.name, protocol=name)
                    for name, protocol in by_protocol.items()
                    if protocol.raters != "seekers"
                }
                for model in self.recipe.judges
            },
            json_schema={model.name: takes_schema(model, self.ledger) for model in in_json},
        )

    def _keep(self, *names: str) -> None:
        """Write tables of the run, and in its manifest what they rest on, as its chapters do."""
        licence = strictest_licence(list(self.histories["licence"].unique()))
        for name in names:
            rows = self.tables[name]
            was_there = (self.run.folder / f"{name}.parquet").is_file()
            if (len(rows) or was_there) and self.run.write(name, rows):
                about = {
                    "source": f"{self.recipe.histories}, as params/{self.recipe.run}.yaml says",
                    "licence": "CC0-1.0" if name == "responders" else licence,
                    "origin": self._origin_of(name),
                }
                self.run.record(tables={name: about})

    def _origin_of(self, name: str) -> str | dict[str, int]:
        """Describe where the words of a table come from; of replies, how many from where."""
        if name in ("responders", "comparisons"):  # names and kinds, no one's words
            return "drafted"
        if name == "histories":
            if self.recipe.questions or self.recipe.histories in ("heart", "esconv"):
                return "published"
            return "drafted" if self.recipe.histories == "sample" else "live"
        if name != "replies":
            return self.origin
        kinds = self.tables["responders"].set_index("responder")["responder_kind"]
        written_by = {
            "human": "published",
            "source": "published",
            "model": self.origin,
            "reference": "drafted",
            "probe": "drafted",
        }
        origins = self.tables["replies"]["responder"].map(kinds).map(written_by)
        return {str(origin): int(n) for origin, n in origins.value_counts().items()}
