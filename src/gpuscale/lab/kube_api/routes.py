"""The Kubernetes API of a live run: reads of the simulated cluster, with the metrics APIs.

Source: kubernetes v1.36: paths, parameters and answers of k8s.io/apiserver pkg/endpoints.
"""

import time
from collections.abc import Callable, Sequence
from typing import Any

from aiohttp import web
from yarl import URL

from gpuscale.lab.kube_api.about import About
from gpuscale.lab.kube_api.conversion import scale_of
from gpuscale.lab.kube_api.discovery import (
    REVIEWS,
    USAGE_GROUP,
    USAGE_VERSION,
    ServedGroups,
)
from gpuscale.lab.kube_api.forms import wanted
from gpuscale.lab.kube_api.kinds import (
    GROUP_KINDS,
    KINDS,
    NODE,
    POD,
    SCALED_OBJECT,
    ApiResource,
)
from gpuscale.lab.kube_api.objects.cluster import WorldObjects
from gpuscale.lab.kube_api.reviews import answer
from gpuscale.lab.kube_api.selecting import ObjectSelection, parse_fields
from gpuscale.lab.kube_api.statuses import OF_CONTAINERS, expired, not_found, read_only
from gpuscale.lab.kube_api.store import ExpiredError, Page, Store, Stored
from gpuscale.lab.kube_api.usage import SimulatedUsage
from gpuscale.lab.kube_api.watching import Watches, WatchRequest
from gpuscale.lab.sim.world import World
from gpuscale.server.metricsapi import MetricsApiRoutes
from gpuscale.server.metricsapi.usage import bodies as usage_bodies
from gpuscale.server.metricsapi.wire import (
    NO_ROUTE,
    BadPathError,
    NoRouteError,
    RequestError,
    bad_request,
    is_true,
    is_watch,
    json_response,
    selector_of,
    split_path,
    status_response,
)
from gpuscale.server.sources.http import HttpSession

Json = dict[str, Any]
_CORE = (
    "namespaces|nodes|pods|services|events|endpoints|configmaps|secrets|serviceaccounts|"
    "persistentvolumes|persistentvolumeclaims|replicationcontrollers|limitranges|resourcequotas|"
    "podtemplates|componentstatuses|bindings"
)
"""Resources of the core group; the Prometheus API has the other names below `/api/v1`."""
_LOOK_S = 0.1
"""How old the objects of an answer may be, in real time; more where a look takes long."""
_REST = 10
"""How many times as long as a look the next one is away."""
_MAX_LIMIT = 1_000_000


