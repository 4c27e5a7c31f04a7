"""AIBrix' APA: the HPA's ratio with tolerances up and down and a bound on each step's factor."""

import math

from gpuscale.triggers.policies.policy import Numbers, Parameter, Policy, Seen

_COOLED_S = 0
"""Where memory holds when scaling in is allowed again."""


def _desired(seen: Seen, memory: Numbers, settings: Numbers) -> float:
    target, up_tolerance, down_tolerance = settings[0], settings[1], settings[2]
    rate, cooldown_s = settings[3], settings[4]
    pods = max(1.0, seen.replicas)
    ratio = seen.demand / pods / target
    now_s = seen.step * seen.step_s
    wanted = pods
    if ratio > 1.0 + up_tolerance:
        wanted = min(math.ceil(pods * ratio - 1e-9), math.ceil(rate * pods))
        memory[_COOLED_S] = now_s + cooldown_s
    elif ratio < 1.0 - down_tolerance and now_s >= memory[_COOLED_S]:
        wanted = max(math.ceil(pods * ratio - 1e-9), math.floor(pods / rate))
        memory[_COOLED_S] = now_s + cooldown_s
    return wanted


APA = Policy(
    "apa",
    "AIBrix' APA on the rate",
    _desired,
    (
        Parameter("target", 0.7, 0.2, 1.0),
        Parameter("up_tolerance", 0.1, 0, 1),
        Parameter("down_tolerance", 0.1, 0, 0.9),
        Parameter("rate", 2, 1.1, 10),
        Parameter("cooldown_s", 300, 0, 3600),
    ),
    1,
    "vllm-project/aibrix pkg/controller/podautoscaler/algorithm/apa.go",
)
