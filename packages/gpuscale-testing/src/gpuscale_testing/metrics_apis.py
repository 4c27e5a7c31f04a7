"""Servers of the metrics APIs as processes on loopback: gpuscale's, and the prometheus-adapter it replaces.

Both get the same settings: which control plane, which Prometheus, which rules. Neither is registered with the
control plane; see `aggregated_api` for that.
"""

import ssl
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from http.client import HTTPException, HTTPSConnection
from pathlib import Path

from gpuscale.base.errors import UnavailableError
from gpuscale_testing.addresses import free_ports, wait_until
from gpuscale_testing.certificates import KeyPair
from gpuscale_testing.component import Component
from gpuscale_testing.plane import ControlPlane
from gpuscale_testing.programs.toolset import find

_READY_S = 60.0
_GRACE_S = 10.0
_LIST_QPS = 100_000
"""prometheus-adapter lists objects for each `*` request, and by default no more than five times a second."""


@dataclass(frozen=True, slots=True)
class MetricsApi:
    """One running server.

    Args:
        name: for messages.
        port: of HTTPS on 127.0.0.1.
        component: the process.
    """

    name: str
    port: int
    component: Component

    @property
    def pid(self) -> int:
        """Return the process id of the server itself, whose parent is a supervisor."""
        supervisor = self.component.pid
        children = Path(f"/proc/{supervisor}/task/{supervisor}/children").read_text().split()
        return int(children[0])

    def connect(self, user: KeyPair | None = None, timeout_s: float = 30.0) -> HTTPSConnection:
        """Return a connection as this user; None shows no certificate. The server's is not looked at."""
        context = ssl.create_default_context()
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        if user is not None:
            context.load_cert_chain(user.certificate, user.key)
        return HTTPSConnection("127.0.0.1", self.port, timeout=timeout_s, context=context)


@contextmanager
def gpuscale_metrics_api(
    plane: ControlPlane,
    prometheus_url: str,
    rules: Path,
    folder: Path,
    *,
    more: Sequence[str] = (),
    prefix: Sequence[str] = (),
) -> Iterator[MetricsApi]:
    """Run `gpuscale metrics-api` until the block ends; see `prometheus_adapter` for the arguments."""
    command = [*prefix, sys.executable, "-m", "gpuscale.cli.main", "metrics-api"]
    own = [f"--authentication-kubeconfig={plane.admin}", "--shutdown-delay-duration=0s"]
    flags = [*own, *more]
    with _running("gpuscale", command, plane, prometheus_url, rules, folder, flags) as api:
        yield api


@contextmanager
def prometheus_adapter(
    plane: ControlPlane,
    prometheus_url: str,
    rules: Path,
    folder: Path,
    *,
    more: Sequence[str] = (),
    prefix: Sequence[str] = (),
) -> Iterator[MetricsApi]:
    """Run the pinned prometheus-adapter until the block ends.

    Args:
        plane: lists its objects, and asks it about users.
        prometheus_url: where its values come from.
        rules: its configuration file.
        folder: for certificates and the log; a folder of its own below is made.
        more: further flags; the last one of a name counts.
        prefix: a program that runs it, with arguments, such as `taskset`.

    Raises:
        UnavailableError: it is not built, it ended, or it did not get ready within a minute.
    """
    flags = [
        f"--authentication-kubeconfig={plane.admin}",
        f"--authorization-kubeconfig={plane.admin}",
        f"--client-qps={_LIST_QPS}",
        f"--client-burst={_LIST_QPS}",
        *more,
    ]
    command = [*prefix, str(find("prometheus-adapter"))]
    name = "prometheus-adapter"
    with _running(name, command, plane, prometheus_url, rules, folder, flags) as api:
        yield api


@contextmanager
def _running(
    name: str,
    command: Sequence[str],
    plane: ControlPlane,
    prometheus_url: str,
    rules: Path,
    folder: Path,
    flags: Sequence[str],
) -> Iterator[MetricsApi]:
    own = folder / name
    own.mkdir(parents=True)
    (port,) = free_ports(1)
    shared = [
        f"--config={rules}",
        f"--lister-kubeconfig={plane.admin}",
        f"--prometheus-url={prometheus_url}",
        f"--secure-port={port}",
        "--bind-address=127.0.0.1",
        f"--cert-dir={own / 'certificates'}",
    ]
    component = Component(name, [*command, *shared, *flags], own, _GRACE_S)
    api = MetricsApi(name, port, component)
    try:
        wait_until(lambda: is_ready(api), f"{name} to be ready", _READY_S, every_s=0.1)
        yield api
    finally:
        component.end_stop()


def is_ready(api: MetricsApi) -> bool:
    """Return whether a server answers that it is ready.

    Raises:
        UnavailableError: it has ended; with the end of its log.
    """
    if api.component.exit_code is not None:
        raise UnavailableError(f"{api.name} has ended:\n{api.component.log_tail()}")
    with closing(api.connect(timeout_s=5.0)) as connection, suppress(OSError, HTTPException):
        connection.request("GET", "/readyz")
        return connection.getresponse().status == 200
    return False
