"""Installing gpuscale on a cluster, and diagnosing faults of clusters and files."""

from typing import TYPE_CHECKING

from gpuscale.base.doors import door

if TYPE_CHECKING:
    from gpuscale.ops.findings_junit import chain_junit_text, junit_text
    from gpuscale.ops.findings_sarif import chain_sarif_document, sarif_document
    from gpuscale.ops.findings_text import chain_document, chain_lines, lint_document, lint_lines
    from gpuscale.ops.gpu_series import WHOLE_GPU_RESOURCES
else:
    __getattr__ = door(__name__)

__all__ = [
    "WHOLE_GPU_RESOURCES",
    "chain_document",
    "chain_junit_text",
    "chain_lines",
    "chain_sarif_document",
    "junit_text",
    "lint_document",
    "lint_lines",
    "sarif_document",
]
