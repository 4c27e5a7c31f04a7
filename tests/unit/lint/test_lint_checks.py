"""Every check of `gpuscale lint`: it fires with these words, and is quiet beside what is right.

The words stand in `lint_messages.txt`, one block a case, as users read them.
"""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from node_lint_cases import NODE_CASES
from query_cases import QUERY_CASES
from scaled_cases import SCALED_CASES

from gpuscale.base.findings import Severity
from gpuscale.hpa.terms.versions import parse_version
from gpuscale.ops.findings_text import lint_document as document
from gpuscale.ops.findings_text import lint_lines as text_lines
from gpuscale.ops.lint.checks import CHECKS
from gpuscale.ops.lint.linting import lint
from gpuscale.server.rules.config import preset_text

NAMED = """\
- seriesQuery: DCGM_FI_DEV_GPU_UTIL{}
  resources: {overrides: {exported_namespace: {resource: namespace}, exported_pod: {resource: pod}}}
  name: {as: gpu_util}
  metricsQuery: avg(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)
"""
SUMS = NAMED.replace("avg(", "sum(")
EXTERNAL = """\
externalRules:
- seriesQuery: DCGM_FI_DEV_GPU_UTIL{namespace!=""}
  resources: {template: <<.Resource>>}
  name: {as: gpu_util}
  metricsQuery: avg(<<.Series>>{<<.LabelMatchers>>}) by (pod)
"""
CHART = "rules: {default: true}\n"
QUEUE_BESIDE_THE_CHART = """\
rules:
  custom:
  - seriesQuery: queue_length
    resources: {template: <<.Resource>>}
    metricsQuery: avg(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)
"""
OF_THE_COMMAND = {"refused-values", "refused-scenario", "ignore-without-reason", "unused-ignore"}
"""What only `gpuscale lint` itself reads."""
RECORDED = """\
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata: {name: r}
spec:
  groups: [{name: g, rules: [{record: DCGM_FI_DEV_GPU_UTIL_AVG, expr: avg(DCGM_FI_DEV_GPU_UTIL)}]}]
"""
MONITOR = """\
apiVersion: monitoring.coreos.com/v1
kind: ServiceMonitor
metadata: {name: m}
spec: {endpoints: [{port: metrics, honorLabels: true}]}
"""


PATCH = """\
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: web}
"""


def hpa(metric, version="v2", name="web", namespace="default", more=""):
    lines = [
        f"apiVersion: autoscaling/{version}",
        "kind: HorizontalPodAutoscaler",
        f"metadata: {{name: {name}, namespace: {namespace}}}",
        "spec:",
        "  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: web}",
        *(f"  {line}" for line in more.splitlines()),
        *([] if "maxReplicas" in more else ["  maxReplicas: 10"]),
        "  metrics:",
        f"  - {metric}",
    ]
    return "\n".join(lines) + "\n"


def pods(name="gpu_util", target="{type: AverageValue, averageValue: 70}", selector=""):
    extra = f", selector: {selector}" if selector else ""
    return f"{{type: Pods, pods: {{metric: {{name: {name}{extra}}}, target: {target}}}}}"


def of_object(name, kind, object_name, target="{type: Value, value: 70}", api_version="v1"):
    described = f"{{kind: {kind}, name: {object_name}, apiVersion: {api_version}}}"
    return (
        f"{{type: Object, object: {{metric: {{name: {name}}}, describedObject: {described}, "
        f"target: {target}}}}}"
    )


def external(name="gpu_util", target="{type: AverageValue, averageValue: 70}"):
    return f"{{type: External, external: {{metric: {{name: {name}}}, target: {target}}}}}"


def of_resource(name, target):
    return f"{{type: Resource, resource: {{name: {name}, target: {target}}}}}"


def overrides(**resources):
    labels = {"namespace": "namespace", **resources}
    inside = ", ".join(f"{label}: {{resource: {each}}}" for label, each in labels.items())
    return f"{{overrides: {{{inside}}}}}"


def deployment(gpus):
    return f"""\
apiVersion: apps/v1
kind: Deployment
metadata: {{name: web}}
spec:
  selector: {{matchLabels: {{app: web}}}}
  template:
    metadata: {{labels: {{app: web}}}}
    spec: {{containers: [{{name: c, image: i, resources: {{limits: {{nvidia.com/gpu: {gpus}}}}}}}]}}
"""


def groups(of_leader):
    return f"""\
apiVersion: leaderworkerset.x-k8s.io/v1
kind: LeaderWorkerSet
metadata: {{name: web}}
spec:
  leaderWorkerTemplate:
    size: 2
    leaderTemplate: {{spec: {{containers: [{{name: l, image: i, resources: {of_leader}}}]}}}}
    workerTemplate:
      spec: {{containers: [{{name: w, image: i, resources: {{limits: {{nvidia.com/gpu: 8}}}}}}]}}
"""


def of_groups(text):
    return text.replace(
        "apps/v1, kind: Deployment", "leaderworkerset.x-k8s.io/v1, kind: LeaderWorkerSet"
    )


def rule(
    series, query="avg(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)", resources="", name=""
):
    resources = resources or "{template: <<.Resource>>}"
    more = f"  name: {name}\n" if name else ""
    return f"- seriesQuery: '{series}'\n  resources: {resources}\n{more}  metricsQuery: '{query}'\n"


def keda(query, threshold="70", more="minReplicaCount: 1", metric_type="Value", name="web"):
    return f"""\
apiVersion: keda.sh/v1alpha1
kind: ScaledObject
metadata: {{name: {name}}}
spec:
  scaleTargetRef: {{name: web}}
  {more}
  triggers:
  - type: prometheus
    metricType: {metric_type}
    metadata: {{serverAddress: 'http://p:9090', query: '{query}', threshold: '{threshold}'}}
"""


def scaled(trigger, more="minReplicaCount: 1", name="web"):
    return f"""\
apiVersion: keda.sh/v1alpha1
kind: ScaledObject
metadata: {{name: {name}, namespace: ml}}
spec:
  scaleTargetRef: {{name: web}}
  {more}
  triggers:
  - {trigger}
"""


PROMETHEUS = (
    "{type: prometheus, metadata: {serverAddress: 'https://p', query: avg(queue), threshold: '5'"
)
BY_CA = PROMETHEUS + "}, metricType: Value, authenticationRef: {name: p}}"
AUTHENTICATION = """\
apiVersion: keda.sh/v1alpha1
kind: TriggerAuthentication
metadata: {name: p, namespace: ml}
spec: {secretTargetRef: [{parameter: ca, name: p, key: ca.crt}]}
"""
SCALER = "{type: external, metadata: {scalerAddress: 's:9090'}}"
OURS = """\
{type: external-push, metadata: {scalerAddress: 'gpuscale-scaler.a.svc:6000', workload: deployment/web,
    wakeQuery: sum(queue), pollingInterval: 15s}}"""
FALLBACK = "minReplicaCount: 0\n  fallback: {failureThreshold: 3, replicas: %s}"
MODIFIED = """\
minReplicaCount: 1
  fallback: {failureThreshold: 3, replicas: 2}
  advanced: {scalingModifiers: {formula: q, target: '%s'}}"""
AT_ZERO = """\
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec: {%sselector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, spec: {containers: []}}}
"""
TOLERANT = "behavior: {scaleUp: {tolerance: 50m}}"
WAKES = {
    "rules.yaml": EXTERNAL.replace("DCGM_FI_DEV_GPU_UTIL", "queue"),
    "hpa.yaml": hpa(external(), more="minReplicas: 0"),
}

