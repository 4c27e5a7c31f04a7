"""What lint calls an error is refused by the API server, or the HPA's controller says that it fails.

Each is one change away from an HPA that scales, on the same cluster and with the same metrics.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from gpuscale.base.findings import Severity
from gpuscale.ops.lint import lint
from gpuscale.ops.lint.checks import CHECKS
from gpuscale_testing import (
    SimulatedNode,
    aggregated_api,
    serving_name,
    simulated_nodes,
    wait_until,
)

sys.path.insert(0, str(Path(__file__).parent))
from served_metrics import GROUP_VERSIONS, USAGE_GROUP_VERSION, MetricsServer

pytestmark = [pytest.mark.cluster, pytest.mark.xdist_group("cluster"), pytest.mark.timeout(300)]

LABELS = "{namespace: {resource: namespace}, pod: {resource: pod}}"


def rule(name, query, labels=LABELS, series="queue"):
    asked = "" if query is None else f"\n  metricsQuery: '{query}'"
    return f"""\
- seriesQuery: {series}{{pod!=""}}
  resources: {{overrides: {labels}}}
  name: {{as: {name}}}{asked}
"""


TAKEN = "sum(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)"
RULES = "rules:\n" + "".join(
    [
        rule("queue_length", TAKEN),
        rule("ungrouped", "sum(<<.Series>>{<<.LabelMatchers>>})"),
        rule(
            "elsewhere", 'sum(<<.Series>>{<<.LabelMatchers>>,namespace="prod"}) by (<<.GroupBy>>)'
        ),
        rule("braces", "sum({{ .Series }}{<<.LabelMatchers>>}) by (<<.GroupBy>>)"),
        rule("unasked", None),
        rule("placeless", TAKEN, "{pod: {resource: pod}}"),
        rule(
            "of_services", TAKEN, "{namespace: {resource: namespace}, service: {resource: service}}"
        ),
    ]
)
RESOURCES = """\
resourceRules:
  cpu:
    containerLabel: container
    containerQuery: sum by (<<.GroupBy>>) (container_cpu_cores{<<.LabelMatchers>>})
    nodeQuery: sum by (<<.GroupBy>>) (node_cpu_cores{<<.LabelMatchers>>})
    resources: &labels
      overrides: {namespace: {resource: namespace}, node: {resource: node}, pod: {resource: pod}}
  memory:
    containerLabel: container
    containerQuery: sum by (<<.GroupBy>>) (container_memory_bytes{<<.LabelMatchers>>})
    nodeQuery: sum by (<<.GroupBy>>) (node_memory_bytes{<<.LabelMatchers>>})
    resources: *labels
  window: 1s
"""


def workload(name="web", app="web", more="{}"):
    return f"""\
---
apiVersion: apps/v1
kind: Deployment
metadata: {{name: {name}}}
spec:
  selector: {{matchLabels: {{app: {app}}}}}
  template:
    metadata: {{labels: {{app: {app}}}}}
    spec: {{containers: [{{name: c, image: none, resources: {more}}}]}}
"""


def of_pods(name, selector=""):
    target = "{type: AverageValue, averageValue: 5}"
    return f"{{type: Pods, pods: {{metric: {{name: {name}{selector}}}, target: {target}}}}}"


def of_object(described, target="{type: Value, value: 5}"):
    return (
        f"{{type: Object, object: {{metric: {{name: queue_length}}, describedObject: {described}, "
        f"target: {target}}}}}"
    )


def of_resource(name):
    target = "{type: Utilization, averageUtilization: 60}"
    return f"{{type: Resource, resource: {{name: {name}, target: {target}}}}}"


QUEUE = of_pods("queue_length")


def hpa(
    metric=QUEUE,
    target="apps/v1 Deployment web",
    version="v2",
    name="web",
    most="8",
    more="",
):
    api, kind, target_name = target.split()
    return f"""\
