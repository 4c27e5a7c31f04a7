"""`gpuscale rehearse`: creates a scenario's objects on a cluster, runs the scenario, and cleans up.

What is there before the scenario's second 0 (namespaces, the smallest pools, Deployments, the registered
metrics API) comes up first. The HPAs are created at second 0, because their controller counts its sync
periods from then on, as the simulator does.
"""

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from gpuscale.base.clock import WallClock
from gpuscale.base.errors import GpuscaleError, UnavailableError, UsageError
from gpuscale.hpa.controller import HpaPolicy
from gpuscale.kube.client import KubeClient
from gpuscale.kube.simulated import SimulatedKubelet
from gpuscale.lab.local.present import every, paced
from gpuscale.lab.local.runner import OnEvent, Runner
from gpuscale.lab.rehearse.acting import Actor, lifecycle_of
from gpuscale.lab.rehearse.cleaning import Cleaner, remove_at_last
from gpuscale.lab.rehearse.following import Following
from gpuscale.lab.rehearse.happenings import Happenings
from gpuscale.lab.rehearse.karpenter import (
    KarpenterControlPlane,
    NoPolicy,
    check_karpenter,
    karpenter_manifests,
    see_nodes,
)
from gpuscale.lab.rehearse.manifests import (
    hpa_manifests,
    namespace_manifest,
    scaled_object_manifests,
    workload_manifests,
)
from gpuscale.lab.rehearse.mark import RehearsalMark, any_rehearsal, rehearsal_id
from gpuscale.lab.rehearse.mirror import Mirror
from gpuscale.lab.rehearse.placing import namespaces, placed
from gpuscale.lab.rehearse.serving import (
    RehearsedMetricsApi,
    ServedSeries,
    free_port,
    group_versions,
)
from gpuscale.lab.rehearse.site import RehearsalSite
from gpuscale.lab.rehearse.speed import check_speed, check_sync_period, hpa_flags
from gpuscale.lab.rehearse.state import state_of
from gpuscale.lab.rehearse.target import (
    RehearsalTarget,
    check_free,
    check_keda,
    check_named,
    check_reachable,
    check_triggers,
)
from gpuscale.lab.sim.document.document import document
from gpuscale.lab.sim.pipeline import FIRST_LOOK_MS
from gpuscale.lab.sim.scenario.setup import Setup, check_no_groups
from gpuscale.series.promapi import TimeAxis
from gpuscale.server.sources.http import HttpSession

_LOOK_S = 0.05
_UP_S = 120.0
"""Until it is an error that nodes or pods don't come up before the start."""
_HOST = "127.0.0.1"
"""Of the node agents; only this process scrapes them."""
Endless = Coroutine[Any, Any, None]


@dataclass(frozen=True, slots=True)
class Announcement:
    """The cluster and namespaces of a rehearsal."""

    id: str
    server: str
    namespaces: tuple[str, ...]


async def clean(target: RehearsalTarget) -> tuple[str, ...]:
    """Delete what any rehearsal has left in a cluster, and return it.

    Raises:
        UsageError: it was not said clearly that this cluster is meant.
        UnavailableError: something is still there after a while, or the API server is not.
        UpstreamError: it refuses.
    """
    async with KubeClient(target.cluster) as client:
        check_named(target, client.server)
        await client.check_ready()
        return await Cleaner(client, any_rehearsal()).remove()


