"""Many node agents in one process, as far as a follower of their streams can see.

    python benchmarks/load/agents.py --template SNAPSHOT --count 1000 --port 9400

Agent n listens on an address of its own, 127.1.0.0 plus n, all on one port. Each begins with the snapshot of
a real agent, with its own host name, GPUs and pods, and sends a line every second in which half of the series
have new values, spread over the second as agents are that know nothing of each other. `/stats` on any of the
addresses says how many streams are open and how many lines were sent.
"""

import argparse
import asyncio
import ipaddress
import json
import random
import resource
import time
from pathlib import Path

FIRST_ADDRESS = int(ipaddress.IPv4Address("127.1.0.0"))
PODS_NAMESPACES = 20
_VARIANTS = 8
"""Different sets of changed values."""
_HEAD = (
    b"HTTP/1.1 200 OK\r\nContent-Type: application/x-ndjson\r\nTransfer-Encoding: chunked\r\n\r\n"
)
_NOT_FOUND = b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"
_SLOW_BYTES = 1 << 20


def address(number: int) -> str:
    """Return the address of an agent."""
    return str(ipaddress.IPv4Address(FIRST_ADDRESS + number))


class Template:
    """What all agents say, less what tells them apart.

    Args:
        snapshot: the first line of a real agent's stream.
        changing: the share of series with a new value each second.
    """

    def __init__(self, snapshot: bytes, changing: float) -> None:
        self.series = json.loads(snapshot)["series"]
        chosen = random.Random(1)
        ids = [entry[0] for entry in self.series]
        self.changes = []
        for _ in range(_VARIANTS):
            values = {
                str(id_): round(chosen.uniform(0, 100), 2)
                for id_ in chosen.sample(ids, int(changing * len(ids)))
            }
            self.changes.append(json.dumps(values, separators=(",", ":")))

    def snapshot(self, number: int, now_ms: int) -> bytes:
        """Return the first line of an agent."""
        series = []
        for id_, name, labels, value in self.series:
            gpu = labels.get("gpu", "0")
            own = {
                "Hostname": f"gpu-{number}",
                "UUID": f"GPU-{number:08x}-{gpu}",
                "namespace": f"team-{number % PODS_NAMESPACES}",
                "pod": f"web-{number}-{gpu}",
                "container": "model",
            }
            series.append([id_, name, {**labels, **own}, value])
        message = {"kind": "snapshot", "version": 1, "series": series, "ms": now_ms}
        return json.dumps(message, separators=(",", ":")).encode() + b"\n"

    def change(self, number: int, tick: int, now_ms: int) -> bytes:
        """Return a later line."""
        values = self.changes[(number + tick) % _VARIANTS]
        return f'{{"kind":"change","ms":{now_ms},"values":{values}}}\n'.encode()


class Agents:
    """All agents of this process."""

    def __init__(self, template: Template, count: int, interval_s: float) -> None:
        self._template = template
        self._count = count
        self._interval_s = interval_s
        self._open: list[set[asyncio.StreamWriter]] = [set() for _ in range(count)]
        self._lines = 0
        self._lost = 0

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one connection for as long as it is there."""
        number = int(ipaddress.IPv4Address(writer.get_extra_info("sockname")[0])) - FIRST_ADDRESS
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            if head.startswith(b"GET /stats "):
                writer.write(self._stats())
            elif head.startswith(b"GET /stream ") and number < self._count:
                writer.write(_HEAD)
                writer.write(_chunk(self._template.snapshot(number, _now_ms())))
                self._open[number].add(writer)
                await reader.read()
            else:
                writer.write(_NOT_FOUND)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            self._open[number].discard(writer)
            writer.close()

    async def tick(self) -> None:
        """Send each agent's line once a second, one agent after the other."""
        loop = asyncio.get_running_loop()
        due, tick = loop.time(), 0
        while True:
            for number, writers in enumerate(self._open):
                due += self._interval_s / self._count
                if due > loop.time() + 0.002:
                    await asyncio.sleep(due - loop.time())
                if writers:
                    line = _chunk(self._template.change(number, tick, _now_ms()))
                    for writer in tuple(writers):
                        self._send(writer, line)
            tick += 1
            due = max(due, loop.time())

    def _send(self, writer: asyncio.StreamWriter, line: bytes) -> None:
        if writer.transport.get_write_buffer_size() > _SLOW_BYTES:
            self._lost += 1
            writer.transport.abort()
            return
        writer.write(line)
        self._lines += 1

    def _stats(self) -> bytes:
        streams = [len(writers) for writers in self._open]
        stats = {
            "streams": sum(streams),
            "followed": sum(map(bool, streams)),
            "most": max(streams, default=0),
            "lines": self._lines,
            "lost": self._lost,
        }
        body = json.dumps(stats).encode()
        return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)


def _chunk(line: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(line), line)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


async def _serve(options: argparse.Namespace) -> None:
    template = Template(Path(options.template).read_bytes().split(b"\n")[0], options.changing)  # noqa: ASYNC240
    agents = Agents(template, options.count, options.interval)
    hosts = [address(number) for number in range(options.count)]
    server = await asyncio.start_server(agents.answer, hosts, options.port)
    print("listening", flush=True)
    async with server, asyncio.TaskGroup() as group:
        group.create_task(agents.tick())


def main() -> None:
    """Serve until killed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--template", required=True)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--port", type=int, default=9400)
    parser.add_argument("--interval", type=float, default=1.0)
    parser.add_argument("--changing", type=float, default=0.5)
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    asyncio.run(_serve(parser.parse_args()))


if __name__ == "__main__":
    main()
