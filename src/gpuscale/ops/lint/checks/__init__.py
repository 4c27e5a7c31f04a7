"""All checks of files."""

from gpuscale.base.findings import checks_by_id
from gpuscale.ops.lint.checks import (
    gpu_pods,
    hpas,
    karpenter,
    keda,
    node_groups,
    pairs,
    placement,
    queues,
    rules,
    scaled_objects,
)
from gpuscale.ops.lint.inputs import FileJudge
from gpuscale.ops.lint.problems import FILE_CHECKS

READING = FileJudge("files", FILE_CHECKS, lambda inputs: inputs.findings)
"""What reading the files found."""
JUDGES = (
    READING,
    rules.JUDGE,
    hpas.JUDGE,
    scaled_objects.JUDGE,
    keda.JUDGE,
    pairs.JUDGE,
    karpenter.JUDGE,
    node_groups.JUDGE,
    gpu_pods.JUDGE,
    placement.JUDGE,
    queues.JUDGE,
)
CHECKS = checks_by_id(JUDGES)
"""Every check by its id, in the order in which the docs list them."""

__all__ = ["CHECKS", "JUDGES"]
