# mypy: disable-error-code="arg-type"
from gpuscale.kube.informers.records import Controller, NodeRecord, PodRecord
from gpuscale.kube.reading import (
    read_controller,
    read_node_record,
    read_pod_record,
    read_slice_devices,
)

POD = {
    "metadata": {
        "namespace": "ml",
        "name": "bert-5d4f-x",
        "uid": "u-1",
        "labels": {"app": "bert", "pod-template-hash": "5d4f"},
        "annotations": {"kubernetes.io/config.hash": "5d41402abc4b2a76b9719d911017c592"},
        "ownerReferences": [
            {"kind": "Other", "name": "x", "uid": "u-2"},
            {
                "apiVersion": "apps/v1",
                "kind": "ReplicaSet",
                "name": "bert-5d4f",
                "uid": "u-3",
                "controller": True,
            },
        ],
    },
    "spec": {
        "containers": [
            {"name": "main", "resources": {"limits": {"nvidia.com/gpu": "2", "cpu": "500m"}}},
            {"name": "logs"},
        ],
        "initContainers": [{"name": "fetch"}],
        "ephemeralContainers": [{"name": "debugger"}],
    },
    "status": {
        "phase": "Running",
        "containerStatuses": [
            {"name": "main", "containerID": "containerd://aa"},
            {"name": "logs", "containerID": ""},
        ],
        "initContainerStatuses": [{"name": "fetch", "containerID": "cri-o://bb"}],
        "ephemeralContainerStatuses": [{"name": "debugger", "containerID": "docker://cc"}],
    },
}


def test_pod_is_read_with_containers_of_every_kind() -> None:
    assert read_pod_record(POD, lambda key: key == "app") == PodRecord(
        namespace="ml",
        name="bert-5d4f-x",
        uid="u-1",
        labels={"app": "bert"},
        template_hash="5d4f",
        static_hash="5d41402abc4b2a76b9719d911017c592",
        controller=Controller("apps/v1", "ReplicaSet", "bert-5d4f", "u-3"),
        containers=("main", "logs", "fetch", "debugger"),
        container_ids={"aa": "main", "bb": "fetch", "cc": "debugger"},
        limits={"main": {"nvidia.com/gpu": 2}},
        is_ended=False,
    )


def test_finished_pods_are_ended() -> None:
    for phase in ("Succeeded", "Failed"):
        assert read_pod_record({"status": {"phase": phase}}, lambda _: True).is_ended


def test_odd_fields_are_passed_over() -> None:
    odd = {
        "metadata": {"name": ["x"], "labels": 3},
        "spec": "none",
        "status": {"containerStatuses": 1},
    }
    assert read_pod_record(odd, lambda _: True) == PodRecord("", "", "")


def test_object_without_controller() -> None:
    assert read_controller({"metadata": {"ownerReferences": [{"kind": "X", "name": "x"}]}}) is None


def test_node_is_read_with_its_extended_resources() -> None:
    body = {
        "status": {
            "capacity": {"nvidia.com/gpu": "8", "cpu": "96", "memory": "1Ti"},
            "allocatable": {"nvidia.com/gpu": "7"},
        }
    }
    assert read_node_record(body) == NodeRecord({"nvidia.com/gpu": 8}, {"nvidia.com/gpu": 7})


def device(name, attributes, *, basic=False):
    holder = {"attributes": {key: {"string": value} for key, value in attributes.items()}}
    return {"name": name, "basic": holder} if basic else {"name": name, **holder}


def test_slice_of_every_version_names_its_devices() -> None:
    body = {
        "spec": {
            "driver": "gpu.nvidia.com",
            "pool": {"name": "n1"},
            "devices": [
                device("gpu-0", {"type": "gpu", "uuid": "GPU-a"}),
                device("gpu-1", {"uuid": "GPU-b"}, basic=True),
                device("gpu-2", {"gpu.nvidia.com/uuid": "GPU-c"}),
                device("gpu-3", {"resource.kubernetes.io/pciBusID": "0000:c1:00.0"}),
                device("channel-0", {"type": "channel"}),
            ],
        }
    }
    assert read_slice_devices(body) == {
        ("gpu.nvidia.com", "n1", "gpu-0"): "GPU-a",
        ("gpu.nvidia.com", "n1", "gpu-1"): "GPU-b",
        ("gpu.nvidia.com", "n1", "gpu-2"): "GPU-c",
        ("gpu.nvidia.com", "n1", "gpu-3"): "0000:c1:00.0",
    }