POLICY = """\
triggers:
- namespace: default
  metricName: gpu_util
  query: sum(in_flight)
  policy: trend
  podLoad: 16
  startTime: 3m
  maxReplicas: 40
"""
ONE = '{type: AverageValue, averageValue: "1"}'
EXACT = "behavior: {scaleUp: {tolerance: 0}, scaleDown: {tolerance: 0}}"


EXPORTER_ROWS = """\
apiVersion: v1
kind: ConfigMap
metadata: {name: rows}
data:
  rows.csv: |
    # DCGM_FI_DEV_GPU_UTIL, gauge, off
    DCGM_FI_DEV_FB_USED, gauge, Memory in use (MiB).
"""
CASES = {
    "wrong-counters": (
        {"rows.yaml": EXPORTER_ROWS.replace("in use", "in use,")},
        {"rows.yaml": EXPORTER_ROWS},
    ),
    "series-not-exported": (
        {"rules.yaml": NAMED, "hpa.yaml": hpa(pods("gpu_util")), "rows.yaml": EXPORTER_ROWS},
        {
            "rules.yaml": NAMED,
            "hpa.yaml": hpa(pods("gpu_util")),
            "rows.yaml": EXPORTER_ROWS.replace("# DCGM", "DCGM"),
        },
    ),
    "broken-file": ({"rules.yaml": "rules: [\n"}, {"rules.yaml": NAMED}),
    "refused-rules": (
        {"rules.yaml": NAMED.replace("gpu_util}", "gpu_util, matches: '(?=x)'}")},
        {"rules.yaml": NAMED},
    ),
    "refused-manifest": (
        {
            "hpa.yaml": hpa(
                pods(target="{type: AverageValue, averageValue: 0}"), more="minReplicas: 11"
            ),
            "rules.yaml": NAMED,
        },
        {"hpa.yaml": hpa(pods()), "rules.yaml": NAMED},
    ),
    "not-whole/placeholder": (
        {"hpa.yaml": hpa(pods(), name="'${APP}'", more="minReplicas: '${LEAST}'")},
        {"hpa.yaml": hpa(pods())},
    ),
    "not-whole/patch": (
        {"patch-hpa.yaml": PATCH + "spec: {maxReplicas: 4}\n"},
        {"patch-hpa.yaml": hpa(pods())},
    ),
    "not-read": (
        {"values.yaml": "rules: {existing: adapter-rules}\n"},
        {"values.yaml": "prometheus: {url: 'http://p'}\n" + CHART},
    ),
    "no-rules": (
        {"hpa.yaml": hpa(pods())},
        {"hpa.yaml": hpa(of_resource("cpu", "{type: Utilization, averageUtilization: 80}"))},
    ),
    "custom-resource": (
        {
            "rules.yaml": rule(
                "queue",
                resources="{overrides: {ns: {resource: namespace}, brand: {group: x.io, resource: brands}}}",
            )
        },
        {"rules.yaml": rule("queue", resources=overrides(brand="deployment"))},
    ),
    "empty-group": (
        {
            "rules.yaml": rule(
                "requests_total{}",
                "sum(rate(<<.Series>>{<<.LabelMatchers>>}[2m])) by (<<.GroupBy>>)",
                name="{matches: ^(.*)_total$, as: $1_per_second}",
            )
        },
        {
            "rules.yaml": rule(
                "requests_total{}",
                "sum(rate(<<.Series>>{<<.LabelMatchers>>}[2m])) by (<<.GroupBy>>)",
                name="{matches: ^(.*)_total$, as: '${1}_per_second'}",
            )
        },
    ),
    "no-query": (
        {"rules.yaml": "- seriesQuery: queue\n  resources: {template: <<.Resource>>}\n"},
        {"rules.yaml": rule("queue")},
    ),
    "query-not-promql": (
        {"rules.yaml": rule("queue", "avg(<<.Series>>{<<.LabelMatchers>>) by (<<.GroupBy>>)")},
        {"rules.yaml": rule("queue")},
    ),
    "second-label": (
        {
            "rules.yaml": rule(
                "queue",
                resources=overrides(pod="pod", pod_name="pods"),
            )
        },
        {
            "rules.yaml": rule(
                "queue",
                resources=overrides(pod="pod", node="node"),
            )
        },
    ),
    "unquoted-name": (
        {
            "rules.yaml": rule(
                "queue",
                'sum(<<.Series>>{namespace="x"} > <<index .LabelValuesByName "pod">>) by (pod)',
            )
        },
        {
            "rules.yaml": rule(
                "queue",
                'sum(<<.Series>>{pod=~"<<index .LabelValuesByName "pod">>"}) by (<<.GroupBy>>)',
            )
        },
    ),
    "no-namespace-label": (
        {
            "rules.yaml": rule(
                "queue", resources="{overrides: {pod: {resource: pod}, svc: {resource: service}}}"
            )
        },
        {"rules.yaml": rule("queue", resources="{overrides: {node: {resource: node}}}")},
    ),
    "no-namespace-label/external": (
        {
            "rules.yaml": "externalRules:\n"
            + rule(
                "queue",
                "sum(<<.Series>>{<<.LabelMatchers>>})",
                resources="{overrides: {pod: {resource: pod}}}",
            )
        },
        {
            "rules.yaml": "externalRules:\n"
            + rule("queue", "sum(<<.Series>>{<<.LabelMatchers>>})", resources="{namespaced: false}")
        },
    ),
    "no-group-by": (
        {"rules.yaml": rule("queue", "avg(<<.Series>>{<<.LabelMatchers>>})")},
        {"rules.yaml": rule("queue", "<<.Series>>{<<.LabelMatchers>>} * 2")},
    ),
    "no-group-by/other label": (
        {"rules.yaml": NAMED.replace("by (<<.GroupBy>>)", "by (pod)")},
        {"rules.yaml": NAMED.replace("by (<<.GroupBy>>)", "by (exported_pod)")},
    ),
    "no-group-by/for whom it is asked": (
        {
            "rules.yaml": rule(
                "queue",
                "sum by (namespace) (<<.Series>>{<<.LabelMatchers>>})",
                overrides(service="service"),
            ),
            "hpa.yaml": hpa(of_object("queue", "Service", "web")),
        },
        {
            "rules.yaml": rule(
                "queue",
                "sum by (namespace) (<<.Series>>{<<.LabelMatchers>>})",
                overrides(service="service"),
            ),
            "hpa.yaml": hpa(of_object("queue", "Namespace", "default")),
        },
    ),
    "impossible-label/name": (
        {
            "rules.yaml": rule(
                "queue",
                resources="{overrides: {namespace: {resource: namespace}, k8s.io/pod: {resource: pod}}}",
            )
        },
        {
            "rules.yaml": rule(
                "queue",
                resources="{overrides: {namespace: {resource: namespace}, k8s_io_pod: {resource: pod}}}",
            )
        },
    ),
    "impossible-label/series query": (
        {"rules.yaml": rule('queue{pod="",pod!=""}')},
        {"rules.yaml": rule('queue{pod!="",pod!="POD"}')},
    ),
    "impossible-label/override": (
        {"rules.yaml": NAMED.replace("GPU_UTIL{}", 'GPU_UTIL{exported_pod=""}')},
        {"rules.yaml": NAMED.replace("GPU_UTIL{}", 'GPU_UTIL{exported_pod!=""}')},
    ),
    "impossible-label/request": (
        {
            "rules.yaml": rule(
                "queue", 'avg(<<.Series>>{<<.LabelMatchers>>,namespace="prod"}) by (<<.GroupBy>>)'
            ),
            "hpa.yaml": hpa(pods("queue"), namespace="test"),
        },
        {
            "rules.yaml": rule(
                "queue", 'avg(<<.Series>>{<<.LabelMatchers>>,namespace="prod"}) by (<<.GroupBy>>)'
            ),
            "hpa.yaml": hpa(pods("queue"), namespace="prod"),
        },
    ),
    "shadowed-rule": (
        {"rules.yaml": NAMED + NAMED.replace("avg(", "max(")},
        {"rules.yaml": NAMED + NAMED.replace("avg(", "max(").replace("gpu_util", "gpu_util_max")},
    ),
    "rate-of-gauge": (
        {
            "rules.yaml": NAMED.replace(
                "avg(<<.Series>>{<<.LabelMatchers>>})",
                "avg(rate(<<.Series>>{<<.LabelMatchers>>}[5m]))",
            )
        },
        {
            "rules.yaml": NAMED.replace(
                "avg(<<.Series>>{<<.LabelMatchers>>})",
                "avg(avg_over_time(<<.Series>>{<<.LabelMatchers>>}[5m]))",
            )
        },
    ),
    "counter-without-rate": (
        {"rules.yaml": rule("vllm:generation_tokens_total{}", name="{as: tokens}")},
        {
            "rules.yaml": rule(
                "vllm:generation_tokens_total{}",
                "avg(rate(<<.Series>>{<<.LabelMatchers>>}[5m])) by (<<.GroupBy>>)",
            )
        },
    ),
    "counter-without-rate/chart": (
        {"values.yaml": CHART, "hpa.yaml": hpa(pods("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION"))},
        {"values.yaml": CHART, "hpa.yaml": hpa(pods("DCGM_FI_DEV_POWER_USAGE"))},
    ),
    "counter-by-name": (
        {"rules.yaml": rule("starrocks_fe_connection_total{}", name="{as: connections}")},
        {
            "rules.yaml": rule(
                "starrocks_fe_connection_total{}",
                "avg(rate(<<.Series>>{<<.LabelMatchers>>}[5m])) by (<<.GroupBy>>)",
            )
        },
    ),
    "short-rate-window": (
        {
            "rules.yaml": rule(
                "requests_total{}",
                "avg(rate(<<.Series>>{<<.LabelMatchers>>}[30s])) by (<<.GroupBy>>)",
            )
        },
        {
            "rules.yaml": rule(
                "requests_total{}",
                "avg(rate(<<.Series>>{<<.LabelMatchers>>}[2m])) by (<<.GroupBy>>)",
            )
        },
    ),
    "sum-of-percentages/rule": (
        {"rules.yaml": SUMS},
        {"rules.yaml": NAMED},
    ),
    "sum-of-percentages/hpa": (
        {"rules.yaml": SUMS, "hpa.yaml": hpa(pods())},
        {"rules.yaml": SUMS, "hpa.yaml": hpa(pods()), "web.yaml": deployment(1)},
    ),
    "sum-of-percentages/gpus": (
        {"rules.yaml": SUMS, "hpa.yaml": hpa(pods()), "web.yaml": deployment(4)},
        {
            "rules.yaml": SUMS,
            "hpa.yaml": hpa(pods(target="{type: AverageValue, averageValue: 280}")),
            "web.yaml": deployment(4),
        },
    ),
    "sum-of-percentages/chart": (
        {"values.yaml": CHART, "hpa.yaml": hpa(pods("DCGM_FI_DEV_GPU_UTIL"))},
        {"values.yaml": CHART, "hpa.yaml": hpa(pods("DCGM_FI_DEV_FB_USED"))},
    ),
    "nan-without-traffic": (
        {
            "rules.yaml": rule(
                "ttft_bucket",
                "histogram_quantile(0.9, sum(rate(<<.Series>>{<<.LabelMatchers>>}[5m])) "
                "by (<<.GroupBy>>, le))",
            )
        },
        {
            "rules.yaml": rule(
                "ttft_bucket",
                "histogram_quantile(0.9, sum(rate(<<.Series>>{<<.LabelMatchers>>}[5m])) "
                "by (<<.GroupBy>>, le))",
            )
            + "  nan: zero\n"
        },
    ),
    "unknown-gpu-series": (
        {"rules.yaml": NAMED.replace("GPU_UTIL", "GPU_UTL")},
        {"rules.yaml": NAMED.replace("GPU_UTIL", "MEM_COPY_UTIL")},
    ),
    "recorded-gpu-series": (
        {"rules.yaml": NAMED.replace("GPU_UTIL", "GPU_UTIL_AVG")},
        {
            "rules.yaml": NAMED.replace("GPU_UTIL", "GPU_UTIL_AVG"),
            "record.yaml": RECORDED,
        },
    ),
    "unknown-metric": (
        {"rules.yaml": NAMED, "hpa.yaml": hpa(pods("gpu_utl"))},
        {"rules.yaml": NAMED, "hpa.yaml": hpa(pods("gpu_util"))},
    ),
    "unknown-metric/signal": (
        {"rules.yaml": NAMED, "hpa.yaml": hpa(pods("vllm:num_requests_waiting"))},
        {
            "rules.yaml": NAMED.replace("gpu_util", "vllm_num_requests_waiting"),
            "hpa.yaml": hpa(pods("vllm_num_requests_waiting")),
        },
    ),
    "unknown-metric/external": (
        {"rules.yaml": NAMED, "hpa.yaml": hpa(external())},
        {"rules.yaml": EXTERNAL, "hpa.yaml": hpa(external())},
    ),
    "metric-elsewhere": (
        {"rules.yaml": NAMED, "hpa.yaml": hpa(external("queue_length"))},
        {
            "rules.yaml": EXTERNAL.replace("gpu_util", "queue_length"),
            "hpa.yaml": hpa(external("queue_length")),
        },
    ),
    "metric-elsewhere/beside-external-rules": (
        {
            "rules.yaml": EXTERNAL,
            "hpa.yaml": hpa(external("kubernetes.io|node|accelerator|duty_cycle")),
        },
        {"rules.yaml": EXTERNAL, "hpa.yaml": hpa(external())},
    ),
    "misspelled-metric": (
        {
            "values.yaml": QUEUE_BESIDE_THE_CHART,
            "hpa.yaml": hpa(pods("queue_lenght")),
        },
        {"values.yaml": CHART, "hpa.yaml": hpa(pods("queue_lenght"))},
    ),
    "metric-not-for-resource": (
        {
            "rules.yaml": rule(
                "DCGM_FI_DEV_GPU_UTIL{}", resources="{overrides: {NodeName: {resource: node}}}"
            ),
            "hpa.yaml": hpa(pods("DCGM_FI_DEV_GPU_UTIL")),
        },
        {
            "rules.yaml": rule(
                "DCGM_FI_DEV_GPU_UTIL{}",
                resources=overrides(NodeName="node", PodName="pod"),
            ),
            "hpa.yaml": hpa(pods("DCGM_FI_DEV_GPU_UTIL")),
        },
    ),
    "metric-not-for-resource/template": (
        {
            "rules.yaml": rule("queue", resources="{template: 'kube_<<.Group>>_<<.Resource>>'}"),
            "hpa.yaml": hpa(pods("queue")),
        },
        {
            "rules.yaml": rule("queue", resources="{template: 'kube_<<.Resource>>'}"),
            "hpa.yaml": hpa(pods("queue")),
        },
    ),
    "external-rows-summed": (
        {"rules.yaml": EXTERNAL, "hpa.yaml": hpa(external(target="{type: Value, value: 70}"))},
        {
            "rules.yaml": EXTERNAL.replace(" by (pod)", ""),
            "hpa.yaml": hpa(external(target="{type: Value, value: 70}")),
        },
    ),
    "unreachable-target": (
        {
            "rules.yaml": NAMED,
            "hpa.yaml": hpa(pods(target="{type: AverageValue, averageValue: 120}")),
        },
        {
            "rules.yaml": NAMED,
            "hpa.yaml": hpa(pods(target="{type: AverageValue, averageValue: 90}")),
        },
    ),
    "unreachable-target/tolerance": (
        {
            "rules.yaml": NAMED,
            "hpa.yaml": hpa(pods(target="{type: AverageValue, averageValue: 95}")),
        },
        {
            "rules.yaml": NAMED,
            "hpa.yaml": hpa(
                pods(target="{type: AverageValue, averageValue: 95}"),
                more="behavior: {scaleUp: {tolerance: 0.05}}",
            ),
        },
    ),
    "wrong-unit": (
        {
            "rules.yaml": NAMED,
            "hpa.yaml": hpa(pods(target="{type: AverageValue, averageValue: 600m}")),
        },
        {
            "rules.yaml": NAMED,
            "hpa.yaml": hpa(pods(target="{type: AverageValue, averageValue: 60}")),
        },
    ),
    "wrong-unit/ratio": (
        {"rules.yaml": NAMED.replace("DEV_GPU_UTIL", "PROF_SM_ACTIVE"), "hpa.yaml": hpa(pods())},
        {
            "rules.yaml": NAMED.replace("DEV_GPU_UTIL", "PROF_SM_ACTIVE").replace(
                "avg(<", "100 * avg(<"
            ),
            "hpa.yaml": hpa(pods()),
        },
    ),
    "wrong-unit/MiB": (
        {
            "rules.yaml": NAMED.replace("GPU_UTIL", "FB_USED"),
            "hpa.yaml": hpa(pods(target="{type: AverageValue, averageValue: 12Gi}")),
        },
        {
            "rules.yaml": NAMED.replace("GPU_UTIL", "FB_USED").replace("avg(<", "1048576 * avg(<"),
            "hpa.yaml": hpa(pods(target="{type: AverageValue, averageValue: 12Gi}")),
        },
    ),
    "wrong-unit/memory of the resource metrics": (
        {
            "rules.yaml": NAMED,
            "hpa.yaml": hpa(of_resource("memory", "{type: AverageValue, averageValue: 16}")),
        },
        {
            "rules.yaml": NAMED,
            "hpa.yaml": hpa(of_resource("memory", "{type: AverageValue, averageValue: 16Gi}")),
        },
    ),
    "doubtful-unit": (
        {
            "rules.yaml": rule("queue_bytes"),
            "hpa.yaml": hpa(pods("queue_bytes", "{type: AverageValue, averageValue: 16}")),
        },
        {
            "rules.yaml": rule("queue_bytes"),
            "hpa.yaml": hpa(pods("queue_bytes", "{type: AverageValue, averageValue: 16Mi}")),
        },
    ),
    "unreachable-target/several replicas": (
        {
            "rules.yaml": EXTERNAL.replace(" by (pod)", ""),
            "hpa.yaml": hpa(
                external(target="{type: AverageValue, averageValue: 30}"),
                more="minReplicas: 4\nmaxReplicas: 5",
            ),
        },
        {
            "rules.yaml": EXTERNAL.replace(" by (pod)", ""),
            "hpa.yaml": hpa(
                external(target="{type: AverageValue, averageValue: 20}"),
                more="minReplicas: 4\nmaxReplicas: 5",
            ),
        },
    ),
    "capped-replicas": (
        {
            "rules.yaml": NAMED,
            "hpa.yaml": hpa(
                of_object("gpu_util", "Pod", "a", "{type: AverageValue, averageValue: 30}")
            ),
        },
        {
            "rules.yaml": NAMED,
            "hpa.yaml": hpa(of_object("gpu_util", "Pod", "a", "{type: Value, value: 30}")),
        },
    ),
    "cannot-wake": (
        {"rules.yaml": EXTERNAL, "hpa.yaml": hpa(external(), more="minReplicas: 0")},
        {
            "rules.yaml": EXTERNAL.replace("DCGM_FI_DEV_GPU_UTIL", "queue"),
            "hpa.yaml": hpa(external(), more="minReplicas: 0"),
        },
    ),
    "policy-target": (
        {"triggers.yaml": POLICY, "hpa.yaml": hpa(external(), more=EXACT)},
        {"triggers.yaml": POLICY, "hpa.yaml": hpa(external(target=ONE), more=EXACT)},
    ),
    "policy-tolerance": (
        {"triggers.yaml": POLICY, "hpa.yaml": hpa(external(target=ONE))},
        {"triggers.yaml": POLICY, "hpa.yaml": hpa(external(target=ONE), more=EXACT)},
    ),
    "policy-tolerance/one direction": (
        {
            "triggers.yaml": POLICY,
            "hpa.yaml": hpa(external(target=ONE), more="behavior: {scaleUp: {tolerance: 0}}"),
        },
        # Of nine replicas one is more than a tenth.
        {
            "triggers.yaml": POLICY.replace("maxReplicas: 40", "maxReplicas: 9"),
            "hpa.yaml": hpa(external(target=ONE)),
        },
    ),
    "exporter-pod": (
        {"rules.yaml": rule("DCGM_FI_DEV_GPU_UTIL"), "hpa.yaml": hpa(pods("DCGM_FI_DEV_GPU_UTIL"))},
        {
            "rules.yaml": rule("DCGM_FI_DEV_GPU_UTIL"),
            "hpa.yaml": hpa(pods("DCGM_FI_DEV_GPU_UTIL")),
            "monitor.yaml": MONITOR,
        },
    ),
    "memory-at-start": (
        {
            "rules.yaml": rule("DCGM_FI_DEV_FB_USED"),
            "hpa.yaml": hpa(pods("DCGM_FI_DEV_FB_USED")),
            "web.yaml": deployment(1).replace("image: i", "image: vllm/vllm-openai"),
        },
        {
            "rules.yaml": rule("DCGM_FI_DEV_GPU_UTIL"),
            "hpa.yaml": hpa(pods("DCGM_FI_DEV_GPU_UTIL")),
            "web.yaml": deployment(1).replace("image: i", "image: vllm/vllm-openai"),
        },
    ),
    "leaders-without-gpus": (
        {
            "rules.yaml": rule("DCGM_FI_DEV_GPU_UTIL"),
            "hpa.yaml": of_groups(hpa(pods("DCGM_FI_DEV_GPU_UTIL"))),
            "web.yaml": groups("{}"),
        },
        {
            "rules.yaml": rule("DCGM_FI_DEV_GPU_UTIL"),
            "hpa.yaml": of_groups(hpa(pods("DCGM_FI_DEV_GPU_UTIL"))),
            "web.yaml": groups("{limits: {nvidia.com/gpu: 1}}"),
        },
    ),
    "scrape-job-label": (
        {
            "rules.yaml": rule("queue"),
            "hpa.yaml": hpa(of_object("queue", "Job", "train", api_version="batch/v1")),
        },
        {
            "rules.yaml": rule(
                "queue",
                resources=overrides(job_name="job"),
            ),
            "hpa.yaml": hpa(of_object("queue", "Job", "train", api_version="batch/v1")),
        },
    ),
    "impossible-selector-key": (
        {
            "rules.yaml": NAMED,
            "hpa.yaml": hpa(pods(selector="{matchLabels: {app.kubernetes.io/name: web}}")),
        },
        {
            "rules.yaml": NAMED,
            "hpa.yaml": hpa(pods(selector="{matchLabels: {app_kubernetes_io_name: web}}")),
        },
    ),
    "impossible-selector": (
        {"rules.yaml": NAMED, "hpa.yaml": hpa(pods(selector="{matchLabels: {model: org/model}}"))},
        {"rules.yaml": NAMED, "hpa.yaml": hpa(pods(selector="{matchLabels: {model: org-model}}"))},
    ),
    "cluster-scoped-object": (
        {"rules.yaml": rule("queue"), "hpa.yaml": hpa(of_object("queue", "Node", "n1"))},
        {"rules.yaml": rule("queue"), "hpa.yaml": hpa(of_object("queue", "Service", "n1"))},
    ),
    "namespace-name-ignored": (
        {"rules.yaml": rule("queue"), "hpa.yaml": hpa(of_object("queue", "Namespace", "other"))},
        {"rules.yaml": rule("queue"), "hpa.yaml": hpa(of_object("queue", "Namespace", "default"))},
    ),
    "ignored-target-type/pods": (
        {
            "rules.yaml": NAMED,
            "hpa.yaml": hpa(pods(target="{type: Utilization, averageValue: 20}")),
        },
        {
            "rules.yaml": NAMED,
            "hpa.yaml": hpa(pods(target="{type: AverageValue, averageValue: 20}")),
        },
    ),
    "ignored-target-type/external": (
        {
            "rules.yaml": EXTERNAL,
            "hpa.yaml": hpa(external(target="{type: Value, averageValue: 20}")),
        },
        {
            "rules.yaml": EXTERNAL,
            "hpa.yaml": hpa(external(target="{type: AverageValue, averageValue: 20}")),
        },
    ),
    "ignored-target-type/resource": (
        {"hpa.yaml": hpa(of_resource("cpu", "{type: Utilization, averageValue: 500m}"))},
        {"hpa.yaml": hpa(of_resource("cpu", "{type: AverageValue, averageValue: 500m}"))},
    ),
    "contradicting-target-type": (
        {
            "rules.yaml": rule("queue"),
            "hpa.yaml": hpa(
                of_object("queue", "Service", "s", "{type: Utilization, averageValue: 20}")
            ),
        },
        {
            "rules.yaml": rule("queue"),
            "hpa.yaml": hpa(
                of_object("queue", "Service", "s", "{type: AverageValue, averageValue: 20}")
            ),
        },
    ),
    "ignored-target-field": (
        {
            "rules.yaml": rule("queue"),
            "hpa.yaml": hpa(
                of_object("queue", "Service", "s", "{type: Value, value: 20, averageValue: 5}")
            ),
        },
        {
            "rules.yaml": rule("queue"),
            "hpa.yaml": hpa(of_object("queue", "Service", "s", "{type: Value, value: 20}")),
        },
    ),
    "gpu-resource-metric": (
        {
            "hpa.yaml": hpa(
                of_resource("nvidia.com/gpu", "{type: Utilization, averageUtilization: 80}")
            )
        },
        {"hpa.yaml": hpa(of_resource("memory", "{type: Utilization, averageUtilization: 80}"))},
    ),
    "removed-api-version": (
        {
            "rules.yaml": NAMED,
            "hpa.yaml": hpa(
                "{type: Pods, pods: {metricName: gpu_util, targetAverageValue: 70}}",
                version="v2beta1",
            ),
        },
        {"rules.yaml": NAMED, "hpa.yaml": hpa(pods())},
    ),
    "removed-api-version/v2beta2": (
        {"rules.yaml": NAMED, "hpa.yaml": hpa(pods(), version="v2beta2")},
        {"rules.yaml": NAMED, "hpa.yaml": hpa(pods())},
    ),
    "scale-to-zero-gate": (
        {
            "rules.yaml": EXTERNAL.replace("DCGM_FI_DEV_GPU_UTIL", "queue"),
            "hpa.yaml": hpa(external(), more="minReplicas: 0"),
        },
        {
            "rules.yaml": EXTERNAL.replace("DCGM_FI_DEV_GPU_UTIL", "queue"),
            "hpa.yaml": hpa(external(), more="minReplicas: 1"),
        },
    ),
    "tolerance-gate": (
        {"rules.yaml": NAMED, "hpa.yaml": hpa(pods(), more=TOLERANT)},
        {"rules.yaml": NAMED, "hpa.yaml": hpa(pods())},
    ),
    "zero-in-manifest": (
        {**WAKES, "web.yaml": AT_ZERO % "replicas: 0, "},
        {**WAKES, "web.yaml": AT_ZERO % ""},
    ),
    "zero-in-manifest/pause": (
        {"rules.yaml": NAMED, "hpa.yaml": hpa(pods()), "web.yaml": AT_ZERO % "replicas: 0, "},
        {"rules.yaml": NAMED, "hpa.yaml": hpa(pods()), "web.yaml": AT_ZERO % "replicas: 2, "},
    ),
    "two-hpas": (
        {"rules.yaml": NAMED, "hpa.yaml": hpa(pods()) + "---\n" + hpa(pods(), name="web2")},
        {
            "rules.yaml": NAMED,
            "hpa.yaml": hpa(pods()) + "---\n" + hpa(pods(), name="web2", namespace="other"),
        },
    ),
    "unknown-field": (
        {"rules.yaml": NAMED, "hpa.yaml": hpa(pods(), more="minreplicas: 2")},
        {"rules.yaml": NAMED, "hpa.yaml": hpa(pods(), more="minReplicas: 2")},
    ),
    "unknown-field/far": (
        {
            "rules.yaml": NAMED,
            "hpa.yaml": hpa(pods(target="{type: AverageValue, averageValue: 70, x: 1}")),
        },
        {"rules.yaml": NAMED, "hpa.yaml": hpa(pods())},
    ),
    "several-rows": (
        {"keda.yaml": keda("DCGM_FI_DEV_GPU_UTIL")},
        {"keda.yaml": keda("avg(DCGM_FI_DEV_GPU_UTIL)")},
    ),
    "wrong-unit/keda": (
        {"keda.yaml": keda("avg(DCGM_FI_PROF_SM_ACTIVE)")},
        {"keda.yaml": keda("avg(DCGM_FI_PROF_SM_ACTIVE)", "0.7")},
    ),
    "capped-replicas/keda": (
        # 100 / 30 = 3.3, so 4 pods.
        {"keda.yaml": keda("avg(DCGM_FI_DEV_GPU_UTIL)", "30", metric_type="AverageValue")},
        {"keda.yaml": keda("avg(DCGM_FI_DEV_GPU_UTIL)", "30")},
    ),
    "cannot-wake/keda": (
        {"keda.yaml": keda("avg(DCGM_FI_DEV_GPU_UTIL)", more="maxReplicaCount: 5")},
        {"keda.yaml": keda("avg(queue_length)", more="maxReplicaCount: 5")},
    ),
    "query-not-promql/keda": (
        {"keda.yaml": keda("avg(DCGM_FI_DEV_GPU_UTIL")},
        {"keda.yaml": keda("avg(DCGM_FI_DEV_GPU_UTIL)")},
    ),
    "rate-of-gauge/keda": (
        {"keda.yaml": keda("avg(rate(DCGM_FI_DEV_GPU_UTIL[5m]))")},
        {"keda.yaml": keda("avg(DCGM_FI_DEV_GPU_UTIL)")},
    ),
    "refused-manifest/keda": (
        {"keda.yaml": keda("avg(queue_length)", more="minReplicaCount: 5\n  maxReplicaCount: 4")},
        {"keda.yaml": keda("avg(queue_length)", more="minReplicaCount: 5\n  maxReplicaCount: 5")},
    ),
    "two-hpas/keda": (
        {"rules.yaml": NAMED, "hpa.yaml": hpa(pods()), "keda.yaml": keda("avg(queue_length)")},
        {"rules.yaml": NAMED, "hpa.yaml": hpa(pods(), namespace="ml"), "keda.yaml": keda("avg(q)")},
    ),
    "average-of-a-mean": (
        {"keda.yaml": keda("avg(queue_length)", metric_type="AverageValue")},
        {"keda.yaml": keda("sum(queue_length)", metric_type="AverageValue")},
    ),
    "fallback-to-zero": (
        {"keda.yaml": scaled(OURS, FALLBACK % 0)},
        {"keda.yaml": scaled(OURS, FALLBACK % 1)},
    ),
    "fallback-without-effect": (
        {"keda.yaml": scaled(OURS, MODIFIED % "2.5")},
        {"keda.yaml": scaled(OURS, MODIFIED % "25")},
    ),
    "fallback-of-a-scaler": (
        {"keda.yaml": scaled(SCALER, FALLBACK % 1)},
        {"keda.yaml": scaled(OURS, FALLBACK % 1)},
    ),
    "wrong-trigger": (
        {"keda.yaml": scaled(OURS.replace("workload:", "signal: gpu-utilisation, worklaod:"))},
        {"keda.yaml": scaled(OURS)},
    ),
    "ca-ignored": (
        {"keda.yaml": scaled(BY_CA), "auth.yaml": AUTHENTICATION},
        {
            "keda.yaml": scaled(BY_CA.replace("}", ", authModes: tls}", 1)),
            "auth.yaml": AUTHENTICATION,
        },
    ),
    "polling-without-effect": (
        {"keda.yaml": scaled(OURS, "minReplicaCount: 1\n  pollingInterval: 5")},
        {"keda.yaml": scaled(OURS, "minReplicaCount: 0\n  pollingInterval: 5")},
    ),
    "name-too-long": (
        {"keda.yaml": scaled(OURS, name="w" * 64)},
        {"keda.yaml": scaled(OURS, name="w" * 54)},
    ),
    "name-too-long/hpa": (
        {"keda.yaml": scaled(OURS, name="w" * 55)},
        {
            "keda.yaml": scaled(
                OURS,
                "advanced: {horizontalPodAutoscalerConfig: {name: web}}",
                name="w" * 55,
            )
        },
    ),
    **NODE_CASES,
    **SCALED_CASES,
    **QUERY_CASES,
}
OLD = {"tolerance-gate": parse_version("1.34")}
"""What release a case is for, where that matters."""


