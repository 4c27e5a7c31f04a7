"""Events of a run, in Kubernetes' words."""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from gpuscale.hpa import Event

MAX_EVENTS = 200_000
"""Older ones are dropped; a run of weeks stays bounded."""


@dataclass(frozen=True, slots=True)
class SimulationEvent:
    """An event about one object."""

    time_ms: int
    kind: str
    """The reason of the Kubernetes event, where there is one: `SuccessfulRescale`, `FailedScheduling`."""
    object: str
    """`Kind/name`."""
    reason: str
    """The message."""
    before: float | None = None
    """Count, or rate, before; for events that change one."""
    after: float | None = None
    namespace: str = ""
    """Of the object; empty where it has none."""
    type: str = "Normal"
    """`Normal` or `Warning`."""
    pods: tuple[str, ...] = ()
    """Keys of the pods that it happened for, where the object is none of the cluster's."""


def simulation_event(
    event: Event,
    about: str,
    namespace: str,
    time_ms: int,
    change: tuple[int, int] | None = None,
) -> SimulationEvent:
    """Return an event of the HPA controller or of KEDA, about an object, with the counts that it changes."""
    before, after = change or (None, None)
    return SimulationEvent(
        time_ms, event.reason, about, event.message, before, after, namespace, event.type
    )


class EventLog:
    """The events of a run, oldest first, and the listeners for new ones."""

    def __init__(self) -> None:
        self._events: deque[SimulationEvent] = deque(maxlen=MAX_EVENTS)
        self._listeners: list[Callable[[SimulationEvent], None]] = []
        self._repeat_listeners: list[Callable[[SimulationEvent], None]] = []
        self.total = 0
        """Events so far, dropped ones included."""

    def add(self, event: SimulationEvent) -> None:
        self._events.append(event)
        self.total += 1
        for listener in self._listeners:
            listener(event)

    def listen(self, listener: Callable[[SimulationEvent], None]) -> None:
        """Call `listener` with every later event."""
        self._listeners.append(listener)

    def repeat(self, event: SimulationEvent) -> None:
        """Report a repetition of an event; only its first occurrence is in the log."""
        for listener in self._repeat_listeners:
            listener(event)

    def count_repeats(self, listener: Callable[[SimulationEvent], None]) -> None:
        """Call `listener` with every later repetition."""
        self._repeat_listeners.append(listener)

    def since(self, index: int) -> tuple[SimulationEvent, ...]:
        """Return the events from the `index`-th on that are still kept."""
        skip = max(0, index - (self.total - len(self._events)))
        return tuple(event for i, event in enumerate(self._events) if i >= skip)
