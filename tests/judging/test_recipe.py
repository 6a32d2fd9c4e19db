"""A recipe from its settings, and the command behind `make collect`."""

import json
import os
import re
import sqlite3
import time

import pandas as pd
import pytest
import sqlalchemy as sa
import yaml
from builders import full_disk
from server import Provider, choose_first, finish_batch, serving
from worker import begin_command

from heart_collect.calls.ledger import open_ledger
from heart_collect.calls.models import Model
from heart_collect.collect import main
from heart_collect.judging.recipe import Recipe, RecipeError, read_recipe
from heart_utils.runs import find_root, open_run

CANARY = "sk-canary-0123456789abcdef"


@pytest.fixture
def provider():
    with serving(Provider(answer="That sounds heavy. What would help tonight?")) as running:
        yield running


@pytest.fixture
def project(tmp_path, provider, monkeypatch):
    """A checkout of its own, with one run whose models are the test's provider."""
    (tmp_path / "heart_utils").mkdir()
    for name in ("pyproject.toml", "heart_utils/runs.py"):
        (tmp_path / name).write_bytes((find_root() / name).read_bytes())
    (tmp_path / "data").symlink_to(find_root() / "data")
    monkeypatch.setenv("HEART_ROOT", str(tmp_path))
    monkeypatch.delenv("HEART_LEDGER", raising=False)
    monkeypatch.setenv("CANARY_API_KEY", CANARY)
    paid = {
        "model": "openai/test",
        "api_base": provider.address,
        "api_key_env": "CANARY_API_KEY",
        "price_prompt": 1,
    }
    settings = {
        "histories": "sample",
        "slices": {"standard": 2, "adversarial": 1},
        "responders": [{"name": "m", **paid, "price_completion": 2}],
        "probes": ["echo"],
        "judges": [
            {
                "name": "j",
                **paid,
                "price_completion": 2,
                "answer_format": "logprob",
                "max_concurrency": 4,
            }
        ],
        "protocols": {"heart": ["overall"]},
        "budget_usd": 1,
    }
    return write(tmp_path, settings), settings


def read_mine(project, settings):
    write(project[0], settings)
    return read_recipe("mine")


def write(folder, settings):
    (folder / "params").mkdir(exist_ok=True)
    (folder / "params" / "mine.yaml").write_text(
        yaml.safe_dump({"chapters": [], "collect": settings})
    )
    return folder


def test_a_dry_run_says_what_it_would_take_and_asks_nothing(project, provider, capsys):
    assert main(["mine", "--dry-run"]) == 0
    said = capsys.readouterr().out
    assert "3 histories" in said
    assert "21 calls to make, for 0.0" in said  # 3 replies; 3 pairs of 3 histories in both orders
    assert provider.requests == []


def test_a_dry_run_bounds_the_time_by_latencies_numbers_in_flight_and_limits(
    project, provider, capsys
):
    """Replies are asked one by one: 3 of 1 s, or 3 twice of 30 s.

    Verdicts four at once: 18 of 1 s, or 18 twice of 30 s.
    """
    folder, settings = project
    assert main(["mine", "--dry-run"]) == 0
    # 3 + 18 / 4 = 7.5 s; 180 + 36 * 30 / 4 = 450 s
    assert "Between 0.1 and 7.5 minutes." in capsys.readouterr().out
    write(folder, {**settings, "max_concurrency": 1})
    assert main(["mine", "--dry-run"]) == 0
    assert "Between 0.3 and 21.0 minutes." in capsys.readouterr().out  # 3 + 18 s; 180 + 36 * 30 s
    slow = [{**settings["judges"][0], "requests_per_minute": 6}]
    write(folder, {**settings, "judges": slow})
    assert main(["mine", "--dry-run"]) == 0
    # 3 s + 18 / 6 min; 3 + 36 / 6 min
    assert "Between 3.0 and 9.0 minutes." in capsys.readouterr().out
    write(folder, {**settings, "judges": [{**settings["judges"][0], "tokens_per_minute": 100}]})
    assert main(["mine", "--dry-run"]) == 0
    said = capsys.readouterr().out
    prompts, answers = map(int, re.search(r"verdicts +j +18 +0 +(\d+) +(\d+)", said).groups())
    shortest, longest = (prompts + answers) / 100 + 0.05, 2 * (prompts + answers) / 100 + 3
    assert f"Between {shortest / 60:.1f} and {longest / 60:.1f} hours." in said
    assert "(of j, m too little is recorded: 1 and 30 s are assumed)" in said


