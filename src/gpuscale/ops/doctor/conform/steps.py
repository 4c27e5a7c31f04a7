"""The steps of the evidence: what each has to show, and the hollow ways to show it that it refuses.

Requirements are those of CNCF's Kubernetes AI Conformance (kubernetes-sigs/ai-conformance, KAR-0057
pod_autoscaling and KAR-0059 accelerator_metrics). Upstream's own tests prove the pipeline with a number that
the pod sets itself; these steps want the accelerator's use to be what moves.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from gpuscale.ops.doctor.conform.evidence import Evidence, MetricEvidence
from gpuscale.ops.doctor.pulse.hops import GPU_RISE_PERCENT, VALUE_RISE_RATIO, PodStage
from gpuscale.ops.doctor.pulse.sights import ChainSight, DeviceSight

PODS, DEVICES = "pod_autoscaling", "accelerator_metrics"
NOT_RUN = {
    "cluster_autoscaling": "it needs a pool with room for one node more, and is not here yet",
    "ai_service_metrics": "it needs a workload of its own that counts requests, and is not here yet",
}
"""Requirements about autoscaling and metrics that no step here is about."""
_OLDEST_MS = 90_000
"""Of a value: a scrape of 30 s, a rule's interval and the metrics API's own look."""


@dataclass(frozen=True, slots=True)
class StepResult:
    """What became of a step."""

    requirement: str
    id: str
    title: str
    passed: bool | None
    """None where it was not come to."""
    found: str
    fix: str = ""

    @property
    def name(self) -> str:
        """Return its name as a test: not one of upstream's, which are upstream's own."""
        return f"gpuscale/{self.requirement}/{self.id}"


@dataclass(frozen=True, slots=True)
class _Step:
    requirement: str
    id: str
    title: str
    ask: Callable[[Evidence], tuple[bool, str]]
    fix: str
    needs: str = ""
    """The part of the run that it looks at: `before`, `loaded` or `after`; empty for none."""


def judge(evidence: Evidence) -> list[StepResult]:
    """Return what became of each step, in order."""
    found = []
    for step in _STEPS:
        if step.needs and not getattr(evidence, step.needs):
            result: tuple[bool | None, str] = (None, "the run ended before")
        else:
            result = step.ask(evidence)
        fix = step.fix if result[0] is False else ""
        found.append(StepResult(step.requirement, step.id, step.title, *result, fix))
    return found


# pod_autoscaling


def _metric(seen: Evidence) -> tuple[bool, str]:
    shown = ", ".join(f"{each.kind} {each.name}" for each in seen.metrics)
    return bool(seen.metrics) and all(each.served for each in seen.metrics), shown


def _room(seen: Evidence) -> tuple[bool, str]:
    return seen.minimum < seen.maximum, f"minReplicas {seen.minimum}, maxReplicas {seen.maximum}"


def _idle(seen: Evidence) -> tuple[bool, str]:
    """The target is not exceeded, nothing scales, and there is room above."""
    wanted = sorted({(each.desired, each.asked, len(each.pods)) for each in seen.before}, key=str)
    (desired, asked, pods), *others = wanted
    shown = f"wanted {desired}, in the spec {asked}, pods {pods}"
    if others:
        return False, f"the size changed before there was any load: {shown}, then {others[-1]}"
    return 0 < (seen.before[-1].size or 0) < seen.maximum, shown


def _held(seen: Evidence) -> tuple[bool, str]:
    """Each pod asks for an accelerator, and the node's exporter names the pod at one."""
    for sight in (seen.before[-1], *seen.loaded[-1:]):
        without = [each.name for each in sight.pods if not each.asks]
        if without:
            return False, f"asks for no accelerator: {', '.join(without)}"
        ready = {f"{seen.namespace}/{p.name}" for p in sight.pods if p.stage is PodStage.READY}
        if unnamed := sorted(ready - {each.pod for each in sight.devices}):
            why = "; ".join(sight.agent_faults) or "no exporter names it at a device"
            return False, f"{unnamed[0]}: {why}"
    last = (seen.loaded or seen.before)[-1]
    shown = ", ".join(f"{each.pod}: {each.uuid}" for each in last.of_pods(seen.namespace))
    return True, shown


def _apart(seen: Evidence) -> tuple[bool, str]:
    owners: dict[str, set[str]] = {}
    for each in seen.loaded[-1].of_pods(seen.namespace):
        owners.setdefault(each.uuid, set()).add(each.pod)
    shared = [
        f"{uuid}: {', '.join(sorted(pods))}" for uuid, pods in owners.items() if len(pods) > 1
    ]
    return not shared, "; ".join(shared) or f"{len(owners)} devices, one pod at each"


