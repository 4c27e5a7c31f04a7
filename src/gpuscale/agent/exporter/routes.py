"""The paths that a node agent answers, in which text format, and whether compressed.

Source: RFC 9110, section 12.5 (Accept, Accept-Encoding); Prometheus scrape/scrape.go (what it sends).
"""

import asyncio
from collections import Counter as Tally
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Protocol

from gpuscale.agent.exporter.collector import Extras, gpu_name
from gpuscale.agent.exporter.families.own_metrics import ConfigStatus, ReadyTaintStatus
from gpuscale.agent.exporter.http.subscribers import Subscriber, Subscribers
from gpuscale.agent.exporter.snapshot import Format, TickSnapshot
from gpuscale.agent.gpu.owners import NodeGpuResources
from gpuscale.base.exposition import openmetrics, write
from gpuscale.base.http_server import BodyWriter, Handler, Request, Response, text_response

if TYPE_CHECKING:
    from gpuscale.agent.exporter.http.passwords import PasswordCheck
    from gpuscale.agent.exporter.http.tls import ServerTls

_MAX_HEADER_CHARS = 4096
_OPENMETRICS = "application/openmetrics-text"
_OPENMETRICS_VERSIONS = ("", "1.0.0", "0.0.1")
_PLAIN = ("text/plain", "text/*", "*/*")


def prefers_openmetrics(accept: str) -> bool:
    """Return whether an Accept header asks for OpenMetrics rather than for the older text."""
    openmetrics, plain = 0.0, 0.0
    for name, parameters in _items(accept):
        quality = _quality(parameters)
        if name == _OPENMETRICS and parameters.get("version", "") in _OPENMETRICS_VERSIONS:
            openmetrics = max(openmetrics, quality)
        elif name in _PLAIN:
            plain = max(plain, quality)
    return openmetrics > 0 and openmetrics >= plain


def accepts_gzip(accept_encoding: str) -> bool:
    """Return whether an Accept-Encoding header allows gzip."""
    for name, parameters in _items(accept_encoding):
        if name in ("gzip", "*"):
            return _quality(parameters) > 0
    return False


def _items(header: str) -> Iterator[tuple[str, dict[str, str]]]:
    for item in header[:_MAX_HEADER_CHARS].lower().split(","):
        name, *parameters = (part.strip() for part in item.split(";"))
        pairs = (part.partition("=") for part in parameters)
        yield name, {key.strip(): value.strip().strip('"') for key, _, value in pairs}


def _quality(parameters: dict[str, str]) -> float:
    try:
        return float(parameters.get("q", "1"))
    except ValueError:
        return 0.0


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