def test_a_dry_run_takes_the_latencies_that_are_recorded(project, provider, capsys):
    folder, settings = project
    assert main(["mine", "--quiet", "--yes"]) == 0
    ledger = open_ledger("mine")
    with ledger.writing() as connection:
        connection.execute(
            sa.text(
                "UPDATE calls SET digest = NULL, total_ms = 1000 * (SELECT count(*) FROM calls c"
                " WHERE c.key < calls.key)"
            )
        )
    write(folder, {**settings, "slices": {"standard": 2, "adversarial": 2}})
    # of 0 to 20 s
    assert ledger.quick_and_slow(Model("j", "openai/test", api_base=provider.address)) == (
        2.0,
        18.0,
    )
    capsys.readouterr()
    assert main(["mine", "--dry-run"]) == 0
    # One reply and six verdicts, four at once: 2 + 6 * 2 / 4 s, and 36 + 12 * 18 / 4 s.
    said = capsys.readouterr().out
    assert "Between 0.1 and 1.5 minutes." in said
    assert "assumed" not in said


def test_paid_calls_need_a_word_from_somebody(project, provider, capsys):
    assert main(["mine", "--quiet"]) == 2
    assert (
        "21 calls cost money, and no more than 1 USD. Nobody is there to ask; --yes allows it."
        in capsys.readouterr().err
    )
    assert provider.requests == []


@pytest.mark.parametrize("arguments", [["mine", "--quiet"], ["mine", "--quiet", "--yes"]])
def test_without_a_budget_nothing_is_asked_where_nobody_is_there_to_name_one(
    project, provider, capsys, arguments
):
    folder, settings = project
    write(folder, {name: value for name, value in settings.items() if name != "budget_usd"})
    assert main(arguments) == 2
    said = capsys.readouterr().err
    assert "21 calls cost money, at most 0.0" in said
    assert "No budget is set. Nothing was asked" in said
    assert provider.requests == []
    assert main([*arguments, "--yes", "--budget", "1"]) == 0


class Terminal:
    def isatty(self):
        return True


@pytest.mark.parametrize(
    ("answer", "code", "asked"),
    [("", 2, 0), ("0", 2, 0), ("much", 1, 0), ("0.5", 0, 21), ("1e-9", 1, 0)],
)
def test_on_a_terminal_somebody_is_asked_for_the_budget(
    project, provider, monkeypatch, capsys, answer, code, asked
):
    folder, settings = project
    write(folder, {name: value for name, value in settings.items() if name != "budget_usd"})
    monkeypatch.setattr("sys.stdin", Terminal())
    questions = []
    monkeypatch.setattr("builtins.input", lambda question: questions.append(question) or answer)
    assert main(["mine", "--quiet"]) == code
    assert len(provider.requests) == asked
    assert "21 calls cost money, at most 0.0" in questions[0]


def test_a_log_that_cannot_be_written_is_said_before_anything_is_asked(
    project, provider, capsys, tmp_path
):
    assert main(["mine", "--quiet", "--yes", "--log", str(tmp_path / "nowhere" / "log.jsonl")]) == 1
    assert re.fullmatch(
        "collect: .*No such file or directory: .*log.jsonl'\n", capsys.readouterr().err
    )
    assert provider.requests == []


def test_what_a_plan_warns_of_is_said_once(project, provider, capsys):
    folder, settings = project
    provider.script = ["filter"]
    assert main(["mine", "--quiet", "--yes"]) == 0
    write(folder, {**settings, "slices": {"standard": 3, "adversarial": 1}})
    capsys.readouterr()
    # with replies of 40 words, and once more with the longest
    assert main(["mine", "--dry-run"]) == 0
    assert capsys.readouterr().err.count("replies are not paired (1 refused)") == 1


