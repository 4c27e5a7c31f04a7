"""The score of a replay: GPU-hours, shortage, waiting, changes, nodes, money."""

import math
from dataclasses import dataclass

import numpy

from gpuscale.lab.plan.promise import Promise
from gpuscale.lab.plan.waiting import Requests, waits
from gpuscale.lab.plan.windows import highest_behind
from gpuscale.triggers.policies import Numbers, Replayed

DEFAULT_REQUESTS = Requests(service_s=1.0)


@dataclass(frozen=True, slots=True)
class Nodes:
    """The nodes that replicas are packed on, with their price."""

    gpus_per_replica: int = 1
    gpus_per_node: int = 8
    unneeded_s: float = 600.0
    """How long a node stays that is not needed, as the Cluster Autoscaler's --scale-down-unneeded-time."""
    price_per_hour: float | None = None
    currency: str = ""


@dataclass(frozen=True, slots=True)
class Score:
    """The figures of the scored steps."""

    gpu_hours: float
    """Of replicas that served or started."""
    short_share: float
    """Share of steps in which demand exceeded the ready pods."""
    given_up_share: float
    """Share of the work that clients did not wait for."""
    wait_mean_s: float
    wait_p50_s: float
    wait_p95_s: float
    wait_p99_s: float
    within_share: float
    """Share of the requests that wait no longer than was promised, or than a second."""
    missed: tuple[float, ...]
    """Share that misses each term of the promise."""
    events: int
    """Changes of the replicas asked for."""
    node_hours: float
    cost: float | None
    """In the nodes' currency; None without a price."""


def score(
    replayed: Replayed,
    first_step: int,
    nodes: Nodes,
    promise: Promise,
    requests: Requests = DEFAULT_REQUESTS,
) -> Score:
    """Return the score of a replay from a step on.

    Args:
        replayed: all of it, since nodes stay from before.
        first_step: where scoring begins.
        nodes: that replicas are packed on.
        promise: to users.
        requests: what one takes, which says how long it waits.
    """
    scored = slice(first_step, None)
    step_s = replayed.service.step_s
    demand, replicas = replayed.demand[scored], replayed.replicas[scored]
    waiting = waits(replayed, requests, first_step)
    work = float(demand.sum()) * step_s
    node_hours = float(node_count(replayed.replicas, nodes, step_s)[scored].sum()) * step_s / 3600
    return Score(
        gpu_hours=pod_hours(replayed, first_step) * nodes.gpus_per_replica,
        short_share=short_share(replayed, first_step),
        given_up_share=float(replayed.given_up[scored].sum()) / work if work else 0.0,
        wait_mean_s=waiting.mean(),
        wait_p50_s=waiting.percentile(50),
        wait_p95_s=waiting.percentile(95),
        wait_p99_s=waiting.percentile(99),
        within_share=1 - waiting.exceeding(promise.in_time_s),
        missed=promise.missed_shares(replayed, requests, first_step),
        events=int((numpy.diff(replicas) != 0).sum()),
        node_hours=node_hours,
        cost=None if nodes.price_per_hour is None else node_hours * nodes.price_per_hour,
    )


def pod_hours(replayed: Replayed, first_step: int) -> float:
    """Return the pod-hours of serving and starting pods, from a step on."""
    return float(replayed.replicas[first_step:].sum()) * replayed.service.step_s / 3600


def short_share(replayed: Replayed, first_step: int) -> float:
    """Return the share of steps, from one on, in which demand exceeds the ready pods."""
    demand, ready = replayed.demand[first_step:], replayed.ready[first_step:]
    return float((demand > ready + 1e-9).mean())


def node_count(replicas: Numbers, nodes: Nodes, step_s: float) -> Numbers:
    """Return the number of nodes at each step: replicas packed tightly, empty nodes kept for a while."""
    per_node = max(1, nodes.gpus_per_node // nodes.gpus_per_replica)
    needed = numpy.ceil(replicas / per_node - 1e-9)
    return highest_behind(needed, math.ceil(nodes.unneeded_s / step_s))
