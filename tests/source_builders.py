"""Small data sets in the layout of the real ones, and a server on this machine that hands them out,
well or badly."""

import hashlib
import io
import json
import re
import threading
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pandas as pd
import pytest

from heart_utils.sources import catalogue
from heart_utils.sources.catalogue import Source, SourceFile
from heart_utils.tables import DataError

MENTALALIGN_REPLIES = [
    "original",
    "claude",
    "ds_llama",
    "ds_qwen",
    "gemini",
    "gpt4o",
    "gpt4omini",
    "llama_3",
    "qwen_2",
    "qwen_3",
]
MENTALALIGN_FILES = [
    "Human_judge",
    "claude_llm_judge",
    "gpt-4o_llm_judge",
    "gemini_llm_judge",
    "o4-mini_llm_judge",
]


def write(folder, name, content):
    """Write text, bytes or rows as a file of the kind that its name says; without a name, rows stay a
    table."""
    file, kind = folder / name, name.rpartition(".")[2]
    if kind in ("json", "jsonl") and not isinstance(content, str | bytes):
        rows = content if isinstance(content, list) else content.to_dict("records")
        content = json.dumps(rows) if kind == "json" else "\n".join(map(json.dumps, rows))
    if isinstance(content, list):
        content = pd.DataFrame(content)
    if not name:
        return content
    if isinstance(content, pd.DataFrame):
        save = {"csv": content.to_csv, "xlsx": content.to_excel, "parquet": content.to_parquet}
        save[kind](file, index=False)
    else:
        file.write_bytes(content.encode() if isinstance(content, str) else content)
    return file


def proposed(message):
    """The options of the call that a message proposes, as a reader would paste them."""
    call = re.search(r"load_\w+\(\n    .*?\n(.*)\n\)", str(message), re.DOTALL)
    return eval(f"dict({call[1]})")


def refused(load, given, **options):
    """What is said of a file that is not read."""
    with pytest.raises(DataError) as caught:
        load(given, **options)
    return str(caught.value)


def added(options, more):
    """A proposed call with what the user adds to it."""
    merged = {**options, **more}
    for name, value in more.items():
        if isinstance(value, dict):
            merged[name] = {**options.get(name, {}), **value}
    return merged


def winners(table):
    """Who won each row, else tie or why there is no answer."""
    names = [
        {"a": row["responder_a"], "b": row["responder_b"], "tie": "tie"}.get(
            row["verdict"], row["state"]
        )
        for row in table.to_dict("records")
    ]
    return " ".join(names)


def holds(table, expected):
    """Compare the first cells of some columns; ``won`` is who won each row."""
    found = dict(expected)
    for name, cells in expected.items():
        if name == "won":
            found[name] = winners(table)
            continue
        column = table[name].astype(object)
        found[name] = column.where(column.notna(), None).tolist()[: len(cells)]
    assert found == expected


def know(monkeypatch, source: Source, files: dict[str, tuple[str, str, bytes]]) -> Source:
    """Let the catalogue know a set: name of a file -> (address, what is kept, the bytes that shall
    be kept)."""
    listed = tuple(
        SourceFile(
            file=name, address=address, sha256=hashlib.sha256(content).hexdigest(), kept=kept
        )
        for name, (address, kept, content) in files.items()
    )
    source = replace(source, files=listed)
    monkeypatch.setitem(catalogue.SOURCES, source.name, source)
    return source


def mirrored(monkeypatch, folder, name: str, files: dict[str, bytes]):
    """Put the files of a known set into a mirror with their own checksums, the one looked at from
    now on."""
    source = catalogue.SOURCES[name]
    (folder / source.folder).mkdir(parents=True, exist_ok=True)
    for file, content in files.items():
        (folder / source.folder / file).write_bytes(content)
    know(monkeypatch, source, {file: (file, "", content) for file, content in files.items()})
    monkeypatch.setenv("HEART_DATA_MIRROR", str(folder))


def mentalalign_cell(scores=(4, 4, 4, 4, 4, 4, 4), **more) -> str:
    names = [
        "Guidance",
        "Informativeness",
        "Relevance",
        "Safety",
        "Empathy",
        "Helpfulness",
        "Understanding",
    ]
    return json.dumps({**dict(zip(names, scores, strict=True)), **more})


def mentalalign_files(
    n: int, changes: dict[tuple[str, int, str], object], questions: dict[int, str] | None = None
) -> dict[str, bytes]:
    """Write the five workbooks: every cell scores 4 but for (file, row, reply) -> cell; people's
    questions may differ."""
    files = {}
    for file in MENTALALIGN_FILES:
        people = file == "Human_judge"
        table = pd.DataFrame(
            {"ConvID": range(1, n + 1), "context": [f"Question number {row}?" for row in range(n)]}
        )
        for row, question in (questions or {}).items():
            if people:
                table.loc[row, "context"] = question
        for place, reply in enumerate(MENTALALIGN_REPLIES):
            cells = [changes.get((file, row, reply), mentalalign_cell()) for row in range(n)]
            # The people's file has a space before some names of columns.
            table[
                f"{' ' if people and place in (1, 2) else ''}{'human' if people else 'judge'}_response_{reply}"
            ] = cells
        book = io.BytesIO()
        table.to_excel(book, index=False)
        files[f"{file}.xlsx"] = book.getvalue()
    return files


@contextmanager
def serving(answers: dict[str, bytes], fault: str | None = None):
    """Serve some paths on this machine; `fault` says what goes wrong with each answer."""

    given_up = threading.Event()  # the client has; what is late comes no sooner

    class Handler(BaseHTTPRequestHandler):
        asked: list[str] = []

        def do_GET(self):
            self.asked.append(self.path)
            content = answers.get(self.path)
            if content is None:
                self.send_error(404)
                return
            cut = {"truncated": len(content) // 2, "stalls": len(content) // 2}.get(
                fault or "", len(content)
            )
            try:
                if fault == "slow":
                    given_up.wait(60)
                self.send_response(200)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content[:cut])
                if fault == "stalls":
                    self.wfile.flush()
                    given_up.wait(60)
            except ConnectionError:
                pass  # the client has given up, as a test meant it to

        def log_message(self, *arguments):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    # closing waits for every answer, so that none speaks up in a later test
    server.daemon_threads = False
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/", Handler.asked
    finally:
        given_up.set()
        server.shutdown()
        server.server_close()
        thread.join()
