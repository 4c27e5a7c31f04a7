"""An API server over real HTTP that has one node, and changes it by JSON patches."""

import copy
import json
from pathlib import Path
from typing import Any

from aiohttp import web

Object = dict[str, Any]
DRA = "/apis/resource.k8s.io"


class NodeServer:
    """Answers GET and PATCH of the node n1, and lists ResourceSlices."""

    def __init__(self) -> None:
        self.taints: list[Object] = []
        self.allocatable: dict[str, str] = {"cpu": "8", "memory": "32Gi"}
        self.slices: list[Object] | None = None
        """None: the server has no such resource."""
        self.refusals: dict[str, int] = {}
        """Code by method."""
        self.patches: list[list[Object]] = []
        """Those that were applied."""
        self.before_patch: Object | None = None
        """A taint that somebody else adds just before the next patch."""
        self.gets = 0
        self.port = 0
        self._runner: web.AppRunner | None = None

    async def start(self) -> None:
        app = web.Application()
        app.router.add_get("/api/v1/nodes/n1", self._get)
        app.router.add_patch("/api/v1/nodes/n1", self._patch)
        app.router.add_get(DRA, self._versions)
        app.router.add_get(f"{DRA}/v1/resourceslices", self._list_slices)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", self.port, reuse_address=True).start()
        self.port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()

    def kubeconfig(self, folder: Path) -> Path:
        """Write a kubeconfig that leads here, and return its path."""
        config = {
            "current-context": "c",
            "clusters": [{"name": "c", "cluster": {"server": f"http://127.0.0.1:{self.port}"}}],
            "users": [{"name": "u", "user": {"token": "secret"}}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        }
        path = folder / "kubeconfig"
        path.write_text(json.dumps(config), encoding="utf-8")
        return path

    def _node(self) -> Object:
        # As Kubernetes has it: without taints there is no list.
        spec = {"taints": self.taints} if self.taints else {}
        return {
            "metadata": {"name": "n1"},
            "spec": spec,
            "status": {"allocatable": self.allocatable},
        }

    async def _get(self, request: web.Request) -> web.Response:
        self.gets += 1
        return self._refusal(request) or web.json_response(self._node())

    async def _patch(self, request: web.Request) -> web.Response:
        """Apply `test`, `replace` and `remove` (RFC 6902) to the node, all of them or none."""
        assert request.content_type == "application/json-patch+json"
        if (refused := self._refusal(request)) is not None:
            return refused
        if self.before_patch is not None:
            self.taints, self.before_patch = [*self.taints, self.before_patch], None
        operations, node = await request.json(), copy.deepcopy(self._node())
        for each in operations:
            _, *parents, last = each["path"].split("/")
            place = node
            for key in parents:
                place = place[key]
            match each["op"]:
                case "test" if place.get(last) != each["value"]:
                    return _status(422, f"testing value {each['path']} failed")
                case "replace":
                    place[last] = each["value"]
                case "remove":
                    del place[last]
        self.patches.append(operations)
        self.taints = node["spec"].get("taints", [])
        return web.json_response(node)

    async def _versions(self, _: web.Request) -> web.Response:
        if self.slices is None:
            return _status(404, "the server could not find the requested resource")
        return web.json_response({"versions": [{"version": "v1"}]})

    async def _list_slices(self, request: web.Request) -> web.Response:
        assert request.query["fieldSelector"] == "spec.nodeName=n1"
        return web.json_response({"items": self.slices})

    def _refusal(self, request: web.Request) -> web.Response | None:
        code = self.refusals.get(request.method)
        return None if code is None else _status(code, f"no {request.method} for you")


def _status(code: int, message: str) -> web.Response:
    return web.json_response({"kind": "Status", "code": code, "message": message}, status=code)
