"""External metrics that no rule makes, as `server.metricsapi.routes` serves them."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from gpuscale.base.objects.metric_values import ExternalValue
from gpuscale.base.objects.selectors import Selector
from gpuscale.server.metricsapi.wire.paths import ExternalTarget

if TYPE_CHECKING:
    from gpuscale.server.metricsapi.why.hops import Explanation


class OwnExternal(Protocol):
    """Knows some external metrics; others are those of rules."""

    @property
    def names(self) -> Sequence[str]:
        """Return what discovery lists."""
        ...

    def has(self, target: ExternalTarget, selector: Selector) -> bool:
        """Return whether a question is about one of these metrics."""
        ...

    async def values(self, target: ExternalTarget, selector: Selector) -> Sequence[ExternalValue]:
        """Return the values of a metric that there is.

        Raises:
            GpuscaleError: there is no value now.
            RequestError: the same, with the answer that a client gets.
        """
        ...

    async def why(self, target: ExternalTarget, selector: Selector) -> "Explanation":
        """Return how the value of a metric that there is came about."""
        ...
