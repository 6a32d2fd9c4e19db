"""The embedded model: found, refused, and asked once for real (alone, before the parallel
tests)."""

import hashlib
import os
import sys
from types import SimpleNamespace

import pytest

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
    advice = pytest.raises(NotInstalledError, match="xllamacpp.*--no-deps -r requirements/model")
    with advice:
        local._weights()
    monkeypatch.undo()
    monkeypatch.setattr(local, "PACKAGE", "no-such-package-here")
    with advice:
        local._weights()


def test_without_the_server_the_weights_are_of_no_use(weights, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(NotInstalledError, match="needs xllamacpp"):
        local._weights()


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


def test_the_server_ends_with_the_block_also_where_it_broke_off(monkeypatch):
    ended = []

    class Server:
        listening_address = "http://127.0.0.1:1/"

        def __del__(self):
            ended.append("server")

    monkeypatch.setattr(local, "_weights", lambda: None)
    monkeypatch.setattr(local, "_start", lambda weights: Server())
    with pytest.raises(KeyError) as broke, serve_local() as address:
        raise KeyError(address)
    assert broke.value.args == ("http://127.0.0.1:1/v1",)
    assert ended == ["server"]


@pytest.mark.live
def test_the_embedded_model_streams_a_reply_that_is_timed(tmp_path):
    """From the real model; `tests/judging` asks it for a letter and for JSON."""
    try:
        local._weights()
    except NotInstalledError as error:
        pytest.skip(f"needs model: {error}")
    ledger = open_ledger(f"sqlite:///{tmp_path}/ledger.sqlite")
    words = ({"role": "user", "content": "Say one kind sentence to someone who lost a job."},)
    requests = [Request(local_model(), words, {"max_tokens": 20}, stream=True)]
    [reply] = ask_all(requests, ledger=ledger, max_concurrency=1, progress=False)
    assert (reply.status, reply.cost_usd, reply.in_flight) == ("ok", 0.0, 1)
    assert 0 < reply.ttft_ms < reply.total_ms
    assert reply.completion_tokens > 3
    assert len(reply.text.split()) > 3
