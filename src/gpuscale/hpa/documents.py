"""Decision documents: one moment of one HPA as a user writes it down, as what `decide` takes.

Ages are seconds before one moment that stands for now. Every fault of a document is told at once;
only one of another kind is not looked into.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from gpuscale.core.documents import Document
from gpuscale.core.errors import ConfigError
from gpuscale.hpa.conditions import SCALED_TO_ZERO
from gpuscale.hpa.decide import decide, needs_metrics
from gpuscale.hpa.document_fields import (
    MAX_SPAN_S,
    NOW_MS,
    measured_ms,
    moment_ms,
    note_unknown,
    requests,
    shown,
    whole_number,
)
from gpuscale.hpa.observed import metric_label, note_repeated, read_observed
from gpuscale.hpa.types import (
    DEFAULT_SETTINGS,
    Condition,
    ContainerInfo,
    ContainerUsages,
    ControllerSettings,
    Decision,
    HpaState,
    Observation,
    PodInfo,
    PodValues,
    ReadyCondition,
    Recommendation,
    Scale,
    ScaleEvent,
)
from gpuscale.objects.fields import Fields
from gpuscale.objects.hpa import HorizontalPodAutoscaler, read_hpa
from gpuscale.objects.pods import PodPhase
from gpuscale.objects.selectors import Selector, parse_selector

API_VERSION = "gpuscale.dev/v1alpha1"
KIND = "Decision"
MAX_TOLERANCE = 1000.0
"""Far beyond any dead band that still scales; keeps the arithmetic finite."""
_HPA_VERSIONS = tuple(f"autoscaling/{version}" for version in ("v1", "v2beta1", "v2beta2", "v2"))
_READY_TEXTS = ("True", "False", "Unknown")
_LISTED = 3
"""Names that a note spells out; of more it tells how many."""


@dataclass(frozen=True, slots=True)
class DecisionRequest:
    """What one document asks: an HPA, and all that its controller would look at now."""

    place: str
    """File and line of the document."""
    hpa: HorizontalPodAutoscaler
    scale: Scale
    pods: tuple[PodInfo, ...]
    """Those that the scale's selector finds."""
    observations: tuple[Observation, ...]
    """One per metric; none where this sync looks at no metric and none was given."""
    state: HpaState
    settings: ControllerSettings
    notes: tuple[str, ...] = ()
    """A sentence for each thing in the document that may not be what its writer meant."""

    @property
    def is_first_sync(self) -> bool:
        """Return whether the document tells of no earlier recommendation."""
        return not self.state.recommendations


def decide_request(request: DecisionRequest) -> Decision:
    """Return what the controller would do with what a document tells."""
    return decide(
        request.hpa,
        request.scale,
        request.pods,
        request.observations,
        request.state,
        NOW_MS,
        request.settings,
    )


def read_decision(document: Document) -> DecisionRequest:
    """Return what a document asks.

    Raises:
        ConfigError: it is no Decision, or with every fault in it.
    """
    fields = Fields(document, document.data)
    spec = _spec(fields)
    settings = _settings(spec.child("config"))
    hpa = _hpa(spec, settings)
    scale = _scale(spec)
    state = _state(spec)
    pods = _pods(spec)
    is_needed = hpa is None or needs_metrics(hpa, scale, state, settings)
    metrics = None if hpa is None else hpa.metrics
    observations = read_observed(spec, metrics, is_needed=is_needed)
    if fields.problems or hpa is None:
        raise ConfigError(*sorted(fields.problems, key=lambda problem: problem.line or 0))
    selected, left_out = _selected(pods, scale.selector)
    notes = (*left_out, *_unknown_samples(hpa, observations, selected))
    place = f"{document.source}:{document.line()}"
    return DecisionRequest(place, hpa, scale, selected, observations, state, settings, notes)


