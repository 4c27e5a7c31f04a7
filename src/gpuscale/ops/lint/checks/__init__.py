"""All checks of files."""

from gpuscale.base.findings import checks_by_id
from gpuscale.ops.lint.checks import hpas, keda, pairs, rules, scaled_objects
from gpuscale.ops.lint.inputs import FileJudge
from gpuscale.ops.lint.problems import FILE_CHECKS

READING = FileJudge("files", FILE_CHECKS, lambda inputs: inputs.findings)
"""What reading the files found."""
JUDGES = (READING, rules.JUDGE, hpas.JUDGE, scaled_objects.JUDGE, keda.JUDGE, pairs.JUDGE)
CHECKS = checks_by_id(JUDGES)
"""Every check by its id, in the order in which the docs list them."""

__all__ = ["JUDGES"]
