"""A server's triggers with their watch, their policies and their saved decisions."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

from gpuscale.base.clock import Clock
from gpuscale.base.exposition.families import Family
from gpuscale.kube.client import KubeClient
from gpuscale.server.metricsapi.api_servers import kube_settings
from gpuscale.server.metricsapi.backend import MetricsBackend
from gpuscale.server.metricsapi.backend_settings import BackendSettings
from gpuscale.server.metricsapi.health import HealthCheck, remarked
from gpuscale.server.metricsapi.trigger_settings import HeldPlace, TriggerSettings
from gpuscale.server.metricsapi.triggers.asking import Seeing
from gpuscale.server.metricsapi.triggers.events import TriggerEvents
from gpuscale.server.metricsapi.triggers.families import trigger_families
from gpuscale.server.metricsapi.triggers.stores import HeldConfigMap, HeldFile, HeldStore, Keeper
from gpuscale.server.metricsapi.triggers.watch import AnswerChange, TriggerWatch
from gpuscale.server.metricsapi.triggers.workloads import Workloads
from gpuscale.triggers import Answer, Trigger

_LOG = logging.getLogger(__name__)
_SHARED = 0.9
"""Of the shortest interval: how long an answer to a query serves other triggers."""
_RESTORE_S = 5.0
"""How long a start waits for the decisions that are kept."""


class Triggers:
    """The triggers' answers, with the tasks that compute and save them.

    Args:
        watch: answers.
        workloads: the cluster's; None where there is no API server.
        keeper: keeps decisions; None where nothing does.
        events: tells users in the cluster; None where there is no API server.
    """

    def __init__(
        self,
        watch: TriggerWatch,
        workloads: Workloads | None,
        keeper: Keeper | None,
        events: TriggerEvents | None,
    ) -> None:
        self.watch = watch
        self._workloads = workloads
        self._keeper = keeper
        self._events = events

    def answer(self, trigger: Trigger) -> Answer | None:
        """See `TriggerAnswers`."""
        return self.watch.answer(trigger)

    def kept(self, trigger: Trigger) -> Answer | None:
        """See `KeptAnswers`."""
        return self.watch.kept(trigger)

    def changes(self, trigger: Trigger) -> AsyncIterator[Answer]:
        """See `TriggerAnswers`."""
        return self.watch.changes(trigger)

    async def run(self) -> None:
        """Restore saved decisions, then evaluate triggers until cancelled."""
        if self._keeper is not None:
            try:
                async with asyncio.timeout(_RESTORE_S):
                    await self._keeper.restore()
            except TimeoutError:
                _LOG.warning("the decisions that are kept could not be read in %g s", _RESTORE_S)
        async with asyncio.TaskGroup() as group:
            if self._workloads is not None:
                group.create_task(self._workloads.run(), name="workloads")
            if self._keeper is not None:
                group.create_task(self._keeper.run(), name="held decisions")
            if self._events is not None:
                group.create_task(self._events.run(), name="events of triggers")
            group.create_task(self.watch.run(), name="trigger evaluations")

    def families(self) -> tuple[Family, ...]:
        """Return the triggers' metrics."""
        return trigger_families(self.watch)

    def checks(self) -> list[HealthCheck]:
        """Return health checks of the watch, the files and the saved decisions."""
        return [] if self._keeper is None else [remarked("held-decisions", [self._keeper.fault])]


def open_triggers(
    backend: MetricsBackend,
    settings: BackendSettings,
    clock: Clock,
    stack: AsyncExitStack,
    *,
    is_clustered: bool,
    place: HeldPlace | None = None,
    bounds: TriggerSettings | None = None,
) -> Triggers:
    """Open the triggers on an open backend; the exit stack closes them.

    Args:
        backend: answers for metrics and queries.
        settings: how the API server is reached.
        clock: measures ages and waits.
        stack: closes.
        is_clustered: whether there is an API server.
        place: where decisions are kept.
        bounds: of the triggers.
    """
    bounds = bounds or TriggerSettings()
    client, workloads = None, None
    if is_clustered:
        kube = kube_settings(settings, settings.kubeconfig)
        client = KubeClient(kube)
        stack.push_async_callback(client.close)
        workloads = Workloads(client, kube, clock, settings.max_object_age_s)
    shared_s = _SHARED * bounds.asleep_interval_s
    seeing = Seeing(backend.provider, workloads, clock, bounds.question_timeout_s, shared_s)
    stack.push_async_callback(seeing.close)
    store = _store(place or HeldPlace(), client, clock)
    keepers: list[Keeper] = []
    events = None if client is None else TriggerEvents(client, clock)

    def changed(change: AnswerChange) -> None:
        if change.before is None or change.before.is_active != change.answer.is_active:
            for keeper in keepers:
                keeper.hurry()
        if events is not None:
            events.note(change)

    watch = TriggerWatch(seeing, clock, bounds, workloads, changed)
    if store is not None:
        keepers.append(Keeper(watch, store, clock))
    return Triggers(watch, workloads, keepers[0] if keepers else None, events)


def _store(place: HeldPlace, client: KubeClient | None, clock: Clock) -> HeldStore | None:
    if place.config_map is not None and client is not None:
        return HeldConfigMap(client, *place.config_map, clock)
    if place.config_map is not None:
        _LOG.warning("there is no API server: decisions are not kept in a ConfigMap")
    return HeldFile(place.file, clock) if place.file is not None else None
