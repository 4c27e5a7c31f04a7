"""A parsed template rendered over its data.

Source: Go's text/template (exec.go).
"""

from collections.abc import Mapping, Sequence

from gpuscale.base.golang.template.functions import Dialect
from gpuscale.base.golang.template.nodes import (
    Branch,
    Dot,
    FunctionCall,
    Group,
    Literal,
    MethodCall,
    Node,
    Operand,
    PlainText,
    Print,
    TemplatePipeline,
    Variable,
)
from gpuscale.base.golang.template.values import (
    TemplateError,
    Value,
    field,
    is_true,
    kind,
    plain,
    printed,
)

MAX_STEPS = 20_000
"""Nodes visited; bounds what ranges inside ranges can cost."""
MAX_OUTPUT = 4 * 1024 * 1024
"""Characters; a query that names ten thousand pods has a tenth of it."""
Data = Mapping[str, Value]


class Template:
    """A compiled template.

    Args:
        nodes: of its tree.
        dialect: whose functions its calls name.
        definitions: the templates that its text defines, by their names.
    """

    def __init__(
        self,
        nodes: tuple[Node, ...],
        dialect: Dialect,
        definitions: "Mapping[str, Template] | None" = None,
    ) -> None:
        self.nodes = nodes
        self.dialect = dialect
        self.definitions = definitions or {}
        self._plain = _plain_parts(nodes) if dialect.is_strict else None

    def plain_fields(self) -> frozenset[str] | None:
        """Return the fields of a template made of text and fields only; None for any other."""
        if self._plain is None:
            return None
        return frozenset(name for name, _ in self._plain if name is not None)

    def render(self, data: Data) -> str:
        """Return the template's text for this data.

        Raises:
            TemplateError: a value is not what the template takes it for, or the text gets too long.
        """
        if self._plain is not None:
            return "".join(
                [part if name is None else _text(data[name]) for name, part in self._plain]
            )
        rendering = _Rendering(data, self.dialect)
        rendering.nodes(self.nodes, dot=data)
        return "".join(rendering.output)


def _plain_parts(nodes: tuple[Node, ...]) -> list[tuple[str | None, str]] | None:
    """Return (field, text) parts of a template made of text and fields only, as most are."""
    parts: list[tuple[str | None, str]] = []
    for node in nodes:
        if isinstance(node, PlainText):
            parts.append((None, node.text))
            continue
        commands = node.pipeline.commands if isinstance(node, Print) else ()
        if len(commands) != 1 or not isinstance(commands[0], Dot) or len(commands[0].fields) != 1:
            return None
        parts.append((commands[0].fields[0], ""))
    return parts


def _text(value: Value) -> str:
    return value if isinstance(value, str) else printed(value)


