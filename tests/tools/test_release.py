"""What is published agrees with itself, may be passed on, and comes out the same twice."""

import hashlib
import json
import os
import subprocess
import tarfile
import zipfile

import pandas as pd
import pytest
import yaml
from builders import full_disk

from heart_utils.identities import IdentityError
from heart_utils.runs import RunError, code_people, find_root, open_run
from heart_utils.sources.load import load_verdicts
from tools import current_commit
from tools.leak import Withheld
from tools.release import ReleaseError, find_faults, main, pack_release, pack_run

NOTHING_WITHHELD = Withheld([])
CHANGES = (
    "# Changes\n\nNewest first.\n\n## 1.2.0, 2026-01-09\n\n- A table moved from 3 to 4.\n\n##"
    " 1.1.0, 2025-12-01\n\n- Older.\n"
)


class Checkout:
    """A project of a few files, at a commit, with a book and a run that may be published."""

    def __init__(self, root):
        self.root, self.html, self.out = root, root / "build" / "html", root / "build" / "release"
        self.write("pyproject.toml", "[tool.heart]\nrepository = ''\n")
        self.write("heart_utils/__init__.py", '"""Helpers."""\n\n__version__ = "1.2.0"\n')
        self.write("CHANGELOG.md", CHANGES)
        self.write(
            "CITATION.cff", "cff-version: 1.2.0\nversion: 1.2.0\ndate-released: 2026-01-09\n"
        )
        self.write(".gitignore", "build/\nruns/\n")
        self.write_licence("CC0-1.0")
        self.git("init", "--quiet", "--initial-branch=main")
        self.commit()

    def write(self, name, text):
        (self.root / name).parent.mkdir(parents=True, exist_ok=True)
        (self.root / name).write_text(text)

    def write_licence(self, licence):
        tables = {"histories": {"licence": "CC0-1.0"}, "verdicts": {"licence": licence}}
        self.write(
            "runs/sample/manifest.json",
            json.dumps({"format": 1, "run": "sample", "tables": tables}),
        )

    def git(self, *words):
        dates = dict.fromkeys(("GIT_AUTHOR_DATE", "GIT_COMMITTER_DATE"), "2026-01-09T10:00:00Z")
        how = {"cwd": self.root, "env": {**os.environ, **dates}, "capture_output": True}
        named = ("-c", "user.name=Someone", "-c", "user.email=someone@example.org")
        subprocess.run(["git", *named, "-c", "commit.gpgsign=false", *words], check=True, **how)

    def pack(self, withheld=NOTHING_WITHHELD):
        return pack_release(self.root, self.html, self.out, withheld)

    def commit(self):
        self.git("add", "--all")
        self.git("commit", "--quiet", "--message", "Change")
        self.write(
            "build/html/book/intro.html",
            f"<li>built on 2026-01-09 from commit {current_commit(self.root)}, run sample.</li>",
        )
        self.write("build/html/index.html", "<p>Read on.</p>")


@pytest.fixture
def checkout(tmp_path):
    return Checkout(tmp_path / "project")


UNFIT = {
    "CHANGELOG.md: the newest entry is 1.1.0, the version is 1.2.0": (
        "CHANGELOG.md",
        CHANGES[CHANGES.index("## 1.1") :],
    ),
    "CHANGELOG.md: there is no entry at all": ("CHANGELOG.md", "# Changes\n"),
    "CHANGELOG.md: 1.2.0 is dated 'not released yet'": (
        "CHANGELOG.md",
        CHANGES.replace("2026-01-09", "not released yet"),
    ),
    "CHANGELOG.md: the entry of 1.2.0 is empty": (
        "CHANGELOG.md",
        CHANGES.replace("- A table", "A table"),
    ),
    "CITATION.cff: date-released is None, CHANGELOG.md says 2026-01-09": (
        "CITATION.cff",
        "version: 1.2.0\n",
    ),
    "CITATION.cff: date-released is 2026-01-08": (
        "CITATION.cff",
        "version: 1.2.0\ndate-released: 2026-01-08\n",
    ),
    "CITATION.cff says version 1.1.0": (
        "CITATION.cff",
        "version: 1.1.0\ndate-released: 2026-01-09\n",
    ),
    "repository-code is '', pyproject.toml says 'https://": (
        "pyproject.toml",
        "[tool.heart]\nrepository = 'https://example.org'\n",
    ),
}


