"""The paths that a node agent answers."""

import asyncio
import html
from collections import Counter as Tally
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Protocol

from aiohttp import web

from gpuscale.attribution.counts import NodeGpuResources
from gpuscale.exporter.collector import gpu_name
from gpuscale.exporter.negotiation import accepts_gzip, prefers_openmetrics
from gpuscale.exporter.snapshot import Format, Snapshot
from gpuscale.exporter.subscribers import Subscriber, Subscribers
from gpuscale.exposition import openmetrics, write

if TYPE_CHECKING:
    from gpuscale.exporter.app import ServeOptions

METRICS, AZURE, STREAM = "/metrics", "/metrics/azure", "/stream"
HEALTH, READY, PAGE = "/health", "/readyz", "/"
STREAM_TYPE = "application/x-ndjson"
_GOODBYE_S = 1.0
"""How long the last line of a slow subscriber may take."""
_OTHER_PATH = "other"
_CONTENT_TYPES: Mapping[Format, str] = {
    "text": write.CONTENT_TYPE,
    "openmetrics": openmetrics.CONTENT_TYPE,
}
_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Agent(Protocol):
    """What the paths need of the agent behind them."""

    @property
    def snapshot(self) -> Snapshot:
        """Return what scrapes get right now."""
        ...

    def age_s(self, at_ms: int) -> float:
        """Return how long ago a time was."""
        ...

    def hurry(self) -> None:
        """Begin to collect at the stream's pace."""
        ...


class Handlers:
    """Answers requests from an agent's latest snapshot.

    Args:
        agent: that collects.
        hostname: for the page's title.
        serve: how to serve.
        subscribers: of the stream.
    """

    def __init__(
        self, agent: Agent, hostname: str, serve: "ServeOptions", subscribers: Subscribers
    ) -> None:
        self._agent = agent
        self._hostname = hostname
        self._serve = serve
        self._subscribers = subscribers
        self._requests: Tally[tuple[str, int]] = Tally()

    @property
    def requests(self) -> Mapping[tuple[str, int], int]:
        """Return how many requests were answered, by path and status code."""
        return dict(self._requests)

    def application(self) -> web.Application:
        """Return the application with every path."""
        application = web.Application(middlewares=[self._counted, self._authorized])
        application.router.add_get(PAGE, self._get_page)
        application.router.add_get(METRICS, self._get_metrics)
        application.router.add_get(AZURE, self._get_azure)
        application.router.add_get(STREAM, self._get_stream)
        application.router.add_get(HEALTH, self._get_health)
        application.router.add_get(READY, self._get_readyz)
        return application

    @web.middleware
    async def _counted(self, request: web.Request, handler: _Handler) -> web.StreamResponse:
        path = request.match_info.route.resource
        name = path.canonical if path is not None else _OTHER_PATH
        try:
            response = await handler(request)
        except web.HTTPException as error:
            self._requests[name, error.status] += 1
            raise
        except Exception:
            self._requests[name, 500] += 1
            raise
        self._requests[name, response.status] += 1
        return response

    @web.middleware
    async def _authorized(self, request: web.Request, handler: _Handler) -> web.StreamResponse:
        auth = self._serve.auth
        if auth is None or await auth.allows(request.headers.get("Authorization", "")):
            return await handler(request)
        return web.Response(
            status=401, text="Unauthorized\n", headers={"WWW-Authenticate": "Basic"}
        )

    async def _get_metrics(self, request: web.Request) -> web.Response:
        wants_openmetrics = prefers_openmetrics(request.headers.get("Accept", ""))
        format_: Format = "openmetrics" if wants_openmetrics else "text"
        is_compressed = accepts_gzip(request.headers.get("Accept-Encoding", ""))
        headers = {
            "Content-Type": _CONTENT_TYPES[format_],
            "Vary": "Accept, Accept-Encoding",
            "X-Content-Type-Options": "nosniff",
        }
        if is_compressed:
            headers["Content-Encoding"] = "gzip"
        body = self._agent.snapshot.body(format_, is_compressed=is_compressed)
        return web.Response(body=body, headers=headers)

    async def _get_azure(self, _request: web.Request) -> web.Response:
        azure = self._serve.extras.azure
        if azure is None:
            return web.Response(status=404, text="Azure's metrics need --kubernetes\n")
        counts = self._serve.resources() if self._serve.resources else NodeGpuResources()
        text = write.render_text(azure.families(counts))
        return web.Response(body=text.encode(), headers={"Content-Type": write.CONTENT_TYPE})

    async def _get_health(self, _request: web.Request) -> web.Response:
        return web.Response(text="OK")

    async def _get_readyz(self, request: web.Request) -> web.Response:
        is_ready = self._agent.snapshot.status.last_good_ms is not None
        text = "ok" if is_ready else "no good collect yet"
        if "verbose" in request.query:
            verdict = f"readyz check {'passed' if is_ready else 'failed'}\n"
            text = "\n".join((*self._checks(), verdict))
        return web.Response(text=text, status=200 if is_ready else 503)

    def _checks(self) -> list[str]:
        """Return one line per part, in the form that Kubernetes' own servers use."""
        status = self._agent.snapshot.status
        lines = [_check("collect", status.error) + self._age_text()]
        if status.is_attributing:
            lines.append(_check("attribution", status.attribution_error) + self._missing_text())
        else:
            lines.append("[+]attribution off")
        lines += [_check(f"gpu {gpu_name(each.gpu)}", each.error) for each in status.gpus]
        for call in status.calls:
            lines.append(f"[+]source {call.source} ({call.calls} calls, {call.errors} errors)")
        config = self._serve.config()
        if config.loaded_ms is not None:
            age = f" (in use since {self._agent.age_s(config.loaded_ms):.1f} s)"
            lines.append(_check("config", config.error) + age)
        return lines

    def _age_text(self) -> str:
        status = self._agent.snapshot.status
        if status.last_good_ms is None:
            return " (none good yet)"
        return f" (last good {self._agent.age_s(status.last_good_ms):.1f} s ago)"

    def _missing_text(self) -> str:
        missing = self._agent.snapshot.status.unattributed
        told = ", ".join(f"{reason} {count}" for reason, count in sorted(missing.items()))
        return f" (not tied to a container: {told})" if told else ""

    async def _get_page(self, _request: web.Request) -> web.Response:
        return web.Response(text=page(self._hostname), content_type="text/html")

    async def _get_stream(self, request: web.Request) -> web.StreamResponse:
        snapshot = self._agent.snapshot
        is_first = not len(self._subscribers)
        subscriber = self._subscribers.join(
            snapshot.devices, snapshot.measured_ms, snapshot.status.error
        )
        if subscriber is None:
            return web.Response(status=503, text="too many subscribers\n")
        if is_first:
            self._agent.hurry()
        response = web.StreamResponse(
            headers={"Content-Type": STREAM_TYPE, "Cache-Control": "no-store"}
        )
        try:
            await response.prepare(request)
            await _pump(subscriber, request, response)
        except ConnectionError:
            pass  # the subscriber is gone, which is how streams end
        finally:
            self._subscribers.leave(subscriber)
        return response


