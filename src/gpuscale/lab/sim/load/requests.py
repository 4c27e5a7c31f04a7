"""Series of services' requests, as a gateway would expose them, even without a pod.

The names say that the simulator makes them; a gateway's own are others.
"""

from collections.abc import Callable, Mapping

from gpuscale.base.exposition.families import Family, Sample
from gpuscale.base.exposition.write import render_text
from gpuscale.lab.sim.load.service import SimulatedService
from gpuscale.series.scraping import ScrapeTarget
from gpuscale.series.storage import SeriesStore

WAITING = "gpuscale_simulated_requests_waiting"
RUNNING = "gpuscale_simulated_requests_running"
TOTAL = "gpuscale_simulated_requests_total"
SERVED = "gpuscale_simulated_requests_served_total"
SERIES = frozenset({WAITING, RUNNING, TOTAL, SERVED})
_LABELS = {"job": "gpuscale-simulated-requests", "instance": "gpuscale-simulated-requests"}
_ALMOST = 1e-9
"""What rounding may have taken from a whole request."""


def request_families(services: Mapping[str, SimulatedService]) -> tuple[Family, ...]:
    """Return each Deployment's waiting, running, arrived and served requests.

    Args:
        services: Deployment key to its requests.
    """

    def samples(count: Callable[[SimulatedService], float]) -> tuple[Sample, ...]:
        found: list[Sample] = []
        for key, service in services.items():
            namespace, _, name = key.partition("/")
            labels = (("namespace", namespace), ("deployment", name))
            found.append(Sample(labels, int(count(service) + _ALMOST)))
        return tuple(found)

    return (
        Family(
            WAITING, "gauge", "Requests that no pod works on yet.", samples(lambda s: s.waiting)
        ),
        Family(RUNNING, "gauge", "Requests that pods work on.", samples(lambda s: s.in_service)),
        Family(TOTAL, "counter", "Requests that have come.", samples(lambda s: s.arrived)),
        Family(SERVED, "counter", "Requests that were answered.", samples(lambda s: s.served)),
    )


class RequestTarget:
    """The request series of all services, written to a store.

    Args:
        store: where samples go.
    """

    def __init__(self, store: SeriesStore) -> None:
        self._target = ScrapeTarget(store, _LABELS, honor_labels=True)

    def scrape(self, services: Mapping[str, SimulatedService], now_ms: int) -> None:
        """Store the services' current samples."""
        self._target.ingest(render_text(request_families(services)), now_ms)
