"""The filters of every TLS request: authentication, authorization, limits on number and time.

Source: k8s.io/apiserver v0.30.0 pkg/server (config.go, DefaultBuildHandlerChain) and pkg/server/filters
(maxinflight.go, timeout.go); the limits are its defaults.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from contextvars import ContextVar

from aiohttp import web
from aiohttp.typedefs import Middleware
from OpenSSL import crypto

from gpuscale.base.errors import GpuscaleError
from gpuscale.server.metricsapi.connections.connection import Connection
from gpuscale.server.metricsapi.connections.counted_log import CountedLog
from gpuscale.server.metricsapi.health import ENDPOINTS
from gpuscale.server.metricsapi.security import audit
from gpuscale.server.metricsapi.security.audit import AuditLog
from gpuscale.server.metricsapi.security.authentication import (
    Authenticator,
    RequestCredentials,
    UnauthenticatedError,
)
from gpuscale.server.metricsapi.security.authorization import (
    Authorizer,
    attributes_of,
    forbidden_message,
    named_by_fields,
)
from gpuscale.server.metricsapi.security.reviews import MASTERS, NOBODY, Attributes, User
from gpuscale.server.metricsapi.telemetry.own_metrics import ServerMetrics
from gpuscale.server.metricsapi.wire.paths import is_text
from gpuscale.server.metricsapi.wire.requests import is_watch
from gpuscale.server.metricsapi.wire.responses import status_response
from gpuscale.server.metricsapi.wire.statuses import (
    NO_ROUTE,
    TIMED_OUT,
    TOO_MANY,
    UNAUTHORIZED,
    Status,
    bad_request,
    forbidden,
    internal_error,
)

ASKS: ContextVar[User | None] = ContextVar("asks", default=None)
"""Who sent the request that is answered in this context; None where none is needed."""
_TIMEOUT_S = 60.0
"""For a request, in the machine's seconds."""
_READS_METRICS = Attributes("get", "/metrics")
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
Inner = Callable[[web.Request, Handler], Awaitable[web.StreamResponse]]


