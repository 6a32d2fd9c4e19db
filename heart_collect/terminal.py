"""A collection on a terminal: what it would take, what it may cost, how each step ended."""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pandas as pd

from heart_collect.calls.batch import can_batch
from heart_collect.calls.engine import Asking, ask_all
from heart_collect.calls.keys import allow_hosts, key_fault, settle_hosts
from heart_collect.calls.ledger import Ledger
from heart_collect.calls.models import Model, ModelError
from heart_collect.calls.prices import (
    price_fault,
    settle_money,
)
from heart_collect.calls.records import export_calls, open_ledger
from heart_collect.collection import Collection
from heart_collect.judging.design import DesignError
from heart_collect.judging.recipe import read_recipe
from heart_collect.judging.respond import skipped_histories
from heart_collect.upkeep import INCOMPLETE
from heart_utils.runs import open_run
from heart_utils.settings import read_yaml

__all__: list[str] = []

WAITING = 4  #: The exit code where batches are out.

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


def collect(options: argparse.Namespace) -> int:
    """Collect a run as the options of ``make collect`` say, and return the exit code."""
    allow_hosts(options.allow_host)
    recipe = read_recipe(options.run)
    run = open_run(recipe.run)
    with closing(open_ledger(run, seed_file=recipe.seed_file)) as ledger:
        ledger.log = options.log
        if options.log is not None:
            options.log.touch()  # before anything is paid for
        return _run_steps(Collection(recipe, run, ledger, options.reply_concurrency), options)


def _run_steps(collection: Collection, options: argparse.Namespace) -> int:
    """Estimate what the steps of a collection would take, and run them where that is allowed."""
    _tell_what_is_there(collection)
    plan = collection.plan()
    to_ask = plan[plan["n"] > 0]
    _tell_plan(collection, plan, to_ask)
    recipe = collection.recipe
    models = [model for model in recipe.models if model.name in set(to_ask["model"])]
    if not options.dry_run:
        settle_hosts(models)
    faults = _faults(models)
    if options.dry_run:
        print("".join(f"{fault[0].upper()}{fault[1:]}.\n" for fault in faults), end="")
        return 0
    if faults:
        raise ModelError(f"Nothing was asked: {'; '.join(faults)}.")
    budgets = [usd for usd in (recipe.budget_usd, options.budget) if usd is not None]
    budget = min(budgets, default=None)
    budget = settle_money(models, to_ask, budget, options.yes)
    collection.origin = "live" if models else "replayed"
    return _ask(collection, budget, options)


def _ask(collection: Collection, budget_usd: float | None, options: argparse.Namespace) -> int:
    """Run the steps one after the other, and say how each ended."""
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
        from heart_utils.replies.seekers import say_findings
        from heart_utils.report.seekers import check_seekers

        cards = check_seekers(collection.run)
        print(
            f"Report cards of the seekers: {say_findings(cards)}."
            f" check_seekers({collection.run.name!r}) shows them."
        )
    return _tell_end(collection, options, time.monotonic() - started)


def _tell_end(collection: Collection, options: argparse.Namespace, seconds: float) -> int:
    """Print what the run took and what failed; return 3 if anything did."""
    ledger, used = collection.ledger, _used(collection)
    money = ledger.money()
    spent = f"{money.spent:.4f} USD at list price"
    if money.unsettled:
        spent += f", and at most {money.unsettled:.4f} for calls nobody heard the end of"
    print(_by_model(used))
    print(f"Done in {seconds:.0f} s. Spent on this ledger so far: {spent}.")
    ledger.keep_copy()
    if options.record is not None:
        n = export_calls(ledger, options.record, only_used=True)
        print(f"{n} calls written to {options.record}.")
    failed = collection.n_failed()
    if not failed:
        return 0
    replies, again = collection.subjects.replies, ""
    if _asks_again(ledger, replies, used, options.warned):
        again = "; the same command asks for them again"
    print(
        f"{failed} rows are errors{again}.{_without_words(replies, ledger)}"
        f"{_causes(used, options.warned)}",
        file=sys.stderr,
    )
    return INCOMPLETE


def _batch(collection: Collection, budget_usd: float | None) -> int:
    """Collect the batches that ended, submit what is missing, and say how it stands."""
    requests = collection.requests()
    able = [request for request in requests if can_batch(request.model)]
    calls = ask_all(able, ledger=collection.ledger, mode="batch", budget_usd=budget_usd)
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
    """Print how many histories there are to answer, and what people wrote already."""
    histories, written = collection.histories, collection.of_people
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
    """Print what the steps would take: calls, money, time."""
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


def _faults(models: Sequence[Model]) -> list[str]:
    """Name keys and prices that are wanted for models and are not there."""
    faults = {check(model) for model in models for check in (key_fault, price_fault)}
    return sorted(fault for fault in faults if fault)


def _describe(plan: pd.DataFrame, ledger: Ledger) -> str:
    """Write the plan as text."""
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
    """Bound the time of a plan: steps in sequence, the models of a step in parallel."""
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
    """Print how many rows ended in which state."""
    if len(table):
        counts = table.pivot_table(index=who, columns=column, aggfunc="size", fill_value=0)
        print(f"{len(table)} {what}\n{counts.to_string()}")
    if unread := int(table["state"].eq("unparsed").sum()):
        print(
            f"{unread} of these could not be read as an answer to the protocol;"
            " `--answers raw.jsonl` writes all answers as they came."
        )


def _used(collection: Collection) -> pd.DataFrame:
    """Read how the calls that this run looked up ended, what they took and for which model."""
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
    """List the commonest causes of calls that failed or were not made."""
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


def _asks_again(
    ledger: Ledger, replies: pd.DataFrame, used: pd.DataFrame, warned: Sequence[str]
) -> bool:
    """Check whether another run would ask again: a call failed or was not made."""
    unmade = any("queue was stopped" in words for words in warned)
    return (
        unmade
        or bool((used["status"] == "error").any())
        or not _kept_without_words(replies, ledger)
    )


def _kept_without_words(replies: pd.DataFrame, ledger: Ledger) -> list[tuple[str, str]]:
    """List empty replies whose calls were answered: responder and how the call ended."""
    failed = replies[(replies["state"] == "error") & replies["call_id"].notna()]
    ends = ledger.find(list(failed["call_id"]))
    rows = failed[["responder", "call_id"]].itertuples(index=False)
    return [
        (name, ends[key].status)
        for name, key in rows
        if key in ends and ends[key].status != "error"
    ]


def _without_words(replies: pd.DataFrame, ledger: Ledger) -> str:
    """Explain for which empty replies another run would get no more."""
    kept = _kept_without_words(replies, ledger)
    if not kept:
        return ""
    names = ", ".join(sorted({name for name, _ in kept}))
    return (
        f" {len(kept)} replies of {names} hold no words although their calls were answered, and are"
        " not asked for again: other `options:` for it, such as more `max_tokens` or a lower"
        " `reasoning_effort`, ask anew."
    )


def _by_model(used: pd.DataFrame) -> str:
    """Write a table of what this run's calls took, by model and by who answered under its name.

    Calls count whenever they were made.
    """
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
