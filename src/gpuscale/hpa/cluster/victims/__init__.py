"""Which pods go first when a workload gets fewer, and the costs on pods that say so."""

from typing import TYPE_CHECKING

from gpuscale.base.doors import door

if TYPE_CHECKING:
    from gpuscale.hpa.cluster.victims.costs import planned_costs
    from gpuscale.hpa.cluster.victims.order import DELETION_COST, deletion_cost, victims_first
else:
    __getattr__ = door(__name__)

__all__ = [
    "DELETION_COST",
    "deletion_cost",
    "planned_costs",
    "victims_first",
]
