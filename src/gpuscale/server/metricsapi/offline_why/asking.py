"""Where `why` gets its explanation: from a server, through the API server, or from a short-lived server."""

import asyncio
import json
import socket
from collections.abc import Mapping, Sequence
from typing import Any

import aiohttp
from yarl import URL

from gpuscale.base.errors import NotFoundError, UnavailableError, UpstreamError, UsageError
from gpuscale.base.unreachable import reason_of
from gpuscale.kube.client import KubeSettings
from gpuscale.server.metricsapi.settings import read_settings
from gpuscale.server.sources.http.session import HttpSession

_DISCOVERY_WAIT_S = 60.0
_POLL_S = 0.1
_TIMEOUT_S = 60.0
Document = Mapping[str, Any]


async def ask_server(url: str, path: str) -> Document:
    """Return the explanation of a server that takes plain HTTP, or HTTPS with a certificate that is trusted.

    Raises:
        UsageError: not an address.
        NotFoundError, UpstreamError: it answers otherwise.
        UnavailableError: it does not answer.
    """
    base = URL(url)
    if base.scheme not in {"http", "https"} or base.host is None:
        raise UsageError(f"--server: found {url!r}, expected an http:// or https:// address")
    session = HttpSession(_TIMEOUT_S)
    try:
        whole = URL(f"{str(base).rstrip('/')}{path}", encoded=True)
        status, body = await session.fetch("GET", whole)
    except (aiohttp.ClientError, TimeoutError, OSError) as error:
        raise UnavailableError(
            f"{base.with_user(None)} does not answer: {reason_of(error)}"
        ) from error
    finally:
        await session.close()
    return _explanation(status, body)


async def ask_cluster(cluster: KubeSettings, path: str) -> Document:
    """Return the explanation by way of a cluster's API server, with the rights of a kubeconfig's user.

    Raises:
        UsageError: there is no usable kubeconfig.
        ApiStatusError, ApiUnreachableError: it does not let us, or does not answer.
        UpstreamError: what serves the metrics there can't say why.
    """
    from gpuscale.kube.client import KubeClient

    plain, _, query = path.partition("?")
    async with KubeClient(cluster) as connection:
        await connection.check_ready()
        answer = await connection.get(plain, dict(URL(f"?{query}").query))
    return _checked(answer)


async def ask_own(flags: Mapping[str, Sequence[str]], path: str) -> Document:
    """Return the explanation of a server that is started on loopback just for this question.

    Args:
        flags: of `gpuscale metrics-api`: rules, source, cluster.
        path: what to ask.

    Raises:
        ConfigError, UsageError: a rule file or a flag is wrong.
        UnavailableError: it does not get ready.
    """
    from gpuscale.server.metricsapi.process import MetricsApiServer

    port = _free_port()
    own = {"secure-port": ["0"], "insecure-loopback-port": [str(port)]}
    server = MetricsApiServer(read_settings({**flags, **own}), drain_s=0.0)
    stop, listening = asyncio.Event(), asyncio.Event()
    serving = asyncio.create_task(server.run(stop, lambda _: listening.set()))
    waiting = asyncio.create_task(listening.wait())
    try:
        await asyncio.wait({serving, waiting}, return_when=asyncio.FIRST_COMPLETED)
        if serving.done():
            await serving
        return await _discovered(f"http://127.0.0.1:{port}", path)
    finally:
        waiting.cancel()
        stop.set()
        await serving


async def _discovered(url: str, path: str) -> Document:
    """Return the explanation once discovery has ended, or what is known when that takes too long."""
    loop = asyncio.get_running_loop()
    end = loop.time() + _DISCOVERY_WAIT_S
    while True:
        document = await ask_server(url, path)
        if document.get("discovered") is True or loop.time() > end:
            return document
        await asyncio.sleep(_POLL_S)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _explanation(status: int, body: bytes) -> Document:
    try:
        answer = json.loads(body)
    except (ValueError, RecursionError):
        answer = None
    if not isinstance(answer, dict):
        raise UpstreamError(f"the server answered {status} with no JSON object")
    if answer.get("kind") == "Status":
        kind = NotFoundError if status == 404 else UpstreamError
        raise kind(f"the server answered {status}: {answer.get('message', 'no reason given')}")
    return _checked(answer)


def _checked(answer: Document) -> Document:
    if answer.get("kind") != "MetricExplanation":
        raise UpstreamError(
            f"found an answer of kind {answer.get('kind')!r}, expected a MetricExplanation: "
            "what serves the metrics there is not gpuscale, or an older one"
        )
    return answer
