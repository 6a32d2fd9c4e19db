"""The package elsewhere: what it needs is what it names, and its wheel works without this
checkout."""

import ast
import importlib
import os
import re
import runpy
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from test_extras import ASKS

import heart_utils
from heart_utils.runs import find_root

ROOT = find_root()
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
PACKAGES = ("heart_utils", "heart_collect")
CALLED = {
    "lazy_loader": "lazy-loader",
    "yaml": "pyyaml",
    "sklearn": "scikit-learn",
    "matplotlib_inline": "ipykernel",
    "myst_nb": "jupyter-book",
}
CALLED |= {"IPython": "ipykernel", "traitlets": "ipykernel"}
"""Module -> the package that brings it."""
ALONE = {"xllamacpp"}
"""From requirements/model.txt, without which recorded calls are replayed."""

VISIT = """
import sys, pandas as pd, heart_collect, heart_utils
from pathlib import Path
from heart_utils import audit_votes, fit_ratings, load_histories, load_verdicts, open_run
from heart_utils.settings import MissingExtraError
needs = []
for name in heart_utils.__all__:
    getattr(heart_utils, name)
for name in heart_collect.__all__:
    try:
        getattr(heart_collect, name)
    except MissingExtraError as error:
        assert "extra collect" in str(error), (name, error)
        needs.append(name)
print("needs the extra:", *needs)
assert "heart_utils" in heart_utils.__file__ and "site-packages" in heart_utils.__file__, heart_utils.__file__
assert {"py.typed", "__init__.pyi"} <= {path.name for path in Path(heart_utils.__file__).parent.iterdir()}
assert len(load_histories("sample")) == 36
assert len(load_verdicts("mtbench")) > 5000
rows = load_verdicts("votes.csv", columns={"Urteil": "verdict"}, words={"links": "a", "rechts": "b"})
ratings = fit_ratings(rows, n_resamples=50)
assert audit_votes(rows, n_resamples=50).outcome
open_run("mine").write("verdicts", rows)
open_run("./other").write("verdicts", rows)
print(ratings)
"""


def packages(requirements):
    return {word.split("[")[0].split(">")[0].split("<")[0].split("=")[0] for word in requirements}


def imported(path):
    """List what a module imports when it is loaded, and what later; what stands below TYPE_CHECKING
    is neither."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    unseen = {id(part) for node in tree.body if isinstance(node, ast.If) for part in ast.walk(node)}
    for node in ast.walk(tree):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        names += [node.module] if isinstance(node, ast.ImportFrom) and node.module else []
        for name in [] if id(node) in unseen else names:
            yield name.split(".")[0], node in tree.body


def test_whatever_a_module_imports_is_among_the_dependencies_or_late_in_an_extra():
    needed = packages(PROJECT["dependencies"])
    extra = packages(word for words in PROJECT["optional-dependencies"].values() for word in words)
    for path in ROOT.glob("heart_*/**/*.py"):
        for module, at_once in imported(path):
            assert module not in {"pingouin", "krippendorff"}  # which are under the GPL
            if module not in sys.stdlib_module_names and module not in {*PACKAGES, *ALONE}:
                package = CALLED.get(module, module)
                assert package in needed or (not at_once and package in extra), (
                    f"{path.name} imports {module}"
                )


def described(monkeypatch, root):
    """Run a project's setup.py and return what it hands to setuptools."""
    given = {}
    monkeypatch.setattr("setuptools.setup", lambda **settings: given.update(settings))
    runpy.run_path(str(root / "setup.py"))
    return given


ANY_LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)")


def test_the_page_of_the_package_shows_no_link_or_picture_that_leads_nowhere(monkeypatch):
    shown = described(monkeypatch, ROOT)["long_description"]
    assert "# HEART in the open" in shown
    assert all(place.startswith("https://") for place in ANY_LINK.findall(shown))
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert not all(place.startswith("https://") for place in ANY_LINK.findall(readme)), (
        "then nothing is tried here"
    )


def test_the_page_of_the_package_leads_to_the_repository_where_its_address_is_known(
    monkeypatch, tmp_path
):
    for name in ("setup.py", "README.md", "pyproject.toml"):
        shutil.copy2(ROOT / name, tmp_path)
    settings = tmp_path / "pyproject.toml"
    known = 'repository = "https://example.org/heart.git"'
    settings.write_text(re.sub(r'^repository = ".*?"', known, settings.read_text(), flags=re.M))
    given = described(monkeypatch, tmp_path)
    assert "](https://example.org/heart/raw/HEAD/book/forest.svg)" in given["long_description"]
    assert given["project_urls"] == {"Repository": "https://example.org/heart"}


