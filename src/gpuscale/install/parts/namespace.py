"""The installation's namespace."""

from gpuscale.install.common import Object, cluster_metadata
from gpuscale.install.values import Values

PART = "namespace"


def namespace_objects(values: Values) -> list[Object]:
    """Return the namespace, which lets pods use folders of the node where a part needs them."""
    found = cluster_metadata(values, PART, name=values.spec.namespace)
    # Folders of the node are what even the `baseline` level forbids; agent and device plugin need one each.
    level = "privileged" if _needs_host(values) else "restricted"
    found["labels"]["pod-security.kubernetes.io/enforce"] = level
    return [{"apiVersion": "v1", "kind": "Namespace", "metadata": found}]


def _needs_host(values: Values) -> bool:
    agent = values.spec.agent
    uses_folders = agent.attribution != "none" or agent.device_access == "host"
    return (agent.enabled and uses_folders) or values.spec.device_plugin.enabled
