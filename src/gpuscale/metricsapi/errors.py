"""What goes wrong between a request and its answer."""

from gpuscale.core.errors import UnavailableError


class ListError(UnavailableError):
    """It is not known which objects `*` stands for; the cause is for the log only."""

    def __init__(self) -> None:
        super().__init__("unable to list matching resources")
