"""Field selectors of resource metrics: conditions on the name and the namespace of an object.

Source: k8s.io/apimachinery v0.30.0 pkg/fields (selector.go); pkg/runtime (conversion.go,
DefaultMetaV1FieldSelectorConversion); metrics-server v0.7.1 pkg/api (filter.go).
"""

import re
from dataclasses import dataclass

from gpuscale.kube.informers.records import ObjectRecord

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
        values = dict(zip(_FIELDS, (record.name, record.namespace), strict=True))
        return all((values[field] == value) == equal for field, equal, value in self.terms)


def parse_field_selector(text: str) -> FieldSelector:
    """Return the selector of a text such as `metadata.name=web-0`.

    Raises:
        ValueError: not a selector, or one of other fields.
    """
    if len(text) > MAX_TEXT:
        raise ValueError(f"found {len(text)} characters, expected at most {MAX_TEXT}")
    return FieldSelector(tuple(_term(part) for part in text.split(",") if part.strip()))


def _term(text: str) -> tuple[str, bool, str]:
    match = _TERM.fullmatch(text)
    if match is None:
        raise ValueError(f"invalid selector: '{text}'; can't understand '{text}'")
    name, operator, value = match.groups()
    if name not in _FIELDS:
        known = '"metadata.name", "metadata.namespace"'
        raise ValueError(f'"{name}" is not a known field selector: only {known}')
    return name, operator != "!=", value
