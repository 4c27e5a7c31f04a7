"""The field table against DCGM's header, and its own order."""

from collections import Counter

import pytest

from gpuscale.signals import FIELDS

# Ids as in dcgm_fields.h of DCGM 4.
KNOWN_IDS = {
    "DCGM_FI_DRIVER_VERSION": 1,
    "DCGM_FI_DEV_SM_CLOCK": 100,
    "DCGM_FI_DEV_MEM_CLOCK": 101,
    "DCGM_FI_DEV_CLOCKS_EVENT_REASONS": 112,
    "DCGM_FI_DEV_MEMORY_TEMP": 140,
    "DCGM_FI_DEV_GPU_TEMP": 150,
    "DCGM_FI_DEV_POWER_USAGE": 155,
    "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION": 156,
    "DCGM_FI_DEV_POWER_USAGE_INSTANT": 157,
    "DCGM_FI_DEV_POWER_MGMT_LIMIT": 160,
    "DCGM_FI_DEV_ENFORCED_POWER_LIMIT": 164,
    "DCGM_FI_DEV_PCIE_TX_THROUGHPUT": 200,
    "DCGM_FI_DEV_PCIE_REPLAY_COUNTER": 202,
    "DCGM_FI_DEV_GPU_UTIL": 203,
    "DCGM_FI_DEV_MEM_COPY_UTIL": 204,
    "DCGM_FI_DEV_ENC_UTIL": 206,
    "DCGM_FI_DEV_DEC_UTIL": 207,
    "DCGM_FI_DEV_XID_ERRORS": 230,
    "DCGM_FI_DEV_POWER_VIOLATION": 240,
    "DCGM_FI_DEV_RELIABILITY_VIOLATION": 245,
    "DCGM_FI_DEV_FB_TOTAL": 250,
    "DCGM_FI_DEV_FB_FREE": 251,
    "DCGM_FI_DEV_FB_USED": 252,
    "DCGM_FI_DEV_FB_RESERVED": 253,
    "DCGM_FI_DEV_FB_USED_PERCENT": 254,
    "DCGM_FI_DEV_ECC_SBE_VOL_TOTAL": 310,
    "DCGM_FI_DEV_ECC_DBE_AGG_TOTAL": 313,
    "DCGM_FI_DEV_ECC_DBE_VOL_TEX": 323,
    "DCGM_FI_DEV_ECC_SBE_AGG_L1": 324,
    "DCGM_FI_DEV_ECC_DBE_VOL_CBU": 337,
    "DCGM_FI_DEV_ECC_SBE_AGG_SHM": 338,
    "DCGM_FI_DEV_ECC_DBE_AGG_SRM": 345,
    "DCGM_FI_DEV_RETIRED_PENDING": 392,
    "DCGM_FI_DEV_ROW_REMAP_FAILURE": 395,
    "DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL": 409,
    "DCGM_FI_DEV_NVLINK_BANDWIDTH_L0": 440,
    "DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL": 449,
    "DCGM_FI_DEV_NVLINK_BANDWIDTH_L11": 480,
    "DCGM_FI_DEV_VGPU_LICENSE_STATUS": 526,
    "DCGM_FI_PROF_GR_ENGINE_ACTIVE": 1001,
    "DCGM_FI_PROF_DRAM_ACTIVE": 1005,
    "DCGM_FI_PROF_PCIE_TX_BYTES": 1009,
    "DCGM_FI_PROF_PIPE_INT_ACTIVE": 1016,
    "DCGM_FI_PROF_NVOFA1_ACTIVE": 1034,
    "DCGM_FI_PROF_NVLINK_L17_RX_BYTES": 1075,
    "DCGM_FI_PROF_C2C_TX_ALL_BYTES": 1076,
    "DCGM_FI_PROF_PEERMEM_CACHE_MISS": 1083,
}


@pytest.mark.parametrize(("name", "field_id"), KNOWN_IDS.items())
def test_field_has_the_id_of_the_dcgm_header(name, field_id) -> None:
    assert FIELDS[name].id == field_id


def test_only_the_renamed_clock_reasons_share_an_id() -> None:
    counts = Counter(field.id for field in FIELDS.values())
    shared = {field.name for field in FIELDS.values() if counts[field.id] > 1}
    assert shared == {"DCGM_FI_DEV_CLOCKS_EVENT_REASONS", "DCGM_FI_DEV_CLOCK_THROTTLE_REASONS"}


def test_fields_stand_in_id_order() -> None:
    ids = [field.id for field in FIELDS.values()]
    assert ids == sorted(ids)


def test_profiling_fields_are_those_named_prof() -> None:
    named = {name for name in FIELDS if name.startswith("DCGM_FI_PROF_")}
    assert {field.name for field in FIELDS.values() if field.is_profiling} == named


def test_derived_fields_are_those_of_the_exporter() -> None:
    named = {name for name in FIELDS if name.startswith("DCGM_EXP_")}
    assert {field.name for field in FIELDS.values() if field.is_derived} == named
    assert "DCGM_EXP_XID_ERRORS_COUNT" in named


@pytest.mark.parametrize(
    ("name", "kind", "unit"),
    [
        ("DCGM_FI_DEV_GPU_UTIL", "int", "%"),
        ("DCGM_FI_DEV_POWER_USAGE", "double", "W"),
        ("DCGM_FI_DEV_FB_USED", "int", "MiB"),
        ("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", "int", "mJ"),
        ("DCGM_FI_PROF_GR_ENGINE_ACTIVE", "double", "ratio"),
        ("DCGM_FI_PROF_PCIE_RX_BYTES", "int", "bytes/s"),
        ("DCGM_FI_DRIVER_VERSION", "string", ""),
    ],
)
def test_field_has_dcgms_kind_and_unit(name: str, kind: str, unit: str) -> None:
    assert (FIELDS[name].kind, FIELDS[name].unit) == (kind, unit)
