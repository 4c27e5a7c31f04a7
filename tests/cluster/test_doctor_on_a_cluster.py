"""`gpuscale doctor` on a real control plane: nothing where all is well, else the trouble and its fix."""

import base64
import json
import subprocess
import sys
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from gpuscale.base.errors import UpstreamError
from gpuscale.kube.client.errors import ApiStatusError
from gpuscale_testing import (
    SimulatedNode,
    wait_until,
)
from gpuscale_testing.addresses import free_ports
from gpuscale_testing.metrics_apis import prometheus_adapter

sys.path.insert(0, str(Path(__file__).parent))
from doctor_stack import API, LIMIT_S, TAINT, Cluster, deployment, hpa, service
from terminal import CTRL_C, CTRL_D

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.prometheus,
    pytest.mark.xdist_group("cluster"),
    pytest.mark.timeout(300),
]

HPA_ROLE = "clusterrole/system:controller:horizontal-pod-autoscaler"
EXTERNAL = "v1beta1.external.metrics.k8s.io"
ROLE = Path(__file__).parents[2] / "docs" / "examples" / "doctor-role.yaml"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with Cluster(tmp_path_factory.mktemp("doctor")) as running:
        yield running


def test_a_healthy_cluster_gives_no_finding(cluster):
    cluster.healthy()

    def is_clean():
        code, told = cluster.run()
        return (code, told.count("nothing wrong")) == (0, 9) and told

    told = wait_until(is_clean, "the command to find nothing", LIMIT_S)
    assert "looked at nodes 1, GPU nodes 1, agents 1, HPAs 1, metrics 1" in told


# Broken and repaired, one after another

WEB = "hpa/web-gpu"


def pods_metric(name, target="60"):
    value = {"type": "AverageValue", "averageValue": target}
    return {"type": "Pods", "pods": {"metric": {"name": name}, "target": value}}


def unknown_metric(cluster):
    return cluster.patched(WEB, {"spec": {"metrics": [pods_metric("gpu_load")]}})


def unreachable_target(cluster):
    metrics = [pods_metric("DCGM_FI_DEV_GPU_UTIL", "100")]
    return cluster.patched(WEB, {"spec": {"metrics": metrics}})


def one_replica(cluster):
    return cluster.patched(WEB, {"spec": {"maxReplicas": 1}})


def hpa_of_nothing(cluster):
    return cluster.objects(hpa("gone"))


@contextmanager
def hpa_written_for_old_clusters(cluster):
    key = "kubectl.kubernetes.io/last-applied-configuration"
    applied = json.dumps({"apiVersion": "autoscaling/v2beta1"})
    with cluster.objects(hpa("old")):
        cluster.plane.kubectl("annotate", "--overwrite", "hpa/old", f"{key}={applied}")
        yield


def external_metric(cluster):
    target = {"type": "AverageValue", "averageValue": "5"}
    external = {"metric": {"name": "jobs_waiting"}, "target": target}
    return cluster.objects(hpa("batch", {"type": "External", "external": external}))


def taint_without_toleration(cluster):
    return cluster.objects(deployment("strict", tolerations=()))


@contextmanager
def hpa_controller_without_rights(cluster):
    role = cluster.plane.get(HPA_ROLE)
    rules = [rule for rule in role["rules"] if "custom.metrics.k8s.io" not in rule["apiGroups"]]
    with cluster.patched(HPA_ROLE, {"rules": rules}):
        yield


def api_service_without_a_service(cluster):
    reference = {"name": "gone", "namespace": "gpuscale", "port": 443}
    return cluster.patched(f"apiservice/{API}", {"spec": {"service": reference}})


def api_service_of_prometheus_adapter(cluster):
    reference = {"name": "prometheus-adapter", "namespace": "monitoring", "port": 443}
    return cluster.patched(f"apiservice/{API}", {"spec": {"service": reference}})


def api_service_with_another_ca(cluster):
    other = base64.b64encode(cluster.plane.ca.read_bytes()).decode()
    return cluster.patched(f"apiservice/{API}", {"spec": {"caBundle": other}})


def api_service_that_trusts_anyone(cluster):
    trust = {"caBundle": None, "insecureSkipTLSVerify": True}
    return cluster.patched(f"apiservice/{API}", {"spec": trust})


