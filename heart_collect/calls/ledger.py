"""The ledger: every call to a model, kept under a hash of its request.

Nothing is paid twice.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
import secrets
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property, lru_cache, wraps
from itertools import accumulate
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

from heart_collect.calls.database import (
    ANSWERED,
    BATCH,
    CLAIMED,
    DAMAGED,
    SCHEMES,
    SEALED,
    LedgerError,
    about,
    asked_of,
    batches,
    calls,
    chunks,
    failed,
    in_batch,
    is_transient,
    keys_in,
    later_of,
    ledger_url,
    now,
    open_engine,
    owners,
    paces,
    pack_call,
    parts,
    parts_of,
    total,
    unpack_call,
    upsert,
)
from heart_collect.calls.models import (
    Call,
    Model,
    Request,
    digest_of,
    identity_json,
    other_addresses,
    request_key,
)
from heart_utils.runs import Run
from heart_utils.settings import extra

with extra("collect"):
    import psutil  # type: ignore[import-untyped]
    import sqlalchemy as sa
    import tenacity
    import zstandard

__all__ = ["Claim", "Ledger", "Money", "open_ledger"]

#: Columns that tell what was asked; the first three are digests.
ASKED = ("model", "asked", "options", "repeat", "tag")
CLOCK = "clock"  #: The row of ``paces`` that holds the latest time at which anybody wrote.
#: A database's clock that is so much behind that was set anew; less is how clocks are kept right.
SET_BACK_S = 1.0


def connect(run_or_url: str | os.PathLike[str] | Run) -> sa.Engine:
    """Connect to the ledger of a run or a URL."""
    url = ledger_url(run_or_url)
    shown_url = url.render_as_string(hide_password=True)
    if url.get_backend_name() not in SCHEMES:
        raise LedgerError(
            f"{shown_url} is not a ledger: expected sqlite:///FILE or"
            " postgresql+psycopg://USER@HOST/NAME."
        )
    try:
        return open_engine(url)
    except (sa.exc.SQLAlchemyError, OSError) as error:
        reason = str(getattr(error, "orig", None) or error).splitlines()[0]
        raise LedgerError(
            f"The ledger {shown_url} cannot be opened: {reason}.{_way_on(url, reason)}"
        ) from None


def _way_on(url: sa.URL, reason: str) -> str:
    if url.get_backend_name() != "sqlite" or not url.database:
        return ""
    if "malformed" in reason or "not a database" in reason:
        copy = copy_of(Path(url.database))
        if not copy.is_file():
            return " No copy of it was made: move it away, and all is asked again."
        made = datetime.fromtimestamp(copy.stat().st_mtime).strftime("%Y-%m-%d %H:%M")
        return (
            f" `make collect RUN={Path(url.database).parent.name} ARGS=--restore` puts its copy of"
            f" {made} in its place; the same command then asks for what came later."
        )
    if "full" in reason:
        return f" Make room in {Path(url.database).parent}, and give the same command again."
    if "readonly" in reason:
        return (
            " Its folder or file may not be written here: it can be read (ARGS=--check, --export or"
            " --dry-run)."
        )
    return ""


def copy_of(file: Path) -> Path:
    return file.with_name(f"{file.name}.copy")


P = ParamSpec("P")
T = TypeVar("T")
#: A process of another machine not heard of for so long is taken for dead, and its claims are free.
LEASE_S = 60.0
#: The most that one look at a silent process adds to its silence: while the database was away, all
#: were silent.
LOOK_S = 5.0
#: How long a step waits for a database that restarts, is locked or cannot be reached.
PATIENCE_S = 900.0
LOGGED = ("attempts", "prompt_tokens", "completion_tokens", "cost_usd")


def _patiently(step: Callable[Concatenate[Ledger, P], T]) -> Callable[Concatenate[Ledger, P], T]:
    @wraps(step)
    def patient(self: Ledger, /, *args: P.args, **kwargs: P.kwargs) -> T:
        again = tenacity.Retrying(
            retry=tenacity.retry_if_exception(lambda error: is_transient(error.__cause__)),
            wait=tenacity.wait_random_exponential(multiplier=0.2, max=10),
            stop=tenacity.stop_after_delay(self.patience_s)
            | tenacity.stop_when_event_set(self.hurry),
            sleep=tenacity.sleep_using_event(self.hurry),
            before_sleep=lambda state: setattr(
                self, "waits", str(state.outcome and state.outcome.exception())
            ),
            reraise=True,
        )
        try:
            return again(step, self, *args, **kwargs)
        finally:
            self.waits = None

    return patient


SUMS = sa.select(
    total(owners.c.spent_usd),
    total(owners.c.unsettled_usd),
    total(calls.c.reserved_usd, CLAIMED),
    total(calls.c.reserved_usd, CLAIMED & ~in_batch()),
)
"""What :class:`Money` holds, of all processes."""


@dataclass(frozen=True)
class Money:
    """What calls on a ledger cost so far in USD, by all processes."""

    spent: float  #: for answers that came, at list price
    #: at most, for calls whose end nobody heard; they may have been billed, so a budget counts them
    unsettled: float
    reserved: float  #: at most, for calls in flight now and for requests in providers' batches
    in_flight: float  #: the part of it that is settled soon; a batch may take a day

    @property
    def bound(self) -> float:
        """The most that all of it can come to."""
        return self.spent + self.unsettled + self.reserved


@dataclass(frozen=True)
class Claim:
    """What a process claimed, how many the budget excluded, and money spent before."""

    won: frozenset[str]
    unfit: int
    money: Money


class Ledger:
    """All calls of a run or several machines, from `heart_collect.calls.ledger.open_ledger`."""

    def __init__(self, engine: sa.Engine) -> None:
        self.engine = engine
        # this process, as other processes see it
        self.owner = f"{os.getpid()}-{secrets.token_hex(8)}"
        self.used: set[str] = set()  # keys that were looked up
        # of answers looked up that are damaged or hold no words -> when they were written
        self.unusable: dict[str, float] = {}
        self.damaged: set[str] = set()  # of these, those that are not what was written
        self.patience_s = PATIENCE_S  # so long a step waits for a database that cannot be reached
        self.hurry = threading.Event()  # once set, nothing waits any more
        self.waits: str | None = None  # why a step is waiting now
        # gets a line of JSON for each call that ends: never what was asked or answered
        self.log: Path | None = None
        self._heard: dict[str, tuple[float, float, float]] = {}
        # keys whose claims may have been committed although they failed
        self._unsure: set[str] = set()

    @property
    def url(self) -> str:
        """Its address, without a password."""
        return self.engine.url.render_as_string(hide_password=True)

    @property
    def shared(self) -> bool:
        """Whether several machines can reach it."""
        return self.engine.dialect.name != "sqlite"

    @_patiently
    def rows(self, wanted: Any, keys: Sequence[str] | None = None) -> list[Any]:
        """Read rows, all or those with these keys."""
        with self.reading() as connection:
            if keys is None:
                return list(connection.execute(wanted))
            among = (wanted.where(keys_in(self.engine, chunk)) for chunk in chunks(keys))
            return [row for chosen in among for row in connection.execute(chosen)]

    def find(self, keys: Sequence[str]) -> dict[str, Call]:
        """Look up calls, without those only claimed; damage is an error."""
        return self._under_any_spelling(keys, self._find)

    def _find(self, keys: Sequence[str] | None) -> dict[str, Call]:
        unpack, recorded = zstandard.ZstdDecompressor(), {}
        columns = [calls.c[name] for name in ("key", "answer", "digest", "finished_at", *SEALED)]
        for key, answer, digest, finished_at, *rest in self.rows(
            sa.select(*columns).where(ANSWERED), keys
        ):
            self.used.add(key)
            self.damaged.discard(key)
            try:
                call = unpack_call(
                    key, answer, digest, dict(zip(SEALED, rest, strict=True)), unpack
                )
            except (ValueError, TypeError, zstandard.ZstdError):
                self.damaged.add(key)
                call = Call(key, "error", error=DAMAGED)
            if key in self.damaged or (call.status != "error" and failed(call)):
                self.unusable[key] = finished_at
            recorded[key] = call
        return recorded

    def _under_any_spelling(
        self, keys: Sequence[str] | None, look_up: Callable[[Sequence[str] | None], dict[str, T]]
    ) -> dict[str, T]:
        """Look up keys, and those not found under other spellings of their model's address."""
        found = look_up(keys)
        left = [key for key in keys or () if key not in found]
        others = {key: self._other_keys[key] for key in left if key in self._other_keys}
        there = look_up(list(others.values())) if others else {}
        return found | {key: there[other] for key, other in others.items() if other in there}

    @cached_property
    def _other_keys(self) -> dict[str, str]:
        """Recorded calls' keys by what they are under other spellings of addresses."""
        others: dict[str, list[str]] = {}
        for digest, body in self.rows(sa.select(parts).where(parts.c.body.like('%"api_base"%'))):
            model = json.loads(body)
            alike = [
                identity_json({**model, "api_base": other})
                for other in other_addresses(str(model["api_base"]))
            ]
            others[digest] = [digest_of(identity) for identity in alike]
        wanted = sa.select(
            calls.c.key, *(calls.c[name] for name in ("model", "asked", "options", "repeat"))
        )
        rows = self.rows(wanted.where(ANSWERED, calls.c.model.in_(others))) if others else []
        return {
            request_key(other, messages_digest, options, repeat): key
            for key, model, messages_digest, options, repeat in rows
            if messages_digest
            for other in others[model]
        }

    def keys(self) -> list[str]:
        """List the keys of all calls, claimed ones too."""
        return [key for (key,) in self.rows(sa.select(calls.c.key))]

    def read_used(self, columns: Sequence[str]) -> list[sa.Row[Any]]:
        """Read columns of the answered calls looked up, in order of keys."""
        wanted = sa.select(*(calls.c[name] for name in columns)).where(ANSWERED)
        return self.rows(wanted, sorted(self.used))

    def digests(self, keys: Sequence[str]) -> list[sa.Row[Any]]:
        """Read by which digests of messages and options calls were asked."""
        return self.rows(sa.select(calls.c.key, calls.c.asked, calls.c.options), keys)

    def statuses(self, keys: Sequence[str] | None = None) -> dict[str, str]:
        """Look up what became of calls; what is only claimed is not there."""
        wanted = sa.select(calls.c.key, calls.c.status).where(ANSWERED)
        return self._under_any_spelling(keys, lambda these: dict(self.rows(wanted, these)))

    @_patiently
    def claim(
        self,
        requests: Sequence[Request],
        reserves: Sequence[float],
        *,
        since: float,
        budget_usd: float | None = None,
        owner: str | None = None,
        batch: str | None = None,
    ) -> Claim:
        """Claim requests that no one answered or claimed, for this process or a batch."""
        owner, keys = owner or self.owner, {request.key for request in requests}
        try:
            with self.writing() as connection:
                self._hold_money(connection, requests[0], budget_usd)
                self._note_owner(connection, owner, host=_host() if batch is None else BATCH)
                self._free_dead_claims(connection)
                self._give_back(connection, owner, sorted(self._unsure & keys))
                # unless somebody answered it again since it was read
                for key in keys & self.unusable.keys():
                    read = (calls.c.key == key) & (calls.c.finished_at == self.unusable[key])
                    connection.execute(
                        calls.update().where(read).values(status="error", finished_at=-1.0)
                    )
                money, left = self._money_left(connection, requests[0], budget_usd)
                # what is free always fits
                n_fit = sum(total <= max(left, 0.0) for total in accumulate(reserves))
                claimed = {"status": "claimed", "owner": owner}
                both = zip(requests[:n_fit], reserves, strict=False)
                rows = [
                    {**asked_of(request), **claimed, "reserved_usd": usd} for request, usd in both
                ]
                self._insert(connection, parts, parts_of(requests))
                insert = upsert(self.engine, calls)
                again = insert.on_conflict_do_update(
                    index_elements=["key"],
                    set_={
                        name: insert.excluded[name] for name in ("status", "owner", "reserved_usd")
                    },
                    where=(calls.c.status == "error") & (calls.c.finished_at < since),
                )
                won = self._execute(connection, again, rows)
                if batch is not None and won:
                    row = {
                        "batch": owner,
                        "owner": owner,
                        "model": batch,
                        "status": "creating",
                        "n": len(won),
                    }
                    self._insert(
                        connection, batches, [row | {"submitted_at": self._stamp(connection)}]
                    )
        except LedgerError:
            self._unsure |= keys
            raise
        self._unsure -= keys
        self.damaged -= keys
        self.unusable = {key: at for key, at in self.unusable.items() if key not in keys}
        return Claim(frozenset(won), len(requests) - n_fit, money)

    @_patiently
    def reserve_more(self, request: Request, usd: float, budget_usd: float | None) -> bool:
        """Reserve money for another attempt; false beyond a budget."""
        with self.writing() as connection:
            self._hold_money(connection, request, budget_usd)
            if usd > max(self._money_left(connection, request, budget_usd)[1], 0.0):
                return False
            mine = (calls.c.key == request.key) & CLAIMED
            connection.execute(
                calls.update().where(mine).values(reserved_usd=calls.c.reserved_usd + usd)
            )
        return True

    @_patiently
    def reserve_slots(self, spacing: Mapping[str, float]) -> float:
        """Reserve a slot in the shared queues; return seconds to wait."""
        waits = list[float]()
        with self.writing() as connection:
            # read once: it may be set anew at any moment
            clock = sa.literal(self._follow_clock(connection), sa.Float)
            for name, seconds in sorted(spacing.items()):
                reserve = upsert(self.engine, paces).values(name=name, next_at=clock + seconds)
                behind = {"next_at": later_of(paces.c.next_at, clock) + seconds}
                reserve = reserve.on_conflict_do_update(
                    index_elements=["name"], set_=behind
                ).returning(paces.c.next_at - clock)
                waits.append(connection.execute(reserve).scalar_one() - seconds)
        return max(waits)

    @_patiently
    def hold(self, name: str, seconds: float) -> None:
        """Hold a queue for all processes, as its provider asks."""
        with self.writing() as connection:
            until = self._follow_clock(connection) + seconds
            hold = upsert(self.engine, paces)
            later = {"next_at": later_of(paces.c.next_at, hold.excluded.next_at)}
            hold = hold.values(name=name, next_at=until)
            connection.execute(hold.on_conflict_do_update(index_elements=["name"], set_=later))

    def held(self, names: Sequence[str]) -> dict[str, float]:
        """Return for how many seconds queues are held."""
        left = paces.c.next_at - now(self.engine)
        return dict(
            self.rows(sa.select(paces.c.name, left).where(paces.c.name.in_(names), left > 0))
        )

    @_patiently
    def record(
        self,
        answers: Sequence[Call],
        unsettled: float = 0.0,
        *,
        requests: Mapping[str, Request] | None = None,
        owner: str | None = None,
        batch_ended: str | None = None,
    ) -> None:
        """Write answers and their cost in one transaction."""
        known = requests or {}
        rows = {call.call_id: pack_call(call) for call in answers}
        with self.writing() as connection:
            self._note_owner(
                connection,
                owner or self.owner,
                sum(call.cost_usd or 0.0 for call in answers),
                unsettled,
            )
            stamp = {"finished_at": self._stamp(connection)}
            gone = known.keys() & (rows.keys() - self._keep_rows(connection, [*rows]))
            asked = {key: asked_of(known[key]) for key in gone}
            self._put(connection, [asked.get(key, {}) | row | stamp for key, row in rows.items()])
            if batch_ended is not None:
                self._give_back(connection, owner)
                connection.execute(
                    batches.update().where(batches.c.owner == owner).values(status=batch_ended)
                )
            self._follow_clock(connection)
        for call in answers:
            request = known.get(call.call_id)
            line = {
                **{name: getattr(call, name) for name in LOGGED},
                "call": call.call_id,
                "state": call.status,
                "model": None if request is None else request.model.name,
                "seconds": None if call.total_ms is None else round(call.total_ms / 1000, 3),
                # The rest of the words is the provider's, which may repeat what it was sent.
                "reason": re.split(r"[:(]", call.error)[0].strip() if call.error else None,
            }
            self.tell(line)

    @_patiently
    def take_in(
        self, bodies: Sequence[Mapping[str, Any]], rows: Sequence[Mapping[str, Any]]
    ) -> int:
        """Import calls recorded and paid elsewhere; return how many are new or better."""
        with self.writing() as connection:
            # a claim of a process that lives, or of a batch, stands: it is being paid for
            self._free_dead_claims(connection)
            self._insert(connection, parts, bodies)
            return len(self._put(connection, rows, over_claims=False))

    @_patiently
    def release(self, keys: Sequence[str]) -> None:
        """Release claims that were not asked."""
        with self.writing() as connection:
            self._give_back(connection, self.owner, list(keys))

    @_patiently
    def free_dead_claims(self) -> None:
        """Release the claims of processes that died."""
        with self.writing() as connection:
            self._free_dead_claims(connection)

    def in_batches(self, keys: Sequence[str]) -> set[str]:
        """List which of these are claimed by a provider's batch."""
        return {
            key for (key,) in self.rows(sa.select(calls.c.key).where(CLAIMED, in_batch()), keys)
        }

    def knows(self, model: Model) -> bool:
        """Check whether a model has ever answered anything."""
        its = (calls.c.model == model.identity_digest) & calls.c.status.in_(
            ("ok", "refused", "truncated")
        )
        return bool(self.rows(sa.select(calls.c.key).where(its).limit(1)))

    def quick_and_slow(self, model: Model) -> tuple[float, float] | None:
        """Return the 10 % and 90 % quantiles of a model's answer times."""
        its = (
            (calls.c.model == model.identity_digest)
            & (calls.c.status == "ok")
            & calls.c.total_ms.is_not(None)
        )
        took = sorted(ms / 1000 for (ms,) in self.rows(sa.select(calls.c.total_ms).where(its)))
        return None if len(took) < 10 else (took[len(took) // 10], took[-1 - len(took) // 10])

    def notes(self, names: Sequence[str]) -> dict[str, str]:
        """Read notes of these names."""
        return dict(self.rows(sa.select(about).where(about.c.name.in_(names))))

    @_patiently
    def note(self, notes: Mapping[str, str]) -> None:
        """Add a note; what was noted before stands."""
        with self.writing() as connection:
            self._insert(
                connection, about, [{"name": name, "value": notes[name]} for name in sorted(notes)]
            )

    @_patiently
    def money(self) -> Money:
        """Read what all processes spent and reserved."""
        with self.reading() as connection:
            return self._money(connection)

    @_patiently
    def write_off(self) -> float:
        """Forget reserves of calls whose end is unknown; return their sum."""
        with self.writing() as connection:
            self._free_dead_claims(connection)
            unsettled = self._money(connection).unsettled
            connection.execute(owners.update().values(unsettled_usd=0.0))
        return unsettled

    def clock(self) -> float:
        """Seconds since 1970 by the database."""
        return float(self.rows(sa.select(now(self.engine)))[0][0])

    def counts(self) -> dict[str, int]:
        """Count calls by status; ``claimed`` are those in flight."""
        return dict(self.rows(sa.select(calls.c.status, sa.func.count()).group_by(calls.c.status)))

    def tell(self, what: Mapping[str, Any]) -> None:
        """Add a line to the log, if there is one."""
        if self.log is None:
            return
        line = json.dumps({"at": datetime.now(UTC).isoformat(timespec="milliseconds"), **what})
        try:
            with self.log.open("a", encoding="utf-8") as file:
                file.write(f"{line}\n")
        except OSError as error:  # the answers matter more
            warnings.warn(
                f"The log {self.log} could not be written ({error.strerror}) and ends here.",
                stacklevel=2,
            )
            self.log = None

    def close(self) -> None:
        """Let go of the database."""
        self.engine.dispose()

    @contextmanager
    def reading(self) -> Iterator[sa.Connection]:
        """Begin to read; SQLite locks nobody out."""
        with (
            self._explained("read"),
            self.engine.connect().execution_options(reads=True) as connection,
        ):
            yield connection

    @contextmanager
    def writing(self) -> Iterator[sa.Connection]:
        """Write in one transaction, committed when the block ends."""
        stands = " What was recorded before still stands."
        with self._explained("written", stands), self.engine.begin() as connection:
            yield connection

    @contextmanager
    def _explained(self, done: str, comfort: str = "") -> Iterator[None]:
        try:
            yield
        except sa.exc.DBAPIError as error:
            reason = str(error.orig).splitlines()[0]
            raise LedgerError(
                f"The ledger {self.url} could not be {done} ({reason})."
                f"{comfort}{_way_on(self.engine.url, reason)}"
            ) from error

    def _stamp(self, connection: sa.Connection) -> float:
        return float(connection.execute(sa.select(now(self.engine))).scalar_one())

    def _follow_clock(self, connection: sa.Connection) -> float:
        """Record the time; where it was set back, waits stay as long as asked."""
        its = paces.c.name == CLOCK
        # One process at a time, so that none writes by a time that another has found to be wrong.
        noted = connection.execute(
            sa.select(paces.c.next_at).where(its).with_for_update()
        ).scalar_one_or_none()
        clock = self._stamp(connection)
        if noted is None:
            connection.execute(
                upsert(self.engine, paces)
                .values(name=CLOCK, next_at=clock)
                .on_conflict_do_nothing()
            )
        elif abs(clock - noted) > SET_BACK_S:
            mine = connection.execute(
                paces.update().where(its, paces.c.next_at == noted).values(next_at=clock)
            ).rowcount
            if mine and clock < noted:  # and no other process has moved them
                others = paces.update().where(~its)
                connection.execute(others.values(next_at=paces.c.next_at - (noted - clock)))
                failed = calls.update().where(
                    calls.c.status == "error", calls.c.finished_at > clock
                )
                # or the next run would take them for its own
                connection.execute(failed.values(finished_at=clock))
        return clock

    def _execute(
        self, connection: sa.Connection, insert: Any, rows: Sequence[Mapping[str, Any]]
    ) -> list[str]:
        # In the order of keys, so that two processes cannot wait for one another; each row with the
        # same columns.
        whole = dict.fromkeys(name for row in rows for name in row)
        ordered = [{**whole, **row} for row in sorted(rows, key=lambda row: str(row["key"]))]
        return list(connection.scalars(insert.returning(calls.c.key), ordered)) if rows else []

    def _insert(
        self, connection: sa.Connection, table: sa.Table, rows: Sequence[Mapping[str, Any]]
    ) -> None:
        if rows:
            connection.execute(upsert(self.engine, table).on_conflict_do_nothing(), rows)

    def _keep_rows(self, connection: sa.Connection, keys: list[str]) -> set[str]:
        there = sa.select(calls.c.key).where(keys_in(self.engine, keys)).order_by(calls.c.key)
        return set(connection.scalars(there.with_for_update())) if keys else set()

    def _put(
        self,
        connection: sa.Connection,
        rows: Sequence[Mapping[str, Any]],
        *,
        over_claims: bool = True,
    ) -> list[str]:
        """Write answered calls where none is, over a claim, or over a failure."""
        insert = upsert(self.engine, calls)
        better = (calls.c.status == "error") & (insert.excluded.status != "error")
        better |= CLAIMED if over_claims else sa.false()
        replaced = {
            name: insert.excluded[name] for name in (*SEALED, "answer", "digest", "finished_at")
        }
        replaced |= {"owner": None, "reserved_usd": None}
        return self._execute(
            connection,
            insert.on_conflict_do_update(index_elements=["key"], set_=replaced, where=better),
            rows,
        )

    def _note_owner(
        self,
        connection: sa.Connection,
        owner: str,
        spent: float = 0.0,
        unsettled: float = 0.0,
        host: str | None = None,
    ) -> None:
        """Tell other processes that this one, or a batch, lives, and what it spent."""
        pid = os.getpid()
        row = {
            "owner": owner,
            "host": host or _host(),
            "pid": pid,
            "started": _began_itself(pid),
            "seen_at": now(self.engine),
        }
        enter = upsert(self.engine, owners)
        more = {
            name: owners.c[name] + enter.excluded[name] for name in ("spent_usd", "unsettled_usd")
        }
        enter = enter.values(**row, spent_usd=spent, unsettled_usd=unsettled)
        connection.execute(
            enter.on_conflict_do_update(
                index_elements=["owner"], set_={"seen_at": now(self.engine), **more}
            )
        )

    def _hold_money(
        self, connection: sa.Connection, request: Request, budget_usd: float | None
    ) -> None:
        if self.shared and (budget_usd, request.model.budget_usd) != (None, None):
            connection.execute(sa.text("SELECT pg_advisory_xact_lock(4219922)"))

    def _free_dead_claims(self, connection: sa.Connection) -> None:
        holds = sa.select(calls.c.owner).where(CLAIMED).distinct()
        others = sa.select(owners).where(
            owners.c.owner.in_(holds), owners.c.owner != self.owner, owners.c.host != BATCH
        )
        for row in connection.execute(others).all():
            here = row.host == _host()
            if _alive(row.pid, row.started) if here else not self._silent(row.owner, row.seen_at):
                continue
            reserved = total(calls.c.reserved_usd, (calls.c.owner == row.owner) & CLAIMED)
            self._note_owner(
                connection,
                row.owner,
                unsettled=connection.execute(sa.select(reserved)).scalar_one(),
            )
            self._give_back(connection, row.owner)

    def _give_back(
        self, connection: sa.Connection, owner: str | None, keys: list[str] | None = None
    ) -> None:
        """Release claims; an error that was asked again is that error again."""
        its = (calls.c.owner == owner) & CLAIMED
        its &= sa.true() if keys is None else keys_in(self.engine, keys)
        was = {"status": "error", "owner": None, "reserved_usd": None}
        connection.execute(calls.update().where(its, calls.c.finished_at.is_not(None)).values(was))
        connection.execute(calls.delete().where(its))

    def _silent(self, owner: str, seen_at: float) -> bool:
        at = time.monotonic()
        stamp, looked, quiet = self._heard.get(owner, (seen_at, at, 0.0))
        quiet = quiet + min(at - looked, LOOK_S) if stamp == seen_at else 0.0
        self._heard[owner] = (seen_at, at, quiet)
        return quiet > LEASE_S

    def _money(self, connection: sa.Connection) -> Money:
        return Money(*map(float, connection.execute(SUMS).one()))

    def _money_left(
        self, connection: sa.Connection, request: Request, budget_usd: float | None
    ) -> tuple[Money, float]:
        money, cap = self._money(connection), request.model.budget_usd
        left = float("inf") if budget_usd is None else budget_usd - money.bound
        if cap is not None:
            both = sa.func.coalesce(calls.c.cost_usd, 0.0) + sa.func.coalesce(
                calls.c.reserved_usd, 0.0
            )
            # What nobody heard the end of is in the whole's money only.
            its = connection.execute(
                sa.select(total(both, calls.c.model == request.digests[0]))
            ).scalar_one()
            left = min(left, cap - its)
        return money, left


@lru_cache(maxsize=1)
def _host() -> str:
    """Name the machine or container whose process numbers are visible here."""
    with suppress(OSError):  # where this is not Linux, the name has to do
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{platform.node()} {boot} {os.readlink('/proc/self/ns/pid')}"[:200]
    return platform.node()[:200]


def _alive(pid: int, started: float) -> bool:
    try:
        process = psutil.Process(pid)
        return abs(_began(process) - started) < 2.0 and bool(
            process.status() != psutil.STATUS_ZOMBIE
        )
    except psutil.Error:
        return False


@lru_cache(maxsize=1)
def _began_itself(pid: int) -> float:
    return _began(psutil.Process(pid))


def _began(process: psutil.Process) -> float:
    """Return seconds from the machine's start to the process's."""
    return float(process.create_time() - psutil.boot_time())


def open_ledger(
    run_or_url: str | os.PathLike[str] | Run, *, seed_file: str | os.PathLike[str] | None = None
) -> Ledger:
    """Open the ledger of a run, or one by its URL.

    It keeps every call to a model under a hash of its request, and none that it holds is made
    again: a run can stop at any time and go on later.

    Parameters
    ----------
    run_or_url : str, path or Run
        A run (its ``ledger.sqlite``, or what ``HEART_LEDGER`` names), or SQLAlchemy's URL:
        ``"postgresql+psycopg://..."`` for several machines, ``"sqlite://"`` in memory.
    seed_file : str or path, optional
        Calls recorded elsewhere, as JSON Lines; read once.

    Returns
    -------
    Ledger
        With ``find(keys)``, ``money()`` (USD) and ``counts()`` (calls by state).

    Raises
    ------
    LedgerError
        If it cannot be reached, is damaged, no ledger, or of another version.

    Examples
    --------
    >>> ledger = open_ledger("sqlite://")
    >>> ledger.counts()
    {}
    """
    ledger = Ledger(connect(run_or_url))
    if seed_file is not None:
        import_calls(ledger, seed_file)
    return ledger


def import_calls(ledger: Ledger, file: str | os.PathLike[str]) -> int:
    path = Path(file)
    try:
        content = path.read_bytes()
        lines = content.decode().split("\n")  # not splitlines: an answer may hold another break
    except (OSError, UnicodeDecodeError) as error:
        raise LedgerError(f"{path} cannot be read as recorded calls ({error}).") from None
    seed = f"seed {hashlib.sha256(content).hexdigest()[:32]}"
    if ledger.notes([seed]):
        return 0
    bodies, rows = [], []
    for number, line in (
        (number, line) for number, line in enumerate(lines, start=1) if line.strip()
    ):
        try:
            entry = json.loads(line)
            if "part" in entry:
                bodies.append({"digest": entry["part"], "body": entry["body"]})
            else:
                request_cells = {name: entry.pop(name, None) for name in ASKED}
                rows.append(
                    pack_call(Call(entry.pop("key"), **entry))
                    | request_cells
                    | {"finished_at": 0.0}
                )
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            error_message = f"{path.name}, line {number}, is not a recorded call"
            raise LedgerError(f"{error_message} ({type(error).__name__}: {error}).") from None
    new = ledger.take_in(bodies, rows)
    ledger.note({seed: path.name})
    return new
