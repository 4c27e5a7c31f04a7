"""What keeping samples costs: saving, reading them back at a start, and remote write beside Prometheus' own.

Times are CPU seconds of the process that does the work, threads included: wall-clock times say little on a
machine that others use too. Prometheus' remote write is the difference of two runs, with it and without.
"""

import argparse
import asyncio
import json
import multiprocessing
import os
import random
import shutil
import subprocess
import tempfile
import time
from collections.abc import Sequence
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any

from aiohttp import web

from gpuscale.base.clock import ManualClock, WallClock
from gpuscale.series.scraping.scrape import ScrapeTarget
from gpuscale.series.storage.store import SeriesStore
from gpuscale.server.sources.remote_write.sender import RemoteWriter
from gpuscale.server.sources.remote_write.settings import RemoteWriteEndpoint
from gpuscale.server.sources.saving.saver import StoreSaver
from gpuscale.server.sources.saving.settings import SavingSettings
from gpuscale.testing.prometheus import free_port

RESULT = Path(__file__).parent / "results" / "durable.json"
NOW_MS = 1_700_000_000_000
PER_TARGET = 200
RESTART_SERIES = (1_000, 10_000, 50_000, 200_000)
RESTART_SAMPLES = 60
"""Of each series: 15 minutes at 15 s."""
GIB = 1024**3
Figures = dict[str, int | float | None]


def heads(target: int, count: int = PER_TARGET) -> list[str]:
    """Return the names of a node agent's series, eight GPUs of 25 metrics."""
    return [
        f'DCGM_FI_DEV_{i % 25}{{gpu="{i // 25}",UUID="GPU-{target:08x}-{i // 25:04x}-aaaa-bbbb-cccccccccccc",'
        f'Hostname="node-{target}",namespace="team-{target % 10}",pod="inference-{target}-{i // 25}"}}'
        for i in range(count)
    ]


class Exposed:
    """The text of one target, of which a third of the values change from one scrape to the next."""

    def __init__(self, target: int) -> None:
        self._chance = random.Random(target)
        self._heads = heads(target)
        self._values = [round(self._chance.uniform(0, 100), 1) for _ in self._heads]

    def text(self) -> str:
        chance = self._chance
        for place in range(len(self._values)):
            if chance.random() < 0.3:
                self._values[place] = round(chance.uniform(0, 100), 1)
        pairs = zip(self._heads, self._values, strict=True)
        return "".join(f"{head} {value}\n" for head, value in pairs)


def targets_of(store: SeriesStore, count: int) -> list[ScrapeTarget]:
    return [
        ScrapeTarget(store, {"job": "agents", "instance": f"10.0.{i // 250}.{i % 250}:9400"})
        for i in range(count)
    ]


async def saving(targets: int = 200, ticks: int = 25) -> Figures:
    """Scrape targets each second, save every five, and compare the CPU time of both."""
    exposed = [Exposed(i) for i in range(targets)]
    clock = ManualClock(NOW_MS)
    store = SeriesStore(900_000)
    scraped = targets_of(store, targets)
    ingest_s = save_s = begin_s = 0.0
    samples = before = 0
    with tempfile.TemporaryDirectory() as folder:
        saver = StoreSaver(store, SavingSettings(Path(folder), GIB), clock)
        await saver.open()
        for tick in range(ticks + 2):
            clock.advance(1)
            texts = [each.text() for each in exposed]
            began = time.process_time()
            for target, text in zip(scraped, texts, strict=True):
                samples += target.ingest(text, clock.now_ms()).added
            took = time.process_time() - began
            if tick < 2:
                samples = 0  # The first scrapes take the names apart.
            else:
                ingest_s += took
            if tick % 5 == 1:
                began = time.process_time()
                assert await saver.save()
                took = time.process_time() - began
                if tick < 2:
                    begin_s, before = took, saver.state.written_bytes
                else:
                    save_s += took
        written = saver.state.written_bytes - before
        await saver.close()
    return {
        "series": targets * PER_TARGET,
        "samples": samples,
        "ingest_ns_per_sample": round(ingest_s * 1e9 / samples),
        "save_ns_per_sample": round(save_s * 1e9 / samples, 1),
        "save_share_of_ingest": round(save_s / ingest_s, 4),
        "bytes_per_sample": round(written / samples, 2),
        "bytes_per_second_of_200000_series_at_1_s": round(written / samples * 200_000),
        "first_save_with_names_us_per_series": round(begin_s * 1e6 / (targets * PER_TARGET), 2),
        "first_save_bytes_per_series": round(before / (targets * PER_TARGET), 1),
        "lost_by_sigkill_s_at_most": SavingSettings(Path()).interval_s,
    }


