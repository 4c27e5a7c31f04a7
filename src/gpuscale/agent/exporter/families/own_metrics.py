"""The exporter's own metric families."""

import os
from collections import Counter as Tally
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

from gpuscale import __version__
from gpuscale.agent.formats.dcgm import as_number, event_fields
from gpuscale.agent.gpu.reader import CallStats
from gpuscale.agent.gpu.readings import GpuIdentity, GpuReading
from gpuscale.base.exposition.families import Family, Sample
from gpuscale.signals import Counter, field_named, why_not_read

NO_NUMBER = "text that is no number"
DERIVED = "derived counters are not collected"
PREFIX = "gpuscale_exporter_"

METRICS: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "build_info": ("gauge", "Version of the exporter."),
        "collects_total": ("counter", "Collects so far."),
        "collect_failures_total": ("counter", "Collects that could read no GPU."),
        "collect_duration_seconds": ("gauge", "Time that the latest read of all GPUs took."),
        "last_collect_timestamp_seconds": (
            "gauge",
            "When GPUs were last read well, in seconds since the epoch.",
        ),
        "newest_reading_timestamp_seconds": (
            "gauge",
            "When the newest values served were measured, in seconds since the epoch.",
        ),
        "collect_up": ("gauge", "1 if the latest collect read GPUs."),
        "gpu_up": ("gauge", "1 if the GPU could be read."),
        "absent_fields": (
            "gauge",
            "GPUs that have no value for a field of the counters file, by reason.",
        ),
        "reader_calls_total": ("counter", "Calls to the vendor's library, by kind of call."),
        "reader_call_errors_total": ("counter", "Calls to the vendor's library that failed."),
        "reader_call_seconds_total": ("counter", "Time spent in the vendor's library."),
        "attribution_up": ("gauge", "1 if it is known which pods the GPUs belong to."),
        "unattributed": (
            "gauge",
            "Devices and processes that could not be tied to a container, by reason.",
        ),
        "config_last_reload_successful": (
            "gauge",
            "1 if the latest load of the counters file was good.",
        ),
        "config_last_reload_success_timestamp_seconds": (
            "gauge",
            "When the counters file was last loaded well, in seconds since the epoch.",
        ),
        "stream_subscribers": ("gauge", "Subscribers of the stream."),
        "stream_dropped_subscribers_total": (
            "counter",
            "Subscribers that were let go, by reason.",
        ),
        "http_requests_total": ("counter", "Requests answered, by path and status code."),
        "ready_taint_present": (
            "gauge",
            "1 while the node has the taint of --ready-taint, which waits for its GPUs.",
        ),
        "ready_taint_errors_total": (
            "counter",
            "Tries to see to the node's taint that failed, by reason.",
        ),
        "process_resident_memory_bytes": ("gauge", "Resident memory of the exporter's process."),
        "process_cpu_seconds_total": ("counter", "Processor time of the exporter's process."),
    }
)
"""Every metric of the exporter's own, without its prefix: type and meaning, in serving order."""

Rows = Iterable[tuple[tuple[tuple[str, str], ...], int | float]]


@dataclass(frozen=True, slots=True)
class GpuStatus:
    """Whether a GPU could be read."""

    gpu: GpuIdentity
    error: str | None
    """None when it was read."""


@dataclass(frozen=True, slots=True)
class ConfigStatus:
    """The result of the latest configuration load."""

    loaded_ms: int | None = None
    """Of the configuration in use; None where there is no file to load."""
    error: str | None = None
    """Why the latest load was refused; None when it was good."""


@dataclass(frozen=True, slots=True)
class ReadyTaintStatus:
    """How it is with the taint that waits for the node's GPUs."""

    is_there: bool | None = None
    """None until the node was seen."""
    waits_for: str = ""
    """Why it is still there, or why that is not known; empty where there is nothing to wait for."""
    errors: Mapping[str, int] = field(default_factory=dict)
    """Failed requests so far, by reason."""


@dataclass(frozen=True, slots=True)
class CollectStatus:
    """The state of collecting."""

    collects: int = 0
    failures: int = 0
    last_good_ms: int | None = None
    """None until a collect went well."""
    newest_reading_ms: int | None = None
    """When the newest values were measured; None until there are any."""
    duration_s: float | None = None
    """Of the latest read; None before the first."""
    error: str | None = None
    """Why the latest read failed as a whole."""
    attribution_error: str | None = None
    """Why nothing is known of the owners."""
    is_attributing: bool = True
    """Whether owners are looked for at all."""
    is_attribution_known: bool = True
    """Whether what is known of the owners counts; it does not before the kubelet's first answer, for one."""
    unattributed: Mapping[str, int] = field(default_factory=dict)
    """What could not be tied to a container, by reason."""
    gpus: tuple[GpuStatus, ...] = ()
    calls: tuple[CallStats, ...] = ()
    """What reading has cost so far."""

    @property
    def attribution_fault(self) -> str | None:
        """Return why GPUs can't be attributed to pods; None if they can."""
        if self.attribution_error is not None or self.is_attribution_known:
            return self.attribution_error
        return "it is not known which pods hold the GPUs"

    @property
    def gpu_fault(self) -> str | None:
        """Return why not every GPU answers; None if each did at the latest collect."""
        if self.error is not None or not self.gpus:
            return self.error or "no GPU was read yet"
        return next(
            (f"GPU {each.gpu.index}: {each.error}" for each in self.gpus if each.error), None
        )


