"""Troubles between an HPA and running pods: check, changed snapshot, words of the fix."""

from dataclasses import replace
from datetime import UTC, datetime

from clusters import (
    AGENT_LABELS,
    API,
    GPU,
    JOB,
    NOW_MS,
    PROMETHEUS,
    TAINT,
    UTIL,
    agent,
    api_service,
    both,
    container,
    family,
    hpa_body,
    look,
    meta,
    node,
    pod,
    ready,
    waiting_pod,
    workload,
)

from gpuscale.base.objects.hpa import CrossVersionObjectReference as Reference
from gpuscale.base.objects.hpa import MetricTarget, ObjectMetric, TargetType
from gpuscale.base.pki import make_ca, make_serving
from gpuscale.ops.doctor.snapshot import AccountRight, AgentLook, PrometheusLook

DAY_MS = 86_400_000
MIG = "nvidia.com/mig-1g.10gb"


def at(age_s):
    return datetime.fromtimestamp(NOW_MS / 1000 - age_s, UTC).isoformat()


def deployment(name="web", conditions=(), spec=None, template=None, status=None, **metadata):
    body = workload(name, gpus=1)
    body["metadata"] |= metadata
    body["spec"] |= spec or {}
    body["spec"]["template"]["spec"] |= template or {}
    body["status"] = {"replicas": 1, "conditions": list(conditions), **(status or {})}
    return body


def deployments(*more):
    names = {each["metadata"]["name"] for each in more}
    kept = [each for each in both("deployments") if each["metadata"]["name"] not in names]
    return {"deployments": [*kept, *more]}


LOOKS = {"httpGet": {"path": "/health", "port": 8000}}


def serving(**fields):
    """Return the workload whose container has more fields."""
    body = deployment()
    body["spec"]["template"]["spec"]["containers"][0] |= fields
    return deployments(body)


def refused(message):
    condition = {"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate"}
    return deployments(deployment(conditions=[{**condition, "message": message}]))


def pending(message, owner="web", age_s=60, reason="Unschedulable", **spec):
    found = waiting_pod(age_s, labels={"app": owner})
    found["spec"] |= spec
    reference = {"kind": "Deployment", "name": owner, "controller": True}
    found["metadata"]["ownerReferences"] = [reference]
    condition = {"type": "PodScheduled", "status": "False", "reason": reason, "message": message}
    found["status"]["conditions"] = [condition]
    return found


def pods(*more):
    return {"pods": both("pods", *more)}


def wanting(resource, count=1):
    return {"containers": [{**container(), "resources": {"limits": {resource: str(count)}}}]}


def started(name="web-2", age_s=60, phase="Running", is_ready=False, statuses=(), **more):
    conditions = [
        {"type": "PodScheduled", "status": "True", "lastTransitionTime": at(age_s)},
        {
            "type": "Ready",
            "status": "True" if is_ready else "False",
            "reason": "ContainersNotReady",
            "message": "containers with unready status: [main]",
        },
    ]
    status = {"phase": phase, "conditions": conditions, "containerStatuses": list(statuses), **more}
    found = pod(name, labels={"app": "web"}, status=status, gpus=1)
    found["metadata"] |= {
        "creationTimestamp": at(age_s),
        "ownerReferences": [{"kind": "Deployment", "name": "web", "controller": True}],
    }
    return found


def waits(reason, message="", last=None, restarts=0):
    return {
        "name": "main",
        "restartCount": restarts,
        "state": {"waiting": {"reason": reason, "message": message}},
        **({"lastState": {"terminated": last}} if last else {}),
    }


def ran(restarts, **last):
    return {
        "name": "main",
        "restartCount": restarts,
        "state": {"running": {}},
        "lastState": {"terminated": {"exitCode": 137, **last}},
    }


def lease(name, age_s):
    return {**meta(name, "kube-node-lease"), "spec": {"renewTime": at(age_s)}}


