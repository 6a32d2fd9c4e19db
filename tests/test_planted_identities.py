"""Ten people are planted in what a user brings, and looked for in every file that a command writes."""

import contextlib
import io
import os
import warnings
import zipfile
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import yaml
from audit_case import sound_votes
from gate_case import THETA, write_run
from server import Provider, serving
from study_builders import STATEMENT, small_run

from heart_collect import collect as collecting
from heart_collect.judging.design import pair_replies
from heart_collect.people import raters
from heart_utils import (
    fit_ratings,
    load_histories,
    load_replies,
    load_scores,
    load_verdicts,
    write_leaderboard,
)
from heart_utils.report import commands
from heart_utils.runs import open_run
from tools import pool, release

ROOT = Path(__file__).resolve().parents[1]

PLANTED = {
    "address of a rater": "ann.planted@example.org",
    "full name of a rater": "Bernadette Plantagenet",
    "worker id of a rater": "A1PLANT2ED3X4",
    "Prolific id in a reason": "5f3c1b2a9d8e7f6a5b4c3d2e",
    "address in a reason": "jo.reason@example.org",
    "name of a writer": "Wilhelmina Writerly",
    "address in the name of a file": "sent.by@example.org",
    "address of a responder": "resp.mail@example.org",
    "telephone number in a reason": "+49 30 901820",
    "address of a machine in a reason": "192.0.2.77",
    "account in a reason": "DE89370400440532013000",
    "address of somebody in a study": "study.person@example.org",
    "address as the only id of a file": "only.id@example.org",
    "address in a conversation": "seeker.mail@example.org",
    "words of a conversation": "sister Theodosia",
}

SENTENCE = "My sister Theodosia has not spoken to any of us since the funeral in March."


