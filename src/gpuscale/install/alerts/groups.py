"""Alerts as the rule groups of Prometheus."""

from collections.abc import Iterable

from gpuscale.core.golang.durations import format_duration
from gpuscale.install.alerts.alert import Alert, AlertSettings
from gpuscale.install.alerts.gpus import gpu_alerts
from gpuscale.install.alerts.scaling import scaling_alerts
from gpuscale.install.common import Object, has_api_pods
from gpuscale.install.series_names import series_names
from gpuscale.install.values import Values


def alert_settings(values: Values) -> AlertSettings:
    """Return what alert rules depend on, of an installation."""
    spec = values.spec
    return AlertSettings(
        series_names(values),
        spec.alerts.idle,
        spec.alerts.node_start,
        spec.alerts.docs_url,
        has_metrics_api=has_api_pods(values),
    )


def alert_groups(settings: AlertSettings) -> list[Object]:
    """Return one rule group of alerts about GPUs, and one about scaling."""
    return [
        _group("gpuscale-gpus", gpu_alerts(settings), settings),
        _group("gpuscale-scaling", scaling_alerts(settings), settings),
    ]


def _group(name: str, alerts: Iterable[Alert], settings: AlertSettings) -> Object:
    return {"name": name, "rules": [_rule(alert, settings) for alert in alerts]}


def _rule(alert: Alert, settings: AlertSettings) -> Object:
    held = {"for": format_duration(alert.hold_ms)} if alert.hold_ms else {}
    return {
        "alert": alert.name,
        "expr": alert.expr,
        **held,
        "labels": {"severity": alert.severity},
        "annotations": {
            "summary": alert.summary,
            "description": f"{alert.meaning} {alert.action}",
            "runbook_url": f"{settings.docs_url}#{anchor(alert.name)}",
        },
    }


def anchor(name: str) -> str:
    """Return the fragment that leads to an alert's section."""
    return name.lower()