def _spec(fields: Fields) -> Fields:
    """Return the `spec` of a Decision; a document of another kind is refused before it is read."""
    fields.finish()
    for key, expected in (("apiVersion", API_VERSION), ("kind", KIND)):
        if fields.data.get(key) != expected:
            fields.note((key,), expected, found=shown(fields.data.get(key)))
    fields.finish()
    note_unknown(fields, "apiVersion", "kind", "spec")
    if not isinstance(fields.data.get("spec"), dict):
        fields.child("spec", required=True)
        fields.finish()
    spec = fields.child("spec")
    note_unknown(spec, "hpa", "scale", "pods", "observed", "history", "config")
    return spec


def _mapping(fields: Fields, key: str) -> Fields | None:
    """Return the mapping below a required key, or None with the fault noted."""
    child = fields.child(key, required=True)
    return child if isinstance(fields.data.get(key), dict) else None


# Configuration


def _settings(config: Fields) -> ControllerSettings:
    note_unknown(
        config,
        "tolerance",
        "downscaleStabilization",
        "cpuInitializationPeriod",
        "initialReadinessDelay",
        "scaleToZero",
    )
    default = DEFAULT_SETTINGS
    return ControllerSettings(
        downscale_stabilization_s=_seconds(
            config, "downscaleStabilization", default.downscale_stabilization_s
        ),
        tolerance=_tolerance(config, default.tolerance),
        cpu_initialization_period_s=_seconds(
            config, "cpuInitializationPeriod", default.cpu_initialization_period_s
        ),
        initial_readiness_delay_s=_seconds(
            config, "initialReadinessDelay", default.initial_readiness_delay_s
        ),
        scale_to_zero=config.boolean("scaleToZero", default=default.scale_to_zero),
    )


def _seconds(config: Fields, key: str, default: int) -> int:
    return whole_number(config, key, default, most=MAX_SPAN_S)


def _tolerance(config: Fields, default: float) -> float:
    value = config.data.get("tolerance")
    if value is None:
        return default
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if is_number and 0 <= value <= MAX_TOLERANCE:  # type: ignore[operator]
        return float(value)  # type: ignore[arg-type]
    config.note(("tolerance",), "a ratio of zero or more, such as 0.1", found=shown(value))
    return default


# The HPA and its target


def _hpa(spec: Fields, settings: ControllerSettings) -> HorizontalPodAutoscaler | None:
    """Return the HPA, or None where something about it is wrong."""
    fields = _mapping(spec, "hpa")
    if fields is None:
        return None
    faults = len(fields.problems)
    if fields.data.get("apiVersion") not in _HPA_VERSIONS:
        found = shown(fields.data.get("apiVersion"))
        fields.note(("apiVersion",), f"one of {', '.join(_HPA_VERSIONS)}", found=found)
    if fields.data.get("kind") != "HorizontalPodAutoscaler":
        fields.note(("kind",), "HorizontalPodAutoscaler", found=shown(fields.data.get("kind")))
    if len(fields.problems) > faults:
        return None
    hpa = read_hpa(fields)
    if hpa.min_replicas == 0 and not settings.scale_to_zero:
        fix = "set spec.config.scaleToZero if the cluster has the feature gate HPAScaleToZero"
        fields.note(("spec", "minReplicas"), "at least 1", found="0", fix=fix)
    return hpa if len(fields.problems) == faults else None


def _scale(spec: Fields) -> Scale:
    fields = _mapping(spec, "scale")
    if fields is None:
        return Scale(0, 0, "")
    note_unknown(fields, "specReplicas", "statusReplicas", "selector")
    if fields.data.get("selector") is None:
        fix = "write an empty text for a target that gives none"
        fields.note(("selector",), "this field is required", fix=fix)
    return Scale(
        spec_replicas=whole_number(fields, "specReplicas"),
        status_replicas=whole_number(fields, "statusReplicas"),
        selector=fields.text("selector"),
    )


# Pods


@dataclass(frozen=True, slots=True)
class _GivenPod:
    pod: PodInfo
    has_labels: bool
    """A pod written down without labels is taken to be the target's."""


