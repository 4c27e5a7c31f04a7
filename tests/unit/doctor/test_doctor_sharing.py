# mypy: disable-error-code="arg-type"
"""A healthy workload of each way to hand out GPUs gives no finding; one that waits, no wrong advice.

Amounts are what each scheme's own documentation shows: HAMi's nodes count ten turns a GPU, ACK's give GiB.
"""

import sys
from dataclasses import dataclass, field
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from clusters import NOW_MS, both, cluster, findings_of, hpa_body, look, meta, node, pod, workload
from workload_cases import pending

from gpuscale.base.objects.metric_values import MetricValue

PRESENT = {"nvidia.com/gpu.present": "true"}
ACK = {"aliyun.accelerator/nvidia_name": "Tesla-V100", "ack.node.gpu.schedule": "cgpu"}
CLAIM = {"resourceClaims": [{"name": "g", "resourceClaimTemplateName": "gpu"}]}
TEMPLATE = {
    **meta("gpu", "default"),
    "spec": {
        "spec": {
            "devices": {
                "requests": [{"name": "g", "exactly": {"deviceClassName": "gpu.nvidia.com"}}]
            }
        }
    },
}
SLICE = {**meta("s"), "spec": {"nodeName": "gpu-1", "driver": "gpu.nvidia.com", "devices": []}}
DRA = {"claimtemplates": [TEMPLATE], "resourceclaims": [], "resourceslices": [SLICE]}


def device_class(**spec):
    return {"deviceclasses": [{**meta("gpu.nvidia.com"), "spec": spec}]}


@dataclass(frozen=True)
class Platform:
    name: str
    offers: dict
    limits: dict
    labels: dict = field(default_factory=lambda: PRESENT)
    node_annotations: dict = field(default_factory=dict)
    metadata: dict = field(default_factory=dict)
    spec: dict = field(default_factory=dict)
    objects: dict = field(default_factory=dict)


PLATFORMS = [
    Platform("whole", {"nvidia.com/gpu": 2}, {"nvidia.com/gpu": 1}),
    Platform("amd", {"amd.com/gpu": 2}, {"amd.com/gpu": 1}),
    Platform("intel", {"gpu.intel.com/xe": 2}, {"gpu.intel.com/xe": 1}),
    Platform(
        "mig-mixed", {"nvidia.com/gpu": 0, "nvidia.com/mig-1g.5gb": 7}, {"nvidia.com/mig-1g.5gb": 1}
    ),
    Platform("amd-partition", {"amd.com/cpx_nps4": 8}, {"amd.com/cpx_nps4": 1}),
    Platform(
        "time-slicing",
        {"nvidia.com/gpu": 8},
        {"nvidia.com/gpu": 1},
        labels={
            **PRESENT,
            "nvidia.com/gpu.replicas": "4",
            "nvidia.com/gpu.sharing-strategy": "time-slicing",
        },
    ),
    Platform(
        "time-slicing-renamed",
        {"nvidia.com/gpu.shared": 8},
        {"nvidia.com/gpu.shared": 1},
        labels={**PRESENT, "nvidia.com/gpu.replicas": "4"},
    ),
    Platform(
        "mps",
        {"nvidia.com/gpu.shared": 8},
        {"nvidia.com/gpu.shared": 1},
        labels={**PRESENT, "nvidia.com/gpu.sharing-strategy": "mps"},
    ),
    Platform(
        "hami",
        {"nvidia.com/gpu": 20},
        {"nvidia.com/gpu": 1, "nvidia.com/gpumem": 3031, "nvidia.com/gpucores": 30},
        labels={**PRESENT, "gpu": "on"},
        node_annotations={"hami.io/node-nvidia-register": "[]"},
    ),
    Platform(
        "hami-memory-alone",
        {"nvidia.com/gpu": 20},
        {"nvidia.com/gpumem-percentage": 50},
        node_annotations={"hami.io/node-nvidia-register": "[]"},
    ),
    Platform(
        "volcano",
        {
            "volcano.sh/vgpu-number": 20,
            "volcano.sh/vgpu-memory": 65536,
            "volcano.sh/vgpu-cores": 200,
        },
        {"volcano.sh/vgpu-number": 1, "volcano.sh/vgpu-memory": 3000, "volcano.sh/vgpu-cores": 50},
    ),
    Platform(
        "ack",
        {"aliyun.com/gpu-mem": 30, "aliyun.com/gpu-count": 2},
        {"aliyun.com/gpu-mem": 4},
        labels=ACK,
    ),
    Platform(
        "ack-cores",
        {
            "aliyun.com/gpu-mem": 30,
            "aliyun.com/gpu-count": 2,
            "aliyun.com/gpu-core.percentage": 200,
        },
        {"aliyun.com/gpu-mem": 4, "aliyun.com/gpu-core.percentage": 30},
        labels=ACK,
    ),
    Platform(
        "kai",
        {"nvidia.com/gpu": 2},
        {},
        metadata={"annotations": {"gpu-fraction": "0.5"}},
        spec={"schedulerName": "kai-scheduler"},
    ),
    Platform("runai", {"nvidia.com/gpu": 2}, {}, metadata={"annotations": {"gpu-memory": "4096"}}),
    Platform(
        "gke-time-sharing",
        {"nvidia.com/gpu": 6},
        {"nvidia.com/gpu": 1},
        labels={
            "cloud.google.com/gke-accelerator": "nvidia-l4",
            "cloud.google.com/gke-gpu-sharing-strategy": "time-sharing",
            "cloud.google.com/gke-max-shared-clients-per-gpu": "3",
        },
    ),
    Platform(
        "gke-partition",
        {"nvidia.com/gpu": 7},
        {"nvidia.com/gpu": 1},
        labels={
            "cloud.google.com/gke-accelerator": "nvidia-tesla-a100",
            "cloud.google.com/gke-gpu-partition-size": "1g.5gb",
        },
    ),
    Platform(
        "azure-mig",
        {"nvidia.com/mig-1g.5gb": 7},
        {"nvidia.com/mig-1g.5gb": 1},
        labels={"kubernetes.azure.com/accelerator": "nvidia"},
    ),
    Platform("dra-claim", {}, {}, spec=CLAIM, objects={**DRA, **device_class()}),
    Platform(
        "dra-extended",
        {},
        {"nvidia.com/gpu": 1},
        objects={**DRA, **device_class(extendedResourceName="nvidia.com/gpu")},
    ),
    Platform(
        "dra-implicit",
        {},
        {"deviceclass.resource.kubernetes.io/gpu.nvidia.com": 1},
        objects={**DRA, **device_class()},
    ),
]
EACH = pytest.mark.parametrize("platform", PLATFORMS, ids=lambda each: each.name)


