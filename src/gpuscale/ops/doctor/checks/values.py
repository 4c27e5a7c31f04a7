"""HPAs' metric values: missing, incomplete, too old, or of an object that does not exist."""

from collections.abc import Iterator

from gpuscale.base.findings import Checks, Fix, Severity
from gpuscale.base.objects.hpa import (
    ContainerResourceMetric,
    ObjectMetric,
    PodsMetric,
    ResourceMetric,
)
from gpuscale.base.objects.metric_values import MetricValue
from gpuscale.hpa.terms import is_namespace
from gpuscale.ops.doctor import facts
from gpuscale.ops.doctor.checks.targets import is_paused
from gpuscale.ops.doctor.judges import AUTOSCALER, ClusterFinding
from gpuscale.ops.doctor.snapshot import HpaLook, MetricLook, Snapshot
from gpuscale.ops.lint.checks.hpas import DESCRIBED_OBJECT_ABSENT
from gpuscale.signals import SIGNALS

VALUE_CHECKS = Checks(AUTOSCALER)
NO_VALUE = VALUE_CHECKS.add(
    "no-value",
    Severity.ERROR,
    "A metric without a value; explained hop by hop where gpuscale serves it.",
    "See which rule gives the metric, and of which series and labels.",
)
PODS_WITHOUT_VALUE = VALUE_CHECKS.add(
    "pods-without-value",
    Severity.WARNING,
    "Some ready pods have no value.",
    "See which hop loses them; the node agent of their nodes is the first to look at.",
)
OLD_VALUE = VALUE_CHECKS.add(
    "old-value",
    Severity.WARNING,
    "A value that was measured more than two minutes ago.",
    "See which hop is late.",
)

MAX_VALUE_AGE_MS = 120_000
"""dcgm-exporter's 30 s, a scrape's and a rule's period, twice."""
_DESCRIBED = {
    "Service": "services",
    "Deployment": "deployments",
    "StatefulSet": "statefulsets",
    "Pod": "pods",
}


def value_findings(
    snapshot: Snapshot, look: HpaLook, metric: MetricLook
) -> Iterator[ClusterFinding]:
    """Return the faults of the value of one metric of an HPA."""
    body = facts.workload_of(snapshot, look)
    if isinstance(metric.spec, ResourceMetric | ContainerResourceMetric):
        return
    if isinstance(metric.spec, ObjectMetric) and not metric.values:
        absent = _absent(snapshot, look, metric.spec)
        if absent is not None:
            yield absent
            return
    if not look.selector:
        return
    name = metric.spec.name
    if not metric.values:
        if isinstance(metric.spec, PodsMetric) and is_paused(look, body):
            return  # Without pods there is nothing to measure.
        said, fix = _explained(metric)
        yield NO_VALUE.found(look.about, f"Its metric {name} has no value.", said, fix)
        return
    yield from _pods_without(snapshot, look, metric)
    oldest = min(value.measured_ms for value in metric.values)
    age_ms = snapshot.now_ms - oldest
    if age_ms > MAX_VALUE_AGE_MS:
        yield OLD_VALUE.found(
            look.about,
            f"Its metric {name} was measured {age_ms // 1000} s ago.",
            metric.command,
            Fix(
                OLD_VALUE.fix,
                f"gpuscale metrics-api why 'pods/{look.namespace}/*' {name}",
            ),
        )


def _absent(snapshot: Snapshot, look: HpaLook, spec: ObjectMetric) -> ClusterFinding | None:
    described = spec.described_object
    plural = _DESCRIBED.get(described.kind)
    if plural is None or is_namespace(described) or not snapshot.serves(plural):
        return None
    places = facts.namespaces_by_name(snapshot, plural).get(described.name, ())
    if look.namespace in places:
        return None
    elsewhere = f"; it is in namespace {', '.join(sorted(places))}" if places else ""
    return DESCRIBED_OBJECT_ABSENT.found(
        look.about,
        f"There is no {described.kind} {look.namespace}/{described.name}, which its metric "
        f"{spec.name} is of{elsewhere}.",
        "the controller looks in the HPA's own namespace alone",
        Fix(
            f"Name a {described.kind} of namespace {look.namespace}, or use an External metric.",
            f"kubectl get {described.kind.lower()} -n {look.namespace}",
        ),
    )


def _explained(metric: MetricLook) -> tuple[str, Fix]:
    said = metric.fault or "the answer has no items"
    hops = (metric.explanation or {}).get("hops")
    for hop in hops if isinstance(hops, list) else ():
        if isinstance(hop, dict) and hop.get("state") == "failed":
            return f"{hop.get('hop')}: {hop.get('said')}", Fix(str(hop.get("fix")), metric.command)
    fix = NO_VALUE.fix
    for name, signal in SIGNALS.items():
        if metric.spec.name == signal.series != signal.metric:
            fix = (
                f"Ask for {signal.metric}, as the signal {name} serves it: {signal.series} is the name that "
                "the engine gives its series."
            )
            return said, Fix(fix, metric.command)
    if "could not find the metric" in said:
        fix = "Correct the metric's name in the HPA, or add a rule that gives it."
    return said, Fix(fix, metric.command)


def _pods_without(
    snapshot: Snapshot, look: HpaLook, metric: MetricLook
) -> Iterator[ClusterFinding]:
    if not isinstance(metric.spec, PodsMetric):
        return
    valued = {value.object_name for value in metric.values if isinstance(value, MetricValue)}
    ready = [pod for pod in facts.pods_of(snapshot, look) if facts.is_ready(pod)]
    without = [facts.name(pod) for pod in ready if facts.name(pod) not in valued]
    if without:
        yield PODS_WITHOUT_VALUE.found(
            look.about,
            f"{len(without)} of {len(ready)} ready pods have no value of {metric.spec.name}.",
            ", ".join(without[:5]),
            Fix(
                PODS_WITHOUT_VALUE.fix,
                f"gpuscale metrics-api why pods/{look.namespace}/{without[0]} {metric.spec.name}",
            ),
        )