def test_a_service_manager_that_ends_a_run_loses_no_answer_in_flight(project, provider, tmp_path):
    provider.latency_s = 0.5
    process = begin_command(
        "heart_collect.collect", "mine", "--quiet", "--yes", out=tmp_path / "said"
    )
    while not any(body.get("logprobs") for body in provider.requests):
        assert process.is_alive()
        time.sleep(0.01)
    process.terminate()
    process.join(60)
    assert "Stopped. What was answered is recorded" in (tmp_path / "said").read_text()
    assert process.exitcode == 130
    assert open_ledger("mine").counts() == {"ok": len(provider.requests)}


@pytest.mark.parametrize(("answer", "code"), [("y", 0), ("n", 2), ("", 2)])
def test_with_a_budget_a_terminal_is_asked_whether_to_go_on(
    project, provider, monkeypatch, answer, code
):
    monkeypatch.setattr("sys.stdin", Terminal())
    monkeypatch.setattr("builtins.input", lambda question: answer)
    assert main(["mine", "--quiet"]) == code
    assert bool(provider.requests) == (answer == "y")


@pytest.mark.parametrize(
    "name",
    [
        "anthropic/claude-sonnet-4-20250514",
        "openrouter/anthropic/claude-sonnet-4",
    ],
)
def test_a_judge_whose_listed_price_is_zero_keeps_everything_from_being_asked(
    project, provider, capsys, monkeypatch, name
):
    """With standard input closed and no way out: a connection is an error of its own."""
    folder, settings = project
    write(folder, {**settings, "judges": [{"name": "dear", "model": name}]})
    for variable in ("ANTHROPIC_API_KEY", "OPENROUTER_API_KEY"):
        monkeypatch.setenv(variable, CANARY)
    monkeypatch.setattr("socket.socket.connect", lambda *_: pytest.fail("somebody was asked"))
    monkeypatch.setattr("sys.stdin", None)
    assert main(["mine", "--dry-run"]) == 0
    out = capsys.readouterr().out
    assert "calls to make, for a price that is not known: give each model price_prompt" in out
    known, most = re.search(r"^ *replies .* (\d+\.\d\d) +(\d+\.\d\d)$", out, re.MULTILINE).groups()
    assert f"(what is known comes to {known}, at most {most})" in out
    assert "The first figure" not in out
    for arguments in ([], ["--yes"], ["--yes", "--budget", "5"]):
        assert main(["mine", "--quiet", *arguments]) == 1
        assert (
            f"Nothing was asked. No price is known of dear ({name}). Give price_prompt"
            in capsys.readouterr().err
        )
    assert provider.requests == []  # nor for replies, whose price is known


@pytest.mark.parametrize(
    "arguments", [[], ["--yes"], ["--yes", "--budget", "5"], ["--budget", "5"]]
)
def test_a_price_of_zero_for_a_listed_model_keeps_everything_from_being_asked(
    project, provider, capsys, monkeypatch, arguments
):
    folder, settings = project
    write(
        folder,
        {
            **settings,
            "judges": [
                {"name": "dear", "model": "openai/gpt-4o", "price_prompt": 0, "price_completion": 0}
            ],
        },
    )
    monkeypatch.setenv("OPENAI_API_KEY", CANARY)
    monkeypatch.setenv("OPENAI_BASE_URL", provider.address)
    monkeypatch.setattr("sys.stdin", None)
    assert main(["mine", "--dry-run"]) == 0
    assert (
        "Dear: price_prompt is 0 and price_completion is 0, but openai/gpt-4o is listed"
        in capsys.readouterr().out
    )
    assert main(["mine", "--quiet", *arguments]) == 1
    assert (
        "Nothing was asked: dear: price_prompt is 0 and price_completion is 0"
        in capsys.readouterr().err
    )
    assert provider.requests == []


