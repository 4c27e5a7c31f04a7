"""CPU and memory of pods and nodes for `metrics.k8s.io`, from the rule file's `resourceRules`.

Source: prometheus-adapter v0.12.0 pkg/resourceprovider (provider.go); metrics-server v0.7.1 pkg/api
(pod.go, node.go). As upstream, a list leaves out objects without values, and the log says why.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from gpuscale.base.clock import Clock
from gpuscale.base.errors import GpuscaleError
from gpuscale.base.objects.selectors import Selector
from gpuscale.kube.informers import ObjectRecord
from gpuscale.series import Value
from gpuscale.server.metricsapi.wire.field_selectors import FieldSelector
from gpuscale.server.metricsapi.wire.paths import RESOURCE_GROUP
from gpuscale.server.metricsapi.wire.statuses import ObjectNotFoundError
from gpuscale.server.rules.resource_rules import ResourceRules
from gpuscale.server.sources.freshness import AgeLimit
from gpuscale.server.sources.usage import NodeUsage, PodContainersUsage, nodes_usage, pods_usage

_LOG = logging.getLogger(__name__)
_EVERYTHING = Selector()
_MAX_NAMESPACES_AT_ONCE = 8
T = TypeVar("T", PodContainersUsage, NodeUsage)


class UsageObjects(Protocol):
    """The pods and nodes that there are."""

    async def running_pods(
        self, namespace: str | None, selector: Selector
    ) -> tuple[ObjectRecord, ...]:
        """Return the selected pods that run, sorted by namespace and name; None is every namespace.

        Raises:
            ListError: they are not known.
        """
        ...

    async def nodes(self, selector: Selector) -> tuple[ObjectRecord, ...]:
        """Return the selected nodes, sorted by name.

        Raises:
            ListError: they are not known.
        """
        ...


@dataclass(frozen=True, slots=True)
class ObjectUsage(Generic[T]):
    """An object and what it uses."""

    record: ObjectRecord
    usage: T


class UsageProvider:
    """Answers for pods and nodes.

    Args:
        rules: returns the rules in force; None serves nothing.
        ask: returns what a query evaluates to at a time; raises as `MetricSource.query` does.
        objects: which pods and nodes there are.
        clock: the time of queries.
        age_limit: leaves out what was measured too long ago; None keeps all.
    """

    def __init__(
        self,
        rules: Callable[[], ResourceRules | None],
        ask: Callable[[str, int], Awaitable[Value]],
        objects: UsageObjects,
        clock: Clock,
        age_limit: AgeLimit | None = None,
    ) -> None:
        self._rules = rules
        self._ask = ask
        self._objects = objects
        self._clock = clock
        self._age_limit = age_limit or AgeLimit()

    @property
    def rules(self) -> ResourceRules | None:
        """Return the rules in force; None where `metrics.k8s.io` is not served."""
        return self._rules()

    def now_ms(self) -> int:
        return self._clock.now_ms()

    async def pods(
        self,
        rules: ResourceRules,
        namespace: str | None,
        selector: Selector = _EVERYTHING,
        fields: FieldSelector | None = None,
    ) -> list[ObjectUsage[PodContainersUsage]]:
        """Return the selected pods that have values, sorted by namespace and name.

        Args:
            rules: how to ask.
            namespace: None is every namespace.
            selector: conditions on the pods' labels.
            fields: conditions on name and namespace.

        Raises:
            ListError: it is not known which pods there are.
        """
        records = _selected(await self._objects.running_pods(namespace, selector), fields)
        by_namespace: dict[str, list[str]] = {}
        for record in records:
            by_namespace.setdefault(record.namespace, []).append(record.name)
        at_ms = self._clock.now_ms()
        at_once = asyncio.Semaphore(_MAX_NAMESPACES_AT_ONCE)
        async with asyncio.TaskGroup() as group:
            tasks = {
                place: group.create_task(self._namespace(rules, place, names, at_ms, at_once))
                for place, names in by_namespace.items()
            }
        usages = {
            (place, name): usage
            for place, task in tasks.items()
            for name, usage in task.result().items()
        }
        return _measured(records, lambda each: usages.get((each.namespace, each.name)))

    async def pod(
        self, rules: ResourceRules, namespace: str, name: str
    ) -> ObjectUsage[PodContainersUsage]:
        """Return one pod.

        Raises:
            ObjectNotFoundError: there is no such pod that runs, or it has no values.
            ListError: it is not known which pods there are.
        """
        fields = _named(name)
        if not _selected(await self._objects.running_pods(namespace, _EVERYTHING), fields):
            raise ObjectNotFoundError("pods", "", name)
        found = await self.pods(rules, namespace, fields=fields)
        if not found:
            raise ObjectNotFoundError("podmetrics", RESOURCE_GROUP, f"{namespace}/{name}")
        return found[0]

    async def nodes(
        self,
        rules: ResourceRules,
        selector: Selector = _EVERYTHING,
        fields: FieldSelector | None = None,
    ) -> list[ObjectUsage[NodeUsage]]:
        """Return the selected nodes that have values, sorted by name; see `pods`."""
        records = _selected(await self._objects.nodes(selector), fields)
        if not records:
            return []
        names = [record.name for record in records]
        usages: dict[str, NodeUsage] = {}
        try:
            pair = (rules.cpu.nodes_query(names), rules.memory.nodes_query(names))
            both = await self._both(pair, self._clock.now_ms(), "nodes")
            usages = nodes_usage(rules, *both)
        except GpuscaleError as error:
            _LOG.warning("unable to fetch the usage of nodes: %s", error)
        return _measured(records, lambda each: usages.get(each.name))

    async def node(self, rules: ResourceRules, name: str) -> ObjectUsage[NodeUsage]:
        """Return one node; see `pod`."""
        fields = _named(name)
        if not _selected(await self._objects.nodes(_EVERYTHING), fields):
            raise ObjectNotFoundError("node", "", name)
        found = await self.nodes(rules, fields=fields)
        if not found:
            raise ObjectNotFoundError("nodemetrics", RESOURCE_GROUP, name)
        return found[0]

    async def _namespace(
        self,
        rules: ResourceRules,
        namespace: str,
        names: Sequence[str],
        at_ms: int,
        at_once: asyncio.Semaphore,
    ) -> dict[str, PodContainersUsage]:
        try:
            pair = (
                rules.cpu.pods_query(namespace, names),
                rules.memory.pods_query(namespace, names),
            )
            async with at_once:
                return pods_usage(rules, *await self._both(pair, at_ms, "pods"))
        except GpuscaleError as error:
            _LOG.warning("unable to fetch the usage of pods in %s: %s", namespace, error)
            return {}

    async def _both(self, pair: tuple[str, str], at_ms: int, resource: str) -> tuple[Value, Value]:
        cpu, memory = await asyncio.gather(
            *(self._ask(promql, at_ms) for promql in pair), return_exceptions=True
        )
        if isinstance(cpu, BaseException):
            raise cpu
        if isinstance(memory, BaseException):
            raise memory
        return (
            self._age_limit.fresh(cpu, at_ms, RESOURCE_GROUP, resource),
            self._age_limit.fresh(memory, at_ms, RESOURCE_GROUP, resource),
        )


def _selected(records: Iterable[ObjectRecord], fields: FieldSelector | None) -> list[ObjectRecord]:
    return [record for record in records if fields is None or fields.takes(record)]


def _named(name: str) -> FieldSelector:
    return FieldSelector((("metadata.name", True, name),))


def _measured(
    records: Iterable[ObjectRecord], usage_of: Callable[[ObjectRecord], T | None]
) -> list[ObjectUsage[T]]:
    found = ((record, usage_of(record)) for record in records)
    return [ObjectUsage(record, usage) for record, usage in found if usage is not None]
