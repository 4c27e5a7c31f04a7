"""Changes of the manifests' HPAs during a scenario."""

from dataclasses import replace

from gpuscale.base.objects.hpa import HorizontalPodAutoscaler, MetricTarget, TargetType
from gpuscale.base.quantity import Quantity, parse_quantity
from gpuscale.lab.sim.scenario import model as spec
from gpuscale.lab.sim.scenario.references import References
from gpuscale.lab.sim.scenario.setup import HpaChange


def read_hpa_changes(
    run: spec.ScenarioSpec, hpas: tuple[HorizontalPodAutoscaler, ...], references: References
) -> tuple[HpaChange, ...]:
    """Return the HPAs from each time on, oldest first; faults are collected."""
    now = {hpa.metadata.key: hpa for hpa in hpas}
    found: list[HpaChange] = []
    for index, change in sorted(enumerate(run.hpa_changes), key=lambda each: each[1].at):
        path = ("hpaChanges", index)
        key = change.hpa if "/" in change.hpa else f"default/{change.hpa}"
        hpa = now.get(key)
        if hpa is None:
            references.note_missing("HorizontalPodAutoscaler", change.hpa, (*path, "hpa"), now)
            continue
        metrics = list(hpa.metrics)
        for name, value in change.targets.items():
            of_name = [place for place, metric in enumerate(metrics) if metric.name == name]
            if len(of_name) != 1:
                there = ", ".join(metric.name for metric in metrics) or "none"
                expected = f"the name of exactly one metric of {key} (there: {there})"
                references.note((*path, "targets"), expected, found=repr(name))
                continue
            try:
                target = _with_value(metrics[of_name[0]].target, value)
            except ValueError as error:
                references.note((*path, "targets", name), str(error), found=repr(value))
                continue
            metrics[of_name[0]] = replace(metrics[of_name[0]], target=target)
        least = hpa.min_replicas if change.min_replicas is None else change.min_replicas
        most = change.max_replicas or hpa.max_replicas
        if least is not None and least > most:
            limits = f"minReplicas {least} above maxReplicas {most}"
            references.note(path, "minReplicas <= maxReplicas", found=limits)
        now[key] = replace(hpa, min_replicas=least, max_replicas=most, metrics=tuple(metrics))
        found.append(HpaChange(change.at, now[key]))
    return tuple(found)


def _with_value(target: MetricTarget, value: str | float) -> MetricTarget:
    """Return a target of the same type with another number.

    Raises:
        ValueError: it is none that Kubernetes takes; the message says what was expected.
    """
    try:
        quantity = parse_quantity(value)
    except ValueError:
        quantity = Quantity(0)
    if quantity.nano <= 0:
        raise ValueError("a quantity above 0, such as 60 or 500m")
    if target.type is TargetType.VALUE:
        return replace(target, value=quantity)
    if target.type is TargetType.AVERAGE_VALUE:
        return replace(target, average_value=quantity)
    percent, rest = divmod(quantity.nano, 1_000_000_000)
    if rest:
        raise ValueError("whole percent, as the target is a utilisation")
    return replace(target, average_utilization=percent)
