"""The embedded model: found, refused, and asked once for real (alone, before the parallel tests)."""

import hashlib
from contextlib import contextmanager

import pytest

from heart_utils.calls import local
from heart_utils.calls.engine import ask_all
from heart_utils.calls.ledger import open_ledger
from heart_utils.calls.local import NotInstalledError, local_model, serve_local
from heart_utils.calls.models import ModelError, Request


def installed():
    try:
        local._weights()
    except NotInstalledError as error:
        pytest.skip(f"needs model: {error}")


def test_the_identity_is_the_weights_and_no_address():
    import json

    assert json.loads(local_model().identity) == {"model": "openai/SmolLM2-135M-Instruct-Q4_1", "checksum": local.CHECKSUM}


def test_without_the_server_it_is_said_how_to_install_it(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(NotInstalledError, match="xllamacpp.*--no-deps -r requirements-model.txt"):
        local._weights()


def test_without_the_weights_it_is_said_how_to_install_them(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: object())
    monkeypatch.setattr(local, "PACKAGE", "no-such-package-here")
    with pytest.raises(NotInstalledError, match="no-such-package-here.*--no-deps"):
        local._weights()


def test_other_weights_under_the_same_name_are_refused(monkeypatch):
    installed()
    monkeypatch.setattr(local, "CHECKSUM", hashlib.sha256(b"other").hexdigest())
    with pytest.raises(ModelError, match="another model would answer under this name"):
        local._weights()


def test_a_second_server_waits_for_the_first_and_then_says_so(monkeypatch, capsys):
    from filelock import FileLock

    installed()
    monkeypatch.setattr(local, "LOCK_S", 0.3)
    monkeypatch.setattr(local, "LOCK", "heart-test.lock")
    monkeypatch.setattr(local, "_start", lambda weights: pytest.fail("started beside another server"))
    with FileLock(local._lock_file()), pytest.raises(ModelError, match="Another process has served"), serve_local():
        pytest.fail("served beside another server")
    assert "waiting" in capsys.readouterr().err


def test_the_server_has_ended_before_another_process_may_start_one(monkeypatch):
    """Also where the block broke off."""
    ended = []

    @contextmanager
    def lock():
        try:
            yield
        finally:
            ended.append("lock")

    class Server:
        listening_address = "http://127.0.0.1:1/"

        def __del__(self):
            ended.append("server")

    monkeypatch.setattr(local, "_only_one", lock)
    monkeypatch.setattr(local, "_weights", lambda: None)
    monkeypatch.setattr(local, "_start", lambda weights: Server())
    with pytest.raises(KeyError) as broke, serve_local() as model:
        raise KeyError(model.api_base)
    assert broke.value.args == ("http://127.0.0.1:1/v1",)
    assert ended == ["server", "lock"]


@pytest.mark.live
def test_the_embedded_model_answers_and_gives_log_probabilities(tmp_path):
    """One reply, streamed and timed, and the next token's probabilities, from the real model."""
    installed()
    ledger = open_ledger(f"sqlite:///{tmp_path}/ledger.sqlite")
    model = local_model()
    words = ({"role": "user", "content": "Say one kind sentence to someone who lost a job."},)
    letter = ({"role": "user", "content": "Answer with one letter, A or B: which comes first in the alphabet?"},)
    requests = [
        Request(model, words, {"max_tokens": 40}, stream=True),
        Request(model, letter, {"max_tokens": 1, "logprobs": True, "top_logprobs": 10}),
    ]
    reply, verdict = ask_all(requests, ledger=ledger, max_concurrency=1, progress=False)
    assert (reply.status, reply.cost_usd, reply.in_flight) == ("ok", 0.0, 1)
    assert 0 < reply.ttft_ms < reply.total_ms
    assert reply.completion_tokens > 3
    assert len(reply.text.split()) > 3
    assert len(verdict.logprobs) == 10
    assert {"A", "B"} & {token.strip() for token, _ in verdict.logprobs}
    assert ask_all(requests, ledger=ledger, mode="replay") == [reply, verdict]
