"""What is done with the ledger of a run without asking anything: check, export, merge, restore."""

from __future__ import annotations

import argparse
from contextlib import closing

from heart_collect.calls.database import LedgerError, ledger_file
from heart_collect.calls.ledger import Ledger, restore_copy
from heart_collect.calls.records import check_calls, export_calls, merge_calls, open_ledger
from heart_collect.collection import Collection
from heart_collect.judging.answers import write_answers
from heart_collect.judging.recipe import read_recipe
from heart_utils.runs import Run, may_publish, open_run

__all__: list[str] = []

INCOMPLETE = 3  #: The exit code where calls failed, or something is damaged or missing.
ERRANDS = ("answers", "check", "export", "merge", "restore", "write_off")  #: Options, one at most.


def asks_nothing(options: argparse.Namespace) -> bool:
    """Check whether one of the options is given that look after a ledger."""
    return any(getattr(options, name) not in (None, False) for name in ERRANDS)


def look_after(options: argparse.Namespace) -> int:
    """Do what one of :data:`ERRANDS` says, and return the exit code."""
    recipe = read_recipe(options.run)
    run = open_run(recipe.run)
    if options.restore:
        return _restore(run)
    with closing(open_ledger(run, seed_file=recipe.seed_file)) as ledger:
        if options.check:
            return _check(Collection(recipe, run, ledger))
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
            _write_answers(run, ledger, options.answers)
    return 0


def _check(collection: Collection) -> int:
    """Print what of a run is damaged, doubled or missing."""
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
    """Put the copy of a damaged ledger in its place."""
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
    """Write the raw answers of a run, and print what the file holds and whether to share it."""
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
