"""Usage of pods and nodes: `metrics.k8s.io`."""

from typing import TYPE_CHECKING

from gpuscale.base.doors import door

if TYPE_CHECKING:
    from gpuscale.server.metricsapi.usage import bodies
    from gpuscale.server.metricsapi.usage.bodies import node_item, pod_item
    from gpuscale.server.metricsapi.usage.measured import ObjectUsage
else:
    __getattr__ = door(__name__)

__all__ = ["ObjectUsage", "bodies", "node_item", "pod_item"]
