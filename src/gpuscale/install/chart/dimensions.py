"""The options that objects depend on, as template conditions and as changes of the marked values."""

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, get_args

from gpuscale.install.chart.fold import Combination, Dimension
from gpuscale.install.chart.placeholders import ALERTMANAGERS, V, mark, marked_values
from gpuscale.install.signals import SignalName
from gpuscale.install.values import HpaVersion, Values
from gpuscale.providers import BUILT_IN

_SCALE = "scale"


@dataclass(frozen=True, slots=True)
class Option:
    """A field of the values file whose value decides what is rendered."""

    path: tuple[str, ...]
    """Field names in Python, below `spec`; below a scale for those that begin with `scale`."""
    values: tuple[Any, ...]
    """Where the path is empty: for each, what several fields are set to, by their paths."""
    dimension: Dimension


def _expression(path: tuple[str, ...]) -> str:
    first, *rest = path
    start = "$scale" if first == _SCALE else f"{V}.spec.{_camel(first)}"
    return ".".join([start, *map(_camel, rest)])


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


def _enum(path: tuple[str, ...], *values: str) -> Option:
    expression = _expression(path)
    conditions = tuple(f'eq {expression} "{value}"' for value in values)
    return Option(path, values, Dimension(expression, conditions))


def _switch(*path: str) -> Option:
    return _either(path, f"{_expression(path)}", values=(True, False))


def _given(path: tuple[str, ...], value: object, nothing: object = None) -> Option:
    return _either(path, _expression(path), values=(value, nothing))


def _either(path: tuple[str, ...], condition: str, values: tuple[Any, ...]) -> Option:
    return Option(path, values, Dimension(_expression(path), (condition, f"not {condition}")))


