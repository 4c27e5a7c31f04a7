"""In-flight credit: pods that are starting count with the load that they will take.

Why a plain HPA overshoots. An External metric with an AverageValue asks for ceil(v / t) pods, whatever pods
are ready (k8s.io/kubernetes v1.36 pkg/controller/podautoscaler/replica_calculator.go,
GetExternalPerPodMetric). Let v be the requests in flight, running and waiting, and t what a pod should
have. While the ready pods are not full, v is the demand. Once they are full, it is not: the requests
that they can't take wait, so that v grows by (arrivals - finished) each second until the pods that were
ordered are ready. With a start-up of 120 s that is two minutes of backlog, and each sync orders pods for it
that nothing needs once the first ones are there. Other kinds of metrics don't help: a Value is multiplied
by the ready pods, and of a metric of pods a pod without one counts as idle when scaling out, so both come
to the same total; a stabilization window as long as the start-up delays the first pod as well.

What is served instead, with n pods asked for, r of them ready:

- arrivals = finished + growth of v, over the last minute: nothing else can make v grow. Of the last three
  readings the middle one, as a rate over scrapes that came late is several times too high. If they rose
  against the minute before by more than chance makes of Poisson arrivals (two standard deviations), they are
  taken to rise so for another quarter of a start-up, a minute at most.
- service = running / begun is the time that a request takes once it runs (Little's law), where begun =
  finished + growth of what runs; the median of five minutes, as the newest figure is wrong when pods came.
- demand = arrivals * service is what would be in flight if nothing had to wait.
- m = full / service is what a full pod finishes a second, where full is the most that a pod ran within five
  minutes while others waited; a pod may be ready for some seconds before it is seen in what runs.
- The credit: a pod that has been starting for a seconds would have finished m * a by now. So much of what
  waits is there because of start-ups, and goes when these end; only the rest is `unexplained`.
- What is unexplained is to be gone within `drain` seconds, at full speed.

    pods = max(demand / t, (arrivals + unexplained / drain) / m) + stuck
    v = max(t n, min(load, t pods))     where load > t n and something waits or just did; else v = load

So ceil(v / t) is what the demand needs, with the pods that start counted once. The value is never above the
load, so that an HPA with credit never asks for more than one without. It takes nothing away from pods that
are asked for already (t n), so that nothing is scaled in while a model loads; scaling in is on the plain
load.
A pod that has been starting for half as long again as it should is stuck: it has no credit, and as it serves
nothing, another one is asked for in its place.

llm-d's slo-aware guide (llm-d guides/workload-autoscaling/README.slo-aware.md, July 2026) has another credit:
the saturation s of ready pods is multiplied by r / n before it is multiplied by n, which is s * r, as a Value
target of an HPA has it anyway. What piled up during the start-up is in s all the same, which is capped.

`credit_of` is written in the part of Python that numba compiles, so that `plan` replays it as it is.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from gpuscale.base.golang.durations import format_duration
from gpuscale.base.words import counted

WINDOW_S = 60.0
"""Over which growth is measured; queries of the rate should look back as far."""
DEFAULT_DRAIN_S = 120.0
_LEAD = 1 / 4
"""Share of a start-up for which a rise goes on; more buys shorter queues with pods too many."""
_CHANCE = 2.0
MEMORY_S = 300.0
"""Over which the time in service is looked at."""
_PATIENCE = 1.5
"""Times the expected start-up, after which a pod is stuck."""
_AGREEING = 3
"""Readings of arrivals, of which the middle one counts: pods that are ordered for one that is wrong stay."""
_LEAST_SPAN_S = 10.0
"""Growth over less is noise."""
_MAX_READINGS = 300


class Flow(NamedTuple):
    """The requests in flight and arriving at one time."""

    at_s: float
    """Monotonic."""
    load: float
    """Requests that run and that wait."""
    waiting: float
    finished_per_s: float
    ready: int
    """Pods that take requests."""


PLAIN, UNKNOWN, GIVEN = range(3)
"""No credit is needed; nothing is finished, so none is known; credit."""


class CreditFigures(NamedTuple):
    """A served load, and its parts."""

    outcome: int
    """PLAIN, UNKNOWN or GIVEN; without credit the load is as it was, and all else 0."""
    load: float
    arrivals_per_s: float
    per_pod_per_s: float
    """What a full pod finishes."""
    explained: float
    """Of what waits, by the pods that start."""
    credited_pods: int
    stuck_pods: int


@dataclass(frozen=True, slots=True)
class Credited:
    """A load with the credit applied."""

    load: float
    words: str
    """What the credit was; empty where there was none to give."""


def kept_flows(flows: Sequence[Flow], newest: Flow) -> tuple[Flow, ...]:
    """Return the readings that are still useful, with a new one."""
    recent = [each for each in flows if newest.at_s - MEMORY_S <= each.at_s < newest.at_s]
    return (*recent, newest)[-_MAX_READINGS:]


def credited(
    target: float,
    desired: int,
    flows: Sequence[Flow],
    starting_s: Sequence[float],
    expected_start_s: float,
    drain_s: float = DEFAULT_DRAIN_S,
) -> Credited:
    """Return the load to serve for an AverageValue of `target`, and why; arguments as `credit_of`."""
    found = credit_of(target, desired, flows, starting_s, expected_start_s, drain_s)
    if found.outcome == PLAIN:
        return Credited(found.load, "")
    if found.outcome == UNKNOWN:
        return Credited(found.load, "nothing is finished, so no pod is credited")
    now = flows[-1]
    pods_text = counted(found.credited_pods, "starting pod")
    words = (
        f"{found.arrivals_per_s:.4g} arrive a second, and a full pod finishes {found.per_pod_per_s:.4g}; "
        f"by {pods_text} {found.explained:.4g} of {now.waiting:.4g} that wait are explained"
    )
    if found.stuck_pods:
        late = format_duration(round(_PATIENCE * expected_start_s) * 1000)
        words += f"; {counted(found.stuck_pods, 'pod')} of more than {late} has no credit"
    return Credited(found.load, f"{words}: {now.load:.6g} counts as {found.load:.6g}")


def credit_of(
    target: float,
    desired: int,
    flows: Sequence[Flow],
    starting_s: Sequence[float],
    expected_start_s: float,
    drain_s: float,
) -> CreditFigures:
    """Return the load to serve for an AverageValue of `target`.

    Args:
        target: load per pod.
        desired: pods that are asked for.
        flows: readings as `kept_flows` keeps them, the newest last; one at least.
        starting_s: for how long each pod that was never ready has been starting.
        expected_start_s: how long that takes.
        drain_s: within how long a backlog that no start-up explains is to be gone.
    """
    now = flows[-1]
    floor = target * desired
    minute = _minute(flows, now)
    has_waited = False
    for each in minute:
        has_waited = has_waited or each.waiting > 0
    if now.load <= floor or now.ready == 0 or not has_waited:
        return CreditFigures(PLAIN, now.load, 0.0, 0.0, 0.0, 0, 0)
    full, service_s = _full(flows), _service_s(flows)
    per_pod = full / service_s if service_s > 0 else 0.0
    if per_pod <= 0:
        return CreditFigures(UNKNOWN, now.load, 0.0, 0.0, 0.0, 0, 0)
    newest = []
    for each in flows[-_AGREEING:]:
        newest.append(_arrivals(_minute(flows, each)))  # noqa: PERF401 - numba finds no call in a comprehension
    arrivals = _median(newest) + _rise(flows, minute) * min(expected_start_s * _LEAD, WINDOW_S)
    waits_for, waited_s = 0, 0.0
    for age_s in starting_s:
        if age_s < _PATIENCE * expected_start_s:
            waits_for += 1
            waited_s += age_s
    stuck = len(starting_s) - waits_for
    explained = min(now.waiting, per_pod * waited_s)
    demand = arrivals * service_s
    pods = max(demand / target, (arrivals + (now.waiting - explained) / drain_s) / per_pod) + stuck
    load = max(floor, min(now.load, target * pods))
    return CreditFigures(GIVEN, load, arrivals, per_pod, explained, waits_for, stuck)


def _full(flows: Sequence[Flow]) -> float:
    """Return the most requests that a pod ran while others waited."""
    most = 0.0
    for each in flows:
        if each.ready and each.waiting > 0:
            most = max(most, (each.load - each.waiting) / each.ready)
    return most


def _service_s(flows: Sequence[Flow]) -> float:
    """Return a request's service time; 0 if none has begun."""
    found = []
    for last in flows:
        minute = _minute(flows, last)
        first, total = minute[0], 0.0
        for each in minute:
            total += each.load - each.waiting
        span_s = last.at_s - first.at_s
        newly_running = (last.load - last.waiting) - (first.load - first.waiting)
        begun = last.finished_per_s
        if span_s >= _LEAST_SPAN_S:
            begun += newly_running / span_s
        mean = total / len(minute)
        if begun > 0 and mean > 0:
            found.append(mean / begun)
    return _median(found) if len(found) > 0 else 0.0


