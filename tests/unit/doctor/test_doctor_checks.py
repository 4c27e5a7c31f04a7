# mypy: disable-error-code="arg-type"
"""Every check over a snapshot: none on a healthy cluster, each trouble by its id and with its fix."""

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from gpuscale.base.objects.metric_values import MetricValue
from gpuscale.ops.doctor.checks import CHECKS
from gpuscale.ops.doctor.diagnosis import diagnose
from gpuscale.ops.doctor.judges import HOPS
from gpuscale.ops.doctor.snapshot import AgentLook, Look, PrometheusLook
from gpuscale.ops.findings_text import chain_document as document
from gpuscale.ops.findings_text import chain_lines as text_lines
from gpuscale.ops.lint.checks import CHECKS as LINT_CHECKS

sys.path.insert(0, str(Path(__file__).parent))
from clusters import (
    ADAPTER_ELSEWHERE,
    AGENT_LABELS,
    API,
    BARE,
    EKS,
    EVENT,
    EXTERNAL,
    GPU,
    JOB,
    MIG,
    NOW_MS,
    PENDING,
    PLUGIN,
    POOL,
    PROBED,
    PROMETHEUS,
    RENAMED,
    SCALED,
    TAINT,
    TAINTED,
    UTIL,
    agent,
    api_service,
    both,
    bundle,
    cluster,
    condition,
    family,
    findings_of,
    hpa_body,
    look,
    meta,
    node,
    pod,
    quota,
    ready,
    roots_of,
    sick,
    status_map,
    waiting_pod,
    workload,
    written,
)
from fault_cases import FAULTS
from keda_cases import EVENT as KEDA_EVENT
from keda_cases import FAILED, HPA, KEDA_CASES, scaled, scaler_service, trigger, with_keda
from later_cases import LATER
from node_cases import NODE_CASES
from reported_cases import REPORTED
from room_cases import ROOM_CASES
from workload_cases import WORKLOAD_CASES

STARTUP = {
    "key": "startup-taint.cluster-autoscaler.kubernetes.io/gpuscale",
    "effect": "NoSchedule",
}
GATED = node(taints=[STARTUP])
GATED["metadata"]["creationTimestamp"] = "2026-09-21T00:00:00Z"

