# mypy: disable-error-code="arg-type"
"""ACK's families: who was given a GPU, who uses it, and who should not."""

import pytest

from gpuscale.agent.formats.ack import ack_families, with_ack_labels
from gpuscale.agent.formats.labels import FamilyOptions
from gpuscale.agent.gpu.owners import Attribution, ContainerRef, Grant
from gpuscale.agent.gpu.readings import GpuIdentity, GpuReading, ProcessReading
from gpuscale.base.exposition.write import render_text
from gpuscale.signals import load_counters

BERT = ContainerRef("default", "bert-0", "bert-container")
OTHER = ContainerRef("default", "bert-1", "bert-container")
OPTIONS = FamilyOptions("cn-beijing.192.168.94.107", node_pool="np1")
NODE = 'NodeName="cn-beijing.192.168.94.107",NodePoolId="np1"'
CARD = 'UUID="GPU-a",device="nvidia0",gpu="0",modelName="Tesla V100-SXM2-16GB"'


def process(pid=101, sm=23, memory=4000):
    return ProcessReading(pid, "python", sm, 10, 0, 0, memory)


def reading(*processes, uuid="GPU-a", index=0, total=16_384):
    values = {"DCGM_FI_DRIVER_VERSION": "570.86.15", "DCGM_FI_DEV_GPU_UTIL": 23}
    if total is not None:
        values["DCGM_FI_DEV_FB_TOTAL"] = total
    gpu = GpuIdentity(index, uuid, "00000000:1A:00.0", "Tesla V100-SXM2-16GB")
    return GpuReading(gpu, 0, values, {}, processes)


def samples(*readings, by_gpu=None, by_pid=None, unknown=(), grants=None, unplaced=()):
    attribution = Attribution(
        by_gpu or {},
        by_pid or {},
        unknown_pids=frozenset(unknown),
        grants=grants or {},
        unplaced=frozenset(unplaced),
    )
    families = ack_families(readings, attribution, OPTIONS)
    found = {}
    for line in render_text(families).splitlines():
        if not line.startswith("#"):
            name = line.split("{")[0].removeprefix("DCGM_CUSTOM_")
            found.setdefault(name, []).append(line.removeprefix("DCGM_CUSTOM_"))
    return found


def value(found, name):
    (line,) = found[name]
    return float(line.rsplit(" ", 1)[1])


def test_process_series_have_acks_labels_in_alphabetical_order() -> None:
    found = samples(reading(process()), by_gpu={"GPU-a": (BERT,)}, by_pid={101: BERT})
    assert found["PROCESS_SM_UTIL"] == [
        'PROCESS_SM_UTIL{AllocateMode="exclusive",ContainerName="bert-container",'
        f'NamespaceName="default",{NODE},PodName="bert-0",PodSource="ecs",ProcessId="101",'
        f'ProcessName="python",ProcessType="C",{CARD}}} 23'
    ]
    assert value(found, "PROCESS_MEM_COPY_UTIL") == 10
    assert value(found, "PROCESS_MEM_USED") == 4000
    assert value(found, "PROCESS_ENCODE_UTIL") == 0
    assert value(found, "PROCESS_DECODE_UTIL") == 0


def test_idle_process_reads_a_real_zero() -> None:
    found = samples(reading(process(sm=0)), by_gpu={"GPU-a": (BERT,)}, by_pid={101: BERT})
    assert value(found, "PROCESS_SM_UTIL") == 0


def test_container_without_a_process_shows_its_grant_and_no_use() -> None:
    found = samples(reading(), by_gpu={"GPU-a": (BERT,)})
    assert value(found, "CONTAINER_MEM_ALLOCATED") == 16_384
    assert value(found, "CONTAINER_CP_ALLOCATED") == 1
    assert not any("PROCESS" in name for name in found)


def test_container_series_have_the_process_labels_less_the_process() -> None:
    found = samples(reading(), by_gpu={"GPU-a": (BERT,)})
    assert found["CONTAINER_MEM_ALLOCATED"] == [
        'CONTAINER_MEM_ALLOCATED{AllocateMode="exclusive",ContainerName="bert-container",'
        f'NamespaceName="default",{NODE},PodName="bert-0",PodSource="ecs",{CARD}}} 16384'
    ]


