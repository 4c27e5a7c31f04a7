"""Alerting rules: each series in a query's result is an alert, first pending, then firing.

Source: prometheus rules/alerting.go (v3.0.0). Its order of steps is kept, for what happens within one
evaluation depends on it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import IntEnum

from gpuscale.base.errors import GpuscaleError, QueryError
from gpuscale.series.labels import METRIC_NAME, LabelKey, LabelSet
from gpuscale.series.rules.rule import Results, Rule, samples_of
from gpuscale.series.rules.templates import AlertTemplate
from gpuscale.series.values import Value

ALERTS = "ALERTS"
FOR_STATE = "ALERTS_FOR_STATE"
ALERT_NAME = "alertname"
ALERT_STATE = "alertstate"
RESOLVED_RETENTION_MS = 15 * 60_000
"""How long a resolved alert is remembered, so that those who missed its end can still be sent it."""

MAX_ALERTS = 10_000
"""Alerts of one rule where its group has no limit, and resolved ones that are remembered; Prometheus has no
bound, but here an alert on series that come and go must not fill the memory of what scales."""


class AlertState(IntEnum):
    """The state of an alert, least urgent first."""

    INACTIVE = 0
    PENDING = 1
    FIRING = 2

    def __str__(self) -> str:
        return self.name.lower()


@dataclass(slots=True)
class Alert:
    """An alert; times are milliseconds since the epoch, None if not reached."""

    labels: LabelSet
    annotations: Mapping[str, str]
    value: float
    active_ms: int
    """When its condition began to hold."""
    state: AlertState = AlertState.PENDING
    fired_ms: int | None = None
    resolved_ms: int | None = None
    keep_firing_since_ms: int | None = None
    sent_ms: int | None = None
    valid_until_ms: int | None = None
    """When who was sent the alert may take it for resolved."""


@dataclass(slots=True, kw_only=True)
class AlertingRule(Rule):
    """A rule whose result is a set of alerts."""

    hold_ms: int
    """How long the condition has to hold before an alert fires."""
    keep_firing_ms: int
    """How long an alert goes on firing after its condition has ended."""
    annotations: Mapping[str, str]
    """As written."""
    label_templates: Mapping[str, AlertTemplate]
    annotation_templates: Mapping[str, AlertTemplate]
    active: dict[LabelKey, Alert] = field(default_factory=dict)
    """Alerts by the key of their labels, the resolved ones included."""
    is_restored: bool = True
    """Whether the past is known; while it is not, no series are written that would overwrite it."""

    @property
    def state(self) -> AlertState:
        """Return the most urgent alert's state."""
        return max((alert.state for alert in self.active.values()), default=AlertState.INACTIVE)

    def current(self) -> list[Alert]:
        """Return the alerts that are pending or firing."""
        return [alert for alert in self.active.values() if alert.resolved_ms is None]

    def results(
        self, value: Value | GpuscaleError, limit: int, now_ms: int, external_url: str = ""
    ) -> Results:
        """Update the alerts, and return the samples of ALERTS and ALERTS_FOR_STATE.

        Args:
            value: what the query gave, or the error it ended with.
            limit: how many alerts there may be; 0 for `MAX_ALERTS`.
            now_ms: the time of this evaluation.
            external_url: for templates.

        Raises:
            GpuscaleError: the query failed, two alerts are the same, or there are too many; of these
                the first two leave all alerts as they are, the last one forgets them.
        """
        found = self._found(samples_of(value), now_ms, external_url)
        for key, alert in found.items():
            known = self.active.get(key)
            if known is not None and known.state is not AlertState.INACTIVE:
                known.value, known.annotations = alert.value, alert.annotations
            else:
                self.active[key] = alert
        lasting = [
            alert
            for key, alert in list(self.active.items())
            if self._lasts(key, alert, now_ms, is_found=key in found)
        ]
        limit = limit or MAX_ALERTS
        if len(lasting) > limit:
            self.active.clear()
            raise QueryError(f"exceeded limit of {limit} with {len(lasting)} alerts")
        self._forget(len(self.active) - len(lasting) - MAX_ALERTS)
        if not self.is_restored:
            return {}
        samples = [sample for alert in lasting for sample in self._samples(alert)]
        return {labels.key: (labels, number) for labels, number in samples}

    def to_send(self, now_ms: int, resend_ms: int, interval_ms: int) -> list[Alert]:
        """Return copies of the alerts that are due for sending, and mark them as sent."""
        due = [alert for alert in self.active.values() if _needs_sending(alert, now_ms, resend_ms)]
        for alert in due:
            alert.sent_ms = now_ms
            # Two evaluations or messages may be lost.
            alert.valid_until_ms = now_ms + 4 * max(resend_ms, interval_ms)
        return [replace(alert) for alert in due]

    def _found(
        self, samples: list[tuple[LabelSet, float]], now_ms: int, external_url: str
    ) -> dict[LabelKey, Alert]:
        found: dict[LabelKey, Alert] = {}
        for labels, value in samples:
            own = _expanded(self.label_templates, labels, value, external_url)
            over = {**own, ALERT_NAME: self.name}
            named = labels.drop((METRIC_NAME,)).override(over)
            if named.key in found:
                raise QueryError(
                    "vector contains metrics with the same labelset after applying alert labels"
                )
            annotations = _expanded(self.annotation_templates, labels, value, external_url)
            found[named.key] = Alert(named, annotations, value, now_ms)
        return found

    def _lasts(self, key: LabelKey, alert: Alert, now_ms: int, *, is_found: bool) -> bool:
        """Update one alert's state; return whether it is now pending or firing."""
        if is_found:
            alert.keep_firing_since_ms = None
        elif not self._is_kept_firing(alert, now_ms):
            is_forgotten = (
                alert.resolved_ms is not None and now_ms - alert.resolved_ms > RESOLVED_RETENTION_MS
            )
            if alert.state is AlertState.PENDING or is_forgotten:
                del self.active[key]
            if alert.state is not AlertState.INACTIVE:
                alert.state = AlertState.INACTIVE
                alert.resolved_ms = now_ms
            return False
        if alert.state is AlertState.PENDING and now_ms - alert.active_ms >= self.hold_ms:
            alert.state = AlertState.FIRING
            alert.fired_ms = now_ms
        return True

    def _forget(self, excess: int) -> None:
        """Forget some resolved alerts, the oldest first."""
        if excess > 0:
            resolved = [key for key, alert in self.active.items() if alert.resolved_ms is not None]
            for key in resolved[:excess]:
                del self.active[key]

    def _is_kept_firing(self, alert: Alert, now_ms: int) -> bool:
        if alert.state is not AlertState.FIRING or not self.keep_firing_ms:
            return False
        if alert.keep_firing_since_ms is None:
            alert.keep_firing_since_ms = now_ms
        return now_ms - alert.keep_firing_since_ms < self.keep_firing_ms

    def _samples(self, alert: Alert) -> tuple[tuple[LabelSet, float], tuple[LabelSet, float]]:
        # A label whose template expands to nothing keeps the template's text, as in Prometheus.
        labels = {**self.labels, **alert.labels, ALERT_NAME: self.name}
        state = {METRIC_NAME: ALERTS, ALERT_STATE: str(alert.state)}
        return (
            (LabelSet({**labels, **state}.items()), 1.0),
            (LabelSet({**labels, METRIC_NAME: FOR_STATE}.items()), float(alert.active_ms // 1000)),
        )


def _expanded(
    templates: Mapping[str, AlertTemplate], labels: LabelSet, value: float, external_url: str
) -> dict[str, str]:
    return {
        name: template.expand(labels, value, external_url) for name, template in templates.items()
    }


def _needs_sending(alert: Alert, now_ms: int, resend_ms: int) -> bool:
    if alert.state is AlertState.PENDING:
        return False
    if alert.sent_ms is None:
        return True
    if alert.resolved_ms is not None and alert.resolved_ms > alert.sent_ms:
        return True
    return alert.sent_ms + resend_ms < now_ms
