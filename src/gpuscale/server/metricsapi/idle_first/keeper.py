"""Keeps deletion costs in line with what pods do, while an HPA is about to take some of them away.

Every replica does so, and none leads: what a cost should be follows from the pods and their values, a cost
that is nearly right stays, and a patch is refused where another replica was first. A lease would leave a time
after a crash in which wrong costs stay. What a look needs is read anew, so that a restart changes nothing.
"""

import asyncio
import logging
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from gpuscale.base.clock import Clock
from gpuscale.base.errors import GpuscaleError
from gpuscale.base.exposition.families import Family, Sample
from gpuscale.base.objects.selectors import Selector
from gpuscale.hpa.cluster.victims import planned_costs
from gpuscale.kube.client import ApiStatusError, JsonObject, KubeClient
from gpuscale.server.metricsapi.health import HealthCheck, remarked
from gpuscale.server.metricsapi.idle_first.marks import MANAGER, MarkedPod, read_pods
from gpuscale.server.metricsapi.idle_first.outlook import leaving, target_of
from gpuscale.server.metricsapi.idle_first_settings import IdleFirst
from gpuscale.server.metricsapi.provider import MetricsProvider
from gpuscale.server.metricsapi.triggers.scales import read_scale
from gpuscale.server.metricsapi.wire.paths import ALL, CustomTarget

_LOG = logging.getLogger(__name__)
_LOOK_S = 5.0
_STAYS_S = 30.0
"""So long right costs stay when the HPA changed its mind, and costs at all while nothing is known."""
_MOST = 100
"""Patches of a workload in a look."""
_METADATA = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
_CHANGED = (404, 409, 422)
"""422 is the answer of a JSON patch whose `test` does not hold."""
_STATES = ("marked", "unknown", "others")


@dataclass(slots=True)
class _Watched:
    """What was last seen of a workload."""

    shrinks_ms: int | None = None
    """When its HPA was last about to take pods away."""
    known_ms: int = 0
    """When its pods' work was last known."""
    has_marks: bool = True
    """Whether pods may have costs of ours, such as from before a restart."""
    fault: str = ""
    pods: Counter[str] = field(default_factory=Counter)
    """By state."""


