"""What an installation brings beside its own parts: workloads to try it with, and a pool of GPU nodes."""

from typing import Literal

from pydantic import Field, field_validator, model_validator

from gpuscale.base.documents.models import Model
from gpuscale.base.objects.taints import moment_of
from gpuscale.ops.install.fields import Word
from gpuscale.ops.install.scale.scale import Label


class Samples(Model):
    """Workloads to try it with."""

    namespace: Label = "default"
    """Where they are made; it has to be there."""
    bert: bool = False
    """Intent detection by BERT, a Deployment and a Service."""
    vision_image: Word | None = None
    """Image of a vision API that listens on 8080; a Deployment and a Service."""
    mnist_jobs: int = Field(default=0, ge=0, le=1000)
    """Training runs on MNIST, one GPU each, all at once."""


class Taint(Model):
    """What keeps other pods off GPU nodes."""

    key: Word
    """Key of the taint."""
    value: Word
    """Value of the taint."""
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] = "NoSchedule"
    """What it does to pods that do not tolerate it."""

    @field_validator("key")
    @classmethod
    def _stays(cls, key: str) -> str:
        moment = moment_of(key)
        if moment is not None:
            raise ValueError(
                f"found {key!r}, which says that a node {moment.value}; expected the taint that the "
                "pool gives all its nodes"
            )
        return key


class NodePool(Model):
    """A pool of GPU nodes, rendered as the provider wants it; `install` leaves it to you."""

    name: str = Field(default="gpu", pattern=r"^[a-z][a-z0-9]*$", max_length=12)
    """AKS allows 12 lower-case letters and digits."""
    autoscaler: Literal["cluster-autoscaler", "karpenter"] = "cluster-autoscaler"
    """What adds and removes the nodes."""
    cluster: Word
    """Name of the cluster, as the provider knows it."""
    region: Word
    """Region of the cluster, or its location."""
    resource_group: Word | None = None
    """Of AKS."""
    zone: Word | None = None
    """One pool per zone keeps volumes and nodes together; absent: the provider chooses."""
    networks: tuple[Word, ...] = ()
    """Ids of the VSwitches of ACK."""
    instance_type: Word
    """Type of the machines, as the provider names it."""
    gpu: Word
    """The accelerator's name as the provider spells it, such as nvidia-l4."""
    gpus: int = Field(default=1, ge=1, le=16)
    """Per node."""
    min_nodes: int = Field(default=0, ge=0, le=1000)
    """Nodes that stay without load."""
    max_nodes: int = Field(default=8, ge=1, le=1000)
    """Nodes at most."""
    spot: bool = False
    """Whether nodes may be taken back by the provider, at a lower price."""
    disk_gib: int = Field(default=200, ge=30, le=4096)
    """GPU images have gigabytes."""

    @model_validator(mode="after")
    def _ordered(self) -> "NodePool":
        if self.min_nodes > self.max_nodes:
            text = f"found minNodes {self.min_nodes} above maxNodes {self.max_nodes}"
            raise ValueError(f"{text}, expected minNodes <= maxNodes")
        return self
