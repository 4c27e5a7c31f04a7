"""Who may talk to the live loop: only clients that name this machine as the server.

A page of another site can make a browser send requests to loopback under a name of its own that resolves
there (DNS rebinding). Such requests carry that name as their host, and are refused.
"""

from collections.abc import Awaitable, Callable
from ipaddress import ip_address

from aiohttp import web
from aiohttp.typedefs import Middleware

from gpuscale.local.addresses import is_every_interface

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def only_host(host: str) -> Middleware:
    """Return a middleware that answers 421 to requests for another host than `host` or loopback.

    Where `host` is an address of all interfaces, any address passes, and no other name than localhost.
    """

    @web.middleware
    async def guard(request: web.Request, handler: Handler) -> web.StreamResponse:
        if not is_named(request.url.host or "", host):
            raise web.HTTPMisdirectedRequest(text=f"this server is {host}, not {request.host}\n")
        return await handler(request)

    return guard


def is_named(asked: str, host: str) -> bool:
    """Return whether a request for `asked` is meant for a server that listens on `host`."""
    if asked in {host, "localhost"}:
        return True
    try:
        address = ip_address(asked)
    except ValueError:
        return False
    return address.is_loopback or is_every_interface(host)
