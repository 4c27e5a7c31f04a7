"""`azure_custom_metrics` in the file: samples sent as custom metrics of an Azure resource.

Source: Microsoft, "Custom metrics in Azure Monitor" and "Ingest custom metrics for an Azure resource using
    the REST API" (address, scope of tokens, limits).
"""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Self

from pydantic import Field, model_validator

from gpuscale.series.remote_write import MAX_AGE_S, MAX_CHARS, MAX_DIMENSIONS
from gpuscale.server.sources.http.entra import is_safe
from gpuscale.server.sources.remote_write.azuread import AzureAdModel
from gpuscale.server.sources.remote_write.models import FileModel, RelabelModel, Seconds
from gpuscale.server.sources.remote_write.settings import (
    LABEL_NAME,
    AzureMonitorMetrics,
    RemoteWriteEndpoint,
)

_SCOPE = "https://monitoring.azure.com//.default"
_RESOURCE = r"^/subscriptions/[^/\s?#]+/resource[gG]roups/[^/\s?#]+/providers/[^\s?#]+$"
_MARGIN_S = 60.0
"""What a sample may still take on its way."""
_MOST_SAMPLES = 1_000
"""Of a message: a few milliseconds of the process each."""
DIMENSIONS = (
    "container_azm_ms_clusterId",
    "container_azm_ms_clusterName",
    "containerName",
    "gpuId",
    "gpuModel",
    "gpuVendor",
    "node",
)
"""Those of Container Insights' seven metrics, and the node."""
_SEVEN = RelabelModel(
    source_labels=["__name__"], regex="containerGpu.+|nodeGpu.+", modulus=0, action="keep"
)
Text = Annotated[str, Field(min_length=1, max_length=MAX_CHARS)]


class AzureMetricsModel(FileModel):
    """The model of an Azure resource that receives custom metrics."""

    resource_id: str = Field(pattern=_RESOURCE, max_length=1024)
    """Of the cluster, or another resource; not of a subscription or a resource group."""
    region: str | None = Field(None, pattern=r"^[a-z0-9]+$")
    """Of the resource, such as eastus."""
    url: str | None = None
    """In place of `region`: address of another cloud's endpoint, such as https://usgovvirginia.monitoring.azure.us."""
    namespace: Text = "gpuscale"
    name: str = ""
    azuread: AzureAdModel
    dimensions: list[Text] = Field(list(DIMENSIONS), max_length=MAX_DIMENSIONS)
    """Labels that are sent; series that differ in others are one."""
    write_relabel_configs: list[RelabelModel] = [_SEVEN]
    interval: Seconds = Field(60.0, ge=1, le=900)
    timeout: Seconds = Field(30.0, gt=0, le=3600)

    @model_validator(mode="after")
    def _is_usable(self) -> Self:
        if (self.region is None) == (self.url is None):
            raise ValueError("found both or none of region and url, expected one")
        if self.url is not None and not is_safe(self.url):
            raise ValueError(f"found url {self.url!r}, expected one that begins with https://")
        wrong = [each for each in self.dimensions if not LABEL_NAME.fullmatch(each)]
        if wrong or len(set(self.dimensions)) < len(self.dimensions):
            found = wrong[0] if wrong else "a dimension twice"
            raise ValueError(f"found {found}, expected names of labels, each once")
        return self

    def endpoint(self, labels: Mapping[str, str], folder: Path) -> RemoteWriteEndpoint:
        """Return the receiver; relative paths of files start at a folder."""
        base = (self.url or f"https://{self.region}.monitoring.azure.com").rstrip("/")
        login = self.azuread.login(folder)
        return RemoteWriteEndpoint(
            url=f"{base}{self.resource_id}/metrics",
            name=self.name,
            timeout_s=self.timeout,
            azure_login=login if self.azuread.scope else replace(login, scope=_SCOPE),
            external_labels=tuple(labels.items()),
            rules=tuple(each.rule() for each in self.write_relabel_configs),
            requests=1,
            max_samples=_MOST_SAMPLES,
            interval_s=self.interval,
            min_backoff_s=1.0,
            max_backoff_s=60.0,
            max_age_s=MAX_AGE_S - _MARGIN_S,
            azure_metrics=AzureMonitorMetrics(self.namespace, tuple(self.dimensions)),
        )