@contextmanager
def adapter_without_rules(cluster):
    rules = cluster.folder / "no-rules.yaml"
    rules.write_text("rules: []\n")
    with (
        prometheus_adapter(
            cluster.plane, cluster.prometheus.url, rules, cluster.folder / "adapter"
        ) as adapter,
        ExitStack() as stack,
    ):
        stack.enter_context(cluster.objects(service("prometheus-adapter")))
        reference = {"name": "prometheus-adapter", "namespace": "default", "port": adapter.port}
        spec = {"service": reference, "caBundle": None, "insecureSkipTLSVerify": True}
        for version in ("v1beta1", "v1beta2"):
            name = f"apiservice/{version}.custom.metrics.k8s.io"
            stack.enter_context(cluster.patched(name, {"spec": spec}))
        yield


@contextmanager
def keda_without_its_api(cluster):
    trigger = {"type": "prometheus", "metadata": {"query": "x"}}
    scaled = {
        "apiVersion": "keda.sh/v1alpha1",
        "kind": "ScaledObject",
        "metadata": {"name": "batch", "namespace": "default"},
        "spec": {"scaleTargetRef": {"name": "batch"}, "triggers": [trigger]},
    }
    api = {
        "apiVersion": "apiregistration.k8s.io/v1",
        "kind": "APIService",
        "metadata": {"name": EXTERNAL},
        "spec": {
            "group": "external.metrics.k8s.io",
            "version": "v1beta1",
            "service": {"name": "prometheus-adapter", "namespace": "monitoring"},
            "groupPriorityMinimum": 100,
            "versionPriority": 100,
            "insecureSkipTLSVerify": True,
        },
    }
    with cluster.objects(scaled, api):
        yield


def adapter_with_a_wrong_address(cluster):
    adapter = deployment(
        "prometheus-adapter",
        resources={},
        args=["--prometheus-url=http://prometheus.monitoring.svc:9090", "--secure-port=6443"],
    )
    ports = {"ports": [{"port": 9091}]}
    return cluster.objects(adapter, service("prometheus", **ports))


@contextmanager
def changed(cluster, **fields):
    """Have what Prometheus scrapes changed until the block ends."""
    before = {name: getattr(cluster, name) for name in fields}
    vars(cluster).update(fields)
    try:
        yield
    finally:
        vars(cluster).update(before)


def honor_labels_off(cluster):
    return changed(cluster, renamed=True)


def nothing_scraped(cluster):
    return changed(cluster, scraped=False, up=None)


def target_down(cluster):
    return changed(cluster, up=0)


def scraped_without_series(cluster):
    return changed(cluster, scraped=False)


@contextmanager
def node(cluster, given, *objects):
    with cluster.objects(*objects):
        cluster.nodes.add(given)
        try:
            yield
        finally:
            cluster.nodes.remove(given.name)


LABELLED = {"nvidia.com/gpu.present": "true"}


def node_without_plugin(cluster):
    return node(cluster, SimulatedNode("gpu-2", gpus=0, labels=LABELLED, taints=(TAINT,)))


def plugin_kept_off_by_a_taint(cluster):
    plugin = deployment("nvidia-device-plugin", tolerations=(), resources={})
    plugin["kind"] = "DaemonSet"
    del plugin["spec"]["replicas"]
    given = SimulatedNode("gpu-2", gpus=0, labels=LABELLED, taints=(TAINT,))
    return node(cluster, given, plugin)


def node_without_label(cluster):
    return node(cluster, SimulatedNode("gpu-3", gpus=1))


@contextmanager
def killed_by_its_probe(cluster):
    container = {"name": "exporter", "image": "dcgm-exporter:2.0"}
    probe = {"httpGet": {"path": "/health", "port": 9400}, "initialDelaySeconds": 5}
    labels = {"app": "dcgm-exporter"}
    boxes = [{**container, "livenessProbe": probe}]
    daemons = {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": "dcgm-exporter", "namespace": "default"},
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {"nodeSelector": {"kept": "off"}, "containers": boxes},
            },
        },
    }
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "dcgm-exporter-x", "namespace": "default", "labels": labels},
        "spec": {"schedulerName": "nobody", "containers": boxes},
    }
    times = {"startedAt": "2026-01-01T00:00:00Z", "finishedAt": "2026-01-01T00:00:15Z"}
    ended = {"terminated": {"exitCode": 137, "reason": "Error", **times}}
    status = {**container, "imageID": "", "ready": False, "restartCount": 7, "lastState": ended}
    with cluster.objects(daemons):
        owner = cluster.plane.get("daemonset/dcgm-exporter")
        pod["metadata"]["ownerReferences"] = [
            {
                **{key: owner[key] for key in ("apiVersion", "kind")},
                **{key: owner["metadata"][key] for key in ("name", "uid")},
                "controller": True,
            }
        ]
        cluster.plane.apply(json.dumps(pod))
        cluster.plane.kubectl(
            *("patch", "pod/dcgm-exporter-x", "--subresource=status", "--type=merge", "-p"),
            json.dumps({"status": {"containerStatuses": [status]}}),
        )
        yield


