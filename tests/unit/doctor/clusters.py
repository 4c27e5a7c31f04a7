"""A healthy cluster as a snapshot, and objects to change in it."""

import base64
from dataclasses import fields, replace
from datetime import UTC, datetime

from gpuscale.base.documents.documents import Document
from gpuscale.base.exposition.families import Family, Sample
from gpuscale.base.objects.hpa import HorizontalPodAutoscaler
from gpuscale.base.objects.manifests import read_manifest
from gpuscale.base.objects.metric_values import MetricValue
from gpuscale.base.pki import make_ca
from gpuscale.ops.doctor.diagnosis import diagnose
from gpuscale.ops.doctor.snapshot import (
    AgentLook,
    HpaLook,
    Look,
    MetricLook,
    PrometheusLook,
    Snapshot,
)

NOW_MS = 1_790_000_000_000
GPU = "nvidia.com/gpu"
UTIL = "DCGM_FI_DEV_GPU_UTIL"
AGENT_LABELS = {"app.kubernetes.io/name": "gpuscale", "app.kubernetes.io/component": "node-agent"}
API_LABELS = {"app.kubernetes.io/name": "gpuscale", "app.kubernetes.io/component": "metrics-api"}
API = "v1beta1.custom.metrics.k8s.io"
ANY = [{"operator": "Exists"}]


def meta(name, namespace=None, **more):
    place = {} if namespace is None else {"namespace": namespace}
    return {"metadata": {"name": name, **place, **more}}


def ready(status="True", **more):
    return {"conditions": [{"type": "Ready", "status": status, **more}]}


def node(name="gpu-1", gives=2, has=2, labels=None, taints=(), status=None):
    amounts = {"capacity": {GPU: str(has)}, "allocatable": {GPU: str(gives)}}
    labels = {"nvidia.com/gpu.present": "true"} if labels is None else labels
    return {
        **meta(name, labels=labels),
        "spec": {"taints": list(taints)},
        "status": {**amounts, **(status or ready())},
    }


def container(gpus=0, image="model", **more):
    limits = {"resources": {"limits": {GPU: str(gpus)}}} if gpus else {}
    return {"name": "main", "image": image, **limits, **more}


def pod(name, namespace="default", on="gpu-1", labels=None, status=None, tolerations=(), **box):
    spec = {"containers": [container(**box)], "tolerations": list(tolerations)}
    spec |= {"nodeName": on} if on else {}
    found = {**meta(name, namespace, labels=labels or {}), "spec": spec}
    return {**found, "status": status or {"phase": "Running", **ready()}}


def waiting_pod(age_s=60, **more):
    reason = f"0/1 nodes are available: 1 Insufficient {GPU}."
    condition = {"type": "PodScheduled", "status": "False", "message": reason}
    status = {"phase": "Pending", "conditions": [condition]}
    found = pod("web-2", on=None, status=status, gpus=1, **more)
    created = datetime.fromtimestamp(NOW_MS / 1000 - age_s, UTC).isoformat()
    found["metadata"]["creationTimestamp"] = created
    return found


def workload(name, namespace="default", labels=None, tolerations=(), **box):
    spec = {"containers": [container(**box)], "tolerations": list(tolerations)}
    selector = {"matchLabels": {"app": name}}
    template = {"metadata": {"labels": {"app": name}}, "spec": spec}
    return {
        **meta(name, namespace, labels=labels or {}),
        "spec": {"replicas": 1, "selector": selector, "template": template},
    }


def service(name, namespace, port, labels=None):
    return {**meta(name, namespace, labels=labels or {}), "spec": {"ports": [{"port": port}]}}


def api_service(name=API, server="gpuscale-metrics-api", status="True", **more):
    version, _, group = name.partition(".")
    reference = {"name": server, "namespace": "gpuscale", "port": 443}
    condition = {"type": "Available", "status": status, **more.pop("condition", {})}
    return {
        **meta(name),
        "spec": {"group": group, "version": version, "service": reference, **more},
        "status": {"conditions": [condition]},
    }


