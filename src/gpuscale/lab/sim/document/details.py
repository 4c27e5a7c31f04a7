"""Series of single pods and GPUs, kept while there are few enough.

A cluster of 10 000 nodes has a hundred thousand of them, and a day once a minute takes 6 GiB. What a fleet is
judged by, its loads, queues, replicas, nodes and HPAs, is a few hundred.
"""

from collections.abc import Mapping

from gpuscale.base.pages.timeline import SeriesRecorder

MAX_VALUES = 20_000_000
"""About 1 GiB; 1 000 nodes of 8 GPUs with a pod each, once a minute, for 20 hours."""


class Details:
    """Counts the values of single pods and GPUs, and drops all of them if there are too many.

    Args:
        recorder: keeps them.
        most: how many are kept; None keeps all.
    """

    def __init__(self, recorder: SeriesRecorder, most: int | None) -> None:
        self._recorder = recorder
        self._most = most
        self._kept = 0
        self._names: set[str] = set()
        self.left_out = ""
        """Why there are none; empty while they are kept."""

    def kept(self, values: Mapping[str, float | None]) -> Mapping[str, float | None]:
        """Return the values to record: all, or none once there were too many."""
        if self._most is None:
            return values
        if not self.left_out:
            self._kept += len(values)
            self._names |= values.keys()
            if self._kept <= self._most:
                return values
            self.left_out = (
                f"series of {len(self._names)} pods and GPUs have more than {self._most} values"
            )
            self._recorder.forget(self._names)
            self._names.clear()
        return {}
