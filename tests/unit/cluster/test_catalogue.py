"""The catalogue of instance types: what clouds say of theirs, and files that add to it."""

from fractions import Fraction

import pytest

from gpuscale.agent.gpu import MODELS
from gpuscale.base.errors import ConfigError
from gpuscale.hpa.cluster.catalogue.instance_types import (
    CLOUDS,
    built_in,
    parse_instance_types,
    types_of,
)
from gpuscale.ops.providers import BUILT_IN

TYPES = built_in()
T4, A10, L4, L40S = "Tesla T4", "NVIDIA A10", "NVIDIA L4", "NVIDIA L40S"
H100, RTX = "NVIDIA H100 80GB HBM3", "NVIDIA RTX PRO 6000 Blackwell Server Edition"

# Karpenter's reference of AWS instance types and its price table of 2026-07-20; Cluster Autoscaler's table of
# Azure's and the prices of karpenter-provider-azure of 2026-06-18; Google's page on machine types and the
# prices of karpenter-provider-gcp of 2026-08-03; Alibaba's page on GPU families and the prices of
# karpenter-provider-alibabacloud of 2024-10-10; Oracle's page on shapes, and 744 times less than the price
# for a month that karpenter-provider-oci has.
STATED = [
    ("g4dn.12xlarge", "4", T4, 48, "192Gi", 3.912),
    ("g5.48xlarge", "8", "NVIDIA A10G", 192, "768Gi", 16.288),
    ("g6.xlarge", "1", L4, 4, "16Gi", 0.8048),
    ("g6e.2xlarge", "1", L40S, 8, "64Gi", 2.24208),
    ("g6f.large", "1/8", L4, 2, "8Gi", 0.202),  # 2 861 of 22 888 MiB
    ("g7e.12xlarge", "2", RTX, 48, "512Gi", 8.28608),
    ("p3.16xlarge", "8", "Tesla V100-SXM2-16GB", 64, "488Gi", 24.48),
    ("p4de.24xlarge", "8", "NVIDIA A100-SXM4-80GB", 96, "1152Gi", 27.44705),
    ("p5.48xlarge", "8", H100, 192, "2Ti", 55.04),
    ("p5e.48xlarge", "8", "NVIDIA H200", 192, "2Ti", None),
    ("Standard_NV6ads_A10_v5", "1/6", A10, 6, "55Gi", 0.454),
    ("Standard_NV12ads_A10_v5", "1/3", A10, 12, "110Gi", 0.908),
    ("Standard_NV18ads_A10_v5", "1/2", A10, 18, "220Gi", 1.6),
    ("Standard_NC4as_T4_v3", "1", T4, 4, "28Gi", 0.526),
    ("Standard_NC24ads_A100_v4", "1", "NVIDIA A100 80GB PCIe", 24, "220Gi", 3.673),
    ("Standard_NC80adis_H100_v5", "2", "NVIDIA H100 NVL", 80, "640Gi", 13.96),
    ("Standard_ND96isr_H200_v5", "8", "NVIDIA H200", 96, "1850Gi", 84.8),
    ("g2-standard-24", "2", L4, 24, "96Gi", 2.000833),
    ("a2-ultragpu-1g", "1", "NVIDIA A100-SXM4-80GB", 12, "170Gi", 5.068798),
    ("a3-highgpu-8g", "8", H100, 208, "1872Gi", 88.49),
    ("ecs.gn7i-c8g1.2xlarge", "1", A10, 8, "30Gi", 9.5326),
    ("ecs.gn6v-c8g1.8xlarge", "4", "Tesla V100-SXM2-16GB", 32, "128Gi", 105.84),
    ("VM.GPU.A10.1", "1", A10, 30, "240Gi", 2.0),  # 1 488 a month
    ("BM.GPU.H100.8", "8", H100, 224, "2Ti", 80.0),  # 59 520 a month
    ("BM.GPU.GB200.4", "4", "NVIDIA GB200", 144, "960Gi", 64.0),  # Arm: a core is a vCPU
]


@pytest.mark.parametrize(("name", "gpus", "model", "cpu", "memory", "price"), STATED)
def test_a_type_is_what_its_cloud_says(name, gpus, model, cpu, memory, price) -> None:
    found = TYPES[name]
    assert (found.gpus, found.gpu_model) == (Fraction(gpus), model)
    assert (found.cpu.value(), str(found.memory)) == (cpu, memory)
    assert found.price.per_hour == price


