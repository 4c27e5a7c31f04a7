"""The node agent: a DaemonSet on GPU nodes, and the Service it is scraped through.

It asks the kubelet and the driver; only where it attributes processes it asks the API server too, and has a
token. What it may do beyond that is the least that each setting takes, and the comments say for what.
"""

from gpuscale.base.documents.documents import dump_documents
from gpuscale.ops.install.common import (
    NODE_AGENT,
    USER_ID,
    WHILE_STARTING,
    Object,
    agent_service,
    cluster_metadata,
    duration,
    http_probe,
    image_reference,
    part_name,
    restrained,
    service_accounts,
)
from gpuscale.ops.install.parts import agent_access
from gpuscale.ops.install.parts.pods import pod_spec
from gpuscale.ops.install.parts.workloads import RBAC, binding, config_map, service, workload
from gpuscale.ops.install.prometheus_auth import KeyReference
from gpuscale.ops.install.values import Values

PORT = 9400
AZURE_PAGE = "/metrics/azure"
_COUNTERS = "counters.csv"
_FOLDER = "/etc/gpuscale/counters"
_WEB_CONFIG = "web-config.yaml"
_WEB = "/etc/gpuscale/web"
_USERS = "/etc/gpuscale/users"
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
        *(_rights(values) if asks_api_server(values) else ()),
        *_files(values),
        _service(values),
        _daemon_set(values),
    ]


def asks_api_server(values: Values) -> bool:
    """Return whether the agents read pods: a cgroup has a pod's UID, and the kubelet gives names alone.

    Without both, processes on a GPU that several pods share can't be told apart.
    """
    return values.spec.agent.enabled and values.spec.agent.attribution == "processes"


def _rights(values: Values) -> list[Object]:
    name = part_name(values, f"{NODE_AGENT}-pods")
    reads = ["get", "list", "watch"]
    return [
        {
            "apiVersion": f"{RBAC}/v1",
            "kind": "ClusterRole",
            "metadata": cluster_metadata(values, NODE_AGENT, name=name),
            "rules": [
                {"apiGroups": [""], "resources": ["pods", "nodes"], "verbs": reads},
                # Which GPU a resource claim's device is.
                {
                    "apiGroups": ["resource.k8s.io"],
                    "resources": ["resourceslices"],
                    "verbs": reads,
                },
            ],
        },
        binding(values, NODE_AGENT, name, name),
    ]


def _files(values: Values) -> list[Object]:
    """Return the ConfigMap with the agent's files; none where it has none."""
    text = values.spec.agent.custom_metrics
    files = {} if text is None else {_COUNTERS: text}
    if agent_access.has_tls(values):
        # Names beside the file itself, where the certificate is mounted too.
        shown = {"cert_file": "tls.crt", "key_file": "tls.key"}
        files[_WEB_CONFIG] = dump_documents([{"tls_server_config": shown}])
    return [config_map(values, NODE_AGENT, files)] if files else []


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
    # Jobs for annotated Services know neither the CA nor a password; the job of the ConfigMap does.
    is_open = not agent_access.has_tls(values)
    annotations = scraped if values.spec.prometheus.kind == "plain" and is_open else {}
    found = service(values, NODE_AGENT, "metrics", PORT, annotations)
    if not is_open:
        found["spec"]["ports"][0]["appProtocol"] = "https"
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
    has_tls = agent_access.has_tls(values)
    return pod_spec(
        values,
        NODE_AGENT,
        _container(values),
        needs_token=asks_api_server(values),
        volumes=_volumes(values),
        affinity=values.spec.provider.gpu_node_affinity(),
        security={"fsGroup": USER_ID} if has_tls else None,
        **more,
    )


def _container(values: Values) -> Object:
    image = values.spec.image
    return {
        "name": "agent",
        "image": values.spec.agent.image or image_reference(image),
        "imagePullPolicy": image.pull_policy,
        # The last lines of its log then say in the pod's status why it ended.
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "args": arguments(values),
        "env": _environment(values),
        "ports": [{"name": "metrics", "containerPort": PORT}],
        # It answers before the first GPU is touched, and is ready once all could be read: no delays to guess.
        "startupProbe": _probe(values, "/health", **WHILE_STARTING),
        "livenessProbe": _probe(values, "/health", periodSeconds=10, timeoutSeconds=5),
        "readinessProbe": _probe(values, "/readyz", periodSeconds=5, timeoutSeconds=5),
        "securityContext": _security_context(values),
        "volumeMounts": _mounts(values),
    }


def _probe(values: Values, path: str, **periods: int) -> Object:
    scheme = "HTTPS" if agent_access.has_tls(values) else "HTTP"
    return http_probe(path, "metrics", scheme=scheme, **periods)


def _web_arguments(values: Values) -> list[str]:
    if not agent_access.has_tls(values):
        return []
    config = f"--web-config-file={_WEB}/{_WEB_CONFIG}"
    if values.spec.agent.basic_auth.users_secret is None:
        return [config]
    # The kubelet's probes have no password.
    return [config, f"--web-users-folder={_USERS}", "--web-open-probes"]


def arguments(values: Values) -> list[str]:
    """Return the agent's arguments."""
    agent = values.spec.agent
    tied = [] if agent.attribution == "none" else ["--kubernetes"]
    tied += ["--kubernetes-enable-pod-uid"] if asks_api_server(values) else []
    return [
        "exporter",
        "--gpu=nvml",
        f"--address=:{PORT}",
        f"--collect-interval={duration(agent.collect_interval)}",
        f"--style={agent.style}",
        *tied,
        *([f"--collectors={_FOLDER}/{_COUNTERS}"] if _counters_source(values) else ()),
        *_web_arguments(values),
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
    return [*found, *_web_volumes(values)]


def _web_volumes(values: Values) -> list[Object]:
    if not agent_access.has_tls(values):
        return []
    pair = [{"key": key, "path": key} for key in ("tls.crt", "tls.key")]
    config = [{"key": _WEB_CONFIG, "path": _WEB_CONFIG}]
    sources: list[Object] = [
        {"configMap": {"name": part_name(values, NODE_AGENT), "items": config}},
        {"secret": {"name": values.spec.agent.tls.secret, "items": pair}},
    ]
    found: list[Object] = [{"name": "web", "projected": {"defaultMode": 0o440, "sources": sources}}]
    if name := values.spec.agent.basic_auth.users_secret:
        found.append({"name": "users", "secret": {"secretName": name, "defaultMode": 0o440}})
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
    folders = {"web": _WEB, "users": _USERS}
    found += [
        {"name": each["name"], "mountPath": folders[each["name"]], "readOnly": True}
        for each in _web_volumes(values)
    ]
    return found
