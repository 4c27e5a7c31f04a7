"""Faults of a scenario's ScaledObjects: missing targets, triggers that can't be simulated."""

from collections.abc import Iterable, Iterator, Mapping

from gpuscale.base.documents.documents import Document, Path
from gpuscale.base.errors import Problem
from gpuscale.base.objects.fields import Fields
from gpuscale.base.objects.hpa import HorizontalPodAutoscaler
from gpuscale.base.objects.scaled_object import ScaledObject
from gpuscale.base.objects.workloads import Deployment
from gpuscale.triggers.keda import trigger_faults, unsupported
from gpuscale.triggers.policies import policy_faults


def scaled_object_problems(
    scaled: ScaledObject,
    document: Document,
    deployments: Mapping[str, Deployment],
    hpas: Iterable[HorizontalPodAutoscaler],
    others: Iterable[ScaledObject],
) -> tuple[Problem, ...]:
    """Return why a ScaledObject can't be simulated, at its lines.

    Args:
        scaled: the ScaledObject.
        document: that it was read from.
        deployments: of the scenario, by `namespace/name`.
        hpas: of the scenario.
        others: the ScaledObjects before it.
    """
    spec = Fields(document, document.data).child("spec")
    for field, name in unsupported(scaled):
        spec.note(field, "none: formulas are not simulated", found=name)
    for fault in trigger_faults(scaled, policy_faults):
        path: Path = ("triggers", fault.index, *fault.path)
        spec.note(path, fault.expected, found=fault.found, fix=fault.fix)
    target = f"{scaled.metadata.namespace}/{scaled.target_name}"
    known = deployments.get(target)
    if scaled.target_kind != type(known).__name__:
        there = ", ".join(sorted(deployments)) or "none"
        spec.note(
            ("scaleTargetRef",),
            f"a Deployment or LeaderWorkerSet of the manifests (there: {there})",
            found=f"{scaled.target_kind} {target}",
        )
    for owner in _owners(target, hpas, others):
        found = f"{target}, which {owner} scales"
        spec.note(("scaleTargetRef", "name"), "a workload with one autoscaler", found=found)
    return tuple(spec.problems)


def _owners(
    target: str, hpas: Iterable[HorizontalPodAutoscaler], others: Iterable[ScaledObject]
) -> Iterator[str]:
    for hpa in hpas:
        if f"{hpa.metadata.namespace}/{hpa.target.name}" == target:
            yield f"HorizontalPodAutoscaler {hpa.metadata.name}"
    for other in others:
        if f"{other.metadata.namespace}/{other.target_name}" == target:
            yield f"ScaledObject {other.metadata.name}"
