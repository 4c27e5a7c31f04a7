"""HTTP on a connection: aiohttp's protocol, with errors as a Kubernetes Status and one line in the log."""

import logging

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.web_protocol import RequestHandler

from gpuscale.server.metricsapi.connections.connection import Connection
from gpuscale.server.metricsapi.connections.counted_log import CountedLog
from gpuscale.server.metricsapi.wire import bodies
from gpuscale.server.metricsapi.wire.statuses import (
    Status,
    bad_request,
    internal_error,
    method_not_allowed,
)

_LOG = logging.getLogger(__name__)


class HttpProtocol(RequestHandler):
    """The HTTP requests of one connection."""

    __slots__ = ("_malformed",)

    def __init__(self, server: web.Server, malformed: CountedLog, **options: object) -> None:
        super().__init__(server, **options)  # type: ignore[arg-type]
        self._malformed = malformed

    async def finish_response(
        self, request: web.BaseRequest, resp: web.StreamResponse, start_time: float | None
    ) -> tuple[web.StreamResponse, bool]:
        """Write the response, and note that the connection is idle again."""
        if isinstance(resp, web.HTTPException):
            resp = _as_status(resp)
        try:
            return await super().finish_response(request, resp, start_time)
        finally:
            if isinstance(self.transport, Connection):
                self.transport.request_ends()

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Return the response to a malformed request (400), or for an error of our own (500)."""
        if request.writer.output_size > 0:
            raise ConnectionError("part of another answer was sent already")
        if isinstance(exc, HttpProcessingError) or status < 500:
            reason = (message or type(exc).__name__).split("\n", 1)[0]
            self._malformed.add(request.remote, reason)
            failure = bad_request("the request is malformed")
        else:
            _LOG.error("unable to answer %r: an unexpected fault", request.path, exc_info=exc)
            failure = internal_error("an unexpected fault")
        response = _answer(failure)
        response.force_close()
        return response


async def without_server(_: web.BaseRequest, response: web.StreamResponse) -> None:
    """Remove the Server header, which names libraries and versions; the Kubernetes API server has none."""
    response.headers.popall("Server", None)


class _Answer(web.Response):
    """A response to bytes that could not be parsed as a request."""

    async def _prepare_headers(self) -> None:
        await super()._prepare_headers()
        self.headers.popall("Server", None)


def _as_status(error: web.HTTPException) -> web.Response:
    """Return a Status for an error that aiohttp raises itself: a wrong method, a wrong Expect header."""
    is_method = error.status == web.HTTPMethodNotAllowed.status_code
    reason = error.reason or ""
    response = _answer(
        method_not_allowed() if is_method else Status(error.status, reason.replace(" ", ""), reason)
    )
    if "Allow" in error.headers:
        response.headers["Allow"] = error.headers["Allow"]
    if error.keep_alive is False:
        response.force_close()
    return response


def _answer(status: Status) -> web.Response:
    return _Answer(
        status=status.code,
        body=f"{bodies.json_text(status.body())}\n".encode(),
        headers={"Content-Type": "application/json", "X-Content-Type-Options": "nosniff"},
    )
