"""What promtool's rule tests do not reach: limits, restored states, what is sent on, refused templates."""

import pytest

from gpuscale.base.errors import ConfigError, QueryError
from gpuscale.series.rules.alerting import MAX_ALERTS, AlertState
from gpuscale.series.rules.load import load_rule_groups
from gpuscale.series.rules.restoring import restore
from gpuscale.series.storage.store import SeriesStore

MINUTE = 60_000


def group_of(text, **fields):
    extra = "".join(f"\n  {name}: {value}" for name, value in fields.items())
    (group,) = load_rule_groups(
        f"groups:\n- name: g{extra}\n  rules:\n  - {text}\n", "rules.yaml"
    ).groups
    return group


def evaluated(group, store, *times_ms):
    from gpuscale.series.rules.groups import RuleGroups

    for at_ms in times_ms:
        group.last_ms = None
        result = RuleGroups((group,)).evaluate(store, at_ms)
    return result


def store_with(count, at_ms=0):
    store = SeriesStore(retention_ms=10**10)
    for number in range(count):
        store.append({"__name__": "x", "i": str(number)}, at_ms, 1.0)
    return store


def test_a_group_with_more_than_its_limit_fails_and_forgets_its_alerts() -> None:
    # The texts are Prometheus': "exceeded limit of %d with %d alerts", "... series".
    group = group_of("{alert: A, expr: x}", limit=2)
    result = evaluated(group, store_with(3), 0)
    assert [each.reason for each in result.failures] == ["exceeded limit of 2 with 3 alerts"]
    assert group.rules[0].active == {}
    assert (group.rules[0].status.health, group.rules[0].status.failures) == ("err", 1)
    recording = group_of("{record: r, expr: x}", limit=2)
    result = evaluated(recording, store_with(3), 0)
    assert [each.reason for each in result.failures] == ["exceeded limit of 2 with 3 series"]


def test_alerts_have_a_bound_where_the_group_has_none() -> None:
    group = group_of("{alert: A, expr: x}")
    result = evaluated(group, store_with(MAX_ALERTS + 1), 0)
    assert [each.reason for each in result.failures] == [
        f"exceeded limit of {MAX_ALERTS} with {MAX_ALERTS + 1} alerts"
    ]


def test_resolved_alerts_are_remembered_up_to_the_bound_and_for_15_minutes() -> None:
    group = group_of("{alert: A, expr: x}")
    store = store_with(MAX_ALERTS)
    evaluated(group, store, 0)
    for number in range(MAX_ALERTS):
        store.mark_stale(store.ref({"__name__": "x", "i": str(number)}), 1)
    for number in range(MAX_ALERTS):
        store.append({"__name__": "x", "i": f"later{number}"}, MINUTE, 1.0)
    evaluated(group, store, MINUTE)
    assert len(group.rules[0].active) == 2 * MAX_ALERTS
    store.append({"__name__": "x", "i": "one more"}, 2 * MINUTE, 1.0)
    store.mark_stale(store.ref({"__name__": "x", "i": "later0"}), 2 * MINUTE)
    evaluated(group, store, 2 * MINUTE)
    assert len(group.rules[0].active) == 2 * MAX_ALERTS
    # Resolved at one minute: more than 15 minutes later they are gone.
    evaluated(group, store, 17 * MINUTE)
    assert all(
        each.resolved_ms is None or each.resolved_ms > 2 * MINUTE
        for each in group.rules[0].active.values()
    )


def alert_of(group):
    (alert,) = group.rules[0].active.values()
    return alert


@pytest.mark.parametrize(
    ("active_min", "down_min", "up_min", "expected_min"),
    [
        # Held for 30 of 60 minutes when it went down for 20: as if the 20 had not been.
        (0, 30, 50, 20),
        # 5 minutes were left, less than the grace of 10: it fires 10 minutes after the start, so it
        # counts as active since 60 - 10 minutes before it.
        (0, 55, 65, 15),
        # It was firing.
        (0, 70, 80, 0),
    ],
)
def test_alerts_go_on_after_a_restart_as_prometheus_lets_them(
    active_min: int, down_min: int, up_min: int, expected_min: int
) -> None:
    group = group_of("{alert: A, expr: x, for: 1h}")
    before = SeriesStore(retention_ms=10**10)
    before.append(
        {"__name__": "ALERTS_FOR_STATE", "alertname": "A", "i": "1"},
        down_min * MINUTE,
        active_min * 60.0,
    )
    before.append({"__name__": "x", "i": "1"}, up_min * MINUTE, 1.0)
    group.rules[0].is_restored = False
    evaluated(group, before, up_min * MINUTE)
    assert restore(group, before, up_min * MINUTE) == 0
    evaluated(group, before, up_min * MINUTE + 1)
    assert restore(group, before, up_min * MINUTE) == 1
    assert alert_of(group).active_ms == expected_min * MINUTE
    assert group.rules[0].is_restored


@pytest.mark.parametrize("hold", ["5m", "1h"])
def test_short_and_long_gone_alerts_start_over(hold: str) -> None:
    group = group_of(f"{{alert: A, expr: x, for: {hold}}}")
    store = SeriesStore(retention_ms=10**10)
    down_ms = 0 if hold == "1h" else 80 * MINUTE
    store.append({"__name__": "ALERTS_FOR_STATE", "alertname": "A", "i": "1"}, down_ms, 0.0)
    store.append({"__name__": "x", "i": "1"}, 90 * MINUTE, 1.0)
    group.rules[0].is_restored = False
    evaluated(group, store, 90 * MINUTE, 90 * MINUTE + 1)
    assert restore(group, store, 90 * MINUTE) == 0
    assert alert_of(group).active_ms == 90 * MINUTE