def texts(amounts, times=1):
    return {key: str(count * times) for key, count in amounts.items()}


def quota_of(hard):
    status = {"hard": hard, "used": {}}
    return {**meta("gpus", "default"), "spec": {"hard": hard}, "status": status}


def world(platform, **more):
    box = {"resources": {"limits": texts(platform.limits)}}
    body = workload("web", **box)
    body["spec"]["template"]["metadata"] |= platform.metadata
    body["spec"]["template"]["spec"] |= platform.spec
    runs = pod("web-1", labels={"app": "web"}, **box)
    runs["metadata"] |= platform.metadata
    runs["spec"] |= platform.spec
    on = node(labels=platform.labels)
    on["metadata"]["annotations"] = platform.node_annotations
    on["status"] |= {"capacity": texts(platform.offers), "allocatable": texts(platform.offers)}
    hard = {f"requests.{key}": count for key, count in texts(platform.limits, 2).items()}
    quota = quota_of(hard)
    given = {
        "nodes": [on],
        "deployments": [body, *both("deployments", without="web")],
        "pods": [runs, *both("pods", without="web-1")],
        "resourcequotas": [quota],
        **platform.objects,
    }
    return cluster(**{**given, **more})


@EACH
@pytest.mark.parametrize("metric", ["DCGM_FI_DEV_GPU_UTIL", "DCGM_CUSTOM_PROCESS_SM_UTIL"])
def test_a_healthy_workload_gives_no_finding(platform, metric):
    value = (MetricValue("web-1", 1000, NOW_MS - 5_000),)
    assert findings_of(world(platform, hpas=(look(hpa_body(metric=metric), values=value),))) == {}


@EACH
def test_a_workload_without_a_value_is_not_told_to_ask_for_a_gpu(platform):
    found = findings_of(world(platform, hpas=(look(values=()),)))
    assert "no-gpu-request" not in found
    assert not [each for each in found.values() if "--limits" in each.fix.command]


@EACH
def test_a_pod_that_waits_for_a_gpu_is_told_of_no_other_resource(platform):
    waits = pending("0/1 nodes are available: 1 Insufficient.", **platform.spec)
    waits["metadata"] |= platform.metadata
    waits["spec"]["containers"][0]["resources"] = {"limits": texts(platform.limits)}
    found = findings_of(world(platform, pods=both("pods", waits)))
    assert not {"resource-not-offered", "larger-than-any-node", "no-gpu-nodes"} & found.keys()


def test_a_quota_is_in_the_units_of_its_own_resource():
    # Two replicas of 3031 MiB are 6062 MiB; and two turns, not 6064 GPUs.
    hami = next(each for each in PLATFORMS if each.name == "hami")
    hard = {"requests.nvidia.com/gpu": "8", "limits.nvidia.com/gpumem": "6061"}
    quota = quota_of(hard)
    found = findings_of(world(hami, resourcequotas=[quota]))["quota-below-max"]
    assert found.what == (
        "2 replicas of Deployment web take 6062 nvidia.com/gpumem, and the namespace's quota is 6061."
    )


def test_a_gpu_is_asked_for_only_where_it_is_known_which():
    def fix(deployment, **more):
        nodes = {"nodes": [node(**more)]}
        return findings_of(cluster(deployments=[deployment], hpas=(look(values=()),), **nodes))[
            "no-gpu-request"
        ].fix.command

    two = workload("web")
    two["spec"]["template"]["spec"]["containers"].append({"name": "proxy", "image": "envoy"})
    assert fix(workload("web")).endswith("-c main --limits=nvidia.com/gpu=1")
    assert fix(two) == "kubectl get deployment -n default web -o yaml"
    shared = {**PRESENT, "nvidia.com/gpu.sharing-strategy": "mps"}
    assert fix(workload("web"), labels=shared) == "kubectl get deployment -n default web -o yaml"
