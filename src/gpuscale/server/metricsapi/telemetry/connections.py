"""Metrics of connections and of the event loop."""

import asyncio
from collections.abc import Callable, Mapping

from gpuscale.base.exposition.families import Family
from gpuscale.server.metricsapi.connections.counted_log import CountedLog
from gpuscale.server.metricsapi.connections.lobby import SWEEP_S
from gpuscale.server.metricsapi.connections.port import Port
from gpuscale.server.metricsapi.telemetry.histograms import Histogram, histograms
from gpuscale.server.metricsapi.telemetry.own_metrics import PREFIX, family


class LoopLag:
    """Measures how late the event loop runs scheduled work: each request waits as long."""

    def __init__(self) -> None:
        self._lags = Histogram()

    async def run(self, each_second: Callable[[], None]) -> None:
        """Measure until cancelled; the same timer runs the tasks that are due each second."""
        loop = asyncio.get_running_loop()
        while True:
            due = loop.time() + SWEEP_S
            await asyncio.sleep(SWEEP_S)
            self._lags.add(max(0.0, loop.time() - due))
            each_second()

    def families(self) -> tuple[Family, ...]:
        name = f"{PREFIX}_event_loop_lag_seconds"
        return (histograms(name, "How late the event loop runs scheduled work.", {(): self._lags}),)


def connection_families(ports: Mapping[str, Port], malformed: CountedLog) -> tuple[Family, ...]:
    """Return the open connections of each port, and counts of those closed or refused by reason."""
    lobbies = {name: port.lobby for name, port in ports.items()}
    return (
        family(
            "connections",
            "gauge",
            "Open connections by port and by what they wait for.",
            {
                (("port", name), ("state", state)): count
                for name, lobby in lobbies.items()
                for state, count in lobby.states().items()
            },
        ),
        family(
            "front_proxy_connections",
            "gauge",
            "Open connections that showed the certificate of a front proxy.",
            {(("port", name),): lobby.proxy_count for name, lobby in lobbies.items()},
        ),
        family(
            "connections_accepted_total",
            "counter",
            "Connections that were accepted.",
            {(("port", name),): lobby.accepted for name, lobby in lobbies.items()},
        ),
        family(
            "connections_closed_total",
            "counter",
            "Connections that were closed or refused, by reason.",
            {
                (("port", name), ("reason", reason)): count
                for name, lobby in lobbies.items()
                for reason, count in lobby.closed.items()
            },
        ),
        family(
            "unsent_bytes",
            "gauge",
            "Bytes of answers that clients have not taken yet.",
            {(("port", name),): lobby.unsent_bytes for name, lobby in lobbies.items()},
        ),
        family(
            "malformed_requests_total",
            "counter",
            "Requests that were no HTTP.",
            {(): malformed.count},
        ),
    )
