"""A run is a folder of tables with a manifest: open it, read it, write it."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import secrets
import tempfile
import warnings
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any

import pandas as pd

from heart_utils.identities import READ_TEXTS, WORDS_OF_PEOPLE, code_rows
from heart_utils.settings import JsonObject
from heart_utils.tables import TABLES, TableError, check_table, table_columns

__all__ = ["FORMAT", "Run", "RunError", "find_root", "may_publish", "open_run", "strictest_licence"]

#: The version of a run folder. A folder of a higher version is refused, never guessed at.
FORMAT = 1

#: The run of published labels and tallies: it is in the repository, in ``data/public``.
PUBLIC = "public"

LICENCES = {
    "CC0-1.0": 0,
    "MIT": 1,
    "BSD-3-Clause": 1,
    "Apache-2.0": 1,
    "CC-BY-4.0": 2,
    "CC-BY-SA-4.0": 2,
    "CC-BY-NC-4.0": 3,
    "CC-BY-NC-ND-4.0": 3,
    "gated": 4,
    "Apache-2.0, research and model evaluation only": 4,
    "none stated": 5,
}
"""Licences from free to strict. What is above 2 may not be shown in a published page."""

PUBLISHABLE = 2

COMPUTED = re.compile(r"[' ]*[=+\-@\t\r]")
"""What a spreadsheet may take for a formula, and what was escaped so that it does not."""
OBEYED = re.compile(
    "[\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f-\u009f\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)
"""Controls, halves of characters, and marks that turn the direction of what follows. Marks of
right-to-left scripts that turn nothing but the blank beside them, and joiners, are letters' own
business and stay."""


#: What the system says of a disk, a quota or a limit that is used up.
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)

UMASK = os.umask(0o077)  # there is no way to ask for it without setting it
os.umask(UMASK)


class RunError(ValueError):
    """A run folder cannot be opened or written."""


@dataclass(frozen=True)
class Run:
    """One folder of tables."""

    name: str  #: The folder's own name.
    folder: Path  #: Absolute.
    root: Path  #: The project's root, absolute.

    @property
    def manifest(self) -> JsonObject:
        """What ``manifest.json`` says."""
        return _read_manifest(self.folder)

    def has(self, table: str, part: str | None = None) -> bool:
        """Check whether the run holds a table or a part, even without rows."""
        return bool(self._files(table, part))

    def read(self, table: str, part: str | None = None) -> pd.DataFrame:
        """Read a table, or one part such as ``"people-rating"``.

        ``RunError`` if it is missing, ``TableError`` if its contents are wrong.
        """
        files = self._files(table, part)
        if not files:
            error_message = (
                f"The run {self.name!r} has no {table}{f' of {part}' if part else ''} (looked in"
                f" {self.folder}). It holds"
            )
            make = (
                f"`make book RUN={self.name}` or `make collect RUN={self.name}` writes them, or"
                " `run.write` yours."
            )
            raise RunError(f"{error_message} {', '.join(self.tables()) or 'no table yet'}. {make}")
        frames = [read_parquet(file) for file in files]
        try:
            return check_table(table, pd.concat(frames, ignore_index=True))
        except TableError as error:
            raise TableError(f"{error} (in {', '.join(str(file) for file in files)})") from None

    def write(
        self, table: str, rows: pd.DataFrame, part: str | None = None, *, keep_ids: bool = False
    ) -> bool:
        """Write a table or a part, checked and atomically; return whether the file changed.

        Ids that look like a person's are written as codes, unless `keep_ids` is set and the
        manifest names a licence that permits it. What people wrote is for the owner alone.
        """
        checked = check_table(table, rows)
        if keep_ids:
            self._keep_ids(table, part)
        else:
            checked = code_people_in(table, checked)
        return self._write_checked(table, checked, part)

    def _write_checked(self, table: str, checked: pd.DataFrame, part: str | None) -> bool:
        file = (
            self.folder / f"{table}.parquet"
            if part is None
            else self.folder / table / f"{part}.parquet"
        )
        return write_atomically(
            file, checked.to_parquet(index=False), private=_holds_words_of_people(checked)
        )

    def _keep_ids(self, table: str, part: str | None) -> None:
        entry = table if part is None else f"{table}/{part}"
        licence = str(self.manifest.get("tables", {}).get(entry, {}).get("licence", "none stated"))
        if not may_publish(licence):
            open_ones = ", ".join(name for name in LICENCES if may_publish(name))
            raise RunError(
                f"keep_ids=True keeps the ids of people in {entry}, and its licence is {licence!r}."
                f" Record one that lets them be passed on ({open_ones}) first:"
                f" run.record(tables={{{entry!r}: {{'licence': 'CC-BY-4.0'}}}})."
            )
        self.record(tables={entry: {**self.manifest["tables"][entry], "ids": "kept"}})

    def record(self, **entries: object) -> None:
        """Add JSON values to the manifest; a mapping is merged into its entry."""
        with _locked(self.folder):
            manifest = _read_manifest(self.folder)
            for key, value in entries.items():
                old = manifest.get(key)
                manifest[key] = (
                    {**old, **value} if isinstance(old, dict) and isinstance(value, dict) else value
                )
            text = json.dumps(manifest, indent=1, sort_keys=True, ensure_ascii=False) + "\n"
            write_atomically(self.folder / "manifest.json", text.encode())

    def parts(self, table: str) -> list[str]:
        """List a table's parts, such as each imported study, without the main file."""
        return [file.stem for file in self._files(table, None) if file.parent != self.folder]

    def tables(self) -> list[str]:
        """List the tables that the run holds."""
        return [table for table in TABLES if self._files(table, None)]

    def _files(self, table: str, part: str | None) -> list[Path]:
        table_columns(table)  # an error that lists the tables, if there is none of this name
        whole, parts = self.folder / f"{table}.parquet", self.folder / table
        files = (
            [whole, *sorted(parts.glob("*.parquet"))]
            if part is None
            else [parts / f"{part}.parquet"]
        )
        return [file for file in files if file.is_file()]


