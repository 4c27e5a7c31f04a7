"""External metrics that come from triggers rather than rules, as `server.metricsapi.routes` serves them."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from gpuscale.base.objects.metric_values import ExternalValue
from gpuscale.base.objects.selectors import Selector
from gpuscale.server.metricsapi.wire.paths import ExternalTarget

if TYPE_CHECKING:
    from gpuscale.server.metricsapi.why.hops import Explanation


class OwnExternal(Protocol):
    """A provider of external metrics without rules."""

    @property
    def names(self) -> Sequence[str]:
        """Return the names for discovery."""
        ...

    def has(self, target: ExternalTarget, selector: Selector) -> bool:
        """Return whether this provider serves the metric."""
        ...

    async def values(self, target: ExternalTarget, selector: Selector) -> Sequence[ExternalValue]:
        """Return the values of a served metric.

        Raises:
            GpuscaleError: there is no value now.
            RequestError: the same, with the answer that a client gets.
        """
        ...

    async def why(self, target: ExternalTarget, selector: Selector) -> "Explanation":
        """Return the explanation of a served metric's value."""
        ...
