"""Pods in manifests of any kind that ask for GPUs, and DaemonSets that GPU nodes need."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from gpuscale.base.documents.documents import Document, Path
from gpuscale.base.objects.fields import Fields
from gpuscale.base.objects.gpu_resources import counts_gpus, gpu_kind
from gpuscale.base.objects.pods import PodSpec, read_pod_spec
from gpuscale.base.objects.requests import total_requests
from gpuscale.base.quantity import Quantity
from gpuscale.ops.lint.operators.made import Made, title_of
from gpuscale.ops.lint.parts import Part, whole_document

_NANO = 1_000_000_000
_GROUP_LABELS = ("scheduling.x-k8s.io/pod-group", "pod-group.scheduling.sigs.k8s.io")
"""Of scheduler-plugins' coscheduling, now and before 0.24."""
_VOLCANOS_GROUP = "scheduling.k8s.io/group-name"
_NODE_PARTS = ("device-plugin", "dcgm-exporter", "gpuscale-agent")
"""What images and names of DaemonSets have that GPU nodes need."""


@dataclass(frozen=True)
class GpuPods:
    """The pods of one template in a manifest."""

    part: Part
    """The pod's spec."""
    kind: str
    name: str
    namespace: str
    role: str
    """Which of several templates of the manifest, as `worker`; empty for the only one."""
    copies: int
    """How many of them one replica has."""

    @property
    def title(self) -> str:
        """Return the kind and name of the object that was written."""
        return title_of(self.part.document)

    @property
    def template(self) -> Part:
        """Return what the spec is in: the template, or the pod."""
        return Part(self.part.document, (), self.part.document.data).at(*self.part.path[:-1])

    @cached_property
    def spec(self) -> PodSpec:
        """Return the spec as the scheduler reads it; fields of a wrong type count as absent."""
        return read_pod_spec(Fields(self.part.document, self.part.data, self.part.path))

    @cached_property
    def requests(self) -> Mapping[str, Quantity]:
        """Return what one pod asks for."""
        spec = self.spec
        total = total_requests(spec.containers, spec.init_containers, spec.requests, spec.overhead)
        return {name: Quantity(nano) for name, nano in total.items() if nano}

    @cached_property
    def gpus(self) -> Mapping[str, int]:
        """Return how many GPUs one pod asks for, by resource."""
        return {name: each.value() for name, each in self.requests.items() if counts_gpus(name)}

    @property
    def labels(self) -> Mapping[str, str]:
        return {
            str(key): str(value)
            for key, value in self.template.fields("metadata", "labels").items()
        }

    @property
    def annotations(self) -> Mapping[str, object]:
        return self.template.fields("metadata", "annotations")

    @property
    def is_node_part(self) -> bool:
        """Return whether it is a DaemonSet that GPU nodes need, such as the device plugin."""
        images = (each.image for each in self.spec.containers)
        words = (self.name, *images)
        return self.kind == "DaemonSet" and any(
            part in word for part in _NODE_PARTS for word in words
        )


def gpu_pods_of(document: Document) -> Iterator[GpuPods]:
    """Yield the pods of a manifest that ask for GPUs or claims, or that GPU nodes need."""
    whole = whole_document(document)
    kind, name = whole.text("kind"), whole.text("metadata", "name")
    if kind == "CustomResourceDefinition":
        return
    namespace = whole.text("metadata", "namespace") or "default"
    found = list(_specs(whole))
    for spec in found:
        pods = GpuPods(
            spec,
            kind,
            name,
            namespace,
            _role(spec.path) if len(found) > 1 else "",
            _copies(whole, spec.path),
        )
        asks = any(
            _asks(each) for key in ("containers", "initContainers") for each in spec.items(key)
        )
        if asks or spec.at("resourceClaims").data or pods.is_node_part:
            yield pods


def group_of(pods: GpuPods) -> str:
    """Return the name of the PodGroup that pods are placed with; empty where there is none."""
    labelled = (pods.labels.get(each, "") for each in _GROUP_LABELS)
    named = str(pods.annotations.get(_VOLCANOS_GROUP, ""))
    return pods.spec.scheduling_group or named or next(filter(None, labelled), "")


def containers_of(spec: Part) -> Iterator[Part]:
    """Yield the containers of a pod's spec."""
    yield from spec.items("containers")
    yield from spec.items("initContainers")


def _specs(part: Part) -> Iterator[Part]:
    data = part.data
    if isinstance(data, dict):
        containers = data.get("containers")
        if isinstance(containers, list) and any(isinstance(each, dict) for each in containers):
            yield part
            return
        for key in data:
            yield from _specs(part.at(key))
    elif isinstance(data, list):
        for each in part.items():
            yield from _specs(each)


def _asks(container: Part) -> bool:
    resources = (container.fields("resources", each) for each in ("limits", "requests"))
    return any(gpu_kind(str(name)) is not None for each in resources for name in each)


def _role(path: Path) -> str:
    """Return the name of a template: the key or the place of the list that tells it from others."""
    keys = [each for each in path if each not in ("spec", "template")]
    return ".".join(str(each) for each in keys[-2:])


def _copies(whole: Part, path: Path) -> int:
    """Return how many pods of a template one replica of an object has."""
    if isinstance(whole.document, Made):
        made = whole.whole("spec", "copies")
        if made is not None:
            return made
    if whole.text("kind") == "LeaderWorkerSet":
        group = whole.at("spec", "leaderWorkerTemplate")
        size = group.whole("size") or 1
        if "leaderTemplate" in path:
            return 1
        return size - 1 if group.fields("leaderTemplate") else size
    if whole.text("kind") == "JobSet":
        for index, job in enumerate(whole.items("spec", "replicatedJobs")):
            if path[:3] == ("spec", "replicatedJobs", index):
                pods = job.whole("template", "spec", "parallelism")
                jobs = job.whole("replicas")
                return (1 if pods is None else pods) * (1 if jobs is None else jobs)
    if whole.text("kind") == "Job":
        return whole.whole("spec", "parallelism") or 1
    return 1