def open_run(name_or_path: str | os.PathLike[str], *, create: bool = True) -> Run:
    """Open a run, by name or by path: a folder of tables (Parquet) with a ``manifest.json``.

    Parameters
    ----------
    name_or_path
        A name means ``runs/<name>`` under the project's root, or else the current folder;
        ``"public"`` means ``data/public``. A path has a separator.
    create
        Whether a run that is not there is opened empty; its folder is made with the first table.

    Returns
    -------
    Run
        The run.

    Raises
    ------
    RunError
        If the run was written by a newer version, the path is a file, or it is not there and
        `create` is false.

    Examples
    --------
    >>> run = open_run("public")
    >>> run.name, run.has("verdicts")
    ('public', True)
    """
    name = os.fspath(name_or_path)
    if not name.strip():
        raise RunError("A run needs a name, such as 'sample', or a path to its folder.")
    bare = Path(name).name == name and name not in (".", "..")
    root = find_root()
    bare_folder = root / "data" / "public" if name == PUBLIC else find_home() / "runs" / name
    folder = bare_folder if bare else Path(name).expanduser().resolve()
    if folder.exists() and not folder.is_dir():
        raise RunError(f"{folder} is a file; a run is a folder of tables.")
    if not folder.exists() and not create:
        known_runs = sorted(path.name for path in (find_home() / "runs").glob("*") if path.is_dir())
        raise RunError(
            f"There is no run {name!r} (looked in {folder}). Runs here:"
            f" {', '.join(known_runs) or 'none yet'}."
        )
    version = _read_manifest(folder).get("format", FORMAT)
    if not isinstance(version, int) or version > FORMAT:
        error_message = (
            f"{folder} was written by a newer version of this project (run format {version}; this"
            f" one reads up to {FORMAT})"
        )
        raise RunError(f"{error_message}. Update the project.")
    return Run(folder.name, folder, root)


