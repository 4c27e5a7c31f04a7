"""The sample services of `examples/services` as processes of their own."""

import http.client
import os
import re
import signal
import subprocess
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from gpuscale.base.exposition.parse import parse_text
from gpuscale.base.exposition.reading.formats import format_of

SERVICES = Path(__file__).resolve().parents[2] / "examples" / "services"


class Answer(NamedTuple):
    """What a sample answered."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class Sample:
    """A running sample, and what it has printed."""

    def __init__(self, process: "subprocess.Popen[str]", lines: list[str]) -> None:
        self.process = process
        self.lines = lines
        found = re.search(r"http://127\.0\.0\.1:(\d+)", lines[-1])
        assert found is not None, lines
        self.port = int(found[1])

    def ask(
        self, path: str, method: str = "GET", body: bytes | None = None, **headers: str
    ) -> Answer:
        """Send one request on a connection of its own."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            connection.request(method, path, body, headers)
            response = connection.getresponse()
            return Answer(response.status, dict(response.getheaders()), response.read())
        finally:
            connection.close()

    def metrics(self) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
        """Return the metrics page as gpuscale's own scraper reads it: (name, labels) to value."""
        answer = self.ask("/metrics")
        format_of(answer.headers["Content-Type"])  # raises where a scrape would be refused
        families = parse_text(answer.body.decode(), source=f":{self.port}/metrics")
        return {
            (family.name + sample.suffix, sample.labels): sample.value
            for family in families
            for sample in family.samples
        }

    def metric(self, name: str, **labels: str) -> float:
        """Return one value of the metrics page."""
        return self.metrics()[name, tuple(labels.items())]

    def stop(self) -> tuple[int, str]:
        """Send SIGTERM, and return the exit code and what was printed since the start."""
        self.process.send_signal(signal.SIGTERM)
        rest, _ = self.process.communicate(timeout=60)
        return self.process.returncode, rest


def command(venv: Path, module: str, *arguments: str) -> list[str]:
    """Return the command that runs a sample."""
    return [str(venv / "bin" / "python"), "-m", module, *arguments]


def run(venv: Path, module: str, *arguments: str) -> "subprocess.CompletedProcess[str]":
    """Run a sample that ends by itself."""
    return subprocess.run(
        command(venv, module, *arguments),
        cwd=SERVICES,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


def environment() -> dict[str, str]:
    """Return what a stranger's shell has; with a GPU, also where the driver's libraries are."""
    given = ("PATH", "LD_LIBRARY_PATH")
    kept = {name: os.environ[name] for name in given if name in os.environ}
    return {**kept, "LANG": "C.UTF-8", "PYTHONDONTWRITEBYTECODE": "1"}


@contextmanager
def serving(venv: Path, module: str, *arguments: str) -> Iterator[Sample]:
    """Run a sample on a free port of loopback until the block ends."""
    where = ("--host", "127.0.0.1", "--port", "0")
    process = subprocess.Popen(
        command(venv, module, *where, *arguments),
        cwd=SERVICES,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert process.stdout is not None
    stuck = threading.Timer(60, process.kill)
    stuck.start()
    try:
        lines: list[str] = []
        for line in process.stdout:
            lines.append(line)
            if "listening on" in line:
                break
        stuck.cancel()
        assert lines, "it printed nothing"
        assert "listening on" in lines[-1], lines
        yield Sample(process, lines)
    finally:
        stuck.cancel()
        process.kill()
        process.wait()
        process.stdout.close()
