"""The read periods of values.

The costs named here are processor time on one H200 with driver 580, for calls a second apart: after a pause
they cost several times what they do in a row.
"""

from dataclasses import dataclass

from gpuscale.agent.panels import MAX_INTERVAL_MS, READINGS, SERIES, WINDOW_MS, milliseconds
from gpuscale.base.settings import made

_PROFILING = "profiling-interval"
_PERIOD_MS = milliseconds(0, MAX_INTERVAL_MS).unless_empty()
GRAPHICS_SHARE_MS = 1_000
"""The part of the period of `graphics_period_ms` that each GPU of a node adds."""


@dataclass(frozen=True, slots=True)
class NvmlSettings:
    """Periods and time limits of reading NVIDIA GPUs. A period of 0 means every read.

    A value that was read less often than the others is served until its next turn and no longer: when
    that call fails, the value is gone. So no value is older than its period.
    """

    gpm_period_ms: int = made(
        lambda flags: _PERIOD_MS.read(flags, _PROFILING) or 0,
        READINGS.flag(
            _PROFILING,
            "Time between readings of NVIDIA's profiling counters; 0: at every collect. Without it the "
            "graphics engine's activity, the costly one, is read once in as many seconds as the node has "
            "GPUs, and the others at every collect.",
            "duration",
            env="GPUSCALE_EXPORTER_PROFILING_INTERVAL",
            is_ours=True,
        ),
    )
    """Profiling counters but for the next: 0.3 ms a GPU or MIG instance, whatever number of them is asked
    for. Each value is the mean since the turn before."""
    graphics_period_ms: int | None = made(
        lambda flags: _PERIOD_MS.read(flags, _PROFILING), usual=lambda: None
    )
    """The graphics engine's activity, the one profiling counter that costs 1.5 ms more. None makes the period
    grow with the number of GPUs, `GRAPHICS_SHARE_MS` for each, so that eight cost no more than two."""
    poll_period_ms: int = 200
    """GPU and memory utilisation from the driver, 0.04 to 0.07 ms, while reads come often: as often as
    the driver computes it. 0 never asks so."""
    utilization_period_ms: int = 0
    """GPU utilisation from the driver's buffer, 2.7 ms, where the polls don't cover the time since the last
    read. The driver samples every 200 ms and keeps 14 s."""
    memory_utilization_period_ms: int = 5_000
    """Memory utilisation from a buffer of the same kind, where the polls don't cover it, and the mean since
    the turn before."""
    temperature_period_ms: int = 1_000
    """Temperatures, which are whole degrees and move slowly."""
    process_period_ms: int = 0
    """The list of processes, 0.03 to 0.3 ms."""
    process_use_period_ms: int = 5_000
    """Use by process, 2 ms a GPU that has any; at once when a process is new."""
    process_use_soon_ms: int = 1_000
    """The same while a process is younger than the window, or when the GPU's utilisation has changed."""
    process_use_shared_period_ms: int = 2_000
    """The same on a GPU that several processes use."""
    process_use_window_ms: int = 10_000
    """What use by process is the mean of: the driver looks only every 200 ms, see `processes`."""
    nvlink_period_ms: int = 30_000
    """NVLink traffic as a rate, 2.8 ms a GPU with 18 links, and the mean since the turn before. It is served
    where there are no profiling counters of NVLink, which cost nothing beside the others."""
    energy_period_ms: int = 60_000
    """Energy, 2.4 ms to 6.7 ms whichever call gives it. It only ever grows, so that rates over minutes lose
    nothing."""
    counters_period_ms: int = 10_000
    """Fault counters: PCIe replays 0.4 ms, remapped rows 0.8 ms, violations 1 ms, ECC, NVLink errors."""
    limits_period_ms: int = 60_000
    """What only an administrator changes: limits, modes, thresholds, highest clocks, the vGPU licence.
    Up to 4 ms a call."""
    mig_period_ms: int = 30_000
    """MIG mode and the list of instances, 0.7 ms. The kernel's list of them, which is looked at with every
    read, says sooner that it is time to."""
    split_period_ms: int = 1_000
    """The same on a GPU that is split, where the kernel's list can't be seen from every container."""
    unsupported_retry_ms: int = 60_000
    """When to ask again for what the GPU does not support or the driver does not permit."""
    device_check_period_ms: int = 10_000
    """How often to count the GPUs."""
    first_window_ms: int = 1_000
    """What a mean is taken over when there is no earlier read that it could go back to."""
    fresh_sample_ms: int = 1_000
    """How long a mean of samples stands when no new sample has come; then the driver's own figure is
    taken."""
    xid_wait_ms: int = 500
    """How long the thread that waits for XIDs waits at a time; closing takes as long at most."""
    xid_window_ms: int = SERIES.option(
        WINDOW_MS,
        "xid-count-window-size",
        "Window of DCGM_EXP_XID_ERRORS_COUNT.",
        "300000",
        alias="x",
        env="DCGM_EXPORTER_XID_COUNT_WINDOW_SIZE",
    )
    clock_window_ms: int = SERIES.option(
        WINDOW_MS,
        "clock-events-count-window-size",
        "Window of DCGM_EXP_CLOCK_EVENTS_COUNT.",
        "300000",
        env="DCGM_EXPORTER_CLOCK_EVENTS_COUNT_WINDOW_SIZE",
    )
    patience_ms: int = 250
    """How long one GPU is waited for before the next is read beside it. The first calls after a pause
    take some 20 ms where the driver does not persist."""
    deadline_ms: int = 2_000
    """When a read ends without the GPUs that have not answered. They are left alone until they do."""
    open_deadline_ms: int = 4_000
    """The same for opening, in which the driver wakes GPUs up that nothing has used: a second or more."""
    lost_retry_ms: int = 5_000
    """How often a lost GPU is tried again."""
    lost_reopen_ms: int = 30_000
    """When NVML as a whole is first reopened for a lost GPU; the time doubles up to ten-fold."""
    reopen_first_ms: int = 1_000
    """How long to wait before NVML is opened again after the driver has gone; doubles each time."""
    reopen_last_ms: int = 30_000
    """The longest such wait."""
    forget_gone_ms: int = 3_600_000
    """How long a GPU that has left the node is still reported as lost."""
    processes: bool = True
    """Whether to read processes at all; only families about processes need them."""

    def graphics_ms(self, gpus: int) -> int:
        """Return the period of reading graphics activity, for a node's number of GPUs."""
        spread_ms = GRAPHICS_SHARE_MS * gpus
        return spread_ms if self.graphics_period_ms is None else self.graphics_period_ms