def find_root() -> Path:
    """Find the folder that holds ``data/``, ``runs/`` and ``params/``.

    It is what the environment variable ``HEART_ROOT`` names, else the checkout that holds this
    package, or the first checkout from the current folder upwards.

    Returns
    -------
    pathlib.Path
        Absolute; without a checkout that of the installed package.

    Raises
    ------
    RunError
        If no place holds the project, or ``HEART_ROOT`` names a folder without it.

    Examples
    --------
    >>> (find_root() / "data").is_dir()
    True
    """
    given = os.environ.get("HEART_ROOT")
    candidates = (
        [Path(given)]
        if given
        else [Path(__file__).resolve().parents[1], Path.cwd(), *Path.cwd().parents]
    )
    for folder in candidates:
        if (folder / "pyproject.toml").is_file() and (folder / "heart_utils" / "runs.py").is_file():
            return folder.resolve()
    packed = Path(__file__).resolve().parent
    if not given and (packed / "data").is_dir():
        return packed
    error_message = (
        "The project's root (a folder with pyproject.toml and heart_utils/) was not found from"
        f" {candidates[0]}"
    )
    raise RunError(
        f"{error_message}. Set HEART_ROOT to it, or install the checkout with `pip install -e .`."
    )


def find_home() -> Path:
    """Find the folder of runs and fetched data: the root, or else the current one."""
    root = find_root()
    return root if (root / "pyproject.toml").is_file() else Path.cwd()


def strictest_licence(licences: list[str]) -> str:
    """Return the most restrictive of several licences.

    Parameters
    ----------
    licences
        Names as in ``LICENCES``; one that is not known binds most of all.

    Returns
    -------
    str
        ``"CC0-1.0"`` where there are none.

    Examples
    --------
    >>> strictest_licence(["MIT", "CC-BY-NC-4.0", "CC0-1.0"])
    'CC-BY-NC-4.0'
    """
    return max(
        licences, key=lambda licence: LICENCES.get(licence, len(LICENCES)), default="CC0-1.0"
    )


def may_publish(licence: str) -> bool:
    """Check whether words under a licence may appear on a published page.

    Parameters
    ----------
    licence
        Name as in ``LICENCES``, such as ``"CC-BY-4.0"``, ``"MIT"`` or ``"none stated"``.

    Returns
    -------
    bool
        False for non-commercial, gated, unknown and missing licences.

    Examples
    --------
    >>> may_publish("CC0-1.0"), may_publish("CC-BY-NC-4.0")
    (True, False)
    """
    return LICENCES.get(licence, len(LICENCES)) <= PUBLISHABLE


def key_file() -> Path:
    """Return the path of the key to people, in ``HEART_KEYS``, else in ``keys/``."""
    named = os.environ.get("HEART_KEYS")
    return (Path(named).expanduser().resolve() if named else find_home() / "keys") / "people.csv"


def code_people_in(
    table: str, rows: pd.DataFrame, *, every: Collection[str] = (), texts: bool = False
) -> pd.DataFrame:
    """Replace people in a table by codes, and say so when the key grows."""
    file, known = key_file(), known_people()
    try:
        coded, kinds = code_rows(
            rows,
            lambda people, prefix: code_people(people, file, prefix=prefix),
            every=every,
            texts=texts,
        )
    except RunError as error:
        raise RunError(
            f"{error} HEART_KEYS names another folder for it; keep_ids=True keeps ids as they are."
        ) from None
    # Once: people who are known already are coded without a word.
    if kinds and (
        known_people() != known
        or any(column in (*WORDS_OF_PEOPLE, *READ_TEXTS) for column in kinds)
    ):
        columns = ", ".join(f"{table}.{column} ({kind})" for column, kind in kinds.items())
        warnings.warn(
            f"People are told by {columns}. Their ids are codes now, and contacts are taken out of"
            f" texts; who is who stands in {file} alone, which only its owner can read and no"
            " release packs. keep_ids=True leaves all as it is.",
            stacklevel=5 if texts else 3,
        )
    return coded


