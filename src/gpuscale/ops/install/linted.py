"""Lint of the objects that a values file renders to, with places in the values file.

A target that can't be reached stands there as `spec.scale[0].target`, not in an object of the renderer's.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from gpuscale.base.documents.documents import Document, Path, dotted, load_documents, parts_of
from gpuscale.hpa.terms import KubernetesVersion
from gpuscale.ops.install.common import Object
from gpuscale.ops.install.rendering import outline
from gpuscale.ops.install.values import Values
from gpuscale.ops.lint.checks import JUDGES
from gpuscale.ops.lint.cluster import Cluster
from gpuscale.ops.lint.findings import LintFinding, LintReport, Place
from gpuscale.ops.lint.inputs import FileJudge, is_block, object_name
from gpuscale.ops.lint.linting import lint
from gpuscale.server.rules import preset_text

_RULES: Path = ("spec", "metricsApi", "rules")
_SCALE_FIELDS = {
    "apiVersion": "hpaVersion",
    "averageValue": "target",
    "maxReplicaCount": "maxReplicas",
    "maxReplicas": "maxReplicas",
    "metricName": "signal",
    "minReplicaCount": "minReplicas",
    "minReplicas": "minReplicas",
    "name": "signal",
    "query": "signal",
    "scaleTargetRef": "workload",
    "signal": "signal",
    "target": "target",
    "targetAverageValue": "target",
    "targetValue": "target",
    "threshold": "target",
    "value": "target",
}
"""The field of a scale that gives a field of its autoscaler, by the last key of the latter's path."""
_NOT_OF_VALUES = "exporter-pod"
"""A note about exporters that name their own pod; the agents here name the pod that uses the GPU."""
_OF_UNKNOWN_RULES = frozenset({"unknown-metric", "misspelled-metric", "metric-not-for-resource"})
_PRESET = "preset"
_EXTERNAL_API = "v1beta1.external.metrics.k8s.io"


@dataclass(frozen=True, slots=True)
class _Served:
    """Which external metrics may be served that the rendered objects don't show."""

    external: bool
    """Whether the installation serves external metrics; otherwise another server may."""
    by_teams: bool
    """Whether ConfigMaps of teams have rules."""

    def excuses(self, finding: LintFinding) -> bool:
        if finding.check.id == _NOT_OF_VALUES:
            return True
        is_external = ".external." in (finding.where.field or "")
        is_unknown = finding.check.id in _OF_UNKNOWN_RULES
        return is_unknown and (self.by_teams or (is_external and not self.external))


def lint_values(
    values: Values,
    text: str,
    source: str,
    beside: Sequence[tuple[str, str]] = (),
    judges: Sequence[FileJudge] = JUDGES,
    kubernetes: KubernetesVersion | None = None,
    cluster: Cluster | None = None,
    may_skip: Collection[str] = (),
) -> LintReport:
    """Return lint's findings about the objects that values render to.

    Args:
        values: as they were read from the text.
        text: of the values file.
        source: its name, for the places of findings.
        beside: name and text of rule files and manifests that are checked together with the values.
        judges: what looks at it.
        kubernetes: release of the cluster that it is for; None where it is not known.
        cluster: what is there already; None where nobody looked.
        may_skip: names of files beside that are passed over where they are broken.
    """
    return lint_rendered(
        outline(values), text, source, beside, judges, kubernetes, cluster, may_skip
    )


