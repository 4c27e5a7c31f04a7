"""The simulated cluster's objects, as the metrics API looks them up."""

from gpuscale.objects.selectors import Selector
from gpuscale.rules.resources import ResourceType
from gpuscale.sim.cluster import Cluster


class ClusterDirectory:
    """Answers from the cluster's state; it is always up to date."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def names(
        self, resource: ResourceType, namespace: str | None, selector: Selector
    ) -> tuple[str, ...]:
        """Return the names of the selected objects, sorted."""
        return tuple(
            sorted(
                name
                for scope, name, labels in self._cluster.objects_of(resource.plural)
                if scope == (namespace or "") and selector.matches(labels)
            )
        )
