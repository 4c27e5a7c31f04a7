"""What goes wrong between us and the API server."""

from gpuscale.core.errors import UnavailableError, UpstreamError


class ApiUnreachableError(UnavailableError):
    """The API server can't be reached, or broke off, or answers that it can't serve now."""

    def __init__(self, message: str, code: int | None = None, said: str = "") -> None:
        self.code = code
        """HTTP status code; None where there was no answer."""
        self.said = said
        """The server's own words; empty where it gave none."""
        super().__init__(message)


class ApiStatusError(UpstreamError):
    """The API server refused a request."""

    def __init__(
        self, code: int, message: str, immutable_fields: tuple[str, ...] = (), said: str = ""
    ) -> None:
        self.code = code
        """HTTP status code."""
        self.said = said
        """The server's own words; empty where it gave none."""
        self.immutable_fields = immutable_fields
        """Fields that the request would have changed, and that stay as they are while the object lives."""
        super().__init__(message)