@pytest.mark.parametrize("fault", UNFIT)
def test_what_does_not_agree_is_told(fault, checkout):
    checkout.write(*UNFIT[fault])
    checkout.commit()
    (found,) = find_faults(checkout.root)
    assert fault in found


def test_a_tree_with_changes_is_refused_by_name(checkout):
    checkout.write(
        "CITATION.cff", "cff-version: 1.2.0\nversion: 1.2.0\ndate-released: 2026-01-09\n# more\n"
    )
    checkout.write("left_over.py", "")
    (found,) = find_faults(checkout.root)
    assert "The tree has changes: CITATION.cff, left_over.py." in found


@pytest.mark.parametrize("licence", ["CC-BY-NC-4.0", "none stated", "who knows"])
def test_a_run_whose_words_may_not_be_passed_on_is_refused(licence, checkout):
    checkout.write_licence(licence)
    (found,) = find_faults(checkout.root)
    assert f"(verdicts: {licence})" in found


def test_a_folder_that_is_no_checkout_is_refused(checkout, tmp_path):
    (checkout.root / ".git").rename(tmp_path / "away")
    with pytest.raises(ReleaseError, match="A release is made from a git checkout"):
        find_faults(checkout.root)


def test_the_same_commit_and_pages_give_the_same_bytes(checkout):
    assert find_faults(checkout.root) == []
    first = {file.name: file.read_bytes() for file in checkout.pack()}
    for file in checkout.html.rglob("*.html"):
        os.utime(file, (1, 1))
        file.chmod(0o600)
    assert {file.name: file.read_bytes() for file in checkout.pack()} == first


def test_a_release_holds_the_pages_what_is_committed_what_changed_and_their_checksums(checkout):
    book, source, changes, sums = checkout.pack()
    stem = "heart-in-the-open-1.2.0"
    with zipfile.ZipFile(book) as pages:
        assert pages.namelist() == [f"{stem}-book/book/intro.html", f"{stem}-book/index.html"]
        assert pages.infolist()[0].date_time == (2026, 1, 9, 10, 0, 0)
    with tarfile.open(source) as archive:
        committed = sorted(member.name for member in archive if member.isfile())
    names = (
        ".gitignore",
        "CHANGELOG.md",
        "CITATION.cff",
        "heart_utils/__init__.py",
        "pyproject.toml",
    )
    assert committed == [f"{stem}/{name}" for name in names]
    assert changes.read_text() == "- A table moved from 3 to 4.\n"
    told = dict(reversed(line.split("  ")) for line in sums.read_text().splitlines())
    assert told == {
        file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in (book, source, changes)
    }


def test_pages_of_another_commit_are_refused(checkout):
    older = (checkout.html / "book" / "intro.html").read_text()
    checkout.write("more.md", "More.")
    checkout.commit()
    checkout.write("build/html/book/intro.html", older)
    with pytest.raises(
        ReleaseError, match=f"is not the book of commit {current_commit(checkout.root)}"
    ):
        checkout.pack()


@pytest.mark.parametrize("name", ["build/html/index.html", "notes.md"])
def test_withheld_words_stop_a_release_and_the_last_one_stays(name, checkout):
    text = "she never told a soul about the letter in the drawer"
    checkout.write("build/release/last.zip", "The last release.")
    if name == "notes.md":
        checkout.write(name, text)
        checkout.commit()
    else:
        checkout.write(name, f"<p>{text}</p>")
    with pytest.raises(
        ReleaseError, match=f"{name.rpartition('/')[2]}: 'she never told a soul about the letter'"
    ):
        checkout.pack(Withheld([text]))
    assert [file.name for file in checkout.out.iterdir()] == ["last.zip"]


