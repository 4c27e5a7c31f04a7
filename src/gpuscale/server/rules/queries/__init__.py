"""Queries of rules: filling them in, widening them to many objects, checking them."""

from typing import TYPE_CHECKING

from gpuscale.base.doors import door

if TYPE_CHECKING:
    from gpuscale.server.rules.queries.backwards import (
        api_names,
        candidates,
        fixed_name,
        maps,
        named_series,
    )
    from gpuscale.server.rules.queries.plan import CustomPlan, plan_custom, plan_external, to_milli
else:
    __getattr__ = door(__name__)

__all__ = [
    "CustomPlan",
    "api_names",
    "candidates",
    "fixed_name",
    "maps",
    "named_series",
    "plan_custom",
    "plan_external",
    "to_milli",
]
