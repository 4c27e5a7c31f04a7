"""How to ask a cluster what its HPA controller asks: commands for a terminal.

Source: kubernetes v1.36 pkg/controller/podautoscaler/metrics/client.go;
    k8s.io/apimachinery/pkg/api/meta/restmapper.go (UnsafeGuessKindToResource).
"""

import shlex
from urllib.parse import quote, urlencode

from gpuscale.base.objects.hpa import (
    CrossVersionObjectReference,
    ExternalMetric,
    MetricSpec,
    ObjectMetric,
    PodsMetric,
)
from gpuscale.base.objects.selectors import Selector

_CUSTOM = "/apis/custom.metrics.k8s.io/v1beta2"
_EXTERNAL = "/apis/external.metrics.k8s.io/v1beta1"
_RESOURCE = "/apis/metrics.k8s.io/v1beta1"


def metric_command(spec: MetricSpec, namespace: str, selector: str) -> str:
    """Return the kubectl command that reads a metric as the controller does."""
    path, asked = metric_path(spec, namespace, selector)
    return f"kubectl get --raw '{path}{'?' if asked else ''}{urlencode(asked)}'"


def why_command(spec: MetricSpec, namespace: str, selector: str) -> str:
    """Return the command that follows a metric hop by hop; empty for usage, which it does not explain."""
    match spec:
        case PodsMetric():
            whose, flags = f"pods/{namespace}/*", {"-l": selector}
        case ObjectMetric(described_object=described) if is_namespace(described):
            whose, flags = f"namespaces/{namespace}", {}
        case ObjectMetric(described_object=described):
            whose, flags = f"{_resource(described)}/{namespace}/{described.name}", {}
        case ExternalMetric():
            whose, flags = f"external/{namespace}", {}
        case _:
            return ""
    flags["--metric-selector"] = _text(spec.selector)
    words = ["gpuscale", "metrics-api", "why", whose, spec.name]
    words += [word for flag, text in flags.items() if text for word in (flag, text)]
    return shlex.join(words)


def is_namespace(described: CrossVersionObjectReference) -> bool:
    """Return whether a metric describes a namespace, which is always the HPA's own."""
    return described.kind == "Namespace" and "/" not in described.api_version


def metric_path(
    spec: MetricSpec,
    namespace: str,
    selector: str,
    custom: str = _CUSTOM,
    resource: str | None = None,
) -> tuple[str, dict[str, str]]:
    """Return the path and the parameters that the controller reads a metric with.

    Args:
        spec: the metric.
        namespace: of the HPA.
        selector: of the target's pods, as text.
        custom: path of the custom metrics API's version.
        resource: plural name of a described object's kind with its group, such as `deployments.apps`; None
            guesses it.
    """
    match spec:
        case PodsMetric():
            path = f"{_place(custom, namespace)}/pods/*/{quote(spec.name)}"
            asked = {"labelSelector": selector, "metricLabelSelector": _text(spec.selector)}
        case ObjectMetric(described_object=described):
            thing = f"{resource or _resource(described)}/{quote(described.name)}"
            thing = "metrics" if is_namespace(described) else thing
            path = f"{_place(custom, namespace)}/{thing}/{quote(spec.name)}"
            asked = {"metricLabelSelector": _text(spec.selector)}
        case ExternalMetric():
            path = f"{_place(_EXTERNAL, namespace)}/{quote(spec.name)}"
            asked = {"labelSelector": _text(spec.selector)}
        case _:
            path, asked = f"{_place(_RESOURCE, namespace)}/pods", {"labelSelector": selector}
    return path, {key: text for key, text in asked.items() if text}


def scale_path(target: CrossVersionObjectReference, namespace: str) -> str:
    """Return the path of a target's scale, its plural guessed as clients without discovery do."""
    group = target.api_version
    base = f"/apis/{group}" if "/" in group else f"/api/{group or 'v1'}"
    return f"{_place(base, namespace)}/{quote(_plural(target.kind.lower()))}/{quote(target.name)}/scale"


def pods_command(namespace: str, selector: str) -> str:
    """Return the command that lists the pods of a selector."""
    quoted = selector.replace("'", "'\\''")
    return f"kubectl get pods -n {quote(namespace)} -l '{quoted}'"


def scale_command(target: CrossVersionObjectReference, namespace: str, replicas: int) -> str:
    """Return the command that sets the count of a target by hand."""
    thing = f"{quote(target.kind.lower())}/{quote(target.name)}"
    return f"kubectl scale -n {quote(namespace)} {thing} --replicas={replicas}"


def _place(api: str, namespace: str) -> str:
    return f"{api}/namespaces/{quote(namespace)}"


def _resource(described: CrossVersionObjectReference) -> str:
    """Return a kind's plural name with its group, guessed as clients without discovery do."""
    group, _, version = described.api_version.rpartition("/")
    plural = quote(_plural(described.kind.lower()))
    return f"{plural}.{quote(group)}" if group and version else plural


def _plural(kind: str) -> str:
    if kind.endswith("endpoints"):
        return kind
    if kind.endswith("s"):
        return f"{kind}es"
    return f"{kind[:-1]}ies" if kind.endswith("y") else f"{kind}s"


def _text(selector: Selector | None) -> str:
    return "" if selector is None else str(selector)
