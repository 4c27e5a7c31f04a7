"""A decision as plain data for `gpuscale decide --output json`."""

from collections.abc import Iterable

from gpuscale.base.quantity import Quantity
from gpuscale.hpa.decisions.comparison import differences
from gpuscale.hpa.decisions.documents import DecisionRequest
from gpuscale.hpa.decisions.reported import ReportedStatus
from gpuscale.hpa.types import Condition, Decision, Event, MetricStatus

_GAVE_UP = frozenset({"FailedComputeMetricsReplicas", "FailedGetScale"})
"""Warnings that end a sync without a count."""


def answer(request: DecisionRequest, decision: Decision) -> dict[str, object]:
    """Return a document's answer; unknown values are None.

    `name`, `namespace`, `status`, `nodes` and `unknown` are there only where the document has them.
    """
    event = deciding_event(decision)
    names = {"name": request.name, "namespace": request.namespace}
    found: dict[str, object] = {key: text for key, text in names.items() if text}
    found |= {
        "desiredReplicas": None if request.scale_error else decision.desired_replicas,
        "conditions": _conditions(decision.conditions),
        "metrics": [
            {
                "index": each.index,
                "current": current_text(each),
                "proposedReplicas": each.proposed_replicas,
                "error": each.error,
            }
            for each in decision.metrics
        ],
        "event": None if event is None else {"reason": event.reason, "message": event.message},
        "explanation": [*request.notes, *decision.explanation],
    }
    if request.reported is not None:
        found["status"] = _status(request.reported, request, decision)
    if request.nodes:
        found["nodes"] = list(request.nodes)
    if request.unknown:
        found["unknown"] = list(request.unknown)
    return found


def _conditions(conditions: Iterable[Condition]) -> list[dict[str, object]]:
    return [
        {"type": c.type, "status": c.status, "reason": c.reason, "message": c.message}
        for c in conditions
    ]


def _status(
    reported: ReportedStatus, request: DecisionRequest, decision: Decision
) -> dict[str, object]:
    """Return the status that the cluster's controller wrote, and its differences from the decision."""
    return {
        "currentReplicas": reported.current_replicas,
        "desiredReplicas": reported.desired_replicas,
        "lastScaleTime": reported.last_scale_time or None,
        "conditions": _conditions(reported.conditions),
        "differences": [
            {"field": d.field, "reported": d.reported, "decided": d.decided, "why": d.why}
            for d in differences(request, decision)
        ],
    }


def deciding_event(decision: Decision) -> Event | None:
    """Return the event that ends the sync: the new size, or that no count could be computed."""
    given_up = (warning for warning in decision.warnings if warning.reason in _GAVE_UP)
    return decision.event or next(given_up, None)


def current_text(status: MetricStatus) -> str | None:
    """Return what a metric shows as `kubectl get hpa` writes it; None where it shows nothing."""
    if status.average_utilization is not None:
        return f"{status.average_utilization}%"
    milli = current_milli(status)
    return None if milli is None else str(Quantity.from_milli(milli))


def current_milli(status: MetricStatus) -> int | None:
    """Return the value that was compared with the target, unless it is a percentage."""
    if status.average_value_milli is not None:
        return status.average_value_milli
    return status.value_milli
