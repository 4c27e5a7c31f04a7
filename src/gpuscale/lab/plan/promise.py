"""Whether a replay keeps a promise to users, and how much of what may be missed it used up."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy

from gpuscale.base.golang.durations import format_duration
from gpuscale.base.promises import PromiseTerm
from gpuscale.lab.plan.waiting import Requests, waits
from gpuscale.triggers.policies import Numbers, Policy, Replayed

SHORT = PromiseTerm("short", 0.005)
"""What is promised where nothing was said."""
_LEAST_ALLOWED = 1e-9
"""Less than one step of any demand: a promise of no miss at all still says which of two is worse."""
_IN_TIME_S = 1.0
_AIMED_AT = 0.7
"""Share of what may be missed that a policy aims at, since the days to come are others."""
Rows = numpy.ndarray[tuple[int, int], numpy.dtype[numpy.float64]]
"""A row for each term of a promise, with a column for each step or day."""


def percent_text(share: float) -> str:
    """Return a share as a percentage with two decimals."""
    return f"{100 * share:.2f} %"


@dataclass(frozen=True, slots=True)
class Promise:
    """What users are promised, all of it together."""

    terms: tuple[PromiseTerm, ...] = (SHORT,)

    def __str__(self) -> str:
        """Return it in the words of `--promise`."""
        return ", ".join(map(str, self.terms))

    @property
    def in_time_s(self) -> float:
        """Return how long a request may wait that counts as in time: as promised, or a second."""
        return next((each.limit_s for each in self.terms if each.measure == "wait"), _IN_TIME_S)

    @property
    def needs_requests(self) -> bool:
        """Return whether it depends on how long a request takes."""
        return any(each.measure in {"wait", "latency"} for each in self.terms)

    @property
    def needs_queue(self) -> bool:
        """Return whether it depends on more than the ready pods."""
        return any(each.measure != "short" for each in self.terms)

    def scaled(self, share: float) -> "Promise":
        """Return a stricter or looser promise: so many times as much may be missed."""
        terms = (replace(each, allowed=share * each.allowed) for each in self.terms)
        return Promise(tuple(terms))

    def counted(self, demand: Numbers, step_s: float) -> Rows:
        """Return, for each term and step, how much there is to keep it for: work in seconds, or the step."""
        steps, work = numpy.ones(len(demand)), demand * step_s
        return _rows(steps if each.measure == "short" else work for each in self.terms)

    def counted_in_all(self, demand: Numbers, step_s: float) -> Numbers:
        """Return, for each term, the sum of what is counted; a trifle where there is nothing."""
        found: Numbers = numpy.maximum(self.counted(demand, step_s).sum(axis=1), _LEAST_ALLOWED)
        return found

    def missed(self, replayed: Replayed, requests: Requests, first_step: int = 0) -> Rows:
        """Return, for each term and each step from one on, how much of what is counted misses it."""
        scored = slice(first_step, None)
        demand = replayed.demand[scored]
        work = demand * replayed.service.step_s
        waiting = waits(replayed, requests, first_step) if self.needs_requests else None
        found: list[Numbers] = []
        for each in self.terms:
            if each.measure == "short":
                found.append((demand > replayed.ready[scored] + 1e-9).astype(numpy.float64))
            elif each.measure == "errors":
                found.append(replayed.given_up[scored])
            elif waiting is not None:
                takes = requests if each.measure == "latency" else None
                found.append(waiting.late(each.limit_s, takes) * work)
        return _rows(found)

    def missed_shares(
        self, replayed: Replayed, requests: Requests, first_step: int = 0
    ) -> tuple[float, ...]:
        """Return the share that misses each term, from a step on."""
        counted = self.counted_in_all(replayed.demand[first_step:], replayed.service.step_s)
        missed = self.missed(replayed, requests, first_step).sum(axis=1)
        return tuple(map(float, missed / counted))

    def used(self, shares: Iterable[float]) -> float:
        """Return the part that is used up of what may be missed: beyond 1 the promise is broken.

        Args:
            shares: that miss each term; the worst one counts.
        """
        return max(
            share / max(each.allowed, _LEAST_ALLOWED)
            for share, each in zip(shares, self.terms, strict=True)
        )

    def told(self, shares: Sequence[float]) -> str:
        """Return in words what was kept, beside what was promised."""
        return ", and ".join(
            f"{self._told(each, share)} of the {what}; {bound} {percent_text(limit)} {must}"
            for each, share in zip(self.terms, shares, strict=True)
            for what, bound, limit, must in [_words(each)]
        )

    def figures(self, shares: Sequence[float]) -> str:
        """Return what was kept of each term, in its own sense: what was short, what was in time."""
        return ", ".join(map(self._told, self.terms, shares))

    @staticmethod
    def _told(term: PromiseTerm, share: float) -> str:
        return percent_text(share if term.measure in {"errors", "short"} else 1 - share)


def promised(policy: Policy, promise: Promise, requests: Requests) -> Policy:
    """Return a policy that works on a promise, if it knows of any: its margins follow the shortest wait."""
    timed = [each for each in promise.terms if each.measure in {"wait", "latency"}]
    known = {each.name: each for each in policy.parameters}
    if "wait_s" not in known or not (timed or promise.terms[0].measure == "short"):
        return policy

    def wait_s(term: PromiseTerm) -> float:
        return term.limit_s - (requests.service_s if term.measure == "latency" else 0.0)

    term = min(timed, key=wait_s, default=promise.terms[0])
    values = {
        "promise": _AIMED_AT * term.allowed,
        "wait_s": max(wait_s(term), 0.001) if timed else 0.0,
        "service_s": requests.service_s / requests.slots,
    }
    for name, value in values.items():
        before = known[name]
        if before.least < before.most:
            value = min(max(value, before.least), before.most)
        known[name] = replace(before, default=value, least=value, most=value)
    return replace(policy, parameters=tuple(known.values()))


def _rows(columns: Iterable[Numbers]) -> Rows:
    found: Rows = numpy.stack(list(columns))
    return found


def _words(term: PromiseTerm) -> tuple[str, str, float, str]:
    """Return what a percentage is of, and the bound that it has to keep."""
    limit = format_duration(round(1000 * term.limit_s))
    match term.measure:
        case "short":
            return "steps are short of pods", "at most", term.allowed, "may be"
        case "errors":
            return "requests are given up", "at most", term.allowed, "may be"
        case "wait":
            return f"requests wait at most {limit}", "at least", 1 - term.allowed, "must"
        case "latency":
            return f"requests are answered within {limit}", "at least", 1 - term.allowed, "must"
