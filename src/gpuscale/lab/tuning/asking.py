"""The search of `gpuscale tune`: settings of the HPA and of other policies, with their outcomes."""

import sys
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace

from gpuscale.base import compiling
from gpuscale.base.errors import UsageError
from gpuscale.lab.plan.bounds import fewest_standing
from gpuscale.lab.plan.choosing import Offer, SearchChoice, choose
from gpuscale.lab.plan.comparing import (
    ReplayedWorkload,
    ScoredPolicy,
    Split,
    bounds_of,
    node_verdicts,
    question_of,
    row_of,
    row_on_nodes,
    split_of,
    verdicts,
)
from gpuscale.lab.plan.promise import Promise, promised
from gpuscale.lab.plan.tuning.contender import Contender
from gpuscale.lab.plan.tuning.pooled import OnNodes, on_nodes
from gpuscale.lab.plan.tuning.search import Each, ReplayCase, Search
from gpuscale.lab.plan.tuning.workers import workers
from gpuscale.lab.tuning.answers import Pooled, TuningRequest, TuningResult
from gpuscale.lab.tuning.autoscaler import TARGET, TunedHpa
from gpuscale.lab.tuning.shown import document_of
from gpuscale.lab.tuning.state import TuningState
from gpuscale.triggers.policies import (
    HPA,
    HPA_ON_DEMAND,
    OF_REQUESTS,
    POLICIES,
    STATIC,
    Numbers,
    Parameter,
)

TODAY, TUNED, WITH_NODES = "today", "tuned", "with nodes"
_WITHOUT_REQUESTS = (
    "How long a request takes is not known, so the HPA on requests in flight and on those that wait are left"
    " out; --seconds-per-request says it."
)
_GUESSED_REQUESTS = (
    "How long a request takes is not known: while pods keep up, waits are those of requests that take a"
    " second. --seconds-per-request says it."
)
_SLOW = (
    "gpuscale: numba is not installed, so this takes some 50 times as long;"
    " install it with: pip install 'gpuscale[plan]'"
)
_FIRST = "gpuscale: compiling policies, once, for a minute or two; they are kept in {}"
_BETTER_TARGET = 0.6
"""Where the search of an HPA on another signal begins."""


Progress = Callable[[str], AbstractContextManager[Callable[[str], None]]]
"""Shows what is being done for as long as it is entered, and yields what changes the text."""


def unseen(_: str) -> AbstractContextManager[Callable[[str], None]]:
    """Show nothing."""
    return nullcontext(lambda _: None)


def answer(
    workload: ReplayedWorkload,
    autoscaler: TunedHpa,
    asked: TuningRequest,
    progress: Progress = unseen,
) -> TuningResult:
    """Search, and return the result; Ctrl-C ends the search with the best result so far.

    Raises:
        UsageError: the promise is of latencies, and how long a request takes is not known.
    """
    if not workload.knows_requests and any(
        each.measure == "latency" for each in asked.promise.terms
    ):
        unknown = f"found {asked.promise}, and how long a request takes is not known"
        raise UsageError(
            f"--promise: {unknown}; give --seconds-per-request, or promise wait= instead"
        )
    split = split_of(workload, asked.held_back)
    question = question_of(workload, split, asked.promise, asked.seed)
    static = int(
        fewest_standing(question.demand, workload.service, asked.promise, workload.requests)
    )
    peak = float(question.demand.max())
    contender, nodes = _keeping(
        autoscaler.contender(workload.service, static, peak), workload, static, asked
    )
    if compiling.numba() is None:
        sys.stderr.write(f"{_SLOW}\n")
    elif not sys.stderr.isatty() and not any(compiling.cache_folder().rglob("*.nbc")):
        sys.stderr.write(f"{_FIRST.format(compiling.cache_folder())}\n")
    state = TuningState(asked.state, question)
    with (
        progress("compiling policies, which are kept") as say,
        workers(asked.on, asked.workers) as each,
    ):
        units = {TARGET: autoscaler.full}
        found = _Found(workload, split, asked, question, say, each, state, units)
        found.add_row(TODAY, "the HPA as it is", contender, contender.today)
        is_whole = found.search(TUNED, "the HPA, tuned", contender)
        pooled = None
        if nodes is not None and is_whole:
            pooled, is_whole = found.search_nodes(nodes)
        for name in asked.policies:
            if name in OF_REQUESTS and not workload.knows_requests:
                continue
            if is_whole and name != autoscaler.policy.name:
                other = _other(name, autoscaler, workload, static, peak, asked.promise)
                other = other.keeping(asked.kept)
                is_whole = found.search(name, other.policy.title, other)
    limits = bounds_of(workload, split, asked.promise)
    today, tuned, *others = found.rows
    choice = found.choices[TUNED]
    said = [choice.said]
    if tuned.chance is not None and split.is_held_back:
        before = f"; with today's settings in {100 * (today.chance or 0):.0f}"
        said.append(
            "Drawn anew from the days that were held back, some of them several times, the promise holds in"
            f" {100 * tuned.chance:.0f} of 100 draws{before}."
        )
    said += verdicts(workload, split, limits, today, tuned, others, asked.promise)
    if not workload.knows_requests and OF_REQUESTS.keys() & set(asked.policies):
        said.append(_WITHOUT_REQUESTS)
    if asked.promise.needs_requests and not workload.knows_requests:
        said.append(_GUESSED_REQUESTS)
    if pooled is not None:
        said.append(pooled.choice.said)
        said += node_verdicts(workload, split, limits, list(pooled.rows))
    elif asked.has_nodes and workload.without_pool:
        said.append(workload.without_pool)
    document = document_of(
        workload,
        split,
        found.rows,
        found.offered,
        limits,
        choice,
        said,
        asked,
        found.tried,
        pooled,
        is_whole=is_whole,
    )
    rows, offered = tuple(found.rows), tuple(found.offered)
    return TuningResult(
        workload, split, document, rows, offered, limits, asked.promise, choice, contender, pooled
    )


