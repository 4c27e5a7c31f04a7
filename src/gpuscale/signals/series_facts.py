"""Facts about known series: unit, type, exporter, possible values.

A range is wide: beyond it no GPU and no server goes, now or soon. Only names that one exporter alone has are
bounded by their unit. Names that others may have too, such as AMD's `gpu_power_usage`, are bounded by it only
where they are percentages, and names that nobody has are not bounded at all.

Source: the tables that the node agent serves from; the files of signals for theirs. Codes for "no value":
    NVIDIA DCGM 4, dcgmlib/dcgm_structs.h (DCGM_INT32_BLANK, DCGM_INT64_BLANK, DCGM_FP64_BLANK and the three
    above each); NVML 13.0, nvml.h (NVML_VALUE_NOT_AVAILABLE; fans may run at more than 100 %).
"""

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from types import MappingProxyType
from typing import Literal

from gpuscale.base.ranges import Range
from gpuscale.base.words import closest
from gpuscale.signals.amd.families import amd_family_meanings
from gpuscale.signals.catalogue import SIGNALS
from gpuscale.signals.counters import (
    DEFAULT_COUNTERS,
    first_release_counters,
    switched_off_counters,
)
from gpuscale.signals.fields import FIELDS
from gpuscale.signals.known_fields import known_names
from gpuscale.signals.names import NEW_NAMES

Kind = Literal["gauge", "counter"]
_SHARES: Mapping[str, float] = MappingProxyType({"%": 100.0, "ratio": 1.0})
"""Units with a highest value of their own."""
_CODE = 0x7FFFFFF0
"""The lowest of the codes for "no value"."""
_COUNTED = Range(0, 2.0**63 * 0.999)
"""Of a counter: no GPU lives to see the codes of 64 bits."""
_STATE = Range(0, _CODE - 1)
_RANGES: Mapping[str, Range] = MappingProxyType(
    {
        "%": Range(0, 100),
        # Two counters read at slightly different times, or driver memory that counts as used.
        "ratio": Range(0, 1.1),
        "MiB": Range(0, 2.0**22),
        "bytes": Range(0, 2.0**42),
        "MHz": Range(0, 100_000),
        "Hz": Range(0, 1e11),
        "W": Range(0, 30_000),
        "°C": Range(-273, 1000),
        "MB/s": Range(0, 1e8),
        "bytes/s": Range(0, 1e14),
        "": _STATE,
    }
)
"""Of gauges, by their unit: an order of magnitude above the largest machine."""
_OWN_RANGES: Mapping[str, Range] = MappingProxyType(
    {
        "DCGM_FI_DEV_FAN_SPEED": Range(0, 255),
        "DCGM_FI_DEV_FAN_SPEED_RATIO": Range(0, 2.55),
        "DCGM_FI_DEV_INFOROM_CONFIG_CHECK": Range(0, 2.0**32),
    }
)
"""Of series that may go further than their unit says."""
_NOT_NEGATIVE = Range(0)
_FIRST_WORD = re.compile("[A-Za-z]+[_:]")
_COUNTED_ENDINGS = ("_total", "_sum", "_count", "_bucket", "_success", "_failure")
_OF_SERVERS = ("vllm:", "sglang:", "llamacpp:", "tgi_", "nv_inference_", "ts_", "dynamo_")
"""How names of model servers begin. With these endings they are counters, but for those that signals are of:
by their clients' convention and, of TGI and Triton, by their sources (signals.servers)."""
_UNIT_IN_HELP = re.compile(r"\(([^()]+)\)\.?$")
_DCGM = "DCGM_"
_RECORDED_ENDINGS = ("_AVG", "_MEAN", "_MAX", "_MIN", "_SUM")


@dataclass(frozen=True, slots=True)
class SeriesFacts:
    """The facts about one series name."""

    unit: str
    """Empty where it counts things."""
    kind: Kind | None
    """None where exporters differ."""
    of_gpu: bool = True
    """Whether each GPU, or process on a GPU, has a series of its own."""
    is_guessed: bool = False
    """Whether nothing but the ending of its name says so."""
    range: Range | None = None
    """What it can have; None where that is unknown."""

    @property
    def highest(self) -> float | None:
        """Return the highest value; None where that is unknown."""
        return _SHARES.get(self.unit)


def facts_of(name: str) -> SeriesFacts | None:
    """Return the facts about a series; for an unknown name only what its suffix implies."""
    found = _known().get(name)
    if found is None and name.endswith(_COUNTED_ENDINGS) and name.startswith(_OF_SERVERS):
        return SeriesFacts("", "counter", of_gpu=False)
    if found is None and name.endswith("_total"):
        return SeriesFacts("", "counter", of_gpu=False, is_guessed=True)
    return found


@lru_cache(maxsize=10_000)
def range_of(name: str) -> Range | None:
    """Return a series' range of possible values; None if it is unknown."""
    found = _known().get(name)
    if found is not None:
        return found.range
    recorded = recorded_from(name)
    limits = _known()[recorded].range if recorded else None
    if limits is not None and name.upper().endswith("_SUM"):
        return Range(limits.lowest if limits.lowest == 0 else -math.inf)
    return limits


