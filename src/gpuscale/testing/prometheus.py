"""A real Prometheus on loopback that holds given samples, staleness markers included.

    with serve([({"__name__": "up"}, 1_700_000_000_000, 1.0)], folder) as prometheus:
        prometheus.get("/api/v1/query", query="up", time=1_700_000_000)

Samples travel as one remote write, which unlike a text format can carry the marker of a series' end.

Source: prometheus remote write 1.0 (prompb/remote.proto), snappy's block format.
"""

import http.client
import json
import re
import shutil
import socket
import struct
import subprocess
import time
import urllib.parse
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from gpuscale.series import Value
from gpuscale.series.promapi import SAME_TIME, TimeAxis, query_body, query_result

__all__ = ["Prometheus", "serve"]

Sample = tuple[Mapping[str, str], int, float]
"""Labels with the metric's name under `__name__`, milliseconds since the epoch, and a value."""

_READY_S = 60.0
_ANSWER_S = 60.0
_SERIES_PER_WRITE = 1_000
_FEATURES = "promql-experimental-functions,promql-binop-fill-modifiers"
_LITERAL_BYTES = 1 << 16


class Prometheus:
    """A running Prometheus, asked over one connection that stays open.

    Args:
        port: where it listens on 127.0.0.1.
        pid: its process.
    """

    def __init__(self, port: int, pid: int) -> None:
        self.pid = pid
        self.url = f"http://127.0.0.1:{port}"
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=_ANSWER_S)

    def get(self, path: str, **parameters: str | float) -> Any:  # noqa: ANN401 - JSON of any shape
        """Return the document that a page of the HTTP API answers with, an error's included."""
        return json.loads(self._read("GET", f"{path}?{urllib.parse.urlencode(parameters)}")[1])

    def write(self, samples: Iterable[Sample]) -> None:
        """Store samples; all of one series together, and none an hour older than the newest.

        Raises:
            ValueError: Prometheus does not take them.
        """
        series = list(_by_series(samples))
        for first in range(0, len(series), _SERIES_PER_WRITE):
            body = _snappy(b"".join(series[first : first + _SERIES_PER_WRITE]))
            status, answer = self._read("POST", "/api/v1/write", body)
            if status // 100 != 2:
                raise ValueError(f"found {status} {answer!r} for a remote write, expected 2xx")

    def close(self) -> None:
        self._connection.close()

    def _read(self, method: str, target: str, body: bytes | None = None) -> tuple[int, bytes]:
        headers = {} if body is None else _WRITE_HEADERS
        self._connection.request(method, target, body, headers)
        response = self._connection.getresponse()
        return response.status, response.read()


_WRITE_HEADERS = {
    "Content-Type": "application/x-protobuf",
    "Content-Encoding": "snappy",
    "X-Prometheus-Remote-Write-Version": "0.1.0",
}


def query_data(value: Value, at_ms: int, axis: TimeAxis = SAME_TIME) -> Any:  # noqa: ANN401
    """Return the `data` of our own answer to a query, as a client reads it."""
    body = query_body(*query_result(value, at_ms, axis), warnings=[], check=lambda: None)
    return json.loads(body)["data"]


def points_by_labels(data: Mapping[str, Any]) -> dict[tuple[tuple[str, str], ...], list[list[Any]]]:
    """Return the points of a query's `data` by label set, whatever its type; a scalar has no labels."""
    if data["resultType"] in {"scalar", "string"}:
        return {(): [data["result"]]}
    return {
        tuple(sorted(each["metric"].items())): each.get("values") or [each["value"]]
        for each in data["result"]
        # For a subquery over absent_over_time(), Prometheus 2 may return a series without a point.
        if "values" in each or "value" in each
    }


