# mypy: disable-error-code="arg-type"
import pytest

from gpuscale.agent.attribution.join import (
    gpu_owners,
    holders_of,
    pod_directory,
    process_owners,
    unknown_processes,
)
from gpuscale.agent.attribution.kubelet.allocations import (
    ClaimDevice,
    ContainerDevices,
    KubeletDevice,
    NodeAllocations,
)
from gpuscale.agent.attribution.processes.cgroups import HOST, ProcessPlace
from gpuscale.agent.attribution.processes.processes import PodDirectory
from gpuscale.agent.attribution.resources import allocated_counts, count_devices
from gpuscale.agent.gpu.owners import ContainerRef, Unattributed
from gpuscale.agent.gpu.readings import GpuIdentity, GpuReading, ProcessReading
from gpuscale.base.objects.meta import OwnerReference
from gpuscale.kube.informers.records import NodeView, PodRecord

GPUS = tuple(
    GpuIdentity(index, f"GPU-{name}", f"00000000:{index:02X}:00.0", "NVIDIA H200")
    for index, name in enumerate("ab")
)
NOBODY = PodDirectory()


def gpu(device_id):
    return KubeletDevice("nvidia.com/gpu", device_id)


def holding(pod, *ids, container="main"):
    return ContainerDevices("ml", pod, container, tuple(gpu(each) for each in ids))


def owners(*containers, directory=NOBODY, claims=None):
    return gpu_owners(NodeAllocations(containers), directory, GPUS, claims or {})


def ref(pod, container="main", uid="", **labels):
    return ContainerRef("ml", pod, container, uid, labels)


def record(name, **more):
    uid = more.pop("uid", f"uid-{name}")
    return PodRecord("ml", name, uid, containers=more.pop("containers", ("main",)), **more)


def directory(*pods, owners=None):
    return pod_directory(NodeView(pods, owners or {}, has_pods=True))


def on_gpu(index, *pids):
    processes = tuple(ProcessReading(pid, "python", 10, 0, 0, 0, 100) for pid in pids)
    return GpuReading(GPUS[index], 0, {"DCGM_FI_DEV_GPU_UTIL": 1}, {}, processes)


def test_exclusive_gpu_has_one_owner() -> None:
    found = owners(holding("bert-0", "GPU-a"), holding("tune-0", "GPU-b"))
    assert found.by_gpu == {"GPU-a": (ref("bert-0"),), "GPU-b": (ref("tune-0"),)}
    assert found.missing == ()


def test_shared_gpu_has_every_owner_once() -> None:
    found = owners(holding("bert-0", "GPU-a::0", "GPU-a::1"), holding("tune-0", "GPU-a::2"))
    assert found.by_gpu == {"GPU-a": (ref("bert-0"), ref("tune-0"))}


def test_claim_and_device_of_one_container() -> None:
    both = ContainerDevices(
        "ml", "bert-0", "main", (gpu("GPU-a"),), (ClaimDevice("gpu.nvidia.com", "n1", "gpu-1"),)
    )
    found = owners(both, claims={("gpu.nvidia.com", "n1", "gpu-1"): "GPU-b"})
    assert found.by_gpu == {"GPU-a": (ref("bert-0"),), "GPU-b": (ref("bert-0"),)}


def test_unknown_device_names_the_container_that_holds_it() -> None:
    found = owners(holding("bert-0", "GPU-z"))
    assert found.missing == (
        Unattributed(
            "unknown_device_id",
            "GPU-z",
            "allocated to ml/bert-0/main: it is none of the GPUs read here: GPU-a, GPU-b",
        ),
    )


def test_unknown_way_of_sharing_names_the_resource_and_the_container() -> None:
    each = ContainerDevices(
        "ml", "bert-0", "main", unknown=(KubeletDevice("example.com/vgpu", "0"),)
    )
    assert owners(each).missing == (
        Unattributed(
            "unknown_device_id",
            "0",
            "allocated to ml/bert-0/main: how example.com/vgpu shares GPUs is not known here; "
            "expected an id with a GPU's UUID",
        ),
    )


def test_owner_carries_what_the_api_server_says_of_its_pod() -> None:
    pod = record("bert-0", labels={"app.kubernetes.io/name": "bert", "owner_kind": "fake"})
    known = directory(pod, owners={pod.uid: OwnerReference("Deployment", "bert")})
    found = owners(holding("bert-0", "GPU-a"), directory=known)
    (owner,) = found.by_gpu["GPU-a"]
    assert owner.pod_uid == "uid-bert-0"
    assert owner.labels == {
        "app_kubernetes_io_name": "bert",
        "owner_kind": "Deployment",
        "owner_name": "bert",
    }