class _Rendering:
    """A rendering: its output so far, and the variables in scope."""

    def __init__(self, data: Data, dialect: Dialect) -> None:
        self.root = data
        self.dialect = dialect
        self.output: list[str] = []
        self.length = 0
        self.steps = 0
        self.variables: list[tuple[str, object]] = [("$", data)]

    def nodes(self, nodes: tuple[Node, ...], dot: object) -> None:
        """Print these nodes; variables they declare end with them."""
        scope = len(self.variables)
        for node in nodes:
            self._node(node, dot)
        del self.variables[scope:]

    def _node(self, node: Node, dot: object) -> None:
        self.steps += 1
        if self.steps > MAX_STEPS:
            raise TemplateError(f"gave up after {MAX_STEPS} steps")
        if isinstance(node, PlainText):
            self._write(node.text)
        elif isinstance(node, Print):
            value = self._pipeline(node.pipeline, dot)
            if not node.pipeline.variables:
                self._write(self._printed(value))
        elif node.keyword == "range":
            self._range(node, dot)
        else:
            scope = len(self.variables)
            value = self._pipeline(node.pipeline, dot)
            if is_true(value):  # type: ignore[arg-type]
                self.nodes(node.body, value if node.keyword == "with" else dot)
            else:
                self.nodes(node.otherwise, dot)
            del self.variables[scope:]

    def _write(self, text: str) -> None:
        self.length += len(text)
        if self.length > MAX_OUTPUT:
            raise TemplateError(f"the text grew beyond {MAX_OUTPUT} characters")
        self.output.append(text)

    def _printed(self, value: object) -> str:
        if not self.dialect.is_strict:
            return "" if value is None else plain(value)  # type: ignore[arg-type]
        if value is self.root:
            raise TemplateError("can't print the whole data; name one of its fields")
        return printed(value)  # type: ignore[arg-type]

    def _range(self, node: Branch, dot: object) -> None:
        scope = len(self.variables)
        pipeline = TemplatePipeline(node.pipeline.commands)
        items = _items(self._pipeline(pipeline, dot))
        for key, item in items:
            self._bind(node.pipeline, (item,) if len(node.pipeline.variables) == 1 else (key, item))
            self.nodes(node.body, item)
            if node.pipeline.declares:
                del self.variables[scope:]
        if not items:
            self.nodes(node.otherwise, dot)
        del self.variables[scope:]

    def _bind(self, pipeline: TemplatePipeline, values: Sequence[object]) -> None:
        for name, value in zip(pipeline.variables, values, strict=False):
            if pipeline.declares:
                self.variables.append((name, value))
                continue
            for position in range(len(self.variables) - 1, -1, -1):
                if self.variables[position][0] == name:
                    self.variables[position] = (name, value)
                    break
            else:
                raise TemplateError(f"undefined variable {name!r}")

    def _pipeline(self, pipeline: TemplatePipeline, dot: object) -> object:
        value = self._operand(pipeline.commands[0], dot)
        for command in pipeline.commands[1:]:
            value = self._operand(command, dot, (value,))
        self._bind(pipeline, (value,))
        return value

    def _operand(self, operand: Operand, dot: object, piped: tuple[object, ...] = ()) -> object:
        if isinstance(operand, Literal):
            return operand.value
        if isinstance(operand, Dot):
            return self._fields(dot, operand.fields)
        if isinstance(operand, Variable):
            found = next(v for name, v in reversed(self.variables) if name == operand.name)
            return self._fields(found, operand.fields)
        if isinstance(operand, Group):
            return self._fields(self._pipeline(operand.pipeline, dot), operand.fields)
        if isinstance(operand, FunctionCall):
            return self._call(operand, dot, piped)
        if isinstance(operand, MethodCall):
            return self._call_method(operand, dot, piped)
        return None

    def _call(self, call: FunctionCall, dot: object, piped: tuple[object, ...]) -> object:
        values: list[object] = []
        for argument in call.arguments:
            value = self._argument(argument, dot)
            if (call.function == "and" and not value) or (call.function == "or" and value):
                return value  # what comes after it is not looked at
            values.append(value)
        return self.dialect.functions[call.function].run((*values, *piped))  # type: ignore[arg-type]

    def _call_method(self, call: MethodCall, dot: object, piped: tuple[object, ...]) -> object:
        method = self._operand(call.method, dot)
        if not callable(method):
            raise TemplateError(f"can't give argument to a {kind(method)}")  # type: ignore[arg-type]
        return method(*(self._argument(each, dot) for each in call.arguments), *piped)

    def _argument(self, operand: Operand, dot: object) -> object:
        value = self._operand(operand, dot)
        if self.dialect.is_strict and value is self.root:
            raise TemplateError("can't pass the whole data; name one of its fields")
        return value

    def _fields(self, value: object, names: tuple[str, ...]) -> object:
        for name in names:
            is_root = self.dialect.is_strict and value is self.root
            value = field(value, name, root=is_root)  # type: ignore[arg-type]
        return value


def _items(value: object) -> list[tuple[object, object]]:
    if value is None:
        return []
    if isinstance(value, Mapping):
        return [(key, value[key]) for key in sorted(value)]
    if isinstance(value, Sequence) and not isinstance(value, str):
        return list(enumerate(value))
    raise TemplateError(f"range can't iterate over a {kind(value)}")  # type: ignore[arg-type]
