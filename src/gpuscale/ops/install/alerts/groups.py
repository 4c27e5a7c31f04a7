"""Alert rules of an installation, from the rule files beside this module."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

from pydantic import Field

from gpuscale.base.documents.models import Model, parse_file
from gpuscale.base.golang.durations import format_duration
from gpuscale.ops.install.alerts.queues import queue_placeholders
from gpuscale.ops.install.common import Object
from gpuscale.ops.install.placeholders import SeriesNames, filled_in

_FILES = ("gpus.yaml", "scaling.yaml")
_EXPORTED_LABELS = "exported-labels.yaml"
_METRICS_API, _SCALER = "metrics API", "scaler"


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
    has_scaler: bool = True
    """Whether it has the scaler that KEDA asks."""


class Labels(Model):
    """Labels of an alert."""

    severity: Literal["critical", "warning"]
    """Critical: scaling does not work, or a GPU is broken. Warning: money is lost, or more may follow."""


class Annotations(Model):
    """Annotations of an alert."""

    summary: str
    """One line, with labels in Go's template syntax."""
    description: str
    """Two lines: why it matters and what may be behind it, and what to do."""
    runbook_url: str
    needs: str
    """Whose series it takes, separated by commas; without them it never fires. Of `A or B`, one is enough."""


class AlertRule(Model):
    """One alert rule."""

    alert: str
    expr: str
    hold: str | None = Field(default=None, alias="for")
    """How long the expression has to have a result before the alert fires."""
    labels: Labels
    annotations: Annotations

    @property
    def needs(self) -> list[str]:
        """Whose series it takes."""
        return self.annotations.needs.split(", ")

    @property
    def meaning(self) -> str:
        """Why it matters, and what may be behind it."""
        return self.annotations.description.splitlines()[0]

    @property
    def action(self) -> str:
        """What to do."""
        return self.annotations.description.splitlines()[1]


class AlertGroup(Model):
    """Rules that are evaluated together."""

    name: str
    rules: tuple[AlertRule, ...]


class AlertFile(Model):
    """A rule file of Prometheus with alerts."""

    groups: tuple[AlertGroup, ...]


def alert_sources() -> dict[str, str]:
    """Return the rule files with the placeholders that an installation fills in, by name."""
    queues = queue_placeholders()
    return {name: filled_in(__package__, name, queues) for name in (*_FILES, _EXPORTED_LABELS)}


def alert_groups(settings: AlertSettings) -> list[Object]:
    """Return the rule groups as Prometheus reads them."""
    return [
        {"name": group.name, "rules": [_rule(each) for each in group.rules]}
        for group in rule_groups(settings)
    ]


def rule_groups(settings: AlertSettings) -> Iterator[AlertGroup]:
    """Yield one group about GPUs and one about scaling, of what the installation has."""
    replaced = {}
    if settings.names.are_exported:
        exported = _read(_EXPORTED_LABELS, settings).groups
        replaced = {rule.alert: rule for group in exported for rule in group.rules}
    for name in _FILES:
        for group in _read(name, settings).groups:
            rules = [replaced.get(each.alert, each) for each in group.rules]
            kept = [each for each in rules if _is_scraped(each, settings)]
            yield AlertGroup(name=group.name, rules=tuple(kept))


def _is_scraped(rule: AlertRule, settings: AlertSettings) -> bool:
    has = {_METRICS_API: settings.has_metrics_api, _SCALER: settings.has_scaler}
    return all(any(has.get(one, True) for one in need.split(" or ")) for need in rule.needs)


def _read(name: str, settings: AlertSettings) -> AlertFile:
    filled = {
        "AGENT_JOB": settings.names.agent_job,
        "API_JOB": settings.names.api_job,
        "SCALER_JOB": settings.names.scaler_job,
        "IDLE_TIME": format_duration(settings.idle_ms),
        "NODE_START_TIME": format_duration(settings.node_start_ms),
        "DOCS_URL": settings.docs_url,
        **queue_placeholders(),
    }
    text = filled_in(__package__, name, filled)
    found, _ = parse_file(AlertFile, text, f"{__package__}/{name}")
    return found


def _rule(rule: AlertRule) -> Object:
    return {
        "alert": rule.alert,
        "expr": rule.expr,
        **({"for": rule.hold} if rule.hold else {}),
        "labels": {"severity": rule.labels.severity},
        "annotations": {
            "summary": rule.annotations.summary,
            "description": f"{rule.meaning} {rule.action}",
            "runbook_url": rule.annotations.runbook_url,
        },
    }
