# mypy: disable-error-code="arg-type"
"""Workloads that may have no pod: what is rendered for the HPA and for KEDA, and what is refused."""

from typing import Any

import pytest
from install_values import container, one, rendered, scale, values

from gpuscale.base.documents.documents import load_documents
from gpuscale.base.errors import ConfigError
from gpuscale.hpa.terms.versions import parse_version
from gpuscale.ops.install.linted import lint_values
from gpuscale.ops.install.noted import notes
from gpuscale.ops.install.values import Values, parse_values
from gpuscale.triggers.metadata import read_metadata, read_triggers

WAKE = {"sources": ["llm-d-queue"], "name": "pool", "replicas": 2, "deadline": "20m"}
SERVES = {"metricsApi": {"external": True}}
QUERY = {"query": "sum(queue)", "target": 5}
POLLED = ("pollingInterval",)


def by_hpa(**changes) -> Values:
    return values(**SERVES, scale=[scale(minReplicas=0, wake=WAKE, **changes)])


def by_keda(more=None, **changes) -> Values:
    given = {"minReplicas": 0, "wake": WAKE, "autoscaler": "keda", **changes}
    return values(scale=[scale(**given)], **(more or {}))


def scaled_object(found) -> dict[str, Any]:
    spec: dict[str, Any] = one(rendered(found), "ScaledObject")["spec"]
    return spec


def refusal(text: str) -> str:
    with pytest.raises(ConfigError) as error:
        parse_values(text, "values.yaml")
    return str(error.value)


class TestHpa:
    def test_it_asks_for_a_total_that_is_there_without_pods(self) -> None:
        spec = one(rendered(by_hpa()), "HorizontalPodAutoscaler")["spec"]
        target = {"type": "AverageValue", "averageValue": "60"}
        metric = {"metric": {"name": "vision-api-gpu-utilization"}, "target": target}
        assert spec["minReplicas"] == 0
        assert spec["metrics"] == [{"type": "External", "external": metric}]

    def test_the_metrics_api_serves_that_metric(self) -> None:
        objects = rendered(by_hpa())
        text = one(objects, "ConfigMap", "metrics-api")["data"]["triggers.yaml"]
        (trigger,) = read_triggers(text, "triggers.yaml")
        assert (trigger.namespace, trigger.name) == ("default", "vision-api-gpu-utilization")
        assert (trigger.target, trigger.wake_replicas, trigger.wake_deadline_s) == (60, 2, 1200)
        assert trigger.wakes[0].source == "llm-d-queue"
        arguments = container(one(objects, "Deployment", "metrics-api"))["args"]
        assert "--triggers=/etc/gpuscale/rules/triggers.yaml" in arguments
        assert "--held-configmap=gpuscale/gpuscale-metrics-api-held" in arguments

    def test_replicas_share_what_they_decided_and_may_touch_nothing_else(self) -> None:
        objects = rendered(by_hpa())
        assert "data" not in one(objects, "ConfigMap", "metrics-api-held")
        (rule,) = one(objects, "Role", "metrics-api-held")["rules"]
        assert rule["resourceNames"] == ["gpuscale-metrics-api-held"]
        assert rule["verbs"] == ["get", "update"]

    def test_without_triggers_nothing_of_it_is_there(self) -> None:
        objects = rendered(values())
        assert "triggers.yaml" not in one(objects, "ConfigMap", "metrics-api")["data"]
        assert not [each for each in objects if each["metadata"]["name"].endswith("-held")]

    def test_a_query_alone_wakes_by_itself(self) -> None:
        given = {
            "workload": {"name": "web"},
            "maxReplicas": 4,
            "minReplicas": 0,
            "metrics": [QUERY],
        }
        text = one(rendered(values(**SERVES, scale=[given])), "ConfigMap", "metrics-api")["data"]
        (trigger,) = read_triggers(text["triggers.yaml"], "triggers.yaml")
        assert trigger.load is not None
        assert trigger.load.query == "sum(queue)"
        assert [each.query for each in trigger.wakes] == ["sum(queue)"]

    def test_above_zero_a_query_wakes_nothing(self) -> None:
        given = {"workload": {"name": "web"}, "maxReplicas": 4, "metrics": [QUERY]}
        (keys,) = values(**SERVES, scale=[given]).spec.scale[0].trigger_keys
        assert "wakeQuery" not in keys

    @pytest.mark.parametrize(
        ("version", "is_told"), [(None, True), ("1.36", True), ("1.37", False), ("1.38", False)]
    )
    def test_a_note_says_how_to_turn_the_gate_on_where_it_is_off(self, version, is_told) -> None:
        release = None if version is None else parse_version(version)
        told = [each for each in notes(by_hpa(), release) if "HPAScaleToZero=true" in each]
        assert bool(told) is is_told

    def test_keda_needs_no_gate(self) -> None:
        assert not [each for each in notes(by_keda()) if "HPAScaleToZero" in each]

    def test_lint_knows_the_served_metric(self) -> None:
        text = """\
spec:
  metricsApi: {external: true}
  prometheus: {kind: plain, url: "http://p:9090"}
  scale:
  - workload: {name: web}
    target: 60
    minReplicas: 0
    maxReplicas: 4
    wake: {query: sum(queue)}
"""
        found = lint_values(parse_values(text, "v"), text, "v", kubernetes=parse_version("1.37"))
        assert [each.check.id for each in found.findings] == []


