"""The shapes that parts share: a ConfigMap, a Service, what runs their pods, and what gives them rights."""

from collections.abc import Mapping
from types import MappingProxyType

from gpuscale.ops.install.common import (
    Object,
    account_name,
    cluster_metadata,
    labels,
    metadata,
    selector,
    settings_of,
)
from gpuscale.ops.install.pods import ServedPodSettings
from gpuscale.ops.install.values import Values

RBAC = "rbac.authorization.k8s.io"
_STRATEGY = {"DaemonSet": "updateStrategy", "Deployment": "strategy"}


def config_map(values: Values, part: str, data: Mapping[str, str]) -> Object:
    """Return a part's ConfigMap with these files."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": metadata(values, part),
        "data": dict(data),
    }


def service(
    values: Values,
    part: str,
    port_name: str,
    port: int,
    annotations: Mapping[str, str] = MappingProxyType({}),
) -> Object:
    """Return a Service in front of a part's pods, to their port of the same name."""
    settings = settings_of(values, part)
    found = metadata(values, part)
    if isinstance(settings, ServedPodSettings):
        found["labels"] = {**settings.service.labels, **found["labels"]}
        if given := {**annotations, **settings.service.annotations}:
            found["annotations"] = given
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": found,
        "spec": {
            "type": "ClusterIP",
            "selector": selector(values, part),
            "ports": [{"name": port_name, "port": port, "targetPort": port_name}],
        },
    }


def workload(values: Values, kind: str, part: str, pod: Object, **spec: object) -> Object:
    """Return what runs a part's pods, a Deployment or DaemonSet, with these further fields of its spec."""
    settings = settings_of(values, part)
    pod_metadata: Object = {"labels": {**settings.pod_labels, **labels(values, part)}}
    if settings.pod_annotations:
        pod_metadata["annotations"] = dict(settings.pod_annotations)
    if settings.update_strategy is not None:
        spec[_STRATEGY[kind]] = settings.update_strategy
    return {
        "apiVersion": "apps/v1",
        "kind": kind,
        "metadata": metadata(values, part),
        "spec": {
            **spec,
            "selector": {"matchLabels": selector(values, part)},
            "template": {"metadata": pod_metadata, "spec": pod},
        },
    }


def binding(values: Values, part: str, name: str, role: str) -> Object:
    """Return what gives a part's account a ClusterRole."""
    return bound(values, part, name, role, [account_subject(values, part)])


def bound(values: Values, part: str, name: str, role: str, subjects: list[Object]) -> Object:
    """Return what gives subjects a ClusterRole."""
    return {
        "apiVersion": f"{RBAC}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": cluster_metadata(values, part, name=name),
        "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": role},
        "subjects": subjects,
    }


def account_subject(values: Values, part: str) -> Object:
    """Return a part's service account, as bindings name it."""
    return {
        "kind": "ServiceAccount",
        "name": account_name(values, part),
        "namespace": values.spec.namespace,
    }
