"""An agent's stream in the store: what is stored when, what ends when, and whose time counts."""

import json
import math

import pytest

from gpuscale.base.exposition.stream import StreamError
from gpuscale.series.promql.evaluate import instant
from gpuscale.series.scraping.streamed import StreamedTarget
from gpuscale.series.scraping.target import TargetSeries
from gpuscale.series.storage.limits import ScrapeLimitError, ScrapeLimits
from gpuscale.series.storage.store import SeriesStore

T = 1_700_000_000_000
LABELS = {"job": "gpuscale-exporter", "instance": "n1:9400", "node": "n1"}


def snapshot(ms, *series):
    return json.dumps({"kind": "snapshot", "version": 1, "ms": ms, "series": series}).encode()


def change(ms, **parts):
    return json.dumps({"kind": "change", "ms": ms, **parts}).encode()


def heartbeat(ms):
    return json.dumps({"kind": "heartbeat", "ms": ms}).encode()


def util(id_, pod, value):
    labels = {"gpu": str(id_), "namespace": "ml", "pod": pod} if pod else {"gpu": str(id_)}
    return [id_, "util", labels, value]


class Fed:
    """A store with one agent, and what a query sees in it."""

    def __init__(self, labels=LABELS, *, honor_labels=True) -> None:
        self.store = SeriesStore()
        series = TargetSeries(self.store, labels, honor_labels=honor_labels)
        self.agent = StreamedTarget(self.store, series)
        self.agent.connected()

    def see(self, query="util", at_ms=T):
        rows = instant(self.store, query, at_ms).samples
        return {row.labels.get("pod", ""): (row.value, row.measured_ms - T) for row in rows}


@pytest.fixture
def fed():
    return Fed()


def test_values_have_the_time_they_were_measured_at(fed) -> None:
    assert fed.agent.feed(snapshot(T - 200, util(1, "a", 23), util(2, "b", 0)), T) == 2
    assert fed.see() == {"a": (23.0, -200), "b": (0.0, -200)}
    assert fed.see("up", T) == {"": (1.0, -200)}


def test_a_line_says_of_all_series_that_they_were_measured_and_a_second_stores_all_of_them(
    fed,
) -> None:
    fed.agent.feed(snapshot(T, util(1, "a", 1), util(2, "b", 2)), T)
    assert fed.agent.feed(change(T + 100, values={"1": 5}), T + 100) == 1
    assert fed.see(at_ms=T + 100) == {"a": (5.0, 100), "b": (2.0, 100)}
    assert fed.agent.feed(heartbeat(T + 900), T + 900) == 0
    assert fed.see(at_ms=T + 900) == {"a": (5.0, 900), "b": (2.0, 900)}
    assert fed.agent.feed(heartbeat(T + 1000), T + 1000) == 2
    assert fed.see(at_ms=T + 1000) == {"a": (5.0, 1000), "b": (2.0, 1000)}


def test_series_come_and_go_with_their_line(fed) -> None:
    fed.agent.feed(snapshot(T, util(1, "a", 1), util(2, "b", 2)), T)
    fed.agent.feed(change(T + 100, new=[util(3, "c", 3)], gone=[2]), T + 100)
    assert fed.see(at_ms=T + 100) == {"a": (1.0, 100), "c": (3.0, 100)}


def test_a_new_connection_keeps_what_is_still_there_and_ends_the_rest(fed) -> None:
    fed.agent.feed(snapshot(T, util(1, "a", 1), util(2, "b", 2)), T)
    fed.agent.connected()
    assert fed.see(at_ms=T + 10).keys() == {"a", "b"}
    fed.agent.feed(snapshot(T + 500, [7, *util(1, "a", 9)[1:]]), T + 500)
    assert fed.see(at_ms=T + 500) == {"a": (9.0, 500)}
    assert fed.store.stats().series == 3  # a, b and up: a is the same series as before


