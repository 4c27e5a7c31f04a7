"""Which GPUs and MIG instances to serve, in dcgm-exporter's words.

`f` is flexible: each GPU, and its instances where it is split; the split GPU itself then only has what
belongs to the whole of it, such as its power. `g` is GPUs, `i` instances, with numbers
after a colon where not all are meant: `g:0,1,3-5`, `i:0,2`, `g:0+i`. Instances are numbered on the whole
node, from 0, GPU by GPU.

Source: NVIDIA dcgm-exporter, pkg/cmd/app.go (parseDeviceOptions), internal/pkg/devicewatcher.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from gpuscale.agent.gpu.reader import CallStats, GpuReader
from gpuscale.agent.gpu.readings import GpuIdentity, GpuReading
from gpuscale.base.errors import UnavailableError

MAX_ID = 4095
_EXPECTED = "f, g, g:0,1,3-5, i, i:0,2 or g…+i…"
_PART = re.compile(r"([gi])(?::([0-9,-]+))?")
_RANGE = re.compile(r"([0-9]{1,5})(?:-([0-9]{1,5}))?")


@dataclass(frozen=True, slots=True)
class DeviceSelection:
    """A selection of GPUs and instances."""

    is_flexible: bool = True
    gpus: frozenset[int] | None = frozenset()
    """NVML indices; None is all, empty none."""
    instances: frozenset[int] | None = frozenset()
    """Numbers on the node; None is all, empty none."""

    def chosen(self, present: Sequence[GpuIdentity]) -> frozenset[str]:
        """Return the selected UUIDs.

        Raises:
            UnavailableError: a number that is asked for is not there.
        """
        wholes = [gpu for gpu in present if gpu.instance is None]
        parts = [gpu for gpu in present if gpu.instance is not None]
        if self.is_flexible:
            return frozenset(gpu.allocated_as for gpu in present)
        by_index = {gpu.index: gpu.allocated_as for gpu in wholes}
        by_number = {number: gpu.allocated_as for number, gpu in enumerate(parts)}
        return frozenset(
            {*_picked(self.gpus, by_index, "GPU"), *_picked(self.instances, by_number, "instance")}
        )


FLEXIBLE = DeviceSelection()


def parse_devices(text: str) -> DeviceSelection:
    """Parse a selection.

    Raises:
        ValueError: not of the form.
    """
    if text == "f":
        return FLEXIBLE
    chosen: dict[str, frozenset[int] | None] = {}
    for part in text.split("+"):
        match = _PART.fullmatch(part)
        if match is None or match[1] in chosen:
            raise ValueError(f"found {text!r}, expected {_EXPECTED}")
        chosen[match[1]] = None if match[2] is None else _numbers(match[2], text)
    none = frozenset[int]()
    return DeviceSelection(False, chosen.get("g", none), chosen.get("i", none))


class SelectedReader:
    """A reader of the selected GPUs and instances only."""

    def __init__(self, inner: GpuReader, selection: DeviceSelection) -> None:
        self._inner = inner
        self._selection = selection

    def gpus(self) -> tuple[GpuIdentity, ...]:
        """Return the selected GPUs and instances.

        Raises:
            UnavailableError: one that is asked for by number is not there.
        """
        present = self._inner.gpus()
        chosen = self._selection.chosen(present)
        return tuple(gpu for gpu in present if gpu.allocated_as in chosen)

    def read(self, now_ms: int) -> tuple[GpuReading, ...]:
        """Return the readings of the selected GPUs and instances.

        Raises:
            UnavailableError: no GPU can be read at all.
        """
        readings = self._inner.read(now_ms)
        chosen = self._selection.chosen(self._inner.gpus())
        return tuple(each for each in readings if each.gpu.allocated_as in chosen)

    def stats(self) -> tuple[CallStats, ...]:
        return self._inner.stats()

    def close(self) -> None:
        self._inner.close()


def _numbers(text: str, whole: str) -> frozenset[int]:
    numbers: set[int] = set()
    for part in text.split(","):
        match = _RANGE.fullmatch(part)
        first, last = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
        if not first <= last <= MAX_ID:
            raise ValueError(f"found {whole!r}, expected {_EXPECTED}")
        numbers.update(range(first, last + 1))
    return frozenset(numbers)


def _picked(wanted: frozenset[int] | None, present: dict[int, str], what: str) -> Iterable[str]:
    if wanted is None:
        return present.values()
    missing = sorted(wanted - present.keys())
    if missing:
        there = ", ".join(map(str, sorted(present))) or "none"
        raise UnavailableError(
            f"couldn't find requested {what} ID '{missing[0]}'; this node has: {there}"
        )
    return [present[number] for number in sorted(wanted)]
