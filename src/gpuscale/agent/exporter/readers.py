"""Creates the reader of the GPUs in the settings."""

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from gpuscale.agent.exporter.devices import SelectedReader
from gpuscale.agent.exporter.families.azure import AZURE_FIELDS
from gpuscale.agent.exporter.possible import PossibleReader
from gpuscale.agent.exporter.settings import ExporterSettings
from gpuscale.agent.formats.ack import ACK_FIELDS
from gpuscale.agent.gpu.health import HEALTH_FIELDS
from gpuscale.agent.gpu.reader import CallStats, GpuReader, ReaderRequest
from gpuscale.agent.gpu.readings import GpuIdentity, GpuReading
from gpuscale.base.clock import Clock
from gpuscale.base.errors import BugError
from gpuscale.signals import FIELDS, Counter

if TYPE_CHECKING:
    from gpuscale.agent.gpu.simulated import WorkSource

SEED = 1
SHARE_FIELDS = frozenset({"DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_FB_USED"})
"""What splitting a GPU among its containers needs."""
WHAT_ELSE = (
    "to try without a GPU, use --gpu simulated; for AMD GPUs, --gpu amd; "
    "to play a recording, --gpu replay:FILE"
)
"""What a user without NVIDIA GPUs may have meant."""


def fields_to_read(counters: Iterable[Counter], settings: ExporterSettings) -> frozenset[str]:
    """Return the fields that a reader has to read for the served metrics."""
    wanted = {counter.field for counter in counters if counter.field in FIELDS}
    if "ack" in settings.styles:
        wanted |= ACK_FIELDS
    if "dcgm" in settings.styles:
        wanted |= HEALTH_FIELDS
    if settings.attribution is not None:
        wanted |= SHARE_FIELDS | AZURE_FIELDS
    return frozenset(wanted)


def needs_processes(settings: ExporterSettings) -> bool:
    """Return whether served metrics need processes: ACK's series, or containers' shares."""
    return settings.attribution is not None


def make_reader(
    settings: ExporterSettings,
    fields: frozenset[str],
    node: str,
    work: "WorkSource | None" = None,
    clock: Clock | None = None,
    *,
    processes: bool = False,
) -> GpuReader:
    """Return a reader of the GPUs that the settings name.

    Args:
        settings: of the node agent.
        fields: to read.
        node: its name.
        work: what simulated GPUs do; None is the usual.
        clock: the one that stamps readings; None is the machine's.
        processes: whether to list processes even where the settings need none.

    Raises:
        UnavailableError: the vendor's library is not there.
        NotFoundError: the recording is not there.
        ConfigError: the recording is damaged.
    """
    reader: GpuReader
    source = settings.gpu
    match source.kind:
        case "simulated":
            from gpuscale.agent.gpu.model_table import MODELS
            from gpuscale.agent.gpu.simulated import SimulatedReader, wave

            reader = SimulatedReader(
                node,
                MODELS[source.model],
                source.count,
                SEED,
                work or wave,
                settings.interval_ms,
                fields=fields,
            )
        case "replay":
            from gpuscale.agent.recordings.recording import ReplayReader

            reader = ReplayReader.open(source.file, loop=True)
        case "nvml":
            paces = replace(settings.nvml, processes=processes or needs_processes(settings))
            reader = _nvml(replace(settings, nvml=paces), fields, clock)
        case "amd":
            from gpuscale.agent.amd.reader import AmdReader

            reader = AmdReader(fields=fields)
        case "plugin":
            if source.plugin is None:
                raise BugError("a plug-in's readings were asked for without a plug-in")
            reader = source.plugin.open(
                ReaderRequest(
                    argument=source.argument,
                    node=node,
                    fields=fields,
                    interval_ms=settings.interval_ms,
                )
            )
    if settings.gpu.kind != "simulated":
        reader = PossibleReader(reader)
    return reader if settings.devices.is_flexible else SelectedReader(reader, settings.devices)


class ReplaceableReader:
    """A reader that can be exchanged between two reads.

    The next read closes the previous one, so that never two calls are under way.
    """

    def __init__(self, inner: GpuReader) -> None:
        self._inner = inner
        self._next: GpuReader | None = None

    def replace(self, reader: GpuReader) -> None:
        """Use another reader from the next call on."""
        self._next = reader

    def gpus(self) -> tuple[GpuIdentity, ...]:
        """Return the current reader's GPUs."""
        return self._current().gpus()

    def read(self, now_ms: int) -> tuple[GpuReading, ...]:
        """Return the current reader's readings.

        Raises:
            UnavailableError: no GPU can be read at all.
        """
        return self._current().read(now_ms)

    def stats(self) -> tuple[CallStats, ...]:
        """Return the current reader's costs."""
        return self._inner.stats()

    def close(self) -> None:
        """Close the current reader; a second call does nothing."""
        self._current().close()

    def _current(self) -> GpuReader:
        following, self._next = self._next, None
        if following is not None:
            self._inner.close()
            self._inner = following
        return self._inner


def _nvml(settings: ExporterSettings, fields: frozenset[str], clock: Clock | None) -> GpuReader:
    from gpuscale.agent.nvml.reader import NvmlReader

    found = NvmlReader(settings.nvml, fields=fields, clock=clock)
    if settings.host_engine is None:
        return found
    from gpuscale.agent.dcgm.engine import HostEngine
    from gpuscale.agent.dcgm.reader import HostEngineReader

    engine = HostEngine(settings.host_engine, settings.interval_ms)
    return HostEngineReader(found, engine, fields)
