"""One model server behind an HPA, in virtual time: requests run or wait, and pods take minutes to start.

Requests arrive at random, are served in their order, and each takes `SERVICE_S` once it runs; a ready pod
runs `RUNNING` at a time. Pods become ready 100 to 135 s after they were ordered, as llm-d reports of vLLM
on H100. The HPA is the controller's algorithm (`gpuscale.hpa`), every 15 s on what was measured 5 s before.
"""

import math
import random
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from gpuscale.hpa import (
    ExternalValues,
    HpaState,
    PodInfo,
    ReadyCondition,
    Scale,
    decide,
    succeeded,
)
from gpuscale.manifests import HorizontalPodAutoscaler, load_manifests
from gpuscale.triggers.credit import DEFAULT_DRAIN_S
from gpuscale.triggers.machine import TriggerState, evaluate
from gpuscale.triggers.observation import FlowSeen, Observation, PodsSeen, TotalLoad
from gpuscale.triggers.trigger import Credit, PodLoad, Trigger, WorkloadRef

RUNNING = 32
"""Requests that a pod runs at a time."""
PER_POD = 1.45
"""Requests that a full pod finishes a second: what llm-d measured for a replica of two H100."""
SERVICE_S = RUNNING / PER_POD
TARGET = 24.0
"""Requests in flight that a pod should have: three quarters of what it can run."""
START_S = (100.0, 135.0)
SLO_S = 3.0
"""Of the time that a request waits."""
LAG_S = 5
SYNC_S = 15
EVALUATED_EVERY_S = 5

Rate = Callable[[int], float]
"""Requests a second at a time."""


def ramp(low: float, high: float, rise_s: int, hold_s: int, after: float) -> Rate:
    """Return a rate that is low for five minutes, rises, stays, and falls."""

    def rate(at_s: int) -> float:
        since = at_s - 300
        if since < rise_s:
            return low + (high - low) * max(0, since) / max(1, rise_s)
        return high if since < rise_s + hold_s else after

    return rate


@dataclass(slots=True)
class Pod:
    """A pod from its order on."""

    ordered_s: float
    start_s: float
    ready_s: float | None = None


@dataclass(frozen=True, slots=True)
class Seen:
    """What is measured at one second."""

    waiting: float
    running: float
    finished_per_s: float
    """Mean of the last minute."""
    wait_p90_s: float
    """Of requests that arrived in the last minute, as it is predicted when they arrive."""

    @property
    def in_flight(self) -> float:
        return self.waiting + self.running


Served = Callable[[int, Seen, Sequence[Pod], int], float]
"""Makes the served value of a time, what is seen, the pods, and how many are asked for."""


@dataclass(slots=True)
class Outcome:
    """What one run came to."""

    most_pods: int
    mean_pods: float
    within_slo: float
    """Share of requests that waited no longer than the SLO."""
    replicas: list[int] = field(default_factory=list)
    """Each minute."""


def autoscaler(target: float, low: int, high: int, behavior: str = "") -> HorizontalPodAutoscaler:
    """Return an HPA on an external metric with an AverageValue."""
    text = f"""
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {{name: w, namespace: n}}
spec:
  scaleTargetRef: {{apiVersion: apps/v1, kind: Deployment, name: w}}
  minReplicas: {low}
  maxReplicas: {high}
  metrics:
  - type: External
    external: {{metric: {{name: m}}, target: {{type: AverageValue, averageValue: "{target:g}"}}}}
{behavior}"""
    (hpa,) = load_manifests(text, "hpa.yaml")
    assert isinstance(hpa, HorizontalPodAutoscaler)
    return hpa


def run(
    rate: Rate,
    served: Served | None,
    hpa: HorizontalPodAutoscaler | None,
    begin: int,
    length_s: int,
    seed: int = 1,
) -> Outcome:
    """Return what comes of a load; without an HPA the pods stay as many as they were.

    Args:
        rate: of arrivals.
        served: the value of the HPA's metric.
        hpa: decides.
        begin: pods that are ready at the start.
        length_s: of the run.
        seed: of arrivals and start-ups.
    """
    arrivals, starts = random.Random(f"{seed} arrivals"), random.Random(f"{seed} starts")
    pods = [Pod(-1000.0, 0.0, -1000.0) for _ in range(begin)]
    desired, state = begin, HpaState()
    waiting: deque[tuple[int, float]] = deque()
    """Second of arrival, and requests of it that still wait."""
    service: deque[tuple[float, float]] = deque()
    """When requests end, and how many."""
    running = backlog = 0.0
    finished: deque[float] = deque(maxlen=60)
    predicted: deque[tuple[float, float]] = deque(maxlen=60)
    seen: list[Seen] = []
    value, late, total, pod_s = 0.0, 0.0, 0.0, 0.0
    out = Outcome(begin, 0.0, 0.0)
    for now in range(length_s):
        for pod in pods:
            if pod.ready_s is None and now - pod.ordered_s >= pod.start_s:
                pod.ready_s = now
        ready = sum(pod.ready_s is not None for pod in pods)
        ended = 0.0
        while service and service[0][0] <= now:
            ended += service.popleft()[1]
        running -= ended
        finished.append(ended)
        came = float(_poisson(arrivals, rate(now)))
        total += came
        if came:
            waiting.append((now, came))
            backlog += came
        room = max(0.0, ready * RUNNING - running)
        while waiting and room > 0:
            since, count = waiting[0]
            taken = min(count, room)
            room -= taken
            backlog -= taken
            running += taken
            service.append((now + SERVICE_S, taken))
            late += taken if now - since > SLO_S else 0.0
            if taken == count:
                waiting.popleft()
            else:
                waiting[0] = (since, count - taken)
        predicted.append((backlog / max(1e-9, ready * PER_POD), came))
        mean = sum(finished) / len(finished)
        seen.append(Seen(backlog, running, mean, _p90(predicted)))
        if hpa is not None and served is not None:
            known = seen[max(0, now - LAG_S)]
            if now % EVALUATED_EVERY_S == 0:
                value = served(now, known, pods, desired)
            if now % SYNC_S == 0:
                answer = ExternalValues((math.floor(value * 1000),), now * 1000)
                scale = Scale(desired, len(pods), "app=w")
                decision = decide(hpa, scale, _infos(pods), [answer], state, now * 1000)
                state, desired = succeeded(decision).state, decision.desired_replicas
                while len(pods) < desired:
                    pods.append(Pod(now, starts.uniform(*START_S)))
                if len(pods) > desired:
                    # As a ReplicaSet: pods that are not ready go first, then the youngest.
                    pods.sort(key=lambda pod: (pod.ready_s is not None, -pod.ordered_s))
                    del pods[: len(pods) - desired]
        pod_s += len(pods)
        out.most_pods = max(out.most_pods, len(pods))
        if now % 60 == 0:
            out.replicas.append(len(pods))
    late += sum(count for since, count in waiting if length_s - since > SLO_S)
    out.mean_pods, out.within_slo = pod_s / length_s, 1 - late / total
    return out


