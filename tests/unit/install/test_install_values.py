"""What a values file may say, and what is said of a wrong one."""

import pytest

from gpuscale.base.errors import ConfigError
from gpuscale.ops.install.values import parse_values

SCALE = "{workload: {name: a}, target: 50, maxReplicas: 3}"


def told(text):
    with pytest.raises(ConfigError) as caught:
        parse_values(text, "values.yaml")
    return str(caught.value)


def test_a_name_a_target_and_a_limit_are_enough() -> None:
    spec = parse_values(f"spec: {{scale: [{SCALE}]}}", "values.yaml").spec
    (scale,) = spec.scale
    assert (scale.workload.kind, scale.workload.namespace) == ("Deployment", "default")
    assert (scale.signal, scale.min_replicas, scale.autoscaler) == ("gpu-utilization", 1, "hpa")
    assert (spec.provider.name, spec.prometheus.kind, spec.metrics_api.external) == (
        "generic",
        "own",
        False,
    )


def test_every_fault_is_told_with_its_line_and_field() -> None:
    text = "spec:\n  provider: aws\n  agent:\n    privileged: true\n  scale: []\n"
    assert told(text).splitlines() == [
        "values.yaml:2: spec.provider: found 'aws', expected one of aks, eks, ack, gke, generic",
        "values.yaml:4: spec.agent.privileged: no such field here",
    ]


@pytest.mark.parametrize(
    "key", ["ToBeDeletedByClusterAutoscaler", "karpenter.sh/unregistered", "node.kubernetes.io/x"]
)
def test_no_installation_tolerates_a_taint_of_the_moment(key) -> None:
    text = f"spec:\n  taint: {{key: {key}, value: x}}\n  scale: [{SCALE}]\n"
    assert f"values.yaml:2: spec.taint.key: found '{key}', which says that a node" in told(text)


SCALED = (
    "spec: {{scale: [{{workload: {{name: a}}, target: {target}, maxReplicas: 3, {more}}}]{rest}}}"
)


