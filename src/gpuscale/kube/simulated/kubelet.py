"""Kubelets that run nothing: they register nodes, keep them alive and lead pods through their lives.

Known differences from a real one: containers never fail, probes and init containers are not looked at,
nothing is evicted.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from itertools import count
from types import TracebackType
from typing import Self

from gpuscale.base.clock import Clock, WallClock
from gpuscale.base.errors import GpuscaleError, UnavailableError
from gpuscale.base.objects.gpu_resources import WHOLE_GPUS
from gpuscale.base.objects.pods import Lifecycle
from gpuscale.kube.client.client import CONFLICT, NOT_FOUND, STRATEGIC_MERGE, JsonObject, KubeClient
from gpuscale.kube.client.errors import ApiStatusError, ApiUnreachableError
from gpuscale.kube.client.settings import KubeSettings
from gpuscale.kube.informers.reflector import Reflector
from gpuscale.kube.simulated.nodes import (
    LEASES,
    NOT_READY,
    SimulatedNode,
    lease_object,
    node_object,
    node_status,
)
from gpuscale.kube.simulated.pod_status import Placed, creating, running, succeeded

LifecycleOf = Callable[[JsonObject], Lifecycle]

_RENEW_S = 10.0
"""The kubelet's own interval."""
_RETRY_S = 0.2
_MAX_RETRY_S = 2.0
_ATTEMPTS = 25


