"""The embedded model: found, refused, and asked once for real (alone, before the parallel
tests)."""

import hashlib
import os
import stat
import sys
import threading
from contextlib import contextmanager
from types import SimpleNamespace

import pytest
from filelock import FileLock, Timeout

from heart_collect.calls import engine as local
from heart_collect.calls.engine import NotInstalledError, ask_all, serve_local
from heart_collect.calls.ledger import open_ledger
from heart_collect.calls.models import ModelError, Request, local_model


@pytest.fixture
def weights(monkeypatch, tmp_path):
    """The package of the weights as if it were installed, with weights of seven bytes."""
    file = tmp_path / "weights.gguf"
    file.write_bytes(b"weights")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: object())
    monkeypatch.setattr(
        "importlib.metadata.distribution",
        lambda name: SimpleNamespace(locate_file=lambda place: file),
    )
    monkeypatch.setattr(local, "CHECKSUM", hashlib.sha256(b"weights").hexdigest())
    return file


def test_weights_are_taken_if_they_are_there_and_are_those_that_are_known(weights, monkeypatch):
    assert local._weights() == weights
    weights.write_bytes(b"other weights")
    with pytest.raises(ModelError, match="another model would answer under this name"):
        local._weights()
    weights.unlink()
    with pytest.raises(NotInstalledError, match="installed without its weights"):
        local._weights()
    monkeypatch.undo()
    monkeypatch.setattr(local, "PACKAGE", "no-such-package-here")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: object())
    with pytest.raises(NotInstalledError, match="no-such-package-here.*--no-deps"):
        local._weights()
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(NotInstalledError, match="xllamacpp.*--no-deps -r requirements/model.txt"):
        local._weights()


@pytest.fixture
def lock(monkeypatch, tmp_path):
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path))
    monkeypatch.setattr(local, "_weights", lambda: None)
    return tmp_path / local.LOCK


def test_a_second_server_says_after_a_second_that_it_waits_and_gives_up_after_half_an_hour(
    lock, monkeypatch, capsys
):
    waited = []

    def wait(self, timeout):
        waited.append((timeout, "waiting" in capsys.readouterr().err))
        raise Timeout(str(lock))

    monkeypatch.setattr(FileLock, "acquire", wait)
    monkeypatch.setattr(
        local, "_start", lambda weights: pytest.fail("started beside another server")
    )
    with (
        pytest.raises(ModelError, match="has served the embedded model for 30 minutes"),
        serve_local(),
    ):
        pytest.fail("served beside another server")
    assert waited == [(1.0, False), (1800.0, True)]


def test_a_server_starts_once_another_one_has_ended(lock, monkeypatch, capsys):
    """Also one that another user of the machine began."""
    first = FileLock(lock, thread_local=False)  # the timer lets go of it
    first.acquire()
    threading.Timer(1.2, first.release).start()
    monkeypatch.setattr(
        local, "_start", lambda weights: SimpleNamespace(listening_address="http://127.0.0.1:1")
    )
    with serve_local() as address:
        assert address == "http://127.0.0.1:1/v1"
    assert "waiting for it" in capsys.readouterr().err
    lock.unlink()
    mask = os.umask(0)
    with serve_local():
        os.umask(mask)
        assert stat.S_IMODE(lock.stat().st_mode) == 0o666


@pytest.mark.parametrize(("cores", "threads"), [(None, 1), (1, 1), (2, 2), (64, 2)])
def test_the_server_hears_this_machine_only_and_answers_as_many_as_are_asked_at_once(
    monkeypatch, tmp_path, cores, threads
):
    def settings():
        return SimpleNamespace(
            model=SimpleNamespace(), cpuparams=SimpleNamespace(), cpuparams_batch=SimpleNamespace()
        )

    monkeypatch.setitem(
        sys.modules,
        "xllamacpp",
        SimpleNamespace(CommonParams=settings, Server=lambda params: params),
    )
    monkeypatch.setattr(os, "cpu_count", lambda: cores)
    set_to = local._start(tmp_path)
    assert (set_to.model.path, set_to.hostnames, set_to.port) == (str(tmp_path), ["127.0.0.1"], 0)
    assert set_to.cors_origins == ""  # no web page may ask
    assert set_to.cpuparams.n_threads == set_to.cpuparams_batch.n_threads == threads
    assert set_to.n_parallel == local_model().max_concurrency == 4
    assert set_to.n_ctx / set_to.n_parallel == 2048  # tokens of room for each
    assert set_to.verbosity == 0
    assert local_model().timeout_s == 15 * 60


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
    with pytest.raises(KeyError) as broke, serve_local() as address:
        raise KeyError(address)
    assert broke.value.args == ("http://127.0.0.1:1/v1",)
    assert ended == ["server", "lock"]


@pytest.mark.live
def test_the_embedded_model_answers_and_gives_log_probabilities(tmp_path):
    """One reply, streamed and timed, and the next token's probabilities, from the real model."""
    try:
        local._weights()
    except NotInstalledError as error:
        pytest.skip(f"needs model: {error}")
    ledger = open_ledger(f"sqlite:///{tmp_path}/ledger.sqlite")
    model = local_model()
    words = ({"role": "user", "content": "Say one kind sentence to someone who lost a job."},)
    letter = (
        {
            "role": "user",
            "content": "Answer with one letter, A or B: which comes first in the alphabet?",
        },
    )
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
