"""What the metrics API and its collector process say to each other over the collector's two pipes.

The metrics API writes frames to the collector's standard input: the settings first, later whatever changes.
The input stays open for as long as the metrics API lives, so its end is the order to stop. The collector
writes a line of JSON to its standard output whenever its state changes, and every few seconds in any case.

Frames are pickled: they hold frozen dataclasses, and both ends are the same installation. Nothing but the
parent process can write to that pipe.
"""

import json
import os
import pickle
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path

from gpuscale.base.clock import Origin
from gpuscale.kube.client import KubeSettings
from gpuscale.series import EVERYTHING, WantedNames
from gpuscale.server.sources.feeds.settings import FeedSettings
from gpuscale.server.sources.ruler.settings import RulerSettings

MAX_STATUS_BYTES = 4096
"""A pipe takes so many bytes whole or not at all, POSIX's PIPE_BUF on Linux."""
_LENGTH_BYTES = 4
_MAX_REMARK_BYTES = 1800


@dataclass(frozen=True, slots=True)
class CollectorSettings:
    """The settings that a collector process needs to start."""

    feeds: FeedSettings
    origin: Origin
    """Of the metrics API's clock, so that both have the same time."""
    kube: KubeSettings | None = None
    """How to reach the API server, which names targets; None for the static targets alone."""
    log_level: int = 0
    wanted: WantedNames = EVERYTHING
    """What the adapter rules can ask for. It changes with the rules, and is then sent again."""
    rules: RulerSettings = field(default_factory=RulerSettings)
    """Of Prometheus' rules that are evaluated over the store."""
    socket: Path = Path()
    """Where it listens: a Unix socket in a directory that only this user can enter."""


@dataclass(frozen=True, slots=True)
class CollectorStatus:
    """The state of a collector. The first one says that it listens."""

    generation: int = 0
    """Changes when series come or go."""
    remark: str = ""
    """How the feeds do, in words."""
    rules: str = ""
    """What is wrong with Prometheus' rules, in words; empty where nothing is."""
    unread: str = ""
    """Which series can't be there yet, in a few words; empty once each target was tried."""

    def line(self) -> bytes:
        """Return the line for the pipe, at most `MAX_STATUS_BYTES` long."""
        remarks = {name: _cut(getattr(self, name)) for name in ("remark", "rules")}
        message = {**asdict(self), **remarks}
        return json.dumps(message).encode() + b"\n"


def _cut(text: str) -> str:
    """Cut a text so that its JSON form fits into so many bytes."""
    while len(json.dumps(text)) > _MAX_REMARK_BYTES:
        text = text[: len(text) * 3 // 4]
    return text


def read_status(line: bytes) -> CollectorStatus:
    """Return the status of a line.

    Raises:
        ValueError: it holds no status.
    """
    message = json.loads(line)
    if not isinstance(message, dict):
        raise ValueError(f"found {message!r}, expected an object")
    known = {field.name for field in fields(CollectorStatus)}
    return CollectorStatus(**{name: value for name, value in message.items() if name in known})


def frame(message: object) -> bytes:
    """Return a message for the collector's standard input."""
    body = pickle.dumps(message)
    return len(body).to_bytes(_LENGTH_BYTES) + body


def read_frame(descriptor: int) -> object:
    """Wait for the next message of a pipe and return it.

    Raises:
        EOFError: the other end is closed.
    """
    length = int.from_bytes(_read(descriptor, _LENGTH_BYTES))
    return pickle.loads(_read(descriptor, length))  # noqa: S301 - written by the parent process


def _read(descriptor: int, length: int) -> bytes:
    parts = b""
    while len(parts) < length:
        part = os.read(descriptor, length - len(parts))
        if not part:
            raise EOFError
        parts += part
    return parts
