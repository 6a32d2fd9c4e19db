"""How this project is cited: one file and one address, on the page and in a release."""

import re
import shutil
import subprocess

import pytest
import yaml

from heart_utils.runs import find_root
from tools.cite import cite_project
from tools.settings import read_settings

ROOT = find_root()


@pytest.fixture
def root(tmp_path):
    for name in ("CITATION.cff", "pyproject.toml"):
        shutil.copy2(ROOT / name, tmp_path / name)
    return tmp_path


def test_the_entry_has_title_version_year_and_commit_and_no_address_while_there_is_none(root):
    entry = cite_project(root, "Built from commit abc")
    citation = yaml.safe_load((root / "CITATION.cff").read_text())
    for line in (
        f"  title = {{{{{citation['title']}}}}},",
        "  author = {{The HEART in the open contributors}},",
        f"  version = {{{citation['version']}}},",
        "  year = {2026},",
        "  note = {Built from commit abc}",
    ):
        assert line in entry.split("\n")
    assert ("  url =" in entry) == bool(read_settings(ROOT).address)


def test_the_address_comes_from_the_one_place_for_it(root):
    settings = (root / "pyproject.toml").read_text()
    address = "https://example.org/somebody/heart"
    (root / "pyproject.toml").write_text(
        re.sub(r'^repository = ""', f'repository = "{address}.git"', settings, flags=re.MULTILINE)
    )
    assert f"  url = {{{address}}}\n" in cite_project(root, "")


def test_an_archive_of_the_repository_names_its_commit(root):
    """A checkout cannot: a file does not know the commit that it becomes part of."""
    shutil.copy2(ROOT / ".gitattributes", root / ".gitattributes")
    own = ["-c", "user.name=Someone", "-c", "user.email=someone@example.org"]
    for words in (["init", "--quiet"], ["add", "--all"], [*own, "commit", "--quiet", "-m", "All"]):
        subprocess.run(["git", "-C", root, *words], check=True)
    archive = ["git", "-C", root, "archive", "--format=tar", "HEAD", "CITATION.cff"]
    packed = subprocess.run(archive, capture_output=True, check=True).stdout.decode()
    head = ["git", "-C", root, "rev-parse", "HEAD"]
    commit = subprocess.run(head, capture_output=True, check=True, text=True).stdout.strip()
    assert f"commit: {commit}" in packed
    assert "$Format" in (root / "CITATION.cff").read_text()
