"""What GPUs, nodes, workloads and Jobs do now: one picture, of a cluster or of metrics pages."""

from typing import TYPE_CHECKING

from gpuscale.base.doors import door

if TYPE_CHECKING:
    from gpuscale.ops.top.cluster import ClusterReader, TopSettings
    from gpuscale.ops.top.gpu_rows import gpu_row
    from gpuscale.ops.top.pages import PageReader
    from gpuscale.ops.top.picture import EventRow, Picture, Reader, WorkloadRow, picture_document
    from gpuscale.ops.top.tables import TABLES, Table, overview, picture_lines
else:
    __getattr__ = door(__name__)

__all__ = [
    "TABLES",
    "ClusterReader",
    "EventRow",
    "PageReader",
    "Picture",
    "Reader",
    "Table",
    "TopSettings",
    "WorkloadRow",
    "gpu_row",
    "overview",
    "picture_document",
    "picture_lines",
]