def test_pod_that_has_finished_holds_no_gpu() -> None:
    known = directory(record("old-0", is_ended=True), record("bert-0"))
    found = owners(holding("old-0", "GPU-a"), holding("bert-0", "GPU-a"), directory=known)
    assert [each.pod for each in found.by_gpu["GPU-a"]] == ["bert-0"]
    assert found.missing == ()


def test_pod_that_is_gone_holds_no_gpu_that_another_has() -> None:
    known = directory(record("bert-0"))
    found = owners(holding("old-0", "GPU-a"), holding("bert-0", "GPU-a"), directory=known)
    assert [each.pod for each in found.by_gpu["GPU-a"]] == ["bert-0"]


def test_pod_that_the_api_server_does_not_know_yet_keeps_its_gpu() -> None:
    found = owners(holding("new-0", "GPU-a"), directory=directory(record("bert-0")))
    assert found.by_gpu == {"GPU-a": (ref("new-0"),)}


def test_one_id_for_two_pods_is_told_where_nothing_decides() -> None:
    found = owners(holding("old-0", "GPU-a"), holding("bert-0", "GPU-a"))
    assert len(found.by_gpu["GPU-a"]) == 2
    assert found.missing == (
        Unattributed(
            "device_allocated_twice",
            "GPU-a",
            "listed for ml/old-0 and ml/bert-0; one of them has ended, and the API server would tell which",
        ),
    )


def test_one_id_for_two_containers_of_a_pod_is_theirs_both() -> None:
    found = owners(holding("bert-0", "GPU-a"), holding("bert-0", "GPU-a", container="sidecar"))
    assert found.missing == ()
    assert len(found.by_gpu["GPU-a"]) == 2


CONTAINER = "c" * 64
IN_BERT = ProcessPlace("uid-bert-0", CONTAINER)


def find(place, *readings, by_gpu=None, known=NOBODY):
    readings = readings or (on_gpu(0, 101),)
    return process_owners(readings, by_gpu or {}, known, lambda _pid: place)


def test_container_id_names_the_container() -> None:
    known = directory(
        record("bert-0", containers=("main", "logs"), container_ids={CONTAINER: "logs"})
    )
    by_pid, missing = find(IN_BERT, known=known)
    assert by_pid[101].container == "logs"
    assert missing == ()


def test_container_id_suffices_without_a_pod_in_the_path() -> None:
    known = directory(record("bert-0", container_ids={CONTAINER: "main"}))
    assert find(ProcessPlace("", CONTAINER), known=known)[0][101].pod == "bert-0"


def test_debug_container_is_known_by_its_id_alone() -> None:
    known = directory(record("bert-0", container_ids={CONTAINER: "debugger"}))
    assert find(IN_BERT, known=known)[0][101].container == "debugger"


def test_pod_of_one_container_needs_no_container_id() -> None:
    assert find(IN_BERT, known=directory(record("bert-0")))[0][101].container == "main"


def test_static_pod_is_known_by_its_hash() -> None:
    known = directory(record("bert-n1", static_hash="5d41402abc4b2a76b9719d911017c592"))
    place = ProcessPlace("5d41402abc4b2a76b9719d911017c592", "")
    assert find(place, known=known)[0][101].pod_uid == "uid-bert-n1"


def test_container_that_has_the_gpu_is_taken_where_the_id_is_not_known_yet() -> None:
    known = directory(record("bert-0", containers=("main", "logs")))
    by_gpu = {"GPU-a": (known.by_name["ml", "bert-0"]["main"],)}
    assert find(IN_BERT, by_gpu=by_gpu, known=known)[0][101].container == "main"


@pytest.mark.parametrize(
    ("place", "known", "by_gpu", "reason"),
    [
        pytest.param(HOST, NOBODY, {"GPU-a": (ref("bert-0"),)}, "process_not_in_pod", id="host"),
        pytest.param(IN_BERT, NOBODY, {}, "no_gpu_request", id="no-allocation"),
        pytest.param(
            IN_BERT,
            NOBODY,
            {"GPU-a": (ref("bert-0"), ref("tune-0"))},
            "several_pods_one_gpu",
            id="shared",
        ),
        pytest.param(IN_BERT, directory(record("x")), {}, "container_unknown", id="unknown-pod"),
        pytest.param(
            IN_BERT,
            directory(record("bert-0", containers=("a", "b"))),
            {},
            "container_unknown",
            id="unknown-container",
        ),
    ],
)
def test_why_a_process_has_no_owner(place, known, by_gpu, reason: str) -> None:
    by_pid, missing = find(place, known=known, by_gpu=by_gpu)
    assert by_pid == {}
    assert [(each.reason, each.subject) for each in missing] == [(reason, "101")]


