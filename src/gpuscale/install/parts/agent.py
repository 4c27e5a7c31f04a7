"""The node agent: a DaemonSet on GPU nodes, and the Service it is scraped through.

It asks only the kubelet and the driver, so it has no token and no way out. What it may do beyond that
is the least that each setting takes, and the comments say for what.
"""

from gpuscale.install.common import (
    NODE_AGENT,
    Object,
    duration,
    http_probe,
    image_reference,
    part_name,
    pull_secrets,
    restrained,
    service_account,
)
from gpuscale.install.parts.workloads import service, workload
from gpuscale.install.values import Values

PORT = 9400
_DRIVER = "/usr/local/nvidia"
_SERVED_S = {"streams": 5, "prometheus": 30}
"""From an agent's readiness until its readings are served: a stream begins within a second or two, and a
scrape within the default interval of 15 s after Prometheus has found the pod, which it does every 5 s."""


def agent_objects(values: Values) -> list[Object]:
    """Return the node agent's objects; none where it is off."""
    if not values.spec.agent.enabled:
        return []
    return [service_account(values, NODE_AGENT), _service(values), _daemon_set(values)]


def _service(values: Values) -> Object:
    found = service(values, NODE_AGENT, "metrics", PORT)
    # A readiness that is lost says that GPUs can't be read; the reasons are still worth a scrape.
    found["spec"]["publishNotReadyAddresses"] = True
    if values.spec.prometheus.kind == "plain":
        found["metadata"]["annotations"] = {
            "prometheus.io/scrape": "true",
            "prometheus.io/port": str(PORT),
            "prometheus.io/path": "/metrics",
        }
    return found


def _daemon_set(values: Values) -> Object:
    rolling = {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "25%"}}
    # The next nodes wait until readings of a new agent are served too: an HPA whose pods are all without
    # a value for a moment is blind. Prometheus has to find and scrape it first.
    more = {"updateStrategy": rolling, "minReadySeconds": _SERVED_S[values.spec.metrics_api.source]}
    return workload(values, "DaemonSet", NODE_AGENT, _pod_spec(values), **more)


def _pod_spec(values: Values) -> Object:
    agent = values.spec.agent
    spec: Object = {
        "serviceAccountName": part_name(values, NODE_AGENT),
        "automountServiceAccountToken": False,
        **pull_secrets(values.spec.image),
        "affinity": values.spec.provider.gpu_node_affinity(),
        # Readings are wanted of every GPU node, whatever keeps other pods off it.
        "tolerations": [{"operator": "Exists"}],
        "priorityClassName": "system-node-critical",
        "terminationGracePeriodSeconds": 10,
        "containers": [_container(values)],
        **_given("volumes", _volumes(values)),
    }
    if agent.runtime_class is not None:
        spec["runtimeClassName"] = agent.runtime_class
    if agent.attribution == "processes":
        # The driver reports only the processes of its own PID namespace.
        spec["hostPID"] = True
    return spec


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
        # A CPU limit would delay scrapes and save nothing.
        "resources": {"requests": {"cpu": "20m", "memory": "96Mi"}, "limits": {"memory": "256Mi"}},
        "securityContext": _security_context(values),
        **_given("volumeMounts", _mounts(values)),
    }


def _given(key: str, found: list[Object]) -> Object:
    return {key: found} if found else {}


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
    return found
