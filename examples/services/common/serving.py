"""How a sample is served: health, metrics, bounded input, an orderly end.

Every answer has the header `X-Compute`: `gpu`, or `simulated` where no GPU worked and its time was waited
for.
SIGTERM lets the requests that are there finish. New connections are refused at once, so load balancers need
time to notice: the manifests wait five seconds before they stop a pod.
"""

import argparse
import asyncio
import logging
import signal
import sys

from aiohttp import web
from aiohttp.http import HttpProcessingError
from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    generate_latest,
)

from common.connections import Connections, Handler
from common.devices import Device, FullError, seconds

DRAIN_S = 25.0
"""Below the 30 seconds that Kubernetes gives a pod."""
_OWN = frozenset({"/metrics", "/healthz"})
_BUCKETS = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 60)


class Metrics:
    """What the sample reports of itself at /metrics.

    Args:
        device: what it works with.
    """

    def __init__(self, device: Device) -> None:
        self.registry = CollectorRegistry()
        registry = self.registry
        self.requests = Counter(
            "http_requests", "Requests that were answered.", ["code"], registry=registry
        )
        self.seconds = Histogram(
            "http_request_duration_seconds",
            "From a request's arrival to its answer.",
            buckets=_BUCKETS,
            registry=registry,
        )
        waiting = Gauge(
            "http_requests_waiting", "Requests that wait for a turn.", registry=registry
        )
        waiting.set_function(lambda: device.waiting)
        in_flight = Gauge(
            "http_requests_in_flight", "Requests that wait or are worked on.", registry=registry
        )
        in_flight.set_function(lambda: device.waiting + device.working)
        compute = Gauge(
            "compute_info", "What answers requests.", ["compute", "device"], registry=registry
        )
        compute.labels(device.kind, device.gpu or "none").set(1)

    async def page(self, _request: web.Request) -> web.Response:
        """Answer /metrics."""
        return web.Response(
            body=generate_latest(self.registry), headers={"Content-Type": CONTENT_TYPE_LATEST}
        )


def application(device: Device, metrics: Metrics, most_bytes: int = 65_536) -> web.Application:
    """Return an application with health and metrics; the sample adds its own paths.

    Args:
        device: what it works with.
        metrics: its metrics.
        most_bytes: of a request's body.
    """

    @web.middleware
    async def measure(request: web.Request, handler: Handler) -> web.StreamResponse:
        if request.path in _OWN:
            return await handler(request)
        with metrics.seconds.time():
            try:
                response = await handler(request)
            except FullError:
                text = "too many requests wait already\n"
                response = web.Response(status=503, text=text, headers={"Retry-After": "1"})
            except web.HTTPException as error:
                metrics.requests.labels(str(error.status)).inc()
                raise
        metrics.requests.labels(str(response.status)).inc()
        return response

    app = web.Application(middlewares=[measure], client_max_size=most_bytes)
    label(app, device.kind)
    app.router.add_get("/metrics", metrics.page)
    app.router.add_get("/healthz", _healthz)
    return app


def label(app: web.Application, kind: str) -> None:
    """Have every answer say what it was computed with."""

    async def add(_request: web.Request, response: web.StreamResponse) -> None:
        response.headers["X-Compute"] = kind

    app.on_response_prepare.append(add)


async def _healthz(_request: web.Request) -> web.Response:
    return web.Response(text="ok\n")


def add_server_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that say where to listen."""
    parser.add_argument("--host", default="0.0.0.0", help="address to listen on")  # noqa: S104
    parser.add_argument("--port", type=int, default=8000, help="0 takes any free one")
    parser.add_argument(
        "--idle-s",
        type=seconds,
        default=75,  # proxies close theirs after 60
        help="after so long a client that sends or takes nothing is disconnected",
    )


def serve(app: web.Application, gpu: str | None, name: str, options: argparse.Namespace) -> None:
    """Serve until SIGTERM or Ctrl-C.

    Args:
        app: what is served.
        gpu: that it works on; None where its time is simulated.
        name: of the sample.
        options: where to listen.
    """
    what = "no GPU, the time it takes is simulated" if gpu is None else f"on {gpu}"
    print(f"{name}: {what}", flush=True)
    try:
        asyncio.run(_serve(app, name, options))
    except OSError as error:
        sys.exit(f"{name}: can't listen on {options.host}:{options.port}: {error}")


def _is_of_the_service(record: logging.LogRecord) -> bool:
    """Return whether a line of the log is about more than a client's malformed request."""
    error = record.exc_info[1] if record.exc_info else None
    return not isinstance(error, HttpProcessingError)


async def _serve(app: web.Application, name: str, options: argparse.Namespace) -> None:
    # Any client can send nonsense, and each would be a page of the log.
    logging.getLogger("aiohttp.server").addFilter(_is_of_the_service)
    connections = Connections(options.idle_s)
    app.middlewares.append(connections.middleware)
    runner = web.AppRunner(
        app,
        access_log=None,
        shutdown_timeout=DRAIN_S,
        keepalive_timeout=options.idle_s,
        max_headers=64,
    )
    await runner.setup()
    assert runner.server is not None
    watch = asyncio.create_task(connections.watch(runner.server))
    try:
        await web.TCPSite(runner, options.host, options.port).start()
        host, port = runner.addresses[0][:2]
        stop = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
        print(f"{name}: listening on http://{host}:{port}", flush=True)
        await stop.wait()
        print(f"{name}: finishing what is there", flush=True)
    finally:
        watch.cancel()
        await runner.cleanup()