def more_pods_than_gpus(cluster):
    return cluster.objects(deployment("many", replicas=3))


@contextmanager
def pool_at_zero_without_gpu(cluster):
    status = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "cluster-autoscaler-status", "namespace": "kube-system"},
        "data": {"status": "autoscalerStatus: Running\n"},
    }
    with cluster.objects(deployment("many", replicas=3), status):
        pod = wait_until(lambda: waiting(cluster), "a pod to wait", LIMIT_S)
        about = {"apiVersion": "v1", "kind": "Pod", "name": pod, "namespace": "default"}
        event = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": "refused", "namespace": "default"},
            "involvedObject": about,
            "reason": "NotTriggerScaleUp",
            "message": "pod didn't trigger scale-up: 1 Insufficient nvidia.com/gpu",
            "type": "Normal",
        }
        with cluster.objects(event):
            yield


def waiting(cluster):
    pods = cluster.plane.get("pods", "-l", "app=many", "--field-selector=status.phase=Pending")
    return next((pod["metadata"]["name"] for pod in pods["items"]), None)


@contextmanager
def karpenter_pool_at_its_limit(cluster):
    reference = {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "gpu"}
    template = {"spec": {"nodeClassRef": reference, "requirements": []}}
    pool = {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodePool",
        "metadata": {"name": "gpu"},
        "spec": {"limits": {"nvidia.com/gpu": "2"}, "template": template},
    }
    used = json.dumps({"status": {"resources": {"nvidia.com/gpu": "2"}}})
    with cluster.objects(deployment("many", replicas=3), pool):
        cluster.plane.kubectl(
            *("patch", "nodepool/gpu", "--subresource=status", "--type=merge", f"--patch={used}")
        )
        yield


def small_quota(cluster):
    quota = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "gpus", "namespace": "default"},
        "spec": {"hard": {"requests.nvidia.com/gpu": "1"}},
    }
    return cluster.objects(quota)


TROUBLES = [
    (unknown_metric, "no-value", "rule: ", "kubectl get --raw"),
    (unknown_metric, "unknown-metric", "", ""),
    (unreachable_target, "unreachable-target", "averageValue", "Choose a target below"),
    (one_replica, "min-is-max", "maxReplicas: 1", "kubectl patch hpa -n default web-gpu"),
    (hpa_of_nothing, "no-scale-target", "404", "scaleTargetRef"),
    (hpa_written_for_old_clusters, "removed-api-version", "autoscaling/v1", "autoscaling/v2"),
    (external_metric, "no-metrics-api", "hpa/default/batch", "metricsApi.external"),
    (taint_without_toleration, "taint-not-tolerated", "1 GPU node", '"key": "sku"'),
    (hpa_controller_without_rights, "hpa-not-allowed", "", "kubectl create clusterrolebinding"),
    (api_service_without_a_service, "api-unavailable", "ServiceNotFound", "-n gpuscale"),
    (api_service_of_prometheus_adapter, "api-of-somebody-else", "monitoring/", "--replace"),
    (api_service_with_another_ca, "api-certificate", "x509", '"caBundle":"LS0t'),
    (api_service_that_trusts_anyone, "api-not-verified", "insecureSkipTLSVerify", "caBundle"),
    (adapter_without_rules, "api-without-metrics", "404", "gpuscale lint"),
    (keda_without_its_api, "keda-conflict", "ScaledObject default/batch", "keda-operator"),
    (
        adapter_with_a_wrong_address,
        "wrong-prometheus-address",
        "no Service monitoring/prometheus",
        "--prometheus-url=http://prometheus.default.svc:9091",
    ),
    (honor_labels_off, "pod-is-exported-pod", "exported_pod=web-", "honorLabels: true"),
    (nothing_scraped, "no-scrape-target", "none of them an agent", "ServiceMonitor"),
    (target_down, "target-down", "instance=10.0.0.1:9400", "NetworkPolicy"),
    (scraped_without_series, "no-series", "no series DCGM_*", "metricRelabeling"),
    (node_without_plugin, "no-device-plugin", "allocatable 0", "devicePlugin.enabled"),
    (plugin_kept_off_by_a_taint, "device-plugin-taint", "nvidia-device-plugin", '"key": "sku"'),
    (node_without_label, "gpu-node-unlabelled", "1 GPUs", "gpuscale.dev/gpu=true"),
    (node_without_label, "node-without-agent", "gpuscale-node-agent", "kubectl label node gpu-3"),
    (killed_by_its_probe, "probe-too-early", "7 restarts", '"failureThreshold": 300'),
    (more_pods_than_gpus, "no-node-autoscaler", "nvidia.com/gpu", "nodePool"),
    (pool_at_zero_without_gpu, "template-without-gpu", "Insufficient", "Auto Scaling group"),
    (karpenter_pool_at_its_limit, "node-pool-limit", "nvidia.com/gpu", "kubectl get nodepool gpu"),
    (small_quota, "quota-below-max", "default/gpus", '"requests.nvidia.com/gpu":"2"'),
]


