"""From the text of a manifest file to objects."""

from collections.abc import Callable, Iterable, Mapping

from gpuscale.base.documents.documents import Document, load_documents
from gpuscale.base.errors import ConfigError, Problem
from gpuscale.base.objects.devices import API_VERSIONS as DEVICE_VERSIONS
from gpuscale.base.objects.devices import (
    DeviceClass,
    ResourceClaim,
    ResourceClaimTemplate,
    read_claim_template,
    read_device_class,
    read_resource_claim,
)
from gpuscale.base.objects.disruption_budgets import PodDisruptionBudget, read_disruption_budget
from gpuscale.base.objects.fields import Fields
from gpuscale.base.objects.hpa import HorizontalPodAutoscaler, read_hpa
from gpuscale.base.objects.kueue import (
    KUEUE_VERSIONS,
    KueueObject,
    read_cluster_queue,
    read_local_queue,
    read_resource_flavor,
    read_workload_priority_class,
)
from gpuscale.base.objects.nodes import Node, read_node
from gpuscale.base.objects.pod_groups import POD_GROUP_VERSIONS, PodGroup, read_pod_group
from gpuscale.base.objects.pods import Pod, read_pod
from gpuscale.base.objects.scaled_object import API_VERSION as KEDA_VERSION
from gpuscale.base.objects.scaled_object import KIND as SCALED_OBJECT
from gpuscale.base.objects.scaled_object import ScaledObject, read_scaled_object
from gpuscale.base.objects.workloads import (
    DaemonSet,
    Deployment,
    Job,
    JobSet,
    Service,
    read_daemon_set,
    read_deployment,
    read_job,
    read_job_set,
    read_leader_worker_set,
    read_service,
)

KubernetesObject = (
    Deployment
    | DaemonSet
    | Job
    | JobSet
    | Service
    | HorizontalPodAutoscaler
    | ScaledObject
    | Node
    | Pod
    | PodDisruptionBudget
    | PodGroup
    | DeviceClass
    | ResourceClaim
    | ResourceClaimTemplate
    | KueueObject
)

_READERS: dict[tuple[str, str], Callable[[Fields], KubernetesObject]] = {
    ("apps/v1", "Deployment"): read_deployment,
    ("apps/v1", "DaemonSet"): read_daemon_set,
    ("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet"): read_leader_worker_set,
    ("policy/v1", "PodDisruptionBudget"): read_disruption_budget,
    ("batch/v1", "Job"): read_job,
    ("jobset.x-k8s.io/v1alpha2", "JobSet"): read_job_set,
    ("v1", "Service"): read_service,
    ("v1", "Node"): read_node,
    ("v1", "Pod"): read_pod,
    ("autoscaling/v1", "HorizontalPodAutoscaler"): read_hpa,
    ("autoscaling/v2beta1", "HorizontalPodAutoscaler"): read_hpa,
    ("autoscaling/v2beta2", "HorizontalPodAutoscaler"): read_hpa,
    ("autoscaling/v2", "HorizontalPodAutoscaler"): read_hpa,
    (KEDA_VERSION, SCALED_OBJECT): read_scaled_object,
    **{(version, "PodGroup"): read_pod_group for version in POD_GROUP_VERSIONS},
    **{(version, "DeviceClass"): read_device_class for version in DEVICE_VERSIONS},
    **{(version, "ResourceClaim"): read_resource_claim for version in DEVICE_VERSIONS},
    **{(version, "ResourceClaimTemplate"): read_claim_template for version in DEVICE_VERSIONS},
    **{
        (version, kind): read
        for version in KUEUE_VERSIONS
        for kind, read in (
            ("ResourceFlavor", read_resource_flavor),
            ("ClusterQueue", read_cluster_queue),
            ("LocalQueue", read_local_queue),
            ("WorkloadPriorityClass", read_workload_priority_class),
        )
    },
}


def load_manifests(text: str, source: str) -> tuple[KubernetesObject, ...]:
    """Return the objects of a manifest file, in its order.

    Raises:
        ConfigError: with every fault of every document.
    """
    return read_manifests(load_documents(text, source))


def read_manifests(documents: Iterable[Document]) -> tuple[KubernetesObject, ...]:
    """Return the objects of documents, in their order.

    Raises:
        ConfigError: with every fault of every document.
    """
    objects: list[KubernetesObject] = []
    problems: list[Problem] = []
    for document in documents:
        try:
            objects.append(read_manifest(document))
        except ConfigError as error:
            problems.extend(error.problems)
    if problems:
        raise ConfigError(*problems)
    return tuple(objects)


def read_manifest(document: Document) -> KubernetesObject:
    """Return the object of one document.

    Raises:
        ConfigError: a field is wrong, or the kind is not one that gpuscale uses.
    """
    fields = Fields(document, document.data)
    fields.finish()
    api_version = fields.text("apiVersion", required=True)
    kind = fields.text("kind", required=True)
    fields.finish()
    reader = _READERS.get((api_version, kind))
    if reader is None:
        known = ", ".join(f"{version} {name}" for version, name in _READERS)
        fields.note((), f"one of {known}", found=f"{api_version} {kind}")
        fields.finish()
        raise AssertionError
    result = reader(fields)
    fields.finish()
    return result


def read_stored_hpa(body: Mapping[str, object], source: str) -> HorizontalPodAutoscaler:
    """Return an HPA of `autoscaling/v2` as an API server gives it, in a list without version and kind.

    Raises:
        ConfigError: a field is wrong.
    """
    typed = {**body, "apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler"}
    fields = Fields(Document(source, 0, typed, {}), typed)
    hpa = read_hpa(fields, is_stored=True)
    fields.finish()
    return hpa
