"""The status in an HPA, as the cluster's controller wrote it.

It comes from outside and explains; it decides nothing. So what is missing or of another type reads as empty.
"""

from dataclasses import dataclass

from gpuscale.base.objects.fields import Fields
from gpuscale.hpa.types import Condition


@dataclass(frozen=True, slots=True)
class ReportedStatus:
    """The controller's status at its last sync with a change."""

    current_replicas: int
    """`spec.replicas` of the target's scale at that sync."""
    desired_replicas: int
    last_scale_time: str
    """As the API server writes it; empty where the controller never scaled."""
    conditions: tuple[Condition, ...]
    """None before the first sync. Their transition times are not read."""


def read_reported(hpa: Fields) -> ReportedStatus | None:
    """Return the status of an HPA's manifest, or None where it has none."""
    # In a separate object, as faults in a status are no faults of the document.
    status = Fields(hpa.document, hpa.data).child("status")
    if not status.data:
        return None
    return ReportedStatus(
        current_replicas=status.integer("currentReplicas") or 0,
        desired_replicas=status.integer("desiredReplicas") or 0,
        last_scale_time=_time(status),
        conditions=tuple(
            Condition(
                type=each.text("type"),
                status=each.text("status"),
                reason=each.text("reason"),
                message=each.text("message"),
                last_transition_ms=0,
            )
            for each in status.items("conditions")
        ),
    )


def _time(status: Fields) -> str:
    """Return `lastScaleTime` as text; YAML reads one without quotation marks as a time."""
    value = status.data.get("lastScaleTime")
    if value is None or isinstance(value, (dict, list)):
        return ""
    isoformat = getattr(value, "isoformat", None)
    return str(isoformat()).replace("+00:00", "Z") if isoformat else str(value)
