"""Rules and alerts in the JSON form of Prometheus' API.

Source: prometheus web/api/v1/api.go (rules, alerts; v3.0.0).
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from gpuscale.base.golang.durations import GO_BOOLS
from gpuscale.series.matchers import Matcher
from gpuscale.series.promapi.body import bad_data
from gpuscale.series.promapi.parameters import Parameters
from gpuscale.series.promapi.server_view import Ruling
from gpuscale.series.promapi.shapes import TimeAxis
from gpuscale.series.rules.alerting import Alert, AlertingRule
from gpuscale.series.rules.groups import AnyRule, RuleGroup

NEVER = "0001-01-01T00:00:00Z"
"""Go's zero time."""


def rule_groups(ruler: Ruling | None, parameters: Parameters, axis: TimeAxis) -> dict[str, Any]:
    """Return the groups and rules that a request selects.

    Raises:
        ApiError: a parameter has no such value.
    """
    is_wanted = _wanted(parameters)
    shows_alerts = not _truth(parameters, "exclude_alerts")
    files, groups = parameters.all("file[]"), parameters.all("rule_group[]")
    found = []
    for group in () if ruler is None else ruler.groups.groups:
        if (files and group.file not in files) or (groups and group.name not in groups):
            continue
        rules = [
            _rule(rule, axis, shows_alerts=shows_alerts) for rule in group.rules if is_wanted(rule)
        ]
        if rules and ruler is not None:
            found.append(_group(group, rules, ruler.interval_of(group), axis))
    return {"groups": found}


def alerts(ruler: Ruling | None, axis: TimeAxis) -> dict[str, Any]:
    """Return all alerts that are pending or firing."""
    rules = () if ruler is None else ruler.groups.rules()
    return {
        "alerts": [
            _alert(alert, axis)
            for rule in rules
            if isinstance(rule, AlertingRule)
            for alert in rule.current()
        ]
    }


def timestamp(time_ms: int | None, axis: TimeAxis) -> str:
    """Return a time of the store in RFC 3339, on the caller's time axis."""
    if time_ms is None:
        return NEVER
    moment = datetime.fromtimestamp(axis.to_caller_ms(time_ms) / 1000, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _wanted(parameters: Parameters) -> Callable[[AnyRule], bool]:
    kind = parameters.text("type").lower()
    if kind not in {"", "alert", "record"}:
        raise bad_data(f'invalid parameter "type": not supported value "{kind}"')
    names = parameters.all("rule_name[]")
    selectors = parameters.selectors()

    def is_wanted(rule: AnyRule) -> bool:
        is_alert = isinstance(rule, AlertingRule)
        return (
            (not kind or (kind == "alert") == is_alert)
            and (not names or rule.name in names)
            and (not selectors or any(_matches(rule.labels, each) for each in selectors))
        )

    return is_wanted


def _matches(labels: Mapping[str, str], matchers: Sequence[Matcher]) -> bool:
    """Return whether a rule's labels match a selector; a label with a template never does."""
    return all(
        "{{" not in labels.get(each.name, "") and each.predicate()(labels.get(each.name, ""))
        for each in matchers
    )


def _truth(parameters: Parameters, name: str) -> bool:
    text = parameters.text(name)
    if not text:
        return False
    if text not in GO_BOOLS:
        raise bad_data(
            f'invalid parameter "{name}": error converting {name}: "{text}" is no truth value'
        )
    return GO_BOOLS[text]


def _group(
    group: RuleGroup, rules: list[dict[str, Any]], interval_ms: int, axis: TimeAxis
) -> dict[str, Any]:
    return {
        "name": group.name,
        "file": group.file,
        "rules": rules,
        "interval": _seconds(interval_ms),
        "limit": group.limit,
        "evaluationTime": group.evaluation_s,
        "lastEvaluation": timestamp(group.last_ms, axis),
    }


def _rule(rule: AnyRule, axis: TimeAxis, *, shows_alerts: bool) -> dict[str, Any]:
    status = rule.status
    beside: dict[str, Any] = {"health": status.health}
    if status.last_error:
        beside["lastError"] = status.last_error
    beside["evaluationTime"] = status.evaluation_s
    beside["lastEvaluation"] = timestamp(status.evaluated_ms, axis)
    if not isinstance(rule, AlertingRule):
        labels = {"labels": dict(rule.labels)} if rule.labels else {}
        return {
            "name": rule.name,
            "query": rule.shown_query,
            **labels,
            **beside,
            "type": "recording",
        }
    return {
        "state": str(rule.state),
        "name": rule.name,
        "query": rule.shown_query,
        "duration": _seconds(rule.hold_ms),
        "keepFiringFor": _seconds(rule.keep_firing_ms),
        "labels": dict(rule.labels),
        "annotations": dict(rule.annotations),
        "alerts": [_alert(each, axis) for each in rule.current()] if shows_alerts else None,
        **beside,
        "type": "alerting",
    }


def _alert(alert: Alert, axis: TimeAxis) -> dict[str, Any]:
    since = alert.keep_firing_since_ms
    kept = {} if since is None else {"keepFiringSince": timestamp(since, axis)}
    return {
        "labels": dict(alert.labels),
        "annotations": dict(alert.annotations),
        "state": str(alert.state),
        "activeAt": timestamp(alert.active_ms, axis),
        **kept,
        "value": exponent_text(alert.value),
    }


def exponent_text(value: float) -> str:
    """Return a number like Go's shortest `%e`, such as `1.5e+00`."""
    if value != value:
        return "NaN"
    if value in {float("inf"), float("-inf")}:
        return "+Inf" if value > 0 else "-Inf"
    digits, _, exponent = f"{Decimal(repr(value)).normalize():e}".partition("e")
    return f"{digits}e{exponent[0]}{exponent[1:]:0>2}"


def _seconds(milliseconds: int) -> float:
    return milliseconds / 1000 if milliseconds % 1000 else milliseconds // 1000
