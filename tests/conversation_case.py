"""Projects of their own for tests that collect, and a small study of conversations: two responders,
two seekers, one judge, all one provider."""

import io
import json
import re
import shutil
from contextlib import contextmanager, redirect_stderr, redirect_stdout

import pytest
import yaml
from server import Provider, serving, take_turn

from heart_collect.collect import main
from heart_utils.runs import find_root

PAID = {"price_prompt": 1, "price_completion": 2, "max_concurrency": 4}


def settings(address, **changes):
    """What a run collects, with every model at one address."""
    at = {"api_base": address, **PAID}
    return {
        "histories": "sample",
        "slices": {"standard": 2, "adversarial": 1},
        "given_replies": False,
        "unit": "conversation",
        "exchanges": 3,
        "responders": [
            {"name": "m", "model": "openai/m", "family": "one", **at},
            {"name": "n", "model": "openai/n", "family": "two", **at},
        ],
        "seekers": [
            {"name": "s", "model": "openai/s", "family": "three", **at},
            {"name": "t", "model": "openai/t", "family": "four", **at},
        ],
        "judges": [{"name": "j", "model": "openai/j", "family": "five", **at}],
        "protocols": {"conversation": ["overall"]},
        "budget_usd": 1,
        **changes,
    }


def lay_out(folder, address, monkeypatch, settings=settings):
    """Make a project of its own with a run `mine`; return what writes its settings again."""
    (folder / "heart_utils").mkdir()
    for name in ("pyproject.toml", "heart_utils/runs.py"):
        (folder / name).write_bytes((find_root() / name).read_bytes())
    (folder / "data").symlink_to(find_root() / "data")
    (folder / "params").mkdir()
    write = enter(folder, address, monkeypatch, settings)
    write()
    return write


def enter(folder, address, monkeypatch, settings=settings):
    """Work in such a project; return what writes its settings."""
    monkeypatch.setenv("HEART_ROOT", str(folder))
    monkeypatch.delenv("HEART_LEDGER", raising=False)
    monkeypatch.setenv("OPENAI_API_KEY", "none")

    def write(**changes):
        said = {"chapters": [], "collect": settings(address, **changes)}
        (folder / "params" / "mine.yaml").write_text(yaml.safe_dump(said))

    return write


@contextmanager
def collected_once(folder, *arguments, settings=settings, changes=None, **provider):
    """Collect the run `mine` of a new project; give its provider and all that was printed."""
    said = io.StringIO()
    at = Provider(**{"answer": speak, "piece_s": 0.0, **provider})
    with pytest.MonkeyPatch.context() as patch, serving(at):
        lay_out(folder, at.address, patch, settings)(**changes or {})
        with redirect_stdout(said), redirect_stderr(said):
            assert main(["mine", "--quiet", "--yes", *arguments]) == 0
        patch.undo()
        yield at, said.getvalue()


def copied(folder, to, address, monkeypatch, settings=settings):
    """Work in a copy of a collected project; return what writes its settings."""
    shutil.copytree(folder, to, symlinks=True)
    return enter(to, address, monkeypatch, settings)


def shown(body):
    """The turns that a model was shown: speaker and text."""
    said = body["messages"][-1]["content"]
    return re.findall(r"^(Seeker|Supporter): (.*)$", said, flags=re.MULTILINE)


def speak(body):
    """Answer as who is asked: a turn that names its place, or the judge's verdict for the first code."""
    prompt = body["messages"][-1]["content"]
    if body["model"] == "j":
        names = re.findall(r"^- (\w+): ", prompt, flags=re.MULTILINE)
        codes = re.findall(r"^Conversation (\w+):\n<+\n(.*?)\n>+$", prompt, flags=re.M | re.S)
        if not codes:
            return json.dumps(dict.fromkeys(names, {"reasoning": "Because.", "score": 4}))
        winner = next((code for code, text in codes if "word m" in text), codes[0][0])
        line = {"reasoning": "Because.", "winner": winner, "margin": 2}
        return json.dumps(dict.fromkeys(names, line))
    return take_turn(body)
