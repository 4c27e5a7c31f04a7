"""What objects of all parts have in common: names, labels, metadata, restraints."""

from typing import Any

from gpuscale.base.golang.durations import format_duration
from gpuscale.ops.install.pods import PodSettings
from gpuscale.ops.install.settings.identity import Image
from gpuscale.ops.install.values import Values

Object = dict[str, Any]
"""A Kubernetes object, or a part of one, as plain data."""
NODE_AGENT = "node-agent"
METRICS_API = "metrics-api"
PROMETHEUS = "prometheus"
SCALER = "scaler"
DEVICE_PLUGIN = "device-plugin"

INSTALL_LABEL = "gpuscale.dev/install"
"""On everything that an installation made; its value is the installation's name."""
FEDERATES = "gpuscale.dev/federates"
"""Annotation of an APIService with the Services, NAMESPACE/NAME, that requests are passed on to."""
CA_SECRET = "gpuscale.dev/ca-secret"  # noqa: S105 - where it is
"""Annotation of an APIService with the Secret, NAMESPACE/NAME, whose `ca.crt` its server is trusted by."""
USER_ID = 65532
"""An unprivileged user; images without a shell use it too."""
WHILE_STARTING = {"periodSeconds": 1, "failureThreshold": 300}
"""Of startup probes: a server on a starved node takes minutes, and one that is killed begins again."""
_CUSTOM = ("v1beta1.custom.metrics.k8s.io", "v1beta2.custom.metrics.k8s.io")
_EXTERNAL = ("v1beta1.external.metrics.k8s.io",)
_RESOURCE = ("v1beta1.metrics.k8s.io",)


def part_name(values: Values, part: str) -> str:
    """Return the name of a part's objects."""
    return f"{values.metadata.name}-{part}"


def agent_service(values: Values) -> str:
    """Return the name of the Service in front of the node agents."""
    return values.spec.agent.service_name or part_name(values, NODE_AGENT)


def metrics_api_secret(values: Values) -> str:
    """Return the name of the Secret with the metrics API's serving certificate."""
    return part_name(values, f"metrics-api-{'serving' if renews_certificate(values) else 'tls'}")


def renews_certificate(values: Values) -> bool:
    """Return whether the metrics API's pods make and renew their certificate themselves."""
    return has_api_pods(values) and values.spec.metrics_api.certificates == "generated"


def has_api_pods(values: Values) -> bool:
    """Return whether the metrics API runs as pods of the installation."""
    api = values.spec.metrics_api
    return api.enabled and api.external_name is None


def held_config_map(values: Values, part: str) -> str:
    """Return the name of the ConfigMap in which the replicas of a part keep what they decided last."""
    return part_name(values, f"{part}-held")


def selector(values: Values, part: str) -> dict[str, str]:
    """Return the labels that identify a part's pods."""
    return {
        "app.kubernetes.io/name": "gpuscale",
        "app.kubernetes.io/instance": values.metadata.name,
        "app.kubernetes.io/component": part,
    }


def labels(values: Values, part: str) -> dict[str, str]:
    """Return the labels of a part's objects."""
    return {
        **selector(values, part),
        "app.kubernetes.io/part-of": "gpuscale",
        INSTALL_LABEL: values.metadata.name,
    }


def metadata(
    values: Values, part: str, *, name: str | None = None, namespace: str | None = None
) -> Object:
    """Return the metadata of a namespaced object; by default named after its part, in the installation."""
    return {
        "name": name or part_name(values, part),
        "namespace": namespace or values.spec.namespace,
        "labels": labels(values, part),
    }


def cluster_metadata(values: Values, part: str, *, name: str | None = None) -> Object:
    """Return the metadata of an object that is in no namespace."""
    return {"name": name or part_name(values, part), "labels": labels(values, part)}


def image_reference(image: Image) -> str:
    """Return what a container names its image by."""
    return f"{image.repository}:{image.tag}" + (f"@{image.digest}" if image.digest else "")


def settings_of(values: Values, part: str) -> PodSettings:
    """Return what the values say of a part's pods; those that ask an Azure workspace have its identity."""
    spec = values.spec
    parts: dict[str, PodSettings] = {
        NODE_AGENT: spec.agent,
        METRICS_API: spec.metrics_api,
        SCALER: spec.scaler,
        PROMETHEUS: spec.prometheus,
        DEVICE_PLUGIN: spec.device_plugin,
    }
    found = parts[part]
    who = spec.prometheus.identity
    if who is None or spec.has_streams or part not in (METRICS_API, SCALER):
        return found
    account = found.service_account
    annotations = {"azure.workload.identity/client-id": who, **account.annotations}
    return found.model_copy(
        update={
            "pod_labels": {"azure.workload.identity/use": "true", **found.pod_labels},
            "service_account": account.model_copy(update={"annotations": annotations}),
        }
    )


def account_name(values: Values, part: str) -> str:
    """Return the name of a part's service account."""
    return settings_of(values, part).service_account.name or part_name(values, part)


def pull_secrets(values: Values, part: str) -> list[Object]:
    """Return the Secrets that a part's images may be pulled with."""
    spec = values.spec
    ours = [{"name": spec.image.pull_secret}] if spec.image.pull_secret else []
    return [*ours, *spec.image_pull_secrets, *settings_of(values, part).image_pull_secrets]


def restrained(*, user: int | None = USER_ID) -> Object:
    """Return a container's security context without any right that a process can do without."""
    who: Object = {} if user is None else {"runAsUser": user, "runAsGroup": user}
    return {
        **who,
        "runAsNonRoot": user != 0,
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
        "seccompProfile": {"type": "RuntimeDefault"},
    }


def http_probe(path: str, port: str, *, scheme: str = "HTTP", **more: int) -> Object:
    """Return a probe by HTTP; `more` are its periods and thresholds."""
    return {"httpGet": {"path": path, "port": port, "scheme": scheme}, **more}


def service_accounts(values: Values, part: str) -> list[Object]:
    """Return a part's service account, whose token no pod gets unasked; none where there is one to use."""
    wanted = settings_of(values, part).service_account
    if not wanted.create:
        return []
    found = metadata(values, part, name=account_name(values, part))
    if wanted.annotations:
        found["annotations"] = dict(wanted.annotations)
    return [
        {
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "metadata": found,
            "automountServiceAccountToken": False,
        }
    ]


def duration(milliseconds: int) -> str:
    """Return a duration as Prometheus and gpuscale read it."""
    return format_duration(milliseconds)


def api_service_names(values: Values) -> tuple[str, ...]:
    """Return the names of the APIServices that the installation wants to own."""
    api = values.spec.metrics_api
    if not api.enabled:
        return ()
    return (*_CUSTOM, *(_EXTERNAL if api.external else ()), *(_RESOURCE if api.resource else ()))
