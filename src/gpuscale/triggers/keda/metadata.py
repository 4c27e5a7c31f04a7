"""Reads a trigger's metadata as its scaler does, and collects all faults.

Source: KEDA v2.21 pkg/scalers/scalersconfig/typed_config.go.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from gpuscale.base.objects.scaled_object import ScaleTrigger

_TRUE = frozenset({"1", "t", "T", "TRUE", "true", "True"})
_FALSE = frozenset({"0", "f", "F", "FALSE", "false", "False"})


@dataclass(frozen=True, slots=True)
class TriggerFault:
    """What is wrong with one trigger."""

    index: int
    """Of the trigger."""
    path: tuple[str, ...]
    """Below the trigger."""
    expected: str
    found: str | None = None
    fix: str | None = None


class TriggerMetadata:
    """A trigger's metadata; faults are collected in `faults`.

    Args:
        trigger: whose metadata it is.
        index: of the trigger in its ScaledObject.
    """

    def __init__(self, trigger: ScaleTrigger, index: int) -> None:
        self.trigger = trigger
        self.index = index
        self.faults: list[TriggerFault] = []

    @property
    def values(self) -> Mapping[str, str]:
        return self.trigger.metadata

    def note(
        self,
        path: tuple[str, ...],
        expected: str,
        found: str | None = None,
        fix: str | None = None,
    ) -> None:
        self.faults.append(TriggerFault(self.index, path, expected, found, fix))

    def text(self, key: str) -> str:
        """Return a required text."""
        value = self.values.get(key, "")
        if not value:
            self.note(("metadata", key), "this field is required")
        return value

    def number(self, key: str, default: float | None = None) -> float:
        """Return a number; it is required if there is no default."""
        text = self.values.get(key, "")
        if not text:
            if default is None:
                self.note(("metadata", key), "this field is required")
            return default or 0.0
        try:
            return float(text)
        except ValueError:
            self.note(("metadata", key), "a number", repr(text))
            return default or 0.0

    def boolean(self, key: str, *, default: bool) -> bool:
        text = self.values.get(key, "")
        if text and text not in _TRUE | _FALSE:
            self.note(("metadata", key), "true or false", repr(text))
        return text in _TRUE if text else default

    def metric_name(self, name: str) -> str:
        """Return the name of the trigger's metric, which begins with the trigger's place."""
        return f"s{self.index}-{name.translate(_DASHES)}"


_DASHES = str.maketrans("/.:%()", "------")
"""Source: KEDA v2.21 pkg/util/normalize_string.go."""
