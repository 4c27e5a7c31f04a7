"""Whether discovery would find other metrics, found out at a part of the cost of listing all series.

Which metrics a rule gives follows from the names of its series and of their labels. A Prometheus reads both
from its index: for 10 000 series that takes a tenth of the CPU of listing them, and their list is
megabytes. As it may count in series that ended a while ago, all are listed again after a time.
"""

from collections.abc import Mapping, Sequence

from gpuscale.base.errors import GpuscaleError
from gpuscale.series import METRIC_NAME, Matcher, MatchOp
from gpuscale.series.promql import parse_matchers, promql_text, tree
from gpuscale.server.rules.catalogue import SeriesShape
from gpuscale.server.sources.asking.single_flight import SharedSource

_QUESTION_ROWS = 100
"""What a question for names costs, in series of a list."""


class Changes:
    """Looks for changes since the last list of series.

    Args:
        questions: go to the source.
        longest_ms: after which all series are listed again.
    """

    def __init__(self, questions: SharedSource, longest_ms: int) -> None:
        self._questions = questions
        self._longest_ms = longest_ms
        self._listed_ms: dict[str, int] = {}

    def listed(self, query: str, at_ms: int) -> None:
        """Record that all series of a series query were listed."""
        self._listed_ms[query] = at_ms

    def keep(self, queries: Sequence[str]) -> None:
        """Forget all series queries but these."""
        self._listed_ms = {each: ms for each, ms in self._listed_ms.items() if each in queries}

    async def are_none(
        self, query: str, shapes: Sequence[SeriesShape], start_ms: int, at_ms: int
    ) -> bool:
        """Return whether a new list would equal the last one; False if unknown, or if a list costs no more.

        Args:
            query: a series query.
            shapes: what it gave last.
            start_ms: since when a series has to have a sample.
            at_ms: now.
        """
        labels: dict[str, frozenset[str]] = {}
        for shape in shapes:
            labels[shape.name] = labels.get(shape.name, frozenset()) | shape.labels
        series = sum({shape.name: shape.series for shape in shapes}.values())
        is_due = at_ms - self._listed_ms.get(query, -self._longest_ms) >= self._longest_ms
        if is_due or series < _QUESTION_ROWS * (1 + len(labels)):
            return False
        try:
            return await self._are_same(query, labels, start_ms)
        except GpuscaleError:
            return False  # the list request has the better error message

    async def _are_same(
        self, query: str, labels: Mapping[str, frozenset[str]], start_ms: int
    ) -> bool:
        names = await self._questions.names(query, start_ms, of_metrics=True)
        if names != frozenset(labels):
            return False
        others = [each for each in parse_matchers(query) if each.name != METRIC_NAME]
        for name, known in labels.items():
            named = Matcher(METRIC_NAME, MatchOp.EQUAL, name)
            select = promql_text(tree.Select((named, *others), tree.Moment()))
            found = await self._questions.names(select, start_ms, of_metrics=False)
            if found is None or found - {METRIC_NAME} != known:
                return False
        return True
