"""A metric of a resource of Azure, which KEDA asks Azure Monitor for itself.

Source: KEDA 2.21 pkg/scalers/azure_monitor_scaler.go (keys, and what it refuses).
"""

from typing import Literal

from pydantic import Field

from gpuscale.base.documents.models import Model
from gpuscale.ops.install.fields import Target, Uuid, Word


class AzureMonitorSource(Model):
    """One metric of one resource, over the last minutes."""

    resource_uri: str = Field(pattern=r"^[^/\s\"'{}]+/[^/\s\"'{}]+/[^/\s\"'{}]+$", max_length=512)
    """The resource as NAMESPACE/TYPE/NAME, such as Microsoft.ServiceBus/namespaces/training."""
    tenant_id: Uuid
    """Of the subscription."""
    subscription_id: Uuid
    """Of the resource."""
    resource_group_name: Word
    """Of the resource."""
    metric_name: Word
    """As Azure Monitor has it, such as ActiveMessages."""
    metric_namespace: str | None = Field(default=None, pattern=r"^[^\"'{}]+$", max_length=256)
    """Of a custom metric; absent: that of the resource's type."""
    metric_filter: str | None = Field(default=None, pattern=r"^[^\"{}]+$", max_length=1024)
    """Which dimensions count, such as `EntityName eq 'jobs'`."""
    metric_aggregation_type: Literal["Average", "Total", "Maximum", "Minimum", "Count"]
    """What is made of the samples of an interval."""
    metric_aggregation_interval: str = Field(
        default="0:5:0", pattern=r"^[0-9]{1,2}:[0-9]{1,2}:[0-9]{1,2}$"
    )
    """How far back samples count, as hours:minutes:seconds; Azure has one a minute."""
    cloud: Literal["AzurePublicCloud", "AzureUSGovernmentCloud", "AzureChinaCloud"] | None = None
    """Absent: AzurePublicCloud."""
    target: Target
    """What the metric is held against."""
    target_type: Literal["AverageValue", "Value"] = "AverageValue"
    """`AverageValue`: as many pods as value / target; `Value`: as many as now, times value / target."""


class AzureMonitorMetric(Model):
    """KEDA's trigger `azure-monitor`."""

    type: Literal["AzureMonitor"]
    """Kind of the metric."""
    azure_monitor: AzureMonitorSource
