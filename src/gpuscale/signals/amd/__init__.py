"""AMD's exporter: its metric families, and the library call behind each value. For the agent only."""

from typing import TYPE_CHECKING

from gpuscale.base.doors import door

if TYPE_CHECKING:
    from gpuscale.signals.amd.families import (
        AMD_FAMILIES,
        NODES_FAMILY,
        OTHER_MEANINGS,
        amd_families_of_keys,
        family_meaning,
    )
    from gpuscale.signals.amd.values import (
        AMD_CALLS,
        DCGM_FIXED,
        DCGM_SOURCES,
        NOT_AVAILABLE,
        POWER_FAMILY,
        POWER_KEYS,
        PROCESS_FAMILY,
        PROCESS_FUNCTION,
        PROCESS_PREFIX,
        AmdCall,
        AmdValue,
        NoValueError,
        dcgm_value,
    )
else:
    __getattr__ = door(__name__)

__all__ = [
    "AMD_CALLS",
    "AMD_FAMILIES",
    "DCGM_FIXED",
    "DCGM_SOURCES",
    "NODES_FAMILY",
    "NOT_AVAILABLE",
    "OTHER_MEANINGS",
    "POWER_FAMILY",
    "POWER_KEYS",
    "PROCESS_FAMILY",
    "PROCESS_FUNCTION",
    "PROCESS_PREFIX",
    "AmdCall",
    "AmdValue",
    "NoValueError",
    "amd_families_of_keys",
    "dcgm_value",
    "family_meaning",
]
