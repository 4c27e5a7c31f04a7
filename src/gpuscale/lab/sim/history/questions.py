"""The queries to Prometheus about a workload's past, and the parsing of their answers.

Source: kube-state-metrics v2.13 docs/metrics (workload/deployment-metrics.md, workload/pod-metrics.md,
workload/replicaset-metrics.md, workload/horizontalpodautoscaler-metrics.md, cluster/node-metrics.md);
dcgm-exporter's labels, with Prometheus' honor_labels on (`pod`) and off (`exported_pod`).
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from gpuscale.base.errors import UsageError
from gpuscale.base.golang.durations import go_quote
from gpuscale.base.ranges import Range
from gpuscale.base.words import counted
from gpuscale.lab.sim.history.recording import MOST_TARGETS, RecordingFacts, target_column
from gpuscale.ops import WHOLE_GPU_RESOURCES
from gpuscale.series import Value, Vector, VectorSample
from gpuscale.signals import range_of

_UTIL = "DCGM_FI_DEV_GPU_UTIL"
_PERCENT = range_of(_UTIL) or Range(0, 100)
_DEFAULT_MODEL = "NVIDIA A100-SXM4-80GB"
_DEFAULT_STARTUP_S = 60.0
_DEFAULT_PROVISIONING_S = 120.0
_WAITED_S = 10.0
"""A pod that was bound later than this had to wait for a node."""
_GENERATED_BASE = 58
"""Of the 63 characters of a generated name; five are drawn (apiserver, pkg/storage/names/generate.go)."""
_MOST_OWNERS_CHARS = 3_000
"""Of ReplicaSets in a query, which has them up to four times and may be 16 000 characters long."""


@dataclass(frozen=True, slots=True)
class DeploymentQueries:
    """The queries about one Deployment.

    Args:
        namespace, name: of the Deployment.
        demand: PromQL for its requests per second; None where it is unknown.
        utilization: PromQL with one series per GPU, in percent; None for DCGM_FI_DEV_GPU_UTIL.
        replica_sets: the Deployment's, whose pods are its pods; empty where they are not known, and pods are
            found by the pattern of their names.
    """

    namespace: str
    name: str
    demand: str | None = None
    utilization: str | None = None
    replica_sets: tuple[str, ...] = ()

    def owners(self, range_s: int) -> Mapping[str, str]:
        """Return the queries, at the end of the range, for pods' owners; see `owned_by`."""
        over = f"[{range_s}s]"
        by_name = f"owner_name=~{go_quote(f'{re.escape(self.name)}-[a-z0-9]+')}"
        return {
            "replicaSets": "group by (replicaset) (last_over_time(kube_replicaset_owner{"
            f'{self._in_namespace},owner_kind="Deployment",owner_name={go_quote(self.name)}}}{over}))',
            # If ReplicaSets have no series, the pods' owners name them.
            "podOwners": f"group by (owner_name) (last_over_time(kube_pod_owner{{{self._in_namespace},"
            f'owner_kind="ReplicaSet",{by_name}}}{over}))',
        }

    def owned_by(self, answers: Mapping[str, Value]) -> "DeploymentQueries":
        """Return the queries with the ReplicaSets found by `owners` filled in."""
        rows = _rows(answers.get("replicaSets"))
        found = {row.labels.get("replicaset", "") for row in rows}
        if not found:
            found = {row.labels.get("owner_name", "") for row in _rows(answers.get("podOwners"))}
        if sum(len(go_quote(re.escape(each))) for each in found) > _MOST_OWNERS_CHARS:
            return self
        return replace(self, replica_sets=tuple(sorted(found)))

    @property
    def columns(self) -> Mapping[str, str]:
        """Return the range queries for the columns of `from_answers`; each gives one series."""
        deployment = f"namespace={go_quote(self.namespace)},deployment={go_quote(self.name)}"
        gpus = f"max by (node) (kube_node_status_allocatable{{{WHOLE_GPU_RESOURCES}}})"
        found = {
            "replicas": f"max(kube_deployment_spec_replicas{{{deployment}}})",
            "ready": f"max(kube_deployment_status_replicas_ready{{{deployment}}})",
            "busy": f"sum({self.gpu_percents})",
            "seen": f"count({self.gpu_percents})",
            "impossible": f"count({self._percents} > {_PERCENT.highest} "
            f"or {self._percents} < {_PERCENT.lowest})",
            # A cluster without GPU nodes has 0 of them, if kube-state-metrics is there to show it.
            "nodes": f"count({gpus} > 0) or 0 * count(kube_node_info)",
        }
        return found if self.demand is None else {**found, "rate": f"sum({self.demand})"}

    @property
    def gpu_percents(self) -> str:
        """Return the query for the utilization of each GPU of the workload's pods, if possible."""
        return f"({self._percents} <= {_PERCENT.highest} >= {_PERCENT.lowest})"

    @property
    def _percents(self) -> str:
        if self.utilization is not None:
            return f"({self.utilization})"
        found = (f"{_UTIL}{{{self._pods(prefix)}}}" for prefix in ("exported_", ""))
        return f"({' or '.join(found)})"

    def facts(self, range_s: int) -> Mapping[str, str]:
        """Return the queries, at the end of the range, for facts; see `facts_of`."""
        over = f"[{range_s}s]"
        pods = self._pods("")
        limits = f"kube_pod_container_resource_limits{{{pods},{WHOLE_GPU_RESOURCES}}}"
        bound = f"max by (pod) (max_over_time(kube_pod_status_scheduled_time{{{pods}}}{over}))"
        ready = f"min by (pod) (min_over_time(kube_pod_status_ready_time{{{pods}}}{over}))"
        made = f"max by (pod) (max_over_time(kube_pod_created{{{pods}}}{over}))"
        allocatable = f"max_over_time(kube_node_status_allocatable{{{WHOLE_GPU_RESOURCES}}}{over})"
        return {
            "gpusPerPod": f"max(sum by (pod) (max by (pod, container) (max_over_time({limits}{over}))))",
            "gpusPerNode": f"max({allocatable})",
            "fewestGpusPerNode": f"min({allocatable} > 0)",
            "model": f"count by (modelName) (last_over_time(({self.gpu_percents})[{range_s}s:5m]))",
            "startup": f"quantile(0.5, ({ready} - on (pod) {bound}) >= 0)",
            "provisioning": f"quantile(0.5, ({bound} - on (pod) {made}) > {_WAITED_S:g})",
            "hpa": f"group by (horizontalpodautoscaler) (last_over_time(kube_horizontalpodautoscaler_info{{"
            f'{self._in_namespace},scaletargetref_kind="Deployment",scaletargetref_name={go_quote(self.name)}}}{over}))',
            "hpaMin": self._hpa("min_replicas", over),
            "hpaMax": self._hpa("max_replicas", over),
            "hpaMetric": f"max by (horizontalpodautoscaler, metric_name, metric_target_type) (last_over_time("
            f"kube_horizontalpodautoscaler_spec_target_metric{{{self._in_namespace}}}{over}))",
        }

    def of_hpa(self, answers: Mapping[str, Value]) -> Mapping[str, str]:
        """Return the range queries for the columns of `Recording.hpa`; each gives one series.

        Args:
            answers: by the names of `facts`; none is asked where they have no HPA, or several.
        """
        names = _hpas(answers)
        if len(names) != 1:
            return {}
        of_hpa = f"{self._in_namespace},horizontalpodautoscaler={go_quote(names[0])}"
        spec = "kube_horizontalpodautoscaler_spec_"
        found = {
            "minReplicas": f"max({spec}min_replicas{{{of_hpa}}})",
            "maxReplicas": f"max({spec}max_replicas{{{of_hpa}}})",
        }
        types = _target_types(answers, names[0])
        for metric in sorted(each for each in types if len(types[each]) == 1)[:MOST_TARGETS]:
            of_metric = (
                f"metric_name={go_quote(metric)},metric_target_type={go_quote(types[metric][0])}"
            )
            found[target_column(metric)] = f"max({spec}target_metric{{{of_hpa},{of_metric}}})"
        return found

    @property
    def _in_namespace(self) -> str:
        return f"namespace={go_quote(self.namespace)}"

    def _hpa(self, field: str, over: str) -> str:
        series = f"kube_horizontalpodautoscaler_spec_{field}{{{self._in_namespace}}}"
        return f"max by (horizontalpodautoscaler) (last_over_time({series}{over}))"

    def _pods(self, prefix: str) -> str:
        """Return a matcher for the Deployment's pod names: a ReplicaSet's name and five letters.

        Where those are not known, they are its own name and the hash of a template.
        """
        bases = [re.escape(f"{each}-"[:_GENERATED_BASE]) for each in self.replica_sets]
        base = f"({'|'.join(bases)})" if bases else f"{re.escape(self.name)}-[a-z0-9]+-"
        pattern = go_quote(f"{base}[a-z0-9]{{5}}")
        return f"{prefix}namespace={go_quote(self.namespace)},{prefix}pod=~{pattern}"


