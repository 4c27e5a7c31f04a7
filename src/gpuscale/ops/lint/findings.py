"""The place of a finding, and the report about files."""

from dataclasses import dataclass

from gpuscale.base.errors import Problem
from gpuscale.base.findings import Finding, Report, Unseen


@dataclass(frozen=True, slots=True)
class Place:
    """A place in a file: path, line, field."""

    file: str
    line: int | None
    field: str | None
    """Dotted path; None where the finding is the whole file's."""

    def __str__(self) -> str:
        return self.file if self.line is None else f"{self.file}:{self.line}"


LintFinding = Finding[Place]


@dataclass(frozen=True, slots=True)
class PassedOver:
    """A manifest that no check applies to."""

    place: Place
    kind: str
    """`apiVersion kind`."""


@dataclass(frozen=True, slots=True)
class LintReport(Report[Place]):
    """All findings about some files, in the order of the files and lines."""

    passed_over: tuple[PassedOver, ...]
    files: int
    rules: int
    """Rules that were read, the chart's default ones included."""
    autoscalers: int
    """HorizontalPodAutoscalers that were looked at, refused ones included."""
    scaled_objects: int = 0
    """KEDA's ScaledObjects that were looked at, refused ones included."""
    triggers: int = 0
    """Triggers of trigger files."""
    values: int = 0
    """Values files whose rendering was read, ours and those of other charts."""
    scenarios: int = 0
    """Scenarios whose files were read."""
    node_objects: int = 0
    """Pools of nodes and what belongs to them, such as node classes and queues, that were looked at."""
    workloads: int = 0
    """Objects whose pods were looked at because they ask for GPUs, or are of a kind that mostly does."""
    prometheus_rules: int = 0
    """Alerts and recording rules of Prometheus."""
    ignored: int = 0
    """Findings that comments in the files leave out."""
    in_baseline: int = 0
    """Findings that a baseline leaves out."""
    skipped: tuple[Problem, ...] = ()
    """Why files were passed over: those that are neither rules nor manifests, and broken ones that may be."""
    unseen: tuple[Unseen, ...] = ()
    """What could not be judged for want of an object that no file has."""

    @property
    def has_checked(self) -> bool:
        """Return whether the files had anything that lint checks."""
        objects = self.rules + self.autoscalers + self.scaled_objects + self.triggers
        objects += self.node_objects + self.workloads + self.prometheus_rules
        return bool(objects or self.values or self.scenarios or self.findings)
