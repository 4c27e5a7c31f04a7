"""What a source of metric values must answer."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from gpuscale.series.values import Value


class MetricSource(Protocol):
    """A Prometheus, or something that answers as one would."""

    async def series(self, selector: str, start_ms: int) -> Sequence[Mapping[str, str]]:
        """Return the label sets, `__name__` included, of the series with a sample since `start_ms`.

        Raises:
            QueryError: the selector is no PromQL.
            UnavailableError: no answer; trying again may help.
            UpstreamError: the source answered with an error.
        """
        ...

    async def query(self, promql: str, at_ms: int) -> Value:
        """Return what the query evaluates to at `at_ms`.

        Raises:
            QueryError: the text is no PromQL.
            UnavailableError: no answer; trying again may help.
            UpstreamError: the source answered with an error.
        """
        ...
