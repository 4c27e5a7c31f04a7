"""Faults of what an exporter of GPU metrics is told to serve, and what is asked for beside it.

Source: NVIDIA dcgm-exporter 4.8.2 internal/pkg/counters (a row that it can't read ends the exporter).
"""

from collections.abc import Iterator
from dataclasses import replace

from gpuscale.base.errors import QueryError
from gpuscale.base.findings import Checks, Severity
from gpuscale.base.objects.hpa import ExternalMetric, ObjectMetric, PodsMetric
from gpuscale.base.objects.scaled_object import PROMETHEUS
from gpuscale.ops.lint.findings import LintFinding, Place
from gpuscale.ops.lint.hpa_places import placed_metrics
from gpuscale.ops.lint.inputs import FileJudge, Inputs
from gpuscale.ops.lint.problems import refused
from gpuscale.series.promql import parse_query
from gpuscale.server.rules.queries import reads

_CHECKS = Checks()
WRONG_COUNTERS = _CHECKS.add(
    "wrong-counters",
    Severity.ERROR,
    "A row of an exporter's list of fields with which dcgm-exporter ends.",
    "Write three columns: a DCGM field, its type and a help text, which is quoted if it has a comma.",
)
SERIES_NOT_EXPORTED = _CHECKS.add(
    "series-not-exported",
    Severity.WARNING,
    "A series of DCGM that the exporter among the files is not told to serve.",
    "Add its row to the exporter's list of fields.",
)


def exporter_findings(inputs: Inputs) -> Iterator[LintFinding]:
    """Return wrong rows, and series that are asked for and that no exporter of the files serves."""
    faults = [(each.part, problem) for each in inputs.exporters for problem in each.read.problems]
    for part, problem in faults:
        # A newer DCGM may have a field that is not known here.
        check = WRONG_COUNTERS.at(Severity.WARNING if problem.field == "field" else Severity.ERROR)
        placed = replace(problem, field=part.place().field)
        yield refused(check, placed, "dcgm-exporter ends with an error")
    if faults:
        return
    served = {
        row.name for each in inputs.exporters for row in each.read.rows if row.type != "label"
    }
    if not served:
        return
    lists = ", ".join(str(each.part.place()) for each in inputs.exporters)
    for series, place in dict.fromkeys(_asked(inputs)):
        if series.startswith("DCGM_FI_") and series not in served | inputs.recorded:
            yield SERIES_NOT_EXPORTED.found(
                place, f"The exporter's list has no {series}, so the series is not there.", lists
            )


def _asked(inputs: Inputs) -> Iterator[tuple[str, Place]]:
    """Yield the series that autoscalers, alerts and recording rules ask for."""
    for hpa in inputs.hpas:
        for metric in placed_metrics(hpa):
            if not isinstance(metric.spec, PodsMetric | ObjectMetric | ExternalMetric):
                continue
            is_external = isinstance(metric.spec, ExternalMetric)
            rules = inputs.external if is_external else inputs.custom
            may = rules.servings(metric.spec.name)
            if may and all(each.certain and each.series for each in may):
                yield str(may[0].series), metric.name
    queries = [(each.text("expr"), each.place("expr")) for each in inputs.prometheus_rules]
    queries += [
        (trigger.query, each.place("spec", "triggers", index, "metadata", "query"))
        for each in inputs.scaled_objects
        for index, trigger in enumerate(each.scaled.triggers)
        if trigger.kind == PROMETHEUS
    ]
    for query, place in queries:
        try:
            node = parse_query(query).root
        except QueryError:
            continue
        yield from ((read.series, place) for read in reads(node) if read.series is not None)


JUDGE = FileJudge("exporters", _CHECKS, exporter_findings)
