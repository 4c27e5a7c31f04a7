"""GPU health as metric families, and as dcgm-exporter's health family."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from gpuscale.agent.formats.dcgm import sole_owner
from gpuscale.agent.formats.labels import FamilyOptions, LabelPairs, leading_labels, pod_attributes
from gpuscale.agent.gpu.health import STATUS_FIELD, HealthVerdict, health_of, status_events
from gpuscale.agent.gpu.owners import Attribution
from gpuscale.agent.gpu.readings import GpuReading
from gpuscale.base.exposition.families import Family, Sample
from gpuscale.signals import Counter

HEALTHY = "gpuscale_gpu_healthy"
PROBLEM = "gpuscale_gpu_health_problem"


def health_families(
    readings: Sequence[GpuReading], attribution: Attribution, options: FamilyOptions
) -> tuple[Family, ...]:
    """Return the verdict on each GPU, and a sample for each thing that is wrong with one.

    A GPU without readings has no verdict. MIG instances share that of their GPU.
    """
    rows = [
        (verdict, _labels(reading, attribution, options))
        for reading in readings
        if (verdict := _verdict(reading)) is not None
    ]
    families = (
        Family(
            HEALTHY,
            "gauge",
            "1 if the GPU counts as capacity, 0 if work on it fails or must not be started.",
            tuple(Sample(labels, int(verdict.is_healthy)) for verdict, labels in rows),
        ),
        Family(
            PROBLEM,
            "gauge",
            "1 for each thing that is wrong with a GPU.",
            tuple(
                Sample((*labels, ("reason", each.reason), ("severity", each.severity)), 1)
                for verdict, labels in rows
                for each in verdict.problems
            ),
        ),
    )
    return tuple(family for family in families if family.samples)


def with_status(
    readings: Sequence[GpuReading], counters: Iterable[Counter]
) -> Sequence[GpuReading]:
    """Return the readings with dcgm-exporter's health by subsystem, where a counters file asks for it."""
    if all(row.field != STATUS_FIELD for row in counters):
        return readings
    return [
        each
        if (verdict := _verdict(each)) is None
        else replace(each, events=(*each.events, *status_events(verdict)))
        for each in readings
    ]


def _verdict(reading: GpuReading) -> HealthVerdict | None:
    return None if reading.gpu.instance is not None else health_of(reading)


def _labels(reading: GpuReading, attribution: Attribution, options: FamilyOptions) -> LabelPairs:
    attributes = pod_attributes(sole_owner(reading, attribution), options)
    names = options.hostname_labels or (("hostname",) if options.names == "4.9" else ("Hostname",))
    leading = (each for each in leading_labels(reading, options, names) if each[0] != "modelName")
    return (*leading, *sorted(attributes.items()))
