"""NVLink traffic in DCGM's older fields, from profiling counters where a GPU has them.

The profiling counters are the mean since the read before and cost nothing beside the others; NVLink's own
counters take 2.8 ms on a GPU with 18 links, so that they are read once in a while. The profiling counters
hold the protocol's overhead too: 390 GB/s where 378 were copied between two H200s.
"""

from collections.abc import Iterable, Mapping

from gpuscale.agent.nvml.faults import NO_DATA
from gpuscale.agent.nvml.values.batches import ALL_LINKS, LINK_RATES
from gpuscale.agent.nvml.values.gpm import GPM_METRICS, Gpm
from gpuscale.agent.nvml.values.sources import Findings, Scheduled

_BYTES_PER_MB = 1_000_000


def _needs() -> Mapping[str, tuple[str, ...]]:
    """Return the profiling counters whose sum is each field."""
    needs = {}
    for rate in LINK_RATES:
        link = "" if rate.scope == ALL_LINKS else f"L{rate.scope}_"
        ways = tuple(
            f"DCGM_FI_PROF_NVLINK_{link}{way.rpartition('_')[2]}_BYTES" for way in rate.ways
        )
        if all(name in GPM_METRICS for name in ways):
            needs[rate.field] = ways
    return needs


_NEEDS = _needs()


def traffic_needs(fields: Iterable[str]) -> frozenset[str]:
    """Return the profiling counters that these NVLink fields need."""
    return frozenset(need for field in fields for need in _NEEDS.get(field, ()))


class LinkTraffic:
    """A GPU's profiling values, with NVLink traffic computed from them.

    Args:
        gpm: the profiling counters, with those that the traffic is made of.
        counters: NVLink's own, for GPUs without the former, and for whether there is NVLink at all.
        plain: the profiling fields that are asked for by themselves.
    """

    def __init__(self, gpm: Gpm, counters: Scheduled, plain: frozenset[str]) -> None:
        self._gpm = gpm
        self._counters = counters
        self._plain = plain & gpm.fields
        self.fields = self._plain | counters.fields

    def read(self, now_ms: int) -> Findings:
        """Return a value or a reason for each field."""
        counted, sampled = self._counters.read(now_ms), self._gpm.read(now_ms)
        found = Findings(
            {field: value for field, value in sampled.values.items() if field in self._plain},
            {field: why for field, why in sampled.absent.items() if field in self._plain},
        )
        for field in self._counters.fields:
            reason = counted.absent.get(field)
            parts = [sampled.values.get(need) for need in _NEEDS.get(field, ())]
            known = [float(part) for part in parts if part is not None]
            if reason in (None, NO_DATA) and parts and len(known) == len(parts):
                found.values[field] = round(sum(known) / _BYTES_PER_MB)
            elif field in counted.values:
                found.values[field] = counted.values[field]
            else:
                found.absent[field] = reason or NO_DATA
        return found

    def close(self) -> None:
        """Free the sources' library objects."""
        self._gpm.close()
        self._counters.close()
