"""Restores pending alerts after a restart, from the series ALERTS_FOR_STATE.

`ALERTS_FOR_STATE` holds for each alert since when its condition has held. The time that nothing was
evaluated does not count as pending, and an alert that was about to fire gets some minutes to be seen to
have ended.

Source: prometheus rules/group.go (RestoreForState, v3.0.0).
"""

from gpuscale.series.labels import METRIC_NAME, LabelSet
from gpuscale.series.matchers import Matcher, MatchOp
from gpuscale.series.rules.alerting import ALERT_NAME, FOR_STATE, Alert, AlertingRule
from gpuscale.series.rules.groups import RuleGroup
from gpuscale.series.storage.samples import Series
from gpuscale.series.storage.store import SeriesStore

GRACE_MS = 10 * 60_000
"""A rule that holds alerts for less starts over; longer ones fire no earlier than this after a restart."""
OUTAGE_TOLERANCE_MS = 60 * 60_000
"""What ended longer ago than this is no longer gone on with."""
_EVALUATIONS = 2


def restore(group: RuleGroup, store: SeriesStore, now_ms: int) -> int:
    """Restore how long the group's alerts have been pending; return how many were restored.

    A rule waits for its second evaluation since the start, so that what recording rules give is there.
    """
    restored = 0
    for rule in group.rules:
        if not isinstance(rule, AlertingRule) or rule.is_restored:
            continue
        if rule.status.evaluations >= _EVALUATIONS:
            if rule.hold_ms >= GRACE_MS:
                restored += _restore_rule(rule, store, now_ms)
            rule.is_restored = True
    return restored


def _restore_rule(rule: AlertingRule, store: SeriesStore, now_ms: int) -> int:
    selector = (
        Matcher(METRIC_NAME, MatchOp.EQUAL, FOR_STATE),
        Matcher(ALERT_NAME, MatchOp.EQUAL, rule.name),
    )
    kept = {each.labels.without_name().key: each for each in store.select(selector)}
    restored = 0
    for alert in rule.current():
        labels = LabelSet({**rule.labels, **alert.labels, ALERT_NAME: rule.name}.items())
        series = kept.get(labels.key)
        if series is not None and _restore_alert(alert, series, rule.hold_ms, now_ms):
            restored += 1
    return restored


def _restore_alert(alert: Alert, series: Series, hold_ms: int, now_ms: int) -> bool:
    if not len(series.times_ms) or series.is_stale():
        return False
    down_ms, active_ms = series.times_ms[-1], round(series.values[-1] * 1000)
    if down_ms < now_ms - OUTAGE_TOLERANCE_MS:
        return False
    left_ms = hold_ms - (down_ms - active_ms)
    if left_ms <= 0:
        # It was firing, and will fire again at the next evaluation.
        alert.active_ms = active_ms
    elif left_ms < GRACE_MS:
        alert.active_ms = now_ms + GRACE_MS - hold_ms
    else:
        alert.active_ms = active_ms + now_ms - down_ms
    return True
