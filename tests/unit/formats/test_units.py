"""The unit of a metric, and targets that were written in another one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuscale.base.quantity import parse_quantity
from gpuscale.hpa.terms.units import UNITS, unit_fault, unit_of, unit_of_query
from gpuscale.series.promql.parse import parse_query

USE, SM, MEMORY = "DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_PROF_SM_ACTIVE", "DCGM_FI_DEV_FB_USED"


@pytest.mark.parametrize(
    ("metric", "target", "meant"),
    [
        (USE, "600m", "60"),
        (f"{USE}_AVG", "300m", "30"),
        (SM, "80", "800m"),
        ("DCGM_FI_DEV_GPU_UTIL_RATIO", "60", "600m"),
        # 12 * 1024; 12 * 10^9 / 2^20 = 11444.09.
        (MEMORY, "12Gi", "12288"),
        (MEMORY, "12G", "11444"),
        (MEMORY, "12", "12288"),
        ("DCGM_FI_DEV_FB_USED_BYTES", "16", "16Gi"),
        ("DCGM_FI_DEV_FB_USED_BYTES", "12288", "12Gi"),
        ("DCGM_FI_DEV_POWER_USAGE", "250k", "250"),
        ("DCGM_FI_DEV_POWER_USAGE", "300m", "300"),
        ("DCGM_FI_DEV_GPU_TEMP", "80k", "80"),
        ("DCGM_FI_DEV_SM_CLOCK", "1.4G", "1400"),
        ("jobs_waiting_bytes", "16", "16Gi"),
        ("cache_usage_ratio", "70", "700m"),
    ],
)
def test_a_target_in_another_unit_is_named_with_what_was_meant(
    metric, target: str, meant: str
) -> None:
    fault = unit_fault(metric, parse_quantity(target))
    assert fault is not None
    assert str(fault.meant) == str(parse_quantity(meant))
    assert f"The target {parse_quantity(target)} is" in fault.what
    assert metric in fault.what
    assert f"Write {fault.meant}" in fault.fix()


@pytest.mark.parametrize(
    ("metric", "target"),
    [
        (USE, "60"),
        (USE, "1"),
        (USE, "250"),  # Out of reach, and in no other unit.
        (SM, "600m"),
        (MEMORY, "12000"),
        ("DCGM_FI_DEV_FB_USED_BYTES", "12Gi"),
        ("jobs_waiting_bytes", "20Ki"),
        ("queue_length", "16"),
        ("requests_total", "600m"),
        ("DCGM_FI_DEV_POWER_USAGE", "250"),
        ("DCGM_FI_DEV_GPU_TEMP", "80"),
    ],
)
def test_a_target_that_makes_sense_is_left_alone(metric, target: str) -> None:
    assert unit_fault(metric, parse_quantity(target)) is None


@given(
    metric=st.sampled_from([USE, SM, MEMORY, "DCGM_FI_DEV_POWER_USAGE", "x_bytes"]),
    milli=st.integers(1, 10**18),
)
def test_what_was_meant_is_never_doubted_itself(metric, milli) -> None:
    fault = unit_fault(metric, parse_quantity(f"{milli}m"))
    if fault is not None:
        assert unit_fault(metric, fault.meant) is None


@pytest.mark.parametrize(
    ("query", "unit"),
    [
        (f"avg by (pod) ({USE})", "%"),
        (f"avg({USE}) / 100", "ratio"),
        (f"100 * max_over_time({SM}[5m])", "%"),
        (f"sum({MEMORY}) * 1048576", "bytes"),
        (f"{MEMORY} / 1024", "GiB"),
        (f"{MEMORY} / ({MEMORY} + DCGM_FI_DEV_FB_FREE)", "ratio"),
        (f"100 * {MEMORY} / ({MEMORY} + DCGM_FI_DEV_FB_FREE)", "%"),
        ("DCGM_FI_DEV_SM_CLOCK * 1000000", "Hz"),
        (f"{USE} and on (pod) kube_pod_labels", "%"),
        (f"{USE} / 7", None),
        (f"count({USE})", None),
        (f"{USE} * {MEMORY}", None),
        (f"rate({MEMORY}[5m])", None),
        (f"{USE} > bool 5", None),
    ],
)
def test_the_unit_of_a_query_follows_its_arithmetic(query: str, unit: str | None) -> None:
    found = unit_of_query(parse_query(query).root)
    assert (found.unit.name if found else None) == unit


def test_a_sum_of_ratios_may_be_above_one() -> None:
    node = parse_query(f"sum by (namespace) ({SM})").root
    assert unit_fault(SM, parse_quantity("80"), unit_of_query(node)) is None


def test_a_unit_from_a_name_alone_is_uncertain() -> None:
    assert [unit_of(name).is_certain for name in (USE, "x_ratio")] == [True, False]
    assert unit_of("DCGM_FI_DEV_GPU_UTIL_SUM").unit is UNITS["%"]
    assert unit_of("x") is None
