"""A recipe at work on its run and ledger, and what a terminal is told."""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Literal, Unpack

import pandas as pd

from heart_collect.calls.batch import ask_in_batches, can_batch
from heart_collect.calls.commands import (
    allow_hosts,
    check_calls,
    export_calls,
    find_faults,
    keep_copy,
    merge_calls,
    restore_copy,
    settle_hosts,
    settle_money,
    write_answers,
)
from heart_collect.calls.database import LedgerError, ledger_file
from heart_collect.calls.engine import Asking
from heart_collect.calls.ledger import Ledger, open_ledger
from heart_collect.calls.models import Request
from heart_collect.calls.prices import BudgetError
from heart_collect.judging.design import DesignError
from heart_collect.judging.judge import note_schemas, question_requests, takes_schema
from heart_collect.judging.prompts import load_protocol
from heart_collect.judging.recipe import Recipe, read_recipe
from heart_collect.judging.respond import plan_replies, skipped_histories
from heart_collect.judging.rewriting import collect_rewrites, rewrite_questions
from heart_collect.judging.steps import Judging, Replies, Tables, first_step, judging_steps
from heart_collect.people.assignment import add_people
from heart_utils.runs import Run, may_publish, open_run, strictest_licence
from heart_utils.settings import read_yaml
from heart_utils.tables import empty_table

__all__: list[str] = []

PLANNED = ("n_calls", "n_recorded", "prompt_tokens", "completion_tokens", "cost_usd", "at_most_usd")
#: Tables that are written together, once both are whole. Codes stay in the ledger: the chapter
#: *What replies do* writes that table, with those that a program computes. Verdicts on probes and
#: on pairs asked again are no part of the run's own.
JUDGED = ("verdicts", "scores")

INCOMPLETE = 3  #: The exit code where calls failed, or something is damaged or missing.
WAITING = 4  #: The exit code where batches are out.
ERRANDS = ("answers", "check", "export", "merge", "restore", "write_off")  #: Options, one at most.

TOKENS = {
    "prompt_tokens": "prompt tokens",
    "cached_tokens": "of them cached",
    "completion_tokens": "answer tokens",
}
USED = ("model", "status", "error", "served_model", "fingerprint", "estimated", "cost_usd", *TOKENS)
"""Columns of the calls that the table at the end of a run is made of, tokens under other names."""

TEXTS: dict[str, str] = read_yaml(
    Path(__file__).with_name("collect.yaml"), dict[str, str], ValueError
)
CALLED = {"probes": "verdicts on probes", "again": "verdicts on pairs asked again"}

#: Seconds that a quick and a slow call take to a model that the ledger has too few answers of.
ASSUMED_S = (1.0, 30.0)

COMMONEST = 5  #: So many causes of failure are told, the commonest first.


class Rewrites(Judging):
    """Histories told again so that the seeker resists: replies that are conversations."""

    def plan(self, tables: Tables, ledger: Ledger) -> pd.DataFrame:
        return plan_replies(rewrite_questions(tables.histories, self.recipe.rewriters), ledger)

    def run(
        self,
        tables: Tables,
        ledger: Ledger,
        *,
        max_concurrency: int | None = None,
        **asking: Unpack[Asking],
    ) -> pd.DataFrame:
        return collect_rewrites(
            tables.histories,
            self.recipe.rewriters,
            ledger=ledger,
            max_concurrency=max_concurrency,
            **asking,
        )


def rewriting_step(recipe: Recipe) -> Rewrites:
    return Rewrites(recipe, "rewrites", "replies", bool(recipe.rewriters), by="responder")


