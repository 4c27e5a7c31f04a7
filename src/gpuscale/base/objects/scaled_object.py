"""KEDA's ScaledObjects, with the defaults that KEDA fills in.

What the API server refuses (by the CRD's schema) or KEDA's controller (bounds, triggers) is a fault here.
What a trigger's metadata means is its scaler's own, so only what prometheus triggers need is looked at.

Source: KEDA v2.21 apis/keda/v1alpha1/scaledobject_types.go, scaletriggers_types.go, withtriggers_types.go
    (defaults and limits), pkg/scalers/prometheus_scaler.go, scaledobject_webhook.go
    (ValidateAndCompileScalingModifiers), pkg/scaling/executor/scale_executor.go (periods).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from gpuscale.base.objects.fields import Fields
from gpuscale.base.objects.hpa.behavior import read_behavior
from gpuscale.base.objects.hpa.types import Behavior
from gpuscale.base.objects.meta import ObjectMeta, read_meta

API_VERSION = "keda.sh/v1alpha1"
KIND = "ScaledObject"
NAME_LABEL = "scaledobject.keda.sh/name"
"""On the metrics of the HPA that KEDA makes: whose they are."""
PROMETHEUS = "prometheus"
RESOURCE_TRIGGERS = ("cpu", "memory")
"""They become resource metrics of the HPA; KEDA itself never asks for their values."""
_ANNOTATIONS = "autoscaling.keda.sh/"
_DEFAULT_MOST = 100
_DEFAULT_POLLING_S = 30
_DEFAULT_COOLDOWN_S = 300
_NEVER_CACHED = (*RESOURCE_TRIGGERS, "cron")
_FALSE = frozenset({"0", "f", "F", "FALSE", "false", "False"})
"""Go's words for it (strconv.ParseBool)."""
_METRIC_TYPES = ("AverageValue", "Value", "Utilization")


class FallbackBehavior(Enum):
    """Which count stands in while a trigger fails."""

    STATIC = "static"
    CURRENT = "currentReplicas"
    CURRENT_IF_HIGHER = "currentReplicasIfHigher"
    CURRENT_IF_LOWER = "currentReplicasIfLower"
    SCALING_MODIFIERS = "scalingModifiers"


@dataclass(frozen=True, slots=True)
class Fallback:
    """What holds while a trigger fails more often than the threshold, one time after the other."""

    failure_threshold: int
    replicas: int
    behavior: FallbackBehavior = FallbackBehavior.STATIC


@dataclass(frozen=True, slots=True)
class ScalingModifiers:
    """One metric made of all triggers by a formula."""

    formula: str
    target: str
    activation_target: str
    metric_type: str


@dataclass(frozen=True, slots=True)
class ScaleTrigger:
    """One source of a ScaledObject's counts."""

    kind: str
    """Such as `prometheus`, `external` or `cron`."""
    metadata: Mapping[str, str] = field(default_factory=dict)
    """The scaler's own settings."""
    name: str = ""
    metric_type: str = "AverageValue"
    uses_cached_metrics: bool = False
    """Whether the HPA gets the value of the latest poll, instead of a new one."""
    authentication: str = ""
    """Name of the TriggerAuthentication; empty where there is none."""

    @property
    def is_average(self) -> bool:
        """Whether the count is value / threshold, as with `metricType: AverageValue`, KEDA's default."""
        return self.metric_type == "AverageValue"

    @property
    def is_resource(self) -> bool:
        """Whether the HPA asks the resource metrics API, and KEDA nobody."""
        return self.kind in RESOURCE_TRIGGERS

    @property
    def query(self) -> str:
        """The PromQL of a prometheus trigger; empty for others."""
        return self.metadata.get("query", "")

    @property
    def threshold(self) -> float | None:
        """None where it is no number, such as a reference to an environment variable."""
        return _number(self.metadata.get("threshold", ""))


