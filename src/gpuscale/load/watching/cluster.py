"""Watches one HPA on a cluster: its status, metric, pods, nodes and events.

Objects are watched, so that a change has the time at which it was seen; the metric is asked for every two
seconds, as the HPA's controller asks.
"""

import asyncio
import contextlib
from collections import Counter
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

from gpuscale.base.clock import Clock
from gpuscale.base.errors import GpuscaleError
from gpuscale.base.objects.manifests import read_stored_hpa
from gpuscale.base.quantity import parse_quantity
from gpuscale.kube.client import JsonObject, KubeClient, KubeSettings
from gpuscale.kube.informers import Reflector
from gpuscale.load.timeline.types import Hop
from gpuscale.load.watching.notes import Notes
from gpuscale.load.watching.objects import (
    NodeFigures,
    read_event,
    read_hpa_figures,
    read_node_state,
    read_pod_state,
)
from gpuscale.ops.observe import Discovery, MetricReader, Observer, Sight, find_hpa

METRIC_PERIOD_S = 2.0


class HpaWatch:
    """Watches an HPA until cancelled.

    Args:
        settings: how the API server is reached.
        namespace: of the HPA.
        name: of the HPA.
        notes: takes what is seen.
        clock: gives the notes their times.
    """

    def __init__(
        self, settings: KubeSettings, namespace: str, name: str, notes: Notes, clock: Clock
    ) -> None:
        self._settings = settings
        self._namespace, self._name = namespace, name
        self._notes, self._clock = notes, clock
        self._body: JsonObject = {}
        self._nodes_seen: dict[str, bool] | None = None

    async def run(self, ready: Callable[[], None]) -> None:
        """Watch the HPA; `ready` is called once it was found.

        Raises:
            UnavailableError: the API server gives no answer, or refuses the HPA.
            NotFoundError: there is no such HPA.
        """
        async with KubeClient(self._settings) as client:
            self._body = await find_hpa(client, self._namespace, self._name)
            sight = await Observer(client, self._clock).look(self._body)
            selector = sight.scale.get("status")
            text = selector.get("selector") if isinstance(selector, dict) else None
            ready()
            async with asyncio.TaskGroup() as tasks:
                for reflector in self._reflectors(client, str(text or "")):
                    tasks.create_task(reflector.run())
                tasks.create_task(self._follow_metrics(client, str(text or "")))

    def _reflectors(self, client: KubeClient, selector: str) -> list[Reflector[Any]]:
        place = f"/api/v1/namespaces/{quote(self._namespace, safe='')}"
        hpas = f"/apis/autoscaling/v2/namespaces/{quote(self._namespace, safe='')}"
        found = [
            self._reflector(
                client,
                f"{hpas}/horizontalpodautoscalers",
                {"fieldSelector": f"metadata.name={self._name}"},
                lambda body: body,
                self._see_hpas,
                "hpa",
            ),
            self._reflector(client, "/api/v1/nodes", {}, read_node_state, self._see_nodes, "nodes"),
            self._reflector(client, f"{place}/events", {}, self._see_event, lambda *_: None, None),
        ]
        if selector:
            params = {"labelSelector": selector}
            found.append(
                self._reflector(
                    client, f"{place}/pods", params, read_pod_state, self._see_pods, "replicas"
                )
            )
        else:
            self._notes.say(f"hpa/{self._name}: its target names no pods, so none are shown")
        return found

    def _reflector(
        self,
        client: KubeClient,
        path: str,
        params: dict[str, str],
        read: Callable[[JsonObject], Any],
        see: Callable[[dict[str, Any], int], None],
        hop: Hop | None,
    ) -> Reflector[Any]:
        def changed() -> None:
            now_ms = self._clock.now_ms()
            if reflector.state.error is not None:
                self._notes.say(str(reflector.state.error))
                if hop is not None:
                    self._notes.lost(hop, now_ms)
            elif reflector.state.listed:
                see(dict(reflector.items), now_ms)

        reflector = Reflector(client, self._settings, path, params, read, self._clock, changed)
        return reflector

    # What is seen of each kind

    def _see_hpas(self, bodies: dict[str, JsonObject], now_ms: int) -> None:
        self._body = next(iter(bodies.values()), self._body)
        if not bodies:
            self._notes.lost("hpa", now_ms)
            return
        figures = read_hpa_figures(self._body)
        self._notes.value("replicas", "pods", "wanted", now_ms, figures.wanted)
        for metric in figures.metrics:
            unit = metric.unit
            self._notes.value("hpa", unit, metric.name, now_ms, metric.current)
            self._notes.value("hpa", unit, f"{metric.name} target", now_ms, metric.target)

    def _see_pods(self, states: dict[str, str], now_ms: int) -> None:
        counts = Counter(states.values())
        self._notes.value("replicas", "pods", "ready", now_ms, counts["running"])
        waiting = counts["pending"] + counts["starting"]
        self._notes.value("replicas", "pods", "not ready yet", now_ms, waiting)
        for key, state in states.items():
            self._notes.state(key.partition("/")[2], state, now_ms)
        self._notes.only({key.partition("/")[2] for key in states}, now_ms)

    def _see_nodes(self, states: dict[str, NodeFigures], now_ms: int) -> None:
        """Count nodes with GPUs, all where none has any; mark those that came, went or changed since."""
        with_gpus = {key: state for key, state in states.items() if state.has_gpus}
        counted = with_gpus or states
        before, self._nodes_seen = (
            self._nodes_seen,
            {key.partition("/")[2]: state.is_ready for key, state in counted.items()},
        )
        if before is not None:
            for name, is_ready in self._nodes_seen.items():
                if before.get(name, False) != is_ready:
                    kind = "NodeReady" if is_ready else "NodeNotReady"
                    self._notes.mark(now_ms, kind, f"Node/{name}", "")
            for name in before.keys() - self._nodes_seen.keys():
                self._notes.mark(now_ms, "NodeRemoved", f"Node/{name}", "")
        ready = sum(self._nodes_seen.values())
        self._notes.value("nodes", "nodes", "ready", now_ms, ready)
        self._notes.value("nodes", "nodes", "total", now_ms, len(counted))

    def _see_event(self, body: JsonObject) -> None:
        """Handle an event about the HPA, its target or pods, known by their common name prefix."""
        mark = read_event(body)
        if mark is None:
            return
        spec = self._body.get("spec")
        reference = spec.get("scaleTargetRef") if isinstance(spec, dict) else None
        target = str(reference.get("name", "")) if isinstance(reference, dict) else ""
        kind, _, name = mark.object.partition("/")
        is_ours = kind == "HorizontalPodAutoscaler" and name == self._name
        is_targets = bool(target) and (name == target or name.startswith(f"{target}-"))
        if is_ours or is_targets:
            self._notes.mark(mark.at_ms, mark.kind, mark.object, mark.text)

    # What the metrics API serves

    async def _follow_metrics(self, client: KubeClient, selector: str) -> None:
        reader = MetricReader(client, Discovery(client))
        while True:
            now_ms = self._clock.now_ms()
            with contextlib.suppress(GpuscaleError):  # an HPA that can't be read has no metrics
                hpa = read_stored_hpa(self._body, f"hpa/{self._name}")
                sight = Sight(self._body, hpa, now_ms)
                for index, spec in enumerate(hpa.metrics):
                    await self._see_metric(reader, sight, index, spec.name, selector)
            await self._clock.sleep(METRIC_PERIOD_S)

    async def _see_metric(
        self, reader: MetricReader, sight: Sight, index: int, name: str, selector: str
    ) -> None:
        value = None
        try:
            entry = await reader.read(sight, index, selector)
            value = served_value(entry)
            if "error" in entry:
                self._notes.say(f"{name}: {entry['error']}")
        except GpuscaleError as error:
            self._notes.say(f"{name}: {error}")
        self._notes.value("metric", name, name, self._clock.now_ms(), value)


def served_value(entry: dict[str, object]) -> float | None:
    """Return a metrics API's answer as one number: the pods' mean, an object's value, the sum of samples.

    Args:
        entry: as `ops.observe.answers.observed_entry` makes it.
    """
    values: list[float] = []
    match entry:
        case {"pods": list() as pods}:
            for pod in pods:
                containers = pod.get("containers")
                texts = containers.values() if containers is not None else [pod.get("value")]
                if None not in texts:
                    values.append(sum(float(parse_quantity(text)) for text in texts))
            return sum(values) / len(values) if values else None
        case {"value": str() as text}:
            return float(parse_quantity(text))
        case {"samples": list() as samples}:
            return sum(float(parse_quantity(text)) for text in samples) if samples else None
    return None
