"""This node's pods, resources and claims from the API server, kept for a while when it is unreachable."""

from typing import Protocol

from gpuscale.agent.attribution import reasons
from gpuscale.agent.attribution.join import pod_directory
from gpuscale.agent.attribution.processes.processes import PodDirectory
from gpuscale.agent.gpu.owners import Unattributed
from gpuscale.base.clock import Clock, Silence
from gpuscale.base.errors import GpuscaleError
from gpuscale.kube.client import ApiStatusError
from gpuscale.kube.informers import NodeView

_FORBIDDEN = (401, 403)


class ViewSource(Protocol):
    """A source of a node's pods, resources and claims."""

    @property
    def view(self) -> NodeView:
        """Return the current view."""
        ...

    def want_claims(self) -> None:
        """Follow the devices of resource claims too."""
        ...

    async def run(self) -> None:
        """Follow until cancelled."""
        ...

    async def close(self) -> None: ...


class ClusterFollower:
    """Turns API objects into look-up tables for attribution.

    Args:
        source: follows the node.
        keep_s: how long pods hold while the API server is silent.
        clock: ages them.
    """

    def __init__(self, source: ViewSource, keep_s: float, clock: Clock) -> None:
        self._source = source
        self._keep_s = keep_s
        self._clock = clock
        self._view = NodeView()
        self._directory = PodDirectory()

    @property
    def view(self) -> NodeView:
        """Return the view of the node; empty if it is too old."""
        self._look()
        return self._view

    @property
    def directory(self) -> PodDirectory:
        """Return the view's pods for look-up; the same object while nothing changes."""
        self._look()
        return self._directory

    def want_claims(self) -> None:
        """Follow the devices of resource claims too."""
        self._source.want_claims()

    def gaps(self) -> tuple[Unattributed, ...]:
        """Return which parts the API server doesn't report now, and why."""
        view = self._source.view
        silence = self._silence(view)
        gaps = [
            _gap("pods", view.error, silence),
            _gap("nodes", view.node_error, None),
            _gap("resourceslices", view.claims_error, None),
        ]
        if view.error is None and not view.has_pods:
            detail = "the API server was not asked yet"
            gaps.append(Unattributed(reasons.STARTING, "pods", detail))
        return tuple(gap for gap in gaps if gap is not None)

    async def run(self) -> None:
        """Follow until cancelled."""
        await self._source.run()

    async def close(self) -> None:
        await self._source.close()

    def _look(self) -> None:
        found = self._source.view
        silence = self._silence(found)
        if silence is not None and silence.is_over(self._keep_s):
            found = NodeView(error=found.error, error_since_ms=found.error_since_ms)
        if found is not self._view and found != self._view:
            self._view = found
            self._directory = pod_directory(found)

    def _silence(self, view: NodeView) -> Silence | None:
        since_ms = view.error_since_ms
        return None if since_ms is None else Silence(self._clock, since_ms)


def _gap(what: str, error: GpuscaleError | None, silence: Silence | None) -> Unattributed | None:
    if error is None:
        return None
    is_refused = isinstance(error, ApiStatusError) and error.code in _FORBIDDEN
    reason = reasons.API_FORBIDDEN if is_refused else reasons.API_UNREACHABLE
    return Unattributed(reason, what, f"{error}{silence or ''}")
