# mypy: disable-error-code="no-untyped-def"
"""What an OTLP request becomes, in both of its forms, and what of it is refused."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuscale.base.clock import ManualClock
from gpuscale.series.otlp.message import (
    JSON,
    PROTOBUF,
    MalformedRequestError,
    Request,
    answer,
    read_request,
)
from gpuscale.series.otlp.points import Refusals, samples
from gpuscale.series.promql.evaluate import instant
from gpuscale.series.storage.limits import ScrapeLimits
from gpuscale.series.storage.store import SeriesStore
from gpuscale.series.wanted import WantedNames, WantedSeries
from gpuscale.server.sources.otlp.receiver import OtlpReceiver
from gpuscale.server.sources.otlp.settings import PROMOTED, OtlpSettings

NOW_MS = 1_700_000_000_000
NANO = NOW_MS * 1_000_000


def text(key, value):
    return {"key": key, "value": {"stringValue": value}}


def point(value=1.0, t_ms=NOW_MS, **more):
    return {"timeUnixNano": str(t_ms * 1_000_000), "asDouble": value, **more}


def document(*metrics, resource=()):
    found = [text("service.name", "vllm"), text("service.namespace", "ml"), *resource]
    found.append(text("service.instance.id", "vllm-0"))
    scope = {"scope": {"name": "x"}, "metrics": list(metrics)}
    return {"resourceMetrics": [{"resource": {"attributes": found}, "scopeMetrics": [scope]}]}


def gauge(name="queue", *points, unit=""):
    return {"name": name, "unit": unit, "gauge": {"dataPoints": list(points or [point()])}}


def counter(name="requests", temporality=2, *points):
    data = {"isMonotonic": True, "aggregationTemporality": temporality}
    return {"name": name, "sum": {**data, "dataPoints": list(points or [point(7.0)])}}


def read(body):
    return read_request(json.dumps(body).encode(), JSON)


def found(body, refused=None):
    """Return value by name and labels, less what identifies the resource."""
    given_ = samples(read(body), PROMOTED, refused or Refusals())
    return {
        tuple(sorted((k, v) for k, v in each.labels.items() if k not in {"job", "instance"})): (
            each.value
        )
        for each in given_
    }


def series(name, **labels):
    return tuple(sorted({"__name__": name, **labels}.items()))


def test_job_and_instance_are_the_services() -> None:
    (sample,) = samples(read(document(gauge())), (), Refusals())
    assert sample.labels == {"__name__": "queue", "job": "ml/vllm", "instance": "vllm-0"}
    assert (sample.value, sample.t_ms) == (1.0, NOW_MS)


def test_attributes_of_the_resource_are_in_target_info_and_some_on_every_series() -> None:
    resource = (text("k8s.pod.name", "vllm-0"), text("cloud.region", "x"))
    assert found(document(gauge(), resource=resource)) == {
        series("queue", k8s_pod_name="vllm-0"): 1.0,
        series("target_info", k8s_pod_name="vllm-0", cloud_region="x"): 1.0,
    }


def test_a_histogram_has_buckets_that_add_up() -> None:
    data = {"timeUnixNano": str(NANO), "count": "6", "sum": 4.5, "bucketCounts": ["1", "2", "3"]}
    data |= {"explicitBounds": [0.5, 2.0], "attributes": [text("model", "a")]}
    histogram = {"aggregationTemporality": 2, "dataPoints": [data]}
    metric = {"name": "ttft", "unit": "s", "histogram": histogram}
    assert found(document(metric)) == {
        series("ttft_seconds_sum", model="a"): 4.5,
        series("ttft_seconds_count", model="a"): 6.0,
        series("ttft_seconds_bucket", model="a", le="0.5"): 1.0,
        series("ttft_seconds_bucket", model="a", le="2"): 3.0,
        series("ttft_seconds_bucket", model="a", le="+Inf"): 6.0,
    }


def test_a_summary_has_quantiles() -> None:
    data = {"timeUnixNano": str(NANO), "count": "2", "sum": 3.0}
    data["quantileValues"] = [{"quantile": 0.5, "value": 1.5}]
    metric = {"name": "wait", "summary": {"dataPoints": [data]}}
    assert found(document(metric)) == {
        series("wait_sum"): 3.0,
        series("wait_count"): 2.0,
        series("wait", quantile="0.5"): 1.5,
    }


@pytest.mark.parametrize("temporality", [0, 1])
def test_delta_temporality_is_refused_with_what_to_do(temporality) -> None:
    refused = Refusals()
    assert found(document(counter("a", temporality), counter("b")), refused) == {
        series("b_total"): 7.0
    }
    ((reason, count),) = refused.points.items()
    assert (count, reason.startswith("delta temporality of a: set OTEL_EXPORTER")) == (1, True)


def test_exponential_histograms_are_refused() -> None:
    refused = Refusals()
    histogram = {"aggregationTemporality": 2, "dataPoints": [{"count": "1"}]}
    metric = {"name": "e", "exponentialHistogram": histogram}
    assert found(document(metric), refused) == {}
    assert refused.points == {"exponential histogram e: use explicit buckets": 1}


def test_values_of_attributes_are_texts_and_no_attribute_is_the_name_or_the_identity() -> None:
    attributes = [
        {"key": "b", "value": {"boolValue": True}},
        {"key": "i", "value": {"intValue": "7"}},
        {"key": "l", "value": {"arrayValue": {"values": [{"intValue": "1"}]}}},
        text("__name__", "other"),
        text("job", "theirs"),
        text("a.b", "1"),
        text("a_b", "2"),
    ]
    (sample,) = samples(
        read(document(gauge("queue", point(attributes=attributes)))), (), Refusals()
    )
    assert sample.labels == {"__name__": "queue", "job": "ml/vllm", "instance": "vllm-0"} | {
        "b": "true",
        "i": "7",
        "l": "[1]",
        "a_b": "1;2",
    }


def test_protobuf_and_json_say_the_same_and_exemplars_dont_matter() -> None:
    exemplars = [{"traceId": "5b8efff798038103d269b633813fc60c", "spanId": "eee19b7ec3c1b174"}]
    body = document(counter("requests", 2, point(7.0, exemplars=exemplars)))
    request = read(body)
    again = read_request(request.SerializeToString(), PROTOBUF)
    assert list(samples(again, (), Refusals())) == list(samples(request, (), Refusals()))


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (b"\xff\xff\xff", PROTOBUF),
        (b"{", JSON),
        (b"[]", JSON),
        (b'{"resourceMetrics": 7}', JSON),
        (b"[" * 100_000, JSON),
        (b'{"resourceMetrics":[{"resource":' * 5_000, JSON),
    ],
)
def test_what_is_no_request_is_refused(body, kind) -> None:
    with pytest.raises(MalformedRequestError, match="found no OTLP metrics"):
        read_request(body, kind)


@given(st.binary(max_size=300), st.sampled_from([PROTOBUF, JSON]))
def test_any_bytes_are_a_request_or_none(body, kind) -> None:
    try:
        request = read_request(body, kind)
    except MalformedRequestError:
        return
    for sample in samples(request, PROMOTED, Refusals()):
        assert sample.labels["__name__"]


def test_an_answer_says_what_was_left_out() -> None:
    assert answer(PROTOBUF, 0, "") == b""
    assert json.loads(answer(JSON, 2, "why")) == {
        "partialSuccess": {"rejectedDataPoints": "2", "errorMessage": "why"}
    }


def receiver(store=None, wanted=None, **limits):
    return OtlpReceiver(
        OtlpSettings(),
        store or SeriesStore(),
        wanted or WantedSeries(),
        ScrapeLimits(**limits),
        ManualClock(NOW_MS),
    )


async def test_what_no_rule_asks_for_is_not_kept() -> None:
    store = SeriesStore()
    found = receiver(store, WantedSeries(WantedNames(frozenset({"queue"}))))
    taken = await found.take("a", read(document(gauge(), gauge("other"))))
    assert (taken.samples, taken.unwanted, taken.rejected) == (1, 1, 0)
    assert store.stats().series == 1


async def test_a_request_that_comes_twice_changes_nothing() -> None:
    store = SeriesStore()
    found = receiver(store)
    for _ in range(2):
        assert (await found.take("a", read(document(gauge())))).rejected == 0
    assert store.stats().samples == 1


async def test_times_ahead_are_of_arrival_and_times_long_ago_are_refused() -> None:
    store = SeriesStore(retention_ms=60_000)
    ahead = gauge("ahead", point(t_ms=NOW_MS + 3_600_000))
    behind = gauge("behind", point(t_ms=NOW_MS - 86_400_000))
    taken = await receiver(store).take("a", read(document(ahead, behind)))
    assert (taken.samples, taken.refused) == (1, {"too old": 1})
    (row,) = instant(store, "ahead", NOW_MS).samples
    assert row.measured_ms == NOW_MS


async def test_one_client_that_floods_leaves_room_for_another() -> None:
    store = SeriesStore(max_series=1_000)
    found = receiver(store)
    flood = await found.take("bad", read(document(*(gauge(f"flood_{i}") for i in range(1_500)))))
    assert flood.refused["too many of target"] == 1_500 - flood.samples
    assert 0 < flood.samples < 1_000
    good = await found.take("good", read(document(gauge("fine"))))
    assert (good.samples, good.rejected) == (1, 0)
    assert store.stats().series <= 1_000


async def test_labels_beyond_a_limit_are_refused_by_name() -> None:
    long = gauge("queue", point(attributes=[text("x", "y" * 100)]))
    taken = await receiver(label_value_chars=50).take("a", read(document(long)))
    assert taken.samples == 0
    assert taken.reason.startswith("1 for queue: ")
    assert "expected at most 50 characters" in taken.reason


async def test_a_point_without_a_value_ends_its_series() -> None:
    store = SeriesStore()
    found = receiver(store)
    await found.take("a", read(document(gauge("queue", point(t_ms=NOW_MS - 1_000)))))
    await found.take("a", read(document(gauge("queue", point(flags=1)))))
    assert instant(store, "queue", NOW_MS - 500).samples
    assert instant(store, "queue", NOW_MS).samples == ()


def test_an_empty_request_is_one() -> None:
    assert list(samples(Request(), PROMOTED, Refusals())) == []
