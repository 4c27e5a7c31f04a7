"""Free ports on this machine."""

import socket
from contextlib import ExitStack


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
