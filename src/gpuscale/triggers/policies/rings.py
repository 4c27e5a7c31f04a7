"""Ring buffers in a policy's memory."""

from gpuscale.triggers.policies.policy import Numbers, Seen


def held(value: float, seen: Seen, memory: Numbers, first: int, size: int, hold_s: float) -> float:
    """Add a value to a ring buffer, and return the maximum of the last `hold_s` seconds.

    Args:
        value: of this step.
        seen: says which step it is.
        memory: the policy's.
        first: where the ring begins in it.
        size: steps that the ring holds, which bounds the hold.
        hold_s: how far to look back; the step itself always counts.
    """
    memory[first + seen.step % size] = value
    steps = min(size, max(1, int(hold_s / seen.step_s)), seen.step + 1)
    highest = value
    for back in range(steps):
        highest = max(highest, memory[first + (seen.step - back) % size])
    return highest