@pytest.mark.parametrize("found", ["hpa", "keda"])
def test_a_target_out_of_reach_is_found_at_its_line(found) -> None:
    text = f"""\
spec:
  metricsApi: {{external: {"true" if found == "hpa" else "false"}}}
  scale:
  - workload: {{name: web}}
    target: 120
    maxReplicas: 4
    autoscaler: {found}
    wake: {{query: sum(queue)}}
"""
    report = lint_values(parse_values(text, "v"), text, "v")
    (finding,) = [each for each in report.findings if each.check.id == "unreachable-target"]
    assert (finding.where.line, finding.where.field) == (5, "spec.scale[0].target")


class TestKeda:
    def test_the_scaler_answers_and_pushes(self) -> None:
        (trigger,) = scaled_object(by_keda())["triggers"]
        assert (trigger["type"], trigger["metricType"]) == ("external-push", "AverageValue")
        metadata = trigger["metadata"]
        assert metadata["scalerAddress"] == "gpuscale-scaler.gpuscale.svc:6000"
        own = {key: text for key, text in metadata.items() if key not in POLLED}
        found = read_metadata(own, "default")
        assert (found.name, found.target) == ("vision-api-gpu-utilization", 60)

    def test_above_zero_there_is_nothing_to_push_or_poll(self) -> None:
        spec = scaled_object(by_keda(minReplicas=1))
        assert spec["triggers"][0]["type"] == "external"
        assert not {"pollingInterval", "cooldownPeriod", "initialCooldownPeriod"} & set(spec)
        assert "restoreToOriginalReplicaCount" not in spec["advanced"]

    def test_a_new_workload_has_a_cooldown_too(self) -> None:
        spec = scaled_object(by_keda({"keda": {"cooldownPeriodSeconds": 900}}))
        assert (spec["cooldownPeriod"], spec["initialCooldownPeriod"]) == (900, 900)

    @pytest.mark.parametrize(
        ("least", "most", "wake", "replicas"),
        [
            (0, 8, {"query": "q"}, 1),
            (3, 8, {"query": "q"}, 3),
            (0, 8, {"query": "q", "replicas": 4}, 4),
            (0, 8, {"query": "q", "replicas": 4, "fallbackReplicas": 2}, 2),
            (0, 2, {"query": "q", "replicas": 4}, 2),
        ],
    )
    def test_the_fallback_keeps_what_there_is_and_is_never_zero(
        self, least, most, wake, replicas
    ) -> None:
        spec = scaled_object(by_keda(minReplicas=least, maxReplicas=most, wake=wake))
        wanted = {"failureThreshold": 3, "replicas": replicas}
        assert spec["fallback"] == {**wanted, "behavior": "currentReplicasIfHigher"}

    def test_cpu_alone_has_no_fallback_which_keda_would_refuse(self) -> None:
        target = {"type": "Utilization", "averageUtilization": 60}
        metric = {"type": "Resource", "resource": {"name": "cpu", "target": target}}
        given = {"workload": {"name": "w"}, "maxReplicas": 2, "metrics": [metric]}
        objects = rendered(values(scale=[{**given, "autoscaler": "keda"}]))
        assert "fallback" not in one(objects, "ScaledObject")["spec"]
        assert not [each for each in objects if each["metadata"]["name"].endswith("-scaler")]

    def test_two_replicas_are_seen_by_keda_on_different_nodes(self) -> None:
        objects = rendered(by_keda())
        service = one(objects, "Service", "-scaler")["spec"]
        deployment = one(objects, "Deployment", "-scaler")["spec"]
        assert (service["clusterIP"], deployment["replicas"]) == ("None", 2)
        port, _ = service["ports"]
        # A headless Service translates no ports.
        assert port["port"] == container({"spec": deployment})["ports"][0]["containerPort"]
        assert one(objects, "PodDisruptionBudget", "-scaler")
        assert deployment["template"]["spec"]["topologySpreadConstraints"]

    def test_the_scaler_may_read_and_keep_its_decisions_and_nothing_more(self) -> None:
        objects = rendered(by_keda())
        roles = [
            each
            for each in objects
            if each["kind"] in ("Role", "ClusterRole") and "-scaler" in each["metadata"]["name"]
        ]
        verbs = {
            (resource, verb, *rule.get("resourceNames", ()))
            for each in roles
            for rule in each["rules"]
            for resource in rule["resources"]
            for verb in rule["verbs"]
        }
        reads = ("pods", "nodes", "namespaces", "services", "deployments", "statefulsets")
        wanted = {(each, verb) for each in reads for verb in ("get", "list", "watch")}
        held = {("configmaps", verb, "gpuscale-scaler-held") for verb in ("get", "update")}
        assert verbs == wanted | held

    def test_tls_goes_by_a_secret_in_each_namespace(self) -> None:
        more = {
            "keda": {"tlsSecret": "keda-tls"},
            "scaler": {"tlsSecret": "own-tls", "clientCertificates": True},
        }
        objects = rendered(by_keda(more))
        found = one(objects, "TriggerAuthentication")
        assert found["metadata"]["namespace"] == "default"
        secrets = found["spec"]["secretTargetRef"]
        assert {(each["parameter"], each["key"]) for each in secrets} == {
            ("caCert", "ca.crt"),
            ("tlsClientCert", "tls.crt"),
            ("tlsClientKey", "tls.key"),
        }
        (trigger,) = one(objects, "ScaledObject")["spec"]["triggers"]
        assert trigger["authenticationRef"] == {"name": found["metadata"]["name"]}
        arguments = container(one(objects, "Deployment", "-scaler"))["args"]
        assert "--client-ca-file=/etc/gpuscale/tls/ca.crt" in arguments

    def test_the_form_on_prometheus_is_there_for_who_wants_it(self) -> None:
        found = values(scale=[scale(autoscaler="keda")], keda={"trigger": "prometheus"})
        objects = rendered(found)
        (trigger,) = one(objects, "ScaledObject")["spec"]["triggers"]
        assert (trigger["type"], trigger["metricType"]) == ("prometheus", "Value")
        assert not [each for each in objects if each["metadata"]["name"].endswith("-scaler")]

    def test_streams_need_no_prometheus_for_it(self) -> None:
        off = {"alerts": {"enabled": False}, "dashboards": {"enabled": False}}
        found = values(scale=[scale(autoscaler="keda")], metricsApi={"source": "streams"}, **off)
        arguments = container(one(rendered(found), "Deployment", "-scaler"))["args"]
        assert "--source=streams" in arguments
        assert not [each for each in arguments if each.startswith("--prometheus")]


