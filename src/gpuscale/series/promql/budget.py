"""What one query may cost, and when it has to stop.

Two bounds need no clock, so they hold in virtual time too: the samples held at one time, and the work done.
A caller that has a clock passes `check`, which raises once the time is up.
"""

from collections.abc import Callable

from gpuscale.core.errors import QueryError
from gpuscale.series.promql import tree

MAX_SAMPLES = 5_000_000
"""Samples one query may hold at one time: those it reads for one step, and the results so far."""
MAX_WORK = 50_000_000
"""Work one query may do, in evaluations of a node for a series; a minute or two."""
SUBQUERY_STEP_MS = 60_000
"""The step of `[5m:]`; Prometheus takes its global evaluation interval, by default a minute."""
_WORK_PER_CHECK = 2_000
SAMPLES_PER_WORK = 32
"""Samples of a window that cost about as much as one evaluation."""

Check = Callable[[], None]
"""Raises QueryTimeoutError once a query has to stop; called every few milliseconds from any thread."""


class QueryTimeoutError(QueryError):
    """A query took longer than it may; the same query may be answered when less is going on."""


class Budget:
    """The samples that one query holds, and the work it has done.

    Args:
        check: called after every few thousand units of work; None where time is virtual.
    """

    __slots__ = ("_check", "_next_check", "_work", "held")

    def __init__(self, check: Check | None = None) -> None:
        self._check = check
        self._work = 0
        self._next_check = _WORK_PER_CHECK
        self.held = 0
        """Samples; a step sets it back to what it was before, plus its results."""

    def hold(self, samples: int) -> None:
        """Count samples that are about to be held.

        Raises:
            QueryError: they are too many; the text is Prometheus'.
        """
        self.held += samples
        if self.held > MAX_SAMPLES:
            raise QueryError(
                "query processing would load too many samples into memory in query execution"
            )

    def hold_window(self, samples: int) -> None:
        """Count the samples of one window, and the work of reading them."""
        self.hold(samples)
        self.work(1 + samples // SAMPLES_PER_WORK)

    def work(self, units: int = 1) -> None:
        """Count work.

        Raises:
            QueryError: it is too much.
            QueryTimeoutError: the time is up.
        """
        self._work += units
        if self._work >= self._next_check:
            self._next_check = self._work + _WORK_PER_CHECK
            if self._work > MAX_WORK:
                raise too_much_work(self._work)
            if self._check is not None:
                self._check()


def check_work(root: tree.Node, steps: int) -> None:
    """Pass a query whose steps alone, whatever the data, are not too much work.

    Args:
        root: of the query.
        steps: how often it is evaluated.

    Raises:
        QueryError: they are too much.
    """
    least = steps * evaluations(root)
    if least > MAX_WORK:
        raise too_much_work(least)


def evaluations(node: tree.Node) -> int:
    """Return how many nodes one evaluation visits, with each step of a subquery."""
    inner = sum(evaluations(child) for child in tree.children(node))
    if isinstance(node, tree.Subquery):
        inner *= max(1, node.range_ms // (node.step_ms or SUBQUERY_STEP_MS))
    return 1 + inner


def too_much_work(units: int) -> QueryError:
    """Return the error of a query that evaluates too much."""
    return QueryError(
        f"query would evaluate at least {units} expressions, expected at most {MAX_WORK}; "
        "take a larger step, a shorter range or fewer series"
    )
