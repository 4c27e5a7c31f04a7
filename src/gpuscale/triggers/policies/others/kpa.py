"""Knative's pod autoscaler on the rate of requests: a stable window, and a short one in which it panics.

Here it decides once a step, not every two seconds, and its panic window is at least one step.
"""

import math

from gpuscale.triggers.policies.policy import Numbers, Parameter, Policy, Seen
from gpuscale.triggers.policies.rings import held

_RING = 64
"""Steps of demand that are remembered; the panic state lies behind them."""
_DELAY = 256
"""Steps of the scale-down delay at the most."""
_PANIC_SINCE_S, _PANIC_PODS, _IS_PANIC = _RING, _RING + 1, _RING + 2


def _desired(seen: Seen, memory: Numbers, settings: Numbers) -> float:
    target, stable_s, panic_threshold, delay_s = settings[0], settings[1], settings[2], settings[3]
    memory[seen.step % _RING] = seen.demand
    steps = min(_RING, max(1, int(stable_s / seen.step_s)), seen.step + 1)
    total = 0.0
    for back in range(steps):
        total += memory[(seen.step - back) % _RING]
    ready = max(1.0, seen.ready)
    most, least = math.ceil(1000.0 * ready), math.floor(ready / 2.0)
    for_stable = math.ceil(total / steps / target - 1e-9)
    for_panic = math.ceil(seen.demand / target - 1e-9)
    is_over = for_panic / ready >= panic_threshold
    wanted = min(max(for_stable, least), most)
    now_s = seen.step * seen.step_s
    if is_over:
        memory[_IS_PANIC] = 1.0
        memory[_PANIC_SINCE_S] = now_s
    elif memory[_IS_PANIC] > 0 and now_s > memory[_PANIC_SINCE_S] + stable_s:
        memory[_IS_PANIC] = 0.0
        memory[_PANIC_PODS] = 0.0
    if memory[_IS_PANIC] > 0:
        wanted = max(wanted, min(max(for_panic, least), most))
        memory[_PANIC_PODS] = max(memory[_PANIC_PODS], wanted)
        wanted = memory[_PANIC_PODS]
    return held(wanted, seen, memory, _IS_PANIC + 1, _DELAY, delay_s)


KPA = Policy(
    "kpa",
    "Knative's pod autoscaler on the rate",
    _desired,
    (
        Parameter("target", 0.7, 0.2, 1.0),
        Parameter("stable_s", 60, 30, 900),
        Parameter("panic_threshold", 2, 1.1, 10),
        Parameter("scale_down_delay_s", 0, 0, 3600),
    ),
    _RING + 3 + _DELAY,
    "knative/serving pkg/autoscaler/scaling/autoscaler.go, defaults of pkg/autoscaler/config",
)
