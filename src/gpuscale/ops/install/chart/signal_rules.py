"""A prometheus-adapter rule for each signal: its series and the metric's API name."""

from typing import Any

from gpuscale.signals import Signal, value_by


def has_rule(signal: Signal) -> bool:
    """Return whether a signal has a rule of its own: GPU signals share one, queries are triggers."""
    return not signal.is_of_gpus and signal.kind != "external"


def signal_rule(signal: Signal) -> dict[str, Any]:
    """Return the rule of a model server's or gateway's signal, for all names of its series."""
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
