"""Loads in the words of a command line."""

from gpuscale.core.golang.durations import parse_duration_ms
from gpuscale.load.plan import MAX_RATE
from gpuscale.sim.load.loads import Load, RampLoad, SpikesLoad, StepsLoad

_STEPS = "RATE@DURATION steps such as 10@30s,50@1m"
_SPIKES = "BASE,PEAK,EVERY,LENGTH such as 5,50,1m,10s"


def constant(rate: float) -> Load:
    """Return a load of one rate, requests per second."""
    return StepsLoad(((0.0, _checked(rate)),))


def ramp(text: str, duration_s: float) -> Load:
    """Return the load of `FROM..TO` over the whole run.

    Raises:
        ValueError: the text is something else; with what was found and expected.
    """
    first, dots, last = text.partition("..")
    if not dots:
        raise ValueError(f"found {text!r}, expected FROM..TO such as 1..100")
    return RampLoad(_rate(first, text), _rate(last, text), 0.0, duration_s)


def steps(text: str) -> tuple[Load, float]:
    """Return the load of `10@30s,50@1m`, and how long it takes in seconds.

    Raises:
        ValueError: the text is something else; with what was found and expected.
    """
    moments: list[tuple[float, float]] = []
    at_s = 0.0
    for part in text.split(","):
        rate, at, duration = part.partition("@")
        if not at:
            raise ValueError(f"found {part!r}, expected {_STEPS}")
        moments.append((at_s, _rate(rate, part)))
        at_s += _seconds(duration, part)
    return StepsLoad(tuple(moments)), at_s


def spikes(text: str) -> Load:
    """Return the load of `BASE,PEAK,EVERY,LENGTH`.

    Raises:
        ValueError: the text is something else; with what was found and expected.
    """
    parts = text.split(",")
    if len(parts) != 4:
        raise ValueError(f"found {text!r}, expected {_SPIKES}")
    base, peak = (_rate(part, text) for part in parts[:2])
    every, length = (_seconds(part, text) for part in parts[2:])
    if length >= every:
        raise ValueError(f"found {text!r}, expected spikes shorter than the time between them")
    return SpikesLoad(base, peak, every, length, first=every - length)


def _rate(text: str, whole: str) -> float:
    try:
        return _checked(float(text))
    except ValueError:
        raise ValueError(
            f"found {text!r} in {whole!r}, expected requests per second, from 0 to {MAX_RATE:g}"
        ) from None


def _checked(rate: float) -> float:
    if not 0 <= rate <= MAX_RATE:
        raise ValueError(f"found {rate:g}, expected 0 to {MAX_RATE:g} requests per second")
    return rate


def _seconds(text: str, whole: str) -> float:
    try:
        seconds = parse_duration_ms(text) / 1000
    except ValueError:
        seconds = 0.0
    if seconds <= 0:
        raise ValueError(f"found {text!r} in {whole!r}, expected a duration such as 30s or 1m")
    return seconds
