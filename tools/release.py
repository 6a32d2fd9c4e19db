"""Pack a release (book, source, checksums), or report what keeps it from being published.

``python -m tools.release --check`` only looks; ``python -m tools.release`` writes
``build/release``; ``python -m tools.release --run mine`` archives a run. The version is
that of ``heart_utils/__init__.py``. Nothing is uploaded, tagged or committed.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import re
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import yaml

from heart_utils.identities import looks_like_person, redact_message, refuse_identities
from heart_utils.ratings.ratings import fit_boards
from heart_utils.report.commands import methods
from heart_utils.runs import (
    Run,
    find_root,
    known_people,
    may_publish,
    open_run,
    read_parquet,
    strictest_licence,
    write_atomically,
    write_together,
)
from tools import current_commit
from tools.cite import cite_project
from tools.leak import WITHHELD, Withheld, find_leaks, read_published, withheld_texts
from tools.settings import read_settings

__all__ = ["ReleaseError", "find_faults", "pack_release", "pack_run", "zip_folder"]

NAME = "heart-in-the-open"
VERSION = re.compile(r'^__version__ = "([^"]+)"$', flags=re.MULTILINE)
ENTRY = re.compile(
    r"^## (?P<version>\S+), (?P<said>[^\n]+)\n(?P<lines>.*?)(?=^## |\Z)",
    flags=re.MULTILINE | re.DOTALL,
)


class ReleaseError(ValueError):
    """Something keeps this checkout from being published."""


def find_faults(root: Path) -> list[str]:
    """List what keeps a checkout from being published, before anything is packed.

    Parameters
    ----------
    root : pathlib.Path
        The project's root.

    Returns
    -------
    list of str
        One sentence a fault, each with what to do.
    """
    faults = []
    changed = _git(root, "status", "--porcelain").splitlines()
    if changed:
        faults.append(
            f"The tree has changes: {', '.join(line[3:] for line in changed[:5])}. Commit them, or"
            " put them away."
        )
    version, entry = _version(root), _entry(root)
    citation = yaml.safe_load((root / "CITATION.cff").read_text(encoding="utf-8"))
    if entry is None or entry["version"] != version:
        state = f"the newest entry is {entry['version']}" if entry else "there is no entry at all"
        faults.append(
            f"CHANGELOG.md: {state}, the version is {version}. Write an entry `## {version},"
            " YYYY-MM-DD` above it."
        )
    else:
        date = entry["said"].strip()
        if not re.fullmatch(r"\d{4}-\d{2}-\d{2}", date):
            faults.append(
                f"CHANGELOG.md: {version} is dated {date!r}. Write the day, as in `## {version},"
                " 2026-01-09`."
            )
        elif str(citation.get("date-released")) != date:
            faults.append(
                f"CITATION.cff: date-released is {citation.get('date-released')}, CHANGELOG.md says"
                f" {date}."
            )
        if not re.search(r"^- \S", entry["lines"], flags=re.MULTILINE):
            faults.append(
                f"CHANGELOG.md: the entry of {version} is empty. Say in lines that start with `- `"
                " what changed."
            )
    if str(citation.get("version")) != version:
        faults.append(
            f"CITATION.cff says version {citation.get('version')}, heart_utils/__init__.py says"
            f" {version}."
        )
    if (address := read_settings(root).repository) != citation.get("repository-code", ""):
        faults.append(
            f"CITATION.cff: repository-code is {citation.get('repository-code', '')!r},"
            f" pyproject.toml says {address!r} ([tool.heart], repository). Write the same in both."
        )
    tables = open_run(root / "runs" / "sample").manifest.get("tables", {})
    licence = strictest_licence(
        [str(table.get("licence", "none stated")) for table in tables.values()]
    )
    if not may_publish(licence):
        bound = sorted(
            name
            for name, table in tables.items()
            if not may_publish(str(table.get("licence", "none stated")))
        )
        faults.append(
            "The run sample, whose book is published, rests on words that may not be passed on"
            f" ({', '.join(bound)}: {licence}). Give it words of the project's own, and build the"
            " book again."
        )
    return faults


def pack_release(root: Path, html: Path, out: Path, withheld: Withheld) -> list[Path]:
    """Write the book as a zip, the source as a tar archive, what changed, and their checksums.

    Parameters
    ----------
    root : pathlib.Path
        The project's root, at a commit.
    html : pathlib.Path
        The book's pages, built from that commit.
    out : pathlib.Path
        Where the files are written.
    withheld : tools.leak.Withheld
        Words that no file may hold.

    Returns
    -------
    list of pathlib.Path
        The files. The same commit and pages give the same bytes.

    Raises
    ------
    ReleaseError
        If the pages are of another commit, or a page or a file holds withheld words or somebody
        whom a key file names; nothing is written then.
    """
    commit, version = current_commit(root), _version(root)
    front = html / "book" / "intro.html"
    if not front.is_file() or f"from commit {commit}, run" not in front.read_text(encoding="utf-8"):
        raise ReleaseError(f"{html} is not the book of commit {commit}. Build it with `make book`.")
    when = int(_git(root, "log", "-1", "--format=%ct"))
    stem = f"{NAME}-{version}"
    book, source, notes = (
        out / f"{stem}-book.zip",
        out / f"{stem}-source.tar.gz",
        out / f"{stem}-changes.md",
    )
    tar = subprocess.run(
        ["git", "-C", str(root), "archive", "--format=tar", f"--prefix={stem}/", "HEAD"],
        capture_output=True,
        check=True,
    )
    entry = _entry(root)
    contents = {
        book: zip_folder(html, prefix=f"{stem}-book", when=when),
        source: gzip.compress(tar.stdout, mtime=when),
        notes: (entry["lines"].strip() + "\n").encode() if entry else b"",
    }
    _refuse_words({book.name: contents[book], source.name: contents[source]}, root, withheld)
    sums = "".join(
        f"{hashlib.sha256(content).hexdigest()}  {file.name}\n"
        for file, content in contents.items()
    )
    contents[out / "SHA256SUMS"] = sums.encode()
    write_together(contents)
    return list(contents)


def _refuse_words(archives: dict[str, bytes], root: Path, withheld: Withheld) -> None:
    """Refuse archives that hold withheld words, or somebody whom a run's key file names."""
    people = known_people().union(
        *(known_people(open_run(folder)) for folder in (root / "runs").glob("*") if folder.is_dir())
    )
    named = sorted({person for person in people if looks_like_person(person)})
    people_named, leaks = [], []
    for archive, content in archives.items():
        texts = list(read_published(content))
        people_named += [
            f"{archive}, {redact_message(name)}"
            for name, text in texts
            if any(map(text.__contains__, named))
        ]
        leaks += [f"{archive}, {leak.file}: {leak.words!r}" for leak in find_leaks(texts, withheld)]
    if people_named:
        raise ReleaseError(
            f"Somebody whom a key file names stands in: {'; '.join(people_named[:5])}. Put the"
            " code in the place of the name."
        )
    if leaks:
        raise ReleaseError(
            f"Words of {', '.join(WITHHELD)} may not be passed on, and stand in:"
            f" {'; '.join(leaks[:5])}. Show ids or figures in their place."
        )