def _values(seen: Evidence) -> tuple[bool, str]:
    """Each metric has a value, of these pods and no others."""
    last = seen.before[-1]
    for metric in seen.metrics:
        items = last.values.get(metric.name)
        if metric.served and not items:
            return False, "; ".join(last.value_faults) or f"{metric.name} has no value"
        if metric.of_pods:
            known = {f"Pod/{each.name}" for each in last.pods}
            if others := sorted({each.about for each in items or ()} - known):
                return False, f"{metric.name} is of {others[0]}, which is no pod of the workload"
            ready = {f"Pod/{p.name}" for p in last.pods if p.stage is PodStage.READY}
            if without := sorted(ready - {each.about for each in items or ()}):
                return False, f"{metric.name}: no value of {without[0]}"
    return True, "; ".join(_shown(each, last) for each in seen.metrics if each.served)


def _fresh(seen: Evidence) -> tuple[bool, str]:
    oldest = 0
    for sight in seen.loaded:
        for items in sight.values.values():
            stamps = [each.at_ms for each in items if each.at_ms is not None]
            oldest = max(oldest, sight.at_ms - max(stamps, default=sight.at_ms))
    return oldest <= _OLDEST_MS, f"the newest value was up to {oldest / 1000:.0f} s old"


def _busy(seen: Evidence) -> tuple[bool, str]:
    before, under = _most(seen, seen.before), _most(seen, seen.loaded)
    if before is None or under is None:
        return False, "; ".join(
            seen.loaded[-1].agent_faults
        ) or "no exporter shows these pods' devices"
    shown = f"the busiest device of these pods: {before:.0f} % before, {under:.0f} % under load"
    if seen.load is not None:
        shown += f"; {seen.load.answered} requests answered, {seen.load.failed} failed"
    return under > before + GPU_RISE_PERCENT, shown


def _follows(seen: Evidence) -> tuple[bool, str]:
    """The value rises with the device, at the same pod, and not before."""
    reasons = []
    for metric in seen.metrics:
        risen = _risen(metric, seen)
        if not risen:
            reasons.append(f"{metric.name} never rose")
            continue
        device = _busy_ms(seen)
        if device is None:
            return False, f"{metric.name} rose while no device of these pods did"
        if metric.of_pods and (idle := _idle_pods(risen, seen)):
            return False, f"{metric.name} rose for {idle[0]}, whose device did nothing"
        after_s = (min(risen.values()) - device) / 1000
        return True, f"{metric.name} rose {max(0.0, after_s):.1f} s after the device"
    return False, "; ".join(reasons) or "no metric"


def _active(seen: Evidence) -> tuple[bool, str]:
    text = seen.loaded[-1].conditions.get("ScalingActive", "no condition ScalingActive")
    return text.startswith("True"), f"ScalingActive {text}"


def _out(seen: Evidence) -> tuple[bool, str]:
    """Wanted, then asked of the workload, then a new pod that is ready: not wanted alone."""
    before = seen.before[-1]
    old = {each.uid for each in before.pods}
    start_ms = seen.loaded[0].at_ms
    hops: tuple[tuple[str, Callable[[ChainSight], bool]], ...] = (
        ("wanted", lambda each: (each.desired or 0) > len(old)),
        ("asked", lambda each: (each.asked or 0) > len(old)),
        ("pod created", lambda each: any(pod.uid not in old for pod in each.pods)),
        ("pod ready", lambda each: bool(_new_ready(each, old))),
    )
    told: list[str] = []
    for name, has_come in hops:
        at_ms = next((each.at_ms for each in seen.loaded if has_come(each)), None)
        if at_ms is None:
            last = seen.loaded[-1]
            why = [each.waiting for each in last.pods if each.uid not in old and each.waiting]
            text = "; ".join(why) or last.conditions.get("ScalingLimited", "")
            return False, f"{', '.join((*told, f'{name}: never'))}{f' ({text})' if text else ''}"
        told.append(f"{name} after {(at_ms - start_ms) / 1000:.1f} s")
    return True, ", ".join(told)


def _own_series(seen: Evidence) -> tuple[bool, str]:
    old = {each.uid for each in seen.before[-1].pods}
    metrics = [each for each in seen.metrics if each.of_pods]
    new = {f"Pod/{name}" for each in seen.loaded for name in _new_ready(each, old)}
    if not metrics:
        return True, "no Pods metric: one value for all pods"
    for metric in metrics:
        named = {item.about for each in seen.loaded for item in each.values.get(metric.name, ())}
        if not new & named:
            return False, f"{metric.name}: no value of a new pod"
    return True, f"{len(new)} new pods have values of their own"


