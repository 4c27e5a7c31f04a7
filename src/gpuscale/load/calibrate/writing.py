"""The files that a calibration writes: an HPA or ScaledObject, and a scenario that replays it."""

import math
from dataclasses import dataclass
from typing import Any

from gpuscale.base.documents.documents import dump_documents
from gpuscale.base.errors import BugError
from gpuscale.base.objects.hpa import HorizontalPodAutoscaler
from gpuscale.base.objects.manifests import load_manifests
from gpuscale.load.calibrate.knee import Limit
from gpuscale.load.calibrate.levels import Objective
from gpuscale.load.calibrate.queues import Queue
from gpuscale.load.calibrate.signals import HPA_TOLERANCE, SignalJudgement

Object = dict[str, Any]
_SLOTS = 100_000
"""As many as a scenario takes."""


@dataclass(frozen=True, slots=True)
class ScaledWorkload:
    """The workload to scale, with its bounds."""

    name: str = "calibrated"
    namespace: str = "default"
    kind: str = "Deployment"
    min_replicas: int = 1
    max_replicas: int = 10


@dataclass(frozen=True, slots=True)
class ChosenSignal:
    """The signal to scale on."""

    metric: str
    """What the metrics API serves the signal as."""
    judgement: SignalJudgement
    value: float
    headroom: float = 0.0
    query: str = ""
    """PromQL over all replicas, for KEDA."""
    server: str = ""
    """Address of the Prometheus, for KEDA."""


def target_quantity(value: float) -> str:
    """Return a target as a quantity, rounded down to three figures: up would miss the objective."""
    digits = 2 - math.floor(math.log10(value))
    rounded = math.floor(value * 10**digits * (1 + 1e-9)) / 10**digits
    return f"{max(rounded, 0.001):.3f}".rstrip("0").rstrip(".")


def hpa_text(
    workload: ScaledWorkload, target: ChosenSignal, objective: Objective, limit: Limit
) -> str:
    """Return an HPA as YAML, its target explained above it."""
    quantity = target_quantity(target.value)
    metric: Object = {
        "type": "Pods",
        "pods": {
            "metric": {"name": target.metric},
            "target": {"type": "AverageValue", "averageValue": quantity},
        },
    }
    document: Object = {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": workload.name, "namespace": workload.namespace},
        "spec": {
            "scaleTargetRef": {
                "apiVersion": "apps/v1",
                "kind": workload.kind,
                "name": workload.name,
            },
            "minReplicas": workload.min_replicas,
            "maxReplicas": workload.max_replicas,
            "metrics": [metric],
        },
    }
    return _explained(target, quantity, objective, limit) + dump_documents([document])


def hpa_of(text: str) -> HorizontalPodAutoscaler:
    """Return the HPA of a text from `hpa_text`, as a controller reads it."""
    (found,) = load_manifests(text, "<calibrated>")
    if not isinstance(found, HorizontalPodAutoscaler):
        raise BugError("calibrate wrote something else than an HPA")
    return found


def scaled_object_text(
    workload: ScaledWorkload, target: ChosenSignal, objective: Objective, limit: Limit
) -> str:
    """Return a ScaledObject of KEDA as YAML, its threshold explained above it."""
    quantity = target_quantity(target.value)
    trigger: Object = {
        "type": "prometheus",
        "metricType": "AverageValue",
        "metadata": {
            "serverAddress": target.server,
            "query": target.query,
            "threshold": quantity,
        },
    }
    document: Object = {
        "apiVersion": "keda.sh/v1alpha1",
        "kind": "ScaledObject",
        "metadata": {"name": workload.name, "namespace": workload.namespace},
        "spec": {
            "scaleTargetRef": {
                "apiVersion": "apps/v1",
                "kind": workload.kind,
                "name": workload.name,
            },
            "minReplicaCount": workload.min_replicas,
            "maxReplicaCount": workload.max_replicas,
            "triggers": [trigger],
        },
    }
    note = "# The query has to add up all replicas: KEDA's HPA divides its value by their count.\n"
    return _explained(target, quantity, objective, limit) + note + dump_documents([document])


