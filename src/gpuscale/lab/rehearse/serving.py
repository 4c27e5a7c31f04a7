"""The servers of a rehearsal on this machine: a metrics API for the API server, and its series."""

import asyncio
import socket
from dataclasses import replace
from pathlib import Path

from aiohttp import web

from gpuscale.base.clock import Clock
from gpuscale.base.documents.documents import dump_documents
from gpuscale.base.errors import UnavailableError, UsageError
from gpuscale.base.golang.durations import format_duration
from gpuscale.kube import (
    AggregatedServer,
    aggregation_objects,
    api_service_name,
    mapping_of,
    text_of,
)
from gpuscale.kube.client import JsonObject, KubeClient, merged_kubeconfig
from gpuscale.lab.rehearse.manifests import PATHS, path_of
from gpuscale.lab.rehearse.mark import RehearsalMark
from gpuscale.lab.rehearse.target import RehearsalTarget
from gpuscale.lab.sim.scenario.setup import Setup
from gpuscale.series.promapi import TimeAxis, add_routes
from gpuscale.series.storage import SeriesStore
from gpuscale.server.metricsapi import MetricsApiServer, MetricsApiSettings, read_settings
from gpuscale.server.sources import MetricSource

SERVICE = "gpuscale-metrics"
_LOOPBACK = "127.0.0.1"
_CUSTOM = ("custom.metrics.k8s.io/v1beta1", "custom.metrics.k8s.io/v1beta2")
_EXTERNAL = ("external.metrics.k8s.io/v1beta1",)
_AVAILABLE_S = 60.0
_LOOK_S = 0.2


def group_versions(setup: Setup) -> tuple[str, ...]:
    """Return the metrics APIs to register: those that rules exist for."""
    custom = _CUSTOM if setup.rules.rules else ()
    return (*custom, *(_EXTERNAL if setup.rules.external_rules else ()))


def free_port(target: RehearsalTarget) -> int:
    """Return a free port of this machine that the API server can reach.

    Raises:
        UsageError: the advertised address is none of this machine.
    """
    host = target.advertise_address or _LOOPBACK
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as held:
        try:
            held.bind((host, 0))
        except OSError as error:
            raise UsageError(
                f"--advertise-address: found {host}, where this machine can't listen ({error.strerror}), "
                "expected an address of one of its networks, as `ip address` shows them"
            ) from error
        port: int = held.getsockname()[1]
        return port


