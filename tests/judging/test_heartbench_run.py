"""A HeartBench run from its settings to its tables, with every model on loopback."""

import json
import shutil

import pytest
import yaml
from server import Provider, serving

from heart_collect.collect import main
from heart_collect.judging.recipe import Recipe
from heart_utils.runs import find_root, may_publish, open_run

QUESTIONS = [
    {
        "question_id": name,
        "rubric": [
            {"dimension": "Warmth", "score": points, "content": words}
            for points, words in ((3, "cares"), (-4, "lectures"))
        ],
        "dialogue": [{"role": "A", "content": "x" * length}],
    }
    for name, length in (("Q1", 40), ("Q2", 4))
]


def answer(body):
    judged = "hits" in body["messages"][0]["content"]
    return json.dumps({"reason": "1. yes 2. no", "hits": [1, 0]}) if judged else "I care."


@pytest.fixture
def settings(tmp_path, monkeypatch):
    """A project of its own, so that nothing lands in this one."""
    (tmp_path / "params").mkdir()
    (tmp_path / "heart_utils").mkdir()
    (tmp_path / "pyproject.toml").touch()
    (tmp_path / "heart_utils" / "runs.py").touch()
    names = tmp_path / "data" / "heartbench"
    names.mkdir(parents=True)
    for name in ("heartbench/names.csv", "sources.yaml"):
        shutil.copy(find_root() / "data" / name, tmp_path / "data" / name)
    monkeypatch.setenv("HEART_ROOT", str(tmp_path))
    questions = tmp_path / "questions.jsonl"
    questions.write_text(
        "\n".join(json.dumps(question) for question in QUESTIONS), encoding="utf-8"
    )

    def write(**changes):
        block = {"questions": str(questions), "language": "en"}
        block |= {
            "responders": [{"name": "m", "model": "openai/m"}],
            "judges": [{"name": "j", "model": "openai/j"}],
            **changes,
        }
        (tmp_path / "params" / "heartbench.yaml").write_text(
            yaml.safe_dump({"collect": block}), encoding="utf-8"
        )

    write()
    return write


def served(provider, *names, **prices):
    return [
        {"name": name, "model": f"openai/{name}", "api_base": provider.address, **prices}
        for name in names
    ]


def test_a_run_is_collected_and_collected_again_without_a_call(settings):
    with serving(Provider(answer=answer)) as provider:
        free = {"price_prompt": 0, "price_completion": 0}
        settings(
            responders=served(provider, "m", **free), judges=served(provider, "j", "k", **free)
        )
        assert main(["heartbench", "--quiet"]) == 0
        n = len(provider.requests)
        assert main(["heartbench", "--quiet"]) == 0
        assert len(provider.requests) == n == 2 + 2 * 2
    scores = open_run("heartbench").read("scores")
    assert scores.groupby("rater").size().to_dict() == {"j": 4, "k": 4}
    assert scores["score"].tolist() == [1, 0] * 4


def test_the_manifest_says_what_each_table_rests_on(settings):
    with serving(Provider(answer=answer)) as provider:
        free = {"price_prompt": 0, "price_completion": 0}
        settings(responders=served(provider, "m", **free), judges=served(provider, "j", **free))
        assert main(["heartbench", "--quiet"]) == 0
    tables = open_run("heartbench").manifest["tables"]
    assert set(tables) == {"histories", "responders", "replies", "scores"}
    assert {name: entry["origin"] for name, entry in tables.items()} == {
        "histories": "published",
        "responders": "drafted",
        "replies": {"live": 2},
        "scores": "live",
    }
    assert [tables[name]["licence"] for name in ("histories", "replies", "scores")] == [
        "none stated"
    ] * 3
    assert tables["histories"]["source"].endswith("questions.jsonl, as params/heartbench.yaml says")


@pytest.mark.mirror
def test_what_is_made_of_heartbench_may_not_be_published(settings, mirror):
    with serving(Provider(answer=lambda body: answer(body).replace("[1, 0]", "[1]"))) as provider:
        free = {"price_prompt": 0, "price_completion": 0}
        models = {
            "responders": served(provider, "m", **free),
            "judges": served(provider, "j", **free),
        }
        settings(questions="heartbench", n_questions=1, **models)
        assert main(["heartbench", "--quiet"]) == 0
    tables = open_run("heartbench").manifest["tables"]
    assert {
        may_publish(tables[name]["licence"]) for name in ("histories", "replies", "scores")
    } == {False}


def test_paid_calls_are_refused_without_a_yes(settings, capsys):
    with serving(Provider(answer=answer)) as provider:
        prices = {"price_prompt": 1, "price_completion": 2}
        settings(responders=served(provider, "m", **prices), judges=served(provider, "j", **prices))
        assert main(["heartbench"]) == 2
        assert not provider.requests
    assert "calls cost money" in capsys.readouterr().err
    assert not open_run("heartbench").tables()


def test_a_dry_run_asks_nothing(settings, capsys):
    with serving(Provider(answer=answer)) as provider:
        settings(responders=served(provider, "m"), judges=served(provider, "j"))
        assert main(["heartbench", "--dry-run"]) == 0
        assert not provider.requests
    said = capsys.readouterr().out
    assert "heartbench: 2 histories." in said
    assert "4 calls to make" in said


BAD = {
    "unknown colour. The keys are run, histories": {"colour": "red"},
    "n_questions is 'six', expected a whole number": {"n_questions": "six"},
    "language is 'de', expected one of 'zh' or 'en'": {"language": "de"},
    "no judges; name at least one": {"judges": []},
    "3 were asked for, and there are 2": {"n_questions": 3},
}


@pytest.mark.parametrize("message", BAD)
def test_settings_that_cannot_be_used_say_why(settings, capsys, message):
    settings(**BAD[message])
    assert main(["heartbench", "--dry-run"]) == 1
    assert message in capsys.readouterr().err


@pytest.mark.mirror
def test_the_shortest_questions_are_chosen(mirror):
    six = Recipe("mine", questions="heartbench", n_questions=6).choose_histories()
    assert len(six) == 6
    assert six["turns"].map(len).max() == 1
    assert len(Recipe("mine", questions="heartbench").choose_histories()) > 200
