"""Addresses of the live loop's servers: URL forms, reachable hosts, port conflicts, allowed Host headers.

Only clients that name this machine as the server may. A page of another site can make a browser send requests
to loopback under a name of its own that resolves there (DNS rebinding). Such requests carry that name as
their host, and are refused.
"""

import socket
from collections.abc import Awaitable, Callable, Iterator
from ipaddress import IPv6Address, ip_address
from pathlib import Path

from aiohttp import web
from aiohttp.typedefs import Middleware

_PROC = Path("/proc")
_LISTENING = "0A"
"""TCP_LISTEN of the kernel's include/net/tcp_states.h, as /proc/net/tcp writes it."""
_ELSEWHERE = {socket.AF_INET: "192.0.2.1", socket.AF_INET6: "2001:db8::1"}
"""Addresses of documentation (RFC 5737, RFC 3849): a route there shows our own address, nothing is sent."""


def url_host(host: str) -> str:
    """Return a host as URLs write it: an IPv6 address in brackets."""
    return f"[{host}]" if ":" in host else host


def is_every_interface(host: str) -> bool:
    """Return whether `host` stands for all network interfaces."""
    try:
        return ip_address(host).is_unspecified
    except ValueError:
        return False


def own_host(host: str) -> str:
    """Return the host name that local programs use for a server listening on `host`."""
    if not is_every_interface(host):
        return host
    return "::1" if isinstance(ip_address(host), IPv6Address) else "127.0.0.1"


def openable_hosts(host: str) -> tuple[str, ...]:
    """Return the host names in URLs of a server listening on `host`, the local one first.

    On all interfaces, those are loopback and the addresses from which the machine would reach others.
    """
    if not is_every_interface(host):
        return (host,)
    wants_v6 = isinstance(
        ip_address(host), IPv6Address
    )  # such a server accepts IPv4 only if asked to
    families = (socket.AF_INET6,) if wants_v6 else (socket.AF_INET,)
    found = [own_host(host), *(address for family in families for address in _outer(family))]
    return tuple(dict.fromkeys(found))


def _outer(family: socket.AddressFamily) -> Iterator[str]:
    """Yield the source address for packets to another network; none without a route."""
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((_ELSEWHERE[family], 9))
            yield str(probe.getsockname()[0])
    except OSError:
        return


def port_holder(port: int) -> str | None:
    """Return the program listening on a TCP port, as `name (pid 123)`; None if that can't be seen."""
    inodes = {f"socket:[{inode}]" for inode in _listening_inodes(port)}
    for link in _PROC.glob("[0-9]*/fd/*") if inodes else ():
        try:
            if str(link.readlink()) not in inodes:
                continue
            name = (link.parent.parent / "comm").read_text(encoding="utf-8", errors="replace")
        except OSError:
            continue  # the process has ended, or belongs to another user
        return f"{name.strip()} (pid {link.parent.parent.name})"
    return None


def _listening_inodes(port: int) -> Iterator[str]:
    for table in ("tcp", "tcp6"):
        try:
            lines = (_PROC / "net" / table).read_text(encoding="ascii").splitlines()[1:]
        except OSError:
            continue  # not on Linux
        for cells in map(str.split, lines):
            if cells[3] == _LISTENING and int(cells[1].rpartition(":")[2], 16) == port:
                yield cells[9]


Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def only_host(host: str) -> Middleware:
    """Return a middleware that answers 421 unless the Host header is `host` or loopback.

    Where `host` is an address of all interfaces, any address passes, and no other name than localhost.
    """

    @web.middleware
    async def guard(request: web.Request, handler: Handler) -> web.StreamResponse:
        if not is_named(request.url.host or "", host):
            text = f"this server is {host}, not {request.host}\n"
            return web.Response(status=web.HTTPMisdirectedRequest.status_code, text=text)
        return await handler(request)

    return guard


def is_named(asked: str, host: str) -> bool:
    """Return whether the Host header `asked` fits a server listening on `host`."""
    if asked in {host, "localhost"}:
        return True
    try:
        address = ip_address(asked)
    except ValueError:
        return False
    return address.is_loopback or is_every_interface(host)