def pack_run(root: Path, name: str, out: Path) -> Path:
    """Archive what may be passed on of a run: its tables, settings, methods and citations.

    Parameters
    ----------
    root : pathlib.Path
        The project's root.
    name : str
        The run.
    out : pathlib.Path
        Where the archive is written.

    Returns
    -------
    pathlib.Path
        A zip; the same run gives the same bytes. The ledger, which holds every answer, is not in
        it.

    Raises
    ------
    ReleaseError
        If no table of the run has a licence that lets it be passed on, or a key file was copied
        beside them.
    heart_utils.identities.IdentityError
        If a table or a file would name people. Nothing is written then.
    """
    run = open_run(root / "runs" / name, create=False)
    _refuse_keys(run)
    files = sorted(file.relative_to(run.folder) for file in run.folder.rglob("*.parquet"))
    noted = run.manifest.get("tables", {})
    licences = {
        file: str(noted.get(file.with_suffix("").as_posix(), {}).get("licence", "none stated"))
        for file in files
    }
    kept = [file for file in files if may_publish(licences[file])]
    if not kept:
        refused = (
            ", ".join(f"{file} ({licence})" for file, licence in licences.items()) or "it has none"
        )
        raise ReleaseError(
            f"No table of the run {name} may be passed on: {refused}. If they are yours to share,"
            f" say so: open_run({name!r}).record(tables={{'verdicts': {{'licence': 'CC0-1.0'}}}})."
        )
    with tempfile.TemporaryDirectory() as held:
        folder = Path(held)
        for file in kept:
            (folder / file).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(run.folder / file, folder / file)
        shutil.copyfile(run.folder / "manifest.json", folder / "manifest.json")
        given = {f"{name}.yaml": f"params/{name}.yaml", "requirements.txt": "requirements/book.txt"}
        for packed, place in given.items():
            if (root / place).is_file():
                shutil.copyfile(root / place, folder / packed)
        methods = _methods_of(run) if Path("verdicts.parquet") in kept else ""
        (folder / "methods.md").write_text(methods, encoding="utf-8")
        (folder / "references.bib").write_text(_cited(root, methods, noted), encoding="utf-8")
        listed = [
            f"{file}: {licence if file in kept else f'left out, {licence}'}"
            for file, licence in licences.items()
        ]
        (folder / "LICENCES.txt").write_text("\n".join(listed) + "\n", encoding="utf-8")
        tables = {file.with_suffix("").as_posix(): read_parquet(run.folder / file) for file in kept}
        texts = dict(read_published(folder)) | {
            "the name of the run or of a table": "\n".join([name, *tables])
        }
        with_ids = [table for table in tables if noted.get(table, {}).get("ids") == "kept"]
        refuse_identities(tables, texts, known=known_people(run), kept=with_ids)
        archive = out / f"{NAME}-run-{name}.zip"
        write_atomically(archive, zip_folder(folder, prefix=archive.stem, when=0))
    return archive


