"""The Prometheus of a live run as a process that may be down: no scrapes, no rules, no answers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from gpuscale.base.errors import UnavailableError
from gpuscale.series import Value
from gpuscale.server.sources import EmbeddedSource

DOWN = "Prometheus is down"


@dataclass(slots=True)
class StoppableSource:
    """A `MetricSource` that gives no answer while it is stopped; what it has stored stays."""

    source: EmbeddedSource
    is_stopped: bool = False

    def takes(self, promql: str) -> bool:
        return self.source.takes(promql)

    async def series(self, selector: str, start_ms: int) -> Sequence[Mapping[str, str]]:
        self._check()
        return await self.source.series(selector, start_ms)

    async def query(self, promql: str, at_ms: int) -> Value:
        self._check()
        return await self.source.query(promql, at_ms)

    def _check(self) -> None:
        if self.is_stopped:
            raise UnavailableError(DOWN)


def refusing(app: web.Application, source: StoppableSource) -> Middleware:
    """Return a middleware that answers 503 on routes added to `app` after this call, while it is stopped.

    A Prometheus that is down answers nothing; this one shares its port with the page.
    """
    others = frozenset(app.router.routes())

    @web.middleware
    async def guard(request: web.Request, handler: Handler) -> web.StreamResponse:
        if source.is_stopped and request.match_info.route not in others:
            return web.Response(status=503, text=f"{DOWN}\n")
        return await handler(request)

    return guard
