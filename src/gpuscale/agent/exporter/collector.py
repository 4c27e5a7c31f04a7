"""One collect: read the GPUs, attribute them to pods, and prepare the metric families.

A collect ends in a `TickSnapshot` whatever happens. When reading fails, its text has no device series at all:
old values would look fresh to an autoscaler. Its own metrics, and a log line, say what is wrong.
"""

import logging
import time
from collections import Counter as Tally
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from gpuscale.agent.exporter.families.azure import AzureMetrics
from gpuscale.agent.exporter.families.containers import (
    GpuShares,
    SharesOf,
    container_families,
    shares_of,
)
from gpuscale.agent.exporter.families.health import health_families, with_status
from gpuscale.agent.exporter.families.own_metrics import (
    CollectStatus,
    GpuStatus,
    ServerStatus,
    own_families,
)
from gpuscale.agent.exporter.snapshot import TickSnapshot
from gpuscale.agent.formats.labels import FamilyOptions
from gpuscale.agent.formats.repeated import job_key
from gpuscale.agent.formats.styles import Style, agent_families
from gpuscale.agent.gpu.owners import Attribution
from gpuscale.agent.gpu.reader import CallStats, GpuReader
from gpuscale.agent.gpu.readings import GpuIdentity, GpuReading
from gpuscale.base.clock import Clock
from gpuscale.base.exposition.families import Family
from gpuscale.signals import Counter

LEFT_OUT = "the reader left it out"

AttributionOf = Callable[[Sequence[GpuReading]], Attribution | None]
"""Returns what is known of the readings' owners right now, None where owners are not looked for at all."""
VendorFamilies = Callable[[Sequence[GpuReading], Attribution, FamilyOptions], tuple[Family, ...]]

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ReadOutcome:
    """The result of one read."""

    gpus: tuple[GpuIdentity, ...]
    readings: tuple[GpuReading, ...]
    duration_s: float
    error: str | None
    """Why nothing could be read; None when reading went well."""
    calls: tuple[CallStats, ...] = ()
    jobs: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """GPU to the batch jobs on it."""


@dataclass(frozen=True, slots=True)
class Extras:
    """Optional parts of a collect, besides the devices' fields."""

    split: SharesOf | None = None
    """Splits a GPU's use among its containers; None serves no series of containers."""
    vendor: VendorFamilies | None = None
    """Makes the families of a vendor's own exporter; None serves none."""
    azure: AzureMetrics | None = None
    """Keeps the minute that Azure's metrics are means of."""
    jobs: Callable[[Iterable[str]], Mapping[str, tuple[str, ...]]] | None = None
    """Reads the batch jobs of GPUs, by their job files' names; may block. None knows of no jobs."""


