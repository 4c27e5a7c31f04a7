"""Kubelets that run nothing: they register nodes, keep them alive and lead pods through their lives.

Known differences from a real one: containers never fail, probes and init containers are not looked at,
nothing is evicted.
"""

import asyncio
import ssl
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from itertools import count
from types import TracebackType
from typing import Self

from gpuscale.core.errors import GpuscaleError, NotFoundError, UnavailableError, UpstreamError
from gpuscale.testing.cluster.api import MERGE, STRATEGIC_MERGE, ApiClient, ConflictError, Json
from gpuscale.testing.cluster.nodes import (
    LEASES,
    NOT_READY,
    SimulatedNode,
    lease_object,
    node_object,
    node_status,
)
from gpuscale.testing.cluster.pod_status import AT_ONCE, Placed, PodTimes, running, succeeded

Times = Callable[[Json], PodTimes]

_RENEW_S = 10.0
"""The kubelet's own interval."""
_RETRY_S = 0.2
_ATTEMPTS = 25


class SimulatedKubelet:
    """The kubelets of any number of simulated nodes. Use it in `async with`.

    Args:
        url: of the API server.
        context: with a client certificate of someone in `system:masters`.
        times: how long pods take; a function is asked for each pod's, and gets the Pod as JSON data.
    """

    def __init__(
        self, url: str, context: ssl.SSLContext, times: PodTimes | Times = AT_ONCE
    ) -> None:
        self._api = ApiClient(url, context)
        self._times = times if callable(times) else lambda _: times
        self._heartbeats: dict[str, asyncio.Task[None]] = {}
        self._addresses: dict[str, str] = {}
        self._stages: dict[str, asyncio.Task[None]] = {}
        """Pod UID to the task that leads it to its next stage."""
        self._ending: set[str] = set()
        self._numbers = count(1)

    async def __aenter__(self) -> Self:
        await self._api.__aenter__()
        self._tasks = await asyncio.TaskGroup().__aenter__()
        self._watch = self._tasks.create_task(self._watch_pods(), name="pods of simulated nodes")
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for task in (self._watch, *self._heartbeats.values(), *self._stages.values()):
            task.cancel()
        # The group hears of a cancellation, which may be its own; the body's errors pass it unwrapped.
        told = (kind, error, trace) if kind is asyncio.CancelledError else (None, None, None)
        try:
            await self._tasks.__aexit__(*told)
        finally:
            await self._api.__aexit__()

    async def add(self, *nodes: SimulatedNode) -> None:
        """Return once these nodes are Ready and take pods.

        Raises:
            UpstreamError: the API server does not take one.
        """
        async with asyncio.TaskGroup() as group:
            for node in nodes:
                group.create_task(self._register(node))

    async def remove(self, name: str) -> None:
        """Take a node away, as a cloud would; the control plane then removes its pods."""
        self._heartbeats.pop(name).cancel()
        del self._addresses[name]
        for path in (f"/api/v1/nodes/{name}", f"{LEASES}/{name}"):
            with suppress(NotFoundError):
                await self._api.call("DELETE", path)

    async def remove_all(self) -> None:
        """Take every node away."""
        for name in tuple(self._heartbeats):
            await self.remove(name)

    async def silence(self, name: str) -> None:
        """Let a node send no more signs of life; after about 50 s it becomes NotReady."""
        self._heartbeats[name].cancel()

    async def _register(self, node: SimulatedNode) -> None:
        path = f"/api/v1/nodes/{node.name}"
        address = _address(10, 200, next(self._numbers))
        self._addresses[node.name] = address
        await self._api.call("POST", "/api/v1/nodes", node_object(node))
        await self._api.call("POST", LEASES, lease_object(node.name, _now_micro()))
        status = node_status(node, address, _now())
        await self._api.call("PATCH", f"{path}/status", status, patch=STRATEGIC_MERGE)
        heartbeat = self._tasks.create_task(self._renew(node.name), name=f"heartbeat {node.name}")
        self._heartbeats[node.name] = heartbeat
        await self._clear_not_ready(path)

    async def _clear_not_ready(self, path: str) -> None:
        """Take the taint off that a new node gets, rather than wait for the controller to do it."""
        for _ in range(_ATTEMPTS):
            node = await self._api.call("GET", path)
            taints = node["spec"].get("taints", [])
            kept = [taint for taint in taints if taint["key"] != NOT_READY]
            if len(kept) == len(taints):
                return
            version = {"resourceVersion": node["metadata"]["resourceVersion"]}
            with suppress(ConflictError):
                body = {"metadata": version, "spec": {"taints": kept}}
                await self._api.call("PATCH", path, body, patch=MERGE)
        raise UnavailableError(f"{path}: the taint {NOT_READY} keeps coming back")

    async def _renew(self, name: str) -> None:
        while True:
            await asyncio.sleep(_RENEW_S)
            renewal = {"spec": {"renewTime": _now_micro()}}
            with suppress(GpuscaleError):
                await self._api.call("PATCH", f"{LEASES}/{name}", renewal, patch=MERGE)

    async def _watch_pods(self) -> None:
        """Follow all pods, for ever: whatever ends a watch, another one starts with a list."""
        while True:
            with suppress(UnavailableError, UpstreamError):
                async for event, pod in self._api.watch("/api/v1/pods"):
                    self._see(event, pod)
            await asyncio.sleep(_RETRY_S)

    def _see(self, event: str, pod: Json) -> None:
        uid, metadata = pod["metadata"]["uid"], pod["metadata"]
        if event == "DELETED":
            self._forget(uid)
        elif pod["spec"].get("nodeName") not in self._addresses:
            return
        elif "deletionTimestamp" in metadata and uid not in self._ending:
            self._forget(uid)
            self._ending.add(uid)
            self._stages[uid] = self._tasks.create_task(self._end(pod))
        elif uid not in self._stages and uid not in self._ending:
            self._stages[uid] = self._tasks.create_task(self._lead(pod))

    def _forget(self, uid: str) -> None:
        self._ending.discard(uid)
        task = self._stages.pop(uid, None)
        if task is not None:
            task.cancel()

    async def _lead(self, pod: Json) -> None:
        times = self._times(pod)
        host = self._addresses[pod["spec"]["nodeName"]]
        placed = Placed(_address(10, 64, next(self._numbers)), host, _now())
        await asyncio.sleep(times.start_s)
        if times.ready_s:
            await self._write(pod, running(pod, placed, _now(), ready=False))
            await asyncio.sleep(times.ready_s)
        await self._write(pod, running(pod, placed, _now(), ready=True))
        if times.run_s is not None:
            await asyncio.sleep(times.run_s)
            await self._write(pod, succeeded(pod, placed, _now()))

    async def _end(self, pod: Json) -> None:
        await asyncio.sleep(self._times(pod).stop_s)
        uid = {"uid": pod["metadata"]["uid"]}
        await self._persist("DELETE", _path(pod), {"gracePeriodSeconds": 0, "preconditions": uid})

    async def _write(self, pod: Json, status: Json) -> None:
        body = {"metadata": {"uid": pod["metadata"]["uid"]}, **status}
        await self._persist("PATCH", f"{_path(pod)}/status", body, patch=STRATEGIC_MERGE)

    async def _persist(self, method: str, path: str, body: Json, *, patch: str = "") -> None:
        """Call until the API server has answered; a pod that is gone, or another one by now, is no error."""
        while True:
            try:
                await self._api.call(method, path, body, patch=patch)
            except (NotFoundError, ConflictError):
                return
            except UnavailableError:
                await asyncio.sleep(_RETRY_S)
            else:
                return


def _path(pod: Json) -> str:
    metadata = pod["metadata"]
    return f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}"


def _address(first: int, second: int, number: int) -> str:
    return f"{first}.{second}.{number // 250 % 250}.{number % 250 + 1}"


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _now_micro() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
