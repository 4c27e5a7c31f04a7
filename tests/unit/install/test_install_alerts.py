# mypy: disable-error-code="arg-type"
"""Each alert fires when it should, with the right words, and is quiet when it should: asked of promtool.

Values are in promtool's notation, one a minute: `0x9 1` is ten minutes of 0 and then 1, `_` is no sample.
"""

import json
import re
import subprocess
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest
from install_values import scale, values

from gpuscale.ops.install.chart.queues import queue_texts
from gpuscale.ops.install.rendering import alert_groups
from gpuscale.signals import SIGNALS

sys.path.insert(0, str(Path(__file__).parents[2] / "conformance" / "rules"))
import rule_tests

AGENT = 'job="gpuscale-node-agent",instance="n1:9400"'
API = 'job="gpuscale-metrics-api",instance="a:6443"'
SCALER = 'job="gpuscale-scaler",instance="a:8080"'
GPU = 'Hostname="n1",gpu="0",UUID="GPU-a"'
POD = 'namespace="ml",pod="bert-0"'
HPA = 'namespace="ml",horizontalpodautoscaler="bert"'
OF_AGENT = {"job": "gpuscale-node-agent", "instance": "n1:9400"}
OF_API = {"job": "gpuscale-metrics-api"}
OF_SCALER = {"job": "gpuscale-scaler"}
OF_GPU = {"Hostname": "n1", "gpu": "0", "UUID": "GPU-a"}
OF_POD = {"namespace": "ml", "pod": "bert-0"}
OF_HPA = {"namespace": "ml", "horizontalpodautoscaler": "bert"}
BY_KEDA = {
    "workload": {"name": "chat"},
    "autoscaler": "keda",
    "signal": "vllm-waiting",
    "target": 4,
}
INSTALLATIONS = {
    "whole": values(scale=[scale(), scale(**BY_KEDA)]),
    "exported": values(scale=[scale(), scale(**BY_KEDA)], prometheus={"honorLabels": False}),
    "no API": values(scale=[scale(**BY_KEDA)], metricsApi={"enabled": False}),
    "no scaler": values(),
    "neither": values(scale=[], metricsApi={"enabled": False}),
}
WHOLE, EXPORTED, NO_API, NO_SCALER, NEITHER = INSTALLATIONS
EXPORTED_POD = 'namespace="gpuscale",pod="agent-1",exported_namespace="ml",exported_pod="bert-0"'

UTIL, ENGINE = "DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_PROF_GR_ENGINE_ACTIVE"
SHARE = "gpuscale_container_gpu_utilization_percent"
XID = "DCGM_FI_DEV_XID_ERRORS"
ROWS, DOUBLE = "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS", "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL"
NEWEST = "gpuscale_exporter_newest_reading_timestamp_seconds"
ALLOCATABLE = "kube_node_status_allocatable"
REQUESTS = f'kube_pod_container_resource_requests{{{POD},resource="nvidia_com_gpu",unit="integer"}}'
RUNNING = f'kube_pod_status_phase{{{POD},phase="Running"}}'
KNOWN = f"gpuscale_exporter_attribution_up{{{AGENT}}}"
RUNS_WITH_A_GPU = {REQUESTS: "1x60", RUNNING: "1x60", KNOWN: "1x60"}
UNAVAILABLE = "aggregator_unavailable_apiservice"
HOP_LAG = "gpuscale_metrics_api_hop_lag_seconds"
TRIGGERS, HELD = "gpuscale_trigger_count", "gpuscale_scaler_held_seconds"
HPA_SERIES = "kube_horizontalpodautoscaler"
LOOKS_AT_GPUS = {
    f'{HPA_SERIES}_spec_target_metric{{{HPA},metric_name="DCGM_FI_DEV_GPU_UTIL"}}': "60x60",
    f"{HPA_SERIES}_status_current_replicas{{{HPA}}}": "2x60",
    f"{HPA_SERIES}_spec_min_replicas{{{HPA}}}": "1x60",
    f"{HPA_SERIES}_spec_max_replicas{{{HPA}}}": "8x60",
}


def scales_gpu_pods(kind, name, owner_kind, owner):
    """Series of an HPA on a queue, as KEDA names it, and of a pod with a GPU and an owner."""
    target = f'scaletargetref_kind="{kind}",scaletargetref_name="{name}"'
    owned = f'owner_kind="{owner_kind}",owner_name="{owner}"'
    rest = [key for key in LOOKS_AT_GPUS if "target_metric" not in key]
    return {
        f'{HPA_SERIES}_spec_target_metric{{{HPA},metric_name="s0-prometheus"}}': "5x60",
        f"{HPA_SERIES}_info{{{HPA},{target}}}": "1x60",
        f"kube_pod_owner{{{POD},{owned}}}": "1x60",
        REQUESTS: "1x60",
        **{key: LOOKS_AT_GPUS[key] for key in rest},
    }


