"""Label selectors: from a manifest's `matchLabels`/`matchExpressions`, from and to text, and matching.

Source: k8s.io/apimachinery/pkg/labels (selector.go), pkg/apis/meta/v1/helpers.go.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

_TERM = re.compile(
    r"\s*(?:(?P<not>!)\s*(?P<absent>[^\s,=!<>()]+)"
    r"|(?P<key>[^\s,=!<>()]+)\s*"
    r"(?:(?P<set>in|notin)\s*\((?P<values>[^()]*)\)|(?P<op>==|!=|=|<|>)\s*(?P<value>[^\s,=!<>()]*))?)\s*"
)
_KEY = re.compile(r"([A-Za-z0-9][A-Za-z0-9.-]*/)?[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")
_VALUE = re.compile(r"([A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?)?")
MAX_TEXT = 64 * 1024


class Operator(Enum):
    """How a requirement compares a label."""

    EQUALS = "="
    NOT_EQUALS = "!="
    IN = "in"
    NOT_IN = "notin"
    EXISTS = "exists"
    DOES_NOT_EXIST = "!"
    GREATER_THAN = "gt"
    LESS_THAN = "lt"


_WORDS = {
    "In": Operator.IN,
    "NotIn": Operator.NOT_IN,
    "Exists": Operator.EXISTS,
    "DoesNotExist": Operator.DOES_NOT_EXIST,
    "Gt": Operator.GREATER_THAN,
    "Lt": Operator.LESS_THAN,
}
OPERATOR_WORDS = {**{kind: word for word, kind in _WORDS.items()}, Operator.NOT_EQUALS: "NotIn"}
"""An operator as objects have it, in `matchExpressions`; EQUALS stands in `matchLabels` and has none."""


@dataclass(frozen=True, slots=True)
class Requirement:
    """One condition on one label."""

    key: str
    operator: Operator
    values: tuple[str, ...] = ()
    """Sorted, each once."""

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Return whether an object with these labels fulfils the condition."""
        value = labels.get(self.key)
        match self.operator:
            case Operator.EQUALS | Operator.IN:
                return value is not None and value in self.values
            case Operator.NOT_EQUALS | Operator.NOT_IN:
                return value is None or value not in self.values
            case Operator.EXISTS:
                return value is not None
            case Operator.DOES_NOT_EXIST:
                return value is None
            case Operator.GREATER_THAN | Operator.LESS_THAN:
                return self._compares(value)

    def _compares(self, value: str | None) -> bool:
        try:
            number, bound = int(value or ""), int(self.values[0])
        except ValueError:
            return False
        return number > bound if self.operator is Operator.GREATER_THAN else number < bound

    def __str__(self) -> str:
        values = ",".join(self.values)
        match self.operator:
            case Operator.EXISTS:
                return self.key
            case Operator.DOES_NOT_EXIST:
                return f"!{self.key}"
            case Operator.IN | Operator.NOT_IN:
                return f"{self.key} {self.operator.value} ({values})"
            case Operator.GREATER_THAN:
                return f"{self.key}>{values}"
            case Operator.LESS_THAN:
                return f"{self.key}<{values}"
            case Operator.EQUALS | Operator.NOT_EQUALS:
                return f"{self.key}{self.operator.value}{values}"


@dataclass(frozen=True, slots=True)
class Selector:
    """Conditions that must all hold; none at all selects everything."""

    requirements: tuple[Requirement, ...] = ()
    """Sorted by key."""
    fault: str = ""
    """Why nobody can select by it, and then it has no requirements; API servers store such of metrics."""
    written: Mapping[str, object] | None = field(default=None, compare=False, repr=False)
    """As the manifest has one with a fault; None for all others."""

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Return whether an object with these labels is selected; one with a fault selects nothing."""
        return not self.fault and all(
            requirement.matches(labels) for requirement in self.requirements
        )

    def __bool__(self) -> bool:
        return bool(self.requirements or self.fault)

    def __str__(self) -> str:
        return ",".join(str(requirement) for requirement in self.requirements)


def selector_of_labels(labels: Mapping[str, str]) -> Selector:
    """Return the selector of a `matchLabels` mapping, or of a Service."""
    return _selector([Requirement(key, Operator.EQUALS, (value,)) for key, value in labels.items()])


def selector_of_expressions(
    labels: Mapping[str, str], expressions: tuple[tuple[str, str, tuple[str, ...]], ...]
) -> Selector:
    """Return the selector of a LabelSelector; each expression is `(key, operator, values)`.

    Raises:
        ValueError: an unknown operator, or values that don't go with it.
    """
    terms = [Requirement(key, Operator.EQUALS, (value,)) for key, value in labels.items()]
    terms.extend(_expression(key, operator, values) for key, operator, values in expressions)
    return _selector(terms)


def _expression(key: str, operator: str, values: tuple[str, ...]) -> Requirement:
    if operator not in _WORDS:
        raise ValueError(f"found operator {operator!r}, expected one of {', '.join(_WORDS)}")
    kind = _WORDS[operator]
    takes_values = kind not in {Operator.EXISTS, Operator.DOES_NOT_EXIST}
    if takes_values != bool(values):
        expected = "at least one value" if takes_values else "no values"
        raise ValueError(f"operator {operator} on {key!r} takes {expected}")
    return Requirement(key, kind, tuple(sorted(set(values))))


def parse_selector(text: str) -> Selector:
    """Return the selector of a `labelSelector` text, such as `app=x,tier in (a,b),!old`.

    Raises:
        ValueError: not a selector; the message quotes the part that is wrong.
    """
    if len(text) > MAX_TEXT:
        raise ValueError(f"found a selector of {len(text)} characters, expected at most {MAX_TEXT}")
    terms: list[Requirement] = []
    position = 0
    while text.strip() and position <= len(text):
        match = _TERM.match(text, position)
        if match is None or (match.end() < len(text) and text[match.end()] != ","):
            raise ValueError(f"unable to parse requirement: found {text[position:][:60]!r}")
        terms.append(_term(match))
        position = match.end() + 1
    return _selector(terms)


def _term(match: re.Match[str]) -> Requirement:
    if match["not"]:
        return Requirement(_checked_key(match["absent"]), Operator.DOES_NOT_EXIST)
    key = _checked_key(match["key"])
    if match["set"]:
        values = sorted({_checked_value(value.strip()) for value in match["values"].split(",")})
        return Requirement(key, Operator(match["set"]), tuple(values))
    if match["op"] in {"<", ">"}:
        operator = Operator.LESS_THAN if match["op"] == "<" else Operator.GREATER_THAN
        return Requirement(key, operator, (match["value"],))
    if match["op"]:
        operator = Operator.NOT_EQUALS if match["op"] == "!=" else Operator.EQUALS
        return Requirement(key, operator, (_checked_value(match["value"]),))
    return Requirement(key, Operator.EXISTS)


def _checked_key(key: str) -> str:
    if not _KEY.fullmatch(key):
        raise ValueError(f"found label key {key!r}, expected letters, digits, '-', '_' and '.'")
    return key


def _checked_value(value: str) -> str:
    if not _VALUE.fullmatch(value):
        raise ValueError(
            f"found label value {value!r}, expected at most 63 letters, digits, '-', '_' and '.'"
        )
    return value


def _selector(terms: list[Requirement]) -> Selector:
    return Selector(tuple(sorted(terms, key=lambda term: (term.key, str(term)))))
