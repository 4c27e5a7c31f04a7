"""Around a sync: clients of metrics, the policies that decide, the controller's settings."""

from typing import TYPE_CHECKING

from gpuscale.base.doors import door

if TYPE_CHECKING:
    from gpuscale.hpa.controller.client import MetricsClient, observe
    from gpuscale.hpa.controller.policy import HpaPolicy, ReplicaPolicyFactory
    from gpuscale.hpa.types import DEFAULT_SETTINGS, deciding_metric
else:
    __getattr__ = door(__name__)

__all__ = [
    "DEFAULT_SETTINGS",
    "HpaPolicy",
    "MetricsClient",
    "ReplicaPolicyFactory",
    "deciding_metric",
    "observe",
]
