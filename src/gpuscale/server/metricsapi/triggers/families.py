"""Metrics of triggers, the same for the metrics API and for KEDA's scaler."""

from collections import Counter
from collections.abc import Mapping

from gpuscale.base.exposition.families import Family, Sample
from gpuscale.server.metricsapi.telemetry.histograms import Labels
from gpuscale.server.metricsapi.triggers.watch import TriggerWatch

PREFIX = "gpuscale_trigger"
_BASES = ("measured", "held", "fallback", "unavailable", "pending")


def trigger_families(watch: TriggerWatch) -> tuple[Family, ...]:
    """Return the families; no label has a value that a client could choose."""
    bases: Counter[str] = Counter()
    longest_s, active = 0.0, 0
    for _, answer in watch.answers():
        bases["pending" if answer is None else answer.basis] += 1
        if answer is not None:
            longest_s = max(longest_s, answer.held_s)
            active += bool(answer.is_active)
    counts = watch.counts
    return (
        trigger_family(
            "count",
            "gauge",
            "Triggers that are watched, by what their answers rest on.",
            {(("basis", basis),): bases[basis] for basis in _BASES},
        ),
        trigger_family("active_count", "gauge", "Triggers that are active.", {(): active}),
        trigger_family(
            "longest_held_seconds",
            "gauge",
            "How long a source of some trigger has been away; 0 while all answer.",
            {(): longest_s},
        ),
        trigger_family(
            "text_bytes", "gauge", "Memory that counts for triggers.", {(): watch.size_bytes}
        ),
        trigger_family(
            "evaluations_total", "counter", "Decisions about triggers.", {(): counts.evaluations}
        ),
        trigger_family(
            "evaluation_seconds_total",
            "counter",
            "Time from the questions to the decision, of all of them.",
            {(): counts.seconds},
        ),
        trigger_family(
            "wakes_total",
            "counter",
            "How often a wake source became active, by kind of source.",
            {(("source", source),): count for source, count in counts.wakes.items()},
        ),
        trigger_family(
            "basis_changes_total",
            "counter",
            "How often answers came to rest on something else, by what that is.",
            {(("basis", basis),): count for basis, count in counts.changes.items()},
        ),
        trigger_family(
            "refused_total", "counter", "Triggers beyond the limits.", {(): counts.refused}
        ),
    )


def trigger_family(name: str, type_: str, help_: str, values: Mapping[Labels, float]) -> Family:
    """Return a family with the common name prefix, its samples sorted by labels."""
    samples = tuple(Sample(labels, value) for labels, value in sorted(values.items()))
    return Family(f"{PREFIX}_{name}", type_, help_, samples)