@pytest.mark.parametrize(
    ("trouble", "check", "evidence", "fix"),
    [pytest.param(*row, id=f"{row[1]}-{row[0].__name__}") for row in TROUBLES],
)
def test_each_trouble_is_named_with_its_fix(cluster, trouble, check, evidence, fix):
    with trouble(cluster):
        finding = cluster.named(check)
    assert evidence in f"{finding.where} {finding.evidence}"
    assert fix in f"{finding.fix.say} {finding.fix.command}"


def test_what_may_not_be_read_is_told_with_the_right_that_it_takes(cluster):
    somebody = cluster.plane.kubeconfig("somebody")
    with pytest.raises(ApiStatusError, match="nor may it see anything else: give it the role"):
        cluster.report(kubeconfig=somebody)
    role, binding = ("clusterrole", "sees-nodes"), ("clusterrolebinding", "sees-nodes")
    cluster.plane.kubectl("create", *role, "--verb=get,list", "--resource=nodes")
    cluster.plane.kubectl("create", *binding, "--clusterrole=sees-nodes", "--user=somebody")
    try:

        def may_list_nodes():
            try:
                return cluster.plane.kubectl("get", "nodes", kubeconfig=somebody) is not None
            except UpstreamError:
                return False

        wait_until(may_list_nodes, "the right to list nodes", LIMIT_S)
        found = cluster.report(kubeconfig=somebody).findings
    finally:
        cluster.plane.kubectl("delete", *binding)
        cluster.plane.kubectl("delete", *role)
    (hidden,) = (finding for finding in found if finding.check.id == "cannot-see")
    assert {"pods", "hpas", "apiservices"} <= set(hidden.where.split(", "))
    assert "nodes" not in hidden.where.split(", ")
    assert "horizontalpodautoscalers.autoscaling" in hidden.fix.command


def test_the_role_of_the_docs_is_enough(cluster):
    cluster.plane.apply(ROLE.read_text())
    binding = ("clusterrolebinding", "gpuscale-doctor")
    cluster.plane.kubectl("create", *binding, "--clusterrole=gpuscale-doctor", "--user=reader")
    try:
        reader = cluster.plane.kubeconfig("reader")
        wait_until(
            lambda: not cluster.report(kubeconfig=reader).findings,
            "a reader to find nothing",
            LIMIT_S,
        )
        with unknown_metric(cluster):
            finding = cluster.named("no-value", kubeconfig=reader)
        assert finding.evidence.startswith("rule: ")
    finally:
        cluster.plane.kubectl("delete", *binding)
        cluster.plane.kubectl("delete", "clusterrole", "gpuscale-doctor")