def facts_of(
    answers: Mapping[str, Value],
    gpus_per_pod: int | None = None,
    stated: Mapping[str, str] | None = None,
) -> RecordingFacts:
    """Return the facts in the answers; missing ones are assumed, with a note.

    Args:
        answers: by the names of `DeploymentQueries.facts`.
        gpus_per_pod: of a manifest; None takes the answer's.
        stated: facts that a file keeps, by FACT_COLUMNS; they go before answers.

    Raises:
        UsageError: nothing says how many GPUs a pod has.
    """
    notes: list[str] = []
    seen = dict(stated or {})

    def known(name: str, column: str, otherwise: float, words: str) -> float:
        value = float(seen[column]) if column in seen else _number(answers.get(name))
        if value is None:
            notes.append(words)
            return otherwise
        seen[column] = f"{value:.9g}"
        return value

    per_pod = gpus_per_pod or round(_number(answers.get("gpusPerPod")) or 0)
    if per_pod < 1:
        raise UsageError(
            "found no GPU limits of the workload's pods (kube_pod_container_resource_limits), so it is not "
            "known how many GPUs a pod has; give its Deployment by --manifests"
        )
    per_node = round(
        known(
            "gpusPerNode",
            "gpusPerNode",
            per_pod,
            f"{counted(per_pod, 'GPU')} a node, as a pod has: no kube_node_status_allocatable",
        )
    )
    fewest = _number(answers.get("fewestGpusPerNode"))
    if fewest is not None and fewest < per_node:
        notes.append(
            f"{counted(per_node, 'GPU')} on every node; recorded were nodes with {fewest:g} to {per_node}"
        )
    models = [row.labels.get("modelName", "") for row in _rows(answers.get("model"))]
    model = seen.get("gpuModel") or next((each for each in sorted(models) if each), "")
    if model:
        seen["gpuModel"] = model
    else:
        notes.append(f"{_DEFAULT_MODEL}: no label modelName says which GPUs they are")
    startup_s = known(
        "startup",
        "startupSeconds",
        _DEFAULT_STARTUP_S,
        f"{_DEFAULT_STARTUP_S:g} s until a pod is ready: no kube_pod_status_ready_time and _scheduled_time",
    )
    provisioning_s = known(
        "provisioning",
        "provisioningSeconds",
        _DEFAULT_PROVISIONING_S,
        f"{_DEFAULT_PROVISIONING_S:g} s until a node is there: no pod was seen that waited for one",
    )
    hpas = _hpas(answers)
    if len(hpas) > 1:
        notes.append(
            f"one HPA throughout; recorded were {', '.join(hpas)}, so ask for a range with one of them"
        )
    for metric, types in _target_types(answers, *hpas).items() if len(hpas) == 1 else ():
        if len(types) > 1:
            notes.append(
                f"one target of {metric} throughout; recorded were targets of the types {', '.join(types)}"
            )
    return RecordingFacts(
        per_pod,
        max(per_node, per_pod),
        model or _DEFAULT_MODEL,
        round(startup_s * 1000),
        round(provisioning_s * 1000),
        tuple(notes),
        seen,
    )


