"""Whatever objects the API server sends, and whatever an agent streams, it is taken or refused."""

import json

from hypothesis import given
from hypothesis import strategies as st

from gpuscale.base.exposition.stream import StreamError
from gpuscale.series.scraping.streamed import StreamedTarget
from gpuscale.series.scraping.target import TargetSeries
from gpuscale.series.storage.store import SeriesStore
from gpuscale.server.sources.feeds.annotated_pods import pod_targets
from gpuscale.server.sources.feeds.endpoint_slices import AgentChoice, slice_targets

LEAVES = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=6), st.just("true")
)
KEYS = st.sampled_from(
    (
        *("metadata", "labels", "annotations", "prometheus.io/scrape", "prometheus.io/port"),
        *("status", "podIP", "spec", "containers", "ports", "containerPort", "addressType"),
        *("endpoints", "addresses", "conditions", "targetRef", "port", "name", "kind", "ms"),
        *("series", "values", "new", "gone", "version", "prometheus.io/path"),
    )
)
JSON = st.recursive(
    LEAVES,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(KEYS, inner, max_size=5)),
    max_leaves=20,
)
OBJECTS = st.dictionaries(KEYS, JSON, max_size=6)


def annotated(path, port, address):
    annotations = {"scrape": "true", "path": path, "port": port}
    return {
        "metadata": {"annotations": {f"prometheus.io/{k}": v for k, v in annotations.items()}},
        "status": {"podIP": address},
    }


@given(st.one_of(OBJECTS, st.builds(annotated, JSON, JSON, JSON)))
def test_any_pod_gives_targets_or_none(body) -> None:
    assert all(each.url for each in pod_targets(body))


@given(st.text(max_size=20), st.integers(1, 65_535), st.sampled_from(("10.0.0.1", "fd00::1")))
def test_any_path_of_a_pod_stays_with_the_pod(path, port, address) -> None:
    for target in pod_targets(annotated(path, str(port), address)):
        host = f"[{address}]" if ":" in address else address
        assert target.url.removeprefix(f"http://{host}").startswith((f":{port}/", "/"))


@given(OBJECTS, st.sampled_from(("IPv4", "IPv6", "FQDN")), JSON)
def test_any_slice_gives_targets_or_none(body, kind, endpoints) -> None:
    ports = [{"name": "m", "port": 1}]
    for each in (body, {**body, "addressType": kind, "endpoints": endpoints, "ports": ports}):
        assert all(target.is_agent for target in slice_targets(each, AgentChoice()))


@given(st.lists(st.one_of(st.binary(max_size=80), OBJECTS), max_size=6), st.integers(0, 1 << 50))
def test_any_line_is_taken_or_refused(lines, now_ms) -> None:
    store = SeriesStore()
    agent = StreamedTarget(store, TargetSeries(store, {}, honor_labels=True))
    for line in lines:
        text = line if isinstance(line, bytes) else json.dumps(line).encode()
        try:
            agent.feed(text, now_ms)
        except StreamError:
            agent.connected()
    agent.gone(now_ms)
