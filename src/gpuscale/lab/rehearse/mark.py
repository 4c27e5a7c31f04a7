"""What says of an object that a rehearsal made it, and keeps everything else away from its nodes."""

from collections.abc import Mapping
from dataclasses import dataclass

from gpuscale.base.objects.nodes import Taint

LABEL = "gpuscale.dev/rehearsal"
"""On every object that a rehearsal makes, with the rehearsal's id; what has no such label is left alone."""
_MAX_LABEL = 63


def rehearsal_id(scenario: str, suffix: str) -> str:
    """Return an id that names its scenario and fits into a label."""
    return f"{scenario[: _MAX_LABEL - len(suffix) - 1].rstrip('.-')}-{suffix}"


def any_rehearsal() -> str:
    """Return the label selector of what any rehearsal has made."""
    return LABEL


@dataclass(frozen=True, slots=True)
class RehearsalMark:
    """One rehearsal's mark."""

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
        """Return what keeps other pods off the nodes."""
        return Taint(LABEL, self.id)

    @property
    def toleration(self) -> Mapping[str, str]:
        """Return what lets the scenario's pods onto the nodes."""
        return {"key": LABEL, "operator": "Equal", "value": self.id, "effect": "NoSchedule"}

    def namespace_of(self, name: str) -> str:
        """Return the namespace used for one of the scenario's."""
        return self.namespace if name == "default" else f"{self.namespace}-{name}"

    def key_of(self, key: str) -> str:
        """Return the `namespace/name` used for one of the scenario's."""
        namespace, _, name = key.partition("/")
        return f"{self.namespace_of(namespace)}/{name}"