CASES = [
    *NODE_CASES,
    *ROOM_CASES,
    ("cannot-see", {"looks": {"nodes": Look(fault="403", needs="nodes")}}, "--resource=nodes"),
    ("no-gpu-nodes", {"nodes": [], "pods": [waiting_pod()], "agents": ()}, "gpuscale render"),
    ("gpu-node-not-ready", {"nodes": [node(status=ready("False"))]}, "kubectl describe node"),
    ("gpu-node-unlabelled", {"nodes": [node(labels={})]}, "kubectl label node gpu-1 gpuscale.dev"),
    (
        "accelerator-label-missing",
        {"nodes": [node(labels=EKS)], "autoscaler-status": status_map()},
        "k8s.amazonaws.com/accelerator",
    ),
    ("no-device-plugin", {"nodes": BARE}, "devicePlugin.enabled"),
    (
        "device-plugin-taint",
        {
            "nodes": [node(gives=0, has=0, taints=[TAINT])],
            "daemonsets": both("daemonsets", workload("plugin", image=PLUGIN)),
        },
        '"key": "sku"',
    ),
    (
        "device-plugin-not-ready",
        {
            "nodes": BARE,
            "pods": both("pods", pod("p", status={"phase": "Pending"}, image=PLUGIN)),
        },
        "kubectl logs -n default p",
    ),
    (
        "no-allocatable-gpu",
        {"nodes": BARE, "pods": both("pods", pod("p", image=PLUGIN))},
        "kubectl logs -n default p",
    ),
    ("ready-taint-stays", {"nodes": [GATED]}, "kubectl logs -n gpuscale agent-1"),
    ("gpus-unhealthy", {"nodes": [node(gives=1)]}, "kubectl describe node gpu-1"),
    ("taint-not-tolerated", {"nodes": TAINTED}, "kubectl patch deployment web -n default"),
    (
        "no-node-agent",
        {
            "pods": both("pods", without="agent-1"),
            "daemonsets": [],
            "agents": (),
            "prometheus": PrometheusLook(),
            "hpas": (look(values=()),),
        },
        "Install",
    ),
    (
        "node-without-agent",
        {
            "nodes": TAINTED,
            "pods": both("pods", without="agent-1"),
            "daemonsets": [workload("agent", "gpuscale", AGENT_LABELS)],
            "agents": (),
        },
        "kubectl patch daemonset agent -n gpuscale",
    ),
    (
        "agent-not-ready",
        {
            "pods": both(
                "pods",
                pod("agent-1", "gpuscale", labels=AGENT_LABELS, status={"phase": "Pending"}),
                without="agent-1",
            ),
            "agents": (),
        },
        "kubectl logs -n gpuscale agent-1",
    ),
    ("probe-too-early", {"pods": both("pods", PROBED)}, '"failureThreshold": 300'),
    (
        "agent-unreachable",
        {"agents": (AgentLook("gpu-1", "gpuscale/agent-1", fault="refused"),)},
        "--agent gpu-1=http://127.0.0.1:9400",
    ),
    (
        "agent-unreachable",
        {"agents": (AgentLook("gpu-1", "gpuscale/agent-1", fault="refused", port=9401),)},
        "port-forward -n gpuscale agent-1 9401",
    ),
    (
        "agent-unreachable",
        {"agents": (AgentLook("gpu-1", "gpuscale/agent-1", fault="403", needs="pods/proxy"),)},
        "--verb=get --resource=pods/proxy",
    ),
    (
        "driver-unreadable",
        {"agents": agent(up=family("gpuscale_exporter_collect_up", ({}, 0)))},
        "/proxy/readyz?verbose",
    ),
    (
        "gpu-unreadable",
        {"agents": agent(gpus=family("gpuscale_exporter_gpu_up", ({"UUID": "GPU-1"}, 0)))},
        "XID",
    ),
    (
        "gpu-unhealthy",
        {"agents": agent(health=sick("GPU-1", xid_79="fatal", slowed_by_heat="warning"))},
        "kubectl cordon gpu-1",
    ),
    ("gpu-unhealthy", {"agents": agent(health=sick("GPU-1", needs_reboot="fatal"))}, "reboot it"),
    (
        "gpu-unhealthy",
        {"agents": agent(health=sick("GPU-1", fabric_failed="fatal"))},
        "Fabric Manager",
    ),
    (
        "gpu-impaired",
        {"agents": agent(health=sick("GPU-0", slowed_by_heat="warning"))},
        "cooling",
    ),
    (
        "fewer-gpus-read",
        {"agents": agent(util=family(UTIL, ({"UUID": "GPU-0", "pod": "web-1"}, 4)))},
        "NVIDIA_VISIBLE_DEVICES=all",
    ),
    (
        "old-reading",
        {
            "agents": agent(
                age=family(
                    "gpuscale_exporter_newest_reading_timestamp_seconds",
                    ({}, NOW_MS / 1000 - 61),
                )
            )
        },
        "--collect-interval",
    ),
    (
        "no-gpu-util",
        {"agents": agent(util=family("DCGM_FI_DEV_GPU_TEMP", ({"UUID": "GPU-0"}, 4)))},
        f"{UTIL}, gauge",
    ),
    ("no-gpu-util", {"agents": agent(util=MIG)}, "DCGM_FI_PROF_GR_ENGINE_ACTIVE"),
    (
        "no-gpu-util",
        {
            "agents": (
                AgentLook("gpu-1", "gpuscale/agent-1", dict([family("go_threads", ({}, 9))])),
            )
        },
        "where the agent listens",
    ),
    (
        "attribution-lost",
        {"agents": agent(pods=family("gpuscale_exporter_attribution_up", ({}, 0)))},
        "pod-resources",
    ),
    (
        "no-pod-labels",
        {"agents": agent(util=family(UTIL, ({"UUID": "GPU-0"}, 4), ({"UUID": "GPU-1"}, 4)))},
        "--kubernetes",
    ),
    (
        "wrong-prometheus-address",
        {"deployments": ADAPTER_ELSEWHERE},
        "--prometheus-url=http://prometheus.monitoring.svc:9090",
    ),
    (
        "prometheus-unreachable",
        {"prometheus": PrometheusLook("http://p", fault="refused")},
        "--prometheus-url",
    ),
    (
        "prometheus-unreachable",
        {"prometheus": PrometheusLook("http://p.m.svc:81", fault="refused")},
        "kubectl port-forward -n m svc/p 9090:81",
    ),
    (
        "prometheus-unreachable",
        {"prometheus": PrometheusLook("http://p.m.svc", fault="403", needs="services/proxy")},
        "--verb=get --resource=services/proxy",
    ),
    (
        "no-scrape-target",
        {"prometheus": replace(PROMETHEUS, targets=PROMETHEUS.targets[:1], usage=())},
        "ServiceMonitor",
    ),
    (
        "target-down",
        {"prometheus": replace(PROMETHEUS, targets=((JOB, 0.0),))},
        "NetworkPolicy",
    ),
    ("no-series", {"prometheus": replace(PROMETHEUS, usage=())}, "metricRelabeling"),
    (
        "pod-is-exported-pod",
        {
            "prometheus": RENAMED,
            "hpas": (look(values=()),),
            "servicemonitors": [{**meta("gpu", "m"), "spec": {"endpoints": [{"port": "x"}]}}],
        },
        "kubectl patch servicemonitor gpu -n m --type=json",
    ),
    (
        "old-series",
        {"prometheus": replace(PROMETHEUS, usage=((JOB, 121.0),))},
        "scrape interval",
    ),
    ("no-metrics-api", {"apiservices": []}, "Install the metrics API."),
    (
        "api-unavailable",
        {"apiservices": [api_service(status="False", condition={"reason": "MissingEndpoints"})]},
        "no pod behind",
    ),
    (
        "api-certificate",
        {
            "apiservices": [api_service(status="False", condition={"message": "x509: unknown"})],
            "bundles": {API: "Q0E="},
        },
        '"caBundle":"Q0E="',
    ),
    ("api-certificate-ends", {"apiservices": [api_service(caBundle=bundle())]}, "certificates"),
    (
        "api-not-verified",
        {"apiservices": [api_service(insecureSkipTLSVerify=True)]},
        "kubectl patch apiservice",
    ),
    (
        "api-of-somebody-else",
        {"apiservices": [api_service(server="prometheus-adapter")]},
        "--replace",
    ),
    (
        "keda-conflict",
        {
            "apiservices": both("apiservices", api_service(EXTERNAL, "prometheus-adapter")),
            "scaledobjects": [SCALED],
        },
        "keda-operator-metrics-apiserver",
    ),
    ("api-without-metrics", {"served": {"custom.metrics.k8s.io": Look()}}, "gpuscale lint"),
    (
        "hpa-not-allowed",
        {"hpas": (look(allowed=False),)},
        "--serviceaccount=kube-system:horizontal-pod-autoscaler",
    ),
    (
        "removed-api-version",
        {"hpas": (look(hpa_body(managedFields=[{"apiVersion": "autoscaling/v2beta1"}])),)},
        "metric.name",
    ),
    (
        "no-scale-target",
        {"hpas": (look(hpa_body("gone"), target_is_absent=True, selector=""),)},
        "scaleTargetRef",
    ),
    (
        "no-gpu-request",
        {"deployments": [workload("web")], "hpas": (look(values=()),)},
        f"kubectl set resources -n default deployment web -c main --limits={GPU}=1",
    ),
    (
        "no-value",
        {"hpas": (look(values=(), fault="404: the server could not find the metric"),)},
        "Correct the metric's name",
    ),
    (
        "no-value",
        {
            "hpas": (
                look(
                    values=(),
                    explanation={
                        "hops": [
                            {"hop": "rule", "state": "ok", "said": "", "fix": ""},
                            {"hop": "labels", "state": "failed", "said": "no", "fix": "map it"},
                        ]
                    },
                ),
            )
        },
        "map it",
    ),
    (
        "pods-without-value",
        {"pods": both("pods", pod("web-3", labels={"app": "web"}))},
        "gpuscale metrics-api why pods/default/web-3",
    ),
    (
        "old-value",
        {"hpas": (look(values=(MetricValue("web-1", 1000, NOW_MS - 120_001),)),)},
        "gpuscale metrics-api why",
    ),
    (
        "not-scaling",
        {"hpas": (look(hpa_body(status=condition("ScalingActive", "FailedGetPodsMetric"))),)},
        "kubectl describe hpa",
    ),
    (
        "at-max",
        {"hpas": (look(hpa_body(status=condition("ScalingLimited", "TooManyReplicas", "True"))),)},
        '"maxReplicas":3',
    ),
    (
        "at-max",
        {
            "hpas": (
                look(
                    hpa_body(status=condition("ScalingLimited", "TooManyReplicas", "True")),
                    tuple(MetricValue(f"web-{i}", 64_000, NOW_MS - 5_000) for i in (1, 2)),
                ),
            )
        },
        f"All 2 pods report {UTIL} 64",
    ),
    ("min-is-max", {"hpas": (look(hpa_body(least=2)),)}, '"maxReplicas": 3'),
    (
        "quota-full",
        {
            "resourcequotas": quota("1"),
            "hpas": (look(hpa_body(status=condition("Any", "Any"))),),
        },
        f'"requests.{GPU}":"2"',
    ),
    ("quota-below-max", {"resourcequotas": quota("0")}, f'"requests.{GPU}":"2"'),
    ("no-node-autoscaler", {"pods": PENDING}, "nodePool"),
    (
        "template-without-gpu",
        {
            "nodes": [{**node("cpu-1", 0, 0, labels={}), "spec": {"providerID": "aws:///a/i-1"}}],
            "agents": (),
            "pods": [waiting_pod()],
            "autoscaler-status": status_map(),
            "events": [EVENT],
        },
        "node-template/resources/nvidia.com/gpu",
    ),
    (
        "autoscaler-unhealthy",
        {"autoscaler-status": status_map("scaleUp:\n  status: Backoff\n")},
        "kubectl get configmap",
    ),
    ("autoscaler-stopped", {"autoscaler-status": written(601)}, "app=cluster-autoscaler"),
    ("node-pool-limit", {"pods": PENDING, "nodepools": [POOL]}, "kubectl get nodepool gpu -o yaml"),
    (
        "pods-wait-long",
        {"pods": both("pods", waiting_pod(901)), "autoscaler-status": status_map()},
        "kubectl describe pod -n default web-2",
    ),
    (
        "unreachable-target",
        {"hpas": (look(hpa_body(target="100")),)},
        "Choose a target below",
    ),
]