def _median(values: Sequence[float]) -> float:
    ordered = sorted(values)
    middle = len(ordered) // 2
    if len(ordered) % 2:
        return ordered[middle]
    return (ordered[middle - 1] + ordered[middle]) / 2


def _minute(flows: Sequence[Flow], last: Flow) -> list[Flow]:
    return [each for each in flows if last.at_s - WINDOW_S <= each.at_s <= last.at_s]


def _arrivals(minute: Sequence[Flow]) -> float:
    return max(0.0, minute[-1].finished_per_s + _growth(minute))


def _rise(flows: Sequence[Flow], minute: Sequence[Flow]) -> float:
    """Return the growth of the arrival rate per second; 0 if it may be random."""
    before = [each for each in flows if each.at_s <= minute[-1].at_s - WINDOW_S]
    # The first estimates of a rate rise, whatever the load does.
    if len(before) == 0 or flows[0].at_s > minute[-1].at_s - 2 * WINDOW_S:
        return 0.0
    newer, older = _arrivals(minute), _arrivals(_minute(flows, before[-1]))
    deviation = math.sqrt((newer + older) / WINDOW_S)
    return (newer - older) / WINDOW_S if newer - older > _CHANCE * deviation else 0.0


def _growth(flows: Sequence[Flow]) -> float:
    """Return the growth of the load per second; 0 if it is unknown."""
    first, last = flows[0], flows[-1]
    span_s = last.at_s - first.at_s
    return (last.load - first.load) / span_s if span_s >= _LEAST_SPAN_S else 0.0
