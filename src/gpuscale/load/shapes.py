"""Loads described in a command line's words."""

from dataclasses import dataclass

from gpuscale.base.golang.durations import parse_duration_ms
from gpuscale.base.loads import Load, RampLoad, SineLoad, SpikesLoad, StepsLoad
from gpuscale.load.plan import MAX_RATE


@dataclass(frozen=True, slots=True)
class LoadUnit:
    """The unit of a load."""

    words: str
    most: float
    step: str
    """What a step of such a load is, with an example."""


RATES = LoadUnit("requests per second", MAX_RATE, "RATE@DURATION steps such as 10@30s,50@1m")
PERCENT = LoadUnit("percent of the time", 100.0, "PERCENT@DURATION steps such as 30@1m,90@2m")
_SPIKES = "BASE,PEAK,EVERY,LENGTH such as 5,50,1m,10s"


def constant(rate: float, unit: LoadUnit = RATES) -> Load:
    """Return a load of one rate."""
    return StepsLoad(((0.0, _checked(rate, unit)),))


def ramp(text: str, duration_s: float, unit: LoadUnit = RATES) -> Load:
    """Return the load of `FROM..TO` over the whole run.

    Raises:
        ValueError: the text is something else; with what was found and expected.
    """
    first, dots, last = text.partition("..")
    if not dots:
        raise ValueError(f"found {text!r}, expected FROM..TO such as 1..100")
    return RampLoad(_rate(first, text, unit), _rate(last, text, unit), 0.0, duration_s)


def steps(text: str, unit: LoadUnit = RATES) -> tuple[Load, float]:
    """Return the load of `10@30s,50@1m`, and how long it takes in seconds.

    Raises:
        ValueError: the text is something else; with what was found and expected.
    """
    moments: list[tuple[float, float]] = []
    at_s = 0.0
    for part in text.split(","):
        rate, at, duration = part.partition("@")
        if not at:
            raise ValueError(f"found {part!r}, expected {unit.step}")
        moments.append((at_s, _rate(rate, part, unit)))
        at_s += _seconds(duration, part)
    return StepsLoad(tuple(moments)), at_s


def spikes(text: str, unit: LoadUnit = RATES) -> Load:
    """Return the load of `BASE,PEAK,EVERY,LENGTH`.

    Raises:
        ValueError: the text is something else; with what was found and expected.
    """
    parts = text.split(",")
    if len(parts) != 4:
        raise ValueError(f"found {text!r}, expected {_SPIKES}")
    base, peak = (_rate(part, text, unit) for part in parts[:2])
    every, length = (_seconds(part, text) for part in parts[2:])
    if length >= every:
        raise ValueError(f"found {text!r}, expected spikes shorter than the time between them")
    return SpikesLoad(base, peak, every, length, first=every - length)


def sine(text: str, unit: LoadUnit = RATES) -> Load:
    """Return the load of `LOW..HIGH,PERIOD`: a sine from its mean upwards.

    Raises:
        ValueError: the text is something else; with what was found and expected.
    """
    span, comma, period = text.partition(",")
    low_text, dots, high_text = span.partition("..")
    if not comma or not dots:
        raise ValueError(f"found {text!r}, expected LOW..HIGH,PERIOD such as 20..80,5m")
    low, high = _rate(low_text, text, unit), _rate(high_text, text, unit)
    if low > high:
        raise ValueError(f"found {text!r}, expected the lower number first")
    return SineLoad((low + high) / 2, (high - low) / 2, _seconds(period, text))


def _rate(text: str, whole: str, unit: LoadUnit) -> float:
    try:
        return _checked(float(text), unit)
    except ValueError:
        raise ValueError(
            f"found {text!r} in {whole!r}, expected {unit.words}, from 0 to {unit.most:g}"
        ) from None


def _checked(rate: float, unit: LoadUnit) -> float:
    if not 0 <= rate <= unit.most:
        raise ValueError(f"found {rate:g}, expected 0 to {unit.most:g} {unit.words}")
    return rate


def _seconds(text: str, whole: str) -> float:
    try:
        seconds = parse_duration_ms(text) / 1000
    except ValueError:
        seconds = 0.0
    if seconds <= 0:
        raise ValueError(f"found {text!r} in {whole!r}, expected a duration such as 30s or 1m")
    return seconds
