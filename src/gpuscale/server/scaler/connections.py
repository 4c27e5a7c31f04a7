"""A limit on open connections per client address; gRPC itself only limits their total.

The kernel says who is connected (Linux; elsewhere nothing is bounded here). What is too much is shut down
from our side, the newest first, of the address that has the most; gRPC then sees that the client is gone.
"""

import asyncio
import ipaddress
import os
import socket
import struct
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_LOOK_S = 1.0
_ESTABLISHED = "01"
_TABLES = (Path("/proc/self/net/tcp"), Path("/proc/self/net/tcp6"))
_OWN = Path("/proc/self/fd")


@dataclass(frozen=True, slots=True)
class Peer:
    """A TCP connection of a client."""

    inode: int
    """Of the socket; later ones are larger, but for those that another core made at the time."""
    address: str
    """IPv6 as its /64 network, as one host has that many addresses."""


class ConnectionBounds:
    """Shuts down connections beyond the limits.

    Args:
        port: that is listened on.
        most: connections in all.
        most_of_address: of them, from one address.
    """

    def __init__(self, port: int, most: int, most_of_address: int) -> None:
        self.counts: Counter[str] = Counter()
        """Connections that were shut down, by reason; under `open`, those there are."""
        self._port = port
        self._most = most
        self._most_of_address = most_of_address

    async def run(self) -> None:
        """Check every second until cancelled."""
        while True:
            self.look()
            await asyncio.sleep(_LOOK_S)

    def look(self) -> None:
        """Count the connections, and shut down those beyond the limits."""
        peers = _peers(self._port)
        doomed = too_many(peers, self._most, self._most_of_address)
        for reason in doomed.values():
            self.counts[reason] += 1
        if doomed:
            _shut_down(set(doomed))
        self.counts["open"] = len(peers) - len(doomed)


def too_many(peers: list[Peer], most: int, most_of_address: int) -> dict[int, str]:
    """Return the connections to shut down, by inode, each with its reason."""
    doomed: dict[int, str] = {}
    by_address: dict[str, list[Peer]] = {}
    for peer in sorted(peers, key=lambda peer: peer.inode):
        by_address.setdefault(peer.address, []).append(peer)
    for address, found in by_address.items():
        doomed.update({peer.inode: "address" for peer in found[most_of_address:]})
        by_address[address] = found[:most_of_address]
    left = sum(map(len, by_address.values()))
    while left > most:
        greedy = max(by_address.values(), key=len)
        doomed[greedy.pop().inode] = "total"
        left -= 1
    return doomed


def network_of(address: str) -> str:
    """Return the client network of an address: an IPv4 address, or an IPv6 /64 network."""
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(found, ipaddress.IPv4Address):
        return str(found)
    if found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)
    return str(ipaddress.ip_network((found, 64), strict=False))


def _peers(port: int) -> list[Peer]:
    found = []
    for table in _TABLES:
        try:
            lines = table.read_text(encoding="ascii").splitlines()[1:]
        except OSError:
            continue
        ending = f":{port:04X}"
        for line in lines:
            fields = line.split()
            # A connection without inode belongs to no process: not accepted yet, or closed.
            if fields[1].endswith(ending) and fields[3] == _ESTABLISHED and fields[9] != "0":
                found.append(Peer(int(fields[9]), _address(fields[2])))
    return found


def _address(text: str) -> str:
    """Parse an address of /proc/net/tcp such as `0100007F:1F90`: 32-bit words in the machine's byte order."""
    digits = text.partition(":")[0]
    words = [int(digits[i : i + 8], 16) for i in range(0, len(digits), 8)]
    return network_of(str(ipaddress.ip_address(struct.pack(f"={len(words)}I", *words))))


def _shut_down(inodes: set[int]) -> None:
    names = {f"socket:[{inode}]" for inode in inodes}
    for each in _OWN.iterdir():
        # A descriptor may be closed and reused at any time; a duplicate stays valid.
        with suppress(OSError):
            copy = os.dup(int(each.name))
            try:
                if str((_OWN / str(copy)).readlink()) in names:
                    with socket.socket(fileno=os.dup(copy)) as connection:
                        connection.shutdown(socket.SHUT_RDWR)
            finally:
                os.close(copy)
