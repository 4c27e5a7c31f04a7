"""How much of a GPU each of its containers used.

Where the driver counts what processes do, the device's figure is taken for the total and the processes' for
the proportions, so that shares add up to what the device did, in whole numbers.

Where the driver samples who runs, a process' figure is the mean of a window that is longer than the time that
the device's figure is about. Total and proportions have to be of the same window: a share is then the sum of
its processes' own figures, and its standard error is served beside it. Only where all processes of a
GPU are one container's is there nothing to split, and its share is the device's own figure.

Unknown shares are left out: there are no shares where the device's utilisation is absent, nor where
the GPU was busy and no process is seen to be the cause, nor where the MPS server hides its clients. A
container without a known process has none while some process may be anybody's: it may not be idle.
"""

import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from gpuscale.agent.attribution.processes.time_slicing import switching_part
from gpuscale.agent.attribution.reasons import HOST_PID_OFF
from gpuscale.agent.formats.dcgm import owners_of
from gpuscale.agent.gpu.owners import Attribution, ContainerRef
from gpuscale.agent.gpu.readings import GpuReading, ProcessReading

UTILISATION_FIELD = "DCGM_FI_DEV_GPU_UTIL"
MEMORY_FIELD = "DCGM_FI_DEV_FB_USED"
HIGHEST_PERCENT = 100
MPS_SERVER = "nvidia-cuda-mps-server"

Key = TypeVar("Key", bound=Hashable)


@dataclass(frozen=True, slots=True)
class ContainerShare:
    """One container's use of one GPU."""

    container: ContainerRef | None
    """None for what no container is known to have used."""
    sm_util: int
    """Part of the device's utilisation, in its percent."""
    memory_used_mib: int | None
    """Part of the device's used memory; None where the driver does not report it."""
    standard_error: float | None = None
    """Of `sm_util`, in its percent, where that is sampled. None where it is not."""
    switching_percent: float | None = None
    """What of `sm_util` probably went to switches between processes, where that is sampled."""


def split_utilisation(reading: GpuReading, attribution: Attribution) -> tuple[ContainerShare, ...]:
    """Return each container's share of a GPU, idle ones included, and the unallocated rest; () if unknown."""
    device_util = _whole(reading, UTILISATION_FIELD)
    if device_util is None:
        return ()
    owners = owners_of(reading, attribution)
    busy = _sum_by_owner(reading.processes, attribution, owners)
    if not _are_told(reading.processes, attribution) or (
        device_util > 0 and not _is_explained(reading, busy)
    ):
        return _all_to_sole_owner(reading, device_util, owners, busy)
    utils, errors = _utils(reading.processes, attribution, device_util, busy)
    memory = _memory_by_owner(reading, attribution, tuple(utils))
    switching = switching_part([each.sm_util or 0 for each in reading.processes])
    holders = (*_known_holders(reading.processes, attribution, utils), None)
    shares = (
        ContainerShare(
            each,
            utils.get(each, 0),
            memory.get(each),
            errors.get(each),
            switching * utils[each] if each in errors else None,
        )
        for each in holders
    )
    return tuple(share for share in shares if _is_worth_telling(share))


def _known_holders(
    processes: Iterable[ProcessReading],
    attribution: Attribution,
    holders: Iterable[ContainerRef | None],
) -> tuple[ContainerRef, ...]:
    """Return the containers whose use is known: all, unless a process may belong to any of them."""
    pids = {each.pid for each in processes}
    containers = tuple(each for each in holders if each is not None)
    if pids.isdisjoint(attribution.unknown_pids):
        return containers
    seen = {attribution.by_pid.get(pid) for pid in pids}
    return tuple(each for each in containers if each in seen)


def standard_error(use: float, total: float, looks: int) -> float:
    """Return the standard error of a sampled utilization, in per cent.

    Each look finds one process and gives it what the GPU did since the look before. So the part that a
    container has of the total is a binomial proportion. Half a look is added to either side: that nobody else
    was seen in ten looks does not mean that nobody else was there.

    Args:
        use: of the container.
        total: of all processes over the same window.
        looks: in the window.
    """
    if total <= 0:
        return 0.0
    part = (min(use / total, 1.0) * looks + 0.5) / (looks + 1)
    return total * math.sqrt(part * (1 - part) / (looks + 1))


