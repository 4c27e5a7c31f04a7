"""KEDA: it wakes a workload at zero and takes it back there, and the HPA that it makes does the rest.

The HPA asks for the trigger's value at each sync, as it does without useCachedMetrics, so what polls decide
is rest and work alone. A workload whose least is above 0 never rests: KEDA is then its HPA.

Source: `triggers.keda.counts`; KEDA v2.21 pkg/scaling/executor/scale_scaledobjects.go.
"""

import math

from gpuscale.triggers.keda.counts import NO_IDLE, has_cooled_down, may_rest, woken
from gpuscale.triggers.policies.hpa import MEMORY, MOST, ON_TOTAL, on_total
from gpuscale.triggers.policies.policy import Numbers, Parameter, Policy, Seen

_LAST_ACTIVE_MS = MEMORY
"""0 where it never was active: the initial cooldown of 0 s began with the replay."""


def _desired(seen: Seen, memory: Numbers, settings: Numbers) -> float:
    polling_s, cooldown_s, activation = settings[3], settings[4], settings[5]
    current, least = int(seen.replicas), int(seen.least)
    now_s = seen.step * seen.step_s
    if math.floor(now_s / polling_s) != math.floor((now_s - seen.step_s) / polling_s):
        now_ms = round(now_s * 1000)
        replicas = current
        if seen.demand > activation:
            memory[_LAST_ACTIVE_MS] = now_ms
            replicas = woken(current, least, NO_IDLE)
        elif may_rest(current, least, NO_IDLE) and has_cooled_down(
            int(memory[_LAST_ACTIVE_MS]), int(cooldown_s), now_ms
        ):
            replicas = 0
        if replicas != current:
            return float(replicas)
    return on_total(seen, seen.demand, memory, settings[:3], max(1, least), MOST)


KEDA = Policy(
    "keda",
    "KEDA and its HPA on demand",
    _desired,
    (
        *ON_TOTAL,
        Parameter("polling_s", 30, 15, 300),
        Parameter("cooldown_s", 300, 0, 3600),
        Parameter("activation", 0, 0, 1),
    ),
    MEMORY + 1,
    "kedacore/keda v2.21 pkg/scaling/executor/scale_scaledobjects.go",
)
