"""Which targets EndpointSlices, pods and flags name, and the labels that they get."""

import re

import pytest

from gpuscale.base.errors import UsageError
from gpuscale.series.promql.evaluate import instant
from gpuscale.series.scraping.scrape import ScrapeTarget
from gpuscale.series.storage.store import SeriesStore
from gpuscale.server.sources.feeds.annotated_pods import exporters, pod_targets
from gpuscale.server.sources.feeds.endpoint_slices import AgentChoice, slice_targets
from gpuscale.server.sources.feeds.selected_pods import pod_choice, selected_targets
from gpuscale.server.sources.feeds.targets import static_agent, static_scrape, told_apart


def slice_of(*endpoints, ports=None, kind="IPv4"):
    return {
        "metadata": {
            "namespace": "gpu",
            "name": "gpuscale-exporter-abc12",
            "labels": {"kubernetes.io/service-name": "gpuscale-exporter"},
        },
        "addressType": kind,
        "ports": [{"name": "metrics", "port": 9400, "protocol": "TCP"}] if ports is None else ports,
        "endpoints": list(endpoints),
    }


def endpoint(address, **conditions):
    return {
        "addresses": [address],
        "conditions": conditions,
        "nodeName": "n1",
        "targetRef": {"kind": "Pod", "namespace": "gpu", "name": "agent-x"},
    }


def urls(body, **choice):
    return [each.url for each in slice_targets(body, AgentChoice(**choice))]


def test_an_agent_has_the_labels_of_its_node_and_service_but_not_of_its_pod() -> None:
    (found,) = slice_targets(slice_of(endpoint("10.0.0.1", ready=True)), AgentChoice())
    assert found.url == "http://10.0.0.1:9400/stream"
    assert found.is_agent
    assert dict(found.labels) == {
        "job": "gpuscale-exporter",
        "instance": "10.0.0.1:9400",
        "node": "n1",
        "service": "gpuscale-exporter",
    }
    (found,) = slice_targets(slice_of(endpoint("10.0.0.1")), AgentChoice(honor_labels=False))
    assert (dict(found.labels)["namespace"], dict(found.labels)["pod"]) == ("gpu", "agent-x")


def test_agents_that_are_not_ready_are_followed_and_those_that_end_are_not() -> None:
    body = slice_of(endpoint("10.0.0.1", ready=False), endpoint("10.0.0.2", terminating=True))
    assert urls(body) == ["http://10.0.0.1:9400/stream"]


def test_ipv6_has_its_brackets() -> None:
    (found,) = slice_targets(slice_of(endpoint("fd00::1"), kind="IPv6"), AgentChoice())
    assert (found.url, found.instance) == ("http://[fd00::1]:9400/stream", "[fd00::1]:9400")


@pytest.mark.parametrize(
    ("ports", "choice", "expected"),
    [
        ([{"name": "web", "port": 1}, {"name": "metrics", "port": 2}], {}, "http://h:2/stream"),
        ([{"name": "web", "port": 1}, {"name": "x", "port": 2}], {}, "http://h:1/stream"),
        ([{"name": "web", "port": 1}], {"port": "web"}, "http://h:1/stream"),
        ([{"name": "https", "port": 1}], {}, "https://h:1/stream"),
        ([{"name": "m", "port": 1, "appProtocol": "https"}], {}, "https://h:1/stream"),
        ([{"name": "", "port": 1}], {"scheme": "https"}, "https://h:1/stream"),
    ],
)
def test_the_port_is_chosen(ports, choice, expected: str) -> None:
    assert urls(slice_of(endpoint("h"), ports=ports, kind="FQDN"), **choice) == [expected]


@pytest.mark.parametrize(
    ("ports", "choice"),
    [
        ([], {}),
        ([{"name": "m", "port": 1, "protocol": "UDP"}], {}),
        ([{"name": "m", "port": 70_000}, {"name": "n", "port": True}], {}),
        ([{"name": "m", "port": 1}], {"port": "other"}),
    ],
)
def test_without_a_port_there_is_no_agent(ports, choice) -> None:
    assert urls(slice_of(endpoint("h"), ports=ports), **choice) == []