def told():
    """Return the words of each case."""
    text = Path(__file__).with_name("lint_messages.txt").read_text(encoding="utf-8")
    blocks = (block.partition("\n") for block in text.split("== ")[1:])
    return {name: body.rstrip("\n") for name, _, body in blocks}


def linted(files, kubernetes=None):
    return lint(list(files.items()), kubernetes=kubernetes)


def ids(files, kubernetes=None):
    return [finding.check.id for finding in linted(files, kubernetes).findings]


def shown(files, check):
    """Return the lines about one check."""
    lines = list(text_lines(linted(files, OLD.get(check))))
    shown, inside = [], False
    for line in lines[:-2]:
        if not line.startswith("  "):
            inside = f"[{check}]" in line
        if inside:
            shown.append(line)
    return "\n".join(shown)


def check_of(case):
    return case.partition("/")[0]


@pytest.mark.parametrize("case", CASES)
def test_the_check_fires_with_these_words(case) -> None:
    assert shown(CASES[case][0], check_of(case)) == told()[case]


@pytest.mark.parametrize("case", CASES)
def test_the_check_is_quiet_beside_what_is_right(case) -> None:
    assert check_of(case) not in ids(CASES[case][1], OLD.get(check_of(case)))


def test_every_check_has_a_case_and_every_case_its_words() -> None:
    assert {check_of(case) for case in CASES} == set(CHECKS) - OF_THE_COMMAND
    assert list(told()) == list(CASES)


