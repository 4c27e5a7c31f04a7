"""The error that a metric ends in when no replica count can be computed from it."""

from gpuscale.core.errors import GpuscaleError


class UncomputableError(GpuscaleError):
    """No replica count can be computed; the text is the controller's. It does not leave `hpa`."""
