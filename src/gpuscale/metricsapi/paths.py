"""Request paths below a group's version, and what they ask for.

Source: custom-metrics-apiserver v1.30.0 pkg/apiserver/installer (cmhandlers.go, emhandlers.go) and
pkg/apiserver/endpoints/handlers (get.go).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from urllib.parse import unquote

ALL = "*"
MAX_PATH = 8 * 1024
"""Characters of a path; names and metric names together have far fewer."""
REMEMBERED_TEXT = 512
"""Characters of a path or selector up to which its meaning is remembered: HPAs ask the same all day."""
REMEMBERED_TEXTS = 4096


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


def split_path(raw_path: str) -> tuple[str, ...]:
    """Return the decoded parts of a path; a slash at its end is passed over.

    Raises:
        NoRouteError: a part is empty, or all are too long.
    """
    split = _split if len(raw_path) <= REMEMBERED_TEXT else _split.__wrapped__
    return split(raw_path)


@lru_cache(maxsize=REMEMBERED_TEXTS)
def _split(raw_path: str) -> tuple[str, ...]:
    parts = tuple(unquote(part) for part in raw_path.strip("/").split("/"))
    if len(raw_path) > MAX_PATH or not all(parts):
        raise NoRouteError
    return parts


def custom_target(parts: Sequence[str]) -> CustomTarget:
    """Return what the parts behind `custom.metrics.k8s.io/<version>` ask for.

    Raises:
        BadPathError: `namespaces/<ns>/<something>` and no more.
        NoRouteError: anything else that is not served.
    """
    match tuple(parts):
        case ("namespaces", namespace, "metrics", metric):
            return CustomTarget("namespaces", None, namespace, metric)
        case ("namespaces", namespace, resource, name, metric):
            return CustomTarget(resource, namespace, name, metric)
        case ("namespaces", _, _):
            raise BadPathError("invalid request path")
        case (resource, name, metric):
            return CustomTarget(resource, None, name, metric)
    raise NoRouteError


def external_target(parts: Sequence[str]) -> ExternalTarget:
    """Return what the parts behind `external.metrics.k8s.io/<version>` ask for.

    Raises:
        NoRouteError: not `namespaces/<ns>/<metric>`.
    """
    match tuple(parts):
        case ("namespaces", namespace, metric):
            return ExternalTarget(namespace, metric)
    raise NoRouteError
