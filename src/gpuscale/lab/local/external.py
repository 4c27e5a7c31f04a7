"""External metrics of a live run that no rule makes: KEDA's, and those of a trigger file.

KEDA's come as from its metrics server, which a question may come to at any count of replicas, and where it
counts for the fallback, as any question does.

Source: KEDA v2.21 pkg/provider/provider.go, pkg/metricsservice; custom-metrics-apiserver v1.36
    pkg/provider/defaults (what discovery lists).
"""

from typing import TYPE_CHECKING

from gpuscale.base.errors import GpuscaleError, UnavailableError, UpstreamError
from gpuscale.base.objects.metric_values import ExternalValue
from gpuscale.base.objects.scaled_object import NAME_LABEL
from gpuscale.base.objects.selectors import Selector
from gpuscale.base.quantity import milli_text
from gpuscale.lab.sim.keda import ExternalOfRun, scaled_object_of
from gpuscale.lab.sim.scenario.setup import Setup
from gpuscale.server.metricsapi.wire import ExternalTarget, RequestError, Status

if TYPE_CHECKING:
    from gpuscale.server.metricsapi.why import Explanation

_ANY_OF_KEDA = "externalmetrics"
"""All that KEDA's discovery lists since 2.10, whatever metrics there are."""


class LiveExternal:
    """The external metrics of a scenario that no rule makes.

    Args:
        setup: the scenario.
    """

    def __init__(self, setup: Setup) -> None:
        self.answers: ExternalOfRun | None = None
        """Set once the run has begun."""
        self._has_keda = bool(setup.scaled_objects)
        self._has_rules = bool(setup.rules.external_rules)
        self._triggers = {(each.namespace, each.name) for each in setup.triggers}

    @property
    def is_empty(self) -> bool:
        """Return whether the scenario has none."""
        return not self.names

    @property
    def names(self) -> tuple[str, ...]:
        """Return the metric names for discovery."""
        of_keda = (_ANY_OF_KEDA,) if self._has_keda else ()
        return (*of_keda, *sorted({name for _, name in self._triggers}))

    def has(self, target: ExternalTarget, selector: Selector) -> bool:
        """Return whether KEDA or a trigger serves the metric; without rules, KEDA gets all other names."""
        if (target.namespace, target.metric) in self._triggers:
            return True
        return self._has_keda and (not self._has_rules or scaled_object_of(selector) is not None)

    async def values(self, target: ExternalTarget, selector: Selector) -> tuple[ExternalValue, ...]:
        """Return the value of a metric.

        Raises:
            RequestError: there is none; with KEDA's words.
        """
        try:
            return await self._values(target, selector)
        except GpuscaleError as error:
            raise RequestError(Status(500, "", str(error))) from error

    async def why(self, target: ExternalTarget, selector: Selector) -> "Explanation":
        """Return the explanation of a metric's value."""
        from gpuscale.server.metricsapi.why import Explanation, ServedValue

        scaled = scaled_object_of(selector)
        source = "trigger" if scaled is None else "ScaledObject"
        asked = f"{target.metric}, external, in {target.namespace}, of a {source}"
        explanation = Explanation(asked, (source, "answer"))
        explanation.ok(source, target.metric if scaled is None else scaled)
        try:
            values = await self._values(target, selector)
        except (UpstreamError, UnavailableError) as error:
            fix = f"Ask for a metric of the HPA, with its {NAME_LABEL}, while its source answers."
            return explanation.failed("answer", str(error), fix)
        explanation.ok("answer", f"found {len(values)}")
        explanation.values += [
            ServedValue(target.metric, milli_text(each.value_milli), 0) for each in values
        ]
        return explanation

    async def _values(
        self, target: ExternalTarget, selector: Selector
    ) -> tuple[ExternalValue, ...]:
        if self.answers is None:
            raise UnavailableError(f"{target.metric}: it was not evaluated yet")
        found = await self.answers.values(target.namespace, target.metric, selector)
        if found is None:
            raise UpstreamError("scaledObject name is not specified")
        return found
