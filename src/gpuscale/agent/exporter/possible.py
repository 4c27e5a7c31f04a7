"""Readings without impossible values, from a driver, a plug-in or a recording."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from gpuscale.agent.gpu.reader import CallStats, GpuReader
from gpuscale.agent.gpu.readings import GpuIdentity, GpuReading, ProcessReading
from gpuscale.signals import range_of
from gpuscale.signals.amd import amd_families_of_keys

IMPOSSIBLE = "a value that it can't have"
_OF_PROCESSES = {
    "sm_util": "DCGM_CUSTOM_PROCESS_SM_UTIL",
    "mem_copy_util": "DCGM_CUSTOM_PROCESS_MEM_COPY_UTIL",
    "encode_util": "DCGM_CUSTOM_PROCESS_ENCODE_UTIL",
    "decode_util": "DCGM_CUSTOM_PROCESS_DECODE_UTIL",
    "memory_used_mib": "DCGM_CUSTOM_PROCESS_MEM_USED",
}
"""What is served of each part of `ProcessReading`."""


class PossibleReader:
    """Removes impossible values from another reader's readings, with the reason in `absent`.

    Args:
        inner: reads the GPUs; closed with this.
    """

    def __init__(self, inner: GpuReader) -> None:
        self.inner = inner

    def gpus(self) -> tuple[GpuIdentity, ...]:
        """Return the GPUs of the inner reader."""
        return self.inner.gpus()

    def read(self, now_ms: int) -> tuple[GpuReading, ...]:
        """Return the inner reader's readings without impossible values.

        Raises:
            UnavailableError: no GPU can be read at all.
        """
        return tuple(map(_possible, self.inner.read(now_ms)))

    def stats(self) -> tuple[CallStats, ...]:
        """Return the costs of the inner reader."""
        return self.inner.stats()

    def close(self) -> None:
        """Close the inner reader; a second call does nothing."""
        self.inner.close()


def _possible(reading: GpuReading) -> GpuReading:
    outside = list(_outside(reading.values.items()))
    if outside:
        values = {name: value for name, value in reading.values.items() if name not in outside}
        absent = {**reading.absent, **dict.fromkeys(outside, IMPOSSIBLE)}
        reading = replace(reading, values=values, absent=absent)
    processes = tuple(map(_possible_process, reading.processes))
    return reading if processes == reading.processes else replace(reading, processes=processes)


def _possible_process(process: ProcessReading) -> ProcessReading:
    read = ((name, getattr(process, part)) for part, name in _OF_PROCESSES.items())
    outside = set(_outside((name, value) for name, value in read if value is not None))
    if not outside:
        return process
    changes: dict[str, Any] = {
        part: None for part, name in _OF_PROCESSES.items() if name in outside
    }
    return replace(process, **changes)


def _outside(values: Iterable[tuple[str, int | float | str]]) -> Iterable[str]:
    families = amd_families_of_keys()
    for name, value in values:
        if isinstance(value, str):
            continue
        limits = range_of(families.get(name, name))
        if limits is not None and not limits.has(value):
            yield name