@dataclass
class Collection:
    """A recipe, its run, and the ledger through which models are asked.

    Call ``answer()``, ``pair()`` and ``judge()`` in this order; ``tables`` holds what they made.
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
        return self.recipe.choose_histories()

    @cached_property
    def replies(self) -> Replies:
        """The first step, whose table the others ask about."""
        return first_step(self.recipe)

    @cached_property
    def judging(self) -> list[Judging]:
        """The steps that follow, in order."""
        return [*judging_steps(self.recipe).values(), rewriting_step(self.recipe)]

    def at_once(self, step: str) -> int | None:
        """Return how many calls may be in flight; None: no limit."""
        return self.reply_concurrency if step == Replies.name else self.recipe.max_concurrency

    def plan(self) -> pd.DataFrame:
        """Count each step's and model's calls, those to make (``n``), and their cost.

        Missing replies count 40 words; for ``at_most_usd``, as many as fit.
        """
        drafts = self.replies.made(self.histories, self.ledger, mode="dry")["replies"]
        replies = add_people(self.run, drafts, self.histories)
        likely = Tables(self.histories, replies, self.recipe.pair(replies))
        longest = self.replies.longest(likely, self.ledger)
        at_most = replace(likely, replies=longest)
        plans = []
        steps: list[Replies | Judging] = [self.replies, *self.judging]
        for step in steps:
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

    def _plan_of(self, step: Replies | Judging, tables: Tables) -> pd.DataFrame:
        names = {"responder": "model", "rater": "model"}
        plan = step.plan(tables, self.ledger).rename(columns=names)
        return plan if "step" in plan else plan.assign(step=step.name)

    def answer(self, **asking: Unpack[Asking]) -> pd.DataFrame:
        """Have the histories answered, and give all replies, people's last."""
        made = self.replies.made(
            self.histories, self.ledger, max_concurrency=self.reply_concurrency, **asking
        )
        self.tables = {
            "histories": self.histories,
            "responders": self.recipe.list_responders(),
            **made,
        }
        self.subjects = Tables(
            self.histories, add_people(self.run, made["replies"], self.histories)
        )
        return self.subjects.replies

    def pair(self) -> None:
        """Pair the replies, and write into the run what precedes judging."""
        comparisons = self.recipe.pair(self.subjects.replies)
        self.subjects = replace(self.subjects, comparisons=comparisons)
        self.tables["comparisons"] = comparisons
        self._keep(*self.tables)

    def judge(self, **asking: Unpack[Asking]) -> Iterator[tuple[Judging, pd.DataFrame]]:
        """Ask each further step, and yield its table.

        Where the budget ends, what is free goes on; the error comes at the end.
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
        """List requests to judges and coders, without repairs."""
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
        answers = [self.subjects.replies]
        answers += [self.tables[step.name] for step in self.judging if step.name in self.tables]
        return sum(int((table["state"] == "error").sum()) for table in answers)

    def _note_judges(self) -> None:
        """Note in the manifest what each judge is, and its form of question."""
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
        """Say where a table's words come from; of replies, how many."""
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


def work(options: argparse.Namespace) -> int:
    """Collect a run, or look after its ledger; return the exit code."""
    allow_hosts(options.allow_host)
    recipe = read_recipe(options.run)
    run = open_run(recipe.run)
    if options.restore:
        return _restore(run)
    with closing(open_ledger(run, seed_file=recipe.seed_file)) as ledger:
        collection = Collection(recipe, run, ledger, options.reply_concurrency)
        if any(getattr(options, name) not in (None, False) for name in ERRANDS):
            return _look_after(collection, options)
        ledger.log = options.log
        if options.log is not None:
            options.log.touch()  # before anything is paid for
        return _run_steps(collection, options)


def _look_after(collection: Collection, options: argparse.Namespace) -> int:
    """Do one of :data:`ERRANDS`, without asking anything."""
    ledger = collection.ledger
    if options.check:
        return _check(collection)
    if options.merge is not None:
        n = merge_calls(ledger, options.merge)
        print(f"{n} calls of {options.merge} are new in {ledger.url}.")
    elif options.write_off:
        print(
            f"{ledger.write_off():.4f} USD for calls nobody heard the end of count against no"
            " budget any more."
        )
    elif options.export is not None:
        print(f"{export_calls(ledger, options.export)} calls written to {options.export}.")
    else:
        _write_answers(collection.run, ledger, options.answers)
    return 0


def _check(collection: Collection) -> int:
    ledger, plan = collection.ledger, collection.plan()
    faults = check_calls(ledger)
    missing = plan[plan["n"] > 0]
    faults += [
        f"{row.n} {row.step} of {row.model} are missing, failed or damaged."
        for row in missing.itertuples()
    ]
    print(
        "\n".join(faults)
        if faults
        else f"All {int(plan['n_calls'].sum())} calls are recorded in {ledger.url}, and sound."
    )
    return INCOMPLETE if faults else 0


