# mypy: disable-error-code="misc"
"""Outside text never breaks the attribution, and shares always add up to the device."""

from hypothesis import given
from hypothesis import strategies as st

from gpuscale.agent.attribution.join import safe_labels
from gpuscale.agent.attribution.kubelet.allocations import KubeletDevice
from gpuscale.agent.attribution.kubelet.device_ids import (
    KnownGpus,
    is_gpu,
    parse_device_id,
    resolve_device,
)
from gpuscale.agent.attribution.processes.cgroups import parse_cgroup, parse_start_ticks
from gpuscale.agent.attribution.processes.shares import split_utilisation, split_whole
from gpuscale.agent.gpu.owners import Attribution, ContainerRef, Unattributed
from gpuscale.agent.gpu.readings import GpuIdentity, GpuReading, ProcessReading
from gpuscale.kube.reading import (
    read_controller,
    read_node_record,
    read_pod_record,
    read_slice_devices,
)

GPU = GpuIdentity(0, "GPU-a", "00000000:1A:00.0", "NVIDIA H200")
REFS = tuple(ContainerRef("ml", f"pod-{number}", "main") for number in range(4))
ID_PARTS = ("GPU-", "MIG-", "nvidia", "/", "gi", "vgpu", "::", "0", "7", "a", "0000:1a:00.0", "-")
PATH_PARTS = ("0::", "/", "pod", "kubepods", ".slice", ":", "-", "_", "cri-containerd-", "crio-")
HEX = st.text("0123456789abcdef", min_size=1, max_size=64)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=10,
)
OBJECT_KEYS = (
    "metadata", "spec", "status", "labels", "annotations", "ownerReferences", "controller", "name", "uid",
    "containers", "containerStatuses", "containerID", "resources", "limits", "capacity", "devices", "basic",
    "attributes", "uuid", "string", "pool", "driver", "phase",
)  # fmt: skip
OBJECTS = st.recursive(
    JSON,
    lambda inner: (
        st.dictionaries(st.sampled_from(OBJECT_KEYS), inner, max_size=6)
        | st.lists(inner, max_size=3)
    ),
    max_leaves=30,
)


@given(st.text() | st.lists(st.sampled_from(ID_PARTS), max_size=8).map("".join), st.text())
def test_any_device_id_is_read_or_refused(device_id, resource) -> None:
    is_gpu(KubeletDevice(resource, device_id))
    try:
        found = parse_device_id(resource, device_id)
    except ValueError:
        found = None
    gpu = resolve_device(KubeletDevice(resource, device_id), KnownGpus((GPU,)))
    assert gpu == "GPU-a" or isinstance(gpu, Unattributed)
    assert found is None or found.text == device_id


@given(st.text() | st.lists(st.sampled_from(PATH_PARTS) | HEX, max_size=12).map("".join))
def test_any_cgroup_text_has_a_place(text) -> None:
    place = parse_cgroup(text)
    assert len(place.container_id) in (0, 64)
    assert len(place.pod_uid) in (0, 32, 36)


@given(
    st.text()
    | st.lists(st.sampled_from(["1 (a) ", "S ", "99999999999999999999 ", "7 "])).map("".join)
)
def test_any_stat_text_is_read_or_passed_over(text) -> None:
    ticks = parse_start_ticks(text)
    assert ticks is None or ticks >= 0


@given(st.dictionaries(st.text(), st.text()))
def test_label_names_are_always_fit_for_prometheus(labels) -> None:
    for name in safe_labels(labels):
        assert name.isascii()
        assert name.replace("_", "a").isalnum()
        assert not name[0].isdigit()


@given(st.dictionaries(st.sampled_from(OBJECT_KEYS), OBJECTS, max_size=5))
def test_any_object_of_the_api_server_is_read(body) -> None:
    read_pod_record(body, lambda _key: True)
    read_controller(body)
    read_node_record(body)
    read_slice_devices(body)


@given(st.integers(0, 10**12), st.lists(st.integers(0, 10**9), min_size=1, max_size=12))
def test_parts_add_up_to_the_whole(total, weights) -> None:
    parts = split_whole(total, dict(enumerate(weights)))
    assert sum(parts.values()) == (total if any(weights) else 0)
    for key, weight in enumerate(weights):
        assert abs(parts[key] - (total * weight / sum(weights) if any(weights) else 0)) <= 1


PROCESSES = st.lists(
    st.tuples(st.integers(0, 100), st.integers(0, 80_000), st.none() | st.sampled_from(REFS)),
    max_size=8,
)


@given(
    st.integers(0, 100),
    st.integers(0, 144_000),
    PROCESSES,
    st.lists(st.sampled_from(REFS), unique=True),
)
def test_shares_add_up_to_the_device(util, used_mib, processes, owners) -> None:
    reading = GpuReading(
        GPU,
        0,
        {"DCGM_FI_DEV_GPU_UTIL": util, "DCGM_FI_DEV_FB_USED": used_mib},
        {},
        tuple(
            ProcessReading(pid, "python", sm_util, 0, 0, 0, memory_mib)
            for pid, (sm_util, memory_mib, _) in enumerate(processes)
        ),
    )
    by_pid = {pid: owner for pid, (_, _, owner) in enumerate(processes) if owner is not None}
    shares = split_utilisation(reading, Attribution({"GPU-a": tuple(owners)}, by_pid))
    if not shares:
        nothing_to_say = not owners and not by_pid and util == used_mib == 0
        assert nothing_to_say or (util > 0 and not any(sm_util for sm_util, _, _ in processes))
        return
    assert sum(share.sm_util for share in shares) == util
    assert sum(share.memory_used_mib for share in shares) == used_mib
    assert len({share.container for share in shares}) == len(shares)
    assert set(owners) <= {share.container for share in shares}
