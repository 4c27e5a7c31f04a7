"""A trigger's answer, and the interface between its evaluation and its servers."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Literal, Protocol

from gpuscale.base.errors import UnavailableError
from gpuscale.triggers.trigger import Trigger

Basis = Literal["measured", "held", "fallback", "unavailable"]


@dataclass(frozen=True, slots=True)
class Answer:
    """The decision about a trigger at one time."""

    value: float | None
    """The total load, as External metric and KEDA's metric value have it; None with basis unavailable."""
    is_active: bool | None
    """Whether the workload has to have pods; None with basis unavailable."""
    basis: Basis
    """measured: all sources answered; held: the last decision, while a source is away; fallback: the stated
    replicas, after the hold; unavailable: nothing was ever known."""
    reason: str
    """Why, in a sentence for logs, events and `?why`."""
    measured_ms: int | None
    """When the value was measured, in milliseconds since the epoch; the decision's age follows from it."""
    held_s: float = 0.0
    """How long a source has been away; 0 for what is measured."""


class TooManyTriggersError(UnavailableError):
    """The limit on watched triggers is reached."""


class TriggerAnswers(Protocol):
    """Watches triggers and answers from memory, at once."""

    def answer(self, trigger: Trigger) -> Answer | None:
        """Return the newest answer; None while the trigger was not evaluated for the first time.

        A trigger that is asked for is watched from then on, until nobody has asked for a while.

        Raises:
            TooManyTriggersError: so many triggers are watched already that this one can't be.
        """
        ...

    def changes(self, trigger: Trigger) -> AsyncIterator[Answer]:
        """Yield the newest answer, then each whose `is_active` or `basis` is another one."""
        ...


class KeptAnswers(TriggerAnswers, Protocol):
    """Also knows the decisions of an earlier process."""

    def kept(self, trigger: Trigger) -> Answer | None:
        """Return an earlier process' decision; None if none was saved.

        For a trigger that is watched and was not evaluated yet.
        """
        ...
