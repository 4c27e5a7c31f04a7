"""Times that contradict each other: of KEDA's looks, of a pod's start and of its end.

Source: KEDA v2.21 pkg/scaling/executor/scale_scaledobjects.go (scaleToZeroOrIdle: the cooldown counts from
    the last look that found a trigger active); kubernetes v1.37 pkg/kubelet/prober/worker.go
    (failureThreshold looks, periodSeconds apart, after initialDelaySeconds),
    pkg/kubelet/kuberuntime/kuberuntime_container.go (a preStop hook counts against the grace period),
    pkg/controller/deployment/util (DeploymentTimedOut).
"""

import re
from collections.abc import Iterator
from contextlib import suppress

from gpuscale.base.errors import QueryError
from gpuscale.base.findings import Checks, Severity
from gpuscale.base.golang.durations import format_duration, parse_duration_ms
from gpuscale.base.objects.scaled_object import PROMETHEUS
from gpuscale.ops.lint.autoscalers import autoscalers
from gpuscale.ops.lint.findings import LintFinding, Place
from gpuscale.ops.lint.inputs import FileJudge, Inputs, PlacedScaledObject
from gpuscale.ops.lint.operators.made import Made
from gpuscale.ops.lint.parts import Part
from gpuscale.ops.lint.workloads import Workload, found_kind
from gpuscale.series.promql import parse_query
from gpuscale.server.rules.queries import reads

START_CHECKS = Checks("workload")
KILLED_WHILE_STARTING = START_CHECKS.add(
    "killed-while-starting",
    Severity.WARNING,
    "A probe that ends a container before the time by which it can have started.",
    "Write a startupProbe that waits for as long as starting takes: failureThreshold times periodSeconds.",
)
GRACE_BELOW_PRE_STOP = START_CHECKS.add(
    "grace-below-pre-stop",
    Severity.WARNING,
    "A preStop hook that takes as long as the grace period, or longer: the container is killed in it.",
    "Raise terminationGracePeriodSeconds above the hook and what the server needs after it.",
)
DEADLINE_BELOW_START = START_CHECKS.add(
    "deadline-below-start",
    Severity.NOTE,
    "A Deployment that is said to have failed while its startupProbe still waits.",
    "Raise progressDeadlineSeconds above what the startupProbe allows.",
)
COOLDOWN_CHECKS = Checks("autoscaler")
COOLDOWN_BELOW_START = COOLDOWN_CHECKS.add(
    "cooldown-below-start",
    Severity.WARNING,
    "A cooldownPeriod below the time in which pods start, and a trigger that does not see who waits: the "
    "target goes back to zero while it starts. A note where that time is only what a startupProbe allows.",
    "Raise cooldownPeriod above the start, or scale on what waits.",
)
COOLDOWN_BELOW_POLLING = COOLDOWN_CHECKS.add(
    "cooldown-below-polling",
    Severity.NOTE,
    "A pollingInterval of no less than the cooldownPeriod: the first look that finds nothing scales to zero.",
    "Write a cooldownPeriod of several pollingIntervals.",
)
_OVER_RANGES = frozenset({"rate", "irate", "increase"})
"""Of requests that came, which wait on when nothing more comes."""
_SLEEP = re.compile(r"(?:^|[\s;&])sleep\s+(\d+)(?=$|[\s;&])")
_DEADLINE_S = 600
_GRACE_S = 30
Start = tuple[int, Place]
"""Seconds, and who says so."""


def time_findings(inputs: Inputs) -> Iterator[LintFinding]:
    """Return the contradictions in the times of autoscaled workloads, and of those with GPUs."""
    for placed in inputs.scaled_objects:
        yield from _cooldown(inputs, placed)
    targets = {each.target for each in autoscalers(inputs)}
    for key, workload in inputs.workloads.items():
        if workload.controller is None and (key in targets or workload.asks_for_gpus):
            least = _simulated(inputs, workload)
            for container in workload.pods.part.items("containers"):
                yield from _killed(container, least)
                yield from _pre_stop(workload, container)
            yield from _deadline(workload)


def _cooldown(inputs: Inputs, placed: PlacedScaledObject) -> Iterator[LintFinding]:
    scaled, place = placed.scaled, placed.place("spec", "cooldownPeriod")
    if scaled.least > 0 and scaled.idle is None:
        return
    if scaled.polling_interval_s >= scaled.cooldown_s > 0:
        yield COOLDOWN_BELOW_POLLING.found(
            place,
            f"KEDA looks every {scaled.polling_interval_s} s, and the cooldown is {scaled.cooldown_s} s: it "
            "is over with the first look that finds no trigger active.",
            f"{placed.place('spec', 'pollingInterval')}: pollingInterval {scaled.polling_interval_s}",
        )
    target = scaled.metadata.namespace, found_kind(scaled.target_kind), scaled.target_name
    workload, window_s = inputs.workloads.get(target), _active_for_s(placed)
    if workload is None or window_s is None:
        return
    at_least = max((*_simulated(inputs, workload), *_delays(workload)), default=None)
    found = at_least or max(_allowances(workload), default=None)
    if found is None or scaled.cooldown_s + window_s >= found[0]:
        return
    length = f"{'at least' if at_least else 'up to'} {found[0]} s"
    check = COOLDOWN_BELOW_START if at_least else COOLDOWN_BELOW_START.at(Severity.NOTE)
    yield check.found(
        place,
        f"{workload.title} takes {length} to start, and is scaled back {scaled.cooldown_s + window_s} s "
        "after the last request came, with those that wait for it.",
        f"{found[1]}; cooldownPeriod {scaled.cooldown_s} s, and {window_s} s in which the query sees a "
        "request",
        f"Write a cooldownPeriod above {found[0]}, or scale on what waits.",
    )


