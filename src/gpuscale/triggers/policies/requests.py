"""The HPA on model servers' requests: in flight, or waiting.

Either is an External metric with an average for each replica. Requests are counted in pods here: as many as
a pod works on at once are 1. The last of the settings is the time that a request takes in a pod, in seconds,
behind the behavior of an HPA of one's own: the work that waits divided by it is the requests that wait.
"""

import math

from gpuscale.triggers.policies.hpa import LAG_STEPS, MEMORY, MOST, ON_TOTAL, on_total, ready_before
from gpuscale.triggers.policies.policy import Numbers, Parameter, Policy, Seen

_WINDOW, _TOLERANCE = ON_TOTAL[1:]


def _on_flight(seen: Seen, memory: Numbers, settings: Numbers) -> float:
    ready = ready_before(seen, memory, MEMORY, LAG_STEPS)
    running = 0.0 if math.isnan(seen.utilization) else seen.utilization * ready
    in_flight = running + seen.queue / settings[-1]
    return on_total(seen, in_flight, memory, settings[:-1], 1, MOST)


def _on_waiting(seen: Seen, memory: Numbers, settings: Numbers) -> float:
    waiting = seen.queue / settings[-1]
    return on_total(seen, waiting, memory, settings[:-1], 1, MOST)


HPA_IN_FLIGHT = Policy(
    "hpa-in-flight",
    "the HPA on requests in flight",
    _on_flight,
    (Parameter("target", 0.6, 0.2, 2.0), _WINDOW, _TOLERANCE),
    MEMORY + LAG_STEPS,
    "kubernetes v1.36",
)
HPA_ON_WAITING = Policy(
    "hpa-waiting",
    "the HPA on requests that wait",
    _on_waiting,
    (Parameter("target", 0.5, 0.05, 2.0), _WINDOW, _TOLERANCE),
    MEMORY,
    "kubernetes v1.36",
)
OF_REQUESTS = {policy.name: policy for policy in (HPA_IN_FLIGHT, HPA_ON_WAITING)}
"""By name. They take the time of a request, which a trace of demand alone does not say."""
