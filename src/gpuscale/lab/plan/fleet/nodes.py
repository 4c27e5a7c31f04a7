"""Nodes of a pool in buckets by free GPUs, so that packing a pod needs no search."""

import math

from gpuscale.lab.plan.fleet.state import NOWHERE, Counts, Lists, Pools

_SAME = 1e-9
"""What shares of a node may differ by rounding."""
NONE_TAKEN = 1_000_000
"""More GPUs than a node has."""


def add_node(pools: Pools, lists: Lists, pool: int, step: int) -> None:
    """Add an empty node to a pool."""
    node = lists.unused_node[pool]
    lists.unused_node[pool] = lists.node_after[node]
    lists.nodes[pool] += 1
    lists.nodes_most[pool] = max(lists.nodes_most[pool], lists.nodes[pool])
    lists.taken_gpus[pool] = NONE_TAKEN
    lists.nodes_came[pool] += 1
    lists.node_number[node] = lists.nodes_came[pool]
    lists.node_share[node] = 0.0
    _append(lists, pool, node, pools.gpus[pool], step)


def take_gpus(pools: Pools, lists: Lists, pool: int, gpus: int, share: float, step: int) -> int:
    """Take GPUs for a pod from a node, and return the node; NOWHERE if none has room.

    Where pods spread, it is the node of whose CPU and memory the most is left, and the oldest of equal ones.
    Elsewhere it is the fullest that has room, and of equal ones the last that changed, so that nodes that are
    long empty stay so, and can go.
    """
    spreads = pools.spreads[pool]
    node = _emptiest(pools, lists, pool, gpus) if spreads else _fullest(pools, lists, pool, gpus)
    if node != NOWHERE:
        free = lists.node_free[node]
        _remove(lists, pool, node)
        _append(lists, pool, node, free - gpus, step)
        lists.node_share[node] += share
        lists.used[pool] += gpus
    return int(node)


def _fullest(pools: Pools, lists: Lists, pool: int, gpus: int) -> int:
    for free in range(gpus, pools.gpus[pool] + 1):
        node = lists.node_last[pool, free]
        if node != NOWHERE:
            return int(node)
    return NOWHERE


def _emptiest(pools: Pools, lists: Lists, pool: int, gpus: int) -> int:
    first = pools.first_node[pool]
    end = first + lists.nodes_most[pool]
    best, least, oldest = NOWHERE, math.inf, 0
    # As long as no node was added and no GPU freed, nodes before the last one used have no room
    # either.
    is_by_age = lists.nodes_came[pool] == lists.nodes_most[pool]
    if is_by_age and gpus >= lists.taken_gpus[pool]:
        for node in range(lists.taken_node[pool], end):
            if (
                lists.node_free[node] >= gpus
                and lists.node_share[node] < lists.taken_share[pool] + _SAME
            ):
                best, least = node, lists.node_share[node]
                break
    if best == NOWHERE:
        for node in range(first, end):
            if lists.node_free[node] >= gpus:
                share, number = lists.node_share[node], lists.node_number[node]
                if share < least - _SAME or (share < least + _SAME and number < oldest):
                    best, least, oldest = node, share, number
    if best != NOWHERE:
        lists.taken_node[pool], lists.taken_share[pool] = best, least
        lists.taken_gpus[pool] = gpus
    return best


def give_gpus(lists: Lists, pool: int, node: int, gpus: int, share: float, step: int) -> None:
    """Free a pod's GPUs on its node."""
    lists.node_share[node] -= share
    lists.taken_gpus[pool] = NONE_TAKEN
    _remove(lists, pool, node)
    _append(lists, pool, node, lists.node_free[node] + gpus, step)
    lists.used[pool] -= gpus


def remove_empty(pools: Pools, lists: Lists, pool: int, step: int) -> None:
    """Remove nodes that have been empty for long, down to the pool's minimum."""
    if step - lists.last_order[0] < pools.delay[pool]:
        return
    size = pools.gpus[pool]
    node = lists.node_first[pool, size]
    while (
        node != NOWHERE
        and lists.nodes[pool] > pools.least[pool]
        and step - lists.node_since[node] >= pools.unneeded[pool]
    ):
        _remove(lists, pool, node)
        lists.node_free[node] = NOWHERE
        lists.node_after[node] = lists.unused_node[pool]
        lists.unused_node[pool] = node
        lists.nodes[pool] -= 1
        node = lists.node_first[pool, size]


def order_nodes(pools: Pools, lists: Lists, pool: int, step: int) -> None:
    """Order the nodes that waiting pods need beyond those on their way, up to the pool's maximum."""
    needed = nodes_for(lists.waiting[pool], pools.gpus[pool]) - lists.nodes_coming[pool]
    room = pools.most[pool] - lists.nodes[pool] - lists.nodes_coming[pool]
    ordered = min(needed, room)
    if ordered > 0:
        lists.last_order[0] = step
        lists.nodes_coming[pool] += ordered
        lists.nodes_due[pool, (step + pools.coming[pool]) % lists.nodes_due.shape[1]] += ordered


def nodes_for(waiting: Counts, size: int) -> int:
    """Return the number of nodes needed for pods: largest pods first, each on the fullest node with room.

    Args:
        waiting: pods by their GPUs.
        size: GPUs of a node.
    """
    nodes = 0
    free = [0] * (size + 1)
    for gpus in range(size, 0, -1):
        left = waiting[gpus]
        room = gpus
        while left > 0 and room <= size:
            # Each of these nodes takes as many pods as fit; the last may take fewer.
            each = room // gpus
            full = min(free[room], left // each)
            free[room] -= full
            free[room - each * gpus] += full
            left -= full * each
            if left > 0 and free[room] > 0:
                free[room] -= 1
                free[room - left * gpus] += 1
                left = 0
            room += 1
        if left > 0:
            each = size // gpus
            full = left // each
            nodes += full
            free[size - each * gpus] += full
            left -= full * each
            if left > 0:
                nodes += 1
                free[size - left * gpus] += 1
    return int(nodes)


def _append(lists: Lists, pool: int, node: int, free: int, step: int) -> None:
    last = lists.node_last[pool, free]
    lists.node_free[node] = free
    lists.node_since[node] = step
    lists.node_before[node] = last
    lists.node_after[node] = NOWHERE
    if last == NOWHERE:
        lists.node_first[pool, free] = node
    else:
        lists.node_after[last] = node
    lists.node_last[pool, free] = node


def _remove(lists: Lists, pool: int, node: int) -> None:
    free = lists.node_free[node]
    before, after = lists.node_before[node], lists.node_after[node]
    if before == NOWHERE:
        lists.node_first[pool, free] = after
    else:
        lists.node_after[before] = after
    if after == NOWHERE:
        lists.node_last[pool, free] = before
    else:
        lists.node_before[after] = before
