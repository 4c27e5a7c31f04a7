"""How a collector streams its agents to other replicas, and its metrics about these replicas."""

import asyncio
from collections import Counter

from aiohttp import web

from gpuscale.base.exposition.families import Family
from gpuscale.server.metricsapi.telemetry.own_metrics import family
from gpuscale.server.sources.feeds.collector import FeedCollector
from gpuscale.server.sources.feeds.sharing_relay import Reader, Relay
from gpuscale.server.sources.feeds.sharing_settings import PATH

_RENEWAL_S = 45.0
"""How long an answer is; the metrics API ends longer ones, and looks at permissions with each request."""
_SHOWN = 3
_MAX_READERS = 64
_STATES = ("connecting", "up", "down", "self")


def add_peer_route(app: web.Application, relay: Relay) -> None:
    """Serve other replicas the stream of the agents that this replica follows."""

    async def answer(request: web.Request) -> web.StreamResponse:
        if relay.readers >= _MAX_READERS:
            raise web.HTTPServiceUnavailable(text=f"too many replicas, expected {_MAX_READERS}")
        response = web.StreamResponse(headers={"Content-Type": "application/x-ndjson"})
        await response.prepare(request)
        reader = relay.open()
        try:
            await _write(response, reader)
            await response.write_eof()
        except ConnectionError:
            pass  # the other replica has gone, or was too slow
        finally:
            relay.close(reader)
        return response

    app.router.add_get(PATH, answer)


async def _write(response: web.StreamResponse, reader: Reader) -> None:
    try:
        async with asyncio.timeout(_RENEWAL_S):
            while not reader.is_ended:
                await reader.ready.wait()
                await response.write(reader.taken())
    except TimeoutError:
        await response.write(reader.taken() + b"- renew\n")


def peer_families(feeds: FeedCollector) -> tuple[Family, ...]:
    """Return metrics of the other replicas and of who follows which agent; none for a single replica."""
    if feeds.sharing is None:
        return ()
    own, taken_over, delivered = feeds.sharing.counts()
    found: Counter[str] = Counter(link.state for link in feeds.sharing.links)
    return (
        family(
            "peers",
            "gauge",
            "Addresses of replicas that share the agents, by state.",
            {(("state", state),): found[state] for state in _STATES},
        ),
        family("peer_agents_own", "gauge", "Agents of this replica's own part.", {(): own}),
        family(
            "peer_agents_taken_over",
            "gauge",
            "Agents that are followed here because the replica that should does not deliver them.",
            {(): taken_over},
        ),
        family(
            "peer_agents_delivered",
            "gauge",
            "Agents that other replicas deliver.",
            {(): delivered},
        ),
    )


def peer_remark(feeds: FeedCollector) -> str:
    """Return in words how many other replicas answer and deliver; empty for a single replica."""
    if feeds.sharing is None:
        return ""
    _, taken_over, delivered = feeds.sharing.counts()
    others = [link for link in feeds.sharing.links if link.state != "self"]
    words = [
        f"{sum(link.state == 'up' for link in others)} of {len(others)} other replicas answer",
        f"they deliver {delivered} agents",
    ]
    if taken_over:
        words.append(f"{taken_over} agents are taken over")
    faults = [f"{link.url}: {link.error}" for link in others if link.error is not None]
    return "; ".join((*words, *faults[:_SHOWN]))
