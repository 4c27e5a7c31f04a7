"""One alert rule: when it fires, what it says, and what it needs to be asked of."""

from dataclasses import dataclass, field
from typing import Literal

from gpuscale.install.series_names import SeriesNames

Source = Literal["node agent", "metrics API", "kube-state-metrics", "API server"]


@dataclass(frozen=True, slots=True)
class AlertSettings:
    """What alert rules depend on."""

    names: SeriesNames = field(default_factory=SeriesNames)
    idle_ms: int = 1_800_000
    """How long a GPU may do nothing for the pod that has it."""
    node_start_ms: int = 900_000
    """How long a pod may wait for a node with a GPU."""
    docs_url: str = "docs/alerts.md"
    """Page with a section per alert."""
    has_metrics_api: bool = True
    """Whether the installation has a metrics API, which is scraped."""


@dataclass(frozen=True, slots=True)
class Alert:
    """One alert rule."""

    name: str
    severity: Literal["critical", "warning"]
    """Critical: scaling does not work, or a GPU is broken. Warning: money is lost, or more may follow."""
    sources: tuple[Source, ...]
    """Whose series it takes; without them it never fires."""
    expr: str
    hold_ms: int
    """How long the expression has to have a result before the alert fires."""
    summary: str
    """One line, with labels in Go's template syntax."""
    meaning: str
    """Why it matters, and what may be behind it."""
    action: str
    """What to do."""
