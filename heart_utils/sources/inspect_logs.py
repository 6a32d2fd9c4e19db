"""Logs of inspect_ai (``.eval``, ``.json``) as a row for each score of a sample.

Their columns are then named as in any file.

The format is that of inspect_ai's documentation (https://inspect.aisi.org.uk/eval-logs.html);
nothing of the package is needed. A row has ``id``, ``epoch``, ``model``, ``scorer``, ``value``,
``explanation`` and the sample's ``metadata``. A sample that failed has a row for each scorer of the
task, without a value.
"""

from __future__ import annotations

import io
import json
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from heart_utils.settings import JsonObject
from heart_utils.sources.unpacking import Allowance, unpack_part

__all__: list[str] = []

HEADERS = ("header.json", "_journal/start.json")
"""Parts of a log that say what ran: the first is there once it has ended."""


def is_log(content: object) -> bool:
    """Check whether JSON is a log of inspect_ai."""
    return (
        isinstance(content, dict)
        and {"version", "eval", "samples"} <= set(content)
        and isinstance(content["eval"], dict)
    )


def unpack_log(content: bytes, file: Path) -> JsonObject:
    """Read the log in an ``.eval`` file as the ``.json`` of the same log has it.

    Raises
    ------
    DataError
        If it unpacks to more than a file of its size may.
    ValueError
        If it is no such archive, or damaged.
    """
    allowance = Allowance(file, len(content))
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            parts = {part.filename: part for part in archive.infolist()}
            header = next((name for name in HEADERS if name in parts), None)
            if header is None:
                raise ValueError(f"it has none of {', '.join(HEADERS)}")
            samples = [
                name for name in parts if name.startswith("samples/") and name.endswith(".json")
            ]
            log: JsonObject = json.loads(
                allowance.gather(unpack_part(archive, content, parts[header]))
            )
            log["samples"] = [
                json.loads(allowance.gather(unpack_part(archive, content, parts[name])))
                for name in samples
            ]
    except (zipfile.BadZipFile, OSError, EOFError, zlib.error, json.JSONDecodeError) as error:
        raise ValueError(str(error)) from None
    return log


def read_log(log: Mapping[str, Any]) -> tuple[list[JsonObject], dict[str, int]]:
    """List the scores of a log, with how many samples it was to have and lacks."""
    about, samples = log["eval"], log.get("samples") or []
    scorers = [scorer["name"] for scorer in about.get("scorers") or []]
    rows = [row for sample in samples for row in _scores(sample, about, scorers)]
    n_epochs = (about.get("config") or {}).get("epochs") or 1
    sample_ids = (about.get("dataset") or {}).get("sample_ids") or []
    missing = (
        max(0, len(sample_ids) * n_epochs - len(samples)) if log.get("status") != "success" else 0
    )
    return rows, {
        f"samples that are not in the log, whose status is {log.get('status', 'started')!r}": (
            missing
        )
    }


def _scores(
    sample: Mapping[str, Any], about: Mapping[str, Any], scorers: list[str]
) -> Iterator[JsonObject]:
    shared = {
        "id": sample["id"],
        "epoch": sample.get("epoch", 1),
        "task": about.get("task"),
        "model": about.get("model"),
    }
    if sample.get("invalidation"):
        shared["invalidated"] = "true"
    scores = sample.get("scores") or {}
    for scorer in dict.fromkeys([*scores, *scorers]):
        given = scores.get(scorer) or {}
        answer = {
            "scorer": scorer,
            "value": given.get("value"),
            "explanation": given.get("explanation"),
        }
        yield {**shared, **answer, "metadata": sample.get("metadata") or None}
