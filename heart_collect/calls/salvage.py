"""Replace a damaged ledger by a new one of all that is whole in it."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from heart_collect.calls.database import BATCH, batches, calls, now, owners
from heart_collect.calls.ledger import Ledger, connect
from heart_collect.calls.pages import read_whole

__all__: list[str] = []


def salvage_ledger(file: Path) -> tuple[int, Path]:
    """Replace a damaged ledger by a new one of all whole rows.

    Return how many answers it has, and where the damaged one is.
    """
    whole = read_whole(file)
    fresh = file.with_name(f"{file.name}.salvaged")
    for name in (fresh, fresh.with_name(f"{fresh.name}-wal"), fresh.with_name(f"{fresh.name}-shm")):
        name.unlink(missing_ok=True)
    ledger = Ledger(connect(f"sqlite:///{fresh}"))
    bodies = [{"digest": digest, "body": body} for digest, body in whole.bodies.items()]
    ledger.take_in(bodies, list(whole.answers.values()))
    ledger.note(whole.notes)
    with ledger.writing() as connection:
        owner_cells = {
            "host": "salvaged",
            "pid": None,
            "started": None,
            "seen_at": now(ledger.engine),
        }
        money = {"spent_usd": whole.spent, "unsettled_usd": whole.unsettled}
        connection.execute(
            owners.insert().values(owner=f"salvaged {os.getpid()}", **owner_cells, **money)
        )
        if whole.in_batches:
            theirs = {row["owner"]: {**whole.batches[row["owner"]]} for row in whole.in_batches}
            connection.execute(batches.insert(), list(theirs.values()))
            nothing = {"spent_usd": 0.0, "unsettled_usd": 0.0}
            for owner in theirs:
                connection.execute(
                    owners.insert().values(owner=owner, **{**owner_cells, "host": BATCH}, **nothing)
                )
            connection.execute(calls.insert(), whole.in_batches)
    ledger.close()
    damaged = _free_name(file)
    for ending in ("-wal", "-shm", ""):
        with suppress(FileNotFoundError):
            file.with_name(f"{file.name}{ending}").rename(
                damaged.with_name(f"{damaged.name}{ending}")
            )
    fresh.rename(file)
    return len(whole.answers), damaged


def _free_name(file: Path) -> Path:
    """Name the damaged file so that none of the same name is lost."""
    names = (file.with_name(f"{file.name}.damaged{n or ''}") for n in range(1000))
    return next(name for name in names if not name.exists())