def test_each_command_of_the_package_says_its_version_and_helps(capsys):
    for command, place in PROJECT["scripts"].items():
        module, _, function = place.partition(":")
        for option, said in (
            ("--version", f"{command} {heart_utils.__version__}"),
            ("--help", f"usage: {command} "),
        ):
            with pytest.raises(SystemExit) as end:
                getattr(importlib.import_module(module), function)([option])
            assert end.value.code == 0
            assert capsys.readouterr().out.startswith(said)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """The package as it is published, built from a copy, since a build leaves folders in it."""
    source, built = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheel")
    for name in (*PACKAGES, "data"):
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy2(ROOT / name, source)
    build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    subprocess.run([*build, "-w", built, source], check=True, cwd=built)
    [wheel] = built.glob("*.whl")
    return wheel


@pytest.mark.slow
@pytest.mark.parametrize("version", ["3.11", "3.13"])
def test_a_wheel_works_in_a_bare_environment_outside_the_project(tmp_path, wheel, version):
    uv = Path(sys.executable).with_name("uv")
    find = [uv, "python", "find", "--system", "--no-project", "--no-python-downloads", version]
    # where python3.13 is a shim of pyenv, which asks this
    chosen = {**os.environ, "PYENV_VERSION": version}
    found = subprocess.run(find, env=chosen, capture_output=True, text=True, check=False)
    if found.returncode:
        pytest.skip(f"there is no Python {version}")
    subprocess.run(
        [uv, "venv", "--quiet", "--python", found.stdout.strip(), str(tmp_path / "bare")],
        check=True,
    )
    python, home = tmp_path / "bare" / "bin" / "python", tmp_path / "home"
    pins = ["-c", str(ROOT / "requirements/book.txt")]
    subprocess.run(
        [uv, "pip", "install", "--quiet", "--python", python, *pins, str(wheel)], check=True
    )
    home.mkdir()
    votes = "history_id;responder_a;responder_b;rater;rater_kind;Urteil\n"
    votes += "".join(
        f"c{n};ann;bot;eve;human;{'links' if n % 3 else 'rechts'}\n" for n in range(30)
    )
    (home / "votes.csv").write_text(votes, encoding="utf-8")
    bare = {
        name: value
        for name, value in os.environ.items()
        if name not in ("PYTHONPATH", "HEART_ROOT", "HEART_DATA_MIRROR")
    }
    done = subprocess.run(
        [python, "-c", VISIT], cwd=home, env=bare, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    [needs] = re.findall("^needs the extra: (.*)$", done.stdout, flags=re.MULTILINE)
    assert set(needs.split()) == ASKS
    assert "30 verdicts, 30 clusters" in done.stdout
    assert (home / "runs" / "mine" / "verdicts.parquet").is_file()
    assert (home / "other" / "verdicts.parquet").is_file()
    assert not list((tmp_path / "bare").rglob("runs/mine"))
    plain = (
        votes.replace("Urteil", "verdict")
        .replace("links", "a")
        .replace("rechts", "b")
        .replace("human", "model")
    )
    (home / "plain.csv").write_text(plain, encoding="utf-8")
    gate = [tmp_path / "bare" / "bin" / "heart-gate", "plain.csv:ann", "plain.csv:bot"]
    for options, code, said in (
        (["--json", "gate.json"], 3, "INCONCLUSIVE: bot"),
        (["--out", "gate"], 2, "pip install matplotlib seaborn"),
    ):
        done = subprocess.run(
            [*gate, *options], cwd=home, env=bare, capture_output=True, text=True, check=False
        )
        assert (done.returncode, said in done.stdout + done.stderr) == (code, True), done.stderr
    assert (home / "gate.json").is_file()


def test_what_lies_beside_the_modules_is_packed_with_them(tmp_path):
    command = [sys.executable, "setup.py", "-q", "build_py", "--build-lib", str(tmp_path)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)

    def beside(folder: Path) -> set[str]:
        files = {path.relative_to(folder).as_posix() for path in folder.glob("heart_*/**/*.yaml")}
        return {name for name in files if not name.startswith("heart_utils/data/")}

    assert beside(tmp_path) == beside(ROOT)
    assert (tmp_path / "heart_utils" / "data" / "public").is_dir()
    assert not (tmp_path / "heart_utils" / "data" / "make").exists()
