"""What goes wrong between a request and its answer."""

from gpuscale.core.errors import NotFoundError, UnavailableError


class ListError(UnavailableError):
    """It is not known which objects `*` selects; the cause is for the log only."""

    def __init__(self) -> None:
        super().__init__("unable to list matching resources")


class ObjectNotFoundError(NotFoundError):
    """There is no such object."""

    def __init__(self, resource: str, group: str, name: str) -> None:
        self.about = (("name", name), ("group", group), ("kind", resource))
        qualified = f"{resource}.{group}" if group else resource
        super().__init__(f'{qualified} "{name}" not found')
