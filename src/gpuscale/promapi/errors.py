"""What goes wrong with a request, in the words of the Prometheus API."""

from gpuscale.core.errors import GpuscaleError


class ApiError(GpuscaleError):
    """An answer other than success.

    Args:
        status: HTTP status code.
        error_type: Prometheus' word for the kind, such as `bad_data` or `execution`.
        text: what is wrong.
    """

    def __init__(self, status: int, error_type: str, text: str) -> None:
        self.status = status
        self.error_type = error_type
        self.text = text
        super().__init__(text)


def bad_data(text: str) -> ApiError:
    """Return the error of a request that is wrong in itself."""
    return ApiError(400, "bad_data", text)


def execution(text: str) -> ApiError:
    """Return the error of a query that failed on the data."""
    return ApiError(422, "execution", text)


def timed_out(text: str) -> ApiError:
    """Return the error of a query that took too long."""
    return ApiError(503, "timeout", text)
