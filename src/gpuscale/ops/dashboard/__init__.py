"""A live cluster or machine as the page shows it: pictures, their history, and what HPAs decide and why."""

from typing import TYPE_CHECKING

from gpuscale.base.doors import door

if TYPE_CHECKING:
    from gpuscale.ops.dashboard.dashboard import Dashboard
    from gpuscale.ops.dashboard.deciding import Decider
else:
    __getattr__ = door(__name__)

__all__ = ["Dashboard", "Decider"]
