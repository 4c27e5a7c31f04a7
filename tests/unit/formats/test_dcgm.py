"""DCGM families: label order and values as dcgm-exporter 4.8.2 prints them."""

import pytest

from gpuscale.agent.formats.dcgm import dcgm_families
from gpuscale.agent.formats.labels import FamilyOptions
from gpuscale.agent.gpu.owners import Attribution, ContainerRef
from gpuscale.agent.gpu.readings import GpuIdentity, GpuReading
from gpuscale.base.exposition.write import render_text, six_decimals
from gpuscale.signals import load_counters

UUID = "GPU-2c2f45e8-0000-4000-8000-000000000001"
GPU = GpuIdentity(0, UUID, "00000000:1A:00.0", "NVIDIA H200")
VALUES = {
    "DCGM_FI_DRIVER_VERSION": "570.86.15",
    "DCGM_FI_DEV_SM_CLOCK": 1980,
    "DCGM_FI_DEV_POWER_USAGE": 207.174,
    "DCGM_FI_DEV_GPU_UTIL": 23,
    "DCGM_FI_DEV_XID_ERRORS": 79,
    "DCGM_FI_PROF_GR_ENGINE_ACTIVE": 0.0293987,
}
CSV = """
DCGM_FI_PROF_GR_ENGINE_ACTIVE, gauge, Engine.
DCGM_FI_DEV_SM_CLOCK, gauge, Clock.
DCGM_FI_DRIVER_VERSION, label, Driver.
"""
BERT = ContainerRef(
    "ml", "bert-0", "train", "uid-0", {"app_kubernetes_io_name": "bert", "gpu": "x"}
)


def reading(values=VALUES, gpu=GPU):
    return GpuReading(gpu, 0, values, {})


def owned(*owners):
    return Attribution({UUID: owners})


NOBODY = Attribution()
ONE_GPU = (reading(),)


def text(csv=CSV, owners=NOBODY, readings=ONE_GPU, hostname="n1", **options):
    families = dcgm_families(
        readings, load_counters(csv, "my.csv"), owners, FamilyOptions(hostname, **options)
    )
    return render_text(families, float_text=six_decimals)


def lines(*args, **options):
    return [line for line in text(*args, **options).splitlines() if not line.startswith("#")]


LEADING = (
    f'gpu="0",UUID="{UUID}",pci_bus_id="00000000:1A:00.0",device="nvidia0",modelName="NVIDIA H200"'
)


def test_sample_of_an_owned_gpu_is_laid_out_as_upstream() -> None:
    assert lines(owners=owned(BERT))[0] == (
        f'DCGM_FI_DEV_SM_CLOCK{{{LEADING},Hostname="n1",DCGM_FI_DRIVER_VERSION="570.86.15",'
        'container="train",namespace="ml",pod="bert-0"} 1980'
    )


def test_gpu_without_a_pod_has_no_pod_labels() -> None:
    assert lines()[0] == (
        f'DCGM_FI_DEV_SM_CLOCK{{{LEADING},Hostname="n1",DCGM_FI_DRIVER_VERSION="570.86.15"}} 1980'
    )


def test_k80_of_an_idle_node_reads_as_in_the_aks_and_eks_guides() -> None:
    # The guides' line is of a 2.x exporter; 4.x adds pci_bus_id and drops empty pod labels.
    gpu = GpuIdentity(1, "GPU-f3a2185e", "00000001:00:00.0", "Tesla K80")
    assert lines(
        "DCGM_FI_DEV_GPU_UTIL, gauge, Busy.",
        readings=[reading({"DCGM_FI_DEV_GPU_UTIL": 0}, gpu)],
        hostname="dcgm-exporter-cmhft",
    ) == [
        'DCGM_FI_DEV_GPU_UTIL{gpu="1",UUID="GPU-f3a2185e",pci_bus_id="00000001:00:00.0",'
        'device="nvidia1",modelName="Tesla K80",Hostname="dcgm-exporter-cmhft"} 0'
    ]


def test_doubles_have_six_decimals_and_ints_none() -> None:
    csv = "DCGM_FI_PROF_GR_ENGINE_ACTIVE, gauge, a\nDCGM_FI_DEV_POWER_USAGE, gauge, b\n"
    assert [line.rsplit(" ", 1)[1] for line in lines(csv)] == ["207.174000", "0.029399"]


def test_int_field_prints_plain_even_when_the_reader_gave_a_float() -> None:
    (line,) = lines(
        "DCGM_FI_DEV_GPU_UTIL, gauge, a", readings=[reading({"DCGM_FI_DEV_GPU_UTIL": 7.0})]
    )
    assert line.endswith(" 7")


def test_families_come_in_field_id_order_with_help_and_type() -> None:
    assert [line for line in text().splitlines() if line.startswith("#")] == [
        "# HELP DCGM_FI_DEV_SM_CLOCK Clock.",
        "# TYPE DCGM_FI_DEV_SM_CLOCK gauge",
        "# HELP DCGM_FI_PROF_GR_ENGINE_ACTIVE Engine.",
        "# TYPE DCGM_FI_PROF_GR_ENGINE_ACTIVE gauge",
    ]


