# mypy: disable-error-code="arg-type"
"""Newer names and units beside the older ones, MIG labels, spellings of the hostname, derived counters."""

import pytest

from gpuscale.agent.formats.dcgm import dcgm_families
from gpuscale.agent.formats.labels import FamilyOptions
from gpuscale.agent.gpu.owners import Attribution, ContainerRef
from gpuscale.agent.gpu.readings import EventCount, GpuIdentity, GpuInstance, GpuReading
from gpuscale.base.exposition.parse import parse_text
from gpuscale.base.exposition.write import render_text, six_decimals
from gpuscale.signals import DEFAULT_COUNTERS, FIELDS, NEW_NAMES, load_counters

GPU = GpuIdentity(0, "GPU-a", "00000000:1A:00.0", "NVIDIA H200")
SLICE = GpuIdentity(
    0, "GPU-a", "00000000:1A:00.0", "NVIDIA H200", GpuInstance(9, "1g.18gb", "MIG-b")
)
LEADING = (
    'gpu="0",UUID="GPU-a",pci_bus_id="00000000:1A:00.0",device="nvidia0",modelName="NVIDIA H200"'
)
DRIVER = {"DCGM_FI_DRIVER_VERSION": "570.86.15"}
CSV = "{}, {}, Help.\nDCGM_FI_DRIVER_VERSION, label, Driver.\n"


def lines(field, value, names, type_="gauge", gpu=GPU, owners=None, **options):
    readings = [GpuReading(gpu, 0, {**DRIVER, field: value}, {})]
    counters = load_counters(CSV.format(field, type_), "my.csv")
    owners = Attribution(owners or {})
    families = dcgm_families(
        readings, counters, owners, FamilyOptions("n1", names=names, **options)
    )
    return render_text(families, float_text=six_decimals).splitlines()


@pytest.mark.parametrize(
    ("field", "value", "name", "printed"),
    [
        ("DCGM_FI_DEV_SM_CLOCK", 1980, "DCGM_FI_DEV_SM_CLOCK_HERTZ", "1980000000"),
        # 12 345 mJ are 12 whole joules.
        (
            "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION",
            12_345,
            "DCGM_FI_DEV_GPU_ENERGY_JOULES_TOTAL",
            "12",
        ),
        ("DCGM_FI_DEV_GPU_UTIL", 23, "DCGM_FI_DEV_GPU_UTIL_RATIO", "0.230000"),
        ("DCGM_FI_DEV_MEM_COPY_UTIL", 7, "DCGM_FI_DEV_MEMORY_UTIL_RATIO", "0.070000"),
        # 2 MiB = 2 x 1024 x 1024.
        ("DCGM_FI_DEV_FB_USED", 2, "DCGM_FI_DEV_FB_USED_BYTES", "2097152"),
        # 1 MB/s of the older field is 1000 KiB/s.
        (
            "DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL",
            1,
            "DCGM_FI_DEV_NVLINK_THROUGHPUT_BYTES_PER_SECOND",
            "1024000",
        ),
        # 1 500 000 000 ns.
        (
            "DCGM_FI_DEV_POWER_VIOLATION",
            1_500_000_000,
            "DCGM_FI_DEV_GPU_POWER_THROTTLE_SECONDS_TOTAL",
            "1.500000",
        ),
        ("DCGM_FI_DEV_GPU_TEMP", 45, "DCGM_FI_DEV_GPU_TEMP_CELSIUS", "45"),
        ("DCGM_FI_DEV_POWER_USAGE", 75.0, "DCGM_FI_DEV_BOARD_POWER_WATTS", "75.000000"),
        ("DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", 0.5, "DCGM_FI_PROF_TENSOR_UTIL_RATIO", "0.500000"),
        ("DCGM_FI_PROF_PCIE_TX_BYTES", 8, "DCGM_FI_PROF_PCIE_TX_BYTES", "8"),
    ],
)
def test_newer_names_have_their_units(field: str, value: float, name: str, printed: str) -> None:
    assert lines(field, value, "4.9")[-1] == (
        f'{name}{{{LEADING},hostname="n1",DCGM_FI_SYSTEM_DRIVER_VERSION="570.86.15"}} {printed}'
    )


def test_newer_xid_keeps_its_message() -> None:
    (line,) = [line for line in lines("DCGM_FI_DEV_XID_ERRORS", 79, "4.9") if line[0] != "#"]
    assert line.startswith("DCGM_FI_DEV_XID_ERROR{")
    assert 'err_code="79",err_msg="GPU has fallen off the bus"' in line


def test_help_of_a_newer_name_names_the_newer_unit() -> None:
    assert lines("DCGM_FI_DEV_SM_CLOCK", 1980, "4.9")[:2] == [
        "# HELP DCGM_FI_DEV_SM_CLOCK_HERTZ Current SM clock (Hz).",
        "# TYPE DCGM_FI_DEV_SM_CLOCK_HERTZ gauge",
    ]
    assert lines("DCGM_FI_DEV_GPU_TEMP", 45, "4.9")[0] == (
        "# HELP DCGM_FI_DEV_GPU_TEMP_CELSIUS Help."
    )


def test_nvlink_throughput_is_a_gauge_under_its_newer_name() -> None:
    told = lines("DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL", 1, "4.9", "counter")
    assert told[1] == "# TYPE DCGM_FI_DEV_NVLINK_THROUGHPUT_BYTES_PER_SECOND gauge"


