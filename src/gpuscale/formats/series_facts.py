"""What is known of a series by its name: unit, kind, and whose it is.

Source: the tables that the node agent serves from; the files of signals for theirs.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import Literal

from gpuscale.core.words import closest
from gpuscale.formats.amd import amd_family_meanings
from gpuscale.formats.names import NEW_NAMES
from gpuscale.formats.signals.catalogue import SIGNALS
from gpuscale.gpu.counters import DEFAULT_COUNTERS, switched_off_counters
from gpuscale.gpu.fields import FIELDS
from gpuscale.gpu.known_fields import known_names

Kind = Literal["gauge", "counter"]
_SHARES: Mapping[str, float] = MappingProxyType({"%": 100.0, "ratio": 1.0})
"""Units with a highest value of their own."""
_UNIT_IN_HELP = re.compile(r"\(([^()]+)\)\.?$")
_DCGM = "DCGM_"
_RECORDED_ENDINGS = ("_AVG", "_MEAN", "_MAX", "_MIN", "_SUM")


@dataclass(frozen=True, slots=True)
class SeriesFacts:
    """One series name that is known."""

    unit: str
    """Empty where it counts things."""
    kind: Kind | None
    """None where exporters differ."""
    of_gpu: bool = True
    """Whether each GPU, or process on a GPU, has a series of its own."""
    is_guessed: bool = False
    """Whether nothing but the ending of its name says so."""

    @property
    def highest(self) -> float | None:
        """Return the highest value; None where that is unknown."""
        return _SHARES.get(self.unit)


def facts_of(name: str) -> SeriesFacts | None:
    """Return what is known of a series; of an unknown name only what its ending says."""
    found = _known().get(name)
    if found is None and name.endswith("_total"):
        return SeriesFacts("", "counter", of_gpu=False, is_guessed=True)
    return found


def is_of_gpu(name: str) -> bool:
    """Return whether the series shows what a GPU does, so that there is none without work or pods."""
    found = _known().get(name) or _known().get(recorded_from(name) or "")
    return found is not None and found.of_gpu


def is_unknown_gpu_name(name: str) -> bool:
    """Return whether a name looks like one of DCGM's, and no exporter has it."""
    return name.startswith(_DCGM) and name not in _known() and name not in known_names()


def recorded_from(name: str) -> str | None:
    """Return the field that a recorded series such as `DCGM_FI_DEV_GPU_UTIL_AVG` is made of."""
    for ending in _RECORDED_ENDINGS:
        if name.upper().endswith(ending) and name[: -len(ending)] in _known():
            return name[: -len(ending)]
    return None


def closest_series(name: str) -> str | None:
    """Return the known series with the most similar name."""
    return closest(name, _known(), cutoff=0.85)


@lru_cache(maxsize=1)
def _known() -> Mapping[str, SeriesFacts]:
    return MappingProxyType(dict([*_fields(), *_of_alibaba(), *_of_amd(), *_of_servers()]))


def _fields() -> Iterator[tuple[str, SeriesFacts]]:
    rows = (*DEFAULT_COUNTERS, *switched_off_counters())
    types = {row.field: row.type for row in rows}
    for name, field in FIELDS.items():
        kind = _kind(types.get(name, ""))
        yield name, SeriesFacts(field.unit, kind)
        new = NEW_NAMES.get(name)
        if new is not None:
            yield new.name, SeriesFacts(new.unit or field.unit, _kind(new.type) or kind)


def _kind(text: str) -> Kind | None:
    return "gauge" if text == "gauge" else "counter" if text == "counter" else None


def _of_alibaba() -> Iterator[tuple[str, SeriesFacts]]:
    for whose in ("PROCESS", "ILLEGAL_PROCESS"):
        for value in ("SM_UTIL", "MEM_COPY_UTIL", "ENCODE_UTIL", "DECODE_UTIL"):
            yield f"DCGM_CUSTOM_{whose}_{value}", SeriesFacts("%", "gauge")
        yield f"DCGM_CUSTOM_{whose}_MEM_USED", SeriesFacts("MiB", "gauge")
    for name in ("CONTAINER_CP_ALLOCATED", "DEV_FB_ALLOCATED"):
        yield f"DCGM_CUSTOM_{name}", SeriesFacts("ratio", "gauge")
    for name in ("CONTAINER_MEM_ALLOCATED", "DEV_FB_TOTAL"):
        yield f"DCGM_CUSTOM_{name}", SeriesFacts("MiB", "gauge")
    yield "DCGM_CUSTOM_ALLOCATE_MODE", SeriesFacts("", "gauge")


def _of_amd() -> Iterator[tuple[str, SeriesFacts]]:
    for name, meaning in amd_family_meanings().items():
        unit = _UNIT_IN_HELP.search(meaning)
        yield name, SeriesFacts(unit[1] if unit else "", "gauge")


def _of_servers() -> Iterator[tuple[str, SeriesFacts]]:
    # vLLM's `perc` is a share: 1 is all of the cache.
    yield "vllm:cpu_cache_usage_perc", SeriesFacts("ratio", "gauge", of_gpu=False)
    for signal in SIGNALS.values():
        if signal.is_of_gpus or signal.how in ("mean", "p95"):
            continue
        is_counter = signal.how == "rate" or signal.series.endswith(("_sum", "_total"))
        is_share = signal.unit == "ratio" and signal.divisor is None
        for name in signal.spellings:
            kind: Kind = "counter" if is_counter else "gauge"
            yield name, SeriesFacts("ratio" if is_share else "", kind, of_gpu=False)
    yield "nv_gpu_utilization", SeriesFacts("ratio", "gauge")
    for name in ("request_success", "request_failure", "count", "queue_duration_us"):
        yield f"nv_inference_{name}", SeriesFacts("", "counter", of_gpu=False)
