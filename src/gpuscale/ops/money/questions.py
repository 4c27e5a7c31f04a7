"""What a Prometheus is asked for a bill: sums over a day at most, one row for each node or pod.

Each query sums a value of moments STEP_S apart, so that its unit is moments: see `hours`.

Source: kube-state-metrics v2.13 docs/metrics (workload/pod-metrics.md, cluster/node-metrics.md);
    dcgm-exporter's labels, with Prometheus' honor_labels on (`pod`) and off (`exported_pod`).
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from gpuscale.ops.gpu_series import GPU_RESOURCES, of_pods

STEP_S = 300
"""Between two moments; a pod that lives shorter may be missed."""
HOUR_S = 3600
_DAY_S = 86_400


def hours(moments: float) -> float:
    """Return the hours of a sum over moments."""
    return moments * STEP_S / HOUR_S


def days_of(start_s: int, end_s: int) -> Iterator[tuple[int, int]]:
    """Yield the spans of at most a day that a range consists of: end, and length, in seconds."""
    at = start_s
    while at < end_s:
        length = min(_DAY_S, end_s - at)
        at += length
        yield at, length


@dataclass(frozen=True, slots=True)
class BillQueries:
    """The queries for a span.

    Args:
        length_s: of the span, which ends when they are asked about.
        pod_label: of pods, as kube-state-metrics writes it without `label_`; None asks for none.
    """

    length_s: int
    pod_label: str | None = None

    def all(self) -> Mapping[str, str]:
        """Return the queries by the names of `bill_of`."""
        asked = (
            "sum by (namespace, pod, node, resource) (max by (namespace, pod, container, node, resource) "
            f'(kube_pod_container_resource_requests{{{GPU_RESOURCES},node!=""}}))'
        )
        lives = 'max by (namespace, pod) (kube_pod_status_phase{phase=~"Pending|Running"}) == 1'
        unready = 'max by (namespace, pod) (kube_pod_status_ready{condition="true"}) == 0'
        held = f"({asked}) * on (namespace, pod) group_left () ({lives})"
        allocatable = f"kube_node_status_allocatable{{{GPU_RESOURCES}}}"
        whole = of_pods("DCGM_FI_DEV_GPU_UTIL", 'GPU_I_ID="",')
        part = of_pods("DCGM_FI_PROF_GR_ENGINE_ACTIVE", 'GPU_I_ID!="",')
        found = {
            "nodes": self._sum(f"max by (node, resource) ({allocatable})"),
            "nodeMoments": f"count_over_time((max by (node) ({allocatable} > 0))[{self.moments}])",
            "asked": self._sum(held),
            # The other side of `and` has no values of its own.
            "starting": self._sum(f"({held}) and on (namespace, pod) ({unready})"),
            "owners": self._last("namespace, pod, owner_kind, owner_name", "kube_pod_owner"),
            "replicaSets": self._last(
                "namespace, replicaset, owner_kind, owner_name",
                'kube_replicaset_owner{owner_kind!=""}',
            ),
            "used": self._sum(
                "avg by (namespace, pod, UUID, GPU_I_PROFILE) "
                f"((({whole}) <= 100 >= 0) or 100 * (({part}) <= 1 >= 0))"
            ),
            "labels": f"last_over_time(kube_node_labels{self._over})",
            "models": self._last(
                "Hostname, hostname, node, UUID, modelName", "DCGM_FI_DEV_GPU_TEMP"
            ),
        }
        if self.pod_label is not None:
            label = f"label_{self.pod_label}"
            found["podLabels"] = self._last(
                f"namespace, pod, {label}", f'kube_pod_labels{{{label}!=""}}'
            )
        return found

    def peaks(self) -> Mapping[str, str]:
        """Return the queries for the most that GPUs of pods used; sums of spans make no sense of them."""
        series = {"memory": "DCGM_FI_DEV_FB_USED", "sms": "DCGM_FI_PROF_SM_ACTIVE"}
        return {name: self._highest(each) for name, each in series.items()}

    def _highest(self, series: str) -> str:
        """Return the query for the most that each whole GPU of each pod had."""
        highest = of_pods(series, 'GPU_I_ID="",', f"max_over_time({{}}{self._over})")
        return f"max by (namespace, pod, UUID, modelName) ({highest})"

    @property
    def _over(self) -> str:
        return f"[{self.length_s}s]"

    @property
    def moments(self) -> str:
        """Of the span; a second less, as Prometheus 2 takes the moment at the begin too."""
        return f"{self.length_s - 1}s:{STEP_S}s"

    def _sum(self, query: str) -> str:
        return f"sum_over_time(({query})[{self.moments}])"

    def _last(self, by: str, selector: str) -> str:
        return f"group by ({by}) (last_over_time({selector}{self._over}))"


def hourly_queries() -> Mapping[str, str]:
    """Return the range queries, at the ends of hours, for what `bought_by_hour` takes."""
    hour = BillQueries(HOUR_S)
    return {
        "nodes": f"sum by (resource) ({hour.all()['nodes']})",
        "moments": f"count_over_time((count(kube_node_info))[{hour.moments}])",
    }


def scaled_query(range_s: int) -> str:
    """Return the instant query, at the end of a range, for the Deployments that an HPA scaled in it."""
    return (
        "group by (namespace, scaletargetref_name) (last_over_time("
        f'kube_horizontalpodautoscaler_info{{scaletargetref_kind="Deployment"}}[{range_s}s]))'
    )


def series_label(key: str) -> str:
    """Return a label's key as kube-state-metrics writes it: `app.kubernetes.io/partOf` is `..._part_of`.

    Source: kube-state-metrics v2.13 internal/store/utils.go (labelName).
    """
    plain = re.sub("[^a-zA-Z0-9_]", "_", key)
    return re.sub("([a-z0-9])([A-Z])", r"\1_\2", plain).lower()