def test_xid_carries_its_code_and_message() -> None:
    (line,) = lines("DCGM_FI_DEV_XID_ERRORS, gauge, Xid.", owned(BERT))
    assert line == (
        f'DCGM_FI_DEV_XID_ERRORS{{{LEADING},Hostname="n1",container="train",err_code="79",'
        'err_msg="GPU has fallen off the bus",namespace="ml",pod="bert-0"} 79'
    )


def test_old_namespace_spells_uuid_and_pod_labels_as_before() -> None:
    line = lines(owners=owned(BERT), use_old_namespace=True)[0]
    assert line == (
        f'DCGM_FI_DEV_SM_CLOCK{{{LEADING.replace("UUID", "uuid")},Hostname="n1",'
        'DCGM_FI_DRIVER_VERSION="570.86.15",container_name="train",pod_name="bert-0",'
        'pod_namespace="ml"} 1980'
    )


def test_hostname_is_left_out_when_empty() -> None:
    assert "Hostname" not in lines(hostname="")[0]


def test_blanks_in_the_model_name_can_become_dashes() -> None:
    assert 'modelName="NVIDIA-H200"' in lines(replace_blanks_in_model_name=True)[0]


def test_pod_labels_and_uid_are_added_when_asked_for() -> None:
    plain = lines(owners=owned(BERT))[0]
    assert "pod_uid" not in plain
    assert "kubernetes" not in plain
    # The pod's label `gpu` would clash with the device's own and gives way.
    assert lines(owners=owned(BERT), pod_labels=True, pod_uid=True)[0] == (
        f'DCGM_FI_DEV_SM_CLOCK{{{LEADING},Hostname="n1",DCGM_FI_DRIVER_VERSION="570.86.15",'
        'app_kubernetes_io_name="bert",'
        'container="train",namespace="ml",pod="bert-0",pod_uid="uid-0"} 1980'
    )


def test_gpu_shared_by_pods_keeps_one_sample_that_names_none() -> None:
    other = ContainerRef("ml", "bert-1", "train")
    assert lines(owners=owned(BERT, other)) == lines()


def test_gpu_shared_within_one_pod_names_the_pod_and_no_container() -> None:
    sidecar = ContainerRef("ml", "bert-0", "sidecar")
    line = lines(owners=owned(BERT, sidecar))[0]
    assert line.endswith(',namespace="ml",pod="bert-0"} 1980')
    assert "container=" not in line


def test_container_that_holds_two_shares_counts_once() -> None:
    assert 'container="train"' in lines(owners=owned(BERT, BERT))[0]


def test_absent_value_leaves_the_sample_out_and_an_empty_family_too() -> None:
    bare = reading(
        {"DCGM_FI_DEV_SM_CLOCK": 345}, GpuIdentity(1, "GPU-b", "00000000:27:00.0", "NVIDIA H200")
    )
    csv = "DCGM_FI_DEV_SM_CLOCK, gauge, a\nDCGM_FI_DEV_GPU_UTIL, gauge, b\nDCGM_FI_DEV_FB_USED, gauge, c"
    got = lines(csv, readings=[reading(), bare])
    assert [line.split("{")[0] for line in got] == [
        "DCGM_FI_DEV_SM_CLOCK",
        "DCGM_FI_DEV_SM_CLOCK",
        "DCGM_FI_DEV_GPU_UTIL",
    ]
    assert "DCGM_FI_DEV_FB_USED" not in text(csv)


def test_lost_gpu_has_no_series() -> None:
    lost = GpuReading(GPU, 0, {}, {"DCGM_FI_DEV_SM_CLOCK": "the GPU is lost"})
    assert text(readings=[lost]) == ""


def test_label_rows_may_hold_numbers() -> None:
    csv = "DCGM_FI_DEV_SM_CLOCK, gauge, a\nDCGM_FI_DEV_GPU_UTIL, label, b"
    assert 'DCGM_FI_DEV_GPU_UTIL="23"' in lines(csv)[0]


@pytest.mark.parametrize("type_", ["histogram", "summary"])
def test_types_that_a_lone_number_cannot_have_print_as_untyped(type_: str) -> None:
    assert "# TYPE DCGM_FI_DEV_GPU_UTIL untyped" in text(f"DCGM_FI_DEV_GPU_UTIL, {type_}, Busy.")


def test_ack_labels_can_stand_beside_those_of_dcgm() -> None:
    line = lines(owners=owned(BERT), ack_labels=True, node_pool="np1")[0]
    assert line == (
        f'DCGM_FI_DEV_SM_CLOCK{{{LEADING},Hostname="n1",ContainerName="train",'
        'DCGM_FI_DRIVER_VERSION="570.86.15",NamespaceName="ml",NodeName="n1",NodePoolId="np1",'
        'PodName="bert-0",PodSource="ecs",container="train",namespace="ml",pod="bert-0"} 1980'
    )