def test_agents_without_utilization_or_pods_are_reported(cluster):
    counters = cluster.folder / "counters.csv"
    counters.write_text("DCGM_FI_DEV_GPU_TEMP, gauge, Temperature (in C).\n")
    with ExitStack() as stack:
        url = cluster.start_agent(stack, "no-util", f"--collectors={counters}")
        finding = cluster.named("no-gpu-util", agent_urls={"gpu-1": url})
        assert "DCGM_FI_DEV_GPU_UTIL, gauge" in finding.fix.say
        url = cluster.start_agent(stack, "no-pods")
        finding = cluster.named("no-pod-labels", agent_urls={"gpu-1": url})
        assert cluster.pod in finding.evidence
        assert "--kubernetes" in finding.fix.say
    (gone,) = free_ports(1)
    url = f"http://127.0.0.1:{gone}"
    assert cluster.named("agent-unreachable", agent_urls={"gpu-1": url})
    assert cluster.named("prometheus-unreachable", prometheus_url=url)


def test_safe_fixes_are_applied_and_work(cluster):
    with (
        hpa_controller_without_rights(cluster),
        api_service_with_another_ca(cluster),
        node_without_label(cluster),
    ):
        for check in ("hpa-not-allowed", "api-certificate", "gpu-node-unlabelled"):
            cluster.named(check)
        code, told = cluster.run("--fix", "--yes")
        assert code == 1, told
        fixed = [line for line in told.splitlines() if line.startswith("fixed: ")]
        assert [line.split()[1] for line in fixed] == [
            "[gpu-node-unlabelled]",
            "[api-certificate]",
            "[hpa-not-allowed]",
        ]

        def left():
            found = {finding.check.id for finding in cluster.report().findings}
            # Nobody serves the metrics of a node agent on a node that is not there.
            return not found - {"agent-unreachable"}

        wait_until(left, "the fixes to work", LIMIT_S)
    for kind in ("clusterrole", "clusterrolebinding"):
        cluster.plane.kubectl("delete", kind, "gpuscale-hpa-reads-metrics-custom")


# Fixes as printed


def is_gone(cluster, check, about=""):
    """Return once nothing of a check is found."""

    def look():
        found = [each for root in cluster.report().findings for each in root.whole()]
        return not [each for each in found if each.check.id == check and about in each.where]

    wait_until(look, f"{check} to end", LIMIT_S)


def test_a_rollout_that_waits_for_its_own_gpus_goes_on_with_the_printed_command(cluster):
    small = SimulatedNode("gpu-9", gpus=1, labels={**LABELLED, "pool": "small"}, taints=(TAINT,))
    body = deployment("surge")
    body["spec"]["template"]["spec"]["nodeSelector"] = {"pool": "small"}
    with node(cluster, small, body):
        cluster.shell("kubectl rollout status deployment/surge --timeout=60s")
        cluster.shell("kubectl set env deployment/surge RELEASE=2")
        finding = cluster.named("rollout-without-room", "deployment/default/surge")
        assert "maxSurge 25%, maxUnavailable 25% of 1" in finding.evidence
        assert "no-node-autoscaler" not in {each.check.id for each in cluster.report().findings}
        cluster.shell(finding.fix.command)
        cluster.shell("kubectl rollout status deployment/surge --timeout=60s")
        is_gone(cluster, "rollout-without-room")


def test_pods_that_ask_for_two_shares_start_after_the_printed_command(cluster):
    two = {"limits": {"nvidia.com/gpu": "2", "cpu": "1"}, "requests": {"nvidia.com/gpu": "2"}}
    said = (
        "Allocate failed due to rpc error: code = Unknown desc = request for 'nvidia.com/gpu: 2' too large: "
        "maximum request size for shared resources is 1, which is unexpected"
    )
    many = SimulatedNode("gpu-9", gpus=8, labels={**LABELLED, "pool": "many"}, taints=(TAINT,))
    body = deployment("shares", resources=two)
    body["spec"]["template"]["spec"]["nodeSelector"] = {"pool": "many"}
    with node(cluster, many, body):
        cluster.shell("kubectl rollout status deployment/shares --timeout=60s")
        status = {"phase": "Failed", "reason": "UnexpectedAdmissionError", "message": said}
        patch = json.dumps({"status": status})
        (pod,) = cluster.plane.get("pods", "-l", "app=shares")["items"]
        cluster.plane.kubectl(
            *("patch", f"pod/{pod['metadata']['name']}", "--subresource=status"),
            *("--type=merge", "-p", patch),
        )
        finding = cluster.named("pod-failed", "shares")
        cluster.shell(finding.fix.command)
        cluster.shell("kubectl rollout status deployment/shares --timeout=60s")
        is_gone(cluster, "pod-failed", "shares")
        template = cluster.plane.get("deployment/shares")["spec"]["template"]["spec"]
        assert template["containers"][0]["resources"] == {
            "limits": {"nvidia.com/gpu": "1", "cpu": "1"},
            "requests": {"nvidia.com/gpu": "1"},
        }


