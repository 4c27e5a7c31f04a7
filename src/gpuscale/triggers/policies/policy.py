"""The interface of policies: a plain function of numbers, which numba can compile.

A policy is written in the part of Python that numba compiles: numbers, loops, and one array to remember in.
So the same function serves a replay without numba, slowly, and thousands of replays with it.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeAlias

import numpy

Numbers: TypeAlias = numpy.ndarray[tuple[int], numpy.dtype[numpy.float64]]
"""One dimension of 64-bit floats."""


class Seen(NamedTuple):
    """A policy's inputs at one step.

    Demand, utilization, queue and shortage are as late as metrics are; counts of pods come from the API
    server and are not. A demand of 1 keeps one pod busy.
    """

    step: int
    """From 0; the first is before any demand was seen, and the signals are those of step 0."""
    step_s: float
    start_up_s: float
    """From the order of a pod to a ready one."""
    lag_s: float
    """Age of the signals."""
    demand: float
    """Work that came in, in pods."""
    utilization: float
    """Share of the ready pods' time that was used, 0 to 1; NaN without a ready pod."""
    queue: float
    """Work that waits, in seconds of one pod."""
    short: float
    """1 where demand exceeded the ready pods, otherwise 0."""
    ready: float
    """Pods that serve now."""
    replicas: float
    """Pods that are asked for now: ready and starting."""
    least: float
    """Pods at the least, 0 for a workload that may sleep; what a policy wants below is raised to it."""


Desired = Callable[[Seen, Numbers, Numbers], float]
"""`desired(seen, memory, settings)` returns the replicas that are wanted; a fraction is rounded up, NaN keeps
what is there. `memory` belongs to one replay and starts with zeros; `settings` has the parameters' values in
their order."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """A policy's parameter: its default and its search range."""

    name: str
    default: float
    least: float
    most: float
    is_log: bool = False
    """Whether a search spreads its tries over the logarithm."""


@dataclass(frozen=True, slots=True)
class Policy:
    """A policy with its parameters."""

    name: str
    title: str
    desired: Desired
    parameters: tuple[Parameter, ...] = ()
    memory: int = 1
    """Numbers that it remembers."""
    source: str = ""
    """Where the algorithm was read: the project, its file and release."""
    learns: bool = False
    """Whether it learns from what it sees and has one setting everywhere; a search leaves that alone."""
    shown: tuple[tuple[str, int], ...] = ()
    """What of its memory tells people why it decides so: what it is called, and its place."""

    def fixed(self, **values: float) -> "Policy":
        """Return the policy with fixed parameters: their defaults, or the given values.

        Raises:
            ValueError: as `settings`.
        """
        numbers = map(float, self.settings(**values))
        kept = (
            replace(each, default=number, least=number, most=number)
            for each, number in zip(self.parameters, numbers, strict=True)
        )
        return replace(self, parameters=tuple(kept))

    def settings(self, **values: float) -> Numbers:
        """Return the parameters' values as an array: the defaults, and what is given by name.

        Raises:
            ValueError: a name that is no parameter, or a value outside its bounds.
        """
        known = {each.name: each for each in self.parameters}
        for name, value in values.items():
            if name not in known:
                expected = ", ".join(known) or "none, it has no parameters"
                raise ValueError(f"{self.name}: found parameter {name!r}, expected {expected}")
            if not known[name].least <= value <= known[name].most:
                bounds = f"{known[name].least:g} to {known[name].most:g}"
                raise ValueError(f"{self.name}: found {name} {value:g}, expected {bounds}")
        chosen = [values.get(each.name, each.default) for each in self.parameters]
        return numpy.array(chosen, dtype=numpy.float64)