def _in(seen: Evidence) -> tuple[bool, str]:
    """Load gone, same HPA: back to the size before, and it stays there."""
    size, last = len(seen.before[-1].pods), seen.after[-1]
    since: int | None = None
    for each in seen.after:
        since = None if each.size != size else each.at_ms if since is None else since
    if since is None:
        return False, f"wanted {last.desired}, pods {len(last.pods)}; {size} before the load"
    stayed_ms = last.at_ms - since
    shown = f"back after {(since - seen.after[0].at_ms) / 1000:.0f} s, stayed for {stayed_ms / 1000:.0f} s"
    return stayed_ms >= seen.steady_ms, shown


def _untouched(seen: Evidence) -> tuple[bool, str]:
    """Nobody else changed the HPA or the workload's size."""
    if len({each.generation for each in seen.sights}) > 1:
        return False, "the HPA's spec changed during the run"
    sights, wanted = seen.sights, set[int | None]()
    for number, each in enumerate(sights):
        wanted.add(each.desired)
        # A look reads the HPA a moment before the workload, which may be asked in between.
        soon = {later.desired for later in sights[number + 1 : number + 4]}
        if each.asked is not None and each.asked not in wanted | soon:
            words = f"the workload was asked for {each.asked} replicas, which the HPA never wanted"
            return False, words
    return True, "the HPA's spec stayed as it was, and all sizes are the HPA's"


# accelerator_metrics


def _every_node(seen: Evidence) -> tuple[bool, str]:
    if seen.nodes_fault or not seen.nodes:
        return False, seen.nodes_fault or "no node has accelerators"
    for node in seen.nodes:
        if node.fault:
            return False, f"{node.name}: {node.fault}"
        if node.has and node.seen != node.has:
            return False, f"{node.name} has {node.has} accelerators, its exporter shows {node.seen}"
    return True, f"{sum(each.seen for each in seen.nodes)} devices on {len(seen.nodes)} nodes"


def _readings(seen: Evidence) -> tuple[bool, str]:
    must = ("utilization", "memory used")
    lacking = [(node.name, what) for node in seen.nodes for what in node.missing if what in must]
    if lacking:
        return False, f"{lacking[0][0]}: no {lacking[0][1]}"
    impossible = [f"{node.name}, {text}" for node in seen.nodes for text in node.impossible]
    if impossible:
        return False, impossible[0]
    should = sorted({what for each in seen.nodes for what in each.missing})
    return (
        True,
        f"without {', '.join(should)}" if should else "utilization, memory, temperature, power",
    )


def _alone(seen: Evidence) -> tuple[bool, str]:
    """Under load the devices of these pods rise, and idle ones of nobody don't."""
    quiet = _highest([device for each in seen.before for device in each.devices])
    under = _highest([device for each in seen.loaded for device in each.devices])
    ours = {device.uuid for each in seen.loaded for device in each.of_pods(seen.namespace)}
    owned = {device.uuid for each in seen.sights for device in each.devices if device.pod}
    # Devices of a node that new pods came to have nothing to be compared with.
    rose = {uuid for uuid in quiet if under.get(uuid, 0.0) > quiet[uuid] + GPU_RISE_PERCENT}
    if not rose & ours:
        return False, "no device of these pods rose"
    if others := sorted(rose - owned):
        return False, f"{others[0]} rose too, and no pod has it"
    return (
        True,
        f"{len(rose & ours)} devices of these pods rose, {len(set(quiet) - owned)} idle ones did not",
    )


def _falls(seen: Evidence) -> tuple[bool, str]:
    quiet, last = _most(seen, seen.before), _most(seen, seen.after[-1:])
    if quiet is None or last is None:
        return False, "no exporter shows these pods' devices"
    return last <= quiet + GPU_RISE_PERCENT, f"{quiet:.0f} % before, {last:.0f} % at the end"