def _restore(run: Run) -> int:
    file = ledger_file(run)
    if file is None:
        raise LedgerError("The ledger is on a PostgreSQL server, which keeps copies of its own.")
    damaged = restore_copy(file)
    print(
        f"The copy is in the place of {file}; the damaged file is kept as {damaged.name}. What was"
        " asked since the copy is asked again, and what it cost counts against no budget."
    )
    return 0


def _write_answers(run: Run, ledger: Ledger, file: str) -> None:
    written = write_answers(run, ledger, file)
    lost = (
        f" {written['lost']} answers that its tables name are not in {ledger.url}."
        if written["lost"]
        else ""
    )
    print(
        f"{written['n']} answers of models are in {file}, a line each.{lost} They may quote the"
        " conversations that they answer."
    )
    open_to_all = may_publish(written["licence"])
    allowed = (
        "may be passed on under it"
        if open_to_all
        else "may NOT be passed on, and only you can read the file"
    )
    print(f"The strictest licence of those is {written['licence']}: the answers {allowed}.")


def _run_steps(collection: Collection, options: argparse.Namespace) -> int:
    _tell_what_is_there(collection)
    plan = collection.plan()
    to_ask = plan[plan["n"] > 0]
    _tell_plan(collection, plan, to_ask)
    recipe = collection.recipe
    models = [model for model in recipe.models if model.name in set(to_ask["model"])]
    if options.dry_run:
        faults = find_faults(models)
        print("".join(f"{fault[0].upper()}{fault[1:]}.\n" for fault in faults), end="")
        return 0
    settle_hosts(models)
    budgets = (recipe.budget_usd, options.budget)
    budget = settle_money(models, to_ask, budgets, options.yes)
    collection.origin = "live" if models else "replayed"
    return _ask(collection, budget, options)


def _ask(collection: Collection, budget_usd: float | None, options: argparse.Namespace) -> int:
    started = time.monotonic()
    asking: Asking = {"budget_usd": budget_usd, "progress": not options.quiet}
    replies, what = collection.answer(**asking), "replies"
    if (talks := collection.tables.get("conversations")) is not None:
        what = "conversations"
        _tell_states(what, talks, ["responder", "seeker"], "stop_reason")
    _tell_states(what, replies, "responder")
    try:
        collection.pair()
    except DesignError as error:
        causes = _causes(_used(collection), options.warned)
        raise DesignError(f"{error}{causes}") from None
    if options.batch:
        return _batch(collection, budget_usd)
    judging: Asking = {**asking, "scheduler": options.scheduler}
    for step, table in collection.judge(**judging):
        _tell_states(CALLED.get(step.name, step.name), table, step.by)
    if talks is not None and len(talks):
        # for a run with seekers, and no other: they bring SciPy
        from heart_utils.replies.conversations import say_findings
        from heart_utils.report.seekers import check_seekers

        cards = check_seekers(collection.run)
        print(
            f"Report cards of the seekers: {say_findings(cards)}."
            f" check_seekers({collection.run.name!r}) shows them."
        )
    return _tell_end(collection, options, time.monotonic() - started)


def _tell_end(collection: Collection, options: argparse.Namespace, seconds: float) -> int:
    ledger, used = collection.ledger, _used(collection)
    money = ledger.money()
    spent = f"{money.spent:.4f} USD at list price"
    if money.unsettled:
        spent += f", and at most {money.unsettled:.4f} for calls nobody heard the end of"
    print(_by_model(used))
    print(f"Done in {seconds:.0f} s. Spent on this ledger so far: {spent}.")
    keep_copy(ledger)
    if options.record is not None:
        n = export_calls(ledger, options.record, only_used=True)
        print(f"{n} calls written to {options.record}.")
    failed = collection.n_failed()
    if not failed:
        return 0
    kept = _kept_without_words(collection.subjects.replies, ledger)
    stopped = any("queue was stopped" in words for words in options.warned)
    asks_again = stopped or bool((used["status"] == "error").any()) or not kept
    again = "; the same command asks for them again" if asks_again else ""
    without_words = ""
    if kept:
        without_words = (
            f" {len(kept)} replies of {', '.join(sorted(set(kept)))} hold no words although their"
            " calls were answered, and are not asked for again: other `options:` for it, such as"
            " more `max_tokens` or a lower `reasoning_effort`, ask anew."
        )
    causes = _causes(used, options.warned)
    print(f"{failed} rows are errors{again}.{without_words}{causes}", file=sys.stderr)
    return INCOMPLETE


