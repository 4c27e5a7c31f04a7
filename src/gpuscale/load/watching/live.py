"""Watches a running `gpuscale up` through its page's stream."""

import json
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

import aiohttp

from gpuscale.base.clock import Clock
from gpuscale.base.errors import UnavailableError
from gpuscale.base.unreachable import reason_of
from gpuscale.load.timeline.types import Hop
from gpuscale.load.watching.notes import Notes

MAX_MESSAGE_BYTES = 32 * 1024 * 1024
_MOST_GPUS = 16
_LATEST = 2**53
"""As many points and events as no run has: the stream then begins with what is new."""
_CONNECT_S = 10.0
_SILENT_S = 30.0
_RETRY_S = 1.0


class UpWatch:
    """Watches a run until cancelled.

    Args:
        url: of its page.
        notes: takes what is seen.
        clock: gives the notes their times.
    """

    def __init__(self, url: str, notes: Notes, clock: Clock) -> None:
        self._url = url.rstrip("/")
        self._notes, self._clock = notes, clock
        self._gpus: set[str] = set()

    async def run(self, ready: Callable[[], None]) -> None:
        """Watch the run; `ready` is called with the first message. Lost connections leave gaps.

        Raises:
            UnavailableError: nothing there is a running `gpuscale up`.
        """
        is_ready = False
        timeout = aiohttp.ClientTimeout(total=None, connect=_CONNECT_S, sock_read=_SILENT_S)
        async with aiohttp.ClientSession(timeout=timeout) as session:
            while True:
                try:
                    async for message in self._messages(session):
                        if not is_ready:
                            is_ready = True
                            ready()
                        self._see(message)
                    error = UnavailableError(f"{self._url}: the stream ended")
                except (aiohttp.ClientError, TimeoutError, OSError) as caught:
                    error = UnavailableError(f"{self._url}: {reason_of(caught)}")
                if not is_ready:
                    raise error
                self._notes.say(str(error))
                for hop in ("load", "gpu", "hpa", "replicas", "nodes"):
                    self._notes.lost(hop, self._clock.now_ms())
                await self._clock.sleep(_RETRY_S)

    async def _messages(self, session: aiohttp.ClientSession) -> AsyncIterator[Mapping[str, Any]]:
        address = f"{self._url}/ui/stream?points={_LATEST}&events={_LATEST}"
        async with session.get(address, allow_redirects=False) as response:
            if response.status != 200 or response.content_type != "text/event-stream":
                raise UnavailableError(
                    f"{self._url}: found HTTP {response.status}, {response.content_type}, expected the "
                    "address of a running gpuscale up"
                )
            buffer = bytearray()
            async for chunk in response.content.iter_any():
                buffer += chunk
                while (end := buffer.find(b"\n\n")) >= 0:
                    block = bytes(buffer[:end])
                    del buffer[: end + 2]
                    if (message := _message(block)) is not None:
                        yield message
                if len(buffer) > MAX_MESSAGE_BYTES:
                    raise UnavailableError(
                        f"{self._url}: a message of more than {MAX_MESSAGE_BYTES} bytes"
                    )

    def _see(self, message: Mapping[str, Any]) -> None:
        now_ms = self._clock.now_ms()
        try:
            state, since = message["state"], message["since"]
            speed, now_s = max(float(state.get("speed", 1.0)), 1e-6), float(state["t"])

            def wall_ms(seconds: float) -> int:
                return round(now_ms - 1000 * (now_s - seconds) / speed)

            times = [wall_ms(float(seconds)) for seconds in since["t"]]
            for key, values in since["series"].items():
                if (line := self._line(key)) is not None:
                    for at_ms, value in zip(times, values, strict=False):
                        self._notes.value(*line, at_ms, None if value is None else float(value))
            for event in since["events"]:
                text = str(event.get("reason") or "")
                kind, about = str(event["kind"]), str(event.get("object") or "")
                self._notes.mark(wall_ms(float(event["t"])), kind, about, text[:500])
        except (KeyError, TypeError, ValueError, AttributeError):
            self._notes.say(f"{self._url}: found another release's messages, expected this one's")

    def _line(self, key: str) -> tuple[Hop, str, str] | None:
        """Return hop, unit and name of a page's series; None if it is not shown."""
        match key.split("/"):
            case ["load", name]:
                return "load", "requests/s", f"{name}, as up counts"
            case ["queue", name]:
                return "load", "requests", f"{name} waiting"
            case ["gpu", *place]:
                self._gpus.add(key)
                if len(self._gpus) > _MOST_GPUS:
                    self._notes.say(f"more than {_MOST_GPUS} GPUs; the others are left out")
                    return None if key not in sorted(self._gpus)[:_MOST_GPUS] else _gpu(place)
                return _gpu(place)
            case ["hpa", name, "value"]:
                return "hpa", "value", name
            case ["hpa", name, "target"]:
                return "hpa", "value", f"{name} target"
            case ["hpa", name, "desired"]:
                return "replicas", "pods", f"{name} wanted"
            case ["replicas", name, "ready"]:
                return "replicas", "pods", f"{name} ready"
            case ["pods", "pending"]:
                return "replicas", "pods", "pending pods"
            case ["nodes", name, "ready"]:
                return "nodes", "nodes", f"{name} ready"
            case ["nodes", name, "total"]:
                return "nodes", "nodes", f"{name} total"
        return None


def _gpu(place: list[str]) -> tuple[Hop, str, str]:
    return "gpu", "%", " ".join(place)


def _message(block: bytes) -> Mapping[str, Any] | None:
    """Return the data in an event stream's block; None if it has none."""
    data = [line[5:] for line in block.split(b"\n") if line.startswith(b"data:")]
    if not data:
        return None
    try:
        found = json.loads(b"\n".join(data))
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None
