"""The hours before a dashboard began, as a Prometheus with kube-state-metrics recorded them."""

import math
from collections.abc import Iterator, Mapping, Sequence

from gpuscale.ops.dashboard.state import key_of
from gpuscale.ops.doctor.prometheus import Line, PrometheusReader
from gpuscale.ops.top.picture import Picture, WorkloadRow

PAST_S = 6 * 3600
STEP_S = 60
_HPA = "namespace, horizontalpodautoscaler"
_OF_HPA = "kube_horizontalpodautoscaler"
_BY_HPA = {
    "desired": f"max by ({_HPA}) ({_OF_HPA}_status_desired_replicas)",
    "current": f"max by ({_HPA}) ({_OF_HPA}_status_current_replicas)",
}
_METRIC = f"{_HPA}, metric_name"
_BY_METRIC = {
    # A status has amounts of more types than the one that is held against the target.
    "value": f"max by ({_METRIC}) ({_OF_HPA}_status_target_metric and on ({_METRIC}, metric_target_type) "
    f"{_OF_HPA}_spec_target_metric)",
    "target": f"max by ({_METRIC}) ({_OF_HPA}_spec_target_metric)",
}
"""Source: kube-state-metrics v2.13 docs/metrics/workload/horizontalpodautoscaler-metrics.md."""
_USE = "avg(DCGM_FI_DEV_GPU_UTIL)"

Point = tuple[float, Mapping[str, float | None]]


async def recorded_points(prometheus: PrometheusReader, picture: Picture) -> Sequence[Point]:
    """Return points of the charts up to a picture, oldest first.

    Raises:
        GpuscaleError: the Prometheus gives no answer.
    """
    end_s = picture.at_ms // 1000 - STEP_S
    hpas = {(row.namespace, row.name): row for row in picture.workloads}
    rows: dict[float, dict[str, float | None]] = {}
    for name, query in {**_BY_HPA, **_BY_METRIC, "use": _USE}.items():
        lines = await prometheus.matrix(query, end_s - PAST_S, end_s, STEP_S)
        for key, points in _charted(name, lines, hpas):
            for at_s, value in points:
                if math.isfinite(value):
                    rows.setdefault(at_s, {})[key] = value
    return sorted(rows.items(), key=lambda each: each[0])


def _charted(
    name: str, lines: Sequence[Line], hpas: Mapping[tuple[str, str], WorkloadRow]
) -> Iterator[tuple[str, Sequence[tuple[float, float]]]]:
    """Yield series of the charts: of each HPA the metric that decides now."""
    for labels, points in lines:
        if name == "use":
            yield "use/all GPUs", points
            continue
        place = labels.get("namespace", ""), labels.get("horizontalpodautoscaler", "")
        row = hpas.get(place)
        if row is not None and labels.get("metric_name", row.signal) == row.signal:
            yield f"hpa/{key_of(row)}/{name}", points
