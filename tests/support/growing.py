"""How work grows with the number of things: counted in steps of Python, not in seconds."""

import gc
import re
import sys
from collections.abc import Callable
from itertools import pairwise
from types import FrameType
from typing import Any

SIZES = (8, 12, 16, 20)


def steps_of(function: Callable[[], object]) -> int:
    """Return how many instructions of Python's bytecode a function takes, with all that it calls."""
    steps = 0

    def count(_frame: FrameType, _event: str, _argument: object) -> Any:
        nonlocal steps
        steps += 1
        return count

    def enter(frame: FrameType, _event: str, _argument: object) -> Any:
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        return count

    re.purge()  # What an earlier size compiled would look like work that a later one is spared.
    gc.collect()
    gc.disable()  # Nor is it this function's work to clear away what is left of an earlier size.
    before = sys.gettrace()
    sys.settrace(enter)
    try:
        function()
    finally:
        sys.settrace(before)
        gc.enable()
    return steps


def steps_per_pair(prepare: Callable[[int], Callable[[], object]]) -> float:
    """Return what is done for each pair of things: 0 where the work is a constant and so much for each thing.

    With `a + b n + c n²` steps for n things, second differences over equal distances d are `2 c d²`.

    Args:
        prepare: from how many things there are to what is measured; what it does itself is not.
    """
    prepare(SIZES[-1])()  # What is read once in a process, such as tables of names.
    steps = [steps_of(prepare(size)) for size in SIZES]
    first = [more - fewer for fewer, more in pairwise(steps)]
    second = [more - fewer for fewer, more in pairwise(first)]
    return max(second) / (2 * (SIZES[1] - SIZES[0]) ** 2)