def condition(kind, status):
    return f'{HPA_SERIES}_status_condition{{{HPA},condition="{kind}",status="{status}"}}'


def backlog(metric):
    """Series of what an HPA sees of a metric, for each pod."""
    labels = f'{HPA},metric_name="{metric}",metric_target_type="average"'
    return f"{HPA_SERIES}_status_target_metric{{{labels}}}"


DESIRED = f"{HPA_SERIES}_status_desired_replicas{{{HPA}}}"
LIMITED = condition("ScalingLimited", "true")
LIMIT_REACHED = {DESIRED: "8x60", LIMITED: "1x60"}
AT_MAXIMUM = {**LIMIT_REACHED, **LOOKS_AT_GPUS}
BEHIND = {
    DESIRED: "8x60",
    f"{HPA_SERIES}_spec_max_replicas{{{HPA}}}": "8x60",
    f'{HPA_SERIES}_info{{{HPA},scaletargetref_kind="Deployment",scaletargetref_name="bert"}}': "1x60",
}
QUEUED = 'vllm:num_requests_waiting{namespace="ml",pod="bert-7b486f6bf-x2f4z"}'
QUEUES = (
    'tgi_queue_size{service="bert"',
    'nv_inference_pending_request_count{model="bert"',
    'nv_trt_llm_request_metrics{request_type="waiting"',
    'ray_serve_deployment_queued_queries{deployment="bert"',
    'llamacpp:requests_deferred{service="bert"',
)
SCHEDULED = 'nv_trt_llm_request_metrics{namespace="ml",pod="bert-0",request_type="scheduled"}'
NO_VALUE = {condition("ScalingActive", "false"): "1x60"}
BLIND = {**NO_VALUE, **LOOKS_AT_GPUS}
OWNERS = (
    ("Deployment", "bert", "ReplicaSet", "bert-7b486f6bf"),
    ("Rollout", "bert", "ReplicaSet", "bert-7b486f6bf"),
    ("StatefulSet", "bert", "StatefulSet", "bert"),
    ("ReplicaSet", "bert-old", "ReplicaSet", "bert-old"),
)
STRANGERS = (
    ("Deployment", "bert", "ReplicaSet", "bert-large-7b486f6bf"),
    ("Deployment", "bert", "StatefulSet", "bert-large"),
    ("StatefulSet", "bert", "ReplicaSet", "bert"),
    ("StatefulSet", "bert", "StatefulSet", "bert-large"),
)
"""Targets of an HPA, and owners of GPU pods that are not theirs."""
UNSCHEDULED = f'kube_pod_status_scheduled{{{POD},condition="false"}}'


def held(basis, namespace, name, instance="a:8080", label="namespace"):
    where = f'job="gpuscale-scaler",instance="{instance}",{label}="{namespace}"'
    return f'{HELD}{{{where},scaledobject="{name}",metric="s0-load",basis="{basis}"}}'


def xid(code, message, **more):
    labels = "".join(f',{name}="{value}"' for name, value in more.items())
    return f'{XID}{{{GPU},err_code="{code}",err_msg="{message}"{labels}}}'


NO_XID = xid(0, "No Error")
LOST = xid(79, "GPU has fallen off the bus")
PAGE_FAULT = xid(31, "GPU memory page fault")


@dataclass(frozen=True)
class Case:
    """Series, and what is firing at a minute: the labels and the summary of one alert, or nothing."""

    alert: str
    series: dict
    minute: int
    labels: dict | None = None
    summary: str = ""
    installation: str = WHOLE


def fires(alert, series, minute, labels, summary, installation=None, *, when=None):
    case = Case(alert, series, minute, labels, summary, installation or WHOLE)
    return pytest.param(case, id=f"{alert} {when or ''}".strip())


def quiet(alert, why, series, minute=59, installation=None):
    case = Case(alert, series, minute, installation=installation or WHOLE)
    return pytest.param(case, id=f"{alert} {why}")


