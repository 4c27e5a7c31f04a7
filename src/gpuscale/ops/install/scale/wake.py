"""What brings a workload back from zero, and the triggers that gpuscale serves for the HPA and for KEDA."""

from collections.abc import Sequence
from typing import Annotated

from pydantic import Field, model_validator

from gpuscale.base.documents.models import Model, PositiveDuration
from gpuscale.base.documents.validation import LABEL_PATTERN
from gpuscale.ops.install.fields import MAX_TARGET
from gpuscale.ops.install.scale.metrics import (
    CombinedMetric,
    MetricEntry,
    Query,
    QueryMetric,
    SignalMetric,
)

Cron = Annotated[
    str, Field(pattern=r"^[0-9A-Za-z*,/?#-]+( +[0-9A-Za-z*,/?#-]+){4}$", max_length=128)
]
SourceName = Annotated[str, Field(pattern=LABEL_PATTERN, max_length=63)]

_HOLD_MS = 600_000
FIELDS = {
    "wake": "sources",
    "wakeName": "name",
    "wakeQuery": "query",
    "wakeThreshold": "threshold",
    "wakeStart": "start",
    "wakeEnd": "end",
    "timezone": "timezone",
    "wakeReplicas": "replicas",
    "wakeDeadline": "deadline",
    "hold": "hold",
    "fallbackReplicas": "fallbackReplicas",
}
"""The field of `wake` behind each key of a trigger."""


class Wake(Model):
    """What wakes the workload while it has no pod, and what holds while that can't be asked."""

    sources: tuple[SourceName, ...] = Field(default=(), max_length=8)
    """Wake sources by name, such as llm-d-queue, http-add-on or rabbitmq; docs/triggers.md has them all."""
    name: str | None = Field(default=None, min_length=1, max_length=253)
    """With `sources`: name of the object there, such as the InferencePool, the Service or the queue."""
    query: Query | None = None
    """PromQL with one number as its answer; the workload is awake while that is above `threshold`."""
    threshold: float = Field(default=0, ge=0, le=MAX_TARGET, multiple_of=0.001)
    """What `query` and `sources` are held against."""
    start: Cron | None = None
    """Cron expression of five fields: the workload is awake from then until `end`."""
    end: Cron | None = None
    """Cron expression of five fields."""
    timezone: str = Field(default="UTC", pattern=r"^[A-Za-z0-9_+/-]+$", max_length=64)
    """Of `start` and `end`, such as Europe/Berlin."""
    replicas: int = Field(default=1, ge=1, le=10_000)
    """Pods while a wake source is active, at least."""
    deadline: PositiveDuration | None = None
    """How long the first pod may take until it is ready, node included; absent: learned from its pods."""
    hold: PositiveDuration = _HOLD_MS
    """How long the last decision holds while a source can't be asked."""
    fallback_replicas: int | None = Field(default=None, ge=1, le=10_000)
    """Pods after that; absent: what was asked for last, 1 at least."""

    @model_validator(mode="after")
    def _has_a_source(self) -> "Wake":
        if (self.start is None) != (self.end is None):
            raise ValueError("found one of start and end, expected both")
        if bool(self.sources) != (self.name is not None):
            raise ValueError("found one of sources and name, expected both")
        if not (self.sources or self.query or self.start):
            raise ValueError("found no wake source, expected sources, query, or start and end")
        return self


def served_entries(
    entries: Sequence[MetricEntry],
) -> list[SignalMetric | CombinedMetric | QueryMetric]:
    """Return the metrics that triggers can serve, as totals to be divided by their targets."""
    return [
        each
        for each in entries
        if isinstance(each, SignalMetric | CombinedMetric)
        or (isinstance(each, QueryMetric) and each.target_type == "AverageValue")
    ]