class SimulatedKubelet:
    """The kubelets of any number of simulated nodes. Use it in `async with`.

    Args:
        client: of someone who may write nodes, leases and the status of pods.
        lifecycle: how long pods take; a function is asked for each pod's, and gets the Pod as JSON data.
        pods: label selector of the pods to run; other pods stay as the scheduler left them.
        clock: of the pods' lives. Signs of life of the nodes are sent by the machine's time.
        adopts: label selector of nodes that others create, such as a node autoscaler's provider without
            machines; None adopts none.
        gpu_lag_s: how long an adopted node is Ready before its GPUs are allocatable.
    """

    def __init__(
        self,
        client: KubeClient,
        lifecycle: Lifecycle | LifecycleOf | None = None,
        pods: str = "",
        clock: Clock | None = None,
        *,
        adopts: str | None = None,
        gpu_lag_s: float = 0.0,
    ) -> None:
        self._api = client
        self._lifecycle_of = (
            lifecycle if callable(lifecycle) else lambda _: lifecycle or Lifecycle()
        )
        self._clock = clock or WallClock()
        settings = KubeSettings(retry_s=_RETRY_S, max_retry_s=_MAX_RETRY_S)
        params: Mapping[str, str] = {"labelSelector": pods} if pods else {}
        self._pods: Reflector[JsonObject] = Reflector(
            client, settings, "/api/v1/pods", params, lambda pod: pod, WallClock(), self._look
        )
        self._others = Reflector[JsonObject](
            client,
            settings,
            "/api/v1/nodes",
            {"labelSelector": adopts or ""},
            lambda node: node,
            WallClock(),
            self._see_nodes,
        )
        self._adopts = adopts is not None
        self._gpu_lag_s = gpu_lag_s
        self._adopted: dict[str, asyncio.Task[None]] = {}
        self._heartbeats: dict[str, asyncio.Task[None]] = {}
        self._addresses: dict[str, str] = {}
        self._pod_addresses: dict[str, str] = {}
        """Of all pods of a node, for the nodes that have one."""
        self._stages: dict[str, asyncio.Task[None]] = {}
        """Pod UID to the task that leads it to its next stage."""
        self._ending: set[str] = set()
        self._numbers = count(1)

    async def __aenter__(self) -> Self:
        self._tasks = await asyncio.TaskGroup().__aenter__()
        self._watches = [self._tasks.create_task(self._pods.run(), name="pods of simulated nodes")]
        if self._adopts:
            watch = self._tasks.create_task(self._others.run(), name="nodes that others create")
            self._watches.append(watch)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        running = (self._heartbeats, self._stages, self._adopted)
        for task in (*self._watches, *(each for tasks in running for each in tasks.values())):
            task.cancel()
        # The cancellation may be the task group's own; errors of the body pass through it
        # unwrapped.
        cause = (kind, error, trace) if kind is asyncio.CancelledError else (None, None, None)
        await self._tasks.__aexit__(*cause)

    async def add(self, *nodes: SimulatedNode) -> None:
        """Return once these nodes are Ready and take pods.

        Raises:
            ApiStatusError: the API server does not take one.
            ApiUnreachableError: no answer, or not now.
        """
        async with asyncio.TaskGroup() as group:
            for node in nodes:
                group.create_task(self._register(node))

    async def offer(self, name: str, resources: Mapping[str, str]) -> None:
        """Let a node offer more, as a device plugin that registers does.

        Raises:
            ApiStatusError: the API server does not take it.
            ApiUnreachableError: no answer, or not now.
        """
        status = {"capacity": dict(resources), "allocatable": dict(resources)}
        await self._api.patch(f"/api/v1/nodes/{name}/status", {"status": status}, STRATEGIC_MERGE)

    async def remove(self, name: str) -> None:
        """Delete a node, as a cloud would; the control plane then deletes its pods."""
        self._heartbeats.pop(name).cancel()
        self._addresses.pop(name, None)
        self._pod_addresses.pop(name, None)
        for path in (f"/api/v1/nodes/{name}", f"{LEASES}/{name}"):
            await self._api.delete(path)

    async def remove_all(self) -> None:
        for name in tuple(self._heartbeats):
            await self.remove(name)

    async def silence(self, name: str) -> None:
        """Stop a node's heartbeats; after about 50 s it becomes NotReady."""
        self._heartbeats[name].cancel()

    async def _register(self, node: SimulatedNode) -> None:
        path = f"/api/v1/nodes/{node.name}"
        address = _address(10, 200, next(self._numbers))
        self._addresses[node.name] = address
        if node.pod_address is not None:
            self._pod_addresses[node.name] = node.pod_address
        made = await self._api.create("/api/v1/nodes", node_object(node))
        uid = made["metadata"]["uid"]
        await self._api.create(LEASES, lease_object(node, uid, _now_micro()))
        status = node_status(node, address, _now())
        await self._api.patch(f"{path}/status", status, STRATEGIC_MERGE)
        self._keep_alive(node.name)
        await self._clear_not_ready(path)

    def _keep_alive(self, name: str) -> None:
        heartbeat = self._tasks.create_task(self._renew(name), name=f"heartbeat {name}")
        self._heartbeats[name] = heartbeat

    def _see_nodes(self) -> None:
        """Adopt the nodes that are new, and forget those that are gone."""
        nodes = {node["metadata"]["name"]: node for node in self._others.items.values()}
        for name in self._adopted.keys() - nodes.keys():
            self._adopted.pop(name).cancel()
            self._addresses.pop(name, None)
            if (heartbeat := self._heartbeats.pop(name, None)) is not None:
                heartbeat.cancel()
        for name, node in nodes.items():
            if name not in self._adopted:
                task = self._tasks.create_task(self._adopt(node), name=f"adopting {name}")
                self._adopted[name] = task

    async def _adopt(self, node: JsonObject) -> None:
        """Be the kubelet and the device plugin of a node that others created."""
        name = node["metadata"]["name"]
        path = f"/api/v1/nodes/{name}"
        address = _address(10, 200, next(self._numbers))
        lease = lease_object(SimulatedNode(name), node["metadata"]["uid"], _now_micro())
        await self._persist(lambda: self._api.create(LEASES, lease))
        offered = node["status"].get("allocatable", {})
        gpus = {key: offered[key] for key in WHOLE_GPUS if key in offered}
        at_first = dict.fromkeys(gpus, "0") if self._gpu_lag_s else {}
        status = node_status(SimulatedNode(name), address, _now(), at_first)
        await self._persist(lambda: self._api.patch(f"{path}/status", status, STRATEGIC_MERGE))
        self._keep_alive(name)
        await self._persist(lambda: self._clear_not_ready(path))
        self._addresses[name] = address
        self._look()
        if gpus and self._gpu_lag_s:
            await asyncio.sleep(self._gpu_lag_s)
            await self._persist(lambda: self.offer(name, gpus))

    async def _clear_not_ready(self, path: str) -> None:
        """Remove a new node's not-ready taint, instead of waiting for the controller."""
        for _ in range(_ATTEMPTS):
            node = await self._api.get(path)
            taints = node["spec"].get("taints", [])
            kept = [taint for taint in taints if taint["key"] != NOT_READY]
            if len(kept) == len(taints):
                return
            version = {"resourceVersion": node["metadata"]["resourceVersion"]}
            body = {"metadata": version, "spec": {"taints": kept}}
            await _unless(CONFLICT, self._api.patch(path, body))
        raise UnavailableError(f"{path}: the taint {NOT_READY} keeps coming back")

    async def _renew(self, name: str) -> None:
        while True:
            await asyncio.sleep(_RENEW_S)
            with suppress(GpuscaleError):
                renewal = {"spec": {"renewTime": _now_micro()}}
                await self._api.patch(f"{LEASES}/{name}", renewal)

    def _look(self) -> None:
        """Start or stop what every pod needs in its current state."""
        pods = {pod["metadata"]["uid"]: pod for pod in self._pods.items.values()}
        for uid in (self._stages.keys() | self._ending) - pods.keys():
            self._forget(uid)
        for uid, pod in pods.items():
            self._see(uid, pod)

    def _see(self, uid: str, pod: JsonObject) -> None:
        host = self._addresses.get(pod["spec"].get("nodeName", ""))
        if host is None or uid in self._ending:
            return
        if "deletionTimestamp" in pod["metadata"]:
            self._forget(uid)
            self._ending.add(uid)
            self._stages[uid] = self._tasks.create_task(self._end(pod))
        elif uid not in self._stages:
            self._stages[uid] = self._tasks.create_task(self._lead(pod, host))

    def _forget(self, uid: str) -> None:
        self._ending.discard(uid)
        task = self._stages.pop(uid, None)
        if task is not None:
            task.cancel()

    async def _lead(self, pod: JsonObject, host: str) -> None:
        lifecycle = self._lifecycle_of(pod)
        shared = self._pod_addresses.get(pod["spec"]["nodeName"])
        placed = Placed(shared or _address(10, 64, next(self._numbers)), host, _now())
        if lifecycle.image_pull_ms:
            await self._write(pod, creating(pod, placed, _now()))
            await self._clock.sleep(lifecycle.image_pull_ms / 1000)
        if lifecycle.startup_ms:
            await self._write(pod, running(pod, placed, _now(), ready=False))
            await self._clock.sleep(lifecycle.startup_ms / 1000)
        await self._write(pod, running(pod, placed, _now(), ready=True))
        if lifecycle.run_ms is not None:
            await self._clock.sleep((lifecycle.run_ms - lifecycle.startup_ms) / 1000)
            await self._write(pod, succeeded(pod, placed, _now()))

    async def _end(self, pod: JsonObject) -> None:
        stop_ms = self._lifecycle_of(pod).stop_ms
        await self._clock.sleep(stop_ms / 1000)
        status = pod["status"]
        if stop_ms and status.get("phase") == "Running" and "podIP" in status:
            placed = Placed(status["podIP"], status["hostIP"], status["startTime"])
            await self._write(pod, succeeded(pod, placed, _now()))
        uid = {"uid": pod["metadata"]["uid"]}
        options = {"gracePeriodSeconds": 0, "preconditions": uid}
        await self._persist(lambda: self._api.delete(_path(pod), options))

    async def _write(self, pod: JsonObject, status: JsonObject) -> None:
        body = {"metadata": {"uid": pod["metadata"]["uid"]}, **status}
        path = f"{_path(pod)}/status"
        await self._persist(lambda: self._api.patch(path, body, STRATEGIC_MERGE))

    async def _persist(self, call: Callable[[], Awaitable[object]]) -> None:
        """Retry a call until the API server has answered.

        A call that has begun goes on to its end by itself: one that is cancelled while it connects would
        leave its socket open.
        """
        while True:
            if await asyncio.shield(self._tasks.create_task(_is_answered(call))):
                return
            await asyncio.sleep(_RETRY_S)


async def _is_answered(call: Callable[[], Awaitable[object]]) -> bool:
    """Return whether the API server answers; a pod that is gone or replaced is no error."""
    try:
        await _unless(CONFLICT, _unless(NOT_FOUND, call()))
    except ApiUnreachableError:
        return False
    return True


async def _unless(code: int, call: Awaitable[object]) -> None:
    """Await a call; a refusal with this status is no error."""
    try:
        await call
    except ApiStatusError as error:
        if error.code != code:
            raise


def _path(pod: JsonObject) -> str:
    metadata = pod["metadata"]
    return f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}"


def _address(first: int, second: int, number: int) -> str:
    return f"{first}.{second}.{number // 250 % 250}.{number % 250 + 1}"


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _now_micro() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
