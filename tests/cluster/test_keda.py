"""KEDA itself, unmodified, on a real control plane: its own trigger, then gpuscale's scaler."""

import sys
import time
from pathlib import Path

import pytest

from gpuscale.base.errors import UpstreamError
from gpuscale.testing.prometheus import serve
from gpuscale_testing import SimulatedNode, simulated_nodes, wait_until

sys.path.insert(0, str(Path(__file__).parent))
from keda_objects import (
    ReplicaWatch,
    apply,
    deployment,
    prometheus_trigger,
    scaled_job,
    scaled_object,
)

pytestmark = [pytest.mark.cluster, pytest.mark.prometheus, pytest.mark.xdist_group("cluster")]


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory):
    with serve([], tmp_path_factory.mktemp("prometheus")) as running:
        yield running


@pytest.fixture(scope="module")
def watch(plane, keda):
    with simulated_nodes(plane, SimulatedNode("h200", gpus=64)), ReplicaWatch(plane) as watch:
        yield watch


def put(prometheus, name, value):
    prometheus.write([({"__name__": name}, round(time.time() * 1000), float(value))])


def test_its_own_prometheus_trigger_scales_from_zero_and_back(plane, watch, prometheus) -> None:
    put(prometheus, "queue_length", 0)
    trigger = prometheus_trigger(prometheus.url, "queue_length", 10)
    apply(plane, deployment("own"), scaled_object("own", trigger))
    plane.wait("scaledobject/own", "condition=Ready")
    assert watch.counts("own") == [0]

    put(prometheus, "queue_length", 1)
    watch.await_count("own", 1)
    put(prometheus, "queue_length", 35)
    watch.await_count("own", 4)
    put(prometheus, "queue_length", 1)
    watch.await_count("own", 1)
    put(prometheus, "queue_length", 0)
    watch.await_count("own", 0)
    assert watch.counts("own") == [0, 1, 4, 1, 0]
    plane.kubectl("delete", "scaledobject,deployment", "own")


def test_its_admission_webhook_refuses_what_the_schema_lets_through(plane, watch) -> None:
    first = scaled_object("judged", prometheus_trigger("http://prometheus", "queue_length", 10))
    apply(plane, deployment("judged"), first)
    plane.wait("scaledobject/judged", "condition=Ready")
    # The webhook reads a cache of its own, which may not have the first one yet.
    wait_until(lambda: is_refused(plane, {**first, "metadata": {"name": "second"}}), "a refusal")
    plane.kubectl("delete", "scaledobject,deployment", "judged")


def is_refused(plane, body) -> bool:
    """Apply an object on the same target; take it away again where it was let through."""
    try:
        apply(plane, body)
    except UpstreamError as error:
        # By the first one, or by the HPA that KEDA made for it.
        if "is already managed by the" not in str(error):
            raise
        return True
    plane.kubectl("delete", "scaledobject", body["metadata"]["name"])
    return False


@pytest.mark.parametrize("program", ["keda-operator", "keda-adapter"])
def test_a_program_that_crashed_goes_on_where_it_was(
    plane, keda, watch, prometheus, program
) -> None:
    put(prometheus, "queue_length", 20)
    trigger = prometheus_trigger(prometheus.url, "queue_length", 10)
    apply(plane, deployment("crash"), scaled_object("crash", trigger))
    watch.await_count("crash", 2)
    keda.kill(program)
    put(prometheus, "queue_length", 40)
    keda.restart(program)
    watch.await_count("crash", 4)
    plane.kubectl("delete", "scaledobject,deployment", "crash")


def test_a_scaled_job_makes_a_job_for_each_item(plane, watch, prometheus) -> None:
    put(prometheus, "jobs_waiting", 0)
    apply(plane, scaled_job("batch", prometheus_trigger(prometheus.url, "jobs_waiting", 1)))
    plane.wait("scaledjob/batch", "condition=Ready")
    put(prometheus, "jobs_waiting", 3)
    wait_until(lambda: len(jobs(plane)) == 3, "three Jobs")
    put(prometheus, "jobs_waiting", 0)
    plane.kubectl("delete", "scaledjob", "batch")
    wait_until(lambda: not jobs(plane), "the Jobs to be gone")


def jobs(plane):
    return plane.get("jobs", "-l", "scaledjob.keda.sh/name=batch")["items"]
