"""What commands do with ledgers, and ask a person before money is spent or a key goes out."""

from __future__ import annotations

import json
import math
import os
import sqlite3
import sys
import warnings
from collections.abc import Iterable, Sequence
from contextlib import closing, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypedDict

import pandas as pd

from heart_collect.calls.database import ANSWERED, LedgerError, calls, chunks, parts
from heart_collect.calls.ledger import ASKED, Ledger, copy_of, import_calls, open_ledger
from heart_collect.calls.models import (
    ALLOWED,
    Model,
    ModelError,
    NotAllowedError,
    foreign_host,
    hosts_file,
    key_fault,
)
from heart_collect.calls.prices import BudgetError, check_prices, is_paid, price_fault
from heart_utils.identities import refuse_identities
from heart_utils.runs import (
    Run,
    RunError,
    known_people,
    may_publish,
    strictest_licence,
    write_atomically,
)
from heart_utils.settings import JsonObject, extra

with extra("collect"):
    import sqlalchemy as sa

__all__ = ["write_answers"]

TABLES = ("replies", "verdicts", "scores")  #: Those whose rows come from calls.
PLACES = (
    "history_id",
    "reply_id",
    "comparison_id",
    "pair_id",
    "responder",
    "rater",
    "protocol",
    "repeat",
)
"""What a line says of where its answer belongs, as far as all rows that were read from it agree."""
CALL = (
    "status",
    "text",
    "finish_reason",
    "error",
    "served_model",
    "attempts",
    "prompt_tokens",
    "completion_tokens",
    "cost_usd",
)


def export_calls(ledger: Ledger, file: str | os.PathLike[str], *, only_used: bool = False) -> int:
    """Write a ledger's answers as JSON Lines, sorted by key."""
    wanted = (
        sa.select(calls.c.key, *(calls.c[name] for name in ASKED))
        .where(ANSWERED)
        .order_by(calls.c.key)
    )
    request_rows = {
        row.key: row._asdict()
        for row in ledger.rows(wanted)
        if row.key in ledger.used or not only_used
    }
    known = {row[name] for row in request_rows.values() for name in ("model", "options")}
    bodies = ledger.rows(sa.select(parts).order_by(parts.c.digest))
    lines = [
        json.dumps({"part": digest, "body": body}) for digest, body in bodies if digest in known
    ]
    for key, call in sorted(ledger.find(list(request_rows)).items()):
        cells = {**asdict(call), **request_rows[key]}
        del cells["call_id"]
        lines.append(
            json.dumps(
                {name: cell for name, cell in sorted(cells.items()) if cell is not None},
                ensure_ascii=False,
            )
        )
    write_atomically(Path(file), "".join(f"{line}\n" for line in lines).encode())
    return len(request_rows)


def merge_calls(ledger: Ledger, path_or_url: str | os.PathLike[str]) -> int:
    """Import answers of another ledger or JSON Lines; damaged ones are left out."""
    name, new = os.fspath(path_or_url), 0
    if "://" not in name:
        if not Path(name).is_file():
            raise LedgerError(f"{name}: there is no such file.")
        if not name.endswith(".sqlite"):
            return import_calls(ledger, name)
        name = f"sqlite:///{name}"
    other = open_ledger(name)
    bodies = [row._asdict() for row in other.rows(sa.select(parts))]
    for chunk in chunks(sorted(other.statuses())):
        other.find(chunk)
        rows = [
            row._asdict()
            for row in other.rows(sa.select(calls).where(ANSWERED), chunk)
            if row.key not in other.damaged
        ]
        new += ledger.take_in(bodies, rows)
    other.close()
    return new


def check_calls(ledger: Ledger) -> list[str]:
    """Find damaged and doubled answers."""
    for chunk in chunks(sorted(ledger.statuses())):
        ledger.find(chunk)
    findings = [] if ledger.shared else ledger.rows(sa.text("PRAGMA integrity_check(5)"))
    faults = [f"The file {ledger.url}: {line}." for (line,) in findings if line != "ok"]
    # `+ ''` keeps SQLite from counting in the index, where a row that is doubled may stand once.
    key = calls.c.key + ""
    doubled = ledger.rows(sa.select(key).group_by(key).having(sa.func.count() > 1))
    faults += [f"Call {key} is doubled." for (key,) in doubled]
    models = sa.select(calls.c.key, calls.c.tag, parts.c.body).outerjoin_from(
        calls, parts, calls.c.model == parts.c.digest
    )
    for key, tag, body in ledger.rows(models, sorted(ledger.damaged)):
        model = json.loads(body or "{}").get("model", "a model that is not known")
        faults.append(
            f"Call {key} to {model}{f' about {tag}' if tag else ''} is damaged; `make collect` asks"
            " again."
        )
    return faults


