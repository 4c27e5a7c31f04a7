# mypy: disable-error-code="no-untyped-def"
"""Pods that are scraped without an annotation, OTLP pushes, and several limits as one metric, in objects."""

import pytest
from install_values import container, one, rendered, values

from gpuscale.base.documents.documents import load_documents
from gpuscale.base.errors import ConfigError
from gpuscale.ops.install.linted import lint_rendered
from gpuscale.ops.install.noted import notes
from gpuscale.ops.install.values import parse_values

STREAMS = {"source": "streams", "replicas": 1}
VLLM = {"namespace": "ml", "matchLabels": {"app": "vllm", "a": "b"}, "port": 8000}
BY_NAME = {"matchLabels": {"app": "tgi"}, "port": "metrics", "path": "/stats", "https": True}
FULLNESS = {
    "combined": "vllm_fullness",
    "parts": [
        {"signal": "vllm-waiting", "threshold": 5},
        {"signal": "vllm-kv-cache", "threshold": 0.8},
    ],
}


def scaled(*metrics, **changes):
    chat = {"name": "chat", "namespace": "ml"}
    return [{"workload": chat, "maxReplicas": 8, "metrics": list(metrics), **changes}]


def arguments(objects, part):
    return container(one(objects, "Deployment", part))["args"]


def rules_of(objects):
    data = one(objects, "ConfigMap", "metrics-api")["data"]
    (document,) = load_documents(data["rules.yaml"], "rules.yaml")
    return document.data["rules"]


# The flag is `NAMESPACE/LABELS:SCHEME:PORT/PATH`, as docs/streams.md has it.
@pytest.mark.parametrize("part", ["metrics-api", "scaler"])
def test_selected_pods_are_scraped_by_all_who_decide(part) -> None:
    api = {**STREAMS, "scrapeSelectedPods": [VLLM, BY_NAME]}
    objects = rendered(values(metricsApi=api, scale=scaled(FULLNESS, autoscaler="keda")))
    found = arguments(objects, part)
    assert [each for each in found if "scrape" in each or "preset" in each] == [
        "--scrape-annotated-pods=false",
        "--scrape-selected-pods=ml/a=b,app=vllm:8000",
        "--scrape-selected-pods=*/app=tgi:https:metrics/stats",
        "--preset=on",
    ]
    name = f"gpuscale-{'scaler-' if part == 'scaler' else ''}scraped-pods"
    policy = one(objects, "NetworkPolicy", name)
    assert policy["spec"]["podSelector"]["matchLabels"]["app.kubernetes.io/component"] == part
    assert policy["spec"]["egress"] == [
        {
            "to": [
                {
                    "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "ml"}},
                    "podSelector": {"matchLabels": {"app": "vllm", "a": "b"}},
                }
            ],
            "ports": [{"port": 8000, "protocol": "TCP"}],
        },
        {
            "to": [{"namespaceSelector": {}, "podSelector": {"matchLabels": {"app": "tgi"}}}],
            "ports": [{"port": "metrics", "protocol": "TCP"}],
        },
    ]


def test_annotations_open_the_policy_for_selected_pods_too() -> None:
    api = {**STREAMS, "scrapeSelectedPods": [VLLM], "scrapePods": True}
    policy = one(rendered(values(metricsApi=api)), "NetworkPolicy", "scraped-pods")
    every = {"to": [{"namespaceSelector": {}}], "ports": [{"protocol": "TCP"}]}
    assert policy["spec"]["egress"] == [every]


def test_pushes_are_taken_from_those_who_are_named_and_nobody_else() -> None:
    client = {"namespace": "observability", "name": "otel-collector"}
    otlp = {"enabled": True, "promote": ["k8s.pod.name", "team"], "clients": [client]}
    objects = rendered(values(metricsApi={**STREAMS, "otlp": otlp}))
    found = arguments(objects, "metrics-api")
    assert found[found.index("--receive-otlp") + 1] == "--otlp-promote=k8s.pod.name,team"
    role = one(objects, "ClusterRole", "metrics-api-push")
    assert role["rules"] == [{"nonResourceURLs": ["/otlp/v1/metrics"], "verbs": ["post"]}]
    binding = one(objects, "ClusterRoleBinding", "metrics-api-push")
    assert binding["subjects"] == [{"kind": "ServiceAccount", **client}]
    nobody = rendered(values(metricsApi={**STREAMS, "otlp": {"enabled": True}}))
    names = {(each["kind"], each["metadata"]["name"]) for each in nobody}
    assert ("ClusterRole", role["metadata"]["name"]) in names
    assert ("ClusterRoleBinding", role["metadata"]["name"]) not in names
    assert "--receive-otlp" in arguments(nobody, "metrics-api")
    off = rendered(values(metricsApi=STREAMS))
    assert not [each for each in off if each["metadata"]["name"].endswith("push")]


