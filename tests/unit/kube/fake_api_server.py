"""An API server over real HTTP that lists and watches as Kubernetes does, for tests."""

import asyncio
import json
from pathlib import Path

from aiohttp import web

POD, NODE = "/api/v1/pods", "/api/v1/nodes"
SLICES = "/apis/resource.k8s.io/v1/resourceslices"


class FakeApiServer:
    """Objects by path, with resource versions, a history of events, bookmarks, pages and faults."""

    def __init__(self):
        self.version = 100
        self.oldest = 0
        self.objects = {POD: {}, NODE: {}, SLICES: {}}
        self.events = {POD: [], NODE: [], SLICES: []}
        self.others = {}
        self.refusals = {}
        self.requests = []
        self.watches_end_at_once = False
        self.port = 0
        self.token = "secret"
        self._wake = asyncio.Condition()
        self._runner = None
        self._watchers = set()

    async def start(self):
        app = web.Application()
        app.router.add_get("/{path:.*}", self._answer)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", self.port).start()
        self.port = self._runner.addresses[0][1]

    async def stop(self):
        if self._runner is not None:
            runner, self._runner = self._runner, None
            for task in tuple(self._watchers):
                task.cancel()
            await runner.cleanup()

    def kubeconfig(self, folder: Path) -> Path:
        path = folder / "kubeconfig"
        path.write_text(
            f"""
            {{"apiVersion": "v1", "kind": "Config", "current-context": "c",
              "clusters": [{{"name": "c", "cluster": {{"server": "http://127.0.0.1:{self.port}"}}}}],
              "users": [{{"name": "u", "user": {{"token": "{self.token}"}}}}],
              "contexts": [{{"name": "c", "context": {{"cluster": "c", "user": "u"}}}}]}}
            """
        )
        return path

    async def put(self, path, body):
        known = f"{body['metadata'].get('namespace', '')}/{body['metadata']['name']}"
        await self._change(path, "MODIFIED" if known in self.objects[path] else "ADDED", body)

    async def delete(self, path, body):
        await self._change(path, "DELETED", body)

    async def send(self, path, event):
        """Send an event that changes no object, such as a bookmark."""
        async with self._wake:
            self.version += 1
            self.events[path].append((self.version, event))
            self._wake.notify_all()

    def forget_history(self):
        """Make every version so far too old to watch from."""
        self.oldest = self.version + 1
        self.version += 2

    async def _change(self, path, kind, body):
        async with self._wake:
            self.version += 1
            meta = {**body["metadata"], "resourceVersion": str(self.version)}
            body = {**body, "metadata": meta}
            key = f"{meta.get('namespace', '')}/{meta['name']}"
            if kind == "DELETED":
                self.objects[path].pop(key, None)
            else:
                self.objects[path][key] = body
            self.events[path].append((self.version, {"type": kind, "object": body}))
            self._wake.notify_all()

    async def _answer(self, request):
        path = request.path
        self.requests.append((path, dict(request.query), dict(request.headers)))
        if request.headers.get("Authorization") != f"Bearer {self.token}":
            return _status(401, "Unauthorized")
        if path in self.refusals:
            return _status(*self.refusals[path])
        if path in self.others:
            return web.json_response(self.others[path])
        if path not in self.objects:
            return _status(404, "the server could not find the requested resource")
        if request.query.get("watch"):
            return await self._watch(request, path)
        return self._list(request, path)

    def _list(self, request, path):
        first = int(request.query.get("continue") or 0)
        limit = int(request.query["limit"])
        items = list(self.objects[path].values())
        meta = {"resourceVersion": str(self.version)}
        if first + limit < len(items):
            meta["continue"] = str(first + limit)
        return web.json_response({"metadata": meta, "items": items[first : first + limit]})

    async def _watch(self, request, path):
        since = int(request.query["resourceVersion"])
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        task = asyncio.current_task()
        self._watchers.add(task)
        try:
            if since < self.oldest:
                await _send(response, _gone())
            elif not self.watches_end_at_once:
                await self._send_events(response, path, since, int(request.query["timeoutSeconds"]))
        finally:
            self._watchers.discard(task)
        return response

    async def _send_events(self, response, path, since, seconds):
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds
        while loop.time() < end:
            for version, event in [each for each in self.events[path] if each[0] > since]:
                await _send(response, event)
                since = version
            try:
                async with asyncio.timeout_at(end), self._wake:
                    await self._wake.wait_for(
                        lambda since=since: any(each[0] > since for each in self.events[path])
                    )
            except TimeoutError:
                return


async def _send(response, event):
    await response.write(json.dumps(event).encode() + b"\n")


def _gone():
    message = "too old resource version"
    return {"type": "ERROR", "object": {"kind": "Status", "code": 410, "message": message}}


def _status(code, message):
    return web.json_response({"kind": "Status", "code": code, "message": message}, status=code)


def bookmark(version):
    return {"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": str(version)}}}


def pod(name, *, controller=None, container_id="", labels=None, phase="Running", gpus=0):
    references = [{**controller, "controller": True}] if controller else []
    limits = {"limits": {"nvidia.com/gpu": str(gpus)}} if gpus else {}
    return {
        "metadata": {
            "namespace": "ml",
            "name": name,
            "uid": f"uid-{name}",
            "labels": labels or {},
            "ownerReferences": references,
        },
        "spec": {"nodeName": "n1", "containers": [{"name": "main", "resources": limits}]},
        "status": {
            "phase": phase,
            "containerStatuses": [{"name": "main", "containerID": f"containerd://{container_id}"}],
        },
    }


def node(capacity, allocatable):
    status = {"capacity": capacity, "allocatable": allocatable}
    return {"metadata": {"name": "n1"}, "status": status}
