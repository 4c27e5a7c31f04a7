"""The syntax tree of PromQL: `parse` creates it, and `evaluate` walks it."""

from collections.abc import Iterator
from dataclasses import dataclass, fields
from enum import Enum

from gpuscale.series.matchers import Matcher


class ValueType(Enum):
    """The type of an expression; the values are Prometheus' words."""

    SCALAR = "scalar"
    VECTOR = "instant vector"
    MATRIX = "range vector"
    STRING = "string"


class Anchor(Enum):
    """`start()` or `end()`: a time that only the whole query defines."""

    START = "start()"
    END = "end()"


class Cardinality(Enum):
    """How many samples each side of a match may have; the names are PromQL's modifiers."""

    ONE_TO_ONE = "one-to-one"
    MANY_TO_ONE = "group_left"
    ONE_TO_MANY = "group_right"
    MANY_TO_MANY = "many-to-many"


@dataclass(frozen=True, slots=True)
class Number:
    """A number literal."""

    value: float


@dataclass(frozen=True, slots=True)
class Text:
    """A string literal."""

    value: str


@dataclass(frozen=True, slots=True)
class Moment:
    """The evaluation time of a selector: `@` and `offset`."""

    offset_ms: int = 0
    at: int | Anchor | None = None
    """Milliseconds since the epoch, or a time of the query; None is the time of evaluation."""


@dataclass(frozen=True, slots=True)
class Select:
    """An instant vector selector."""

    matchers: tuple[Matcher, ...]
    moment: Moment


@dataclass(frozen=True, slots=True)
class SelectRange:
    """A range vector selector."""

    selector: Select
    range_ms: int


@dataclass(frozen=True, slots=True)
class Subquery:
    """An expression evaluated over a range of steps."""

    expression: "Node"
    range_ms: int
    step_ms: int | None
    """None is the evaluation's default step."""
    moment: Moment


@dataclass(frozen=True, slots=True)
class Call:
    """A function call."""

    function: str
    arguments: tuple["Node", ...]


@dataclass(frozen=True, slots=True)
class Aggregate:
    """An aggregation over labels."""

    operator: str
    expression: "Node"
    parameter: "Node | None"
    by: bool
    """Whether `labels` are the ones kept, rather than the ones dropped."""
    labels: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Matching:
    """Vector matching: which samples of two vectors are paired."""

    cardinality: Cardinality
    on: bool
    """Whether `labels` are the ones compared, rather than the ones ignored."""
    labels: tuple[str, ...]
    include: tuple[str, ...]
    """Labels that the many side takes over from the one side."""
    fill_left: float | None = None
    """What stands on the left where only the right has a sample; None leaves the sample out."""
    fill_right: float | None = None


@dataclass(frozen=True, slots=True)
class Binary:
    """An operation on two expressions."""

    operator: str
    left: "Node"
    right: "Node"
    matching: Matching
    return_bool: bool


@dataclass(frozen=True, slots=True)
class Negate:
    """Unary minus."""

    expression: "Node"


Node = Number | Text | Select | SelectRange | Subquery | Call | Aggregate | Binary | Negate

SET_OPERATORS = frozenset({"and", "or", "unless"})
SCALAR_FUNCTIONS = frozenset(
    {"time", "scalar", "pi", "start", "end", "step", "range", "min_of", "max_of"}
)


def children(node: Node) -> Iterator[Node]:
    """Yield a node's direct children."""
    for field in fields(node):
        value = getattr(node, field.name)
        for child in value if isinstance(value, tuple) else (value,):
            if isinstance(child, Node):
                yield child


def value_type(node: Node) -> ValueType:
    """Return an expression's type."""
    match node:
        case Number():
            return ValueType.SCALAR
        case Text():
            return ValueType.STRING
        case SelectRange() | Subquery():
            return ValueType.MATRIX
        case Call():
            return ValueType.SCALAR if node.function in SCALAR_FUNCTIONS else ValueType.VECTOR
        case Binary():
            sides = {value_type(node.left), value_type(node.right)}
            return ValueType.SCALAR if sides == {ValueType.SCALAR} else ValueType.VECTOR
        case Negate():
            return value_type(node.expression)
        case Select() | Aggregate():
            return ValueType.VECTOR
