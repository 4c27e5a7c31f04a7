"""A decision as the plain data that `gpuscale decide --output json` prints."""

from gpuscale.core.quantity import Quantity
from gpuscale.hpa.conditions import SCALING_ACTIVE
from gpuscale.hpa.documents import DecisionRequest
from gpuscale.hpa.types import Decision, Event, MetricStatus

_GAVE_UP = "FailedComputeMetricsReplicas"


def answer(request: DecisionRequest, decision: Decision) -> dict[str, object]:
    """Return the answer to a document; what is not known is None."""
    event = deciding_event(decision)
    return {
        "desiredReplicas": decision.desired_replicas,
        "conditions": [
            {"type": c.type, "status": c.status, "reason": c.reason, "message": c.message}
            for c in decision.conditions
        ],
        "metrics": [_metric(status) for status in decision.metrics],
        "event": None if event is None else {"reason": event.reason, "message": event.message},
        "explanation": [*request.notes, *decision.explanation],
    }


def could_decide(decision: Decision) -> bool:
    """Return whether the controller knows how many replicas there should be."""
    return decision.rescale or not any(
        c.type == SCALING_ACTIVE and c.status == "False" for c in decision.conditions
    )


def deciding_event(decision: Decision) -> Event | None:
    """Return the event that ends the sync: the new size, or that no count could be computed."""
    given_up = (warning for warning in decision.warnings if warning.reason == _GAVE_UP)
    return decision.event or next(given_up, None)


def current_text(status: MetricStatus) -> str | None:
    """Return what a metric shows as `kubectl get hpa` writes it; None where it shows nothing."""
    if status.average_utilization is not None:
        return f"{status.average_utilization}%"
    milli = current_milli(status)
    return None if milli is None else str(Quantity.from_milli(milli))


def current_milli(status: MetricStatus) -> int | None:
    """Return the value that was held against the target, where that is no percentage."""
    if status.average_value_milli is not None:
        return status.average_value_milli
    return status.value_milli


def _metric(status: MetricStatus) -> dict[str, object]:
    return {
        "index": status.index,
        "current": current_text(status),
        "proposedReplicas": status.proposed_replicas,
        "error": status.error,
    }
