"""Answers in JSON over aiohttp."""

import json

from aiohttp import web

from gpuscale.server.metricsapi.wire import bodies
from gpuscale.server.metricsapi.wire.aggregated import etag, matches
from gpuscale.server.metricsapi.wire.requests import is_true
from gpuscale.server.metricsapi.wire.statuses import Status

_COMPRESS_FROM_BYTES = 128 * 1024
"""Where the Kubernetes API server begins to compress."""
_BROWSERS = ("curl", "Wget", "Mozilla/5.0")
"""Clients that get indented answers unless they say otherwise, as from the Kubernetes API server."""
JSON = "application/json"


def json_response(
    request: web.Request, code: int, body: bodies.Body | str, content_type: str = JSON
) -> web.Response:
    """Return an answer in JSON; a body that is text is JSON already."""
    text = body if isinstance(body, str) else bodies.json_text(body)
    if _wants_indent(request):
        text = json.dumps(json.loads(text), indent=2, ensure_ascii=False)
    response = web.Response(
        status=code,
        body=f"{text}\n".encode("utf-8", "backslashreplace"),
        headers={"Content-Type": content_type},
    )
    if len(text) > _COMPRESS_FROM_BYTES:
        response.enable_compression()
    return response


def _wants_indent(request: web.Request) -> bool:
    wanted = request.query.get("pretty")
    if wanted:
        return is_true(wanted)
    return request.headers.get("User-Agent", "").startswith(_BROWSERS)


def status_response(request: web.Request, status: Status) -> web.Response:
    """Return the answer that reports a failure."""
    return json_response(request, status.code, status.body())


def unless_known(request: web.Request, body: bodies.Body, content_type: str = JSON) -> web.Response:
    """Return a document, or 304 if the client already has it."""
    tag = etag(body)
    if matches(request.headers.get("If-None-Match"), tag):
        return web.Response(status=304, headers={"ETag": tag})
    response = json_response(request, 200, body, content_type)
    response.headers["ETag"] = tag
    return response
