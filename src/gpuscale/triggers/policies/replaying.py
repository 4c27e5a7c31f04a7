"""A replay of one workload under one policy: pods start late, work waits, signals lag.

The service is fluid: work comes at the demand's rate, each ready pod does one second of work a second, what
is not done waits and is given up after the clients' patience. The loop is plain arithmetic, so that it runs
compiled (`triggers.policies.compiled`) as it stands.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy

from gpuscale.triggers.policies.policy import Desired, Numbers, Seen


class ReplaySettings(NamedTuple):
    """The settings of a workload's replay; times in seconds, rounded to steps."""

    step_s: float = 15.0
    start_up_s: float = 180.0
    lag_s: float = 30.0
    """Age of the signals when a policy sees them."""
    patience_s: float = 60.0
    """How long clients wait; work that would wait longer is given up."""
    least: float = 1.0
    """Replicas at the least, 0 for a workload that may sleep."""
    most: float = 1e6


_READY, _STARTING, _QUEUE, _GIVEN_UP, _DEMAND, _UTILIZATION, _SHORT, SHORT_STEPS, _DUE = range(9)
"""Where the cells between two steps hold what; then a ring of pods by the step that they are due at, and one
of the pods that were ready, as long as the lag."""


@dataclass(frozen=True, slots=True)
class Replayed:
    """A replay's columns, one number for each step."""

    service: ReplaySettings
    demand: Numbers
    ready: Numbers
    """Pods that served during the step."""
    replicas: Numbers
    """Pods that were paid for during the step: ready and starting."""
    queue: Numbers
    """Work that waited at the step's end, in seconds of one pod."""
    given_up: Numbers
    """Work that was given up during the step, in the same unit."""


def run(
    desired: Desired,
    settings: Numbers,
    memory: Numbers,
    demand: Numbers,
    service: ReplaySettings,
    ready_out: Numbers,
    replicas_out: Numbers,
    queue_out: Numbers,
    given_up_out: Numbers,
) -> None:
    """Fill the output columns."""
    cells = numpy.zeros(fleet_cells(service))
    steps, lag = len(demand), math.ceil(service.lag_s / service.step_s)
    for step in range(steps):
        then = max(0, step - lag)
        advance(desired, settings, memory, cells, service, step, demand[then])
        ready_out[step] = cells[_served_place(service, step)]
        replicas_out[step] = cells[_READY] + cells[_STARTING]
        queue_out[then] = cells[_QUEUE]
        given_up_out[then] = cells[_GIVEN_UP]
    for then in range(max(1, steps - lag), steps):
        _serve(cells, service, then, demand[then])
        queue_out[then] = cells[_QUEUE]
        given_up_out[then] = cells[_GIVEN_UP]


def resume(
    desired: Desired,
    settings: Numbers,
    memory: Numbers,
    cells: Numbers,
    first: int,
    demand: Numbers,
    service: ReplaySettings,
    replicas_out: Numbers,
) -> None:
    """Continue a replay from step `first`, with the `cells` and `memory` of the steps before.

    `demand` is what the policy sees at each of the steps: that of step 0, then as late as signals are.
    """
    for index in range(len(demand)):
        advance(desired, settings, memory, cells, service, first + index, demand[index])
        replicas_out[index] = cells[_READY] + cells[_STARTING]


def advance(
    desired: Desired,
    settings: Numbers,
    memory: Numbers,
    cells: Numbers,
    service: ReplaySettings,
    step: int,
    demand: float,
) -> None:
    """Replay one step; `cells` hold pods and signals, zeros before step 0.

    Pods that are due become ready, the work of the step that is as long ago as the lag is done by the pods
    that were ready then, and the policy decides. Pods that are not wanted any more go youngest first, those
    that still start before ready ones, as a ReplicaSet removes them.

    Args:
        desired: the policy.
        settings: its own.
        memory: its own.
        cells: as the step before left them.
        service: what the replay goes by.
        step: from 0.
        demand: of the step that is as long ago as the lag; of step 0 before there is one.
    """
    start_up = max(1, math.ceil(service.start_up_s / service.step_s))
    lag = math.ceil(service.lag_s / service.step_s)
    if step == 0:
        cells[_READY] = min(max(service.least, math.ceil(demand)), service.most)
    due = _DUE + step % (start_up + 1)
    ready = cells[_READY] + cells[due]
    starting = cells[_STARTING] - cells[due]
    cells[due] = 0.0
    cells[_served_place(service, step)] = ready
    if step == 0 or step > lag:
        _serve(cells, service, max(0, step - lag), demand)
    replicas = ready + starting
    seen = Seen(
        step,
        service.step_s,
        service.start_up_s,
        service.lag_s,
        cells[_DEMAND],
        cells[_UTILIZATION],
        cells[_QUEUE],
        cells[_SHORT],
        ready,
        replicas,
        service.least,
    )
    wanted = desired(seen, memory, settings)
    if not math.isnan(wanted):
        wanted = min(max(math.ceil(wanted - 1e-9), service.least), service.most)
        if wanted > replicas:
            cells[_DUE + (step + start_up) % (start_up + 1)] += wanted - replicas
            starting += wanted - replicas
        elif wanted < replicas:
            gone = replicas - wanted
            at = step + start_up
            while gone > 0 and at > step:
                place = _DUE + at % (start_up + 1)
                cut = min(gone, cells[place])
                cells[place] -= cut
                starting -= cut
                gone -= cut
                at -= 1
            ready -= gone
    cells[_READY] = ready
    cells[_STARTING] = starting


def _serve(cells: Numbers, service: ReplaySettings, step: int, demand: float) -> None:
    """Serve a step's work with the pods ready at it, and record the observations."""
    ready = cells[_served_place(service, step)]
    done, queue, given_up = work_of_step(
        cells[_QUEUE], demand, ready, service.step_s, service.patience_s
    )
    cells[_GIVEN_UP] = given_up
    cells[_QUEUE] = queue
    cells[_DEMAND] = demand
    cells[_UTILIZATION] = done / (ready * service.step_s) if ready > 0 else math.nan
    cells[_SHORT] = 1.0 if demand > ready + 1e-9 else 0.0
    cells[SHORT_STEPS] += cells[_SHORT]


def work_of_step(
    queue: float, demand: float, ready: float, step_s: float, patience_s: float
) -> tuple[float, float, float]:
    """Return what ready pods do in a step, what waits at its end, and what is given up, in pod-seconds."""
    work = queue + demand * step_s
    done = min(work, ready * step_s)
    waiting = min(work - done, ready * patience_s)
    return done, waiting, work - done - waiting


def _served_place(service: ReplaySettings, step: int) -> int:
    start_up = max(1, math.ceil(service.start_up_s / service.step_s))
    lag = math.ceil(service.lag_s / service.step_s)
    return _DUE + start_up + 1 + step % (lag + 1)


def fleet_cells(service: ReplaySettings) -> int:
    """Return how many numbers `advance` keeps between steps."""
    return _served_place(service, 0) + math.ceil(service.lag_s / service.step_s) + 1
