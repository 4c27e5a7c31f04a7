"""Remote write to a real Prometheus: equal values come back, ends are ends, outages cost nothing."""

import asyncio
import math
import os
import signal
import sys
import time
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from gpuscale.base.clock import WallClock
from gpuscale.series.remote_write.relabelling import RelabelRule
from gpuscale.series.storage import compression
from gpuscale.series.storage.store import SeriesStore
from gpuscale.server.sources.remote_write.sender import RemoteWriter
from gpuscale.server.sources.remote_write.settings import RemoteWriteEndpoint
from gpuscale.testing.prometheus import free_port, serve

pytestmark = [pytest.mark.prometheus, pytest.mark.timeout(180)]
SPECIAL = (1.5, -0.0, math.inf, -math.inf, 5e-324, 1.7976931348623157e308, 0.1 + 0.2)


@asynccontextmanager
async def writing(store, url, **settings):
    endpoint = RemoteWriteEndpoint(f"{url}/api/v1/write", interval_s=0.1, **settings)
    writer = RemoteWriter(store, endpoint, WallClock())
    running = asyncio.create_task(writer.run())
    try:
        yield writer
    finally:
        running.cancel()
        await writer.close()


async def written(writer, count, limit_s=60) -> None:
    """Wait until so many samples have arrived."""
    async with asyncio.timeout(limit_s):
        while writer.state.sent < count:  # noqa: ASYNC110 - the state has no event
            await asyncio.sleep(0.02)


async def raw(prometheus, selector, at_s):
    """Return the samples of each series in the ten minutes before a time."""
    answer = await asyncio.to_thread(
        prometheus.get, "/api/v1/query", query=f"{selector}[10m]", time=at_s
    )
    assert answer["status"] == "success", answer
    return {
        tuple(sorted(each["metric"].items())): [
            (round(at * 1000), float(value)) for at, value in each["values"]
        ]
        for each in answer["data"]["result"]
    }


@pytest.mark.parametrize("has_cramjam", [True, False])
async def test_equal_values_come_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_cramjam: bool
) -> None:
    if not has_cramjam:
        monkeypatch.setattr(compression, "_has_cramjam", lambda: False)
    store = SeriesStore()
    now_ms = time.time_ns() // 1_000_000 - 30_000
    refs = [store.ref({"__name__": "x", "i": str(i), "text": 'ü"\\\n'}) for i in range(300)]
    with serve([], tmp_path) as prometheus:
        async with writing(store, prometheus.url, max_samples=500) as writer:
            expected = {i: [] for i in range(300)}
            for step, value in enumerate(SPECIAL):
                t_ms = now_ms + step * 1000
                values = [value + i if value == 1.5 else value for i in range(300)]
                store.append_many(refs, values, t_ms)
                for i in range(300):
                    expected[i].append((t_ms, values[i]))
                await asyncio.sleep(0.02)
            ended_ms = now_ms + 10_000
            store.mark_stale(refs[7], ended_ms)
            await written(writer, 300 * len(SPECIAL) + 1)
            assert (writer.state.failed, writer.state.fault) == (0, None)
        found = await raw(prometheus, "x", (now_ms + 20_000) / 1000)
        assert {int(dict(labels)["i"]): samples for labels, samples in found.items()} == expected
        assert {dict(labels)["text"] for labels in found} == {'ü"\\\n'}
        # Just after the marker the series has ended for Prometheus too, and before it had not.
        for at_ms, count in ((ended_ms - 1, 300), (ended_ms, 299)):
            answer = await asyncio.to_thread(
                prometheus.get, "/api/v1/query", query="count(x)", time=at_ms / 1000
            )
            assert answer["data"]["result"][0]["value"][1] == str(count)


async def test_an_outage_of_a_minute_loses_nothing(tmp_path: Path) -> None:
    store = SeriesStore()
    start_ms = time.time_ns() // 1_000_000 - 120_000
    refs = [store.ref({"__name__": "x", "i": str(i)}) for i in range(200)]
    port = free_port()

    def append(steps) -> None:
        for step in steps:
            store.append_many(refs, [step] * len(refs), start_ms + step * 1000)

    with serve([], tmp_path, port) as prometheus:
        settings = {"max_samples": 500, "max_backoff_s": 0.2}
        async with writing(store, prometheus.url, **settings) as writer:
            append(range(20))
            await written(writer, 20 * 200)
            # The server is gone; a minute of samples comes meanwhile, in a second of real time.
            prometheus.close()
            os.kill(prometheus.pid, signal.SIGKILL)
            for step in range(20, 80):
                append([step])
                await asyncio.sleep(0.02)
            assert writer.state.fault is not None
            assert writer.state.pending <= 500 * (writer.endpoint.requests + 1)
            with serve([], tmp_path, port) as other:
                append(range(80, 100))
                await written(writer, 100 * 200)
                assert (writer.state.failed, writer.state.fault) == (0, None)
                found = await raw(other, "x", (start_ms + 100_000) / 1000)
    assert len(found) == 200
    for samples in found.values():
        assert samples == [(start_ms + step * 1000, step) for step in range(100)]


async def test_relabelling_and_external_labels(tmp_path: Path) -> None:
    store = SeriesStore()
    rules = (
        RelabelRule("drop", ("__name__",), regex="internal_.*"),
        RelabelRule("replace", ("pod",), regex="(.*)-[^-]+", target_label="workload"),
        RelabelRule("labeldrop", regex="pod"),
    )
    now_ms = time.time_ns() // 1_000_000
    with serve([], tmp_path) as prometheus:
        external = (("cluster", "a"),)
        settings = {"rules": rules, "external_labels": external}
        async with writing(store, prometheus.url, **settings) as writer:
            store.append({"__name__": "x", "pod": "bert-1"}, now_ms, 1)
            store.append({"__name__": "internal_x", "pod": "bert-1"}, now_ms, 1)
            await written(writer, 1)
        found = await raw(prometheus, '{__name__!=""}', now_ms / 1000 + 1)
    assert set(found) == {(("__name__", "x"), ("cluster", "a"), ("workload", "bert"))}


async def test_a_run_on_a_laptop_can_be_looked_at_later(tmp_path: Path) -> None:
    with serve([], tmp_path) as prometheus:
        began_s = time.time()
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "gpuscale.cli.main", "up", "--port", "0", "--speed", "20"),
            *("--for", "8s", "--remote-write-url", f"{prometheus.url}/api/v1/write"),
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
        )
        _, said = await process.communicate()
        assert (process.returncode, said) == (0, b"")
        found = await raw(prometheus, "DCGM_FI_DEV_GPU_UTIL", time.time())
    times_ms = {t_ms for samples in found.values() for t_ms, _ in samples}
    # Eight seconds at 20 times real time, scraped every 15 s of the scenario: a sample each 750 ms.
    assert len(times_ms) > 3
    assert began_s * 1000 < min(times_ms) < max(times_ms) < time.time() * 1000