def lint_rendered(
    objects: Sequence[Object],
    text: str,
    source: str,
    beside: Sequence[tuple[str, str]] = (),
    judges: Sequence[FileJudge] = JUDGES,
    kubernetes: KubernetesVersion | None = None,
    cluster: Cluster | None = None,
    may_skip: Collection[str] = (),
) -> LintReport:
    """Return lint's findings about objects rendered from a values file.

    Args:
        objects: all that were rendered, in any order.
        text: of the values file.
        source: its name, for the places of findings.
        beside: name and text of rule files and manifests that are checked together with the values.
        judges: what looks at them.
        kubernetes: release of the cluster that they are for; None where it is not known.
        cluster: what is there already; None where nobody looked.
        may_skip: names of files beside that are passed over where they are broken.
    """
    (values,) = load_documents(text, source)
    scales = {
        object_name(each): path for each in objects for path in _paths_of_scale(each, values.data)
    }
    rule_maps = {object_name(each) for each in objects if each["kind"] == "ConfigMap"}

    def moved(place: Place) -> Place:
        if place.file in scales:
            return _in_scale(place, values, scales[place.file])
        if place.file in rule_maps and _RULES in values.lines:
            return _in_rules(place, values, text)
        return place

    arguments = set(_arguments(objects))
    preset = ((_PRESET, preset_text()),) if "--preset=on" in arguments else ()
    report = lint(
        (*beside, *preset), objects, judges, kubernetes, cluster=cluster, may_skip=may_skip
    )
    served = _Served(
        external=any(each["metadata"]["name"] == _EXTERNAL_API for each in objects),
        by_teams=any(each.startswith("--rules-configmaps=") for each in arguments),
    )
    found = [
        each
        for each in report.findings
        if each.where.file != _PRESET and not (each.where.file in scales and served.excuses(each))
    ]
    there = (replace(each, where=moved(each.where)) for each in found)
    own = {object_name(each) for each in objects}
    passed = tuple(each for each in report.passed_over if each.place.file not in own)
    return replace(
        report,
        findings=tuple(dict.fromkeys(there)),
        passed_over=passed,
        values=1 + report.values,
        files=1 + len(beside),
    )


def _paths_of_scale(autoscaler: Object, values: object) -> Iterator[Path]:
    """Return the path in the values of each workload's autoscaler."""
    spec = autoscaler.get("spec")
    target = spec.get("scaleTargetRef") if isinstance(spec, Mapping) else None
    if not isinstance(target, Mapping):
        return
    wanted = (autoscaler["metadata"].get("namespace"), target.get("name"))
    for index, scale in enumerate(_scales(values)):
        workload = scale["workload"]
        if (workload.get("namespace", "default"), workload["name"]) == wanted:
            yield ("spec", "scale", index)


def _scales(values: object) -> list[Object]:
    spec = values.get("spec") if isinstance(values, dict) else None
    return spec.get("scale") or [] if isinstance(spec, dict) else []


def _in_scale(place: Place, values: Document, scale: Path) -> Place:
    path: Path = parts_of(place.field or "")
    match path:
        case ("spec", "metrics" | "triggers", int(index), *rest) if _has_metrics(values, scale):
            scale = (*scale, "metrics", index)
            below = tuple(rest)
        case ("spec", "behavior", *rest) | ("spec", "advanced", _, "behavior", *rest):
            scale, below = (*scale, "behavior"), tuple(rest)
        case _:
            below = ()
    if below and (*scale, below[0]) in values.lines:
        # Here the values contain an HPA's own fields.
        return Place(values.source, values.line((*scale, *below)), dotted((*scale, *below)))
    keys = (key for key in reversed(path) if isinstance(key, str))
    field = next((_SCALE_FIELDS[key] for key in keys if key in _SCALE_FIELDS), None)
    if field == "signal":
        field = next((k for k in ("query", "combined") if (*scale, k) in values.lines), field)
    path = scale if field is None else (*scale, field)
    return Place(values.source, values.line(path), dotted(path))


def _has_metrics(values: Document, scale: Path) -> bool:
    return (*scale, "metrics") in values.lines


def _arguments(objects: Sequence[Object]) -> Iterator[str]:
    """Return the arguments of Deployments' containers."""
    for each in objects:
        if each["kind"] == "Deployment":
            for container in each["spec"]["template"]["spec"]["containers"]:
                yield from container.get("args") or ()


def _in_rules(place: Place, values: Document, text: str) -> Place:
    line = values.line(_RULES) or 0
    rules = values.data
    for key in _RULES:
        rules = rules[key] if isinstance(rules, dict) else ""
    if place.line is not None and is_block(text, line, str(rules)):
        line += place.line
    return Place(values.source, line, dotted(_RULES))
