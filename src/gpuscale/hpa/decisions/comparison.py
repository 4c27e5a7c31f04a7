"""Differences between the status of the cluster's controller and our decision, with explanations."""

from collections.abc import Iterator
from dataclasses import dataclass

from gpuscale.hpa.decisions.documents import DecisionRequest
from gpuscale.hpa.decisions.reported import ReportedStatus
from gpuscale.hpa.terms.conditions import ABLE_TO_SCALE, SCALING_ACTIVE, could_decide
from gpuscale.hpa.types import Condition, Decision

_MEMORY = (
    "If that lasts for longer than a sync period (15 s by default): the controller goes by "
    "recommendations in its memory, or its flags are not the defaults."
)
_STABILIZED = frozenset({"ScaleDownStabilized", "ScaleUpStabilized"})


@dataclass(frozen=True, slots=True)
class Difference:
    """A difference between status and decision."""

    field: str
    """`currentReplicas`, `desiredReplicas`, or the type of a condition."""
    reported: str
    decided: str
    why: str
    """What may be behind it."""


def differences(request: DecisionRequest, decision: Decision) -> tuple[Difference, ...]:
    """Return the differences from the status; none without a status.

    A condition that this sync does not touch stays as it was, which is no difference.
    """
    status = request.reported
    if status is None or not status.conditions:
        return ()
    return (*_counts(status, decision), *_conditions(status, decision))


def _has_just_scaled(status: ReportedStatus, decision: Decision) -> bool:
    """Return whether the last sync changed the count; its status has the count before."""
    return status.current_replicas != status.desired_replicas == decision.current_replicas


def _counts(status: ReportedStatus, decision: Decision) -> Iterator[Difference]:
    current = decision.current_replicas
    has_failed = any(c.type == ABLE_TO_SCALE and c.status == "False" for c in decision.conditions)
    is_followed = has_failed or _has_just_scaled(status, decision)
    if status.current_replicas != current and not is_followed:
        why = "Somebody else scaled the target since the controller's last sync."
        yield Difference("currentReplicas", str(status.current_replicas), str(current), why)
    # If no count can be computed, the controller's status keeps the last one.
    if status.desired_replicas != decision.desired_replicas and could_decide(decision):
        yield Difference(
            "desiredReplicas",
            str(status.desired_replicas),
            str(decision.desired_replicas),
            f"What it sees has changed since its last sync, and the next one follows. {_MEMORY}"
            if decision.rescale
            else f"What it sees has changed since its last sync. {_MEMORY}",
        )


def _conditions(status: ReportedStatus, decision: Decision) -> Iterator[Difference]:
    reported = {condition.type: condition for condition in status.conditions}
    for decided in decision.conditions:
        found = reported.get(decided.type)
        if decided.type == ABLE_TO_SCALE and (
            decision.rescale or _has_just_scaled(status, decision)
        ):
            continue  # it adds nothing to the counts
        if found is not None and _words(found) == _words(decided):
            continue
        there, reasons = "none", {decided.reason}
        if found is not None:
            there, reasons = _text(found), {decided.reason, found.reason}
        why = "What it sees has changed since its last sync."
        if decided.type == SCALING_ACTIVE:
            why = (
                "What the controller asked for was answered otherwise at its last sync, "
                "or is answered otherwise to the controller than to you."
            )
        elif reasons & _STABILIZED:
            why = "Stabilization goes by recommendations that only the controller remembers."
        yield Difference(decided.type, there, _text(decided), why)


def _words(condition: Condition) -> tuple[str, str, str]:
    return condition.status, condition.reason, condition.message


def _text(condition: Condition) -> str:
    return f"{condition.status} {condition.reason}: {condition.message}"
