"""Values to Kubernetes objects, in the order in which they are applied, and to files of a node pool; pure.

No command runs those files: nodes cost money, and making them needs rights in the cloud.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from gpuscale.base.documents.documents import dump_documents
from gpuscale.ops.install.boards.catalogue import dashboard_objects
from gpuscale.ops.install.certificates import IssuedCertificate
from gpuscale.ops.install.common import Object, renews_certificate
from gpuscale.ops.install.parts.agent import agent_objects
from gpuscale.ops.install.parts.api_objects import metrics_api_objects
from gpuscale.ops.install.parts.api_pods import metrics_api_pods
from gpuscale.ops.install.parts.autoscaling import autoscaling_objects
from gpuscale.ops.install.parts.device_plugin import device_plugin_objects
from gpuscale.ops.install.parts.network import network_objects
from gpuscale.ops.install.parts.pods import namespace_objects
from gpuscale.ops.install.parts.prometheus import prometheus_objects
from gpuscale.ops.install.parts.rules import rule_file_objects
from gpuscale.ops.install.parts.samples import sample_objects
from gpuscale.ops.install.parts.scaler import scaler_objects
from gpuscale.ops.install.parts.scraping import scraping_objects
from gpuscale.ops.install.values import Values
from gpuscale.ops.providers import PoolFile
from gpuscale.ops.providers.karpenter import karpenter_files

KIND_ORDER = (
    "Namespace",
    "ServiceAccount",
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
    """What objects are made from beside the values."""

    certificate: IssuedCertificate | None = None
    """Of a metrics API that runs elsewhere; others have theirs from cert-manager, or renew it themselves."""


_PARTS: tuple[Callable[[Values, RenderInputs], list[Object]], ...] = (
    lambda values, _: namespace_objects(values),
    lambda values, _: device_plugin_objects(values),
    lambda values, _: agent_objects(values),
    lambda values, _: prometheus_objects(values),
    lambda values, _: scraping_objects(values),
    lambda values, _: dashboard_objects(values),
    lambda values, _: rule_file_objects(values),
    lambda values, inputs: metrics_api_objects(values, inputs.certificate),
    lambda values, _: metrics_api_pods(values),
    lambda values, _: scaler_objects(values),
    lambda values, _: network_objects(values),
    lambda values, _: sample_objects(values),
    lambda values, _: autoscaling_objects(values),
)


def render(values: Values, inputs: RenderInputs | None = None) -> tuple[Object, ...]:
    """Return the objects of an installation in the order in which they are applied."""
    given = inputs or RenderInputs()
    found = [each for part in _PARTS for each in part(values, given)]
    return tuple(sorted(found, key=lambda each: KIND_ORDER.index(str(each["kind"]))))


def needs_certificate(values: Values) -> bool:
    """Return whether a serving certificate has to be made for a metrics API that runs elsewhere."""
    api = values.spec.metrics_api
    return api.enabled and api.certificates == "generated" and not renews_certificate(values)


def outline(values: Values) -> tuple[Object, ...]:
    """Return the objects of an installation, for what does not look at the certificate among them."""
    certificate = IssuedCertificate("", "", "") if needs_certificate(values) else None
    return render(values, RenderInputs(certificate))


def manifest(objects: Sequence[Object]) -> str:
    """Return objects as one text, as `kubectl apply -f` takes it."""
    return dump_documents(objects)


def pool_files(values: Values) -> Sequence[PoolFile]:
    """Return the files that make the node pool; none where the values have no pool."""
    pool, provider = values.spec.node_pool, values.spec.provider
    if pool is None or provider.pool_files is None:
        return ()
    made = values.spec.pool(pool)
    if pool.autoscaler == "karpenter" and provider.karpenter is not None:
        return karpenter_files(made, provider.karpenter)
    return provider.pool_files(made)
