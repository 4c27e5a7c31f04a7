"""The route for pushed OTLP metrics, with counters of what was pushed.

A request that was understood is answered with 200. What of it was left out is in the answer, as a partial
success: clients log it and don't send it again.

Source: OTLP specification 1.x (OTLP/HTTP, partial success, failures).
"""

from collections.abc import Sequence

from aiohttp import web

from gpuscale.base.exposition.families import Family
from gpuscale.series.otlp import MalformedRequestError, answer, read_request
from gpuscale.server.metricsapi.telemetry.own_metrics import family
from gpuscale.server.sources.otlp.receiver import OtlpReceiver
from gpuscale.server.sources.otlp.settings import CLIENT_HEADER, MAX_BODY_BYTES, PATH


def add_otlp_route(app: web.Application, receiver: OtlpReceiver) -> None:
    """Accept OTLP requests on `app`; the metrics API has already read and bounded their bodies."""

    async def handle(request: web.Request) -> web.Response:
        body = b""
        async for chunk in request.content.iter_any():
            body += chunk
            if len(body) > MAX_BODY_BYTES:
                return web.Response(status=413)
        try:
            message = read_request(body, request.content_type)
        except MalformedRequestError as error:
            receiver.requests["malformed"] += 1
            return web.Response(status=400, text=f"{error}\n")
        client = bytes.fromhex(request.headers.get(CLIENT_HEADER, "")).decode()
        taken = await receiver.take(client, message)
        found = answer(request.content_type, taken.rejected, taken.reason)
        return web.Response(body=found, content_type=request.content_type)

    app.router.add_post(PATH, handle)


def otlp_families(receiver: OtlpReceiver) -> Sequence[Family]:
    """Return the counters of pushed OTLP metrics."""
    return (
        family(
            "otlp_requests_total",
            "counter",
            "OTLP requests by result: ok, partial, malformed.",
            {(("result", result),): count for result, count in receiver.requests.items()},
        ),
        family(
            "otlp_samples_total",
            "counter",
            "Samples of OTLP requests by result: stored, unwanted (no rule asks for them), refused.",
            {(("result", result),): count for result, count in receiver.samples.items()},
        ),
    )
