"""The search of `gpuscale tune`: parameters, outcomes, and the best settings."""

from typing import TYPE_CHECKING

from gpuscale.base.doors import door

if TYPE_CHECKING:
    from gpuscale.lab.plan.tuning.pooled import DELAY, MIN_NODES, UNNEEDED, DedicatedPool
    from gpuscale.lab.plan.tuning.workers import check_address
else:
    __getattr__ = door(__name__)

__all__ = ["DELAY", "MIN_NODES", "UNNEEDED", "DedicatedPool", "check_address"]
