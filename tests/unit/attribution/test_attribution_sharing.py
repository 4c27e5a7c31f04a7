# mypy: disable-error-code="arg-type"
"""Parts of GPUs in the words of each scheduler: whose they are, how much they are, and what can't be read."""

import json

import pytest

from gpuscale.agent.attribution import reasons
from gpuscale.agent.attribution.join import gpu_owners, pod_directory, with_shares
from gpuscale.agent.attribution.kubelet.allocations import (
    ContainerDevices,
    KubeletDevice,
    NodeAllocations,
)
from gpuscale.agent.attribution.kubelet.device_ids import is_gpu
from gpuscale.agent.attribution.kubelet.device_parts import gathered_parts
from gpuscale.agent.attribution.sharing.schemes import reads_key
from gpuscale.agent.attribution.sharing.shared_gpus import shared_gpus
from gpuscale.agent.gpu.owners import ContainerRef, Grant
from gpuscale.agent.gpu.readings import GpuIdentity
from gpuscale.kube.informers.records import NodeView, PodRecord

FIRST, SECOND = (f"GPU-5a5aba1e-1111-2222-3333-44445555666{n}" for n in range(2))
GPUS = tuple(
    GpuIdentity(n, uuid, f"00000000:{n + 16:02X}:00.0", "Tesla T4")
    for n, uuid in enumerate((FIRST, SECOND))
)
ACK = "scheduler.framework.gpushare.allocation"
CORES = "gpushare.alibabacloud.com/core-percentage"
HAMI = "hami.io/vgpu-devices-allocated"
VOLCANO = "volcano.sh/vgpu-ids-new"


def record(name, sharing, containers=("main",), limits=None, namespace="ml"):
    return PodRecord(
        namespace,
        name,
        f"uid-{name}",
        containers=containers,
        limits=limits or {},
        sharing=sharing,
    )


def ref(pod, container="main"):
    return ContainerRef("ml", pod, container, f"uid-{pod}")


def held(pod, resource, *ids, container="main", namespace="ml"):
    whole, parts = gathered_parts(KubeletDevice(resource, each) for each in ids)
    return ContainerDevices(namespace, pod, container, whole, (), parts)


def shared(*pods, containers=(), allocatable=(), units=()):
    allocations = NodeAllocations(containers, allocatable, units)
    directory = pod_directory(NodeView(pods, has_pods=True))
    found = shared_gpus(allocations, pods, directory, GPUS)
    return with_shares(gpu_owners(allocations, directory, GPUS, {}), found), found


def test_ack_annotation_gives_owner_memory_and_cores() -> None:
    # 4 of 15 units are 4/15 of the GPU's memory; container 1 has them on GPU 1.
    pod = record(
        "bert",
        {ACK: json.dumps({"1": {"1": 4}}), CORES: json.dumps({"1": {"1": 30}})},
        ("proxy", "main"),
    )
    owners, found = shared(pod, units=(KubeletDevice("aliyun.com/gpu-mem", SECOND, 15),))
    assert owners.by_gpu == {SECOND: (ref("bert"),)}
    grant = found.grants[SECOND][ref("bert")]
    assert grant == Grant(memory_part=4 / 15, cores_percent=30)
    assert grant.memory_of(15360) == 4096


def test_ack_units_are_gib_where_the_kubelet_does_not_say_how_many_make_a_gpu() -> None:
    _, found = shared(record("bert", {ACK: json.dumps({"0": {"0": 4}})}))
    assert found.grants[FIRST][ref("bert")].memory_of(None) == 4096


def test_first_form_of_ack_annotations() -> None:
    sharing = {"ALIYUN_COM_GPU_MEM_IDX": "1", "ALIYUN_COM_GPU_MEM_POD": "8"}
    limits = {"main": {"aliyun.com/gpu-mem": 8}}
    owners, _ = shared(record("bert", sharing, ("proxy", "main"), limits))
    assert owners.by_gpu == {SECOND: (ref("bert"),)}


def test_ack_annotation_wins_over_the_ids_that_the_kubelet_took() -> None:
    # The device plugin looks at the annotation alone, whatever ids the kubelet chose.
    ids = [f"{FIRST}-_-{n}" for n in range(4)]
    pod = record("bert", {ACK: json.dumps({"0": {"1": 4}})})
    owners, _ = shared(pod, containers=(held("bert", "aliyun.com/gpu-mem", *ids),))
    assert list(owners.by_gpu) == [SECOND]