class KubeApi:
    """Serves the simulated cluster at an API server's paths.

    Args:
        world: of the run.
        objects: its objects.
        metrics: the metrics APIs on the same address.
        catch_up: brings the world up to the clock.
        agent_url: of the metrics page of a node's agent; None where none runs. The agents' pods are the only
            ones with a port behind them.
    """

    def __init__(
        self,
        world: World,
        objects: WorldObjects,
        metrics: MetricsApiRoutes,
        catch_up: Callable[[], object],
        agent_url: Callable[[str], str | None] = lambda _: None,
    ) -> None:
        self._agent_url = agent_url
        scaled = (SCALED_OBJECT,) if world.setup.scaled_objects else ()
        self._kinds = (*KINDS, *scaled, *(GROUP_KINDS if world.groups else ()))
        self._by_path = {(each.group, each.version, each.plural): each for each in self._kinds}
        self._objects = objects
        self._world = world
        self._metrics = metrics
        self._catch_up = catch_up
        self._discovery = ServedGroups(self._kinds)
        release = objects.run.kubernetes_version
        self._about = About(self._kinds, self._discovery, metrics, release)
        # A later run starts with higher versions, so that clients of this one list again.
        self._store = Store(world.start_ms // 1000)
        self._usage = SimulatedUsage(world, objects.run)
        self._watches = Watches(self._store, _now_ms)
        self._next_look_s = 0.0
        self._seen: tuple[object, ...] = ()

    def add_routes(self, app: web.Application) -> None:
        """Add all routes to `app`; others' routes for the same paths must be added later."""
        app.router.add_route("*", "/api", self.handle)
        app.router.add_route("*", "/api/v1", self.handle)
        app.router.add_route("*", f"/api/v1/{{path:(?:{_CORE})(?:/.*)?}}", self.handle)
        app.router.add_route("*", "/apis", self.handle)
        app.router.add_route("*", "/apis/{path:.*}", self.handle)
        self._about.add_routes(app)
        self._metrics.add_health(app)
        app.on_shutdown.append(self._close)

    def look(self) -> None:
        """Update the store from the simulated cluster, and wake the watches.

        That happens at most every tenth of a second, and takes at most a tenth of the time.
        """
        began_s = time.monotonic()
        if began_s < self._next_look_s:
            return
        seen = self._objects.state()
        if seen != self._seen:
            self._seen = seen
            if self._store.take(self._objects.facts()):
                self._watches.tell()
        took_s = time.monotonic() - began_s
        self._next_look_s = began_s + max(_LOOK_S, took_s * _REST)

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Answer a request below `/api` or `/apis`."""
        try:
            root, *parts = split_path(request.rel_url.raw_path)
            return await self._answer(request, root, parts)
        except RequestError as failure:
            return status_response(request, failure.status)
        except NoRouteError:
            return status_response(request, NO_ROUTE)
        except (BadPathError, ValueError) as error:
            return status_response(request, bad_request(str(error)))
        except ExpiredError as error:
            return status_response(request, expired(str(error)))

    async def _answer(
        self, request: web.Request, root: str, parts: Sequence[str]
    ) -> web.StreamResponse:
        if not parts:
            return self._about.roots(request, root)
        if root == "apis" and parts[0] in self._metrics.served_groups():
            return await self._metrics.handle(request)
        if root == "apis" and len(parts) == 1:
            about = self._discovery.group(parts[0])
            if about is None:
                raise NoRouteError
            return json_response(request, 200, about)
        group, version, *rest = ("", *parts) if root == "api" else parts
        listed = self._discovery.resources(group, version)
        if listed is None:
            raise NoRouteError
        if not rest:
            return json_response(request, 200, listed)
        if len(rest) == 1 and (group, version, rest[0]) in REVIEWS:
            return await self._review(request, group, version, rest[0])
        self._catch_up()
        self.look()
        if (group, version) == (USAGE_GROUP, USAGE_VERSION):
            return self._used(request, rest)
        return await self._resource(request, group, version, rest)

    # Objects

    async def _resource(
        self, request: web.Request, group: str, version: str, rest: Sequence[str]
    ) -> web.StreamResponse:
        if group == "" and rest[2:3] == ["pods"] and rest[4:5] == ["proxy"]:
            return await self._proxied(request, rest[1], rest[3], "/".join(rest[5:]))
        namespace, plural, name, below = self._target(group, version, rest)
        kind = self._by_path[group, version, plural]
        is_of_container = kind is POD and below in OF_CONTAINERS
        if request.method not in {"GET", "HEAD"} or is_of_container:
            raise RequestError(read_only(kind.plural, group, below))
        if below and below not in kind.subresources:
            raise NoRouteError
        if not name:
            return await self._collection(request, kind, namespace)
        stored = self._store.get(kind.stored_as, (namespace or "", name))
        if stored is None:
            raise RequestError(not_found(kind, name))
        body = scale_of(stored.body) if below == "scale" else stored.body
        return json_response(request, 200, wanted(request, kind).single(body, _now_ms()))

    def _target(
        self, group: str, version: str, rest: Sequence[str]
    ) -> tuple[str | None, str, str, str]:
        """Return namespace, resource, name and subresource in a path; empty where absent."""
        match rest:
            case ["namespaces", namespace, plural, *more] if self._has(
                group, version, plural, is_namespaced=True
            ):
                return namespace, plural, *_name_and_below(more)
            case [plural, *more] if self._has(group, version, plural, is_namespaced=False):
                return None, plural, *_name_and_below(more)
            case [plural] if self._has(group, version, plural, is_namespaced=True):
                return None, plural, "", ""
        raise NoRouteError

    def _has(self, group: str, version: str, plural: str, *, is_namespaced: bool) -> bool:
        kind = self._by_path.get((group, version, plural))
        return kind is not None and kind.is_namespaced == is_namespaced

    async def _collection(
        self, request: web.Request, kind: ApiResource, namespace: str | None
    ) -> web.StreamResponse:
        shown = wanted(request, kind)
        fields = parse_fields(kind, request.query.get("fieldSelector", ""))
        selection = ObjectSelection(kind, namespace, selector_of(request, "labelSelector"), fields)
        if is_watch(request):
            version = _version_of(request)
            watch = WatchRequest(
                shown,
                selection,
                version or None,
                is_true(request.query.get("allowWatchBookmarks", "")),
                is_true(request.query.get("sendInitialEvents", "")),
                **_longest(request),
            )
            return await self._watches.serve(request, watch)
        page = self._page(request, selection)
        metadata: Json = {"resourceVersion": str(page.version)}
        if page.token:
            metadata["continue"] = page.token
            if selection.is_everything:
                metadata["remainingItemCount"] = page.remaining
        bodies_ = [each.body for each in page.items]
        return json_response(request, 200, shown.listed(bodies_, metadata, _now_ms()))

    def _page(self, request: web.Request, selection: ObjectSelection) -> Page:
        limit = _number(request, "limit", _MAX_LIMIT)
        token = request.query.get("continue", "")
        if token:
            return self._store.next_page(token, limit)
        version = _version_of(request)
        if version is not None and version > self._store.version:
            raise ExpiredError(f"too large resource version: {version} ({self._store.version})")
        objects = self._store.all(selection.kind.stored_as, selection.namespace)
        return self._store.page((each for each in objects if selection.takes(each)), limit)

    # What is no object

    async def _proxied(
        self, request: web.Request, namespace: str, name: str, path: str
    ) -> web.Response:
        """Pass a request on to a node agent, as an API server does to any pod."""
        pod = self._store.get(POD.stored_as, (namespace, name.partition(":")[0]))
        if pod is None:
            raise RequestError(not_found(POD, name))
        owners = pod.body["metadata"].get("ownerReferences") or ({"kind": ""},)
        agent = "DaemonSet", self._world.setup.pipeline.agent_service
        is_agent = (owners[0]["kind"], owners[0].get("name")) == agent
        node = pod.body["spec"].get("nodeName", "") if is_agent else ""
        url = self._agent_url(node)
        if request.method != "GET" or url is None:
            raise RequestError(read_only(POD.plural, "", "proxy"))
        async with HttpSession() as session:
            status, body = await session.fetch("GET", URL(url).with_path(f"/{path}"))
        return web.Response(status=status, body=body, content_type="text/plain")

    def _used(self, request: web.Request, rest: Sequence[str]) -> web.Response:
        """Answer a request below `metrics.k8s.io`."""
        kind = NODE if rest[0] == "nodes" else POD
        namespace, plural, name, below = self._target(kind.group, kind.version, rest)
        if plural != kind.plural or below:
            raise NoRouteError
        if request.method not in {"GET", "HEAD"}:
            raise RequestError(read_only(plural, USAGE_GROUP))
        if is_watch(request):
            raise RequestError(bad_request("resource metrics can't be watched"))
        fields = parse_fields(kind, request.query.get("fieldSelector", ""))
        selection = ObjectSelection(kind, namespace, selector_of(request, "labelSelector"), fields)
        metric = f"{kind.kind}Metrics"
        objects: list[Stored] = self._store.all(kind.resource, namespace)
        chosen = [
            each for each in objects if selection.takes(each) and (not name or each.key[1] == name)
        ]
        if kind is NODE:
            items = self._usage.nodes(chosen)
        else:
            items = [item for each in chosen if (item := self._usage.pod(each)) is not None]
        if not name:
            return json_response(request, 200, usage_bodies.listed(USAGE_VERSION, metric, items))
        if not items:
            raise RequestError(not_found(kind, name))
        return json_response(request, 200, usage_bodies.single(USAGE_VERSION, metric, items[0]))

    async def _review(
        self, request: web.Request, group: str, version: str, resource: str
    ) -> web.Response:
        """Answer an access review: reading is allowed, nothing else."""
        if request.method != "POST":
            raise RequestError(read_only(resource, group))
        kind = REVIEWS[group, version, resource]
        found = answer(kind, await request.read(), self._kinds)
        about = {"kind": kind, "apiVersion": f"{group}/{version}", "metadata": {}}
        return json_response(request, 201, {**about, **found})

    async def _close(self, _app: web.Application) -> None:
        self._watches.close()


def _name_and_below(more: Sequence[str]) -> tuple[str, str]:
    match more:
        case []:
            return "", ""
        case [name]:
            return name, ""
        case [name, below]:
            return name, below
    raise NoRouteError


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _number(request: web.Request, parameter: str, most: int) -> int:
    """Return a number in the query string; 0 if absent.

    Raises:
        ValueError: it is none.
    """
    text = request.query.get(parameter, "") or "0"
    if not (text.isascii() and text.isdigit()) or len(text) > 20:
        raise ValueError(f"{parameter}: found {text[:40]!r}, expected a number")
    return min(int(text), most)


def _version_of(request: web.Request) -> int | None:
    """Return the resource version that a request starts from; None for any."""
    if not request.query.get("resourceVersion"):
        return None
    return _number(request, "resourceVersion", 2**63)


def _longest(request: web.Request) -> dict[str, float]:
    seconds = _number(request, "timeoutSeconds", 1800)
    return {"longest_s": float(seconds)} if seconds else {}