HEAD = (
    "spec:\n  metricsApi: {external: %s}\n  scale:\n  - workload: {name: %s}\n    maxReplicas: 8\n"
)
REFUSED = {
    "pods alone": (
        HEAD % ("true", "web") + "    target: 60\n    minReplicas: 0\n",
        "values.yaml:7: spec.scale[0].minReplicas: found 0, expected at least 1: without a pod there is "
        "no reading that could bring the first one back; 0 takes wake, or a metric of the load itself",
    ),
    "nobody serves it": (
        HEAD % ("false", "web") + "    target: 60\n    wake: {query: sum(q)}\n",
        "wake with autoscaler hpa, expected metricsApi.external: true, because that serves it",
    ),
    "unknown source": (
        HEAD % ("true", "web") + "    target: 60\n    wake: {sources: [llmd-queue], name: p}\n",
        "values.yaml:7: spec.scale[0].wake.sources: found 'llmd-queue', expected one of llm-d-queue,",
    ),
    "half a schedule": (
        HEAD % ("true", "web") + "    target: 60\n    wake: {start: '0 8 * * 1-5'}\n",
        "found one of start and end, expected both",
    ),
    "no such hour": (
        HEAD % ("true", "web")
        + "    target: 60\n    wake: {start: '0 25 * * *', end: '0 18 * * *'}\n",
        "values.yaml:7: spec.scale[0].wake.start",
    ),
    "no source": (
        HEAD % ("true", "web") + "    target: 60\n    wake: {replicas: 2}\n",
        "found no wake source, expected sources, query, or start and end",
    ),
    "nothing to bring back": (
        HEAD % ("true", "web")
        + "    wake: {query: sum(q)}\n    metrics:\n    - type: Resource\n"
        + "      resource: {name: cpu, target: {type: Utilization, averageUtilization: 60}}\n",
        "spec.scale[0].wake: found it without a signal or a query",
    ),
    "a long name": (
        HEAD % ("false", "w" * 60) + "    target: 60\n    autoscaler: keda\n",
        "values.yaml:4: spec.scale[0].workload.name: found a name of 60 characters with autoscaler "
        "keda, expected at most 50: KEDA's HPA is named after it",
    ),
    "an old form": (
        HEAD % ("false", "web")
        + "    target: 60\n    autoscaler: keda\n    wake: {query: sum(q)}\n"
        + "  keda: {trigger: prometheus}\n",
        "wake with keda.trigger prometheus, expected keda.trigger: scaler",
    ),
    "no scaler": (
        HEAD % ("false", "web")
        + "    target: 60\n    autoscaler: keda\n  scaler: {enabled: false}\n",
        "expected scaler.enabled: true, or keda.trigger: prometheus",
    ),
    "one secret": (
        HEAD % ("false", "web") + "    target: 60\n  scaler: {tlsSecret: a}\n",
        "found one of keda.tlsSecret and scaler.tlsSecret, expected both or none",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_can_not_work_is_refused_with_its_reason(case) -> None:
    text, words = REFUSED[case]
    assert words in refusal(text)


def test_a_name_of_50_characters_is_taken() -> None:
    found = by_keda(workload={"name": "w" * 50})
    assert one(rendered(found), "ScaledObject")["metadata"]["name"] == f"{'w' * 50}-gpu"


def test_what_is_rendered_is_the_trigger_file_that_the_server_reads() -> None:
    text = one(rendered(by_hpa()), "ConfigMap", "metrics-api")["data"]["triggers.yaml"]
    (document,) = load_documents(text, "triggers.yaml")
    assert isinstance(document.data, dict)
    assert list(document.data) == ["triggers"]


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({}, "scrapes the node agents alone"),
        ({"metricsApi": {"source": "streams"}}, "set metricsApi.scrapePods"),
        ({"prometheus": {"kind": "plain", "url": "http://p"}}, None),
        ({"metricsApi": {"source": "streams", "scrapePods": True}}, None),
    ],
)
def test_a_note_says_where_wake_sources_are_read(spec, words) -> None:
    told = [each for each in notes(by_keda(spec)) if "wake sources" in each]
    assert [words in each for each in told] == ([] if words is None else [True])


@pytest.mark.parametrize("kind", ["own", "operator"])
def test_prometheus_scrapes_the_scaler(kind) -> None:
    given = {"kind": kind, **({"url": "http://p:9090"} if kind == "operator" else {})}
    objects = rendered(by_keda({"prometheus": given}))
    service = one(objects, "Service", "-scaler")
    (port,) = [each for each in service["spec"]["ports"] if each["name"] == "metrics"]
    assert port["port"] == 8080
    if kind == "operator":
        (endpoint,) = one(objects, "ServiceMonitor", "-scaler")["spec"]["endpoints"]
        assert endpoint["port"] == "metrics"
        return
    (text,) = one(objects, "ConfigMap", "-prometheus")["data"].values()
    (document,) = load_documents(text, "prometheus.yml")
    jobs = [each["job_name"] for each in document.data["scrape_configs"]]
    assert "gpuscale-scaler" in jobs
    (rule,) = one(objects, "NetworkPolicy", "-prometheus")["spec"]["egress"]
    assert {"port": 8080, "protocol": "TCP"} in rule["ports"]
