"""Raw answers of models in a run, as JSON Lines to read, to parse or to archive."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, TypedDict

import pandas as pd

from heart_collect.calls.ledger import Ledger
from heart_utils.identities import refuse_identities
from heart_utils.runs import (
    Run,
    RunError,
    known_people,
    may_publish,
    strictest_licence,
    write_atomically,
)
from heart_utils.settings import JsonObject

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


class WrittenAnswers(TypedDict):
    """What :func:`write_answers` wrote."""

    n: int  #: Answers, a line each.
    lost: int  #: Answers that the run's tables name and the ledger does not hold.
    licence: str  #: The strictest of the conversations.


def write_answers(run: Run, ledger: Ledger, file: str | os.PathLike[str]) -> WrittenAnswers:
    """Write the answers of models that a run's tables were read from, a line each.

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
        ``n`` answers written, ``lost`` of the tables that the ledger does not hold, and the
        strictest ``licence`` among the conversations that they answer. A line has the ``table``,
        ids of what was asked about, ``prompt``, the digest of the messages, and ``options``, that
        of the sampling options, how the call ended (``status``), how its rows were read
        (``states``), the answer as it came (``text``), tokens, ``cost_usd`` at list price, and the
        ``licence`` of the conversation, whose words an answer may quote. What was asked is not in
        it, nor any key.

    Raises
    ------
    RunError
        If the file is there, or the run has no answers.
    heart_utils.identities.IdentityError
        If an answer, or an id beside it, names a person. Nothing is written then.

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
    """List the calls that rows of a table were read from.

    One call may answer on several dimensions.
    """
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
