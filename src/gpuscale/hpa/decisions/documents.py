"""Decision documents: one moment of one HPA as a user writes it down, as what `decide` takes.

Ages are seconds before the same moment, now. All errors of a document are reported together;
only one of another kind is not looked into.
"""

import shlex
from dataclasses import dataclass

from gpuscale.base.documents.documents import Document
from gpuscale.base.errors import ConfigError
from gpuscale.base.objects.fields import Fields
from gpuscale.base.objects.hpa import HorizontalPodAutoscaler, read_hpa
from gpuscale.hpa.deciding import decide, needs_metrics, scale_unreadable
from gpuscale.hpa.decisions.document_fields import (
    MAX_SPAN_S,
    NOW_MS,
    measured_ms,
    note_unknown,
    shown,
    whole_number,
)
from gpuscale.hpa.decisions.documents_pods import read_pods, selected_pods, unknown_samples
from gpuscale.hpa.decisions.observed import read_observed
from gpuscale.hpa.decisions.reported import ReportedStatus, read_reported
from gpuscale.hpa.selectors import selector_failure
from gpuscale.hpa.terms.conditions import SCALED_TO_ZERO
from gpuscale.hpa.terms.versions import (
    SCALE_TO_ZERO,
    VERSION_EXAMPLE,
    KubernetesVersion,
    parse_version,
    settings_of,
)
from gpuscale.hpa.types import (
    Condition,
    ControllerSettings,
    Decision,
    HpaState,
    Observation,
    PodInfo,
    Recommendation,
    Scale,
    ScaleEvent,
)

API_VERSION = "gpuscale.dev/v1alpha1"
KIND = "Decision"
MAX_TOLERANCE = 1000.0
"""Far beyond any dead band that still scales; keeps the arithmetic finite."""
_HPA_VERSIONS = tuple(f"autoscaling/{version}" for version in ("v1", "v2beta1", "v2beta2", "v2"))
_HPA_KIND = "HorizontalPodAutoscaler"


@dataclass(frozen=True, slots=True)
class DecisionRequest:
    """A document's content: an HPA, and all that its controller would read now."""

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
    name: str = ""
    """`metadata.name` of the document."""
    namespace: str = ""
    """`metadata.namespace` of the document."""
    scale_error: str = ""
    """Why the scale could not be read; empty where it was."""
    selecting_hpas: tuple[str, ...] = ()
    """Keys of all HPAs whose selector finds one of the pods; more than one stops each."""
    unknown: tuple[str, ...] = ()
    """A sentence for each thing that the controller knows and the writer of the document could not see."""
    nodes: tuple[str, ...] = ()
    """A sentence for pods that wait for a node: whether one comes, and why not. It decides nothing."""
    reported: ReportedStatus | None = None
    """The status in the HPA's manifest, which decides nothing."""
    kubernetes: KubernetesVersion | None = None
    """The cluster's release; None where the document does not say."""

    @property
    def is_first_sync(self) -> bool:
        """Return whether the document has no earlier recommendation."""
        return not self.state.recommendations


def decide_request(request: DecisionRequest, measured_replicas: int | None = None) -> Decision:
    """Return what the controller would do in the situation of a document.

    Args:
        request: the document.
        measured_replicas: as `hpa.decide` has it.
    """
    if request.scale_error:
        outcome = scale_unreadable(request.state, request.scale_error, NOW_MS)
        count = request.scale.spec_replicas
        return Decision(
            current_replicas=count,
            desired_replicas=count,
            reason="",
            event=None,
            warnings=() if outcome.event is None else (outcome.event,),
            metrics=(),
            explanation=(f"The scale of the target can't be read: {request.scale_error}.",),
            next_state=outcome.state,
            state_before_write=outcome.state,
        )
    return decide(
        request.hpa,
        request.scale,
        request.pods,
        request.observations,
        request.state,
        NOW_MS,
        request.settings,
        selecting_hpas=request.selecting_hpas,
        measured_replicas=measured_replicas,
    )


