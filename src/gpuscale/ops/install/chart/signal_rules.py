"""The rule of each signal, as prometheus-adapter reads them: which series the metrics API serves as what."""

from typing import Any

from gpuscale.signals import Signal, value_by


def has_rule(signal: Signal) -> bool:
    """Return whether a rule of its own serves a signal: of GPUs all are served, and queries by triggers."""
    return not signal.is_of_gpus and signal.kind != "external"


def signal_rule(signal: Signal) -> dict[str, Any]:
    """Return the rule of a signal of a model server or a gateway, in all spellings of its series."""
    ending = "_bucket" if signal.how == "p95" else ""
    names = [f"{each}{ending}" for each in signal.spellings]
    label = signal.label or "pod"
    selected = [each for each in (signal.matchers, 'namespace!=""', f'{label}!=""') if each]
    matchers = ",".join(selected)
    either = "|".join(names)
    query = f'{{__name__=~"{either}",{matchers}}}' if signal.older else f"{either}{{{matchers}}}"
    resource: dict[str, Any] = {"resource": "pod"}
    if signal.described is not None:
        described = signal.described
        resource = {"group": described.group, "resource": described.resource}
    return {
        "seriesQuery": query,
        "resources": {"overrides": {"namespace": {"resource": "namespace"}, label: resource}},
        "name": {"matches": f"^({either})$", "as": signal.metric},
        "metricsQuery": value_by(signal, "<<.LabelMatchers>>", "<<.GroupBy>>"),
    }
