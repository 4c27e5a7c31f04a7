"""The metric reference, made of the tables that the code reads with.

`make reference` writes the page: `python tools/metrics_reference.py > docs/metrics.md`.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from gpuscale.agent.attribution.processes.shares import ContainerShare
from gpuscale.agent.exporter.families.containers import GpuShares, container_families
from gpuscale.agent.exporter.families.health import health_families
from gpuscale.agent.exporter.families.own_metrics import METRICS, PREFIX
from gpuscale.agent.formats.ack import ack_families
from gpuscale.agent.formats.amd import amd_families
from gpuscale.agent.formats.labels import FamilyOptions
from gpuscale.agent.gpu.health import RECOVERY
from gpuscale.agent.gpu.owners import Attribution, ContainerRef, Grant
from gpuscale.agent.gpu.readings import GpuIdentity, GpuReading, ProcessReading
from gpuscale.agent.nvml.values.batches import BATCHES, LINK_RATES
from gpuscale.agent.nvml.values.fabric import FABRIC
from gpuscale.agent.nvml.values.gpm import GPM_METRICS
from gpuscale.agent.nvml.values.link_counts import LINK_COUNTS
from gpuscale.agent.nvml.values.plan import EVENT_FIELDS, INSTANCE_FIELDS, READABLE, SPLIT_FIELDS
from gpuscale.agent.nvml.values.rows import ROWS
from gpuscale.agent.nvml.values.utilization import UTILIZATION_CALLS
from gpuscale.base.exposition.families import Family
from gpuscale.signals import DEFAULT_COUNTERS, FIELDS, NEW_NAMES, Field
from gpuscale.signals.amd.families import amd_family_meanings
from gpuscale.signals.amd.values import amd_call_of
from gpuscale.signals.counters import switched_off_counters

_NONE = "-"
_PRINTED = {"int": "whole number", "double": "six decimals", "string": "label"}
_COLUMNS = (
    "Field",
    "Id",
    "What it is",
    "Unit",
    "Type",
    "Printed as",
    "NVML",
    "Needs",
    "With MIG",
    "AMD SMI",
)
_NEEDS = (
    ("VGPU", "vGPU"),
    ("C2C", "NVLink-C2C"),
    ("NVLINK_COUNT_", "NVLink (Hopper or newer)"),
    ("NVLINK_ERROR_DL_", "NVLink (Hopper or newer)"),
    ("NVLINK", "NVLink"),
    ("FABRIC_", "an NVLink fabric"),
    ("RECOVERY_ACTION", "driver 550 or newer"),
    ("CLOCKS_EVENT_REASON_", "driver 570 or newer"),
    ("_REMAP", "Ampere or newer"),
    ("_RETIRED_", "Turing or older"),
    ("_ECC_CURRENT", "ECC memory"),
    ("_ECC_PENDING", "ECC memory"),
    ("_ECC_SBE_", "ECC switched on"),
    ("_ECC_DBE_", "ECC switched on"),
    ("MEMORY_TEMP", "a sensor in the memory (HBM)"),
    ("TOTAL_ENERGY_CONSUMPTION", "Volta or newer"),
    ("NVSWITCH", "NVSwitch"),
)
"""Parts of field names, and what a GPU must have for a value."""

_INTRO = """# Metrics

What a node agent can serve, where each value comes from and what it needs. An unavailable value is left
out and counted with its reason in `gpuscale_exporter_absent_fields`; it is never 0 instead.

Which DCGM fields are served is the counters file's choice. *Type* is the one of the built-in file; a file of
your own gives its own. *Needs* and *With MIG* are about NVML: a GPU that is split has values for the whole
GPU and for each of its instances, each where the table says so. Profiling fields come from GPM, without DCGM.

Every other field name of DCGM up to 4.6, of NVSwitches, CPUs, network adapters and vGPUs too, may stand in a
counters file: it has no value here, and its reason is counted. Older and newer names of a field below give
its value.

`DCGM_FI_DEV_GPU_UTIL` and `DCGM_FI_DEV_MEM_COPY_UTIL` are means over the time since the collect before.
`source` in `gpuscale_exporter_reader_calls_total` shows what they average: `utilization_rates` for figures
that were asked for five times a second, `utilization_samples` and `memory_utilization_samples` for the
driver's buffer.

