"""HPAs that custom resources hold: a table of where, and what their operators make of them.

A kind whose HPA has the fields of `autoscaling/v2` is one entry.

Source: NVIDIA k8s-nim-operator api/apps/v1alpha1 (Autoscaling, GetHPAParams); Grove
operator/api/core/v1alpha1/podclique.go (AutoScalingConfig).
"""

from dataclasses import dataclass

from gpuscale.base.documents.documents import Path
from gpuscale.ops.lint.parts import Part


@dataclass(frozen=True, slots=True)
class HpaSection:
    """Where objects of a kind hold an HPA's fields, and what the HPA scales."""

    group: str
    path: Path
    target_version: str
    target_kind: str
    """Of the object that has the name of the custom resource."""
    switch: Path = ()
    """Of the truth value without which there is no HPA."""


_SECTIONS = {
    "NIMService": HpaSection(
        "apps.nvidia.com",
        ("spec", "scale", "hpa"),
        "apps/v1",
        "Deployment",
        ("spec", "scale", "enabled"),
    ),
    "PodClique": HpaSection(
        "grove.io", ("spec", "autoScalingConfig"), "grove.io/v1alpha1", "PodClique"
    ),
}
"""By kind."""


def hpa_inside(whole: Part) -> tuple[dict[str, object], Path] | None:
    """Return the HPA that an operator makes of an object, and where its spec is; None without one."""
    section = _SECTIONS.get(whole.text("kind"))
    if section is None or whole.text("apiVersion").rpartition("/")[0] != section.group:
        return None
    if not whole.fields(*section.path):
        return None
    if section.switch and whole.at(*section.switch).data is not True:
        return None
    target = {
        "apiVersion": section.target_version,
        "kind": section.target_kind,
        "name": whole.text("metadata", "name"),
    }
    manifest: dict[str, object] = {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": whole.fields("metadata"),
        "spec": {**whole.fields(*section.path), "scaleTargetRef": target},
    }
    return manifest, section.path
