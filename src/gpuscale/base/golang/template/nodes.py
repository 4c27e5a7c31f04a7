"""The tree of a parsed template."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PlainText:
    """Characters that are printed as they stand."""

    text: str


@dataclass(frozen=True, slots=True)
class Literal:
    """A string, number, true or false."""

    value: str | int | float | bool


@dataclass(frozen=True, slots=True)
class Nil:
    """The word `nil`; only an argument can be one."""


@dataclass(frozen=True, slots=True)
class Dot:
    """The value of `.`, and the fields read from it in turn."""

    fields: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Variable:
    """A variable, and the fields read from it in turn. `$` is the value rendering began with."""

    name: str
    fields: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class FunctionCall:
    """A function and its arguments; a piped value becomes the last one."""

    function: str
    arguments: tuple["Operand", ...]


@dataclass(frozen=True, slots=True)
class MethodCall:
    """A field that is a function, such as `.Files.Get`; a piped value becomes the last argument."""

    method: "Operand"
    arguments: tuple["Operand", ...]


@dataclass(frozen=True, slots=True)
class Group:
    """A pipeline in parentheses, and the fields read from its result."""

    pipeline: "TemplatePipeline"
    fields: tuple[str, ...] = ()


Operand = Literal | Nil | Dot | Variable | FunctionCall | MethodCall | Group


@dataclass(frozen=True, slots=True)
class TemplatePipeline:
    """Commands, each fed with the result before it; perhaps kept in variables."""

    commands: tuple[Operand, ...]
    variables: tuple[str, ...] = ()
    declares: bool = False
    """True for `:=`, False for `=`."""


@dataclass(frozen=True, slots=True)
class Print:
    """An action that prints its pipeline's result, unless it only sets a variable."""

    pipeline: TemplatePipeline


@dataclass(frozen=True, slots=True)
class Branch:
    """`if`, `with` or `range`: one list of nodes, and another for the empty case."""

    keyword: str
    pipeline: TemplatePipeline
    body: tuple["Node", ...]
    otherwise: tuple["Node", ...]


Node = PlainText | Print | Branch
