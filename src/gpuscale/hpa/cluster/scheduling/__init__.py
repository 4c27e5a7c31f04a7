"""The scheduler's filters and score: which nodes a pod fits on, and which one it gets."""

from typing import TYPE_CHECKING

from gpuscale.base.doors import door

if TYPE_CHECKING:
    from gpuscale.hpa.cluster.scheduling.claims import claim_for_resources
    from gpuscale.hpa.cluster.scheduling.devices.selecting import (
        SelectorError,
        check_selector,
        selects,
    )
    from gpuscale.hpa.cluster.scheduling.fit import (
        NodeState,
        free_share,
        misfits,
        node_state,
        refusal_of,
    )
    from gpuscale.hpa.cluster.scheduling.gangs import TOO_FEW_PODS, place_gang
    from gpuscale.hpa.cluster.scheduling.placing import Placer, demands
    from gpuscale.hpa.cluster.scheduling.preempting import find_victims
    from gpuscale.hpa.cluster.scheduling.resources import (
        CLAIMED,
        device_requests,
        gpu_count,
        pod_requests,
    )
    from gpuscale.hpa.cluster.scheduling.scoring import (
        DEFAULT_WEIGHTS,
        SchedulerSettings,
        ScoringStrategy,
    )
else:
    __getattr__ = door(__name__)

__all__ = [
    "CLAIMED",
    "DEFAULT_WEIGHTS",
    "TOO_FEW_PODS",
    "NodeState",
    "Placer",
    "SchedulerSettings",
    "ScoringStrategy",
    "SelectorError",
    "check_selector",
    "claim_for_resources",
    "demands",
    "device_requests",
    "find_victims",
    "free_share",
    "gpu_count",
    "misfits",
    "node_state",
    "place_gang",
    "pod_requests",
    "refusal_of",
    "selects",
]
