"""The plan of a load on GPUs."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from gpuscale.base.errors import UsageError
from gpuscale.base.loads import Load
from gpuscale.load.gpu.driver import Device

TOLERANCE = 5.0
"""Points by which the mean of what was counted may miss what was wanted."""
VISIBLE = "CUDA_VISIBLE_DEVICES"
_PREFIXES = ("GPU-", "MIG-")


@dataclass(frozen=True, slots=True)
class GpuPlan:
    """A GPU load's plan."""

    load: Load
    """Percent of the time over the time of the run."""
    duration_s: float
    memory_bytes: int | None = None
    """Of each GPU, all processes and their contexts together; None is what the contexts take."""
    processes: int = 1
    """On each GPU; they take turns."""
    multiprocessors_percent: float = 100.0
    """How many of the multiprocessors work while the GPU is busy."""
    shape: str = ""
    """The load in the user's words."""

    def wanted(self, from_s: float, to_s: float) -> float:
        """Return the mean percent between two moments of the run; 0 outside of it."""
        start, end = max(0.0, from_s), min(self.duration_s, to_s)
        if end <= start:
            return 0.0
        area = self.load.requests_until(end) - self.load.requests_until(start)
        return min(100.0, area / (to_s - from_s))


@dataclass(frozen=True, slots=True)
class ChosenGpu:
    """A GPU or MIG instance to load."""

    uuid: str
    """Without prefix; empty where the driver shows a process nothing else."""
    name: str
    environment: Mapping[str, str]
    """What its processes need beside ours, to see it."""


def choose(
    text: str, devices: Sequence[Device], environment: Mapping[str, str]
) -> tuple[ChosenGpu, ...]:
    """Return the GPUs that an option names.

    Args:
        text: `all`, a number or a UUID. Numbers count what the driver shows this process, so they follow
            CUDA_VISIBLE_DEVICES and, without it, the order of nvidia-smi.
        devices: what the driver shows.
        environment: of this process.

    Raises:
        UsageError: there is no such GPU here; with what there is.
    """
    if text == "all":
        return tuple(_chosen(device) for device in devices)
    if text.isdecimal() and len(text) < 5:
        if int(text) < len(devices):
            return (_chosen(devices[int(text)]),)
    else:
        wanted = text.lower()
        for prefix in _PREFIXES:
            wanted = wanted.removeprefix(prefix.lower())
        found = [device for device in devices if wanted and device.uuid.startswith(wanted)]
        if len(found) == 1:
            return (_chosen(found[0]),)
        if not found and text.startswith("MIG-") and VISIBLE not in environment:
            # A process sees at most one MIG instance, selected by its environment.
            return (ChosenGpu(wanted, text, {VISIBLE: text}),)
    raise UsageError(
        f"--gpu: found {text!r}, expected all or {_listed(devices)}{_hint(environment)}"
    )


def _chosen(device: Device) -> ChosenGpu:
    return ChosenGpu(device.uuid, device.name, {})


def _listed(devices: Iterable[Device]) -> str:
    shown = (f"{each.ordinal} ({each.name}, {each.uuid})" for each in devices)
    return "one of: " + ", ".join(shown)


def _hint(environment: Mapping[str, str]) -> str:
    given = environment.get(VISIBLE)
    return "" if given is None else f"; {VISIBLE}={given} hides others"