def test_device_series_have_acks_labels() -> None:
    found = samples(reading(), by_gpu={"GPU-a": (BERT,)})
    labels = f'DriverVersion="570.86.15",{NODE},PodSource="ecs",SupportDCGM="Yes",{CARD}'
    assert found["DEV_FB_TOTAL"] == [f"DEV_FB_TOTAL{{{labels}}} 16384"]
    assert found["DEV_FB_ALLOCATED"] == [f"DEV_FB_ALLOCATED{{{labels}}} 1"]


def test_shared_gpu_splits_use_by_process_and_invents_no_grant() -> None:
    found = samples(
        reading(process(101, 30), process(102, 20)),
        by_gpu={"GPU-a": (BERT, OTHER)},
        by_pid={101: BERT, 102: OTHER},
    )
    by_pod = {line.split('PodName="')[1].split('"')[0]: line for line in found["PROCESS_SM_UTIL"]}
    assert by_pod["bert-0"].endswith(" 30")
    assert by_pod["bert-1"].endswith(" 20")
    assert 'AllocateMode="share"' in by_pod["bert-0"]
    assert [line.rsplit(" ", 1)[1] for line in found["CONTAINER_CP_ALLOCATED"]] == ["0", "0"]
    assert "CONTAINER_MEM_ALLOCATED" not in found
    assert "DEV_FB_ALLOCATED" not in found


@pytest.mark.parametrize(
    ("by_gpu", "mode"),
    [({}, 0), ({"GPU-a": (BERT,)}, 1), ({"GPU-a": (BERT, OTHER)}, 2)],
    ids=["none", "exclusive", "share"],
)
def test_allocate_mode_is_that_of_the_node(by_gpu, mode: int) -> None:
    found = samples(reading(), by_gpu=by_gpu)
    assert found["ALLOCATE_MODE"] == [
        f'ALLOCATE_MODE{{NodeName="cn-beijing.192.168.94.107"}} {mode}'
    ]


def test_process_of_no_container_is_illegal() -> None:
    found = samples(reading(process()))
    assert found["ILLEGAL_PROCESS_SM_UTIL"] == [
        f'ILLEGAL_PROCESS_SM_UTIL{{AllocateMode="none",ContainerName="",NamespaceName="",{NODE},'
        f'PodName="",PodSource="ecs",ProcessId="101",ProcessName="python",ProcessType="C",{CARD}}} 23'
    ]
    assert "PROCESS_SM_UTIL" not in found


def test_process_that_may_be_anybodys_is_neither_legal_nor_illegal() -> None:
    found = samples(reading(process()), by_gpu={"GPU-a": (BERT,)}, unknown=[101])
    assert "ILLEGAL_PROCESS_SM_UTIL" not in found
    assert "PROCESS_SM_UTIL" not in found


def test_process_of_the_pod_that_holds_the_gpu_is_legal_in_whichever_container() -> None:
    somewhere = ContainerRef("default", "bert-0", "")
    found = samples(reading(process()), by_gpu={"GPU-a": (BERT,)}, by_pid={101: somewhere})
    assert value(found, "PROCESS_SM_UTIL") == 23


def test_process_on_a_gpu_that_was_given_to_another_container_is_illegal() -> None:
    found = samples(reading(process()), by_gpu={"GPU-a": (OTHER,)}, by_pid={101: BERT})
    (line,) = found["ILLEGAL_PROCESS_SM_UTIL"]
    assert 'PodName="bert-0"' in line
    assert "PROCESS_SM_UTIL" not in found


def test_process_is_legal_where_no_allocation_is_known() -> None:
    assert "PROCESS_SM_UTIL" in samples(reading(process()), by_pid={101: BERT})


def test_memory_that_the_driver_does_not_tell_is_left_out() -> None:
    found = samples(reading(process(memory=None)), by_pid={101: BERT})
    assert "PROCESS_MEM_USED" not in found
    assert "PROCESS_SM_UTIL" in found


