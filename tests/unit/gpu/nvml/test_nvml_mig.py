"""GPUs that are split with MIG, over the stand-in."""

import time
from types import SimpleNamespace

import pytest

from gpuscale.agent.nvml import faults
from gpuscale.agent.nvml.mig import profile_name
from gpuscale.agent.nvml.settings import NvmlSettings
from gpuscale.testing.nvml import FakeGpu, FakeInstance, FakeProcess

UTIL = "DCGM_FI_DEV_GPU_UTIL"
POWER = "DCGM_FI_DEV_POWER_USAGE"
USED = "DCGM_FI_DEV_FB_USED"
ACTIVE = "DCGM_FI_PROF_GR_ENGINE_ACTIVE"
DRIVER = "DCGM_FI_DRIVER_VERSION"
FIELDS = {UTIL, POWER, USED, ACTIVE, DRIVER}


def split():
    return FakeGpu(
        uuid="GPU-a",
        instances=[
            FakeInstance(9, busy_percent=100, used_mib=5000, uuid="MIG-9"),
            FakeInstance(7, uuid="MIG-7", processes=[FakeProcess(11, memory_bytes=1 << 30)]),
        ],
    )


@pytest.mark.parametrize(
    ("slices", "compute", "memory_mib", "total_mib", "name"),
    [
        pytest.param(1, 1, 4864, 40_536, "1g.5gb", id="A100 40 GB"),
        pytest.param(3, 3, 19_968, 40_536, "3g.20gb", id="A100 40 GB, half"),
        pytest.param(1, 1, 9728, 81_251, "1g.10gb", id="A100 80 GB"),
        pytest.param(1, 1, 16_384, 143_771, "1g.18gb", id="H200"),
        pytest.param(7, 7, 81_251, 81_251, "7g.80gb", id="all of it"),
        pytest.param(2, 1, 19_968, 81_251, "1c.2g.20gb", id="part of the compute"),
    ],
)
def test_profile_is_named_as_upstream_names_it(
    slices: int, compute: int, memory_mib: int, total_mib: int, name: str
) -> None:
    attributes = SimpleNamespace(
        gpuInstanceSliceCount=slices, computeInstanceSliceCount=compute, memorySizeMB=memory_mib
    )
    assert profile_name(attributes, total_mib * 1024 * 1024) == name


def test_each_instance_has_a_reading_beside_the_whole(bench) -> None:
    b = bench(split(), fields=FIELDS)
    gpus = [reading.gpu for reading in b.read()]
    assert [(gpu.uuid, gpu.allocated_as) for gpu in gpus] == [
        ("GPU-a", "GPU-a"),
        ("GPU-a", "MIG-7"),
        ("GPU-a", "MIG-9"),
    ]
    assert (gpus[1].instance.id, gpus[1].instance.profile) == (7, "1g.10gb")
    assert [gpu.uuid for gpu in b.reader.gpus()] == ["GPU-a"]


def test_profile_that_the_driver_names_is_taken(bench) -> None:
    gpu = FakeGpu(instances=[FakeInstance(1, name="1g.12gb+me")])
    assert bench(gpu, fields=FIELDS).read()[1].gpu.instance.profile == "1g.12gb+me"


def test_every_value_is_told_once_so_that_sums_hold(bench) -> None:
    b = bench(split(), fields=FIELDS)
    b.read()
    whole, seventh, ninth = b.read()
    assert whole.values.keys() == {POWER, DRIVER}
    assert whole.absent == {
        USED: faults.BY_INSTANCE,
        ACTIVE: faults.BY_INSTANCE,
        UTIL: faults.SPLIT_GPU,
    }
    assert seventh.values == {USED: 12, ACTIVE: 0.0, DRIVER: "580.95.05"}
    assert ninth.values == {USED: 5000, ACTIVE: 1.0, DRIVER: "580.95.05"}
    assert ninth.absent == {POWER: faults.WHOLE_GPU, UTIL: faults.SPLIT_GPU}


def test_processes_belong_to_their_instance_and_their_use_is_unknown(bench) -> None:
    whole, seventh, ninth = bench(split(), fields=FIELDS).read()
    assert (whole.processes, ninth.processes) == ((), ())
    (process,) = seventh.processes
    assert (process.pid, process.memory_used_mib, process.sm_util) == (11, 1024, None)


def test_new_layout_is_noticed(bench) -> None:
    gpu = split()
    b = bench(gpu, fields=FIELDS, settings=NvmlSettings(mig_period_ms=5_000))
    assert len(b.read()) == 3
    gpu.instances.pop()
    assert len(b.read(after_s=5)) == 2
    gpu.instances = None
    (whole,) = b.read(after_s=5)
    assert USED in whole.values
    assert UTIL in whole.values


def test_new_instance_is_noticed_within_a_second(bench) -> None:
    gpu = split()
    b = bench(gpu, fields=FIELDS)
    assert len(b.read()) == 3
    gpu.instances.pop()
    assert len(b.read(after_s=1)) == 2


def test_kernels_list_says_that_a_gpu_was_split(bench) -> None:
    gpu = FakeGpu(uuid="GPU-a")
    seen = frozenset()
    b = bench(gpu, fields=FIELDS, layout=lambda: seen)
    b.read()
    gpu.instances = [FakeInstance(1, uuid="MIG-1")]
    assert len(b.read()) == 1
    seen = frozenset({"/proc/driver/nvidia/capabilities/gpu0/mig/gi1"})
    assert len(b.read()) == 2


def test_activity_of_an_instance_is_of_the_last_read_however_many_gpus_there_are(bench) -> None:
    busy = FakeInstance(1, busy_percent=100, uuid="MIG-1")
    others = (FakeGpu() for _ in range(7))
    b = bench(FakeGpu(uuid="GPU-a", instances=[busy]), *others, fields={ACTIVE})
    b.read()
    assert b.read()[1].values[ACTIVE] == 1.0
    busy.busy_percent = 0
    assert b.read()[1].values[ACTIVE] == 0.0


def test_changing_the_layout_leaves_no_samples_behind(bench) -> None:
    gpu = split()
    b = bench(gpu, fields={ACTIVE})
    b.read()
    b.read()
    assert b.nvml.held_samples == 4
    gpu.instances.pop()
    b.read(after_s=30)
    assert b.nvml.held_samples == 1


def test_xid_of_an_instance_is_that_instances(bench) -> None:
    b = bench(split(), fields={"DCGM_FI_DEV_XID_ERRORS"})
    b.read()
    b.nvml.xid(0, 43, instance_id=9)
    for _ in range(3_000):
        values = [reading.values["DCGM_FI_DEV_XID_ERRORS"] for reading in b.read(0.001)]
        if any(values):
            break
        time.sleep(0.01)
    assert values == [0, 0, 43]
