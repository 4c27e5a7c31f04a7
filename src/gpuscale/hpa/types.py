"""The inputs and outputs of a decision.

Metric values are whole thousandths (`_milli`), as upstream's metrics client hands them on. Times are
milliseconds since the epoch.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

from gpuscale.base.errors import GpuscaleError
from gpuscale.base.objects.metric_values import DEFAULT_WINDOW_MS, MetricValue
from gpuscale.base.objects.pods import PodPhase
from gpuscale.base.quantity import Quantity


class ReadyCondition(Enum):
    """The status of a pod's Ready condition; having none is a state of its own."""

    TRUE = "True"
    FALSE = "False"
    UNKNOWN = "Unknown"
    ABSENT = "absent"


@dataclass(frozen=True, slots=True)
class Scale:
    """The `scale` subresource of the target."""

    spec_replicas: int
    status_replicas: int
    selector: str
    """As text; empty where the target gives none."""


@dataclass(frozen=True, slots=True)
class ContainerInfo:
    """One container, as far as utilization needs it."""

    name: str
    requests: Mapping[str, Quantity] = field(default_factory=dict)
    sidecar: bool = False
    """An init container that keeps running."""


@dataclass(frozen=True, slots=True)
class PodInfo:
    """A pod that the scale's selector finds."""

    name: str
    labels: Mapping[str, str] = field(default_factory=dict)
    phase: PodPhase = PodPhase.RUNNING
    deleted: bool = False
    """Deletion was asked for."""
    ready: ReadyCondition = ReadyCondition.TRUE
    ready_transition_ms: int | None = None
    start_ms: int | None = None
    containers: tuple[ContainerInfo, ...] = ()
    init_containers: tuple[ContainerInfo, ...] = ()
    """In their order, sidecars among them; the others count only beside requests of the pod as a whole."""
    pod_requests: Mapping[str, Quantity] = field(default_factory=dict)
    """Requests of the pod as a whole; empty where it has none."""
    overhead: Mapping[str, Quantity] = field(default_factory=dict)
    """Of its runtime class; it counts only beside requests of the pod as a whole."""


@dataclass(frozen=True, slots=True)
class PodUsage:
    """What each container of one pod used of the resource; None where it reports none of it."""

    pod: str
    containers: Mapping[str, int | None]
    measured_ms: int = 0
    window_ms: int = DEFAULT_WINDOW_MS


@dataclass(frozen=True, slots=True)
class PodValues:
    """The answer for a Pods metric. No samples at all is a failure, not zero."""

    samples: tuple[MetricValue, ...]

    @property
    def pods(self) -> tuple[str, ...]:
        """Return the names of the pods that have a sample."""
        return tuple(sample.object_name for sample in self.samples)


@dataclass(frozen=True, slots=True)
class ObjectValue:
    """The answer for an Object metric."""

    value_milli: int
    measured_ms: int = 0


@dataclass(frozen=True, slots=True)
class ExternalValues:
    """The answer for an External metric, one value per series. None at all is a failure, not zero."""

    values_milli: tuple[int, ...]
    measured_ms: int = 0


@dataclass(frozen=True, slots=True)
class ContainerUsages:
    """The answer for a Resource or ContainerResource metric."""

    samples: tuple[PodUsage, ...]

    @property
    def pods(self) -> tuple[str, ...]:
        """Return the names of the pods that have a sample."""
        return tuple(sample.pod for sample in self.samples)


@dataclass(frozen=True, slots=True)
class FetchError:
    """The metrics API gave no answer, or an error."""

    text: str
    """What it said, without the prefixes that the controller puts before it."""


Observation = PodValues | ObjectValue | ExternalValues | ContainerUsages | FetchError


