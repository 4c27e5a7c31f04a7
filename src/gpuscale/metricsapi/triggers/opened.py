"""The triggers of a server, with all that they need: what watches them, and what keeps their decisions."""

import logging
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

from gpuscale.core.clock import Clock
from gpuscale.kube.client.client import KubeClient
from gpuscale.metricsapi.api_servers import kube_settings
from gpuscale.metricsapi.backend import MetricsBackend, Task
from gpuscale.metricsapi.backend_settings import BackendSettings
from gpuscale.metricsapi.health import Check, remarked
from gpuscale.metricsapi.triggers.asking import Seeing
from gpuscale.metricsapi.triggers.settings import TriggerSettings
from gpuscale.metricsapi.triggers.stores import HeldConfigMap, HeldFile, HeldStore, Keeper
from gpuscale.metricsapi.triggers.watch import Change, TriggerWatch
from gpuscale.metricsapi.triggers.workloads import Workloads

_LOG = logging.getLogger(__name__)
_SHARED = 0.9
"""Of the shortest interval: how long an answer to a query serves other triggers."""


@dataclass(frozen=True, slots=True)
class HeldPlace:
    """Where decisions are kept; in neither place, they are lost with the process."""

    file: Path | None = None
    config_map: tuple[str, str] | None = None
    """Namespace and name."""


class Triggers:
    """What `open_triggers` made.

    Args:
        watch: answers for triggers.
        keeper: keeps its decisions; None where nothing does.
        tasks: what has to run beside the server.
    """

    def __init__(self, watch: TriggerWatch, keeper: Keeper | None, tasks: list[Task]) -> None:
        self.watch = watch
        self.keeper = keeper
        self.tasks = tasks

    def checks(self) -> list[Check]:
        """Return how the parts do, for the health paths."""
        return [] if self.keeper is None else [remarked("held-decisions", [self.keeper.fault])]


async def open_triggers(
    backend: MetricsBackend,
    settings: BackendSettings,
    clock: Clock,
    stack: AsyncExitStack,
    *,
    is_clustered: bool,
    place: HeldPlace | None = None,
    bounds: TriggerSettings | None = None,
) -> Triggers:
    """Make what watches triggers, on a backend that is open; the stack closes what is opened.

    Args:
        backend: answers for metrics and queries.
        settings: how the API server is reached.
        clock: of ages and waits.
        stack: closes.
        is_clustered: whether there is an API server.
        place: where decisions are kept.
        bounds: of the triggers.
    """
    bounds = bounds or TriggerSettings()
    place = place or HeldPlace()
    tasks: list[Task] = []
    client, workloads = None, None
    if is_clustered:
        kube = kube_settings(settings, settings.kubeconfig)
        client = KubeClient(kube)
        stack.push_async_callback(client.close)
        workloads = Workloads(client, kube, clock, settings.max_object_age_s)
        tasks.append(("workloads", workloads.run))
    seeing = Seeing(
        backend.provider,
        workloads,
        clock,
        bounds.question_timeout_s,
        _SHARED * bounds.asleep_interval_s,
    )
    stack.push_async_callback(seeing.close)
    keepers: list[Keeper] = []

    def changed(change: Change) -> None:
        if change.before is None or change.before.is_active != change.answer.is_active:
            for keeper in keepers:
                keeper.hurry()

    watch = TriggerWatch(seeing, clock, bounds, workloads, changed)
    store = _store(place, client, clock)
    if store is not None:
        keepers.append(Keeper(watch, store, clock))
        await keepers[0].restore()
        tasks.append(("held decisions", keepers[0].run))
    tasks.append(("triggers", watch.run))
    return Triggers(watch, keepers[0] if keepers else None, tasks)


def _store(place: HeldPlace, client: KubeClient | None, clock: Clock) -> HeldStore | None:
    if place.config_map is not None and client is not None:
        return HeldConfigMap(client, *place.config_map, clock)
    if place.config_map is not None:
        _LOG.warning("there is no API server: decisions are not kept in a ConfigMap")
    return HeldFile(place.file, clock) if place.file is not None else None