def code_people(people: Iterable[str], key_file: Path, *, prefix: str = "rater") -> dict[str, str]:
    """Assign a random code to each person, kept in the key file alone."""
    wanted = list(people)
    codes = _codes(_read_keys(key_file), prefix)
    if set(wanted) <= set(codes):
        return codes
    with _locked(key_file.parent, ".people.lock", private=True):
        keys = _read_keys(key_file)
        named, codes = dict(zip(keys["code"], keys["person"], strict=True)), _codes(keys, prefix)
        for person in wanted:
            while person not in codes:
                code = f"{prefix}-{secrets.token_hex(4)}"
                if named.setdefault(code, person) == person:
                    codes[person] = code
        # By code, since the order of arrival would tell who is who to whoever watched.
        table = pd.DataFrame(sorted(named.items()), columns=["code", "person"])
        write_atomically(key_file.with_name(".gitignore"), b"*\n", private=True)
        write_atomically(key_file, csv_text(table).encode(), private=True)
    return codes


def known_people(run: Run | None = None) -> set[str]:
    """List whom the key files of one's own files and of a run's studies name."""
    files = [key_file(), *([run.folder / "keys" / "people.csv"] if run else [])]
    return {person for file in files for person in _read_keys(file)["person"]}


def _codes(keys: pd.DataFrame, prefix: str) -> dict[str, str]:
    ours = keys[keys["code"].str.startswith(f"{prefix}-")]
    return dict(zip(ours["person"], ours["code"], strict=True))


def _read_keys(key_file: Path) -> pd.DataFrame:
    if not key_file.is_file():
        return pd.DataFrame({"code": [], "person": []}, dtype=str)
    try:
        keys = read_csv_text(key_file.read_text(encoding="utf-8"), dtype=str, keep_default_na=False)
    except (ValueError, UnicodeDecodeError, OSError) as error:
        remedy = "Restore it, or delete it to give everyone a new code."
        raise RunError(
            f"The key file {key_file} cannot be read ({type(error).__name__}). {remedy}"
        ) from None
    if list(keys.columns) != ["code", "person"]:
        raise RunError(
            f"The key file {key_file} has {len(keys.columns)} columns that are not code and person"
            " alone."
        )
    twice = (
        keys["code"].duplicated()
        | keys.assign(code=keys["code"].str.split("-").str[0]).duplicated()
    )
    if twice.any():
        first = keys.loc[twice, "code"].iloc[0]
        raise RunError(
            f"The key file {key_file} gives {first} or its person twice; each code belongs to one"
            " person."
        )
    return keys


def _holds_words_of_people(rows: pd.DataFrame) -> bool:
    """Check whether a table holds what people wrote."""
    if "rationale" in rows:
        return bool((rows["rationale"].notna() & (rows["rater_kind"] == "human")).any())
    words = rows.get("text", rows.get("turns"))  # of a reply, or of a conversation
    if words is None or "author_id" not in rows:
        return False
    return bool((words.notna() & rows["author_id"].notna()).any())


def write_atomically(file: Path, content: bytes, *, private: bool = False) -> bool:
    """Replace a file whole or not at all, unless its content is the same."""
    return write_together({file: content}, private=private)


def write_together(contents: Mapping[Path, bytes], *, private: bool = False) -> bool:
    """Replace files once all are on the disk; return whether any changed."""
    parts: dict[Path, Path] = {}
    file = Path()
    try:
        for file, content in contents.items():
            if file.is_file() and file.read_bytes() == content:
                if private:
                    file.chmod(0o600)
            else:
                parts[file] = _write_part(file, content, private)
        n_changed = len(parts)
        for file in list(parts):
            os.replace(parts[file], file)
            del parts[file]
    except OSError as error:
        full = (
            " Make room on its disk, and give the same command again."
            if error.errno in FULL
            else ""
        )
        raise RunError(
            f"{file} could not be written ({error.strerror}); what was there before is"
            f" untouched.{full}"
        ) from error
    finally:
        for part in parts.values():
            part.unlink(missing_ok=True)
    return n_changed > 0