def test_a_healthy_cluster_gives_nothing():
    assert findings_of(cluster()) == {}


@pytest.mark.parametrize(
    ("check", "changed", "fix"),
    [
        pytest.param(*case, id=f"{number}-{case[0]}")
        for number, case in enumerate((*CASES, *WORKLOAD_CASES, *KEDA_CASES))
    ],
)
def test_a_trouble_has_its_name_and_its_fix(check, changed, fix):
    found = findings_of(cluster(**changed))
    assert check in found
    assert fix in f"{found[check].fix.say} {found[check].fix.command}"


def test_every_check_has_a_case_and_every_hop_a_check():
    cases = [check for check, *_ in (*CASES, *WORKLOAD_CASES, *KEDA_CASES)]
    cases += [case.check for case in (*FAULTS.values(), *REPORTED, *LATER)]
    assert {check for check in cases if check} - (set(LINT_CHECKS) - set(CHECKS)) == set(CHECKS)
    assert {check.hop for check in CHECKS.values()} == set(HOPS)


# What must not be taken for a trouble


@pytest.mark.parametrize(
    "changed",
    [
        pytest.param({"nodes": [], "pods": [], "agents": (), "hpas": ()}, id="pool-at-zero"),
        pytest.param(
            {
                "nodes": [],
                "agents": (),
                "pods": [waiting_pod(899)],
                "autoscaler-status": status_map(),
            },
            id="node-on-its-way",
        ),
        pytest.param(
            {"nodes": [node(has=8, gives=8, labels={"nvidia.com/gpu.replicas": "4"})]},
            id="shared-gpus-are-more-than-are-read",
        ),
        pytest.param(
            {
                "nodes": [
                    node(
                        taints=[
                            {
                                "key": "DeletionCandidateOfClusterAutoscaler",
                                "effect": "PreferNoSchedule",
                            }
                        ]
                    )
                ]
            },
            id="node-that-may-be-removed",
        ),
        pytest.param(
            {"prometheus": replace(PROMETHEUS, usage=RENAMED.usage)}, id="renamed-and-mapped"
        ),
        pytest.param(
            {"hpas": (look(values=(MetricValue("web-1", 1000, NOW_MS - 120_000),)),)},
            id="just-young-enough",
        ),
        pytest.param({"autoscaler-status": written(599)}, id="autoscaler-writes"),
        pytest.param({"prometheus": PrometheusLook()}, id="without-a-prometheus"),
    ],
)
def test_what_is_well_gives_nothing(changed):
    labels = {"nvidia.com/gpu.present": "true"}
    for each in changed.get("nodes", ()):
        each["metadata"]["labels"] |= labels
    assert findings_of(cluster(**changed)) == {}