def test_a_node_that_a_label_keeps_the_plugin_off_gets_it_by_the_printed_command(cluster):
    switch = "nvidia.com/gpu.deploy.device-plugin"
    plugin = deployment("nvidia-device-plugin-daemonset", resources={})
    plugin["kind"] = "DaemonSet"
    del plugin["spec"]["replicas"]
    plugin["spec"]["template"]["spec"]["nodeSelector"] = {switch: "true"}
    off = SimulatedNode("gpu-2", gpus=0, labels={**LABELLED, switch: "false"}, taints=(TAINT,))
    with node(cluster, off, plugin):
        finding = cluster.named("no-device-plugin", "node/gpu-2")
        assert f"The label {switch}=false" in finding.what
        cluster.shell(finding.fix.command)
        # The plugin's pod comes, and does what only a real one can.
        cluster.shell(
            "kubectl rollout status daemonset/nvidia-device-plugin-daemonset --timeout=60s"
        )
        amounts = {"nvidia.com/gpu": "1"}
        patch = json.dumps({"status": {"capacity": amounts, "allocatable": amounts}})
        cluster.plane.kubectl(
            "patch", "node/gpu-2", "--subresource=status", "--type=merge", "-p", patch
        )
        is_gone(cluster, "no-device-plugin")


def test_a_starting_agent_is_not_killed_after_the_printed_command(cluster):
    with killed_by_its_probe(cluster):
        cluster.shell(cluster.named("probe-too-early").fix.command)
        body = cluster.plane.get("daemonset/dcgm-exporter")
        (box,) = body["spec"]["template"]["spec"]["containers"]
        assert box["startupProbe"]["failureThreshold"] * box["startupProbe"]["periodSeconds"] == 300
        # Its pods are made again by the new template.
        cluster.shell("kubectl delete pod dcgm-exporter-x --grace-period=0 --force")
        is_gone(cluster, "probe-too-early")


def kueues_workloads(version):
    """Return the kind Workload as a release of Kueue serves it, with any fields."""
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    names = {"plural": "workloads", "singular": "workload", "kind": "Workload"}
    served = {"name": version, "served": True, "storage": True}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "workloads.kueue.x-k8s.io"},
        "spec": {
            "group": "kueue.x-k8s.io",
            "scope": "Namespaced",
            "names": {**names, "listKind": "WorkloadList"},
            "versions": [{**served, "schema": {"openAPIV3Schema": schema}}],
        },
    }


@pytest.mark.parametrize("version", ["v1beta1", "v1beta2"])
def test_a_job_in_kueues_queue_is_named_whichever_release_it_is_of(cluster, version):
    kind, said = kueues_workloads(version), "insufficient unused quota for nvidia.com/gpu"
    template = deployment("train")["spec"]["template"]
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "train"}
    workload = {
        "apiVersion": f"kueue.x-k8s.io/{version}",
        "kind": "Workload",
        "metadata": {"name": "job-train", "namespace": "default"},
        "spec": {"queueName": "team-a", "podSets": [{"name": "main", "template": template}]},
        "status": {
            "conditions": [
                {"type": "QuotaReserved", "status": "False", "reason": "Pending", "message": said}
            ]
        },
    }
    with cluster.objects(kind):
        cluster.shell("kubectl wait crd/workloads.kueue.x-k8s.io --for=condition=Established")
        job = {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {"name": "train", "namespace": "default"},
            "spec": {"suspend": True, "template": template},
        }
        job["spec"]["template"]["spec"]["restartPolicy"] = "Never"
        with cluster.objects(job):
            uid = cluster.plane.get("job/train")["metadata"]["uid"]
            workload["metadata"]["ownerReferences"] = [{**owner, "uid": uid}]
            with cluster.objects(workload):
                finding = cluster.named("workload-queued", "job/default/train")
                assert f"in the queue team-a: {said}" in finding.what
    cluster.shell("kubectl wait --for=delete crd/workloads.kueue.x-k8s.io --timeout=60s")