def test_slices_are_chosen_by_service_or_by_labels() -> None:
    assert AgentChoice().parameters() == {
        "labelSelector": "kubernetes.io/service-name=gpuscale-exporter"
    }
    assert AgentChoice(selector="app=agents").parameters() == {"labelSelector": "app=agents"}
    assert AgentChoice().path() == "/apis/discovery.k8s.io/v1/endpointslices"
    path = "/apis/discovery.k8s.io/v1/namespaces/gpu/endpointslices"
    assert AgentChoice(namespace="gpu").path() == path


def pod(annotations, ports=(8000,), **parts):
    return {
        "metadata": {
            "namespace": "ml",
            "name": "vllm-0",
            "labels": {"app.kubernetes.io/name": "vllm"},
            "annotations": {f"prometheus.io/{key}": text for key, text in annotations.items()},
            **parts,
        },
        "spec": {
            "nodeName": "n1",
            "containers": [{"ports": [{"containerPort": each} for each in ports]}],
        },
        "status": {"podIP": "10.0.0.9"},
    }


def test_an_annotated_pod_is_scraped_with_its_labels() -> None:
    (found,) = pod_targets(pod({"scrape": "true", "port": "8000", "path": "/m?a=b"}))
    assert found.url == "http://10.0.0.9:8000/m?a=b"
    assert not found.is_agent
    assert dict(found.labels) == {
        "job": "kubernetes-pods",
        "instance": "10.0.0.9:8000",
        "namespace": "ml",
        "pod": "vllm-0",
        "node": "n1",
        "app_kubernetes_io_name": "vllm",
    }


@pytest.mark.parametrize(
    ("texts", "is_trusted"),
    [
        ((), False),
        (("ml",), True),
        (("other",), False),
        (("ml/app.kubernetes.io/name=vllm",), True),
        (("ml/app.kubernetes.io/name=other", "ml/app=vllm"), False),
        (("other/app.kubernetes.io/name=vllm",), False),
    ],
)
def test_only_exporters_may_name_other_pods(texts, is_trusted: bool) -> None:
    trusted = tuple(map(exporters, texts))
    (found,) = pod_targets(pod({"scrape": "true"}), trusted)
    assert found.own_labels == (() if is_trusted else ("namespace", "pod"))


@pytest.mark.parametrize("namespace", ["gpu-operator", "kube-amd-gpu", "kube-system", "monitoring"])
def test_exporters_where_they_are_usually_installed_are_known(namespace: str) -> None:
    (found,) = pod_targets(pod({"scrape": "true"}, namespace=namespace))
    assert found.own_labels == ()


@pytest.mark.parametrize("text", ["", "/a=b", "ml/", "ml/a", "ml/a=", "ml/=b"])
def test_exporters_that_are_no_choice_are_reported(text: str) -> None:
    with pytest.raises(UsageError, match="expected NAMESPACE or NAMESPACE/LABEL=VALUE"):
        exporters(text)


def test_no_pod_sets_the_value_of_another_teams_pod() -> None:
    store = SeriesStore()
    labels = 'gpu="0",namespace="team-a",pod="victim"'
    exporter = pod({"scrape": "true"}, namespace="gpu-operator", name="exporter")
    stranger = pod({"scrape": "true"}, namespace="team-b", name="stranger")
    as_exporter = ',job="kubernetes-pods",instance="10.0.0.9:8000",node="n1"'
    for body, exposed in (
        (exporter, f"util{{{labels}}} 12\n"),
        (stranger, f'util{{{labels}{as_exporter}}} 100\nutil{{namespace="",pod=""}} 100\n'),
    ):
        (target,) = pod_targets(body)
        series = ScrapeTarget(
            store, dict(target.labels), honor_labels=True, own_labels=target.own_labels
        )
        assert series.ingest(exposed, 1000).added == exposed.count("\n")
    rows = instant(store, "avg by (namespace, pod) (util)", 1000).samples
    assert {(row.labels["namespace"], row.labels["pod"]): row.value for row in rows} == {
        ("team-a", "victim"): 12,
        ("team-b", "stranger"): 100,
    }
    (row,) = instant(store, 'util{exported_pod="victim"}', 1000).samples
    assert (row.labels["exported_namespace"], row.labels["pod"]) == ("team-a", "stranger")


def test_without_a_port_every_port_of_its_containers_is_one() -> None:
    found = pod_targets(pod({"scrape": "true", "scheme": "https"}, ports=(8000, 8001, 8000)))
    assert [each.url for each in found] == [
        "https://10.0.0.9:8000/metrics",
        "https://10.0.0.9:8001/metrics",
    ]


