"""Refusals as Status objects, with a hint on what to do instead."""

from gpuscale.lab.kube_api.kinds import ApiResource
from gpuscale.server.metricsapi.wire import Status

_INSTEAD = (
    "`gpuscale up` shows a simulated cluster, which is only read here: its objects follow the scenario. "
    "Change the load on its page, or the scenario's manifests; `gpuscale rehearse` works on a cluster that "
    "takes writes"
)
_NO_CONTAINERS = (
    "`gpuscale up` has no containers: its pods are simulated, so there is no log, no shell and no port in "
    "them"
)
OF_CONTAINERS = ("log", "exec", "attach", "portforward", "proxy")


def not_found(kind: ApiResource, name: str) -> Status:
    """Return the 404 for an unknown object."""
    about = (("name", name), ("group", kind.group), ("kind", kind.plural))
    given = tuple((key, value) for key, value in about if value)
    return Status(404, "NotFound", f'{kind.resource} "{name}" not found', about=given)


def expired(message: str) -> Status:
    """Return the 410 for an expired resource version, after which the client lists again."""
    return Status(410, "Expired", message)


def read_only(resource: str, group: str, subresource: str = "") -> Status:
    """Return the refusal of a write, or of a request that needs a running container."""
    message = _NO_CONTAINERS if subresource in OF_CONTAINERS else _INSTEAD
    about = tuple((key, value) for key, value in (("group", group), ("kind", resource)) if value)
    return Status(405, "MethodNotAllowed", message, about=about)