@pytest.mark.parametrize(
    "changed",
    [
        with_keda(),
        # Headless, outside the cluster, or a scaler that is not gpuscale's.
        with_keda(services=both("services", scaler_service(port=1, clusterIP="None"))),
        with_keda(
            scaled(
                triggers=[
                    trigger(address="scaler.gpuscale.svc.cluster.local:6000"),
                    trigger(address="dns:///scaler.example.com:6000"),
                    trigger(address="10.0.0.1:6000"),
                ]
            )
        ),
        with_keda(scaled(conditions=[("Ready", "Unknown", "", "")])),
        with_keda(
            apiservices=both(
                "apiservices",
                {
                    **api_service(EXTERNAL),
                    **meta(EXTERNAL, annotations={"gpuscale.dev/federates": "keda/keda-metrics"}),
                },
            )
        ),
    ],
)
def test_a_keda_that_is_well_gives_nothing(changed):
    assert set(findings_of(cluster(hpas=(HPA,), **changed))) <= {"no-scale-target", "scaler-alone"}


def test_what_keda_says_comes_with_its_events_under_its_cause():
    changed = with_keda(scaled(conditions=[FAILED]), **{"keda-events": [KEDA_EVENT]})
    found = findings_of(cluster(hpas=(HPA,), **changed))["scaled-not-ready"]
    assert found.evidence == (
        "TriggerError: error in gRPC; KEDAScalerFailed: got empty metric spec"
    )
    without_pods = {**changed, "pods": both("pods")}
    roots = roots_of(cluster(hpas=(HPA,), **without_pods))
    assert "scaler-not-ready" in roots
    assert "scaled-not-ready" not in roots