@pytest.mark.parametrize("after", [0, 1, 3])
def test_a_full_disk_leaves_nothing_of_a_release(checkout, monkeypatch, after):
    with (
        full_disk(monkeypatch, after=after),
        pytest.raises(RunError, match="could not be written .*Make room on its disk"),
    ):
        checkout.pack()
    assert list(checkout.out.iterdir()) == []


def test_the_command_says_what_is_wrong_and_fails(checkout, monkeypatch, capsys):
    monkeypatch.setattr("tools.release.find_root", lambda: checkout.root)
    checkout.write_licence("none stated")
    assert main(["--check"]) == 1
    assert "No release was made." in capsys.readouterr().err


def test_this_project_s_version_stands_in_its_citation_and_atop_its_changes():
    """Only what a working tree always holds to: the rest is for the day of a release."""
    root = find_root()
    faults = [
        fault
        for fault in find_faults(root)
        if "The tree has changes" not in fault and "is dated" not in fault
    ]
    assert [fault for fault in faults if not fault.startswith("The run")] == []
    assert yaml.safe_load((root / "CITATION.cff").read_text(encoding="utf-8"))["title"]


def test_a_run_of_ones_own_is_archived_with_what_its_licences_allow_and_what_to_cite(tmp_path):
    root = find_root()
    mine = open_run(tmp_path / "runs" / "mine")
    votes = {
        "history_id": ["c1", "c2", "c3"],
        "responder_a": "ann",
        "responder_b": "bot",
        "rater": "eve",
        "rater_kind": "human",
    }
    mine.write("verdicts", load_verdicts(pd.DataFrame({**votes, "verdict": ["a", "b", "a"]})))
    mine.write(
        "responders",
        pd.DataFrame({"responder": ["ann", "bot"], "responder_kind": ["human", "model"]}),
    )
    files = ("CITATION.cff", "pyproject.toml", "requirements/book.txt", "book/references.bib")
    for name in (*files, "params/sample.yaml"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name.replace("sample", "mine")).write_text((root / name).read_text())
    with pytest.raises(
        ReleaseError,
        match=r"the run mine .*: responders\.parquet .none stated.",
    ):
        pack_run(tmp_path, "mine", tmp_path / "out")
    mine.record(
        tables={
            "verdicts": {"licence": "CC0-1.0", "citation": "Me (2027)"},
            "responders": {"licence": "CC-BY-NC-4.0"},
        }
    )
    archive = pack_run(tmp_path, "mine", tmp_path / "out")
    with zipfile.ZipFile(archive) as packed:
        held = {
            name.split("/", 1)[1]: packed.read(name).decode(errors="ignore")
            for name in packed.namelist()
        }
    assert set(held) == {
        *(
            "verdicts.parquet",
            "manifest.json",
            "mine.yaml",
            "requirements.txt",
            "methods.md",
            "references.bib",
            "LICENCES.txt",
        )
    }
    assert "responders.parquet: left out, CC-BY-NC-4.0" in held["LICENCES.txt"]
    assert "3 verdicts on the dimension overall" in held["methods.md"]
    assert all(
        key in held["references.bib"]
        for key in ("{heart_in_the_open,", "{iyer2026heart,", "{bradley1952rank,", "Me (2027)")
    )
    assert "davidson1970ties" not in held["references.bib"]
    before = archive.read_bytes()
    assert pack_run(tmp_path, "mine", tmp_path / "out").read_bytes() == before


