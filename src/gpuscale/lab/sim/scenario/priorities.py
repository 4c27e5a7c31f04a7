"""PriorityClasses among a scenario's manifests, and the priorities that pods have by them.

Source: kubernetes v1.37 plugin/pkg/admission/priority (admission.go), pkg/apis/scheduling (helpers.go).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from gpuscale.base.documents.documents import Document
from gpuscale.base.objects.fields import Fields
from gpuscale.base.objects.pods import PodSpec, PodTemplate
from gpuscale.base.objects.workloads import DaemonSet, Deployment, Job, LeaderWorkerSet
from gpuscale.lab.sim.scenario.references import References

_KIND = ("scheduling.k8s.io/v1", "PriorityClass")
Item = TypeVar("Item", bound=DaemonSet | Deployment | Job)


@dataclass(frozen=True, slots=True)
class PriorityClass:
    """A PriorityClass."""

    value: int
    may_preempt: bool = True
    is_default: bool = False


BUILT_IN: Mapping[str, PriorityClass] = {
    "system-node-critical": PriorityClass(2_000_001_000),
    "system-cluster-critical": PriorityClass(2_000_000_000),
}


def is_priority_class(document: Document) -> bool:
    """Return whether a document of a manifest file is a PriorityClass."""
    data = document.data
    return isinstance(data, dict) and (data.get("apiVersion"), data.get("kind")) == _KIND


def read_priority_class(document: Document) -> tuple[str, PriorityClass]:
    """Return a PriorityClass's name, and the class.

    Raises:
        ConfigError: a field is wrong.
    """
    fields = Fields(document, document.data)
    name = fields.child("metadata", required=True).text("name", required=True)
    value = fields.integer("value", None)
    if value is None or value > 1_000_000_000:
        fields.note(("value",), "a number up to 1 000 000 000", found=str(value))
    may_preempt = fields.text("preemptionPolicy") != "Never"
    found = PriorityClass(value or 0, may_preempt, fields.boolean("globalDefault"))
    fields.finish()
    return name, found


def prioritized(item: Item, classes: Mapping[str, PriorityClass], references: References) -> Item:
    """Return a workload whose pods have the priority of their class; a class that is not there is a fault."""
    by, there = f"{type(item).__name__} {item.metadata.name}", ", ".join(classes)
    of_workers = item.worker_template if isinstance(item, LeaderWorkerSet) else item.template
    for name in {each.spec.priority_class: None for each in (item.template, of_workers)}:
        if name and name not in classes:
            found = f"priorityClassName {name} in {by}"
            expected = f"a PriorityClass of the manifests (there: {there})"
            fix = "add the PriorityClass to the manifests; without it, no pod can be created"
            references.note(("manifests",), expected, found=found, fix=fix)
    return with_specs(item, lambda spec: _with_priority(spec, classes))


def with_specs(item: Item, change: Callable[[PodSpec], PodSpec]) -> Item:
    """Return a workload with the specs of its pods changed."""
    changed: dict[str, Any] = {"template": _changed(item.template, change)}
    if isinstance(item, LeaderWorkerSet):
        changed["worker_template"] = _changed(item.worker_template, change)
    return replace(item, **changed)


def _changed(template: PodTemplate, change: Callable[[PodSpec], PodSpec]) -> PodTemplate:
    return replace(template, spec=change(template.spec))


def _with_priority(spec: PodSpec, classes: Mapping[str, PriorityClass]) -> PodSpec:
    chosen = classes.get(spec.priority_class)
    if not spec.priority_class and not spec.priority:
        chosen = next((each for each in classes.values() if each.is_default), None)
    if chosen is None:
        return spec
    may_preempt = spec.may_preempt and chosen.may_preempt
    return replace(spec, priority=chosen.value, may_preempt=may_preempt)
