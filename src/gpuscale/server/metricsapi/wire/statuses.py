"""Errors of the metrics APIs, and the Kubernetes `Status` objects that report them.

Source: k8s.io/apimachinery pkg/api/errors (errors.go). Known difference: a malformed metricLabelSelector
is the client's fault and gets 400 like a malformed labelSelector, where upstream answers 500.
"""

from dataclasses import dataclass

from gpuscale.base.errors import GpuscaleError, NotFoundError, UnavailableError
from gpuscale.server.rules.queries.plan import UnexpectedResultError


class ListError(UnavailableError):
    """The objects that `*` selects can't be listed; the cause goes to the log only."""

    def __init__(self) -> None:
        super().__init__("unable to list matching resources")


class NotDiscoveredError(UnavailableError):
    """Discovery has not found out yet whether a metric exists; the reason is on the health paths only."""

    def __init__(self, what: str) -> None:
        super().__init__(
            f"it is not known yet {what}: discovery has had no whole answer since the server started; "
            "see /readyz?verbose"
        )


class ObjectNotFoundError(NotFoundError):
    """There is no such object."""

    def __init__(self, resource: str, group: str, name: str) -> None:
        self.about = (("name", name), ("group", group), ("kind", resource))
        qualified = f"{resource}.{group}" if group else resource
        super().__init__(f'{qualified} "{name}" not found')


@dataclass(frozen=True, slots=True)
class Status:
    """A failure, with the HTTP code it is sent with."""

    code: int
    reason: str
    message: str
    causes: tuple[str, ...] = ()
    about: tuple[tuple[str, str], ...] | None = None
    """What the failure is about: name, group and kind, as far as known; None leaves them out."""

    def body(self) -> dict[str, object]:
        """Return the object as it goes over the wire."""
        body: dict[str, object] = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
        }
        if self.reason:
            body["reason"] = self.reason
        if self.causes:
            body["details"] = {"causes": [{"message": cause} for cause in self.causes]}
        elif self.about is not None:
            body["details"] = dict(self.about)
        return {**body, "code": self.code}


NO_ROUTE = Status(404, "NotFound", "the server could not find the requested resource", about=())
UNAUTHORIZED = Status(401, "Unauthorized", "Unauthorized")
TOO_MANY = Status(429, "TooManyRequests", "Too many requests, please try again later.")
TIMED_OUT = Status(504, "Timeout", "Timeout: request did not complete within the allotted timeout")


def forbidden(message: str, name: str, group: str, kind: str) -> Status:
    """Return a 403; details without text are left out."""
    about = (("name", name), ("group", group), ("kind", kind))
    given = tuple((key, value) for key, value in about if value)
    return Status(403, "Forbidden", message, about=given)


def bad_request(message: str) -> Status:
    """Return a 400."""
    return Status(400, "BadRequest", message)


def method_not_allowed() -> Status:
    """Return a 405, for any method but GET."""
    message = "the server does not allow this method on the requested resource"
    return Status(405, "MethodNotAllowed", message, about=())


def watch_not_supported(resource: str, group: str) -> Status:
    """Return the refusal of a watch."""
    message = f'watch is not supported on resources of kind "{resource}.{group}"'
    return Status(405, "MethodNotAllowed", message, about=(("group", group), ("kind", resource)))


def internal_error(cause: str) -> Status:
    """Return a 500 with its cause; the reasons behind the cause are not shown."""
    return Status(500, "InternalError", f"Internal error occurred: {cause}", (cause,))


def status_of(error: GpuscaleError) -> Status:
    """Return the Status for an error of the provider.

    What a source said is not shown: upstream keeps addresses and queries from clients too.
    """
    if isinstance(error, ObjectNotFoundError):
        about = tuple((key, value) for key, value in error.about if value)
        return Status(404, "NotFound", str(error), about=about)
    if isinstance(error, NotFoundError):
        return Status(404, "NotFound", str(error))
    if isinstance(error, UnexpectedResultError):
        return Status(500, "", str(error))
    if isinstance(error, NotDiscoveredError):
        return Status(503, "ServiceUnavailable", str(error))
    if isinstance(error, ListError):
        return internal_error(str(error))
    return internal_error("unable to fetch metrics")
