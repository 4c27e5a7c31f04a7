"""A live cluster or machine as the page shows it: pictures, their history, and what HPAs decide and why."""

from typing import TYPE_CHECKING

from gpuscale.base.doors import door

if TYPE_CHECKING:
    from gpuscale.ops.dashboard.dashboard import Dashboard
    from gpuscale.ops.dashboard.deciding import Decider
    from gpuscale.ops.dashboard.recorded import PAST_S, Point, recorded_points
    from gpuscale.ops.dashboard.what_if import Change, read_change
else:
    __getattr__ = door(__name__)

__all__ = [
    "PAST_S",
    "Change",
    "Dashboard",
    "Decider",
    "Point",
    "read_change",
    "recorded_points",
]