async def restart(series: int) -> Figures:
    """Save a store, and read it back."""
    targets = series // PER_TARGET
    clock = ManualClock(NOW_MS)
    chance = random.Random(1)
    with tempfile.TemporaryDirectory() as folder:
        settings = SavingSettings(Path(folder), GIB)
        store = SeriesStore(900_000, max_series=300_000)
        saver = StoreSaver(store, settings, clock)
        await saver.open()
        scraped = targets_of(store, targets)
        groups = []
        for number, target in enumerate(scraped):
            target.ingest("".join(f"{head} 1\n" for head in heads(number)), clock.now_ms())
            groups.append(target)
        refs = [(group, list(group.members)) for each in groups if (group := each._group)]
        values = [round(chance.uniform(0, 100), 1) for _ in range(PER_TARGET)]
        for tick in range(RESTART_SAMPLES - 1):
            clock.advance(15)
            for group, members in refs:
                values[chance.randrange(PER_TARGET)] = round(chance.uniform(0, 100), 1)
                store.append_many(members, values, clock.now_ms(), group=group)
            if tick % 4 == 3:
                assert await saver.save()
                saver._begun_s -= 60  # so that segments are as long as in real time
        await saver.close()
        again = SeriesStore(900_000, max_series=300_000)
        other = StoreSaver(again, settings, clock)
        began = time.process_time()
        await other.open()
        cpu_s = time.process_time() - began
        await other.close()
        assert again.stats().series == store.stats().series
        began = time.process_time()
        back = targets_of(again, targets)
        for number, target in enumerate(back[:50]):
            target.ingest("".join(f"{head} 1\n" for head in heads(number)), clock.now_ms() + 1)
        first_s = (time.process_time() - began) * targets / min(50, targets)
        return {
            "series": series,
            "samples": other.state.restored_samples,
            "files_bytes": other.state.disk_bytes,
            "cpu_s": round(cpu_s, 2),
            "samples_per_cpu_s": round(other.state.restored_samples / cpu_s),
            "first_scrapes_after_it_cpu_s": round(first_s, 2),
        }


def sink(port: int, ready: Event) -> None:
    """Take remote writes, and serve texts to a Prometheus, in a process of its own."""
    exposed = [Exposed(i) for i in range(100)]
    texts = ["".join(each.text() for each in exposed).encode() for _ in range(5)]
    served = [0]

    async def write(request: web.Request) -> web.Response:
        await request.read()
        return web.Response(status=204)

    async def metrics(_request: web.Request) -> web.Response:
        served[0] += 1
        return web.Response(body=texts[served[0] % 5], headers={"Content-Type": "text/plain"})

    async def main() -> None:
        app = web.Application(client_max_size=1 << 28)
        app.router.add_post("/api/v1/write", write)
        app.router.add_get("/metrics", metrics)
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", port).start()
        ready.set()
        await asyncio.Event().wait()

    asyncio.run(main())