class IdleFirstKeeper:
    """Marks the pods of some Deployments that have the least work, while these are about to shrink.

    Args:
        workloads: whose.
        client: of the API server, for whole objects.
        provider: knows what pods do.
        clock: times the looks.
    """

    def __init__(
        self,
        workloads: Sequence[IdleFirst],
        client: KubeClient,
        provider: MetricsProvider,
        clock: Clock,
    ) -> None:
        self._client = client
        self._provider = provider
        self._clock = clock
        self._watched = {each: _Watched(known_ms=clock.now_ms()) for each in workloads}
        self._patches: Counter[str] = Counter()

    async def run(self) -> None:
        """Look until cancelled."""
        while True:
            await self.look()
            await self._clock.sleep(_LOOK_S)

    async def look(self) -> None:
        """Look at all workloads once, and patch what is wrong."""
        namespaces = {each.namespace for each in self._watched}
        await asyncio.gather(*(self._look_in(namespace) for namespace in sorted(namespaces)))

    def families(self) -> tuple[Family, ...]:
        """Return the metrics."""
        pods = [
            Sample(
                (("namespace", each.namespace), ("workload", each.workload), ("state", state)),
                watched.pods[state],
            )
            for each, watched in self._watched.items()
            for state in _STATES
        ]
        patches = [
            Sample((("result", result),), self._patches[result])
            for result in ("done", "overtaken", "failed")
        ]
        return (
            Family(
                "gpuscale_idle_first_pods",
                "gauge",
                "Pods with a deletion cost of ours, without a known work, or with a cost set by others.",
                tuple(pods),
            ),
            Family(
                "gpuscale_idle_first_patches_total",
                "counter",
                "Patches of pods' deletion costs; overtaken: the pod had changed meanwhile.",
                tuple(patches),
            ),
        )

    def checks(self) -> list[HealthCheck]:
        """Return the health check, with what keeps a workload from being marked."""
        faults = [f"{each}: {known.fault}" for each, known in self._watched.items() if known.fault]
        return [remarked("idle-first", faults)]

    async def _look_in(self, namespace: str) -> None:
        path = f"/apis/autoscaling/v2/namespaces/{namespace}/horizontalpodautoscalers"
        hpas: dict[str, JsonObject] = {}
        fault = ""
        try:
            answer = await self._client.get(path)
            items = answer.get("items")
            for item in items if isinstance(items, list) else ():
                kind, name = target_of(item)
                if kind == "Deployment":
                    hpas[name] = item
        except GpuscaleError as error:
            fault = str(error)
        for each in self._watched:
            if each.namespace == namespace:
                await self._try(each, hpas.get(each.workload), fault)

    async def _try(self, each: IdleFirst, hpa: JsonObject | None, fault: str) -> None:
        watched, now_ms = self._watched[each], self._clock.now_ms()
        count = 0 if hpa is None else leaving(hpa)
        if count:
            watched.shrinks_ms = now_ms
        was = watched.fault
        try:
            if count or watched.has_marks:
                await self._keep(each, watched, count, now_ms)
            watched.fault = fault or ("" if hpa else "no HPA scales this Deployment")
        except GpuscaleError as error:
            watched.fault = str(error)
        except Exception:  # noqa: BLE001 - a task's top: an odd answer may not keep all others from a look
            _LOG.exception("looking at the pods of %s broke off", each)
            watched.fault = "the look broke off, see the log"
        if watched.fault != was:
            _LOG.warning("idle-first of %s: %s", each, watched.fault or "well again")

    async def _keep(self, each: IdleFirst, watched: _Watched, count: int, now_ms: int) -> None:
        """Read the pods and their work, and patch those whose cost is wrong."""
        base = f"/apis/apps/v1/namespaces/{each.namespace}/deployments/{each.workload}"
        scale = read_scale(await self._client.get(base))
        if scale is None:
            return
        path = f"/api/v1/namespaces/{each.namespace}/pods"
        params = {"labelSelector": str(scale.selector)}
        pods = list(read_pods(await self._client.get(path, params, _METADATA)))
        kept = {pod.name: pod.cost for pod in pods if pod.cost is not None and not pod.is_others}
        stays = watched.shrinks_ms is not None and now_ms - watched.shrinks_ms <= _STAYS_S * 1000
        plan: Mapping[str, int] = {}
        watched.pods["unknown"] = 0
        fault: GpuscaleError | None = None
        if stays:
            try:
                work = await self._work(each, scale.selector)
                watched.known_ms = now_ms
            except GpuscaleError as error:
                if now_ms - watched.known_ms <= _STAYS_S * 1000:
                    raise
                work, fault = {}, error
            ours = {pod.name for pod in pods if not pod.is_others}
            known = {name: value for name, value in work.items() if name in ours}
            plan = planned_costs(known, kept, count)
            watched.pods["unknown"] = len(ours) - len(known)
        wrong = [pod for pod in pods if not pod.is_others and pod.cost != plan.get(pod.name)]
        wrong.sort(key=lambda pod: pod.cost is None)  # wrong costs are worse than none
        for pod in wrong[:_MOST]:
            await self._patch(path, pod, plan.get(pod.name))
        watched.has_marks = bool(plan) or bool(wrong)
        watched.pods["marked"] = len(plan)
        watched.pods["others"] = sum(pod.is_others for pod in pods)
        if fault is not None:
            raise fault

    async def _work(self, each: IdleFirst, selector: Selector) -> dict[str, float]:
        """Return the work of the pods that have a value; a number below 0 is none."""
        target = CustomTarget("pods", each.namespace, ALL, each.metric)
        answer = await self._provider.custom(target, selector, Selector())
        found = {value.object_name: value.value_milli / 1000 for value in answer.values}
        return {name: work for name, work in found.items() if 0 <= work < math.inf}

    async def _patch(self, path: str, pod: MarkedPod, cost: int | None) -> None:
        try:
            await self._client.json_patch(
                f"{path}/{pod.name}?fieldManager={MANAGER}", pod.patch(cost)
            )
            self._patches["done"] += 1
        except ApiStatusError as error:
            if error.code not in _CHANGED:
                self._patches["failed"] += 1
                raise
            self._patches["overtaken"] += 1
