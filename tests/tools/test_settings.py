"""Addresses are one setting, and nothing is invented while it is empty."""

import re
import shutil
import subprocess
import sys

import pytest

from heart_utils.report.tables import TableNote
from heart_utils.runs import find_root
from heart_utils.sources.catalogue import find_source
from tools.governance import shared_inputs, write_governance
from tools.settings import Settings, SettingsError, contact_words, launch_words, read_settings

ROOT = find_root()


def write_settings(folder, text):
    (folder / "pyproject.toml").write_text(text)
    return folder


@pytest.mark.parametrize(
    ("address", "launched"),
    [
        ("https://github.com/who/what", "https://mybinder.org/v2/gh/who/what/HEAD?"),
        ("https://github.com/who/what.git", "https://mybinder.org/v2/gh/who/what/HEAD?"),
        ("https://gitlab.com/who/what/", "https://mybinder.org/v2/gl/who%2Fwhat/HEAD?"),
        (
            "https://code.example.org/what",
            "https://mybinder.org/v2/git/https%3A%2F%2Fcode.example.org%2Fwhat/HEAD?",
        ),
    ],
)
def test_a_known_repository_gets_its_button_and_takes_questions(address, launched):
    settings = Settings(repository=address)
    assert launched in launch_words(settings)
    for words in (launch_words(settings), contact_words(settings)):
        assert address.rstrip("/").removesuffix(".git") in words
    assert "<https://a.example/desk>" in contact_words(Settings(contact="https://a.example/desk"))
    assert not re.search("https?:|mybinder|@", launch_words(Settings()) + contact_words(Settings()))


def test_settings_are_read_and_what_is_no_setting_is_refused(tmp_path):
    assert read_settings(
        write_settings(tmp_path, "[tool.heart]\ncontact = 'a@b.example'\n")
    ) == Settings(contact="a@b.example")
    assert read_settings(write_settings(tmp_path, "")) == Settings()
    with pytest.raises(SettingsError, match="no setting is called owner"):
        read_settings(write_settings(tmp_path, "[tool.heart]\nowner = 'me'\n"))
    with pytest.raises(
        SettingsError,
        match="repository is 'who/what'; .*https://",
    ):
        read_settings(write_settings(tmp_path, "[tool.heart]\nrepository = 'who/what'\n"))


def note(source, licence, table, origin="published"):
    return TableNote(table, source, licence, {origin: 3})


def test_what_may_be_shared_goes_by_the_licence_of_each_source():
    table = shared_inputs(
        [
            note("votes", "CC-BY-4.0", "public/verdicts"),
            note("dialogues", "CC-BY-NC-4.0", "esconv"),
            note("votes", "CC-BY-4.0", "public/responders"),
            note("who knows", "CC0-1.0", "mine/verdicts", origin="simulated"),
        ],
        sets=[find_source("heart")],
    )
    assert table.splitlines()[:4] == [
        (
            f"- **figures only**, none stated: {find_source('heart').title} (counts in chapters, no"
            " table)"
        ),
        "- **figures only**, CC-BY-NC-4.0: dialogues (esconv)",
        "- **all of it**, CC0-1.0: simulated by this project (mine/verdicts)",
        "- **all of it**, CC-BY-4.0: votes (public/responders, public/verdicts)",
    ]
    assert table.endswith("The strictest of them is **none stated**.\n")
    assert shared_inputs([]) == "No table was read for this copy.\n"


@pytest.mark.parametrize("address", ["", "https://github.com/who/what"])
def test_the_staged_notebook_for_colab_knows_the_address_that_the_settings_know(tmp_path, address):
    project, book = tmp_path / "project", tmp_path / "book"
    (book / "hosted").mkdir(parents=True)
    project.mkdir()
    (project / "data").symlink_to(ROOT / "data")
    notebook = (ROOT / "book" / "hosted" / "colab.ipynb").read_text(encoding="utf-8")
    (book / "hosted" / "colab.ipynb").write_text(notebook, encoding="utf-8")
    write_governance(write_settings(project, f"[tool.heart]\nrepository = '{address}'\n"), book, [])
    staged = (book / "hosted" / "colab.ipynb").read_text(encoding="utf-8")
    assert f'repository = \\"{address}\\"  # the address' in staged
    assert (staged == notebook) == (not address)


