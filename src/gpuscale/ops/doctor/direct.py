"""Requests to agents and servers, direct or through the API server's proxy, several at a time."""

import asyncio
from collections.abc import Coroutine, Iterable, Mapping
from typing import Any, TypeVar

import aiohttp
from yarl import URL

from gpuscale.base.errors import GpuscaleError, UnavailableError, UpstreamError
from gpuscale.base.unreachable import reason_of
from gpuscale.server.sources.http import HttpSession, SourceAccess

_TIMEOUT_S = 10.0
_OK = 200


class AnsweredError(UpstreamError):
    """A server answered with an error status."""

    def __init__(self, code: int, message: str) -> None:
        self.code = code
        super().__init__(message)


async def fetch(
    base: str,
    path: str,
    params: Mapping[str, str] | None = None,
    access: SourceAccess | None = None,
) -> str:
    """Return a server's answer.

    Args:
        base: `http://127.0.0.1:9090`, with or without a path.
        path: below it.
        params: of the query.
        access: what the request carries so that it is let in.

    Raises:
        UnavailableError: no answer.
        AnsweredError: an error for an answer.
    """
    try:
        url = URL(base.rstrip("/") + path).with_query(dict(params or {}))
        async with HttpSession(_TIMEOUT_S, access=access or SourceAccess()) as session:
            status, body = await session.fetch("GET", url)
    except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
        raise UnavailableError(f"{base} does not answer: {reason_of(error)}") from error
    if status != _OK:
        raise AnsweredError(status, f"{base} answered {path} with {status}")
    return body.decode(errors="replace")


PODS, SERVICES = "pods/proxy", "services/proxy"
"""The rights that it takes."""


def pod_path(namespace: str, name: str, port: int, path: str, *, has_tls: bool = False) -> str:
    """Return the API server's proxy path of a pod."""
    tls = "https:" if has_tls else ""
    return f"/api/v1/namespaces/{namespace}/pods/{tls}{name}:{port}/proxy{path}"


def service_path(address: URL, namespace: str, name: str, port: int, path: str) -> str:
    """Return the API server's proxy path of a Service.

    Args:
        address: of what is behind it: whether it has TLS, and the path that its own paths begin with.
        namespace: of the Service.
        name: likewise.
        port: likewise.
        path: below the address.
    """
    tls = "https:" if address.scheme == "https" else ""
    below = address.raw_path.rstrip("/")
    return f"/api/v1/namespaces/{namespace}/services/{tls}{name}:{port}/proxy{below}{path}"


def missing_right(error: Exception, right: str) -> str:
    """Return the RBAC right that is missing according to an error; empty if it is about something else.

    What is behind the API server may refuse too, and then it is not about a right of the cluster.
    """
    return right if f'"{right}"' in str(error) else ""


T = TypeVar("T")
_MOST = 16


async def at_once(calls: Iterable[Coroutine[Any, Any, T]]) -> tuple[T, ...]:
    """Return the results of calls, in their order; at most 16 run at a time.

    Raises:
        GpuscaleError: the first one that a call raised, which ends the others: where a server is gone, each
            raises its own.
    """
    free = asyncio.Semaphore(_MOST)

    async def run(call: Coroutine[Any, Any, T]) -> T:
        async with free:
            return await call

    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(run(call)) for call in calls]
    except ExceptionGroup as errors:
        if all(isinstance(each, GpuscaleError) for each in errors.exceptions):
            raise errors.exceptions[0] from None
        raise
    return tuple(task.result() for task in tasks)
