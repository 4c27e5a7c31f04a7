"""The sources of values for a whole GPU, a split one, or a MIG instance."""

from collections.abc import Sequence
from dataclasses import replace

from gpuscale.agent.nvml.calls import Caller
from gpuscale.agent.nvml.library import Handle
from gpuscale.agent.nvml.settings import NvmlSettings
from gpuscale.agent.nvml.values.batches import BATCHES, LINK_RATES, FieldBatch, LinkRates
from gpuscale.agent.nvml.values.clock_events import COUNT_FIELD, MASK_FIELD, TOTAL_FIELD
from gpuscale.agent.nvml.values.fabric import FABRIC, Fabric
from gpuscale.agent.nvml.values.gpm import GPM_METRICS, GRAPHICS_FIELDS, Gpm, GpmTarget
from gpuscale.agent.nvml.values.link_counts import LINK_COUNTS, LinkCounts
from gpuscale.agent.nvml.values.link_traffic import LinkTraffic, traffic_needs
from gpuscale.agent.nvml.values.peers import P2P_FIELD
from gpuscale.agent.nvml.values.plain import MemoryCalls, PlainCalls
from gpuscale.agent.nvml.values.polls import Poller
from gpuscale.agent.nvml.values.rows import MEMORY, ROWS, Pace
from gpuscale.agent.nvml.values.sources import Scheduled, ValueSource
from gpuscale.agent.nvml.values.utilization import UTILIZATION_FIELDS, Utilization
from gpuscale.agent.nvml.xid import XID_FIELD, XID_FIELDS
from gpuscale.signals import FIELDS

EVENT_FIELDS = (XID_FIELDS - {XID_FIELD}) | {COUNT_FIELD, TOTAL_FIELD, P2P_FIELD}
"""Families of counts, which are no single value of a GPU."""
READABLE = frozenset(
    {
        *(field for row in ROWS for field in row.values),
        *(each.field for batch in BATCHES for each in batch.fields),
        *(rate.field for rate in LINK_RATES),
        *LINK_COUNTS,
        *FABRIC,
        *GPM_METRICS,
        *UTILIZATION_FIELDS,
        XID_FIELD,
    }
)
"""Every field that NVML can give a value for."""
INSTANCE_FIELDS = frozenset(
    field for field in READABLE if FIELDS[field].scope in ("gpu_instance", "compute_instance")
)
"""Those that a MIG instance has a value of its own for."""
SPLIT_FIELDS = UTILIZATION_FIELDS | {
    field for row in ROWS if not row.is_on_split for field in row.values
}
"""Those that nothing has while its GPU is split."""

_PACES: Sequence[Pace] = ("read", "second", "counters", "limits")
_SHIFTS = 8
"""Parts of a period over which the turns of slow calls are spread; most nodes have at most as many GPUs."""


def shift_of(index: int, position: int = 0) -> float:
    """Return the offset of a GPU's reads within a period, which spreads GPUs over time.

    Args:
        index: of the GPU.
        position: of the source among those of its GPU, so that these don't fall together either.
    """
    return (index + position) % _SHIFTS / _SHIFTS


def once_source(
    caller: Caller, gpu: Handle, fields: frozenset[str], settings: NvmlSettings
) -> PlainCalls:
    """Return the source of values that are read once, when a GPU is opened."""
    rows = [row for row in ROWS if row.pace == "once"]
    return PlainCalls(caller, gpu, rows, fields, settings.unsupported_retry_ms)


def gpu_sources(
    caller: Caller,
    gpu: Handle,
    index: int,
    fields: frozenset[str],
    settings: NvmlSettings,
    poller: Poller,
    *,
    is_split: bool,
) -> tuple[Scheduled, ...]:
    """Return a GPU's sources, in order, without those that have no field."""
    if is_split:
        fields = fields - SPLIT_FIELDS - (INSTANCE_FIELDS - XID_FIELDS)
    if fields & {COUNT_FIELD, TOTAL_FIELD}:
        fields = fields | {MASK_FIELD}
    retry_ms = settings.unsupported_retry_ms
    periods = _periods(settings)

    links = LinkRates(caller, gpu, fields, retry_ms)
    sources: list[tuple[ValueSource, int]] = [
        *_profiling(caller, GpmTarget(gpu), fields, settings, links),
        (MemoryCalls(caller, gpu, MEMORY, fields, retry_ms), periods["read"]),
    ]
    if not UTILIZATION_FIELDS.isdisjoint(fields):  # polled as long as the GPU is open
        sources.append((Utilization(caller, gpu, fields, settings, poller, shift_of(index)), 0))
    for pace in _PACES:
        rows = [row for row in ROWS if row.pace == pace and row is not MEMORY]
        sources.append((PlainCalls(caller, gpu, rows, fields, retry_ms), periods[pace]))
    for batch in BATCHES:
        source = FieldBatch(caller, gpu, batch, fields, retry_ms)
        sources.append((source, periods[batch.pace]))
    sources.append((LinkCounts(caller, gpu, fields, retry_ms), settings.counters_period_ms))
    sources.append((Fabric(caller, gpu, fields, retry_ms), settings.counters_period_ms))
    return _scheduled(sources, index)


def instance_sources(
    caller: Caller,
    gpu: Handle,
    instance: Handle,
    instance_id: int,
    fields: frozenset[str],
    settings: NvmlSettings,
) -> tuple[Scheduled, ...]:
    """Return the sources of one MIG instance."""
    fields = fields & INSTANCE_FIELDS
    target = GpmTarget(gpu, instance_id)
    # An instance has no other measure of utilization, so the expensive counter is read as often as
    # the rest.
    settings = replace(settings, graphics_period_ms=settings.gpm_period_ms)
    retry_ms = settings.unsupported_retry_ms
    sources: list[tuple[ValueSource, int]] = [
        *_profiling(caller, target, fields, settings),
        (MemoryCalls(caller, instance, MEMORY, fields, retry_ms), 0),
    ]
    return _scheduled(sources, instance_id)


def _profiling(
    caller: Caller,
    target: GpmTarget,
    fields: frozenset[str],
    settings: NvmlSettings,
    links: LinkRates | None = None,
) -> list[tuple[ValueSource, int]]:
    """Return the sources of profiling counters: the expensive one, and the others with NVLink traffic."""
    plain = fields - GRAPHICS_FIELDS
    others: ValueSource = Gpm(caller, target, plain, settings)
    if links is not None and links.fields:
        counters = Gpm(caller, target, plain | traffic_needs(links.fields), settings)
        others = LinkTraffic(counters, Scheduled(links, settings.nvlink_period_ms), plain)
    return [
        (
            Gpm(caller, target, fields & GRAPHICS_FIELDS, settings),
            settings.graphics_period_ms or 0,
        ),
        (others, settings.gpm_period_ms),
    ]


def _scheduled(sources: Sequence[tuple[ValueSource, int]], index: int) -> tuple[Scheduled, ...]:
    """Return the sources with their periods, without those that have no field."""
    wanted = [each for each in sources if each[0].fields]
    return tuple(
        Scheduled(source, period_ms, shift_of(index, position))
        for position, (source, period_ms) in enumerate(wanted)
    )


def _periods(settings: NvmlSettings) -> dict[str, int]:
    return {
        "read": 0,
        "second": settings.temperature_period_ms,
        "counters": settings.counters_period_ms,
        "limits": settings.limits_period_ms,
        "energy": settings.energy_period_ms,
    }
