"""`resourceRules`: the queries for CPU and memory of pods and nodes.

Source: prometheus-adapter v0.12.0 pkg/resourceprovider (provider.go, newResourceQuery and runQuery).
"""

from collections.abc import Sequence
from dataclasses import dataclass

from gpuscale.base.golang.template import Template
from gpuscale.base.objects.selectors import Selector
from gpuscale.server.rules.query import custom_query
from gpuscale.server.rules.resource_labels import ResourceLabels
from gpuscale.server.rules.resources import NODES, PODS

_NO_SELECTOR = Selector()


@dataclass(frozen=True, slots=True, eq=False)
class ResourceRule:
    """The queries for CPU in cores, or for memory in bytes."""

    container_query: Template
    node_query: Template
    labels: ResourceLabels
    container_label: str
    """The label whose value is a container's name; a row without it is of a container without a name."""

    def pods_query(self, namespace: str, names: Sequence[str]) -> str:
        """Return the query for the containers of these pods.

        Raises:
            NotFoundError: no label names pods or namespaces.
            QueryError: the template fails or gives nothing.
        """
        group_by = (self.container_label,)
        return custom_query(
            self.container_query,
            "",
            self.labels,
            PODS,
            namespace,
            names,
            _NO_SELECTOR,
            group_by,
        )

    def nodes_query(self, names: Sequence[str]) -> str:
        """Return the query for these nodes.

        Raises:
            NotFoundError: no label names nodes.
            QueryError: the template fails or gives nothing.
        """
        return custom_query(self.node_query, "", self.labels, NODES, None, names, _NO_SELECTOR)


@dataclass(frozen=True, slots=True, eq=False)
class ResourceRules:
    """The rules for CPU and memory, and the window that answers report."""

    cpu: ResourceRule
    memory: ResourceRule
    window_ms: int = 0
    """Over how long CPU is measured; reported to clients, not used in queries."""
