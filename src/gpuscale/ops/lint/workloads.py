"""What autoscalers scale: objects with replicas or a pod template, of files and of a cluster alike."""

from dataclasses import dataclass
from functools import cached_property

from gpuscale.base.objects.fields import Fields
from gpuscale.base.objects.gpu_resources import gpu_kind, has_fraction
from gpuscale.base.objects.selectors import Selector
from gpuscale.ops.lint.gpu_pods import GpuPods
from gpuscale.ops.lint.operators.made import title_of
from gpuscale.ops.lint.parts import Part

ObjectKey = tuple[str, str, str]
"""Namespace, kind and name."""
SCALED = {
    "Deployment": "apps/v1",
    "StatefulSet": "apps/v1",
    "ReplicaSet": "apps/v1",
    "ReplicationController": "v1",
}
"""Kubernetes' own kinds that can be scaled, with their API version."""
_IN_LOWER_CASE = {each.lower(): each for each in SCALED}


def found_kind(kind: str) -> str:
    """Return the kind that Kubernetes' clients find: one in lower case too, and no other case.

    Source: client-go restmapper/discovery.go.
    """
    return _IN_LOWER_CASE.get(kind, kind)


def key_of(whole: Part) -> ObjectKey:
    """Return namespace, kind and name of an object."""
    namespace = whole.text("metadata", "namespace") or "default"
    return namespace, whole.text("kind"), whole.text("metadata", "name")


@dataclass(frozen=True)
class Workload:
    """An object that may be scaled."""

    part: Part
    """All of it."""
    is_live: bool
    """Whether a cluster has it so; otherwise it is a manifest, which may be applied again."""
    template_of: Part | None = None
    """The object whose template it takes, as an Argo Rollout does with `workloadRef`; None for its own."""

    @property
    def title(self) -> str:
        """Return kind and name of what was written."""
        return title_of(self.part.document)

    @cached_property
    def pods(self) -> GpuPods:
        """Return the pods of its template; a workload without one has pods that ask for nothing."""
        whole = self.template_of or self.part
        namespace, kind, name = key_of(whole)
        return GpuPods(whole.at("spec", "template", "spec"), kind, name, namespace, "", 1)

    @property
    def has_template(self) -> bool:
        """Return whether its pods can be seen, which those of some custom resources can't."""
        return any(True for _ in self.pods.part.items("containers"))

    @property
    def asks_for_gpus(self) -> bool:
        """Return whether a pod asks for a GPU, whole or partial, in any way."""
        return (
            any(gpu_kind(name) is not None for name in self.pods.requests)
            or has_fraction(
                {key: str(value) for key, value in self.pods.annotations.items()}, self.pods.labels
            )
            or bool(self.pods.part.at("resourceClaims").data)
        )

    @cached_property
    def selector(self) -> Selector | None:
        """Return what selects its pods; None where it does not say."""
        spec = self.part.at("spec")
        return Fields(spec.document, spec.data, spec.path).selector("selector")

    @property
    def controller(self) -> tuple[str, str] | None:
        """Return kind and name of what owns it; None without one."""
        for each in self.part.items("metadata", "ownerReferences"):
            if each.at("controller").data is True:
                return each.text("kind"), each.text("name")
        return None

    @property
    def written_replicas(self) -> int | None:
        """Return the replicas of a manifest; None of a live object, and of a copy of one."""
        is_copy = bool(self.part.text("metadata", "uid"))
        return None if self.is_live or is_copy else self.part.whole("spec", "replicas")