def _batch(collection: Collection, budget_usd: float | None) -> int:
    """Collect batches that ended, and submit what is missing."""
    requests = collection.requests()
    able = [request for request in requests if can_batch(request.model)]
    calls = ask_in_batches(able, ledger=collection.ledger, budget_usd=budget_usd)
    waiting = sum(call.status == "planned" for call in calls)
    print(
        f"{len(calls) - waiting} of {len(requests)} judging calls are answered, {waiting} are in"
        " batches."
    )
    left = sorted({request.model.name for request in requests if not can_batch(request.model)})
    if left:
        print(f"Without batches: {', '.join(left)}.")
    print(
        "The same command collects them."
        if waiting
        else "Without --batch, the same command asks for the rest."
    )
    return WAITING if waiting else 0


def _tell_what_is_there(collection: Collection) -> None:
    histories = collection.histories
    written = add_people(collection.run, empty_table("replies"), histories)
    skipped = len(skipped_histories(histories))
    without = f", {skipped} of them without a turn to answer" if skipped else ""
    seekers = len(collection.recipe.seekers)
    each = f", each start with each of {seekers} seekers" if seekers > 1 else ""
    print(f"{collection.recipe.run}: {len(histories)} histories{without}{each}.")
    if len(written):
        tried = int(written["simulated"].sum())
        rehearsal = f", {tried} of them to a rehearsal" if tried else ""
        studies = ", ".join(collection.run.parts("replies"))
        print(f"{len(written)} replies of people{rehearsal} take part ({studies}).")


def _tell_plan(collection: Collection, plan: pd.DataFrame, to_ask: pd.DataFrame) -> None:
    recipe, ledger = collection.recipe, collection.ledger
    print(_describe(plan, ledger))
    if len(to_ask):
        print(_describe_time(to_ask, collection))
    if n := len(ledger.damaged):
        print(
            f"{n} stored answers are damaged: `make collect RUN={recipe.run}` asks again; with"
            " ARGS=--check it says which."
        )
    if not recipe.judges:
        print(
            "The settings name no judges, so replies are collected and nobody is asked to judge"
            " them."
        )


def _describe(plan: pd.DataFrame, ledger: Ledger) -> str:
    if not plan["n"].sum():
        return (
            f"Nothing to do: all {int(plan['n_calls'].sum())} calls are recorded in {ledger.url}."
        )
    money = plan[["cost_usd", "at_most_usd"]]
    total, most = money.sum()
    if money.isna().any(axis=None):
        cost = TEXTS["unpriced"] + (
            f" (what is known comes to {total:.2f}, at most {most:.2f})" if most else ""
        )
    else:
        cost = TEXTS["cost"].format(total=total, most=most)
    priced = plan.drop(columns="n").assign(
        **money.map(lambda usd: f"{usd:.2f}" if pd.notna(usd) else "price not known")
    )
    return f"{priced.to_string(index=False)}\n{int(plan['n'].sum())} calls to make, for {cost}."


