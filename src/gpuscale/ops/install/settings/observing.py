"""What people see of an installation: alerts and dashboards."""

from typing import Literal

from pydantic import Field

from gpuscale.base.documents.models import Model, PositiveDuration
from gpuscale.ops.install.fields import MAX_TARGET, Word
from gpuscale.ops.install.scale.scale import Label


class Alerts(Model):
    """Alert rules, beside the recording rules."""

    enabled: bool = True
    """Whether Prometheus gets the alert rules."""
    idle: PositiveDuration = 1_800_000
    """How long a GPU may do nothing for the pod that has it."""
    node_start: PositiveDuration = 900_000
    """How long a pod may wait for a GPU: a little longer than a node takes."""
    docs_url: Word = "docs/alerts.md"
    """Where the page about alerts is for you; each alert leads to its section there."""


class Dashboards(Model):
    """Grafana's dashboards, as ConfigMaps that its sidecar loads."""

    enabled: bool = True
    """Whether the ConfigMaps are made."""
    namespace: Label | None = None
    """Where Grafana looks for them; absent: the installation's."""
    label: str = Field(default="grafana_dashboard", pattern=r"^[A-Za-z0-9][A-Za-z0-9_./-]*$")
    """Label that the sidecar selects by; its value is 1."""
    folder: str = Field(default="gpuscale", pattern=r"^[^\x00-\x1f]+$", max_length=64)
    """Folder in Grafana, where the sidecar uses the annotation `grafana_folder`."""
    gpu_hour_price: float = Field(default=2.5, ge=0, le=MAX_TARGET)
    """What a GPU costs per hour; the dashboard's own variable can be changed there."""
    currency: Literal["USD", "EUR", "GBP", "JPY", "KRW", "CNY", "INR"] = "USD"
    """Of gpuHourPrice."""