@pytest.mark.parametrize(
    ("image", "metric", "is_found"),
    [
        ("lmsysorg/sglang", "DCGM_FI_DEV_FB_USED", True),
        ("ghcr.io/huggingface/text-generation-inference", "DCGM_FI_DEV_FB_FREE", True),
        ("mirror.local/vllm-openai", "DCGM_CUSTOM_CONTAINER_MEM_USED", True),
        ("mirror.local/vllm-openai", "DCGM_FI_DEV_MEM_COPY_UTIL", False),
        ("pytorch/torchserve", "DCGM_FI_DEV_FB_USED", False),
    ],
)
def test_servers_that_take_their_memory_at_start(image, metric, is_found) -> None:
    web = deployment(1).replace("image: i", f"image: {image}")
    files = {"rules.yaml": rule(metric), "hpa.yaml": hpa(pods(metric)), "web.yaml": web}
    assert ("memory-at-start" in ids(files)) is is_found
    # Of another Deployment than the HPA's nothing follows.
    files["web.yaml"] = web.replace("name: web", "name: other")
    assert "memory-at-start" not in ids(files)


def test_what_is_right_has_no_finding() -> None:
    assert ids({"rules.yaml": NAMED, "hpa.yaml": hpa(pods()), "web.yaml": deployment(2)}) == []


