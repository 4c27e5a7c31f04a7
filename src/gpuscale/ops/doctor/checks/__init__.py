"""The checks of a cluster, one module or more for each hop of the chain."""

from gpuscale.base.findings import checks_by_id
from gpuscale.ops.doctor.checks import (
    access,
    as_written,
    autoscalers,
    capacity,
    gpu_health,
    metrics_api,
    node_agent,
    nodes,
    prometheus,
    ready_taint,
    workload,
)

JUDGES = (
    access.JUDGE,
    nodes.JUDGE,
    ready_taint.JUDGE,
    node_agent.JUDGE,
    gpu_health.JUDGE,
    prometheus.JUDGE,
    metrics_api.JUDGE,
    autoscalers.JUDGE,
    as_written.JUDGE,
    workload.JUDGE,
    capacity.JUDGE,
)
"""In the order of the chain."""
CHECKS = checks_by_id(JUDGES)
"""Every check by its id, in the order in which the docs list them."""

__all__ = ["JUDGES"]
