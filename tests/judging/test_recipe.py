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
from conversation_case import collected_once, copied, lay_out
from conversation_case import settings as conversation
from server import Provider, choose_first, finish_batch, serving
from worker import begin_command

from heart_collect.calls.ledger import open_ledger
from heart_collect.calls.models import Model
from heart_collect.collect import main
from heart_collect.judging.recipe import Recipe, RecipeError, read_recipe
from heart_utils.runs import open_run

CANARY = "sk-canary-0123456789abcdef"
ANSWER = "That sounds heavy. What would help tonight?"
ONE = {"slices": {"standard": 1, "adversarial": 0}}  # one reply and six verdicts
ASKED = 7


def settings(address, **changes):
    """What a run of replies collects, from models at one address."""
    paid = {"model": "openai/test", "api_base": address, "api_key_env": "CANARY_API_KEY"}
    paid |= {"price_prompt": 1, "price_completion": 2}
    return {
        "histories": "sample",
        "slices": {"standard": 2, "adversarial": 1},
        "responders": [{"name": "m", **paid}],
        "probes": ["echo"],
        "judges": [{"name": "j", **paid, "answer_format": "logprob", "max_concurrency": 4}],
        "protocols": {"heart": ["overall"]},
        "budget_usd": 1,
        **changes,
    }


@pytest.fixture(autouse=True)
def _key(monkeypatch):
    monkeypatch.setenv("CANARY_API_KEY", CANARY)


@pytest.fixture
def provider():
    with serving(Provider(answer=ANSWER, piece_s=0.0)) as running:
        yield running


@pytest.fixture
def project(tmp_path, provider, monkeypatch):
    """What writes the settings of a project with nothing collected."""
    return lay_out(tmp_path, provider.address, monkeypatch, settings)


@pytest.fixture
def judge(provider):
    [judge] = settings(provider.address)["judges"]
    return judge


@pytest.fixture(scope="module")
def held(tmp_path_factory):
    """One collected run: its folder, its provider, and what was printed."""
    folder = tmp_path_factory.mktemp("held")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CANARY_API_KEY", CANARY)
        record = str(folder / "calls.jsonl")
        how = {"settings": settings, "answer": ANSWER, "keys": (CANARY,)}
        with collected_once(folder, "--record", record, **how) as (provider, said):
            yield folder, provider, said


@pytest.fixture
def collected(held, tmp_path, monkeypatch):
    """A copy of that project: its folder, what writes its settings, and its provider."""
    folder, provider, _ = held
    provider.requests.clear()
    copy = tmp_path / "copy"
    return copy, copied(folder, copy, provider.address, monkeypatch, settings), provider


# What a dry run says


@pytest.mark.parametrize(
    ("changes", "of_judge", "said"),
    [
        # 3 replies; 3 pairs of 3 histories in both orders. Replies one by one, verdicts four at once:
        # 3 + 18 / 4 s; 2 * 3 * 30 + 2 * 18 * 30 / 4 s
        ({}, {}, "3 histories.*21 calls to make, for 0.0.*Between 0.1 and 7.5 minutes."),
        ({"max_concurrency": 1}, {}, "Between 0.3 and 21.0 minutes."),  # 3 + 18 s; 180 + 36 * 30 s
        # 3 s + 18 / 6 min; 3 + 36 / 6 min
        ({}, {"requests_per_minute": 6}, "Between 3.0 and 9.0 minutes."),
        ({"judges": []}, None, "name no judges"),
    ],
)
def test_a_dry_run_says_what_a_run_would_take_and_asks_nothing(
    project, provider, judge, capsys, changes, of_judge, said
):
    project(**{"judges": [judge | (of_judge or {})], **changes})
    assert main(["mine", "--dry-run"]) == 0
    assert re.search(said, capsys.readouterr().out, re.DOTALL)
    assert provider.requests == []


def test_a_dry_run_bounds_the_time_by_a_limit_on_tokens(project, judge, capsys):
    project(judges=[judge | {"tokens_per_minute": 100}])
    assert main(["mine", "--dry-run"]) == 0
    said = capsys.readouterr().out
    prompts, answers = map(int, re.search(r"verdicts +j +18 +0 +(\d+) +(\d+)", said).groups())
    shortest, longest = (prompts + answers) / 100 + 0.05, 2 * (prompts + answers) / 100 + 3
    assert f"Between {shortest / 60:.1f} and {longest / 60:.1f} hours." in said
    assert "(of j, m too little is recorded: 1 and 30 s are assumed)" in said


