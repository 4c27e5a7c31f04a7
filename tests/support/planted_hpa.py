"""Hours of a Deployment under an HPA written down here, apart from gpuscale's, as a cluster's series.

The HPA: replicas = ceil(mean utilisation / target x ready pods), nothing within 10 % of the target, at most
the double or four more at once, and down to the highest count of the past five minutes. Each moment is 15 s;
the metric is two of them late, and a pod is ready after 75 s.
"""

import math
import random
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from cluster_samples import Column, Sample, sliced

STEP_S = 15
MOST_REPLICAS = 8
_STARTUP_STEPS = 5
_LATE_STEPS = 2
_WINDOW_STEPS = 20
NAMESPACE, DEPLOYMENT = "llm", "chat"
METRIC = "DCGM_FI_DEV_GPU_UTIL"
_REPLICA_SET = f"{DEPLOYMENT}-7d9f6c"
_OF_JOB = f"{DEPLOYMENT}-worker-x2k4p"
"""A name that one of the Deployment's pods could have."""


@dataclass
class Planted:
    """What happened, and the series that show it."""

    replicas: list[int]
    slices: list[list[Sample]] = field(repr=False)

    @property
    def gpu_hours(self) -> float:
        return sum(self.replicas) * STEP_S / 3600


def planted(
    start_ms: int,
    targets: Sequence[float],
) -> Planted:
    """Return hours with a target for each moment; a Job's pod beside them keeps two GPUs busy.

    Args:
        start_ms: of the first moment.
        targets: percent of a GPU, a moment each.
    """
    chance = random.Random(3)
    steps = len(targets)
    made: list[str] = []
    alive: list[tuple[str, int]] = []
    shown: dict[tuple[tuple[str, str], ...], list[float | None]] = {}
    replicas: list[int] = []
    wanted: deque[int] = deque(maxlen=_WINDOW_STEPS)
    measured: list[tuple[float, int]] = []

    def add(at: int, name: str, value: float, **labels: str) -> None:
        key = tuple(sorted({"__name__": name, "namespace": NAMESPACE, **labels}.items()))
        shown.setdefault(key, [None] * steps)[at] = value

    def start(born: int, ready: int) -> None:
        made.append(f"{_REPLICA_SET}-{len(made) + 1:05d}")
        alive.append((made[-1], ready))
        births[made[-1]] = born

    births: dict[str, int] = {}
    for _ in range(4):
        start(0, 0)
    for at, target in enumerate(targets):
        wave = 2.2 + 1.8 * math.sin(2 * math.pi * at / 480) + (2.5 if 700 < at < 760 else 0)
        demand = max(0.2, wave + chance.gauss(0, 0.08))
        ready = [pod for pod, since in alive if since <= at]
        percent = min(100.0, 100 * demand / max(1, len(ready)))
        replicas.append(len(alive))
        add(at, "kube_deployment_spec_replicas", len(alive), deployment=DEPLOYMENT)
        add(at, "kube_deployment_status_replicas_ready", len(ready), deployment=DEPLOYMENT)
        for number, (pod, since) in enumerate(alive):
            born_s = start_ms / 1000 + births[pod] * STEP_S
            add(at, "kube_pod_created", born_s, pod=pod)
            add(at, "kube_pod_status_scheduled_time", born_s + 1, pod=pod)
            limits = {"container": "main", "resource": "nvidia_com_gpu"}
            add(at, "kube_pod_container_resource_limits", 1, pod=pod, **limits)
            owner = {"owner_kind": "ReplicaSet", "owner_name": _REPLICA_SET}
            add(at, "kube_pod_owner", 1, pod=pod, **owner)
            if since <= at:
                ready_s = start_ms / 1000 + since * STEP_S
                add(at, "kube_pod_status_ready_time", ready_s, pod=pod)
                gpu = {"gpu": str(number), "modelName": "NVIDIA A100"}
                add(at, METRIC, round(percent), pod=pod, **gpu)
        of = {"replicaset": _REPLICA_SET, "owner_kind": "Deployment"}
        add(at, "kube_replicaset_owner", 1, owner_name=DEPLOYMENT, **of)
        owner = {"owner_kind": "Job", "owner_name": "chat-worker"}
        add(at, "kube_pod_owner", 1, pod=_OF_JOB, **owner)
        for index in ("6", "7"):
            add(at, METRIC, 95, pod=_OF_JOB, gpu=index, modelName="NVIDIA A100")
        add(at, "kube_node_status_allocatable", 8, node="n0", resource="nvidia_com_gpu")
        hpa = {"horizontalpodautoscaler": DEPLOYMENT}
        of = {"scaletargetref_kind": "Deployment", "scaletargetref_name": DEPLOYMENT}
        add(at, "kube_horizontalpodautoscaler_info", 1, **hpa, **of)
        add(at, "kube_horizontalpodautoscaler_spec_min_replicas", 1, **hpa)
        add(at, "kube_horizontalpodautoscaler_spec_max_replicas", MOST_REPLICAS, **hpa)
        of = {"metric_name": METRIC, "metric_target_type": "average"}
        add(at, "kube_horizontalpodautoscaler_spec_target_metric", target, **hpa, **of)

        measured.append((percent, len(ready)))
        percent, count = measured[max(0, at - _LATE_STEPS)]
        want = len(alive)
        if abs(percent / target - 1) > 0.1:
            asked = math.ceil(percent / target * count)
            is_further = (asked > want) == (percent > target)
            want = asked if is_further else want
        want = max(1, min(MOST_REPLICAS, want))
        wanted.append(want)
        if want < len(alive):
            want = min(len(alive), max(wanted))
        for _ in range(min(want - len(alive), max(4, len(alive)))):
            start(at, at + _STARTUP_STEPS)
        del alive[max(want, 1) :]
    columns: list[Column] = [(dict(labels), values) for labels, values in shown.items()]
    return Planted(
        replicas, sliced(columns, [start_ms + at * STEP_S * 1000 for at in range(steps)])
    )
