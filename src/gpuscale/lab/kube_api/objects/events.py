"""Events, deduplicated and counted as Kubernetes does.

Source: kubernetes v1.36 client-go tools/record (events_cache.go: what counts as the same event), and the
    components that report each of them.
"""

import hashlib
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from gpuscale.lab.kube_api.kinds import API_VERSIONS
from gpuscale.lab.kube_api.objects.run import Json, Run
from gpuscale.lab.sim.events import SimulationEvent

MAX_EVENTS = 5_000
"""The oldest are dropped, as an API server drops events after an hour."""
_REPORTERS = {
    "Scheduled": "default-scheduler",
    "FailedScheduling": "default-scheduler",
    "Started": "kubelet",
    "Killing": "kubelet",
    "NodeReady": "kubelet",
    "Completed": "job-controller",
    "ScalingReplicaSet": "deployment-controller",
    "TriggeredScaleUp": "cluster-autoscaler",
    "NotTriggerScaleUp": "cluster-autoscaler",
    "FailedToScaleUpGroup": "cluster-autoscaler",
    "ScaleDown": "cluster-autoscaler",
}
_BY_KIND = {
    "HorizontalPodAutoscaler": "horizontal-pod-autoscaler",
    "ReplicaSet": "replicaset-controller",
    "Job": "job-controller",
    "ScaledObject": "keda-operator",
}
_OURS = "gpuscale"
"""Who reports what no component of Kubernetes would."""
_CONTAINER = " container "


@dataclass(frozen=True, slots=True)
class Happening:
    """An event about one object, with its number of repetitions."""

    kind: str
    namespace: str
    name: str
    reason: str
    message: str
    type: str
    first_ms: int
    last_ms: int
    count: int = 1
    host: str = ""
    """The node of the kubelet that reports it."""

    @property
    def namespace_of_event(self) -> str:
        """Return the event's namespace: `default` for objects without a namespace."""
        return self.namespace or "default"

    @property
    def event_name(self) -> str:
        what = f"{self.kind}/{self.namespace}/{self.name}/{self.reason}/{self.message}"
        return f"{self.name}.{hashlib.sha256(what.encode()).hexdigest()[:16]}"


class EventBook:
    """The events of a run, as an API server would keep them.

    Args:
        node_of: returns the node of a pod, by its key; empty where it has none.
    """

    def __init__(self, node_of: Callable[[str], str]) -> None:
        self.total = 0
        """Grows with every change."""
        self._node_of = node_of
        self._book: OrderedDict[tuple[str, ...], Happening] = OrderedDict()
        self._latest: OrderedDict[tuple[str, str, str, str], Happening] = OrderedDict()

    def add(self, event: SimulationEvent) -> None:
        """Add an event, or count a repetition."""
        kind, _, name = event.object.partition("/")
        if event.pods:
            for key in event.pods:
                namespace, _, pod = key.partition("/")
                self._add(event, "Pod", namespace, pod)
        else:
            self._add(event, kind, event.namespace, name)

    def all(self) -> Iterable[Happening]:
        """Return the events, least recent first."""
        return self._book.values()

    def latest(self, kind: str, namespace: str, name: str, reason: str) -> Happening | None:
        """Return the newest event of an object with this reason."""
        return self._latest.get((kind, namespace, name, reason))

    def _add(self, event: SimulationEvent, kind: str, namespace: str, name: str) -> None:
        key = (kind, namespace, name, event.kind, event.reason, event.type)
        known = self._book.pop(key, None)
        first_ms = event.time_ms if known is None else known.first_ms
        count = 1 if known is None else known.count + 1
        host = ""
        if kind == "Node":
            host = name
        elif kind == "Pod":
            host = self._node_of(f"{namespace}/{name}") or (known.host if known else "")
        happening = Happening(
            kind,
            namespace,
            name,
            event.kind,
            event.reason,
            event.type,
            first_ms,
            event.time_ms,
            count,
            host,
        )
        self._book[key] = happening
        self._latest.pop((kind, namespace, name, event.kind), None)
        self._latest[kind, namespace, name, event.kind] = happening
        for kept in (self._book, self._latest):
            while len(kept) > MAX_EVENTS:
                kept.popitem(last=False)
        self.total += 1


def event_body(run: Run, happening: Happening) -> Json:
    """Return a core `SimulationEvent`."""
    by_kind = _BY_KIND.get(happening.kind, _OURS)
    reporter = _REPORTERS.get(happening.reason) or by_kind
    source: Json = {"component": reporter}
    if reporter == "kubelet" and happening.host:
        source["host"] = happening.host
    key = f"{happening.namespace}/{happening.name}" if happening.namespace else happening.name
    about: Json = {"kind": happening.kind}
    if happening.namespace:
        about["namespace"] = happening.namespace
    about |= {
        "name": happening.name,
        "uid": run.uid(happening.kind, key),
        "apiVersion": API_VERSIONS.get(happening.kind, ""),
    }
    _, is_of_container, container = happening.message.partition(_CONTAINER)
    if happening.kind == "Pod" and is_of_container and reporter == "kubelet":
        about["fieldPath"] = f"spec.containers{{{container}}}"
    namespace = happening.namespace_of_event
    name = happening.event_name
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "uid": run.uid("Event", f"{namespace}/{name}"),
            "creationTimestamp": run.time(happening.first_ms),
        },
        "involvedObject": about,
        "reason": happening.reason,
        "message": happening.message,
        "source": source,
        "firstTimestamp": run.time(happening.first_ms),
        "lastTimestamp": run.time(happening.last_ms),
        "count": happening.count,
        "type": happening.type,
        "eventTime": None,
        "reportingComponent": reporter,
        "reportingInstance": source.get("host", ""),
    }


def new_event_body(body: Json) -> Json:
    """Return a core Event as one of `events.k8s.io/v1`, which is the same with other names."""
    instance = body["reportingInstance"]
    return {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": body["metadata"],
        "eventTime": None,
        "reportingController": body["reportingComponent"],
        **({"reportingInstance": instance} if instance else {}),
        "reason": body["reason"],
        "regarding": body["involvedObject"],
        "note": body["message"],
        "type": body["type"],
        "deprecatedSource": body["source"],
        "deprecatedFirstTimestamp": body["firstTimestamp"],
        "deprecatedLastTimestamp": body["lastTimestamp"],
        "deprecatedCount": body["count"],
    }
