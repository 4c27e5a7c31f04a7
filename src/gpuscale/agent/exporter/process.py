"""A node agent built from its settings, with its background tasks: attribution, reload, certificates."""

import asyncio
import logging
import os
import socket
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from gpuscale.agent.exporter.agent import NodeAgent
from gpuscale.agent.exporter.collector import AttributionOf, Extras
from gpuscale.agent.exporter.config_map import ConfigMapName, read_config_map
from gpuscale.agent.exporter.counters_file import Counters, CountersFile, read_text
from gpuscale.agent.exporter.families.azure import AzureMetrics
from gpuscale.agent.exporter.families.own_metrics import ReadyTaintStatus
from gpuscale.agent.exporter.http.loop_errors import LoopErrors
from gpuscale.agent.exporter.job_files import JobFiles
from gpuscale.agent.exporter.readers import (
    WHAT_ELSE,
    ReplaceableReader,
    fields_to_read,
    make_reader,
)
from gpuscale.agent.exporter.routes import ServeOptions
from gpuscale.agent.exporter.settings import ExporterSettings
from gpuscale.agent.gpu.owners import Attribution, NodeGpuResources
from gpuscale.agent.gpu.reader import GpuReader
from gpuscale.agent.gpu.readings import GpuReading
from gpuscale.base.clock import Clock, FollowingClock, WallClock
from gpuscale.base.errors import GpuscaleError, UnavailableError, UsageError
from gpuscale.signals import list_of_image

if TYPE_CHECKING:
    from gpuscale.agent.exporter import simulated_pods, taint_remover
    from gpuscale.agent.exporter.http.passwords import PasswordCheck
    from gpuscale.agent.exporter.http.tls import ServerTls
    from gpuscale.agent.exporter.http.users_folder import UsersFolder
    from gpuscale.agent.recordings import recording

POLL_S = 2.0
"""How often files are looked at; dcgm-exporter reloads no more often either."""
_CLOSE_WAIT_S = 2.0
_CONFIG_MAP_S = 30.0
_FIRST_SYSTEMD_FD = 3
_MAX_WEB_CONFIG_BYTES = 1024 * 1024

_log = logging.getLogger(__name__)


class _Owners(Protocol):
    """The attribution of GPUs to pods, updated in the background."""

    def __call__(self, readings: Sequence[GpuReading], /) -> Attribution: ...
    async def run(self) -> None: ...
    async def asked(self) -> None: ...
    async def close(self) -> None: ...
    def gpu_resources(self) -> NodeGpuResources: ...