def _utils(
    processes: Sequence[ProcessReading],
    attribution: Attribution,
    device_util: int,
    busy: Mapping[ContainerRef | None, int],
) -> tuple[dict[ContainerRef | None, int], dict[ContainerRef | None, float]]:
    """Return each holder's utilization, and the standard errors of sampled ones."""
    holders = {attribution.by_pid.get(each.pid) for each in processes}
    looks = {each.pid: each.looks for each in processes if each.looks is not None}
    if len(looks) < len(processes) or len(holders) < 2:
        return split_whole(device_util, busy), {}
    users = sum(use > 0 for use in busy.values())
    if users < 2:  # the owner of the GPU's work is as good as certain
        busy = split_whole(device_util, busy)
    total = sum(busy.values())
    fewest: dict[ContainerRef | None, int] = {}
    for pid, count in looks.items():
        owner = attribution.by_pid.get(pid)
        fewest[owner] = min(count, fewest.get(owner, count))
    utils = {owner: min(use, HIGHEST_PERCENT) for owner, use in busy.items()}
    errors = {
        owner: standard_error(busy[owner], min(total, HIGHEST_PERCENT), count)
        for owner, count in fewest.items()
    }
    return utils, errors


def split_whole(total: int, weights: Mapping[Key, int]) -> dict[Key, int]:
    """Return whole numbers in proportion to the weights that add up to `total`.

    What rounding leaves over goes to the largest remainders, the earlier of equal ones first. With no
    weight at all, every part is 0.
    """
    weight = sum(weights.values())
    if weight == 0:
        return dict.fromkeys(weights, 0)
    parts = {key: total * each // weight for key, each in weights.items()}
    by_remainder = sorted(weights, key=lambda key: -(total * weights[key] % weight))
    for key in by_remainder[: total - sum(parts.values())]:
        parts[key] += 1
    return parts


def _whole(reading: GpuReading, field: str) -> int | None:
    value = reading.values.get(field)
    return None if value is None else int(value)


def _are_told(processes: Iterable[ProcessReading], attribution: Attribution) -> bool:
    """Return whether each process on the GPU is visible and has a known utilization."""
    is_hidden = any(each.reason == HOST_PID_OFF for each in attribution.missing)
    return not is_hidden and all(each.sm_util is not None for each in processes)


def _is_explained(reading: GpuReading, busy: Mapping[ContainerRef | None, int]) -> bool:
    is_mps = any(each.name.endswith(MPS_SERVER) and each.sm_util for each in reading.processes)
    return not is_mps and any(busy.values())


def _all_to_sole_owner(
    reading: GpuReading,
    device_util: int,
    owners: Sequence[ContainerRef],
    busy: Mapping[ContainerRef | None, int],
) -> tuple[ContainerShare, ...]:
    """Return the device as one share, if only one container can use it."""
    if len(owners) != 1 or set(busy) != set(owners):
        return ()
    return (ContainerShare(owners[0], device_util, _whole(reading, MEMORY_FIELD)),)


def _sum_by_owner(
    processes: Iterable[ProcessReading], attribution: Attribution, owners: Iterable[ContainerRef]
) -> dict[ContainerRef | None, int]:
    sums: dict[ContainerRef | None, int] = dict.fromkeys(owners, 0)
    for process in processes:
        owner = attribution.by_pid.get(process.pid)
        sums[owner] = sums.get(owner, 0) + (process.sm_util or 0)
    return sums


def _memory_by_owner(
    reading: GpuReading, attribution: Attribution, holders: Iterable[ContainerRef | None]
) -> dict[ContainerRef | None, int]:
    """Return each holder's used memory, as far as it is known.

    What the device uses beyond its processes, such as the driver's own part, is unallocated.
    """
    known: dict[ContainerRef | None, int] = dict.fromkeys(holders, 0)
    for process in reading.processes:
        owner = attribution.by_pid.get(process.pid)
        if process.memory_used_mib is None:
            return {}
        known[owner] = known.get(owner, 0) + process.memory_used_mib
    device_mib = _whole(reading, MEMORY_FIELD)
    if device_mib is None:
        return known
    rest_mib = device_mib - sum(known.values())
    if rest_mib < 0:
        return split_whole(device_mib, known)
    known[None] = known.get(None, 0) + rest_mib
    return known


def _is_worth_telling(share: ContainerShare) -> bool:
    return share.container is not None or bool(share.sm_util or share.memory_used_mib)
