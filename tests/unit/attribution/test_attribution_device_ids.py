import pytest

from gpuscale.agent.attribution.kubelet.allocations import ClaimDevice, KubeletDevice
from gpuscale.agent.attribution.kubelet.device_ids import (
    DeviceId,
    KnownGpus,
    is_gpu,
    is_gpu_resource,
    parse_device_id,
    resolve,
    resolve_claim,
    resolve_device,
)
from gpuscale.agent.gpu.owners import Unattributed
from gpuscale.agent.gpu.readings import GpuIdentity, GpuInstance

WHOLE = "GPU-2c2f45e8-6f0e-4a1b-9d6e-0123456789ab"
PARENT = "GPU-7d1e9b3c-1111-2222-3333-444455556666"
SLICE_7 = "MIG-aaaaaaaa-0000-1111-2222-333333333333"
SLICE_8 = "MIG-bbbbbbbb-0000-1111-2222-333333333333"


def gpu(index, uuid, bus="1A", instance=None):
    return GpuIdentity(index, uuid, f"00000000:{bus}:00.0", "NVIDIA H200", instance)


GPUS = (
    gpu(0, WHOLE),
    gpu(1, PARENT, "C1", GpuInstance(7, "1g.18gb", SLICE_7)),
    gpu(1, PARENT, "C1", GpuInstance(8, "1g.18gb", SLICE_8)),
)
KNOWN = KnownGpus(GPUS)


@pytest.mark.parametrize(
    ("device_id", "expected"),
    [
        pytest.param(WHOLE, WHOLE, id="uuid"),
        pytest.param(SLICE_7, SLICE_7, id="mig-uuid"),
        pytest.param(f"MIG-{PARENT}/8/0", SLICE_8, id="mig-before-driver-470"),
        pytest.param(f"{WHOLE}::3", WHOLE, id="replica-of-a-gpu"),
        pytest.param(f"{SLICE_7}::0", SLICE_7, id="replica-of-a-mig-instance"),
        pytest.param(f"MIG-{PARENT}/7/0::1", SLICE_7, id="replica-of-an-old-mig-id"),
        pytest.param("nvidia0", WHOLE, id="gke"),
        pytest.param("nvidia1/gi7", SLICE_7, id="gke-mig"),
        pytest.param("nvidia0/vgpu1", WHOLE, id="gke-shared"),
        pytest.param("nvidia1/gi8/vgpu1", SLICE_8, id="gke-shared-mig"),
        pytest.param("0", WHOLE, id="index"),
        pytest.param("0::1", WHOLE, id="replica-of-an-index"),
        pytest.param("0000:1a:00.0", WHOLE, id="amd-pci-address"),
    ],
)
def test_every_form_of_an_id_finds_its_gpu(device_id, expected) -> None:
    assert resolve(parse_device_id("nvidia.com/gpu", device_id), GPUS) == expected


@pytest.mark.parametrize(
    ("device_id", "expected"),
    [
        (f"{WHOLE}::3", DeviceId(f"{WHOLE}::3", uuid=WHOLE, replica=3)),
        ("nvidia1/gi8/vgpu2", DeviceId("nvidia1/gi8/vgpu2", index=1, gpu_instance=8, replica=2)),
        (
            f"MIG-{PARENT}/7/0",
            DeviceId(f"MIG-{PARENT}/7/0", uuid=PARENT, gpu_instance=7),
        ),
        ("0000:c1:00.0", DeviceId("0000:c1:00.0", pci_bus_id="00000000:C1:00.0")),
    ],
)
def test_parts_of_an_id(device_id: str, expected) -> None:
    assert parse_device_id("nvidia.com/gpu", device_id) == expected


@pytest.mark.parametrize(
    "device_id", ["", "::1", "gpu0", "nvidia", "nvidia0/gi", "GPU-a::x", "-1", "1234567", "GPU-"]
)
def test_other_forms_are_refused(device_id: str) -> None:
    with pytest.raises(ValueError, match="expected an id such as") as caught:
        parse_device_id("nvidia.com/gpu", device_id)
    assert str(caught.value) == (
        f"nvidia.com/gpu: found {device_id!r}, expected an id such as GPU-..., MIG-..., nvidia0, 0 or "
        "0000:c1:00.0"
    )


def test_endless_id_is_refused_without_quoting_it() -> None:
    with pytest.raises(
        ValueError, match=r"^nvidia\.com/gpu: found an id of 100000 characters, expected"
    ):
        parse_device_id("nvidia.com/gpu", "G" * 100_000)


def test_parent_of_mig_instances_is_not_mistaken_for_one_of_them() -> None:
    found = resolve_device(KubeletDevice("nvidia.com/gpu", PARENT), KNOWN)
    assert isinstance(found, Unattributed)
    assert found.reason == "unknown_device_id"


