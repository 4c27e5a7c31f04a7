"""Evaluates rule groups on their own schedules, each query in a thread with a deadline.

Groups run beside each other and are spread over their interval. One that takes longer than its interval
leaves evaluations out, and counts them.

Source: prometheus rules/group.go (run), rules/manager.go (v3.0.0).
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Sequence

from gpuscale.base.clock import Clock
from gpuscale.base.errors import BugError, GpuscaleError
from gpuscale.series import Value
from gpuscale.series.promapi import QueryPool
from gpuscale.series.promql import Check, QueryRange, Samples, instant
from gpuscale.series.rules import (
    Alert,
    AlertingRule,
    RuleFailure,
    RuleGroup,
    RuleGroups,
    RuleQuestion,
    RuleResult,
    restore,
)
from gpuscale.series.storage import SeriesStore
from gpuscale.server.sources.ruler.files import PrometheusRuleFiles
from gpuscale.server.sources.ruler.settings import RulerSettings

_LOG = logging.getLogger(__name__)
RESEND_MS = 60_000
"""How long after an alert was sent on it is sent again."""
_LOOK_S = 5.0
"""How often rule files are looked at."""
_MAX_REASONS = 10_000
"""Reasons that are remembered, so that each is logged once."""

Notify = Callable[[AlertingRule, Sequence[Alert]], None]
"""Takes alerts that fire or have ended."""


class Ruler:
    """Evaluates rule groups; a failing rule is counted and logged, and the others go on.

    Args:
        groups: to begin with.
        store: asked and written, by the event loop only.
        pool: which evaluates the queries.
        clock: times the evaluations.
        interval_ms: of groups without one.
        restores: whether alerts go on where they were before a restart, by what is in the store.
        notify: is given the alerts that are due to be sent.
        external_url: for templates of alerts.
    """

    def __init__(
        self,
        groups: RuleGroups,
        store: SeriesStore,
        pool: QueryPool,
        clock: Clock,
        interval_ms: int | None = None,
        *,
        restores: bool = False,
        notify: Notify | None = None,
        external_url: str = "",
    ) -> None:
        self.groups = groups
        self.interval_ms = RulerSettings().interval_ms if interval_ms is None else interval_ms
        self.iterations: Counter[str] = Counter()
        """Evaluations of groups that were due, by the group's key."""
        self.missed: Counter[str] = Counter()
        """Those of them that were left out because the one before took too long."""
        self.samples: dict[str, int] = {}
        """Of each group's latest evaluation."""
        self._store = store
        self._pool = pool
        self._clock = clock
        self._restores = restores
        self._notify = notify
        self._external_url = external_url
        self._reasons: dict[tuple[str, str], str] = {}
        self._tasks: dict[int, tuple[RuleGroup, asyncio.Task[None]]] = {}
        self._changed = asyncio.Event()
        self._begin(groups)

    async def evaluate(self, now_ms: int) -> RuleResult:
        """Evaluate the groups that are due, one after the other.

        For those who keep the pace themselves, instead of `run`.
        """
        samples = 0
        failures: tuple[RuleFailure, ...] = ()
        for group in self.groups.groups:
            if group.is_due(now_ms):
                result = await self._evaluate(group, now_ms)
                samples += result.samples
                failures += result.failures
        return RuleResult(samples, failures)

    async def run(self, files: PrometheusRuleFiles | None = None) -> None:
        """Evaluate each group on its own schedule until cancelled.

        Args:
            files: whose groups are taken as they change; None for those that are there.
        """
        async with asyncio.TaskGroup() as tasks:
            if files is not None:
                tasks.create_task(self.follow_files(files), name="rule files")
            while True:
                self._changed.clear()
                for group in self.groups.groups:
                    if id(group) not in self._tasks:
                        task = tasks.create_task(self._follow(group), name=f"rules {group.key}")
                        self._tasks[id(group)] = (group, task)
                await self._changed.wait()

    def replace(self, groups: RuleGroups, now_ms: int) -> None:
        """Use other groups; rules that stay keep their series and alerts."""
        before = {group.key: group for group in self.groups.groups}
        kept = {id(group) for group in groups.groups}
        for number, (_, task) in list(self._tasks.items()):
            if number not in kept:
                task.cancel()
                del self._tasks[number]
        self._begin(groups)
        for group in groups.groups:
            old = before.pop(group.key, None)
            if old is not None and old is not group:
                group.take_over(old)
                old.end(self._store, now_ms)
        for gone in before.values():
            gone.end(self._store, now_ms)
            self.iterations.pop(gone.key, None)
            self.missed.pop(gone.key, None)
            self.samples.pop(gone.key, None)
        self.groups = groups
        self._changed.set()

    def interval_of(self, group: RuleGroup) -> int:
        """Return the milliseconds between two evaluations of a group."""
        return group.interval_ms or self.interval_ms

    def failing(self) -> list[tuple[str, str]]:
        """Return the rules whose latest evaluation failed, as `group/rule`, and why."""
        return [
            (f"{group.name}/{rule.name}", rule.status.last_error)
            for group in self.groups.groups
            for rule in group.rules
            if rule.status.health == "err"
        ]

    def _begin(self, groups: RuleGroups) -> None:
        for group in groups.groups:
            group.external_url = self._external_url
        for rule in groups.rules():
            if isinstance(rule, AlertingRule) and rule.status.evaluated_ms is None:
                rule.is_restored = not self._restores

    async def _follow(self, group: RuleGroup) -> None:
        interval_ms = self.interval_of(group)
        phase_ms, now_ms = group.phase_ms(interval_ms), self._clock.now_ms()
        due_ms = now_ms + (phase_ms - now_ms) % interval_ms
        while True:
            await self._clock.sleep((due_ms - self._clock.now_ms()) / 1000)
            await self._evaluate(group, due_ms)
            if self._restores:
                restore(group, self._store, self._clock.now_ms())
            missed = max(0, (self._clock.now_ms() - due_ms) // interval_ms - 1)
            self.missed[group.key] += missed
            self.iterations[group.key] += missed
            due_ms += (missed + 1) * interval_ms

    async def follow_files(self, files: PrometheusRuleFiles) -> None:
        """Reload the rule files when they change, until cancelled."""
        while True:
            await self._clock.sleep(_LOOK_S)
            groups = await asyncio.to_thread(files.look)
            if groups is not None:
                self.replace(groups, self._clock.now_ms())

    async def _evaluate(self, group: RuleGroup, now_ms: int) -> RuleResult:
        seconds = asyncio.get_running_loop().time
        began = seconds()
        result = await self._finished(group, now_ms)
        group.evaluation_s = seconds() - began
        self.iterations[group.key] += 1
        self.samples[group.key] = result.samples
        self._report(result.failures)
        self._send(group, now_ms)
        return result

    async def _finished(self, group: RuleGroup, now_ms: int) -> RuleResult:
        seconds = asyncio.get_running_loop().time
        run = group.run(self._store, now_ms)
        try:
            question = next(run)
            while True:
                asked = seconds()
                value = await self._answer(question)
                question.status.evaluation_s = seconds() - asked
                question = run.send(value)
        except StopIteration as ended:
            result: RuleResult = ended.value
            return result

    async def _answer(self, question: RuleQuestion) -> Value | GpuscaleError:
        at_ms = question.at_ms

        def evaluate(samples: Samples, check: Check) -> Value:
            return instant(samples, question.query, at_ms, check=check)

        covered = QueryRange(at_ms, at_ms, 0)
        try:
            return await self._pool.evaluate(self._store, question.query, covered, evaluate)
        except GpuscaleError as error:
            return error
        except Exception as error:  # noqa: BLE001 - one rule must not end the process that scales
            return BugError(f"{type(error).__name__}: {error}")

    def _send(self, group: RuleGroup, now_ms: int) -> None:
        if self._notify is None:
            return
        for rule in group.rules:
            if isinstance(rule, AlertingRule):
                due = rule.to_send(now_ms, RESEND_MS, self.interval_of(group))
                if due:
                    self._notify(rule, due)

    def _report(self, failures: Sequence[RuleFailure]) -> None:
        """Log each failure once until its reason changes."""
        for failure in failures:
            rule = failure.group, failure.rule
            if self._reasons.get(rule) != failure.reason:
                if len(self._reasons) >= _MAX_REASONS:
                    self._reasons.clear()
                self._reasons[rule] = failure.reason
                _LOG.warning(
                    "rule %s of group %s failed: %s", failure.rule, failure.group, failure.reason
                )
