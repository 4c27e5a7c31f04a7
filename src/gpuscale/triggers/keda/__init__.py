"""KEDA's ScaledObjects as its operator handles them: 0 <-> 1 here, 1 <-> N by the HPA that it makes. Pure."""

from typing import TYPE_CHECKING

from gpuscale.base.doors import door

if TYPE_CHECKING:
    from gpuscale.triggers.keda.activation import ACTIVATED, DEACTIVATED
    from gpuscale.triggers.keda.external import PUSH
    from gpuscale.triggers.keda.generated import made_hpa
    from gpuscale.triggers.keda.kinds import (
        Sources,
        make_scalers,
        prometheus_queries,
        queries_of,
        trigger_faults,
        trigger_queries,
        triggers_of,
    )
    from gpuscale.triggers.keda.loop import PollResult, ScaleLoop, ScaleTarget, unsupported
    from gpuscale.triggers.keda.scalers import Ask
else:
    __getattr__ = door(__name__)

__all__ = [
    "ACTIVATED",
    "DEACTIVATED",
    "PUSH",
    "Ask",
    "PollResult",
    "ScaleLoop",
    "ScaleTarget",
    "Sources",
    "made_hpa",
    "make_scalers",
    "prometheus_queries",
    "queries_of",
    "trigger_faults",
    "trigger_queries",
    "triggers_of",
    "unsupported",
]