FIRING = [
    fires(
        "GpuNodeAgentDown",
        {f"up{{{AGENT}}}": "0x10"},
        6,
        OF_AGENT,
        "Node agent n1:9400 can't be scraped",
    ),
    fires(
        "GpuNodeAgentsAbsent",
        {f'{ALLOCATABLE}{{node="n1",resource="nvidia_com_gpu",unit="integer"}}': "2x20"},
        11,
        {"job": "gpuscale-node-agent"},
        "Prometheus has no target in the job gpuscale-node-agent",
    ),
    fires(
        "GpuNodeAgentsAbsent",
        {'up{job="other"}': "1x20"},
        11,
        {"job": "gpuscale-node-agent"},
        "Prometheus has no target in the job gpuscale-node-agent",
        when="without kube-state-metrics",
    ),
    fires(
        "GpuReadingsStale",  # 12 min = 720 s, less 300 s
        {f"{NEWEST}{{{AGENT}}}": "300x20"},
        12,
        OF_AGENT,
        "Newest GPU reading of n1:9400 is 7m 0s old",
    ),
    fires(
        "GpuReadingsFailing",
        {f"gpuscale_exporter_collect_up{{{AGENT}}}": "0x10"},
        6,
        OF_AGENT,
        "Node agent n1:9400 can read no GPU",
    ),
    fires(
        "GpuUnreadable",
        {f'gpuscale_exporter_gpu_up{{{AGENT},gpu="1",UUID="GPU-b"}}': "0x10"},
        6,
        {**OF_AGENT, "gpu": "1", "UUID": "GPU-b"},
        "GPU 1 (GPU-b) of n1:9400 can't be read",
    ),
    fires(
        "GpuUnhealthy",
        {
            f'gpuscale_gpu_health_problem{{{AGENT},Hostname="n1",gpu="1",UUID="GPU-b",'
            'reason="needs_reset",severity="fatal"}': "1x10"
        },
        3,
        {"Hostname": "n1", "gpu": "1", "UUID": "GPU-b", "reason": "needs_reset"},
        "GPU 1 (GPU-b) is no capacity: needs_reset",
    ),
    fires(
        "GpuAttributionLost",
        {KNOWN: "0x10"},
        6,
        OF_AGENT,
        "Node agent n1:9400 does not know which pods its GPUs belong to",
    ),
    fires(
        "GpuUnattributed",
        {f'gpuscale_exporter_unattributed{{{AGENT},reason="unknown_device_id"}}': "2x20"},
        16,
        {**OF_AGENT, "reason": "unknown_device_id"},
        "2 devices or processes of n1:9400 have no pod: unknown_device_id",
    ),
    fires(
        "GpuPodWithoutReading",
        RUNS_WITH_A_GPU,
        11,
        OF_POD,
        "Pod ml/bert-0 runs with a GPU, and no reading names it",
    ),
    fires(
        "GpuPodWithoutReading",  # honorLabels is missing: the agent's pod hides the workload's
        {**RUNS_WITH_A_GPU, f"{UTIL}{{{EXPORTED_POD}}}": "50x60"},
        11,
        OF_POD,
        "Pod ml/bert-0 runs with a GPU, and no reading names it",
        when="exported_pod",
    ),
    fires(
        "GpuIdleWhileRequested",
        {f"{UTIL}{{{GPU},{POD}}}": "0x60"},
        31,
        OF_POD,
        "Pod ml/bert-0 has a GPU and does not use it",
    ),
    fires(
        "GpuIdleWhileRequested",
        {f'{ENGINE}{{{GPU},{POD},GPU_I_ID="7"}}': "0x60"},
        31,
        OF_POD,
        "Pod ml/bert-0 has a GPU and does not use it",
        when="MIG",
    ),
    fires(
        "GpuIdleWhileRequested",
        {f"{SHARE}{{{GPU},{POD}}}": "0x60", f"{UTIL}{{{GPU}}}": "80x60"},
        31,
        OF_POD,
        "Pod ml/bert-0 has a GPU and does not use it",
        when="on a GPU that others use",
    ),
    fires(
        "GpuIdleWhileRequested",
        {f"{UTIL}{{{GPU},{EXPORTED_POD}}}": "0x60"},
        31,
        OF_POD,
        "Pod ml/bert-0 has a GPU and does not use it",
        EXPORTED,
        when="exported_pod",
    ),
    fires(
        "GpuXidBroken",
        {NO_XID: "0x9 stale", LOST: "_x9 79x80"},
        15,
        {**OF_GPU, "err_code": "79", "err_msg": "GPU has fallen off the bus"},
        "GPU 0 of n1: XID 79, GPU has fallen off the bus",
    ),
    fires(
        "GpuXid",
        {PAGE_FAULT: "_x9 31x80"},
        15,
        {**OF_GPU, "err_code": "31", "err_msg": "GPU memory page fault"},
        "GPU 0 of n1: XID 31, GPU memory page fault",
    ),
    fires(
        "GpuEccUncorrectable",
        {f"{ROWS}{{{GPU}}}": "3x9 5x20"},
        12,
        OF_GPU,
        "GPU 0 of n1 had 2 uncorrectable memory errors in an hour",
    ),
    fires(
        "GpuEccUncorrectable",
        {
            f'{DOUBLE}{{{GPU},pod="a"}}': "0x9 stale",
            f'{DOUBLE}{{{GPU},pod="b"}}': "_x9 1x20",
        },
        12,
        OF_GPU,
        "GPU 0 of n1 had 1 uncorrectable memory errors in an hour",
        when="while another pod takes the GPU",
    ),
    fires(
        "GpuRowRemapFailed",
        {f"DCGM_FI_DEV_ROW_REMAP_FAILURE{{{GPU}}}": "1x5"},
        1,
        OF_GPU,
        "GPU 0 of n1 has no spare memory rows left",
    ),
    fires(
        "GpuMetricsApiUnavailable",
        {f'{UNAVAILABLE}{{name="v1beta2.custom.metrics.k8s.io"}}': "1x10"},
        6,
        {"name": "v1beta2.custom.metrics.k8s.io"},
        "APIService v1beta2.custom.metrics.k8s.io is unavailable",
    ),
    fires(
        "GpuMetricsApiDown",
        {f"up{{{API}}}": "0x10", 'up{job="gpuscale-metrics-api",instance="b:6443"}': "0x10"},
        6,
        OF_API,
        "No replica of gpuscale-metrics-api can be scraped",
    ),
    fires(
        "GpuMetricsApiDown",
        {},
        6,
        OF_API,
        "No replica of gpuscale-metrics-api can be scraped",
        when="without targets",
    ),
    fires(
        "GpuMetricsApiSourceFailing",
        {f'gpuscale_metrics_api_source_failures_total{{{API},endpoint="query"}}': "0+1x15"},
        11,
        OF_API,
        "gpuscale-metrics-api gets no answers from Prometheus",
    ),
    fires(
        "GpuMetricsApiRulesRefused",
        {f'gpuscale_metrics_api_rule_source_last_reload_successful{{{API},source="ml/r"}}': "0x9"},
        6,
        {**OF_API, "source": "ml/r"},
        "Rules of ml/r are refused",
    ),
    fires(
        "GpuMetricLate",
        {f'{HOP_LAG}{{{API},metric="{UTIL}",hop="total"}}': "120x20"},
        11,
        {**OF_API, "metric": UTIL},
        f"Values of {UTIL} are 2m 0s old when they are served",
    ),
    fires(
        "GpuMetricStale",
        {f'gpuscale_metrics_api_stale_values_total{{{API},metric="{UTIL}"}}': "0+1x15"},
        11,
        {**OF_API, "metric": UTIL},
        f"Values of {UTIL} are left out because they are too old",
    ),
    fires(
        "GpuScalerDown",
        {f"up{{{SCALER}}}": "0x10", 'up{job="gpuscale-scaler",instance="b:8080"}': "0x10"},
        6,
        OF_SCALER,
        "No replica of gpuscale-scaler can be scraped",
    ),
    fires(
        "GpuScalerDown",
        {},
        6,
        OF_SCALER,
        "No replica of gpuscale-scaler can be scraped",
        when="without targets",
    ),
    fires(
        "GpuTriggersHeld",
        {
            f'{TRIGGERS}{{{API},basis="held"}}': "2x10",
            # The other replica has just started, and has looked at one of them.
            f'{TRIGGERS}{{job="gpuscale-metrics-api",instance="b:6443",basis="held"}}': "1x10",
        },
        6,
        OF_API,
        "2 triggers of gpuscale-metrics-api are answered with what was decided before",
    ),
    fires(
        "GpuTriggersHeld",
        {
            held("held", "ml", "bert"): "0+60x10",
            held("held", "ml", "bert", instance="b:8080"): "0+60x10",
            held("held", "other", "bert"): "0+60x10",
            held("fallback", "ml", "llama"): "0+60x10",
        },
        6,
        OF_SCALER,
        "2 triggers of gpuscale-scaler are answered with what was decided before",
        when="by the scaler, of two namespaces",
    ),
    fires(
        "GpuTriggersHeld",
        {
            held("held", "ml", "bert", label="exported_namespace"): "0+60x10",
            held("held", "other", "bert", label="exported_namespace"): "0+60x10",
        },
        6,
        OF_SCALER,
        "2 triggers of gpuscale-scaler are answered with what was decided before",
        when="by the scaler, with exported labels",
    ),
    fires(
        "GpuTriggersBlind",
        {
            f'{TRIGGERS}{{{API},basis="fallback"}}': "2x10",
            f'{TRIGGERS}{{{API},basis="unavailable"}}': "1x10",
            f'{TRIGGERS}{{{API},basis="held"}}': "4x10",
        },
        6,
        OF_API,
        "3 triggers of gpuscale-metrics-api know nothing of their load",
    ),
    fires(
        "GpuTriggersBlind",
        {held("fallback", "ml", "bert"): "0+60x10", held("unavailable", "ml", "llama"): "0x10"},
        6,
        OF_SCALER,
        "2 triggers of gpuscale-scaler know nothing of their load",
        when="of the scaler",
    ),
    fires("GpuHpaBlind", BLIND, 11, OF_HPA, "HPA ml/bert gets no value and does not scale"),
    fires("GpuHpaAtMaximum", AT_MAXIMUM, 16, OF_HPA, "HPA ml/bert wants more than its 8 replicas"),
    *(
        fires(
            "GpuHpaBlind",
            {**NO_VALUE, **scales_gpu_pods(*owner)},
            11,
            OF_HPA,
            "HPA ml/bert gets no value and does not scale",
            when=f"on a queue, of a {owner[0]} with GPUs",
        )
        for owner in OWNERS
    ),
    fires(
        "GpuHpaAtMaximum",
        {**LIMIT_REACHED, **scales_gpu_pods(*OWNERS[0])},
        16,
        OF_HPA,
        "HPA ml/bert wants more than its 8 replicas",
        when="on a queue, of a Deployment with GPUs",
    ),
    *(
        fires(
            "GpuQueueGrowsAtMaximum",
            {**BEHIND, f'{series}{{namespace="ml",pod="{pod}"}}': "0x9 0+2x50"},
            31,
            {"namespace": "ml", "scaletargetref_name": "bert"},
            # 2 more each minute from minute 10 on.
            "42 requests wait in ml/bert, more and more, and its HPA is at its maximum",
            when=f"of {series} in {pod}",
        )
        for series, pod in (
            ("vllm:num_requests_waiting", "bert-7b486f6bf-x2f4z"),
            ("sglang:num_queue_reqs", "bert-0"),
        )
    ),
    fires(
        "GpuQueueGrowsAtMaximum",
        {**BEHIND, **{f'{each},namespace="ml",pod="bert-0"}}': "0x9 0+2x50" for each in QUEUES}},
        31,
        {"namespace": "ml", "scaletargetref_name": "bert"},
        "210 requests wait in ml/bert, more and more, and its HPA is at its maximum",
        when="of every other server, 42 in each",
    ),
    *(
        fires(
            "GpuBacklogGrowsAtMaximum",
            {**BEHIND, backlog(metric): "0x9 0+2x50"},
            31,
            {**OF_HPA, "metric_name": metric},
            # 2 more for each pod each minute from minute 10 on.
            f"{metric} of HPA ml/bert is at 42 and grows, and the HPA is at its maximum",
            when=f"of {metric}",
        )
        for metric in ("llm_d_epp_flow_control_queue_size", "s0-bert-rabbitmq-ready")
    ),
    fires(
        "GpuPodsPending",
        {UNSCHEDULED: "1x20", REQUESTS: "1x20"},
        16,
        OF_POD,
        "Pod ml/bert-0 waits for a GPU for more than 15m",
    ),
]