def test_a_lost_agents_series_end_and_up_is_zero(fed) -> None:
    fed.agent.feed(snapshot(T, util(1, "a", 1)), T)
    fed.agent.lost(T + 5000)
    assert fed.see(at_ms=T + 5000) == {}
    assert fed.see("up", T + 5000) == {"": (0.0, 5000)}
    fed.agent.connected()
    fed.agent.feed(snapshot(T + 6000, util(1, "a", 2)), T + 6000)
    assert fed.see(at_ms=T + 6000) == {"a": (2.0, 6000)}


def test_of_an_agent_that_is_gone_nothing_stays(fed) -> None:
    fed.agent.feed(snapshot(T, util(1, "a", 1)), T)
    fed.agent.gone(T + 10)
    assert fed.see('{__name__!=""}', T + 10) == {}


def test_a_clock_that_is_ahead_counts_as_now(fed) -> None:
    fed.agent.feed(snapshot(T + 60_000, util(1, "a", 1)), T)
    fed.agent.feed(change(T + 60_100, values={"1": 2}), T + 100)
    assert fed.see(at_ms=T + 100) == {"a": (2.0, 100)}


def test_a_clock_that_was_set_back_does_not_stop_values(fed) -> None:
    fed.agent.feed(snapshot(T, util(1, "a", 1)), T)
    fed.agent.feed(change(T - 3_600_000, values={"1": 2}), T + 100)
    assert fed.see(at_ms=T + 100) == {"a": (2.0, 1)}


def test_a_clock_that_is_behind_makes_values_old_and_not_fresh(fed) -> None:
    fed.agent.feed(snapshot(T - 100_000, util(1, "a", 1)), T)
    assert fed.see() == {"a": (1.0, -100_000)}


def test_an_agents_labels_win_or_become_exported() -> None:
    labels = {**LABELS, "namespace": "gpu-operator", "pod": "agent-x"}
    lines = snapshot(T, util(1, "a", 1), util(2, "", 2))
    honoring = Fed(labels)
    honoring.agent.feed(lines, T)
    assert honoring.see() == {"a": (1.0, 0), "agent-x": (2.0, 0)}
    other = Fed(labels, honor_labels=False)
    other.agent.feed(lines, T)
    (row,) = instant(other.store, 'util{exported_pod="a",exported_namespace="ml"}', T).samples
    assert (row.labels["pod"], row.labels["namespace"]) == ("agent-x", "gpu-operator")


def test_zero_nan_and_absent_are_three_things(fed) -> None:
    fed.agent.feed(snapshot(T, util(1, "a", 0), util(2, "b", "NaN")), T)
    found = fed.see()
    assert found["a"] == (0.0, 0)
    assert math.isnan(found["b"][0])
    assert "c" not in found


@pytest.mark.parametrize(
    "line", [b"{}", b"x", snapshot(T, [1, "m", {}, 10**400]), heartbeat(T), snapshot("now")]
)
def test_what_is_no_stream_is_reported(fed, line) -> None:
    with pytest.raises(StreamError):
        fed.agent.feed(line, T)


def test_the_end_of_a_stream_stores_nothing(fed) -> None:
    fed.agent.feed(snapshot(T, util(1, "a", 1)), T)
    assert fed.agent.feed(b'{"kind":"end","reason":"stopping"}', T + 1) == 0
    assert fed.agent.ended == "stopping"


def test_of_a_fast_stream_a_sample_a_second_is_kept_and_the_newest_is_current(fed) -> None:
    fed.agent.feed(snapshot(T, util(1, "a", 0)), T)
    for tick in range(1, 600):
        now_ms = T + tick * 100
        assert fed.agent.feed(change(now_ms, values={"1": tick}), now_ms) >= 1
        assert fed.see(at_ms=now_ms) == {"a": (tick, tick * 100)}
    # The newest of each second: 9, 19, 29, ...
    (series,) = instant(fed.store, "util[1m]", T + 59_900).series
    assert series.points == tuple((T + k * 1000 + 900, 10.0 * k + 9) for k in range(60))


