"""Exit codes, and the errors that map to them."""

from collections.abc import Iterator

NO = 1
"""The answer is no, or a part failed."""
WRONG_INPUT = 2
"""The input is wrong, or the question could not be asked."""
BUG = 70
"""gpuscale itself is at fault; EX_SOFTWARE of sysexits.h, so that no script takes it for an answer."""


def leaves(error: Exception) -> Iterator[Exception]:
    """Yield the errors of a group of tasks, or the error itself."""
    if isinstance(error, ExceptionGroup):
        for each in error.exceptions:
            yield from leaves(each)
    else:
        yield error
