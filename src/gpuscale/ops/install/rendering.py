"""Renders values to Kubernetes objects, in the order of application, and to node pool files; pure.

The chart makes the objects, rendered in process: what is applied here is what Helm would apply.

No command runs those files: nodes cost money, and making them needs rights in the cloud.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gpuscale.base.documents.documents import dump_documents
from gpuscale.ops.install.certificates import IssuedCertificate
from gpuscale.ops.install.chart.made import provider_data
from gpuscale.ops.install.common import Object, cluster_metadata, renews_certificate
from gpuscale.ops.install.helm.rendering import Rendering
from gpuscale.ops.install.values import Values
from gpuscale.ops.providers import BUILT_IN, PoolFile
from gpuscale.ops.providers.karpenter import karpenter_files

KIND_ORDER = (
    "Namespace",
    "ServiceAccount",
    "ValidatingAdmissionPolicy",
    "ValidatingAdmissionPolicyBinding",
    "ClusterRole",
    "ClusterRoleBinding",
    "Role",
    "RoleBinding",
    "NetworkPolicy",
    "Issuer",
    "Certificate",
    "Secret",
    "ConfigMap",
    "Service",
    "PrometheusRule",
    "ServiceMonitor",
    "PodMonitor",
    "DaemonSet",
    "Deployment",
    "PodDisruptionBudget",
    "Job",
    "APIService",
    "HorizontalPodAutoscaler",
    "TriggerAuthentication",
    "ScaledObject",
    "ScaledJob",
)
"""What others need comes first. APIServices follow their servers, and autoscalers follow their metrics."""


@dataclass(frozen=True, slots=True)
class RenderInputs:
    """The inputs of rendering besides the values."""

    certificate: IssuedCertificate | None = None
    """Of a metrics API that runs elsewhere; others have theirs from cert-manager, or renew it themselves."""


def render(values: Values, inputs: RenderInputs | None = None) -> tuple[Object, ...]:
    """Return an installation's objects in the order of application."""
    issued = inputs.certificate if inputs else None
    found = [_namespace(values), *_rendering(values, issued).objects()]
    return tuple(sorted(found, key=lambda each: KIND_ORDER.index(str(each["kind"]))))


def rule_texts(values: Values) -> dict[str, str]:
    """Return the rule files for Prometheus, by name."""
    files = _rendering(values).named("gpuscale.ruleFiles")
    return {name: dump_documents([groups]) for name, groups in files.items()}


def alert_groups(values: Values) -> list[Object]:
    """Return the groups of alert rules in Prometheus' form."""
    groups: list[Object] = _rendering(values).named("gpuscale.alertGroups")["groups"]
    return groups


def board_files(values: Values) -> dict[str, str]:
    """Return Grafana's dashboards as JSON, by file name; none if they are off."""
    found: dict[str, str] = {}
    for each in _rendering(values).objects():
        if each["metadata"]["labels"]["app.kubernetes.io/component"] == "dashboards":
            found |= each["data"]
    return found


def _rendering(values: Values, issued: IssuedCertificate | None = None) -> Rendering:
    provider, changed = values.spec.provider, {}
    if provider not in BUILT_IN:
        changed = {
            "files/providers.yaml": dump_documents([{provider.name: provider_data(provider)}])
        }
    secret = {} if issued is None else issued.data()
    return Rendering(_as_file(values), values.spec.namespace, changed=changed, certificate=secret)


def _as_file(values: Values) -> dict[str, Any]:
    """Return all fields as a values file has them; list entries keep the given fields only, as in Helm."""
    every = values.model_dump(mode="json", by_alias=True)
    return _filled(values.model_dump(mode="json", by_alias=True, exclude_unset=True), every)


def _filled(given: Mapping[str, Any], every: Mapping[str, Any]) -> dict[str, Any]:
    return {
        key: _filled(given[key], value)
        if key in given and isinstance(value, Mapping)
        else given.get(key, value)
        for key, value in every.items()
        if key in given or value is not None
    }


def _namespace(values: Values) -> Object:
    """Return the Namespace, which Helm creates itself; it permits host paths where pods need them."""
    agent = values.spec.agent
    uses_folders = agent.attribution != "none" or agent.device_access == "host"
    # Even the `baseline` level forbids host paths; agent and device plugin need one each.
    is_privileged = (agent.enabled and uses_folders) or values.spec.device_plugin.enabled
    found = cluster_metadata(values, "namespace", name=values.spec.namespace)
    level = "privileged" if is_privileged else "restricted"
    found["labels"]["pod-security.kubernetes.io/enforce"] = level
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": found}


def needs_certificate(values: Values) -> bool:
    """Return whether a certificate must be made for a metrics API outside the cluster."""
    api = values.spec.metrics_api
    return api.enabled and api.certificates == "generated" and not renews_certificate(values)


def outline(values: Values) -> tuple[Object, ...]:
    """Return an installation's objects with a placeholder for the certificate."""
    certificate = IssuedCertificate("", "", "") if needs_certificate(values) else None
    return render(values, RenderInputs(certificate))


def manifest(objects: Sequence[Object]) -> str:
    """Return objects as one YAML text for `kubectl apply -f`."""
    return dump_documents(objects)


def pool_files(values: Values) -> Sequence[PoolFile]:
    """Return the files for creating the node pool; none if the values have no pool."""
    pool, provider = values.spec.node_pool, values.spec.provider
    if pool is None or provider.pool_files is None:
        return ()
    made = values.spec.pool(pool)
    if pool.autoscaler == "karpenter" and provider.karpenter is not None:
        return karpenter_files(made, provider.karpenter)
    return provider.pool_files(made)