@pytest.mark.parametrize(
    ("target", "more", "rest", "message"),
    [
        pytest.param(50, "minReplicas: 0", "", "expected at least 1", id="no pod no reading"),
        pytest.param(50, "minReplicas: 4", "", "minReplicas 4 above maxReplicas 3", id="limits"),
        pytest.param(
            5,
            "signal: graphics-engine",
            "",
            "graphics-engine is a ratio, 0 to 1. Write 0.05",
            id="ratio",
        ),
        pytest.param(
            50, "metric: object, signal: gpu-memory", "", "whose mean is recorded", id="object"
        ),
        pytest.param(
            50,
            "autoscaler: keda",
            ", metricsApi: {external: true}",
            "KEDA serves external.metrics.k8s.io",
            id="two servers of one API",
        ),
        pytest.param(
            50,
            "signal: gpu-utilization",
            ", metricsApi: {external: true}",
            "metricsApi.external with nothing to serve, expected externalRules",
            id="an API without a metric",
        ),
        pytest.param(
            50,
            "signal: gpu-utilization",
            ", metricsApi: {external: true, rules: 'rules: [{seriesQuery: up, metricsQuery: up}]'}",
            "metricsApi.external with nothing to serve",
            id="an API without a rule",
        ),
        pytest.param(50, "signal: gpu-share", "", "agent.attribution: processes", id="processes"),
        pytest.param(
            20,
            "signal: ack-sm-utilization",
            ", agent: {attribution: processes}",
            "agent.style dcgm",
            id="style",
        ),
        pytest.param(
            50, "", ", agent: {style: ack}", "agent.style ack", id="pods are labelled otherwise"
        ),
        pytest.param(
            50, "", ", agent: {attribution: none}", "ties GPUs to pods", id="whose reading"
        ),
        pytest.param(
            50, "", ", prometheus: {kind: plain}", "kind plain without url", id="where is it"
        ),
        pytest.param(
            50, "", ", prometheus: {kind: plain, url: 'ftp://x'}", "expected http://", id="scheme"
        ),
        pytest.param(
            50,
            "",
            ", agent: {enabled: false}, metricsApi: {source: streams}",
            "metricsApi.source streams with agent.enabled false, expected agent.enabled: true",
            id="whose streams",
        ),
        pytest.param(
            50,
            "metric: object",
            ", metricsApi: {source: streams}, recordingRules: false",
            "metric object without recordingRules, expected recordingRules: true",
            id="who records",
        ),
        pytest.param(
            50,
            "autoscaler: keda",
            ", metricsApi: {source: streams}, alerts: {enabled: false}, dashboards: {enabled: false}, "
            "keda: {trigger: prometheus}",
            "expected alerts or dashboards to be on, or prometheus.url",
            id="whom KEDA asks",
        ),
        pytest.param(
            50,
            "",
            ", metricsApi: {resource: true}",
            "metricsApi.resource with prometheus.kind own, expected operator, plain or azure",
            id="who scrapes kubelets",
        ),
        pytest.param(
            50,
            "",
            ", metricsApi: {resource: true, source: streams}",
            "metricsApi.resource with metricsApi.source streams, expected source: prometheus",
            id="agents know no CPU",
        ),
        pytest.param(
            50,
            "",
            ", metricsApi: {scrapePods: true}",
            "metricsApi.scrapePods with metricsApi.source prometheus, expected source: streams",
            id="who scrapes pods",
        ),
        pytest.param(
            50, "", ", metricsApi: {rulesConfigMaps: 'a in b'}", "found ", id="teams' labels"
        ),
        pytest.param(
            50,
            "",
            ", metricsApi: {source: streams, prometheusRules: 'groups: [{name: g, rules: [{record: a, "
            "expr: sum(}]}]'}",
            "groups[0].rules[0].expr: found 'sum('",
            id="PromQL of rules",
        ),
        pytest.param(
            50,
            "",
            ", metricsApi: {prometheusRules: 'groups: []'}",
            "metricsApi.prometheusRules with metricsApi.source prometheus, expected source: streams",
            id="who evaluates rules",
        ),
        pytest.param(
            50,
            "",
            ", metricsApi: {source: streams, scrapePods: true, exporterPods: 'a/b'}",
            "found 'a/b', expected NAMESPACE or NAMESPACE/LABEL=VALUE",
            id="exporters",
        ),
        pytest.param(
            50,
            "",
            ", metricsApi: {source: streams, exporterPods: a}",
            "metricsApi.exporterPods without metricsApi.scrapePods",
            id="exporters of none",
        ),
        pytest.param(
            50,
            "",
            ", metricsApi: {scrapeSelectedPods: [{namespace: ml, port: 8000}]}",
            "metricsApi.scrapeSelectedPods with metricsApi.source prometheus, expected source: streams",
            id="who scrapes selected pods",
        ),
        pytest.param(
            50,
            "",
            ", metricsApi: {source: streams, scrapeSelectedPods: [{port: 8000}]}",
            "found neither namespace nor matchLabels, expected one of them",
            id="all pods of a cluster",
        ),
        pytest.param(
            50,
            "",
            ", metricsApi: {source: streams, scrapeSelectedPods: [{namespace: ml, port: 65536}]}",
            "scrapeSelectedPods[0].port",
            id="no port",
        ),
        pytest.param(
            50,
            "",
            ", metricsApi: {source: streams, scrapeSelectedPods: "
            "[{namespace: ml, matchLabels: {'a,b': c}, port: 80}]}",
            "matchLabels",
            id="no label",
        ),
        pytest.param(
            50,
            "",
            ", metricsApi: {otlp: {enabled: true}, replicas: 1}",
            "metricsApi.otlp with metricsApi.source prometheus, expected source: streams",
            id="who takes pushes",
        ),
        pytest.param(
            50,
            "",
            ", metricsApi: {source: streams, otlp: {enabled: true}}",
            "metricsApi.otlp.enabled with replicas 2, expected replicas: 1",
            id="replicas don't share pushes",
        ),
        pytest.param(
            50, "", ", namespace: 'a b'", "expected a name of lower-case letters, digits", id="name"
        ),
        pytest.param(
            50, "", ", image: {repository: 'a;rm -rf /'}", "spec.image.repository: ", id="shell"
        ),
        pytest.param(
            50, "", ", image: {repository: 'r.example/a:1'}", "goes into tag: 1", id="its tag"
        ),
        pytest.param(
            50, "", ", image: {repository: r.example/Me/a}", "in lower case", id="lower case"
        ),
        pytest.param(
            50,
            "",
            f", image: {{tag: 'sha256:{'a' * 64}'}}",
            "this is a digest: digest: sha256:aaa",
            id="digest",
        ),
    ],
)
def test_what_can_not_work_is_refused(target: int, more: str, rest: str, message: str) -> None:
    assert message in told(SCALED.format(target=target, more=more, rest=rest))


def test_a_workload_is_scaled_by_one_autoscaler() -> None:
    assert "workload twice" in told(f"spec: {{scale: [{SCALE}, {SCALE}]}}")


POOL = "cluster: c, region: r, instanceType: t, gpu: g"


@pytest.mark.parametrize(
    ("provider", "pool", "message"),
    [
        ("generic", POOL, "expected aks, eks, ack or gke"),
        ("gke", f"{POOL}, autoscaler: karpenter", "expected aks or eks"),
        ("aks", POOL, "without resourceGroup"),
        ("ack", POOL, "ids of VSwitches"),
        ("gke", f"{POOL}, minNodes: 9", "minNodes 9 above maxNodes 8"),
        ("aks", f"{POOL}, resourceGroup: rg, name: much-too-long-name", "at most 12"),
    ],
)
def test_a_node_pool_fits_its_provider(provider: str, pool, message: str) -> None:
    assert message in told(f"spec: {{provider: {provider}, nodePool: {{{pool}}}}}")