class Rehearsal:
    """One rehearsal: a scenario on a cluster.

    Args:
        setup: the scenario.
        target: the cluster.
        on_event: called with every event as plain data, as it happens.
        announce: gets the place of the rehearsal, before anything is created.
        speed: seconds of the scenario per second.
        karpenter: whether the cluster's own Karpenter makes the nodes, instead of the scenario's policy.
    """

    def __init__(
        self,
        setup: Setup,
        target: RehearsalTarget,
        on_event: OnEvent,
        announce: Callable[[Announcement], None],
        speed: float = 1.0,
        *,
        karpenter: bool = False,
    ) -> None:
        self._karpenter = karpenter
        if karpenter:
            setup = replace(setup, node_policy=NoPolicy)
        self._target = target
        self._announce = announce
        self._mark = RehearsalMark(rehearsal_id(setup.name, secrets.token_hex(3)), target.namespace)
        self._setup = placed(setup, self._mark)
        self._namespaces = tuple(sorted({*namespaces(self._setup), target.namespace}))
        self._clock = WallClock(speed)
        self._origin_ms = self._clock.now_ms()
        self._machine_clock = WallClock()
        self._site = RehearsalSite(
            self._setup, self._clock.now_ms(), KarpenterControlPlane if karpenter else None
        )
        self._is_over = False

        def pass_on(event: dict[str, object]) -> None:
            if not self._is_over:
                on_event(event)

        self._runner = Runner(self._site, self._clock, self._site.prometheus_rules, _HOST, pass_on)

    def state(self) -> dict[str, object]:
        """Return the current state for the terminal."""
        return state_of(self._site, self._runner.readings, self._clock.speed)

    async def run(self, stop: asyncio.Event, limit_s: float | None = None) -> dict[str, object]:
        """Run the scenario to its end or until `stop` is set, and return the run's document.

        Args:
            stop: ends it early.
            limit_s: ends it after so many seconds of the scenario.

        Raises:
            UsageError: the cluster may not be used, or the scenario names another replica policy than `hpa`
                or changes HPAs, and nothing was created; or the cluster's HPA controller does not keep up
                with the speed.
            UnavailableError: a part does not answer, or something could not be removed.
            UpstreamError: the API server refuses something.
        """
        if self._setup.replica_policy is not HpaPolicy:
            raise UsageError(
                "spec.replicaPolicy: found a policy of a plug-in, expected hpa: "
                "a rehearsal's replicas are the cluster's own HPA controller's"
            )
        if self._setup.hpa_changes:
            raise UsageError(
                "spec.hpaChanges: found changes of HPAs while the scenario runs, expected none: "
                "a rehearsal does not change them; remove the field"
            )
        check_no_groups(self._setup, "rehearse")
        if self._setup.pod_groups or any(each.job.gang for each in self._setup.jobs):
            raise UsageError(
                f"{self._setup.name}: rehearse: found PodGroups, expected none: a cluster has them only with "
                "the feature gate GenericWorkload; gpuscale simulate places them"
            )
        check_speed(self._setup, self._clock.speed)
        async with KubeClient(self._target.cluster) as client:
            check_named(self._target, client.server)
            check_reachable(self._target, client.server)
            await client.check_ready()
            port = free_port(self._target)
            check_triggers(self._setup)
            if self._setup.scaled_objects:
                await check_keda(client)
            if self._karpenter:
                await check_karpenter(client, self._setup, self._clock.speed)
            await check_free(client, self._namespaces, group_versions(self._setup))
            self._announce(Announcement(self._mark.id, client.server, self._namespaces))
            cleaner = Cleaner(client, self._mark.selector)
            failure: GpuscaleError | None = None
            try:
                return await self._within(client, port, cleaner, stop, limit_s)
            except GpuscaleError as error:
                failure = error
                raise
            finally:
                await self._leave_nothing(cleaner, failure)

    async def _leave_nothing(self, cleaner: Cleaner, failure: GpuscaleError | None) -> None:
        try:
            await remove_at_last(cleaner)
        except GpuscaleError as error:
            first = f"{failure}\n" if failure else ""
            raise UnavailableError(
                f"{first}{error}; remove the rest with: "
                f"gpuscale rehearse{self._target.options} --clean"
            ) from error

    async def _within(
        self,
        client: KubeClient,
        port: int,
        cleaner: Cleaner,
        stop: asyncio.Event,
        limit_s: float | None,
    ) -> dict[str, object]:
        """Open all that the rehearsal acts through, and raise the first error of several as it is."""
        speed, mark, address = self._clock.speed, self._mark, self._target.advertise_address
        try:
            async with AsyncExitStack() as stack:
                folder = stack.enter_context(TemporaryDirectory(prefix="gpuscale-rehearse-"))
                session = await stack.enter_async_context(HttpSession())
                stack.push_async_callback(self._runner.agents.stop)
                kubelet = await stack.enter_async_context(
                    SimulatedKubelet(
                        client,
                        lambda pod: lifecycle_of(self._site, pod),
                        mark.selector,
                        self._clock,
                        adopts=mark.selector if self._karpenter else None,
                        gpu_lag_s=self._setup.pools[0].machine.gpu_start.mean,
                    )
                )
                actor = Actor(client, kubelet, self._site, mark, speed)
                api = RehearsedMetricsApi(self._setup, self._target, mark, Path(folder), port)
                axis = TimeAxis(self._origin_ms, speed)
                served = ServedSeries(self._runner.store, self._clock, axis, address)
                stack.push_async_callback(served.stop)
                stage = _Stage(client, actor, session, api, await served.start())
                return await self._perform(stage, cleaner, stop, limit_s)
        except BaseExceptionGroup as group:
            error: BaseException | None = group.split(GpuscaleError)[0]
            if error is None:
                raise
            while isinstance(error, BaseExceptionGroup):
                error = error.exceptions[0]
            raise error from None

    async def _perform(
        self, stage: "_Stage", cleaner: Cleaner, stop: asyncio.Event, limit_s: float | None
    ) -> dict[str, object]:
        """Set up, run, and clean up while the controllers still have what they need."""
        async with asyncio.TaskGroup() as servers:
            serving = servers.create_task(
                stage.api.run(self._runner.source, self._clock), name="metrics API"
            )
            async with asyncio.TaskGroup() as group:
                acting = group.create_task(self._act(stage, limit_s), name="scenario")
                stopping = group.create_task(stop.wait(), name="stop")
                await asyncio.wait({acting, stopping}, return_when=asyncio.FIRST_COMPLETED)
                acting.cancel()
                stopping.cancel()
            self._is_over = True
            result = document(self._site, self._runner.recorder)
            await cleaner.remove()
            serving.cancel()
        return result

    async def _act(self, stage: "_Stage", limit_s: float | None) -> None:
        """Set up and run the scenario to its end."""
        setup, site, mark, speed = self._setup, self._site, self._mark, self._clock.speed
        agents, create = self._runner.agents, stage.actor.create

        async def follow(_now_ms: int) -> None:
            await stage.actor.carry_out()
            if site.has_begun:
                await agents.follow_nodes()

        async with asyncio.TaskGroup() as group:
            for name in self._namespaces:
                await create(namespace_manifest(name, mark))
            tasks = [group.create_task(self._follow(stage.client), name="following")]
            tasks.append(group.create_task(self._runner.keep_up(follow), name="engine"))
            # The scenario can start once nodes and pods are ready and metric values are served.
            if self._karpenter:
                for path, manifest in karpenter_manifests(setup, mark):
                    await stage.client.create(path, manifest)
            site.cloud.start()
            await _wait_for(lambda: not site.orders, "nodes")
            for manifest in workload_manifests(setup, mark, speed):
                await create(manifest)
            await _wait_for(site.is_up, "Deployments")
            await agents.follow_nodes()
            await self._clock.sleep(2 * setup.pipeline.collect_interval / 1000)
            await self._look(stage)
            await stage.api.register(stage.client)
            for manifest in hpa_manifests(setup, mark, speed):
                await create(manifest)
            for manifest in scaled_object_manifests(setup, mark, stage.prometheus, speed):
                await create(manifest)
            site.begin(self._clock.now_ms())
            tasks += [group.create_task(each, name="pace") for each in self._paces(stage)]
            if setup.hpas and speed != 1:
                flags = hpa_flags(setup.pipeline, speed)
                tasks.append(group.create_task(check_sync_period(stage.api.audit_log, flags)))
            lasts_s = setup.duration_ms / 1000
            await self._clock.sleep(lasts_s if limit_s is None else min(lasts_s, limit_s))
            self._runner.present.catch_up()
            for task in tasks:
                task.cancel()

    def _paces(self, stage: "_Stage") -> list[Endless]:
        """Return the periodic tasks besides the control plane, each at a simulation's times."""
        pipeline, start_ms = self._setup.pipeline, self._site.start_ms

        def at_pace(hop: str, period_ms: int, action: Callable[[], Awaitable[None]]) -> Endless:
            return paced(self._clock, self._site, hop, period_ms, action)

        async def record() -> None:
            self._runner.record(self._site.figures)

        scrape_ms = pipeline.scrape_interval
        return [
            self._look_at(start_ms + FIRST_LOOK_MS, stage),
            at_pace("scrape", scrape_ms, lambda: self._runner.scrape(stage.session)),
            at_pace("rules", pipeline.rule_interval, self._runner.evaluate_rules),
            every(self._clock, start_ms, scrape_ms, record),
        ]

    async def _look_at(self, time_ms: int, stage: "_Stage") -> None:
        await self._clock.sleep((time_ms - self._clock.now_ms()) / 1000)
        await self._look(stage)

    async def _look(self, stage: "_Stage") -> None:
        """Scrape, and evaluate rules, once."""
        await self._runner.scrape(stage.session)
        await self._runner.evaluate_rules()

    async def _follow(self, client: KubeClient) -> None:
        cluster = self._site.cluster
        targets = {
            f"HorizontalPodAutoscaler/{key}": f"{hpa.metadata.namespace}/{hpa.target.name}"
            for key, hpa in cluster.hpas.items()
        }
        targets |= {
            f"ScaledObject/{each.key}": f"{each.metadata.namespace}/{each.target_name}"
            for each in self._setup.scaled_objects
        }
        sizes = {key: item.replicas for key, item in cluster.deployments.items()}
        mirror, happenings = Mirror(self._site), Happenings(targets, sizes)
        following = Following(
            client,
            self._runner.present,
            mirror,
            happenings,
            self._machine_clock,
            partial(see_nodes, self._site, self._mark) if self._karpenter else None,
        )
        await following.run(self._mark.selector, self._namespaces)


@dataclass(frozen=True, slots=True)
class _Stage:
    """The connections and tasks of a running rehearsal."""

    client: KubeClient
    actor: Actor
    session: HttpSession
    api: RehearsedMetricsApi
    prometheus: str
    """URL of the rehearsal's series."""


async def _wait_for(look: Callable[[], bool], what: str) -> None:
    for _ in range(round(_UP_S / _LOOK_S)):
        if look():
            return
        await asyncio.sleep(_LOOK_S)
    raise UnavailableError(f"the scenario's first {what} were not up within {_UP_S:g} s")
