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
    from gpuscale.server.rules.queries.facts import (
        Read,
        as_measured,
        calls,
        carries,
        comparisons,
        contradiction,
        divides_vectors,
        does_not_grow,
        is_one_row,
        labels_read,
        may_be_empty,
        reads,
        summed_share,
        values_of,
    )
    from gpuscale.server.rules.queries.faults import (
        ANY_NAME,
        custom_node,
        external_node,
        mixed_fault,
        one_number_fault,
        selector_fault,
    )
    from gpuscale.server.rules.queries.plan import CustomPlan, plan_custom, plan_external, to_milli
else:
    __getattr__ = door(__name__)

__all__ = [
    "ANY_NAME",
    "CustomPlan",
    "Read",
    "api_names",
    "as_measured",
    "calls",
    "candidates",
    "carries",
    "comparisons",
    "contradiction",
    "custom_node",
    "divides_vectors",
    "does_not_grow",
    "external_node",
    "fixed_name",
    "is_one_row",
    "labels_read",
    "maps",
    "may_be_empty",
    "mixed_fault",
    "named_series",
    "one_number_fault",
    "plan_custom",
    "plan_external",
    "reads",
    "selector_fault",
    "summed_share",
    "to_milli",
    "values_of",
]
