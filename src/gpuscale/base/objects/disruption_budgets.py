"""PodDisruptionBudgets: how many pods of a kind may be evicted now."""

import math
import re
from dataclasses import dataclass

from gpuscale.base.objects.fields import Fields
from gpuscale.base.objects.meta import ObjectMeta, read_meta
from gpuscale.base.objects.selectors import Selector, selector_of_labels


@dataclass(frozen=True, slots=True)
class PodDisruptionBudget:
    """A budget; one of `min_available` and `max_unavailable` is given."""

    metadata: ObjectMeta
    selector: Selector
    min_available: int | str | None = None
    """A number, or a percentage as text."""
    max_unavailable: int | str | None = None
    disruptions_allowed: int = 0
    """How many pods may be evicted now, as its status says."""

    def allowed(self, healthy: int, expected: int) -> int:
        """Return how many of its pods may be evicted while `healthy` of `expected` are.

        Source: kubernetes v1.37 pkg/controller/disruption/disruption.go (getExpectedPodCount,
        updatePdbStatus); percentages are rounded up in both fields.
        """
        if self.max_unavailable is not None:
            needed = max(0, expected - _scaled(self.max_unavailable, expected))
        else:
            needed = _scaled(self.min_available or 0, expected)
        return max(0, healthy - needed)


def read_disruption_budget(fields: Fields) -> PodDisruptionBudget:
    """Return the budget of a manifest."""
    spec = fields.child("spec", required=True)
    least, most = _amount(spec, "minAvailable"), _amount(spec, "maxUnavailable")
    if (least is None) == (most is None):
        spec.note((), "one of minAvailable and maxUnavailable")
    return PodDisruptionBudget(
        read_meta(fields), spec.selector("selector") or selector_of_labels({}), least, most
    )


def _amount(spec: Fields, key: str) -> int | str | None:
    value = spec.data.get(key)
    if value is None or (isinstance(value, int) and not isinstance(value, bool) and value >= 0):
        return value
    if isinstance(value, str) and re.fullmatch(r"[0-9]+%", value):
        return value
    spec.note((key,), "a number from 0, or a percentage such as 50%", found=repr(value))
    return None


def _scaled(amount: int | str, of: int) -> int:
    return amount if isinstance(amount, int) else math.ceil(int(amount[:-1]) * of / 100)
