# mypy: disable-error-code="arg-type"
"""Where the values of a fleet come from: a real Prometheus, or an agent for each node, all in one process."""

import asyncio
import importlib.util
import json
import resource
import sys
import threading
import time
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path

from gpuscale.series.values import STALE
from gpuscale.testing import prometheus as prometheus_process
from gpuscale_testing.addresses import free_ports

sys.path.insert(0, str(Path(__file__).parent))
from fleet import GPUS_PER_NODE, SERIES

AGENTS = Path(__file__).parents[2] / "benchmarks" / "load" / "agents.py"
SCRAPE_S = 5.0
OTHER_FIELDS = tuple(f"DCGM_FI_DEV_OTHER_{number}" for number in range(9))
"""Of each GPU, too; no rule asks for them."""


def _agents():
    spec = importlib.util.spec_from_file_location("load_agents", AGENTS)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class InPrometheus:
    """Samples of all pods, written as often as they would be scraped. Series end with their pods."""

    name = "prometheus"

    def __init__(self, fleet, load, folder) -> None:
        self._fleet = fleet
        self._folder = folder
        self._load = load
        self._lock = threading.Lock()
        self._stop = threading.Event()

    @contextmanager
    def running(self):
        with prometheus_process.serve([], self._folder) as self._prometheus:
            self._prometheus.write(self._others())
            self.show(self._load)
            thread = threading.Thread(target=self._scrape, name="scrapes")
            thread.start()
            try:
                yield
            finally:
                self._stop.set()
                thread.join(30)

    @property
    def flags(self):
        return ()

    @property
    def url(self):
        return self._prometheus.url

    @property
    def pid(self):
        return self._prometheus.pid

    def show(self, load) -> None:
        """Give all pods the values of this load, and end the series of those that are gone."""
        with self._lock:
            before, self._load = self._load, load
            self._write(before.replicas)

    def _scrape(self) -> None:
        while not self._stop.wait(SCRAPE_S):
            with self._lock:
                self._write(self._load.replicas)

    def _write(self, replicas) -> None:
        now_ms, load = int(time.time() * 1000), self._load
        self._prometheus.write(
            (
                {"__name__": SERIES, **self._fleet.labels(app, replica)},
                now_ms,
                load.value(app, replica) if replica in load.replicas else STALE,
            )
            for app in self._fleet.apps
            for replica in replicas
        )

    def _others(self):
        now_ms = int(time.time() * 1000)
        for app in self._fleet.apps:
            for replica in self._load.replicas:
                labels = self._fleet.labels(app, replica)
                for name in OTHER_FIELDS:
                    yield {"__name__": name, **labels}, now_ms, 1.0


class InAgents:
    """An agent for each node, each with a stream of a line a second."""

    name = "streams"
    url = "http://127.0.0.1:1"
    """Of no Prometheus: nobody asks there."""
    pid = None

    def __init__(self, fleet, load, folder) -> None:
        self._fleet = fleet
        self._loads = [load] * fleet.nodes
        """What each agent has said last."""
        self._load = load
        (self._port,) = free_ports(1)
        self._loaded = _agents()

    @contextmanager
    def running(self):
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        started, ended = Future(), Future()

        def run() -> None:
            try:
                asyncio.run(self._serve(started))
            except BaseException as error:  # noqa: BLE001 - handed on to who waits
                (ended if started.done() else started).set_exception(error)
            else:
                ended.set_result(None)

        threading.Thread(target=run, name="agents", daemon=True).start()
        loop, stop = started.result(30)
        try:
            yield
        finally:
            loop.call_soon_threadsafe(stop.set)
            ended.result(30)
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

    @property
    def flags(self):
        hosts = map(self._loaded.address, range(self._fleet.nodes))
        return ("--source=streams", *(f"--agent={host}:{self._port}" for host in hosts))

    def show(self, load) -> None:
        """Have each agent say with its next line what this load is."""
        self._load = load

    async def _serve(self, started) -> None:
        count, stop = self._fleet.nodes, asyncio.Event()
        agents = self._loaded.Agents(self, count, 1.0)
        hosts = [self._loaded.address(number) for number in range(count)]
        async with await asyncio.start_server(agents.answer, hosts, self._port):
            ticking = asyncio.create_task(agents.tick())
            started.set_result((asyncio.get_running_loop(), stop))
            waiting = asyncio.create_task(stop.wait())
            await asyncio.wait({ticking, waiting}, return_when=asyncio.FIRST_COMPLETED)
            waiting.cancel()
            ticking.cancel()
            if not stop.is_set():
                await ticking

    # The lines of an agent, as `Agents` wants them.

    def snapshot(self, number, now_ms):
        load = self._loads[number]
        series = []
        for app, replica, gpu in self._fleet.on_node(number):
            if replica in load.replicas:
                labels = self._fleet.labels(app, replica)
                series.append([gpu, SERIES, labels, load.value(app, replica)])
                series += [
                    [_other_id(gpu, place), name, labels, 1]
                    for place, name in enumerate(OTHER_FIELDS)
                ]
        return _line({"kind": "snapshot", "version": 1, "ms": now_ms, "series": series})

    def change(self, number, tick, now_ms):
        before, load = self._loads[number], self._load
        self._loads[number] = load
        values, gone = {}, []
        for app, replica, gpu in self._fleet.on_node(number):
            if replica in load.replicas:
                values[str(gpu)] = load.value(app, replica)
                values[str(_other_id(gpu, tick % len(OTHER_FIELDS)))] = tick
            elif replica in before.replicas:
                gone += [gpu, *(_other_id(gpu, place) for place in range(len(OTHER_FIELDS)))]
        return _line({"kind": "change", "ms": now_ms, "values": values, "gone": gone})


def _other_id(gpu, place):
    return GPUS_PER_NODE * (place + 1) + gpu


def _line(message):
    return json.dumps(message, separators=(",", ":")).encode() + b"\n"