def _keeping(
    contender: Contender, workload: ReplayedWorkload, static: int, asked: TuningRequest
) -> tuple[Contender, OnNodes | None]:
    """Return the HPA with some settings fixed, alone and on its nodes.

    Raises:
        UsageError: they have no such setting.
    """
    nodes = None
    if workload.pool is not None and asked.has_nodes:
        nodes = on_nodes(contender, workload.pool, static)
    known = [each.name for each in (nodes or contender).parameters]
    if unknown := [name for name in asked.kept if name not in known]:
        raise UsageError(f"--keep: found {unknown[0]!r}, expected of: {', '.join(known)}")
    return contender.keeping(asked.kept), nodes and nodes.keeping(asked.kept)


def _other(
    name: str,
    autoscaler: TunedHpa,
    workload: ReplayedWorkload,
    static: int,
    peak: float,
    promise: Promise,
) -> Contender:
    """Return a registered policy as a contender."""
    if name in {HPA.name, HPA_ON_DEMAND.name}:
        return autoscaler.on(POLICIES[name], _BETTER_TARGET, workload.service, static, peak)
    if name in OF_REQUESTS:
        request_s = [workload.requests.service_s]
        policy = OF_REQUESTS[name]
        return autoscaler.on(policy, _BETTER_TARGET, workload.service, static, peak, request_s)
    if name == STATIC.name:
        count = Parameter("replicas", float(static), float(static), float(static))
        return Contender(replace(STATIC, parameters=(count,)))
    policy = promised(POLICIES[name], promise, workload.requests)
    return Contender(policy.fixed() if policy.learns else policy)


class _Found:
    """The results so far."""

    def __init__(
        self,
        workload: ReplayedWorkload,
        split: Split,
        asked: TuningRequest,
        question: ReplayCase,
        say: Callable[[str], None],
        each: Each,
        state: TuningState,
        units: Mapping[str, float],
    ) -> None:
        self.rows: list[ScoredPolicy] = []
        self.offered: list[Offer] = []
        self.choices: dict[str, SearchChoice] = {}
        self.tried = 0
        self._workload = workload
        self._split = split
        self._asked = asked
        self._question = question
        self._say = say
        self._each = each
        self._state = state
        self._units = units
        gpus = workload.nodes.gpus_per_replica
        self._hours_per_pod_step = gpus * workload.service.step_s / 3600

    def search(self, name: str, title: str, contender: Contender) -> bool:
        """Search a contender, and add a row for its best settings; return whether the search finished."""
        search = Search(self._question, contender, self._each, self._state.known(contender))
        is_whole = self._run(search, name, self._hours_per_pod_step, "GPU-hours")
        if name not in {TUNED, HPA_ON_DEMAND.name}:
            self.add_row(name, title, contender, search.best.values)
            return is_whole
        choice = choose(
            search,
            contender,
            self._asked.promise,
            self.rows[0],
            lambda values: self._row(name, title, contender, values),
            lambda row: row.score.gpu_hours,
            self._units if name == TUNED else {},
        )
        self.choices[name] = choice
        self.offered += choice.offers
        self.rows.append(choice.taken.row)
        return is_whole

    def search_nodes(self, contender: OnNodes) -> tuple[Pooled, bool]:
        """Search the HPA together with its nodes; return the outcome, and whether the search finished.

        It begins at the settings that the search of the HPA alone found before.
        """
        tuned = contender.with_hpa([*self.choices[TUNED].taken.values])
        known = self._state.known(contender)
        search = Search(self._question, contender, self._each, known, [tuned])
        hours_per_step = self._workload.service.step_s / 3600
        is_whole = self._run(search, WITH_NODES, hours_per_step, "node-hours")

        def scored(values: Numbers, name: str, title: str) -> ScoredPolicy:
            promise = self._asked.promise
            return row_on_nodes(
                self._workload, self._split, contender, values, promise, name, title
            )

        today = scored(contender.today, TODAY, "the HPA and its nodes as they are")
        choice = choose(
            search,
            contender,
            self._asked.promise,
            today,
            lambda values: scored(values, WITH_NODES, "the HPA and its nodes, tuned together"),
            lambda row: row.score.node_hours,
            self._units,
            tuned="Tuned together with its nodes",
        )
        with_tuned = scored(tuned, TUNED, "the HPA, tuned, and its nodes as they are")
        return Pooled(contender.pool, (today, with_tuned, choice.taken.row), choice), is_whole

    def _run(self, search: Search, name: str, hours_per_step: float, unit: str) -> bool:
        """Run a search, report progress and save its state; return whether it finished."""
        is_whole = True
        try:
            for count in search.run(self._asked.tries):
                self.tried += count
                hours = search.best.paid_steps * hours_per_step
                self._say(
                    f"{name}: {self.tried:,} settings tried in all; best so far {hours:,.0f} {unit}"
                )
                self._state.save()
        except KeyboardInterrupt:
            is_whole = False
        self._state.save(now=True)
        return is_whole

    def add_row(self, name: str, title: str, contender: Contender, values: Numbers) -> None:
        """Score values on the scored days, and keep the row."""
        self.rows.append(self._row(name, title, contender, values))

    def _row(self, name: str, title: str, contender: Contender, values: Numbers) -> ScoredPolicy:
        promise = self._asked.promise
        return row_of(self._workload, self._split, contender, values, promise, name, title)
