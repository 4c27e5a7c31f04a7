"""What the metrics API collects beside the node agents' streams: pods that it scrapes, and OTLP pushes."""

from typing import Annotated

from pydantic import Field, model_validator

from gpuscale.base.documents.models import Model
from gpuscale.ops.install.scale.scale import Label, Subdomain
from gpuscale.server.sources.feeds import pod_choice

LabelKey = Annotated[
    str, Field(pattern=r"^([a-z0-9.-]+/)?[A-Za-z0-9]([A-Za-z0-9_.-]*[A-Za-z0-9])?$", max_length=317)
]
LabelValue = Annotated[
    str, Field(pattern=r"^([A-Za-z0-9]([A-Za-z0-9_.-]*[A-Za-z0-9])?)?$", max_length=63)
]
Attribute = Annotated[str, Field(pattern=r"^[A-Za-z0-9_./-]+$", max_length=255)]
PortName = Annotated[str, Field(pattern=r"^[a-z0-9]([a-z0-9-]*[a-z0-9])?$", max_length=15)]


class SelectedPods(Model):
    """Pods that are scraped without an annotation."""

    namespace: Label | None = None
    """Where they are; absent: in all namespaces."""
    match_labels: dict[LabelKey, LabelValue] = Field(default={}, max_length=16)
    """Labels that they have; absent: all pods of the namespace."""
    port: Annotated[int, Field(ge=1, le=65_535)] | PortName
    """Number, or name of a port of their containers."""
    path: str = Field(default="/metrics", pattern=r"^/[A-Za-z0-9_.~/?=&%-]*$", max_length=253)
    """Where they serve their metrics."""
    https: bool = False
    """Whether they serve them by HTTPS, with a certificate that the image's CAs vouch for."""

    @model_validator(mode="after")
    def _selects(self) -> "SelectedPods":
        if self.namespace is None and not self.match_labels:
            raise ValueError("found neither namespace nor matchLabels, expected one of them")
        pod_choice(self.flag)
        return self

    @property
    def flag(self) -> str:
        """It as the server's flag takes it."""
        pairs = sorted(self.match_labels.items())
        labels = ",".join(f"{key}={value}" for key, value in pairs) or "*"
        scheme = "https:" if self.https else ""
        path = "" if self.path == "/metrics" else self.path
        return f"{self.namespace or '*'}/{labels}:{scheme}{self.port}{path}"


class ServiceAccountRef(Model):
    """A service account of others."""

    namespace: Label
    """Its namespace."""
    name: Subdomain
    """Its name."""


class Otlp(Model):
    """OTLP metrics that programs or an OpenTelemetry Collector push to `/otlp/v1/metrics`."""

    enabled: bool = False
    """Whether they are taken; with `streams`, and with one replica, which the others would not share them
    with."""
    promote: tuple[Attribute, ...] = Field(default=(), max_length=32)
    """Attributes of resources that are labels of all their series, such as k8s.pod.name; empty: those of
    Kubernetes' namespaces, pods, workloads and nodes."""
    clients: tuple[ServiceAccountRef, ...] = Field(default=(), max_length=64)
    """Service accounts that may push; who pushes may name any pod."""
