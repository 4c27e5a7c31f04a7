"""The loop of a fleet replay: services as in `triggers.policies.replaying`, with pods that need GPUs.

Every service works as it says there, and where GPUs are never short it does the same to the bit. Pods
that find no GPUs wait in their pool's line, oldest first; nodes are ordered for them, come after their
pool's time, and go when they were empty for long. Plain arithmetic, so that it runs compiled as it stands.
"""

import math

from gpuscale.lab.plan.fleet.nodes import add_node, order_nodes, remove_empty
from gpuscale.lab.plan.fleet.pods import order, place, remove, write_down
from gpuscale.lab.plan.fleet.state import (
    NOWHERE,
    FleetColumns,
    Lists,
    PodRows,
    Pods,
    Pools,
    Progress,
    Services,
    Table,
)
from gpuscale.triggers.policies import Desired, Numbers, Seen


def run(
    policies: tuple[Desired, ...],
    settings: Numbers,
    memory: Numbers,
    demand: Table,
    step_s: float,
    first_step: int,
    services: Services,
    pools: Pools,
    pods: Pods,
    lists: Lists,
    own: Progress,
    columns: FleetColumns,
    details: PodRows,
) -> None:
    """Step through the demand, and fill the result columns.

    At each step nodes that are due come and waiting pods start on them, pods that are due become ready, the
    step's work is done and the policies decide; then new pods are placed, and nodes ordered and removed.

    Args:
        policies: what `services.policy` counts.
        settings: of all services, one after the other.
        memory: of all policies, likewise.
        demand: in pods, by step and service.
        step_s: length of a step.
        first_step: that the first row is; a long run may be made in parts.
        services: what they are.
        pools: what they are.
        pods: their places; enough for the most pods of all services.
        lists: heads and counts.
        own: what services remember.
        columns: written.
        details: written; rows for those pods that went.
    """
    # A call copies the reference to every column, which costs more than a step: so only changes
    # are calls.
    ready_of, starting_of, waiting_of = own.ready, own.starting, own.waiting
    rings, places = own.pods_due.shape[1], own.demand.shape[1]
    for row in range(len(demand)):
        step = first_step + row
        for pool in range(len(pools.gpus)):
            _bring_nodes(pools, lists, pool, step)
            if lists.line_first[pool] != NOWHERE:
                place(pods, lists, services, pools, own, pool, step, step == 0)
        for service in range(len(services.pool)):
            due = own.pods_due[service, step % rings]
            if due > 0:
                ready_of[service] += due
                starting_of[service] -= due
                own.pods_due[service, step % rings] = 0.0
            ready = ready_of[service]
            work = own.queue[service] + demand[row, service] * step_s
            capacity = ready * step_s
            done = min(work, capacity)
            most = services.most_waiting_s[service]
            if services.patience_s[service] < math.inf:
                most = min(most, ready * services.patience_s[service])
            queue = min(work - done, most)
            own.queue[service] = queue
            columns.given_up[row, service] = work - done - queue
            columns.ready[row, service] = ready
            columns.queue[row, service] = queue
            here = step % places
            own.demand[service, here] = demand[row, service]
            own.utilization[service, here] = done / capacity if ready > 0 else math.nan
            own.queues[service, here] = queue
            own.short[service, here] = 1.0 if demand[row, service] > ready + 1e-9 else 0.0
            then = max(0, step - services.lag[service]) % places
            replicas = ready + starting_of[service] + waiting_of[service]
            seen = Seen(
                step,
                step_s,
                services.start_up_s[service],
                services.lag_s[service],
                own.demand[service, then],
                own.utilization[service, then],
                own.queues[service, then],
                own.short[service, then],
                ready,
                replicas,
                services.least[service],
            )
            wanted = policies[services.policy[service]](
                seen,
                memory[services.memory_at[service] : services.memory_at[service + 1]],
                settings[services.settings_at[service] : services.settings_at[service + 1]],
            )
            if math.isnan(wanted):
                continue
            wanted = min(
                max(math.ceil(wanted - 1e-9), services.least[service]), services.most[service]
            )
            if wanted > replicas:
                order(pods, lists, services, service, int(wanted - replicas), step)
                waiting_of[service] += wanted - replicas
            for _ in range(int(replicas - wanted)):
                remove(pods, lists, services, own, details, service, step)
        for pool in range(len(pools.gpus)):
            if lists.line_first[pool] != NOWHERE:
                place(pods, lists, services, pools, own, pool, step, False)
                order_nodes(pools, lists, pool, step)
            remove_empty(pools, lists, pool, step)
            columns.nodes[row, pool] = lists.nodes[pool]
            columns.nodes_coming[row, pool] = lists.nodes_coming[pool]
            columns.gpus_used[row, pool] = lists.used[pool]
        for service in range(len(services.pool)):
            columns.placed[row, service] = ready_of[service] + starting_of[service]
            columns.waiting[row, service] = waiting_of[service]


def _bring_nodes(pools: Pools, lists: Lists, pool: int, step: int) -> None:
    here = step % lists.nodes_due.shape[1]
    for _ in range(lists.nodes_due[pool, here]):
        add_node(pools, lists, pool, step)
    lists.nodes_coming[pool] -= lists.nodes_due[pool, here]
    lists.nodes_due[pool, here] = 0


def write_down_the_rest(pods: Pods, lists: Lists, details: PodRows) -> None:
    """Write the rows of the pods that exist at the end."""
    for service in range(len(lists.youngest)):
        pod = lists.youngest[service]
        while pod != NOWHERE:
            write_down(pods, details, pod, NOWHERE)
            pod = pods.older[pod]