@pytest.mark.parametrize("found", ["Python 3.13.1", "absent"])
def test_an_interpreter_that_is_named_is_checked_as_the_one_that_is_found(tmp_path, found):
    (tmp_path / "Makefile").write_bytes((ROOT / "Makefile").read_bytes())
    (tmp_path / "requirements").mkdir()
    for name in ("requirements/book.txt", "requirements/model.txt", "pyproject.toml"):
        (tmp_path / name).touch()
    other = tmp_path / "other"
    if found != "absent":
        other.write_text(f"#!/bin/sh\ntest $1 = -V && echo {found}\n")
        other.chmod(0o755)
    done = subprocess.run(
        ["make", "env", f"PYTHON3={other}"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert f"This needs Python 3.11 or 3.12, and {other} is {found}." in done.stdout


@pytest.mark.parametrize(
    ("target", "settings", "apart"),
    [
        ("env", "", ""),
        ("check", "", "check"),
        ("collect", "", "model"),
        ("record", "", "model"),
        ("check", "ENV=", ""),
    ],
)
def test_what_the_book_does_without_is_installed_for_what_needs_it(
    tmp_path, target, settings, apart
):
    (tmp_path / "Makefile").write_bytes((ROOT / "Makefile").read_bytes())
    shutil.copytree(ROOT / "requirements", tmp_path / "requirements")
    (tmp_path / "pyproject.toml").touch()
    command = ["make", "-n", target, f"PYTHON3={sys.executable}", *settings.split()]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert "".join(re.findall(r"-r requirements/(?!book)(\w+)\.txt", done.stdout)) == apart


@pytest.mark.parametrize("name", ["my run", ""])
@pytest.mark.parametrize("target", ["collect", "study", "book"])
def test_a_run_whose_name_make_would_take_apart_is_refused_in_a_sentence(target, name):
    done = subprocess.run(
        ["make", "-n", target, f"RUN={name}"],
        cwd=find_root(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert f"RUN is '{name}', expected one word of letters, digits" in done.stderr


@pytest.mark.parametrize(
    ("target", "settings"),
    [
        *(("help", {name: f"x{ends}"}) for name in ("RUN", "NAME", "KIND", "PORT", "JOBS", "RESUME", "PYTHON3")
          for ends in (";touch${IFS}HERE", "|touch HERE", "`touch HERE`", "$(touch HERE)", "$(shell touch HERE)")),
        *((target, {name: f"x{ends}"}) for target, name in (("pack", "LAB"), ("page", "NB"), ("pool", "FILES"),
          ("collect", "ARGS"), ("study", "ARGS"), ("bench", "ARGS"), ("sub", "LAB"), ("sub", "ARGS"))
          for ends in ("; touch HERE;", '"; touch HERE; "', "`touch HERE`", "$(touch HERE)", "$(shell touch HERE)")),
    ],
)  # fmt: skip
def test_no_variable_of_make_is_a_command(tmp_path, target, settings):
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for command in ("env:", "collect:", "study:"):  # nothing is to be installed here
        makefile = re.sub(rf"^{command}.*$", command, makefile, flags=re.MULTILINE)
    makefile += "\nsub:\n\t@$(MAKE) -f other.mk\n"
    (tmp_path / "Makefile").write_text(makefile, encoding="utf-8")
    (tmp_path / "other.mk").write_text("all:\n\t@echo made\n")
    (tmp_path / ".venv" / "bin").mkdir(parents=True)
    (tmp_path / ".venv" / "bin" / "python").symlink_to("/bin/echo")
    kind = {} if "KIND" in settings else {"KIND": "rating"}
    given = [f"{name}={text}" for name, text in {**kind, **settings}.items()]
    done = subprocess.run(
        ["make", target, *given], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert not (tmp_path / "HERE").exists()
    assert (done.returncode == 0) == (target != "help"), done.stderr
    if target not in ("help", "sub"):  # the text arrived whole, as text
        assert next(iter(settings.values())) in done.stdout