class Guard:
    """Passes a request to its handler, or refuses it.

    Args:
        authenticator: finds the user of a request.
        authorizer: decides whether they may.
        metrics: counts who was turned away.
        max_in_flight: requests that are answered at a time, and as many whose clients are being
            authenticated; those of system:masters and of health paths don't count.
        timeout_s: for a request, in the machine's seconds.
        audit_log: gets every request but those of health paths.
    """

    def __init__(
        self,
        authenticator: Authenticator,
        authorizer: Authorizer,
        metrics: ServerMetrics,
        max_in_flight: int = 400,
        timeout_s: float = _TIMEOUT_S,
        audit_log: AuditLog | None = None,
    ) -> None:
        self._audit = audit_log
        self._authenticator = authenticator
        self._authorizer = authorizer
        self._metrics = metrics
        self._max_in_flight = max_in_flight
        self._timeout_s = timeout_s
        self._in_flight = 0
        self._authenticating = 0
        self._unauthenticated = CountedLog("unauthenticated request")
        self._undecided = CountedLog("request that the API server could not be asked about")

    def is_front_proxy(self, certificates: Sequence[crypto.X509]) -> bool:
        """Return whether these certificates are a front proxy's, which may name the user in headers."""
        return self._authenticator.is_front_proxy(certificates)

    async def check(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Answer a request: by the handler if it is allowed, else with the refusal."""
        received_s = time.time()
        code = 500
        try:
            async with asyncio.timeout(self._timeout_s):
                response = await self._checked(request, handler)
            code = response.status
        except TimeoutError:
            code = TIMED_OUT.code
            return self._refuse(request, "timeout", TIMED_OUT)
        except web.HTTPException as error:
            code = error.status
            raise
        finally:
            if self._audit is not None and not _is_health(request.path):
                self._audit.add(_audited(request, code, received_s))
        return response

    async def sees_reasons(self, _request: web.Request) -> bool:
        """Return whether a client may see why a health check failed; it needs the right to read metrics."""
        user = ASKS.get()
        if user is None or user.name == NOBODY.name:
            return False
        try:
            decision = await self._authorizer.decide(user, _READS_METRICS)
        except GpuscaleError:
            return False
        return decision.allowed

    async def _checked(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        if self._authenticating >= self._max_in_flight:
            return self._too_many(request)
        self._authenticating += 1
        try:
            user = await self._authenticator.user(_credentials(request))
        except UnauthenticatedError as error:
            self._unauthenticated.add(request.remote, str(error))
            return self._refuse(request, "unauthenticated", UNAUTHORIZED)
        finally:
            self._authenticating -= 1
        ASKS.set(user)
        if user.name != NOBODY.name and isinstance(request.transport, Connection):
            request.transport.is_known = True
        if MASTERS in user.groups:
            return await handler(request)
        if self._in_flight >= self._max_in_flight and not _is_health(request.path):
            return self._too_many(request)
        self._in_flight += 1
        try:
            refusal = await self._refusal(request, user)
            return await handler(request) if refusal is None else refusal
        finally:
            self._in_flight -= 1

    def _too_many(self, request: web.Request) -> web.Response:
        response = self._refuse(request, "too many requests", TOO_MANY)
        response.headers["Retry-After"] = "1"
        return response

    async def _refusal(self, request: web.Request, user: User) -> web.Response | None:
        """Return the refusal for a user without permission; None for an allowed request."""
        attributes = _attributes(request)
        try:
            decision = await self._authorizer.decide(user, attributes)
        except GpuscaleError as error:
            self._undecided.add(request.remote, f"{user.name} for {request.path}: {error}")
            status = internal_error("unable to ask the API server whether this is allowed")
            return self._refuse(request, "authorization failed", status)
        if decision.allowed:
            return None
        message = forbidden_message(user, attributes)
        if decision.reason:
            message = f"{message}: {decision.reason}"
        status = forbidden(message, attributes.name, attributes.group, attributes.resource)
        return self._refuse(request, "forbidden", status)

    def _refuse(self, request: web.Request, reason: str, status: Status) -> web.Response:
        self._metrics.rejected(reason)
        response = status_response(request, status)
        response.headers["X-Content-Type-Options"] = "nosniff"
        return response


def counted(
    metrics: ServerMetrics, inner: Inner, is_stopping: Callable[[], bool] = lambda: False
) -> Middleware:
    """Return a middleware that counts and times what `inner` answers.

    Args:
        metrics: count.
        inner: answers, or has the handler answer.
        is_stopping: returns whether each answer is to be the last of its connection.
    """

    @web.middleware
    async def count(request: web.Request, handler: Handler) -> web.StreamResponse:
        started = time.perf_counter()
        connection = request.transport
        if isinstance(connection, Connection):
            connection.request_begins()
        metrics.begins()
        code = 500
        try:
            if is_text(request.rel_url.raw_path) and is_text(request.rel_url.raw_query_string):
                response = await inner(request, handler)
            else:
                response = status_response(request, bad_request("the path is no UTF-8"))
            code = response.status
        except web.HTTPNotFound:
            code = NO_ROUTE.code
            response = status_response(request, NO_ROUTE)
        except web.HTTPException as error:
            code = error.status
            if is_stopping():
                error.force_close()
            raise
        finally:
            metrics.ends(request.method, request.path, code, time.perf_counter() - started)
        if is_stopping():
            response.force_close()
        return response

    return count


async def unguarded(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Answer every client without authentication; for a port that only this machine reaches."""
    try:
        async with asyncio.timeout(_TIMEOUT_S):
            return await handler(request)
    except TimeoutError:
        return status_response(request, TIMED_OUT)


def _audited(request: web.Request, code: int, received_s: float) -> audit.AuditedRequest:
    """Return the audit record of a request."""
    return audit.AuditedRequest(
        uri=request.rel_url.raw_path_qs,
        attributes=_attributes(request),
        user=ASKS.get(),
        address=request.remote or "",
        user_agent=request.headers.get("User-Agent", ""),
        audit_id=request.headers.get("Audit-ID", ""),
        code=code,
        received_s=received_s,
        answered_s=time.time(),
    )


def _attributes(request: web.Request) -> Attributes:
    path = request.rel_url.raw_path
    attributes = attributes_of(request.method, path, request.path, watches=is_watch(request))
    if fields := request.query.get("fieldSelector"):
        attributes = named_by_fields(attributes, fields)
    return attributes


def _is_health(path: str) -> bool:
    return path.strip("/").partition("/")[0] in ENDPOINTS


def _credentials(request: web.Request) -> RequestCredentials:
    connection = request.transport
    certificates = connection.presented() if isinstance(connection, Connection) else ()
    return RequestCredentials(request.headers, certificates)