class ExporterService:
    """Everything that one `gpuscale exporter` process runs.

    Args:
        settings: from the command line.
        clock: times the collects, and gives readings their times.
        counters_text: of the ConfigMap that the settings name, see `counters_text`.

    Raises:
        GpuscaleError: a file is wrong, or the GPUs' library is not there.
    """

    def __init__(
        self,
        settings: ExporterSettings,
        clock: Clock | None = None,
        counters_text: str | None = None,
    ) -> None:
        self._settings = settings
        self._clock = clock or FollowingClock()
        self._counters = _counters_file(settings, self._clock, counters_text)
        self._tls, self._auth, self._users = _web_security(settings)
        self._fields = fields_to_read(self._counters.counters, settings)
        self._simulated_pods: simulated_pods.SimulatedPods | None = None
        if settings.attribution is not None and settings.gpu.kind == "simulated":
            from gpuscale.agent.exporter.simulated_pods import SimulatedPods

            self._simulated_pods = SimulatedPods()
        self._source = ReplaceableReader(self._make_reader(self._fields))
        self._reader: GpuReader = self._source
        self._recorder: recording.ReadingRecorder | None = None
        if settings.record is not None:
            from gpuscale.agent.recordings.recording import ReadingRecorder, RecordingReader

            self._recorder = ReadingRecorder.open(str(settings.record))
            self._reader = RecordingReader(self._source, self._recorder)
        self._owners: _Owners | None = None
        if settings.attribution is not None:
            from gpuscale.agent.attribution.service import NodeAttribution

            # Attribution only measures durations, so it uses a clock that ignores changes of the
            # machine's time.
            self._owners = NodeAttribution(settings.attribution, clock or WallClock())
        self._taint_remover: taint_remover.TaintRemover | None = None
        if settings.ready_taint is not None:
            from gpuscale.agent.attribution.settings import KubeletSettings
            from gpuscale.agent.exporter.taint_remover import TaintRemover
            from gpuscale.kube.client import KubeSettings

            kubelet = settings.attribution.kubelet if settings.attribution else KubeletSettings()
            self._taint_remover = TaintRemover(
                settings.ready_taint,
                KubeSettings(kubeconfig=settings.kubeconfig),
                kubelet,
                lambda: self.agent.snapshot.status.gpu_fault,
                clock or WallClock(),
            )
        self.agent = self._make_agent()

    async def run(self, stop: asyncio.Event, announce: Callable[[int], None]) -> None:
        """Serve until `stop` is set.

        Args:
            stop: ends it.
            announce: called with the port once it listens.

        Raises:
            UnavailableError: the address can't be listened on; or GPUs can't be read that were chosen by
                number, or that were not asked for by kind.
        """
        asyncio.get_running_loop().set_exception_handler(LoopErrors())
        for note in self._settings.notes:
            _log.warning("%s", note)
        tasks: list[asyncio.Task[object]] = []
        beside: list[asyncio.Task[object]] = []
        try:
            port = await self.agent.start(*self._settings.address, _sockets(self._settings))
            if self._owners is not None:
                attribution = self._owners.run()
                tasks.append(asyncio.create_task(attribution, name="exporter-attribution"))
            announce(port)
            if self._taint_remover is not None:  # it ends when the taint is off
                removing = self._taint_remover.run()
                beside.append(asyncio.create_task(removing, name="exporter-ready-taint"))
            # Fails if the requested GPUs don't exist; waits for those that may still appear.
            is_guess = not self._settings.gpu.is_named
            if is_guess or not self._settings.devices.is_flexible:
                error = (await self.agent.first_collect()).status.error
                if error is not None:
                    raise UnavailableError(f"{error}; {WHAT_ELSE}" if is_guess else error)
            tasks.append(asyncio.create_task(self._follow_files(), name="exporter-files"))
            if self._settings.counters_map is not None:
                follow = self._follow_config_map(self._settings.counters_map)
                tasks.append(asyncio.create_task(follow, name="exporter-config-map"))
            tasks.append(asyncio.create_task(stop.wait()))
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()  # a task that ends before `stop` takes the service down with its error
        finally:
            for task in (*tasks, *beside):
                task.cancel()
            await asyncio.gather(*tasks, *beside, return_exceptions=True)
            await self._close()

    def reload(self) -> None:
        """Reload the counters file, as on SIGHUP, and check the certificates."""
        self._counters.reload(self._apply)
        if self._tls is not None:
            self._tls.follow_files()

    def _apply(self, counters: Counters) -> None:
        """Serve other counters; the reader is replaced only if other fields must be read."""
        fields = fields_to_read(counters, self._settings)
        if fields <= self._fields:
            self.agent.configure(counters)
            return
        fields |= self._fields
        self._source.replace(self._make_reader(fields))
        self.agent.configure(counters)
        self._fields = fields

    def _make_reader(self, fields: frozenset[str]) -> GpuReader:
        pods = self._simulated_pods
        work = None if pods is None else pods.work
        return make_reader(self._settings, fields, self._settings.options.node, work, self._clock)

    def _make_agent(self) -> NodeAgent:
        settings, owners, remover = self._settings, self._owners, self._taint_remover
        stream_ms = settings.stream_interval_ms
        serve = ServeOptions(
            extras=_extras(settings),
            stream_interval_s=None if stream_ms is None else stream_ms / 1000,
            auth=self._auth,
            has_open_probes=settings.has_open_probes,
            tls=self._tls,
            resources=None if owners is None else owners.gpu_resources,
            config=lambda: self._counters.status,
            ready_taint=lambda: ReadyTaintStatus() if remover is None else remover.status,
            before_first=None if owners is None else owners.asked,
        )
        attribution: AttributionOf = (lambda _: None) if owners is None else owners
        if self._simulated_pods is not None:
            attribution = self._simulated_pods.owners(attribution)
        return NodeAgent(
            self._reader,
            attribution,
            self._counters.counters,
            settings.options,
            self._clock,
            settings.interval_ms / 1000,
            settings.styles,
            serve,
        )

    async def _follow_files(self) -> None:
        while True:
            await asyncio.sleep(POLL_S)
            if self._counters.has_changed():
                self._counters.reload(self._apply)
            if self._tls is not None:
                self._tls.follow_files()
            if self._users is not None:
                self._users.follow()

    async def _follow_config_map(self, name: ConfigMapName) -> None:
        while True:
            await asyncio.sleep(_CONFIG_MAP_S)
            try:
                text = await _config_map(self._settings, name)
            except GpuscaleError as error:
                self._counters.note_failure(error)
            else:
                self._counters.give(text, self._apply)

    async def _close(self) -> None:
        await self.agent.stop()
        if self._owners is not None:
            await self._owners.close()
        closer = ThreadPoolExecutor(1, "gpu-close")
        try:
            async with asyncio.timeout(_CLOSE_WAIT_S):
                await asyncio.get_running_loop().run_in_executor(closer, self._reader.close)
        except TimeoutError:
            _log.warning("the driver did not release its GPUs in time")
        closer.shutdown(wait=False)
        if self._recorder is not None:
            try:
                self._recorder.close()
            except OSError as error:
                _log.error("the recording could not be finished: %s", error.strerror or error)


