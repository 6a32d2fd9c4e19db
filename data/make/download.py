"""Fetch official files of data sets, and keep of each what is used.

Nothing of this is in the installed package: ``make data`` alone calls it.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import sys
import tarfile
from itertools import chain
from pathlib import Path

from data.make.cuts import cut_official, plain_form, read_words
from heart_utils.runs import write_atomically
from heart_utils.settings import JsonObject
from heart_utils.sources.catalogue import (
    DataUnavailableError,
    Source,
    SourceFile,
    advice,
    cache_folder,
    find_data,
    find_source,
    is_whole,
    plain_dialogues,
)
from heart_utils.tables import DataError

__all__: list[str] = []

TIMEOUT = (5.0, 20.0)  #: Seconds to wait for a connection, and for the next bytes of an answer.


def find_official(name: str) -> dict[str, Path]:
    """Find the official files of a data set, of which a mirror may hold more than is kept."""
    return find_data(name, keep=keep)


def fetch_data(name: str) -> dict[str, Path]:
    """Fetch a data set into the cache, unless it is complete there, and print its terms.

    A failure leaves nothing behind.
    """
    from tqdm import tqdm

    source = find_source(name)
    if source.by_hand:
        raise DataUnavailableError(
            f"{name} is not fetched: {source.by_hand}. data/public holds what is passed on of it."
            f" The official place is {source.address}{source.files[0].address}; data/sources.yaml"
            " names the columns to keep of it, in a folder of HEART_DATA_MIRROR called"
            f" {source.folder}."
        )
    print(
        f"{source.title}\n  licence: {source.terms}\n  cite: {source.citation}\n  from:"
        f" {source.address}",
        flush=True,
    )
    bar = tqdm(source.files, desc=name, unit="file", disable=not sys.stderr.isatty())
    folder = cache_folder() / source.folder
    for file in bar:
        if is_whole(file, folder / file.file):
            continue
        kept = (
            _cut(source, file)
            if file.kept == "cut"
            else keep(source, file, _download(source, source.url(file)))
        )
        if hashlib.sha256(kept).hexdigest() != file.sha256:
            raise DataError(
                f"{source.url(file)} is damaged or was changed: its checksum is not the one known."
                f" Nothing was kept. Run `make data NAME={source.name}` again; if it happens twice,"
                " the official file has changed."
            )
        write_atomically(folder / file.file, kept)
    return {file.file: folder / file.file for file in source.files}


def _cut(source: Source, file: SourceFile) -> bytes:
    """Fetch the official files of a cut one by one; of what they hold only the cut is kept."""
    parts = {part: _download(source, url) for part, url in source.urls(file).items()}
    try:
        return plain_form(source.reading, cut_official(source.name, parts))
    except (AttributeError, LookupError, TypeError, ValueError, tarfile.TarError) as error:
        raise DataError(
            f"{source.url(file)} has another layout than the one known"
            f" ({type(error).__name__}: {error}). Nothing was kept."
        ) from None


def _download(source: Source, url: str) -> bytes:
    import requests

    try:
        answer = requests.get(url, timeout=TIMEOUT)
        answer.raise_for_status()
    except requests.exceptions.ChunkedEncodingError as error:
        raise DataError(
            f"{url} was cut short ({error}). Nothing was kept. {advice(source)}"
        ) from None
    except requests.exceptions.RequestException as error:
        raise DataUnavailableError(
            f"{url} could not be reached ({error}). {advice(source)}"
        ) from None
    return answer.content


def keep(source: Source, file: SourceFile, content: bytes) -> bytes:
    """Keep what is used of a file; what was kept once stays as it is."""
    try:
        if file.kept == "labels":
            return _labels(content)
        if file.kept == "ratings":
            return _ratings(source.reading, content)
        if file.kept == "cut":  # a mirror's table was cut before
            return plain_form(source.reading, read_words(content))
    except Exception as error:  # a damaged Parquet, CSV or JSON file has no common class of error
        raise DataError(
            f"{source.folder}/{file.file} cannot be read ({error}). Nothing was kept."
        ) from None
    return plain_dialogues(source, file, content)


def _labels(content: bytes) -> bytes:
    """Keep the labels of MT-Bench's Parquet files, and no conversation, as sorted JSON Lines."""
    if not content.startswith(b"PAR1"):
        return content
    import pyarrow.parquet as pq

    key = ["question_id", "turn", "model_a", "model_b", "judge"]
    rows = pq.read_table(io.BytesIO(content), columns=[*key, "winner"]).to_pylist()
    rows.sort(key=lambda row: tuple(row[column] for column in key))
    return "".join(
        json.dumps(row, sort_keys=True, separators=(",", ":")) + "\n" for row in rows
    ).encode()


def _ratings(reading: JsonObject, content: bytes) -> bytes:
    """Keep the ids and scores of a file of ratings, by name, without its conversations."""
    rows = list(csv.reader(io.StringIO(content.decode("utf-8"), newline="")))
    named = {
        *reading["row_ids"],
        *chain.from_iterable((of["id"], *of["dimensions"]) for of in reading["sets"].values()),
    }
    used = [column for column, head in enumerate(rows[0]) if head in named]
    if len(used) == len(rows[0]):
        return content
    kept = io.StringIO(newline="")
    csv.writer(kept, lineterminator="\n").writerows(
        [row[column] for column in used] for row in rows
    )
    return kept.getvalue().encode()
