"""PodGroups of the Workload API: which pods get nodes together."""

from dataclasses import dataclass

from gpuscale.base.objects.fields import Fields
from gpuscale.base.objects.meta import ObjectMeta, read_meta

POD_GROUP_VERSIONS = ("scheduling.k8s.io/v1beta1", "scheduling.k8s.io/v1alpha3")


@dataclass(frozen=True, slots=True)
class PodGroup:
    """A PodGroup of Kubernetes 1.37."""

    metadata: ObjectMeta
    min_count: int | None = None
    """How many of its pods get nodes at once, or none does; None: each by itself."""


def read_pod_group(fields: Fields) -> PodGroup:
    """Return the PodGroup of a manifest."""
    policy = fields.child("spec", required=True).child("schedulingPolicy", required=True)
    if ("gang" in policy) == ("basic" in policy):
        policy.note((), "exactly one of basic and gang", found="both or neither")
    if "gang" not in policy:
        return PodGroup(read_meta(fields))
    gang = policy.child("gang")
    least = gang.integer("minCount")
    if least is None or least < 1:
        gang.note(("minCount",), "one or more", found=str(least))
    return PodGroup(read_meta(fields), least)