def test_a_dry_run_takes_the_latencies_that_are_recorded(collected, capsys):
    _, write, provider = collected
    ledger = open_ledger("mine")
    earlier = "(SELECT count(*) FROM calls c WHERE c.key < calls.key)"
    with ledger.writing() as connection:
        connection.execute(sa.text(f"UPDATE calls SET digest = NULL, total_ms = 1000 * {earlier}"))
    # of 0 to 20 s
    asked = Model("j", "openai/test", api_base=provider.address)
    assert ledger.quick_and_slow(asked) == (2.0, 18.0)
    write(slices={"standard": 2, "adversarial": 2})
    assert main(["mine", "--dry-run"]) == 0
    # One reply and six verdicts, four at once: 2 + 6 * 2 / 4 s, and 36 + 12 * 18 / 4 s.
    said = capsys.readouterr().out
    assert "Between 0.1 and 1.5 minutes." in said
    assert "assumed" not in said


# What is asked before money is spent


@pytest.mark.parametrize(
    ("budget", "arguments", "said"),
    [
        (
            1,
            [],
            "21 calls cost money, and no more than 1 USD. Nobody is there to ask; --yes allows",
        ),
        (None, [], "21 calls cost money, at most 0.0"),
        (None, ["--yes"], "No budget is set. Nothing was asked"),
    ],
)
def test_paid_calls_need_a_budget_and_a_word_from_somebody(
    project, provider, capsys, budget, arguments, said
):
    project(budget_usd=budget)
    assert main(["mine", "--quiet", *arguments]) == 2
    assert said in capsys.readouterr().err
    assert provider.requests == []


def test_a_budget_too_small_is_an_error_that_says_so_and_one_large_enough_is_taken(project, capsys):
    project(budget_usd=None, **ONE)
    assert main(["mine", "--quiet", "--yes", "--budget", "0.000001"]) == 1
    assert "does not reach for another call" in capsys.readouterr().err
    assert main(["mine", "--quiet", "--yes", "--budget", "1"]) == 0


class Terminal:
    def isatty(self):
        return True


@pytest.mark.parametrize(
    ("budget", "answer", "code", "asked"),
    [
        *((None, answer, 2, 0) for answer in ("", "0")),
        (None, "much", 1, 0),
        (None, "0.5", 0, ASKED),
        (1, "y", 0, ASKED),
        (1, "n", 2, 0),
    ],
)
def test_on_a_terminal_somebody_is_asked_for_a_budget_or_whether_to_go_on(
    project, provider, monkeypatch, budget, answer, code, asked
):
    project(budget_usd=budget, **ONE)
    questions = []
    monkeypatch.setattr("sys.stdin", Terminal())
    monkeypatch.setattr("builtins.input", lambda question: questions.append(question) or answer)
    assert main(["mine", "--quiet"]) == code
    assert len(provider.requests) == asked
    assert f"{ASKED} calls cost money" in questions[0]


UNPRICED = (
    r"^ *replies .* (\d+\.\d\d) +(\d+\.\d\d)$(?s:.)*calls to make, for a price that is not known: give"
    r" each model price_prompt.*\(what is known comes to \1, at most \2\)(?!(?s:.)*The first figure)"
)
LISTED = r"price_prompt is 0 and price_completion is 0, but openai/gpt-4o is listed"
FREE = {"price_prompt": 0, "price_completion": 0}


