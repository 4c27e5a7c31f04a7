"""A collector process in real time, beside agents and pods that come and go: flat memory, and no wrong value.

    python benchmarks/soak_live.py --minutes 30

Forty agents stream at 200 ms and are replaced again and again, half of them without a last word; ten targets
are scraped whose pods come and go; two bring new names with every scrape; one closes in the midst of its
answer. The collector is the process that `gpuscale metrics-api --source streams` starts. Every value says
when it was made, so each answer is right, missing, or refused with a reason. Exits with 1 if one is wrong, or
if the collector's memory grew by more than 5 % from the second quarter of the run to its second half.
"""

import argparse
import asyncio
import contextlib
import json
import logging
import os
import sys
import time
from collections import Counter
from dataclasses import dataclass

import aiohttp
from aiohttp import web

import harness
from bench_exporter import children, resident_mib
from gpuscale.base.clock import WallClock
from gpuscale.server.metricsapi.collector.process import CollectorProcess
from gpuscale.server.sources.feeds.messages import CollectorSettings
from gpuscale.server.sources.feeds.settings import FeedSettings
from gpuscale.server.sources.feeds.targets import static_agent, static_scrape

AGENTS = 40
GPUS = 8
METRICS = 20
"""Of a GPU; every second one changes with each line."""
LINE_S = 0.2
LIFE_S = 75.0
"""Of an agent; those of all agents begin at different times."""
SCRAPED = 10
PODS = 100
POD_LIFE_S = 45.0
FLOODING = 2
FLOOD_NAMES = 300
SCRAPE_S = 5.0
CHECK_S = 5.0
MOST_GROWTH = 1.05
GRACE_S = 5.0
"""How long the collector keeps series of an agent that is gone."""
EPOCH_S = 1_700_000_000.0
"""Values are seconds since then, so that they have digits to spare."""

WRONG = {
    # A value that changes with each line was made when its sample says.
    "streamed value": f"abs(timestamp(m0) - {EPOCH_S} - m0) > 0.002",
    "streamed age": f"time() - timestamp(m0) > {GRACE_S + 3}",
    "scraped value": f"abs(timestamp(util) - {EPOCH_S} - util) > 2",
    "scraped age": f"time() - timestamp(util) > {2 * SCRAPE_S + 2}",
    # From the first sample of a minute to the last, a value rises by as much as time does.
    "streamed range": (
        "abs(last_over_time(m0[1m]) - first_over_time(m0[1m])"
        " - ts_of_last_over_time(m0[1m]) + ts_of_first_over_time(m0[1m])) > 0.004"
    ),
    # Whatever has samples for nearly all of a minute rose by 60 in it, or by 600.
    "streamed rise": "abs(delta(m0[1m]) - 60) > 5 and count_over_time(m0[1m]) > 58",
    "scraped range": "abs(increase(steady_total[1m]) - 600) > 30 and count_over_time(steady_total[1m]) > 11",
    # Prometheus' own way to say how many there are; some may be between two lives.
    "too many": f"count(m0) > {AGENTS * GPUS} + {GPUS} * 8",
    "too few": f"count(m0) < {AGENTS * GPUS} - {GPUS} * 8",
    "too many pods": f"count(util) > {SCRAPED * PODS}",
}
"""What has an answer only if something is wrong."""


@dataclass(slots=True)
class Outcome:
    """What was seen so far."""

    counts: Counter[str]
    faults: list[str]
    held: list[float]
    """Memory of the collector in MiB, once a check."""


def seconds() -> float:
    """Return what all values are."""
    return time.time() - EPOCH_S