_STEPS = (
    _Step(PODS, "metric", "The HPA scales on metrics of the custom or external metrics API", _metric,
          "Take cpu and memory out of the HPA: they may be what scales it."),
    _Step(PODS, "room", "There is room between minReplicas and maxReplicas", _room,
          "Raise maxReplicas above minReplicas."),
    _Step(PODS, "idle", "Without load the HPA wants what there is", _idle,
          "Wait until it has scaled, take the load away, or choose a target that idle pods don't exceed.",
          "before"),
    _Step(PODS, "accelerators", "Each pod has an accelerator, and its exporter says so", _held,
          "Let pods ask for a GPU or a claim; gpuscale doctor says why an exporter names no pod.", "before"),
    _Step(PODS, "values", "The metric has a value, of these pods alone", _values,
          "Set honorLabels on the exporter's scrape, and see: gpuscale metrics-api why.", "before"),
    _Step(PODS, "load", "The load reaches the accelerator", _busy,
          "Send load that these pods' GPUs work for.", "loaded"),
    _Step(PODS, "follows", "The value follows the accelerator, at the same pod", _follows,
          "Scale on a series that the exporter makes of this pod's device.", "loaded"),
    _Step(PODS, "fresh", "Values are not stale", _fresh, "Scrape more often; see gpuscale doctor.", "loaded"),
    _Step(PODS, "active", "The HPA controller can use the metric", _active,
          "See: kubectl describe hpa.", "loaded"),
    _Step(PODS, "out", "More replicas are wanted, asked for, created and ready", _out,
          "See: gpuscale decide hpa/NAME, and gpuscale doctor for pods without a node.", "loaded"),
    _Step(PODS, "apart", "Each pod has a device of its own", _apart,
          "Give each pod a device of its own for this run, or declare the sharing in the submission.",
          "loaded"),
    _Step(PODS, "own-series", "The new pod has a value of its own", _own_series,
          "Wait longer (--out-within), or see why it has none: gpuscale metrics-api why.", "loaded"),
    _Step(PODS, "in", "Without load the workload goes back to its size and stays there", _in,
          "Wait longer (--in-within): a stabilization window of 300 s comes first.", "after"),
    _Step(PODS, "untouched", "Nobody else changed the HPA or the size", _untouched,
          "Let nothing else set spec.replicas, and leave the HPA alone during the run.", "after"),
    _Step(DEVICES, "every-device", "Each node's exporter shows each of its accelerators", _every_node,
          "See: gpuscale doctor."),
    _Step(DEVICES, "readings", "Each has utilization and memory, within what can be", _readings,
          "Add the fields to the exporter's counters file."),
    _Step(DEVICES, "alone", "Under load its own devices rise, and idle ones don't", _alone,
          "The exporter gives values to the wrong device, or means over a node.", "loaded"),
    _Step(DEVICES, "falls", "Afterwards the devices are as before", _falls,
          "Values are held or averaged for too long.", "after"),
)  # fmt: skip


def _new_ready(sight: ChainSight, old: set[str]) -> list[str]:
    """Return the names of ready pods that were not there before."""
    ready = (each for each in sight.pods if each.stage is PodStage.READY)
    return [each.name for each in ready if each.uid not in old]


def _most(seen: Evidence, sights: Sequence[ChainSight]) -> float | None:
    found = [each.percent for sight in sights for each in sight.of_pods(seen.namespace)]
    return max(found, default=None)


def _busy_ms(seen: Evidence) -> int | None:
    """Return when a device of these pods was first busier than before."""
    before = _most(seen, seen.before)
    for sight in seen.loaded if before is not None else ():
        now = _most(seen, [sight])
        if now is not None and before is not None and now > before + GPU_RISE_PERCENT:
            return sight.at_ms
    return None


def _highest(devices: Sequence[DeviceSight]) -> dict[str, float]:
    found: dict[str, float] = {}
    for each in devices:
        found[each.uuid] = max(each.percent, found.get(each.uuid, each.percent))
    return found


def _risen(metric: MetricEvidence, seen: Evidence) -> dict[str, int]:
    """Return when the value of each object rose; what had none before the load has nothing to rise from."""
    usual: dict[str, float] = {}
    for sight in seen.before:
        for item in sight.values.get(metric.name, ()):
            usual[item.about] = max(item.value, usual.get(item.about, item.value))
    found: dict[str, int] = {}
    for sight in seen.loaded:
        for item in sight.values.get(metric.name, ()):
            if item.about not in usual or item.about in found:
                continue
            before = usual[item.about]
            scale = before if metric.target is None else metric.target
            if item.value > before + VALUE_RISE_RATIO * abs(scale):
                found[item.about] = sight.at_ms
    return found


def _idle_pods(risen: Iterable[str], seen: Evidence) -> list[str]:
    """Return which of these pods have a device that is shown and was as idle as before."""
    found = []
    for about in risen:
        pod = f"{seen.namespace}/{about.removeprefix('Pod/')}"
        quiet = [d.percent for each in seen.before for d in each.devices if d.pod == pod]
        under = [d.percent for each in seen.loaded for d in each.devices if d.pod == pod]
        if quiet and under and max(under) <= max(quiet) + GPU_RISE_PERCENT:
            found.append(pod)
    return found


def _shown(metric: MetricEvidence, sight: ChainSight) -> str:
    values = ", ".join(f"{each.value:g}" for each in sight.values.get(metric.name, ()))
    target = "" if metric.target is None else f" against a target of {metric.target:g}"
    return f"{metric.name} is {values}{target}"