def project(folder: Path) -> Path:
    """Make a project of one's own around the checkout's code and data."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in (
        "heart_utils",
        "heart_collect",
        "data",
        "tools",
        "book",
        "notebooks",
        "pyproject.toml",
        "CITATION.cff",
        "requirements",
    ):
        (folder / name).symlink_to(ROOT / name)
    (folder / "params").mkdir()
    (folder / "params" / "mine.yaml").write_text("chapters: [05_who_is_preferred]\n")
    os.environ |= {"HEART_ROOT": str(folder), "HEART_KEYS": str(folder / "keys")}
    return folder


def gather(folder: Path) -> Path:
    """Write the files that a user may bring; the planted are in all of them."""
    votes = pd.DataFrame(
        {
            "history_id": [f"c{place}" for place in range(12)],
            "responder_a": "alpha",
            "rater_kind": "human",
        }
    )
    votes["responder_b"] = np.where(votes.index % 2, "beta", PLANTED["address of a responder"])
    people = [PLANTED[who] for who in PLANTED if who.endswith("of a rater")]
    votes["rater"] = [people[place % len(people)] for place in votes.index]
    votes["verdict"] = np.where(votes.index % 3, "a", "b")
    reasons = [word for who, word in PLANTED.items() if who.endswith("in a reason")]
    votes["rationale"] = [
        f"The first listens. Ask me: {reasons[place % len(reasons)]}." for place in votes.index
    ]
    file = folder / f"votes_{PLANTED['address in the name of a file']}.csv"
    votes.to_csv(file, index=False)
    return file


def load_and_write(folder: Path) -> None:
    """Load files of every kind and write them into a run, as README says; some of them no loader
    has seen."""
    file, run = gather(folder), open_run("mine")
    run.write("verdicts", load_verdicts(file))
    score = {
        "history_id": ["c1"],
        "responder": "alpha",
        "rater": PLANTED["address of a rater"],
        "rater_kind": "human",
    }
    run.write("scores", load_scores(pd.DataFrame({**score, "dimension": "empathy", "score": 4})))
    only = {
        "Email": [PLANTED["address as the only id of a file"]],
        "responder": "alpha",
        "text": "That sounds hard.",
    }
    replies = load_replies(
        pd.DataFrame(only).assign(author_id=PLANTED["name of a writer"]),
        columns={"Email": "history_id"},
    )
    run.write("replies", replies)
    turns = [
        {"speaker": "seeker", "text": f"Write to {PLANTED['address in a conversation']}, please."}
    ]
    histories = folder / f"chats_{PLANTED['address in the name of a file']}.jsonl"
    pd.DataFrame(
        {"history_id": [PLANTED["address as the only id of a file"]], "turns": [turns]}
    ).to_json(histories, orient="records", lines=True)
    run.write("histories", load_histories(histories))
    run.write(
        "verdicts", load_verdicts(file, keep_ids=True).assign(repeat=1), part="seen-by-no-loader"
    )
    names = sorted({*run.read("verdicts")["responder_a"], *run.read("verdicts")["responder_b"]})
    run.write("responders", pd.DataFrame({"responder": names, "responder_kind": "model"}))
    free = {"licence": "CC0-1.0"}
    parts = (
        "verdicts",
        "verdicts/seen-by-no-loader",
        "scores",
        "replies",
        "histories",
        "responders",
    )
    run.record(tables=dict.fromkeys(parts, free))


def import_answers(folder: Path) -> None:
    """Import what people answered elsewhere, in a file that is called as its sender."""
    run = small_run(folder / "runs" / "studied")
    run.write("comparisons", pair_replies(run.read("replies"), rng=np.random.default_rng(1)))
    said = f"kind, says {PLANTED['address in a reason']} with {PLANTED['Prolific id in a reason']}"
    rows = {
        "rater": PLANTED["address of somebody in a study"],
        "left": ["person-h00"],
        "right": "model-h00",
        "choice": "left",
    }
    file = folder / f"study_{PLANTED['address in the name of a file']}.csv"
    pd.DataFrame(rows).assign(reason=said).to_csv(file, index=False)
    (folder / "statement.yaml").write_text(
        "\n".join(f"{name}: {text}" for name, text in STATEMENT.items())
    )
    asked = [str(run.folder), str(file), "--statement", str(folder / "statement.yaml")]
    assert raters.main(asked) == 0
    assert raters.main([*asked, "--withdraw", PLANTED["full name of a rater"]]) == 1


def refuse_files(folder: Path) -> None:
    """Give loaders files that they must refuse: the messages are what is looked through."""
    file = gather(folder)
    for how in (
        {"columns": {"verdict": None}},
        {"columns": {"rater": None}},
        {"words": {"a": "b "}},
        {"always": {"rater": "x"}},
    ):
        try:
            load_verdicts(file, **how)
        except ValueError as error:
            print(error)
    twice = pd.concat([pd.read_csv(file)] * 2).rename(
        columns={"rationale": "Why?", "rater": "Worker"}
    )
    for columns in (
        {},
        {"Worker": "rater"},
        {"Worker": "rater", "Why?": "rationale"},
        {"Worker": "verdict", "verdict": "rater"},
    ):
        try:
            load_verdicts(twice, columns=columns)
        except ValueError as error:
            print(error)


def collect(folder: Path) -> None:
    """Collect a run of one's own conversations at a provider that now and then repeats in an error
    what it was asked."""
    file = folder / f"asked_{PLANTED['address in the name of a file']}.jsonl"
    names = [PLANTED["address as the only id of a file"], "c1", "c2", "c3"]
    words = (
        f"{SENTENCE} Write to {PLANTED['address in a conversation']}, please. It is {{}} months"
        " now."
    )
    turns = [[{"speaker": "seeker", "text": words.format(number)}] for number in range(4)]
    pd.DataFrame({"history_id": names, "turns": turns}).to_json(file, orient="records", lines=True)
    (folder / "asked").mkdir()
    log, export = folder / "asked" / "log.jsonl", folder / "asked" / "calls.jsonl"
    with serving(
        Provider(answer="I am with you.", script=["echo", None, None, None, "echo"])
    ) as provider:
        model = {
            "model": "openai/test",
            "api_base": provider.address,
            "price_prompt": 0,
            "price_completion": 0,
        }
        recipe = {
            "histories": str(file),
            "given_replies": False,
            "responders": [{"name": "m", **model}],
            "probes": ["generic-comfort"],
            "judges": [{"name": "j", **model, "answer_format": "logprob"}],
            "protocols": {"heart": ["overall"]},
        }
        (folder / "params" / "asked.yaml").write_text(
            yaml.safe_dump({"chapters": [], "collect": recipe})
        )
        assert collecting.main(["asked", "--yes", "--quiet", "--log", str(log)]) == 3
        assert provider.outcomes["echo"] == 2
    assert collecting.main(["asked", "--check"]) == 3
    assert collecting.main(["asked", "--export", str(export)]) == 0
    for name in ("verdicts", "replies"):
        open_run("asked").read(name).to_csv(folder / "asked" / f"{name}.csv")


def write_board(folder: Path) -> None:
    """Write the leaderboard as files."""
    write_leaderboard(
        fit_ratings(open_run("mine").read("verdicts"), n_resamples=50),
        folder / "build" / "leaderboard",
    )


def report_gate(folder: Path) -> None:
    """Compare two files of votes, one of them called as its sender."""
    columns = [
        "history_id",
        "responder_a",
        "responder_b",
        "rater",
        "rater_kind",
        "dimension",
        "order",
        "verdict",
        "state",
    ]
    old = folder / f"old_{PLANTED['address in the name of a file']}.csv"
    for number, (file, who) in enumerate(
        ((old, THETA), (folder / "new.csv", {"new": -2.0, "x": 1.4, "y": -1.4}))
    ):
        run = write_run(folder / "scratch" / file.stem, who, seed=number)
        votes = run.read("verdicts")[columns]
        people = votes.head(9).assign(rater=PLANTED["full name of a rater"], rater_kind="human")
        pd.concat([votes, people]).to_csv(file, index=False)
    out = folder / "build" / "gate"
    commands.heart_gate(
        [str(old), str(folder / "new.csv"), "--out", str(out), "--json", str(out / "gate.json")]
    )


def report_audit(folder: Path) -> None:
    """Audit a file of votes with a person's name among its raters."""
    votes = sound_votes(np.random.default_rng(1), n_dialogues=8)
    given = votes["rater"].replace("person-0", PLANTED["full name of a rater"])
    votes.assign(rater=given).to_csv(folder / "votes.csv", index=False)
    out = folder / "build" / "audit"
    out.mkdir(parents=True)
    files = [part for kind in ("html", "json") for part in (f"--{kind}", f"{out}/audit.{kind}")]
    assert commands.heart_audit([str(folder / "votes.csv"), *files]) == 1


