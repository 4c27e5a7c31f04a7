"""Relabelling by Prometheus' rules: which series to keep, and how their labels change.

Source: prometheus model/relabel/relabel.go.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from gpuscale.base.regex import Pattern, compile_re2
from gpuscale.series.promql.functions.relabel import MAX_VALUE_CHARS, expand

Action = Literal[
    "replace",
    "keep",
    "drop",
    "keepequal",
    "dropequal",
    "hashmod",
    "labelmap",
    "labeldrop",
    "labelkeep",
    "lowercase",
    "uppercase",
]


@dataclass(frozen=True, slots=True)
class RelabelRule:
    """A relabelling rule; its fields are Prometheus'."""

    action: Action = "replace"
    source_labels: tuple[str, ...] = ()
    separator: str = ";"
    regex: str = "(.*)"
    target_label: str = ""
    replacement: str = "$1"
    modulus: int = 0

    def __post_init__(self) -> None:
        compile_re2(self.regex)
        needs_target = {"replace", "keepequal", "dropequal", "hashmod", "lowercase", "uppercase"}
        if self.action in needs_target and not self.target_label:
            raise ValueError(f"found no target_label, expected one with {self.action}")
        if self.action == "hashmod" and not self.modulus:
            raise ValueError("found no modulus, expected one with hashmod")

    @property
    def pattern(self) -> Pattern:
        """Return the regular expression, which must match the whole text."""
        return compile_re2(self.regex)


def relabelled(labels: Mapping[str, str], rules: Sequence[RelabelRule]) -> dict[str, str] | None:
    """Return the relabelled labels; None if the rules drop the series."""
    found = {name: value for name, value in labels.items() if value}
    for rule in rules:
        if not _apply(rule, found):
            return None
    return found


def _apply(rule: RelabelRule, labels: dict[str, str]) -> bool:
    """Apply one rule to the labels; return whether the series is kept."""
    value = rule.separator.join(labels.get(name, "") for name in rule.source_labels)
    match rule.action:
        case "keep" | "drop":
            return (rule.pattern.fullmatch(value) is not None) == (rule.action == "keep")
        case "keepequal" | "dropequal":
            is_equal = labels.get(rule.target_label, "") == value
            return is_equal == (rule.action == "keepequal")
        case "replace":
            _replace(rule, value, labels)
        case "hashmod":
            digest = hashlib.md5(value.encode(), usedforsecurity=False).digest()
            number = int.from_bytes(digest[8:], "big") % rule.modulus
            _set(labels, rule.target_label, str(number))
        case "lowercase":
            _set(labels, rule.target_label, value.lower())
        case "uppercase":
            _set(labels, rule.target_label, value.upper())
        case "labelmap":
            for name, text in tuple(labels.items()):
                found = rule.pattern.fullmatch(name)
                if found is not None:
                    _set(labels, expand(rule.replacement, found, rule.pattern), text)
        case "labeldrop" | "labelkeep":
            for name in tuple(labels):
                matches = rule.pattern.fullmatch(name) is not None
                if matches == (rule.action == "labeldrop"):
                    del labels[name]
    return True


def _replace(rule: RelabelRule, value: str, labels: dict[str, str]) -> None:
    found = rule.pattern.fullmatch(value)
    if found is None:
        return
    target = expand(rule.target_label, found, rule.pattern)
    if target:
        _set(labels, target, expand(rule.replacement, found, rule.pattern))


def _set(labels: dict[str, str], name: str, value: str) -> None:
    """Set a label; an empty value removes it."""
    if value and name:
        labels[name] = value[:MAX_VALUE_CHARS]
    else:
        labels.pop(name, None)
