"""Which objects there are: what `*` selects in a request."""

from typing import Protocol

from gpuscale.objects.selectors import Selector
from gpuscale.rules.resources import ResourceType


class ObjectDirectory(Protocol):
    """Names of the cluster's objects, answered from memory."""

    def names(
        self, resource: ResourceType, namespace: str | None, selector: Selector
    ) -> tuple[str, ...]:
        """Return the names of the selected objects, in the order answers shall have.

        Args:
            resource: pods, services, nodes ...
            namespace: None for a resource that has none.
            selector: conditions on the objects' labels.
        """
        ...
