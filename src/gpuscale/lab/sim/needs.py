"""Which series of a scenario are worth storing: those that its rules and triggers can read."""

from dataclasses import dataclass
from itertools import chain

from gpuscale.agent.formats import ACK_FIELDS
from gpuscale.base.errors import QueryError
from gpuscale.lab.sim.load.requests import SERIES as REQUESTS
from gpuscale.lab.sim.scenario.setup import Setup
from gpuscale.series.promql import metric_names, parse_query
from gpuscale.server.rules import needed_metric_names
from gpuscale.signals import Counter
from gpuscale.triggers.keda import queries_of, trigger_queries

UTILIZATION = "DCGM_FI_DEV_GPU_UTIL"


@dataclass(frozen=True, slots=True)
class Needs:
    """The names of the series worth storing."""

    names: frozenset[str] | None
    """None: any, because some rule does not name its series outright."""

    def requests(self) -> bool:
        """Return whether the services' request series are worth storing."""
        return self.any_of(REQUESTS)

    def any_of(self, names: frozenset[str]) -> bool:
        """Return whether any of these series is worth storing."""
        return self.names is None or bool(self.names & names)

    def counters(self, counters: tuple[Counter, ...]) -> tuple[Counter, ...]:
        if self.names is None:
            return counters
        return tuple(item for item in counters if item.name in self.names)

    def fields(self, counters: tuple[Counter, ...]) -> frozenset[str]:
        """Return the fields worth reading: those of the counters, and those shown in the document."""
        return (
            frozenset({item.field for item in self.counters(counters)}) | ACK_FIELDS | {UTILIZATION}
        )


def needs_of(setup: Setup) -> Needs:
    """Return the series that a scenario's rules can read."""
    names = needed_metric_names(setup.rules)
    read = setup.prometheus_rules.needed_metric_names()
    asked = _asked_by_triggers(setup)
    if names is None or read is None or asked is None:
        return Needs(None)
    return Needs(names | read | asked)


def _asked_by_triggers(setup: Setup) -> frozenset[str] | None:
    """Return the series that triggers can read; None if a trigger does not name them."""
    names: set[str] = set()
    for query in (
        *chain.from_iterable(map(queries_of, setup.scaled_objects)),
        *chain.from_iterable(map(trigger_queries, setup.triggers)),
    ):
        try:
            read = metric_names(parse_query(query))
        except QueryError:
            continue  # KEDA gets the error at each poll
        if read is None:
            return None
        names |= read
    return frozenset(names)
