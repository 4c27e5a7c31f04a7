"""PromQL: parsed, evaluated over the store, and written."""

from typing import TYPE_CHECKING

from gpuscale.base.doors import door

if TYPE_CHECKING:
    from gpuscale.series.promql import evaluate, tree
    from gpuscale.series.promql.budget import Budget, Check, QueryTimeoutError
    from gpuscale.series.promql.evaluate import (
        LOOKBACK_MS,
        Evaluable,
        Samples,
        instant,
        range_covered,
        range_query,
    )
    from gpuscale.series.promql.parse import (
        MAX_QUERY_CHARS,
        BadQueryError,
        Query,
        metric_names,
        parse_matchers,
        parse_once,
        parse_query,
        selectors,
    )
    from gpuscale.series.promql.rows import PlannedQuery, QueryRange
    from gpuscale.series.promql.tree import (
        SET_OPERATORS,
        Aggregate,
        Binary,
        Call,
        Cardinality,
        Matching,
        Negate,
        Node,
        Select,
        SelectRange,
        Subquery,
        Text,
        ValueType,
        children,
        value_type,
    )
    from gpuscale.series.promql.write import promql_text
else:
    __getattr__ = door(__name__)

__all__ = [
    "LOOKBACK_MS",
    "MAX_QUERY_CHARS",
    "SET_OPERATORS",
    "Aggregate",
    "BadQueryError",
    "Binary",
    "Budget",
    "Call",
    "Cardinality",
    "Check",
    "Evaluable",
    "Matching",
    "Negate",
    "Node",
    "PlannedQuery",
    "Query",
    "QueryRange",
    "QueryTimeoutError",
    "Samples",
    "Select",
    "SelectRange",
    "Subquery",
    "Text",
    "ValueType",
    "children",
    "evaluate",
    "instant",
    "metric_names",
    "parse_matchers",
    "parse_once",
    "parse_query",
    "promql_text",
    "range_covered",
    "range_query",
    "selectors",
    "tree",
    "value_type",
]