apiVersion: autoscaling/{version}
kind: HorizontalPodAutoscaler
metadata: {{name: {name}}}
spec:
  scaleTargetRef: {{apiVersion: {api}, kind: {kind}, name: {target_name}}}
  minReplicas: 2
  maxReplicas: {most}{more}
  metrics: [{metric}]
"""


WEB = workload()
REFUSED = {
    "removed-api-version": (hpa(version="v2beta2"), "no matches for kind"),
    "refused-manifest": (hpa(most="1"), "must be greater than or equal to `minReplicas`"),
    "unknown-field": (hpa(more="\n  cooldown: 60"), 'unknown field "spec.cooldown"'),
}
"""What the API server, or kubectl for it, refuses, and a part of its words."""
FAILING = {
    "no-scale-target": (hpa(target="batch/v1 Job web") + WEB, "FailedGetScale"),
    "wrong-target-version": (
        hpa(target="extensions/v1beta1 Deployment web") + WEB,
        "FailedGetScale",
    ),
    "two-hpas": (hpa() + "---\n" + hpa(name="other") + WEB, "AmbiguousSelector"),
    "selectors-overlap": (
        hpa()
        + "---\n"
        + hpa(target="apps/v1 Deployment other", name="other")
        + WEB
        + workload("other"),
        "AmbiguousSelector",
    ),
    "unknown-metric": (hpa(of_pods("queue_lenght")) + WEB, "FailedGetPodsMetric"),
    "no-group-by": (hpa(of_pods("ungrouped")) + WEB, "FailedGetPodsMetric"),
    "impossible-label": (hpa(of_pods("elsewhere")) + WEB, "FailedGetPodsMetric"),
    "foreign-delimiters": (hpa(of_pods("braces")) + WEB, "FailedGetPodsMetric"),
    "no-query": (hpa(of_pods("unasked")) + WEB, "FailedGetPodsMetric"),
    "no-namespace-label": (hpa(of_pods("placeless")) + WEB, "FailedGetPodsMetric"),
    "metric-not-for-resource": (hpa(of_pods("of_services")) + WEB, "FailedGetPodsMetric"),
    "impossible-selector-key": (
        hpa(of_pods("queue_length", ", selector: {matchLabels: {example.com/team: a}}")) + WEB,
        "FailedGetPodsMetric",
    ),
    "impossible-selector": (
        hpa(
            of_pods(
                "queue_length",
                ", selector: {matchExpressions: [{key: q, operator: Like, values: [a]}]}",
            )
        )
        + WEB,
        "FailedGetPodsMetric",
    ),
    "cluster-scoped-object": (
        hpa(of_object("{apiVersion: v1, kind: Node, name: h200}")) + WEB,
        "FailedGetObjectMetric",
    ),
    "described-object-absent": (
        hpa(of_object("{apiVersion: v1, kind: SERVICE, name: web}")) + WEB,
        "FailedGetObjectMetric",
    ),
    "contradicting-target-type": (
        hpa(
            of_object(
                "{apiVersion: v1, kind: Service, name: web}", "{type: Value, averageValue: 5}"
            )
        )
        + WEB,
        "FailedGetObjectMetric",
    ),
    "no-resource-request": (hpa(of_resource("cpu")) + WEB, "FailedGetResourceMetric"),
    "gpu-resource-metric": (
        hpa(of_resource("nvidia.com/gpu")) + workload(more="{limits: {nvidia.com/gpu: 1}}"),
        "FailedGetResourceMetric",
    ),
}
"""What is stored, and the reason of the condition with which the controller says that it fails."""
WORKS = {
    "pods": hpa() + WEB,
    "cpu": hpa(of_resource("cpu")) + workload(more="{requests: {cpu: 1}}"),
}
"""What scales: so the faults above are those of each, and not of the cluster."""
ELSEWHERE = {
    "refused-rules": "the metrics API's loader: tests/unit/rules",
    "refused-values": "render",
    "refused-scenario": "simulate",
    "broken-file": "no YAML",
    "wrong-trigger": "gpuscale scaler",
    "threshold-not-positive": "KEDA's operator: test_errors_keda_refuses",
    "zero-without-source": "KEDA's webhook: test_errors_keda_refuses",
    "fallback-without-effect": "KEDA's webhook and its fallback: test_errors_keda_refuses",
    "name-too-long": "KEDA's webhook: test_errors_keda_refuses",
    "no-gpu-util": "NVML, which has no such value with MIG",
    "wrong-counters": "dcgm-exporter, which does not start: NVIDIA/dcgm-exporter internal/pkg/counters",
    "no-prices": "Cluster Autoscaler, which does not start: cloudprovider/aws (Pricing)",
    "retired-gpu-setting": "Azure: Azure/AKS#4472 and #4925",
    "untolerated-pool": "Karpenter, which adds no node: make test-nodes",
    "larger-than-any-node": "kube-scheduler: Insufficient",
}
"""Errors that others refuse."""
CASES = {**{f"works-{name}": text for name, text in WORKS.items()}}
CASES |= {name: text for name, (text, _) in FAILING.items()}


@pytest.fixture(scope="module")
def cluster(plane):
    certificate = plane.serving_certificate(serving_name("gpuscale"))
    groups = (*(each for each in GROUP_VERSIONS if "custom" in each), USAGE_GROUP_VERSION)
    with (
        MetricsServer(plane, certificate, RULES + RESOURCES).running() as server,
        aggregated_api(plane, groups, server.port, service="gpuscale", ca_bundle=plane.ca),
        simulated_nodes(plane, SimulatedNode("h200", gpus=8)),
    ):
        for namespace, text in CASES.items():
            plane.kubectl("create", "namespace", namespace)
            plane.kubectl("apply", "-n", namespace, "-f", "-", stdin=text)

        def pods():
            found = plane.get("pods", "--all-namespaces")["items"]
            running = [each for each in found if each.get("status", {}).get("phase") == "Running"]
            return len(running) >= len(CASES) and running

        for each in wait_until(pods, "pods of all cases", 120.0):
            meta = each["metadata"]
            of = {"namespace": meta["namespace"], "pod": meta["name"]}
            server.put("queue", 5.0, **of)
            server.put("container_cpu_cores", 0.5, container="c", **of)
            server.put("container_memory_bytes", 1e9, container="c", **of)
        yield plane


def test_every_error_is_judged():
    errors = {each.id for each in CHECKS.values() if each.severity is Severity.ERROR}
    assert errors == {*REFUSED, *FAILING, *ELSEWHERE}


def told(text):
    files = [("rules.yaml", RULES), ("objects.yaml", text)]
    return {each.check.id for each in lint(files).findings}


@pytest.mark.parametrize("check", REFUSED)
def test_the_api_server_refuses_it(plane, check):
    text, words = REFUSED[check]
    assert check in told(text)
    command = ["kubectl", f"--kubeconfig={plane.admin}", "create", "--dry-run=server", "-f", "-"]
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert words in done.stderr


def conditions(plane, namespace):
    status = plane.get("hpa", "web", "-n", namespace).get("status", {})
    return {each["reason"]: each["status"] for each in status.get("conditions", ())}


@pytest.mark.parametrize("name", WORKS)
def test_what_is_right_scales(cluster, name):
    wait_until(
        lambda: conditions(cluster, f"works-{name}").get("ValidMetricFound") == "True",
        "a metric with a value",
        60.0,
    )


@pytest.mark.parametrize("check", FAILING)
def test_the_controller_says_that_it_fails(cluster, check):
    text, reason = FAILING[check]
    assert check in told(text)
    test_what_is_right_scales(cluster, "pods")  # By then the others have been looked at as often.
    wait_until(lambda: conditions(cluster, check).get(reason) == "False", json.dumps(reason), 60.0)
