"""The metric reference is what the code would write, and names everything that the code serves."""

import re
from pathlib import Path

import pytest

from gpuscale.agent.exporter.families.own_metrics import METRICS
from gpuscale.agent.formats import ack
from gpuscale.agent.nvml.values.plan import READABLE
from gpuscale.signals import DEFAULT_COUNTERS, FIELDS
from gpuscale.signals.amd.families import amd_family_meanings
from metrics_reference import main, nvml_call_of, reference_markdown

PAGE = Path(__file__).parents[2] / "docs" / "metrics.md"
ROW = re.compile(r"^\| `(\w+)` \|", re.MULTILINE)


def sections():
    parts = re.split(r"^## ", reference_markdown(), flags=re.MULTILINE)[1:]
    return {part.partition("\n")[0]: part for part in parts}


def row_of(name):
    (line,) = re.findall(rf"^\| `{name}` \| \d.*$", reference_markdown(), re.MULTILINE)
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_the_page_is_current() -> None:
    fix = "make reference"
    assert PAGE.read_text() == reference_markdown(), f"out of date: run {fix}"


def test_the_page_is_what_the_command_prints(capsys: pytest.CaptureFixture[str]) -> None:
    main()
    assert capsys.readouterr().out == reference_markdown()


def test_every_field_stands_in_one_section() -> None:
    named = [
        name
        for title, text in sections().items()
        if "DCGM fields" in title
        for name in ROW.findall(text)
    ]
    assert sorted(named) == sorted(FIELDS)


def test_the_first_section_is_the_default_file() -> None:
    text = next(text for title, text in sections().items() if "served by default" in title)
    assert set(ROW.findall(text)) == {row.field for row in DEFAULT_COUNTERS}


def test_fields_that_are_commented_out_have_their_own_section() -> None:
    text = next(text for title, text in sections().items() if "switched off" in title)
    assert {
        "DCGM_FI_DEV_POWER_VIOLATION",
        "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL",
        "DCGM_FI_PROF_SM_ACTIVE",
    } <= set(ROW.findall(text))


def test_every_own_family_is_named() -> None:
    names = set(ROW.findall(reference_markdown()))
    assert {f"gpuscale_exporter_{name}" for name in METRICS} <= names
    assert names >= ack.ALL_NAMES
    assert set(amd_family_meanings()) <= names


def test_every_field_that_nvml_gives_names_its_call() -> None:
    assert {name for name in FIELDS if nvml_call_of(name)} >= READABLE


@pytest.mark.parametrize(
    ("field", "cells"),
    [
        # Id, unit, type, print, call and MIG as NVIDIA's documents of DCGM and NVML have them.
        (
            "DCGM_FI_DEV_SM_CLOCK",
            {1: "100", 3: "MHz", 4: "gauge", 6: "`nvmlDeviceGetClockInfo(NVML_CLOCK_SM)`"},
        ),
        ("DCGM_FI_DEV_GPU_UTIL", {1: "203", 3: "%", 8: "no value"}),
        ("DCGM_FI_DEV_FB_USED", {3: "MiB", 5: "whole number", 8: "each instance"}),
        (
            "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE",
            {1: "1004", 5: "six decimals", 6: "`nvmlGpmMetricsGet(5)`", 9: "-"},
        ),
        ("DCGM_FI_DEV_GPU_TEMP", {9: "`amdsmi_get_temp_metric(HOTSPOT or EDGE)`"}),
        ("DCGM_FI_DRIVER_VERSION", {4: "label", 5: "label"}),
    ],
)
def test_rows_say_where_values_come_from(field: str, cells) -> None:
    row = row_of(field)
    assert {at: row[at] for at in cells} == cells


def test_the_page_says_that_amd_was_not_run_on_hardware() -> None:
    assert "not been run on hardware" in reference_markdown()


def test_the_last_line_says_how_to_write_the_page() -> None:
    last = reference_markdown().splitlines()[-1]
    assert "`make reference`" in last