def manifests_of(
    questions: DeploymentQueries, answers: Mapping[str, Value], facts: RecordingFacts
) -> list[dict[str, Any]]:
    """Return a Deployment and its HPA, as far as kube-state-metrics knows them.

    It knows neither an HPA's behavior nor whose metric it is; an average is taken to be of pods.

    Raises:
        UsageError: there is no HPA, or it is on metrics that no simulated pod has.
    """
    meta = {"name": questions.name, "namespace": questions.namespace}
    pod = {
        "name": "main",
        "image": "recorded",
        "resources": {"limits": {"nvidia.com/gpu": facts.gpus_per_pod}},
    }
    labels = {"app": questions.name}
    deployment = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": meta,
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [pod]}},
        },
    }
    names = _hpas(answers)
    if len(names) != 1:
        found = ", ".join(names) or "none"
        raise UsageError(
            f"found HPAs of the workload in kube_horizontalpodautoscaler_info: {found}, expected one; give "
            "what scales it by --manifests"
        )
    least, most = (_of_hpa(answers.get(key), names[0]) for key in ("hpaMin", "hpaMax"))
    metrics = [
        _pods_metric(row, names[0])
        for row in _rows(answers.get("hpaMetric"))
        if row.labels.get("horizontalpodautoscaler") == names[0]
    ]
    if most is None or not metrics:
        raise UsageError(
            f"found no maxReplicas or no metric of HPA {names[0]} in kube_horizontalpodautoscaler_spec_*; "
            "give it by --manifests"
        )
    hpa = {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": names[0], "namespace": questions.namespace},
        "spec": {
            "scaleTargetRef": {
                "apiVersion": "apps/v1",
                "kind": "Deployment",
                "name": questions.name,
            },
            "minReplicas": 1 if least is None else round(least),
            "maxReplicas": round(most),
            "metrics": metrics,
        },
    }
    return [deployment, hpa]