def test_both_names_stand_side_by_side_each_with_its_own_labels() -> None:
    assert [line for line in lines("DCGM_FI_DEV_GPU_UTIL", 23, "both") if line[0] != "#"] == [
        f'DCGM_FI_DEV_GPU_UTIL{{{LEADING},Hostname="n1",DCGM_FI_DRIVER_VERSION="570.86.15"}} 23',
        f'DCGM_FI_DEV_GPU_UTIL_RATIO{{{LEADING},hostname="n1",'
        'DCGM_FI_SYSTEM_DRIVER_VERSION="570.86.15"} 0.230000',
    ]


def test_name_that_stayed_is_served_once() -> None:
    assert len(lines("DCGM_FI_PROF_PCIE_TX_BYTES", 8, "both")) == 3


@pytest.mark.parametrize("names", ["4.9", "both"])
def test_newer_families_come_by_name_each_once(names: str) -> None:
    values = {
        row.field: "x" if FIELDS[row.field].kind == "string" else 1 for row in DEFAULT_COUNTERS
    }
    families = dcgm_families(
        [GpuReading(GPU, 0, values, {})],
        DEFAULT_COUNTERS,
        Attribution(),
        FamilyOptions("n1", names=names),
    )
    found = [family.name for family in families]
    assert found == sorted(set(found))
    assert len(parse_text(render_text(families))) == len(families)


def test_default_list_has_the_23_renamed_fields_of_4_9() -> None:
    # 23 is what the release notes of 4.7.0-4.9.0 say; 11 of them changed their unit.
    renamed = [NEW_NAMES[row.field] for row in DEFAULT_COUNTERS if row.field in NEW_NAMES]
    assert len(renamed) == 23
    assert len([new for new in renamed if new.unit]) == 11


def test_every_renamed_field_is_a_field_and_no_newer_name_is_an_older_one() -> None:
    assert set(NEW_NAMES) <= set(FIELDS)
    newer = [new.name for new in NEW_NAMES.values()]
    assert len(set(newer)) == len(newer)
    assert not set(newer) & set(FIELDS)


@pytest.mark.parametrize(
    ("labels", "printed"),
    [
        (("Hostname",), 'Hostname="n1"'),
        (("hostname",), 'hostname="n1"'),
        (("Hostname", "hostname"), 'Hostname="n1",hostname="n1"'),
    ],
)
@pytest.mark.parametrize("names", ["4.8", "4.9"])
def test_spelling_of_the_hostname_can_be_chosen(
    labels: tuple[str, ...], printed: str, names: str
) -> None:
    line = lines("DCGM_FI_DEV_GPU_TEMP", 45, names, hostname_labels=labels)[-1]
    assert f'modelName="NVIDIA H200",{printed},DCGM_FI_' in line


def test_mig_sample_names_its_instance_and_the_parents_uuid() -> None:
    owner = ContainerRef("ml", "bert-0", "main")
    line = lines("DCGM_FI_DEV_FB_USED", 3, "4.8", gpu=SLICE, owners={"MIG-b": (owner,)})[-1]
    assert line == (
        f'DCGM_FI_DEV_FB_USED{{{LEADING},GPU_I_PROFILE="1g.18gb",GPU_I_ID="9",Hostname="n1",'
        'DCGM_FI_DRIVER_VERSION="570.86.15",container="main",namespace="ml",pod="bert-0"} 3'
    )


def test_owner_of_the_whole_gpu_is_not_that_of_its_instance() -> None:
    owner = ContainerRef("ml", "bert-0", "main")
    assert (
        "pod="
        not in lines("DCGM_FI_DEV_FB_USED", 3, "4.8", gpu=SLICE, owners={"GPU-a": (owner,)})[-1]
    )


def test_counted_events_stand_among_the_labels_before_the_pods() -> None:
    window = ("window_size_in_ms", "300000")
    events = (
        EventCount("DCGM_EXP_CLOCK_EVENTS_COUNT", (window, ("clock_event", "gpu_idle")), 2),
        EventCount("DCGM_EXP_CLOCK_EVENTS_COUNT", (window, ("clock_event", "sw_thermal")), 1),
    )
    csv = CSV.format("DCGM_EXP_CLOCK_EVENTS_COUNT", "gauge")
    families = dcgm_families(
        [GpuReading(GPU, 0, DRIVER, {}, events=events)],
        load_counters(csv, "my.csv"),
        Attribution({"GPU-a": (ContainerRef("ml", "bert-0", "main"),)}),
        FamilyOptions("home"),
    )
    pod = 'container="main",namespace="ml",pod="bert-0"'
    # The order is that of the example in dcgm-exporter's pull request 261, with the pod after it.
    assert render_text(families).splitlines()[2:] == [
        f'DCGM_EXP_CLOCK_EVENTS_COUNT{{{LEADING},Hostname="home",DCGM_FI_DRIVER_VERSION="570.86.15",'
        f'clock_event="gpu_idle",window_size_in_ms="300000",{pod}}} 2',
        f'DCGM_EXP_CLOCK_EVENTS_COUNT{{{LEADING},Hostname="home",DCGM_FI_DRIVER_VERSION="570.86.15",'
        f'clock_event="sw_thermal",window_size_in_ms="300000",{pod}}} 1',
    ]


def test_lost_gpu_still_tells_its_xids() -> None:
    lost = GpuReading(
        GPU, 0, {}, {}, events=(EventCount("DCGM_EXP_XID_ERRORS_TOTAL", (("xid", "79"),), 1),)
    )
    counters = load_counters("DCGM_EXP_XID_ERRORS_TOTAL, counter, Xids.", "my.csv")
    families = dcgm_families([lost], counters, Attribution(), FamilyOptions("n1"))
    assert render_text(families).splitlines()[2] == (
        f'DCGM_EXP_XID_ERRORS_TOTAL{{{LEADING},Hostname="n1",xid="79"}} 1'
    )
