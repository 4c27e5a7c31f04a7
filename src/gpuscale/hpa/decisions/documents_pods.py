"""A Decision document's `pods`, and those that the scale's selector matches."""

from collections.abc import Sequence
from dataclasses import dataclass

from gpuscale.base.objects.fields import Fields
from gpuscale.base.objects.hpa import HorizontalPodAutoscaler
from gpuscale.base.objects.pods import PodPhase
from gpuscale.base.objects.selectors import Selector, parse_selector
from gpuscale.hpa.decisions.document_fields import moment_ms, note_unknown, requests, shown
from gpuscale.hpa.decisions.observed import metric_label, note_repeated
from gpuscale.hpa.types import (
    ContainerInfo,
    ContainerUsages,
    Observation,
    PodInfo,
    PodValues,
    ReadyCondition,
)

_READY_TEXTS = ("True", "False", "Unknown")
_LISTED = 3
"""Names that a note spells out; of more it gives the count."""


@dataclass(frozen=True, slots=True)
class GivenPod:
    """A pod of a document."""

    pod: PodInfo
    has_labels: bool
    """A pod written down without labels is taken to be the target's."""


def read_pods(spec: Fields) -> tuple[GivenPod, ...]:
    """Return a document's pods; faults are recorded in its `spec`."""
    items = tuple(spec.items("pods"))
    note_repeated(items, "name")
    return tuple(GivenPod(_pod(item), "labels" in item) for item in items)


def _pod(fields: Fields) -> PodInfo:
    note_unknown(
        fields,
        "name",
        "labels",
        "phase",
        "ready",
        "readyTransitionAge",
        "startAge",
        "deleted",
        "requests",
        "overhead",
        "containers",
        "initContainers",
    )
    return PodInfo(
        name=fields.text("name", required=True),
        labels=fields.labels("labels"),
        phase=_phase(fields),
        deleted=fields.boolean("deleted"),
        ready=_ready(fields),
        ready_transition_ms=moment_ms(fields, "readyTransitionAge"),
        start_ms=moment_ms(fields, "startAge"),
        containers=tuple(_container(item) for item in fields.items("containers")),
        init_containers=tuple(_init_container(item) for item in fields.items("initContainers")),
        pod_requests=requests(fields),
        overhead=requests(fields, "overhead"),
    )


def _container(fields: Fields) -> ContainerInfo:
    note_unknown(fields, "name", "requests")
    return ContainerInfo(fields.text("name", required=True), requests(fields))


def _init_container(fields: Fields) -> ContainerInfo:
    note_unknown(fields, "name", "requests", "restartPolicy")
    is_sidecar = fields.text("restartPolicy") == "Always"
    return ContainerInfo(fields.text("name", required=True), requests(fields), is_sidecar)


def _phase(fields: Fields) -> PodPhase:
    known = [phase.value for phase in PodPhase]
    value = fields.data.get("phase", PodPhase.RUNNING.value)
    if value in known:
        return PodPhase(value)
    fields.note(("phase",), f"one of {', '.join(known)}", found=shown(value))
    return PodPhase.RUNNING


def _ready(fields: Fields) -> ReadyCondition:
    value = fields.data.get("ready")
    if value is None:
        if "readyTransitionAge" in fields:
            fields.note(("readyTransitionAge",), "only beside the field ready")
        return ReadyCondition.ABSENT
    # YAML reads an unquoted True as a boolean.
    if str(value) in _READY_TEXTS:
        return ReadyCondition(str(value))
    fields.note(("ready",), f"one of {', '.join(_READY_TEXTS)}", found=shown(value))
    return ReadyCondition.ABSENT


def selected_pods(
    given: Sequence[GivenPod], selector: str
) -> tuple[tuple[PodInfo, ...], tuple[str, ...]]:
    """Return the pods that the selector matches, and a note on the others."""
    try:
        found = parse_selector(selector)
    except ValueError:
        found = None
    if not found:
        # Without a usable selector; the decision reports that.
        return tuple(each.pod for each in given), ()
    selected = [each.pod for each in given if _is_selected(each, found)]
    others = [each.pod.name for each in given if not _is_selected(each, found)]
    if not others:
        return tuple(selected), ()
    note = f"Left out, since the selector {selector} does not find them: pods {_listed(others)}."
    return tuple(selected), (note,)


def _is_selected(given: GivenPod, selector: Selector) -> bool:
    return not given.has_labels or selector.matches(given.pod.labels)


def unknown_samples(
    hpa: HorizontalPodAutoscaler,
    observations: Sequence[Observation],
    pods: Sequence[PodInfo],
) -> tuple[str, ...]:
    """Return a note for each metric with samples of pods that are not the target's."""
    known = {pod.name for pod in pods}
    notes: list[str] = []
    for spec, observation in zip(hpa.metrics, observations, strict=False):
        if not isinstance(observation, PodValues | ContainerUsages):
            continue
        others = [pod for pod in observation.pods if pod not in known]
        if others:
            notes.append(
                f"{metric_label(spec)} has samples of pods that are not the target's, "
                f"which count in its average all the same: {_listed(others)}."
            )
    return tuple(notes)


def _listed(names: Sequence[str]) -> str:
    """Return the first names, and the number of the others."""
    more = len(names) - _LISTED
    return ", ".join(names[:_LISTED]) + (f" and {more} more" if more > 0 else "")
