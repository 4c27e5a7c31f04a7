"""Watches a workload while it is idle, under load, and left alone again; changes nothing but by the load."""

from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace

from gpuscale.base.clock import Clock
from gpuscale.base.errors import GpuscaleError, UsageError
from gpuscale.kube.client import KubeClient
from gpuscale.ops.doctor.conform.evidence import Evidence, standing
from gpuscale.ops.doctor.conform.steps import PODS, judge
from gpuscale.ops.doctor.gather import Gatherer, GatherSettings
from gpuscale.ops.doctor.pulse.hops import PodStage
from gpuscale.ops.doctor.pulse.load import PulseLoad
from gpuscale.ops.doctor.pulse.sights import ChainReader, ChainSight, DeviceSight, PodSight
from gpuscale.ops.doctor.snapshot import HpaLook, Snapshot

_MOST_LOOKS = 600
"""In each part of a run, however long it is."""


@dataclass(frozen=True, slots=True)
class ConformSettings:
    """The load, and how long each part of the run may take, in seconds."""

    url: str | None = None
    """What is asked for to make load; None where somebody else makes it, when told."""
    at_once: int = 4
    idle_s: float = 45.0
    """Three of the HPA controller's syncs."""
    out_s: float = 600.0
    in_s: float = 900.0
    steady_s: float = 30.0
    every_s: float = 1.0


async def watch(
    client: KubeClient,
    clock: Clock,
    around: GatherSettings,
    name: str,
    settings: ConformSettings,
    tell: Callable[[str], None],
) -> Evidence:
    """Return what was seen; it ends early where what comes next could show nothing.

    Args:
        client: to the API server.
        clock: times the looks.
        around: how the cluster is looked at, and the HPA's namespace.
        name: of the HPA.
        settings: what is done.
        tell: says what happens next; where somebody else makes the load, what is to be done.

    Raises:
        UsageError: there is no such HPA, or it scales nothing.
        ApiUnreachableError, ApiStatusError: the API server can't be looked at.
    """
    about = f"hpa/{around.namespace}/{name}"

    async def look() -> tuple[Snapshot, HpaLook]:
        snapshot = await Gatherer(client, clock, around).snapshot()
        found = next((each for each in snapshot.hpas if each.about == about), None)
        if found is None:
            there = ", ".join(each.about for each in snapshot.hpas) or "none there"
            raise UsageError(f"found no {about}, expected one of: {there}")
        if not found.selector:
            why = found.target_fault or "its scale has no selector"
            raise UsageError(f"{about}: expected a target with pods to watch: {why}")
        return snapshot, found

    async def make_reader() -> ChainReader:
        return ChainReader(client, clock, *await look(), around.agent_urls, around.agent_access)

    evidence = standing(*await look(), await client.git_version() or "unknown")
    run = _Run(make_reader, await make_reader(), settings.every_s, clock)
    evidence = replace(evidence, steady_ms=round(settings.steady_s * 1000))
    tell(f"watching it without load for {settings.idle_s:g} s")
    before = await run.until(settings.idle_s, lambda _: False)
    evidence = replace(evidence, before=before, faults=run.faults)
    judged = [each for each in judge(evidence) if each.requirement == PODS]
    if not before or any(each.passed is False for each in judged):
        return evidence
    old = {each.uid for each in before[-1].pods}
    load = (
        None if settings.url is None else PulseLoad(settings.url, settings.at_once, settings.out_s)
    )
    tell("the load begins" if load else "start the load now")
    async with AsyncExitStack() as stack:
        if load is not None:
            await stack.enter_async_context(load.running())
        loaded = await run.until(settings.out_s, lambda seen: _is_out(seen, old, evidence))
    count = load.count if load else None
    evidence = replace(evidence, loaded=loaded, load=count, faults=run.faults)
    if not any(each.asked is not None and each.asked > len(old) for each in loaded):
        return evidence
    tell("the load is over; waiting for the size before it" if load else "stop the load now")
    size = len(old)
    since_ms: list[int] = []

    def is_back(seen: ChainSight) -> bool:
        if seen.size != size:
            since_ms.clear()
            return False
        since_ms.append(seen.at_ms)
        return seen.at_ms - since_ms[0] >= evidence.steady_ms

    after = await run.until(settings.in_s, is_back)
    return replace(evidence, after=after, faults=run.faults)


class _Run:
    """Looks, one after the other."""

    def __init__(
        self,
        make_reader: Callable[[], Awaitable[ChainReader]],
        reader: ChainReader,
        every_s: float,
        clock: Clock,
    ) -> None:
        self._make_reader = make_reader
        self._reader = reader
        self._every_s = every_s
        self._clock = clock
        self._pods: dict[PodSight, PodSight] = {}
        self._devices: dict[DeviceSight, DeviceSight] = {}
        self.faults: list[str] = []

    async def until(self, most_s: float, is_over: Callable[[ChainSight], bool]) -> list[ChainSight]:
        """Look until it is over, or time is; a look that fails is noted, and the next one is taken."""
        found: list[ChainSight] = []
        start_ms, every_s = self._clock.now_ms(), max(self._every_s, most_s / _MOST_LOOKS)
        while True:
            try:
                seen = await self._reader.sight()
                if not self._reader.knows({each.node for each in seen.pods if each.node}):
                    self._reader = await self._make_reader()
                    seen = await self._reader.sight()
            except GpuscaleError as error:
                if str(error) not in self.faults:
                    self.faults.append(str(error))
            else:
                found.append(self._kept(seen))
                if is_over(seen):
                    return found
            if self._clock.now_ms() - start_ms >= most_s * 1000:
                return found
            await self._clock.sleep(every_s)

    def _kept(self, seen: ChainSight) -> ChainSight:
        """Return a look that shares what is as in earlier ones: most devices and pods of most looks."""
        pods = [self._pods.setdefault(each, each) for each in seen.pods]
        devices = [self._devices.setdefault(each, each) for each in seen.devices]
        return replace(seen, pods=pods, devices=devices)


def _is_out(seen: ChainSight, old: set[str], evidence: Evidence) -> bool:
    """Return whether a new pod is ready, its device is shown, and it has a value where each pod has one."""
    new = {p.name for p in seen.pods if p.uid not in old and p.stage is PodStage.READY}
    shown = {each.pod for each in seen.of_pods(evidence.namespace)}
    held = {name for name in new if f"{evidence.namespace}/{name}" in shown}
    for metric in evidence.metrics:
        if metric.of_pods:
            held &= {i.about.removeprefix("Pod/") for i in seen.values.get(metric.name, ())}
    return bool(held)
