"""Which pods go first when a workload gets fewer."""

from typing import TYPE_CHECKING

from gpuscale.base.doors import door

if TYPE_CHECKING:
    from gpuscale.hpa.cluster.victims.order import victims_first
else:
    __getattr__ = door(__name__)

__all__ = ["victims_first"]