@dataclass(frozen=True, slots=True)
class ControllerSettings:
    """Flags of kube-controller-manager; the defaults are upstream's."""

    downscale_stabilization_s: int = 300
    """Window for scale-down where the HPA sets none."""
    tolerance: float = 0.1
    """Half-width of the dead band around ratio 1, where the HPA sets none."""
    cpu_initialization_period_s: int = 300
    """CPU samples of younger pods may be passed over."""
    initial_readiness_delay_s: int = 30
    """A pod that turned unready within this time after its start was never ready."""
    scale_to_zero: bool = False
    """The feature gate HPAScaleToZero; off by default up to v1.36, on from v1.37."""
    minor: int = 36
    """Of the release, v1.N."""

    @property
    def marks_zero(self) -> bool:
        """Return whether the condition ScaledToZero tells a zero of the controller's own from a pause.

        Before v1.36 every zero is its own where minReplicas is 0.
        """
        return self.minor >= 36

    @property
    def syncs_at_once(self) -> bool:
        """Return whether a new HPA and a changed spec are synced at once, not with the next period.

        Source: kubernetes v1.37 pkg/controller/podautoscaler/horizontal.go (enqueueHPA, updateHPA).
        """
        return self.minor >= 37

    @property
    def is_reworded(self) -> bool:
        """Return whether the texts of AmbiguousSelector and of failed Object metrics are those of v1.37."""
        return self.minor >= 37


DEFAULT_SETTINGS = ControllerSettings()


@dataclass(frozen=True, slots=True)
class Recommendation:
    """A sync's proposal before any limits."""

    replicas: int
    time_ms: int


@dataclass(frozen=True, slots=True)
class ScaleEvent:
    """A written change of replicas, without its sign."""

    replica_change: int
    time_ms: int
    outdated: bool = False
    """Older than every policy's period when it was last looked at; its place may be reused."""


@dataclass(frozen=True, slots=True)
class Condition:
    """One line of `status.conditions`."""

    type: str
    status: str
    reason: str
    message: str
    last_transition_ms: int
    """When `status` last changed; other changes leave it."""


@dataclass(frozen=True, slots=True)
class Event:
    """A Kubernetes event on the HPA."""

    type: str
    """`Normal` or `Warning`."""
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class HpaState:
    """What the controller remembers of one HPA between syncs; the empty one is a first sync."""

    recommendations: tuple[Recommendation, ...] = ()
    """In the order of their places, which is not that of time once a place was reused."""
    scale_up_events: tuple[ScaleEvent, ...] = ()
    scale_down_events: tuple[ScaleEvent, ...] = ()
    conditions: tuple[Condition, ...] = ()
    """In the order in which they were first set."""
    desired_replicas: int | None = None
    """`status.desiredReplicas`; None before the first decision."""
    last_scale_ms: int | None = None
    """`status.lastScaleTime`; None while nothing was scaled."""


@dataclass(frozen=True, slots=True)
class MetricStatus:
    """One metric's result at this sync; no value and proposal if it failed."""

    index: int
    """Position in `spec.metrics`."""
    name: str
    """As events name it, such as `pods metric queue_length`."""
    target: str
    proposed_replicas: int | None = None
    value_milli: int | None = None
    average_value_milli: int | None = None
    average_utilization: int | None = None
    """Percent of the request."""
    error: str | None = None


def deciding_metric(metrics: Sequence[MetricStatus]) -> MetricStatus | None:
    """Return the metric that asks for most replicas, of equals the first; None where none asks for any."""
    asking = [each for each in metrics if each.proposed_replicas is not None]
    return max(asking, key=lambda each: each.proposed_replicas or 0, default=None)


@dataclass(frozen=True, slots=True)
class Decision:
    """What one sync decides. Nothing is applied yet.

    The caller writes `desired_replicas` to the target if `rescale`, and then takes the state from
    `succeeded` or `failed`. Without `rescale`, `next_state` holds as it is.
    """

    current_replicas: int
    desired_replicas: int
    """Equal to `current_replicas` unless `rescale`."""
    reason: str
    """Why the count changes, as the event says it; empty where it does not change."""
    event: Event | None
    """What to record once the scale is written; None where nothing is to be written."""
    warnings: tuple[Event, ...]
    """What to record in any case."""
    metrics: tuple[MetricStatus, ...]
    """One per metric; none where this sync looked at no metric."""
    explanation: tuple[str, ...]
    """A sentence for each step that mattered."""
    next_state: HpaState
    """Holds after the scale was written, or where there is nothing to write."""
    state_before_write: HpaState

    @property
    def rescale(self) -> bool:
        """Return whether the target's scale is to be written."""
        return self.desired_replicas != self.current_replicas

    @property
    def conditions(self) -> tuple[Condition, ...]:
        """Return the conditions of `next_state`."""
        return self.next_state.conditions


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a sync, once the scale was written or could not be read or written."""

    state: HpaState
    event: Event | None


class UncomputableError(GpuscaleError):
    """No replica count can be computed; the text is the controller's. It does not leave `hpa`."""
