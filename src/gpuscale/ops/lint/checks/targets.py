"""Targets in a unit other than the metric's."""

from collections.abc import Iterator

from gpuscale.base.findings import Checks, Severity
from gpuscale.hpa.terms import MetricUnit, UnitFault, counts_average, spec_unit_fault
from gpuscale.ops.lint.findings import LintFinding, Place
from gpuscale.ops.lint.hpa_places import PlacedMetric

TARGET_CHECKS = Checks()
WRONG_UNIT = TARGET_CHECKS.add(
    "wrong-unit",
    Severity.WARNING,
    "A target in another unit than its metric's, such as 600m of a percentage.",
    "Write the target in the metric's unit.",
)
DOUBTFUL_UNIT = TARGET_CHECKS.add(
    "doubtful-unit",
    Severity.WARNING,
    "A target that seems to be in another unit than the metric's name says, such as 16 of bytes.",
    "Write the target in the metric's unit.",
)


def unit_findings(
    metric: PlacedMetric, unit: MetricUnit | None, evidence: str = ""
) -> Iterator[LintFinding]:
    """Return a finding if a metric's target is in another unit.

    Args:
        metric: the metric.
        unit: that of the query which answers it; None where its name has to do.
        evidence: where the unit comes from.
    """
    fault = spec_unit_fault(metric.spec, unit)
    if fault is not None:
        place = metric.target("averageValue" if counts_average(metric.spec) else "value")
        yield unit_finding(fault, place, evidence, fault.fix())


def unit_finding(fault: UnitFault, place: Place, evidence: str, fix: str) -> LintFinding:
    """Return the finding about a target's unit."""
    check = WRONG_UNIT if fault.is_certain else DOUBTFUL_UNIT
    return check.found(place, fault.what, evidence, fix)
