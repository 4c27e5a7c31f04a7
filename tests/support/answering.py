"""Triggers whose answers a test sets, in place of what evaluates them in a cluster."""

import asyncio
from collections.abc import AsyncIterator, Mapping

from gpuscale.base.errors import UsageError
from gpuscale.triggers.answer import Answer, TooManyTriggersError
from gpuscale.triggers.trigger import PodLoad, Trigger, WorkloadRef


def measured(value: float, *, is_active: bool | None = None, measured_ms: int = 1_000) -> Answer:
    """Return an answer that all sources gave."""
    return Answer(value, value > 0 if is_active is None else is_active, "measured", "", measured_ms)


def held(value: float, seconds: float, *, is_active: bool = True) -> Answer:
    return Answer(value, is_active, "held", "the source is away", 1_000, seconds)


UNAVAILABLE = Answer(None, None, "unavailable", "Prometheus did not answer yet", None)


def read_plainly(metadata: Mapping[str, str], namespace: str) -> Trigger:
    """Return a trigger of metadata with `workload`, `query` and `target`."""
    faults = [
        f"{key}: found nothing, expected it"
        for key in ("workload", "target")
        if key not in metadata
    ]
    if faults:
        raise UsageError("\n".join(faults))
    return Trigger(
        namespace,
        metadata.get("metricName", "queue"),
        WorkloadRef("Deployment", metadata["workload"]),
        PodLoad(query=metadata.get("query", "up")),
        float(metadata["target"]),
    )


class SetAnswers:
    """Answers by metric name, as a test sets them; those of a name without one are never evaluated.

    Args:
        most: triggers that are watched.
    """

    def __init__(self, most: int = 100_000) -> None:
        self.watched: set[Trigger] = set()
        self._most = most
        self._answers: dict[str, Answer] = {}
        self._changed: dict[str, asyncio.Event] = {}
        self.kept_answers: dict[str, Answer] = {}
        """By metric name: of a process before."""

    def set(self, name: str, answer: Answer) -> None:
        self._answers[name] = answer
        self._changed.pop(name, asyncio.Event()).set()

    def answer(self, trigger: Trigger) -> Answer | None:
        self._watch(trigger)
        return self._answers.get(trigger.name)

    def kept(self, trigger: Trigger) -> Answer | None:
        return self.kept_answers.get(trigger.name)

    async def changes(self, trigger: Trigger) -> AsyncIterator[Answer]:
        self._watch(trigger)
        seen: tuple[object, object] | None = None
        while True:
            changed = self._changed.setdefault(trigger.name, asyncio.Event())
            answer = self._answers.get(trigger.name)
            if answer is not None and (answer.is_active, answer.basis) != seen:
                seen = (answer.is_active, answer.basis)
                yield answer
            else:
                await changed.wait()

    def _watch(self, trigger: Trigger) -> None:
        if trigger not in self.watched and len(self.watched) >= self._most:
            raise TooManyTriggersError(f"{self._most} triggers are watched already")
        self.watched.add(trigger)