QUIET = [
    quiet("GpuNodeAgentDown", "while it answers", {f"up{{{AGENT}}}": "1x60"}),
    quiet("GpuNodeAgentDown", "for a short while", {f"up{{{AGENT}}}": "1x54 0x3 1"}, 58),
    quiet("GpuNodeAgentsAbsent", "with a target", {f"up{{{AGENT}}}": "0x60"}),
    quiet(
        "GpuNodeAgentsAbsent",
        "while the pool is at zero",
        {f'{ALLOCATABLE}{{node="n0",resource="cpu",unit="core"}}': "4x60"},
    ),
    quiet("GpuReadingsStale", "with new readings", {f"{NEWEST}{{{AGENT}}}": "0+60x60"}),
    quiet(
        "GpuReadingsFailing",
        "while it reads",
        {f"gpuscale_exporter_collect_up{{{AGENT}}}": "1x60"},
    ),
    quiet(
        "GpuUnreadable",
        "with a good GPU",
        {f'gpuscale_exporter_gpu_up{{{AGENT},gpu="1",UUID="GPU-b"}}': "1x60"},
    ),
    *(
        quiet(
            "GpuUnhealthy",
            why,
            {
                f'gpuscale_gpu_health_problem{{{AGENT},gpu="1",UUID="GPU-b",'
                f'reason="{reason}",severity="{severity}"}}': "1x60"
            },
        )
        for why, reason, severity in (
            ("with a warning", "slowed_by_heat", "warning"),
            ("with a lost GPU, which has an alert of its own", "lost", "fatal"),
        )
    ),
    quiet("GpuAttributionLost", "while pods are known", {KNOWN: "1x60"}),
    quiet("GpuAttributionLost", "where pods are not asked for", {f"up{{{AGENT}}}": "1x60"}),
    quiet(
        "GpuUnattributed",
        "with processes of the host",
        {f'gpuscale_exporter_unattributed{{{AGENT},reason="process_not_in_pod"}}': "3x60"},
    ),
    *(
        quiet("GpuPodWithoutReading", why, {**RUNS_WITH_A_GPU, **more}, installation=installation)
        for why, more, installation in (
            ("with a GPU of its own", {f"{UTIL}{{{GPU},{POD}}}": "50x60"}, None),
            ("with an instance", {f'{ENGINE}{{{GPU},{POD},GPU_I_ID="7"}}': "0.5x60"}, None),
            ("with a part", {f"{SHARE}{{{GPU},{POD}}}": "5x60"}, None),
            ("with exported labels", {f"{UTIL}{{{GPU},{EXPORTED_POD}}}": "50x60"}, EXPORTED),
            ("before it runs", {RUNNING: "0x60"}, None),
            ("while attribution is lost", {KNOWN: "0x60"}, None),
        )
    ),
    *(
        quiet("GpuIdleWhileRequested", why, series)
        for why, series in (
            (
                "with a burst now and then",
                {f"{UTIL}{{{GPU},{POD}}}": "0x9 40 0x9 40 0x9 40 0x9 40 0x9 40 0x9"},
            ),
            ("with a GPU that nobody has", {f"{UTIL}{{{GPU}}}": "0x60"}),
            ("without readings", {f"{UTIL}{{{GPU},{POD}}}": "0x9 stale"}),
            (
                "on another GPU of the pod",
                {
                    f"{UTIL}{{{GPU},{POD}}}": "0x60",
                    f'{UTIL}{{Hostname="n1",gpu="1",{POD}}}': "9x60",
                },
            ),
        )
    ),
    quiet("GpuXidBroken", "without XIDs", {NO_XID: "0x60"}),
    quiet("GpuXidBroken", "with a program's fault", {PAGE_FAULT: "_x9 31x60"}, 15),
    quiet("GpuXidBroken", "an hour later", {LOST: "_x9 79x90"}, 75),
    quiet(
        "GpuXidBroken",
        "when a pod takes the GPU after that",
        {LOST: "79x70 stale", xid(79, "GPU has fallen off the bus", pod="b"): "_x70 79x20"},
        75,
    ),
    quiet("GpuXid", "with a broken GPU", {LOST: "_x9 79x60"}, 15),
    quiet("GpuXid", "without XIDs", {NO_XID: "0x60"}),
    quiet("GpuEccUncorrectable", "with errors of long ago", {f"{ROWS}{{{GPU}}}": "3x90"}, 80),
    quiet("GpuEccUncorrectable", "after the driver starts", {f"{DOUBLE}{{{GPU}}}": "3x9 0x60"}),
    quiet(
        "GpuRowRemapFailed", "with good rows", {f"DCGM_FI_DEV_ROW_REMAP_FAILURE{{{GPU}}}": "0x60"}
    ),
    quiet(
        "GpuMetricsApiUnavailable",
        "when another API is",
        {
            f'{UNAVAILABLE}{{name="v1beta1.metrics.k8s.io"}}': "1x60",
            f'{UNAVAILABLE}{{name="v1beta1.custom.metrics.k8s.io"}}': "0x60",
        },
    ),
    quiet(
        "GpuMetricsApiDown",
        "with one replica of two",
        {f"up{{{API}}}": "0x60", 'up{job="gpuscale-metrics-api",instance="b:6443"}': "1x60"},
    ),
    quiet(
        "GpuMetricsApiDown",
        "where there is none",
        {},
        installation=NO_API,
    ),
    quiet(
        "GpuScalerDown",
        "with one replica of two",
        {f"up{{{SCALER}}}": "0x60", 'up{job="gpuscale-scaler",instance="b:8080"}': "1x60"},
    ),
    quiet("GpuScalerDown", "where there is none", {}, installation=NO_SCALER),
    *(
        quiet(alert, "for a short while", {held(basis, "ml", "bert"): "_x50 0x9"}, 54)
        for alert, basis in (("GpuTriggersHeld", "held"), ("GpuTriggersBlind", "fallback"))
    ),
    *(
        quiet(alert, why, series, installation=installation)
        for alert, basis in (("GpuTriggersHeld", "held"), ("GpuTriggersBlind", "fallback"))
        for why, series, installation in (
            (
                "with measured triggers",
                {
                    f'{TRIGGERS}{{{API},basis="measured"}}': "3x60",
                    f'{TRIGGERS}{{{API},basis="{basis}"}}': "0x60",
                },
                None,
            ),
            ("of somebody else", {f'{TRIGGERS}{{job="x",basis="{basis}"}}': "2x60"}, None),
            (
                "where nothing watches triggers",
                {f'{TRIGGERS}{{{API},basis="{basis}"}}': "2x60"},
                NEITHER,
            ),
        )
    ),
    quiet(
        "GpuMetricsApiSourceFailing",
        "after a failure of long ago",
        {f'gpuscale_metrics_api_source_failures_total{{{API},endpoint="query"}}': "7x60"},
    ),
    quiet(
        "GpuMetricsApiRulesRefused",
        "with good rules",
        {f'gpuscale_metrics_api_rule_source_last_reload_successful{{{API},source="ml/r"}}': "1x60"},
    ),
    quiet(
        "GpuMetricLate",
        "with values of 20 s",
        {f'{HOP_LAG}{{{API},metric="{UTIL}",hop="total"}}': "20x60"},
    ),
    quiet(
        "GpuMetricStale",
        "after it went by",
        {f'gpuscale_metrics_api_stale_values_total{{{API},metric="{UTIL}"}}': "7x60"},
    ),
    *(
        quiet("GpuHpaBlind", why, {**BLIND, **more})
        for why, more in (
            ("while it gets values", {condition("ScalingActive", "false"): "0x60"}),
            ("at no replicas", {f"{HPA_SERIES}_status_current_replicas{{{HPA}}}": "0x60"}),
        )
    ),
    quiet(
        "GpuHpaBlind",
        "that looks at no GPU",
        {
            condition("ScalingActive", "false"): "1x60",
            f"{HPA_SERIES}_status_current_replicas{{{HPA}}}": "2x60",
            f'{HPA_SERIES}_spec_target_metric{{{HPA},metric_name="cpu"}}': "60x60",
        },
    ),
    *(
        quiet(
            "GpuHpaBlind",
            f"that scales {kind} {name} beside GPUs of {owner_kind} {owner}",
            {**NO_VALUE, **scales_gpu_pods(kind, name, owner_kind, owner)},
        )
        for kind, name, owner_kind, owner in STRANGERS
    ),
    quiet(
        "GpuHpaBlind",
        "that scales pods without GPUs",
        {**NO_VALUE, **scales_gpu_pods(*OWNERS[0]), REQUESTS: "0x60"},
    ),
    *(
        quiet("GpuHpaAtMaximum", why, {**AT_MAXIMUM, **more})
        for why, more in (
            ("on target", {LIMITED: "0x60"}),
            ("held at its minimum", {DESIRED: "1x60"}),
            ("that may not scale", {f"{HPA_SERIES}_spec_min_replicas{{{HPA}}}": "8x60"}),
        )
    ),
    *(
        quiet("GpuQueueGrowsAtMaximum", why, {**BEHIND, QUEUED: "0+2x60", **more})
        for why, more in (
            ("that is long and no longer grows", {QUEUED: "50x60"}),
            ("where pods may come", {DESIRED: "7x60"}),
            ("of another workload", {QUEUED: "0x60", QUEUED.replace("bert", "web"): "0+2x60"}),
            ("that is empty", {QUEUED: "0x60"}),
            ("of requests in batches", {QUEUED: "0x60", SCHEDULED: "0+2x60"}),
        )
    ),
    *(
        quiet(
            "GpuBacklogGrowsAtMaximum", why, {**BEHIND, backlog("bert-kafka-lag"): "0+2x60", **more}
        )
        for why, more in (
            ("that is long and no longer grows", {backlog("bert-kafka-lag"): "50x60"}),
            ("where pods may come", {DESIRED: "7x60"}),
            (
                "of no queue",
                {backlog("bert-kafka-lag"): "0x60", backlog("bert-envoy-rate"): "0+2x60"},
            ),
        )
    ),
    quiet("GpuPodsPending", "while a node starts", {UNSCHEDULED: "1x60", REQUESTS: "1x60"}, 14),
    quiet("GpuPodsPending", "once it is on a node", {UNSCHEDULED: "0x60", REQUESTS: "1x60"}),
    quiet("GpuPodsPending", "that wants no GPU", {UNSCHEDULED: "1x60"}),
]