def _poisson(chance: random.Random, mean: float) -> int:
    left, count = chance.random(), 0
    term = math.exp(-mean)
    while left > term:
        left -= term
        count += 1
        term *= mean / count
    return count


def _p90(predicted: Sequence[tuple[float, float]]) -> float:
    weight = sum(count for _, count in predicted)
    reached = 0.0
    for wait_s, count in sorted(predicted):
        reached += count
        if reached >= 0.9 * weight:
            return wait_s
    return 0.0


def _infos(pods: Sequence[Pod]) -> list[PodInfo]:
    states = {True: ReadyCondition.TRUE, False: ReadyCondition.FALSE}
    return [PodInfo(f"w-{i}", ready=states[p.ready_s is not None]) for i, p in enumerate(pods)]


def queue(_now: int, seen: Seen, _pods: Sequence[Pod], _desired: int) -> float:
    """Return the requests that wait, which is what most guides scale on."""
    return seen.waiting


def in_flight(_now: int, seen: Seen, _pods: Sequence[Pod], _desired: int) -> float:
    """Return the requests that run or wait."""
    return seen.in_flight


def with_credit(drain_s: float = DEFAULT_DRAIN_S) -> Served:
    """Return the value that a trigger with credit serves, by its own evaluation."""
    trigger = Trigger(
        "n",
        "m",
        WorkloadRef("Deployment", "w"),
        PodLoad(query="in flight"),
        TARGET,
        credit=Credit("waiting", "finished", drain_s=drain_s),
    )
    states = [TriggerState()]

    def value(now: int, seen: Seen, pods: Sequence[Pod], desired: int) -> float:
        starting = tuple(now - pod.ordered_s for pod in pods if pod.ready_s is None)
        took = [pod.start_s for pod in pods if pod.ready_s is not None and pod.start_s]
        known = PodsSeen(
            desired, tuple(_infos(pods)), starting, longest_start_s=max(took, default=START_S[1])
        )
        observation = Observation(
            now * 1000,
            float(now),
            TotalLoad(seen.in_flight, now * 1000),
            known,
            flow=FlowSeen(seen.waiting, seen.finished_per_s),
        )
        outcome = evaluate(trigger, observation, states[0])
        states[0] = outcome.state
        assert outcome.answer.value is not None
        return outcome.answer.value

    return value


LLM_D_BEHAVIOR = """  behavior:
    scaleUp:
      stabilizationWindowSeconds: 30
      policies: [{type: Percent, value: 100, periodSeconds: 60}, {type: Pods, value: 4, periodSeconds: 60}]
    scaleDown:
      stabilizationWindowSeconds: 180
      policies: [{type: Pods, value: 1, periodSeconds: 120}]
"""


def llm_d() -> Served:
    """Return llm-d's slo-aware law: desired replicas, for an AverageValue of 1.

    Its saturation is the P90 of predicted latencies over SLOs of 3 s to the first token and 100 ms for each
    further one. Here the first token comes 0.6 s after a request stops waiting, and further ones take 20 to
    45 ms, by how full the pods are: 0.2 to 0.45 of the SLO without a queue, as its guide reports.
    """
    signal: deque[float] = deque(maxlen=3)
    """Of 45 s, by recording rules that run every 15 s."""

    def value(now: int, seen: Seen, pods: Sequence[Pod], _desired: int) -> float:
        count, ready = len(pods), sum(pod.ready_s is not None for pod in pods)
        if now % 15 == 0:
            full = seen.running / max(1, ready * RUNNING)
            first, further = (seen.wait_p90_s + 0.6) / 3.0, (0.020 + 0.025 * full) / 0.1
            signal.append(min(2.0, max(first, further)))
        level = sum(signal) / len(signal)
        if level > 0.55:
            credit = ready / count if 0 < ready < count else 1.0
            return count + math.ceil(count * (level * credit / 0.55 - 1))
        if level < 0.40:
            return count - math.floor(count * (1 - level / 0.40))
        return count

    return value