def test_a_reply_that_holds_no_words_is_told_apart_from_a_call_that_is_asked_again(
    project, provider, capsys
):
    provider.answer = lambda body: "A" if body.get("logprobs") else "Supporter:"
    assert main(["mine", "--quiet", "--yes"]) == 3
    said = capsys.readouterr().err
    assert (
        "3 replies of m hold no words although their calls were answered, and are not asked for"
        " again" in said
    )
    assert "the same command asks for them again" not in said
    n = len(provider.requests)
    assert main(["mine", "--quiet", "--yes"]) == 3
    assert len(provider.requests) == n


def test_what_costs_nothing_goes_on_where_the_budget_is_spent(project, provider, capsys):
    folder, settings = project
    free = {
        **settings["judges"][0],
        "name": "free",
        "model": "openai/free",
        "price_prompt": 0,
        "price_completion": 0,
    }
    write(folder, {**settings, "orders": "random"})
    assert main(["mine", "--quiet", "--yes"]) == 0
    write(folder, {**settings, "judges": [*settings["judges"], free], "budget_usd": 1e-9})
    n = len(provider.requests)
    assert main(["mine", "--quiet", "--yes"]) == 1
    assert "does not reach for another call" in capsys.readouterr().err
    asked = provider.requests[n:]
    assert {body["model"] for body in asked} == {"free"}
    assert len(asked) == 18


def test_the_most_that_a_run_can_cost_is_shown_and_holds_for_a_responder_that_never_stops(
    project, provider, capsys
):
    folder, settings = project
    provider.piece_s = 0.0
    provider.answer = lambda body: "A" if body.get("logprobs") else "word" * 100_000
    assert main(["mine", "--dry-run"]) == 0
    table = capsys.readouterr().out
    most = float(re.search(r"at most (\d+\.\d+)", table)[1])
    assert "at_most_usd" in table
    assert main(["mine", "--quiet", "--yes"]) == 0
    said = capsys.readouterr().out
    prompts = [
        "".join(message["content"] for message in body["messages"]) for body in provider.requests
    ]
    # two replies of at most 4,040 characters, and the conversation
    assert max(map(len, prompts)) < 3 * 4040
    bound, replies = 0.0, [body for body in provider.requests if not body.get("logprobs")]
    assert len(replies) == 3
    spent = float(re.search(r"Spent on this ledger so far: ([0-9.]+)", said)[1])
    assert bound < spent <= most + 0.005


def test_a_run_ends_with_what_each_model_took_and_who_answered_under_its_name(
    project, provider, capsys
):
    folder, settings = project
    provider.served, provider.fingerprint = "test-2026-01", "fp_1"
    provider.script = [None, "filter", "nousage"]
    assert main(["mine", "--quiet", "--yes"]) == 0
    said = capsys.readouterr().out
    rows = {
        line.split()[0]: line.split()
        for line in said.splitlines()
        if line.startswith(("m,", " m", "model", "j"))
    }
    assert "prompt tokens" in said
    assert "their cost is an estimate" in said
    assert "changed in the middle" not in said
    provider.served = "test-2026-02"
    write(folder, {**settings, "slices": {"standard": 3, "adversarial": 1}})
    assert main(["mine", "--quiet", "--yes"]) == 0
    said = capsys.readouterr().out
    assert "its model changed in the middle of the run: test-2026-0" in said
    assert rows


def test_what_cannot_be_paired_names_its_cause(project, provider, capsys):
    folder, settings = project
    provider.keys = ("another",)
    write(folder, {**settings, "probes": []})
    assert main(["mine", "--quiet", "--yes"]) == 1
    said = capsys.readouterr().err
    assert "Nothing can be paired" in said.rsplit("collect:", 1)[1]
    assert "Incorrect API key provided: [key]" in said.rsplit("collect:", 1)[1]


def test_a_run_without_judges_says_so(project, capsys):
    folder, settings = project
    write(folder, {**settings, "judges": []})
    assert main(["mine", "--dry-run"]) == 0
    assert "name no judges" in capsys.readouterr().out


def test_a_run_is_collected_and_then_there_is_nothing_to_do(project, provider, capsys):
    assert main(["mine", "--quiet", "--yes"]) == 0
    said = capsys.readouterr().out
    assert "9 replies" in said
    assert "18 verdicts" in said
    assert len(provider.requests) == 21
    assert main(["mine", "--quiet"]) == 0
    assert "Nothing to do: all 21 calls are recorded" in capsys.readouterr().out
    assert len(provider.requests) == 21


