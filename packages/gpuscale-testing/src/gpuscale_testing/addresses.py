"""An address of this machine that is not loopback: the API server passes requests on to no other.

What a test listens with there stands in for a pod of a simulated node, or for a server that a cluster
reaches from outside. Free ports, and waiting until one answers, are here too.
"""

import os
import secrets
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TypeVar

from gpuscale.base.errors import UnavailableError

_BLOCK = "198.18"
"""Set aside for tests by RFC 2544, so no network that a machine is in uses it."""
_ELSEWHERE = ("192.0.2.1", 9)
"""Nobody is there (RFC 5737), and nothing is sent: it only chooses among this machine's addresses."""
_LIFE_S = 3600
_TRIES = 5


@contextmanager
def local_address() -> Iterator[str]:
    """Have an address of this machine that is not loopback.

    With the right to do so it is one of its own, which nothing outside leads to: it is added to the loopback
    interface until the block ends, and goes by itself after an hour. Else it is the machine's own, whose
    ports others may use too.

    Raises:
        UnavailableError: there is none, and none may be added.
    """
    added = _add()
    if added is None:
        yield _own()
        return
    try:
        yield added
    finally:
        _ip("delete", f"{added}/32", "dev", "lo")


def _add() -> str | None:
    """Return an address that is new to the loopback interface; None where none may be added."""
    for _ in range(_TRIES if os.geteuid() == 0 and shutil.which("ip") else 0):
        third, fourth = secrets.randbelow(256), 1 + secrets.randbelow(254)
        address = f"{_BLOCK}.{third}.{fourth}"
        life = ("valid_lft", str(_LIFE_S), "preferred_lft", str(_LIFE_S))
        if _ip("add", f"{address}/32", "dev", "lo", *life):
            return address
    return None


def _ip(*words: str) -> bool:
    command = [shutil.which("ip") or "ip", "address", *words]
    return not subprocess.run(command, capture_output=True, check=False).returncode  # noqa: S603 - our words


def _own() -> str:
    with socket.socket(type=socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(_ELSEWHERE)
        except OSError as error:
            raise UnavailableError(
                "this machine has no address but loopback; give it a network, or run as root with the "
                "program ip, which can add one"
            ) from error
        return str(probe.getsockname()[0])


def free_ports(count: int, host: str = "127.0.0.1") -> tuple[int, ...]:
    """Return different unused ports; they are held together, then released.

    Args:
        count: how many.
        host: an address of this machine.
    """
    with ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind((host, 0))
        return tuple(each.getsockname()[1] for each in sockets)


def is_listening(port: int) -> bool:
    """Return whether something on loopback takes connections at this port."""
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1.0).close()
    except OSError:
        return False
    return True


T = TypeVar("T")


def wait_until(
    look: Callable[[], T | None],
    what: str,
    timeout_s: float = 30.0,
    every_s: float = 0.25,
) -> T:
    """Return what `look` finds once that is anything but None, False or empty.

    Raises:
        UnavailableError: it stayed that way for `timeout_s`; names `what` and the last finding.
    """
    deadline = time.monotonic() + timeout_s
    while True:
        found = look()
        if found:
            return found
        if time.monotonic() > deadline:
            raise UnavailableError(f"waited {timeout_s:g} s for {what}; last found {found!r}")
        time.sleep(every_s)