@cache
def rules(installation):
    """Return the rule groups as they are, less the annotations beside the summary."""
    groups = json.loads(json.dumps(alert_groups(INSTALLATIONS[installation])))
    for rule in (rule for group in groups for rule in group["rules"]):
        rule["annotations"] = {"summary": rule["annotations"]["summary"]}
    return groups


def severity(case):
    (found,) = [
        rule["labels"]["severity"]
        for group in rules(WHOLE)
        for rule in group["rules"]
        if rule["alert"] == case.alert
    ]
    return found


def expected(case):
    if case.labels is None:
        return []
    labels = {**case.labels, "severity": severity(case)}
    return [{"exp_labels": labels, "exp_annotations": {"summary": case.summary}}]


@pytest.mark.prometheus
@pytest.mark.parametrize("case", [*FIRING, *QUIET])
def test_alert(tmp_path: Path, case) -> None:
    (tmp_path / "rules.yaml").write_text(json.dumps({"groups": rules(case.installation)}))
    series = [{"series": name, "values": values} for name, values in case.series.items()]
    alert = {
        "eval_time": f"{case.minute}m",
        "alertname": case.alert,
        "exp_alerts": expected(case),
    }
    test = {"interval": "1m", "input_series": series, "alert_rule_test": [alert]}
    document = {"rule_files": ["rules.yaml"], "evaluation_interval": "1m", "tests": [test]}
    (tmp_path / "test.yaml").write_text(json.dumps(document))
    command = ["promtool", "test", "rules", tmp_path / "test.yaml"]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.parametrize("case", [*FIRING, *QUIET])
