"""The `scale` section of a values file: workloads, metrics, limits, behaviour."""

from typing import TYPE_CHECKING

from gpuscale.base.doors import door

if TYPE_CHECKING:
    from gpuscale.ops.install.scale.jobs import read_job
else:
    __getattr__ = door(__name__)

__all__ = ["read_job"]