# By hand: the queue over 5 and the cache over 0.8, as docs/combined.md writes the rule.
def test_limits_become_one_rule_and_one_metric_of_the_hpa() -> None:
    objects = rendered(values(scale=scaled(FULLNESS)))
    rules = [each for each in rules_of(objects) if "parts" in each]
    by = "by (<<.GroupBy>>)"
    old_and_new = (
        f"avg(vllm:kv_cache_usage_perc{{<<.LabelMatchers>>}}) {by} or "
        f"avg(vllm:gpu_cache_usage_perc{{<<.LabelMatchers>>}}) {by}"
    )
    assert rules == [
        {
            "seriesQuery": 'vllm:num_requests_waiting{namespace!="",pod!=""}',
            "resources": {
                "overrides": {"namespace": {"resource": "namespace"}, "pod": {"resource": "pod"}}
            },
            "name": {"as": "vllm_fullness"},
            "parts": [
                {
                    "name": "vllm-waiting",
                    "query": f"sum(vllm:num_requests_waiting{{<<.LabelMatchers>>}}) {by}",
                    "threshold": "5",
                },
                {"name": "vllm-kv-cache", "query": old_and_new, "threshold": "0.8"},
            ],
        }
    ]
    (metric,) = one(objects, "HorizontalPodAutoscaler")["spec"]["metrics"]
    assert metric == {
        "type": "Pods",
        "pods": {
            "metric": {"name": "vllm_fullness"},
            "target": {"type": "AverageValue", "averageValue": "1"},
        },
    }


def test_limits_are_scraped_with_what_they_are_made_of() -> None:
    prometheus = {"kind": "operator", "url": "http://p:9090"}
    objects = rendered(values(scale=scaled(FULLNESS, metricsPort=9000), prometheus=prometheus))
    (endpoint,) = one(objects, "PodMonitor")["spec"]["podMetricsEndpoints"]
    assert endpoint["relabelings"][-1]["regex"] == "9000"


def test_keda_and_a_wake_ask_for_the_limits_by_a_trigger() -> None:
    keys = {"workload": "deployment/chat", "metric": "vllm_fullness", "target": "1"}
    by_keda = rendered(values(scale=scaled(FULLNESS, autoscaler="keda")))
    (trigger,) = one(by_keda, "ScaledObject")["spec"]["triggers"]
    assert trigger["metadata"].items() >= keys.items()
    wake = {"query": "sum(q)"}
    served = values(scale=scaled(FULLNESS, wake=wake), metricsApi={"external": True})
    data = one(rendered(served), "ConfigMap", "metrics-api")["data"]
    (document,) = load_documents(data["triggers.yaml"], "triggers.yaml")
    (entry,) = document.data["triggers"]
    assert entry.items() >= {**keys, "metricName": "chat-vllm_fullness"}.items()


TEXT = """\
spec:
  metricsApi: {{certificates: cert-manager}}
  scale:
  - workload: {{name: chat}}
    maxReplicas: 8
    {scale}
{more}"""
COMBINED = "metrics: [{combined: full, parts: [{signal: vllm-kv-cache, threshold: 0.8}]%s}]"


@pytest.mark.parametrize("target", ["", ", target: 0.9"])
def test_lint_has_nothing_against_limits(target) -> None:
    text = TEXT.format(scale=COMBINED % target, more="")
    report = lint_rendered(rendered(parse_values(text, "v.yaml")), text, "v.yaml")
    assert report.findings == ()


@pytest.mark.parametrize(
    ("scale", "more", "message"),
    [
        (COMBINED.replace("0.8", "80") % "", "", "kv-cache is a ratio, 0 to 1. Write 0.8"),
        (COMBINED.replace("vllm-kv-cache", "epp-queue") % "", "", "that is read from the pods"),
        (COMBINED.replace("combined: full", "combined: 'a b'") % "", "", "metrics[0].combined"),
        ("metrics: [{combined: full, parts: []}]", "", "metrics[0].parts"),
        (
            COMBINED % "",
            "  - {workload: {name: b}, maxReplicas: 2, metrics: [{combined: full, "
            "parts: [{signal: vllm-waiting, threshold: 1}]}]}",
            "found combined full with other parts or another target",
        ),
        (
            "autoscaler: keda\n    " + COMBINED % "",
            "  keda: {trigger: prometheus}",
            "expected keda.trigger: scaler",
        ),
        (
            COMBINED.replace("vllm-kv-cache", "graphics-engine") % "",
            "  prometheus: {kind: plain, url: 'http://p:9090', honorLabels: false}",
            "expected honorLabels: true",
        ),
    ],
)
def test_limits_that_nothing_could_serve_are_refused(scale, more, message) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_values(TEXT.format(scale=scale, more=more), "v.yaml")
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("api", "is_said"),
    [
        (STREAMS, True),
        ({**STREAMS, "scrapePods": True}, False),
        ({**STREAMS, "scrapeSelectedPods": [VLLM]}, False),
        ({**STREAMS, "otlp": {"enabled": True}}, False),
        ({}, False),
    ],
)
def test_who_scales_on_a_server_that_nothing_scrapes_is_warned(api, is_said: bool) -> None:
    found = notes(values(metricsApi=api, scale=scaled(FULLNESS)))
    said = [each for each in found if "metricsApi.scrapeSelectedPods, with port 8000" in each]
    assert bool(said) == is_said
