"""Series that are repeated by pod and by job: layout and values as dcgm-exporter 4.8.2 has them."""

import pytest

from gpuscale.agent.formats.dcgm import dcgm_families
from gpuscale.agent.formats.labels import FamilyOptions
from gpuscale.agent.gpu.owners import Attribution, ClaimRef, ContainerRef, Holding
from gpuscale.agent.gpu.readings import GpuIdentity, GpuInstance, GpuReading, ProcessReading
from gpuscale.base.exposition.write import render_text, six_decimals
from gpuscale.signals import load_counters

UUID = "GPU-2c2f45e8-0000-4000-8000-000000000001"
GPU = GpuIdentity(0, UUID, "00000000:1A:00.0", "NVIDIA H200")
SLICE = GpuIdentity(2, UUID, "00000000:1A:00.0", "NVIDIA H200", GpuInstance(9, "1g.18gb", "MIG-9"))
CSV = """
DCGM_FI_DEV_GPU_UTIL, gauge, Busy.
DCGM_FI_DEV_FB_USED, gauge, Used.
DCGM_FI_DEV_POWER_USAGE, gauge, Power.
"""
VALUES = {"DCGM_FI_DEV_GPU_UTIL": 70, "DCGM_FI_DEV_FB_USED": 900, "DCGM_FI_DEV_POWER_USAGE": 50.0}
A = ContainerRef("ml", "a", "main", "uid-a")
SIDE = ContainerRef("ml", "a", "side", "uid-a")
B = ContainerRef("ml", "b", "main", "uid-b")
LEADING = (
    f'gpu="0",UUID="{UUID}",pci_bus_id="00000000:1A:00.0",device="nvidia0",modelName="NVIDIA H200"'
)
OF_A = 'container="main",namespace="ml",pod="a",pod_uid="uid-a",vgpu="0"'
POWER_OF_A = 'container="main",namespace="ml",pod="a",vgpu="0"'
OF_SIDE = 'container="side",namespace="ml",pod="a",pod_uid="uid-a",vgpu="2"'
OF_B = 'container="main",namespace="ml",pod="b",pod_uid="uid-b",vgpu="1"'


def process(pid: int, sm: int, mib: int):
    return ProcessReading(pid, "python", sm, 0, 0, 0, mib)


def reading(*processes, gpu=GPU, values=VALUES):
    return GpuReading(gpu, 0, values, {}, processes)


SHARED = Attribution(
    {UUID: (A, B, SIDE)},
    {1: A, 2: SIDE},
    holdings={UUID: (Holding(A, "0"), Holding(B, "1"), Holding(SIDE, "2"))},
)


NOBODY = Attribution()


def lines(one, attribution=NOBODY, csv=CSV, **options) -> list[str]:
    families = dcgm_families(
        [one], load_counters(csv, "my.csv"), attribution, FamilyOptions("", **options)
    )
    text = render_text(families, float_text=six_decimals)
    return [line for line in text.splitlines() if not line.startswith("#")]


def test_virtual_gpus_have_each_pods_own_use_and_memory() -> None:
    """Each container shows its pod's sum: 10 + 20 of pod a, and 0 of pod b, which is idle.

    Upstream names the pod's UID there always, and beside other fields only when asked to.
    """
    one = reading(process(1, 10, 100), process(2, 20, 50))
    assert lines(one, SHARED, virtual_gpus=True)[0] == (
        f"DCGM_FI_DEV_POWER_USAGE{{{LEADING},{POWER_OF_A}}} 50.000000"
    )
    assert lines(one, SHARED, virtual_gpus=True, pod_uid=True) == [
        f"DCGM_FI_DEV_POWER_USAGE{{{LEADING},{OF_A}}} 50.000000",
        f"DCGM_FI_DEV_POWER_USAGE{{{LEADING},{OF_B}}} 50.000000",
        f"DCGM_FI_DEV_POWER_USAGE{{{LEADING},{OF_SIDE}}} 50.000000",
        f"DCGM_FI_DEV_GPU_UTIL{{{LEADING}}} 70",
        f"DCGM_FI_DEV_GPU_UTIL{{{LEADING},{OF_A}}} 30",
        f"DCGM_FI_DEV_GPU_UTIL{{{LEADING},{OF_B}}} 0",
        f"DCGM_FI_DEV_GPU_UTIL{{{LEADING},{OF_SIDE}}} 30",
        f"DCGM_FI_DEV_FB_USED{{{LEADING}}} 900",
        f"DCGM_FI_DEV_FB_USED{{{LEADING},{OF_A}}} 150",
        f"DCGM_FI_DEV_FB_USED{{{LEADING},{OF_B}}} 0",
        f"DCGM_FI_DEV_FB_USED{{{LEADING},{OF_SIDE}}} 150",
    ]