@pytest.mark.parametrize(
    "body",
    [
        pod({}),
        pod({"scrape": "false"}),
        pod({"scrape": "true", "port": "http"}),
        pod({"scrape": "true", "port": "0"}),
        pod({"scrape": "true", "scheme": "file"}),
        pod({"scrape": "true"}, deletionTimestamp="2026-01-01T00:00:00Z"),
        {**pod({"scrape": "true"}), "status": {}},
    ],
)
def test_other_pods_are_left_alone(body) -> None:
    assert pod_targets(body) == ()


def test_addresses_of_flags() -> None:
    assert static_agent("127.0.0.1:9400").url == "http://127.0.0.1:9400/stream"
    assert static_agent("https://[::1]:9400").url == "https://[::1]:9400/stream"
    assert static_agent("gpu-1").url == "http://gpu-1:80/stream"
    scrape = static_scrape("http://127.0.0.1:8000")
    assert scrape.url == "http://127.0.0.1:8000/metrics"
    assert dict(scrape.labels) == {"job": "scrape", "instance": "127.0.0.1:8000"}
    assert static_scrape("http://h:1/x?y=z").url == "http://h:1/x?y=z"


@pytest.mark.parametrize("text", ["", "http://", "ftp://h:1", "h:port", "h:99999"])
def test_what_is_no_address_is_reported(text: str) -> None:
    with pytest.raises(UsageError, match="expected an address such as "):
        static_agent(text)


def selected(*texts, body=None):
    choices = tuple(pod_choice(text) for text in texts)
    return selected_targets(body or pod({}, ports=(8000, 8001)), choices)


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("ml/app.kubernetes.io/name=vllm:8000", "http://10.0.0.9:8000/metrics"),
        ("*/app.kubernetes.io/name in (vllm,sglang):9/stats?a=b", "http://10.0.0.9:9/stats?a=b"),
        ("ml/*:https:8001", "https://10.0.0.9:8001/metrics"),
        ("ml/*:metrics", "http://10.0.0.9:7000/metrics"),
    ],
)
def test_pods_are_selected_without_an_annotation(text, url) -> None:
    body = pod({})
    body["spec"]["containers"][0]["ports"].append({"containerPort": 7000, "name": "metrics"})
    (found,) = selected(text, body=body)
    assert found.url == url
    labels = dict(found.labels)
    assert (labels["namespace"], labels["pod"]) == ("ml", "vllm-0")
    assert found.own_labels == ("namespace", "pod")


@pytest.mark.parametrize(
    "text", ["other/*:8000", "ml/app=web:8000", "ml/*:metrics", "ml/!app.kubernetes.io/name:8000"]
)
def test_other_pods_are_not_selected(text) -> None:
    assert selected(text) == ()


def test_a_pod_that_is_selected_twice_or_annotated_too_is_one_target() -> None:
    body = pod({"scrape": "true", "port": "8000"})
    (found,) = selected("ml/*:8000", "*/*:8000", body=body)
    assert pod_targets(body) == (found,)


def test_selected_pods_that_end_or_have_no_address_are_left_alone() -> None:
    assert selected("ml/*:8000", body=pod({}, deletionTimestamp="now")) == ()
    without = pod({}) | {"status": {}}
    assert selected("ml/*:8000", body=without) == ()


@pytest.mark.parametrize(
    "text",
    [
        *("", "ml", "ml/app=vllm", "ml/app=vllm:", "/app=vllm:8000", "ml/:8000", "ml/app=vllm:0"),
        *("ml/app=vllm:70000", "ml/app=vllm:ftp:80", "ml/app in vllm:8000"),
    ],
)
def test_what_is_no_choice_of_pods_is_reported(text) -> None:
    with pytest.raises(UsageError, match=re.escape(f"found {text!r}, expected")):
        pod_choice(text)


def test_paths_of_one_address_are_targets_of_their_own() -> None:
    store = SeriesStore()
    urls = ("h:1/good", "h:1/other?x=1", "h:2/good")
    found = told_apart(map(static_scrape, urls))
    for number, target in enumerate(found):
        ScrapeTarget(store, dict(target.labels)).ingest(f"u {number}\n", 1_000)
    rows = instant(store, "u", 1_000).samples
    assert {
        (row.labels["instance"], row.labels.get("metrics_path")): row.value for row in rows
    } == {("h:1", "/good"): 0.0, ("h:1", "/other?x=1"): 1.0, ("h:2", None): 2.0}
