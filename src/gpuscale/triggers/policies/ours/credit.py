"""In-flight credit: the HPA on what is in flight, where starting pods count with the load they will take.

The formula is `triggers.credit`'s, as triggers serve it. Here a request is a second of a pod's work: a pod
runs one at a time, so that what is in flight is the pods that are busy and the work that waits.
"""

import math

from gpuscale.triggers.credit import DEFAULT_DRAIN_S, MEMORY_S, Flow, credit_of
from gpuscale.triggers.policies.hpa import LAG_STEPS, MEMORY, MOST, ON_TOTAL, on_total, ready_before
from gpuscale.triggers.policies.policy import Numbers, Parameter, Policy, Seen

_READY = MEMORY
_PLACES = 64
"""Readings that are remembered, which are `MEMORY_S` at steps of 5 s or more."""
_BUSY = _READY + LAG_STEPS
"""Rings: busy pods, work that waits, and ready pods of each reading."""
_WAITING = _BUSY + _PLACES
_SERVED = _WAITING + _PLACES
_REPLICAS = _SERVED + _PLACES
"""A ring of the pods that were asked for, from which the ages of those that start follow."""
_AGES = 256
_SIZE = _REPLICAS + _AGES


def _desired(seen: Seen, memory: Numbers, settings: Numbers) -> float:
    ready = ready_before(seen, memory, _READY, LAG_STEPS)
    busy = 0.0 if math.isnan(seen.utilization) else seen.utilization * ready
    here = seen.step % _PLACES
    memory[_BUSY + here], memory[_WAITING + here] = busy, seen.queue
    memory[_SERVED + here] = ready
    memory[_REPLICAS + seen.step % _AGES] = seen.replicas
    load = busy + seen.queue
    if load > settings[0] * seen.replicas:
        load = _credited(seen, memory, settings)
    return on_total(seen, load, memory, settings[:3], 1, MOST)


def _credited(seen: Seen, memory: Numbers, settings: Numbers) -> float:
    readings = min(seen.step, _PLACES - 1, int(MEMORY_S / seen.step_s))
    flows = []
    for step in range(seen.step - readings, seen.step + 1):
        at = step % _PLACES
        busy, waiting = memory[_BUSY + at], memory[_WAITING + at]
        ready = int(memory[_SERVED + at])
        flows.append(Flow(step * seen.step_s, busy + waiting, waiting, busy, ready))
    # The youngest pods are removed first, so pods of an age are as many as were wanted ever since.
    ages_s = [0.0 for _ in range(0)]  # numba must see an empty list's element type
    asked, back = seen.replicas, 0
    while asked > seen.ready and back < min(seen.step, _AGES - 1):
        back += 1
        before = memory[_REPLICAS + (seen.step - back) % _AGES]
        older = max(seen.ready, min(asked, before))
        for _ in range(int(asked - older)):
            ages_s.append(back * seen.step_s)  # noqa: PERF401 - numba
        asked = older
    return credit_of(
        settings[0], int(seen.replicas), flows, ages_s, seen.start_up_s, settings[3]
    ).load


CREDIT = Policy(
    "credit",
    "the HPA on what is in flight, with credit for starting pods",
    _desired,
    (*ON_TOTAL, Parameter("drain_s", DEFAULT_DRAIN_S, 15, 1800, is_log=True)),
    _SIZE,
)
