"""Numbers of samples by age, coarsely: how far back a full store must cut."""

from collections import defaultdict


class SampleAges:
    """Counts of samples in time steps.

    Args:
        step_ms: how finely a cut can be placed.
    """

    def __init__(self, step_ms: int) -> None:
        self._step_ms = step_ms
        self._counts: defaultdict[int, int] = defaultdict(int)
        self.total = 0
        """Samples there are, of whatever time."""

    def add(self, t_ms: int, count: int) -> None:
        self._counts[t_ms // self._step_ms] += count
        self.total += count

    def cutoff_ms(self, wanted: int, now_ms: int) -> int | None:
        """Return the earliest time with `wanted` samples before it.

        What came in the current step stays, so it may be fewer; None where nothing can go.
        """
        current = now_ms // self._step_ms
        cutoff, older = None, 0
        for step in sorted(self._counts):
            if step >= current or older >= wanted:
                break
            older += self._counts[step]
            cutoff = step + 1
        return None if cutoff is None else cutoff * self._step_ms

    def forget(self, cutoff_ms: int) -> None:
        """Forget steps that end before a time; samples still there were kept for other reasons."""
        gone = [step for step in self._counts if (step + 1) * self._step_ms <= cutoff_ms]
        for step in gone:
            del self._counts[step]
