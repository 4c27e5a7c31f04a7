"""The shapes that parts share: a ConfigMap, a Service, and what runs their pods."""

from collections.abc import Mapping

from gpuscale.install.common import Object, labels, metadata, selector
from gpuscale.install.values import Values


def config_map(values: Values, part: str, data: Mapping[str, str]) -> Object:
    """Return a part's ConfigMap with these files."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": metadata(values, part),
        "data": dict(data),
    }


def service(values: Values, part: str, port_name: str, port: int) -> Object:
    """Return a Service in front of a part's pods, to their port of the same name."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata(values, part),
        "spec": {
            "type": "ClusterIP",
            "selector": selector(values, part),
            "ports": [{"name": port_name, "port": port, "targetPort": port_name}],
        },
    }


def workload(values: Values, kind: str, part: str, pod: Object, **spec: object) -> Object:
    """Return what runs a part's pods, a Deployment or DaemonSet, with these further fields of its spec."""
    return {
        "apiVersion": "apps/v1",
        "kind": kind,
        "metadata": metadata(values, part),
        "spec": {
            **spec,
            "selector": {"matchLabels": selector(values, part)},
            "template": {"metadata": {"labels": labels(values, part)}, "spec": pod},
        },
    }
