"""Simulated GPUs that know their pods, so that a rehearsal's metrics show which pod is busy.

Made-up processes have no cgroup. Each container that holds a GPU gets one of them instead, and they share the
GPU's work alike.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from gpuscale.agent.exporter.collector import AttributionOf
from gpuscale.agent.gpu.owners import Attribution, ContainerRef
from gpuscale.agent.gpu.readings import GpuReading
from gpuscale.agent.gpu.simulated import GpuWork, wave

_PIDS_PER_GPU = 1000


class SimulatedPods:
    """Splits each simulated GPU's work among the containers that hold it."""

    def __init__(self) -> None:
        self._holders: Mapping[int, int] = {}

    def work(self, gpu_index: int, from_ms: int, to_ms: int) -> Sequence[GpuWork]:
        """Return the work of one process for each holder, or of a single process without holders."""
        (whole,) = wave(gpu_index, from_ms, to_ms)
        count = min(_PIDS_PER_GPU, max(1, self._holders.get(gpu_index, 1)))
        return tuple(
            replace(
                whole,
                pid=_PIDS_PER_GPU * (gpu_index + 1) + number,
                busy_ratio=whole.busy_ratio / count,
                memory_copy_ratio=whole.memory_copy_ratio / count,
                memory_mib=whole.memory_mib // count,
            )
            for number in range(count)
        )

    def owners(self, owners: AttributionOf) -> AttributionOf:
        """Return an attribution that asks `owners`, and assigns the simulated processes to the holders."""

        def attribution(readings: Sequence[GpuReading]) -> Attribution | None:
            found = owners([replace(each, processes=()) for each in readings])
            return None if found is None else self._with_processes(found, readings)

        return attribution

    def _with_processes(self, found: Attribution, readings: Sequence[GpuReading]) -> Attribution:
        by_pid: dict[int, ContainerRef] = {}
        counts: dict[int, int] = {}
        for reading in readings:
            holders = tuple(dict.fromkeys(found.by_gpu.get(reading.gpu.allocated_as, ())))
            counts[reading.gpu.index] = len(holders)
            if holders:
                for number, process in enumerate(reading.processes):
                    by_pid[process.pid] = holders[number % len(holders)]
        self._holders = counts
        return replace(found, by_pid=by_pid)