def read_decision(document: Document) -> DecisionRequest:
    """Read a document.

    Raises:
        ConfigError: it is no Decision, or with every fault in it.
    """
    fields = Fields(document, document.data)
    spec = _spec(fields)
    meta = fields.child("metadata")
    meta.labels("labels")  # only validated; other metadata is ignored
    meta.labels("annotations")
    name, namespace = meta.text("name"), meta.text("namespace")
    config = spec.child("config")
    kubernetes = _kubernetes(config)
    settings = _settings(config, kubernetes)
    hpa = _hpa(spec, settings, kubernetes)
    reported = read_reported(spec.child("hpa"))
    scale, scale_error = _scale(spec, reported)
    state = _state(spec)
    pods = read_pods(spec)
    selecting, unknown = spec.texts("selectingHpas"), spec.texts("unknown")
    is_selected = not scale_error and selector_failure(scale.selector, selecting, settings) is None
    is_needed = is_selected and (hpa is None or needs_metrics(hpa, scale, state, settings))
    metrics = None if hpa is None else hpa.metrics
    observations = read_observed(spec, metrics, is_needed=is_needed)
    if fields.problems or hpa is None:
        problems = dict.fromkeys(fields.problems)
        raise ConfigError(*sorted(problems, key=lambda problem: problem.line or 0))
    selected, left_out = selected_pods(pods, scale.selector)
    return DecisionRequest(
        place=f"{document.source}:{document.line()}",
        hpa=hpa,
        scale=scale,
        pods=selected,
        observations=observations,
        state=state,
        settings=settings,
        notes=(*left_out, *unknown_samples(hpa, observations, selected)),
        name=name,
        namespace=namespace,
        scale_error=scale_error,
        selecting_hpas=selecting,
        unknown=unknown,
        nodes=spec.texts("nodes"),
        reported=reported,
        kubernetes=kubernetes,
    )


def _spec(fields: Fields) -> Fields:
    """Return the `spec` of a Decision; another kind is refused first."""
    fields.finish()
    if fields.data.get("kind") == _HPA_KIND:
        meta = Fields(fields.document, fields.data).child("metadata")
        name, namespace = meta.text("name", "NAME"), meta.text("namespace")
        where = f" -n {shlex.quote(namespace)}" if namespace else ""
        command = f"gpuscale decide {shlex.quote(f'hpa/{name}')}{where}"
        fix = (
            "this is an HPA's manifest, and what it would do depends on what it sees: "
            f"`{command}` reads that from the cluster; `{command} --save why.yaml` writes both to a "
            "Decision document, see docs/decide.md"
        )
        fields.note(("kind",), KIND, found=repr(_HPA_KIND), fix=fix)
        fields.finish()
    for key, expected in (("apiVersion", API_VERSION), ("kind", KIND)):
        if fields.data.get(key) != expected:
            fields.note((key,), expected, found=shown(fields.data.get(key)))
    fields.finish()
    note_unknown(fields, "apiVersion", "kind", "metadata", "spec")
    if not isinstance(fields.data.get("spec"), dict):
        fields.child("spec", required=True)
        fields.finish()
    spec = fields.child("spec")
    note_unknown(
        spec,
        "hpa",
        "scale",
        "pods",
        "selectingHpas",
        "observed",
        "history",
        "config",
        "unknown",
        "nodes",
    )
    return spec


def _mapping(fields: Fields, key: str) -> Fields | None:
    """Return the mapping below a required key; None after recording a fault."""
    child = fields.child(key, required=True)
    return child if isinstance(fields.data.get(key), dict) else None


# Configuration


def _kubernetes(config: Fields) -> KubernetesVersion | None:
    value = config.data.get("kubernetesVersion")
    if value is None:
        return None
    try:
        return parse_version(value if isinstance(value, str) else shown(value))
    except ValueError:
        config.note(("kubernetesVersion",), f"{VERSION_EXAMPLE}, in quotes", found=shown(value))
        return None


