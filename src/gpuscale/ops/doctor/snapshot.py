"""A snapshot of a cluster, which is all that checks get."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from gpuscale.base.exposition.families import Family
from gpuscale.base.objects.fields import Fields
from gpuscale.base.objects.hpa import HorizontalPodAutoscaler, MetricSpec
from gpuscale.base.objects.metric_values import ExternalValue, MetricValue
from gpuscale.hpa.terms import KubernetesVersion
from gpuscale.kube import fields_of
from gpuscale.ops.install.common import AGENT_PORT


@dataclass(frozen=True)
class Look:
    """The result of one list request."""

    items: Sequence[Mapping[str, Any]] = ()
    fault: str = ""
    """Why nothing can be seen; empty where it can, also where there is nothing to see."""
    needs: str = ""
    """The right that it takes, as `--resource` of kubectl create clusterrole names it."""

    is_served: bool = True
    """Whether the cluster knows the kind at all."""

    @cached_property
    def each(self) -> tuple[Fields, ...]:
        """Return the objects, wrapped for access to their fields."""
        return tuple(fields_of(dict(item)) for item in self.items)


@dataclass(frozen=True, slots=True)
class AgentLook:
    """The answer of one agent."""

    node: str
    pod: str
    """`namespace/name`."""
    families: Mapping[str, Family] = field(default_factory=dict)
    fault: str = ""
    needs: str = ""
    """The right that it takes to read it; empty where that is not what is missing."""
    is_locked: bool = False
    """Whether it asks for a password that is not known here."""
    has_tls: bool = False
    port: int = AGENT_PORT
    """Where it is read, in its pod."""
    said: str = ""
    """What its page /readyz says where something is wrong."""
    good_ago_s: float | None = None
    """Since its last good collect by its own clock, where the page was read."""

    @property
    def command(self) -> str:
        """Return a curl command for the agent, to be used after port forwarding."""
        scheme = "https" if self.has_tls else "http"
        tls = " --agent-ca-file CA.CRT --agent-server-name NAME" if self.has_tls else ""
        user = " --agent-username USER --agent-password-file FILE" if self.is_locked else ""
        return f"gpuscale doctor --agent {self.node}={scheme}://127.0.0.1:{self.port}{tls}{user}"


Row = tuple[Mapping[str, str], float]
"""Labels and value of one row of a query's answer."""


@dataclass(frozen=True, slots=True)
class PrometheusLook:
    """Prometheus' targets and GPU series."""

    address: str = ""
    """Empty where none was found to ask."""
    unasked: str = ""
    """Why it was not asked; empty where it was."""
    fault: str = ""
    needs: str = ""
    """The right that it takes to ask it; empty where that is not what is missing."""
    refused: int = 0
    """401 or 403 where it does not let in who asks; 0 where that is not what is missing."""
    targets: Sequence[Row] = ()
    """`up` of every target."""
    names: Sequence[Row] = ()
    """How many series there are of each `DCGM_` name."""
    usage: Sequence[Row] = ()
    """`DCGM_FI_DEV_GPU_UTIL`: its labels, and the seconds since its last sample."""


@dataclass(frozen=True, slots=True)
class MetricLook:
    """The API server's answer to an HPA's metric request."""

    spec: MetricSpec
    command: str
    """That asks the same."""
    values: Sequence[MetricValue | ExternalValue] = ()
    fault: str = ""
    """Why there is no answer."""
    explanation: Mapping[str, Any] | None = None
    """gpuscale's own, where there is no value."""
    allowed: bool | None = None
    """Whether the HPA controller may ask; None where that is unknown."""
    denied_why: str = ""


@dataclass(frozen=True, slots=True)
class HpaLook:
    """An HPA with its target and metric values."""

    hpa: HorizontalPodAutoscaler
    body: Mapping[str, Any]
    selector: str = ""
    """Of its target's pods."""
    target_fault: str = ""
    """Why its target can't be seen."""
    target_is_absent: bool = False
    metrics: Sequence[MetricLook] = ()

    @property
    def about(self) -> str:
        return f"hpa/{self.namespace}/{self.hpa.metadata.name}"

    @property
    def namespace(self) -> str:
        return self.hpa.metadata.namespace


@dataclass(frozen=True, slots=True)
class AccountRight:
    """Whether a metrics server's account has a permission."""

    account: str
    """`namespace/name`."""
    what: str
    """`create tokenreviews.authentication.k8s.io`."""
    role: str
    """The role of Kubernetes that gives it."""
    allowed: bool


@dataclass(frozen=True, slots=True)
class ScalerLook:
    """The metrics of one pod of an external scaler."""

    service: str
    """`namespace/name` of the Service that KEDA reaches it by."""
    pod: str
    streams: float | None = None
    """Open streams of activity; None where it is not gpuscale's."""
    fault: str = ""


@dataclass(frozen=True)
class Snapshot:
    """The input of all checks."""

    now_ms: int
    hpa_versions: Sequence[str] = ()
    """API versions of HPAs that the cluster serves, such as `autoscaling/v2`."""
    looks: Mapping[str, Look] = field(default_factory=dict)
    """By plural name, such as `nodes`, see `judges.KINDS`; custom resources by `PLURAL.GROUP`."""
    agents: Sequence[AgentLook] = ()
    prometheus: PrometheusLook = PrometheusLook()
    served: Mapping[str, Look] = field(default_factory=dict)
    """By API group: the resources that its discovery lists."""
    bundles: Mapping[str, str] = field(default_factory=dict)
    """By APIService: the CA of its server's Secret, in base64, as far as there is one."""
    hpas: Sequence[HpaLook] = ()
    rule_maps: Sequence[Mapping[str, Any]] = ()
    """ConfigMaps with the rules of metrics servers."""
    rights: Sequence[AccountRight] = ()
    """Of the accounts of metrics servers."""
    kubernetes: KubernetesVersion | None = None
    """The cluster's release; None where it can't be read."""
    certificates: Mapping[str, str] = field(default_factory=dict)
    """By APIService: the certificate that its server's Secret holds, as PEM."""
    agents_passed_over: int = 0
    """Agents that were not asked, as there are too many."""
    scalers: Sequence[ScalerLook] = ()
    """Ready pods of external scalers that KEDA's triggers name."""
    scaler_cas: Mapping[str, str] = field(default_factory=dict)
    """By Secret, `namespace/name`: the CA of a scaler that a TriggerAuthentication names, as PEM."""
    node_classes: Mapping[str, Fields] = field(default_factory=dict)
    """By `KIND/NAME`: the node classes that Karpenter's pools name, as far as they can be read."""
    memory: dict[Any, Any] = field(default_factory=dict, repr=False, compare=False)
    """What `facts` derived from the rest, once."""

    def all(self, plural: str) -> tuple[Fields, ...]:
        """Return the objects of a kind; none if they can't be listed."""
        return self.looks.get(plural, Look()).each

    def serves(self, plural: str) -> bool:
        """Return whether the cluster has a kind and its objects can be listed."""
        look = self.looks.get(plural)
        return look is not None and look.is_served and not look.fault

    def hides(self, plural: str) -> bool:
        """Return whether listing a kind failed, so that missing objects prove nothing."""
        return bool(self.looks.get(plural, Look()).fault)