@dataclass(frozen=True, slots=True)
class ServerStatus:
    """The state of serving."""

    subscribers: int = 0
    dropped: Mapping[str, int] = field(default_factory=dict)
    requests: Mapping[tuple[str, int], int] = field(default_factory=dict)
    """Answers by path and status code."""
    resident_memory_bytes: int | None = None
    cpu_seconds: float | None = None
    config: ConfigStatus = field(default_factory=ConfigStatus)
    ready_taint: ReadyTaintStatus = field(default_factory=ReadyTaintStatus)


def own_families(
    status: CollectStatus,
    readings: Sequence[GpuReading],
    counters: Iterable[Counter],
    server: ServerStatus = ServerStatus(),
) -> tuple[Family, ...]:
    """Return the exporter's own families, those without a sample left out.

    Args:
        status: of collecting.
        readings: the latest.
        counters: what should be served of them.
        server: of serving.
    """
    gpu_up = []
    for each in status.gpus:
        labels: tuple[tuple[str, str], ...] = (
            ("gpu", str(each.gpu.index)),
            ("UUID", each.gpu.uuid),
        )
        if each.gpu.instance is not None:
            labels = (*labels, ("GPU_I_ID", str(each.gpu.instance.id)))
        gpu_up.append((labels, int(each.error is None)))
    calls = [((("source", each.source),), each) for each in status.calls]
    is_attribution_told = status.collects and status.is_attributing
    is_attributed = status.attribution_fault is None
    config, taint = server.config, server.ready_taint
    is_config_good = None if config.loaded_ms is None else int(config.error is None)
    rows: dict[str, Rows] = {
        "build_info": [((("version", __version__),), 1)],
        "collects_total": _one(status.collects),
        "collect_failures_total": _one(status.failures),
        "collect_duration_seconds": _one(status.duration_s),
        "last_collect_timestamp_seconds": _seconds(status.last_good_ms),
        "newest_reading_timestamp_seconds": _seconds(status.newest_reading_ms),
        "collect_up": _one(int(status.error is None) if status.collects else None),
        "gpu_up": gpu_up,
        "absent_fields": _absent(readings, counters),
        "reader_calls_total": [(labels, each.calls) for labels, each in calls],
        "reader_call_errors_total": [(labels, each.errors) for labels, each in calls],
        "reader_call_seconds_total": [(labels, float(each.seconds)) for labels, each in calls],
        "attribution_up": _one(int(is_attributed) if is_attribution_told else None),
        "unattributed": [
            ((("reason", reason),), count) for reason, count in sorted(status.unattributed.items())
        ],
        "config_last_reload_successful": _one(is_config_good),
        "config_last_reload_success_timestamp_seconds": _seconds(config.loaded_ms),
        "stream_subscribers": _one(server.subscribers),
        "stream_dropped_subscribers_total": [
            ((("reason", reason),), count) for reason, count in sorted(server.dropped.items())
        ],
        "http_requests_total": [
            ((("path", path), ("code", str(code))), count)
            for (path, code), count in sorted(server.requests.items())
        ],
        "ready_taint_present": _one(None if taint.is_there is None else int(taint.is_there)),
        "ready_taint_errors_total": [
            ((("reason", reason),), count) for reason, count in sorted(taint.errors.items())
        ],
        "process_resident_memory_bytes": _one(server.resident_memory_bytes),
        "process_cpu_seconds_total": _one(server.cpu_seconds),
    }
    families = (
        Family(
            PREFIX + name,
            type_,
            help_,
            tuple(Sample(labels, value) for labels, value in rows[name]),
        )
        for name, (type_, help_) in METRICS.items()
    )
    return tuple(family for family in families if family.samples)


def _one(value: float | None) -> Rows:
    return () if value is None else (((), value),)


def _seconds(milliseconds: int | None) -> Rows:
    return _one(None if milliseconds is None else milliseconds / 1000)


def _absent(readings: Iterable[GpuReading], counters: Iterable[Counter]) -> Rows:
    rows = []
    for each in counters:
        # A value that is no number is not served.
        may_be_text = each.type != "label" and field_named(each.field).kind == "string"
        rows.append((each.name, each.field, may_be_text))
    tally: Tally[tuple[str, str]] = Tally()
    for reading in readings:
        values, counted = reading.values, event_fields(reading)
        for name, read, may_be_text in rows:
            if read in counted:
                continue
            value = values.get(read)
            if value is None or (may_be_text and as_number(value, "string") is None):
                tally[name, reading.absent.get(read) or _default_reason(read, reading)] += 1
    return [
        ((("field", name), ("reason", reason)), count)
        for (name, reason), count in sorted(tally.items())
    ]


def _default_reason(field: str, reading: GpuReading) -> str:
    if field in reading.values:
        return NO_NUMBER
    return DERIVED if field_named(field).is_derived else why_not_read(field)


_STATM = Path("/proc/self/statm")


def resident_memory_bytes() -> int | None:
    """Return the resident memory; None where the system has no /proc."""
    try:
        pages = int(_STATM.read_text(encoding="ascii").split()[1])
    except (OSError, ValueError, IndexError):
        return None
    return pages * os.sysconf("SC_PAGE_SIZE")


def cpu_seconds() -> float:
    """Return the processor time used so far, in user and in kernel mode."""
    times = os.times()
    return times.user + times.system
