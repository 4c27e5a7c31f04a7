"""Counters files: what is read, and the exact text of every complaint."""

from pathlib import Path

import pytest

from gpuscale.base.errors import ConfigError
from gpuscale.signals import (
    DEFAULT_COUNTERS,
    FIELDS,
    Counter,
    list_of_image,
    load_counters,
    read_counters,
)
from gpuscale.signals.counters import MAX_NOTES, MAX_PROBLEMS
from gpuscale.signals.known_fields import known_names

UTIL = "DCGM_FI_DEV_GPU_UTIL"
FB_USED = "DCGM_FI_DEV_FB_USED"


def complaints(text):
    with pytest.raises(ConfigError) as caught:
        load_counters(text, "my.csv")
    return str(caught.value).split("\n")


def test_row_is_field_type_and_help() -> None:
    rows = load_counters(f"{UTIL}, gauge, Busy time (%).", "my.csv")
    assert rows == (Counter(UTIL, "gauge", "Busy time (%).", 1),)


def test_rows_keep_the_order_of_the_file() -> None:
    rows = load_counters(f"{UTIL},gauge,a\n{FB_USED},gauge,b\n", "my.csv")
    assert [row.field for row in rows] == [UTIL, FB_USED]


def test_spaces_around_columns_fall_away() -> None:
    rows = load_counters("  DCGM_FI_DEV_DEC_UTIL ,   gauge  ,  Decoder.  ", "my.csv")
    assert rows == (Counter("DCGM_FI_DEV_DEC_UTIL", "gauge", "Decoder.", 1),)


def test_tabs_stay_part_of_the_column() -> None:
    assert complaints(f"{UTIL},\tgauge, Busy.") == [
        r"my.csv:1: type: found '\tgauge', expected gauge, counter, histogram, summary or label"
        "; did you mean gauge?"
    ]


def test_comments_and_blank_lines_are_passed_over_and_counted() -> None:
    rows = load_counters(
        f"# a, comment\n\n   \n#{FB_USED}, gauge, off\n{UTIL}, gauge, on", "my.csv"
    )
    assert [(row.field, row.line) for row in rows] == [(UTIL, 5)]


def test_quoted_help_may_hold_commas_and_doubled_quotes() -> None:
    rows = load_counters(f'{UTIL}, gauge, "Busy, or ""idle""."', "my.csv")
    assert rows[0].help == 'Busy, or "idle".'


def test_windows_line_ends_and_byte_order_mark_are_understood() -> None:
    rows = load_counters(f"\ufeff# first\r\n{UTIL}, gauge, Busy.\r\n", "my.csv")
    assert rows == (Counter(UTIL, "gauge", "Busy.", 2),)


@pytest.mark.parametrize("type_", ["gauge", "counter", "histogram", "summary", "label"])
def test_every_type_of_dcgm_exporter_is_known(type_: str) -> None:
    assert load_counters(f"{UTIL}, {type_}, Busy.", "my.csv")[0].type == type_


