"""The API groups and versions that are served, request paths below a group's version, and what they ask for.

Source: custom-metrics-apiserver v1.30.0 pkg/apiserver/installer (cmhandlers.go, emhandlers.go) and
pkg/apiserver/endpoints/handlers (get.go).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import quote, unquote, unquote_to_bytes

from gpuscale.base.byte_cache import remembered
from gpuscale.base.objects.names import is_object_name

ALL = "*"
MAX_PATH = 8 * 1024
"""Characters of a path; names and metric names together have far fewer."""


@dataclass(frozen=True, slots=True)
class CustomTarget:
    """A metric of one object, or of all that are selected."""

    resource: str
    namespace: str | None
    name: str
    """`*` for all."""
    metric: str


@dataclass(frozen=True, slots=True)
class ExternalTarget:
    """An external metric as seen from a namespace."""

    namespace: str
    metric: str


class NoRouteError(Exception):
    """Nothing is served under a path."""


class BadPathError(Exception):
    """A path begins like one that is served, and then goes wrong."""


@remembered("paths", 2 * 1024 * 1024)
def is_text(raw: str) -> bool:
    """Return whether a path or query, with its percent-encoding undone, is UTF-8."""
    if "%" not in raw and raw.isascii():
        return True
    try:
        unquote_to_bytes(raw.encode()).decode()
    except UnicodeError:
        return False
    return True


def split_path(raw_path: str) -> tuple[str, ...]:
    """Return the decoded parts of a path; a slash at its end is passed over.

    Raises:
        NoRouteError: a part is empty, or all are too long.
    """
    if len(raw_path) > MAX_PATH:
        raise NoRouteError
    parts = tuple(unquote(part) for part in raw_path.strip("/").split("/"))
    if not all(parts):
        raise NoRouteError
    return parts


def custom_target(parts: Sequence[str]) -> CustomTarget:
    """Return what the parts behind `custom.metrics.k8s.io/<version>` ask for.

    Raises:
        BadPathError: `namespaces/<ns>/<something>` and no more.
        NoRouteError: anything else that is not served, and names that no object can have.
    """
    match tuple(parts):
        case ("namespaces", namespace, "metrics", metric):
            return CustomTarget("namespaces", None, _named(namespace), metric)
        case ("namespaces", namespace, resource, name, metric):
            return CustomTarget(resource, _named(namespace), _named(name), metric)
        case ("namespaces", _, _):
            raise BadPathError("invalid request path")
        case (resource, name, metric):
            return CustomTarget(resource, None, _named(name), metric)
    raise NoRouteError


def external_target(parts: Sequence[str]) -> ExternalTarget:
    """Return what the parts behind `external.metrics.k8s.io/<version>` ask for.

    Raises:
        NoRouteError: not `namespaces/<ns>/<metric>`, or a name that no namespace can have.
    """
    match tuple(parts):
        case ("namespaces", namespace, metric):
            return ExternalTarget(_named(namespace), metric)
    raise NoRouteError


def path_of(target: CustomTarget | ExternalTarget) -> str:
    """Return the URL path of a target below its group and version, percent-encoded."""
    parts: tuple[str, ...]
    if isinstance(target, ExternalTarget):
        parts = ("namespaces", target.namespace, target.metric)
    elif target.namespace is not None:
        parts = ("namespaces", target.namespace, target.resource, target.name, target.metric)
    elif target.resource == "namespaces":
        parts = ("namespaces", target.name, "metrics", target.metric)
    else:
        parts = (target.resource, target.name, target.metric)
    return "/".join(quote(part, safe="*:@") for part in parts)


def _named(name: str) -> str:
    """Return a name that is safe in a query; raise NoRouteError for one that no object can have."""
    if name != ALL and not is_object_name(name):
        raise NoRouteError
    return name


CUSTOM_GROUP = "custom.metrics.k8s.io"
CUSTOM_VERSIONS = ("v1beta1", "v1beta2")
"""The first is preferred, as upstream has it. Upstream's group document leaves v1beta2 out, though it
serves it; here both are listed."""
EXTERNAL_GROUP = "external.metrics.k8s.io"
EXTERNAL_VERSIONS = ("v1beta1",)
RESOURCE_GROUP = "metrics.k8s.io"
RESOURCE_VERSIONS = ("v1beta1",)
_VERSIONS = {
    CUSTOM_GROUP: CUSTOM_VERSIONS,
    EXTERNAL_GROUP: EXTERNAL_VERSIONS,
    RESOURCE_GROUP: RESOURCE_VERSIONS,
}
GROUPS = tuple(_VERSIONS)
"""All that can be served."""


def versions_of(group: str) -> tuple[str, ...]:
    """Return the versions of a group, the preferred one first; none of a group that is not served."""
    return _VERSIONS.get(group, ())