def _pods(spec: Fields) -> tuple[_GivenPod, ...]:
    items = tuple(spec.items("pods"))
    note_repeated(items, "name")
    return tuple(_GivenPod(_pod(item), "labels" in item) for item in items)


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
        "containers",
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
        pod_requests=requests(fields),
    )


def _container(fields: Fields) -> ContainerInfo:
    note_unknown(fields, "name", "requests")
    return ContainerInfo(fields.text("name", required=True), requests(fields))


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
    # YAML reads True without quotation marks as a boolean.
    if str(value) in _READY_TEXTS:
        return ReadyCondition(str(value))
    fields.note(("ready",), f"one of {', '.join(_READY_TEXTS)}", found=shown(value))
    return ReadyCondition.ABSENT


def _selected(
    given: Sequence[_GivenPod], selector: str
) -> tuple[tuple[PodInfo, ...], tuple[str, ...]]:
    """Return the pods that the selector finds, and a note on the others."""
    found = _parsed(selector)
    if found is None:
        return tuple(each.pod for each in given), ()
    selected = [each.pod for each in given if _is_selected(each, found)]
    others = [each.pod.name for each in given if not _is_selected(each, found)]
    if not others:
        return tuple(selected), ()
    note = f"Left out, since the selector {selector} does not find them: pods {_listed(others)}."
    return tuple(selected), (note,)


def _is_selected(given: _GivenPod, selector: Selector) -> bool:
    return not given.has_labels or selector.matches(given.pod.labels)


def _parsed(selector: str) -> Selector | None:
    """Return the selector; None where there is none to go by, which the decision then says."""
    try:
        return parse_selector(selector) or None
    except ValueError:
        return None


def _unknown_samples(
    hpa: HorizontalPodAutoscaler,
    observations: Sequence[Observation],
    pods: Sequence[PodInfo],
) -> tuple[str, ...]:
    """Return a note for each metric that has samples of pods that are not the target's."""
    known = {pod.name for pod in pods}
    notes: list[str] = []
    for spec, observation in zip(hpa.metrics, observations, strict=False):
        if not isinstance(observation, PodValues | ContainerUsages):
            continue
        others = [sample.pod for sample in observation.samples if sample.pod not in known]
        if others:
            notes.append(
                f"{metric_label(spec)} has samples of pods that are not the target's, "
                f"which count in its average all the same: {_listed(others)}."
            )
    return tuple(notes)


def _listed(names: Sequence[str]) -> str:
    """Return some names, and how many more there are."""
    more = len(names) - _LISTED
    return ", ".join(names[:_LISTED]) + (f" and {more} more" if more > 0 else "")


# What the controller remembers


def _state(spec: Fields) -> HpaState:
    history = spec.child("history")
    note_unknown(history, "recommendations", "scaleUps", "scaleDowns")
    return HpaState(
        recommendations=tuple(_recommendation(i) for i in history.items("recommendations")),
        scale_up_events=tuple(_scale_event(i) for i in history.items("scaleUps")),
        scale_down_events=tuple(_scale_event(i) for i in history.items("scaleDowns")),
        conditions=_conditions(spec),
    )


def _recommendation(fields: Fields) -> Recommendation:
    note_unknown(fields, "replicas", "age")
    return Recommendation(whole_number(fields, "replicas"), measured_ms(fields))


def _scale_event(fields: Fields) -> ScaleEvent:
    note_unknown(fields, "change", "age")
    return ScaleEvent(whole_number(fields, "change", least=1), measured_ms(fields))


def _conditions(spec: Fields) -> tuple[Condition, ...]:
    """Return whether the controller itself took the target to zero, from the status of the HPA.

    No other condition matters to a decision; what it leaves alone would only look as if it were new.
    """
    hpa = spec.data.get("hpa")
    status = Fields(spec.document, hpa, (*spec.path, "hpa")).child("status")
    return tuple(
        Condition(
            type=SCALED_TO_ZERO,
            status=item.text("status"),
            reason=item.text("reason"),
            message=item.text("message"),
            last_transition_ms=0,
        )
        for item in status.items("conditions")
        if item.data.get("type") == SCALED_TO_ZERO
    )[:1]