@pytest.mark.parametrize(
    ("model", "planned", "refused"),
    [
        *(
            ({"model": name}, UNPRICED, f"No price is known of dear ({name}). Give price_prompt")
            for name in (
                "anthropic/claude-sonnet-4-20250514",
                "openrouter/anthropic/claude-sonnet-4",
            )
        ),
        (
            {"model": "openai/gpt-4o", **FREE},
            f"Dear: {LISTED}",
            "dear: price_prompt is 0 and price",
        ),
    ],
)
def test_a_judge_whose_price_is_not_known_or_said_to_be_zero_keeps_everything_from_being_asked(
    project, provider, capsys, monkeypatch, model, planned, refused
):
    """With standard input closed and no way out: a connection is an error of its own."""
    project(judges=[{"name": "dear", **model}])
    for name in ("ANTHROPIC", "OPENROUTER"):
        monkeypatch.setenv(f"{name}_API_KEY", CANARY)
    monkeypatch.setattr("socket.socket.connect", lambda *_: pytest.fail("somebody was asked"))
    monkeypatch.setattr("sys.stdin", None)
    assert main(["mine", "--dry-run"]) == 0
    assert re.search(planned, capsys.readouterr().out, re.MULTILINE)
    for arguments in ([], ["--yes", "--budget", "5"]):
        assert main(["mine", "--quiet", *arguments]) == 1
        said = capsys.readouterr().err
        assert "Nothing was asked" in said
        assert refused in said
    assert provider.requests == []  # nor for replies, whose price is known


