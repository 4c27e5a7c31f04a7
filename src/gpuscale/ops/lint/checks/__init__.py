"""All checks of files."""

from gpuscale.base.findings import checks_by_id
from gpuscale.ops.lint.checks import (
    alerts,
    budgets,
    exporters,
    gpu_pods,
    hpas,
    karpenter,
    keda,
    limits,
    node_groups,
    pairs,
    placement,
    queues,
    room,
    rules,
    scale_targets,
    scaled_objects,
    times,
)
from gpuscale.ops.lint.inputs import FileJudge
from gpuscale.ops.lint.problems import FILE_CHECKS

READING = FileJudge("files", FILE_CHECKS, lambda inputs: inputs.findings)
"""What reading the files found."""
JUDGES = (
    READING,
    rules.JUDGE,
    hpas.JUDGE,
    scale_targets.JUDGE,
    limits.JUDGE,
    budgets.JUDGE,
    scaled_objects.JUDGE,
    keda.JUDGE,
    times.JUDGE,
    pairs.JUDGE,
    karpenter.JUDGE,
    node_groups.JUDGE,
    gpu_pods.JUDGE,
    placement.JUDGE,
    queues.JUDGE,
    alerts.JUDGE,
    exporters.JUDGE,
)
CHECKS = checks_by_id(JUDGES)
"""Every check by its id, in the order in which the docs list them."""
CHAIN_CHECKS = (
    scale_targets.SCALE_TARGET_CHECKS,
    limits.LIMIT_CHECKS,
    scaled_objects.CHAIN_CHECKS,
    times.COOLDOWN_CHECKS,
    times.START_CHECKS,
    hpas.CHAIN_CHECKS,
    budgets.BUDGET_CHECKS,
    room.ROOM_CHECKS,
)
"""Checks of autoscalers and what is about them that the doctor of a cluster lists as its own."""

__all__ = ["CHECKS", "JUDGES"]