def test_without_the_flag_a_shared_gpu_has_no_pods() -> None:
    assert lines(reading(), SHARED)[1] == f"DCGM_FI_DEV_GPU_UTIL{{{LEADING}}} 70"


def test_a_process_that_may_be_anybodys_leaves_the_pods_without_values() -> None:
    unknown = Attribution(
        SHARED.by_gpu, {1: A}, unknown_pids=frozenset({7}), holdings=SHARED.holdings
    )
    found = lines(reading(process(1, 10, 1), process(7, 20, 1)), unknown, virtual_gpus=True)
    assert all(line.endswith(" 70") for line in found if "GPU_UTIL" in line)


def test_virtual_gpus_that_nobody_holds_are_served_once() -> None:
    assert len(lines(reading(), virtual_gpus=True)) == 3


def test_a_field_that_the_gpu_lacks_is_not_made_up_for_pods() -> None:
    """A GPU split with MIG has no utilisation; its pods have none either."""
    one = reading(process(1, 10, 100), values={"DCGM_FI_DEV_FB_USED": 5})
    assert not [line for line in lines(one, SHARED, virtual_gpus=True) if "GPU_UTIL" in line]


@pytest.mark.parametrize(
    ("jobs", "gpu", "named"),
    [
        pytest.param({"0": ("7", "8")}, GPU, ["7", "8"], id="two jobs"),
        pytest.param({"1": ("7",)}, GPU, [], id="another GPU"),
        pytest.param({"2.9": ("7",)}, SLICE, ["7"], id="MIG instance"),
        pytest.param({"2": ("7",)}, SLICE, [], id="whole card's job, not the instance's"),
    ],
)
def test_each_job_has_its_own_series(jobs, gpu, named: list[str]) -> None:
    csv = "DCGM_FI_DEV_FB_USED, gauge, Used."
    found = lines(reading(gpu=gpu), csv=csv, jobs=jobs)
    assert [line.partition('hpc_job="')[2][:1] for line in found] == (named or [""])


def test_jobs_and_the_owning_pod_stand_together() -> None:
    csv = "DCGM_FI_DEV_FB_USED, gauge, Used."
    owned = Attribution({UUID: (A,)})
    assert lines(reading(), owned, csv=csv, jobs={"0": ("7",)}) == [
        f'DCGM_FI_DEV_FB_USED{{{LEADING},container="main",hpc_job="7",namespace="ml",pod="a"}} 900'
    ]


def test_resource_claims_are_named() -> None:
    claim = ClaimRef("ml", "big", "gpu.nvidia.com", "node-1", "gpu-0")
    csv = "DCGM_FI_DEV_FB_USED, gauge, Used."
    owned = Attribution({"MIG-9": (A,)}, holdings={"MIG-9": (Holding(A, claim=claim),)})
    (line,) = lines(reading(gpu=SLICE), owned, csv=csv, claim_labels=True)
    assert line.endswith(
        'container="main",dra_claim_name="big",dra_claim_namespace="ml",dra_device_name="gpu-0",'
        'dra_driver_name="gpu.nvidia.com",dra_mig_device_uuid="MIG-9",dra_mig_profile="1g.18gb",'
        'dra_pool_name="node-1",namespace="ml",pod="a"} 900'
    )
    assert "dra_" not in lines(reading(gpu=SLICE), owned, csv=csv)[0]
