"""Evidence for CNCF's Kubernetes AI Conformance: a workload that is loaded, watched and judged."""

from typing import TYPE_CHECKING

from gpuscale.base.doors import door

if TYPE_CHECKING:
    from gpuscale.ops.doctor.conform.evidence import Evidence
    from gpuscale.ops.doctor.conform.files import conform_files, conform_lines
    from gpuscale.ops.doctor.conform.steps import judge
    from gpuscale.ops.doctor.conform.watching import ConformSettings, watch
else:
    __getattr__ = door(__name__)

__all__ = [
    "ConformSettings",
    "Evidence",
    "conform_files",
    "conform_lines",
    "judge",
    "watch",
]
