"""KEDA on the healthy cluster, and what can go wrong with it."""

from clusters import EXTERNAL, OBJECTS, api_service, both, hpa_body, look, meta, pod, workload

from gpuscale.ops.doctor.snapshot import ScalerLook

_LABELS = {"app": "scaler"}


def keda(name="keda-operator", ready=1, args=()):
    container = {"name": "main", "image": "keda", "args": list(args)}
    template = {"metadata": {"labels": {"app": name}}, "spec": {"containers": [container]}}
    spec = {"replicas": 1, "selector": {"matchLabels": {"app": name}}, "template": template}
    return {**meta(name, "keda"), "spec": spec, "status": {"readyReplicas": ready}}


def scaler_service(port=6000, **more):
    spec = {"ports": [{"port": port}], "selector": _LABELS, **more}
    return {**meta("scaler", "gpuscale"), "spec": spec}


def scaler_pod(name, **more):
    return pod(name, "gpuscale", on="cpu-1", labels=_LABELS, **more)


def trigger(kind="external-push", address="scaler.gpuscale:6000"):
    asked = {"workload": "deployment/batch", "wakeQuery": "sum(queue)", "pollingInterval": "15s"}
    return {"type": kind, "metadata": {"scalerAddress": address, **asked}}


def scaled(name="batch", conditions=(), annotations=None, triggers=None, **spec):
    listed = [
        {"type": kind, "status": status, "reason": reason, "message": message}
        for kind, status, reason, message in conditions
    ]
    return {
        **meta(name, "default", annotations=annotations or {}),
        "spec": {
            "scaleTargetRef": {"name": name},
            "triggers": [trigger()] if triggers is None else triggers,
            **spec,
        },
        "status": {"conditions": listed, "hpaName": f"keda-hpa-{name}"},
    }


HPA = look(hpa_body("keda-hpa-batch"), target_is_absent=False, selector="")
PODS = [scaler_pod("scaler-1"), scaler_pod("scaler-2")]
SCALERS = (ScalerLook("gpuscale/scaler", "gpuscale/scaler-1", 1.0),)
EVENT = {
    **meta("e", "default"),
    "involvedObject": {"kind": "ScaledObject", "namespace": "default", "name": "batch"},
    "type": "Warning",
    "reason": "KEDAScalerFailed",
    "message": "got empty metric spec",
}


def with_keda(*objects, without=(), **changed):
    """Return the changes that put a healthy KEDA on the healthy cluster, and these."""
    usual = {
        "scaledobjects": list(objects) or [scaled()],
        "services": both("services", scaler_service()),
        "pods": both("pods", *PODS),
        "deployments": both("deployments", keda(), keda("keda-operator-metrics-apiserver")),
        "apiservices": both(
            "apiservices", api_service(EXTERNAL, "keda-operator-metrics-apiserver")
        ),
        "scalers": SCALERS,
    }
    return {**usual, **changed}


FAILED = ("Ready", "False", "TriggerError", "error in gRPC")
ARRIVALS = {
    "type": "prometheus",
    "metadata": {
        "serverAddress": "http://p",
        "query": "sum(rate(requests_total[1m]))",
        "threshold": "5",
    },
}
SLOW = workload("batch", gpus=1)
SLOW["spec"]["template"]["spec"]["containers"][0]["readinessProbe"] = {"initialDelaySeconds": 600}
ROTATING = keda(args=["--enable-cert-rotation=true"])
KEDA_CASES = [
    (
        "keda-not-running",
        with_keda(deployments=both("deployments", keda(ready=0))),
        "kubectl describe deployment,pod -n keda",
    ),
    (
        "keda-writes-ca",
        with_keda(
            deployments=both("deployments", ROTATING),
            apiservices=both("apiservices", api_service(EXTERNAL)),
        ),
        "--enable-apiservice-patching=false",
    ),
    ("scaler-absent", with_keda(services=OBJECTS["services"]), "kubectl edit scaledobject"),
    (
        "scaler-absent",
        with_keda(services=both("services", scaler_service(port=1))),
        "SERVICE.NAMESPACE:PORT",
    ),
    ("scaler-not-ready", with_keda(pods=OBJECTS["pods"]), "kubectl describe pod -n gpuscale"),
    ("scaler-alone", with_keda(pods=both("pods", PODS[0])), "two replicas"),
    (
        "scaler-ca-ends",
        with_keda(scaler_cas={"default/ca": "nothing"}),
        "kubectl get secret -n default ca",
    ),
    (
        "no-push-stream",
        with_keda(scalers=(ScalerLook("gpuscale/scaler", "gpuscale/scaler-1", 0.0),)),
        "kubectl logs -n keda deployment/keda-operator",
    ),
    ("scaled-not-ready", with_keda(scaled(conditions=[FAILED])), "kubectl describe scaledobject"),
    (
        "scaled-not-ready",
        with_keda(scaledjobs=[scaled(conditions=[FAILED])]),
        "kubectl describe scaledjob -n default batch",
    ),
    (
        "fallback-active",
        with_keda(scaled(conditions=[("Fallback", "True", "FallbackExists", "a trigger")])),
        "kubectl describe scaledobject -n default batch",
    ),
    (
        "scaled-paused",
        with_keda(scaled(annotations={"autoscaling.keda.sh/paused-replicas": "3"})),
        "autoscaling.keda.sh/paused-replicas-",
    ),
    (
        "cooldown-below-start",
        with_keda(
            scaled(triggers=[ARRIVALS], cooldownPeriod=60),
            deployments=both("deployments", keda(), SLOW),
        ),
        "Write a cooldownPeriod above 600",
    ),
    (
        "cooldown-below-polling",
        with_keda(scaled(cooldownPeriod=30)),
        "several pollingIntervals",
    ),
    ("keda-hpa-absent", with_keda(), "restart its operator"),
    (
        "keda-hpa-blind",
        with_keda(
            scaled(conditions=[("HPAActive", "False", "FailedGetExternalMetric", "no metrics")])
        ),
        "KEDA's metrics server",
    ),
    ("two-hpas", with_keda(scaled("web")), "kubectl delete hpa -n default web"),
    (
        "zero-without-source",
        with_keda(scaled(triggers=[{"type": "cpu", "metadata": {}}])),
        "minReplicaCount",
    ),
]