def test_without_the_api_server_a_pod_process_is_its_gpus_only_containers() -> None:
    by_pid, missing = find(IN_BERT, by_gpu={"GPU-a": (ref("bert-0"),)})
    assert by_pid == {101: ref("bert-0")}
    assert missing == ()


def test_without_the_api_server_two_containers_of_one_pod_leave_the_container_open() -> None:
    by_pid, _ = find(IN_BERT, by_gpu={"GPU-a": (ref("bert-0"), ref("bert-0", "logs"))})
    assert by_pid == {101: ref("bert-0", "")}


def test_pod_that_is_new_to_the_api_server_is_the_one_without_uid() -> None:
    known = directory(record("tune-0"))
    tune = known.by_name["ml", "tune-0"]["main"]
    by_pid, _ = find(IN_BERT, by_gpu={"GPU-a": (tune, ref("bert-0"))}, known=known)
    assert by_pid == {101: ref("bert-0")}
    _, missing = find(IN_BERT, by_gpu={"GPU-a": (tune,)}, known=known)
    assert missing == (
        Unattributed(
            "container_unknown",
            "101",
            "the API server knows no pod with UID uid-bert-0 on this node",
        ),
    )


def test_process_on_two_gpus_is_known_if_one_of_them_tells() -> None:
    by_gpu = {"GPU-a": (ref("bert-0"), ref("tune-0")), "GPU-b": (ref("bert-0"),)}
    by_pid, missing = find(IN_BERT, on_gpu(0, 101), on_gpu(1, 101), by_gpu=by_gpu)
    assert by_pid == {101: ref("bert-0")}
    assert missing == ()


def test_process_that_just_ended_is_no_gap() -> None:
    def gone(_pid) -> None:
        raise FileNotFoundError

    assert process_owners((on_gpu(0, 101),), {}, NOBODY, gone) == ({}, ())


def test_process_that_may_not_be_read_is_reported() -> None:
    def refused(_pid) -> None:
        raise PermissionError(13, "Permission denied")

    _, missing = process_owners((on_gpu(0, 101),), {}, NOBODY, refused)
    assert missing == (
        Unattributed("process_unreadable", "101", "its cgroup can't be read: Permission denied"),
    )


def test_a_process_is_nobodys_only_where_that_is_known() -> None:
    missing = (
        Unattributed("process_not_in_pod", "12"),
        Unattributed("no_gpu_request", "13"),
        Unattributed("container_unknown", "14"),
    )
    found = unknown_processes([on_gpu(0, 11, 12, 13, 14), on_gpu(1, 15)], {11: ref("a")}, missing)
    assert found == {14, 15}  # 15: nothing was said of it at all, as where host PIDs are hidden


def test_pods_process_may_be_on_a_part_of_a_gpu_that_is_not_known() -> None:
    missing = (Unattributed("process_not_in_pod", "12"), Unattributed("no_gpu_request", "13"))
    assert unknown_processes([on_gpu(0, 12, 13)], {}, missing, has_unplaced=True) == {13}


def test_devices_are_counted_per_container() -> None:
    allocations = NodeAllocations(
        (holding("bert-0", "GPU-a", "GPU-b"), holding("tune-0", "GPU-a::1"))
    )
    refs, _ = holders_of(allocations, NOBODY)
    assert allocated_counts(refs) == {ref("bert-0"): 2, ref("tune-0"): 1}


def test_claims_are_no_request() -> None:
    claim = ContainerDevices("ml", "x", "main", (), (ClaimDevice("gpu.nvidia.com", "n1", "gpu-1"),))
    refs, _ = holders_of(NodeAllocations((claim,)), NOBODY)
    assert allocated_counts(refs) == {}


def test_unknown_number_of_devices_is_not_zero() -> None:
    assert count_devices(None) is None
    assert count_devices((gpu("GPU-a"), gpu("GPU-a"), gpu("GPU-b"))) == 2
