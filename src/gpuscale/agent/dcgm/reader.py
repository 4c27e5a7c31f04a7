"""Readings completed with profiling counters that only a DCGM host engine has.

Before Hopper, NVML has no profiling counters; a host engine has them, also of MIG instances.
"""

from dataclasses import replace

from gpuscale.agent.dcgm.engine import HostEngine, MeasuredValue, of_part
from gpuscale.agent.gpu.reader import CallStats, GpuReader
from gpuscale.agent.gpu.readings import GpuIdentity, GpuReading
from gpuscale.signals import FIELDS

_FRESH_INTERVALS, _FRESH_MS = 5, 10_000
"""A value that is older than the longer of both is none: its engine is away, or the GPU hangs. A host engine
takes turns where a GPU can't count all that is wanted at once."""


class HostEngineReader:
    """A reader of NVIDIA GPUs, combined with a host engine for which no read waits.

    Args:
        inner: reads the GPUs.
        engine: gives what is missing; closed with this.
        fields: DCGM fields to read.
    """

    def __init__(self, inner: GpuReader, engine: HostEngine, fields: frozenset[str]) -> None:
        self._inner = inner
        self._engine = engine
        self._ids = {name: FIELDS[name].id for name in fields if FIELDS[name].is_profiling}

    def gpus(self) -> tuple[GpuIdentity, ...]:
        """Return the GPUs of the inner reader."""
        return self._inner.gpus()

    def read(self, now_ms: int) -> tuple[GpuReading, ...]:
        """Return the inner reader's readings, with values of the host engine where they lack some.

        Raises:
            UnavailableError: no GPU can be read at all.
        """
        readings = self._inner.read(now_ms)
        missing = {name for each in readings for name in each.absent if name in self._ids}
        self._engine.want(frozenset(self._ids[name] for name in missing))
        return tuple(self._filled(each, now_ms) for each in readings)

    def _filled(self, reading: GpuReading, now_ms: int) -> GpuReading:
        if reading.is_lost:
            return reading
        instance = reading.gpu.instance
        part = (reading.gpu.uuid, None if instance is None else instance.id)
        oldest_ms = now_ms - max(_FRESH_MS, _FRESH_INTERVALS * self._engine.interval_ms)
        view = self._engine.view
        values, absent = dict(reading.values), dict(reading.absent)
        for name in reading.absent.keys() & self._ids.keys():
            found = of_part(view, part, self._ids[name], oldest_ms)
            if isinstance(found, MeasuredValue):
                values[name] = found.value
                del absent[name]
            else:
                absent[name] = f"{absent[name]}; {found}"
        return replace(reading, values=values, absent=absent)

    def stats(self) -> tuple[CallStats, ...]:
        """Return the costs of the inner reader, and of asking the host engine."""
        return (*self._inner.stats(), self._engine.stats())

    def close(self) -> None:
        """Close the inner reader and leave the host engine; a second call does nothing."""
        self._engine.close()
        self._inner.close()
