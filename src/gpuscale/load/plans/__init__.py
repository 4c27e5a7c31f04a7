"""Load plans of other tools, read without running them: Taurus, JMeter, Locust, k6."""

from typing import TYPE_CHECKING

from gpuscale.base.doors import door

if TYPE_CHECKING:
    from gpuscale.load.plans.reading import read_plan
    from gpuscale.load.plans.types import ForeignPlan, PlannedRequest
else:
    __getattr__ = door(__name__)

__all__ = ["ForeignPlan", "PlannedRequest", "read_plan"]
