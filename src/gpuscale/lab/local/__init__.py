"""The whole loop live on this machine: simulated nodes, real servers between the hops."""

from typing import TYPE_CHECKING

from gpuscale.base.doors import door

if TYPE_CHECKING:
    from gpuscale.lab.local.loop import LiveLoop, LiveOptions
else:
    __getattr__ = door(__name__)

__all__ = ["LiveLoop", "LiveOptions"]
