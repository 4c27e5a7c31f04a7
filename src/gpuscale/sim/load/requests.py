"""The requests of services as series, as a gateway would expose them: they are there without a pod.

The names say that the simulator makes them; a gateway's own are others.
"""

from collections.abc import Mapping

from gpuscale.exposition.families import Family, Sample
from gpuscale.exposition.write import render_text
from gpuscale.series.scraping.scrape import ScrapeTarget
from gpuscale.series.storage.store import SeriesStore
from gpuscale.sim.load.service import Service

WAITING = "gpuscale_simulated_requests_waiting"
TOTAL = "gpuscale_simulated_requests_total"
SERIES = frozenset({WAITING, TOTAL})
_LABELS = {"job": "gpuscale-simulated-requests", "instance": "gpuscale-simulated-requests"}
_ALMOST = 1e-9
"""What rounding may have taken from a whole request."""


def request_families(services: Mapping[str, Service]) -> tuple[Family, ...]:
    """Return how many requests wait at each Deployment, and how many have come.

    Args:
        services: Deployment key to its requests.
    """
    waiting: list[Sample] = []
    total: list[Sample] = []
    for key, service in services.items():
        namespace, _, name = key.partition("/")
        labels = (("namespace", namespace), ("deployment", name))
        waiting.append(Sample(labels, int(service.waiting + _ALMOST)))
        total.append(Sample(labels, int(service.arrived + _ALMOST)))
    return (
        Family(WAITING, "gauge", "Requests that no pod works on yet.", tuple(waiting)),
        Family(TOTAL, "counter", "Requests that have come.", tuple(total)),
    )


class RequestTarget:
    """The series of all services in a store.

    Args:
        store: where samples go.
    """

    def __init__(self, store: SeriesStore) -> None:
        self._target = ScrapeTarget(store, _LABELS, honor_labels=True)

    def scrape(self, services: Mapping[str, Service], now_ms: int) -> None:
        """Take in the services as they are now."""
        self._target.ingest(render_text(request_families(services)), now_ms)
