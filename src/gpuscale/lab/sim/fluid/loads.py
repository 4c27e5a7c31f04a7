"""Loads at many times at once, as columns: weeks of a hundred services have eight million.

The formulas are those of `base.loads`, of arrays instead of numbers.
"""

import math

import numpy

from gpuscale.base.loads import (
    Load,
    RampLoad,
    RateTraceLoad,
    SineLoad,
    SpikesLoad,
    StepsLoad,
    TraceLoad,
)
from gpuscale.triggers.policies import Numbers


def requests_until(load: Load, times: Numbers) -> Numbers:
    """Return the number of requests before each time."""
    match load:
        case StepsLoad():
            starts, rates = (numpy.array(column) for column in zip(*load.steps, strict=True))
            return _by_steps(starts, rates, times)
        case RateTraceLoad():
            return _by_steps(numpy.array(load.times), numpy.array(load.rates), times)
        case TraceLoad():
            return _arrived(load, times)
        case RampLoad():
            inside = numpy.clip(times - load.start, 0.0, load.end - load.start)
            slope = (load.to_rate - load.from_rate) / (load.end - load.start)
            before = load.from_rate * numpy.minimum(times, load.start)
            after = load.to_rate * numpy.maximum(0.0, times - load.end)
            return before + (load.from_rate + slope * inside / 2) * inside + after
        case SineLoad():
            circle = 2 * math.pi / load.period
            wave = math.cos(circle * load.offset) - numpy.cos(circle * (times - load.offset))
            return load.mean * times + load.amplitude / circle * wave
        case SpikesLoad():
            whole, rest = numpy.divmod(numpy.maximum(0.0, times - load.first), load.every)
            spiking = whole * load.length + numpy.minimum(rest, load.length)
            return load.base * times + (load.peak - load.base) * spiking
        case _:
            return numpy.array([load.requests_until(t) for t in times.tolist()])


def rates_at(load: Load, times: Numbers) -> Numbers:
    """Return the requests per second at each time."""
    match load:
        case StepsLoad():
            starts, rates = (numpy.array(column) for column in zip(*load.steps, strict=True))
            return _rates_by_steps(starts, rates, times)
        case RateTraceLoad():
            return _rates_by_steps(numpy.array(load.times), numpy.array(load.rates), times)
        case TraceLoad():
            bins: Numbers = numpy.floor(times / load.bin_s) * load.bin_s
            return (_arrived(load, bins + load.bin_s) - _arrived(load, bins)) / load.bin_s
        case SineLoad():
            angle = 2 * math.pi / load.period * (times - load.offset)
            sine: Numbers = load.mean + load.amplitude * numpy.sin(angle)
            return sine
        case _:
            return numpy.array([load.rate(t) for t in times.tolist()])


def _arrived(load: TraceLoad, times: Numbers) -> Numbers:
    counts = numpy.searchsorted(numpy.array(load.arrivals), times)
    return counts.astype(numpy.float64) * load.scale


def _by_steps(starts: Numbers, rates: Numbers, times: Numbers) -> Numbers:
    """Return the integral of a step function of rates; zero before the first step."""
    totals = numpy.concatenate(([0.0], numpy.cumsum(rates[:-1] * numpy.diff(starts))))
    at = numpy.searchsorted(starts, times, side="right") - 1
    counts: Numbers = numpy.where(at < 0, 0.0, totals[at] + rates[at] * (times - starts[at]))
    return counts


def _rates_by_steps(starts: Numbers, rates: Numbers, times: Numbers) -> Numbers:
    at = numpy.searchsorted(starts, times, side="right") - 1
    held: Numbers = numpy.where(at < 0, 0.0, rates[at])
    return held