def test_a_fraction_counts_as_no_gpu_as_in_both_autoscalers() -> None:
    assert TYPES["g6f.4xlarge"].whole_gpus == 0
    assert TYPES["g6.12xlarge"].whole_gpus == 4


def test_each_price_has_its_currency_region_day_and_source() -> None:
    for each in TYPES.values():
        price = each.price
        if price.per_hour is not None:
            assert all((price.currency, price.region, price.date, price.source)), each.name
    assert {each.price.currency for each in types_of("alibaba").values()} == {"CNY"}


def test_names_are_of_one_cloud() -> None:
    assert sum(len(types_of(cloud)) for cloud in CLOUDS) == len(TYPES)


def test_models_are_those_that_can_be_simulated() -> None:
    strange = {each.gpu_model for each in TYPES.values()} - {each.name for each in MODELS.values()}
    assert strange == {"NVIDIA RTX PRO 4500 Blackwell Server Edition"}


def test_the_label_of_eks_has_the_types_of_the_catalogue() -> None:
    (eks,) = (each for each in BUILT_IN if each.name == "eks")
    (label,) = (each for each in eks.node_labels if each.key == "node.kubernetes.io/instance-type")
    assert label.values == tuple(types_of("aws"))


def test_a_row_changes_what_it_states() -> None:
    found = parse_instance_types("name,pricePerHour\ng6.xlarge,0.52\n", "p.csv")["g6.xlarge"]
    assert (found.gpu_model, found.price.per_hour, found.price.currency) == (L4, 0.52, "USD")
    # Nobody says where the new price is from.
    assert (found.price.region, found.price.date, found.price.source) == ("", "", "")


def test_a_row_adds_a_type() -> None:
    text = "name,gpuModel,gpus,cpu,memory\n# ours\n\nm9.xlarge,NVIDIA L4,2,16,64Gi\n"
    found = parse_instance_types(text, "p.csv")["m9.xlarge"]
    assert (found.whole_gpus, str(found.memory), found.price.per_hour) == (2, "64Gi", None)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "p.csv:1: found '', expected a first line with columns"),
        ("name,pricePerHours\n", "p.csv:1: pricePerHours: one of the columns name, "),
        ("name,cpu,cpu\n", "p.csv:1: cpu: found the column twice, expected each column once"),
        ("name,cpu\nm9,4\n", "p.csv:2: found 'm9', expected gpuModel, gpus, memory too"),
        ("name,cpu\n,4\n", "p.csv:2: name: found an empty cell, expected the name"),
        ("name,cpu\ng6.xlarge\n", "p.csv:2: found 1 cells, expected 2"),
        ("name,cpu\ng6.xlarge,x\n", "p.csv:2: cpu: found 'x', expected an amount above 0"),
        ("name,gpus\ng6.xlarge,1.5\n", "p.csv:2: gpus: found '1.5', expected a number of GPUs"),
        ("name,gpus\ng6.xlarge,1/0\n", "p.csv:2: gpus: found '1/0', expected more than 0 GPUs"),
        ("name,date\ng6.xlarge,May\n", "p.csv:2: date: found 'May', expected a day such as"),
        ("name,currency\ng6.xlarge,EUR\n", "p.csv:2: currency: found 'EUR', expected a price in"),
        ("name,pricePerHour\ng6.xlarge,-1\n", "p.csv:2: pricePerHour: found '-1', expected a"),
        ("name,capacityTypes\ng6.xlarge,cheap\n", "p.csv:2: capacityTypes: found 'cheap'"),
        ('name,cpu\ng6.xlarge,"4\n', "p.csv:2: found unexpected end of data"),
    ],
)
def test_a_fault_names_line_column_and_what_belongs_there(text, message) -> None:
    with pytest.raises(ConfigError) as error:
        parse_instance_types(text, "p.csv")
    assert str(error.value).startswith(message)


def test_all_faults_are_named_at_once() -> None:
    text = "name,cpu,date\ng6.xlarge,x,May\ng6.xlarge,4,\n"
    with pytest.raises(ConfigError) as error:
        parse_instance_types(text, "p.csv")
    assert [(each.line, each.field) for each in error.value.problems] == [
        (2, "date"),
        (2, "cpu"),
        (3, "name"),
    ]
