"""The workloads that triggers scale: wanted replicas, existing pods, and how long pods take to start.

Pods, Deployments and StatefulSets are watched as soon as a trigger needs them; the scale of other kinds is
asked for. What is not known is a reason, never zero pods.
"""

import asyncio
import sys
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, TypeVar

from gpuscale.base.clock import Clock
from gpuscale.base.errors import GpuscaleError
from gpuscale.base.objects.pods import PodPhase
from gpuscale.base.objects.selectors import Selector
from gpuscale.hpa import PodInfo, ReadyCondition
from gpuscale.kube import mapping_of, text_of
from gpuscale.kube.client import JsonObject, KubeClient, KubeSettings
from gpuscale.kube.informers import Reflector
from gpuscale.server.metricsapi.triggers.scales import PolledScales, WorkloadScale, read_scale
from gpuscale.triggers import Missing, PodsSeen, WorkloadRef, kept_starts, learned_deadline_s

_PODS = "/api/v1/pods"
_WATCHED = {
    ("Deployment", "apps/v1"): "/apis/apps/v1/deployments",
    ("StatefulSet", "apps/v1"): "/apis/apps/v1/statefulsets",
}
_MAX_START_S = 3600.0
"""A pod that was ready for longer, when it was first seen, may have become ready a second time."""
_FIRST_LIST_S = 5.0
_LOOK_S = 0.02
_PHASES = {phase.value: phase for phase in PodPhase}
_READY = {"True": ReadyCondition.TRUE, "False": ReadyCondition.FALSE}

Item = TypeVar("Item")
Key = tuple[str, WorkloadRef]
"""Namespace and workload."""


@dataclass(frozen=True, slots=True)
class _Pod:
    """The facts that are kept of a pod."""

    namespace: str
    uid: str
    labels: Mapping[str, str]
    info: PodInfo
    created_ms: int
    ready_ms: int | None
    """When it became ready; None while it is not."""


@dataclass(slots=True)
class _Known:
    """What was learned about a workload's starts."""

    starts_s: tuple[float, ...] = ()
    started: set[str] = field(default_factory=set)
    """Pods that were ready."""
    short_since_ms: int | None = None
    """Since when fewer pods are there than are asked for."""