async def stream(request: web.Request) -> web.StreamResponse:
    """Be an agent until its life is over."""
    place = int(request.host.split(":")[0].rpartition(".")[2])
    offset_s = place * LIFE_S / AGENTS
    life = int((time.time() + offset_s) // LIFE_S)
    ends_s = (life + 1) * LIFE_S - offset_s
    response = web.StreamResponse(headers={"Content-Type": "application/x-ndjson"})
    await response.prepare(request)
    names = [(gpu, metric) for gpu in range(GPUS) for metric in range(METRICS)]
    ids = {name: str(number) for number, name in enumerate(names)}
    message: dict[str, object] = {
        "kind": "snapshot",
        "version": 1,
        "series": [
            [int(ids[gpu, metric]), f"m{metric}", {"gpu": str(gpu), "pod": f"p{life}-{gpu}"}, 0]
            for gpu, metric in names
        ],
    }
    changing = [ids[gpu, metric] for gpu, metric in names if metric % 2 == 0]
    while (now_s := time.time()) < ends_s:
        now_ms = int(now_s * 1000)
        value = round(now_ms / 1000 - EPOCH_S, 3)
        message["ms"] = now_ms
        if message["kind"] == "snapshot":
            for entry in message["series"]:  # type: ignore[attr-defined]
                entry[3] = value
        else:
            message["values"] = dict.fromkeys(changing, value)
        try:
            await response.write(json.dumps(message).encode() + b"\n")
        except ConnectionError:
            break
        message = {"kind": "change"}
        await asyncio.sleep(LINE_S - time.time() % LINE_S)
    if place % 2:
        with contextlib.suppress(ConnectionError):
            await response.write(b'{"kind":"end","reason":"stopping"}\n')
    elif request.transport is not None:
        request.transport.abort()
    return response


async def metrics(request: web.Request) -> web.Response:
    """Be a target that is scraped."""
    place = int(request.host.split(":")[0].rpartition(".")[2]) - 100
    now = seconds()
    if place >= SCRAPED:
        lines = [f'flood{{id="{now}-{number}"}} 1' for number in range(FLOOD_NAMES)]
    else:
        lives = [int((now + number * POD_LIFE_S / PODS) // POD_LIFE_S) for number in range(PODS)]
        lines = [f'util{{pod="p{number}-{life}"}} {now}' for number, life in enumerate(lives)]
        lines.append(f"steady_total {now * 10}")
    text = "\n".join(lines) + "\n"
    if place == 0 and int(now) % 60 < SCRAPE_S and request.transport is not None:
        request.transport.abort()
    return web.Response(text=text)


async def check(session: aiohttp.ClientSession, outcome: Outcome) -> None:
    """Ask what has no answer while all is well."""
    for name, query in WRONG.items():
        async with session.get("http://c/api/v1/query", params={"query": query}) as response:
            answer = await response.json()
        if answer["status"] != "success":
            refused = "were dropped" in answer.get("error", "")
            outcome.counts["refused" if refused else "error"] += 1
            if not refused:
                outcome.faults.append(f"{name}: {answer}")
        elif answer["data"]["result"]:
            outcome.counts["wrong"] += 1
            found = answer["data"]["result"]
            outcome.faults.append(f"{name}: {len(found)} series, such as {found[0]}")
        else:
            outcome.counts["right"] += 1
    async with session.get("http://c/api/v1/query", params={"query": "count(m0)"}) as response:
        outcome.counts["answers"] += len((await response.json())["data"]["result"])


async def soak(minutes: float, retention_s: float) -> Outcome:
    """Run, and return what was seen."""
    app = web.Application()
    app.router.add_get("/stream", stream)
    app.router.add_get("/metrics", metrics)
    runner = web.AppRunner(app, shutdown_timeout=1.0)
    await runner.setup()
    site = web.TCPSite(runner, "0.0.0.0", 0)
    await site.start()
    port = runner.addresses[0][1]
    feeds = FeedSettings(
        static=(
            *(static_agent(f"127.1.0.{place}:{port}") for place in range(AGENTS)),
            *(
                static_scrape(f"127.1.0.{100 + place}:{port}")
                for place in range(SCRAPED + FLOODING)
            ),
        ),
        scrape_interval_s=SCRAPE_S,
        retention_ms=round(retention_s * 1000),
        max_series=60_000,
        max_samples=int(retention_s * AGENTS * GPUS * METRICS * 1.5),
    )
    process = CollectorProcess(
        CollectorSettings(feeds, WallClock().origin, log_level=logging.ERROR)
    )
    task = asyncio.create_task(process.run())
    outcome = Outcome(Counter(), [], [])
    try:
        await process.ready(60)
        (pid,) = children(os.getpid())
        connector = aiohttp.UnixConnector(str(process.socket))
        async with aiohttp.ClientSession(connector=connector) as session:
            await asyncio.sleep(3 * SCRAPE_S)
            began = time.monotonic()
            while (elapsed_s := time.monotonic() - began) < minutes * 60:
                await check(session, outcome)
                outcome.held.append(resident_mib(pid))
                if len(outcome.held) % 12 == 0:
                    print(
                        f"{elapsed_s / 60:5.1f} min: {outcome.held[-1]:6.1f} MiB, "
                        f"{dict(outcome.counts)}",
                        flush=True,
                    )
                await asyncio.sleep(CHECK_S)
        if process.restarts:
            outcome.faults.append(f"the collector was started again {process.restarts} times")
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        await runner.cleanup()
    return outcome


def main() -> int:
    """Run; return an exit code."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--retention-s", type=float, default=180.0)
    options = parser.parse_args()
    outcome = asyncio.run(soak(options.minutes, options.retention_s))
    for fault in outcome.faults[:20]:
        print(fault, file=sys.stderr)
    growth = harness.growth(outcome.held)
    print(f"most memory in the second half, of the most in the second quarter: {growth:.3f}")
    return int(bool(outcome.faults) or growth > MOST_GROWTH)


if __name__ == "__main__":
    sys.exit(main())