async def remote_write(url: str, targets: int = 200, rounds: int = 5, rows: int = 1) -> Figures:
    """Return samples a CPU second, encoding, compression, HTTP and waiting included."""
    store = SeriesStore(900_000)
    clock = WallClock()
    scraped = targets_of(store, targets)
    now_ms = clock.now_ms() - 60_000
    for number, target in enumerate(scraped):
        target.ingest("".join(f"{head} 1\n" for head in heads(number)), now_ms)
    writer = RemoteWriter(store, RemoteWriteEndpoint(url), clock)
    await writer.send_new()
    writer.state.sent = writer.state.sent_bytes = 0
    refs = [(group, list(group.members)) for each in scraped if (group := each._group)]
    chance = random.Random(1)
    cpu_s = 0.0
    for _ in range(rounds):
        for _ in range(rows):
            now_ms += 1000
            values = [round(chance.uniform(0, 100), 1) for _ in range(PER_TARGET)]
            for group, members in refs:
                store.append_many(members, values, now_ms, group=group)
        began = time.process_time()
        await writer.send_new()
        cpu_s += time.process_time() - began
    await writer.close()
    return {
        "samples_per_request_and_series": rows,
        "samples": writer.state.sent,
        "samples_per_cpu_s": round(writer.state.sent / cpu_s),
        "us_per_sample": round(cpu_s * 1e6 / writer.state.sent, 2),
        "bytes_per_sample": round(writer.state.sent_bytes / writer.state.sent, 1),
    }


def prometheus_remote_write(port: int, seconds: int = 30) -> Figures | None:
    """Return the CPU time of Prometheus' remote write a sample: a run with it less one without."""
    if shutil.which("prometheus") is None:
        return None
    cpu = {}
    sent = 0.0
    for is_on in (False, True):
        with tempfile.TemporaryDirectory() as folder:
            own = free_port()
            text = (
                "global: {scrape_interval: 1s}\nscrape_configs:\n- job_name: agents\n"
                f"  static_configs: [{{targets: ['127.0.0.1:{port}']}}]\n"
            )
            if is_on:
                text += f"remote_write:\n- url: http://127.0.0.1:{port}/api/v1/write\n"
            Path(folder, "prometheus.yml").write_text(text)
            process = subprocess.Popen(
                [
                    "prometheus",
                    f"--config.file={folder}/prometheus.yml",
                    f"--storage.tsdb.path={folder}/data",
                    f"--web.listen-address=127.0.0.1:{own}",
                ],
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            try:
                time.sleep(8)
                cpu_before, sent_before = _cpu_s(process.pid), _sent(own) if is_on else 0
                time.sleep(seconds)
                cpu[is_on] = _cpu_s(process.pid) - cpu_before
                sent = _sent(own) - sent_before if is_on else 0
            finally:
                process.terminate()
                process.wait()
    used_s = cpu[True] - cpu[False]
    return {
        "samples": sent,
        "cpu_s_without": round(cpu[False], 2),
        "cpu_s_with": round(cpu[True], 2),
        "samples_per_cpu_s": round(sent / used_s) if used_s > 0 else None,
        "us_per_sample": round(used_s * 1e6 / sent, 2),
    }


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _sent(port: int) -> float:
    from urllib.request import urlopen

    with urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
        lines = answer.read().decode().splitlines()
    name = "prometheus_remote_storage_samples_total"
    return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(name))


async def measure(only: Sequence[str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if "saving" in only:
        found["saving"] = await saving()
    if "restart" in only:
        found["restart"] = [await restart(series) for series in RESTART_SERIES]
    if "remote_write" in only:
        port, ready = free_port(), multiprocessing.get_context("spawn").Event()
        process = multiprocessing.get_context("spawn").Process(target=sink, args=(port, ready))
        process.start()
        try:
            await asyncio.to_thread(ready.wait)
            url = f"http://127.0.0.1:{port}/api/v1/write"
            found["remote_write"] = {
                "gpuscale": [await remote_write(url, rows=rows) for rows in (1, 5)],
                "prometheus": await asyncio.to_thread(prometheus_remote_write, port),
            }
        finally:
            process.terminate()
            process.join()
    return found


def main() -> None:
    parts = ["saving", "restart", "remote_write"]
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=parts, action="append")
    only = parser.parse_args().only or parts
    found = asyncio.run(measure(only))
    print(json.dumps(found, indent=2))
    if only == parts:
        RESULT.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