class Collector:
    """Turns readings into snapshots, and keeps counters about collects.

    Args:
        reader: of this node's GPUs.
        attribution: returns what is known of the readings' owners right now; must not block.
        counters: the fields to serve.
        options: how to label them.
        clock: gives readings their times.
        styles: `dcgm` for dcgm-exporter's families, `ack` for those of Alibaba Cloud's ACK. With both,
            device samples carry the labels of both and stay single.
        extras: what else to serve.
    """

    def __init__(
        self,
        reader: GpuReader,
        attribution: AttributionOf,
        counters: Sequence[Counter],
        options: FamilyOptions,
        clock: Clock,
        styles: frozenset[Style],
        extras: Extras = Extras(),
    ) -> None:
        self._reader = reader
        self._attribution = attribution
        self._counters = tuple(counters)
        self._options = options
        self._clock = clock
        self._styles = styles
        self._extras = extras
        self._status = CollectStatus()
        self._told_reasons: set[str] = set()

    def configure(self, counters: Sequence[Counter]) -> None:
        """Serve other counters from the next collect on."""
        self._counters = tuple(counters)

    def nothing_yet(self) -> TickSnapshot:
        """Return the snapshot to serve before the first collect."""
        return self._snapshot((), tuple, ServerStatus)

    def read(self) -> ReadOutcome:
        """Return current readings; may block like the reader."""
        started = time.perf_counter()
        reader = self._reader
        gpus: tuple[GpuIdentity, ...] = ()
        readings: tuple[GpuReading, ...] = ()
        error = None
        try:
            gpus = reader.gpus()
            readings = reader.read(self._clock.now_ms())
        except Exception as failure:  # noqa: BLE001 - whatever a driver does, scrapes get an answer
            error = _reason(failure)
        duration_s = time.perf_counter() - started
        jobs = self._extras.jobs(map(job_key, readings)) if self._extras.jobs is not None else {}
        try:
            calls = reader.stats()
        except Exception:  # noqa: BLE001 - readings are served without their cost
            calls = ()
        return ReadOutcome(gpus, readings, duration_s, error, calls, jobs)

    def publish(
        self, outcome: ReadOutcome, server: Callable[[], ServerStatus] = ServerStatus
    ) -> TickSnapshot:
        """Return the snapshot for a result, good or bad; `server` is called at its first scrape."""
        attribution: Attribution | None = None
        attribution_error: str | None = None
        try:
            attribution = self._attribution(outcome.readings)
        except Exception as failure:  # noqa: BLE001 - GPUs are worth serving without their pods
            attribution_error = _reason(failure)
        for each in attribution.missing if attribution else ():
            if each.reason not in self._told_reasons:
                self._told_reasons.add(each.reason)
                about = f" {each.subject}" if each.subject else ""
                detail = f": {each.detail}" if each.detail else ""
                _log.warning("not tied to a container (%s)%s%s", each.reason, about, detail)
        before = self._status
        self._status = replace(
            self._next_status(outcome),
            attribution_error=attribution_error,
            is_attributing=attribution is not None or attribution_error is not None,
            is_attribution_known=attribution is None or attribution.is_known,
            unattributed=Tally(each.reason for each in attribution.missing) if attribution else {},
        )
        _log_changes(before, self._status)
        readings = outcome.readings if outcome.error is None else ()
        if outcome.jobs != self._options.jobs:
            self._options = replace(self._options, jobs=outcome.jobs)
        shares: tuple[GpuShares, ...] | None = None
        if self._extras.azure is not None:
            shares = self._shares(readings, attribution)
            self._extras.azure.observe(shares, self._clock.now_ms())
        make = partial(
            self._device_families, readings, self._counters, attribution, self._options, shares
        )
        return self._snapshot(readings, make, server)

    def _next_status(self, outcome: ReadOutcome) -> CollectStatus:
        before = self._status
        failed = outcome.error is not None
        newest_ms = max((each.measured_ms for each in outcome.readings), default=None)
        answers = {reading.gpu.allocated_as: reading for reading in outcome.readings}
        gpus = []
        for gpu in outcome.gpus:
            error, reading = outcome.error, answers.get(gpu.allocated_as)
            if not error and (reading is None or reading.is_lost):
                absent = () if reading is None else reading.absent.values()
                error = next(iter(absent), LEFT_OUT)
            gpus.append(GpuStatus(gpu, error))
        if not gpus and outcome.error:
            # They can't even be listed: those of the collect before failed.
            gpus = [GpuStatus(status.gpu, outcome.error) for status in before.gpus]
        return CollectStatus(
            collects=before.collects + 1,
            failures=before.failures + failed,
            last_good_ms=before.last_good_ms if failed else self._clock.now_ms(),
            newest_reading_ms=before.newest_reading_ms if newest_ms is None else newest_ms,
            duration_s=outcome.duration_s,
            error=outcome.error,
            gpus=tuple(gpus),
            calls=outcome.calls or before.calls,
        )

    def _snapshot(
        self,
        readings: Sequence[GpuReading],
        devices: Callable[[], tuple[Family, ...]],
        server: Callable[[], ServerStatus],
    ) -> TickSnapshot:
        status, counters = self._status, self._counters

        def own() -> tuple[Family, ...]:
            return own_families(status, with_status(readings, counters), counters, server())

        oldest_ms = min((each.measured_ms for each in readings), default=self._clock.now_ms())
        return TickSnapshot(devices, own, status, oldest_ms)

    def _device_families(
        self,
        readings: Sequence[GpuReading],
        counters: Sequence[Counter],
        attribution: Attribution | None,
        options: FamilyOptions,
        shares: tuple[GpuShares, ...] | None,
    ) -> tuple[Family, ...]:
        families = agent_families(
            with_status(readings, counters), counters, attribution, options, self._styles
        )
        known = attribution or Attribution()
        if self._extras.vendor is not None:
            families += self._extras.vendor(readings, known, options)
        if "dcgm" not in self._styles:
            return families
        if shares is None:
            shares = self._shares(readings, attribution)
        health = health_families(readings, known, options)
        return (*families, *container_families(shares, options), *health)

    def _shares(
        self, readings: Sequence[GpuReading], attribution: Attribution | None
    ) -> tuple[GpuShares, ...]:
        if self._extras.split is None or attribution is None:
            return ()
        return shares_of(readings, attribution, self._extras.split)


def _reason(failure: Exception) -> str:
    return str(failure) or type(failure).__name__


def _log_changes(before: CollectStatus, now: CollectStatus) -> None:
    """Log new and ended faults; a lasting fault is logged once."""
    _log_change("reading the GPUs", before.error, now.error)
    _log_change("tying GPUs to pods", before.attribution_error, now.attribution_error)
    if now.error is None:
        reasons = {status.gpu.allocated_as: status.error for status in before.gpus}
        for status in now.gpus:
            gpu = f"reading GPU {gpu_name(status.gpu)}"
            earlier = reasons.get(status.gpu.allocated_as)
            _log_change(gpu, None if earlier == before.error else earlier, status.error)


def gpu_name(gpu: GpuIdentity) -> str:
    """Return the name of a GPU or instance in messages."""
    return f"{gpu.index} ({gpu.allocated_as})"


def _log_change(what: str, before: str | None, now: str | None) -> None:
    if now == before:
        return
    if now is None:
        _log.info("%s works again", what)
    else:
        _log.error("%s failed: %s", what, now)
