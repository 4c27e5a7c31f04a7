"""Pods of the services: ordered, waiting in their pool's line, placed, ready, and gone youngest first."""

from gpuscale.lab.plan.fleet.nodes import give_gpus, take_gpus
from gpuscale.lab.plan.fleet.state import NOWHERE, Lists, PodRows, Pods, Pools, Progress, Services


def order(
    pods: Pods, lists: Lists, services: Services, service: int, count: int, step: int
) -> None:
    """Append new pods of a service to its pool's queue."""
    pool, gpus = services.pool[service], services.gpus[service]
    for _ in range(count):
        pod = lists.unused_pod[0]
        if pod == NOWHERE:
            pod = lists.unused_pod[1]
            lists.unused_pod[1] += 1
        else:
            lists.unused_pod[0] = pods.older[pod]
        pods.service[pod] = service
        pods.node[pod] = NOWHERE
        pods.ordered[pod] = step
        pods.older[pod] = lists.youngest[service]
        lists.youngest[service] = pod
        last = lists.line_last[pool]
        pods.before[pod] = last
        pods.after[pod] = NOWHERE
        if last == NOWHERE:
            lists.line_first[pool] = pod
        else:
            pods.after[last] = pod
        lists.line_last[pool] = pod
    lists.waiting[pool, gpus] += count


def place(
    pods: Pods,
    lists: Lists,
    services: Services,
    pools: Pools,
    own: Progress,
    pool: int,
    step: int,
    is_start: bool,
) -> None:
    """Give GPUs to a pool's waiting pods, oldest first; a pod without room lets smaller ones pass.

    At the start pods serve at once.
    """
    pod = lists.line_first[pool]
    too_many = pools.gpus[pool] + 1
    while pod != NOWHERE and too_many > 1:
        service, after = pods.service[pod], pods.after[pod]
        gpus = services.gpus[service]
        node = NOWHERE
        if gpus < too_many:
            node = take_gpus(pools, lists, pool, gpus, services.share[service], step)
        if node == NOWHERE:
            too_many = min(too_many, gpus)
        else:
            _leave_line(pods, lists, pool, gpus, pod)
            pods.node[pod] = node
            pods.placed[pod] = step
            own.waiting[service] -= 1
            if is_start:
                pods.due[pod] = step
                own.ready[service] += 1
            else:
                due = step + services.start_up[service]
                pods.due[pod] = due
                own.starting[service] += 1
                own.pods_due[service, due % own.pods_due.shape[1]] += 1
        pod = after


def remove(
    pods: Pods,
    lists: Lists,
    services: Services,
    own: Progress,
    details: PodRows,
    service: int,
    step: int,
) -> None:
    """Remove a service's youngest pod, as a ReplicaSet removes unready pods before ready ones."""
    pool, gpus = services.pool[service], services.gpus[service]
    pod = lists.youngest[service]
    if pods.node[pod] == NOWHERE:
        _leave_line(pods, lists, pool, gpus, pod)
        own.waiting[service] -= 1
    else:
        give_gpus(lists, pool, pods.node[pod], gpus, services.share[service], step)
        if pods.due[pod] > step:
            own.starting[service] -= 1
            own.pods_due[service, pods.due[pod] % own.pods_due.shape[1]] -= 1
        else:
            own.ready[service] -= 1
    write_down(pods, details, pod, step)
    lists.youngest[service] = pods.older[pod]
    pods.older[pod] = lists.unused_pod[0]
    lists.unused_pod[0] = pod


def write_down(pods: Pods, details: PodRows, pod: int, gone: int) -> None:
    """Write a pod's row, if there is space for one."""
    row = details.rows[1]
    details.rows[1] += 1
    if row < len(details.service):
        details.rows[0] += 1
        details.service[row] = pods.service[pod]
        details.node[row] = pods.node[pod]
        details.ordered[row] = pods.ordered[pod]
        details.placed[row] = pods.placed[pod] if pods.node[pod] != NOWHERE else NOWHERE
        details.gone[row] = gone


def _leave_line(pods: Pods, lists: Lists, pool: int, gpus: int, pod: int) -> None:
    before, after = pods.before[pod], pods.after[pod]
    if before == NOWHERE:
        lists.line_first[pool] = after
    else:
        pods.after[before] = after
    if after == NOWHERE:
        lists.line_last[pool] = before
    else:
        pods.before[after] = before
    lists.waiting[pool, gpus] -= 1
