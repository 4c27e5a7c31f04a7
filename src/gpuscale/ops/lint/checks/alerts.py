"""Alerts and recording rules: series that nobody gives, rates of gauges, limits in another unit.

Prometheus takes all of it, so nothing here is an error.
"""

from collections.abc import Iterator

from gpuscale.base.errors import QueryError
from gpuscale.base.findings import Checks
from gpuscale.base.quantity import Quantity
from gpuscale.hpa.terms import unit_fault, unit_of_query
from gpuscale.ops.lint.checks.queries import RATE_OF_GAUGE, RENAMED_LABEL, query_findings
from gpuscale.ops.lint.checks.rules import UNKNOWN_GPU_SERIES, gpu_name_findings
from gpuscale.ops.lint.checks.targets import WRONG_UNIT
from gpuscale.ops.lint.findings import LintFinding, Place
from gpuscale.ops.lint.inputs import FileJudge, Inputs
from gpuscale.series.promql import Node, parse_query
from gpuscale.server.rules.queries import comparisons, reads, values_of


def prometheus_rule_findings(inputs: Inputs) -> Iterator[LintFinding]:
    """Return the faults of the queries of Prometheus' own rules."""
    for each in inputs.prometheus_rules:
        query, place = each.text("expr"), each.place("expr")
        try:
            node = parse_query(query).root
        except QueryError:
            continue  # Its Prometheus may have functions that others have not.
        for name in dict.fromkeys(read.series for read in reads(node)):
            if name is not None and name not in inputs.recorded:
                found = gpu_name_findings(name, place)
                yield from (finding for finding in found if finding.check is UNKNOWN_GPU_SERIES)
        faults = query_findings(inputs, node, place, query)
        of_alerts = {RATE_OF_GAUGE.id, RENAMED_LABEL.id}
        yield from (finding for finding in faults if finding.check.id in of_alerts)
        yield from _limits(node, place, query)


def _limits(node: Node, place: Place, query: str) -> Iterator[LintFinding]:
    """Yield comparisons of a series with a number in another unit."""
    for each in comparisons(node):
        for side, limit in ((each.left, each.right), (each.right, each.left)):
            unit, bound = unit_of_query(side), values_of(limit)
            if unit is None or bound is None or bound.low != bound.high:
                continue
            series = next((read.series for read in reads(side)), None)
            fault = unit_fault(series or "the query", Quantity(round(bound.low * 1e9)), unit)
            if fault is not None and fault.is_certain:
                yield WRONG_UNIT.found(place, fault.what, query, fault.fix(as_number=True))


JUDGE = FileJudge("alerts", Checks(), prometheus_rule_findings)