def _refuse_keys(run: Run) -> None:
    """Refuse a run with a key file beside its tables, whatever it is called.

    Whoever copies the folder would pass it on.
    """
    for file in sorted(file for file in run.folder.rglob("*") if file.is_file()):
        path = file.relative_to(run.folder)
        if file.suffix == ".parquet":
            is_key = {"code", "person"} <= set(pq.read_schema(file).names)
        else:
            with file.open("rb") as opened:
                is_key = opened.read(11) == b"code,person" and path.parts[0] != "keys"
        if is_key:
            raise ReleaseError(
                f"{path} in the run {run.name!r} is a key file: it says whose each code is. Keep"
                " it in keys/ alone, or apart from the run, and delete this copy."
            )


def _methods_of(run: Run) -> str:
    """Write the paragraph on each dimension of a run."""
    boards = fit_boards(run.read("verdicts"), by=["dimension"])
    return "\n\n".join(methods(run, board) for board in boards.values()) + "\n"


def _cited(root: Path, methods: str, noted: dict[str, Any]) -> str:
    """Return BibTeX for this project, HEART, and what the methods cite.

    The citations of the data are notes.
    """
    own = cite_project(root, f"Commit {current_commit(root)}")
    entries = re.split(r"\n(?=@)", (root / "book" / "references.bib").read_text(encoding="utf-8"))
    keys = {"iyer2026heart", *re.findall(r"@(\w+)\]", methods)}
    chosen = [
        entry.strip() + "\n"
        for entry in entries
        if (key := re.match(r"@\w+\{(\w+)", entry)) and key[1] in keys
    ]
    data = sorted({str(table["citation"]) for table in noted.values() if table.get("citation")})
    return "\n".join([own, *chosen, *(f"% data: {line}" for line in data)])


def zip_folder(folder: Path, *, prefix: str, when: int) -> bytes:
    """Zip a folder so that the same files give the same bytes.

    Parameters
    ----------
    folder : pathlib.Path
        What to pack.
    prefix : str
        The folder that the archive unpacks to.
    when : int
        Seconds since 1970: each file's time in the archive, whatever the disk says.

    Returns
    -------
    bytes
        The archive.
    """
    packed = io.BytesIO()
    stamp = time.gmtime(max(when, 315532800))[:6]  # a zip knows no time before 1980
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for path in sorted(
            (path for path in folder.rglob("*") if path.is_file()),
            key=lambda path: path.relative_to(folder).parts,
        ):
            member = zipfile.ZipInfo(f"{prefix}/{path.relative_to(folder).as_posix()}", stamp)
            member.compress_type, member.external_attr, member.create_system = (
                zipfile.ZIP_DEFLATED,
                0o644 << 16,
                3,
            )
            archive.writestr(member, path.read_bytes())
    return packed.getvalue()


def _version(root: Path) -> str:
    match = VERSION.search((root / "heart_utils" / "__init__.py").read_text(encoding="utf-8"))
    if match is None:
        raise ReleaseError('heart_utils/__init__.py has no line `__version__ = "X.Y.Z"`.')
    return match[1]


def _entry(root: Path) -> dict[str, str] | None:
    """Return the newest entry of the changes."""
    match = ENTRY.search((root / "CHANGELOG.md").read_text(encoding="utf-8"))
    return match.groupdict() if match else None


def _git(root: Path, *words: str) -> str:
    done = subprocess.run(["git", "-C", str(root), *words], capture_output=True, text=True)
    if done.returncode:
        raise ReleaseError(
            f"A release is made from a git checkout, and git says: {done.stderr.strip()}"
        )
    return done.stdout.rstrip("\n")


def main(arguments: list[str]) -> int:
    """Check, and pack unless only a check was asked for."""
    root = find_root()
    try:
        if arguments[:1] == ["--run"]:
            print(pack_run(root, arguments[1], root / "build" / "release").relative_to(root))
            return 0
        if faults := find_faults(root):
            raise ReleaseError("\n".join(faults))
        # before the book is built: without these texts nobody can look for them
        withheld = withheld_texts()
        if "--check" in arguments:
            return 0
        for file in pack_release(
            root, root / "build" / "html", root / "build" / "release", withheld
        ):
            print(f"{file.relative_to(root)}  {file.stat().st_size / 1e6:.1f} MB")
    except (ValueError, OSError) as error:  # DataError, SettingsError and RunError are ValueErrors
        print(f"No release was made.\n{error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
