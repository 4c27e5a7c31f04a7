"""A thread that follows a DCGM host engine: connects, watches fields, reads them, and reconnects.

Only this thread calls the library. While a call hangs, the last answer gets old, and the rest of the
agent goes on.
"""

import logging
import os
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from gpuscale.agent.dcgm.library import DcgmError, DcgmLibrary, EngineConnection, Entity
from gpuscale.agent.gpu.reader import CallStats
from gpuscale.base.backoff import Backoff
from gpuscale.base.errors import UnavailableError

Part = tuple[str, int | None]
"""A GPU's UUID, and NVML's id of the MIG instance that is meant."""
_LOG = logging.getLogger(__name__)
_LAYOUT_S = 10.0
"""How often GPUs and instances are listed again."""
_CLOSE_S = 1.0
_LEAST_MS, _MOST_MS = 500, 30_000
"""Of the interval: the profiling module measures no faster than ten times a second, and doubles as load."""
_ABSENT = "the DCGM host engine has no such GPU"


@dataclass(frozen=True, slots=True)
class MeasuredValue:
    """A value with the time of its measurement."""

    value: int | float
    measured_ms: int


@dataclass(frozen=True, slots=True)
class EngineView:
    """An immutable view of a host engine's GPUs."""

    values: Mapping[Part, Mapping[int, MeasuredValue]] = field(default_factory=dict)
    reasons: Mapping[Part, Mapping[int, str]] = field(default_factory=dict)
    fault: str = "the DCGM host engine has not answered yet"
    """Why nothing is known; empty where it answers."""


@dataclass(slots=True)
class _Watched:
    """A GPU or instance, with its watched fields."""

    entity: Entity
    fields: tuple[int, ...]
    reasons: dict[int, str]


class HostEngine:
    """The latest values of a host engine.

    Args:
        address: `HOST[:PORT]`, or the path of a Unix socket.
        interval_ms: how often values are wanted.
        load: gives the library.
    """

    def __init__(
        self, address: str, interval_ms: int, load: Callable[[], DcgmLibrary] = DcgmLibrary
    ) -> None:
        self.address = address
        self.interval_ms = min(max(interval_ms, _LEAST_MS), _MOST_MS)
        self.view = EngineView()
        self._load = load
        self._wanted: frozenset[int] = frozenset()
        self._ends = threading.Event()
        self._thread: threading.Thread | None = None
        self._calls = self._errors = 0
        self._seconds = 0.0
        self._logged = ""

    def want(self, fields: frozenset[int]) -> None:
        """Watch these fields too; the first call starts the thread."""
        if not fields <= self._wanted:
            self._wanted |= fields
        if self._thread is None and self._wanted:
            self._thread = threading.Thread(target=self._follow, name="dcgm", daemon=True)
            self._thread.start()

    def stats(self) -> CallStats:
        return CallStats("dcgm_host_engine", self._calls, self._errors, self._seconds)

    def close(self) -> None:
        """Stop the thread; one that hangs in a call is abandoned."""
        self._ends.set()
        if self._thread is not None:
            self._thread.join(_CLOSE_S)

    def _follow(self) -> None:
        waits = Backoff(1.0, 30.0)
        library: DcgmLibrary | None = None
        while not self._ends.is_set():
            try:
                library = library or self._load()
                self._serve(library.connect(self.address), waits)
            except UnavailableError as error:
                self._lose(str(error))
            self._ends.wait(waits.jittered())

    def _serve(self, connection: EngineConnection, waits: Backoff) -> None:
        """Read from a host engine until it fails or the thread is stopped."""
        try:
            watched: Mapping[Part, _Watched] = {}
            of: tuple[object, ...] = ()
            listed_s = float("-inf")
            while not self._ends.is_set():
                began = time.monotonic()
                self._calls += 1
                if began - listed_s >= _LAYOUT_S or self._wanted != (of[-1] if of else None):
                    gpus, instances, wanted = (
                        connection.gpus(),
                        connection.instances(),
                        self._wanted,
                    )
                    listed_s = began
                    if (gpus, instances, wanted) != of:
                        if of:
                            return  # The previous connection's watches ended with it.
                        of = (gpus, instances, wanted)
                        watched = self._watch(connection, gpus, instances, wanted)
                self._ask(connection, watched)
                waits.reset()
                self._seconds += time.monotonic() - began
                self._ends.wait(self.interval_ms / 1000)
        finally:
            try:
                connection.close()
            except DcgmError:
                _LOG.debug("%s: the connection had ended", self.address)

    def _watch(
        self,
        connection: EngineConnection,
        gpus: Mapping[str, Entity],
        instances: Mapping[tuple[str, int], Entity],
        wanted: frozenset[int],
    ) -> Mapping[Part, _Watched]:
        """Watch the wanted fields of each GPU; a failure for one doesn't affect the others."""
        found: dict[Part, _Watched] = {}
        for uuid, gpu in gpus.items():
            parts: dict[Part, Entity] = {(uuid, None): gpu}
            parts |= {(uuid, id_): each for (of, id_), each in instances.items() if of == uuid}
            try:
                able = sorted(wanted & connection.profiling_fields(gpu))
                reasons = dict.fromkeys(wanted - set(able), "the GPU has no such counter")
                if able:
                    name = f"gpuscale-{os.getpid()}-{self._calls}-{gpu.id}"
                    connection.watch(name, parts.values(), able, self.interval_ms)
            except DcgmError as error:
                able, reasons = [], dict.fromkeys(wanted, str(error))
            found |= {part: _Watched(each, tuple(able), reasons) for part, each in parts.items()}
        return found

    def _ask(self, connection: EngineConnection, watched: Mapping[Part, _Watched]) -> None:
        values: dict[Part, Mapping[int, MeasuredValue]] = {}
        reasons: dict[Part, Mapping[int, str]] = {}
        for part, each in watched.items():
            samples = list(connection.latest(each.entity, each.fields))
            values[part] = {
                s.field: MeasuredValue(s.value, s.measured_ms)
                for s in samples
                if s.value is not None
            }
            reasons[part] = each.reasons | {s.field: s.absent for s in samples if s.absent}
        if self._logged:
            _LOG.info("the DCGM host engine at %s answers", self.address)
            self._logged = ""
        self.view = EngineView(values, reasons, "")

    def _lose(self, why: str) -> None:
        self._errors += 1
        self.view = EngineView(fault=f"the DCGM host engine at {self.address}: {why}")
        if why != self._logged:
            _LOG.warning("the DCGM host engine at %s: %s", self.address, why)
            self._logged = why


def of_part(view: EngineView, part: Part, field_id: int, oldest_ms: int) -> MeasuredValue | str:
    """Return the value of a field, or why there is none.

    Args:
        view: of the host engine.
        part: the GPU or instance.
        field_id: DCGM's number.
        oldest_ms: older values don't count.
    """
    if view.fault:
        return view.fault
    if part not in view.values:
        return _ABSENT
    found = view.values[part].get(field_id)
    if found is None:
        said = view.reasons[part].get(field_id, "the host engine has none yet")
        return f"DCGM host engine: {said}"
    return found if found.measured_ms >= oldest_ms else "the DCGM host engine's value is too old"