def _explained(target: ChosenSignal, quantity: str, objective: Objective, limit: Limit) -> str:
    at_limit = target.judgement.interval[0] if target.judgement.interval else target.value
    lines = [
        "Written by gpuscale calibrate.",
        f"One replica keeps {objective.text} up to {limit.rate:.4g} requests/s ({limit.low:.4g} "
        f"to {limit.high:.4g}).",
        f"There {target.judgement.name} is at least {at_limit:.4g}.",
        f"The target is {quantity}: an HPA does nothing until the value is "
        f"{100 * HPA_TOLERANCE:.0f} % above it"
        + (
            f", and {100 * target.headroom:.0f} % are left free for load that grows while replicas start."
            if target.headroom
            else "."
        ),
    ]
    return "".join(f"# {line}\n" for line in lines)


def service_model(queue: Queue, base_ms: float) -> Object:
    """Return a replica's costs in the form of a scenario's `service`.

    A replica of the scenario is as busy as this one at each rate, full at the same rate, and works on as many
    requests at once.
    """
    gpu_s = 1 / queue.capacity
    slots = min(_SLOTS, queue.slots)
    # A slot is held for gpu + other seconds; if that exceeded slots / capacity, slots would be the
    # limit.
    other_s = max(0.0, min(base_ms / 1000, slots / queue.capacity) - gpu_s)
    return {
        "gpuSecondsPerRequest": round(gpu_s, 7),
        "otherSecondsPerRequest": round(max(0.0, other_s - 1e-7), 7),
        "concurrency": slots,
    }


def scenario_text(
    workload: ScaledWorkload,
    service: Object,
    rates: tuple[float, float],
    gpu_percent: float,
    startup_s: float,
    gpu_model: str = "NVIDIA L4",
) -> str:
    """Return a scenario as YAML that replays the calibrated service under a step.

    Args:
        workload: what is scaled.
        service: of `service_model`.
        rates: before and after the step, requests per second.
        gpu_percent: how busy a replica is at the target's rate.
        startup_s: from the decision to a replica that serves.
        gpu_model: of the nodes.
    """
    labels = {"app": workload.name}
    deployment: Object = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": workload.name},
        "spec": {
            "replicas": workload.min_replicas,
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {
                    "containers": [
                        {
                            "name": "main",
                            "image": "calibrated:1",
                            "resources": {"limits": {"nvidia.com/gpu": 1}},
                        }
                    ]
                },
            },
        },
    }
    hpa: Object = {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": workload.name},
        "spec": {
            "scaleTargetRef": {
                "apiVersion": "apps/v1",
                "kind": "Deployment",
                "name": workload.name,
            },
            "minReplicas": workload.min_replicas,
            "maxReplicas": workload.max_replicas,
            "metrics": [
                {
                    "type": "Pods",
                    "pods": {
                        "metric": {"name": "gpu_util"},
                        "target": {
                            "type": "AverageValue",
                            "averageValue": target_quantity(gpu_percent),
                        },
                    },
                }
            ],
        },
    }
    rule: Object = {
        "seriesQuery": 'DCGM_FI_DEV_GPU_UTIL{exported_pod!=""}',
        "resources": {
            "overrides": {
                "exported_namespace": {"resource": "namespace"},
                "exported_pod": {"resource": "pod"},
            }
        },
        "name": {"as": "gpu_util"},
        "metricsQuery": "avg(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)",
    }
    document: Object = {
        "apiVersion": "gpuscale.dev/v1alpha1",
        "kind": "Scenario",
        "metadata": {"name": workload.name},
        "spec": {
            "duration": "30m",
            "manifests": [
                {"inline": dump_documents([deployment])},
                {"inline": dump_documents([hpa])},
            ],
            "rules": {"inline": dump_documents([{"rules": [rule]}])},
            "nodePools": [
                {
                    "name": "gpu",
                    "gpuModel": gpu_model,
                    "gpus": 1,
                    "min": workload.max_replicas,
                    "max": workload.max_replicas,
                }
            ],
            "workloads": [
                {
                    "deployment": workload.name,
                    "imagePull": "0s",
                    "startup": f"{max(1, round(startup_s))}s",
                    "service": service,
                    "load": {
                        "shape": "steps",
                        "steps": [
                            {"at": "0s", "rate": round(rates[0], 4)},
                            {"at": "5m", "rate": round(rates[1], 4)},
                        ],
                    },
                }
            ],
        },
    }
    notes = [
        "Written by gpuscale calibrate: one replica as it was measured, under a step of the load.",
        "The simulator knows GPU use, not your signal; its HPA has a GPU that is as busy as "
        "yours at the target.",
        "Nodes are there; start-up is all that a replica takes.",
    ]
    return "".join(f"# {line}\n" for line in notes) + dump_documents([document])
