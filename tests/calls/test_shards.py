"""Shards over a Dask cluster within this process; processes on PostgreSQL are in
`tests/services`."""

import threading
from types import SimpleNamespace
from unittest import mock

import pytest
import sqlalchemy as sa

from heart_collect.calls.engine import ClusterError, run_on_cluster
from heart_collect.calls.models import Call, Model, Request

SHARED = SimpleNamespace(
    shared=True, engine=SimpleNamespace(url=sa.make_url("postgresql+psycopg://me:secret@db/heart"))
)
JUDGE = Model("judge", "openai/test")


def requests_for(n):
    return [Request(JUDGE, ({"role": "user", "content": f"w{i}"},)) for i in range(n)]


def fail(shard, address, max_concurrency, budget_usd):
    """What a worker does with a shard: here no call could be made, and each says what the worker
    was told."""
    said = f"one of {len(shard)} on {address}, {max_concurrency} at once for {budget_usd} USD"
    return len(shard), [Call(request.key, "error", error=said) for request in shard]


@pytest.fixture(scope="module")
def scheduler():
    from distributed import LocalCluster

    with LocalCluster(n_workers=1, processes=False, dashboard_address=":0") as running:
        yield running.scheduler_address


def run(requests, scheduler, **how):
    how = {"max_concurrency": 4, "budget_usd": 2.5, "progress": False, **how}
    with mock.patch("heart_collect.calls.engine._ask_shard", fail):
        return run_on_cluster(requests, ledger=SHARED, scheduler=scheduler, **how)


def test_requests_go_out_in_shards_of_two_hundred_in_their_order_and_what_was_not_made_comes_back(
    scheduler, capsys
):
    requests = requests_for(401)
    lost = run(requests, scheduler, progress=True)
    said = [lost[request.key].error for request in requests]
    told = "on postgresql+psycopg://me@db/heart, 4 at once for 2.5 USD"  # and no password
    assert said == [f"one of 200 {told}"] * 400 + [f"one of 1 {told}"]
    assert "401/401" in capsys.readouterr().err


def test_a_cluster_without_workers_is_said_and_one_that_comes_late_is_waited_for():
    from distributed import LocalCluster

    with LocalCluster(n_workers=0, processes=False, dashboard_address=":0") as cluster:
        with (
            mock.patch("heart_collect.calls.engine.CONNECT_S", 1),
            pytest.raises(ClusterError, match="has no worker; start some with `dask worker inproc"),
        ):
            run(requests_for(1), cluster.scheduler_address)
        threading.Timer(0.3, cluster.scale, args=(1,)).start()
        assert len(run(requests_for(1), cluster.scheduler_address)) == 1