PROVIDER = Option(
    ("provider",), BUILT_IN, _enum(("provider",), *(each.name for each in BUILT_IN)).dimension
)
AGENT = _switch("agent", "enabled")
ATTRIBUTION = _enum(("agent", "attribution"), "none", "allocations", "processes")
ACCESS = _enum(("agent", "device_access"), "runtime", "host")
STYLE = _enum(("agent", "style"), "dcgm", "ack", "both")
RUNTIME_CLASS = _given(("agent", "runtime_class"), mark("runtimeclass"))
PULL_SECRET = _given(("image", "pull_secret"), mark("pullsecret"))
API = _switch("metrics_api", "enabled")
EXTERNAL = _switch("metrics_api", "external")
RESOURCE = _switch("metrics_api", "resource")
CERTIFICATES = _enum(("metrics_api", "certificates"), "generated", "cert-manager")
ISSUER = _given(("metrics_api", "issuer"), mark("issuer"))
RULES = _given(("metrics_api", "rules"), mark("rules"))
SOURCE = _enum(("metrics_api", "source"), "prometheus", "streams")
SCRAPE_PODS = _switch("metrics_api", "scrape_pods")
TEAM_RULES = _given(("metrics_api", "rules_config_maps"), mark("teamrules"))
PROMETHEUS_RULES = _given(("metrics_api", "prometheus_rules"), mark("prometheusrules"))
SHARE_AGENTS = _switch("metrics_api", "share_agents")
ALERTING = _given(("metrics_api", "alertmanagers"), ALERTMANAGERS, ())
_API = f"{V}.spec.metricsApi"
_ALERTS_TO: tuple[tuple[bool, str | None, str | None], ...] = (
    *(
        (True, ca, token)
        for ca in (mark("alertmanagerca"), None)
        for token in (mark("alertmanagertoken"), None)
    ),
    (False, None, None),
)
"""The longest list of arguments first, from which the folding learns their order."""
ALERTING_FROM_RULES = Option(
    (),
    (
        *(
            {
                ("metrics_api", "prometheus_rules"): mark("prometheusrules"),
                ("metrics_api", "alertmanagers"): ALERTMANAGERS if is_sent else (),
                ("metrics_api", "alertmanager_ca_secret"): ca,
                ("metrics_api", "alertmanager_token_secret"): token,
            }
            for is_sent, ca, token in _ALERTS_TO
        ),
        {("metrics_api", "prometheus_rules"): None},
    ),
    Dimension(
        "alerting",
        (
            *(
                f"and {_API}.prometheusRules "
                f"{_API}.alertmanagers"
                + " ".join(
                    f" {_API}.{name}" if given else f" (not {_API}.{name})"
                    for name, given in (
                        ("alertmanagerCaSecret", ca),
                        ("alertmanagerTokenSecret", token),
                    )
                )
                if is_sent
                else f"and {_API}.prometheusRules (not {_API}.alertmanagers)"
                for is_sent, ca, token in _ALERTS_TO
            ),
            f"not {_API}.prometheusRules",
        ),
    ),
)
"""In place of `PROMETHEUS_RULES`: alerts are sent only where rules raise them."""
EXPORTER_PODS = _given(("metrics_api", "exporter_pods"), mark("exporterpods"))
EXTERNAL_NAME = _given(("metrics_api", "external_name"), "xqexternalqx")
PROMETHEUS = _enum(("prometheus", "kind"), "own", "operator", "plain")
RELEASE = _given(("prometheus", "release"), mark("release"))
_WANTED = (
    f'(or (not {V}.spec.metricsApi.enabled) (eq {V}.spec.metricsApi.source "prometheus") '
    f"{V}.spec.alerts.enabled {V}.spec.dashboards.enabled)"
)
_KIND = ("prometheus", "kind")
_UNWANTED = {
    _KIND: "own",
    ("metrics_api", "enabled"): True,
    ("metrics_api", "source"): "streams",
    ("alerts", "enabled"): False,
    ("dashboards", "enabled"): False,
}
PROMETHEUS_IF_WANTED = Option(
    (),
    ({_KIND: "own"}, _UNWANTED, {_KIND: "operator"}, {_KIND: "plain"}),
    Dimension(
        "prometheus",
        (
            f'and (eq {V}.spec.prometheus.kind "own") {_WANTED}',
            f'and (eq {V}.spec.prometheus.kind "own") (not {_WANTED})',
            f'eq {V}.spec.prometheus.kind "operator"',
            f'eq {V}.spec.prometheus.kind "plain"',
        ),
    ),
)
"""In place of `PROMETHEUS`, and last, because it sets fields of other options: one condition for the four
fields that say whether the installation's own is there, as `ValuesSpec.has_own_prometheus` has it."""
HONOR = _switch("prometheus", "honor_labels")
RECORDING = _switch("recording_rules")
ALERTS = _switch("alerts", "enabled")
DASHBOARDS = _switch("dashboards", "enabled")
DASHBOARD_NAMESPACE = _given(("dashboards", "namespace"), mark("dashboards"))
NETWORK = _switch("network_policies")
PLUGIN = _switch("device_plugin", "enabled")
SHARES = Option(
    ("device_plugin", "replicas"),
    (45_004, 1),
    Dimension(
        "devicePlugin.replicas",
        (
            f"gt ({V}.spec.devicePlugin.replicas | int) 1",
            f"le ({V}.spec.devicePlugin.replicas | int) 1",
        ),
    ),
)
MIG = _enum(("device_plugin", "mig_strategy"), "none", "single", "mixed")
BERT = _switch("samples", "bert")
VISION = _given(("samples", "vision_image"), mark("vision"))
MNIST = _given(("samples", "mnist_jobs"), 45_003, 0)
AUTOSCALER = _enum((_SCALE, "autoscaler"), "hpa", "keda")
SIGNAL = _enum((_SCALE, "signal"), *get_args(SignalName))
METRIC = _enum((_SCALE, "metric"), "pods", "object")
HPA_VERSION = _enum((_SCALE, "hpa_version"), *get_args(HpaVersion))
WORKLOAD_KIND = _enum((_SCALE, "workload", "kind"), "Deployment", "StatefulSet")


def combinations(options: tuple[Option, ...]) -> Iterator[tuple[Combination, Values]]:
    """Yield marked values for every combination of some options."""
    base = marked_values()
    for indices in itertools.product(*(range(len(option.values)) for option in options)):
        values = base
        for option, index in zip(options, indices, strict=True):
            values = _changed(values, option.path, option.values[index])
        yield indices, values


def _changed(values: Values, path: tuple[str, ...], value: Any) -> Values:  # noqa: ANN401 - of any field
    if not path:
        for each, inner in value.items():
            values = _changed(values, each, inner)
        return values
    spec = values.spec
    if path[0] == _SCALE:
        (scale,) = spec.scale
        spec = spec.model_copy(update={"scale": (_deep(scale, path[1:], value),)})
    else:
        spec = _deep(spec, path, value)
    return values.model_copy(update={"spec": spec})


def _deep(model: Any, path: tuple[str, ...], value: object) -> Any:  # noqa: ANN401 - models of any part
    first, *rest = path
    inner = _deep(getattr(model, first), tuple(rest), value) if rest else value
    update: Mapping[str, Any] = {first: inner}
    return model.model_copy(update=update)