@dataclass(frozen=True, slots=True)
class ScaledObject:
    """A ScaledObject."""

    metadata: ObjectMeta
    target_kind: str
    target_name: str
    least: int
    """Replicas; 0 is KEDA's default."""
    most: int
    triggers: tuple[ScaleTrigger, ...]
    target_api_version: str = "apps/v1"
    idle: int | None = None
    """Replicas while nothing is active, below `least`; None goes to `least`."""
    polling_interval_s: int = _DEFAULT_POLLING_S
    cooldown_s: int = _DEFAULT_COOLDOWN_S
    """From the last activity until the target goes to zero, or to `idle`."""
    initial_cooldown_s: int = 0
    """The same from the object's creation, while there was no activity at all."""
    fallback: Fallback | None = None
    modifiers: ScalingModifiers | None = None
    named_hpa: str = ""
    """The name that the HPA is given; empty takes KEDA's."""
    behavior: Behavior | None = None
    restores_replicas: bool = False
    """Whether the target gets its first count back when the ScaledObject is deleted."""

    @property
    def key(self) -> str:
        return self.metadata.key

    @property
    def hpa_name(self) -> str:
        """Of the HPA that KEDA makes."""
        return self.named_hpa or f"keda-hpa-{self.metadata.name}"

    @property
    def is_paused(self) -> bool:
        """Whether KEDA neither polls nor keeps an HPA."""
        return f"{_ANNOTATIONS}paused-replicas" in self.metadata.annotations or self._is_set(
            "paused"
        )

    @property
    def paused_replicas(self) -> int | None:
        """The count while it is paused; None leaves the count as it is."""
        text = self.metadata.annotations.get(f"{_ANNOTATIONS}paused-replicas", "")
        return int(text) if text.isascii() and text.isdigit() else None

    @property
    def pauses_scale_in(self) -> bool:
        return self._is_set("paused-scale-in")

    @property
    def pauses_scale_out(self) -> bool:
        return self._is_set("paused-scale-out")

    @property
    def is_forced_active(self) -> bool:
        return self._is_set("force-activation")

    @property
    def polls_matter(self) -> bool:
        """Whether KEDA's own polls can change the count or what the HPA is told.

        Otherwise KEDA takes what the HPA's questions showed, as long as the HPA asks.
        """
        is_needed = self.least == 0 or self.idle is not None or self.modifiers is not None
        return is_needed or any(trigger.uses_cached_metrics for trigger in self.triggers)

    def _is_set(self, name: str) -> bool:
        """Return the truth of an annotation; a value that is no truth value counts as true, as in KEDA."""
        text = self.metadata.annotations.get(f"{_ANNOTATIONS}{name}")
        if text is None:
            return False
        return text not in _FALSE


def read_scaled_object(fields: Fields) -> ScaledObject:
    """Return the ScaledObject of a manifest."""
    metadata = read_meta(fields)
    spec = fields.child("spec", required=True)
    target = spec.child("scaleTargetRef", required=True)
    least = _count(spec, "minReplicaCount", 0)
    most = _count(spec, "maxReplicaCount", _DEFAULT_MOST, lowest=1)
    if least > most:
        spec.note(("maxReplicaCount",), f"at least minReplicaCount, {least}", found=str(most))
    idle = _count(spec, "idleReplicaCount", 0) if "idleReplicaCount" in spec else None
    # KEDA counts a minReplicaCount of 0 that is written as 1 here, and one that is not written as 0.
    bound = max(least, 1) if "minReplicaCount" in spec else 0
    if idle is not None and idle >= bound:
        spec.note(("idleReplicaCount",), f"below minReplicaCount, {bound}", found=str(idle))
    _check_paused_replicas(fields, metadata)
    advanced = spec.child("advanced")
    config = advanced.child("horizontalPodAutoscalerConfig")
    return ScaledObject(
        metadata=metadata,
        target_kind=target.text("kind", "Deployment"),
        target_name=target.text("name", required=True),
        least=least,
        most=most,
        triggers=_triggers(spec),
        target_api_version=target.text("apiVersion", "apps/v1"),
        idle=idle,
        polling_interval_s=_count(spec, "pollingInterval", _DEFAULT_POLLING_S, lowest=1),
        cooldown_s=_count(spec, "cooldownPeriod", _DEFAULT_COOLDOWN_S),
        initial_cooldown_s=_count(spec, "initialCooldownPeriod", 0),
        fallback=_fallback(spec),
        modifiers=_modifiers(advanced),
        named_hpa=config.text("name"),
        behavior=read_behavior(config, config, "v2"),
        restores_replicas=advanced.boolean("restoreToOriginalReplicaCount"),
    )


