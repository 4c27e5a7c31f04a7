"""What goes wrong between us and the API server."""

from gpuscale.core.errors import UnavailableError, UpstreamError


class ApiUnreachableError(UnavailableError):
    """The API server can't be reached, or broke off, or answers that it can't serve now."""


class ApiStatusError(UpstreamError):
    """The API server refused a request."""

    def __init__(self, code: int, message: str, immutable_fields: tuple[str, ...] = ()) -> None:
        self.code = code
        """HTTP status code."""
        self.immutable_fields = immutable_fields
        """Fields that the request would have changed, and that stay as they are while the object lives."""
        super().__init__(message)
