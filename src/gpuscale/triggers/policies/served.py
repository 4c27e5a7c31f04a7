"""A served policy: fed with a query's results as a replay feeds it with demand.

What it answers follows from the query's past and the time alone. Its memory begins with whole days before
today, and at the end of each day it begins again in the background. So all servers give the same
answer, whenever each of them was started, and a replay of the same demand gives it too. The pods that the
policy sees are calculated, not looked at: each takes the stated start-up time.

A load belongs to a moment of a grid that all servers share, and is asked for by a subquery that ends there.
"""

import math
from collections import deque
from dataclasses import dataclass
from datetime import UTC, datetime

import numpy

from gpuscale.base.errors import UpstreamError
from gpuscale.base.golang.durations import format_duration
from gpuscale.series import Matrix, Value
from gpuscale.series.promql import ValueType, parse_query, value_type
from gpuscale.triggers.policies.compiled import policy_function, resumer
from gpuscale.triggers.policies.policy import Numbers, Policy
from gpuscale.triggers.policies.replaying import SHORT_STEPS, ReplaySettings, fleet_cells
from gpuscale.triggers.trigger import ServedPolicy

STEP_MS = 15_000
"""Between two decisions, as the HPA controller's period."""
_DAY_MS = 86_400_000
_MOST_STEPS = 5_760
"""Of one question: a day."""
_LEAST_STEPS = 60
"""A source that can't answer for so many is away."""
_HOUR_STEPS = 240


@dataclass(frozen=True, slots=True)
class NextQuery:
    """The next query to ask."""

    promql: str
    at_ms: int
    """When the query is to be evaluated; it says so itself too."""
    first: int
    """The first moment that it is about, in steps since the epoch."""
    count: int
    is_ahead: bool
    """Whether it is for tomorrow's memory, which nothing waits for."""


@dataclass(frozen=True, slots=True)
class WantedReplicas:
    """A policy's wanted replicas."""

    replicas: int
    measured_ms: int
    """The time of the newest load that it saw."""
    words: tuple[str, ...]
    """What that rests on."""


class _Course:
    """A policy's memory, from one day on."""

    def __init__(self, origin: int, policy: Policy, service: ReplaySettings) -> None:
        self.origin = origin
        """The first moment that may be looked at, in steps since the epoch."""
        self.next = origin
        """The first moment that was not looked at."""
        self.began: int | None = None
        """The first moment with a load."""
        self.load = 0.0
        self.seen_at = origin
        """The newest moment with a load."""
        self.memory: Numbers = numpy.zeros(policy.memory)
        self.cells: Numbers = numpy.zeros(fleet_cells(service))
        self.replicas = math.nan
        self.recent: deque[float] = deque(maxlen=_HOUR_STEPS)

    @property
    def steps(self) -> int:
        return 0 if self.began is None else self.next - self.began