def _count(fields: Fields, key: str, default: int, *, lowest: int = 0) -> int:
    count = fields.integer(key, default)
    count = default if count is None else count
    if count < lowest:
        fields.note((key,), f"a whole number from {lowest} on", found=str(count))
    return count


def _check_paused_replicas(fields: Fields, metadata: ObjectMeta) -> None:
    name = f"{_ANNOTATIONS}paused-replicas"
    text = metadata.annotations.get(name)
    if text is not None and not (text.isascii() and text.isdigit()):
        path = ("metadata", "annotations", name)
        fields.note(path, "a number of replicas", found=repr(text))


def _triggers(spec: Fields) -> tuple[ScaleTrigger, ...]:
    if "triggers" not in spec:
        spec.note(("triggers",), "this field is required")
    triggers: list[ScaleTrigger] = []
    for fields in spec.items("triggers"):
        trigger = _trigger(fields)
        if trigger.name and trigger.name in {each.name for each in triggers}:
            fields.note(("name",), "each trigger's name once", found=repr(trigger.name))
        triggers.append(trigger)
    return tuple(triggers)


def _trigger(fields: Fields) -> ScaleTrigger:
    kind = fields.text("type", required=True)
    metadata = fields.labels("metadata")
    if kind == PROMETHEUS:
        for key in ("query", "threshold"):
            if not metadata.get(key):
                fields.note(("metadata", key), "this field is required")
    metric_type = fields.text("metricType", "AverageValue")
    allowed = _METRIC_TYPES if kind in RESOURCE_TRIGGERS else _METRIC_TYPES[:2]
    if metric_type not in allowed:
        fields.note(("metricType",), f"{' or '.join(allowed)}", found=repr(metric_type))
    is_cached = fields.boolean("useCachedMetrics")
    if is_cached and kind in _NEVER_CACHED:
        fields.note(("useCachedMetrics",), f"false or nothing, for a {kind} trigger", found="true")
    return ScaleTrigger(
        kind=kind,
        metadata=metadata,
        name=fields.text("name"),
        metric_type=metric_type,
        uses_cached_metrics=is_cached,
        authentication=fields.child("authenticationRef").text("name"),
    )


def _fallback(spec: Fields) -> Fallback | None:
    if "fallback" not in spec:
        return None
    fields = spec.child("fallback")
    for key in ("failureThreshold", "replicas"):
        if key not in fields:
            fields.note((key,), "this field is required")
    text = fields.text("behavior", FallbackBehavior.STATIC.value)
    known = [each.value for each in FallbackBehavior]
    if text not in known:
        fields.note(("behavior",), f"one of {', '.join(known)}", found=repr(text))
        text = FallbackBehavior.STATIC.value
    return Fallback(
        _count(fields, "failureThreshold", 0),
        _count(fields, "replicas", 0),
        FallbackBehavior(text),
    )


def _modifiers(advanced: Fields) -> ScalingModifiers | None:
    fields = advanced.child("scalingModifiers")
    if not fields.data:
        return None
    for key in ("formula", "target"):
        if not fields.text(key):
            fields.note((key,), "this field is required")
    target = fields.text("target")
    # What isn't a number may be a placeholder.
    if (number := _number(target)) is not None and number <= 0:
        fields.note(("target",), "a number above 0", found=repr(target))
    return ScalingModifiers(
        formula=fields.text("formula"),
        target=fields.text("target"),
        activation_target=fields.text("activationTarget"),
        metric_type=fields.text("metricType", "AverageValue"),
    )


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
