"""The kernel's functions as numba compiles them; they take numpy's arrays of int64 for columns.

A simulator needs none of them by itself: `base.compiling.compiled` compiles its own loop with all of the
kernel that the loop calls.
"""

from collections.abc import Callable
from dataclasses import fields
from typing import Any

from gpuscale.base import compiling
from gpuscale.hpa.kernel.functions import PLAIN, Kernel


def fastest_kernel(say: Callable[[str], None]) -> Kernel:
    """Return the compiled functions, or the interpreted ones where numba is not installed, which it says."""
    if compiling.numba() is None:
        install = "pip install 'gpuscale[plan]'"
        say(f"found no Python package numba: slower; install it with: {install}")
        return PLAIN
    return compiled_kernel(say)


def compiled_kernel(say: Callable[[str], None]) -> Kernel:
    """Return the compiled functions; each is compiled when it is first called. numba has to be installed.

    Args:
        say: gets one line where something is not on the disk yet, since compiling takes seconds.
    """
    import numpy as np

    lines: list[str] = []
    names = [each.name for each in fields(Kernel) if each.name != "column"]
    functions = {
        name: compiling.compiled(getattr(PLAIN, name), None, lines.append) for name in names
    }
    if lines:
        say(f"compiling the HPA's arithmetic, once; it is kept in {compiling.cache_folder()}")

    def column(values: list[int]) -> Any:  # noqa: ANN401 - numpy's arrays are no MutableSequence
        return np.array(values, dtype=np.int64)

    return Kernel(column=column, **functions)
