"""Pod settings common to all parts, named as in usual charts such as kube-prometheus-stack."""

from collections.abc import Callable, Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, Field, field_validator, model_validator

from gpuscale.base.documents.models import Model
from gpuscale.base.documents.validation import SUBDOMAIN_PATTERN
from gpuscale.base.quantity import parse_quantity
from gpuscale.kube import shape_faults

Object = dict[str, Any]
_LABELS_OF_OURS = frozenset(
    f"app.kubernetes.io/{name}" for name in ("name", "instance", "component", "part-of")
)


def _shaped(type_name: str) -> Callable[[Object], Object]:
    def checked(value: Object) -> Object:
        if faults := shape_faults(value, type_name):
            raise ValueError("; ".join(faults))
        return value

    return checked


Toleration = Annotated[Object, AfterValidator(_shaped("core_v1.Toleration"))]
Affinity = Annotated[Object, AfterValidator(_shaped("core_v1.Affinity"))]
SpreadConstraint = Annotated[Object, AfterValidator(_shaped("core_v1.TopologySpreadConstraint"))]
EnvVar = Annotated[Object, AfterValidator(_shaped("core_v1.EnvVar"))]
Volume = Annotated[Object, AfterValidator(_shaped("core_v1.Volume"))]
VolumeMount = Annotated[Object, AfterValidator(_shaped("core_v1.VolumeMount"))]
Container = Annotated[Object, AfterValidator(_shaped("core_v1.Container"))]
SecretName = Annotated[Object, AfterValidator(_shaped("core_v1.LocalObjectReference"))]
NetworkPeer = Annotated[Object, AfterValidator(_shaped("networking_v1.NetworkPolicyPeer"))]
EgressRule = Annotated[Object, AfterValidator(_shaped("networking_v1.NetworkPolicyEgressRule"))]
PodSecurityContext = Annotated[Object, AfterValidator(_shaped("core_v1.PodSecurityContext"))]
SecurityContext = Annotated[Object, AfterValidator(_shaped("core_v1.SecurityContext"))]
DnsConfig = Annotated[Object, AfterValidator(_shaped("core_v1.PodDNSConfig"))]


def _resources(value: Object) -> Object:
    faults = shape_faults(value, "core_v1.ResourceRequirements")
    for group in ("requests", "limits"):
        for name, amount in (value.get(group) or {}).items():
            try:
                parse_quantity(amount)
            except ValueError:
                faults.append(
                    f"found {group}.{name} {amount!r}, expected an amount such as 500m or 1Gi"
                )
    if faults:
        raise ValueError("; ".join(faults))
    return value


Resources = Annotated[Object, AfterValidator(_resources)]


FIXED_MIB = 400
"""Of a memory limit, for all but the store: both processes, connections, 1 000 nodes."""
SERIES_PER_MIB = 320
"""With 100 samples of 9 bytes each, a series of 1 000 bytes takes 58 % of it; the rest is for queries."""


def max_series(resources: Object) -> int | None:
    """Return how many series of streams fit into a memory limit; None without a limit."""
    limit = resources.get("limits", {}).get("memory")
    if limit is None:
        return None
    mebibytes = parse_quantity(limit).nano // (1_000_000_000 * 2**20)
    return SERIES_PER_MIB * max(0, mebibytes - FIXED_MIB)


def _pod_labels(value: dict[str, str]) -> dict[str, str]:
    if taken := sorted(_LABELS_OF_OURS & set(value)):
        raise ValueError(f"found {', '.join(taken)}, expected other labels: these select the pods")
    return value


class ServiceSettings(Model):
    """The Service in front of a part's pods."""

    annotations: dict[str, str] = Field(default={}, description="Beside those of the installation.")
    labels: dict[str, str] = Field(default={}, description="Beside those of the installation.")


class ServiceAccount(Model):
    """The service account of a part's pods."""

    create: bool = Field(
        default=True,
        description="Whether the installation makes it; `false` takes one that is there.",
    )
    name: str | None = Field(
        default=None,
        pattern=SUBDOMAIN_PATTERN,
        max_length=253,
        description="Its name; null: the name of the part, such as gpuscale-metrics-api.",
    )
    annotations: dict[str, str] = Field(
        default={},
        description="For identities of clouds, such as eks.amazonaws.com/role-arn, "
        "azure.workload.identity/client-id or iam.gke.io/gcp-service-account.",
    )

    @model_validator(mode="after")
    def _is_named(self) -> "ServiceAccount":
        if not self.create and self.name is None:
            raise ValueError(
                "found create: false without name, expected the name of the one to use"
            )
        return self