def known_prefixes() -> frozenset[str]:
    """Return the first words of all names with a range, such as `DCGM_` and `vllm:`."""
    return frozenset(found[0] for found in map(_FIRST_WORD.match, _known()) if found is not None)


def impossible(name: str, value: float, summed_of: int = 1) -> str | None:
    """Return why a value is impossible for its series; None if it is possible.

    Args:
        name: of the series.
        value: of one sample, or made of several.
        summed_of: how many samples it may be the sum of.
    """
    limits = range_of(name)
    if limits is None or Range(limits.lowest * summed_of, limits.highest * summed_of).has(value):
        return None
    unit = facts.unit if (facts := _known().get(recorded_from(name) or name)) is not None else ""
    shown = f"{value:.0f}" if abs(value) < 1e20 and value == round(value) else f"{value:g}"
    return f"{name} can't be {shown}: it is {limits} {unit}".rstrip()


def is_of_gpu(name: str) -> bool:
    """Return whether a series measures GPU work, so that it is absent without pods."""
    found = _known().get(name) or _known().get(recorded_from(name) or "")
    return found is not None and found.of_gpu


def is_of_pods(name: str) -> bool:
    """Return whether a series is of a workload's own GPUs or model server, and absent without pods."""
    plain = name.removesuffix("_bucket").removesuffix("_sum").removesuffix("_count")
    return is_of_gpu(name) or bool({name, plain} & _of_pods())


@lru_cache(maxsize=1)
def _of_pods() -> frozenset[str]:
    own = (each for each in SIGNALS.values() if each.kind == "pods")
    return frozenset(name for each in own for name in (*each.spellings, each.divisor) if name)


def is_unknown_gpu_name(name: str) -> bool:
    """Return whether a name looks like a DCGM name that no exporter serves."""
    return name.startswith(_DCGM) and name not in _known() and name not in known_names()


def recorded_from(name: str) -> str | None:
    """Return the field behind a recorded series such as `DCGM_FI_DEV_GPU_UTIL_AVG`."""
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
        found = {name: SeriesFacts(field.unit, kind)}
        new = NEW_NAMES.get(name)
        if new is not None:
            found[new.name] = SeriesFacts(new.unit or field.unit, _kind(new.type) or kind)
        for each, facts in found.items():
            yield each, facts if field.kind == "string" else _bounded(each, facts)
    for row in first_release_counters():
        if row.name != row.field and row.field in FIELDS:
            unit = FIELDS[row.field].unit
            yield row.name, _bounded(row.field, SeriesFacts(unit, _kind(row.type)))


def _bounded(name: str, facts: SeriesFacts) -> SeriesFacts:
    """Return the facts of a series of one exporter only, with its unit's range."""
    found = _OWN_RANGES.get(name)
    if found is None:
        # For some no document says whether they are counters; those without a unit mostly are.
        may_count = facts.kind is None and (not facts.unit or "_COUNT_" in name)
        counts = facts.kind == "counter" or may_count
        found = _COUNTED if counts else _RANGES.get(facts.unit, _COUNTED)
    return replace(facts, range=found)


def _kind(text: str) -> Kind | None:
    return "gauge" if text == "gauge" else "counter" if text == "counter" else None


def _of_alibaba() -> Iterator[tuple[str, SeriesFacts]]:
    for name, facts in _alibabas():
        yield name, _bounded(name, facts)


def _alibabas() -> Iterator[tuple[str, SeriesFacts]]:
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
        found = _UNIT_IN_HELP.search(meaning)
        unit = found[1] if found else ""
        limits = {"%": _RANGES["%"], "°C": Range(-273, _COUNTED.highest)}.get(unit, _COUNTED)
        yield name, SeriesFacts(unit, "gauge", range=limits)


_TS_TIME = SeriesFacts("", "counter", of_gpu=False, range=_NOT_NEGATIVE)
"""TorchServe adds its times up: serve v0.12 frontend/server/src/main/resources/config.yaml (counter)."""


def _of_servers() -> Iterator[tuple[str, SeriesFacts]]:
    # vLLM's `perc` is a ratio: 1 means all of the cache.
    share = _RANGES["ratio"]
    yield "vllm:cpu_cache_usage_perc", SeriesFacts("ratio", "gauge", of_gpu=False, range=share)
    for signal in SIGNALS.values():
        if signal.is_of_gpus or signal.how in ("mean", "p95"):
            continue
        is_counter = signal.how == "rate" or signal.series.endswith(("_sum", "_total"))
        is_share = signal.unit == "ratio" and signal.divisor is None
        for name in signal.spellings:
            kind: Kind = "counter" if is_counter else "gauge"
            unit = "ratio" if is_share else ""
            # If matchers select ratios, other series have the same name.
            limits = share if is_share and not signal.matchers else _NOT_NEGATIVE
            yield name, SeriesFacts(unit, kind, of_gpu=False, range=limits)
    yield "ts_queue_latency_microseconds", _TS_TIME
    yield "ts_inference_latency_microseconds", _TS_TIME
    yield "nv_gpu_utilization", SeriesFacts("ratio", "gauge", range=share)
    for name in ("request_success", "request_failure", "count", "queue_duration_us"):
        yield f"nv_inference_{name}", SeriesFacts("", "counter", of_gpu=False, range=_NOT_NEGATIVE)
