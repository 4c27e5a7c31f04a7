"""Where a search runs makes no difference to what it finds."""

from dataclasses import replace

import numpy
import pytest

from gpuscale.core.errors import UnavailableError, UsageError
from gpuscale.plan.policies.hpa import HPA_ON_DEMAND
from gpuscale.plan.replay import Service
from gpuscale.plan.tuning.contender import Contender
from gpuscale.plan.tuning.search import Question, Search
from gpuscale.plan.tuning.workers import workers

STEPS = 3 * 1440
DEMAND = 8 + 6 * numpy.sin(2 * numpy.pi * numpy.arange(STEPS) / 1440)
QUESTION = Question(DEMAND, Service(step_s=60.0, most=50.0), 0.005, seed=3)
TRIES = 48


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


def test_what_came_from_another_process_is_replayed(alone):
    def each(trial, batches):
        sent = replace(trial, demand=trial.demand.copy())
        sent.demand.setflags(write=False)  # as joblib's memory maps and Ray's store have it
        return [sent(batch) for batch in batches]

    assert found(each) == alone


def test_a_cluster_that_is_not_there_is_said():
    pytest.importorskip("distributed")
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