def test_ack_ids_are_taken_without_the_api_server() -> None:
    ids = [f"{FIRST}-_-{n}" for n in range(3)]
    owners, found = shared(
        containers=(held("bert", "aliyun.com/gpu-mem", *ids),),
        units=(KubeletDevice("aliyun.com/gpu-mem", FIRST, 15),),
    )
    who = ContainerRef("ml", "bert", "main")
    assert owners.by_gpu == {FIRST: (who,)}
    assert found.grants[FIRST][who].memory_of(15360) == 3072


@pytest.mark.parametrize(
    ("key", "resource"), [(HAMI, "nvidia.com/gpu"), (VOLCANO, "volcano.sh/vgpu-number")]
)
def test_hami_and_volcano_name_uuid_memory_and_cores(key: str, resource: str) -> None:
    text = f";{SECOND},NVIDIA,4096,25:{FIRST},NVIDIA,2048,0:;"
    pod = record("bert", {key: text}, ("proxy", "main"))
    owners, found = shared(pod, containers=(held("bert", resource, f"{FIRST}-3", f"{FIRST}-4"),))
    assert owners.by_gpu == {SECOND: (ref("bert"),), FIRST: (ref("bert"),)}
    assert found.grants == {
        SECOND: {ref("bert"): Grant(4096, cores_percent=25)},
        FIRST: {ref("bert"): Grant(2048)},
    }
    assert found.missing == owners.missing == ()


def test_hami_text_of_some_containers_goes_to_those_that_ask_for_gpus() -> None:
    limits = {"main": {"nvidia.com/gpu": 1}}
    pod = record("bert", {HAMI: f"{FIRST},NVIDIA,4096,0:;"}, ("init", "proxy", "main"), limits)
    assert shared(pod)[0].by_gpu == {FIRST: (ref("bert"),)}


@pytest.mark.parametrize("resource", ["nvidia.com/gpu", "volcano.sh/vgpu-number"])
def test_replica_whose_annotation_is_not_known_is_counted_and_named(resource: str) -> None:
    owners, found = shared(containers=(held("bert", resource, f"{FIRST}-3"),))
    assert owners.by_gpu == {}
    assert [(each.reason, each.subject) for each in found.missing] == [
        (reasons.SHARE_UNRESOLVED, "ml/bert")
    ]
    assert found.unplaced == {ContainerRef("ml", "bert", "main")}


def test_kai_fraction_is_on_the_gpu_that_the_groups_reservation_holds() -> None:
    group = {"runai-gpu-group": "g-1"}
    namespace = "kai-resource-reservation"
    reservation = record("gpu-reservation-x", group, namespace=namespace)
    pods = (
        reservation,
        record("half", {**group, "gpu-fraction": "0.5"}),
        record("some", {**group, "gpu-memory": "2000"}),
    )
    holds = held("gpu-reservation-x", "nvidia.com/gpu", SECOND, namespace=namespace)
    owners, found = shared(*pods, containers=(holds,))
    assert owners.by_gpu == {SECOND: (ref("half"), ref("some"))}
    assert found.grants[SECOND] == {
        ref("half"): Grant(memory_part=0.5),
        ref("some"): Grant(2000),
    }


def test_reservation_is_no_owner_where_the_pods_that_share_its_gpu_are_not_known() -> None:
    namespace = "kai-resource-reservation"
    holds = held("gpu-reservation-x", "nvidia.com/gpu", SECOND, namespace=namespace)
    owners, found = shared(containers=(holds,))
    assert owners.by_gpu == {}
    assert [(each.reason, each.subject) for each in found.missing] == [
        ("share_unresolved", f"{namespace}/gpu-reservation-x")
    ]


def test_fraction_on_several_gpus_and_of_a_named_container() -> None:
    namespace = "runai-reservation"
    reservations = [
        record(f"r{n}", {"runai-gpu-group": f"g-{n}"}, namespace=namespace) for n in (0, 1)
    ]
    holds = [
        held(f"r{n}", "nvidia.com/gpu", uuid, namespace=namespace)
        for n, uuid in enumerate((FIRST, SECOND))
    ]
    sharing = {
        "runai-gpu-group/g-0": "g-0",
        "runai-gpu-group/g-1": "g-1",
        "gpu-fraction": "0.25",
        "gpu-fraction-container-name": "worker",
    }
    pod = record("many", sharing, ("proxy", "worker"))
    owners, _ = shared(*reservations, pod, containers=tuple(holds))
    assert owners.by_gpu == {FIRST: (ref("many", "worker"),), SECOND: (ref("many", "worker"),)}


