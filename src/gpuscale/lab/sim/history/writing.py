"""A recording as files for `gpuscale simulate`: scenario, manifests, demand, recording."""

import copy
import csv
import io
import math
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from gpuscale.agent.gpu import MODELS, find_model
from gpuscale.base.documents.documents import dump_documents, load_documents
from gpuscale.base.errors import UsageError
from gpuscale.base.golang.durations import format_duration
from gpuscale.hpa.cluster.nodes import AutoscalerSettings
from gpuscale.lab.sim.history.demand import Demand
from gpuscale.lab.sim.history.hpa_changes import HpaHistory
from gpuscale.lab.sim.history.recording import FACT_COLUMNS, NAMES, Recording, RecordingFacts

SCENARIO, MANIFESTS, TRACE, RULES, RECORDED = (
    "scenario.yaml",
    "manifests.yaml",
    "demand.csv",
    "rules.yaml",
    "recorded.csv",
)
POOL = "gpu"
"""The one pool of a replay: all nodes with GPUs."""
_PLAIN = {
    *("DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_PROF_GR_ENGINE_ACTIVE", "DCGM_FI_PROF_SM_ACTIVE"),
    "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE",
}
_MOST_NODES = 1_000
_ASKING_MS = AutoscalerSettings().gpu_pod_age_ms + 5_000
"""Until the replay's autoscaler asks for a node: a pod has to be old enough, and a scan has to see it."""


def files(
    recording: Recording,
    demand: Demand,
    facts: RecordingFacts,
    workload: tuple[str, str],
    objects: list[dict[str, Any]],
    rules: str | None,
    history: HpaHistory = HpaHistory(),  # noqa: B008 - it is frozen
) -> dict[str, str]:
    """Return the files of a replay, by name.

    Args:
        recording: what really happened.
        demand: what it says of the demand.
        facts: about pods and nodes.
        workload: namespace and name of the Deployment.
        objects: manifests of the Deployment and of what scales it.
        rules: a prometheus-adapter rule file; None for the chart's default rules.
        history: how the HPA among the objects changed.
    """
    scenario = _scenario(recording, demand, facts, workload, objects, rules)
    if history.changes:
        scenario["spec"]["hpaChanges"] = [dict(each) for each in history.changes]
    found = {
        SCENARIO: dump_documents([scenario]),
        MANIFESTS: dump_documents([_plain(each, recording, workload) for each in objects]),
        TRACE: _csv(("second", "rate", "lower_bound"), _trace_rows(recording, demand)),
        RECORDED: _csv(
            ("time", *NAMES, *recording.hpa, *FACT_COLUMNS), _recorded_rows(recording, facts)
        ),
    }
    return found if rules is None else {**found, RULES: rules}


def plain_rules(objects: Sequence[Mapping[str, Any]]) -> str | None:
    """Return a rule for each metric of HPAs that is a series of GPUs itself, as its pods' mean.

    A replay with these runs by formula, many times as fast as with the chart's rules, which leave open what
    they read. None where an HPA is on anything else.
    """
    hpas = [each for each in objects if each.get("kind") == "HorizontalPodAutoscaler"]
    names = {
        metric.get("pods", {}).get("metric", {}).get("name")
        for hpa in hpas
        for metric in hpa["spec"].get("metrics", ())
    }
    if not names or not names <= _PLAIN:
        return None
    rules = [
        {
            "seriesQuery": f'{name}{{exported_namespace!="",exported_pod!=""}}',
            "resources": {
                "overrides": {
                    "exported_namespace": {"resource": "namespace"},
                    "exported_pod": {"resource": "pod"},
                }
            },
            "name": {"as": name},
            "metricsQuery": "avg(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)",
        }
        for name in sorted(names)
    ]
    return dump_documents([{"rules": rules}])


def _scenario(
    recording: Recording,
    demand: Demand,
    facts: RecordingFacts,
    workload: tuple[str, str],
    objects: list[dict[str, Any]],
    rules: str | None,
) -> dict[str, Any]:
    namespace, name = workload
    nodes = [round(each) for each in recording.columns.nodes if each is not None]
    pods = [round(each) for each in recording.columns.replicas if each is not None]
    fewest, needed = (
        math.ceil(count * facts.gpus_per_pod / facts.gpus_per_node)
        for count in (min(pods), max(pods))
    )
    pool: dict[str, object] = {
        "name": POOL,
        "gpuModel": facts.gpu_model,
        "gpus": facts.gpus_per_node,
        "min": min(_MOST_NODES, min(nodes, default=fewest)),
        "max": min(_MOST_NODES, max([1, needed, *nodes])),
        "cpu": "10k",
        "memory": "100Ti",
        "provisioningTime": format_duration(max(0, facts.provisioning_ms - _ASKING_MS)),
        "labels": _node_labels(objects),
    }
    texts = dump_documents(objects) + (rules or "")
    described = find_model(facts.gpu_model, MODELS.values()) is None
    since = datetime.fromtimestamp(recording.start_ms / 1000, UTC)
    demand_words = (
        "Demand is estimated from utilisation, and a request is one GPU-second"
        if demand.is_estimated
        else "Demand is the recorded request rate"
    )
    spec: dict[str, object] = {
        "description": f"{namespace}/{name} as recorded from {since:%Y-%m-%dT%H:%M:%SZ} on. {demand_words}.",
        "duration": format_duration(len(recording) * recording.step_ms),
        "manifests": [{"file": MANIFESTS}],
        **({} if rules is None else {"rules": {"file": RULES}}),
        "pipeline": {
            # The labels in a rule show how the cluster's Prometheus scrapes.
            "style": "ack" if "DCGM_CUSTOM_" in texts else "dcgm",
            "honorLabels": "exported_pod" not in texts,
            "scrapeInterval": format_duration(min(15_000, recording.step_ms)),
        },
        # Memory is not replayed, so any sufficient amount will do.
        **({"gpuModels": [{"name": facts.gpu_model, "memoryGib": 80}]} if described else {}),
        "nodePools": [pool],
        "workloads": [
            {
                "deployment": f"{namespace}/{name}",
                "imagePull": "0s",
                "startup": format_duration(facts.startup_ms),
                "service": {"gpuSecondsPerRequest": float(f"{demand.gpu_seconds_per_request:.9g}")},
                "load": {
                    "shape": "trace",
                    "file": TRACE,
                    "timeColumn": "second",
                    "rateColumn": "rate",
                },
            }
        ],
    }
    return {
        "apiVersion": "gpuscale.dev/v1alpha1",
        "kind": "Scenario",
        "metadata": {"name": f"replay-{name}"[:63].rstrip("-.")},
        "spec": spec,
    }


