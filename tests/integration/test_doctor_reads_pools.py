"""What the doctor reads of node pools, over HTTP: node classes, Jobs, and kinds that are not there."""

import asyncio
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "unit" / "doctor"))
from clusters import NOW_MS
from node_cases import pool, world
from reported_cases import not_ready, suspended_job

from gpuscale.base.clock import ManualClock
from gpuscale.kube.client import KubeClient, KubeSettings
from gpuscale.ops.doctor import Gatherer, GatherSettings
from gpuscale.ops.doctor.judges import KINDS
from gpuscale.testing.api_server import FakeApiServer

CLASS = {
    "metadata": {"name": "h100"},
    "status": {"conditions": [{"type": "AMIsReady", "status": "False", "message": "none match"}]},
}
PATHS = {each.plural: each.path for each in KINDS}


def looked(tmp_path, objects):
    """Return a snapshot of a cluster that has these objects alone, and the requests for it."""

    async def look():
        async with FakeApiServer() as server:
            server.objects = {
                PATHS[plural]: {str(number): each for number, each in enumerate(items)}
                for plural, items in objects.items()
            }
            server.others |= {
                "/readyz": {},
                "/apis/autoscaling": {"versions": []},
                "/apis/karpenter.k8s.aws": {"preferredVersion": {"version": "v1"}},
                "/apis/karpenter.k8s.aws/v1/ec2nodeclasses/h100": CLASS,
            }
            async with KubeClient(KubeSettings(kubeconfig=server.kubeconfig(tmp_path))) as client:
                clock = ManualClock(NOW_MS)
                return await Gatherer(client, clock, GatherSettings()).snapshot(), server.requests

    return asyncio.run(look())


@pytest.mark.parametrize("changed", [pool(), not_ready()])
def test_the_class_of_a_pool_is_read_while_pods_wait_for_it(tmp_path, changed) -> None:
    seen, _ = looked(tmp_path, world(changed))
    assert seen.node_classes["EC2NodeClass/h100"].data["status"] == CLASS["status"]


def test_the_class_of_a_ready_pool_is_not_read_where_nothing_waits(tmp_path) -> None:
    seen, requests = looked(tmp_path, {"nodepools": [pool()]})
    assert seen.node_classes == {}
    assert not [path for path, *_ in requests if "karpenter.k8s.aws" in path]


def test_jobs_that_are_done_are_not_asked_for(tmp_path) -> None:
    seen, requests = looked(tmp_path, suspended_job())
    assert [job.child("metadata").text("name") for job in seen.all("jobs")] == ["train"]
    (query,) = [query for path, query, _ in requests if path == PATHS["jobs"]]
    assert query["fieldSelector"] == "status.successful=0"


def test_kinds_that_a_cluster_does_not_have_are_empty(tmp_path) -> None:
    seen, _ = looked(tmp_path, {"nodes": []})
    for plural in ("capacitybuffers", "queued-workloads", "nodepools", "nodeclaims", "jobs"):
        assert seen.all(plural) == ()
        assert not seen.hides(plural)
