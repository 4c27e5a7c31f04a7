"""NVIDIA's device plugin, with several pods taking turns on a GPU where that is wanted."""

from gpuscale.base.documents.documents import dump_documents
from gpuscale.ops.install.common import DEVICE_PLUGIN, Object, part_name, service_accounts
from gpuscale.ops.install.parts.pods import pod_spec
from gpuscale.ops.install.parts.workloads import config_map, workload
from gpuscale.ops.install.values import Values

PART = DEVICE_PLUGIN
_CONFIG = "config.yaml"


def device_plugin_objects(values: Values) -> list[Object]:
    """Return the device plugin's objects; none where it is off."""
    if not values.spec.device_plugin.enabled:
        return []
    return [*service_accounts(values, PART), _config_map(values), _daemon_set(values)]


def plugin_config(values: Values) -> Object:
    """Return the plugin's configuration file."""
    plugin = values.spec.device_plugin
    found: Object = {
        "version": "v1",
        # Nodes without a working driver wait for it instead of restarting the plugin for ever.
        "flags": {"migStrategy": plugin.mig_strategy, "failOnInitError": False},
    }
    if plugin.replicas > 1:
        found["sharing"] = {
            "timeSlicing": {
                "renameByDefault": False,
                # Two shares may be of one GPU, so asking for two means nothing.
                "failRequestsGreaterThanOne": True,
                "resources": [{"name": "nvidia.com/gpu", "replicas": plugin.replicas}],
            }
        }
    return found


def _config_map(values: Values) -> Object:
    return config_map(values, PART, {_CONFIG: dump_documents([plugin_config(values)])})


def _daemon_set(values: Values) -> Object:
    more: Object = {}
    if values.spec.agent.runtime_class is not None:
        more["runtimeClassName"] = values.spec.agent.runtime_class
    spec = pod_spec(
        values,
        PART,
        _container(values),
        needs_token=False,
        affinity=values.spec.provider.gpu_node_affinity(),
        volumes=[
            {"name": "config", "configMap": {"name": part_name(values, PART)}},
            {
                "name": "device-plugins",
                "hostPath": {"path": "/var/lib/kubelet/device-plugins", "type": "Directory"},
            },
        ],
        **more,
    )
    rolling = {"type": "RollingUpdate"}
    return workload(values, "DaemonSet", PART, spec, updateStrategy=rolling)


def _container(values: Values) -> Object:
    plugin = values.spec.device_plugin
    context: Object = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    if plugin.mig_strategy != "none":
        # Listing MIG instances takes this right.
        context = {"capabilities": {"add": ["SYS_ADMIN"]}}
    return {
        "name": "device-plugin",
        "image": plugin.image,
        "args": [f"--config-file=/etc/nvidia-device-plugin/{_CONFIG}"],
        "env": [
            {"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"},
            {"name": "NVIDIA_DRIVER_CAPABILITIES", "value": "compute,utility"},
        ],
        "securityContext": context,
        "volumeMounts": [
            {"name": "config", "mountPath": "/etc/nvidia-device-plugin", "readOnly": True},
            {"name": "device-plugins", "mountPath": "/var/lib/kubelet/device-plugins"},
        ],
    }