def _active_for_s(placed: PlacedScaledObject) -> int | None:
    """Return how long the triggers see a request that came; None where they may see that it waits."""
    longest_ms = 0
    for trigger in placed.scaled.triggers:
        if trigger.kind != PROMETHEUS:
            return None
        try:
            read = tuple(reads(parse_query(trigger.query).root))
        except QueryError:
            return None
        if not read or any(each.function not in _OVER_RANGES for each in read):
            return None
        longest_ms = max(longest_ms, *(each.range_ms or 0 for each in read))
    return longest_ms // 1000 if placed.scaled.triggers else None


def _simulated(inputs: Inputs, workload: Workload) -> tuple[Start, ...]:
    """Return the time that a scenario gives a workload's pods to start."""
    found: list[Start] = []
    for each in inputs.scenario_workloads:
        if each.text("deployment") == workload.part.text("metadata", "name"):
            total_ms = 0
            for key in ("imagePull", "startup"):
                with suppress(ValueError):
                    total_ms += parse_duration_ms(each.text(key))
            found.append((total_ms // 1000, each.place("startup")))
    return tuple(each for each in found if each[0])


def _delays(workload: Workload) -> Iterator[Start]:
    """Yield the times before which no container is looked at, and so none is ready."""
    for container in workload.pods.part.items("containers"):
        for probe in ("startupProbe", "readinessProbe"):
            delay_s = container.whole(probe, "initialDelaySeconds")
            if delay_s:
                yield delay_s, container.place(probe, "initialDelaySeconds")


def _allowances(workload: Workload) -> Iterator[Start]:
    """Yield how long containers may take to start, by their startupProbes."""
    for container in workload.pods.part.items("containers"):
        probe = container.at("startupProbe")
        if probe.fields():
            yield _gives_up_s(probe), probe.place()


def _gives_up_s(probe: Part) -> int:
    """Return the seconds after which a probe that always fails ends its container."""
    delay_s = probe.whole("initialDelaySeconds") or 0
    return delay_s + (probe.whole("failureThreshold") or 3) * (probe.whole("periodSeconds") or 10)


def _killed(container: Part, least: tuple[Start, ...]) -> Iterator[LintFinding]:
    starting, living = container.at("startupProbe"), container.at("livenessProbe")
    ready = container.at("readinessProbe")
    probe = starting if starting.fields() else living
    delay_s = ready.whole("initialDelaySeconds")
    is_same = all(
        living.at(key).data == ready.at(key).data
        for key in ("httpGet", "tcpSocket", "grpc", "exec")
    )
    if probe is living and living.fields() and delay_s and is_same:
        least = (*least, (delay_s, ready.place("initialDelaySeconds")))
    longest = max(least, default=None)
    if not probe.fields() or longest is None or _gives_up_s(probe) >= longest[0]:
        return
    yield KILLED_WHILE_STARTING.found(
        probe.place(),
        f"The {probe.path[-1]} gives the container {container.text('name')} up after {_gives_up_s(probe)} s, "
        f"and it is not expected to answer before {longest[0]} s: it starts again and again.",
        f"{longest[1]}",
    )


def _pre_stop(workload: Workload, container: Part) -> Iterator[LintFinding]:
    hook, spec = container.at("lifecycle", "preStop"), workload.pods.part
    grace_s = spec.whole("terminationGracePeriodSeconds")
    grace_s = _GRACE_S if grace_s is None else grace_s
    slept = _SLEEP.findall(" ".join(hook.texts("exec", "command")))
    taken_s = sum(map(int, slept)) or hook.whole("sleep", "seconds") or 0
    if taken_s and taken_s >= grace_s:
        yield GRACE_BELOW_PRE_STOP.found(
            hook.place(),
            f"The hook sleeps {taken_s} s, and the pod is killed {grace_s} s after it was told to end: the "
            "server gets no time to finish its requests.",
            f"{spec.place('terminationGracePeriodSeconds')}: terminationGracePeriodSeconds {grace_s}",
        )


def _deadline(workload: Workload) -> Iterator[LintFinding]:
    deadline = workload.part.at("spec", "progressDeadlineSeconds")
    given_s = workload.part.whole("spec", "progressDeadlineSeconds")
    deadline_s, allowed = given_s or _DEADLINE_S, max(_allowances(workload), default=None)
    # What operators make may have another deadline.
    is_deployment = workload.part.text("kind") == "Deployment"
    is_deployment &= not isinstance(workload.part.document, Made)
    if is_deployment and allowed is not None and allowed[0] > deadline_s:
        yield DEADLINE_BELOW_START.found(
            allowed[1],
            f"The startupProbe allows {format_duration(allowed[0] * 1000)}, and the rollout counts as "
            f"failed after {format_duration(deadline_s * 1000)}: helm --wait, Argo CD and kubectl rollout "
            "status end there.",
            f"{deadline.place()}: progressDeadlineSeconds {deadline_s}",
        )


JUDGE = FileJudge("times", Checks(including=(START_CHECKS, COOLDOWN_CHECKS)), time_findings)
