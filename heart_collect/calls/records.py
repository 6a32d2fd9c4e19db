"""Records of calls: opened, exported, imported, merged, checked, and why one is missing."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from heart_collect.calls.database import ANSWERED, LedgerError, calls, chunks, parts
from heart_collect.calls.ledger import Ledger, connect
from heart_collect.calls.models import Call, Request
from heart_collect.calls.rows import pack_call
from heart_utils.extras import extra
from heart_utils.runs import Run, write_atomically

with extra("collect"):
    import sqlalchemy as sa
    import zstandard

__all__ = ["ReplayError", "open_ledger"]

#: Columns that tell what was asked; the first three are digests.
ASKED = ("model", "asked", "options", "repeat", "tag")
LIKELY = (
    "A changed `seed`, rubric or history under `collect:` would do that, or a reply of somebody's"
    " imported since."
)


class ReplayError(LedgerError):
    """A request is not in the ledger, and only the ledger may answer."""


def open_ledger(
    run_or_url: str | os.PathLike[str] | Run, *, seed_file: str | os.PathLike[str] | None = None
) -> Ledger:
    """Open the ledger of a run, or one by its URL.

    The ledger keeps every call to a model under a hash of its request. A call that is there is not
    made again, so a run can stop at any time and go on later, and nothing is paid twice. A finished
    run can be repeated without a network.

    Parameters
    ----------
    run_or_url : str, path or Run
        A run's is the file ``ledger.sqlite`` in its folder, unless ``HEART_LEDGER`` names another's
        URL. A URL is SQLAlchemy's, such as ``"sqlite:///calls.sqlite"`` or
        ``"postgresql+psycopg://..."`` for several machines; ``"sqlite://"`` is in memory.
    seed_file : str or path, optional
        Calls recorded elsewhere, as JSON Lines, that the ledger also holds from then on. Read once.

    Returns
    -------
    Ledger
        With ``find(keys)`` (recorded calls), ``money`` (USD spent and reserved) and ``counts()``
        (number of calls by state). Functions that ask models take it as `ledger`.

    Raises
    ------
    LedgerError
        If it cannot be reached, is no ledger, or is of another version.

    See Also
    --------
    collect_verdicts : Ask judges, and keep every call in a ledger.
    read_recipe : Read a recipe, whose steps ask through a ledger.
    price : Look up the price of a token.

    Notes
    -----
    Several processes may share one ledger: each claims the calls that it makes, and reserves their
    price against the budget before it asks. A damaged ledger is an error that names the remedy,
    never an empty result.

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


def export_calls(ledger: Ledger, file: str | os.PathLike[str], *, only_used: bool = False) -> int:
    """Write a ledger's answers as JSON Lines, sorted by key.

    Of a request only the hash is written, since code derives it again.
    """
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


def import_calls(ledger: Ledger, file: str | os.PathLike[str]) -> int:
    """Read calls that ``export_calls`` wrote, once."""
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


def merge_calls(ledger: Ledger, path_or_url: str | os.PathLike[str]) -> int:
    """Import answers of another ledger or of JSON Lines, without damaged ones."""
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
    """Read all that a ledger holds, and say what is damaged or doubled."""
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


def explain_miss(ledger: Ledger, missing: Sequence[Request], *, total: int) -> ReplayError:
    """Explain what changed since something like the first missing request was recorded."""
    first = missing[0]
    about_it = f" about {first.tag}" if first.tag else ""
    file = Path(ledger.engine.url.database or "")
    run = file.parent.name if file.name == "ledger.sqlite" else "..."
    return ReplayError(
        f"{len(missing)} of {total} requests are not in the ledger {ledger.url}; the first is to"
        f" {first.model.name}{about_it}. {_what_changed(ledger, first)} `make collect RUN={run}`"
        " (or mode='missing') asks for what is not recorded."
    )


def _what_changed(ledger: Ledger, request: Request) -> str:
    """Compare a request with the recorded one that is nearest."""
    model, messages_digest, options = request.digests
    weights = {
        "asked": (messages_digest, 8),
        "model": (model, 4),
        "tag": (request.tag or None, 2),
        "options": (options, 1),
    }
    alike = [
        sa.case((calls.c[name] == value, weight), else_=0)
        for name, (value, weight) in weights.items()
    ]
    near = ledger.rows(
        sa.select(calls).where(ANSWERED).order_by(sum(alike[1:], alike[0]).desc()).limit(1)
    )
    if not near or near[0].asked != messages_digest and near[0].model != model:
        return (
            f"Nothing is recorded of this model (the ledger holds {len(ledger.statuses())} calls)."
        )
    [row] = near
    if row.asked != messages_digest and not (request.tag and row.tag == request.tag):
        return f"This model was asked before, but nothing with these messages. {LIKELY}"
    if row.asked != messages_digest:
        if not row.messages:
            return f"The recorded request about the same thing had other words. {LIKELY}"
        had, has = (
            zstandard.decompress(row.messages).decode("utf-8", "replace"),
            request.messages_json(),
        )
        # and not the words there: somebody's conversation
        at = len(os.path.commonprefix([had, has]))
        return (
            f"The messages changed, at character {at:,} of {len(had):,} that were recorded,"
            f" {len(has):,} now. {LIKELY}"
        )
    if (row.model, row.options) == (model, options):
        return (
            f"The same was asked before, but not as repeat {request.repeat} (recorded: repeat"
            f" {row.repeat})."
        )
    bodies = {digest: json.loads(body) for digest, body in ledger.rows(sa.select(parts))}
    was, now_is = (
        bodies.get(row.model, {}) | bodies.get(row.options, {}),
        json.loads(request.model.identity) | request.sampling,
    )
    names = [name for name in sorted({*was, *now_is}) if was.get(name) != now_is.get(name)]
    changed = "; ".join(f"{name} was {was.get(name)!r}, now {now_is.get(name)!r}" for name in names)
    return f"The model or its options changed: {changed[:400]}."