def claim(template="gpu", device_class="gpu.nvidia.com"):
    request = {"name": "gpu", "exactly": {"deviceClassName": device_class}}
    spec = {"spec": {"devices": {"requests": [request]}}}
    return {
        "claimtemplates": [{**meta(template, "default"), "spec": spec}],
        "resourceclaims": [],
    }


CLAIMS = {"resourceClaims": [{"name": "g", "resourceClaimTemplateName": "gpu"}]}
OF_NVIDIA = {"cel": {"expression": 'device.driver == "gpu.nvidia.com"'}}
NICS = {"driver": "nic.example.com", "nodeName": "gpu-1", "devices": [{"name": "nic-0"}]}
WITHOUT_LIMIT = {"containers": [container()], **CLAIMS}
DOWN = replace(PROMETHEUS, targets=((JOB, 0.0),))


def agent_pod(name="agent-1", on="gpu-1", address="10.0.0.1"):
    status = {"phase": "Running", "podIP": address, **ready()}
    return pod(name, "gpuscale", on=on, labels=AGENT_LABELS, status=status)


def two_agents(*targets):
    return {
        "nodes": [node(), node("gpu-2")],
        "pods": both(
            "pods", agent_pod(), agent_pod("agent-2", "gpu-2", "10.0.0.2"), without="agent-1"
        ),
        "prometheus": replace(PROMETHEUS, targets=targets),
    }


def certificate(ends_in_days):
    # A CA of a year that began so long ago that what it signs ends then.
    start_ms = NOW_MS - (365 - ends_in_days) * DAY_MS
    ca = make_ca(start_ms)
    return make_serving(
        ca, ("gpuscale-metrics-api.gpuscale.svc",), start_ms, 365
    ).certificate.decode()


def resource_look():
    body = hpa_body()
    target = {"type": "Utilization", "averageUtilization": 60}
    metric = {"type": "Resource", "resource": {"name": "cpu", "target": target}}
    body["spec"]["metrics"].append(metric)
    found = look(body)
    metric = replace(found.metrics[0], spec=found.hpa.metrics[1], values=())
    return (replace(found, metrics=(*found.metrics, metric)),)


def object_look(name="gone"):
    spec = ObjectMetric(Reference("Service", name, "v1"), UTIL, MetricTarget(TargetType.VALUE))
    found = look(values=())
    return (replace(found, metrics=(replace(found.metrics[0], spec=spec),)),)


def queue_body():
    body = hpa_body(least=0)
    target = {"type": "AverageValue", "averageValue": "5"}
    queue = {"metric": {"name": "queue"}, "target": target}
    body["spec"]["metrics"] = [{"type": "External", "external": queue}]
    return body


def behaving(direction, **rules):
    body = hpa_body()
    body["spec"]["behavior"] = {direction: rules or {"selectPolicy": "Disabled"}}
    return (look(body),)


def owned_by(manager, operation="Apply"):
    entry = {"manager": manager, "operation": operation, "fieldsV1": {"f:spec": {"f:replicas": {}}}}
    return deployments(deployment(managedFields=[entry]))


def replica_set(name="web-abc", owner="web"):
    body = workload(name, gpus=1)
    body["metadata"]["ownerReferences"] = [
        {"kind": "Deployment", "name": owner, "controller": True}
    ]
    return body


def hpa_of(kind, name, version="apps/v1"):
    body = hpa_body(name)
    body["spec"]["scaleTargetRef"] = {"apiVersion": version, "kind": kind, "name": name}
    return body


def canary():
    body = deployment("canary")
    body["spec"]["selector"] = {"matchLabels": {"app": "web"}}
    body["spec"]["template"]["metadata"]["labels"] = {"app": "web"}
    return body


