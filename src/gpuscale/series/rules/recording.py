"""Recording rules: queries whose results become series of their own.

Source: prometheus rules/recording.go (v3.0.0).
"""

from dataclasses import dataclass

from gpuscale.core.errors import GpuscaleError, QueryError
from gpuscale.series.labels import METRIC_NAME
from gpuscale.series.rules.rule import Results, Rule, samples_of
from gpuscale.series.values import Value


@dataclass(slots=True, kw_only=True)
class RecordingRule(Rule):
    """A rule that records its query's result under its own name."""

    def results(self, value: Value | GpuscaleError, limit: int) -> Results:
        """Return the samples to be recorded.

        Args:
            value: what the query gave, or the error it ended with.
            limit: how many series there may be; 0 for any number.

        Raises:
            GpuscaleError: the query failed, two series are the same, or there are too many.
        """
        over = {**self.labels, METRIC_NAME: self.name}
        named = [(labels.override(over), number) for labels, number in samples_of(value)]
        results = {labels.key: (labels, number) for labels, number in named}
        if len(results) != len(named):
            raise QueryError(
                "vector contains metrics with the same labelset after applying rule labels"
            )
        if limit and len(results) > limit:
            raise QueryError(f"exceeded limit of {limit} with {len(results)} series")
        return results
