"""Observes one HPA's chain while its pods are under load.

Nothing in the cluster is changed but by the load itself.
"""

from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass

from gpuscale.base.clock import Clock
from gpuscale.base.errors import UnavailableError, UsageError
from gpuscale.ops.doctor.checks.metrics_api import group_of
from gpuscale.ops.doctor.pulse.hops import (
    PodStage,
    Pulse,
    PulseHop,
    PulseObserver,
    PulseSight,
    stuck_hop,
)
from gpuscale.ops.doctor.pulse.load import PulseLoad
from gpuscale.ops.doctor.pulse.report import fix_for
from gpuscale.ops.doctor.pulse.sights import ChainReader, ChainSight
from gpuscale.ops.doctor.snapshot import HpaLook, Snapshot

_BEFORE = 3
"""Looks before the load begins."""
_EVERY_S = 0.5


@dataclass(frozen=True, slots=True)
class PulseSettings:
    """The load of a pulse, and its longest duration."""

    hpa: str | None = None
    """`namespace/name`; None for the only one that scales on a custom or external metric."""
    url: str | None = None
    """What is asked for to make load; None where somebody else makes it."""
    at_once: int = 4
    for_s: float = 60.0


def choose(snapshot: Snapshot, wanted: str | None) -> HpaLook:
    """Return the HPA of this name.

    Raises:
        UsageError: there is none, more than one to choose from, or it scales nothing.
    """
    can_be = {
        look.about: look
        for look in snapshot.hpas
        if any(group_of(each) for each in look.hpa.metrics)
    }
    there = ", ".join(about.removeprefix("hpa/") for about in can_be) or "none in this cluster"
    if wanted is not None:
        look = can_be.get(f"hpa/{wanted}")
        if look is None:
            raise UsageError(
                f"--pulse-hpa: found {wanted!r}, expected an HPA on a custom or external metric: {there}"
            )
    elif len(can_be) == 1:
        look = next(iter(can_be.values()))
    else:
        raise UsageError(
            f"--pulse: expected one HPA on a custom or external metric, found: {there}; "
            "choose with --pulse-hpa NAMESPACE/NAME"
        )
    if not look.selector:
        reason = look.target_fault or "its scale has no selector"
        raise UsageError(f"{look.about}: expected a target with pods to watch: {reason}")
    return look


class PulseWatch:
    """Observes the chain of one HPA.

    Args:
        reader: of the chain.
        clock: for the times.
        look: at the HPA.
    """

    def __init__(self, reader: ChainReader, clock: Clock, look: HpaLook) -> None:
        self._reader = reader
        self._clock = clock
        self._look = look
        self._targets = {
            spec.name: float(target)
            for spec in look.hpa.metrics
            if (target := spec.target.average_value or spec.target.value) is not None
        }

    async def pulse(self, settings: PulseSettings, begin: Callable[[], None]) -> Pulse:
        """Return the hops' times, once a new pod is ready or time is up.

        Args:
            settings: what is done.
            begin: called when the load begins, or may.

        Raises:
            UnavailableError: the HPA is at its limit or still scaling, so nothing would be seen.
            ApiUnreachableError, ApiStatusError: the API server does not let us look at HPA or pods.
        """
        before = []
        for _ in range(_BEFORE):
            before.append(await self._sight())
            await self._clock.sleep(_EVERY_S)
        self._check_room(before[-1])
        observer = PulseObserver(before, self._targets)
        load = (
            PulseLoad(settings.url, settings.at_once, settings.for_s)
            if settings.url is not None
            else None
        )
        begin()
        start_ms = self._clock.now_ms()
        async with AsyncExitStack() as stack:
            if load is not None:
                await stack.enter_async_context(load.running())
            sight = before[-1]
            while self._clock.now_ms() - start_ms < settings.for_s * 1000:
                await self._clock.sleep(_EVERY_S)
                sight = await self._sight()
                observer.see(sight)
                if observer.is_through:
                    break
        if load is None:
            start_ms = start_ms if observer.first_ms is None else observer.first_ms
        return await self._report_of(observer, sight, start_ms, load)

    async def _report_of(
        self, observer: PulseObserver, last: PulseSight, start_ms: int, load: PulseLoad | None
    ) -> Pulse:
        times = observer.times(start_ms)
        stuck = stuck_hop(times)
        fault = last.faults.get(stuck, "") if stuck else ""
        if stuck is PulseHop.CREATED:
            fault = await self._reader.why_none_created() or fault
        count = load.count if load else None
        if stuck is PulseHop.GPU and count is not None and not count.answered:
            fault = f"no request was answered well: {count.fault or 'no answer in time'}"
        fix = fix_for(stuck, self._look) if stuck else ""
        return Pulse(self._look.about, times, round(_EVERY_S * 1000), fault, fix, count)

    def _check_room(self, sight: PulseSight) -> None:
        most, about = self._look.hpa.max_replicas, self._look.about
        if sight.wanted is not None and sight.wanted >= most:
            raise UnavailableError(
                f"{about} already wants {sight.wanted} replicas of at most {most}, so load adds none; "
                "wait until it wants fewer, or raise maxReplicas"
            )
        if sight.wanted is not None and sight.wanted > len(sight.pods):
            raise UnavailableError(
                f"{about} already wants {sight.wanted} replicas, and {len(sight.pods)} pods are there; "
                "wait until it has scaled"
            )

    async def _sight(self) -> PulseSight:
        return pulse_sight(await self._reader.sight(), self._look.namespace)


def pulse_sight(seen: ChainSight, namespace: str) -> PulseSight:
    """Return what a pulse compares of a look."""
    busiest = max((each.percent for each in seen.of_pods(namespace)), default=None)
    gpu_fault = (
        f"the busiest GPU of these pods is {busiest:g} % busy"
        if busiest is not None
        else "; ".join(seen.agent_faults) or "no agent reports a GPU of these pods"
    )
    values = {name: max(item.value for item in items) for name, items in seen.values.items()}
    shown = [f"{name} is {value:g} at most" for name, value in values.items()]
    hpa_fault = "; ".join(f"{kind}={text}" for kind, text in seen.conditions.items())
    waiting = [(each.stage, each.waiting) for each in seen.pods if each.waiting]
    faults = {
        PulseHop.GPU: gpu_fault,
        PulseHop.VALUE: "; ".join(seen.value_faults or shown),
        PulseHop.HPA: hpa_fault,
        PulseHop.CREATED: hpa_fault,
        PulseHop.SCHEDULED: next((why for stage, why in waiting if stage is PodStage.CREATED), ""),
        PulseHop.READY: next((why for stage, why in waiting if stage is PodStage.SCHEDULED), ""),
    }
    wanted = max((each for each in (seen.desired, seen.asked) if each is not None), default=None)
    stages = {each.uid: each.stage for each in seen.pods}
    return PulseSight(seen.at_ms, busiest, values, wanted, stages, faults)
