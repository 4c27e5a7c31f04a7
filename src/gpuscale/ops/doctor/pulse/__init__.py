"""`doctor pulse`: the time each hop takes from load to a ready pod."""

from typing import TYPE_CHECKING

from gpuscale.base.doors import door

if TYPE_CHECKING:
    from gpuscale.ops.doctor.pulse.hops import Pulse
    from gpuscale.ops.doctor.pulse.limits import AT_ONCE, PULSE_S
    from gpuscale.ops.doctor.pulse.report import pulse_document, pulse_lines
    from gpuscale.ops.doctor.pulse.sights import ChainReader
    from gpuscale.ops.doctor.pulse.watch import PulseSettings, PulseWatch, choose
else:
    __getattr__ = door(__name__)

__all__ = [
    "AT_ONCE",
    "PULSE_S",
    "ChainReader",
    "Pulse",
    "PulseSettings",
    "PulseWatch",
    "choose",
    "pulse_document",
    "pulse_lines",
]