class PolicyRun:
    """One policy on one query: `question` says what to ask, `take` gets the answer, `wanted` is the result.

    Args:
        policy: that decides.
        use: how it is used.
        query: the load of the whole workload.
        known_from_ms: before it nothing is asked for; the simulator's start.
    """

    def __init__(
        self, policy: Policy, use: ServedPolicy, query: str, known_from_ms: int = 0
    ) -> None:
        self._policy = policy
        self._use = use
        # A number may not stand in a subquery, a vector may.
        is_number = value_type(parse_query(query).root) is ValueType.SCALAR
        self._query = f"vector({query}\n)" if is_number else query
        self._known_from = -(-known_from_ms // STEP_MS)
        step_s = STEP_MS / 1000
        self._service = ReplaySettings(
            step_s, use.start_s, use.lag_s, least=float(use.least), most=float(use.most)
        )
        self._lag = math.ceil(use.lag_s / step_s)
        self._settings = policy.settings(**dict(use.settings))
        self._count = _MOST_STEPS
        self._course: _Course | None = None
        self._ahead: _Course | None = None

    @property
    def size_bytes(self) -> int:
        """Return the bytes of its memory: today's and tomorrow's."""
        return run_bytes(self._policy, self._use)

    def question(self, now_ms: int) -> NextQuery | None:
        """Return the next query; None if no load is due."""
        newest = now_ms // STEP_MS - self._lag
        origin = self._origin(now_ms)
        course = self._course
        if course is None or origin - course.next > _HOUR_STEPS:
            course = self._course = _Course(min(origin, newest), self._policy, self._service)
            self._ahead = None
        if course.next <= newest:
            return self._question(course, newest, is_ahead=False)
        if origin > course.origin and self._ahead is None:
            self._ahead = _Course(origin, self._policy, self._service)
        ahead = self._ahead
        if ahead is None:
            return None
        if ahead.next <= newest:
            return self._question(ahead, newest, is_ahead=True)
        self._course, self._ahead = ahead, None
        return None

    def take(self, question: NextQuery, value: Value) -> bool:
        """Take a query's result, and return whether it ends with a load.

        Raises:
            UpstreamError: the answer is no row of numbers.
        """
        course = self._ahead if question.is_ahead else self._course
        if course is None or course.next != question.first:
            return True
        loads = _loads(question, value)
        self._count = min(_MOST_STEPS, 2 * self._count)
        known = numpy.flatnonzero(~numpy.isnan(loads))
        is_last_known = bool(len(known)) and int(known[-1]) == question.count - 1
        # A missing load may still arrive, unless a later one is there already.
        until = int(known[-1]) + 1 if len(known) else 0
        if not is_last_known and until < question.count - _HOUR_STEPS:
            until = question.count - _HOUR_STEPS
        self._go_on(course, loads[:until])
        return is_last_known

    def refused(self, question: NextQuery) -> bool:
        """Ask for shorter ranges, as the source failed; return whether that is possible."""
        self._count = max(_LEAST_STEPS, question.count // 2)
        return question.count > _LEAST_STEPS

    def uncovered(self, question: NextQuery, until_ms: int) -> None:
        """Skip the times that the source no longer has."""
        course = self._ahead if question.is_ahead else self._course
        if course is not None:
            course.next = max(course.next + 1, until_ms // STEP_MS + 1)

    def is_behind(self, now_ms: int) -> bool:
        """Return whether a load that was due a step ago is still missing."""
        return self._course is None or self._course.next < now_ms // STEP_MS - self._lag

    def share_learned(self, now_ms: int) -> float:
        """Return which share of the past to learn from has been read."""
        course = self._course
        if course is None:
            return 0.0
        whole = now_ms // STEP_MS - self._lag + 1 - course.origin
        return min(1.0, (course.next - course.origin) / max(1, whole))

    def wanted(self) -> WantedReplicas | None:
        """Return the wanted replicas; None if no load was seen yet."""
        course = self._course
        if course is None or math.isnan(course.replicas):
            return None
        return WantedReplicas(int(course.replicas), course.seen_at * STEP_MS, self._words(course))

    def _origin(self, now_ms: int) -> int:
        begin_ms = now_ms // _DAY_MS * _DAY_MS - round(self._use.learn_s * 1000)
        return max(begin_ms // STEP_MS, self._known_from, 0)

    def _question(self, course: _Course, newest: int, *, is_ahead: bool) -> NextQuery:
        count = min(self._count, newest - course.next + 1)
        at_s = (course.next + count - 1) * STEP_MS // 1000
        step_s = STEP_MS // 1000
        # The line break ends a comment; one step more, as Prometheus 3 excludes a range's left
        # boundary.
        promql = f"({self._query}\n)[{count * step_s}s:{step_s}s] @ {at_s}"
        return NextQuery(promql, at_s * 1000, course.next, count, is_ahead)

    def _go_on(self, course: _Course, loads: Numbers) -> None:
        for index in range(len(loads)):
            if math.isnan(loads[index]):
                loads[index] = course.load if course.began is not None else math.nan
            else:
                course.load = float(loads[index])
                course.seen_at = course.next + index
                if course.began is None:
                    course.began = course.next + index
        first = course.next
        course.next += len(loads)
        if course.began is None or not len(loads):
            return
        demand = loads[max(0, course.began - first) :] / self._use.pod_load
        step = max(first, course.began) - course.began + self._lag
        if first <= course.began:  # the first load stands in until there is a second one
            demand = numpy.concatenate((numpy.full(self._lag, demand[0]), demand))
            step = 0
        replicas = numpy.zeros(len(demand))
        resumer()(
            policy_function(self._policy.desired),
            self._settings,
            course.memory,
            course.cells,
            step,
            demand,
            ReplaySettings(*map(float, self._service)),
            replicas,
        )
        course.replicas = float(replicas[-1])
        course.recent.extend(demand[-_HOUR_STEPS:].tolist())

    def _words(self, course: _Course) -> tuple[str, ...]:
        policy, use = self._policy, self._use
        named = zip((each.name for each in policy.parameters), self._settings, strict=True)
        settings = ", ".join(f"{name} {value:g}" for name, value in named)
        replicas = f"{policy.title}: {course.replicas:g}, within {use.least} to {use.most}"
        demand = course.load / use.pod_load
        lines = [
            f"policy {policy.name}: {replicas}",
            f"policy settings: {settings or 'none'}",
            f"policy demand: {course.load:.6g} at {use.pod_load:g} a pod are {demand:.4g} pods; "
            f"{max(course.recent, default=0.0):.4g} was the most within an hour",
            f"policy start-up: a pod that is ordered now serves in {_length(use.start_s)}",
        ]
        if course.began is not None:
            since = datetime.fromtimestamp(course.began * STEP_MS / 1000, UTC)
            short = 100 * float(course.cells[SHORT_STEPS]) / max(1, course.steps)
            lines.append(
                f"policy memory: of {_length(course.steps * STEP_MS / 1000)}, since "
                f"{since:%Y-%m-%d %H:%M} UTC; by calculation, pods were short {short:.3g} % of it"
            )
        lines += [f"policy {what}: {course.memory[at]:.4g}" for what, at in policy.shown]
        return tuple(lines)


def run_bytes(policy: Policy, use: ServedPolicy) -> int:
    """Return the largest number of bytes for a policy's memory: today's and tomorrow's."""
    service = ReplaySettings(STEP_MS / 1000, use.start_s, use.lag_s)
    numbers = policy.memory + fleet_cells(service) + 4 * _HOUR_STEPS
    return 2 * 8 * numbers + 3 * 8 * _MOST_STEPS


def _loads(question: NextQuery, value: Value) -> Numbers:
    """Return the load at each time of a query; NaN if there is none."""
    if not isinstance(value, Matrix):
        raise UpstreamError("the answer is no row of numbers")
    if len(value.series) > 1:
        raise UpstreamError(f"the answer has {len(value.series)} rows, not 1")
    loads = numpy.full(question.count, math.nan)
    for series in value.series:
        for time_ms, number in series.points:
            index = time_ms // STEP_MS - question.first
            if 0 <= index < question.count and math.isfinite(number):
                loads[index] = max(0.0, number)
    return loads


def _length(seconds: float) -> str:
    return format_duration(round(seconds) * 1000)