class NetworkSettings(Model):
    """What a part's NetworkPolicy lets through, with `networkPolicies`."""

    from_: tuple[NetworkPeer, ...] = Field(
        default=(),
        alias="from",
        description="Who may reach the part's port, as `from` of a NetworkPolicy has it, beside the "
        "installation's own pods; empty: everyone.",
    )
    egress: tuple[EgressRule, ...] = Field(
        default=(),
        description="Where its pods may go, as `egress` of a NetworkPolicy has it, beside where they "
        "have to.",
    )


class PodSettings(Model):
    """A part's pods: what the part needs, with mappings merged into it; a list replaces the part's own."""

    strategy_type: ClassVar[str] = "apps_v1.DeploymentStrategy"
    resources: Resources = Field(
        default={},
        description="Requests and limits of the container; null in place of an amount removes it.",
    )
    node_selector: dict[str, str] = Field(
        default={}, description="Labels that nodes must have, beside what affinity asks for."
    )
    tolerations: tuple[Toleration, ...] | None = Field(
        default=(), description="Taints of nodes that the pods may run on."
    )
    affinity: Affinity | None = Field(
        default=None,
        description="In place of the part's own: the node agent and the device plugin run on the nodes with "
        "GPUs that the provider's labels name. `{}` is none.",
    )
    topology_spread_constraints: tuple[SpreadConstraint, ...] | None = Field(
        default=None,
        description="In place of the part's own: replicas of the metrics API go to different nodes if they "
        "can. Without a labelSelector, the part's pods are meant.",
    )
    priority_class_name: str | None = Field(
        default=None, max_length=253, description="Which pods give way when nodes are full."
    )
    pod_annotations: dict[str, str] = Field(default={}, description="Annotations of the pods.")
    pod_labels: Annotated[dict[str, str], AfterValidator(_pod_labels)] = Field(
        default={}, description="Labels of the pods, beside those of the installation."
    )
    service_account: ServiceAccount = ServiceAccount()
    image_pull_secrets: tuple[SecretName, ...] = Field(
        default=(),
        description="Secrets with credentials for registries, as `- name: NAME`, beside those for all parts.",
    )
    update_strategy: Object | None = Field(
        default=None, description="How pods are replaced, in place of the part's own way."
    )
    pod_security_context: PodSecurityContext = Field(
        default={}, description="Merged into the pods' securityContext."
    )
    security_context: SecurityContext = Field(
        default={},
        description="Merged into the container's securityContext, which has the least rights that the "
        "settings need.",
    )
    host_network: bool = Field(
        default=False, description="Whether the pods use the network of their nodes."
    )
    dns_policy: Literal["ClusterFirst", "ClusterFirstWithHostNet", "Default", "None"] | None = (
        Field(
            default=None,
            description="Null: ClusterFirst, or ClusterFirstWithHostNet with hostNetwork.",
        )
    )
    dns_config: DnsConfig = Field(default={}, description="Name servers and options of the pods.")
    extra_args: tuple[str, ...] = Field(
        default=(),
        description="Behind the arguments of the container; of two equal flags the last holds.",
    )
    extra_env: tuple[EnvVar, ...] = Field(
        default=(), description="Environment variables of the container, beside the part's own."
    )
    extra_volumes: tuple[Volume, ...] = Field(
        default=(), description="Further volumes of the pods."
    )
    extra_volume_mounts: tuple[VolumeMount, ...] = Field(
        default=(), description="Further mounts of the container."
    )
    extra_containers: tuple[Container, ...] = Field(
        default=(),
        description="Further containers of the pods, such as a proxy that signs requests.",
    )

    @field_validator("update_strategy")
    @classmethod
    def _is_strategy(cls, value: Object | None) -> Object | None:
        return value if value is None else _shaped(cls.strategy_type)(value)

    @field_validator("resources", mode="before")
    @classmethod
    def _merged_resources(cls, value: object) -> object:
        default = cls.model_fields["resources"].default
        return merged(default, value) if isinstance(value, Mapping) else value


class ServedPodSettings(PodSettings):
    """Pods behind a Service."""

    service: ServiceSettings = ServiceSettings()
    network_policy: NetworkSettings = NetworkSettings()


def merged(base: Mapping[str, Any], more: Mapping[str, Any]) -> Object:
    """Return two mappings merged as Helm merges values: null removes a key."""
    found = dict(base)
    for key, value in more.items():
        below = found.get(key)
        if value is None:
            found.pop(key, None)
        elif isinstance(value, Mapping):
            found[key] = merged(below if isinstance(below, Mapping) else {}, value)
        else:
            found[key] = value
    return found