def keep_copy(ledger: Ledger) -> Path | None:
    """Copy a sound SQLite ledger beside it, whole or not at all; None of a server's."""
    url = ledger.engine.url
    if ledger.shared or not url.database:
        return None
    file = Path(url.database)
    copy, part = copy_of(file), file.with_name(f"{file.name}.part")
    part.unlink(missing_ok=True)
    part.touch(mode=0o600)
    try:
        with closing(sqlite3.connect(file)) as source, closing(sqlite3.connect(part)) as target:
            source.backup(target)
            [found] = target.execute("PRAGMA quick_check(1)").fetchone()
        if found != "ok":
            raise sqlite3.DatabaseError(found)
        os.replace(part, copy)
    except (sqlite3.DatabaseError, OSError) as error:
        part.unlink(missing_ok=True)
        warnings.warn(f"{file} could not be copied ({error}).", stacklevel=2)
        return None
    return copy


def restore_copy(file: Path) -> Path:
    """Put the copy in a damaged ledger's place; return where that one is."""
    copy = copy_of(file)
    if not copy.is_file():
        raise LedgerError(f"{file} has no copy; expected {copy.name} beside it.")
    names = (file.with_name(f"{file.name}.damaged{n or ''}") for n in range(1000))
    damaged = next(name for name in names if not name.exists())
    for ending in ("-wal", "-shm", ""):  # what belongs to the damaged file goes with it
        with suppress(FileNotFoundError):
            file.with_name(f"{file.name}{ending}").rename(f"{damaged}{ending}")
    copy.rename(file)
    return damaged


def allow_hosts(hosts: Iterable[str]) -> None:
    """Let keys go to these hosts, in this process and its children."""
    os.environ[ALLOWED] = " ".join([os.environ.get(ALLOWED, ""), *hosts]).strip()


def settle_hosts(models: Sequence[Model], *, command: str = "collect") -> None:
    """Ask once for each host that is not a provider's, and record what is allowed."""
    for what, host in sorted({found for one in models if (found := foreign_host(one))}):
        names = sorted({one.name for one in models if foreign_host(one) == (what, host)})
        said = _ask_person(
            f"{', '.join(names)} would send {what} to {host}, which is not known as its"
            " provider's.",
            "Allow it from now on? [y/N]",
            "Nothing was asked, and nobody is there to ask: --yes does not allow it,"
            f" --allow-host {host} does.",
            command,
        )
        if said not in ("y", "yes"):
            raise NotAllowedError("Nothing was asked.")
        file = hosts_file()
        file.parent.mkdir(parents=True, exist_ok=True)
        with file.open("a", encoding="utf-8") as lines:
            lines.write(f"{host} {what}\n")
        print(f"Written down in {file}.")


def find_faults(models: Iterable[Model]) -> list[str]:
    """List keys and prices that are missing."""
    both = {fault for one in models for fault in (key_fault(one), price_fault(one)) if fault}
    return sorted(both)


def settle_money(
    models: Sequence[Model], plan: pd.DataFrame, budgets: Iterable[float | None], yes: bool
) -> float | None:
    """Refuse models without a key or a price, and ask for money; return the least budget."""
    if faults := find_faults(models):
        raise ModelError(f"Nothing was asked: {'; '.join(faults)}.")
    budget_usd = min((usd for usd in budgets if usd is not None), default=None)
    paid = [model for model in models if is_paid(model)]
    if not paid:
        return budget_usd
    try:
        check_prices(paid, math.inf if budget_usd is None else budget_usd)
        theirs = plan[plan["model"].isin([model.name for model in paid])]
        what = f"{int(theirs['n'].sum())} calls cost money"
        if budget_usd is None:
            said = _ask_person(
                f"{what}, at most {theirs['at_most_usd'].sum():.2f} USD.",
                "What may they cost, in USD? [nothing]",
                "No budget is set. Nothing was asked: set `budget_usd:` in the run's settings, or"
                " give --budget USD.",
            )
            budget_usd = float(said or 0)
            allowed = math.isfinite(budget_usd) and budget_usd > 0
        else:
            question = f"{what}, and no more than {budget_usd:g} USD."
            remedy = "Nobody is there to ask; --yes allows it."
            allowed = yes or _ask_person(question, "Make them? [y/N]", remedy) in ("y", "yes")
    except ValueError as error:
        raise BudgetError(f"Nothing was asked. {error}") from None
    if not allowed:
        raise NotAllowedError("Nothing was asked.")
    return budget_usd


