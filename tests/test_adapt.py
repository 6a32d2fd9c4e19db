"""The pages of `book/adapt/` and the calculator's, executed: what they show is what a reader
gets."""

import json
import re
from dataclasses import replace

import pandas as pd
import pytest
import yaml
from adapt_pages import make_project, read_blocks, run_page

from heart_collect.calls.ledger import open_ledger
from heart_collect.calls.models import read_models
from heart_collect.judging.recipe import RecipeError, read_recipe
from heart_utils.report.tables import read_results
from heart_utils.runs import find_root

BOOK = find_root() / "book"
PAGES = [*sorted((BOOK / "adapt").glob("*.md")), BOOK / "calculator.md"]
KEY = "a-key-of-mine"
SLOW = ("grid", "conjoint", "conversations", "audit")  # the most calls, and the most votes


def stand_in(body):
    """Write one reply to everybody; as a judge, like the longer reply, and score a reply by its
    words."""
    prompt = body["messages"][-1]["content"]
    if prompt.endswith("as the seeker:"):
        return f"Mag sein. Es ist jetzt der {len(prompt.splitlines())}. Abend, der so geht."
    if body["model"] != "my-judge":
        return "It makes sense that this weighs on you. What would help tonight?"
    replies = re.findall(
        r"^(?:Reply|Conversation) (\w+)(?:, written by [^:]+)?:\n<+\n(.*?)\n>+$",
        prompt,
        flags=re.MULTILINE | re.DOTALL,
    )
    pattern = json.loads(prompt.rsplit("\n", 1)[-1])
    if replies:
        (winner, _), *_ = sorted(replies, key=lambda one: -len(one[1]))
        return json.dumps(
            {
                name: {"reasoning": "It is the longer one.", "winner": winner, "margin": 2}
                for name in pattern
            }
        )
    [reply] = re.findall(r"^The reply:\n<+\n(.*?)\n>+$", prompt, flags=re.MULTILINE | re.DOTALL)
    score = min(5, 1 + len(reply.split()) // 10)
    return json.dumps(
        {name: {"reasoning": "I counted its words.", "score": score} for name in pattern}
    )


@pytest.fixture
def provider():
    from server import Provider, serving

    with serving(Provider(answer=stand_in, keys=(KEY,))) as running:
        yield running


@pytest.fixture
def project(tmp_path, monkeypatch, provider):
    folder = make_project(tmp_path / "project", provider.address)
    monkeypatch.setenv("HEART_ROOT", str(folder))
    monkeypatch.setenv("MY_SERVER_KEY", KEY)
    monkeypatch.delenv("HEART_LEDGER", raising=False)
    monkeypatch.chdir(folder)
    return folder


@pytest.mark.parametrize(
    "page",
    [pytest.param(page, marks=pytest.mark.slow if page.stem in SLOW else ()) for page in PAGES],
    ids=lambda page: page.stem,
)
def test_a_page_gives_what_it_shows(page, project, provider, forked_kernels):
    run_page(page, project, provider.address)


def test_a_page_that_shows_something_else_is_found(project, provider, tmp_path):
    page = tmp_path / "wrong.md"
    page.write_text("```python\n1 + 1\n```\n```text\n3\n```\n")
    with pytest.raises(AssertionError, match="wrong.md, line 1 gave\n2"):
        run_page(page, project, provider.address)


def test_every_file_of_the_pages_is_shown_on_one_or_named_there():
    folder = find_root() / "book" / "adapt"
    said = "\n".join(page.read_text(encoding="utf-8") for page in PAGES)
    kept = [file for file in (folder / "files").rglob("*") if file.is_file()]
    files = [file for file in kept if "ruff" not in str(file.relative_to(folder))]  # a linter's
    assert files
    assert [
        str(file) for file in files if file.name not in said and f"`{file.stem}`" not in said
    ] == []


def test_the_models_of_the_pages_can_be_read():
    blocks = [body for page in PAGES for kind, body, _ in read_blocks(page) if kind == "yaml"]
    names = [model.name for body in blocks for model in read_models(yaml.safe_load(body))]
    assert names == ["gpt-4o", "qwen-at-home", "small-one"]


def change_recipe(project, was, now):
    file = project / "params" / "own_histories.yaml"
    file.write_text(file.read_text().replace(was, now))


HEADERS = "columns: {Chat: history_id, Verlauf: turns, '*': null}, only: {Ok: 'yes'}"


@pytest.mark.parametrize(
    ("now", "chosen"),
    [("mine/histories.jsonl", "1234"), (f"{{file: mine/other.json, {HEADERS}}}", "124")],
    ids=["plain", "headers"],
)
def test_a_recipes_file_of_histories_is_read_from_any_folder_whatever_its_headers(
    project, monkeypatch, now, chosen
):
    rows = pd.read_json(project / "mine" / "histories.jsonl", lines=True)
    other = rows.rename(columns={"history_id": "Chat", "turns": "Verlauf"})
    other = other.assign(Ok=["yes", "yes", "no", "yes"], Note="x")
    other.to_json(project / "mine" / "other.json", orient="records")
    change_recipe(project, "mine/histories.jsonl", now)
    monkeypatch.chdir(project / "notebooks")  # where chapters run
    histories = read_recipe("own_histories").choose_histories()
    assert histories["history_id"].tolist() == [f"own-{number}" for number in chosen]


@pytest.mark.parametrize(
    ("was", "now", "said"),
    [
        ("given_replies: false", "given_replies: true", "no replies come with a file of histories"),
        (
            "{heart: [overall]}",
            "{hart: [overall]}",
            "protocols: unknown hart. Known are coaching, coaching-alone",
        ),
        (
            "mine/histories.jsonl",
            "{file: mine/histories.jsonl, colums: {Chat: a}}",
            "unknown colums",
        ),
        ("mine/histories.jsonl", "{file: mine/histories.jsonl, repeats: forget}", "repeats"),
        ("mine/histories.jsonl", "{file: mine/histories.jsonl, columns: 3}", "columns"),
    ],
)
def test_a_recipe_that_cannot_be_followed_says_so_before_anything_is_asked(project, was, now, said):
    change_recipe(project, was, now)
    with pytest.raises(RecipeError, match=re.escape(said)):
        read_recipe("own_histories")


def test_a_model_is_told_the_words_of_the_recipe_and_others_make_another_call(project, provider):
    recipe = read_recipe("deutsch")
    histories = recipe.choose_histories()
    how = {"ledger": open_ledger("sqlite://"), "progress": False}
    recipe.answer(histories, **how)
    replace(recipe, instructions="Answer in Welsh.").answer(histories, **how)
    told = [request["messages"][0]["content"] for request in provider.requests]
    assert told == [recipe.instructions] * 3 + ["Answer in Welsh."] * 3


def test_what_a_notebook_glued_is_read_back_and_a_source_is_refused(tmp_path):
    def glued(name, kind, value):
        return {
            "data": {f"application/papermill.record/{kind}": value},
            "metadata": {"scrapbook": {"name": name}},
        }

    outputs = [
        glued("n", "text/plain", "12"),
        glued("share", "text/plain", ["'9", " %'"]),
        glued("fig", "image/png", "x"),
    ]
    copy = tmp_path / "copy.ipynb"
    copy.write_text(
        json.dumps(
            {"cells": [{"cell_type": "code", "outputs": outputs}, {"cell_type": "markdown"}]}
        )
    )
    assert read_results(copy) == {"n": 12, "share": "9 %"}
    with pytest.raises(ValueError, match="recorded nothing. Is it the executed copy"):
        read_results(find_root() / "notebooks" / "14_what_a_study_can_tell.ipynb")
    copy.write_text("{")
    with pytest.raises(ValueError, match="is not a notebook"):
        read_results(copy)