class RehearsedMetricsApi:
    """One rehearsal's metrics API.

    Args:
        setup: whose rules are served.
        target: the cluster.
        mark: of the objects that register it.
        folder: for the rule file and the certificates.
        port: to listen on.
    """

    def __init__(
        self, setup: Setup, target: RehearsalTarget, mark: RehearsalMark, folder: Path, port: int
    ) -> None:
        self._setup = setup
        self._target = target
        self._mark = mark
        self._port = port
        self._bundle = folder / "ca.crt"
        self.audit_log = folder / "audit.log"
        self._wanted = asyncio.Event()
        self._listening = asyncio.Event()
        rules = folder / "rules.yaml"
        rules.write_text(setup.rules_text, encoding="utf-8")
        self._settings = self._read_settings(rules, folder)

    async def run(self, source: MetricSource, clock: Clock) -> None:
        """Serve metric values, once `register` is called, until cancelled.

        Args:
            source: of the values.
            clock: of the scenario.

        It discovers metrics as it starts and then only now and then, so there have to be some by then.

        Raises:
            UnavailableError: the port is taken, or the API server is not there.
        """
        await self._wanted.wait()
        server = MetricsApiServer(self._settings, drain_s=0.0, source=source, value_clock=clock)
        await server.run(asyncio.Event(), lambda _: self._listening.set())

    async def register(self, client: KubeClient) -> None:
        """Register the metrics API at the API server, and wait until it is available.

        Raises:
            UnavailableError: it does not.
            ApiStatusError: an object is refused.
        """
        self._wanted.set()
        await self._listening.wait()
        server = AggregatedServer(
            SERVICE,
            self._mark.namespace,
            self._port,
            self._target.advertise_address,
            self._bundle.read_bytes(),
            self._mark.labels,
        )
        versions = group_versions(self._setup)
        for manifest in aggregation_objects(versions, server):
            await client.create(path_of(manifest), manifest)
        for version in versions:
            await self._wait_until_available(client, api_service_name(version))

    async def _wait_until_available(self, client: KubeClient, name: str) -> None:
        said = "nothing yet"
        for _ in range(round(_AVAILABLE_S / _LOOK_S)):
            found = await client.get(f"{PATHS['APIService']}/{name}")
            is_available, said = _availability(found, said)
            if is_available:
                return
            await asyncio.sleep(_LOOK_S)
        address = self._target.advertise_address
        advice = (
            "an API server in a container or on another machine needs --advertise-address"
            if address is None
            else f"see that nothing keeps it from {address}, such as a firewall of this machine"
        )
        raise UnavailableError(
            f"the API server does not reach the metrics API on this machine: {said}; {advice}"
        )

    def _read_settings(self, rules: Path, folder: Path) -> MetricsApiSettings:
        texts = {
            "config": str(rules),
            **self._lister(folder),
            "bind-address": self._target.advertise_address or _LOOPBACK,
            "secure-port": str(self._port),
            "cert-dir": str(folder / "certificates"),
            "ca-bundle-file": str(self._bundle),
            "service-name": SERVICE,
            "audit-log-path": str(self.audit_log),
            "service-namespace": self._mark.namespace,
            "metrics-relist-interval": format_duration(self._setup.pipeline.relist_interval),
        }
        settings = read_settings({name: [text] for name, text in texts.items()})
        return replace(settings, context=self._target.cluster.context)

    def _lister(self, folder: Path) -> dict[str, str]:
        """Return the server's kubeconfig flag; several kubeconfigs are merged into one file."""
        cluster = self._target.cluster
        if cluster.kubeconfig is None:
            return {}
        path = cluster.kubeconfig
        if cluster.more_kubeconfigs:
            path = folder / "kubeconfig"
            files = (cluster.kubeconfig, *cluster.more_kubeconfigs)
            path.touch(mode=0o600)
            path.write_text(dump_documents([merged_kubeconfig(files)]), encoding="utf-8")
        return {"lister-kubeconfig": str(path)}


def _availability(body: JsonObject, before: str) -> tuple[bool, str]:
    """Return whether an APIService is available, with the condition's message."""
    conditions = mapping_of(body.get("status")).get("conditions")
    for each in conditions if isinstance(conditions, list) else ():
        condition = mapping_of(each)
        if condition.get("type") == "Available":
            said = f"{text_of(condition.get('reason'))}: {text_of(condition.get('message'))}"
            return condition.get("status") == "True", said
    return False, before


class ServedSeries:
    """A Prometheus API over the rehearsal's series, for KEDA's triggers.

    Args:
        store: whose series are served.
        clock: of the scenario.
        axis: from the callers' time to the scenario's.
        address: of this machine, where KEDA finds it; None is loopback.
    """

    def __init__(
        self, store: SeriesStore, clock: Clock, axis: TimeAxis, address: str | None
    ) -> None:
        self._address = address or _LOOPBACK
        self._app = web.Application()
        add_routes(self._app, store, clock, axis)
        self._runner = web.AppRunner(self._app, access_log=None, shutdown_timeout=0.5)

    async def start(self) -> str:
        """Serve on a free port, and return the URL.

        Raises:
            UnavailableError: nothing can listen there.
        """
        await self._runner.setup()
        try:
            await web.TCPSite(self._runner, self._address, 0).start()
        except OSError as error:
            raise UnavailableError(f"can't listen on {self._address}: {error.strerror}") from error
        port = self._runner.addresses[0][1]
        host = f"[{self._address}]" if ":" in self._address else self._address
        return f"http://{host}:{port}"

    async def stop(self) -> None:
        await self._runner.cleanup()
