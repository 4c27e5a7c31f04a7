"""Triggers of files as external metrics, so that a plain HPA can scale on them, to zero and back."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from gpuscale.base.clock import Clock
from gpuscale.base.errors import UnavailableError
from gpuscale.base.exposition.families import Family
from gpuscale.base.golang.durations import format_duration
from gpuscale.base.objects.metric_values import ExternalValue
from gpuscale.base.objects.selectors import Selector
from gpuscale.base.quantity import milli_text
from gpuscale.base.words import counted
from gpuscale.server.metricsapi.health import HealthCheck, remarked
from gpuscale.server.metricsapi.provider import FIRST_DISCOVERY_S
from gpuscale.server.metricsapi.triggers.families import trigger_family
from gpuscale.server.metricsapi.triggers.files import TriggerFiles
from gpuscale.server.metricsapi.triggers.opened import Triggers
from gpuscale.server.metricsapi.wire.paths import ExternalTarget
from gpuscale.triggers import Trigger

if TYPE_CHECKING:
    from gpuscale.server.metricsapi.why.hops import Explanation

_LOOK_S = 5.0


class TriggerUnknownError(UnavailableError):
    """A trigger's value is not known."""


class ServedTriggers:
    """The external metrics of triggers in files.

    Args:
        paths: files, and folders with files.
        triggers: answers.
        clock: times the checks of the files.

    Raises:
        ConfigError: a file has faults.
    """

    def __init__(self, paths: Sequence[Path], triggers: Triggers, clock: Clock) -> None:
        self._files = TriggerFiles(paths, clock.now_ms())
        self._triggers = triggers
        self._clock = clock
        self._began_ms = clock.now_ms()
        triggers.watch.pin(self._files.by_name.values())

    async def follow(self) -> None:
        """Reload the files when they change, until cancelled."""
        while True:
            await self._clock.sleep(_LOOK_S)
            if self._files.look(self._clock.now_ms()):
                self._triggers.watch.pin(self._files.by_name.values())

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names of all triggers, sorted."""
        return tuple(sorted({name for _, name in self._files.by_name}))

    def has(self, target: ExternalTarget, _selector: Selector) -> bool:
        """Return whether a trigger has the name."""
        return (target.namespace, target.metric) in self._files.by_name

    def _find(self, target: ExternalTarget) -> Trigger:
        return self._files.by_name[target.namespace, target.metric]

    async def values(self, target: ExternalTarget, selector: Selector) -> tuple[ExternalValue, ...]:
        """Return a trigger's value; as it has no labels, a selector that needs one matches nothing.

        Raises:
            TriggerUnknownError: nothing is known of it yet.
        """
        return (self._value(self._find(target)),) if selector.matches({}) else ()

    def _value(self, trigger: Trigger) -> ExternalValue:
        answer = self._triggers.answer(trigger)
        if answer is None:
            raise TriggerUnknownError(f"{trigger.name} was not evaluated yet")
        if answer.value is None or answer.measured_ms is None:
            raise TriggerUnknownError(f"{trigger.name}: {answer.reason}")
        return ExternalValue({}, round(answer.value * 1000), answer.measured_ms)

    async def why(self, target: ExternalTarget, _selector: Selector) -> "Explanation":
        """Return how a trigger's value came about."""
        from gpuscale.server.metricsapi.why.hops import Explanation, ServedValue

        trigger = self._find(target)
        names = ("trigger", "load", "wake", "pods", "answer")
        asked = f"{trigger.name}, external, in {trigger.namespace}, of a trigger"
        explanation = Explanation(asked, names)
        workload = trigger.workload
        of = f"{workload.kind} {workload.name}" if workload else "no workload"
        hold = format_duration(round(trigger.hold_s * 1000))
        explanation.ok("trigger", f"{of}, target {trigger.target:g} a pod, hold {hold}")
        outcome = self._triggers.watch.outcome(trigger)
        if outcome is None:
            fix = "Ask again in a second."
            return explanation.failed("load", "it was not evaluated yet", fix)
        lines = [line.partition(": ")[::2] for line in outcome.story]
        load = [said for what, said in lines if what == "load"]
        credit = [said for what, said in lines if what == "credit"]
        wakes = [f"{what} {said}" for what, said in lines if what.startswith("wake source")]
        pods = [f"{what} {said}" for what, said in lines if what.startswith(("pods", "starting"))]
        policy = [f"{what} {said}" for what, said in lines if what.startswith("policy ")]
        explanation.ok("load", "; ".join(load), *credit, *policy)
        explanation.ok("wake", counted(len(wakes), "wake source"), *wakes)
        explanation.ok("pods", "; ".join(pods) or "no pods are looked at")
        answer = outcome.answer
        if answer.value is None:
            fix = "Bring back the source that is away; a first decision needs all of them."
            return explanation.failed("answer", answer.reason, fix)
        explanation.ok("answer", f"{answer.basis}: {answer.reason}")
        milli = round(answer.value * 1000)
        age_ms = self._clock.now_ms() - (answer.measured_ms or 0)
        active = "active" if answer.is_active else "inactive"
        explanation.values.append(ServedValue(active, milli_text(milli), max(0, age_ms)))
        return explanation

    def families(self) -> tuple[Family, ...]:
        """Return the metrics of triggers and their files."""
        state = self._files.state
        return (
            *self._triggers.families(),
            trigger_family(
                "files_last_reload_successful",
                "gauge",
                "1 if the trigger files as they are now are served.",
                {(): int(state.fault is None)},
            ),
            trigger_family(
                "files_reload_failures_total",
                "counter",
                "Changes of the trigger files that were not taken.",
                {(): state.failures},
            ),
        )

    def checks(self) -> list[HealthCheck]:
        """Return health checks of triggers and their files."""
        fault = self._files.state.fault
        note = None if fault is None else f"the last good triggers stay: {fault}"
        pending = sum(answer is None for _, answer in self._triggers.watch.answers())
        first = f"{counted(pending, 'trigger')} not evaluated yet" if pending else None
        is_awaited = self._clock.now_ms() - self._began_ms < FIRST_DISCOVERY_S * 1000
        checks = [remarked("triggers", [note, first]), *self._triggers.checks()]
        return [HealthCheck("first-values", first), *checks] if first and is_awaited else checks
