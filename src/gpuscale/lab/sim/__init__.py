"""The simulated cluster: pods, nodes and load on one time line, virtual or live."""

from typing import TYPE_CHECKING

from gpuscale.base.doors import door

if TYPE_CHECKING:
    from gpuscale.lab.sim.simulation import simulate
else:
    __getattr__ = door(__name__)

__all__ = ["simulate"]
