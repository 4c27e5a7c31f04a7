"""The node agent: a DaemonSet on GPU nodes, and the Service it is scraped through.

It asks only the kubelet and the driver, so it has no token and no way out. What it may do beyond that
is the least that each setting takes, and the comments say for what.
"""

from gpuscale.install.common import (
    NODE_AGENT,
    Object,
    agent_service,
    duration,
    http_probe,
    image_reference,
    part_name,
    restrained,
    service_accounts,
)
from gpuscale.install.parts.pods import pod_spec
from gpuscale.install.parts.workloads import config_map, service, workload
from gpuscale.install.prometheus_auth import KeyReference
from gpuscale.install.values import Values

PORT = 9400
AZURE_PAGE = "/metrics/azure"
_COUNTERS = "counters.csv"
_FOLDER = "/etc/gpuscale/counters"
_DRIVER = "/usr/local/nvidia"
_SERVED_S = {"streams": 5, "prometheus": 30}
"""From an agent's readiness until its readings are served: a stream begins within a second or two, and a
scrape within the default interval of 15 s after Prometheus has found the pod, which it does every 5 s."""


def agent_objects(values: Values) -> list[Object]:
    """Return the node agent's objects; none where it is off."""
    if not values.spec.agent.enabled:
        return []
    return [
        *service_accounts(values, NODE_AGENT),
        *_counters(values),
        _service(values),
        _daemon_set(values),
    ]


def _counters(values: Values) -> list[Object]:
    text = values.spec.agent.custom_metrics
    return [] if text is None else [config_map(values, NODE_AGENT, {_COUNTERS: text})]


def _counters_source(values: Values) -> KeyReference | None:
    if values.spec.agent.custom_metrics is not None:
        return KeyReference(name=part_name(values, NODE_AGENT), key=_COUNTERS)
    return values.spec.agent.custom_metrics_config_map


def _service(values: Values) -> Object:
    scraped = {
        "prometheus.io/scrape": "true",
        "prometheus.io/port": str(PORT),
        "prometheus.io/path": "/metrics",
    }
    annotations = scraped if values.spec.prometheus.kind == "plain" else {}
    found = service(values, NODE_AGENT, "metrics", PORT, annotations)
    found["metadata"]["name"] = agent_service(values)
    # A readiness that is lost says that GPUs can't be read; the reasons are still worth a scrape.
    found["spec"]["publishNotReadyAddresses"] = True
    return found


def _daemon_set(values: Values) -> Object:
    rolling = {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "25%"}}
    # The next nodes wait until readings of a new agent are served too: an HPA whose pods are all without
    # a value for a moment is blind. Prometheus has to find and scrape it first.
    more = {"updateStrategy": rolling, "minReadySeconds": _SERVED_S[values.spec.metrics_api.source]}
    return workload(values, "DaemonSet", NODE_AGENT, _pod_spec(values), **more)


def _pod_spec(values: Values) -> Object:
    agent = values.spec.agent
    more: Object = {"terminationGracePeriodSeconds": 10}
    if agent.runtime_class is not None:
        more["runtimeClassName"] = agent.runtime_class
    if agent.attribution == "processes":
        # The driver reports only the processes of its own PID namespace.
        more["hostPID"] = True
    return pod_spec(
        values,
        NODE_AGENT,
        _container(values),
        needs_token=False,
        volumes=_volumes(values),
        affinity=values.spec.provider.gpu_node_affinity(),
        **more,
    )


def _container(values: Values) -> Object:
    image = values.spec.image
    return {
        "name": "agent",
        "image": image_reference(image),
        "imagePullPolicy": image.pull_policy,
        # The last lines of its log then say in the pod's status why it ended.
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "args": _arguments(values),
        "env": _environment(values),
        "ports": [{"name": "metrics", "containerPort": PORT}],
        # It answers before the first GPU is touched, and is ready once all could be read: no delays to guess.
        "startupProbe": http_probe("/health", "metrics", periodSeconds=1, failureThreshold=60),
        "livenessProbe": http_probe("/health", "metrics", periodSeconds=10, timeoutSeconds=5),
        "readinessProbe": http_probe("/readyz", "metrics", periodSeconds=5, timeoutSeconds=5),
        "securityContext": _security_context(values),
        "volumeMounts": _mounts(values),
    }


def _arguments(values: Values) -> list[str]:
    agent = values.spec.agent
    tied = [] if agent.attribution == "none" else ["--kubernetes"]
    return [
        "exporter",
        "--gpu=nvml",
        f"--address=:{PORT}",
        f"--collect-interval={duration(agent.collect_interval)}",
        f"--style={agent.style}",
        *tied,
        *([f"--collectors={_FOLDER}/{_COUNTERS}"] if _counters_source(values) else ()),
    ]


def _environment(values: Values) -> list[Object]:
    node = {"fieldRef": {"fieldPath": "spec.nodeName"}}
    found: list[Object] = [{"name": "NODE_NAME", "valueFrom": node}]
    if values.spec.agent.device_access == "host":
        return [*found, {"name": "LD_LIBRARY_PATH", "value": f"{_DRIVER}/lib64"}]
    return [
        *found,
        {"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"},
        {"name": "NVIDIA_DRIVER_CAPABILITIES", "value": "utility"},
    ]


def _security_context(values: Values) -> Object:
    agent = values.spec.agent
    if agent.device_access == "host":
        # Without NVIDIA's runtime, only a privileged container may open GPUs it did not ask for.
        return {"runAsUser": 0, "privileged": True, "readOnlyRootFilesystem": True}
    if agent.attribution == "none":
        return restrained()
    # The kubelet's socket is root's, so this is root's user id, with none of root's rights.
    return restrained(user=0)


def _volumes(values: Values) -> list[Object]:
    agent = values.spec.agent
    found: list[Object] = []
    if agent.attribution != "none":
        folder = {"path": agent.pod_resources_path, "type": "Directory"}
        found.append({"name": "pod-resources", "hostPath": folder})
    if agent.device_access == "host":
        folder = {"path": values.spec.provider.host_driver, "type": "Directory"}
        found.append({"name": "driver", "hostPath": folder})
    if source := _counters_source(values):
        items = [{"key": source.key, "path": _COUNTERS}]
        found.append({"name": "counters", "configMap": {"name": source.name, "items": items}})
    return found


def _mounts(values: Values) -> list[Object]:
    agent = values.spec.agent
    found: list[Object] = []
    if agent.attribution != "none":
        # The folder and not the socket, which is a new one whenever the kubelet starts.
        path = "/var/lib/kubelet/pod-resources"
        found.append({"name": "pod-resources", "mountPath": path, "readOnly": True})
    if agent.device_access == "host":
        found.append({"name": "driver", "mountPath": _DRIVER, "readOnly": True})
    if _counters_source(values):
        found.append({"name": "counters", "mountPath": _FOLDER, "readOnly": True})
    return found