def _extras(settings: ExporterSettings) -> Extras:
    vendor = None
    if settings.gpu.kind == "amd":
        from gpuscale.agent.formats.amd import amd_families

        vendor = amd_families
    jobs = None if settings.jobs_folder is None else JobFiles(settings.jobs_folder).read
    if settings.attribution is None:
        return Extras(vendor=vendor, jobs=jobs)
    from gpuscale.agent.attribution.processes.shares import split_utilisation

    cluster = replace(settings.cluster, vendor=settings.gpu.vendor)
    return Extras(split_utilisation, vendor, AzureMetrics(cluster), jobs)


def _counters_file(settings: ExporterSettings, clock: Clock, text: str | None) -> CountersFile:
    path = settings.counters_file
    source: Path | tuple[str, str] = path
    if settings.counters_map is not None:
        source = (text or "", str(settings.counters_map))
    elif settings.counters_text is not None:
        source = settings.counters_text
    elif not path.exists() and (built_in := list_of_image(path)) is not None:
        _log.info("there is no file %s: serving the built-in list of that name", path)
        source = (built_in, path.name)
    return CountersFile(source, settings.counters_mode, clock)


async def counters_text(settings: ExporterSettings) -> str | None:
    """Return the counters of the ConfigMap in the settings; None without one.

    Raises:
        NotFoundError: it can't be read, or holds no counters.
        UsageError: there is no usable kubeconfig or service account.
        ConfigError: the kubeconfig is no YAML.
    """
    name = settings.counters_map
    return None if name is None else await _config_map(settings, name)


async def _config_map(settings: ExporterSettings, name: ConfigMapName) -> str:
    from gpuscale.kube.client import KubeSettings

    return await read_config_map(name, KubeSettings(kubeconfig=settings.kubeconfig))


def _web_security(
    settings: ExporterSettings,
) -> tuple["ServerTls | None", "PasswordCheck | None", "UsersFolder | None"]:
    path, folder = settings.web_config_file, settings.web_users_folder
    if path is None and folder is None:
        return None, None, None
    from gpuscale.agent.exporter.http.passwords import PasswordCheck, bcrypt_check
    from gpuscale.agent.exporter.http.tls import ServerTls
    from gpuscale.agent.exporter.http.users_folder import UsersFolder
    from gpuscale.agent.exporter.http.web_config import WebConfig, load_web_config

    config = WebConfig()
    if path is not None:
        config = load_web_config(read_text(path, _MAX_WEB_CONFIG_BYTES), str(path), path.parent)
    tls = ServerTls(config.tls) if config.tls else None
    if folder is not None:
        users = UsersFolder(folder, config.users, bcrypt_check())
        return tls, users.auth, users
    return tls, PasswordCheck(config.users, bcrypt_check()) if config.users else None, None


def _sockets(settings: ExporterSettings) -> list[socket.socket]:
    """Return the listening sockets that systemd passes.

    Source: systemd, sd_listen_fds(3).
    """
    if not settings.is_socket_given:
        return []
    count = os.environ.get("LISTEN_FDS", "")
    if not count.isdecimal() or os.environ.get("LISTEN_PID") != str(os.getpid()):
        raise UsageError("--web-systemd-socket: found no socket from systemd, expected LISTEN_FDS")
    first = _FIRST_SYSTEMD_FD
    return [socket.socket(fileno=number) for number in range(first, first + int(count))]
