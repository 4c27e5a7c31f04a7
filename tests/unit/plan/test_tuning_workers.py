"""Where a search runs makes no difference to what it finds."""

import os
import secrets
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace

import numpy
import pytest

from gpuscale.base.errors import UnavailableError, UsageError
from gpuscale.lab.plan.promise import Promise
from gpuscale.lab.plan.tuning.contender import Contender
from gpuscale.lab.plan.tuning.search import ReplayCase, Search
from gpuscale.lab.plan.tuning.workers import workers
from gpuscale.triggers.policies.hpa import HPA_ON_DEMAND
from gpuscale.triggers.policies.replaying import ReplaySettings

STEPS = 3 * 1440
DEMAND = 8 + 6 * numpy.sin(2 * numpy.pi * numpy.arange(STEPS) / 1440)
QUESTION = ReplayCase(DEMAND, ReplaySettings(step_s=60.0, most=50.0), Promise(), seed=3)
TRIES = 48
RAY_CLUSTER = """
import sys
import ray
from ray.util.client.server.server import serve
ray.init("local", num_cpus=2, include_dashboard=False)
server = serve("127.0.0.1", int(sys.argv[1]))
print("ready", flush=True)
sys.stdin.read()
"""
"""Two workers, and a server for clients, until its input ends."""


def found(each) -> tuple[list[float], int, list[list[float]]]:
    """Return what a search finds: the best settings, how many it tried, and the best of each cost."""
    search = Search(QUESTION, Contender(HPA_ON_DEMAND), each)
    tried = sum(search.run(TRIES))
    return search.best.values.tolist(), tried, [each.values.tolist() for each in search.whole]


@pytest.fixture(scope="module")
def alone():
    """What one process finds."""
    return found(map)


def test_threads_find_the_same(alone):
    with workers(None, 3) as each:
        assert found(each) == alone


def test_a_dask_cluster_of_two_processes_finds_the_same(alone):
    distributed = pytest.importorskip("distributed")
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None, port=0
        ) as cluster,
        workers(cluster.scheduler_address.replace("tcp", "dask"), 1) as each,
    ):
        assert found(each) == alone


@pytest.fixture
def ray_cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Run a Ray cluster of two worker processes, and return its address."""
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    monkeypatch.setenv("RAY_AUTH_TOKEN", secrets.token_hex(32))
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    # Ray reads them as it is imported.
    pytest.importorskip("ray", reason="needs: pip install 'ray[client]'")
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
    command = [sys.executable, "-c", RAY_CLUSTER, str(port)]
    with subprocess.Popen(
        command, env=dict(os.environ), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as cluster:
        assert cluster.stdout is not None
        assert any(line.strip() == "ready" for line in cluster.stdout)
        yield f"ray://127.0.0.1:{port}"
        cluster.communicate(timeout=30)


@pytest.mark.filterwarnings("default")  # Ray's and its dependencies' own
def test_a_ray_cluster_of_two_processes_finds_the_same(alone, ray_cluster):
    with workers(ray_cluster, 1) as each:
        assert found(each) == alone


def test_what_came_from_another_process_is_replayed(alone):
    def each(trial, batches):
        sent = replace(trial, demand=trial.demand.copy())
        sent.demand.setflags(write=False)  # as joblib's memory maps and Ray's store have it
        return [sent(batch) for batch in batches]

    assert found(each) == alone


def test_a_cluster_that_is_not_there_is_said(monkeypatch):
    pytest.importorskip("distributed")
    monkeypatch.setattr("gpuscale.lab.plan.tuning.workers._ANSWERS_WITHIN_S", 1)
    with pytest.raises(UnavailableError, match="does not answer"), workers("dask://127.0.0.1:9", 1):
        pass


@pytest.mark.parametrize("on", ["dask", "dask://", "dask://host", "tcp://h:1", "ray://h:port", ""])
def test_another_address_is_refused(on):
    with (
        pytest.raises(UsageError, match="expected dask://HOST:PORT or ray://HOST:PORT"),
        workers(on, 1),
    ):
        pass


def test_a_package_that_is_missing_is_named(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "ray", None)
    with pytest.raises(UsageError, match="pip install ray"), workers("ray://127.0.0.1:9", 1):
        pass
