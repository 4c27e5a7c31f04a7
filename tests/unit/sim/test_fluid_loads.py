"""Loads as columns are those of single moments: the formulas of arrays against the shapes' own."""

import numpy
import pytest

from gpuscale.base.loads import (
    Load,
    RampLoad,
    RateTraceLoad,
    SineLoad,
    SpikesLoad,
    StepsLoad,
    TraceLoad,
)
from gpuscale.lab.sim.fluid.loads import rates_at, requests_until

LOADS: dict[str, Load] = {
    "constant": StepsLoad(((0.0, 3.0),)),
    "steps that begin late": StepsLoad(((60.0, 2.0), (90.0, 0.0), (120.0, 7.5))),
    "ramp": RampLoad(1.0, 9.0, 30.0, 150.0),
    "ramp that falls": RampLoad(9.0, 0.0, 0.0, 45.0),
    "sine": SineLoad(4.0, 3.0, 97.0, 11.0),
    "spikes": SpikesLoad(1.0, 20.0, 60.0, 7.0, 33.0),
    "arrivals": TraceLoad([0.0, 0.0, 1.5, 30.0, 30.0, 44.9], 2.5),
    "rates": RateTraceLoad([0.0, 15.0, 100.0], [1.0, 4.0, 2.0], 1.5),
    "rates that begin late": RateTraceLoad([20.0], [6.0]),
}
TIMES = numpy.arange(0.0, 300.0, 7.5)
"""With moments at which steps and spikes begin, requests come and rates change."""


class OfAPlugIn:
    """A load that there is no formula for."""

    def rate(self, t: float) -> float:
        return 2 * t

    def requests_until(self, t: float) -> float:
        return t * t

    def changes(self, end: float) -> tuple[float, ...]:
        return ()


@pytest.mark.parametrize("load", [*LOADS.values(), OfAPlugIn()], ids=[*LOADS, "another"])
def test_columns_have_the_values_of_single_moments(load: Load) -> None:
    times = TIMES.tolist()
    assert requests_until(load, TIMES).tolist() == pytest.approx(
        [load.requests_until(t) for t in times]
    )
    assert rates_at(load, TIMES).tolist() == pytest.approx([load.rate(t) for t in times])