def _describe_time(plan: pd.DataFrame, collection: Collection) -> str:
    """Bound a plan's time: steps in sequence, a step's models in parallel."""
    models = {model.name: model for model in collection.recipe.models}
    seconds = {
        name: collection.ledger.quick_and_slow(models[name]) for name in plan["model"].unique()
    }
    plan = plan.assign(tokens=plan["prompt_tokens"] + plan["completion_tokens"])
    ends = [0.0, 0.0]
    for step, rows in (
        plan.groupby(["step", "model"], as_index=False)[["n", "tokens"]].sum().groupby("step")
    ):
        together = collection.at_once(str(step))
        # turns come one after the other
        rounds = collection.recipe.exchanges if str(step).startswith("turns") else 1
        # an answer that cannot be read is asked for once more: at the most, each is
        for end in (0, 1):
            busy, longest = 0.0, 0.0
            for name, n, tokens in rows[["model", "n", "tokens"]].itertuples(index=False):
                model, takes = models[name], (1 + end) * n * (seconds[name] or ASSUMED_S)[end]
                minutes = max(
                    n / (model.requests_per_minute or math.inf),
                    tokens / (model.tokens_per_minute or math.inf),
                )
                at_once = min(model.max_concurrency, max(n / rounds, 1))
                longest = max(longest, takes / at_once, 60 * (1 + end) * minutes)
                busy += takes
            ends[end] += max(longest, busy / (together or math.inf))
    scale, unit = (3600, "hours") if ends[1] >= 3600 else (60, "minutes")
    unknown = ", ".join(sorted(name for name, takes in seconds.items() if takes is None))
    assumed = TEXTS["assumed"].format(models=unknown, quick=ASSUMED_S[0], slow=ASSUMED_S[1])
    assumed = f" ({assumed})" if unknown else ""
    return TEXTS["time"].format(
        least=ends[0] / scale, most=ends[1] / scale, unit=unit, assumed=assumed
    )


def _tell_states(
    what: str, table: pd.DataFrame, who: str | list[str], column: str = "state"
) -> None:
    if len(table):
        counts = table.pivot_table(index=who, columns=column, aggfunc="size", fill_value=0)
        print(f"{len(table)} {what}\n{counts.to_string()}")
    if unread := int(table["state"].eq("unparsed").sum()):
        print(
            f"{unread} of these could not be read as an answer to the protocol;"
            " `--answers raw.jsonl` writes all answers as they came."
        )


def _used(collection: Collection) -> pd.DataFrame:
    names: dict[str, dict[str, None]] = {}
    for model in collection.recipe.models:
        names.setdefault(model.identity_digest, {})[model.name] = None
    table = pd.DataFrame(collection.ledger.read_used(USED), columns=list(USED))
    return table.assign(
        model=table["model"]
        .map({digest: ", ".join(mine) for digest, mine in names.items()})
        .fillna("(of an earlier recipe)")
    )


def _causes(used: pd.DataFrame, warned: Sequence[str]) -> str:
    causes = (
        used[used["status"] == "error"].value_counts(["model", "error"], dropna=False).reset_index()
    )
    lines = [
        f"{n} times: {model}: {error}" for model, error, n in causes.head(COMMONEST).to_numpy()
    ]
    more = len(causes) - COMMONEST
    lines += [f"and {more} causes more"] if more > 0 else []
    lines += [words for words in warned if "queue was stopped" in words]
    return "".join(f"\n  {line}" for line in lines)


def _kept_without_words(replies: pd.DataFrame, ledger: Ledger) -> list[str]:
    """Name the responder of each empty reply whose call was answered."""
    failed = replies[(replies["state"] == "error") & replies["call_id"].notna()]
    ends = ledger.find(list(failed["call_id"]))
    rows = failed[["responder", "call_id"]].itertuples(index=False)
    return [name for name, key in rows if key in ends and ends[key].status != "error"]


def _by_model(used: pd.DataFrame) -> str:
    if used.empty:
        return "No call of this run is recorded."
    ends = {"refused": used["status"] == "refused", "failed": used["status"] == "error"}
    table = (
        used.assign(calls=1, **ends)[["model", "calls", *TOKENS, "cost_usd", *ends]]
        .groupby("model")
        .sum()
    )
    usd = table["cost_usd"].map("{:.4f}".format)
    table = (
        table.map("{:,.0f}".format)
        .assign(cost_usd=usd)
        .rename(columns={**TOKENS, "cost_usd": "USD"})
        .reset_index()
    )
    notes = [f"The calls of this run, whenever they were made\n{table.to_string(index=False)}"]
    for name, rows in used.groupby("model"):
        guessed = int(rows["estimated"].eq(True).sum())
        if guessed:
            notes.append(
                f"{name}: of {guessed} answers no tokens were counted; their cost is an estimate."
            )
        for column, what in (("served_model", "model"), ("fingerprint", "system fingerprint")):
            names_used = rows[column].value_counts()
            if len(names_used) > 1:
                changes = ", ".join(f"{word} ({n} calls)" for word, n in names_used.items())
                notes.append(f"{name}: its {what} changed in the middle of the run: {changes}.")
    return "\n".join(notes)