def test_replicas_of_time_slicing_are_even_parts() -> None:
    allocatable = tuple(KubeletDevice("nvidia.com/gpu", f"{FIRST}::{n}") for n in range(4))
    containers = (
        held("one", "nvidia.com/gpu", f"{FIRST}::0"),
        held("two", "nvidia.com/gpu", f"{FIRST}::1", f"{FIRST}::2"),
    )
    _, found = shared(containers=containers, allocatable=allocatable)
    assert [grant.cores_percent for grant in found.grants[FIRST].values()] == [25, 50]


@pytest.mark.parametrize(
    "sharing",
    [
        pytest.param({ACK: "no JSON"}, id="no JSON"),
        pytest.param({ACK: "[]"}, id="a list"),
        pytest.param({ACK: '{"0":{"x":1}}'}, id="no number"),
        pytest.param({ACK: '{"0":{"0":-1}}'}, id="negative"),
        pytest.param({HAMI: f"{FIRST},NVIDIA;"}, id="too few items"),
        pytest.param({HAMI: f"{FIRST},NVIDIA,many,0:;"}, id="no memory"),
        pytest.param({"gpu-fraction": "nan", "runai-gpu-group": "g"}, id="no fraction"),
        pytest.param({"gpu-fraction": "0.5"}, id="no group"),
        pytest.param({"ALIYUN_COM_GPU_MEM_IDX": "1"}, id="no amount"),
    ],
)
def test_annotation_that_can_not_be_read_is_counted_and_named(sharing) -> None:
    owners, found = shared(record("bert", sharing))
    assert owners.by_gpu == {}
    assert [(each.reason, each.subject) for each in found.missing] == [
        (reasons.SHARE_UNREADABLE, "ml/bert")
    ]
    assert {each.pod for each in found.unplaced} == {"bert"}


@pytest.mark.parametrize(
    "sharing",
    [
        {ACK: '{"0":{"7":4}}'},
        {HAMI: "GPU-other,NVIDIA,4096,0:;"},
        {"gpu-fraction": "0.5", "runai-gpu-group": "nobodys"},
    ],
)
def test_part_of_a_gpu_that_is_not_read_is_counted_and_named(sharing) -> None:
    _, found = shared(record("bert", sharing))
    assert [each.reason for each in found.missing] == [reasons.SHARE_UNRESOLVED]
    assert len(found.unplaced) == 1


def test_pods_that_have_ended_hold_nothing() -> None:
    pod = PodRecord("ml", "bert", "u", sharing={ACK: '{"0":{"0":4}}'}, is_ended=True)
    assert shared(pod)[1].grants == {}


def test_units_of_memory_are_gathered() -> None:
    # A GPU of 80 GiB that is handed out by the MiB has 81 920 ids.
    ids = (KubeletDevice("aliyun.com/gpu-mem", f"{FIRST}-_-{n}") for n in range(81_920))
    assert gathered_parts(ids) == ((), (KubeletDevice("aliyun.com/gpu-mem", FIRST, 81_920),))


@pytest.mark.parametrize(
    ("resource", "is_one"),
    [
        ("aliyun.com/gpu-mem", True),
        ("volcano.sh/vgpu-number", True),
        ("tencent.com/vcuda-core", True),
        ("run.ai/shared-gpu", True),
        ("baidu.com/v100_cgpu_memory", True),
        ("nvidia.com/gpumem", False),
        ("nvidia.com/gpucores", False),
        ("volcano.sh/vgpu-memory", False),
        ("aliyun.com/gpu-core.percentage", False),
        ("example.com/nic", False),
    ],
)
def test_what_is_a_gpu_by_its_name(resource: str, is_one: bool) -> None:
    assert is_gpu(KubeletDevice(resource, "x-1")) is is_one


def test_any_resource_whose_id_is_a_gpus_uuid_is_a_gpu() -> None:
    assert is_gpu(KubeletDevice("example.com/accelerator", FIRST))


def test_only_annotations_about_sharing_are_kept() -> None:
    assert all(map(reads_key, (ACK, HAMI, VOLCANO, "gpu-fraction", "runai-gpu-group/g-1")))
    assert not any(map(reads_key, ("app", "runai/queue")))