def test_the_built_in_rules_give_the_same_alert(case) -> None:
    test = rule_tests.RuleTest(rules(case.installation), case.series, steps=case.minute).run()
    assert test.failures == []
    fired = test.firing.get((case.minute, case.alert), [])
    assert [
        {"exp_labels": {**labels, "alertname": None}, "exp_annotations": annotations}
        for labels, annotations in fired
    ] == [
        {**each, "exp_labels": {**each["exp_labels"], "alertname": None}} for each in expected(case)
    ]


def test_every_alert_has_a_firing_and_a_quiet_case() -> None:
    names = {
        rule["alert"] for group in alert_groups(INSTALLATIONS[WHOLE]) for rule in group["rules"]
    }
    assert {param.values[0].alert for param in FIRING} == names
    assert {param.values[0].alert for param in QUIET} == names


def test_alerts_for_exported_labels_differ_in_nothing_but_the_expression() -> None:
    honored, exported = (
        {
            rule["alert"]: rule
            for group in alert_groups(INSTALLATIONS[each])
            for rule in group["rules"]
        }
        for each in (WHOLE, EXPORTED)
    )
    assert list(honored) == list(exported)
    differing = [name for name, rule in honored.items() if rule["expr"] != exported[name]["expr"]]
    assert differing == ["GpuPodWithoutReading", "GpuIdleWhileRequested"]
    for name, rule in honored.items():
        assert {**exported[name], "expr": rule["expr"]} == rule


