# mypy: disable-error-code="arg-type, attr-defined"
"""Workloads that are scaled on model servers, gateways, proxies and queues: what is rendered for them."""

from pathlib import Path

import pytest
from chart_objects import assert_same, needs_helm, template
from install_values import one, rendered, scale, values
from pydantic import ValidationError

from gpuscale.base.documents.documents import load_documents
from gpuscale.ops.install.linted import lint_values
from gpuscale.ops.install.values import Values, parse_values
from gpuscale.signals import SIGNALS

EXTERNAL = {"metricsApi": {"external": True, "rulesConfigMaps": "team=ml"}}
OPERATOR = {"prometheus": {"kind": "operator", "url": "http://p", "release": "kps"}}
PLAIN = {"prometheus": {"kind": "plain", "url": "http://p", "honorLabels": False}}


def every_signal(autoscaler):
    """A scale on each signal that needs nothing else, in two namespaces; names of objects are hostile."""
    for index, (name, signal) in enumerate(SIGNALS.items()):
        if signal.of_processes:
            continue
        yield {
            "workload": {
                "name": f"w{index}.x" if index % 2 else f"w{index}",
                "namespace": "ml" if index % 3 else "gpuscale",
                "kind": "Deployment" if index % 5 else "StatefulSet",
            },
            "signal": name,
            "target": signal.target,
            "minReplicas": 0 if signal.is_there_at_zero else 1,
            "maxReplicas": 9,
            "autoscaler": autoscaler,
            **({} if signal.kind == "pods" else {"of": 'po"ol\\x'}),
            **({} if index % 4 else {"metricsPort": 8081}),
        }


BY_QUERY = {"workload": {"name": "any"}, "query": "sum(up)", "target": 2, "maxReplicas": 3}


@needs_helm
@pytest.mark.parametrize(
    ("autoscaler", "spec"),
    [
        ("hpa", EXTERNAL),
        ("hpa", {**EXTERNAL, **OPERATOR}),
        ("hpa", {"metricsApi": {"external": True, "source": "streams"}}),
        ("keda", PLAIN),
        ("keda", {**PLAIN, "keda": {"trigger": "prometheus"}}),
    ],
)
def test_the_chart_renders_every_signal_as_the_renderer_does(autoscaler, spec, tmp_path) -> None:
    scales = [*every_signal(autoscaler), {**BY_QUERY, "autoscaler": autoscaler}]
    found = Values.model_validate({"spec": {**spec, "scale": scales}})
    assert_same(template({**spec, "scale": scales}, tmp_path), rendered(found))


def metric_of(signal, **changes):
    found = rendered(values(scale=[scale(signal=signal, **changes)], **EXTERNAL))
    (metric,) = one(found, "HorizontalPodAutoscaler")["spec"]["metrics"]
    return metric


def test_a_model_server_s_queue_is_a_metric_of_pods() -> None:
    assert metric_of("vllm-waiting", target=5) == {
        "type": "Pods",
        "pods": {
            "metric": {"name": "vllm_num_requests_waiting"},
            "target": {"type": "AverageValue", "averageValue": "5"},
        },
    }


def test_a_mean_over_a_pool_is_a_value_and_a_total_is_divided() -> None:
    pool = {
        "apiVersion": "inference.networking.k8s.io/v1",
        "kind": "InferencePool",
        "name": "chat",
    }
    waiting = metric_of("epp-waiting", target=5, of="chat")["object"]
    assert waiting["describedObject"] == pool
    assert waiting["target"] == {"type": "Value", "value": "5"}
    queue = metric_of("epp-queue", target=5, of="chat")["object"]
    assert queue["describedObject"] == pool
    assert queue["target"] == {"type": "AverageValue", "averageValue": "5"}