def test_a_full_disk_under_the_tables_loses_no_answer_and_leaves_no_half_table(
    project, provider, capsys, monkeypatch
):
    folder, _ = project
    with full_disk(monkeypatch):  # the ledger's own is full in tests/calls/test_ledger.py
        assert main(["mine", "--quiet", "--yes"]) == 1
    assert "could not be written (No space left on device)" in capsys.readouterr().err
    assert [file.name for file in (folder / "runs" / "mine").rglob("*.parquet*")] == []
    assert main(["mine", "--quiet", "--yes"]) == 0
    assert open_run("mine").read("verdicts")["state"].eq("valid").all()
    assert len(provider.requests) == 21


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_a_log_on_a_full_disk_ends_with_a_sentence_and_the_run_goes_on(project, provider, capsys):
    assert main(["mine", "--quiet", "--yes", "--log", "/dev/full"]) == 0
    said = capsys.readouterr()
    assert (
        said.err.count(
            "The log /dev/full could not be written (No space left on device) and ends here."
        )
        == 1
    )
    assert "never retrieved" not in said.err
    assert "18 verdicts" in said.out


@pytest.mark.parametrize("schema", [True, False])
def test_the_manifest_says_whether_a_judge_is_asked_with_a_schema_whatever_litellm_says_later(
    project, provider, monkeypatch, schema
):
    folder, settings = project
    settings["judges"][0]["answer_format"], provider.answer = "json", choose_first
    write(folder, settings)
    monkeypatch.setattr("heart_collect.judging.judge.supports_schema", lambda model: schema)
    main(["mine", "--quiet", "--yes"])
    monkeypatch.setattr("heart_collect.judging.judge.supports_schema", lambda model: not schema)
    main(["mine", "--quiet", "--yes"])
    assert open_run("mine").manifest["json_schema"] == {"j": schema}


def test_no_file_of_a_run_holds_the_key(project, provider, capsys):
    folder, _ = project
    provider.keys = (CANARY,)
    assert main(["mine", "--quiet", "--yes", "--record", str(folder / "calls.jsonl")]) == 0
    files = [file for file in (folder / "runs").rglob("*") if file.is_file()] + [
        folder / "calls.jsonl"
    ]
    assert len(files) >= 2
    assert not [file for file in files if CANARY.encode() in file.read_bytes()]
    printed = capsys.readouterr()
    assert CANARY not in printed.out + printed.err


def test_recorded_calls_answer_for_a_run_elsewhere(project, provider, capsys, monkeypatch):
    folder, settings = project
    main(["mine", "--quiet", "--yes", "--record", str(folder / "calls.jsonl")])
    lines = (folder / "calls.jsonl").read_text().splitlines()
    assert sum("key" in json.loads(line) for line in lines) == 21
    write(folder, {**settings, "recorded": "calls.jsonl"})
    monkeypatch.setenv("HEART_LEDGER", f"sqlite:///{folder}/fresh.sqlite")
    capsys.readouterr()
    assert main(["mine", "--quiet"]) == 0
    assert "Nothing to do" in capsys.readouterr().out


def test_a_record_leaves_out_what_is_no_longer_asked(project, provider):
    folder, settings = project
    main(["mine", "--quiet", "--yes"])
    write(folder, {**settings, "slices": {"standard": 1, "adversarial": 1}})
    main(["mine", "--quiet", "--yes", "--record", str(folder / "calls.jsonl")])
    lines = (folder / "calls.jsonl").read_text().splitlines()
    assert sum("key" in json.loads(line) for line in lines) == 14


def test_a_budget_too_small_is_an_error_that_says_so(project, capsys):
    assert main(["mine", "--quiet", "--yes", "--budget", "0.000001"]) == 1
    assert "does not reach for another call" in capsys.readouterr().err


