"""What the vectorised evaluation leaves to the row-wise one."""


class RowWiseError(Exception):
    """This has to be evaluated row by row: it is rare, or it fails there with an error of its own."""


class UncoveredStepsError(RowWiseError):
    """Samples that the first steps need were too old to be kept; in a range query these steps have no value.

    Args:
        from_ms: the first time that is covered.
    """

    def __init__(self, from_ms: int) -> None:
        super().__init__("samples were too old to be kept")
        self.from_ms = from_ms
