"""What is known of series by their names."""

import pytest

from gpuscale.formats import ack
from gpuscale.formats.amd import amd_family_meanings
from gpuscale.formats.names import NEW_NAMES
from gpuscale.formats.series_facts import (
    SeriesFacts,
    closest_series,
    facts_of,
    is_of_gpu,
    is_unknown_gpu_name,
    recorded_from,
)
from gpuscale.gpu.fields import FIELDS


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
    assert facts_of(name) == facts


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
