"""HPAs that custom resources hold: a table of where, and what their operators make of them.

A kind whose HPA has the fields of `autoscaling/v2` is one entry.

Source: NVIDIA k8s-nim-operator api/apps/v1alpha1 (Autoscaling, GetHPAParams); Grove
operator/api/core/v1alpha1/podclique.go, podcliqueset.go (AutoScalingConfig).
"""

from collections.abc import Iterator
from dataclasses import dataclass

from gpuscale.base.documents.documents import Path
from gpuscale.ops.lint.parts import Part


@dataclass(frozen=True, slots=True)
class HpaSection:
    """Where objects of a kind hold an HPA's fields, and what the HPA scales."""

    group: str
    path: Path
    """`EACH` in it stands for every item of a list."""
    target_version: str
    target_kind: str
    """Of the object that has the name of the custom resource, with that of a list's item behind it."""
    switch: Path = ()
    """Of the truth value without which there is no HPA."""


EACH = "*"
_SECTIONS = (
    (
        "NIMService",
        HpaSection(
            "apps.nvidia.com",
            ("spec", "scale", "hpa"),
            "apps/v1",
            "Deployment",
            ("spec", "scale", "enabled"),
        ),
    ),
    (
        "PodClique",
        HpaSection("grove.io", ("spec", "autoScalingConfig"), "grove.io/v1alpha1", "PodClique"),
    ),
    (
        "PodCliqueSet",
        HpaSection(
            "grove.io",
            ("spec", "template", "cliques", EACH, "spec", "autoScalingConfig"),
            "grove.io/v1alpha1",
            "PodClique",
        ),
    ),
    (
        "PodCliqueSet",
        HpaSection(
            "grove.io",
            ("spec", "template", "podCliqueScalingGroups", EACH, "scaleConfig"),
            "grove.io/v1alpha1",
            "PodCliqueScalingGroup",
        ),
    ),
)
"""With the kind that has them."""


def hpas_inside(whole: Part) -> Iterator[tuple[dict[str, object], Path]]:
    """Yield the HPAs that an operator makes of an object, and where their specs are."""
    group = whole.text("apiVersion").rpartition("/")[0]
    for kind, section in _SECTIONS:
        if (kind, section.group) != (whole.text("kind"), group):
            continue
        if section.switch and whole.at(*section.switch).data is not True:
            continue
        for path, item in _paths(whole, section.path):
            if not whole.fields(*path):
                continue
            # Grove numbers its sets' replicas; the first one stands for all.
            name = whole.text("metadata", "name") + (f"-0-{item}" if item else "")
            target = {
                "apiVersion": section.target_version,
                "kind": section.target_kind,
                "name": name,
            }
            manifest: dict[str, object] = {
                "apiVersion": "autoscaling/v2",
                "kind": "HorizontalPodAutoscaler",
                "metadata": {**whole.fields("metadata"), "name": name},
                "spec": {**whole.fields(*path), "scaleTargetRef": target},
            }
            yield manifest, path


def _paths(whole: Part, path: Path) -> Iterator[tuple[Path, str]]:
    """Yield a path for each item of its list, with the item's name; a path without one as it is."""
    if EACH not in path:
        yield path, ""
        return
    place = path.index(EACH)
    for item in whole.items(*path[:place]):
        yield (*item.path, *path[place + 1 :]), item.text("name")
