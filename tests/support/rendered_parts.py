"""Parts of what values are rendered to, by what a test asks of them."""

from collections.abc import Sequence
from typing import Any

import yaml

from gpuscale.ops.install.rendering import render
from gpuscale.ops.install.values import Values

AUTOSCALERS = ("HorizontalPodAutoscaler", "TriggerAuthentication", "ScaledObject", "ScaledJob")


def autoscaling_objects(values: Values) -> list[dict[str, Any]]:
    """Return what scales."""
    return [each for each in render(values) if each["kind"] in AUTOSCALERS]


def file_of(values: Values, config_map: str, file: str) -> str:
    """Return the text of a file in a ConfigMap, which is named by its end."""
    (found,) = (
        each
        for each in render(values)
        if each["kind"] == "ConfigMap" and each["metadata"]["name"].endswith(config_map)
    )
    text: str = found["data"][file]
    return text


def scrape_configs(values: Values) -> Sequence[dict[str, Any]]:
    """Return the scrape jobs of the installation's own Prometheus."""
    found: Sequence[dict[str, Any]] = yaml.safe_load(
        file_of(values, "-prometheus", "prometheus.yml")
    )["scrape_configs"]
    return found


def resource_rules(kind: str) -> str:
    """Return the rules of metrics.k8s.io for a kind of Prometheus, as a rule file."""
    prometheus = {"kind": kind, "url": "http://prometheus"}
    spec = {"prometheus": prometheus, "metricsApi": {"resource": True}}
    return file_of(Values.model_validate({"spec": spec}), "-metrics-api", "resource-rules.yaml")


def adapter_rules(**spec: Any) -> list[dict[str, Any]]:
    """Return the rules that the metrics API of an installation has."""
    text = file_of(Values.model_validate({"spec": spec}), "-metrics-api", "rules.yaml")
    rules: list[dict[str, Any]] = yaml.safe_load(text)["rules"]
    return rules
