"""Queries over the store of a run by formula; GPU series come from formulas."""

from collections.abc import Mapping, Sequence

from gpuscale.base.errors import BugError, QueryError, UncoveredError
from gpuscale.lab.sim.formula.formulas import Formulas
from gpuscale.lab.sim.formula.gpus import ReadGpus
from gpuscale.series import Matrix, Value
from gpuscale.series.promql import (
    Evaluable,
    PlannedQuery,
    Query,
    instant,
    parse_matchers,
    parse_query,
)
from gpuscale.series.storage import Selector, Series, SeriesStore


class FailedQueryError(Exception):
    """A query failed. Its message may name rows in another order than an exact run's."""


class FormulaSamples(Evaluable):
    """The store's samples, with results of formulas among them. Never waits.

    Args:
        store: has the series that are not of GPUs.
        formulas: say what of a query is not in there.
        gpus: give the results of formulas.
    """

    def __init__(self, store: SeriesStore, formulas: Formulas, gpus: ReadGpus) -> None:
        self._store = store
        self._formulas = formulas
        self._gpus = gpus
        self._stored = _Stored(store, formulas, gpus)

    def instant(self, query: PlannedQuery) -> Value:
        """Return the value of a query.

        Raises:
            FailedQueryError: it has none; no error of ours, so that it ends the run.
        """
        try:
            return instant(
                self._stored,
                Query("", self._formulas.rewritten(query.root)),
                query.covered.start_ms,
                lookback_ms=query.lookback_ms,
                left_open=query.left_open,
                check=query.check,
            )
        except UncoveredError:
            raise  # reads the store's samples, with their times
        except QueryError as error:
            raise FailedQueryError from error

    def range_query(self, _query: PlannedQuery) -> Matrix:
        """Raise: in virtual time there are only instant queries."""
        raise BugError("a run by formula was asked for a range")

    def series_now(self, selector: str, start_ms: int) -> Sequence[Mapping[str, str]]:
        """Return the label sets of the series with a sample since `start_ms`; of a field, the distinct ones.

        Raises:
            QueryError: not a selector.
        """
        matchers = parse_matchers(selector)
        series = self._formulas.field_of(matchers)
        if series is not None:
            return self._gpus.found(matchers, series, start_ms)
        return self._store.series(matchers, start_ms)

    def query_now(self, promql: str, at_ms: int) -> Value:
        """Return what the query evaluates to at `at_ms`.

        Raises:
            QueryError: not PromQL, or more of it than is supported.
        """
        return instant(self, parse_query(promql), at_ms)


class _Stored:
    """What the selectors of a rewritten query read."""

    def __init__(self, store: SeriesStore, formulas: Formulas, gpus: ReadGpus) -> None:
        self._formulas = formulas
        self._gpus = gpus
        self._select = store.select
        self.oldest_kept_ms = store.oldest_kept_ms

    def select(self, matchers: Selector) -> tuple[Series, ...]:
        formula = self._formulas.find(matchers)
        return self._select(matchers) if formula is None else self._gpus.results(formula)