def test_a_preempted_pod_is_named_as_the_scheduler_says(cluster):
    small = SimulatedNode("gpu-9", gpus=1, labels={**LABELLED, "pool": "small"}, taints=(TAINT,))
    low, high = deployment("low"), deployment("high")
    for body in (low, high):
        body["spec"]["template"]["spec"]["nodeSelector"] = {"pool": "small"}
    high["spec"]["template"]["spec"]["priorityClassName"] = "urgent"
    urgent = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "value": 1000}
    with node(cluster, small, {**urgent, "metadata": {"name": "urgent"}}, low):
        cluster.shell("kubectl rollout status deployment/low --timeout=60s")
        with cluster.objects(high):
            cluster.shell("kubectl rollout status deployment/high --timeout=60s")
            finding = cluster.named("pod-preempted", "deployment/default/low")
            (pod,) = cluster.plane.get("pods", "-l", "app=high")["items"]
            assert f"pod default/{pod['metadata']['name']} (1000)" in finding.what


# Asked at a terminal

ORDER = ("gpu-node-unlabelled", "api-certificate", "hpa-not-allowed")
QUESTION = "Do it? [y/N]:"


@contextmanager
def three_troubles(cluster):
    """Have three troubles with safe fixes, and the agent of the node that comes with one of them."""
    with (
        hpa_controller_without_rights(cluster),
        api_service_with_another_ca(cluster),
        node_without_label(cluster),
    ):
        for check in ORDER:
            cluster.named(check)
        try:
            yield f"--agent=gpu-3={cluster.agent_url}"
        finally:
            for kind in ("clusterrole", "clusterrolebinding"):
                name = "gpuscale-hpa-reads-metrics-custom"
                cluster.plane.kubectl("delete", kind, name, "--ignore-not-found")


def fixes_applied(cluster):
    """Return which of the three fixes the cluster shows."""
    labels = cluster.plane.get("node/gpu-3")["metadata"]["labels"]
    bundle = cluster.plane.get(f"apiservice/{API}")["spec"]["caBundle"]
    roles = cluster.plane.get("clusterroles")["items"]
    has = {
        "gpu-node-unlabelled": "gpuscale.dev/gpu" in labels,
        "api-certificate": base64.b64decode(bundle).decode() == cluster.certificate.ca,
        "hpa-not-allowed": any(
            role["metadata"]["name"] == "gpuscale-hpa-reads-metrics-custom" for role in roles
        ),
    }
    return {check for check, is_there in has.items() if is_there}


def fixed_lines(text):
    return [line.split("[")[1].split("]")[0] for line in text.splitlines() if "fixed: [" in line]


def test_only_what_was_agreed_to_is_repaired_and_then_all_is_well(cluster):
    with three_troubles(cluster) as agent:
        with cluster.asked(agent) as terminal:
            for count, answer in enumerate(("y\r", "\r", "n\r"), 1):
                terminal.wait_for(QUESTION, count)
                terminal.type(answer)
            code, shown = terminal.end()
        assert (code, fixed_lines(shown)) == (1, ["gpu-node-unlabelled"]), shown
        assert shown.index("kubectl label node gpu-3") < shown.index(QUESTION)
        assert fixes_applied(cluster) == {"gpu-node-unlabelled"}

        # A word that is no answer is asked again.
        with cluster.asked(agent) as terminal:
            for count, answer in enumerate(("perhaps\r", "y\r", "yes\r"), 1):
                terminal.wait_for(QUESTION, count)
                terminal.type(answer)
            code, shown = terminal.end()
        assert fixed_lines(shown) == [*ORDER[1:]], shown
        assert fixes_applied(cluster) == set(ORDER)

        def is_clean():
            code, told = cluster.run(agent)
            return code == 0 and told.count("nothing wrong") == 9

        wait_until(is_clean, "a second run to find nothing", LIMIT_S)