def test_a_pod_that_taints_keep_off_is_no_reason_for_more_nodes():
    pods = both("pods", waiting_pod())
    assert "no-node-autoscaler" not in findings_of(cluster(nodes=TAINTED, pods=pods))


def test_all_troubles_are_told_and_not_only_the_first():
    snapshot = cluster(
        nodes=[node(gives=1)], apiservices=[], hpas=(look(hpa_body(least=2), values=()),)
    )
    assert set(findings_of(snapshot)) == {
        "gpus-unhealthy",
        "no-metrics-api",
        "no-value",
        "min-is-max",
    }
    assert "no-value" not in roots_of(snapshot)


def test_a_gpu_that_is_lost_is_named_by_its_agent_alone():
    lost = agent(
        gpus=family("gpuscale_exporter_gpu_up", ({"UUID": "GPU-1"}, 0)),
        health=sick("GPU-1", lost="fatal"),
    )
    assert findings_of(cluster(agents=lost)).keys() == {"gpu-unreadable"}


def test_what_is_wrong_with_one_gpu_is_one_finding():
    ill = sick("GPU-1", row_remap_failed="fatal", xid_64="fatal", slowed_by_heat="warning")
    (found,) = findings_of(cluster(agents=agent(health=ill))).values()
    assert found.what == "GPU GPU-1 of node gpu-1 is no capacity: row_remap_failed, xid_64."
    assert found.where == "node/gpu-1"
    assert "replaced" in found.fix.say


def test_a_report_names_hops_findings_and_fixes():
    report = diagnose(cluster(nodes=[node(labels={})], hpas=(look(hpa_body(least=2)),)))
    lines = list(text_lines(report))
    assert "nodes: 1 warning" in lines
    assert "  warning [gpu-node-unlabelled] node/gpu-1" in lines
    assert "       kubectl label node gpu-1 gpuscale.dev/gpu=true" in lines
    assert lines[-1] == ("2 warnings; looked at nodes 1, GPU nodes 1, agents 1, HPAs 1, metrics 1")
    told = json.loads(json.dumps(document(report)))
    assert [each["safe"] for each in told["findings"]] == [True, False]
    assert not told["healthy"]


def test_notes_leave_a_cluster_healthy():
    report = diagnose(cluster(apiservices=[api_service(insecureSkipTLSVerify=True)]))
    assert report.findings
    assert report.is_healthy
