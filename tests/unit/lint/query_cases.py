"""Queries that don't say what was meant: each check's fault, and what is right beside it."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from custom_resource_cases import ISVC_KEDA

OVERRIDES = "{namespace: {resource: namespace}, pod: {resource: pod}}"
TAKEN = "avg(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)"


def rule(query, series="queue_length{pod!=''}", name="asked", overrides=OVERRIDES, external=False):
    """Return a rule file with one rule."""
    section = "externalRules" if external else "rules"
    return f"""\
{section}:
- seriesQuery: "{series}"
  resources: {{overrides: {overrides}}}
  name: {{as: {name}}}
  metricsQuery: "{query}"
"""


def hpa(kind="Pods", name="asked", target="averageValue: 5", selector=""):
    """Return an HPA on one metric."""
    asked = f"{{name: {name}{f', selector: {{matchLabels: {selector}}}' if selector else ''}}}"
    how = "Value" if target.startswith("value") else "AverageValue"
    described = (
        "describedObject: {apiVersion: v1, kind: Namespace, name: default}, "
        if kind == "Object"
        else ""
    )
    source = f"{{metric: {asked}, {described}target: {{type: {how}, {target}}}}}"
    return f"""\
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {{name: web}}
spec:
  scaleTargetRef: {{apiVersion: apps/v1, kind: Deployment, name: web}}
  maxReplicas: 8
  metrics:
  - {{type: {kind}, {kind.lower()}: {source}}}
"""


def keda(query="sum(queue_length)", threshold="'5'", spec="minReplicaCount: 1", more=""):
    """Return a ScaledObject with one prometheus trigger."""
    metadata = f"{{serverAddress: 'http://p:9090', query: '{query}', threshold: {threshold}{more}}}"
    return f"""\
apiVersion: keda.sh/v1alpha1
kind: ScaledObject
metadata: {{name: web}}
spec:
  scaleTargetRef: {{name: web}}
  maxReplicaCount: 8
  {spec}
  triggers:
  - {{type: prometheus, name: a, metadata: {metadata}}}
"""


def server(image, *args):
    """Return a Deployment of a model server."""
    listed = ", ".join(f"'{each}'" for each in args)
    return f"""\
apiVersion: apps/v1
kind: Deployment
metadata: {{name: web}}
spec:
  selector: {{matchLabels: {{app: web}}}}
  template:
    metadata: {{labels: {{app: web}}}}
    spec:
      containers:
      - {{name: server, image: '{image}', args: [{listed}], resources: {{limits: {{nvidia.com/gpu: 1}}}}}}
"""


def monitor(interval):
    """Return a PodMonitor that takes samples so often."""
    return f"""\
apiVersion: monitoring.coreos.com/v1
kind: PodMonitor
metadata: {{name: web}}
spec:
  selector: {{matchLabels: {{app: web}}}}
  podMetricsEndpoints: [{{port: metrics, interval: {interval}}}]
"""


RATED = "sum(rate(<<.Series>>{<<.LabelMatchers>>}[1m])) by (<<.GroupBy>>)"
OF_CPU = """\
apiVersion: keda.sh/v1alpha1
kind: ScaledObject
metadata: {name: web}
spec:
  scaleTargetRef: {name: web}
  minReplicaCount: 1
  triggers: [{type: cpu, metricType: Utilization, metadata: {value: '60'}}]
