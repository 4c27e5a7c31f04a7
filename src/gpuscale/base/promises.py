"""What users are promised, in the words of `--promise`.

Of each, one text:

    wait=5s:99.5%       99.5 % of the requests wait at most 5 s before they are worked on
    latency=2s:95%      95 % are answered within 2 s; also written p95=2s
    errors=0.1%         at most 0.1 % are not answered
    short=0.5%          demand exceeds the ready pods in at most 0.5 % of the time
"""

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Literal, cast

from gpuscale.base.errors import UsageError
from gpuscale.base.golang.durations import format_duration, parse_duration_ms

Measure = Literal["wait", "latency", "errors", "short"]
MAX_ALLOWED = 0.5
"""Of errors and of short times: more is no promise."""
_TERM = re.compile(r"(?P<measure>[a-z]+)=(?:(?P<limit>[^:%]+):)?(?P<percent>\d+(?:\.\d+)?)%")
_PERCENTILE = re.compile(r"p(?P<percent>\d{1,2}(?:\.\d+)?)=(?P<limit>.+)")
_TIMED: tuple[Measure, ...] = ("wait", "latency")
_RARE: tuple[Measure, ...] = ("errors", "short")
_EXAMPLES: Mapping[Measure, str] = {
    "wait": "wait=5s:99.5%",
    "latency": "latency=2s:95% or p95=2s",
    "errors": "errors=0.1%",
    "short": "short=0.5%",
}


@dataclass(frozen=True, slots=True)
class PromiseTerm:
    """One thing that is promised."""

    measure: Measure
    allowed: float
    """Share that may miss it: of the requests, or of the time with `short`."""
    limit_s: float = 0.0
    """That a request waits or takes; 0 with `errors` and `short`."""

    def __str__(self) -> str:
        """Return it in the words of `--promise`."""
        if self.measure in _RARE:
            return f"{self.measure}={100 * self.allowed:.6g}%"
        limit = format_duration(round(1000 * self.limit_s))
        return f"{self.measure}={limit}:{100 * (1 - self.allowed):.8g}%"


def promise_terms(
    option: str, texts: Iterable[str], measures: Collection[Measure] = _TIMED + _RARE
) -> tuple[PromiseTerm, ...]:
    """Return the terms of a promise.

    Args:
        option: that the texts are of, for errors.
        texts: such as `wait=5s:99.5%`.
        measures: that may be promised here.

    Raises:
        UsageError: a text is none, or says what another says too.
    """
    terms = tuple(_term(option, each, measures) for each in texts)
    if not terms:
        raise UsageError(f"{option}: found nothing, expected {_expected(measures)}")
    for at, term in enumerate(terms):
        same = (term.measure, term.limit_s)
        if same in [(each.measure, each.limit_s) for each in terms[:at]]:
            raise UsageError(f"{option}: found {str(term)!r} beside another of the same")
    return terms


def _expected(measures: Collection[Measure]) -> str:
    return f"one of {', '.join(_EXAMPLES[each] for each in measures)}"


def _term(option: str, text: str, measures: Collection[Measure]) -> PromiseTerm:
    words = text.replace(" ", "")
    if percentile := _PERCENTILE.fullmatch(words):
        words = f"latency={percentile['limit']}:{percentile['percent']}%"
    found = _TERM.fullmatch(words)
    if found is None or found["measure"] not in measures:
        raise UsageError(f"{option}: found {text!r}, expected {_expected(measures)}")
    measure, share = cast("Measure", found["measure"]), float(found["percent"]) / 100
    if measure in _RARE:
        if found["limit"] is not None or share > MAX_ALLOWED:
            most = f"{measure}= and a percentage up to {100 * MAX_ALLOWED:g}%"
            raise UsageError(f"{option}: found {text!r}, expected {most}")
        return PromiseTerm(measure, share)
    try:
        limit_ms = parse_duration_ms(found["limit"] or "")
    except ValueError:
        limit_ms = 0
    if limit_ms <= 0 or not 0 < share < 1:
        timed = f"{measure}= and a duration with a percentage below 100, such as {measure}=5s:99.5%"
        raise UsageError(f"{option}: found {text!r}, expected {timed}")
    return PromiseTerm(measure, 1 - share, limit_ms / 1000)
