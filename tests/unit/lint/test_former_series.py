"""Series that servers renamed or dropped: said of each in the table, by what runs, and in histograms."""

import pytest

from gpuscale.base.findings import Severity
from gpuscale.ops.lint.linting import lint

SCALED = """\
apiVersion: keda.sh/v1alpha1
kind: ScaledObject
metadata: {{name: web}}
spec:
  scaleTargetRef: {{name: web}}
  minReplicaCount: 1
  triggers:
  - {{type: prometheus, metadata: {{threshold: "1", query: "{query}"}}}}
---
apiVersion: apps/v1
kind: Deployment
metadata: {{name: web}}
spec:
  selector: {{matchLabels: {{app: web}}}}
  template:
    metadata: {{labels: {{app: web}}}}
    spec: {{containers: [{{name: web, image: "{image}"}}]}}
"""
NEW, OLD = "vllm/vllm-openai:v0.12.0", "vllm/vllm-openai:v0.8.5"
NOTE, WARNING = Severity.NOTE, Severity.WARNING
CASES = [
    (
        "sum(rate(vllm:gpu_prefix_cache_hits_total[5m]))",
        NEW,
        WARNING,
        "vllm:prefix_cache_hits_total",
    ),
    ("sum(rate(vllm:gpu_prefix_cache_hits_total[5m]))", OLD, NOTE, "vllm:prefix_cache_hits_total"),
    ("sum(vllm:num_requests_swapped)", NEW, WARNING, "nothing stands in its place"),
    ("sum(vllm:num_requests_swapped)", "mine", NOTE, "nothing stands in its place"),
    (
        "histogram_quantile(0.9, sum by (le) (rate(vllm:time_per_output_token_seconds_bucket[5m])))",
        NEW,
        WARNING,
        "vllm:inter_token_latency_seconds_bucket",
    ),
    ("sum(llamacpp:kv_cache_usage_ratio)", "llama.cpp:server", NOTE, "nothing stands in its place"),
    (
        "sum(sglang:time_per_output_token_seconds_sum)",
        "",
        NOTE,
        "sglang:inter_token_latency_seconds_sum",
    ),
    ("sum(inference_model_running_requests)", "", NOTE, "inference_objective_running_requests"),
    (
        "sum(rate(inference_model_request_total[5m]))",
        "",
        NOTE,
        "inference_objective_request_total",
    ),
    ("sum(vllm:num_requests_waiting)", NEW, None, ""),
    ("sum(inference_objective_running_requests or inference_model_running_requests)", "", None, ""),
]


@pytest.mark.parametrize(("query", "image", "severity", "says"), CASES)
def test_a_series_that_is_gone(query, image, severity, says) -> None:
    text = SCALED.format(query=query, image=image)
    found = [
        each for each in lint([("a.yaml", text)]).findings if each.check.id == "renamed-series"
    ]
    assert [each.check.severity for each in found] == ([severity] if severity else [])
    assert all(says in each.what for each in found)
