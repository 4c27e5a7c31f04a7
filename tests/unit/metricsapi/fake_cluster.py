# mypy: disable-error-code="arg-type, assignment, attr-defined, misc"
"""An API server over real HTTPS, with what an aggregated API server asks of it."""

import asyncio
import base64
import json
import ssl
from collections import Counter

from aiohttp import web

CONFIG_MAPS = "/api/v1/namespaces/kube-system/configmaps"
LISTED = ["get", "list", "watch"]


class FakeCluster:
    """Objects by path, permissions, tokens, and a switch to take it all away.

    Args:
        ca: signs its certificate, and is in the kubeconfig.
        folder: for files.
    """

    def __init__(self, ca, folder) -> None:
        self.ca, self.folder = ca, folder
        self.objects = {CONFIG_MAPS: {}, "/api/v1/pods": {}, "/api/v1/nodes": {}}
        self.forbidden = set()
        self.tokens = {"good": {"username": "robot", "groups": ["robots"]}}
        self.allowed = lambda spec: True
        self.access_reviews = []
        self.requests = Counter()
        self.accepts = {}
        self.resources = [("pods", "Pod", "Namespaced"), ("nodes", "Node", "Cluster")]
        self.gate = None
        """An event that reviews wait for; None answers at once."""
        self.port = 0
        self._changed = asyncio.Condition()
        self._version = 1
        self._runner = None
        self._watching = set()

    async def start(self) -> None:
        pem, key = self.ca.server("localhost")
        (self.folder / "api.crt").write_text(pem)
        (self.folder / "api.key").write_text(key)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.folder / "api.crt", self.folder / "api.key")
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self._answer)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "localhost", self.port, ssl_context=context)
        await site.start()
        self.port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        if self._runner is not None:
            runner, self._runner = self._runner, None
            for task in tuple(self._watching):
                task.cancel()
            await runner.cleanup()

    def kubeconfig(self):
        path = self.folder / "kubeconfig"
        cluster = {
            "server": f"https://localhost:{self.port}",
            "certificate-authority-data": base64.b64encode(self.ca.pem.encode()).decode(),
        }
        config = {
            "current-context": "c",
            "clusters": [{"name": "c", "cluster": cluster}],
            "users": [{"name": "u", "user": {"token": "server"}}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        }
        path.write_text(json.dumps(config))
        return path

    async def trust(self, client_ca, proxy_ca, *names) -> None:
        data = {
            "client-ca-file": client_ca.pem,
            "requestheader-client-ca-file": proxy_ca.pem,
            "requestheader-allowed-names": json.dumps(names),
            "requestheader-username-headers": '["X-Remote-User"]',
            "requestheader-group-headers": '["X-Remote-Group"]',
            "requestheader-extra-headers-prefix": '["X-Remote-Extra-"]',
        }
        name = "extension-apiserver-authentication"
        await self.put(CONFIG_MAPS, name, "kube-system", data=data)

    async def put(self, path, name, namespace="", labels=(), **more) -> None:
        async with self._changed:
            self._version += 1
            metadata = {
                "name": name,
                "namespace": namespace,
                "labels": dict(labels),
                "resourceVersion": str(self._version),
            }
            self.objects[path][namespace, name] = {"metadata": metadata, **more}
            self._changed.notify_all()

    async def _answer(self, request):
        path = request.path
        self.requests[request.method, path, "watch" in request.query] += 1
        self.accepts[path, "watch" in request.query] = request.headers.get("Accept", "")
        if request.headers.get("Authorization") != "Bearer server":
            return _status(401, "Unauthorized")
        if path in self.forbidden:
            return _status(403, f"{path} is forbidden")
        if request.method == "POST":
            if self.gate is not None:
                await self.gate.wait()
            return self._reviewed(await request.json())
        if path in ("/api", "/apis"):
            return self._discovery(path)
        if path not in self.objects:
            return _status(404, "not found")
        if "watch" in request.query:
            return await self._watch(request, path)
        metadata = {"resourceVersion": str(self._version)}
        items = list(self.objects[path].values())
        return web.json_response({"metadata": metadata, "items": items})

    def _discovery(self, path):
        resources = [
            {"resource": plural, "responseKind": {"kind": kind}, "scope": scope, "verbs": LISTED}
            for plural, kind, scope in self.resources
        ]
        versions = [{"version": "v1", "resources": resources}]
        items = [{"metadata": {"name": ""}, "versions": versions}] if path == "/api" else []
        return web.json_response({"kind": "APIGroupDiscoveryList", "items": items})

    def _reviewed(self, body):
        spec = body["spec"]
        if body["kind"] == "TokenReview":
            user = self.tokens.get(spec["token"])
            status = {"authenticated": True, "user": user} if user else {"error": "unknown"}
        else:
            self.access_reviews.append(spec)
            status = {"allowed": bool(self.allowed(spec))}
        return web.json_response({**body, "status": status}, status=201)

    async def _watch(self, request, path) -> None:
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        since = int(request.query["resourceVersion"])
        task = asyncio.current_task()
        self._watching.add(task)
        try:
            while True:
                for item in self._newer(path, since):
                    await response.write(
                        json.dumps({"type": "MODIFIED", "object": item}).encode() + b"\n"
                    )
                    since = int(item["metadata"]["resourceVersion"])
                async with self._changed:
                    await self._changed.wait_for(lambda seen=since: self._newer(path, seen))
        finally:
            self._watching.discard(task)

    def _newer(self, path, since):
        items = self.objects[path].values()
        newer = [each for each in items if int(each["metadata"]["resourceVersion"]) > since]
        return sorted(newer, key=lambda each: int(each["metadata"]["resourceVersion"]))


def _status(code, message):
    return web.json_response({"kind": "Status", "code": code, "message": message}, status=code)