"""
RUNNING = rule(
    TAKEN.replace("<<.Series>>", "vllm:num_requests_running"), "vllm:num_requests_running{pod!=''}"
)
EXTERNAL = "{namespace: {resource: namespace}}"
QUERY_CASES = {
    "foreign-delimiters": (
        {"r.yaml": rule("sum(queue_length{namespace='{{ .Namespace }}'})")},
        {"r.yaml": rule(TAKEN)},
    ),
    "namespaces-mixed": (
        {"r.yaml": rule("avg(queue_length) by (pod)")},
        {"r.yaml": rule(TAKEN)},
    ),
    "selector-without-effect": (
        {
            "r.yaml": rule("sum(lag)", "lag", overrides=EXTERNAL, external=True),
            "h.yaml": hpa("External", selector="{group: frames}"),
        },
        {
            "r.yaml": rule(
                "sum(lag{<<.LabelMatchers>>})", "lag", overrides=EXTERNAL, external=True
            ),
            "h.yaml": hpa("External", selector="{group: frames}"),
        },
    ),
    "average-of-a-mean/hpa": (
        {
            "r.yaml": rule(
                "max(wait_seconds{<<.LabelMatchers>>})",
                "wait_seconds",
                overrides=EXTERNAL,
                external=True,
            ),
            "h.yaml": hpa("External"),
        },
        {
            "r.yaml": rule(
                "max(wait_seconds{<<.LabelMatchers>>})",
                "wait_seconds",
                overrides=EXTERNAL,
                external=True,
            ),
            "h.yaml": hpa("External", target="value: 5"),
        },
    ),
    "above-server-limit": (
        {
            "r.yaml": RUNNING,
            "d.yaml": server("vllm/vllm-openai:v0.11.0", "--max-num-seqs", "8"),
            "h.yaml": hpa(target="averageValue: 32"),
        },
        {
            "r.yaml": RUNNING,
            "d.yaml": server("vllm/vllm-openai:v0.11.0", "--max-num-seqs=64"),
            "h.yaml": hpa(target="averageValue: 32"),
        },
    ),
    "above-server-limit/keda": (
        {
            "d.yaml": server("vllm/vllm-openai:v0.11.0", "--max-num-seqs=16"),
            "k.yaml": keda("sum(vllm:num_requests_running)", threshold="'40'"),
        },
        {
            "d.yaml": server("vllm/vllm-openai:v0.11.0", "--max-num-seqs=64"),
            "k.yaml": keda("sum(vllm:num_requests_running)", threshold="'40'"),
        },
    ),
    "memory-at-start/keda": (
        {
            "d.yaml": server("vllm/vllm-openai:v0.11.0"),
            "k.yaml": keda("sum(DCGM_FI_DEV_FB_USED)", threshold="'60000'"),
        },
        {
            "d.yaml": server("pytorch/torchserve"),
            "k.yaml": keda("sum(DCGM_FI_DEV_FB_USED)", threshold="'60000'"),
        },
    ),
    "renamed-series/release": (
        {
            "d.yaml": server("vllm/vllm-openai:v0.12.0"),
            "k.yaml": keda("sum(vllm:gpu_cache_usage_perc)", threshold="'0.7'"),
        },
        {
            "d.yaml": server("vllm/vllm-openai:v0.12.0"),
            "k.yaml": keda("sum(vllm:kv_cache_usage_perc)", threshold="'0.7'"),
        },
    ),
    "one-number-for-all": (
        {
            "r.yaml": rule(
                "sum(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>) * 0 + on() group_left() sum(lag)"
            )
        },
        {"r.yaml": rule("sum(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>) * 2")},
    ),
    "short-rate-window/monitor": (
        {"r.yaml": rule(RATED), "m.yaml": monitor("60s")},
        {"r.yaml": rule(RATED), "m.yaml": monitor("15s")},
    ),
    "fallback-without-effect/cpu": (
        {"k.yaml": OF_CPU + "  fallback: {failureThreshold: 3, replicas: 4}\n"},
        {"k.yaml": OF_CPU},
    ),
    "refused-manifest/formula": (
        {
            "k.yaml": keda(
                spec="advanced: {scalingModifiers: {formula: 'a * 2'}}\n  minReplicaCount: 1"
            )
        },
        {
            "k.yaml": keda(
                spec="advanced: {scalingModifiers: {formula: 'a * 2', target: '4'}}\n  minReplicaCount: 1"
            )
        },
    ),
    "removed-api-version/keda": (
        {"k.yaml": keda().replace("keda.sh/", "keda.k8s.io/")},
        {"k.yaml": keda()},
    ),
    "removed-api-version/karpenter": (
        {"p.yaml": "apiVersion: karpenter.sh/v1alpha5\nkind: Provisioner\nmetadata: {name: gpu}\n"},
        {"k.yaml": keda()},
    ),
    "removed-api-version/target": (
        {"d.yaml": server("m").replace("apps/v1", "apps/v1beta2")},
        {"d.yaml": server("m")},
    ),
    "counter-without-rate/server": (
        {"k.yaml": keda("sum(tgi_request_count)")},
        {"k.yaml": keda("sum(rate(tgi_request_count[2m]))")},
    ),
    "delta-of-counter": (
        {
            "r.yaml": rule(
                "sum(delta(nv_inference_count{<<.LabelMatchers>>}[5m])) by (<<.GroupBy>>)"
            )
        },
        {
            "r.yaml": rule(
                "sum(increase(nv_inference_count{<<.LabelMatchers>>}[5m])) by (<<.GroupBy>>)"
            )
        },
    ),
    "renamed-series": (
        {"r.yaml": rule(TAKEN, "vllm:gpu_cache_usage_perc{pod!=''}")},
        {"r.yaml": rule(TAKEN, "vllm:kv_cache_usage_perc{pod!=''}")},
    ),
    "renamed-label": (
        {
            "r.yaml": rule(
                "sum(rate(<<.Series>>{<<.LabelMatchers>>,container_name!='POD'}[5m])) by (<<.GroupBy>>)",
                "container_cpu_usage_seconds_total{pod!=''}",
            )
        },
        {
            "r.yaml": rule(
                "sum(rate(<<.Series>>{<<.LabelMatchers>>,container!='POD'}[5m])) by (<<.GroupBy>>)",
                "container_cpu_usage_seconds_total{pod!=''}",
            )
        },
    ),
    "renamed-label/grouped": (
        {"k.yaml": keda("max(sum(DCGM_FI_DEV_GPU_UTIL) by (pod_name))")},
        {"k.yaml": keda("max(sum(DCGM_FI_DEV_GPU_UTIL) by (pod))")},
    ),
    "null-is-zero": (
        {"k.yaml": keda(spec="fallback: {failureThreshold: 3, replicas: 4}")},
        {
            "k.yaml": keda(
                spec="fallback: {failureThreshold: 3, replicas: 4}",
                more=", ignoreNullValues: 'false'",
            )
        },
    ),
    "threshold-not-positive": (
        {"k.yaml": keda(threshold="'0'")},
        {"k.yaml": keda(threshold="'0.5'")},
    ),
    "cooldown-without-effect": (
        {"k.yaml": keda(spec="cooldownPeriod: 60\n  minReplicaCount: 1")},
        {"k.yaml": keda("sum(queue_length)", spec="cooldownPeriod: 60\n  minReplicaCount: 0")},
    ),
    "ignored-field": (
        {"i.yaml": ISVC_KEDA.replace("    serving.kserve.io/autoscalerClass: keda\n", "")},
        {"i.yaml": ISVC_KEDA},
    ),
}