def hpa_body(name="web", metric=UTIL, target="60", least=1, most=2, status=None, **more):
    value = {"type": "AverageValue", "averageValue": target}
    return {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        **meta(name, "default", **more),
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name},
            "minReplicas": least,
            "maxReplicas": most,
            "metrics": [{"type": "Pods", "pods": {"metric": {"name": metric}, "target": value}}],
        },
        "status": status or {},
    }


YOUNG = (MetricValue("web-1", 1000, NOW_MS - 5_000),)


def look(body=None, values=YOUNG, **more):
    body = body or hpa_body()
    hpa = read_manifest(Document("test", 0, body, {}))
    assert isinstance(hpa, HorizontalPodAutoscaler)
    fields = {key: more.pop(key) for key in ("selector", "target_is_absent") if key in more}
    metric = MetricLook(hpa.metrics[0], "kubectl get --raw /x", values, allowed=True)
    metric = replace(metric, **more)
    return HpaLook(hpa, body, **{"selector": "app=web", **fields}, metrics=(metric,))


def family(name, *rows):
    samples = tuple(Sample(tuple(labels.items()), value) for labels, value in rows)
    return name, Family(name, "gauge", "", samples)


def agent(**changed):
    own = "gpuscale_exporter_"
    families = {
        "util": family(
            UTIL, ({"UUID": "GPU-0", "pod": "web-1"}, 40), ({"UUID": "GPU-1", "pod": ""}, 0)
        ),
        "up": family(f"{own}collect_up", ({}, 1)),
        "gpus": family(f"{own}gpu_up", ({"UUID": "GPU-0"}, 1), ({"UUID": "GPU-1"}, 1)),
        "pods": family(f"{own}attribution_up", ({}, 1)),
        "age": family(f"{own}newest_reading_timestamp_seconds", ({}, NOW_MS / 1000 - 2)),
        **changed,
    }
    return (AgentLook("gpu-1", "gpuscale/agent-1", dict(filter(None, families.values()))),)


def sick(gpu, **problems):
    """The family of what is wrong with a GPU: severity by reason."""
    labels = ({"UUID": gpu, "reason": reason, "severity": how} for reason, how in problems.items())
    return family("gpuscale_gpu_health_problem", *((each, 1) for each in labels))


JOB = {"job": "node-agent", "instance": "10.0.0.1:9400"}
PROMETHEUS = PrometheusLook(
    "http://prometheus.monitoring.svc:9090",
    targets=(({"job": "other", "instance": "10.0.0.9:80"}, 0.0), (JOB, 1.0)),
    names=(({"__name__": UTIL}, 2.0),),
    usage=(({**JOB, "pod": "web-1", "namespace": "default"}, 3.0),),
)
URL = "--prometheus-url=http://prometheus.monitoring.svc:9090"
OBJECTS = {
    "nodes": [node(), node("cpu-1", 0, 0, labels={})],
    "pods": [
        pod("web-1", labels={"app": "web"}, gpus=1),
        pod("agent-1", "gpuscale", labels=AGENT_LABELS),
    ],
    "services": [
        service("prometheus", "monitoring", 9090),
        service("gpuscale-metrics-api", "gpuscale", 443, API_LABELS),
    ],
    "daemonsets": [workload("agent", "gpuscale", AGENT_LABELS, ANY)],
    "deployments": [
        workload("web", gpus=1),
        workload("api", "gpuscale", API_LABELS, args=[URL]),
    ],
    "apiservices": [api_service()],
}


FIELDS = {each.name for each in fields(Snapshot)}


def cluster(hpas=None, agents=None, **changed):
    plain = {key: changed.pop(key) for key in list(changed) if key in FIELDS}
    looks = {kind: Look(items) for kind, items in {**OBJECTS, **changed}.items()}
    given = {
        "hpa_versions": ("autoscaling/v1", "autoscaling/v2"),
        "looks": looks,
        "agents": agent() if agents is None else agents,
        "prometheus": PROMETHEUS,
        "served": {"custom.metrics.k8s.io": Look([{"name": f"pods/{UTIL}"}])},
        "hpas": (look(),) if hpas is None else hpas,
        **plain,
    }
    return Snapshot(NOW_MS, **given)


