"""GPUs made of numbers, for the stand-in."""

from collections.abc import Callable
from dataclasses import dataclass, field

Number = int | float
Scripted = Number | Callable[[int], Number]
"""A number, or what gives it for a time in microseconds since the epoch."""

ANY_INSTANCE = 0xFFFF_FFFF
"""What the driver reports for a process or an event of a whole GPU."""
MIB = 1024 * 1024
_MEAN_PARTS = 100


@dataclass(slots=True)
class FakeProcess:
    """One process on a GPU."""

    pid: int
    sm_percent: Scripted = 0
    memory_bytes: int | None = 512 * MIB
    """None is what the driver says when it does not know."""
    name: str = "/usr/bin/python3 serve.py"


@dataclass(slots=True)
class FakeInstance:
    """One MIG instance."""

    id: int
    slices: int = 1
    memory_mib: int = 9856
    """The default is a 1g.10gb of an H100."""
    uuid: str = ""
    """Made from the GPU's when empty."""
    name: str = ""
    """What the driver calls it; empty leaves the name to the attributes."""
    compute_slices: int | None = None
    busy_percent: Scripted = 0
    used_mib: int = 12
    processes: list[FakeProcess] = field(default_factory=list)
    tensor_percent: Scripted | None = None
    """None is a driver that does not measure it."""


@dataclass(slots=True)
class FakeGpu:
    """One GPU; the defaults are an idle H100."""

    name: str = "NVIDIA H100 80GB HBM3"
    uuid: str = ""
    """Made from the bus id when empty."""
    bus: int = 0
    """Number of the PCI bus; made from the position when 0."""
    busy_percent: Scripted = 0
    memory_busy_percent: Scripted = 0
    sm_percent: Scripted = 0
    tensor_percent: Scripted = 0
    dram_percent: Scripted = 0
    pcie_tx_mib_s: Scripted = 0
    pcie_rx_mib_s: Scripted = 0
    nvlink_tx_mib_s: Scripted | None = None
    """None is a GPU whose profiling counters have no NVLink."""
    nvlink_rx_mib_s: Scripted | None = None
    power_mw: Scripted = 75_000
    energy_mj: Scripted = 1_000_000
    temperature_c: Scripted = 35
    total_mib: int = 81_559
    reserved_mib: int = 600
    used_mib: Scripted = 0
    sm_clock_mhz: Scripted = 345
    memory_clock_mhz: Scripted = 2619
    clock_reasons: int = 1
    remapped_rows: tuple[int, int, int, int] = (0, 0, 0, 0)
    """Correctable, uncorrectable, pending, failed."""
    field_values: dict[int, Scripted] = field(default_factory=dict)
    """By NVML field id; other ids are not supported."""
    link_counts: dict[int, tuple[int, ...]] = field(default_factory=dict)
    """By NVML field id, the count of each link from 0 on; links beyond are not supported."""
    fabric: tuple[int, int, int] | None = None
    """State, NVML's return code and health summary; None is a GPU without a fabric."""
    has_gpm: bool = True
    gpm_unit: str = "MiB/s"
    has_samples: bool = True
    processes: list[FakeProcess] = field(default_factory=list)
    junk_samples: list[tuple[int, int, int]] = field(default_factory=list)
    """(PID, microseconds, percent) that the driver's buffer holds beside the real ones."""
    instances: list[FakeInstance] | None = None
    """None is MIG switched off."""


def value_at(script: Scripted, now_us: int) -> Number:
    """Return a scripted value at a time."""
    return script(now_us) if callable(script) else script


def mean_of(script: Scripted, from_us: int, to_us: int) -> float:
    """Return the mean over a time, from the middles of equal parts of it."""
    if not callable(script):
        return float(script)
    step = (to_us - from_us) / _MEAN_PARTS
    return sum(script(int(from_us + (n + 0.5) * step)) for n in range(_MEAN_PARTS)) / _MEAN_PARTS


def bus_id(gpu: FakeGpu) -> str:
    """Return where a GPU sits on PCI."""
    return f"00000000:{gpu.bus:02X}:00.0"


def all_processes(gpu: FakeGpu) -> list[FakeProcess]:
    """Return the processes of a GPU and of its instances."""
    return [*gpu.processes, *(each for part in gpu.instances or () for each in part.processes)]