COLUMNS = "expected 3 columns: DCGM field, Prometheus type, help text"
TYPES = "expected gauge, counter, histogram, summary or label"


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        pytest.param(f"{UTIL}, gauge", f"my.csv:1: found 2 columns, {COLUMNS}", id="two columns"),
        pytest.param(UTIL, f"my.csv:1: found 1 column, {COLUMNS}", id="one column"),
        pytest.param(
            f"{UTIL}, gauge, Busy, in percent.",
            f"my.csv:1: found 4 columns, {COLUMNS}; put a help text that holds a comma in double quotes",
            id="comma in help",
        ),
        pytest.param(
            " # not a comment",
            f"my.csv:1: found 1 column, {COLUMNS}; write the # of a comment as the first character"
            " of its line",
            id="comment after a space",
        ),
        pytest.param(
            "DCGM_FI_DEV_GPU_UTL, gauge, Busy.",
            "my.csv:1: field: found 'DCGM_FI_DEV_GPU_UTL', expected the name of a DCGM field"
            "; did you mean DCGM_FI_DEV_GPU_UTIL?",
            id="misspelt field",
        ),
        pytest.param(
            "dcgm_fi_dev_gpu_util, gauge, Busy.",
            "my.csv:1: field: found 'dcgm_fi_dev_gpu_util', expected the name of a DCGM field"
            "; did you mean DCGM_FI_DEV_GPU_UTIL?",
            id="field in lower case",
        ),
        pytest.param(
            "node_load1, gauge, Load.",
            "my.csv:1: field: found 'node_load1', expected the name of a DCGM field",
            id="nothing like a field",
        ),
        pytest.param(
            f"{UTIL}, guage, Busy.",
            f"my.csv:1: type: found 'guage', {TYPES}; did you mean gauge?",
            id="misspelt type",
        ),
        pytest.param(f"{UTIL}, , Busy.", f"my.csv:1: type: found '', {TYPES}", id="no type"),
        pytest.param(
            f'{UTIL}, gauge, "Busy.',
            f"my.csv:1: found a double quote that is not closed on its line, {COLUMNS}",
            id="open quote",
        ),
        pytest.param(
            f'{UTIL}, gauge, "Busy" time',
            f"my.csv:1: found text after a closing double quote, {COLUMNS}",
            id="text after quote",
        ),
    ],
)
def test_bad_row_is_told_with_line_column_and_expectation(text, complaint: str) -> None:
    assert complaints(text) == [complaint]


def test_all_bad_rows_are_told_at_once() -> None:
    assert complaints(f"WRONG, guage, x\n{UTIL}, gauge, fine\n{FB_USED}") == [
        "my.csv:1: field: found 'WRONG', expected the name of a DCGM field",
        f"my.csv:1: type: found 'guage', {TYPES}; did you mean gauge?",
        f"my.csv:3: found 1 column, {COLUMNS}",
    ]


def test_reading_stops_after_many_faults() -> None:
    told = complaints("nonsense\n" * 10_000)
    assert len(told) == MAX_PROBLEMS + 1
    assert told[-1] == "my.csv: reading stopped after 50 faults"


def test_larger_text_than_a_config_map_is_refused() -> None:
    assert complaints("#" * (1024 * 1024 + 1)) == [
        "my.csv: found a larger file, expected at most 1024 KiB"
    ]


def test_long_names_are_shown_in_part() -> None:
    (told,) = complaints("X" * 1000 + ", gauge, Busy.")
    assert told == (f"my.csv:1: field: found '{'X' * 80}…', expected the name of a DCGM field")


# The rows that dcgm-exporter 4.8.2 ships switched on (etc/default-counters.csv), with their types.
SWITCHED_ON = {
    "DCGM_FI_DEV_SM_CLOCK": "gauge",
    "DCGM_FI_DEV_MEM_CLOCK": "gauge",
    "DCGM_FI_DEV_MEMORY_TEMP": "gauge",
    "DCGM_FI_DEV_GPU_TEMP": "gauge",
    "DCGM_FI_DEV_POWER_USAGE": "gauge",
    "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION": "counter",
    "DCGM_FI_DEV_PCIE_REPLAY_COUNTER": "counter",
    "DCGM_FI_DEV_GPU_UTIL": "gauge",
    "DCGM_FI_DEV_MEM_COPY_UTIL": "gauge",
    "DCGM_FI_DEV_ENC_UTIL": "gauge",
    "DCGM_FI_DEV_DEC_UTIL": "gauge",
    "DCGM_FI_DEV_XID_ERRORS": "gauge",
    "DCGM_FI_DEV_FB_FREE": "gauge",
    "DCGM_FI_DEV_FB_USED": "gauge",
    "DCGM_FI_DEV_FB_RESERVED": "gauge",
    "DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL": "counter",
    "DCGM_FI_DEV_VGPU_LICENSE_STATUS": "gauge",
    "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS": "counter",
    "DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS": "counter",
    "DCGM_FI_DEV_ROW_REMAP_FAILURE": "gauge",
    "DCGM_FI_DRIVER_VERSION": "label",
    "DCGM_FI_PROF_GR_ENGINE_ACTIVE": "gauge",
    "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE": "gauge",
    "DCGM_FI_PROF_DRAM_ACTIVE": "gauge",
    "DCGM_FI_PROF_PCIE_TX_BYTES": "gauge",
    "DCGM_FI_PROF_PCIE_RX_BYTES": "gauge",
}