def test_without_rules_a_target_is_held_against_the_preset() -> None:
    metric = pods("DCGM_FI_PROF_SM_ACTIVE", "{type: AverageValue, averageValue: 70}")
    report = linted({"hpa.yaml": hpa(metric)})
    assert [finding.check.id for finding in report.findings] == ["no-rules", "wrong-unit"]
    assert report.rules == 0


def test_a_mean_over_gpus_that_the_preset_makes_needs_no_recording_rule() -> None:
    metric = of_object("DCGM_FI_DEV_GPU_UTIL_AVG", "Service", "s", "{type: Value, value: 30}")
    assert ids({"hpa.yaml": hpa(metric)}) == ["no-rules"]


def test_the_presets_own_rules_are_right() -> None:
    assert ids({"preset.yaml": preset_text()}) == []


def test_a_resource_that_is_nearly_one_of_kubernetes_is_refused() -> None:
    assert ids({"rules.yaml": rule("queue", resources=overrides(pod="pdo"))}) == ["refused-rules"]


BOUND = "avg(<<.Series>>{<<.LabelMatchers>>,%s}) by (<<.GroupBy>>)"


@pytest.mark.parametrize(
    ("bound", "metric", "is_found"),
    [
        ('service="tei"', of_object("queue", "Service", "tei"), False),
        ('service="tgi"', of_object("queue", "Service", "tei"), True),
        ('pod=~"web-.*"', pods("queue"), False),
        ('pod="web-0"', pods("queue"), False),
        ('pod=""', pods("queue"), True),
    ],
)
def test_a_rule_may_be_bound_to_the_object_that_is_asked_for(bound, metric, is_found) -> None:
    files = {"rules.yaml": rule("queue", BOUND % bound), "hpa.yaml": hpa(metric)}
    assert ("impossible-label" in ids(files)) is is_found


