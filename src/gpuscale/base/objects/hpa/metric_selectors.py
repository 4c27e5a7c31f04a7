"""Selectors of metrics, which API servers store as they are, and controllers fail on.

Source: k8s.io/apimachinery v0.37 pkg/apis/meta/v1/helpers.go (LabelSelectorAsSelector) and
    pkg/labels/selector.go (NewRequirement). Known difference: of several faults of one key or value the
    first is named.
"""

import json
from collections.abc import Iterator, Mapping, Sequence

from gpuscale.base.objects.fields import Fields
from gpuscale.base.objects.hpa.values import quoted
from gpuscale.base.objects.names import label_value_fault, qualified_name_fault
from gpuscale.base.objects.selectors import Selector, selector_of_expressions

_OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist")
_Expression = tuple[str, str, tuple[str, ...]]


def read_metric_selector(fields: Fields, key: str) -> Selector | None:
    """Return the selector below `key`, with a fault where the controller can't use it; None without one."""
    if key not in fields:
        return None
    child = fields.child(key)
    labels = child.labels("matchLabels")
    expressions = tuple(
        (item.text("key"), item.text("operator"), item.texts("values"))
        for item in child.items("matchExpressions")
    )
    fault = next(_faults(labels, expressions), "")
    if fault:
        return Selector(fault=fault, written=child.data)
    return selector_of_expressions(labels, expressions)


def _faults(labels: Mapping[str, str], expressions: Sequence[_Expression]) -> Iterator[str]:
    for key, value in labels.items():
        yield from _faults_of_requirement(key, (value,))
    for key, operator, values in expressions:
        if operator not in _OPERATORS:
            yield f"{quoted(operator)} is not a valid label selector operator"
        takes_values = operator in ("In", "NotIn")
        detail = ""
        if takes_values and not values:
            detail = "for 'in', 'notin' operators, values set can't be empty"
        if values and not takes_values:
            detail = "values set must be empty for exists and does not exist"
        yield from _faults_of_requirement(key, values, detail)


def _faults_of_requirement(key: str, values: tuple[str, ...], detail: str = "") -> Iterator[str]:
    """Return the faults of one requirement as one text; none where there is none."""
    found: list[str] = []
    if fault := qualified_name_fault(key):
        found.append(f"key: Invalid value: {quoted(key)}: {fault}")
    if detail:
        shown = json.dumps(list(values) or None, separators=(",", ":"))
        found.append(f"values: Invalid value: {shown}: {detail}")
    for index, value in enumerate(values):
        if fault := label_value_fault(value):
            found.append(f"values[{index}][{key}]: Invalid value: {quoted(value)}: {fault}")
    if found:
        yield found[0] if len(found) == 1 else f"[{', '.join(found)}]"