def test_default_counters_are_those_of_dcgm_exporter() -> None:
    assert {row.field: row.type for row in DEFAULT_COUNTERS} == SWITCHED_ON


# The rows of etc/1.x-compatibility-metrics.csv at the same release, with their types.
SWITCHED_ON_1X = {
    "dcgm_sm_clock": "gauge",
    "dcgm_memory_clock": "gauge",
    "dcgm_memory_temp": "gauge",
    "dcgm_gpu_temp": "gauge",
    "dcgm_power_usage": "gauge",
    "dcgm_total_energy_consumption": "counter",
    "dcgm_pcie_replay_counter": "counter",
    "dcgm_gpu_utilization": "gauge",
    "dcgm_mem_copy_utilization": "gauge",
    "dcgm_enc_utilization": "gauge",
    "dcgm_dec_utilization": "gauge",
    "dcgm_xid_errors": "gauge",
    "dcgm_fb_free": "gauge",
    "dcgm_fb_used": "gauge",
    "dcgm_nvlink_bandwidth_total": "counter",
    "dcgm_fi_prof_gr_engine_active": "gauge",
    "dcgm_fi_prof_pipe_tensor_active": "gauge",
    "dcgm_fi_prof_dram_active": "gauge",
    "dcgm_fi_prof_pcie_tx_bytes": "counter",
    "dcgm_fi_prof_pcie_rx_bytes": "counter",
}


@pytest.mark.parametrize(
    ("name", "rows"),
    [
        ("default-counters.csv", SWITCHED_ON),
        # Since the derived rows were taken out, its rows are those of the default list (etc/ at 4.8.2).
        ("dcp-metrics-included.csv", SWITCHED_ON),
        ("1.x-compatibility-metrics.csv", SWITCHED_ON_1X),
    ],
)
def test_lists_of_the_image_are_those_of_dcgm_exporter(name, rows) -> None:
    text = list_of_image(Path("/etc/dcgm-exporter") / name)
    assert text is not None
    assert {row.name: row.type for row in load_counters(text, name)} == rows


@pytest.mark.parametrize(
    "path",
    ["dcp-metrics-included.csv", "/etc/dcp-metrics-included.csv", "/etc/dcgm-exporter/custom.csv"],
)
def test_other_paths_have_no_list(path) -> None:
    assert list_of_image(Path(path)) is None


def test_default_counters_all_have_a_help_text() -> None:
    assert all(row.help for row in DEFAULT_COUNTERS)


def test_rows_that_are_off_by_default_can_be_switched_on() -> None:
    """Taking the # off any commented-out row of the packaged file gives a file that loads."""
    from importlib.resources import files

    text = files("gpuscale.signals").joinpath("default-counters.csv").read_text(encoding="utf-8")
    switched_on = text.replace("# DCGM_", "DCGM_")
    fields = {row.field for row in load_counters(switched_on, "default-counters.csv")}
    assert "DCGM_FI_DEV_POWER_VIOLATION" in fields
    assert len(fields) > len(SWITCHED_ON)
    assert fields <= FIELDS.keys()


def test_every_name_of_dcgm_loads() -> None:
    """Each row alone, so that one bad name can't hide behind another."""
    refused = [
        name for name in known_names() if read_counters(f"{name}, gauge, x", "all.csv").problems
    ]
    assert not refused
    assert len(known_names()) > 684 + 41


