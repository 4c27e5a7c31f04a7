"""All names that a counters file may use for a DCGM field, including fields that are not read.

Names of one number mean one value: an older or newer name of a field that is read gives its value. A field of
something else than a GPU, such as a switch, or one that the vendor's library lacks, is absent with a reason.

Source: NVIDIA go-dcgm v1.4611.0, pkg/dcgm (current and legacy names, all of go-dcgm's for 4.8.2 included).
"""

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType

from gpuscale.signals.fields import FIELDS, Field

_TABLE = Path(__file__).with_name("dcgm-fields.txt")

NOT_A_GPUS: Mapping[str, str] = MappingProxyType(
    {
        "DCGM_FI_DEV_NVSWITCH_": "NVSwitches are not read",
        "DCGM_FI_NVSWITCH_": "NVSwitches are not read",
        "DCGM_FI_DEV_CPU_": "CPUs are not read",
        "DCGM_FI_CPU_": "CPUs are not read",
        "DCGM_FI_DEV_CONNECTX_": "network adapters are not read",
        "DCGM_FI_CONNECTX_": "network adapters are not read",
        "DCGM_FI_IMEX_": "the IMEX service is not read",
        "DCGM_FI_DEV_VGPU_": "guests of a vGPU host are not read",
        "DCGM_FI_VGPU_": "guests of a vGPU host are not read",
        "DCGM_FI_DEV_DIAG_": "diagnostics are not run",
        "DCGM_FI_DIAG_": "diagnostics are not run",
    }
)
"""How names begin that say nothing of a GPU, and why they have no value."""
NOT_READ = "this reader does not read it"


@lru_cache(maxsize=1)
def known_names() -> Mapping[str, int]:
    """Return all DCGM names with their numbers."""
    names: dict[str, int] = {}
    for line in _TABLE.read_text(encoding="ascii").splitlines():
        if not line.startswith("#"):
            number, *of_number = line.split()
            names.update(dict.fromkeys(of_number, int(number)))
    return MappingProxyType(names)


def is_known(name: str) -> bool:
    """Return whether a counters file may use this name."""
    return name in FIELDS or name in known_names()


def current_name(name: str) -> str:
    """Return the name of `FIELDS` with the same number, or the name itself where there is none."""
    if name in FIELDS:
        return name
    return _by_number().get(known_names()[name], name)


def field_named(name: str) -> Field:
    """Return a field by name; for one that is not read, only its number is known."""
    found = FIELDS.get(name)
    return found or Field(name, known_names()[name], "", "", "int")


def why_not_read(name: str) -> str:
    """Return why a field is never read."""
    for start, reason in NOT_A_GPUS.items():
        if name.startswith(start):
            return reason
    return NOT_READ


@lru_cache(maxsize=1)
def _by_number() -> Mapping[int, str]:
    """Return one name for each number; the first in the table."""
    names: dict[int, str] = {}
    for field in FIELDS.values():
        names.setdefault(field.id, field.name)
    return names
