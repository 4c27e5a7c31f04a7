"""Limits on a query's memory and work, and its deadline.

Two bounds need no clock, so they hold in virtual time too: the bytes held at one time, and the work done.
A caller that has a clock passes `check`, which raises once the time is up.

Bytes are what a query adds to the process: samples it copies, vectors between its nodes, label sets and
texts that it makes, and its answer. Label sets of the store are only referred to, and so is a text that is
in several label sets: where a text is made it is counted, once.
"""

from collections.abc import Callable, Iterable, Sequence

from gpuscale.base.errors import QueryError
from gpuscale.series.labels import LabelSet
from gpuscale.series.promql import tree

MAX_BYTES = 36 * 1024 * 1024
"""Bytes one query may hold at one time, its answer included. With working arrays and what the allocator takes
beside them, the process grows by 64 MiB."""
MAX_WORK = 50_000_000
"""Work one query may do, in evaluations of a node for a series; a minute or two."""
SUBQUERY_STEP_MS = 60_000
"""The step of `[5m:]`; Prometheus takes its global evaluation interval, by default a minute."""
_WORK_PER_CHECK = 2_000
SAMPLES_PER_WORK = 32
"""Samples of a window that cost about as much as one evaluation."""
ROW_BYTES = 130
"""A row of a vector, label set aside: a tuple, a float, an integer, and its place in a list."""
POINT_BYTES = 40
"""A sample in lists of numbers, which a step adds to."""
SAMPLE_BYTES = 16
"""A sample in arrays."""
SERIES_BYTES = 250
"""What holds the samples of one series."""
_LABEL_SET_BYTES = 90
"""A label set, less eight bytes for each label and the texts."""

Check = Callable[[], None]
"""Raises QueryTimeoutError once a query has to stop; called every few milliseconds from any thread."""


class QueryTimeoutError(QueryError):
    """A query took too long; it may succeed when the server is less busy."""


class TooManyBytesError(QueryError):
    """A query would take more memory than it may."""


class Budget:
    """The memory a query holds and the work it has done; a call checks the deadline.

    Args:
        check: called after every few thousand units of work; None where time is virtual.
    """

    __slots__ = ("_check", "_next_check", "_work", "held", "labels", "most")

    def __init__(self, check: Check | None = None) -> None:
        self._check = check
        self._work = 0
        self._next_check = _WORK_PER_CHECK
        self.held = 0
        """Bytes of samples and vectors; who lets go of some sets it back."""
        self.labels = 0
        """Bytes of label sets and texts that were made; vectors hand them on."""
        self.most = 0
        """Bytes of both together that were held at one time."""

    @classmethod
    def of(cls, check: Check | None) -> "Budget":
        """Return a query's own budget, or a new one with its deadline."""
        return check if isinstance(check, Budget) else cls(check)

    def __call__(self) -> None:
        """Check the deadline.

        Raises:
            QueryTimeoutError: the time is up.
        """
        if self._check is not None:
            self._check()

    def hold(self, size: int) -> None:
        """Count bytes before they are allocated.

        Raises:
            TooManyBytesError: they are too many.
        """
        self.held += size
        self._look()

    def hold_labels(self, size: int) -> None:
        """Count the bytes of new label sets and their texts.

        Raises:
            TooManyBytesError: they are too many.
        """
        self.labels += size
        self._look()

    def _look(self) -> None:
        total = self.held + self.labels
        self.most = max(self.most, total)
        if total > MAX_BYTES:
            # Starts like Prometheus' message for too many samples.
            raise TooManyBytesError(
                "query processing would load too many samples into memory in query execution: "
                f"{total} bytes, {self.labels} of them in labels that the query makes, "
                f"expected at most {MAX_BYTES}; "
                "select fewer series or a shorter range, take a larger step, or aggregate first"
            )

    def restart(self) -> None:
        """Reset the count, as everything was freed."""
        self.held = self.labels = 0

    def hold_window(self, samples: int) -> None:
        """Count the samples of one window, and the work of reading them."""
        self.hold(SERIES_BYTES + SAMPLE_BYTES * samples)
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
            self()


def row_bytes(rows: Sequence[tuple[LabelSet, float, int]], *, new_labels: bool) -> int:
    """Return the approximate bytes of a vector's rows.

    Args:
        rows: of the vector; the size of some is taken for the others too.
        new_labels: whether their label sets were made for it.
    """
    if not rows or not new_labels:
        return ROW_BYTES * len(rows)
    some = rows[:: 1 + len(rows) // 8]
    return ROW_BYTES * len(rows) + label_set_bytes(row[0] for row in some) * len(rows) // len(some)


def label_set_bytes(label_sets: Iterable[LabelSet]) -> int:
    """Return the bytes of label sets without their texts, which are shared."""
    lengths = [len(labels.key) for labels in label_sets]
    return _LABEL_SET_BYTES * len(lengths) + 8 * sum(lengths)


def check_work(root: tree.Node, steps: int) -> None:
    """Raise if a query's number of steps alone is too much work.

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
    """Return how many nodes one evaluation visits, counting each step of a subquery."""
    inner = sum(evaluations(child) for child in tree.children(node))
    if isinstance(node, tree.Subquery):
        inner *= max(1, node.range_ms // (node.step_ms or SUBQUERY_STEP_MS))
    return 1 + inner


def too_much_work(units: int) -> QueryError:
    """Return the error for a query with too much work."""
    return QueryError(
        f"query would evaluate at least {units} expressions, expected at most {MAX_WORK}; "
        "take a larger step, a shorter range or fewer series"
    )
