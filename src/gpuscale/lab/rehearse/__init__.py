"""A scenario on a real API server: Kubernetes schedules and scales, nodes and GPUs are simulated."""

from typing import TYPE_CHECKING

from gpuscale.base.doors import door

if TYPE_CHECKING:
    from gpuscale.lab.rehearse.rehearsal import Announcement, Rehearsal, clean
    from gpuscale.lab.rehearse.speed import speed_lines
    from gpuscale.lab.rehearse.target import RehearsalTarget, make_target
else:
    __getattr__ = door(__name__)

__all__ = ["Announcement", "Rehearsal", "RehearsalTarget", "clean", "make_target", "speed_lines"]
