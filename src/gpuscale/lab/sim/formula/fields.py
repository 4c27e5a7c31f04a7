"""The GPU series with a formula, and the labels that are known without a reading.

A value is what a GPU reads at a scrape: a mean over the collect interval that ends there, rounded as the
field is. It depends on nothing but the work of that time.
"""

from collections.abc import Callable, Iterator

from gpuscale.agent.formats import ALL_NAMES
from gpuscale.agent.gpu import GpuReading, ProcessReading
from gpuscale.lab.sim.needs import UTILIZATION
from gpuscale.lab.sim.scenario.setup import Setup

FIELDS = frozenset(
    {UTILIZATION, "DCGM_FI_DEV_MEM_COPY_UTIL", "DCGM_FI_DEV_FB_USED", "DCGM_FI_DEV_FB_FREE"}
)
"""Device fields in whole numbers that depend on nothing but the work of their window."""
_OF_PROCESSES: dict[str, Callable[[ProcessReading], int | None]] = {
    "DCGM_CUSTOM_PROCESS_SM_UTIL": lambda process: process.sm_util,
    "DCGM_CUSTOM_PROCESS_MEM_COPY_UTIL": lambda process: process.mem_copy_util,
    "DCGM_CUSTOM_PROCESS_MEM_USED": lambda process: process.memory_used_mib,
}
_OWNER_LABELS = {
    "dcgm": ("exported_namespace", "exported_pod"),
    "ack": ("NamespaceName", "PodName"),
}
"""By style: the labels of a sample that say which pod holds the GPU."""
_OF_SCRAPES = frozenset({"up", "scrape_samples_scraped", "scrape_duration_seconds"})


def owner_labels(setup: Setup) -> tuple[str, str]:
    """Return the names of the labels that hold a GPU's pod and namespace."""
    return _OWNER_LABELS[setup.pipeline.style]


def known_fields(setup: Setup) -> frozenset[str]:
    """Return the GPU series that have a formula in a scenario."""
    if setup.pipeline.honor_labels:
        return frozenset()  # idle GPUs have pod labels
    served = {row.name for row in setup.counters if row.type != "label" and row.field == row.name}
    known = FIELDS & served
    return known | _OF_PROCESSES.keys() if setup.pipeline.style == "ack" else known


def agent_names(setup: Setup) -> frozenset[str]:
    """Return the names of all series from scrapes of node agents."""
    return ALL_NAMES | _OF_SCRAPES | {row.name for row in setup.counters}


def is_of_device(series: str) -> bool:
    """Return whether idle GPUs have samples of a series too."""
    return series not in _OF_PROCESSES


def values_of(reading: GpuReading, series: str) -> Iterator[float]:
    """Return one GPU's samples of a series."""
    of_process = _OF_PROCESSES.get(series)
    if of_process is not None:
        found = (of_process(process) for process in reading.processes)
        yield from (float(value) for value in found if value is not None)
    elif series in reading.values:
        yield float(int(reading.values[series]))