Use by process and by container is a sample, not a count: the driver looks every 200 ms and gives all that
the GPU did since to the process that it finds running. So it is the mean of 10 s, with a standard error of
about 6 points; [How fresh NVIDIA's values are](node-agent.md#how-fresh-nvidias-values-are) has what was
measured.

AMD GPUs serve the DCGM fields that mean the same in the same unit, and the names of AMD's own exporter.
Reading them has not been run on hardware yet: calls, keys, units and errors are those of the library's
source.
"""
_AMD_INTRO = """## AMD's own families

Named, labelled and in the units of ROCm's device-metrics-exporter; all of them are gauges there. What it
calls MB is MiB. `GPU_TEMP` above is the junction sensor, or the edge sensor where there is none;
`MEMORY_TEMP` is the hottest of the memory's sensors. Power, energy and temperatures of exactly 0 count as
absent: partitions and missing sensors answer so.
"""
_LAST_LINE = "This page is generated: `make reference` writes it again."


@dataclass(frozen=True, slots=True)
class _FileRow:
    """How the built-in counters file has a field."""

    type: str
    is_on: bool


def reference_markdown() -> str:
    """Return the page as Markdown."""
    rows = _file_rows()
    parts = (
        _INTRO,
        *_dcgm_sections(rows),
        _newer_names(),
        _families_section(
            "## Alibaba Cloud's families",
            "Who was given how much of a GPU, and which process uses how much of it.",
            _ack(),
        ),
        _families_section(
            "## Use by container",
            "The device's own value, split over the containers that use the GPU; the parts add up to it.",
            _containers(),
        ),
        _families_section(
            "## Health of the GPUs",
            "The verdict on each GPU, and its reasons; [the node agent](node-agent.md#health-of-the-gpus) has"
            " what each of them means.",
            _health(),
        ),
        _own_section(),
        _amd_section(),
        _LAST_LINE + "\n",
    )
    return "\n".join(parts)


def nvml_call_of(field: str) -> str | None:
    """Return the NVML call that a DCGM field comes from, as text; None where there is none."""
    return _NVML_CALLS.get(field)


def _file_rows() -> dict[str, _FileRow]:
    """Return what the built-in file says of fields, those that are commented out included."""
    off = {row.field: _FileRow(row.type, is_on=False) for row in switched_off_counters()}
    return {**off, **{row.field: _FileRow(row.type, is_on=True) for row in DEFAULT_COUNTERS}}


def _dcgm_sections(rows: Mapping[str, _FileRow]) -> Iterable[str]:
    on = [name for name in FIELDS if name in rows and rows[name].is_on]
    off = [name for name in FIELDS if name in rows and not rows[name].is_on]
    more = [name for name in FIELDS if name not in rows]
    yield _dcgm_section("## DCGM fields that are served by default", on, rows)
    yield _dcgm_section("## DCGM fields that stand in the built-in file, switched off", off, rows)
    yield _dcgm_section("## All other DCGM fields that a counters file may name", more, rows)


def _dcgm_section(title: str, names: Iterable[str], rows: Mapping[str, _FileRow]) -> str:
    lines = [_dcgm_row(FIELDS[name], rows.get(name)) for name in names]
    return f"{title}\n\n{_table(_COLUMNS, lines)}"


def _dcgm_row(field: Field, row: _FileRow | None) -> Sequence[str]:
    return (
        f"`{field.name}`",
        str(field.id),
        field.meaning,
        field.unit,
        row.type if row else "",
        _PRINTED[field.kind],
        _code(nvml_call_of(field.name)),
        _needs(field),
        _with_mig(field.name),
        _code(amd_call_of(field.name)),
    )


def _needs(field: Field) -> str:
    if nvml_call_of(field.name) is None:
        return ""
    needs = [text for part, text in _NEEDS if part in field.name][:1]
    if field.name in GPM_METRICS:
        needs.insert(0, "GPM (Hopper or newer)")
    return ", ".join(needs)


def _with_mig(name: str) -> str:
    if name not in READABLE:
        return ""
    if name in SPLIT_FIELDS:
        return "no value"
    return "each instance" if name in INSTANCE_FIELDS else "whole GPU"


def _nvml_calls() -> dict[str, str]:
    """Return every field that NVML can give, with the call as text."""
    calls = {field: _call(row.function, row.arguments) for row in ROWS for field in row.values}
    for batch in BATCHES:
        for each in batch.fields:
            calls[each.field] = f"nvmlDeviceGetFieldValues({each.nvml_name})"
    for rate in LINK_RATES:
        calls[rate.field] = f"nvmlDeviceGetFieldValues({' + '.join(rate.ways)}), over time"
    for field, metric in GPM_METRICS.items():
        calls[field] = f"nvmlGpmMetricsGet({metric})"
    for field, name in LINK_COUNTS.items():
        calls[field] = f"nvmlDeviceGetFieldValues({name}), all links"
    calls |= dict.fromkeys(FABRIC, "nvmlDeviceGetGpuFabricInfoV")
    calls |= UTILIZATION_CALLS
    for field in EVENT_FIELDS | (READABLE - calls.keys()):
        calls[field] = _event_call(field)
    return calls


def _event_call(field: str) -> str:
    if "P2P" in field:
        return "nvmlDeviceGetP2PStatus"
    if "CLOCK_EVENTS" in field:
        return "nvmlDeviceGetCurrentClocksEventReasons, counted"
    return "nvmlEventSetWait_v2(nvmlEventTypeXidCriticalError)"


def _call(function: str, arguments: Iterable[object]) -> str:
    texts = [str(argument) for argument in arguments]
    return f"{function}({', '.join(texts)})" if texts else function


_NVML_CALLS = _nvml_calls()


def _newer_names() -> str:
    intro = (
        "## Newer names\n\n"
        "What dcgm-exporter calls these fields from 4.9 on, for agents that are set to use those names."
    )
    rows = [
        (f"`{old}`", f"`{new.name}`", new.unit or "as before")
        for old, new in NEW_NAMES.items()
        if old in FIELDS
    ]
    return f"{intro}\n\n{_table(('Up to 4.8', 'From 4.9', 'Unit'), rows)}"


def _families_section(title: str, intro: str, families: Iterable[Family]) -> str:
    rows = [
        (f"`{each.name}`", each.type, each.help, _label_names(each))
        for each in sorted(families, key=lambda each: each.name)
    ]
    return f"{title}\n\n{intro}\n\n{_table(('Metric', 'Type', 'What it is', 'Labels'), rows)}"


def _label_names(family: Family) -> str:
    names = dict.fromkeys(name for sample in family.samples for name, _ in sample.labels)
    return ", ".join(f"`{name}`" for name in names)


_GPU = GpuIdentity(0, "GPU-a", "00000000:1A:00.0", "NVIDIA H200")
_OWNER = ContainerRef("default", "pod", "container")
_OPTIONS = FamilyOptions("node", node_pool="pool")


def _reading() -> GpuReading:
    """Return a GPU with one process of its pod and one of nobody's, of which every family has a sample."""
    processes = tuple(ProcessReading(pid, "python", 1, 1, 1, 1, 1) for pid in (1, 2))
    values: Mapping[str, int | float | str] = {
        "DCGM_FI_DEV_FB_TOTAL": 1,
        "DCGM_FI_DRIVER_VERSION": "1",
        "amd:gfx_activity": 1,
    }
    return GpuReading(_GPU, 0, values, {}, processes)


def _ack() -> Iterable[Family]:
    return ack_families((_reading(),), Attribution({_GPU.uuid: (_OWNER,)}, {1: _OWNER}), _OPTIONS)


def _containers() -> Iterable[Family]:
    return container_families(
        (
            GpuShares(
                _reading(),
                (ContainerShare(_OWNER, 1, 1, 1.0, 1.0),),
                {_OWNER: Grant(1, cores_percent=1)},
            ),
        ),
        _OPTIONS,
    )


def _health() -> Iterable[Family]:
    broken = replace(_reading(), values={RECOVERY: 1})
    return health_families((broken,), Attribution(), _OPTIONS)


def _own_section() -> str:
    rows = [(f"`{PREFIX}{name}`", type_, help_) for name, (type_, help_) in METRICS.items()]
    table = _table(("Metric", "Type", "What it is"), rows)
    return f"## What the agent says of itself\n\n{table}"


def _amd_section() -> str:
    (activity,) = (each for each in _amd() if each.name == "gpu_gfx_activity")
    more = "clocks, memory stacks and processes have more, which tell them apart"
    labels = f"Labels: {_label_names(activity)}; {more}."
    rows = [(f"`{name}`", help_) for name, help_ in amd_family_meanings().items()]
    return f"{_AMD_INTRO}\n{labels}\n\n{_table(('Metric', 'What it is'), rows)}"


def _amd() -> Iterable[Family]:
    return amd_families((_reading(),), Attribution(), _OPTIONS)


def _code(text: str | None) -> str:
    return f"`{text}`" if text else ""


def _table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [columns, ["---"] * len(columns), *rows]
    return "".join(f"| {' | '.join(cell or _NONE for cell in line)} |\n" for line in lines)


def main() -> None:
    """Print the page."""
    print(reference_markdown(), end="")


if __name__ == "__main__":
    main()
