"""The demand that a recording shows.

Where the request rate was recorded, that is the demand, and what a request costs is GPU time over requests.
Otherwise the demand is what the GPUs did: utilisation x ready pods x GPUs, in GPUs. That has a bias: a
saturated GPU shows 100 % however much waits. Such moments are lower bounds, and marked as such.
"""

from dataclasses import dataclass

from gpuscale.base.errors import UsageError
from gpuscale.lab.sim.history.recording import Column, Recording

SATURATED = 97.0
"""Percent of the ready pods' GPUs, from which on more work would not show."""


@dataclass(frozen=True, slots=True)
class Demand:
    """The demand in requests per second, for each step of the recording."""

    rates: Column
    lower_bounds: tuple[bool, ...]
    """Where the demand may have been higher than the rate."""
    gpu_seconds_per_request: float
    is_estimated: bool
    """Whether it was made of utilisation; a request is then one GPU-second."""

    @property
    def missing_ratio(self) -> float:
        """Return the share of time without known demand, from 0 to 1."""
        return sum(rate is None for rate in self.rates) / len(self.rates)

    @property
    def lower_bound_ratio(self) -> float:
        """Return the share of the known time with a lower bound only, from 0 to 1."""
        known = sum(rate is not None for rate in self.rates)
        return sum(self.lower_bounds) / known if known else 0.0


def demand_of(recording: Recording, gpus_per_pod: int) -> Demand:
    """Return the demand of a recording.

    Raises:
        UsageError: it shows none.
    """
    columns = recording.columns
    busy = tuple(
        None if value is None or ready is None else value / 100 * ready * gpus_per_pod
        for value, ready in zip(columns.utilization, columns.ready, strict=True)
    )
    saturated = tuple((value or 0) >= SATURATED for value in columns.utilization)
    if any(rate is not None for rate in columns.rate):
        return _of_rates(columns.rate, busy, saturated)
    is_off = tuple(
        work is None and ready == 0 and replicas == 0
        for work, ready, replicas in zip(busy, columns.ready, columns.replicas, strict=True)
    )
    rates = tuple(0.0 if off else work for off, work in zip(is_off, busy, strict=True))
    if not any(work is not None for work in busy):
        raise UsageError(
            "found no GPU utilisation of the workload's ready pods in the whole range, so its demand is "
            "not known; expected DCGM_FI_DEV_GPU_UTIL with the pod's labels, or --utilization-query"
        )
    bounds = tuple(full or off for full, off in zip(saturated, is_off, strict=True))
    return Demand(rates, bounds, 1.0, is_estimated=True)


def _of_rates(rates: Column, busy: Column, saturated: tuple[bool, ...]) -> Demand:
    pairs = [
        (rate, work)
        for rate, work, full in zip(rates, busy, saturated, strict=True)
        if rate is not None and work is not None and not full
    ]
    requests, work = sum(rate for rate, _ in pairs), sum(work for _, work in pairs)
    if not requests or not work:
        raise UsageError(
            "found requests but no GPU utilisation beside them, so what a request costs is not known; "
            "expected both at the same times, below saturation"
        )
    return Demand(rates, (False,) * len(rates), work / requests, is_estimated=False)