def test_a_metric_with_the_name_of_a_rule_for_other_objects_is_not_misspelled() -> None:
    files = {
        "rules.yaml": "rules: {default: true, custom: ["
        "{seriesQuery: busy_share, resources: {overrides: {namespace: {resource: namespace}}}, "
        "metricsQuery: avg(busy_share) by (namespace)}]}",
        "hpa.yaml": hpa(pods("busy_share")),
    }
    assert "misspelled-metric" not in ids(files)


def test_two_rules_for_two_labels_of_one_metric_are_meant() -> None:
    by_pod = NAMED.replace("exported_", "")
    assert ids({"rules.yaml": by_pod + NAMED}) == []


def test_a_refused_rule_file_makes_no_metric_unknown() -> None:
    files = {"rules.yaml": "rules: [{seriesQuery: 1 2}]\n", "hpa.yaml": hpa(pods("anything"))}
    assert ids(files) == ["refused-rules"]


def test_rules_that_are_elsewhere_make_no_metric_unknown() -> None:
    values = "rules: {existing: adapter-rules}\n"
    files = {"values.yaml": values, "hpa.yaml": hpa(pods("anything"))}
    assert ids(files) == ["not-read"]


def test_rules_inside_a_config_map_are_read_with_their_lines() -> None:
    inside = "".join(f"    {line}\n" for line in ("rules:\n" + SUMS).splitlines())
    text = (
        f"apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: a}}\ndata:\n  config.yaml: |\n{inside}"
    )
    (finding,) = linted({"map.yaml": text}).findings
    # Five lines of the ConfigMap, `rules:`, and the fourth line of the rule.
    assert (finding.check.id, finding.where.line) == ("sum-of-percentages", 10)


