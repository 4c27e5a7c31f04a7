"""Replays and policies, compiled where numba is installed; without it they run 50 times slower."""

from collections.abc import Callable
from functools import cache
from types import FunctionType
from typing import Any, cast

import numpy

from gpuscale.base import compiling
from gpuscale.triggers.policies.policy import Desired, Numbers, Seen
from gpuscale.triggers.policies.replaying import Replayed, ReplaySettings, resume, run


def _silent(line: str) -> None:
    """Say nothing."""


def runner(say: Callable[[str], None] = _silent) -> Callable[..., None]:
    """Return `triggers.policies.replaying.run`, compiled where numba is installed.

    A policy is passed by a pointer with a fixed signature, so that one compiled loop serves all of them.

    Args:
        say: gets a line before something is compiled.
    """
    return _runner(say)


@cache
def _runner(say: Callable[[str], None]) -> Callable[..., None]:
    numba = compiling.numba()
    if numba is None:
        return run
    column = numba.float64[::1]
    by_pointer = numba.types.FunctionType(policy_signature())
    takes = (by_pointer, column, column, column, numba.typeof(ReplaySettings()), *[column] * 4)
    return compiling.compiled(cast("FunctionType", run), numba.void(*takes), say)


@cache
def resumer() -> Callable[..., None]:
    """Return `triggers.policies.replaying.resume`, compiled where numba is installed."""
    numba = compiling.numba()
    if numba is None:
        return resume
    column = numba.float64[::1]
    by_pointer = numba.types.FunctionType(policy_signature())
    service = numba.typeof(ReplaySettings())
    takes = (by_pointer, *[column] * 3, numba.int64, column, service, column)
    return compiling.compiled(cast("FunctionType", resume), numba.void(*takes), _silent)


@cache
def policy_function(desired: Desired, say: Callable[[str], None] = _silent) -> Desired:
    """Return a policy's function, compiled where numba is installed.

    Raises:
        UsageError: it is not in the part of Python that numba compiles; with numba's reason.
    """
    if compiling.numba() is None:
        return desired
    return compiling.compiled(cast("FunctionType", desired), policy_signature(), say)


def policy_signature() -> Any:  # noqa: ANN401 - one of numba's types
    """Return the compiled type of a policy's function; numba has to be installed."""
    numba = compiling.numba()
    seen = numba.typeof(Seen(0, *[0.0] * (len(Seen._fields) - 1)))
    column = numba.float64[::1]
    return numba.float64(seen, column, column)


def replay(
    desired: Desired, settings: Numbers, memory: int, demand: Numbers, service: ReplaySettings
) -> Replayed:
    """Replay a demand under a policy, from the policy's compiled function and its settings."""
    columns = [numpy.zeros(len(demand)) for _ in range(4)]
    floats = ReplaySettings(*map(float, service))  # the compiled loop takes floats only
    runner()(desired, settings, numpy.zeros(memory), demand, floats, *columns)
    ready, replicas, queue, given_up = columns
    return Replayed(service, demand, ready, replicas, queue, given_up)
