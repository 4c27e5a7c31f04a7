"""AMD's own families: names, labels and owners as ROCm's device-metrics-exporter has them."""

from gpuscale.agent.amd.reader import AmdReader
from gpuscale.agent.formats.amd import amd_families
from gpuscale.agent.formats.labels import FamilyOptions
from gpuscale.agent.gpu.model_table import MODELS
from gpuscale.agent.gpu.owners import Attribution, ContainerRef
from gpuscale.agent.gpu.simulated import SimulatedReader
from gpuscale.base.exposition.write import render_text
from gpuscale.signals.amd.families import amd_family_meanings
from gpuscale.testing.amdsmi import StandInAmdSmi, StandInGpu, stand_in_process

OPTIONS = FamilyOptions("node-a")
UUID = StandInGpu().uuid
TRAIN = ContainerRef("ml", "train-0", "main", "uid-1")
OTHER = ContainerRef("ml", "train-1", "main", "uid-2")


def families(*gpus, owners=(), options=OPTIONS):
    readings = AmdReader(StandInAmdSmi(*(gpus or (StandInGpu(),)))).read(1000)
    found = amd_families(readings, Attribution({UUID: owners}), options)
    return {family.name: family for family in found}


def labels(family, **options):
    (sample,) = families(**options)[family].samples
    return dict(sample.labels)


def test_a_line_is_upstreams() -> None:
    text = render_text([families(owners=(TRAIN,))["gpu_gfx_activity"]])
    assert text.splitlines()[1:] == [
        "# TYPE gpu_gfx_activity gauge",
        'gpu_gfx_activity{card_model="102-G30211-0C",container="main",deployment_mode="baremetal",'
        'gpu_compute_partition_type="spx",gpu_id="0",gpu_memory_partition_type="nps1",'
        f'gpu_partition_id="0",gpu_uuid="{UUID}",hostname="node-a",job_id="",job_partition="",'
        'job_user="",namespace="ml",pod="train-0",serial_number="692251001124"} 42',
    ]


def test_values_are_in_the_units_of_the_names() -> None:
    found = families()
    expected = {
        "gpu_package_power": 310,
        "gpu_power_usage": 310,
        "gpu_energy_consumed": 30_500_000,
        "gpu_used_vram": 40_960,
        "gpu_junction_temperature": 61,
        "pcie_speed": 32.0,
        "pcie_replay_count": 3,
        "gpu_ecc_correct_total": 5,
        "gpu_nodes_total": 1,
    }
    assert {name: found[name].samples[0].value for name in expected} == expected


def test_all_families_are_gauges_and_have_a_meaning() -> None:
    found = families(StandInGpu(processes=[stand_in_process(41, cu_occupancy=76)]))
    assert {family.type for family in found.values()} == {"gauge"}
    meanings = amd_family_meanings()
    assert {name: family.help for name, family in found.items()}.items() <= meanings.items()
    assert list(found) == sorted(found)


def test_clocks_are_told_apart_by_their_type() -> None:
    samples = families()["gpu_clock"].samples
    told = [(dict(each.labels)["clock_type"], each.value) for each in samples]
    assert told == [("system", 1950), ("memory", 1300)]


def test_memory_stacks_are_told_apart_by_their_index() -> None:
    samples = families(StandInGpu(temperatures={3: 51, 4: 58}))["gpu_hbm_temperature"].samples
    assert [(dict(each.labels)["hbm_index"], each.value) for each in samples] == [
        ("0", 51),
        ("1", 58),
    ]


def test_processes_are_told_by_their_id() -> None:
    samples = families(StandInGpu(processes=[stand_in_process(41, cu_occupancy=76)]))[
        "gpu_process_cu_occupancy"
    ].samples
    assert [(dict(each.labels)["process_id"], each.value) for each in samples] == [("41", 25.0)]


def test_a_gpu_that_pods_share_names_none_of_them() -> None:
    shared = labels("gpu_gfx_activity", owners=(TRAIN, OTHER))
    assert (shared["pod"], shared["namespace"], shared["container"]) == ("", "", "")


def test_the_pods_uid_is_told_when_asked_for() -> None:
    asked = FamilyOptions("node-a", pod_uid=True)
    assert labels("gpu_gfx_activity", owners=(TRAIN,), options=asked)["pod_uuid"] == "uid-1"
    assert "pod_uuid" not in labels("gpu_gfx_activity", owners=(TRAIN,))


def test_what_is_absent_has_no_sample() -> None:
    found = families(StandInGpu(activity={"gfx_activity": "N/A", "umc_activity": 1}))
    assert "gpu_gfx_activity" not in found
    assert "gpu_umc_activity" in found


def test_other_gpus_have_no_such_families() -> None:
    readings = SimulatedReader("n1", MODELS["NVIDIA H200"], 1, 1, lambda *_: ()).read(1000)
    assert amd_families(readings, Attribution(), OPTIONS) == ()