def test_the_items_of_a_list_are_read() -> None:
    one = hpa(pods(target="{type: Utilization, averageValue: 20}"))
    item = "".join(f"  {line}\n" for line in one.splitlines())
    text = "apiVersion: v1\nkind: List\nitems:\n- " + item[2:]
    (finding,) = linted({"list.yaml": text, "rules.yaml": NAMED}).findings
    assert (finding.check.id, finding.where.line) == ("ignored-target-type", 11)
    assert finding.where.field == "spec.metrics[0].pods.target.type"


def test_metrics_in_the_annotation_of_v1_are_read() -> None:
    metric = '[{"type": "Pods", "pods": {"metricName": "gpu_utl", "targetAverageValue": "70"}}]'
    text = f"""\
apiVersion: autoscaling/v1
kind: HorizontalPodAutoscaler
metadata:
  name: web
  annotations:
    autoscaling.alpha.kubernetes.io/metrics: '{metric}'
spec:
  scaleTargetRef: {{apiVersion: apps/v1, kind: Deployment, name: web}}
  maxReplicas: 10
"""
    (finding,) = linted({"hpa.yaml": text, "rules.yaml": NAMED}).findings
    assert (finding.check.id, finding.where.line) == ("unknown-metric", 6)
    assert finding.where.field == "metadata.annotations.autoscaling.alpha.kubernetes.io/metrics"


ELSEWHERE = [
    # Of Google's, Azure's, Amazon's and Datadog's metrics adapters, and of KEDA's metrics server.
    (
        "kubernetes.io|node|accelerator|duty_cycle",
        "{matchLabels: {metric.labels.accelerator: nvidia-tesla-t4}}",
    ),
    ("queuemessages", "{matchLabels: {service-bus.example/queue: orders}}"),
    ("sqs-helloworld-length", "{}"),
    ("datadogmetric@default:queue", "{}"),
    ("s0-prometheus", "{matchLabels: {scaledobject.keda.sh/name: web}}"),
]


@pytest.mark.parametrize(("name", "selector"), ELSEWHERE)
@pytest.mark.parametrize("beside", [{}, {"rules.yaml": NAMED}], ids=["alone", "custom rules"])
def test_metrics_of_other_servers_are_no_faults(name, selector, beside) -> None:
    metric = external(f'"{name}"').replace("},", f", selector: {selector}}},", 1)
    report = linted({"hpa.yaml": hpa(metric), **beside})
    assert [each.check.severity for each in report.findings] == [Severity.NOTE]


def test_what_nothing_is_known_of_passes_by_and_is_named() -> None:
    text = "apiVersion: v1\nkind: Secret\nmetadata: {name: s}\n"
    knative = "apiVersion: serving.knative.dev/v1\nkind: Service\nmetadata: {name: s}\n"
    report = linted({"more.yaml": f"{text}---\n{knative}---\n{text}", "rules.yaml": NAMED})
    assert [str(each.place) for each in report.passed_over] == [
        "more.yaml:1",
        "more.yaml:5",
        "more.yaml:9",
    ]
    assert report.passed_over[1].kind == "serving.knative.dev/v1 Service"
    assert not report.fails(Severity.NOTE)
    assert next(text_lines(report)) == "3 objects have nothing to check: 2 Secret, 1 Service"
    assert list(text_lines(report, lists_all=True))[:3] == [
        "more.yaml:1: nothing to check: v1 Secret",
        "more.yaml:5: nothing to check: serving.knative.dev/v1 Service",
        "more.yaml:9: nothing to check: v1 Secret",
    ]


@pytest.mark.parametrize(
    ("files", "is_checked"),
    [
        ({"a.yaml": NAMED}, True),
        ({"a.yaml": hpa(pods())}, True),
        ({"a.yaml": keda("avg(x)")}, True),
        ({"a.yaml": hpa(pods()).replace("maxReplicas: 10", "maxReplicas: -1")}, True),
        ({"a.yaml": deployment(1)}, True),
        ({"a.yaml": deployment(1).replace("nvidia.com/gpu", "cpu")}, False),
        ({"a.yaml": MONITOR}, False),
        # The query that is recorded is judged.
        ({"a.yaml": MONITOR, "b.yaml": RECORDED}, True),
        ({"a.yaml": "rules: []\n"}, False),
    ],
)
def test_whether_there_was_anything_to_check(files, is_checked: bool) -> None:
    assert linted(files).has_checked is is_checked


def alert(expr):
    return (
        "apiVersion: monitoring.coreos.com/v1\nkind: PrometheusRule\nmetadata: {name: a}\nspec:\n"
        f"  groups:\n  - name: g\n    rules:\n    - alert: A\n      expr: '{expr}'\n"
    )


@pytest.mark.parametrize(
    ("expr", "found"),
    [
        ("DCGM_FI_DEV_GPU_TEMPP > 85", ["unknown-gpu-series"]),
        ("rate(DCGM_FI_DEV_FB_USED[10m]) > 0", ["rate-of-gauge"]),
        # DCGM counts memory in MiB: 2 GiB are 2048.
        ("DCGM_FI_DEV_FB_FREE < 2 * 1024 * 1024 * 1024", ["wrong-unit"]),
        ("2147483648 > DCGM_FI_DEV_FB_FREE", ["wrong-unit"]),
        ("max by (gpu) (DCGM_FI_DEV_GPU_TEMP) > 88", []),
        ("DCGM_FI_DEV_FB_FREE < 2048", []),
        ("DCGM_FI_DEV_XID_ERRORS > 0", []),
        ("DCGM_FI_DEV_FB_USED / (DCGM_FI_DEV_FB_USED + DCGM_FI_DEV_FB_FREE) * 100 > 97", []),
        # What only a newer Prometheus may know is left to it.
        ("limitk(1, up)", []),
    ],
)
def test_queries_of_alerts_are_judged(expr, found) -> None:
    report = linted({"alerts.yaml": alert(expr)})
    assert [each.check.id for each in report.findings] == found
    assert {each.check.severity.value for each in report.findings} <= {"warning"}
    assert {each.where.line for each in report.findings} <= {9}
    assert report.has_checked