# What each family says waits in it, where there is no length of a queue in its pods.
@pytest.mark.parametrize(
    "metric",
    [
        *("ts_queue_seconds", "llm_d_epp_average_queue_size", "llm_d_epp_flow_control_queue_size"),
        *("bert-epp-queue", "s0-bert-epp-queue", "bert-dynamo-waiting", "s12-bert-dynamo-waiting"),
        *("bert-rabbitmq-ready", "bert-rabbitmq-messages", "bert-kafka-lag", "bert-sqs-visible"),
    ],
)
def test_queues_in_front_of_pods_are_known_by_what_hpas_call_them(metric: str) -> None:
    assert re.fullmatch(queue_texts()["metrics"], metric)


def test_every_family_that_queues_has_an_alert() -> None:
    queues = queue_texts()
    for name, signal in SIGNALS.items():
        if not re.search("waiting|queue|ready|messages|lag|visible", name):
            continue
        is_seen = re.fullmatch(queues["metrics"], f"bert-{name}") is not None
        siblings = (each for each in SIGNALS.values() if each.family is signal.family)
        assert is_seen or any(each.series in queues["ofPods"] for each in siblings), name


def test_no_placeholder_is_left() -> None:
    text = re.sub(
        r"\bDCGM_\w+",
        "",
        json.dumps([*alert_groups(INSTALLATIONS[WHOLE]), *alert_groups(INSTALLATIONS[EXPORTED])]),
    )
    # `pods/NAMESPACE/POD` in a command has no underscore, which all placeholders have.
    assert set(re.findall(r"\b[A-Z]+(?:_[A-Z]+)+\b", text)) <= {"GPU_I_ID"}


def test_every_xid_is_either_broken_hardware_or_another_fault() -> None:
    """The two alerts list the same XIDs, once to select and once to leave out."""
    exprs = {
        rule["alert"]: rule["expr"]
        for group in alert_groups(INSTALLATIONS[WHOLE])
        for rule in group["rules"]
    }
    assert exprs["GpuXidBroken"].count("=~") == exprs["GpuXid"].count("!~") == 2
    assert exprs["GpuXidBroken"].replace("=~", "!~") == exprs["GpuXid"]


@pytest.mark.prometheus
@pytest.mark.parametrize("installation", [WHOLE, EXPORTED], ids=["honor_labels", "exported"])
def test_promtool_takes_all_texts(tmp_path: Path, installation) -> None:
    path = tmp_path / "alerts.yaml"
    path.write_text(json.dumps({"groups": alert_groups(INSTALLATIONS[installation])}))
    command = ["promtool", "check", "rules", "--lint=all", "--lint-fatal", path]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