class ServedAgent(Protocol):
    """The agent's interface for its HTTP routes."""

    @property
    def snapshot(self) -> TickSnapshot: ...

    def age_s(self, at_ms: int) -> float:
        """Return the age of a time in seconds."""
        ...

    def hurry(self) -> None:
        """Collect at the stream's pace from now on."""
        ...

    def note_scrape(self) -> None:
        """Record a scrape."""
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
        self, agent: ServedAgent, hostname: str, serve: "ServeOptions", subscribers: Subscribers
    ) -> None:
        self._agent = agent
        self._hostname = hostname
        self._serve = serve
        self._subscribers = subscribers
        self._requests: Tally[tuple[str, int]] = Tally()
        self._paths: Mapping[str, Handler] = {
            PAGE: self._get_page,
            METRICS: self._get_metrics,
            AZURE: self._get_azure,
            STREAM: self._get_stream,
            HEALTH: self._get_health,
            READY: self._get_readyz,
        }

    @property
    def requests(self) -> Mapping[tuple[str, int], int]:
        """Return how many requests were answered, by path and status code."""
        return dict(self._requests)

    async def answer(self, request: Request) -> Response:
        """Return the response to a request, and count it."""
        handler = self._paths.get(request.path)
        name = _OTHER_PATH if handler is None else request.path
        # With parameters, /readyz shows more than a probe needs.
        is_open = (
            self._serve.has_open_probes
            and request.path in (HEALTH, READY)
            and not request.has_parameter("verbose")
        )
        auth, header = self._serve.auth, request.headers.get("authorization", "")
        try:
            if auth is not None and not is_open and not await auth.allows(header):
                response = text_response("Unauthorized\n", 401, **{"WWW-Authenticate": "Basic"})
            elif handler is None:
                response = text_response("404: Not Found", 404)
            else:
                response = await handler(request)
        except Exception:
            self._requests[name, 500] += 1
            raise
        self._requests[name, response.status] += 1
        return response

    async def _get_metrics(self, request: Request) -> Response:
        wants_openmetrics = prefers_openmetrics(request.headers.get("accept", ""))
        format_: Format = "openmetrics" if wants_openmetrics else "text"
        is_compressed = accepts_gzip(request.headers.get("accept-encoding", ""))
        headers = {
            "Content-Type": _CONTENT_TYPES[format_],
            "Vary": "Accept, Accept-Encoding",
            "X-Content-Type-Options": "nosniff",
        }
        if is_compressed:
            headers["Content-Encoding"] = "gzip"
        body = self._agent.snapshot.body(format_, is_compressed=is_compressed)
        self._agent.note_scrape()
        return Response(body, headers=headers)

    async def _get_azure(self, _request: Request) -> Response:
        azure = self._serve.extras.azure
        if azure is None:
            return text_response("Azure's metrics need --kubernetes\n", 404)
        counts = self._serve.resources() if self._serve.resources else NodeGpuResources()
        text = write.render_text(azure.families(counts))
        return Response(text.encode(), headers={"Content-Type": write.CONTENT_TYPE})

    async def _get_health(self, _request: Request) -> Response:
        return text_response("OK")

    async def _get_readyz(self, request: Request) -> Response:
        status = self._agent.snapshot.status
        is_ready = status.last_good_ms is not None
        code = 200 if is_ready else 503
        if not request.has_parameter("verbose"):
            return text_response("ok" if is_ready else "no good collect yet", code)
        # One line for each component, in the form of Kubernetes' own health checks.
        age = " (none good yet)"
        if status.last_good_ms is not None:
            age = f" (last good {self._agent.age_s(status.last_good_ms):.1f} s ago)"
        lines = [_check("collect", status.error) + age]
        if status.is_attributing:
            counts = sorted(status.unattributed.items())
            reasons = ", ".join(f"{reason} {count}" for reason, count in counts)
            missing = f" (not tied to a container: {reasons})" if reasons else ""
            lines.append(_check("attribution", status.attribution_fault) + missing)
        else:
            lines.append("[+]attribution off")
        lines += [_check(f"gpu {gpu_name(each.gpu)}", each.error) for each in status.gpus]
        for call in status.calls:
            lines.append(f"[+]source {call.source} ({call.calls} calls, {call.errors} errors)")
        config = self._serve.config()
        if config.loaded_ms is not None:
            age = f" (in use since {self._agent.age_s(config.loaded_ms):.1f} s)"
            lines.append(_check("config", config.error) + age)
        if (waits_for := self._serve.ready_taint().waits_for) != "":
            lines.append(_check("ready-taint", waits_for))
        verdict = f"readyz check {'passed' if is_ready else 'failed'}\n"
        return text_response("\n".join((*lines, verdict)), code)

    async def _get_page(self, _request: Request) -> Response:
        html_type = {"Content-Type": "text/html; charset=utf-8"}
        return Response(page(self._hostname).encode(), headers=html_type)

    async def _get_stream(self, request: Request) -> Response:
        headers = {"Content-Type": STREAM_TYPE, "Cache-Control": "no-store"}
        if request.method == "HEAD":
            return Response(headers=headers)
        snapshot = self._agent.snapshot
        is_first = not len(self._subscribers)
        subscriber = self._subscribers.join(
            snapshot.devices, snapshot.measured_ms, snapshot.status.error
        )
        if subscriber is None:
            return text_response("too many subscribers\n", 503)
        if is_first:
            self._agent.hurry()
        return Response(partial(self._pump, subscriber), headers=headers)

    async def _pump(self, subscriber: Subscriber, client: BodyWriter) -> None:
        """Send lines until the subscriber leaves or is disconnected."""
        sending = asyncio.create_task(_send(subscriber, client))
        leaving = asyncio.create_task(subscriber.dismissed())
        try:
            await asyncio.wait({sending, leaving}, return_when=asyncio.FIRST_COMPLETED)
            if sending.done():
                await sending
            else:
                await _say_goodbye(leaving.result(), sending, client)
        finally:
            self._subscribers.leave(subscriber)
            sending.cancel()
            leaving.cancel()
            await asyncio.gather(sending, leaving, return_exceptions=True)


async def _send(subscriber: Subscriber, client: BodyWriter) -> None:
    while True:
        await client.write(await subscriber.line())


async def _say_goodbye(last_line: bytes, sending: "asyncio.Task[None]", client: BodyWriter) -> None:
    """Send the reason, or break the connection if the client takes nothing."""
    sending.cancel()
    await asyncio.gather(sending, return_exceptions=True)
    try:
        async with asyncio.timeout(_GOODBYE_S):
            await client.write(last_line)
    except TimeoutError:
        client.abort()


def _check(what: str, error: str | None) -> str:
    return f"[+]{what} ok" if error is None else f"[-]{what} failed: {error}"


def page(hostname: str) -> str:
    """Return the page at `/`, which links to the rest."""
    import html  # half a MiB, mostly names of characters

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


@dataclass(frozen=True, slots=True)
class ServeOptions:
    """Optional settings of serving."""

    extras: Extras = field(default_factory=Extras)
    stream_interval_s: float | None = None
    """From one collect to the next while the stream has subscribers; None is no faster than otherwise."""
    auth: "PasswordCheck | None" = None
    """Who may come in; None is everyone."""
    has_open_probes: bool = False
    """Whether probes may come in all the same."""
    tls: "ServerTls | None" = None
    """None is plain HTTP."""
    resources: Callable[[], NodeGpuResources] | None = None
    """Counts the node's GPUs as Kubernetes does; for Azure's metrics."""
    config: Callable[[], ConfigStatus] = ConfigStatus
    """Reports how the latest load of the configuration went."""
    ready_taint: Callable[[], ReadyTaintStatus] = ReadyTaintStatus
    """Reports how it is with the taint that waits for the node's GPUs."""
    before_first: Callable[[], Awaitable[None]] | None = None
    """Waited for before the first collect, for two seconds at most, so that GPUs are not reported as
    unallocated just because the agent has just started."""
