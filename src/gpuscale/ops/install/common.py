"""Names, labels and annotations that all parts' objects share."""

from typing import Any

from gpuscale.ops.install.pods import PodSettings
from gpuscale.ops.install.settings.identity import Image
from gpuscale.ops.install.values import Values

Object = dict[str, Any]
"""A Kubernetes object, or a part of one, as plain data."""
NODE_AGENT = "node-agent"
AGENT_PORT = 9400
METRICS_API = "metrics-api"
SCALER = "scaler"

INSTALL_LABEL = "gpuscale.dev/install"
"""On everything that an installation made; its value is the installation's name."""
FEDERATES = "gpuscale.dev/federates"
"""Annotation of an APIService with the Services, NAMESPACE/NAME, that requests are passed on to."""
CA_SECRET = "gpuscale.dev/ca-secret"  # noqa: S105 - where it is
"""Annotation of an APIService with the Secret, NAMESPACE/NAME, whose `ca.crt` its server is trusted by."""
WHILE_STARTING = {"periodSeconds": 1, "failureThreshold": 300}
"""Of startup probes: a server on a starved node takes minutes, and one that is killed begins again."""
_CUSTOM = ("v1beta1.custom.metrics.k8s.io", "v1beta2.custom.metrics.k8s.io")
_EXTERNAL = ("v1beta1.external.metrics.k8s.io",)
_RESOURCE = ("v1beta1.metrics.k8s.io",)


def part_name(values: Values, part: str) -> str:
    """Return the name of a part's objects."""
    return f"{values.metadata.name}-{part}"


def metrics_api_secret(values: Values) -> str:
    """Return the name of the Secret with the metrics API's certificate."""
    return part_name(values, f"metrics-api-{'serving' if renews_certificate(values) else 'tls'}")


def renews_certificate(values: Values) -> bool:
    """Return whether the metrics API's pods create and renew their own certificate."""
    return has_api_pods(values) and values.spec.metrics_api.certificates == "generated"


def has_api_pods(values: Values) -> bool:
    """Return whether the installation runs the metrics API in pods."""
    api = values.spec.metrics_api
    return api.enabled and api.external_name is None


def cluster_metadata(values: Values, part: str, *, name: str) -> Object:
    """Return the metadata of a cluster-wide object."""
    labels = {
        "app.kubernetes.io/name": "gpuscale",
        "app.kubernetes.io/instance": values.metadata.name,
        "app.kubernetes.io/component": part,
        "app.kubernetes.io/part-of": "gpuscale",
        INSTALL_LABEL: values.metadata.name,
    }
    return {"name": name, "labels": labels}


def image_reference(image: Image) -> str:
    """Return an image's reference for a container."""
    return f"{image.repository}:{image.tag}" + (f"@{image.digest}" if image.digest else "")


def account_name(values: Values, part: str) -> str:
    """Return the name of a part's service account."""
    spec = values.spec
    parts: dict[str, PodSettings] = {METRICS_API: spec.metrics_api, SCALER: spec.scaler}
    return parts[part].service_account.name or part_name(values, part)


def api_service_names(values: Values) -> tuple[str, ...]:
    """Return the names of the APIServices that belong to the installation."""
    api = values.spec.metrics_api
    if not api.enabled:
        return ()
    return (*_CUSTOM, *(_EXTERNAL if api.external else ()), *(_RESOURCE if api.resource else ()))