def both(kind, *more, without=None):
    return [each for each in OBJECTS[kind] if each["metadata"]["name"] != without] + list(more)


def quota(used):
    hard = {f"requests.{GPU}": "1"}
    status = {"hard": hard, "used": {f"requests.{GPU}": used}}
    return [{**meta("gpus", "default"), "spec": {"hard": hard}, "status": status}]


def condition(kind, reason, status="False"):
    listed = [{"type": kind, "status": status, "reason": reason, "message": "because"}]
    return {"conditions": listed, "currentReplicas": 1, "desiredReplicas": 2}


def status_map(text="autoscalerStatus: Running"):
    return [{**meta("cluster-autoscaler-status", "kube-system"), "data": {"status": text}}]


def written(age_s):
    moment = datetime.fromtimestamp(NOW_MS / 1000 - age_s, UTC)
    (body,) = status_map()
    text = f"{moment:%Y-%m-%d %H:%M:%S}.123456789 +0000 UTC"
    body["metadata"]["annotations"] = {"cluster-autoscaler.kubernetes.io/last-updated": text}
    return [body]


TAINT = {"key": "sku", "value": "gpu", "effect": "NoSchedule"}
TAINTED = [node(taints=[TAINT])]
EKS = {"eks.amazonaws.com/nodegroup": "gpus", "node.kubernetes.io/instance-type": "g5.xlarge"}
BARE = [node(gives=0, has=0)]
PLUGIN = "nvcr.io/nvidia/k8s-device-plugin:v0.20.0"
KILLED = {"terminated": {"exitCode": 137, "reason": "Error"}}
RESTARTED = {"name": "main", "restartCount": 7, "lastState": KILLED}
PROBED = pod(
    "dcgm-exporter-1",
    status={"phase": "Running", **ready(), "containerStatuses": [RESTARTED]},
    image="dcgm-exporter",
    livenessProbe={"initialDelaySeconds": 5, "httpGet": {"path": "/health", "port": 9400}},
)
PROBED["metadata"]["ownerReferences"] = [
    {"kind": "DaemonSet", "name": "dcgm-exporter", "controller": True}
]
EVENT = {
    **meta("e", "default"),
    "involvedObject": {"kind": "Pod", "name": "web-2", "namespace": "default"},
    "message": f"pod didn't trigger scale-up: 1 Insufficient {GPU}",
}
POOL = {
    **meta("gpu"),
    "spec": {"limits": {GPU: "2"}},
    "status": {"resources": {GPU: "2"}},
}
SCALED = {**meta("batch", "default"), "spec": {}}
EXTERNAL = "v1beta1.external.metrics.k8s.io"
PENDING = both("pods", waiting_pod())
RENAMED = replace(PROMETHEUS, usage=(({**JOB, "pod": "agent-1", "exported_pod": "web-1"}, 3.0),))
ADAPTER_ELSEWHERE = [
    workload("web", gpus=1),
    workload("prometheus-adapter", "m", args=["--prometheus-url", "http://prom.m.svc:80"]),
]
MIG = family("DCGM_FI_DEV_FB_USED", ({"UUID": "GPU-0", "GPU_I_PROFILE": "1g.5gb"}, 1))
ENDED_MS = NOW_MS - 10 * 366 * 86_400_000


def bundle():
    return base64.b64encode(make_ca(ENDED_MS).certificate).decode()


def findings_of(snapshot):
    """Return every finding by its check, folded or not."""
    roots = diagnose(snapshot).findings
    return {each.check.id: each for root in roots for each in root.whole()}


def roots_of(snapshot):
    """Return the findings that have no other for a cause."""
    return {each.check.id: each for each in diagnose(snapshot).findings}
