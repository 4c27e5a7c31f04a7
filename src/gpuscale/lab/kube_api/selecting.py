"""The selection of a list or watch: namespace, labels, fields.

Source: k8s.io/apimachinery v0.36 pkg/fields, pkg/labels; kubernetes v1.36 pkg/apis/core/v1/conversion.go.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gpuscale.base.objects.selectors import Selector
from gpuscale.lab.kube_api.kinds import ApiResource
from gpuscale.lab.kube_api.store import Stored
from gpuscale.server.metricsapi.wire import FieldSelector, parse_field_selector


@dataclass(frozen=True, slots=True)
class ObjectSelection:
    """The conditions of a list or watch, which must all hold."""

    kind: ApiResource
    namespace: str | None
    """None is every namespace."""
    labels: Selector
    fields: FieldSelector

    def takes(self, stored: Stored) -> bool:
        if self.namespace is not None and stored.key[0] != self.namespace:
            return False
        if not self.labels.matches(stored.body["metadata"].get("labels") or {}):
            return False
        return not self.fields.terms or self.fields.matches(_values(self.kind, stored.body))

    @property
    def is_everything(self) -> bool:
        """Return whether there is no condition besides the namespace."""
        return not self.fields.terms and not self.labels


def parse_fields(kind: ApiResource, text: str) -> FieldSelector:
    """Parse a field selector.

    Raises:
        ValueError: it is none, or names a field that objects of this kind can't be selected by.
    """
    return parse_field_selector(text, kind.fields)


def _values(kind: ApiResource, body: Mapping[str, Any]) -> dict[str, str]:
    """Return an object's values of the fields that selectors can name."""
    return {label: _value(body, path) for label, path in kind.fields.items()}


def _value(body: Mapping[str, Any], path: str) -> str:
    found: Any = body
    for part in path.split("."):
        found = found.get(part) if isinstance(found, Mapping) else None
    if isinstance(found, bool):
        return "true" if found else "false"
    if found is None:
        return _ABSENT.get(path, "")
    return str(found)


_ABSENT = {
    "spec.unschedulable": "false",
    "spec.hostNetwork": "false",
    "status.succeeded": "0",
    "status.replicas": "0",
}
"""What a field that is left out counts as."""
