"""HPAs and ScaledObjects in one form: what they scale, within which limits, and how fast."""

import json
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from gpuscale.base.documents.documents import Path
from gpuscale.ops.lint.findings import Place
from gpuscale.ops.lint.inputs import Inputs
from gpuscale.ops.lint.operators.made import LIMITS, Made, title_of
from gpuscale.ops.lint.parts import Part, whole_document
from gpuscale.ops.lint.workloads import ObjectKey, Workload, found_kind, key_of

_OF_KEDA: Path = ("spec", "advanced", "horizontalPodAutoscalerConfig", "behavior")


@dataclass(frozen=True, slots=True)
class Autoscaler:
    """An HPA, a ScaledObject, of which KEDA makes one, or the limits of an operator that scales by itself."""

    part: Part
    is_live: bool
    """Whether a cluster has it so; then a finding has a command that corrects it."""
    is_kedas: bool
    namespace: str
    name: str
    target_version: str
    """`apiVersion` of the target."""
    target: ObjectKey
    written_kind: str
    """The target's kind as it is written, which may be in lower case."""
    least: int
    most: int

    @property
    def title(self) -> str:
        """Return kind and name of what was written, as `HPA default/web`."""
        if self.is_made:
            return title_of(self.part.document).replace(" ", f" {self.namespace}/")
        return f"{'ScaledObject' if self.is_kedas else 'HPA'} {self.namespace}/{self.name}"

    @property
    def is_made(self) -> bool:
        """Return whether an operator makes it of a custom resource."""
        return isinstance(self.part.document, Made)

    @property
    def is_own(self) -> bool:
        """Return whether an operator scales by itself, without an HPA."""
        return self.part.text("kind") == LIMITS[1]

    @property
    def reference(self) -> Place:
        """Return the place of `scaleTargetRef`."""
        return self.part.place("spec", "scaleTargetRef")

    @property
    def most_key(self) -> str:
        """Return the field of the upper limit."""
        return "maxReplicaCount" if self.is_kedas else "maxReplicas"

    @property
    def least_key(self) -> str:
        """Return the field of the lower limit."""
        return "minReplicaCount" if self.is_kedas else "minReplicas"

    @property
    def behavior(self) -> Part:
        """Return `behavior`, wherever it is."""
        return self.part.at(*(_OF_KEDA if self.is_kedas else ("spec", "behavior")))

    def kubectl(self, verb: str, *more: str) -> str:
        """Return a kubectl command for the live object; empty for one of a file, which is edited."""
        kind = "scaledobject" if self.is_kedas else "hpa"
        words = ("kubectl", verb, kind, "-n", self.namespace, self.name, *more)
        return shlex.join(words) if self.is_live and not self.is_made else ""

    def patch(self, spec: Mapping[str, object]) -> str:
        """Return the command that merges fields into the live object's spec."""
        return self.kubectl("patch", "--type=merge", "-p", json.dumps({"spec": spec}))

    def patch_behavior(self, behavior: Mapping[str, object]) -> str:
        """Return the command that merges fields into the live object's behavior."""
        path = _OF_KEDA[1:] if self.is_kedas else ("behavior",)
        found = behavior
        for key in reversed(path):
            found = {str(key): found}
        return self.patch(found)

    def workload(self, inputs: Inputs) -> Workload | None:
        """Return what it scales; None where that is not among the inputs."""
        return inputs.workloads.get(self.target)


def autoscalers(inputs: Inputs) -> Iterator[Autoscaler]:
    """Yield HPAs and ScaledObjects; of KEDA's pair of a ScaledObject and its HPA, the former."""
    scaled = {each.scaled.metadata.key for each in inputs.scaled_objects}
    for placed in inputs.hpas:
        whole = whole_document(placed.document)
        meta, scaled_is = placed.hpa.metadata, placed.hpa.target
        owners = (
            f"{meta.namespace}/{each.text('name')}"
            for each in whole.items("metadata", "ownerReferences")
            if each.text("kind") == "ScaledObject"
        )
        if scaled.intersection(owners):
            continue
        yield Autoscaler(
            part=whole,
            is_live=placed.document.source in inputs.live,
            is_kedas=False,
            namespace=meta.namespace,
            name=meta.name,
            target_version=scaled_is.api_version,
            target=(meta.namespace, found_kind(scaled_is.kind), scaled_is.name),
            written_kind=scaled_is.kind,
            least=1 if placed.hpa.min_replicas is None else placed.hpa.min_replicas,
            most=placed.hpa.max_replicas,
        )
    for found in inputs.scaled_objects:
        meta, each = found.scaled.metadata, found.scaled
        yield Autoscaler(
            part=whole_document(found.document),
            is_live=found.document.source in inputs.live,
            is_kedas=True,
            namespace=meta.namespace,
            name=meta.name,
            target_version=each.target_api_version,
            target=(meta.namespace, found_kind(each.target_kind), each.target_name),
            written_kind=each.target_kind,
            least=each.least,
            most=each.most,
        )
    for made in inputs.limits:
        whole = whole_document(made)
        target = whole.at("spec", "scaleTargetRef")
        namespace, kind = key_of(whole)[0], target.text("kind")
        most = whole.whole("spec", "maxReplicas")
        if most is None:
            continue
        least = whole.whole("spec", "minReplicas")
        yield Autoscaler(
            part=whole,
            is_live=made.source in inputs.live,
            is_kedas=False,
            namespace=namespace,
            name=whole.text("metadata", "name"),
            target_version=target.text("apiVersion"),
            target=(namespace, found_kind(kind), target.text("name")),
            written_kind=kind,
            least=1 if least is None else least,
            most=most,
        )