def test_index_of_a_gpu_in_mig_mode_names_no_instance() -> None:
    assert isinstance(
        resolve_device(KubeletDevice("nvidia.com/gpu", "nvidia1"), KNOWN), Unattributed
    )


def test_two_compute_instances_of_one_gpu_instance_are_not_guessed_between() -> None:
    twins = [gpu(0, PARENT, instance=GpuInstance(7, "1c.2g", uuid)) for uuid in ("MIG-a", "MIG-b")]
    assert isinstance(resolve(parse_device_id("r", f"MIG-{PARENT}/7/1"), twins), Unattributed)


def test_unknown_gpu_is_told_with_what_is_known() -> None:
    found = resolve_device(KubeletDevice("nvidia.com/gpu", "GPU-gone"), KnownGpus(GPUS[:1]))
    assert found == Unattributed(
        "unknown_device_id", "GPU-gone", f"it is none of the GPUs read here: {WHOLE}"
    )


def test_id_of_no_known_form_is_reported() -> None:
    found = resolve_device(KubeletDevice("nvidia.com/gpu", "vfio-3"), KNOWN)
    assert isinstance(found, Unattributed)
    assert (found.reason, found.subject) == ("unknown_device_id", "vfio-3")


@pytest.mark.parametrize(
    "resource",
    [
        "nvidia.com/gpu",
        "nvidia.com/gpu.shared",
        "nvidia.com/mig-1g.10gb",
        "nvidia.com/mig-3g.20gb.shared",
        "nvidia.com/vgpu",
        "nvidia.com/gpu-a100",
        "amd.com/gpu",
        "amd.com/cpx_nps4",
        "example.com/accelerator",
    ],
)
def test_gpu_resources_are_known_by_name(resource: str) -> None:
    assert is_gpu_resource(resource, ("example.com/accelerator",))
    assert is_gpu(KubeletDevice(resource, "any"), ("example.com/accelerator",))


@pytest.mark.parametrize(
    "resource", ["cpu", "nvidia.com/hostdev", "amd.com/xilinx_u30", "intel.com/gpu", "gpu", ""]
)
def test_other_resources_are_no_gpus(resource: str) -> None:
    assert not is_gpu_resource(resource)
    assert not is_gpu(KubeletDevice(resource, "0"))


def test_renamed_resource_counts_when_its_ids_are_uuids() -> None:
    assert is_gpu(KubeletDevice("nvidia.com/h200", WHOLE))
    assert not is_gpu(KubeletDevice("nvidia.com/h200", "7"))


CLAIM = ClaimDevice("gpu.nvidia.com", "n1", "gpu-0-mig-1g18gb-7-0")


def test_claim_is_found_through_its_resource_slice() -> None:
    assert resolve_claim(CLAIM, KNOWN, {CLAIM.key: SLICE_7}) == SLICE_7


def test_claim_is_found_by_the_pci_address_of_its_resource_slice() -> None:
    assert resolve_claim(CLAIM, KNOWN, {CLAIM.key: "0000:1a:00.0"}) == WHOLE


def test_claim_is_found_by_its_cdi_name_without_a_cluster() -> None:
    claim = ClaimDevice("gpu.nvidia.com", "n1", "gpu-0", ("k8s.gpu.nvidia.com/device=x", WHOLE))
    assert resolve_claim(claim, KNOWN, {}) == WHOLE
    inside = ClaimDevice("gpu.nvidia.com", "n1", "gpu-0", (f"nvidia.com/gpu={WHOLE}",))
    assert resolve_claim(inside, KNOWN, {}) == WHOLE


def test_claim_of_any_driver_is_a_gpu_s_where_its_resource_slice_says_so() -> None:
    claim = ClaimDevice("accelerators.example.com", "n1", "dev-3", is_named_gpu=False)
    assert resolve_claim(claim, KNOWN, {claim.key: WHOLE}) == WHOLE
    assert (
        resolve_claim(claim, KNOWN, {claim.key: "0000:05:00.0"}) is None
    )  # such as a network card
    assert resolve_claim(claim, KNOWN, {}) is None


def test_claim_that_nothing_names_is_reported() -> None:
    assert resolve_claim(CLAIM, KNOWN, {}) == Unattributed(
        "dra_unresolved",
        "gpu.nvidia.com/n1/gpu-0-mig-1g18gb-7-0",
        "no ResourceSlice names its UUID; let the exporter read resourceslices",
    )


def test_claim_of_a_gpu_that_is_not_read_is_reported() -> None:
    found = resolve_claim(CLAIM, KnownGpus(()), {CLAIM.key: "GPU-gone"})
    assert isinstance(found, Unattributed)
    assert found.detail == (
        "its ResourceSlice says GPU-gone, which is none of the GPUs read here: none"
    )