def release_run(folder: Path) -> None:
    """Archive the run, as ``make release RUN=mine`` does."""
    assert release.main(["--run", "mine"]) == 0


def pack_run(folder: Path) -> None:
    """Pack its verdicts, as ``make pack RUN=mine LAB=...`` does."""
    assert pool.main(["pack", "mine", "--lab", "Lab of somebody"]) == 0


COMMANDS = {
    "load_* and run.write": (load_and_write, "runs"),
    "make study's import": (import_answers, "runs"),
    "messages of loaders": (refuse_files, None),
    "make collect, its log and its export": (collect, "asked"),
    "write_leaderboard": (write_board, "build/leaderboard"),
    "heart-gate --out --json": (report_gate, "build/gate"),
    "heart-audit --html --json": (report_audit, "build/audit"),
    "make release RUN=mine": (release_run, "build/release"),
    "make pack RUN=mine": (pack_run, "build/pool"),
}


def texts_of(content: bytes, name: str) -> list[str]:
    """Give what a file says: as it is, and as a reader of its format sees it."""
    said = [
        name,
        content.decode("utf-8", errors="replace"),
        content.decode("utf-16-le", errors="ignore"),
    ]
    if name.endswith(".parquet"):
        table = pq.read_table(io.BytesIO(content))
        said += [repr(table.schema.metadata), table.to_pandas().to_csv(), str(table.to_pydict())]
    if name.endswith(".zip"):
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            said += [
                text
                for member in archive.namelist()
                for text in texts_of(archive.read(member), member)
            ]
    return said


def hits_in(folder: Path) -> tuple[int, list[str]]:
    """Count the files below a folder, and name those in which one of the planted is found, the key
    file aside."""
    files = [
        file for file in sorted(folder.rglob("*")) if file.is_file() and "keys" not in file.parts
    ]
    found = []
    for file in files:
        texts = texts_of(file.read_bytes(), file.relative_to(folder).as_posix())
        found += [
            f"{file}: {who}" for who, word in PLANTED.items() if any(word in text for text in texts)
        ]
    return len(files), found


def try_commands(folder: Path, said: io.StringIO) -> dict[str, tuple[int, list[str]]]:
    """Run each command, and give the number of files that it wrote and the planted people found in
    them."""
    results = {}
    for name, (command, wrote) in COMMANDS.items():
        before = said.tell()
        command(folder)
        n, found = hits_in(folder / wrote) if wrote else (0, [])
        told = said.getvalue()[before:]
        results[name] = (
            n,
            found + [f"its output: {who}" for who, word in PLANTED.items() if word in told],
        )
    return results


def test_nobody_who_was_planted_is_in_any_file_or_message(tmp_path, monkeypatch):
    for name in ("HEART_ROOT", "HEART_KEYS"):
        monkeypatch.setenv(name, "")
    said = io.StringIO()
    # Here and not in a fixture: pytest puts its own streams back between the two.
    with (
        contextlib.redirect_stdout(said),
        contextlib.redirect_stderr(said),
        warnings.catch_warnings(),
    ):
        warnings.showwarning = lambda message, *_: print(message, file=said)
        results = try_commands(project(tmp_path / "project"), said)
    assert "expected a, b or tie" in said.getvalue()
    assert {name: found for name, (_, found) in results.items() if found} == {}
    assert all(n for name, (n, _) in results.items() if COMMANDS[name][1])
    key = (tmp_path / "project" / "keys" / "people.csv").read_text()
    assert all(
        PLANTED[who] in key
        for who in ("address of a rater", "full name of a rater", "name of a writer")
    )


def test_the_search_finds_what_is_there(tmp_path):
    rows = pd.DataFrame({"rater": [PLANTED["full name of a rater"]]})
    rows.to_parquet(tmp_path / "a.parquet")
    with zipfile.ZipFile(tmp_path / "b.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.write(tmp_path / "a.parquet", "a.parquet")
    assert [hit.split(": ")[1] for hit in hits_in(tmp_path)[1]] == ["full name of a rater"] * 2
