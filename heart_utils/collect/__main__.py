"""Collect a run from a terminal: what it would take first, then replies and verdicts, into the ledger and the run's tables.

What people wrote in studies of the run, and ``heart_utils.collect.raters`` imported, is judged along with the rest.

Run as ``make collect RUN=...``; ``python -m heart_utils.collect --help`` lists what else it can do.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pandas as pd

from heart_utils.collect.asking import ask_all
from heart_utils.collect.batch import can_batch
from heart_utils.collect.models import ModelError, Request
from heart_utils.collect.raters import add_people
from heart_utils.collect.recipe import (
    Recipe,
    read_recipe,
    recipe_again,
    recipe_codes,
    recipe_comparisons,
    recipe_histories,
    recipe_ledger,
    recipe_probes,
    recipe_replies,
    recipe_requests,
    recipe_responders,
    recipe_scores,
    recipe_verdicts,
)
from heart_utils.collect.recorded import check_calls, export_calls, merge_calls
from heart_utils.collect.respond import plan_replies, skipped_histories
from heart_utils.runs import Run, open_run, strictest_licence
from heart_utils.tables import empty_table

if TYPE_CHECKING:
    from heart_utils.collect.ledger import Ledger

__all__ = ["main"]

INTERRUPTED, REFUSED, INCOMPLETE, WAITING = 130, 2, 3, 4


def main(arguments: Sequence[str] | None = None) -> int:
    """Collect a run.

    Parameters
    ----------
    arguments : sequence of str, optional
        Those of the command line, if not given.

    Returns
    -------
    int
        0 if all is recorded; 1 after an error; 2 if it was not allowed to spend; 3 if a model's
        queue was stopped, calls failed or ``--check`` found a fault; 4 if batches are out; 130 after Ctrl-C.
    """
    options = _parser().parse_args(arguments)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("default", UserWarning)
            warnings.filterwarnings(
                "ignore", "Item .* on TypedDict class", UserWarning
            )  # pydantic's, of no use to anybody here
            warnings.showwarning = _show_warning
            return _collect(options)
    except KeyboardInterrupt:
        print("\nStopped. What was answered is recorded; the same command goes on where this ended.", file=sys.stderr)
        return INTERRUPTED
    except ValueError as error:
        print(f"collect: {error}", file=sys.stderr)
        return 1


def _collect(options: argparse.Namespace) -> int:
    recipe = read_recipe(options.run)
    run = open_run(recipe.run)
    ledger = recipe_ledger(recipe)
    if options.merge is not None:
        print(f"{merge_calls(ledger, options.merge)} calls of {options.merge} are new in {ledger.url}.")
        return 0
    if options.export is not None:
        print(f"{export_calls(ledger, options.export)} calls written to {options.export}.")
        return 0
    budget = recipe.budget_usd if options.budget is None else options.budget
    histories = recipe_histories(recipe)
    skipped = len(skipped_histories(histories))
    print(f"{recipe.run}: {len(histories)} histories{f', {skipped} of them without a turn to answer' if skipped else ''}.")
    if len(written := add_people(run, empty_table("replies"), histories)):
        tried = int(written["simulated"].sum())
        said = f"{len(written)} replies of people{f', {tried} of them to a rehearsal' if tried else ''}"
        print(f"{said} take part ({', '.join(run.parts('replies'))}).")
    plan = _plan(recipe, run, histories, ledger)
    if options.check:
        return _check(plan, ledger)
    print(_describe(plan, ledger))
    missing = int((plan["n_calls"] - plan["n_recorded"]).sum())
    unset = _unset_keys(recipe, plan)
    if options.dry_run:
        for name in unset:
            print(f"{name}: not set")
        return 0
    if unset:
        raise ModelError(
            f"Nothing was asked: the environment has no {', '.join(unset)}, where a model's key is looked for. Set it."
        )
    if missing and not _allowed(plan, budget, options.yes):
        return REFUSED
    started = time.monotonic()
    how: dict[str, Any] = {"mode": "missing", "budget_usd": budget, "progress": not options.quiet}
    answered = recipe_replies(recipe, histories, ledger=ledger, max_concurrency=options.reply_concurrency, **how)
    replies = add_people(run, answered, histories)
    _tell_states("replies", replies, "responder")
    comparisons = recipe_comparisons(recipe, replies)
    made = {"histories": histories, "responders": recipe_responders(recipe), "replies": answered, "comparisons": comparisons}
    _keep(run, recipe, made, "live" if missing else "replayed")
    if options.batch:
        return _batch(recipe_requests(recipe, histories, replies, comparisons, ledger=ledger), ledger, budget)
    if options.scheduler is not None:
        how["scheduler"] = options.scheduler
    judging: dict[str, Any] = {"ledger": ledger, "max_concurrency": recipe.max_concurrency, **how}
    verdicts = recipe_verdicts(recipe, histories, replies, comparisons, **judging)
    _tell_states("verdicts", verdicts, "rater")
    scores = recipe_scores(recipe, histories, replies, **judging)
    _tell_states("scores", scores, "rater")
    # Codes stay in the ledger: chapter 7 writes that table, with those that a program computes.
    _keep(run, recipe, {**made, "verdicts": verdicts, "scores": scores}, "live" if missing else "replayed")
    codes = recipe_codes(recipe, histories, replies, **judging)
    _tell_states("codes", codes, "coder")
    probed = recipe_probes(recipe, **judging)
    _tell_states("verdicts on probes", probed, "rater")
    again = recipe_again(recipe, histories, replies, comparisons, **judging)
    _tell_states("verdicts on pairs asked again", again, "rater")
    money = ledger.money()
    spent = f"{money.spent:.4f} USD at list price"
    spent += f", and at most {money.unsettled:.4f} for calls nobody heard the end of" if money.unsettled else ""
    print(f"Done in {time.monotonic() - started:.0f} s. Spent on this ledger so far: {spent}.")
    if options.record is not None:
        n = export_calls(ledger, options.record, only_used=True)
        print(f"{n} calls written to {options.record}.")
    asked = (replies, verdicts, scores, codes, probed, again)
    failed = sum(int((table["state"] == "error").sum()) for table in asked)
    if failed:
        print(f"{failed} rows are errors; the same command asks for them again.{_causes(ledger)}", file=sys.stderr)
    return INCOMPLETE if failed else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m heart_utils.collect", description="Collect replies and verdicts.")
    parser.add_argument("run", help="a run; its settings stand in params/RUN.yaml under collect:")
    parser.add_argument("--dry-run", action="store_true", help="say what it would take, and ask nothing")
    parser.add_argument("--yes", action="store_true", help="make paid calls without asking first")
    parser.add_argument("--budget", type=float, metavar="USD", help="what this ledger may spend, ever")
    parser.add_argument("--reply-concurrency", type=int, default=1, metavar="N",
                        help="replies under way at once; more than 1 disturbs the times taken (default: 1)")  # fmt: skip
    parser.add_argument("--batch", action="store_true",
                        help="hand judging to providers' batches at half the price; run again to collect them")  # fmt: skip
    parser.add_argument("--scheduler", metavar="ADDRESS", help="let the workers of a Dask cluster judge; needs HEART_LEDGER")
    parser.add_argument("--record", metavar="FILE", help="afterwards, write the calls that this run used as JSON Lines")
    parser.add_argument("--check", action="store_true", help="say what is damaged, missing or doubled, and ask nothing")
    parser.add_argument("--export", metavar="FILE", help="write all answered calls as JSON Lines, and ask nothing")
    parser.add_argument("--merge", metavar="PLACE",
                        help="take in the calls of another ledger (a .sqlite, .jsonl or URL), and ask nothing")  # fmt: skip
    parser.add_argument("--quiet", action="store_true", help="no progress bars")
    return parser


def _batch(requests: list[Request], ledger: Ledger, budget_usd: float | None) -> int:
    """Collect the batches that ended, submit what is missing, and say how it stands."""
    able = [request for request in requests if can_batch(request.model)]
    calls = ask_all(able, ledger=ledger, mode="batch", budget_usd=budget_usd)
    waiting = sum(call.status == "planned" for call in calls)
    print(f"{len(calls) - waiting} of {len(requests)} judging calls are answered, {waiting} are in batches.")
    left = sorted({request.model.name for request in requests if not can_batch(request.model)})
    if left:
        print(f"Without batches: {', '.join(left)}.")
    print("The same command collects them." if waiting else "Without --batch, the same command asks for the rest.")
    return WAITING if waiting else 0


def _keep(run: Run, recipe: Recipe, tables: Mapping[str, pd.DataFrame], asked: str) -> None:
    """Write tables of a run, and in its manifest what they rest on, as its chapters do; `asked` says when models answered."""
    histories, responders = tables["histories"], tables["responders"].set_index("responder")["responder_kind"]
    licence = strictest_licence(list(histories["licence"].unique()))
    written_by = {"human": "published", "source": "published", "model": asked, "reference": "drafted", "probe": "drafted"}
    origins: dict[str, Any] = {
        "histories": {"sample": "drafted", "heart": "published", "esconv": "published"}.get(recipe.histories, "live"),
        "responders": "drafted",  # names and kinds, nobody's words
        "replies": tables["replies"]["responder"].map(responders).map(written_by).value_counts().to_dict(),
        "comparisons": "drafted",
    }
    for name, rows in tables.items():
        if (len(rows) or (run.folder / f"{name}.parquet").is_file()) and run.write(name, rows):
            of = "CC0-1.0" if name == "responders" else licence
            about = {"source": f"{recipe.histories}, as params/{recipe.run}.yaml says", "licence": of}
            run.record(tables={name: about | {"origin": origins.get(name, asked)}})


def _plan(recipe: Recipe, run: Run, histories: pd.DataFrame, ledger: Ledger) -> pd.DataFrame:
    """Say what each step would take; replies that are not there yet are taken to have 40 words."""
    replies = add_people(run, recipe_replies(recipe, histories, ledger=ledger, mode="dry"), histories)
    asked: dict[str, Any] = {"repeats": recipe.repeats, "instructions": recipe.instructions}
    steps = [("replies", plan_replies(histories, recipe.responders, ledger=ledger, **asked), "responder")]
    comparisons = recipe_comparisons(recipe, replies)
    steps.append(("verdicts", recipe_verdicts(recipe, histories, replies, comparisons, ledger=ledger, plan=True), "rater"))
    steps.append(("scores", recipe_scores(recipe, histories, replies, ledger=ledger, plan=True), "rater"))
    steps.append(("codes", recipe_codes(recipe, histories, replies, ledger=ledger, plan=True), "rater"))
    steps.append(("probes", recipe_probes(recipe, ledger=ledger, plan=True), "rater"))
    again = recipe_again(recipe, histories, replies, comparisons, ledger=ledger, plan=True)
    steps.append(("again", again, "rater"))
    columns = ["step", "model", "n_calls", "n_recorded", "prompt_tokens", "completion_tokens", "cost_usd"]
    tables = [table.assign(step=step).rename(columns={who: "model"}) for step, table, who in steps if len(table)]
    return pd.concat([table[columns] for table in tables], ignore_index=True) if tables else pd.DataFrame(columns=columns)


def _check(plan: pd.DataFrame, ledger: Ledger) -> int:
    """Say what of a run is damaged, doubled or missing."""
    missing = plan.assign(n=plan["n_calls"] - plan["n_recorded"]).query("n > 0")
    faults = check_calls(ledger) + [f"{row.n} {row.step} of {row.model} are missing." for row in missing.itertuples()]
    print("\n".join(faults) if faults else f"All {int(plan['n_calls'].sum())} calls are recorded in {ledger.url}, and sound.")
    return INCOMPLETE if faults else 0


def _describe(plan: pd.DataFrame, ledger: Ledger) -> str:
    """Write the plan as text."""
    if plan.empty or not (plan["n_calls"] > plan["n_recorded"]).any():
        return f"Nothing to do: all {int(plan['n_calls'].sum())} calls are recorded in {ledger.url}."
    shown = plan.assign(cost_usd=[f"{usd:.2f}" if pd.notna(usd) else "price not known" for usd in plan["cost_usd"]])
    total = plan["cost_usd"].sum(skipna=False)
    cost = f"{total:.2f} USD at list price" if pd.notna(total) else "a price that is not known"
    return (
        f"{shown.to_string(index=False)}\n{int(plan['n_calls'].sum() - plan['n_recorded'].sum())} calls to make, for {cost}. "
        f"Tokens are estimated at four characters each, and answers taken to fill their room; repair questions come on top."
    )


def _unset_keys(recipe: Recipe, plan: pd.DataFrame) -> list[str]:
    """Name the environment variables that calls to make need and that are not set."""
    asked = set(plan.loc[plan["n_calls"] > plan["n_recorded"], "model"])
    models = [model for model in (*recipe.responders, *recipe.judges, *recipe.coders) if model.name in asked]
    return sorted({model.api_key_env for model in models if model.api_key_env and not os.environ.get(model.api_key_env)})


def _allowed(plan: pd.DataFrame, budget_usd: float | None, yes: bool) -> bool:
    """Ask before money is spent."""
    open_ = plan[plan["n_calls"] > plan["n_recorded"]]
    paid = open_[open_["cost_usd"] != 0]
    if paid.empty or yes:
        return True
    limit = "without a budget" if budget_usd is None else f"and no more than {budget_usd:g} USD"
    question = f"{int((paid['n_calls'] - paid['n_recorded']).sum())} calls cost money, {limit}."
    if not sys.stdin.isatty():
        print(f"collect: {question} Nobody is there to ask; --yes allows it.", file=sys.stderr)
        return False
    return input(f"{question} Make them? [y/N] ").strip().lower() in ("y", "yes")


def _tell_states(what: str, table: pd.DataFrame, who: str) -> None:
    """Print how many rows ended in which state."""
    if len(table):
        counts = table.pivot_table(index=who, columns="state", aggfunc="size", fill_value=0)
        print(f"{len(table)} {what}\n{counts.to_string()}")


def _causes(ledger: Ledger) -> str:
    """Tell the three commonest causes of the calls that failed."""
    failed = Counter(call.error for call in ledger.find(list(ledger.used)).values() if call.status == "error")
    return "".join(f"\n  {n} times: {error}" for error, n in failed.most_common(3))


def _show_warning(message: Any, category: type[Warning], *_: Any, **__: Any) -> None:
    if category is UserWarning:  # not a library's deprecations, whatever its threads did to the filters
        print(f"collect: {message}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