@pytest.mark.parametrize(
    ("name", "field"),
    [
        pytest.param("dcgm_gpu_temp", "DCGM_FI_DEV_GPU_TEMP", id="of 1.x"),
        pytest.param("dcgm_fi_prof_sm_active", "DCGM_FI_PROF_SM_ACTIVE", id="of 1.x, profiling"),
        pytest.param(
            "DCGM_FI_DEV_NVLINK_THROUGHPUT_TOTAL",
            "DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL",
            id="renamed in 4.5",
        ),
        pytest.param("DCGM_FI_DEV_GPU_PSTATE", "DCGM_FI_DEV_PSTATE", id="renamed in 4.6"),
        pytest.param("DCGM_FI_DEV_FB_USED_BYTES", "DCGM_FI_DEV_FB_USED", id="another unit in 4.7"),
    ],
)
def test_another_name_of_a_field_reads_it_and_keeps_its_own_name(name: str, field: str) -> None:
    (row,) = load_counters(f"{name}, gauge, x", "my.csv")
    assert (row.field, row.name) == (field, name)


def test_field_twice_is_taken_once_and_told() -> None:
    read = read_counters(f"{UTIL}, gauge, a\n{UTIL}, counter, b", "my.csv")
    assert [(row.type, row.help) for row in read.rows] == [("gauge", "a")]
    assert read.notes == (f"my.csv:2: {UTIL} stands on line 1 already",)
    assert not read.problems


def test_many_such_rows_are_counted() -> None:
    read = read_counters(f"{UTIL}, gauge, a\n" * 10_001, "my.csv")
    assert read.notes[-1] == f"my.csv: {10_000 - MAX_NOTES} more rows are like these"
    assert len(read.notes) == MAX_NOTES + 1


def test_text_as_a_number_is_taken_and_told() -> None:
    read = read_counters("DCGM_FI_DRIVER_VERSION, gauge, Driver.", "my.csv")
    assert len(read.rows) == 1
    assert "take the type label" in read.notes[0]


@pytest.mark.parametrize("text", ["", "# nothing\n", "\n\n"])
def test_a_file_without_rows_serves_nothing(text: str) -> None:
    assert load_counters(text, "my.csv") == ()


def test_good_rows_are_told_from_bad_ones() -> None:
    read = read_counters(f"{UTIL}, gauge, a\nnode_load1, gauge, b\n{FB_USED}, gauge, c", "my.csv")
    assert [row.field for row in read.rows] == [UTIL, FB_USED]
    assert len(read.problems) == 1


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("DCGM_FI_DEV_NVLINK_BANDWIDTH_L99", id="another link"),
        pytest.param("DCGM_FI_DEV_SRM_LIMIT", id="another thing"),
        pytest.param("DCGM_FI_DEV_SOMETHING_ELSE", id="nothing alike"),
    ],
)
def test_no_guess_across_meanings(name: str) -> None:
    (problem,) = read_counters(f"{name}, gauge, x", "my.csv").problems
    assert problem.fix is None


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        # What dcgm-exporter 4.8.2's own parser makes of the same files; None where it ends with an error.
        pytest.param(f"{UTIL},\tgauge, x", None, id="tab before the type"),
        pytest.param(f"   {UTIL}  ,  gauge ,  x  ", 1, id="spaces"),
        pytest.param(f"{UTIL}, gauge, x\r\n", 1, id="Windows line end"),
        pytest.param(f"{UTIL}, histogram, x", 1, id="histogram"),
        pytest.param(f"{UTIL}, gauge,", 1, id="no help"),
        pytest.param("DCGM_FI_UNKNOWN, gauge, x", 1, id="unknown field"),
        pytest.param("DCGM_FI_DRIVER_VERSION, gauge, x", 1, id="text as gauge"),
        pytest.param("dcgm_gpu_temp, gauge, x", 1, id="name of 1.x"),
        pytest.param("dcgm_fi_dev_gpu_util, gauge, x", None, id="small letters"),
        pytest.param(f"{UTIL}, guage, x", None, id="misspelt type"),
        pytest.param("DCGM_EXP_XID_ERRORS_COUNT, foo, x", 1, id="any type of a derived field"),
        pytest.param("", 0, id="empty"),
    ],
)
def test_outcome_is_dcgm_exporters(text: str, rows: int | None) -> None:
    read = read_counters(text, "my.csv")
    assert (None if read.problems else len(read.rows)) == rows