class Workloads:
    """Replicas and pods of the workloads, kept current by `run`.

    Args:
        client: of the API server, for whole objects.
        settings: waits and sizes.
        clock: measures ages and waits; it never goes backwards.
        max_age_s: how long what is known counts after the API server last said something.
    """

    def __init__(
        self, client: KubeClient, settings: KubeSettings, clock: Clock, max_age_s: float = 60.0
    ) -> None:
        self._client = client
        self._settings = settings
        self._clock = clock
        self._max_age_s = max_age_s
        self._group: asyncio.TaskGroup | None = None
        self._pods: Reflector[_Pod] | None = None
        self._by_namespace: dict[str, dict[str, _Pod]] | None = None
        self._scales: dict[str, Reflector[WorkloadScale]] = {}
        self._polled = PolledScales(client, clock, max_age_s)
        self._known: dict[Key, _Known] = {}
        self._first_s: float | None = None
        self._waiting: list[tuple[str, Callable[[], Coroutine[Any, Any, None]]]] = []
        """Watches that were asked for before `run`."""

    async def run(self) -> None:
        """Watch and poll until cancelled."""
        async with asyncio.TaskGroup() as group:
            self._group = group
            for path, follow in self._waiting:
                group.create_task(follow(), name=f"watch {path}")
            try:
                await self._polled.run()
            finally:
                self._group = None

    async def listed(self, namespace: str, workload: WorkloadRef) -> None:
        """Wait until the pods and the workload are known, or some seconds have passed.

        A decision without them may be lower than the number of replicas that the workload wants already.
        """
        path = _WATCHED.get((workload.kind, workload.api_version))
        pods, scales = self._pod_copy(), None if path is None else self._scale_copy(path)
        if self._first_s is None:
            self._first_s = self._clock.now_ms() / 1000
        ends_s = self._first_s + _FIRST_LIST_S
        while self._clock.now_ms() / 1000 < ends_s:
            if scales is None:
                is_scale_known = self._polled.is_known(namespace, workload)
            else:
                is_scale_known = _is_tried(scales)
            if is_scale_known and _is_tried(pods):
                return
            await asyncio.sleep(_LOOK_S)

    def seed(self, namespace: str, workload: WorkloadRef, starts_s: tuple[float, ...]) -> None:
        """Set the start times that an earlier process measured, unless some were learned already."""
        known = self._known.setdefault((namespace, workload), _Known())
        if not known.starts_s:
            known.starts_s = starts_s

    def starts_s(self, namespace: str, workload: WorkloadRef) -> tuple[float, ...]:
        """Return how long the workload's last pods took from creation to Ready, the newest last."""
        known = self._known.get((namespace, workload))
        return known.starts_s if known is not None else ()

    def forget(self, namespace: str, workload: WorkloadRef) -> None:
        """Drop what was learned of workloads without a trigger."""
        self._known.pop((namespace, workload), None)
        self._polled.forget(namespace, workload)

    def seen(self, namespace: str, workload: WorkloadRef) -> tuple[PodsSeen | Missing, Selector]:
        """Return the workload's pods and its pod selector."""
        scale = self._scale(namespace, workload)
        if isinstance(scale, Missing):
            return scale, Selector()
        pods = self._pods_of(namespace, scale.selector)
        if isinstance(pods, Missing):
            return pods, scale.selector
        now_ms = self._clock.now_ms()
        known = self._known.setdefault((namespace, workload), _Known())
        alive = [p for p in pods if not p.info.deleted and p.info.phase is not PodPhase.FAILED]
        for pod in pods:
            if pod.ready_ms is not None and pod.uid not in known.started:
                known.started.add(pod.uid)
                took_s = max(0.0, (pod.ready_ms - pod.created_ms) / 1000)
                if took_s <= _MAX_START_S:
                    known.starts_s = kept_starts(known.starts_s, took_s)
        known.started &= {pod.uid for pod in pods}
        starting = [
            max(0.0, (now_ms - pod.created_ms) / 1000)
            for pod in alive
            if pod.uid not in known.started and pod.info.phase is not PodPhase.SUCCEEDED
        ]
        if len(alive) >= scale.desired:
            known.short_since_ms = None
        else:
            known.short_since_ms = now_ms if known.short_since_ms is None else known.short_since_ms
            starting.append((now_ms - known.short_since_ms) / 1000)
        deadline_s = learned_deadline_s(known.starts_s)
        infos = tuple(pod.info for pod in pods if pod.info.phase is not PodPhase.SUCCEEDED)
        longest_s = max(known.starts_s, default=None)
        seen = PodsSeen(scale.desired, infos, tuple(starting), deadline_s, longest_s)
        return seen, scale.selector

    def _scale(self, namespace: str, workload: WorkloadRef) -> WorkloadScale | Missing:
        path = _WATCHED.get((workload.kind, workload.api_version))
        if path is None:
            return self._polled.scale(namespace, workload)
        copy = self._scale_copy(path)
        missing = self._unknown(copy, path.rpartition("/")[2])
        if missing is not None:
            return missing
        found = copy.items.get(f"{namespace}/{workload.name}")
        if found is None:
            return Missing(f"there is no {workload.kind} {workload.name} in {namespace}")
        return found

    def _pods_of(self, namespace: str, selector: Selector) -> tuple[_Pod, ...] | Missing:
        copy = self._pod_copy()
        missing = self._unknown(copy, "pods")
        if missing is not None:
            return missing
        if self._by_namespace is None:
            self._by_namespace = {}
            for key, pod in copy.items.items():
                self._by_namespace.setdefault(pod.namespace, {})[key] = pod
        inside = self._by_namespace.get(namespace, {})
        return tuple(pod for pod in inside.values() if selector.matches(pod.labels))

    def _scale_copy(self, path: str) -> Reflector[WorkloadScale]:
        copy = self._scales.get(path)
        if copy is None:
            copy = self._scales[path] = self._reflector(path, read_scale, lambda: None)
        return copy

    def _pod_copy(self) -> Reflector[_Pod]:
        if self._pods is None:
            self._pods = self._reflector(_PODS, self._read_pod, self._changed, self._removed)
        return self._pods

    def _reflector(
        self,
        path: str,
        read: Callable[[JsonObject], Item | None],
        changed: Callable[[], None],
        removed: Callable[[str], None] = lambda _: None,
    ) -> Reflector[Item]:
        copy: Reflector[Item] = Reflector(
            self._client, self._settings, path, {}, read, self._clock, changed, removed
        )
        self._begin(path, copy.run)
        return copy

    def _begin(self, path: str, follow: Callable[[], Coroutine[Any, Any, None]]) -> None:
        if self._group is None:
            self._waiting.append((path, follow))
        else:
            self._group.create_task(follow(), name=f"watch {path}")

    def _unknown(
        self, copy: Reflector[_Pod] | Reflector[WorkloadScale], plural: str
    ) -> Missing | None:
        state = copy.state
        if not state.listed:
            return Missing(f"{plural} are not known: {state.error or 'they are not listed yet'}")
        if state.age_s() > self._max_age_s:
            reason = state.error or "the API server is silent"
            return Missing(f"{plural} have not been kept up for {state.age_s():.0f} s: {reason}")
        return None

    def _read_pod(self, body: JsonObject) -> _Pod | None:
        pod = _read_pod(body)
        if pod is not None and self._by_namespace is not None:
            key = f"{pod.namespace}/{pod.info.name}"
            self._by_namespace.setdefault(pod.namespace, {})[key] = pod
        return pod

    def _changed(self) -> None:
        copy = self._pods
        if copy is not None and self._by_namespace is not None:
            known = sum(map(len, self._by_namespace.values()))
            if known != len(copy.items):  # after a new list
                self._by_namespace = None

    def _removed(self, key: str) -> None:
        if self._by_namespace is not None:
            self._by_namespace.get(key.partition("/")[0], {}).pop(key, None)