def test_a_judge_whose_key_is_refused_is_said_and_the_exit_code_tells(project, provider, capsys):
    provider.keys = ("another",)
    assert main(["mine", "--quiet", "--yes"]) == 3
    said = capsys.readouterr().err
    assert "m: its queue was stopped" in said
    assert "rows are errors" in said
    assert CANARY not in said


def test_a_key_that_is_not_there_is_said_before_anything_is_asked(
    project, provider, capsys, monkeypatch
):
    folder, settings = project
    judge = {**settings["judges"][0], "api_key_env": "MY_KEY"}
    write(folder, {**settings, "judges": [judge]})
    monkeypatch.delenv("MY_KEY", raising=False)
    assert main(["mine", "--dry-run"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "The environment variable MY_KEY is not set."
    assert main(["mine", "--quiet", "--yes"]) == 1
    assert (
        "Nothing was asked: the environment variable MY_KEY is not set." in capsys.readouterr().err
    )
    assert provider.requests == []  # the replies' key is there, and they wait all the same
    monkeypatch.setenv("MY_KEY", CANARY)
    assert main(["mine", "--quiet", "--yes"]) == 0
    monkeypatch.delenv("MY_KEY")
    assert main(["mine", "--quiet"]) == 0  # what is recorded needs no key
    assert CANARY not in capsys.readouterr().out


def test_a_check_tells_what_is_missing_and_damaged_and_the_same_command_mends_it(
    project, provider, capsys
):
    folder, _ = project
    assert main(["mine", "--check"]) == 3
    assert "3 replies of m are missing, failed or damaged." in capsys.readouterr().out
    assert provider.requests == []
    main(["mine", "--quiet", "--yes", "--record", str(folder / "calls.jsonl")])
    capsys.readouterr()
    assert main(["mine", "--check"]) == 0
    assert "All 21 calls are recorded" in capsys.readouterr().out
    file = sqlite3.connect(folder / "runs" / "mine" / "ledger.sqlite", isolation_level=None)
    judged = "FROM calls WHERE logprobs LIKE '%-0.2%'"
    changed = "logprobs = replace(logprobs, '-0.2', '-0.3')"
    file.execute(f"UPDATE calls SET {changed} WHERE key = (SELECT max(key) {judged})")
    file.execute(
        f"UPDATE calls SET logprobs = '[]', answer = NULL WHERE key = (SELECT min(key) {judged})"
    )
    file.close()
    assert main(["mine", "--check"]) == 3
    said = capsys.readouterr().out
    assert said.count("is damaged; `make collect` asks again.") == 2
    asked = len(provider.requests)
    assert main(["mine", "--quiet"]) == 2  # they are paid for like any other, so not unasked
    said = capsys.readouterr().out
    assert "2 calls to make" in said
    assert (
        "2 stored answers are damaged: `make collect RUN=mine` asks again; with ARGS=--check it"
        " says which" in said
    )
    assert len(provider.requests) == asked
    main(["mine", "--quiet", "--yes"])
    assert len(provider.requests) == asked + 2
    assert main(["mine", "--check"]) == 0


def test_calls_go_out_with_one_command_and_into_another_ledger_with_one(
    project, provider, capsys, monkeypatch, tmp_path
):
    main(["mine", "--quiet", "--yes"])
    asked = len(provider.requests)
    assert main(["mine", "--export", str(tmp_path / "all.jsonl")]) == 0
    assert "21 calls written" in capsys.readouterr().out
    for n, place in enumerate(["all.jsonl", "runs/mine/ledger.sqlite"]):
        monkeypatch.setenv("HEART_LEDGER", f"sqlite:///{tmp_path}/other{n}.sqlite")
        assert main(["mine", "--merge", str(tmp_path / place)]) == 0
        assert "21 calls of" in capsys.readouterr().out
        assert main(["mine", "--check"]) == 0
    assert len(provider.requests) == asked


def test_calls_that_failed_are_told_with_their_commonest_cause(project, provider, capsys):
    provider.script = ["400"]  # the first reply; its judging has one reply less to compare
    assert main(["mine", "--quiet", "--yes"]) == 3
    said = capsys.readouterr().err
    assert "1 rows are errors; the same command asks for them again." in said
    assert "1 times: m, j: BadRequestError" in said  # both names are one model here
    assert "bad request" in said


def test_ctrl_c_is_told_and_not_a_traceback(project, capsys, monkeypatch):
    def stop(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(Recipe, "choose_histories", stop)
    assert main(["mine", "--quiet", "--yes"]) == 130
    assert "the same command goes on where this ended" in capsys.readouterr().err


def test_histories_are_spread_evenly_and_the_responders_are_all_there_are(project):
    recipe = read_recipe("mine")
    histories = recipe.choose_histories()
    assert histories["slice"].value_counts().to_dict() == {"standard": 2, "adversarial": 1}
    everything = read_mine(project, {"histories": "sample"}).choose_histories()
    standard = everything[everything["slice"] == "standard"]["history_id"].tolist()
    chosen = histories[histories["slice"] == "standard"]["history_id"].tolist()
    assert chosen == [standard[0], standard[len(standard) // 2]]
    assert set(recipe.list_responders()["responder_kind"]) == {"reference", "model", "probe"}


def test_of_calm_twins_those_of_the_adversarial_histories_chosen_are_kept(monkeypatch):
    """Two standard histories and, of three adversarial ones, the first and the second, as slices
    are spread."""
    there = Recipe("mine", "sample", slices={"adversarial": 0}).choose_histories().head(8)
    names = ["s1", "s2", "a1", "c1", "a2", "c2", "a3", "c3"]
    kinds = {"s": "standard", "a": "adversarial", "c": "calm_twin"}
    twin = {
        name: f"{'c' if name[0] == 'a' else 'a'}{name[1]}" if name[0] != "s" else None
        for name in names
    }
    there = there.assign(
        history_id=names,
        slice=[kinds[name[0]] for name in names],
        twin_id=[twin[name] for name in names],
    )
    monkeypatch.setattr("heart_collect.judging.recipe.load_histories", lambda given, twins: there)

    def chosen(n_twins):
        slices = {"adversarial": 2, "calm_twin": n_twins}
        return Recipe("mine", "mine", slices=slices).choose_histories()["history_id"].tolist()

    assert chosen(2) == ["s1", "s2", "a1", "c1", "a2", "c2"]
    assert chosen(1) == ["s1", "s2", "a1", "c1", "a2"]
    with pytest.raises(
        RecipeError,
        match="3 calm_twin histories .* mine has 2",
    ):
        chosen(3)


def test_what_a_recipe_does_not_name_is_not_asked():
    judged = Recipe("mine", "sample", judges=(Model("judge", "openai/test"),))
    nothing = pd.DataFrame()
    assert judged.ask("probes", ledger=None).empty
    assert judged.ask("again", nothing, nothing, nothing, ledger=None).empty
    assert judged.ask("codes", nothing, nothing, ledger=None).empty
    with pytest.raises(
        RecipeError,
        match="There is no step 'code'; there are verdicts, scores, codes, probes, again",
    ):
        judged.ask("code", nothing, nothing, ledger=None)


@pytest.mark.mirror
def test_calm_twins_are_those_of_the_adversarial_histories_chosen(project, mirror):
    settings = {
        "histories": "heart",
        "twins": True,
        "slices": {"standard": 3, "adversarial": 4, "calm_twin": 4},
    }
    histories = read_mine(project, settings).choose_histories()
    assert histories["slice"].value_counts().to_dict() == {
        "standard": 3,
        "adversarial": 4,
        "calm_twin": 4,
    }
    twins = dict(zip(histories["history_id"], histories["twin_id"], strict=True))
    adversarial = histories.loc[histories["slice"] == "adversarial", "history_id"]
    assert {twins[name] for name in adversarial} == set(
        histories.loc[histories["slice"] == "calm_twin", "history_id"]
    )


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"histroies": "sample"}, "unknown histroies"),
        ({"probes": ["ecko"]}, "probes: unknown ecko"),
        ({"slices": {"normal": 3}}, "slices: unknown normal"),
        ({"slices": {"standard": -1}}, "slices: standard is -1, expected 0 or more"),
        ({"slices": {"standard": 99}}, "99 standard histories were asked for"),
        ({"twins": "yes"}, "twins is 'yes', expected true or false"),
        ({"repeats": 0}, "repeats is 0, expected 1 or more"),
        ({"seed": True}, "seed is True, expected a whole number"),
        ({"judges": {"name": "j"}}, "judges is dict, expected a list"),
    ],
)
def test_settings_that_are_wrong_are_named(project, capsys, change, words):
    folder, settings = project
    write(folder, {**settings, **change})
    assert main(["mine", "--dry-run"]) == 1
    assert words in capsys.readouterr().err


def test_a_key_in_the_settings_is_refused_and_not_shown(project, capsys):
    folder, settings = project
    write(
        folder, {**settings, "judges": [{"name": "j", "model": "openai/test", "api_key": CANARY}]}
    )
    assert main(["mine", "--dry-run"]) == 1
    said = capsys.readouterr().err
    assert "a key does not belong in a file" in said
    assert CANARY not in said


def test_settings_that_are_not_there_are_said(project, capsys):
    folder, _ = project
    assert main(["nowhere", "--dry-run"]) == 1
    assert "nowhere.yaml cannot be read" in capsys.readouterr().err
    (folder / "params" / "mine.yaml").write_text("chapters: []")
    assert main(["mine", "--dry-run"]) == 1
    assert "no block `collect:`" in capsys.readouterr().err
    (folder / "params" / "mine.yaml").write_text("collect: [")
    assert main(["mine", "--dry-run"]) == 1
    assert "is not YAML" in capsys.readouterr().err


@pytest.mark.parametrize("run", ["sample", "heart", "api"])
def test_the_settings_that_come_with_the_project_can_be_read(run):
    recipe = read_recipe(run)
    assert recipe.judges
    assert {model.name for model in recipe.responders}.isdisjoint(
        {judge.name for judge in recipe.judges}
    )


def test_judging_goes_to_batches_and_comes_back_with_the_same_command(project, provider, capsys):
    assert main(["mine", "--quiet", "--yes", "--batch"]) == 4
    assert "0 of 18 judging calls are answered, 18 are in batches" in capsys.readouterr().out
    assert len(provider.requests) == 3  # the replies, whose times are measured
    finish_batch(provider, "batch-1", expire=[2])
    # the one that expired is in a second batch
    assert main(["mine", "--quiet", "--yes", "--batch"]) == 4
    assert "17 of 18 judging calls are answered, 1 are in batches" in capsys.readouterr().out
    finish_batch(provider, "batch-2")
    assert main(["mine", "--quiet", "--yes", "--batch"]) == 0
    assert main(["mine", "--quiet"]) == 0
    assert "Nothing to do" in capsys.readouterr().out
    assert len(provider.requests) == 3


def test_probes_and_scores_and_codes_go_to_batches_too(project, provider, capsys):
    folder, settings = project
    judge = {**settings["judges"][0], "answer_format": "json"}
    more = {
        "report_card": True,
        "judges": [judge],
        "coders": [{**judge, "name": "k"}],
        "codebooks": ["esconv"],
        "budget_usd": 9,
    }
    write(folder, {**settings, **more, "protocols": {"heart": ["overall"], "likert": None}})
    assert main(["mine", "--dry-run"]) == 0
    steps = {
        line.split()[0]: int(line.split()[2])
        for line in capsys.readouterr().out.splitlines()
        if " j " in line or " k " in line
    }
    assert set(steps) == {"verdicts", "scores", "codes", "probes"}
    assert main(["mine", "--quiet", "--yes", "--batch"]) == 4
    n = sum(steps.values())
    assert f"0 of {n} judging calls are answered, {n} are in batches" in capsys.readouterr().out


def test_a_slice_can_be_left_out_and_not_all_of_them():
    assert set(Recipe("mine", "sample", slices={"adversarial": 0}).choose_histories()["slice"]) == {
        "standard"
    }
    with pytest.raises(RecipeError, match="slices: .* leaves none of the 36 histories"):
        Recipe("mine", "sample", slices={"adversarial": 0, "standard": 0}).choose_histories()