def _pods_metric(row: VectorSample, hpa: str) -> dict[str, object]:
    name, kind = row.labels.get("metric_name", ""), row.labels.get("metric_target_type", "")
    if kind != "average":
        raise UsageError(
            f"found metric {name!r} of HPA {hpa} with a target of type {kind!r}, expected an average of "
            "pods; kube-state-metrics doesn't say what it is of: give the HPA by --manifests"
        )
    target = {"type": "AverageValue", "averageValue": f"{round(row.value * 1000)}m"}
    return {"type": "Pods", "pods": {"metric": {"name": name}, "target": target}}


def _hpas(answers: Mapping[str, Value]) -> list[str]:
    """Return the names of the workload's HPAs."""
    rows = _rows(answers.get("hpa"))
    return sorted(row.labels.get("horizontalpodautoscaler", "") for row in rows)


def _target_types(answers: Mapping[str, Value], hpa: str) -> Mapping[str, list[str]]:
    """Return the target types of each metric of an HPA, by metric name."""
    found: dict[str, list[str]] = {}
    for row in _rows(answers.get("hpaMetric")):
        if row.labels.get("horizontalpodautoscaler") == hpa:
            types = found.setdefault(row.labels.get("metric_name", ""), [])
            types.append(row.labels.get("metric_target_type", ""))
    return found


def _of_hpa(value: Value | None, hpa: str) -> float | None:
    rows = [row for row in _rows(value) if row.labels.get("horizontalpodautoscaler") == hpa]
    return rows[0].value if rows else None


def _rows(value: Value | None) -> Sequence[VectorSample]:
    return value.samples if isinstance(value, Vector) else ()


def _number(value: Value | None) -> float | None:
    rows = _rows(value)
    return rows[0].value if rows and math.isfinite(rows[0].value) else None
