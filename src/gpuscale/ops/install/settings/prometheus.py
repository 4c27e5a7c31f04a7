"""Where series are kept."""

from pydantic import model_validator

from gpuscale.base.documents.models import PositiveDuration
from gpuscale.ops.install.fields import Uuid, Word
from gpuscale.ops.install.pods import Object, Resources, ServedPodSettings
from gpuscale.ops.install.prometheus_auth import PrometheusAuth, PrometheusKind, PrometheusUrl

_RESOURCES: Object = {
    "requests": {"cpu": "50m", "memory": "256Mi"},
    "limits": {"memory": "1Gi"},
}


class Prometheus(ServedPodSettings):
    """Where series are kept."""

    kind: PrometheusKind = "own"
    """`own`: a small one is installed; `operator`: the Prometheus Operator's, by ServiceMonitor and
    PrometheusRule; `plain`: another, which finds the agents by their Service's annotations; `azure`: an Azure
    Monitor workspace, which AKS' managed Prometheus writes to."""
    url: PrometheusUrl | None = None
    """Its address as pods see it; needed unless it is `own`."""
    auth: PrometheusAuth = PrometheusAuth()
    """How the metrics API proves to it who it is; not for `own`."""
    identity: Uuid | None = None
    """With `azure`: client id of the identity that asks it, by Azure's workload identity."""
    release: Word | None = None
    """Value of the label `release` that an operator's Prometheus selects monitors and rules by."""
    honor_labels: bool = True
    """Whether scraped `pod` and `namespace` stay as they are; without, they arrive as `exported_pod`."""
    scrape_interval: PositiveDuration = 15_000
    """From one scrape of an agent to the next."""
    image: Word = "quay.io/prometheus/prometheus:v3.5.0"
    """Of the installation's own; a digest may follow the tag."""
    resources: Resources = _RESOURCES
    """Of the installation's own, as are the fields about pods: requests and limits of the container."""

    @model_validator(mode="after")
    def _reachable(self) -> "Prometheus":
        if self.kind != "own" and self.url is None:
            raise ValueError(f"found kind {self.kind} without url, expected where Prometheus is")
        if self.url is not None and not self.url.startswith(("http://", "https://")):
            raise ValueError(f"found url {self.url!r}, expected http://... or https://...")
        if self.kind == "own" and self.auth != PrometheusAuth():
            raise ValueError("found auth with kind own, expected operator or plain, with a url")
        return self

    @model_validator(mode="after")
    def _is_known(self) -> "Prometheus":
        """Check that credentials are given in one way only, and never over plain HTTP."""
        if self.kind != "azure":
            if self.identity is not None:
                raise ValueError(f"found identity with kind {self.kind}, expected kind: azure")
            return self
        if self.identity is None:
            raise ValueError("found kind azure without identity, expected its client id")
        if self.auth.authorization is not None or self.auth.basic_auth is not None:
            raise ValueError(
                "found auth.authorization or auth.basicAuth with kind azure, expected none"
            )
        if self.url is not None and not self.url.startswith("https://"):
            raise ValueError(f"found url {self.url!r} with kind azure, expected https://...")
        return self