def _settings(config: Fields, kubernetes: KubernetesVersion | None) -> ControllerSettings:
    note_unknown(
        config,
        "kubernetesVersion",
        "tolerance",
        "downscaleStabilization",
        "cpuInitializationPeriod",
        "initialReadinessDelay",
        "scaleToZero",
    )
    default = settings_of(kubernetes)
    stabilization_s = _seconds(config, "downscaleStabilization", default.downscale_stabilization_s)
    tolerance, value = default.tolerance, config.data.get("tolerance")
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if is_number and 0 <= value <= MAX_TOLERANCE:  # type: ignore[operator]
        tolerance = float(value)  # type: ignore[arg-type]
    elif value is not None:
        config.note(("tolerance",), "a ratio of zero or more, such as 0.1", found=shown(value))
    return ControllerSettings(
        downscale_stabilization_s=stabilization_s,
        tolerance=tolerance,
        cpu_initialization_period_s=_seconds(
            config, "cpuInitializationPeriod", default.cpu_initialization_period_s
        ),
        initial_readiness_delay_s=_seconds(
            config, "initialReadinessDelay", default.initial_readiness_delay_s
        ),
        scale_to_zero=config.boolean("scaleToZero", default=default.scale_to_zero),
        minor=default.minor,
    )


def _seconds(config: Fields, key: str, default: int) -> int:
    return whole_number(config, key, default, most=MAX_SPAN_S)


# The HPA and its target


def _hpa(
    spec: Fields, settings: ControllerSettings, kubernetes: KubernetesVersion | None
) -> HorizontalPodAutoscaler | None:
    """Return the HPA; None if it has faults."""
    fields = _mapping(spec, "hpa")
    if fields is None:
        return None
    faults = len(fields.problems)
    if fields.data.get("apiVersion") not in _HPA_VERSIONS:
        found = shown(fields.data.get("apiVersion"))
        fields.note(("apiVersion",), f"one of {', '.join(_HPA_VERSIONS)}", found=found)
    if fields.data.get("kind") != _HPA_KIND:
        fields.note(("kind",), _HPA_KIND, found=shown(fields.data.get("kind")))
    if len(fields.problems) > faults:
        return None
    hpa = read_hpa(fields)
    if hpa.min_replicas == 0 and not settings.scale_to_zero:
        fix = (
            f"set spec.config.kubernetesVersion if the cluster is {SCALE_TO_ZERO.beta} or later, or "
            f"spec.config.scaleToZero if it has the feature gate {SCALE_TO_ZERO.name}"
        )
        if kubernetes is not None:
            fix = (
                f"set spec.config.scaleToZero if the gate {SCALE_TO_ZERO.name} is on in the cluster"
            )
        fields.note(("spec", "minReplicas"), "at least 1", found="0", fix=fix)
    return hpa if len(fields.problems) == faults else None


def _scale(spec: Fields, reported: ReportedStatus | None) -> tuple[Scale, str]:
    """Return the target's scale, or the count in the status and why the scale can't be read."""
    fields = _mapping(spec, "scale")
    if fields is None:
        return Scale(0, 0, ""), ""
    if "error" in fields:
        note_unknown(fields, "error")
        count = 0 if reported is None else reported.current_replicas
        return Scale(count, count, ""), fields.text("error")
    note_unknown(fields, "specReplicas", "statusReplicas", "selector", "error")
    if fields.data.get("selector") is None:
        fix = "write an empty text for a target that gives none"
        fields.note(("selector",), "this field is required", fix=fix)
    scale = Scale(
        spec_replicas=whole_number(fields, "specReplicas"),
        status_replicas=whole_number(fields, "statusReplicas"),
        selector=fields.text("selector"),
    )
    return scale, ""


# What the controller remembers


def _state(spec: Fields) -> HpaState:
    history = spec.child("history")
    note_unknown(history, "recommendations", "scaleUps", "scaleDowns")
    recommendations = []
    for item in history.items("recommendations"):
        note_unknown(item, "replicas", "age")
        replicas = whole_number(item, "replicas")
        recommendations.append(Recommendation(replicas, measured_ms(item)))
    ups = tuple(_scale_event(item) for item in history.items("scaleUps"))
    downs = tuple(_scale_event(item) for item in history.items("scaleDowns"))
    # One condition matters: whether the controller itself scaled the target to zero. Others, which
    # a decision leaves unchanged, would wrongly look new.
    hpa = spec.data.get("hpa")
    status = Fields(spec.document, hpa, (*spec.path, "hpa")).child("status")
    conditions = tuple(
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
    return HpaState(
        recommendations=tuple(recommendations),
        scale_up_events=ups,
        scale_down_events=downs,
        conditions=conditions,
    )


def _scale_event(fields: Fields) -> ScaleEvent:
    note_unknown(fields, "change", "age")
    return ScaleEvent(whole_number(fields, "change", least=1), measured_ms(fields))
