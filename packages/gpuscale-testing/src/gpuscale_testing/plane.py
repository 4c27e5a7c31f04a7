"""A Kubernetes control plane on loopback, fresh for each use and gone afterwards."""

import asyncio
import json
import os
import shutil
import ssl
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from http.client import HTTPException, HTTPSConnection
from pathlib import Path
from typing import Any, Self

from gpuscale.base.errors import GpuscaleError, UnavailableError, UpstreamError
from gpuscale.kube.client import KubeClient, KubeSettings
from gpuscale_testing import flags
from gpuscale_testing.addresses import free_ports, is_listening
from gpuscale_testing.certificates import Authority, KeyPair, signing_key, write_kubeconfig
from gpuscale_testing.component import Component
from gpuscale_testing.flags import Files, Settings
from gpuscale_testing.programs.definitions import find_definitions
from gpuscale_testing.programs.toolset import find, missing

_START_TIMEOUT_S = 60.0
_LOOK_S = 0.1
_STARTS = 2
"""A port that was free can be taken by the time it is used; another start takes other ports."""
_PORT_TAKEN = "address already in use"
_SERVING_NAMES = ("127.0.0.1", "localhost", "kubernetes.default.svc", flags.SERVICE_ADDRESS)


class ControlPlane:
    """etcd, kube-apiserver, kube-controller-manager and kube-scheduler, for as long as the `with` lasts.

    ```
    with ControlPlane(Settings(hpa_sync_period_s=1)) as plane:
        plane.apply(manifest)
        plane.wait("deployment/demo", "jsonpath={.status.readyReplicas}=2")
    ```

    `async with` works too; its methods block, so a coroutine calls them through `asyncio.to_thread`.
    Nothing outlives it: the programs end with the `with`, and also if this process is interrupted or killed.

    Args:
        settings: periods, feature gates, further flags.
        folder: for certificates, logs and data, and kept afterwards; None is a temporary one, which is not.
    """

    def __init__(self, settings: Settings | None = None, folder: Path | None = None) -> None:
        self.settings = settings or Settings()
        self.folder = folder or Path()
        """Where everything of this control plane is, once it was started."""
        self.port = 0
        self._keeps_folder = folder is not None
        self._components: list[Component] = []
        self._ready: dict[str, Callable[[], bool]] = {}

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    async def __aenter__(self) -> Self:
        await asyncio.to_thread(self.start)
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.to_thread(self.stop)

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.port}"

    @property
    def ca(self) -> Path:
        """Return the certificate that all serving certificates are signed by."""
        return self._clients.certificate

    @property
    def front_proxy_ca(self) -> Path:
        """Return the certificate that the API server's own client certificate is signed by."""
        return self._proxies.certificate

    @property
    def front_proxy(self) -> KeyPair:
        """Return the certificate that the API server passes requests on with."""
        return self._front_proxy

    @property
    def admin(self) -> Path:
        """Return the kubeconfig of a user who may do everything."""
        return self.folder / "admin.kubeconfig"

    @property
    def pids(self) -> tuple[int, ...]:
        """Return the process ids of the supervisors; each has one program as its child."""
        return tuple(component.pid for component in self._components)

    def start(self) -> None:
        """Start everything and return once pods can be made.

        Raises:
            UnavailableError: a program is missing, or one did not come up; with the ends of the logs.
        """
        if reason := missing():
            raise UnavailableError(reason)
        for attempt in range(1, _STARTS + 1):
            try:
                self._start()
                return
            except BaseException as error:
                logs = self.logs()
                self.stop()
                if not isinstance(error, GpuscaleError):
                    raise
                if _PORT_TAKEN not in logs or attempt == _STARTS:
                    raise UnavailableError(f"{error}\n{logs}") from error

    def stop(self) -> None:
        """End the programs and remove a temporary folder."""
        for component in reversed(self._components):
            component.begin_stop()
        for component in self._components:
            component.end_stop()
        self._components.clear()
        if not self._keeps_folder and self.folder != Path():
            shutil.rmtree(self.folder, ignore_errors=True)

    def kill(self, program: str) -> None:
        """Take a program away at once, as a crash would; returns when it is gone.

        Args:
            program: `etcd`, `kube-apiserver`, `kube-controller-manager` or `kube-scheduler`.
        """
        self._component(program).kill()

    def restart(self, program: str) -> None:
        """Start a program again with the ports, certificates and data that it had.

        Returns once etcd listens or the API server is ready, and at once for the others; a program that runs
        is stopped first.

        Raises:
            UnavailableError: it does not come up; with the end of its log.
        """
        component = self._component(program)
        component.restart()
        if look := self._ready.get(program):
            component.wait_until(look, _START_TIMEOUT_S)

    def logs(self) -> str:
        return "\n".join(f"--- {c.name}\n{c.log_tail()}" for c in self._components)

    def check(self) -> None:
        """Return if all programs are running.

        Raises:
            UnavailableError: one has ended; with the end of its log.
        """
        for component in self._components:
            component.check()

    def kubectl(
        self,
        *arguments: str,
        stdin: str | None = None,
        kubeconfig: Path | None = None,
        timeout_s: float = 60.0,
    ) -> str:
        """Return what kubectl prints.

        Args:
            arguments: as on its command line.
            stdin: what to give it with `-f -`.
            kubeconfig: of the user to be; None is the admin.
            timeout_s: for the whole call.

        Raises:
            UnavailableError: there is no kubectl, or it did not end in time.
            UpstreamError: it failed; with what it said.
        """
        command = [_kubectl(), f"--kubeconfig={kubeconfig or self.admin}", *arguments]
        environment = {"PATH": os.environ.get("PATH", ""), "HOME": str(self.folder)}
        try:
            answer = subprocess.run(  # noqa: S603 - the test's own words
                command,
                input=stdin,
                env=environment,
                capture_output=True,
                text=True,
                check=False,
                timeout=timeout_s,
            )
        except subprocess.TimeoutExpired as error:
            asked = " ".join(arguments)
            raise UnavailableError(f"kubectl {asked} took longer than {timeout_s:g} s") from error
        if answer.returncode:
            raise UpstreamError(f"kubectl {' '.join(arguments)}: {answer.stderr.strip()}")
        return answer.stdout

    def apply(self, manifest: str) -> None:
        """Make the objects of a manifest, or change them to it."""
        self.kubectl("apply", "-f", "-", stdin=manifest)

    def get(self, *arguments: str) -> dict[str, Any]:
        """Return what `kubectl get` finds, as data: an object, or a list with `items`."""
        found: dict[str, Any] = json.loads(self.kubectl("get", "-o", "json", *arguments))
        return found

    def define(self, name: str) -> None:
        """Bring another project's definitions, such as `keda`, and return once they are served.

        Raises:
            UnavailableError: they were not fetched.
        """
        folder = str(find_definitions(name))
        self.kubectl("apply", "--server-side", "-f", folder)
        self.kubectl("wait", "--for=condition=Established", "--timeout=30s", "-f", folder)

    def wait(self, resource: str, condition: str, *more: str, timeout_s: float = 30.0) -> None:
        """Run `kubectl wait`, and return once its condition is met.

        Args:
            resource: such as `deployment/demo`.
            condition: after `--for=`, such as `condition=Available` or `jsonpath={.status.replicas}=2`.
            more: further arguments, such as `--namespace=ml`.
            timeout_s: until it is an error.

        Raises:
            UpstreamError: it did not come, or there is no such object.
        """
        flag = f"--timeout={timeout_s:g}s"
        words = ("wait", resource, f"--for={condition}", flag, *more)
        end = time.monotonic() + timeout_s
        while True:
            try:
                self.kubectl(*words, timeout_s=timeout_s + 30.0)
                return
            except UpstreamError as error:
                # kubectl takes an object that has no conditions yet for a malformed one.
                if "accessor error" not in str(error) or time.monotonic() >= end:
                    raise
                time.sleep(_LOOK_S)

    def client_certificate(self, user: str, groups: Sequence[str] = ()) -> KeyPair:
        """Return a certificate that the API server takes for this user in these groups."""
        return self._clients.client(user, groups)

    def serving_certificate(self, *hosts: str) -> KeyPair:
        """Return a certificate to serve with as any of these host names or addresses."""
        return self._clients.server(hosts[0], hosts)

    def kubeconfig(self, user: str, groups: Sequence[str] = ()) -> Path:
        pair = self.client_certificate(user, groups)
        return write_kubeconfig(
            pair.certificate.with_suffix(".kubeconfig"), self.url, self.ca, pair
        )

    def client(self) -> KubeClient:
        """Return a client of the admin, for what acts on the cluster from a coroutine; close it."""
        return KubeClient(KubeSettings(kubeconfig=self.admin))

    def ssl_context(self, user: KeyPair | None = None) -> ssl.SSLContext:
        """Return a context for HTTPS to the API server as this user; None is the admin."""
        pair = user or self._admin_pair
        context = ssl.create_default_context(cafile=str(self.ca))
        context.load_cert_chain(pair.certificate, pair.key)
        return context

    def _start(self) -> None:
        if not self._keeps_folder:
            self.folder = Path(tempfile.mkdtemp(prefix="gpuscale-cluster-"))
        self.folder.mkdir(parents=True, exist_ok=True)
        etcd_port, peer_port, self.port = free_ports(3)
        files = self._make_files()
        self._ready = {
            "etcd": lambda: is_listening(etcd_port),
            "kube-apiserver": lambda: self._is_found("/readyz"),
        }
        self._run("etcd", flags.etcd_flags(self.folder, etcd_port, peer_port))
        serving = flags.apiserver_flags(files, etcd_port, self.port, self.settings)
        self._run("kube-apiserver", serving)
        managing = flags.controller_manager_flags(files, self.settings)
        manager = self._run("kube-controller-manager", managing)
        self._run("kube-scheduler", flags.scheduler_flags(files, self.settings))
        account = "/api/v1/namespaces/default/serviceaccounts/default"
        manager.wait_until(lambda: self._is_found(account), _START_TIMEOUT_S)

    def _make_files(self) -> Files:
        folder = self.folder / "certificates"
        folder.mkdir(exist_ok=True)
        self._clients = Authority(folder, "client-ca")
        proxies = folder / "front-proxy"  # apart, so that a user may be called like the proxy
        proxies.mkdir(exist_ok=True)
        self._proxies = Authority(proxies, "front-proxy-ca")
        self._admin_pair = self._clients.client("admin", ["system:masters"])
        self._front_proxy = self._proxies.client("front-proxy-client")
        write_kubeconfig(self.admin, self.url, self.ca, self._admin_pair)
        return Files(
            folder=folder,
            client_ca=self._clients.certificate,
            front_proxy_ca=self._proxies.certificate,
            front_proxy=self._front_proxy,
            serving=self._clients.server("kube-apiserver", _SERVING_NAMES),
            tokens=signing_key(folder),
            controller_manager=self.kubeconfig("system:kube-controller-manager"),
            scheduler=self.kubeconfig("system:kube-scheduler"),
        )

    def _run(self, name: str, arguments: Sequence[str]) -> Component:
        """Start a program and return once it is ready, as far as that can be asked."""
        command = [str(find(name)), *arguments]
        component = Component(name, command, self.folder, self.settings.stop_grace_s)
        self._components.append(component)
        if look := self._ready.get(name):
            component.wait_until(look, _START_TIMEOUT_S)
        return component

    def _component(self, name: str) -> Component:
        return next(each for each in self._components if each.name == name)

    def _is_found(self, path: str) -> bool:
        """Return whether the API server answers a path with 200."""
        context = self.ssl_context()
        connection = HTTPSConnection("127.0.0.1", self.port, timeout=5.0, context=context)
        with closing(connection), suppress(OSError, HTTPException):
            connection.request("GET", path)
            return connection.getresponse().status == 200
        return False


def _kubectl() -> str:
    program = shutil.which("kubectl")
    if program is None:
        raise UnavailableError(
            "needs the program kubectl; install Debian's package kubernetes-client"
        )
    return program