def test_a_queue_is_an_external_metric_that_a_trigger_serves() -> None:
    found = rendered(
        values(
            scale=[scale(signal="rabbitmq-ready", of="orders", target=10, minReplicas=0)],
            **EXTERNAL,
        )
    )
    (metric,) = one(found, "HorizontalPodAutoscaler")["spec"]["metrics"]
    assert metric == {
        "type": "External",
        "external": {
            "metric": {"name": "vision-api-rabbitmq-ready"},
            "target": {"type": "AverageValue", "averageValue": "10"},
        },
    }
    files = one(found, "ConfigMap", "-metrics-api")["data"]
    (triggers,) = load_documents(files["triggers.yaml"], "triggers.yaml")
    (trigger,) = triggers.data["triggers"]
    query = (
        'sum(rabbitmq_queue_messages_ready{queue="orders"})'
        ' or sum(rabbitmq_detailed_queue_messages_ready{queue="orders"})'
    )
    # It is there while there is no pod, so it wakes the workload too.
    assert (trigger["query"], trigger["wakeQuery"]) == (query, query)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"signal": "vllm-wating"}, "such as vllm-waiting"),
        ({"signal": "epp-queue"}, "without of, expected the name of the InferencePool"),
        ({"signal": "vllm-waiting", "of": "chat"}, "which is read from the pods"),
        ({"signal": "vllm-waiting", "metric": "object"}, "expected signal gpu-utilization"),
        ({"signal": "vllm-waiting", "minReplicas": 0}, "found 0, expected at least 1"),
        ({"signal": "vllm-kv-cache", "target": 80}, "0 to 1"),
        ({"signal": "nginx-rate", "of": "web"}, "expected metricsApi.external: true"),
        ({"query": "sum(up"}, "no PromQL"),
        ({"query": "sum(up)", "signal": "vllm-waiting"}, "expected one of them"),
    ],
)
def test_what_can_t_work_is_refused_with_what_to_do(changes, words: str) -> None:
    with pytest.raises(ValidationError) as error:
        values(scale=[scale(**changes)])
    assert words in str(error.value)


def test_what_a_query_asks_for_is_judged_where_it_stands() -> None:
    text = """spec:
  metricsApi: {external: true}
  scale:
  - workload: {name: a}
    query: rate(vllm:num_requests_waiting[1m])
    target: 5
    maxReplicas: 5
  - workload: {name: b}
    query: sum(vllm:generation_tokens_total)
    target: 5
    maxReplicas: 5
  - workload: {name: c}
    signal: traefik-rate
    of: web
    target: 5
    maxReplicas: 5
"""
    report = lint_values(parse_values(text, "values.yaml"), text, "values.yaml")
    found = [(each.check.id, each.where.line, each.where.field) for each in report.findings]
    assert found == [
        ("rate-of-gauge", 5, "spec.scale[0].query"),
        ("counter-without-rate", 9, "spec.scale[1].query"),
    ]


def pod_monitor(**spec):
    return one(rendered(values(**OPERATOR, **spec)), "PodMonitor")


def test_an_operator_s_prometheus_scrapes_the_port_of_the_workload_s_pods_alone() -> None:
    workload = {"name": "chat", "namespace": "ml"}
    monitor = pod_monitor(scale=[scale(workload=workload, signal="vllm-waiting", target=5)])
    assert monitor["metadata"]["labels"]["release"] == "kps"
    assert monitor["spec"]["namespaceSelector"] == {"matchNames": ["ml"]}
    (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
    kept = {each["sourceLabels"][0]: each["regex"] for each in endpoint["relabelings"]}
    assert kept == {
        "__meta_kubernetes_namespace": "ml",
        "__meta_kubernetes_pod_name": "chat-[a-z0-9]{1,10}-[a-z0-9]{5}",
        "__meta_kubernetes_pod_container_port_number": "8000",
    }


def test_two_signals_of_one_server_are_one_scrape() -> None:
    metrics = [
        {"signal": "sglang-waiting", "target": 5},
        {"signal": "sglang-kv-cache", "target": 0.8},
    ]
    of_many = {"workload": {"name": "many"}, "maxReplicas": 8, "metrics": metrics}
    (endpoint,) = pod_monitor(scale=[of_many])["spec"]["podMetricsEndpoints"]
    assert endpoint["relabelings"][-1]["regex"] == "30000"


def test_what_is_not_served_by_the_workload_is_not_scraped() -> None:
    found = rendered(values(scale=[scale(signal="epp-queue", of="chat", target=5)], **OPERATOR))
    assert not any(each["kind"] == "PodMonitor" for each in found)


def test_the_own_prometheus_may_see_the_pods_and_reach_their_port(tmp_path: Path) -> None:
    workload = {"name": "chat", "namespace": "ml"}
    found = rendered(values(scale=[scale(workload=workload, signal="vllm-waiting", target=5)]))
    roles = [each for each in found if each["kind"] in ("Role", "RoleBinding")]
    assert [e["kind"] for e in roles if e["metadata"]["namespace"] == "ml"] == [
        "Role",
        "RoleBinding",
    ]
    policy = one(found, "NetworkPolicy", "-prometheus")
    assert {"port": 8000, "protocol": "TCP"} in policy["spec"]["egress"][0]["ports"]
    text = one(found, "ConfigMap", "-prometheus")["data"]["prometheus.yml"]
    (config,) = load_documents(text, "prometheus.yml")
    job = config.data["scrape_configs"][-1]
    assert job["job_name"] == "gpuscale-model-servers-1"
    targets = {each.get("target_label") for each in job["relabel_configs"]}
    assert {"namespace", "pod", "node"} <= targets