def test_an_end_is_not_lost_to_what_comes_in_the_same_second(fed) -> None:
    fed.agent.feed(snapshot(T, util(1, "a", 1)), T)
    fed.agent.lost(T + 100)
    fed.agent.connected()
    fed.agent.feed(snapshot(T + 200, util(1, "a", 2)), T + 200)
    assert fed.see(at_ms=T + 150) == {}
    assert fed.see(at_ms=T + 200) == {"a": (2.0, 200)}


def test_types_and_help_of_a_stream_are_kept_until_the_agent_is_gone(fed) -> None:
    families = {"util": ["gauge", "How busy."]}
    first = json.loads(snapshot(T - 200, util(1, "a", 23))) | {"families": families}
    fed.agent.feed(json.dumps(first).encode(), T)
    fed.agent.feed(change(T - 100, families={"power": ["counter", ""]}), T)
    ((labels, kept),) = fed.store.metadata.targets()
    assert labels == LABELS
    assert [(each.name, each.type, each.help) for each in kept] == [
        ("util", "gauge", "How busy."),
        ("power", "counter", ""),
    ]
    fed.agent.gone(T)
    assert list(fed.store.metadata.targets()) == []


def test_bounds_of_a_stream_are_stored_as_prometheus_3_stores_them(fed) -> None:
    series = [
        [1, "wait_bucket", {"le": "1"}, 5],
        [2, "rpc", {"quantile": "1"}, 3],
        [3, "other", {"le": "1"}, 7],
    ]
    families = {"wait": ["histogram", ""], "rpc": ["summary", ""], "other": ["gauge", ""]}
    first = json.loads(snapshot(T, *series)) | {"families": families}
    fed.agent.feed(json.dumps(first).encode(), T)
    for query, value in {
        'wait_bucket{le="1.0"}': 5,
        'rpc{quantile="1.0"}': 3,
        'other{le="1"}': 7,
    }.items():
        assert fed.see(query) == {"": (value, 0)}, query


@pytest.mark.parametrize(
    ("limits", "series", "limit", "said"),
    [
        (ScrapeLimits(samples=2), 3, "samples", "found 3, expected at most 2 series"),
        (ScrapeLimits(series=2), 3, "series", "found over 2 new series"),
        # The name, job, instance, node and three of its own are seven.
        (ScrapeLimits(labels=6), 1, "labels", "found 7, expected at most 6"),
        (ScrapeLimits(label_name_chars=8), 1, "label_name_length", "found 9, "),
        (ScrapeLimits(label_value_chars=16), 1, "label_value_length", "found 17, "),
        (ScrapeLimits(body_bytes=100), 1, "body_size", "expected at most 100 bytes"),
    ],
)
def test_a_line_beyond_a_limit_is_refused_as_a_whole(
    limits, series: int, limit: str, said: str
) -> None:
    store = SeriesStore()
    target = TargetSeries(store, LABELS, honor_labels=True)
    agent = StreamedTarget(store, target, limits=limits, source="n1:9400")
    agent.connected()
    entries = [util(i, "p" * 17, i) for i in range(series)]
    with pytest.raises(ScrapeLimitError, match=said) as raised:
        agent.feed(snapshot(T, *entries), T)
    assert raised.value.limit == limit
    assert store.stats().series == 0
    # Within the limits, the same agent is followed again.
    agent.connected()
    if limit in {"samples", "series"}:
        assert agent.feed(snapshot(T + 1, *entries[:2]), T + 1) == 2


def test_a_stream_takes_no_more_than_its_share_of_the_store() -> None:
    store = SeriesStore(max_series=100)
    agent = StreamedTarget(store, TargetSeries(store, LABELS, honor_labels=True))
    agent.connected()
    with pytest.raises(ScrapeLimitError, match="over 50 new series"):
        agent.feed(snapshot(T, *(util(i, f"p{i}", i) for i in range(51))), T)
    agent.connected()
    assert agent.feed(snapshot(T, *(util(i, f"p{i}", i) for i in range(40))), T) == 40
