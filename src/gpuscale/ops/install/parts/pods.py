"""A part's pods: what the part needs, and what its settings say; and the namespace that admits them."""

from collections.abc import Sequence

from gpuscale.ops.install.common import (
    Object,
    account_name,
    cluster_metadata,
    pull_secrets,
    selector,
    settings_of,
)
from gpuscale.ops.install.pods import merged
from gpuscale.ops.install.values import Values


def pod_spec(
    values: Values,
    part: str,
    container: Object,
    *,
    needs_token: bool,
    volumes: Sequence[Object] = (),
    affinity: Object | None = None,
    spread: Sequence[Object] = (),
    security: Object | None = None,
    **more: object,
) -> Object:
    """Return the spec of a part's pods.

    Args:
        values: of the installation.
        part: whose pods.
        container: as the part needs it; what the settings say of it is merged in here.
        needs_token: whether the container talks to the API server.
        volumes: of the container.
        affinity: unless the settings have one.
        spread: topologySpreadConstraints, unless the settings have some.
        security: securityContext of the pods.
        **more: further fields.
    """
    settings = settings_of(values, part)
    network: Object = {}
    if settings.host_network:
        network = {"hostNetwork": True, "dnsPolicy": "ClusterFirstWithHostNet"}
    if settings.dns_policy is not None:
        network["dnsPolicy"] = settings.dns_policy
    given_spread = settings.topology_spread_constraints
    optional = {
        "imagePullSecrets": pull_secrets(values, part),
        "nodeSelector": settings.node_selector,
        "tolerations": list(settings.tolerations or ()),
        "affinity": affinity if settings.affinity is None else settings.affinity,
        "topologySpreadConstraints": [
            {"labelSelector": {"matchLabels": selector(values, part)}, **each}
            for each in (spread if given_spread is None else given_spread)
        ],
        "priorityClassName": settings.priority_class_name,
        "securityContext": merged(security or {}, settings.pod_security_context),
        "dnsConfig": settings.dns_config,
        "volumes": [*volumes, *settings.extra_volumes],
    }
    return {
        "serviceAccountName": account_name(values, part),
        "automountServiceAccountToken": needs_token,
        **network,
        **more,
        "containers": [_container(values, part, container), *settings.extra_containers],
        **{key: value for key, value in optional.items() if value},
    }


def _container(values: Values, part: str, container: Object) -> Object:
    settings = settings_of(values, part)
    optional = {
        "args": [*container.get("args", ()), *settings.extra_args],
        "env": [*container.get("env", ()), *settings.extra_env],
        "resources": settings.resources,
        "securityContext": merged(container["securityContext"], settings.security_context),
        "volumeMounts": [*container.get("volumeMounts", ()), *settings.extra_volume_mounts],
    }
    own = {key: value for key, value in container.items() if key not in optional}
    return {**own, **{key: value for key, value in optional.items() if value}}


def namespace_objects(values: Values) -> list[Object]:
    """Return the namespace, which lets pods use folders of the node where a part needs them."""
    found = cluster_metadata(values, "namespace", name=values.spec.namespace)
    # Folders of the node are what even the `baseline` level forbids; agent and device plugin need one each.
    level = "privileged" if _needs_host(values) else "restricted"
    found["labels"]["pod-security.kubernetes.io/enforce"] = level
    return [{"apiVersion": "v1", "kind": "Namespace", "metadata": found}]


def _needs_host(values: Values) -> bool:
    agent = values.spec.agent
    uses_folders = agent.attribution != "none" or agent.device_access == "host"
    return (agent.enabled and uses_folders) or values.spec.device_plugin.enabled
