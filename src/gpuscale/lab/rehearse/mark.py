"""The label of a rehearsal's objects, and the taint of its nodes."""

from collections.abc import Mapping
from dataclasses import dataclass

from gpuscale.base.objects.taints import Taint

LABEL = "gpuscale.dev/rehearsal"
"""On every object that a rehearsal makes, with the rehearsal's id; what has no such label is left alone."""
_MAX_LABEL = 63


def rehearsal_id(scenario: str, suffix: str) -> str:
    """Return a rehearsal id: the scenario's name in a form that fits a label."""
    return f"{scenario[: _MAX_LABEL - len(suffix) - 1].rstrip('.-')}-{suffix}"


def any_rehearsal() -> str:
    """Return a label selector for the objects of any rehearsal."""
    return LABEL


@dataclass(frozen=True, slots=True)
class RehearsalMark:
    """The label, taint and namespaces of one rehearsal."""

    id: str
    namespace: str
    """What the scenario's namespace `default` becomes."""

    @property
    def labels(self) -> Mapping[str, str]:
        return {LABEL: self.id}

    @property
    def selector(self) -> str:
        return f"{LABEL}={self.id}"

    @property
    def taint(self) -> Taint:
        """Return the taint that keeps other pods off the rehearsal's nodes."""
        return Taint(LABEL, self.id)

    @property
    def toleration(self) -> Mapping[str, str]:
        """Return the toleration that lets the scenario's pods onto these nodes."""
        return {"key": LABEL, "operator": "Equal", "value": self.id, "effect": "NoSchedule"}

    def namespace_of(self, name: str) -> str:
        """Return the rehearsal's namespace for one of the scenario."""
        return self.namespace if name == "default" else f"{self.namespace}-{name}"

    def key_of(self, key: str) -> str:
        """Return the rehearsal's `namespace/name` for one of the scenario."""
        namespace, _, name = key.partition("/")
        return f"{self.namespace_of(namespace)}/{name}"
