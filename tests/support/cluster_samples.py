"""A simulated run as the samples that a real cluster's Prometheus would have: kube-state-metrics and DCGM."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from gpuscale.series.values import STALE
from gpuscale.testing.prometheus import Prometheus

Sample = tuple[Mapping[str, str], int, float]
Column = tuple[Mapping[str, str], Sequence[float | None]]
SLICE_MS = 1_800_000


def samples_of(
    run: Mapping[str, Any],
    start_ms: int,
    *,
    namespace: str,
    deployment: str,
    model: str,
    startup_s: float,
    gpus_per_node: int = 1,
) -> list[list[Sample]]:
    """Return slices of samples, oldest first; each spans half an hour, as `Prometheus.write` takes them.

    Args:
        run: the document of `gpuscale simulate -o json`.
        start_ms: the run's second 0.
        startup_s: from a container's start to Ready, in the scenario.
    """
    series = run["series"]
    hpa = next(name for name in series if name.startswith("hpa/") and name.endswith("/current"))
    pool = next(name for name in series if name.startswith("nodes/") and name.endswith("/ready"))
    of_deployment = {"namespace": namespace, "deployment": deployment}
    columns: list[Column] = [
        ({"__name__": "kube_deployment_spec_replicas", **of_deployment}, series[hpa]),
        (
            {"__name__": "kube_deployment_status_replicas_ready", **of_deployment},
            series[f"replicas/{deployment}/ready"],
        ),
        ({"__name__": "kube_node_info", "node": "control-plane"}, [1.0] * len(series["t"])),
    ]
    most_nodes = int(max(series[pool]))
    columns += [
        (
            {
                "__name__": "kube_node_status_allocatable",
                "resource": "nvidia_com_gpu",
                "node": f"gpu-{number}",
            },
            [gpus_per_node if nodes > number else None for nodes in series[pool]],
        )
        for number in range(most_nodes)
    ]
    times: dict[str, dict[str, float]] = {"Created": {}, "Scheduled": {}, "Started": {}}
    for event in run["events"]:
        kind, pod = event["kind"], event["object"].removeprefix("Pod/")
        if kind == "SuccessfulCreate":
            kind, pod = "Created", event["reason"].removeprefix("Created pod: ")
        if kind in times:
            times[kind][pod] = start_ms / 1000 + event["t"]
    prefix = f"pod/{namespace}/{deployment}-"
    for name in (name for name in series if name.startswith(prefix)):
        pod = name.rpartition("/")[2]
        exported = {"exported_namespace": namespace, "exported_pod": pod, "namespace": "monitoring"}
        percents = series[name]
        gpu = {"__name__": "DCGM_FI_DEV_GPU_UTIL", "modelName": model, "pod": "dcgm-exporter-x"}
        columns.append(({**gpu, **exported}, percents))
        of_pod = {"namespace": namespace, "pod": pod}
        facts = {
            "kube_pod_created": times["Created"].get(pod),
            "kube_pod_status_scheduled_time": times["Scheduled"].get(pod),
            "kube_pod_status_ready_time": times["Started"].get(pod, 0) + startup_s,
        }
        for metric, value in facts.items():
            columns.append(
                (
                    {"__name__": metric, **of_pod},
                    [None if percent is None else value for percent in percents],
                )
            )
        limits = {"container": "main", "resource": "nvidia_com_gpu"}
        columns.append(
            (
                {"__name__": "kube_pod_container_resource_limits", **of_pod, **limits},
                [None if percent is None else 1.0 for percent in percents],
            )
        )
    return sliced(columns, [start_ms + round(t * 1000) for t in series["t"]])


def sliced(columns: Sequence[Column], times_ms: Sequence[int]) -> list[list[Sample]]:
    """Return the columns' samples in slices; where a series ends, there is a staleness marker."""
    slices: dict[int, list[Sample]] = {}
    for labels, values in columns:
        was_there = False
        for time_ms, value in zip(times_ms, values, strict=True):
            if value is not None or was_there:
                sample = (labels, time_ms, STALE if value is None else float(value))
                slices.setdefault((time_ms - times_ms[0]) // SLICE_MS, []).append(sample)
            was_there = value is not None
    return [slices[number] for number in sorted(slices)]


def hpa_series(
    namespace: str,
    hpa: str,
    deployment: str,
    metric: str,
    target: float,
    most: float,
    times_ms: Sequence[int],
) -> list[list[Sample]]:
    """Return slices of what kube-state-metrics says of an HPA on an average of pods, from 1 to `most`."""
    of_hpa = {"namespace": namespace, "horizontalpodautoscaler": hpa}
    prefix = "kube_horizontalpodautoscaler"
    info = {"scaletargetref_kind": "Deployment", "scaletargetref_name": deployment}
    kind = {"metric_name": metric, "metric_target_type": "average"}
    rows = [
        ({"__name__": f"{prefix}_info", **of_hpa, **info}, 1.0),
        ({"__name__": f"{prefix}_spec_min_replicas", **of_hpa}, 1.0),
        ({"__name__": f"{prefix}_spec_max_replicas", **of_hpa}, most),
        ({"__name__": f"{prefix}_spec_target_metric", **of_hpa, **kind}, target),
    ]
    return sliced([(labels, [value] * len(times_ms)) for labels, value in rows], times_ms)


def write_in_order(prometheus: Prometheus, samples: Iterable[Sample]) -> None:
    """Write samples that are not in the order of time, half an hour at once."""
    slices: dict[int, list[Sample]] = {}
    for sample in samples:
        slices.setdefault(sample[1] // SLICE_MS, []).append(sample)
    for _, of_slice in sorted(slices.items()):
        prometheus.write(of_slice)
