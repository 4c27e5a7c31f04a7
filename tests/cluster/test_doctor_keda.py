"""What doctor says of a real KEDA: its words, conditions and events are KEDA's own."""

import asyncio
import json
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from gpuscale.base.clock import WallClock
from gpuscale.base.errors import GpuscaleError
from gpuscale.kube.client.client import KubeClient
from gpuscale.kube.client.settings import KubeSettings
from gpuscale.ops.doctor.diagnosis import diagnose
from gpuscale.ops.doctor.gather import Gatherer, GatherSettings
from gpuscale.ops.doctor.pulse.hops import PulseHop
from gpuscale.ops.doctor.pulse.sights import ChainReader
from gpuscale.ops.doctor.pulse.watch import PulseSettings, PulseWatch, choose
from gpuscale.testing.prometheus import serve
from gpuscale_testing import SimulatedNode, simulated_nodes, wait_until
from gpuscale_testing.addresses import free_ports

sys.path.insert(0, str(Path(__file__).parent))
from keda_objects import apply, deployment, prometheus_trigger, scaled_object

pytestmark = [pytest.mark.cluster, pytest.mark.prometheus, pytest.mark.xdist_group("cluster")]

SERVICE = {
    "apiVersion": "v1",
    "kind": "Service",
    "metadata": {"name": "scaler", "namespace": "default"},
    "spec": {"selector": {"app": "scaler"}, "ports": [{"port": 6000}]},
}


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory):
    with serve([], tmp_path_factory.mktemp("prometheus")) as running:
        yield running


@pytest.fixture(scope="module", autouse=True)
def nodes(plane, keda):
    with simulated_nodes(plane, SimulatedNode("h200", gpus=64)):
        yield


def external(kind="external-push", address="scaler.default:6000"):
    return {"type": kind, "metadata": {"scalerAddress": address}}


def dead_prometheus():
    (port,) = free_ports(1)
    return prometheus_trigger(f"http://127.0.0.1:{port}", "queue", 10)


def annotated(body, **annotations):
    found = {f"autoscaling.keda.sh/{key}": text for key, text in annotations.items()}
    return {**body, "metadata": {**body["metadata"], "annotations": found}}


def diagnosed(plane, name):
    """Return doctor's findings about a ScaledObject or its HPA, folded or not, by their checks."""

    async def look():
        async with KubeClient(KubeSettings(kubeconfig=plane.admin)) as client:
            return await Gatherer(client, WallClock(), GatherSettings()).snapshot()

    every = [each for root in diagnose(asyncio.run(look())).findings for each in root.whole()]
    return {each.check.id: each for each in every if name in each.where.split("/")}


def await_finding(plane, name, check, *parts):
    """Return what doctor says once it names a check, and all these parts in its evidence and fix."""

    def named():
        found = diagnosed(plane, name).get(check)
        if found is None:
            return None
        text = f"{found.what} {found.evidence} {found.fix.say} {found.fix.command}"
        return found if all(part in text for part in parts) else None

    return wait_until(named, f"doctor to name {check} with {parts}", 60)


def remove(plane, *names):
    for kind in ("scaledobject", "hpa", "deployment"):
        with suppress(GpuscaleError):
            plane.kubectl("delete", "--ignore-not-found", "--timeout=30s", kind, *names)


def test_a_scaler_that_is_not_there_is_named_with_what_keda_says(plane) -> None:
    apply(plane, deployment("alone", 1), scaled_object("alone", external()))
    await_finding(plane, "alone", "scaler-absent", "there is no Service default/scaler")
    # KEDA's own words.
    await_finding(plane, "alone", "scaled-not-ready", "no metric specs returned from scalers")
    plane.apply(json.dumps(SERVICE))
    await_finding(plane, "scaler", "scaler-not-ready", "0 pods behind the Service")
    assert "scaler-absent" not in diagnosed(plane, "alone")
    plane.kubectl("delete", "service", "scaler")
    remove(plane, "alone")


def test_a_fallback_that_stands_in_is_named(plane) -> None:
    fallback = {"failureThreshold": 1, "replicas": 2}
    apply(
        plane,
        deployment("fallen", 1),
        scaled_object("fallen", dead_prometheus(), minReplicaCount=1, fallback=fallback),
    )
    await_finding(plane, "fallen", "fallback-active", "fallback of 2 replicas stands in")
    remove(plane, "fallen")


def test_a_pause_is_named_with_the_command_that_ends_it(plane, prometheus) -> None:
    body = scaled_object("paused", prometheus_trigger(prometheus.url, "vector(1)", 10))
    apply(plane, deployment("paused", 1), annotated(body, **{"paused-replicas": "1"}))
    found = await_finding(plane, "paused", "scaled-paused", "it stays at 1 replicas")
    plane.kubectl(*found.fix.command.split()[1:])
    wait_until(lambda: "scaled-paused" not in diagnosed(plane, "paused"), "the pause to end")
    remove(plane, "paused")


def test_an_hpa_beside_a_scaled_object_and_a_metrics_server_that_is_down(
    plane, keda, prometheus
) -> None:
    trigger = prometheus_trigger(prometheus.url, "vector(15)", 10)
    apply(plane, deployment("both", 1), scaled_object("both", trigger, minReplicaCount=1))
    wait_until(
        lambda: "keda-hpa-both" in plane.kubectl("get", "hpa", "-o", "name"), "KEDA's HPA", 60
    )
    plane.kubectl("autoscale", "deployment", "both", "--max=3", "--cpu-percent=50", "--name=both")
    await_finding(plane, "both", "two-hpas", "kubectl delete hpa -n default both")
    plane.kubectl("delete", "hpa", "both")
    wait_until(
        lambda: not {"keda-hpa-blind", "scaled-not-ready"} & diagnosed(plane, "both").keys(),
        "KEDA to find its HPA well",
        60,
    )
    keda.kill("keda-adapter")
    await_finding(plane, "both", "keda-hpa-blind", "FailedGetExternalMetric")
    keda.restart("keda-adapter")
    wait_until(lambda: "keda-hpa-blind" not in diagnosed(plane, "both"), "it to work again", 60)
    remove(plane, "both")


def test_a_pulse_sees_keda_wake_a_workload_from_zero(plane, prometheus) -> None:
    def queued(length) -> None:
        prometheus.write([({"__name__": "woken"}, round(time.time() * 1000), float(length))])

    queued(0)
    apply(
        plane,
        deployment("woken"),
        scaled_object("woken", prometheus_trigger(prometheus.url, "woken", 10)),
    )
    wait_until(
        lambda: "keda-hpa-woken" in plane.kubectl("get", "hpa", "-o", "name"), "KEDA's HPA", 60
    )

    async def pulse():
        async with KubeClient(KubeSettings(kubeconfig=plane.admin)) as client:
            seen = await Gatherer(client, WallClock(), GatherSettings()).snapshot()
            look = choose(seen, "default/keda-hpa-woken")
            watch = PulseWatch(ChainReader(client, WallClock(), seen, look, {}), WallClock(), look)
            return await watch.pulse(PulseSettings(for_s=60), lambda: queued(5))

    found = asyncio.run(pulse())
    after_ms = {each.hop: each.after_ms for each in found.times}
    # KEDA sets 0 -> 1 itself, while its HPA is disabled.
    assert after_ms[PulseHop.HPA] is not None
    assert after_ms[PulseHop.HPA] <= after_ms[PulseHop.CREATED] <= after_ms[PulseHop.READY]
    assert found.stuck is None
    remove(plane, "woken")