def test_prometheus_own_files_in_a_config_map_count() -> None:
    metric = hpa(pods("DCGM_FI_DEV_GPU_UTIL"))
    rules = rule('DCGM_FI_DEV_GPU_UTIL{namespace!="",pod!=""}', resources=overrides(pod="pod"))
    rules += rule("DCGM_FI_DEV_GPU_UTIL_AVG{}")
    told = {"exporter-pod", "recorded-gpu-series"}
    assert told <= set(ids({"hpa.yaml": metric, "rules.yaml": rules}))
    config_map = """\
apiVersion: v1
kind: ConfigMap
metadata: {name: p}
data:
  scrape.yaml: |
    - {job_name: gpus, honor_labels: true}
  recording.yaml: |
    groups: [{name: g, rules: [{record: DCGM_FI_DEV_GPU_UTIL_AVG, expr: avg(DCGM_FI_DEV_GPU_UTIL)}]}]
"""
    files = {"hpa.yaml": metric, "rules.yaml": rules, "p.yaml": config_map}
    assert told.isdisjoint(ids(files))
    assert linted(files).passed_over == ()


def test_notes_fail_only_where_one_wants_to_be_strict() -> None:
    report = linted({"hpa.yaml": hpa(pods("anything"))})
    assert [finding.check.id for finding in report.findings] == ["no-rules"]
    assert report.count(Severity.NOTE) == 1
    assert (report.fails(), report.fails(Severity.NOTE)) == (False, True)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "a.yaml: found an empty file, expected rules or manifests"),
        ("a: 1\n", "a.yaml:1: found a mapping, expected a manifest with apiVersion and kind; "
         "rules stand alone in their file"),
        ("- {name: install, hosts: all}\n", "a.yaml:1: found a list, expected a manifest with apiVersion "
         "and kind; rules stand alone in their file"),
        ("text\n", "a.yaml:1: found 'text', expected a manifest with apiVersion and kind; "
         "rules stand alone in their file"),
    ],
)  # fmt: skip
def test_a_file_that_is_neither_rules_nor_manifests_is_passed_over(text: str, message: str) -> None:
    report = linted({"a.yaml": text, "hpa.yaml": hpa(pods("gpu_util")), "rules.yaml": NAMED})
    assert [str(each) for each in report.skipped] == [message]
    assert (report.findings, report.files, report.has_checked) == ((), 2, True)
    assert not linted({"a.yaml": text}).has_checked


def test_a_broken_file_is_a_finding_and_hides_no_other() -> None:
    files = {"b.yaml": "x: [", "c.yaml": f"{MONITOR}---\na: 1\n", "hpa.yaml": hpa(pods("gpu_utl"))}
    report = linted({**files, "rules.yaml": SUMS})
    assert [(each.where.file, each.check.id) for each in report.findings] == [
        ("b.yaml", "broken-file"),
        ("c.yaml", "broken-file"),
        ("rules.yaml", "sum-of-percentages"),
    ]
    # A broken file may have had the rule, so nothing is said of a metric that no other file names.
    assert ids({"hpa.yaml": files["hpa.yaml"], "rules.yaml": SUMS}).count("unknown-metric") == 1


def test_broken_files_that_may_be_are_passed_over() -> None:
    report = lint([("b.yaml", "x: ["), ("rules.yaml", NAMED)], may_skip={"b.yaml"})
    assert ([each.source for each in report.skipped], report.findings) == (["b.yaml"], ())


def test_notes_of_one_check_are_one_in_text_and_all_in_the_document() -> None:
    never = hpa(pods("gpu_util")).replace(
        "spec:", "spec:\n  behavior: {scaleDown: {selectPolicy: Disabled}}", 1
    )
    files = {f"{name}.yaml": never.replace("web", name) for name in "abcdefg"}
    report = linted({**files, "rules.yaml": NAMED})
    assert [each.check.id for each in report.findings] == ["scale-down-disabled"] * 7
    assert str(document(report)).count("scale-down-disabled") == 7
    text = "\n".join(text_lines(report))
    assert text.count("[scale-down-disabled]") == 1
    assert "[scale-down-disabled] spec.behavior.scaleDown.selectPolicy and 6 more\n" in text
    assert "  the same: b.yaml:5, c.yaml:5, d.yaml:5, e.yaml:5, f.yaml:5 ...\n" in text
    assert "\n".join(text_lines(report, lists_all=True)).count("[scale-down-disabled]") == 7


def test_the_report_for_programs() -> None:
    report = document(linted(CASES["unknown-metric"][0]))
    assert report == {
        "findings": [
            {
                "id": "unknown-metric",
                "severity": "error",
                "file": "hpa.yaml",
                "line": 8,
                "field": "spec.metrics[0].pods.metric.name",
                "what": "No rule gives a custom metric 'gpu_utl'.",
                "evidence": "The rules name gpu_util (rules.yaml:1).",
                "fix": "Ask for gpu_util.",
            }
        ],
        "notLookedAt": [
            {
                "about": "HPA default/web: Deployment web, with its replicas, requests and labels",
                "why": "no file has it",
                "fix": "Name the manifest of Deployment web too, or look at the cluster with --live.",
                "command": "",
            }
        ],
        "passedOver": [],
        "files": 2,
        "rules": 1,
        "autoscalers": 1,
        "scaledObjects": 0,
        "triggers": 0,
        "values": 0,
        "scenarios": 0,
        "nodeObjects": 0,
        "ignored": 0,
        "inBaseline": 0,
    }


def test_the_last_line_counts() -> None:
    lines = list(text_lines(linted(CASES["unknown-metric"][0])))
    assert lines[-1] == "1 error, 0 warnings, 0 notes; 1 rule and 1 HPA in 2 files"


@pytest.mark.parametrize(
    ("version", "found"),
    [
        (None, ["scale-to-zero-gate"]),
        ("1.36.3", ["scale-to-zero-gate"]),
        ("v1.37.0", []),
        ("1.38", []),
    ],
)
def test_zero_takes_a_gate_up_to_the_release_that_has_it_on(version, found) -> None:
    release = None if version is None else parse_version(version)
    assert [each for each in ids(WAKES, release) if each == "scale-to-zero-gate"] == found


@pytest.mark.parametrize(
    ("version", "words"),
    [
        ("1.32", "Kubernetes 1.32 drops the tolerance."),
        ("1.33", "Kubernetes 1.33 drops the tolerance unless the feature gate"),
        ("1.34", "Kubernetes 1.34 drops the tolerance unless the feature gate"),
    ],
)
def test_a_tolerance_is_dropped_before_its_release(version, words) -> None:
    files = {"rules.yaml": NAMED, "hpa.yaml": hpa(pods(), more=TOLERANT)}
    (found,) = linted(files, parse_version(version)).findings
    assert found.what.startswith(words)


@pytest.mark.parametrize("version", ["1.35", "1.37"])
def test_a_tolerance_is_kept_from_its_release_on(version) -> None:
    files = {"rules.yaml": NAMED, "hpa.yaml": hpa(pods(), more=TOLERANT)}
    assert ids(files, parse_version(version)) == []


def test_a_zero_in_a_manifest_before_1_36_is_only_a_stop() -> None:
    files = {**WAKES, "web.yaml": AT_ZERO % "replicas: 0, "}
    (found,) = [
        each
        for each in linted(files, parse_version("1.35")).findings
        if each.check.id == "zero-in-manifest"
    ]
    assert "each apply stops the workload" in found.what


def test_metrics_of_triggers_are_known() -> None:
    served = """\
apiVersion: v1
kind: ConfigMap
metadata: {name: t}
data:
  triggers.yaml: |
    triggers:
    - {namespace: default, workload: deployment/web, metricName: gpu_util, metric: q, target: "5"}
"""
    files = {"rules.yaml": NAMED, "t.yaml": served, "hpa.yaml": hpa(external())}
    assert ids(files) == []
    assert ids({**files, "t.yaml": served.replace("gpu_util", "x")}) == ["unknown-metric"]
