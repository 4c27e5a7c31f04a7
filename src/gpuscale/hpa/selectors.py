"""Whether a scale's selector finds pods for one HPA alone.

Source: kubernetes v1.36 pkg/controller/podautoscaler/horizontal.go (validateAndParseSelector).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gpuscale.base.objects.selectors import Selector, parse_selector
from gpuscale.hpa.terms.conditions import MISSING_SELECTOR, Verdict, selector_refused
from gpuscale.hpa.types import ControllerSettings, Event, PodInfo


@dataclass(frozen=True, slots=True)
class SelectorFailure:
    """Why a selector can't be used."""

    event: Event
    verdict: Verdict

    @property
    def text(self) -> str:
        return self.event.message


def selector_failure(
    selector: str, selecting_hpas: Sequence[str], settings: ControllerSettings
) -> SelectorFailure | None:
    """Return what is wrong with a scale's selector, or None.

    Args:
        selector: as text, from the scale.
        selecting_hpas: keys of all HPAs whose selector finds one of the pods.
        settings: of the controller, whose release has words of its own.
    """
    if not selector:
        event = Event("Warning", "SelectorRequired", "selector is required")
        return SelectorFailure(event, MISSING_SELECTOR)
    try:
        parse_selector(selector)
    except ValueError as error:
        text = f"couldn't convert selector into a corresponding internal selector object: {error}"
        return _failure("InvalidSelector", text)
    if len(selecting_hpas) > 1:
        if settings.is_reworded:
            # Upstream stops at two, in the random order of Go's map.
            others = f"more than one HPA (e.g. [{' '.join(selecting_hpas[:2])}])"
        else:
            others = f"multiple HPAs: [{' '.join(selecting_hpas)}]"
        text = f"pods by selector {selector} are controlled by {others}"
        return _failure("AmbiguousSelector", text)
    return None


def _failure(reason: str, text: str) -> SelectorFailure:
    return SelectorFailure(Event("Warning", reason, text), selector_refused(reason, text))


def hpas_selecting(pods: Sequence[PodInfo], selectors: Mapping[str, Selector]) -> tuple[str, ...]:
    """Return the keys of the HPAs whose last known selector finds one of the pods.

    Args:
        pods: those of one HPA's target.
        selectors: of every HPA in the namespace, by `namespace/name`.
    """
    return tuple(
        key
        for key, selector in selectors.items()
        if any(selector.matches(pod.labels) for pod in pods)
    )