def major_release() -> int:
    """Return the major release of the installed `prometheus`.

    Raises:
        FileNotFoundError: there is none.
        ValueError: it prints no version.
    """
    done = subprocess.run(  # noqa: S603 - the program is the caller's own
        [_program(), "--version"], capture_output=True, text=True, check=True
    )
    found = re.search(r"version (\d+)\.", done.stdout + done.stderr)
    if found is None:
        raise ValueError(f"found no version in {done.stdout!r}, expected one such as 2.42.0")
    return int(found[1])


@contextmanager
def serve(samples: Iterable[Sample], folder: Path, port: int | None = None) -> Iterator[Prometheus]:
    """Run the installed `prometheus` with these samples and all of PromQL switched on, until the block ends.

    Args:
        samples: spanning less than an hour, the oldest as old as one likes.
        folder: its configuration and data go there; what a run before has left is there again.
        port: to listen on; any that is free if None.

    Raises:
        FileNotFoundError: there is no program `prometheus`.
        RuntimeError: it ended, or did not get ready within a minute.
        ValueError: it does not take the samples.
    """
    configuration = folder / "prometheus.yml"
    configuration.write_text("global: {}\n")
    port = port or free_port()
    process = subprocess.Popen(  # noqa: S603 - the program is the caller's own
        [
            _program(),
            f"--config.file={configuration}",
            f"--storage.tsdb.path={folder / 'data'}",
            "--storage.tsdb.retention.time=100y",
            "--web.enable-remote-write-receiver",
            f"--web.listen-address=127.0.0.1:{port}",
            f"--enable-feature={_FEATURES if major_release() >= 3 else ''}",
        ],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    prometheus = Prometheus(port, process.pid)
    try:
        _wait_ready(prometheus, process)
        prometheus.write(samples)
        yield prometheus
    finally:
        prometheus.close()
        process.terminate()
        process.wait(timeout=_READY_S)


def _program() -> str:
    program = shutil.which("prometheus")
    if program is None:
        raise FileNotFoundError("found no program prometheus, expected Debian's package prometheus")
    return program


def free_port() -> int:
    """Return a port of 127.0.0.1 that nothing listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _wait_ready(prometheus: Prometheus, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + _READY_S
    while time.monotonic() < deadline:
        with suppress(OSError, http.client.HTTPException):
            if prometheus._read("GET", "/-/ready")[0] == 200:  # noqa: SLF001 - its own module
                return
        prometheus.close()
        if process.poll() is not None:
            raise RuntimeError(f"prometheus ended with {process.returncode} before it was ready")
        time.sleep(0.05)
    raise RuntimeError(f"prometheus did not get ready within {_READY_S:.0f} s")


def _by_series(samples: Iterable[Sample]) -> Iterator[bytes]:
    """Return a `timeseries` field of a WriteRequest for each series."""
    points: dict[tuple[tuple[str, str], ...], list[bytes]] = {}
    for labels, t_ms, value in samples:
        key = tuple(sorted(labels.items()))
        points.setdefault(key, []).append(_field(2, _sample(t_ms, value)))
    for key, encoded in points.items():
        pairs = b"".join(
            _field(1, _field(1, name.encode()) + _field(2, text.encode())) for name, text in key
        )
        yield _field(1, pairs + b"".join(encoded))


def _sample(t_ms: int, value: float) -> bytes:
    return b"\x09" + struct.pack("<d", value) + b"\x10" + _varint(t_ms)


def _field(number: int, content: bytes) -> bytes:
    return bytes([number << 3 | 2]) + _varint(len(content)) + content


def _varint(number: int) -> bytes:
    encoded = bytearray()
    number &= (1 << 64) - 1
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


def _snappy(content: bytes) -> bytes:
    """Return the content in snappy's block format, as literals: nothing is compressed."""
    parts = [_varint(len(content))]
    for start in range(0, len(content), _LITERAL_BYTES):
        literal = content[start : start + _LITERAL_BYTES]
        parts += [bytes([61 << 2]), struct.pack("<H", len(literal) - 1), literal]
    return b"".join(parts)
