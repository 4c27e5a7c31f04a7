"""The state of a fleet replay, in columns of numbers that numba can compile.

Names are counted from 0: service, pool, pod and node are places in columns. NOWHERE ends a list.
"""

from typing import Any, NamedTuple, TypeAlias

import numpy

from gpuscale.triggers.policies import Numbers

NOWHERE = -1
Counts: TypeAlias = numpy.ndarray[tuple[int], numpy.dtype[numpy.int64]]
"""One dimension of whole numbers."""
Table: TypeAlias = numpy.ndarray[tuple[int, int], Any]
"""Two dimensions."""


class Services(NamedTuple):
    """Columns with one number for each service; times are in steps unless named otherwise."""

    pool: Counts
    gpus: Counts
    """That one pod takes, on one node."""
    share: Numbers
    """What one pod asks for of its node's CPU and memory."""
    policy: Counts
    start_up: Counts
    lag: Counts
    start_up_s: Numbers
    lag_s: Numbers
    patience_s: Numbers
    most_waiting_s: Numbers
    least: Numbers
    most: Numbers
    first: Numbers
    """Replicas at the start."""
    memory_at: Counts
    """Where a policy's memory begins among all memories; one more number says where the last ends."""
    settings_at: Counts


class Pools(NamedTuple):
    """Columns with one number for each pool; times are in steps."""

    gpus: Counts
    """Of one node."""
    least: Counts
    most: Counts
    coming: Counts
    """From a node's order to its first pod."""
    unneeded: Counts
    """How long an empty node stays."""
    delay: Counts
    """How long all empty nodes stay after a node was ordered, for whichever pool."""
    spreads: Counts
    """1 where a pod goes where the most CPU and memory is left, 0 where the fewest GPUs are."""
    first_node: Counts
    """The pool's nodes have consecutive places from here; one more number ends the last."""


class Pods(NamedTuple):
    """Columns with one number for each pod slot; slots of removed pods are reused."""

    service: Counts
    node: Counts
    """NOWHERE while it waits for GPUs."""
    ordered: Counts
    placed: Counts
    due: Counts
    """The step from which it serves; those at the start serve at once."""
    older: Counts
    """The next older pod of its service; the next free place for one that is not used."""
    before: Counts
    after: Counts
    """Its neighbours in the pool's line of pods that wait."""


class Lists(NamedTuple):
    """Heads and ends of linked lists, with their counts."""

    youngest: Counts
    """The youngest pod of each service."""
    line_first: Counts
    line_last: Counts
    """The pods that wait, by pool, oldest first."""
    waiting: Table
    """How many wait, by pool and GPUs of a pod."""
    node_first: Table
    node_last: Table
    """Nodes by pool and free GPUs; of empty ones the first has been empty the longest."""
    node_before: Counts
    node_after: Counts
    node_free: Counts
    """NOWHERE where a node is not there."""
    node_share: Numbers
    """What its pods ask for of its CPU and memory."""
    node_number: Counts
    """It is the how manyth that came to its pool."""
    node_since: Counts
    """The step at which its free GPUs last changed."""
    unused_pod: Counts
    """The first free place of a pod, and the first that was never used."""
    unused_node: Counts
    """The first free place of a node, by pool."""
    nodes: Counts
    nodes_most: Counts
    """At a time, until now; they have the first places of the pool."""
    nodes_came: Counts
    """In all."""
    nodes_coming: Counts
    nodes_due: Table
    """By pool and step, as a ring."""
    last_order: Counts
    """One number: the step at which a node was ordered last, for whichever pool."""
    taken_node: Counts
    """The node that a pool's last pod went to, where pods spread."""
    taken_share: Numbers
    """What that node's pods asked for before."""
    taken_gpus: Counts
    """Of that pod; very many after a node came or GPUs were given back."""
    used: Counts
    """GPUs that pods are on, by pool."""


class Progress(NamedTuple):
    """The state that a service carries from step to step."""

    ready: Numbers
    starting: Numbers
    waiting: Numbers
    queue: Numbers
    pods_due: Table
    """By service and step, as a ring."""
    demand: Table
    utilization: Table
    queues: Table
    short: Table
    """Signals by service and step, as rings as long as the longest lag."""


class FleetColumns(NamedTuple):
    """The results by step and service, or by step and pool: 32-bit floats."""

    ready: Table
    """Pods that served during the step."""
    placed: Table
    """Pods that held GPUs after the step's orders: ready and starting."""
    waiting: Table
    """Pods that had no GPUs then."""
    queue: Table
    """Work that waited, in seconds of one pod."""
    given_up: Table
    """Work that was given up during the step, in the same unit."""
    nodes: Table
    nodes_coming: Table
    gpus_used: Table
    """GPUs that pods held, by pool."""


class PodRows(NamedTuple):
    """One row for each pod that was removed or exists at the end, up to the number of rows."""

    rows: Counts
    """How many were filled in, and how many pods there were in all."""
    service: Counts
    node: Counts
    ordered: Counts
    placed: Counts
    gone: Counts
    """The step; NOWHERE for pods that were there at the end."""
