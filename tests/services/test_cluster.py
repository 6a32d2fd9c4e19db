"""A real Dask cluster of two worker processes on one PostgreSQL ledger."""

import os
import signal
import threading
import time

import pytest
from server import Provider, serving

from heart_collect.calls.database import LedgerError
from heart_collect.calls.engine import ClusterError, ask_all
from heart_collect.calls.ledger import open_ledger
from heart_collect.calls.models import Model, Request

pytestmark = pytest.mark.services


@pytest.fixture
def provider():
    with serving(Provider()) as running:
        yield running


@pytest.fixture(scope="module")
def cluster():
    from distributed import LocalCluster

    with LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None, host="127.0.0.1"
    ) as running:
        yield running


def requests_for(provider, n, **settings):
    judge = Model("judge", "openai/test", api_base=provider.address, max_concurrency=4, **settings)
    return [Request(judge, ({"role": "user", "content": f"w{i}"},)) for i in range(n)]


def test_two_workers_share_the_work(provider, cluster, database_url, monkeypatch):
    monkeypatch.setattr("heart_collect.calls.engine.SHARD", 20)
    ledger = open_ledger(database_url)
    provider.latency_s = 0.02
    calls = ask_all(
        requests_for(provider, 200),
        ledger=ledger,
        scheduler=cluster.scheduler_address,
        progress=False,
    )
    assert {call.status for call in calls} == {"ok"}
    assert len(provider.requests) == 200
    with ledger.engine.connect() as connection:
        owners = connection.exec_driver_sql("SELECT count(*) FROM owners").scalar()
    assert owners == 2
    assert ask_all(requests_for(provider, 200), ledger=ledger, mode="replay") == calls


def test_a_refused_key_comes_back_from_the_workers(provider, cluster, database_url):
    provider.keys = ("another",)
    ledger = open_ledger(database_url)
    calls = ask_all(
        requests_for(provider, 10),
        ledger=ledger,
        scheduler=cluster.scheduler_address,
        progress=False,
    )
    assert {call.status for call in calls} == {"error"}
    assert "Incorrect API key" in calls[0].error
    assert ledger.counts() == {}


def test_a_worker_that_is_killed_half_way_loses_no_call(
    provider, cluster, database_url, monkeypatch
):
    monkeypatch.setattr("heart_collect.calls.engine.SHARD", 200)
    ledger = open_ledger(database_url)
    provider.latency_s = 0.05
    pid = next(iter(cluster.workers.values())).pid

    def kill():
        given_up = time.monotonic() + 120
        while len(provider.requests) < 240 and time.monotonic() < given_up:
            time.sleep(0.01)
        os.kill(pid, signal.SIGKILL)

    killer = threading.Thread(target=kill)
    killer.start()
    calls = ask_all(
        requests_for(provider, 400),
        ledger=ledger,
        scheduler=cluster.scheduler_address,
        progress=False,
    )
    killer.join()
    assert {call.status for call in calls} == {"ok"}
    assert len({call.call_id for call in calls}) == 400
    assert ledger.counts() == {"ok": 400}
    again = len(provider.requests) - 400
    # Of some 120 that it had asked: four in flight and 0.1 s of answers uncommitted, and some room
    # for a busy machine.
    assert again <= 40


def test_a_scheduler_that_is_not_there_is_said(provider, database_url, monkeypatch):
    monkeypatch.setattr("heart_collect.calls.engine.CONNECT_S", 1)
    with pytest.raises(ClusterError, match="No Dask scheduler answers at tcp://127.0.0.1:9"):
        ask_all(
            requests_for(provider, 1),
            ledger=open_ledger(database_url),
            scheduler="tcp://127.0.0.1:9",
            progress=False,
        )


def test_a_ledger_in_a_file_cannot_be_shared(provider, tmp_path):
    with pytest.raises(LedgerError, match="is a file of this machine. Set HEART_LEDGER=postgresql"):
        ask_all(
            requests_for(provider, 1),
            ledger=open_ledger(f"sqlite:///{tmp_path}/l.sqlite"),
            scheduler="tcp://127.0.0.1:9",
        )
