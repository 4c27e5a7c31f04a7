"""The scheduler's filters and score: which nodes a pod fits on, and which one it gets."""

from typing import TYPE_CHECKING

from gpuscale.base.doors import door

if TYPE_CHECKING:
    from gpuscale.hpa.cluster.scheduling.fit import (
        BLOCKING_EFFECTS,
        NodeState,
        misfits,
        node_state,
        score,
        untolerated,
    )
    from gpuscale.hpa.cluster.scheduling.placing import Placer
    from gpuscale.hpa.cluster.scheduling.resources import gpu_count
else:
    __getattr__ = door(__name__)

__all__ = [
    "BLOCKING_EFFECTS",
    "NodeState",
    "Placer",
    "gpu_count",
    "misfits",
    "node_state",
    "score",
    "untolerated",
]
