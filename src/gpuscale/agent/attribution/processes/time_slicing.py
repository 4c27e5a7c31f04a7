"""An estimate of a shared GPU's busy time that is spent switching between processes.

Processes that have work at the same time take turns of about 2 ms. A switch ends each turn, and the driver
counts it as use. Neither the driver nor the profiling counters tell switches from work, so this is an
estimate: the part of its busy time in which a GPU has several processes with work, times what turns cost
then.

Work is taken to arrive at random, and independently by process. Then the number of bursts on the GPU is
geometric, each burst is a process' with the probability of its part of the use, and the time in which all of
them are of one process follows. A process with little work waits less than that says: beside one other it has
half of the GPU, so it is there for twice as long as its work takes.
"""

from collections.abc import Sequence

TURN_COST = 0.11
"""Part of a contended GPU's time that goes to switches. Two halves of recordings of an H200 with driver 580
gave 0.104 and 0.118, each by itself."""
_HIGHEST_PERCENT = 100


def switching_part(uses: Sequence[float]) -> float:
    """Return the estimated share of busy time spent on switches.

    Args:
        uses: of each process over one window, in percent of the time.
    """
    total = sum(uses)
    if total <= 0:
        return 0.0
    busy = min(total, _HIGHEST_PERCENT) / _HIGHEST_PERCENT
    parts = [use / total for use in uses if use > 0]
    if len(parts) < 2:
        return 0.0
    alone = (1 - busy) * sum(part / (1 - busy * part) for part in parts)
    contended = min(1 - alone, 2 * (1 - max(parts)))
    return TURN_COST * contended
