"""What is known of series by their names."""

from dataclasses import replace

import pytest

from gpuscale.agent.formats import ack
from gpuscale.signals import (
    FIELDS,
    NEW_NAMES,
    closest_series,
    facts_of,
    impossible,
    is_of_gpu,
    is_unknown_gpu_name,
    range_of,
    recorded_from,
)
from gpuscale.signals.amd.families import amd_family_meanings
from gpuscale.signals.series_facts import SeriesFacts
from impossible import CORRUPTIONS, POSSIBLE, SERIES


@pytest.mark.parametrize(
    ("name", "facts"),
    [
        # Units as NVIDIA's, Alibaba's, AMD's and vLLM's documents have them.
        ("DCGM_FI_DEV_GPU_UTIL", SeriesFacts("%", "gauge")),
        ("DCGM_FI_PROF_GR_ENGINE_ACTIVE", SeriesFacts("ratio", "gauge")),
        ("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", SeriesFacts("mJ", "counter")),
        ("DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", SeriesFacts("", "counter")),
        ("DCGM_CUSTOM_PROCESS_SM_UTIL", SeriesFacts("%", "gauge")),
        ("gpu_gfx_activity", SeriesFacts("%", "gauge")),
        ("vllm:gpu_cache_usage_perc", SeriesFacts("ratio", "gauge", of_gpu=False)),
        ("requests_total", SeriesFacts("", "counter", of_gpu=False, is_guessed=True)),
        ("queue", None),
    ],
)
def test_facts(name: str, facts) -> None:
    known = facts_of(name)
    assert (None if known is None else replace(known, range=None)) == facts


def test_a_field_under_its_newer_name_has_the_newer_unit() -> None:
    known = facts_of(NEW_NAMES["DCGM_FI_DEV_ENC_UTIL"].name)
    assert known is not None
    assert (known.unit, known.highest) == ("ratio", 1.0)


def test_everything_that_a_node_agent_serves_is_known() -> None:
    newer = {NEW_NAMES[name].name for name in FIELDS if name in NEW_NAMES}
    for name in {*FIELDS, *newer, *ack.ALL_NAMES, *amd_family_meanings()}:
        assert facts_of(name) is not None, name
        assert not is_unknown_gpu_name(name)


def test_names_that_only_look_like_a_gpus() -> None:
    assert is_unknown_gpu_name("DCGM_FI_DEV_GPU_UTL")
    assert closest_series("DCGM_FI_DEV_GPU_UTL") == "DCGM_FI_DEV_GPU_UTIL"
    assert recorded_from("DCGM_FI_DEV_GPU_UTIL_AVG") == "DCGM_FI_DEV_GPU_UTIL"
    assert recorded_from("queue_AVG") is None
    assert not is_unknown_gpu_name("queue")


def test_series_that_end_with_the_work_on_a_gpu() -> None:
    assert is_of_gpu("DCGM_FI_DEV_GPU_UTIL")
    assert is_of_gpu("DCGM_FI_DEV_GPU_UTIL_AVG")
    assert not is_of_gpu("vllm:kv_cache_usage_perc")
    assert not is_of_gpu("queue")


@pytest.mark.parametrize("name", SERIES)
def test_what_comes_in_place_of_a_reading_is_none(name: str) -> None:
    assert {why for why, value in CORRUPTIONS.items() if impossible(name, value) is None} == set()
    assert impossible(name, POSSIBLE) is None


@pytest.mark.parametrize(
    ("name", "value"),
    [
        # nvmlDeviceGetFanSpeed: "may exceed 100% in certain cases".
        ("DCGM_FI_DEV_FAN_SPEED", 130),
        # nvmlDeviceGetMemoryInfo before version 2 counts what the driver keeps as used.
        ("DCGM_FI_DEV_FB_USED_PERCENT", 1.03),
        ("DCGM_FI_DEV_GPU_TEMP", -5),
        # How far it is below the limit: nothing is left, and more.
        ("DCGM_FI_DEV_GPU_TEMP_LIMIT", -3),
        # A day of 700 W in mJ, 30 days of 900 GB/s in bytes, 100 years in ns.
        ("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", 86_400 * 700_000),
        ("DCGM_FI_DEV_NVLINK_COUNT_TX_BYTES", 30 * 86_400 * 900e9),
        ("DCGM_FI_DEV_POWER_VIOLATION", 100 * 365 * 86_400e9),
        # An agent's own counters, and a checksum of 32 bits.
        ("DCGM_FI_DEV_PCIE_REPLAY_COUNTER", 4294967295),
        ("DCGM_FI_DEV_INFOROM_CONFIG_CHECK", 4294967295),
        # AMD's names are such as anybody may choose: mW, bytes.
        ("gpu_power_usage", 300_000),
        ("gpu_used_vram", 80 * 2**30),
        # TensorRT-LLM has counts of blocks beside the share.
        ("nv_trt_llm_kv_cache_block_metrics", 2048),
        ("vllm:num_requests_waiting", 808334905),
        ("DCGM_FI_DEV_GPU_UTIL_SUM", 800),
        ("my_gpu_util", 4294967295),
        ("DCGM_FI_DEV_GPU_UTIL_OF_MINE", 4294967295),
        ("requests_total", -1),
        ("DCGM_FI_DEV_GPU_UTIL", float("nan")),
    ],
)
def test_what_a_series_can_have_stays(name: str, value: float) -> None:
    assert impossible(name, value) is None


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("DCGM_FI_DEV_GPU_UTIL", 101, "can't be 101: it is 0 to 100 %"),
        ("DCGM_FI_DEV_GPU_UTIL_AVG", 101, "can't be 101: it is 0 to 100 %"),
        ("DCGM_FI_DEV_GPU_UTIL_SUM", -1, "can't be -1: it is 0 or more %"),
        ("DCGM_FI_PROF_SM_ACTIVE", float("inf"), "can't be inf: it is 0 to 1.1 ratio"),
        ("DCGM_FI_DEV_XID_ERRORS", 2**63, "can't be 9223372036854775808: it is 0 to 2147483631"),
        # danielqsj/kafka_exporter: where the offset of a group is unknown.
        ("kafka_consumergroup_lag", -1, "can't be -1: it is 0 or more"),
    ],
)
def test_a_reason_names_series_value_and_range(name: str, value: float, said: str) -> None:
    assert impossible(name, value) == f"{name} {said}"


def test_a_sum_may_be_of_many_and_is_never_below_zero() -> None:
    assert impossible("DCGM_FI_DEV_GPU_UTIL", 800, summed_of=8) is None
    assert impossible("DCGM_FI_DEV_GPU_UTIL", 801, summed_of=8) is not None
    assert impossible("DCGM_FI_DEV_GPU_UTIL", -1, summed_of=8) is not None


def test_every_number_of_a_node_agent_has_a_range() -> None:
    numbers = [name for name, field in FIELDS.items() if field.kind != "string"]
    assert [name for name in numbers if range_of(name) is None] == []
