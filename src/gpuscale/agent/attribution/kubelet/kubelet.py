"""The kubelet's allocations, polled, and kept for a while when the kubelet doesn't answer."""

import logging
from typing import Protocol

from gpuscale.agent.attribution import reasons
from gpuscale.agent.attribution.kubelet.allocations import KubeletError, NodeAllocations
from gpuscale.agent.gpu.owners import Unattributed
from gpuscale.base.clock import Clock, Silence

_log = logging.getLogger(__name__)


class AllocationSource(Protocol):
    """A source of allocations."""

    async def allocations(self) -> NodeAllocations:
        """Return the devices of each container on the node.

        Raises:
            KubeletError: no usable answer.
        """
        ...


class KubeletFollower:
    """Polls the kubelet and keeps its last answer.

    Args:
        source: asks the kubelet.
        subject: the socket, for messages.
        keep_s: how long an answer holds while there is no newer one.
        clock: ages it.
    """

    def __init__(self, source: AllocationSource, subject: str, keep_s: float, clock: Clock) -> None:
        self._source = source
        self._subject = subject
        self._keep_s = keep_s
        self._clock = clock
        self._allocations: NodeAllocations | None = None
        self._error: KubeletError | None = None
        self._silence: Silence | None = None

    @property
    def allocations(self) -> NodeAllocations | None:
        """Return the last answer, the same object while it is unchanged; None if there is no valid one."""
        is_old = self._silence is not None and self._silence.is_over(self._keep_s)
        return None if is_old else self._allocations

    @property
    def has_claims(self) -> bool:
        """Return whether any container uses a resource claim."""
        found = self._allocations
        return found is not None and any(each.claims for each in found.containers)

    def gap(self) -> Unattributed | None:
        """Return why the last poll failed; None if it succeeded."""
        if self._error is not None:
            detail = f"{self._error}{self._silence or ''}"
            return Unattributed(self._error.reason, self._subject, detail)
        if self._allocations is None:
            return Unattributed(reasons.STARTING, self._subject, "the kubelet was not asked yet")
        return None

    async def refresh(self) -> None:
        """Poll once."""
        try:
            found = await self._source.allocations()
        except KubeletError as error:
            self._note_failure(error)
        else:
            self._note_answer(found)

    def _note_failure(self, error: KubeletError) -> None:
        if self._error is None or self._error.reason != error.reason:
            _log.warning("GPUs can't be tied to pods: %s", error)
        self._error = error
        self._silence = self._silence or Silence(self._clock)

    def _note_answer(self, found: NodeAllocations) -> None:
        if self._error is not None:
            _log.info("the kubelet reports again which pods have which GPUs")
        self._error = self._silence = None
        if found != self._allocations:
            self._allocations = found