def test_series_that_would_overwrite_the_past_wait_until_it_is_restored() -> None:
    group = group_of("{alert: A, expr: x}")
    store = store_with(1)
    group.rules[0].is_restored = False
    assert evaluated(group, store, 0).samples == 0
    group.rules[0].is_restored = True
    assert evaluated(group, store, 1000).samples == 2


def test_alerts_are_sent_when_they_fire_again_later_and_when_they_end() -> None:
    group = group_of("{alert: A, expr: x, for: 1m}")
    store, rule = store_with(1), group.rules[0]
    evaluated(group, store, 0)
    assert rule.to_send(0, MINUTE, 15_000) == []
    evaluated(group, store, MINUTE)
    (sent,) = rule.to_send(MINUTE, MINUTE, 15_000)
    # Valid for four times the longer of interval and resend delay.
    assert (sent.state, sent.fired_ms, sent.valid_until_ms) == (
        AlertState.FIRING,
        MINUTE,
        5 * MINUTE,
    )
    assert rule.to_send(2 * MINUTE, MINUTE, 15_000) == []
    assert len(rule.to_send(2 * MINUTE + 1, MINUTE, 15_000)) == 1
    store.mark_stale(store.ref({"__name__": "x", "i": "0"}), 2 * MINUTE + 2)
    evaluated(group, store, 2 * MINUTE + 3)
    (ended,) = rule.to_send(2 * MINUTE + 4, MINUTE, 15_000)
    assert ended.resolved_ms == 2 * MINUTE + 3


def test_a_failing_alert_keeps_its_state() -> None:
    group = group_of("{alert: A, expr: 'x * on () group_left y'}")
    store = store_with(1)
    store.append({"__name__": "y"}, 0, 1.0)
    evaluated(group, store, 0)
    store.append({"__name__": "y", "b": "c"}, 1, 1.0)
    assert len(evaluated(group, store, 1000).failures) == 1
    assert alert_of(group).state is AlertState.FIRING


def test_changed_files_keep_the_state_of_rules_that_stay() -> None:
    old = group_of("{alert: A, expr: x}")
    store = store_with(1)
    evaluated(old, store, 0)
    new = group_of("{alert: A, expr: x > 0, annotations: {a: new}}")
    new.take_over(old)
    old.end(store, 1000)
    evaluated(new, store, 2000)
    assert (alert_of(new).active_ms, alert_of(new).annotations) == (0, {"a": "new"})
    assert len(store.select(())) == 3
    new.end(store, 3000)
    assert sum(each.is_stale() for each in store.select(())) == 2


def test_offset_queries_and_records_earlier() -> None:
    group = group_of("{record: r, expr: x}", query_offset="30s")
    store = store_with(1)
    store.append({"__name__": "x", "i": "0"}, 45_000, 2.0)
    evaluated(group, store, MINUTE)
    (series,) = [each for each in store.select(()) if each.labels["__name__"] == "r"]
    assert (list(series.times_ms), list(series.values)) == ([30_000], [1.0])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{{ query "up" }}', "function 'query' is not served"),
        ("{{ $value | toTime }}", "function 'toTime' is not served"),
        ("{{ nope }}", "function 'nope' not defined"),
        ("{{ .Nope }}", "unknown field .Nope"),
        ("{{ $labels", "unclosed action: found no }} for a {{"),
        ('{{ template "x" }}', "{{template}} is not served"),
        ("{{ humanize }}", "wrong number of args for humanize: want 1 got 0"),
    ],
)
def test_templates_that_are_wrong_are_refused_by_name(text: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_rule_groups(
            f"groups:\n- name: g\n  rules:\n  - alert: A\n    expr: x\n    annotations:\n      a: '{text}'\n",
            "rules.yaml",
        )
    assert str(caught.value).startswith("rules.yaml:7: groups[0].rules[0].annotations.a: found")
    assert message in str(caught.value)


def test_a_template_that_fails_says_so_in_its_text() -> None:
    group = group_of(
        "{alert: A, expr: x, annotations: {a: '{{ humanize $labels.i }} {{ humanize \"b\" }}'}}"
    )
    evaluated(group, store_with(1), 0)
    assert alert_of(group).annotations == {
        "a": "<error expanding template: can't convert 'b' to float>"
    }


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        (
            "{record: r, expr: x, for: 5m}",
            "rules.yaml:4: groups[0].rules[0].for: only of alerting rules",
        ),
        (
            "{record: r, expr: x, annotations: {a: b}}",
            "rules.yaml:4: groups[0].rules[0].annotations: only of alerting rules",
        ),
        (
            "{alert: A, expr: x, annotations: {a-b: c}}",
            "rules.yaml:4: groups[0].rules[0].annotations.a-b: a name like that of a label",
        ),
        ("{alert: '', expr: x}", "rules.yaml:4: groups[0].rules[0].alert: the alert's name"),
    ],
)
def test_what_prometheus_refuses_in_a_rule_is_refused(rule: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        group_of(rule)
    assert str(caught.value) == message


def test_results_that_are_no_vector_are_an_error() -> None:
    group = group_of("{alert: A, expr: '\"text\"'}")
    result = evaluated(group, store_with(1), 0)
    assert [each.reason for each in result.failures] == ["rule result is not a vector or scalar"]
    with pytest.raises(QueryError):
        group.rules[0].results(QueryError("no"), 0, 0)
