"""Lint: faults of rule files, autoscalers and node pools, found before anything runs. No I/O."""

from typing import TYPE_CHECKING

from gpuscale.base.doors import door

if TYPE_CHECKING:
    from gpuscale.ops.lint.admission import admission_policies
    from gpuscale.ops.lint.baseline import baseline_text, without_known
    from gpuscale.ops.lint.cluster import Cluster
    from gpuscale.ops.lint.findings import LintReport
    from gpuscale.ops.lint.ignores import without_ignored
    from gpuscale.ops.lint.inputs import FileJudge, is_block
    from gpuscale.ops.lint.linting import lint, together
    from gpuscale.ops.lint.problems import (
        BROKEN_FILE,
        REFUSED_SCENARIO,
        REFUSED_VALUES,
        problems_of_errors,
        refused,
    )
else:
    __getattr__ = door(__name__)

__all__ = [
    "BROKEN_FILE",
    "REFUSED_SCENARIO",
    "REFUSED_VALUES",
    "Cluster",
    "FileJudge",
    "LintReport",
    "admission_policies",
    "baseline_text",
    "is_block",
    "lint",
    "problems_of_errors",
    "refused",
    "together",
    "without_ignored",
    "without_known",
]