def _is_tried(copy: Reflector[_Pod] | Reflector[WorkloadScale]) -> bool:
    return copy.state.listed or copy.state.error is not None


def _read_pod(body: JsonObject) -> _Pod | None:
    metadata, status = mapping_of(body.get("metadata")), mapping_of(body.get("status"))
    name, namespace = text_of(metadata.get("name")), text_of(metadata.get("namespace"))
    created_ms = time_ms(metadata.get("creationTimestamp"))
    if not name or created_ms is None:
        return None
    conditions = status.get("conditions")
    found = conditions if isinstance(conditions, list) else []
    ready = next((c for c in map(mapping_of, found) if c.get("type") == "Ready"), {})
    state = _READY.get(text_of(ready.get("status")), ReadyCondition.ABSENT)
    changed_ms = time_ms(ready.get("lastTransitionTime"))
    labels = mapping_of(metadata.get("labels"))
    info = PodInfo(
        name,
        phase=_PHASES.get(text_of(status.get("phase")), PodPhase.PENDING),
        deleted="deletionTimestamp" in metadata,
        ready=state,
        ready_transition_ms=changed_ms,
    )
    return _Pod(
        sys.intern(namespace),
        text_of(metadata.get("uid")) or name,
        {sys.intern(key): sys.intern(str(value)) for key, value in labels.items()},
        info,
        created_ms,
        changed_ms if state is ReadyCondition.TRUE else None,
    )


def time_ms(value: object) -> int | None:
    """Return an API server's time in milliseconds; None for what is none."""
    with suppress(ValueError, OverflowError):
        return round(datetime.fromisoformat(text_of(value)).timestamp() * 1000)
    return None


def described(error: GpuscaleError) -> str:
    """Return an error's first line."""
    return str(error).partition("\n")[0][:300]
