"""Field selectors: conditions on single fields of an object; for resource metrics on its name and namespace.

Source: k8s.io/apimachinery v0.30.0 pkg/fields (selector.go); pkg/runtime (conversion.go,
DefaultMetaV1FieldSelectorConversion); metrics-server v0.7.1 pkg/api (filter.go).
"""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from gpuscale.kube.informers import ObjectRecord

_TERM = re.compile(r"\s*([^=!\s]+)\s*(!=|==|=)\s*([^=!\s]*)\s*")
_FIELDS = ("metadata.name", "metadata.namespace")
MAX_TEXT = 4096


@dataclass(frozen=True, slots=True)
class FieldSelector:
    """Conditions that must all hold."""

    terms: tuple[tuple[str, bool, str], ...] = ()
    """Field, whether it has to be equal, and to what."""

    @property
    def only_name(self) -> str:
        """Return the name that an object has to have; empty where it may be any."""
        names = (value for name, equal, value in self.terms if name == _FIELDS[0] and equal)
        return next(names, "")

    def takes(self, record: ObjectRecord) -> bool:
        return self.matches(dict(zip(_FIELDS, (record.name, record.namespace), strict=True)))

    def matches(self, values: Mapping[str, str]) -> bool:
        """Return whether these values, by field, fulfil all conditions."""
        return all((values[field] == value) == equal for field, equal, value in self.terms)


def parse_field_selector(text: str, known: Collection[str] = _FIELDS) -> FieldSelector:
    """Return the selector of a text such as `metadata.name=web-0`.

    Args:
        text: of the selector.
        known: the fields that it may name.

    Raises:
        ValueError: not a selector, or one of other fields.
    """
    if len(text) > MAX_TEXT:
        raise ValueError(f"found {len(text)} characters, expected at most {MAX_TEXT}")
    return FieldSelector(tuple(_term(part, known) for part in text.split(",") if part.strip()))


def _term(text: str, known: Collection[str]) -> tuple[str, bool, str]:
    match = _TERM.fullmatch(text)
    if match is None:
        raise ValueError(f"invalid selector: '{text}'; can't understand '{text}'")
    name, operator, value = match.groups()
    if name not in known:
        listed = ", ".join(f'"{each}"' for each in known)
        raise ValueError(f'"{name}" is not a known field selector: only {listed}')
    return name, operator != "!=", value
