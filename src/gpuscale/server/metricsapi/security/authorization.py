"""Authorization of a request: paths that are always allowed, then a SubjectAccessReview.

Source: k8s.io/apiserver v0.30.0 pkg/endpoints/request (requestinfo.go), pkg/authorization (path, union),
pkg/authorization/authorizerfactory (delegating.go), pkg/endpoints/handlers/responsewriters (errors.go).
"""

from collections.abc import Sequence
from dataclasses import replace

from gpuscale.base.byte_cache import MAX_TEXT, ByteCache, deep_bytes
from gpuscale.base.golang.durations import go_quote
from gpuscale.server.metricsapi.security.reviews import (
    MASTERS,
    AccessDecision,
    AccessReviewer,
    Attributes,
    User,
)
from gpuscale.server.metricsapi.wire.field_selectors import parse_field_selector
from gpuscale.server.metricsapi.wire.paths import NoRouteError, split_path

_VERBS = {
    "GET": "get",
    "HEAD": "get",
    "POST": "create",
    "PUT": "update",
    "PATCH": "patch",
    "DELETE": "delete",
}
_WITHOUT_NAME = {"get": "list", "delete": "deletecollection"}
_OF_NAMESPACES = {"status", "finalize"}
"""Subresources of a namespace itself."""
_ATTRIBUTES: ByteCache[tuple[str, str, bool], Attributes] = ByteCache("attributes", 2 * 1024 * 1024)
_SANITIZED = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;"})


class Authorizer:
    """Decides on requests.

    Args:
        reviews: asks the API server; None refuses all that is not always allowed.
        always_allowed: paths that need no permission; a `*` at the end matches any rest.
    """

    def __init__(self, reviews: AccessReviewer | None, always_allowed: Sequence[str]) -> None:
        self._reviews = reviews
        self._exact = {_rooted(path) for path in always_allowed if not path.endswith("*")}
        self._prefixes = tuple(_rooted(path[:-1]) for path in always_allowed if path.endswith("*"))

    async def decide(self, user: User, attributes: Attributes) -> AccessDecision:
        """Return whether the user may make this request.

        Raises:
            GpuscaleError: the API server can't decide.
        """
        if MASTERS in user.groups or self._is_always_allowed(attributes):
            return AccessDecision(allowed=True)
        if self._reviews is None:
            return AccessDecision(allowed=False, reason="there is no API server to ask")
        return await self._reviews.review(user, attributes)

    def _is_always_allowed(self, attributes: Attributes) -> bool:
        if attributes.is_resource:
            return False
        return attributes.path in self._exact or (
            bool(self._prefixes) and attributes.path.startswith(self._prefixes)
        )


def attributes_of(method: str, raw_path: str, path: str, *, watches: bool = False) -> Attributes:
    """Return verb, resource, namespace and name of a request, for RBAC.

    Args:
        method: of HTTP.
        raw_path: as it was sent, percent-encoded.
        path: decoded.
        watches: whether it asks for a watch.
    """
    key = (method, raw_path, watches)
    found = _ATTRIBUTES.get(key)
    if found is None:
        found = _attributes(method, raw_path, path, watches)
        if len(raw_path) <= MAX_TEXT:
            _ATTRIBUTES.put(key, found, deep_bytes(key) + deep_bytes(found))
    return found


def _attributes(method: str, raw_path: str, path: str, watches: bool) -> Attributes:
    try:
        parts = split_path(raw_path)
    except NoRouteError:
        parts = ()
    if len(parts) < 4 or parts[0] != "apis":
        return Attributes(method.lower(), path)
    _, group, version, *rest = parts
    namespace = rest[1] if rest[0] == "namespaces" and len(rest) > 1 else ""
    if len(rest) > 2 and namespace and rest[2] not in _OF_NAMESPACES:
        rest = rest[2:]
    resource, name, subresource = (*rest[:3], "", "")[:3]
    verb = _VERBS.get(method, method.lower())
    if not name:
        verb = "watch" if watches and verb == "get" else _WITHOUT_NAME.get(verb, verb)
    return Attributes(
        verb=verb,
        path=path,
        is_resource=True,
        group=group,
        version=version,
        resource=resource,
        subresource=subresource,
        name=name,
        namespace=namespace,
    )


def named_by_fields(attributes: Attributes, field_selector: str) -> Attributes:
    """Return the attributes with the name of the only object that a field selector leaves.

    So a user who may see one object may list it by its name.
    """
    if attributes.verb not in ("list", "watch"):
        return attributes
    try:
        name = parse_field_selector(field_selector).only_name
    except ValueError:
        return attributes
    return replace(attributes, name=name) if name else attributes


def forbidden_message(user: User, attributes: Attributes) -> str:
    """Return the message of a 403, worded as the API server's."""
    who, verb = go_quote(user.name), attributes.verb
    if not attributes.is_resource:
        text = f"User {who} cannot {verb} path {go_quote(attributes.path)}"
        return f"forbidden: {text.translate(_SANITIZED)}"
    resource = attributes.resource
    if attributes.subresource:
        resource = f"{resource}/{attributes.subresource}"
    place = "at the cluster scope"
    if attributes.namespace:
        place = f"in the namespace {go_quote(attributes.namespace)}"
    group = go_quote(attributes.group)
    text = f"User {who} cannot {verb} resource {go_quote(resource)} in API group {group} {place}"
    about = f"{attributes.resource}.{attributes.group}"
    if attributes.name:
        about = f"{about} {go_quote(attributes.name)}"
    return f"{about} is forbidden: {text.translate(_SANITIZED)}"


def _rooted(path: str) -> str:
    return f"/{path.lstrip('/')}"
