"""Recording rules evaluated beside the event loop, each query with a deadline."""

import logging
from collections import Counter

from gpuscale.core.errors import BugError, GpuscaleError
from gpuscale.series.budget import Check
from gpuscale.series.evaluate import Samples, instant
from gpuscale.series.recording import RecordingRules, RuleFailure, RuleQuestion, RuleResult
from gpuscale.series.rows import QueryRange
from gpuscale.series.store import SeriesStore
from gpuscale.series.values import Value
from gpuscale.sources.query_pool import QueryPool

_log = logging.getLogger(__name__)


class RuleRecorder:
    """Evaluates the rules of one file; a rule that fails is counted and reported, and ends nothing.

    Args:
        rules: whose results are recorded.
        store: asked and written.
        pool: which evaluates the queries.
    """

    def __init__(self, rules: RecordingRules, store: SeriesStore, pool: QueryPool) -> None:
        self._rules = rules
        self._store = store
        self._pool = pool
        self._reasons: dict[tuple[str, str], str] = {}
        self.failures: Counter[str] = Counter()
        """Failed evaluations by the name of the rule's series."""

    async def record(self, now_ms: int) -> RuleResult:
        """Evaluate the rules that are due at a time, in milliseconds since the epoch."""
        run = self._rules.run(self._store, now_ms)
        try:
            question = next(run)
            while True:
                question = run.send(await self._answer(question))
        except StopIteration as ended:
            result: RuleResult = ended.value
            self._report(result.failures)
            return result

    async def _answer(self, question: RuleQuestion) -> Value | GpuscaleError:
        covered = QueryRange(question.at_ms, question.at_ms, 0)

        def evaluate(samples: Samples, check: Check) -> Value:
            return instant(samples, question.query, question.at_ms, check=check)

        try:
            return await self._pool.evaluate(self._store, question.query, covered, evaluate)
        except GpuscaleError as error:
            return error
        except Exception as error:  # noqa: BLE001 - one rule must not end the process that scales
            return BugError(f"{type(error).__name__}: {error}")

    def _report(self, failures: tuple[RuleFailure, ...]) -> None:
        """Log each failure, but not the one that was last logged of its rule."""
        self.failures.update(failure.record for failure in failures)
        for failure in failures:
            rule = failure.group, failure.record
            if self._reasons.get(rule) != failure.reason:
                self._reasons[rule] = failure.reason
                _log.warning(
                    "recording rule %s of group %s failed: %s",
                    failure.record,
                    failure.group,
                    failure.reason,
                )


def rule_recorder(
    rules: RecordingRules | None, store: SeriesStore, pool: QueryPool
) -> RuleRecorder | None:
    """Return what evaluates a scenario's rules; None where it has none."""
    return None if rules is None else RuleRecorder(rules, store, pool)
