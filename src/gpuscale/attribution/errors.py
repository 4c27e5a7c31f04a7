"""What goes wrong between us and the kubelet."""

from gpuscale.core.errors import UnavailableError


class KubeletError(UnavailableError):
    """The kubelet's socket gives no answer that can be used.

    Args:
        reason: one of the words of `reasons`.
        message: what was found and what to do.
    """

    def __init__(self, reason: str, message: str) -> None:
        self.reason = reason
        super().__init__(message)
