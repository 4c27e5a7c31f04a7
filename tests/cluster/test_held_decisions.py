"""Decisions of triggers in a ConfigMap of a real API server: shared by replicas, and gone on without it."""

import asyncio

import pytest

from gpuscale.base.clock import WallClock
from gpuscale.base.errors import GpuscaleError
from gpuscale.kube.client.client import KubeClient
from gpuscale.kube.client.settings import KubeSettings
from gpuscale.server.metricsapi.triggers.stores import MAX_BYTES, HeldConfigMap
from gpuscale.triggers.held import HeldTrigger
from gpuscale.triggers.machine import TriggerDecision
from gpuscale_testing import wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.xdist_group("cluster")]


def _held(value, measured_ms, *, is_active=True):
    return HeldTrigger(
        TriggerDecision(value, is_active, value, (), 1.0, measured_ms), None, (30.0,)
    )


@pytest.fixture
async def stores(plane):
    clock = WallClock()
    async with KubeClient(KubeSettings(kubeconfig=plane.admin)) as client:
        yield [HeldConfigMap(client, "default", "held", clock) for _ in range(4)]
    plane.kubectl("delete", "configmap", "held", "--ignore-not-found")


async def test_replicas_that_write_at_once_undo_nothing(stores):
    now_ms = WallClock().now_ms()
    for round_ in range(5):
        writes = [
            store.write({("team", f"t{number}"): _held(float(round_ + 1), now_ms + round_)})
            for number, store in enumerate(stores)
        ]
        await asyncio.gather(*writes)
        found = await stores[0].read()
        assert sorted(found) == [("team", f"t{number}") for number in range(4)]
        assert {each.decision.value for each in found.values()} == {float(round_ + 1)}


async def test_what_is_not_new_is_not_written(plane, stores):
    now_ms = WallClock().now_ms()
    await stores[0].write({("team", "t"): _held(2.0, now_ms)})
    version = plane.get("configmap/held")["metadata"]["resourceVersion"]
    await stores[1].write({("team", "t"): _held(2.0, now_ms + 1000)})
    await stores[1].write({("team", "t"): _held(1.0, now_ms - 1000)})
    assert plane.get("configmap/held")["metadata"]["resourceVersion"] == version
    await stores[1].write({("team", "t"): _held(0.0, now_ms + 2000, is_active=False)})
    assert (await stores[0].read())["team", "t"].decision.is_active is False


async def test_as_many_as_fit_are_kept_and_those_that_are_up_first(plane, stores):
    now_ms = WallClock().now_ms()
    held = {
        ("team", f"workload-{number:05}"): _held(1.0, now_ms, is_active=number % 2 == 0)
        for number in range(10_000)
    }
    await stores[0].write(held)
    found = await stores[0].read()
    assert len(plane.get("configmap/held")["data"]["decisions.json"]) <= MAX_BYTES
    assert sum(each.decision.is_active for each in found.values()) == 5_000
    await stores[1].write({("team", "workload-00000"): _held(9.0, now_ms + 1)})
    assert (await stores[2].read())["team", "workload-00000"].decision.value == 9.0


async def test_the_rest_of_a_configmap_stays_and_what_makes_no_sense_is_none(plane, stores):
    plane.kubectl("create", "configmap", "held", "--from-literal=mine=yes")
    plane.kubectl("patch", "configmap", "held", "-p", '{"data":{"decisions.json":"{]"}}')
    assert await stores[0].read() == {}
    await stores[0].write({("team", "t"): _held(1.0, WallClock().now_ms())})
    assert plane.get("configmap/held")["data"]["mine"] == "yes"
    assert len(await stores[1].read()) == 1


async def test_an_api_server_that_is_away_is_an_error_and_no_more(plane, stores):
    await stores[0].write({("team", "t"): _held(1.0, 1)})
    plane.kill("kube-apiserver")
    try:
        with pytest.raises(GpuscaleError):
            await stores[0].write({("team", "t"): _held(2.0, 2)})
        with pytest.raises(GpuscaleError):
            await stores[0].read()
    finally:
        await asyncio.to_thread(plane.restart, "kube-apiserver")
    await asyncio.to_thread(wait_until, lambda: plane.get("configmap/held"), "the ConfigMap")
    await stores[0].write({("team", "t"): _held(3.0, WallClock().now_ms())})
    assert (await stores[1].read())["team", "t"].decision.value == 3.0
