"""A support archive: what is needed to explain a cluster's GPU autoscaling, without its secrets."""

from typing import TYPE_CHECKING

from gpuscale.base.doors import door

if TYPE_CHECKING:
    from gpuscale.ops.bundle.archive import Archive
    from gpuscale.ops.bundle.gathering import add_cluster, add_metrics
else:
    __getattr__ = door(__name__)

__all__ = ["Archive", "add_cluster", "add_metrics"]
