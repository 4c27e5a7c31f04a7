"""Builds the URL path for `gpuscale metrics-api why` from its command-line words."""

from urllib.parse import quote, urlencode

from gpuscale.base.errors import UsageError
from gpuscale.server.metricsapi.wire.paths import (
    CUSTOM_GROUP,
    CUSTOM_VERSIONS,
    EXTERNAL_GROUP,
    EXTERNAL_VERSIONS,
)

_FORMS = "pods/NAMESPACE/NAME, nodes/NAME, namespaces/NAME or external/NAMESPACE"


def why_path(whose: str, metric: str, selector: str = "", metric_selector: str = "") -> str:
    """Return the path that explains a metric, with its parameters.

    Args:
        whose: `pods/ml/web-0`, `services/ml/web`, `nodes/n1`, `namespaces/ml`, `external/ml`; a `*` for the
            name means all.
        metric: its name.
        selector: of objects, where it is about all of them.
        metric_selector: of series.

    Raises:
        UsageError: `whose` has another form.
    """
    parts = whose.strip("/").split("/")
    custom = f"/apis/{CUSTOM_GROUP}/{CUSTOM_VERSIONS[0]}"
    selectors = {"labelSelector": selector, "metricLabelSelector": metric_selector}
    match parts:
        case _ if not all(parts) or not metric:
            raise UsageError(f"found {whose!r}, expected {_FORMS}")
        case ["external", namespace]:
            base = f"/apis/{EXTERNAL_GROUP}/{EXTERNAL_VERSIONS[0]}"
            path = f"{base}/namespaces/{_quoted(namespace)}/{_quoted(metric)}"
            selectors = {"labelSelector": metric_selector or selector}
        case ["namespaces" | "namespace", name]:
            path = f"{custom}/namespaces/{_quoted(name)}/metrics/{_quoted(metric)}"
        case [resource, name]:
            path = f"{custom}/{_quoted(resource)}/{_quoted(name)}/{_quoted(metric)}"
        case [resource, namespace, name]:
            place = f"namespaces/{_quoted(namespace)}/{_quoted(resource)}/{_quoted(name)}"
            path = f"{custom}/{place}/{_quoted(metric)}"
        case _:
            raise UsageError(f"found {whose!r}, expected {_FORMS}")
    given = {key: text for key, text in selectors.items() if text}
    return f"{path}?{urlencode({'why': 'json', **given})}"


def _quoted(text: str) -> str:
    try:
        return quote(text, safe="")
    except UnicodeEncodeError:
        raise UsageError(f"found {text!r}, expected names in UTF-8") from None