@pytest.mark.parametrize("key", [CTRL_C, CTRL_D], ids=["Ctrl-C", "Ctrl-D"])
def test_breaking_off_repairs_nothing_more_and_tells_what_was(cluster, key):
    with three_troubles(cluster) as agent:
        with cluster.asked(agent) as terminal:
            terminal.wait_for(QUESTION)
            terminal.type("y\r")
            terminal.wait_for(QUESTION, 2)
            terminal.type(key)
            code, shown = terminal.end()
        assert (code, fixed_lines(shown)) == (1, ["gpu-node-unlabelled"]), shown
        assert "Traceback" not in shown
        assert shown.count(QUESTION) == 2
        assert fixes_applied(cluster) == {"gpu-node-unlabelled"}


def test_the_terminal_goes_away_while_it_asks(cluster):
    with three_troubles(cluster) as agent:
        with cluster.asked(agent) as terminal:
            terminal.wait_for(QUESTION)
            terminal.hang_up()
            terminal.end()
        assert fixes_applied(cluster) == set()


def test_questions_stay_at_the_terminal_when_the_report_goes_to_a_file(cluster):
    report = cluster.folder / "report.txt"
    with three_troubles(cluster) as agent, report.open("w") as file:
        with cluster.asked(agent, output=file.fileno()) as terminal:
            for count in (1, 2, 3):
                terminal.wait_for(QUESTION, count)
                terminal.type("n\r")
            code, shown = terminal.end()
        assert code == 1
        assert "kubectl label node gpu-3" in shown
        assert fixes_applied(cluster) == set()
    assert QUESTION not in report.read_text()
    assert "[gpu-node-unlabelled]" in report.read_text()


def test_without_a_terminal_nothing_is_asked_and_nothing_done(cluster):
    with three_troubles(cluster) as agent:
        done = subprocess.run(
            cluster.command("--fix", agent),
            input="y\ny\ny\n",
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert (done.returncode, done.stdout) == (2, "")
        assert "expected a terminal to ask at, or --yes" in done.stderr
        assert fixes_applied(cluster) == set()


def test_a_fix_that_is_refused_does_not_keep_others_from_being_done(cluster):
    cluster.plane.apply(ROLE.read_text())
    labeller = [
        *("create", "clusterrole", "gpuscale-labeller"),
        *("--verb=patch", "--resource=apiservices.apiregistration.k8s.io"),
    ]
    cluster.plane.kubectl(*labeller)
    bindings = {"gpuscale-doctor": "gpuscale-doctor", "gpuscale-labeller": "gpuscale-labeller"}
    for binding, role in bindings.items():
        cluster.plane.kubectl(
            *("create", "clusterrolebinding", binding, f"--clusterrole={role}", "--user=some")
        )
    secret = ("create", "role", "ca", "-n=gpuscale", "--verb=get", "--resource=secrets")
    cluster.plane.kubectl(*secret)
    cluster.plane.kubectl(
        *("create", "rolebinding", "ca", "-n=gpuscale", "--role=ca"), "--user=some"
    )
    try:
        with three_troubles(cluster) as agent:
            command = cluster.command(
                "--fix", "--yes", agent, kubeconfig=cluster.plane.kubeconfig("some")
            )
            done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
            assert done.returncode == 1
            assert fixed_lines(done.stdout) == ["api-certificate"], done.stdout + done.stderr
            assert fixes_applied(cluster) == {"api-certificate"}
            lines = done.stderr.splitlines()
            assert [line.split()[3] for line in lines] == [
                "[gpu-node-unlabelled]",
                "[hpa-not-allowed]",
            ]
            assert all("403" in line for line in lines)
    finally:
        for binding in bindings:
            cluster.plane.kubectl("delete", "clusterrolebinding", binding)
            cluster.plane.kubectl("delete", "clusterrole", bindings[binding])
        cluster.plane.kubectl("delete", "role,rolebinding", "ca", "-n=gpuscale")


def test_one_document_for_programs(cluster):
    with one_replica(cluster):
        cluster.named("min-is-max")
        code, told = cluster.run("--output=json")
    document = json.loads(told)
    assert (code, document["healthy"]) == (1, False)
    (finding,) = (each for each in document["findings"] if each["id"] == "min-is-max")
    assert finding["about"] == "hpa/default/web-gpu"
    assert (finding["hop"], finding["severity"], finding["safe"]) == (
        "autoscaler",
        "warning",
        False,
    )


def test_repaired_it_is_healthy_again(cluster):
    cluster.healthy()