RIGHT = AccountRight(
    "gpuscale/gpuscale-metrics-api",
    "create tokenreviews.authentication.k8s.io",
    "system:auth-delegator",
    allowed=False,
)
HERE = {API: certificate(7)}
PVC = {
    **meta("models", "default"),
    "spec": {"storageClassName": "none"},
    "status": {"phase": "Pending"},
}
VOLUME = {"volumes": [{"name": "m", "persistentVolumeClaim": {"claimName": "models"}}]}
UNBOUND = "0/2 nodes are available: pod has unbound immediate PersistentVolumeClaims. not found"
BUDGET = {
    **meta("web", "default"),
    "spec": {"maxUnavailable": 0, "selector": {"matchLabels": {"app": "web"}}},
}
OLD = agent(
    age=family("gpuscale_exporter_newest_reading_timestamp_seconds", ({}, NOW_MS / 1000 - 3600))
)
NONE_FREE = f"0/2 nodes are available: 1 Insufficient memory, 1 Insufficient {GPU}."
SELECTOR = "0/2 nodes are available: 2 node(s) didn't match Pod's node affinity/selector."

GOING = node(taints=[{"key": "ToBeDeletedByClusterAutoscaler", "effect": "NoSchedule"}])

WORKLOAD_CASES = [
    (
        "gpu-node-cordoned",
        {"nodes": [{**node(), "spec": {"unschedulable": True}}]},
        "uncordon gpu-1",
    ),
    ("gpu-node-out-of-use", {"nodes": [GOING]}, "Never tolerate the taint"),
    (
        "no-node-yet",
        {"nodes": [GOING], **pods(pending("untolerated taint(s)", **wanting(GPU)))},
        "Never tolerate the taint",
    ),
    ("clock-skew", {"leases": [lease("gpu-1", 3600)]}, "Set the node's clock"),
    (
        "clock-here",
        {
            "nodes": [node(), node("gpu-2"), node("gpu-3")],
            "leases": [lease(f"gpu-{n}", 3600) for n in (1, 2, 3)],
        },
        "timedatectl",
    ),
    (
        "agent-silent",
        {
            "pods": both("pods", agent_pod(), without="agent-1"),
            "agents": (AgentLook("gpu-1", "gpuscale/agent-1", fault="no answer within 5 s"),),
            "prometheus": DOWN,
        },
        "kubectl delete pod -n gpuscale agent-1",
    ),
    (
        "agent-clock",
        {"agents": tuple(replace(each, good_ago_s=0.4) for each in OLD)},
        "node's clock",
    ),
    (
        "prometheus-refuses",
        {"prometheus": PrometheusLook("http://p.m.svc", fault="401", refused=401)},
        "--prometheus-token-file",
    ),
    ("node-not-scraped", two_agents((JOB, 1.0)), "kubectl get node gpu-2"),
    (
        "server-lacks-right",
        {"rights": (RIGHT,)},
        "--clusterrole=system:auth-delegator --serviceaccount=gpuscale:gpuscale-metrics-api",
    ),
    (
        "certificate-expired",
        {
            "apiservices": [
                api_service(
                    status="False",
                    condition={"message": "x509: certificate has expired or is not yet valid"},
                )
            ]
        },
        "kubectl delete secret -n gpuscale gpuscale-metrics-api-tls",
    ),
    ("certificate-ends", {"certificates": HERE}, "gpuscale install"),
    ("no-resource-metrics", {"hpas": resource_look()}, "metrics-server"),
    ("no-resource-request", {"hpas": resource_look()}, "--requests=cpu=AMOUNT"),
    (
        "wrong-target-version",
        {
            "hpas": (
                look(
                    hpa_of("Deployment", "web", "extensions/v1beta1"),
                    target_is_absent=True,
                    selector="",
                ),
            )
        },
        '"apiVersion": "apps/v1"',
    ),
    (
        "target-is-owned",
        {"replicasets": [replica_set()], "hpas": (look(hpa_of("ReplicaSet", "web-abc")),)},
        '"kind": "Deployment", "name": "web"',
    ),
    (
        "selectors-overlap",
        {**deployments(canary()), "hpas": (look(), look(hpa_body("canary")))},
        "Give Deployment canary and Deployment web each a label of its own",
    ),
    ("replicas-owned", owned_by("argocd-controller"), "ignoreDifferences"),
    (
        "hpa-paused",
        {**deployments(deployment(spec={"replicas": 0})), "hpas": (look(values=()),)},
        "--replicas=1",
    ),
    (
        "stuck-at-zero",
        {
            **deployments(deployment(spec={"replicas": 0})),
            "hpas": (look(queue_body(), values=()),),
        },
        "--replicas=1",
    ),
    ("scale-down-disabled", {"hpas": behaving("scaleDown")}, '"scaleDown"'),
    ("scale-up-disabled", {"hpas": behaving("scaleUp")}, '"scaleUp"'),
    (
        "slow-scale-up",
        {"hpas": behaving("scaleUp", stabilizationWindowSeconds=3600)},
        '"stabilizationWindowSeconds": 0',
    ),
    (
        "killed-while-starting",
        serving(
            livenessProbe={**LOOKS, "initialDelaySeconds": 60},
            readinessProbe={**LOOKS, "initialDelaySeconds": 600},
        ),
        "Write a startupProbe",
    ),
    (
        "grace-below-pre-stop",
        serving(lifecycle={"preStop": {"exec": {"command": ["sleep", "60"]}}}),
        "terminationGracePeriodSeconds",
    ),
    (
        "deadline-below-start",
        serving(startupProbe={**LOOKS, "failureThreshold": 120}),
        "progressDeadlineSeconds",
    ),
    ("described-object-absent", {"hpas": object_look()}, "Name a Service of namespace default"),
    (
        "pods-refused",
        refused('pods "web-1" is forbidden: exceeded quota: pods, requested: pods=1'),
        "Raise ResourceQuota pods",
    ),
    (
        "pods-refused",
        refused('failed calling webhook "b.example.com": connection refused'),
        "Start the server of webhook b.example.com",
    ),
    (
        "pods-refused",
        refused("no PriorityClass with name gpu-high was found"),
        "Make PriorityClass gpu-high",
    ),
    (
        "pods-refused",
        refused("maximum nvidia.com/gpu usage per Container is 1, but limit is 2"),
        "kubectl describe limitrange -n default",
    ),
    (
        "rollout-stuck",
        deployments(
            deployment(conditions=[{"type": "Progressing", "reason": "ProgressDeadlineExceeded"}])
        ),
        "rollout undo",
    ),
    (
        "resource-not-offered",
        pods(pending(f"0/2 nodes are available: 2 Insufficient {MIG}.", **wanting(MIG))),
        f"Ask for {GPU}",
    ),
    (
        "larger-than-any-node",
        pods(pending(f"0/2 nodes are available: 2 Insufficient {GPU}.", **wanting(GPU, 8))),
        "at most 2 a pod",
    ),
    (
        "no-matching-node",
        pods(pending(SELECTOR, nodeSelector={"nvidia.com/gpu.product": "A100"})),
        "kubectl get nodes --show-labels",
    ),
    (
        "nodes-cordoned",
        {
            "nodes": [{**node(), "spec": {"unschedulable": True}}],
            **pods(pending("0/2 nodes are available: 2 node(s) were unschedulable.")),
        },
        "kubectl uncordon gpu-1.",
    ),
    ("unschedulable", pods(pending(NONE_FREE)), "Lower the pods' memory request"),
    (
        "taint-not-tolerated",
        {
            "nodes": [node(taints=[TAINT]), node("small", gives=1, has=1)],
            **pods(pending("untolerated taint", **wanting(GPU, 2))),
        },
        '"key": "sku"',
    ),
    (
        "pod-gated",
        pods(
            pending(
                "Scheduling is blocked due to non-empty scheduling gates",
                reason="SchedulingGated",
                schedulingGates=[{"name": "example.com/queue"}],
            )
        ),
        "See who sets the gate",
    ),
    (
        "no-scheduler",
        pods({**pending(""), "status": {"phase": "Pending"}}),
        "schedulerName",
    ),
    (
        "volume-not-bound",
        {
            **pods(pending(UNBOUND, **VOLUME)),
            "volumeclaims": [PVC],
            "storageclasses": [meta("fast")],
        },
        "Make StorageClass none",
    ),
    (
        "volume-not-bound",
        {**pods(pending(UNBOUND, **VOLUME)), "volumeclaims": []},
        "Make the claim",
    ),
    (
        "claim-not-allocated",
        {
            **pods(pending("device class gpu.nvidia.com does not exist", **WITHOUT_LIMIT)),
            **claim(),
            "deviceclasses": [],
        },
        "makes DeviceClass gpu.nvidia.com",
    ),
    (
        "claim-not-allocated",
        {
            **pods(pending("1 cannot allocate all claims", **WITHOUT_LIMIT)),
            **claim(),
            "deviceclasses": [{**meta("gpu.nvidia.com"), "spec": {"selectors": [OF_NVIDIA]}}],
            "resourceslices": [{**meta("nics"), "spec": NICS}],
        },
        'Loosen device.driver == "gpu.nvidia.com"',
    ),
    (
        "container-waiting",
        pods(started(phase="Pending", statuses=[waits("ImagePullBackOff", "pull access denied")])),
        "imagePullSecret",
    ),
    (
        "container-waiting",
        pods(started(statuses=[waits("CrashLoopBackOff", "back-off", {"exitCode": 1}, 5)])),
        "--previous",
    ),
    (
        "container-ends",
        pods(started(is_ready=True, statuses=[ran(1, reason="OOMKilled")])),
        "Raise the memory limit",
    ),
    ("pod-starts-slowly", pods(started(age_s=601, phase="Pending")), "a volume, a large image"),
    ("pod-not-ready", pods(started(age_s=601)), "readiness probe"),
    (
        "pod-failed",
        pods(
            started(
                phase="Failed",
                reason="UnexpectedAdmissionError",
                message="Allocate failed due to requested number of devices unavailable",
            )
        ),
        "device plugin of node gpu-1",
    ),
    ("pdb-blocks", {"poddisruptionbudgets": [BUDGET]}, '"maxUnavailable":1'),
    (
        "deployment-paused",
        deployments(deployment(spec={"paused": True}, status={"replicas": 0})),
        "kubectl rollout resume -n default deployment/web",
    ),
    ("node-name-gone", deployments(deployment(template={"nodeName": "gpu-9"})), "nodeName"),
    (
        "pdbs-overlap",
        {
            "poddisruptionbudgets": [
                {**meta(name, "default"), "spec": {**BUDGET["spec"], "maxUnavailable": 1}}
                for name in ("one", "two")
            ]
        },
        "kubectl get poddisruptionbudget -n default one two -o yaml",
    ),
    (
        "foreign-pods",
        {"replicasets": [], **pods(pod("debug", labels={"app": "web"}))},
        "Give the pod other labels",
    ),
    (
        "two-agents",
        pods(pod("dcgm-exporter-x", image="dcgm-exporter")),
        "Keep one of them",
    ),
    (
        "rules-unreadable",
        {
            "rule_maps": [
                {**meta("rules", "m"), "kind": "ConfigMap", "data": {"rules.yaml": "rules: [{"}}
            ]
        },
        "ConfigMap",
    ),
    (
        "resource-not-offered",
        pods(
            pending(
                "0/2 nodes are available: 2 Insufficient rdma/hca.",
                containers=[{**container(), "resources": {"limits": {GPU: "1", "rdma/hca": "1"}}}],
            )
        ),
        "Install the device plugin that offers rdma/hca",
    ),
    (
        "no-scale-target",
        {"hpas": (look(hpa_of("Deploymnet", "web"), target_is_absent=True, selector=""),)},
        "Deployment is meant",
    ),
    (
        "not-scaling",
        {
            "hpas": (
                look(
                    hpa_body(
                        status={
                            "conditions": [
                                {
                                    "type": "AbleToScale",
                                    "status": "False",
                                    "reason": "FailedGetScale",
                                    "message": 'deployments.apps "web" is forbidden: User "x" cannot get',
                                }
                            ]
                        }
                    )
                ),
            )
        },
        "its rights back",
    ),
]