@pytest.fixture
def votes_run(tmp_path):
    """A run of one's own whose verdicts may be passed on, in a project of its own."""
    for file in ("CITATION.cff", "pyproject.toml", "book/references.bib"):
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_text(
            (find_root() / file).read_text(encoding="utf-8"), encoding="utf-8"
        )
    run = open_run(tmp_path / "runs" / "mine")
    run.write("verdicts", load_verdicts("mtbench").drop_duplicates("comparison_id").head(40))
    run.record(tables={"verdicts": {"licence": "CC-BY-4.0"}})
    return run


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"rater": "ann@example.org"}, "verdicts.rater: e-mail addresses .40 rows."),
        ({"rater": "Anna Schmidt", "rater_kind": "human"}, "verdicts.rater: names .40 rows."),
        ({"rationale": "my id is 5f3c1b2a9d8e7f6a5b4c3d2e"}, "verdicts.rationale: texts .40 rows."),
        ({"group": "asked by ann@example.org"}, "verdicts.group: e-mail addresses .40 rows."),
    ],
)
def test_a_table_that_still_names_people_is_refused_by_column_and_nothing_is_left(
    change, told, votes_run, tmp_path
):
    # as an older version did
    votes_run.read("verdicts").assign(**change).to_parquet(votes_run.folder / "verdicts.parquet")
    with pytest.raises(IdentityError, match=told) as caught:
        pack_run(tmp_path, "mine", tmp_path / "out")
    assert not any(value in str(caught.value) for value in change.values() if value != "human")
    assert not (tmp_path / "out").exists()


def test_a_full_disk_leaves_no_archive_of_a_run(votes_run, tmp_path, monkeypatch):
    with (
        full_disk(monkeypatch),
        pytest.raises(RunError, match="could not be written .*Make room on its disk"),
    ):
        pack_run(tmp_path, "mine", tmp_path / "out")
    assert list((tmp_path / "out").iterdir()) == []


def test_ids_that_a_licence_lets_stay_are_packed(votes_run, tmp_path):
    rows = votes_run.read("verdicts").assign(rater="Anna Schmidt", rater_kind="human")
    votes_run.write("verdicts", rows, keep_ids=True)
    assert pack_run(tmp_path, "mine", tmp_path / "out").is_file()


def test_a_run_into_which_its_key_file_was_copied_is_refused(votes_run, tmp_path):
    key = votes_run.folder / "keys" / "people.csv"
    code_people(["ann@example.org"], key)
    for name in ("people.csv", "study/old.csv", "verdicts/whose.parquet", "notes.txt"):
        copy = votes_run.folder / name
        copy.parent.mkdir(exist_ok=True)
        if copy.suffix == ".parquet":
            pd.read_csv(key).to_parquet(copy)
        else:
            copy.write_bytes(key.read_bytes())
        with pytest.raises(ReleaseError, match=f"{name} in the run 'mine' is a key file"):
            pack_run(tmp_path, "mine", tmp_path / "out")
        assert not list((tmp_path / "out").glob("*"))
        copy.unlink()
    assert pack_run(tmp_path, "mine", tmp_path / "out").is_file()


def test_settings_and_a_manifest_are_looked_through_too(votes_run, tmp_path):
    code_people(["Anna Schmidt"], votes_run.folder / "keys" / "people.csv")
    votes_run.record(notes="Votes were gathered by Anna Schmidt.")
    with pytest.raises(IdentityError, match="manifest.json: somebody whom a key file names"):
        pack_run(tmp_path, "mine", tmp_path / "out")


def test_a_release_of_the_book_names_nobody_whom_a_key_file_names(checkout):
    code_people(["Anna Schmidt"], checkout.root / "runs" / "mine" / "keys" / "people.csv")
    checkout.write("build/html/index.html", "<p>Anna Schmidt voted for a.</p>")
    with pytest.raises(ReleaseError, match="1.2.0-book.zip, .*index.html. Put the code") as caught:
        checkout.pack()
    assert "Schmidt" not in str(caught.value)
    assert not checkout.out.exists()
