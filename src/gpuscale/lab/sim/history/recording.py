"""A workload's recorded days: columns on an even time grid, and constant facts.

None is a moment that nothing is known of. It stays apart from 0 everywhere.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import pairwise

from gpuscale.base.errors import UsageError
from gpuscale.base.objects.hpa import HorizontalPodAutoscaler

Column = tuple[float | None, ...]

_GRACE_STEPS = 3
"""For so many steps a new pod's GPUs may be missing from the utilisation: scrapes come later."""


@dataclass(frozen=True, slots=True)
class RecordedColumns:
    """Columns with one value for each step."""

    replicas: Column
    """What the Deployment asked for."""
    ready: Column
    """Pods that took requests."""
    utilization: Column
    """Mean percent of the GPUs of ready pods."""
    rate: Column
    """Requests per second; all None without a query for them."""
    nodes: Column
    """Nodes with GPUs, those that other workloads used too."""


NAMES = tuple(each.name for each in fields(RecordedColumns))
_TARGET = "target/"
MOST_TARGETS = 32
"""Of an HPA in a recording."""
FACT_COLUMNS = ("gpusPerNode", "gpuModel", "startupSeconds", "provisioningSeconds")
"""Columns of a file whose first value holds for all of it."""


@dataclass(frozen=True, slots=True)
class Recording:
    """Observations from `start_ms` on, one for each `step_ms`."""

    start_ms: int
    step_ms: int
    columns: RecordedColumns
    hpa: Mapping[str, Column] = field(default_factory=dict)
    """What the workload's HPA said: `minReplicas`, `maxReplicas`, `target/METRIC`; none that is not known."""
    stated: Mapping[str, str] = field(default_factory=dict)
    """Facts that a file has beside the columns, by FACT_COLUMNS."""

    def __len__(self) -> int:
        return len(self.columns.replicas)


def is_of_hpa(column: str) -> bool:
    """Return whether a column belongs to `Recording.hpa`."""
    return column in {"minReplicas", "maxReplicas"} or column.startswith(_TARGET)


def target_column(metric: str) -> str:
    """Return the column with a metric's target."""
    return f"{_TARGET}{metric}"


def metric_of(column: str) -> str | None:
    """Return the metric whose target a column holds; None for any other column."""
    return column.removeprefix(_TARGET) if column.startswith(_TARGET) else None


def columns_of(hpa: HorizontalPodAutoscaler) -> dict[str, float]:
    """Return what an HPA says, by the columns of `Recording.hpa`."""
    found = {
        "minReplicas": float(1 if hpa.min_replicas is None else hpa.min_replicas),
        "maxReplicas": float(hpa.max_replicas),
    }
    for metric in hpa.metrics:
        target = metric.target
        for value in (target.value, target.average_value, target.average_utilization):
            if value is not None:
                found[target_column(metric.name)] = float(value)
    return found


@dataclass(frozen=True, slots=True)
class RecordingFacts:
    """Constant facts of a recording."""

    gpus_per_pod: int
    gpus_per_node: int
    gpu_model: str
    startup_ms: int
    """From a pod's binding to Ready: image and model included."""
    provisioning_ms: int
    """From a pod that fits nowhere to a node that it fits on."""
    notes: tuple[str, ...] = ()
    """What was assumed instead of seen."""
    stated: Mapping[str, str] = field(default_factory=dict)
    """What was seen, by FACT_COLUMNS, for a file that keeps it."""


def from_answers(
    answers: Mapping[str, Column], start_ms: int, step_ms: int, gpus_per_pod: int
) -> Recording:
    """Return the recording built from Prometheus' answers.

    Args:
        answers: `replicas`, `ready`, `rate` and `nodes` as columns, `busy` for the percents of all GPUs of
            the workload added up, and `seen` for how many GPUs that is; and those of its HPA.
        start_ms: the time of each column's first value.
        step_ms: between two values.
        gpus_per_pod: at least one.
    """
    ready = answers["ready"]
    expected = [None if pods is None else pods * gpus_per_pod for pods in ready]
    utilization = tuple(
        _utilization(busy, seen, expected[max(0, index - _GRACE_STEPS + 1) : index + 1])
        for index, (busy, seen) in enumerate(zip(answers["busy"], answers["seen"], strict=True))
    )
    columns = RecordedColumns(
        answers["replicas"], ready, utilization, answers["rate"], answers["nodes"]
    )
    known = {name: column for name, column in answers.items() if set(column) != {None}}
    hpa = {name: column for name, column in known.items() if is_of_hpa(name)}
    return Recording(start_ms, step_ms, columns, hpa)


def _utilization(
    busy: float | None, seen: float | None, expected: Sequence[float | None]
) -> float | None:
    """Return the mean utilization of the ready pods' GPUs, in percent.

    GPUs of pods that are not ready yet are idle and don't count. GPUs without a reading are taken to be as
    busy as the others, once their pods have been ready for some steps.
    """
    gpus = expected[-1]
    if busy is None or not seen or not gpus:
        return None
    lasting = min(each for each in expected if each is not None)
    scale = lasting / seen if seen < lasting else 1.0
    return min(100.0, busy * scale / gpus)


def trimmed(recording: Recording) -> Recording:
    """Return the recording without the steps at both ends that have no replicas.

    Raises:
        UsageError: none has.
    """
    known = [index for index, value in enumerate(recording.columns.replicas) if value is not None]
    if not known:
        raise UsageError("found no replicas of the workload in the whole range")
    first, last = known[0], known[-1] + 1
    cut = RecordedColumns(*(getattr(recording.columns, name)[first:last] for name in NAMES))
    hpa = {name: column[first:last] for name, column in recording.hpa.items()}
    start_ms = recording.start_ms + first * recording.step_ms
    return replace(recording, start_ms=start_ms, columns=cut, hpa=hpa)


def changes(values: Sequence[float | None]) -> int:
    """Return how often a column's known value changed."""
    known = [value for value in values if value is not None]
    return sum(later != earlier for earlier, later in pairwise(known))
