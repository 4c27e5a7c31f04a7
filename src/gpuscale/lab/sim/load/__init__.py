"""Load on services, and the GPU work it causes."""

from typing import TYPE_CHECKING

from gpuscale.base.doors import door

if TYPE_CHECKING:
    from gpuscale.lab.sim.load.traces import load_trace, seconds_of_time
else:
    __getattr__ = door(__name__)

__all__ = ["load_trace", "seconds_of_time"]