def _node_labels(objects: list[dict[str, Any]]) -> dict[str, str]:
    """Return the node labels that the pods select, which their nodes had."""
    found: dict[str, str] = {}
    for each in objects:
        spec = each.get("spec") if each.get("kind") == "Deployment" else None
        for key in ("template", "spec", "nodeSelector"):
            spec = spec.get(key) if isinstance(spec, dict) else None
        if isinstance(spec, dict):
            found |= {str(key): str(value) for key, value in spec.items()}
    return found


def _plain(body: dict[str, Any], recording: Recording, workload: tuple[str, str]) -> dict[str, Any]:
    """Return a manifest without server fields, and with the Deployment's first recorded size."""
    found = copy.deepcopy(body)
    found.pop("status", None)
    metadata = found["metadata"]
    for key in ("managedFields", "uid", "resourceVersion", "creationTimestamp", "generation"):
        metadata.pop(key, None)
    if found["kind"] == "Deployment" and _key(found) == workload:
        first = next(each for each in recording.columns.replicas if each is not None)
        found["spec"]["replicas"] = round(first)
    return found


def objects_of(texts: Mapping[str, str], workload: tuple[str, str]) -> list[dict[str, Any]]:
    """Return the manifest objects that the workload's replay needs, with Lists expanded.

    Raises:
        ConfigError: no YAML.
        UsageError: the Deployment is not among them.
    """
    objects = [
        each
        for source, text in texts.items()
        for document in load_documents(text, source)
        for each in _items(document.data)
    ]
    wanted = [
        each
        for each in objects
        if (each.get("kind") == "Deployment" and _key(each) == workload)
        or (_target(each), _key(each)[0]) == (workload[1], workload[0])
    ]
    if not any(each["kind"] == "Deployment" for each in wanted):
        there = (
            ", ".join(f"{each.get('kind')} {'/'.join(_key(each))}" for each in objects) or "nothing"
        )
        found = f"--manifests: found {there[:200]}, expected Deployment {'/'.join(workload)}"
        raise UsageError(f"{found}; this writes it: kubectl get deployment,hpa -o yaml")
    return wanted


def _items(data: object) -> Iterator[dict[str, Any]]:
    if isinstance(data, dict) and isinstance(data.get("items"), list):
        for each in data["items"]:
            yield from _items(each)
    elif isinstance(data, dict):
        yield data


def _key(body: Mapping[str, Any]) -> tuple[str, str]:
    metadata = body.get("metadata")
    metadata = metadata if isinstance(metadata, dict) else {}
    return str(metadata.get("namespace") or "default"), str(metadata.get("name", ""))


def _target(body: Mapping[str, Any]) -> str | None:
    """Return the name of an autoscaler's target, if it is a Deployment."""
    spec = body.get("spec")
    target = spec.get("scaleTargetRef") if isinstance(spec, dict) else None
    if not isinstance(target, dict) or target.get("kind", "Deployment") != "Deployment":
        return None
    return str(target.get("name"))


def _trace_rows(recording: Recording, demand: Demand) -> Iterator[tuple[object, ...]]:
    """Yield a row for each known step; in a gap the last rate goes on, without comparison."""
    known = [index for index, rate in enumerate(demand.rates) if rate is not None]
    step_s = recording.step_ms / 1000
    for index in known:
        second = 0.0 if index == known[0] else index * step_s
        yield f"{second:g}", f"{demand.rates[index]:.9g}", int(demand.lower_bounds[index])


def _recorded_rows(recording: Recording, facts: RecordingFacts) -> Iterator[tuple[object, ...]]:
    """Yield a row for each step; the first has the observed facts, and no assumed ones."""
    stated = [facts.stated.get(name, "") for name in FACT_COLUMNS]
    for index in range(len(recording)):
        values = (getattr(recording.columns, name)[index] for name in NAMES)
        of_hpa = (column[index] for column in recording.hpa.values())
        time_s = (recording.start_ms + index * recording.step_ms) / 1000
        yield (
            f"{time_s:.3f}",
            *("" if each is None else f"{each:.9g}" for each in values),
            # A target in bytes has more digits.
            *("" if each is None else f"{each:.15g}" for each in of_hpa),
            *stated,
        )
        stated = [""] * len(FACT_COLUMNS)


def _csv(header: tuple[str, ...], rows: Iterator[tuple[object, ...]]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(rows)
    return text.getvalue()
