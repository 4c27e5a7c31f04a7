"""Another tool's requests, independent of the file format."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, NoReturn

from gpuscale.base.errors import ConfigError, Problem
from gpuscale.load.timeline.types import TimelineMark

MAX_BYTES = 512 * 1024 * 1024
MAX_REQUESTS = 2_000_000


class RequestResult(NamedTuple):
    """One request; times are milliseconds of the run's own clock."""

    start_ms: float
    latency_ms: float | None
    """None of a request that failed, or was never timed."""
    is_ok: bool
    first_token_ms: float | None = None
    """From the request to its first token."""
    output_tokens: int | None = None
    prompt_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class ReadResult:
    """The content of another tool's result."""

    tool: str
    requests: Sequence[RequestResult]
    has_epoch: bool
    """Whether times are since the epoch; else they count from some moment that the file doesn't name."""
    marks: tuple[TimelineMark, ...] = ()
    notes: tuple[str, ...] = ()
    is_plan: bool = False
    """Whether it is a trace of what is to be sent, and nothing was measured."""


def refuse(source: str, line: int | None, field: str | None, found: str, expected: str) -> NoReturn:
    """Raise a fault of the file.

    Raises:
        ConfigError: always.
    """
    raise ConfigError(Problem(source, line, field, found[:200], expected))