def _ask_person(question: str, prompt: str, remedy: str, command: str = "collect") -> str:
    if sys.stdin is None or not sys.stdin.isatty():
        raise NotAllowedError(f"{command}: {question} {remedy}")
    return input(f"{question} {prompt} ").strip().lower()


class WrittenAnswers(TypedDict):
    n: int  #: Answers, a line each.
    lost: int  #: Answers that the run's tables name and the ledger does not hold.
    licence: str  #: The strictest of the conversations.


def write_answers(run: Run, ledger: Ledger, file: str | os.PathLike[str]) -> WrittenAnswers:
    """Write the answers that a run's tables were read from, a line each.

    Parameters
    ----------
    run : Run
        A collected run.
    ledger : Ledger
        Where its calls are recorded.
    file : str or path
        Must not be there yet.

    Returns
    -------
    dict
        ``n`` written, ``lost`` (not in the ledger), and the strictest ``licence`` of the
        conversations. A line has ids, digests of what was asked, ``status`` of the call,
        ``states`` of its rows, ``text``, tokens and ``cost_usd``.

    Raises
    ------
    RunError
        If the file is there, or the run has no answers.
    heart_utils.identities.IdentityError
        If an answer or an id names a person. Nothing is written then.

    Examples
    --------
    >>> from heart_collect import open_ledger
    >>> from heart_utils import open_run
    >>> write_answers(open_run("sample"), open_ledger("sample"), "answers.jsonl")[
    ...     "n"
    ... ]  # doctest: +SKIP
    1116
    """
    path = Path(file)
    if path.exists():
        raise RunError(
            f"{path} is there already, and answers are never written over. Name another file, or"
            " delete it."
        )
    licences = (
        run.read("histories").set_index("history_id")["licence"]
        if run.has("histories")
        else pd.Series(dtype=str)
    )
    asked_about = [
        line
        for table in TABLES
        if run.has(table)
        for line in _calls_of(table, run.read(table), licences)
    ]
    if not asked_about:
        raise RunError(
            f"The run {run.name!r} has no answers of models yet: `make collect RUN={run.name}` asks"
            " for them."
        )
    keys = [line["call_id"] for line in asked_about]
    answers = ledger.find(keys)
    digests = ledger.digests(keys)
    prompts = {row.key: {"prompt": row.asked, "options": row.options} for row in digests}
    lines = []
    for line in (one for one in asked_about if one["call_id"] in answers):
        answer = answers[line["call_id"]]
        cells = {name: getattr(answer, name) for name in CALL}
        lines.append(
            line
            | prompts.get(line["call_id"], {})
            | {name: cell for name, cell in cells.items() if cell is not None}
        )
    people = known_people(run)
    refuse_identities(
        {"answers": pd.DataFrame(lines)}, {"the name of the file": path.name}, known=people
    )
    licence = strictest_licence(sorted({line["licence"] for line in lines}))
    content = "".join(f"{json.dumps(line, ensure_ascii=False)}\n" for line in lines)
    write_atomically(path, content.encode(), private=not may_publish(licence))
    return {"n": len(lines), "lost": len(asked_about) - len(lines), "licence": licence}


def _calls_of(table: str, rows: pd.DataFrame, licences: pd.Series) -> list[JsonObject]:
    calls = []
    for call_id, read in rows.dropna(subset="call_id").groupby("call_id", sort=True):
        first = read.iloc[0]
        same = [
            name
            for name in PLACES
            if name in read and pd.notna(first[name]) and read[name].eq(first[name]).all()
        ]
        where: JsonObject = {name: _plain(first[name]) for name in same}
        if "dimension" in read:
            where["dimensions"] = read["dimension"].tolist()
        where["states"] = read["state"].value_counts().to_dict()
        where["licence"] = str(licences.get(str(where.get("history_id")), "none stated"))
        calls.append({"table": table, "call_id": call_id, **where})
    return calls


def _plain(cell: Any) -> Any:
    return cell.item() if hasattr(cell, "item") else cell