def _write_part(file: Path, content: bytes, private: bool) -> Path:
    """Write and sync new content beside a file, or leave nothing there."""
    file.parent.mkdir(0o700 if private else 0o777, parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name}.")
    part = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as handle:
            handle.write(content)
            handle.flush()
            os.fsync(handle.fileno())
        if not private:  # what mkstemp makes is for its owner alone
            part.chmod(0o666 & ~UMASK)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
    return part


def checksum(file: Path) -> str:
    with file.open("rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()


def read_parquet(file: Path) -> pd.DataFrame:
    """Read a table's file; a damaged one is a :class:`TableError`."""
    try:
        return pd.read_parquet(file)
    except Exception as error:  # pyarrow has no common class for a damaged file
        error_message = f"{file} cannot be read as a table ({type(error).__name__}: {error})"
        raise TableError(
            f"{error_message}. It may have been cut short; delete it and run the step that writes"
            " it again."
        ) from error


def write_sealed(
    path: str | os.PathLike[str], content: Mapping[str, Any], *, indent: int | None = None
) -> Path:
    """Write JSON with a digest of its content, whole or not at all."""
    text = json.dumps(
        {**content, "digest": content_digest(content)}, indent=indent, ensure_ascii=False
    )
    write_atomically(Path(path), f"{text}\n".encode())
    return Path(path)


def read_sealed(
    path: str | os.PathLike[str], expected: str, error: type[ValueError], remedy: str
) -> JsonObject:
    """Read what ``write_sealed`` wrote, and refuse another format or a wrong digest."""
    try:
        content = json.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as fault:
        raise error(f"{path} cannot be read ({fault.strerror}).") from None
    except ValueError:
        raise error(f"{path} is not JSON; expected a file that `save` wrote.") from None
    actual = content.get("format") if isinstance(content, dict) else None
    if actual != expected:
        raise error(f"{path} has the format {actual!r}; this version reads {expected!r}: {remedy}.")
    digest = content.pop("digest", None)
    if digest != content_digest(content):
        raise error(
            f"{path} was changed after it was saved: its content does not fit its digest; {remedy}."
        )
    return dict(content)


def content_digest(content: Mapping[str, Any]) -> str:
    """Return a SHA-256 of settings, whatever the order of names."""
    return hashlib.sha256(
        json.dumps(content, sort_keys=True, ensure_ascii=False).encode()
    ).hexdigest()


def _read_manifest(folder: Path) -> JsonObject:
    file = folder / "manifest.json"
    if not file.is_file():
        return {"format": FORMAT, "run": folder.name}
    try:
        manifest = json.loads(file.read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise RunError(
            f"{file} is not JSON ({error}). Delete it and run the chapters again."
        ) from None
    if not isinstance(manifest, dict):
        raise RunError(f"{file} holds a {type(manifest).__name__}, expected an object.")
    return manifest


@contextmanager
def _locked(folder: Path, lock: str = ".manifest.lock", *, private: bool = False) -> Iterator[None]:
    """Let one process at a time change a manifest or a key file."""
    from filelock import FileLock

    try:
        folder.mkdir(0o700 if private else 0o777, parents=True, exist_ok=True)
        with FileLock(folder / lock, timeout=60, mode=0o600 if private else -1):
            yield
    except OSError as error:
        raise RunError(f"{folder} could not be written ({error.strerror}).") from error


def csv_text(table: pd.DataFrame) -> str:
    """Write CSV in which no text is a spreadsheet's formula."""
    escaped = table.map(
        lambda cell: f"'{cell}" if isinstance(cell, str) and COMPUTED.match(cell) else cell
    )
    return str(escaped.to_csv(index=False))


def read_csv_text(text: str, **options: Any) -> pd.DataFrame:
    """Read what ``csv_text`` wrote, with its texts as they were."""
    table: pd.DataFrame = pd.read_csv(StringIO(text), **options)
    for name in table.columns[table.dtypes == "str"]:
        table[name] = table[name].str.replace(rf"^'(?={COMPUTED.pattern})", "", regex=True)
    return table


def visible_text(text: str) -> str:
    r"""Make controls and marks of a text's direction visible."""
    return OBEYED.sub(lambda match: f"[U+{ord(match[0]):04X}]", text)