def test_a_key_that_is_not_there_is_said_before_anything_is_asked(collected, capsys, monkeypatch):
    _, write, provider = collected
    monkeypatch.delenv("CANARY_API_KEY")
    assert main(["mine", "--quiet"]) == 0  # what is recorded needs no key
    monkeypatch.setenv("CANARY_API_KEY", CANARY)
    monkeypatch.delenv("MY_KEY", raising=False)
    [judge] = settings(provider.address)["judges"]
    other = {**judge, "model": "openai/other", "api_key_env": "MY_KEY"}
    write(judges=[other], slices={"standard": 3})
    capsys.readouterr()
    assert main(["mine", "--dry-run"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "The environment variable MY_KEY is not set."
    assert main(["mine", "--quiet", "--yes"]) == 1
    said = capsys.readouterr()
    assert "Nothing was asked: the environment variable MY_KEY is not set." in said.err
    assert provider.requests == []  # the replies' key is there, and they wait all the same
    assert CANARY not in said.out


def test_what_costs_nothing_goes_on_where_the_budget_is_spent(collected, capsys):
    _, write, provider = collected
    [judge] = settings(provider.address)["judges"]
    free = {**judge, "name": "free", "model": "openai/free", **FREE}
    dear = {**judge, "name": "dear", "model": "openai/dear"}
    write(judges=[judge, dear, free], budget_usd=1e-9)
    assert main(["mine", "--quiet", "--yes"]) == 1
    assert "does not reach for another call" in capsys.readouterr().err
    assert [body["model"] for body in provider.requests] == ["free"] * 18


def test_the_most_that_a_run_can_cost_is_shown_and_holds_for_a_responder_that_never_stops(
    project, provider, capsys
):
    project(**ONE)
    provider.answer = lambda body: "A" if body.get("logprobs") else "word" * 10_000
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
    assert 4040 < max(map(len, prompts)) < 3 * 4040
    assert [bool(body.get("logprobs")) for body in provider.requests].count(False) == 1
    spent = float(re.search(r"Spent on this ledger so far: ([0-9.]+)", said)[1])
    assert 0 < spent <= most + 0.005


# What is collected, and what is not asked again


def test_a_run_is_collected_and_then_there_is_nothing_to_do(held, collected, capsys):
    folder, _, provider = collected
    said = held[2]
    assert "9 replies" in said
    assert "18 verdicts" in said
    assert main(["mine", "--quiet"]) == 0
    assert "Nothing to do: all 21 calls are recorded" in capsys.readouterr().out
    assert provider.requests == []
    files = [file for file in (folder / "runs").rglob("*") if file.is_file()]
    assert len(files) >= 2
    for file in [*files, folder / "calls.jsonl"]:
        assert CANARY.encode() not in file.read_bytes()
    assert CANARY not in said


def test_recorded_calls_answer_for_a_run_elsewhere_and_hold_what_is_asked_alone(
    collected, capsys, monkeypatch
):
    folder, write, _ = collected

    def recorded():
        lines = (folder / "calls.jsonl").read_text().splitlines()
        return sum("key" in json.loads(line) for line in lines)

    assert recorded() == 21
    write(slices={"standard": 1, "adversarial": 1})
    main(["mine", "--quiet", "--yes", "--record", str(folder / "calls.jsonl")])
    assert recorded() == 14
    write(slices={"standard": 1, "adversarial": 1}, recorded="calls.jsonl")
    monkeypatch.setenv("HEART_LEDGER", f"sqlite:///{folder}/fresh.sqlite")
    capsys.readouterr()
    assert main(["mine", "--quiet"]) == 0
    assert "Nothing to do" in capsys.readouterr().out


def test_calls_go_out_with_one_command_and_into_another_ledger_with_one(
    collected, capsys, monkeypatch
):
    folder, _, provider = collected
    assert main(["mine", "--export", str(folder / "all.jsonl")]) == 0
    assert "21 calls written" in capsys.readouterr().out
    for n, place in enumerate(["all.jsonl", "runs/mine/ledger.sqlite"]):
        monkeypatch.setenv("HEART_LEDGER", f"sqlite:///{folder}/other{n}.sqlite")
        assert main(["mine", "--merge", str(folder / place)]) == 0
        assert "21 calls of" in capsys.readouterr().out
        assert main(["mine", "--check"]) == 0
    assert provider.requests == []


def test_a_check_tells_what_is_missing_and_damaged_and_the_same_command_mends_it(collected, capsys):
    folder, write, provider = collected
    assert main(["mine", "--check"]) == 0
    assert "All 21 calls are recorded" in capsys.readouterr().out
    write(slices={"standard": 3, "adversarial": 1})
    assert main(["mine", "--check"]) == 3
    assert "2 replies of m are missing, failed or damaged." in capsys.readouterr().out
    write()
    file = sqlite3.connect(folder / "runs" / "mine" / "ledger.sqlite", isolation_level=None)
    judged = "FROM calls WHERE logprobs LIKE '%-0.2%'"
    changed = "logprobs = replace(logprobs, '-0.2', '-0.3')"
    emptied = "logprobs = '[]', answer = NULL"
    file.execute(f"UPDATE calls SET {changed} WHERE key = (SELECT max(key) {judged})")
    file.execute(f"UPDATE calls SET {emptied} WHERE key = (SELECT min(key) {judged})")
    file.close()
    assert main(["mine", "--check"]) == 3
    said = capsys.readouterr().out
    assert said.count("is damaged; `make collect` asks again.") == 2
    assert main(["mine", "--quiet"]) == 2  # they are paid for like any other, so not unasked
    said = capsys.readouterr().out
    assert "2 calls to make" in said
    assert "2 stored answers are damaged: `make collect RUN=mine` asks again; with ARGS=--c" in said
    assert provider.requests == []
    main(["mine", "--quiet", "--yes"])
    assert len(provider.requests) == 2
    assert main(["mine", "--check"]) == 0


@pytest.mark.parametrize("schema", [True, False])
def test_the_manifest_says_whether_a_judge_is_asked_with_a_schema_whatever_litellm_says_later(
    project, provider, judge, monkeypatch, schema
):
    provider.answer = choose_first
    project(judges=[judge | {"answer_format": "json"}], **ONE)
    for supported in (schema, not schema):
        monkeypatch.setattr(
            "heart_collect.judging.judge.supports_schema", lambda _, says=supported: says
        )
        main(["mine", "--quiet", "--yes"])
    assert open_run("mine").manifest["json_schema"] == {"j": schema}


def test_judging_goes_to_batches_and_comes_back_with_the_same_command(project, provider, capsys):
    project(**ONE)
    assert main(["mine", "--quiet", "--yes", "--batch"]) == 4
    assert "0 of 6 judging calls are answered, 6 are in batches" in capsys.readouterr().out
    assert len(provider.requests) == 1  # the reply, whose times are measured
    finish_batch(provider, "batch-1", expire=[2])
    # the one that expired is in a second batch
    assert main(["mine", "--quiet", "--yes", "--batch"]) == 4
    assert "5 of 6 judging calls are answered, 1 are in batches" in capsys.readouterr().out
    finish_batch(provider, "batch-2")
    assert main(["mine", "--quiet", "--yes", "--batch"]) == 0
    assert main(["mine", "--quiet"]) == 0
    assert "Nothing to do" in capsys.readouterr().out
    assert len(provider.requests) == 1


def test_probes_and_scores_and_codes_go_to_batches_too(project, judge, capsys):
    in_json = judge | {"answer_format": "json"}
    coders = {"coders": [in_json | {"name": "k"}], "codebooks": ["esconv"]}
    protocols = {"heart": ["overall"], "likert": None}
    project(judges=[in_json], **coders, protocols=protocols, report_card=True, budget_usd=9, **ONE)
    assert main(["mine", "--quiet", "--yes", "--batch"]) == 4
    said = capsys.readouterr().out
    steps = dict(re.findall(r"^ *(\w+) +[jk] +(\d+) ", said, re.MULTILINE))
    assert set(steps) == {"verdicts", "scores", "codes", "probes"}
    n = sum(map(int, steps.values()))
    assert f"0 of {n} judging calls are answered, {n} are in batches" in said


# What goes wrong


def test_a_run_ends_with_what_each_model_took_and_who_answered_under_its_name(
    project, provider, capsys
):
    provider.served, provider.fingerprint = "test-2026-01", "fp_1"
    provider.script = ["filter", None, "nousage"]
    assert main(["mine", "--quiet", "--yes"]) == 0
    said = capsys.readouterr().out
    assert "prompt tokens" in said
    assert re.search(r"^ *(m, j|j, m) +\d+ ", said, re.MULTILINE)  # both names are one model here
    assert "their cost is an estimate" in said
    assert "changed in the middle" not in said
    project(slices={"standard": 3, "adversarial": 1})
    # with replies of 40 words, and once more with the longest
    assert main(["mine", "--dry-run"]) == 0
    assert capsys.readouterr().err.count("replies are not paired (1 refused)") == 1
    provider.served = "test-2026-02"
    assert main(["mine", "--quiet", "--yes"]) == 0
    assert "its model changed in the middle of the run: test-2026-0" in capsys.readouterr().out


def test_a_reply_that_holds_no_words_is_told_apart_from_a_call_that_is_asked_again(
    project, provider, capsys
):
    project(**ONE)
    provider.answer = lambda body: "A" if body.get("logprobs") else "Supporter:"
    assert main(["mine", "--quiet", "--yes"]) == 3
    said = capsys.readouterr().err
    assert "1 replies of m hold no words although their calls were answered, and are not a" in said
    assert "the same command asks for them again" not in said
    n = len(provider.requests)
    assert main(["mine", "--quiet", "--yes"]) == 3
    assert len(provider.requests) == n


def test_calls_that_failed_are_told_with_their_commonest_cause(project, provider, capsys):
    project(**ONE)
    provider.script = ["400"]  # the reply; its judging has one reply less to compare
    assert main(["mine", "--quiet", "--yes"]) == 3
    said = capsys.readouterr().err
    assert "1 rows are errors; the same command asks for them again." in said
    assert "1 times: m, j: BadRequestError" in said
    assert "bad request" in said


def test_a_key_that_is_refused_is_said_with_what_cannot_be_paired_for_it(project, provider, capsys):
    provider.keys = ("another",)
    project(**ONE)
    assert main(["mine", "--quiet", "--yes"]) == 3
    said = capsys.readouterr().err
    assert "m: its queue was stopped" in said
    assert "rows are errors" in said
    project(probes=[], **ONE)
    assert main(["mine", "--quiet", "--yes"]) == 1
    _, _, last = capsys.readouterr().err.rpartition("collect:")
    assert "Nothing can be paired" in last
    assert "Incorrect API key provided: [key]" in last
    assert CANARY not in said + last


def test_a_service_manager_that_ends_a_run_loses_no_answer_in_flight(project, provider, tmp_path):
    provider.latency_s = 0.3
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


def test_a_full_disk_under_the_tables_loses_no_answer_and_leaves_no_half_table(
    project, provider, capsys, monkeypatch, tmp_path
):
    project(**ONE)
    with full_disk(monkeypatch):  # the ledger's own is full in tests/calls/test_ledger.py
        assert main(["mine", "--quiet", "--yes"]) == 1
    assert "could not be written (No space left on device)" in capsys.readouterr().err
    assert [file.name for file in (tmp_path / "runs" / "mine").rglob("*.parquet*")] == []
    assert main(["mine", "--quiet", "--yes"]) == 0
    assert open_run("mine").read("verdicts")["state"].eq("valid").all()
    assert len(provider.requests) == ASKED


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_a_log_on_a_full_disk_ends_with_a_sentence_and_the_run_goes_on(project, capsys):
    project(**ONE)
    assert main(["mine", "--quiet", "--yes", "--log", "/dev/full"]) == 0
    said = capsys.readouterr()
    ends = "The log /dev/full could not be written (No space left on device) and ends here."
    assert said.err.count(ends) == 1
    assert "never retrieved" not in said.err
    assert "6 verdicts" in said.out


def test_a_log_that_cannot_be_written_is_said_before_anything_is_asked(
    project, provider, capsys, tmp_path
):
    assert main(["mine", "--quiet", "--yes", "--log", str(tmp_path / "nowhere" / "log.jsonl")]) == 1
    said = capsys.readouterr().err
    assert re.fullmatch("collect: .*No such file or directory: .*log.jsonl'\n", said)
    assert provider.requests == []


def test_ctrl_c_is_told_and_not_a_traceback(project, capsys, monkeypatch):
    def stop(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(Recipe, "choose_histories", stop)
    assert main(["mine", "--quiet", "--yes"]) == 130
    assert "the same command goes on where this ended" in capsys.readouterr().err


# Settings, and what they choose


def read_block(folder, block):
    """Read a recipe from a file with this block, or this text."""
    file = folder / "mine.yaml"
    file.write_text(block if isinstance(block, str) else yaml.safe_dump({"collect": block}))
    return read_recipe(str(file.with_suffix("")))


MODEL = {"name": "x", "model": "openai/x"}
S, T = conversation("http://127.0.0.1:1/v1")["seekers"]
TALKS = conversation("http://127.0.0.1:1/v1")
CONJOINT = {"histories": "sample", "rewrites": 4, "labels": ["expert", "person", "ai"]}
REFUSED = [
    ({"histroies": "sample"}, "unknown histroies. The keys are run, histories"),
    ({"histories": ""}, "needs histories: sample, heart, esconv, or a file"),
    ({"run": "mine"}, "unknown setting run"),
    ({"reading": {}}, "unknown setting reading"),
    ({"histories": {"words": {}}}, "histories has words, expected file: and a path"),
    ({"histories": {"file": "a.csv", "wrods": {}}}, "wrods"),
    ({"probes": ["ecko"]}, "probes: unknown ecko. Known are"),
    ({"slices": {"normal": 3}}, "slices: unknown normal"),
    ({"slices": {"standard": -1}}, "slices: standard is -1, expected 0 or more"),
    ({"twins": "yes"}, "twins is 'yes', expected true or false"),
    ({"repeats": 0}, "repeats is 0, expected 1 or more"),
    ({"asked_again": -1}, "asked_again is -1, expected 0 or more"),
    ({"seed": True}, "seed is True, expected a whole number"),
    ({"judges": MODEL}, "judges is dict, expected a list"),
    ({"histories": "mine.csv"}, "no replies come with a file of histories; say given_replies: f"),
    # rewritings
    (CONJOINT | {"rewrites": 3}, "rewrites"),
    (CONJOINT | {"labels": ["person", "robot"]}, "labels"),
    (CONJOINT | {"given_replies": False}, "rewrites: given replies are rewritten, and given_repl"),
    ({"rewrites": "adversarial"}, "rewrites: adversarial needs rewriters"),
    ({"rewriters": [MODEL]}, "rewriters: only with rewrites: adversarial"),
    ({"rewrites": "calm"}, "rewrites"),
    # questions of a rubric
    ({"questions": "q.jsonl", "n_questions": "six"}, "n_questions is 'six', expected a whole num"),
    ({"questions": "q.jsonl", "language": "de"}, "language is 'de', expected one of 'zh' or 'en'"),
    ({"questions": "q.jsonl", "responders": [MODEL]}, "no judges; name at least one model each"),
    # conversations
    (TALKS | {"seekers": []}, "name at least two models"),
    (TALKS | {"exchanges": 31}, "exchanges"),
    (TALKS | {"given_replies": True}, "a given reply is one turn and no conversation"),
    (TALKS | {"protocols": {"heart": None}}, "protocols: heart asks about replies"),
    (TALKS | {"coders": [MODEL]}, "coders: about single replies"),
    (TALKS | {"unit": "reply"}, "exchanges, seekers: only with unit: conversation"),
    ({"protocols": {"conversation-seeker": None}}, "conversation-seeker asks simulated seekers, "),
    (TALKS | {"seekers": [S, T | {"name": "s"}]}, "s appears more than once"),
    (TALKS | {"seekers": [S, T | {"name": "m"}]}, "m is a responder's name too"),
    (TALKS | {"seekers": [S, T | {"model": "openai/s"}]}, "s and t are the same model"),
    (TALKS | {"judges": [S]}, "s is a judge's name too"),
    (TALKS | {"seekers": [S | {"family": "ONE"}, T]}, "s is of the family ONE, and so is the r"),
    (TALKS | {"seekers": [S | {"family": None}, T]}, "family: missing of s"),
    (TALKS | {"seekers": [S]}, "all are of one family"),
    (TALKS | {"seekers": [S, T | {"family": "Three"}]}, "all are of one family"),
]


@pytest.mark.parametrize(("block", "words"), REFUSED)
def test_settings_that_are_wrong_are_named(tmp_path, block, words):
    with pytest.raises(ValueError, match=re.escape(words)):
        read_block(tmp_path, {"histories": "sample"} | block)


@pytest.mark.parametrize(
    ("said", "words"),
    [
        (None, "mine.yaml cannot be read"),
        ("chapters: []", "no block `collect:`"),
        ("collect: [", "is not YAML"),
        (yaml.safe_dump({"collect": {"judges": [MODEL | {"api_key": CANARY}]}}), "a key does not"),
        (
            "collect: {histories: sample, slices: {standard: 99}}",
            "99 standard histories were asked",
        ),
    ],
)
def test_the_command_says_what_is_wrong_with_a_file_and_shows_no_key(
    project, tmp_path, capsys, said, words
):
    file = tmp_path / "params" / "mine.yaml"
    file.unlink() if said is None else file.write_text(said)
    assert main(["mine", "--dry-run"]) == 1
    printed = capsys.readouterr().err
    assert words in printed
    assert CANARY not in printed


@pytest.mark.parametrize("run", ["sample", "heart", "api"])
def test_the_settings_that_come_with_the_project_can_be_read(run):
    recipe = read_recipe(run)
    assert recipe.judges
    assert {model.name for model in recipe.responders}.isdisjoint(
        {judge.name for judge in recipe.judges}
    )


def test_histories_are_spread_evenly_and_the_responders_are_all_there_are(tmp_path):
    recipe = read_block(tmp_path, settings("http://127.0.0.1:1/v1"))
    histories = recipe.choose_histories()
    assert histories["slice"].value_counts().to_dict() == {"standard": 2, "adversarial": 1}
    everything = read_block(tmp_path, {"histories": "sample"}).choose_histories()
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
    twin = {"a": "c", "c": "a"}
    there = there.assign(
        history_id=names,
        slice=[kinds[name[0]] for name in names],
        twin_id=[twin[name[0]] + name[1] if name[0] in twin else None for name in names],
    )
    monkeypatch.setattr("heart_collect.judging.recipe.load_histories", lambda given, twins: there)

    def chosen(n_twins):
        slices = {"adversarial": 2, "calm_twin": n_twins}
        return Recipe("mine", "mine", slices=slices).choose_histories()["history_id"].tolist()

    assert chosen(2) == ["s1", "s2", "a1", "c1", "a2", "c2"]
    assert chosen(1) == ["s1", "s2", "a1", "c1", "a2"]
    with pytest.raises(RecipeError, match="3 calm_twin histories .* mine has 2"):
        chosen(3)


def test_a_slice_can_be_left_out_and_not_all_of_them():
    without = Recipe("mine", "sample", slices={"adversarial": 0}).choose_histories()
    assert set(without["slice"]) == {"standard"}
    with pytest.raises(RecipeError, match="slices: .* leaves none of the 36 histories"):
        Recipe("mine", "sample", slices={"adversarial": 0, "standard": 0}).choose_histories()


def test_a_seeker_may_be_of_a_contestants_family_and_all_of_one_if_it_is_meant(tmp_path):
    for seekers in ([S], [S, T | {"family": "Three"}]):
        told = TALKS | {"seekers": seekers, "allow": ["one_family"]}
        assert len(read_block(tmp_path, told).seekers) == len(seekers)
    told = TALKS | {"seekers": [S | {"family": "ONE"}, T], "allow": ["own_family"]}
    assert read_block(tmp_path, told).allow == ("own_family",)


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
