"""An API server over real HTTP that lists and watches as Kubernetes does, for tests.

async with FakeApiServer() as server:
await server.put(PODS, {"metadata": {"namespace": "ml", "name": "bert-0"}})
kubeconfig = server.kubeconfig(folder)
"""

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from aiohttp import web

__all__ = ["NODES", "PODS", "RESOURCE_SLICES", "FakeApiServer"]

PODS, NODES = "/api/v1/pods", "/api/v1/nodes"
RESOURCE_SLICES = "/apis/resource.k8s.io/v1/resourceslices"

Body = Mapping[str, Any]
"""An object, or anything else that travels as JSON."""


class FakeApiServer:
    """Objects by path, with resource versions, a history of events, bookmarks, pages and faults.

    It answers GET. Requests need the token; a path in `refusals` answers with an error.
    """

    def __init__(self) -> None:
        self.version = 100
        """The newest resource version."""
        self.objects: dict[str, dict[str, Body]] = {PODS: {}, NODES: {}, RESOURCE_SLICES: {}}
        """By the path of their list, then by `namespace/name`."""
        self.events: dict[str, list[tuple[int, Body]]] = {path: [] for path in self.objects}
        self.others: dict[str, Body | str] = {}
        """What all other paths answer: JSON, or text such as metrics."""
        self.refusals: dict[str, tuple[int, str]] = {}
        """Code and message of a path's Status."""
        self.requests: list[tuple[str, dict[str, str], dict[str, str]]] = []
        """Path, query and headers of each request so far."""
        self.watches_end_at_once = False
        self.port = 0
        self.token = "secret"  # noqa: S105 - it guards nothing
        self._oldest = 0
        self._wake = asyncio.Condition()
        self._runner: web.AppRunner | None = None
        self._watchers: set[asyncio.Task[Any]] = set()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def start(self) -> None:
        """Listen on loopback, on the port of before if it was started before."""
        app = web.Application()
        app.router.add_get("/{path:.*}", self._answer)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", self.port).start()
        self.port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        if self._runner is not None:
            runner, self._runner = self._runner, None
            for task in tuple(self._watchers):
                task.cancel()
            await runner.cleanup()

    def kubeconfig(self, folder: Path) -> Path:
        """Write a kubeconfig that leads here, and return its path."""
        path = folder / "kubeconfig"
        cluster = {"name": "c", "cluster": {"server": f"http://127.0.0.1:{self.port}"}}
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "c",
            "clusters": [cluster],
            "users": [{"name": "u", "user": {"token": self.token}}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        }
        path.write_text(json.dumps(config), encoding="utf-8")
        return path

    async def put(self, path: str, body: Body) -> None:
        """Add an object to the list at a path, or change it there."""
        kind = "MODIFIED" if _key(body) in self.objects[path] else "ADDED"
        await self._change(path, kind, body)

    async def delete(self, path: str, body: Body) -> None:
        """Take an object out of the list at a path."""
        await self._change(path, "DELETED", body)

    async def send(self, path: str, event: Body) -> None:
        """Send an event that changes no object, such as a bookmark."""
        async with self._wake:
            self.version += 1
            self.events[path].append((self.version, event))
            self._wake.notify_all()

    def forget_history(self) -> None:
        """Make every version so far too old to watch from."""
        self._oldest = self.version + 1
        self.version += 2

    async def _change(self, path: str, kind: str, body: Body) -> None:
        async with self._wake:
            self.version += 1
            meta = {**body["metadata"], "resourceVersion": str(self.version)}
            body = {**body, "metadata": meta}
            if kind == "DELETED":
                self.objects[path].pop(_key(body), None)
            else:
                self.objects[path][_key(body)] = body
            self.events[path].append((self.version, {"type": kind, "object": body}))
            self._wake.notify_all()

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        path = request.path
        self.requests.append((path, dict(request.query), dict(request.headers)))
        if request.headers.get("Authorization") != f"Bearer {self.token}":
            return _status(401, "Unauthorized")
        if path in self.refusals:
            return _status(*self.refusals[path])
        if path in self.others:
            found = self.others[path]
            return web.Response(text=found) if isinstance(found, str) else web.json_response(found)
        if path not in self.objects:
            return _status(404, "the server could not find the requested resource")
        if request.query.get("watch"):
            return await self._watch(request, path)
        return self._list(request, path)

    def _list(self, request: web.Request, path: str) -> web.Response:
        items = list(self.objects[path].values())
        first = int(request.query.get("continue") or 0)
        limit = int(request.query.get("limit") or len(items))
        meta = {"resourceVersion": str(self.version)}
        if first + limit < len(items):
            meta["continue"] = str(first + limit)
        return web.json_response({"metadata": meta, "items": items[first : first + limit]})

    async def _watch(self, request: web.Request, path: str) -> web.StreamResponse:
        since = int(request.query["resourceVersion"])
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 - a handler always runs in one
        self._watchers.add(task)
        try:
            if since < self._oldest:
                await _send(response, _GONE)
            elif not self.watches_end_at_once:
                await self._send_events(response, path, since, int(request.query["timeoutSeconds"]))
        finally:
            self._watchers.discard(task)
        return response

    async def _send_events(
        self, response: web.StreamResponse, path: str, since: int, seconds: int
    ) -> None:
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds
        while loop.time() < end:
            for version, event in [each for each in self.events[path] if each[0] > since]:
                await _send(response, event)
                since = version
            try:
                async with asyncio.timeout_at(end), self._wake:
                    await self._wake.wait_for(lambda: self._newest(path) > since)  # noqa: B023 - waited for here
            except TimeoutError:
                return

    def _newest(self, path: str) -> int:
        return self.events[path][-1][0] if self.events[path] else 0


_GONE: Body = {
    "type": "ERROR",
    "object": {"kind": "Status", "code": 410, "message": "too old resource version"},
}


def _key(body: Body) -> str:
    return f"{body['metadata'].get('namespace', '')}/{body['metadata']['name']}"


async def _send(response: web.StreamResponse, event: Body) -> None:
    await response.write(json.dumps(event).encode() + b"\n")


def _status(code: int, message: str) -> web.Response:
    return web.json_response({"kind": "Status", "code": code, "message": message}, status=code)
