"""What a virtual run has to store: only the series that its rules can ever ask for.

A live node agent serves everything; in virtual time nothing else looks, and days have to pass in seconds.
"""

from dataclasses import dataclass

from gpuscale.formats.ack import ACK_FIELDS
from gpuscale.gpu.counters import Counter
from gpuscale.rules.catalogue import needed_metric_names
from gpuscale.sim.scenario.setup import Setup

UTILIZATION = "DCGM_FI_DEV_GPU_UTIL"


@dataclass(frozen=True, slots=True)
class Needs:
    """The names of the series worth storing."""

    names: frozenset[str] | None
    """None: any, because some rule does not name its series outright."""

    def counters(self, counters: tuple[Counter, ...]) -> tuple[Counter, ...]:
        """Return the counters worth serving."""
        if self.names is None:
            return counters
        return tuple(item for item in counters if item.field in self.names)

    def fields(self, counters: tuple[Counter, ...]) -> frozenset[str]:
        """Return the fields worth reading: those of the counters, and what the records show."""
        return (
            frozenset({item.field for item in self.counters(counters)}) | ACK_FIELDS | {UTILIZATION}
        )


def needs_of(setup: Setup) -> Needs:
    """Return what the rules of a scenario can ask for."""
    names = needed_metric_names(setup.rules)
    read = setup.prometheus_rules.needed_metric_names()
    return Needs(None if names is None or read is None else names | read)
