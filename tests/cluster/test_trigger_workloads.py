"""What triggers know of workloads on a real API server: of watched kinds, and of others by their scale."""

import asyncio
import json

import pytest

from background import started, until
from gpuscale.base.clock import WallClock
from gpuscale.kube.client.client import KubeClient
from gpuscale.kube.client.settings import KubeSettings
from gpuscale.server.metricsapi.triggers.workloads import Workloads
from gpuscale.triggers.observation import Missing, PodsSeen
from gpuscale.triggers.trigger import WorkloadRef
from gpuscale_testing import SimulatedNode, simulated_nodes

pytestmark = [pytest.mark.cluster, pytest.mark.xdist_group("cluster")]

SPEC = {
    "replicas": 2,
    "selector": {"matchLabels": {"app": "NAME"}},
    "template": {
        "metadata": {"labels": {"app": "NAME"}},
        "spec": {"containers": [{"name": "c", "image": "none"}]},
    },
}


def _manifest(kind, name):
    spec = json.loads(json.dumps(SPEC).replace("NAME", name))
    more = {"serviceName": "none"} if kind == "StatefulSet" else {}
    metadata = {"name": name}
    return json.dumps(
        {"apiVersion": "apps/v1", "kind": kind, "metadata": metadata, "spec": {**spec, **more}}
    )


@pytest.fixture(scope="module")
def _nodes(plane):
    with simulated_nodes(plane, SimulatedNode("node")):
        yield


@pytest.mark.usefixtures("_nodes")
@pytest.mark.parametrize(
    "workload",
    [
        WorkloadRef("Deployment", "watched"),
        WorkloadRef("StatefulSet", "stateful"),
        WorkloadRef("replicaset", "polled", "apps"),
        WorkloadRef("ReplicaSet", "versioned", "apps/v1"),
    ],
    ids=lambda each: each.name,
)
async def test_counts_follow_and_starts_are_learned(plane, workload):
    settings = KubeSettings(kubeconfig=plane.admin)
    kind = "ReplicaSet" if workload.kind == "replicaset" else workload.kind
    await asyncio.to_thread(plane.apply, _manifest(kind, workload.name))

    def seen():
        found, _ = workloads.seen("default", workload)
        return found if isinstance(found, PodsSeen) else PodsSeen(-1)

    async with KubeClient(settings) as client:
        workloads = Workloads(client, settings, WallClock())
        async with started(workloads.run()):
            await workloads.listed("default", workload)
            await until(lambda: seen().desired == 2 and len(seen().pods) == 2)
            # Starts are learned by looking.
            await until(lambda: seen().starting_s == ())
            await until(lambda: seen() and len(workloads.starts_s("default", workload)) > 0)
            gone = WorkloadRef(workload.kind, "none", workload.api_version)
            await workloads.listed("default", gone)
            await until(lambda: isinstance(workloads.seen("default", gone)[0], Missing))
            words = f"{kind.lower()}/{workload.name}"
            await asyncio.to_thread(plane.kubectl, "scale", words, "--replicas=0")
            await until(lambda: seen().desired == 0)
    await asyncio.to_thread(plane.kubectl, "delete", words)