async def _pump(subscriber: Subscriber, request: web.Request, response: web.StreamResponse) -> None:
    """Send line after line until the subscriber leaves or has to go."""
    sending = asyncio.create_task(_send(subscriber, response))
    leaving = asyncio.create_task(subscriber.dismissed())
    try:
        await asyncio.wait({sending, leaving}, return_when=asyncio.FIRST_COMPLETED)
        if sending.done():
            await sending
        else:
            await _say_goodbye(leaving.result(), sending, request, response)
    finally:
        sending.cancel()
        leaving.cancel()
        await asyncio.gather(sending, leaving, return_exceptions=True)


async def _send(subscriber: Subscriber, response: web.StreamResponse) -> None:
    while True:
        await response.write(await subscriber.line())


async def _say_goodbye(
    last_line: bytes,
    sending: "asyncio.Task[None]",
    request: web.Request,
    response: web.StreamResponse,
) -> None:
    """Send the reason, or break the connection where even that is not taken."""
    sending.cancel()
    await asyncio.gather(sending, return_exceptions=True)
    try:
        async with asyncio.timeout(_GOODBYE_S):
            await response.write(last_line)
            await response.write_eof()
    except TimeoutError:
        if request.transport is not None:
            request.transport.abort()


def _check(what: str, error: str | None) -> str:
    return f"[+]{what} ok" if error is None else f"[-]{what} failed: {error}"


def page(hostname: str) -> str:
    """Return the page at `/`, which links to the rest."""
    name = html.escape(hostname or "this node")
    return (
        '<!doctype html>\n<html lang="en">\n'
        f"<head><title>GPUs of {name}</title></head>\n"
        f"<body><h1>GPUs of {name}</h1>\n"
        f'<p><a href="{METRICS}">Metrics</a></p>\n'
        f'<p><a href="{AZURE}">Azure\'s metrics</a></p>\n'
        f'<p><a href="{STREAM}">Stream</a></p>\n'
        f'<p><a href="{READY}?verbose">State</a></p>\n'
        "</body></html>\n"
    )