def test_unknown_size_of_a_card_is_left_out() -> None:
    found = samples(reading(total=None), by_gpu={"GPU-a": (BERT,)})
    assert "DEV_FB_TOTAL" not in found
    assert "CONTAINER_MEM_ALLOCATED" not in found
    assert value(found, "CONTAINER_CP_ALLOCATED") == 1


def test_lost_gpu_has_no_series_and_still_counts_as_allocated() -> None:
    lost = GpuReading(reading().gpu, 0, {}, {"DCGM_FI_DEV_FB_TOTAL": "the GPU is lost"})
    found = samples(lost, by_gpu={"GPU-a": (BERT,)})
    assert found.keys() == {"ALLOCATE_MODE"}
    assert value(found, "ALLOCATE_MODE") == 1


def device_lines(by_gpu):
    counters = load_counters("DCGM_FI_DEV_GPU_UTIL, gauge, Busy.", "my.csv")
    families = with_ack_labels([reading()], counters, Attribution(by_gpu), OPTIONS)
    return render_text(families).splitlines()[2:]


def test_device_fields_of_a_free_gpu_are_labelled_as_ack_does() -> None:
    assert device_lines({}) == [
        f'DCGM_FI_DEV_GPU_UTIL{{Hostname="cn-beijing.192.168.94.107",{NODE},PodSource="ecs",{CARD}}} 23'
    ]


def test_device_fields_of_an_allocated_gpu_name_its_pod() -> None:
    assert device_lines({"GPU-a": (BERT,)}) == [
        'DCGM_FI_DEV_GPU_UTIL{ContainerName="bert-container",Hostname="cn-beijing.192.168.94.107",'
        f'NamespaceName="default",{NODE},PodName="bert-0",PodSource="ecs",{CARD}}} 23'
    ]


def test_device_fields_of_a_shared_gpu_name_no_pod() -> None:
    assert device_lines({"GPU-a": (BERT, OTHER)}) == device_lines({})


WHOLE = ContainerRef("default", "whole-0", "main")


def test_parts_of_a_gpu_are_served_with_what_was_granted() -> None:
    grants = {"GPU-a": {BERT: Grant(memory_part=0.25, cores_percent=30), OTHER: Grant(4096)}}
    found = samples(reading(), by_gpu={"GPU-a": (BERT, OTHER)}, grants=grants)
    assert [line.rsplit(" ", 1)[1] for line in found["CONTAINER_MEM_ALLOCATED"]] == ["4096", "4096"]
    assert [line.rsplit(" ", 1)[1] for line in found["CONTAINER_CP_ALLOCATED"]] == ["0.3", "0"]
    assert value(found, "DEV_FB_ALLOCATED") == 0.5
    assert value(found, "ALLOCATE_MODE") == 2


def test_one_part_alone_shares_its_gpu_too() -> None:
    found = samples(reading(), by_gpu={"GPU-a": (BERT,)}, grants={"GPU-a": {BERT: Grant(4096)}})
    assert value(found, "CONTAINER_MEM_ALLOCATED") == 4096
    assert 'AllocateMode="share"' in found["CONTAINER_MEM_ALLOCATED"][0]


def test_process_of_a_part_stays_legal_when_a_whole_gpu_is_handed_out_on_the_node() -> None:
    # Otherwise the metric that a workload is scaled by changes its name when a neighbour comes.
    gpus = (reading(process()), reading(uuid="GPU-b", index=1))
    found = samples(
        *gpus,
        by_gpu={"GPU-a": (BERT,), "GPU-b": (WHOLE,)},
        by_pid={101: BERT},
        grants={"GPU-a": {BERT: Grant(4096)}},
    )
    assert value(found, "PROCESS_SM_UTIL") == 23
    assert not any("ILLEGAL" in name for name in found)


def test_process_with_a_part_of_a_gpu_that_is_not_known_is_legal() -> None:
    found = samples(
        reading(process()), by_gpu={"GPU-b": (WHOLE,)}, by_pid={101: BERT}, unplaced=(BERT,)
    )
    assert value(found, "PROCESS_SM_UTIL") == 23
    assert value(found, "ALLOCATE_MODE") == 2
    assert not any("ILLEGAL" in name for name in found)
