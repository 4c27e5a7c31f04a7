"""Template pieces to a tree, with all of Go's parse errors, and unknown fields.

Source: Go's text/template/parse (parse.go).
"""

import math
import re
from collections.abc import Iterator

from gpuscale.base.golang.template.functions import ADAPTER, Dialect
from gpuscale.base.golang.template.lexer import Piece, TemplateToken, TokenKind, pieces
from gpuscale.base.golang.template.nodes import (
    Branch,
    Dot,
    FunctionCall,
    Group,
    Literal,
    MethodCall,
    Nil,
    Node,
    Operand,
    PlainText,
    Print,
    TemplatePipeline,
    Variable,
)
from gpuscale.base.golang.template.render import Template
from gpuscale.base.golang.template.values import TemplateError

MAX_DEPTH = 32
"""Blocks and parentheses inside each other."""
_BLOCKS = {"if", "with", "range"}
_KEYWORDS_NOT_SERVED = {"block", "break", "continue", "define", "template"}
_ESCAPE = re.compile(r"\\(?:x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|(.))", re.DOTALL)
_ESCAPED = {
    "a": "\a",
    "b": "\b",
    "f": "\f",
    "n": "\n",
    "r": "\r",
    "t": "\t",
    "v": "\v",
    '"': '"',
    "\\": "\\",
}


def parse_template(text: str, fields: frozenset[str], dialect: Dialect = ADAPTER) -> Template:
    """Return the compiled template.

    Args:
        text: of the template.
        fields: that `.` offers.
        dialect: delimiters and functions.

    Raises:
        TemplateError: the message names what is wrong or not served.
    """
    parser = _Parser(pieces(text, dialect), fields, dialect)
    nodes, end = parser.nodes(depth=0, at_root=True)
    if end is not None:
        shown = parser.action(end[0].text)
        raise TemplateError(f"unexpected {shown}: nothing is open that it could end")
    definitions = {name: Template(found, dialect) for name, found in parser.definitions.items()}
    return Template(nodes, dialect, definitions)


class _Parser:
    """The unread pieces, and the variables in scope."""

    def __init__(self, stream: Iterator[Piece], fields: frozenset[str], dialect: Dialect) -> None:
        self.stream = stream
        self.fields = fields
        self.dialect = dialect
        self.variables = ["$"]
        self.definitions: dict[str, tuple[Node, ...]] = {}

    def action(self, text: str) -> str:
        return f"{self.dialect.left}{text}{self.dialect.right}"

    def nodes(
        self, *, depth: int, at_root: bool
    ) -> tuple[tuple[Node, ...], tuple[TemplateToken, ...] | None]:
        """Return the nodes up to an `end` or `else`, and that action; None at the end of the text."""
        found: list[Node] = []
        for piece in self.stream:
            if isinstance(piece, str):
                if piece:
                    found.append(PlainText(piece))
                continue
            keyword = _keyword(piece)
            if keyword in {"end", "else"}:
                return tuple(found), piece
            found.append(self._action(piece, keyword, depth=depth, at_root=at_root))
        return tuple(found), None

    def _action(
        self, tokens: tuple[TemplateToken, ...], keyword: str, *, depth: int, at_root: bool
    ) -> Node:
        if keyword == "define" and not self.dialect.is_strict:
            return self._define(tokens, depth=depth)
        if keyword in _KEYWORDS_NOT_SERVED:
            raise TemplateError(f"{self.action(keyword)} is not served")
        if keyword in _BLOCKS:
            return self._branch(keyword, tokens, depth=depth, at_root=at_root)
        return Print(self._pipeline(tokens, at_root=at_root))

    def _define(self, tokens: tuple[TemplateToken, ...], *, depth: int) -> Node:
        """Store a named template; its definition prints nothing."""
        name = _words(_after(tokens, "define"))
        if depth or len(name) != 1 or name[0].kind is not TokenKind.STRING:
            wanted = self.action('define "NAME"')
            raise TemplateError(f"expected {wanted} outside of any block")
        outside, self.variables = self.variables, ["$"]
        body, end = self.nodes(depth=1, at_root=False)
        if end is None or _keyword(end) != "end":
            raise TemplateError(f"expected {self.action('end')} of define {name[0].text}")
        self.variables = outside
        self.definitions[name[0].text[1:-1]] = body
        return PlainText("")

    def _branch(
        self, keyword: str, tokens: tuple[TemplateToken, ...], *, depth: int, at_root: bool
    ) -> Branch:
        if depth >= MAX_DEPTH:
            raise TemplateError(f"blocks are nested more than {MAX_DEPTH} deep")
        scope = len(self.variables)
        pipeline = self._pipeline(_after(tokens, keyword), at_root=at_root, keyword=keyword)
        inner_root = at_root and keyword == "if"
        body, end = self.nodes(depth=depth + 1, at_root=inner_root)
        otherwise: tuple[Node, ...] = ()
        if end is not None and _keyword(end) == "else":
            otherwise, end = self._otherwise(keyword, end, depth=depth, at_root=at_root)
        if end is None:
            raise TemplateError(
                "unexpected end of the template: "
                f"expected {self.action('end')} of {self.action(keyword)}"
            )
        if len(_words(end)) > 1:
            raise TemplateError(f"unexpected {_words(end)[1].text!r} in end")
        del self.variables[scope:]
        return Branch(keyword, pipeline, body, otherwise)

    def _otherwise(
        self, keyword: str, tokens: tuple[TemplateToken, ...], *, depth: int, at_root: bool
    ) -> tuple[tuple[Node, ...], tuple[TemplateToken, ...] | None]:
        rest = _after(tokens, "else")
        chained = _keyword(rest)
        if not _words(rest):
            nodes, end = self.nodes(depth=depth + 1, at_root=at_root)
            if end is not None and _keyword(end) == "else":
                raise TemplateError(
                    f"expected {self.action('end')}; found a second {self.action('else')}"
                )
            return nodes, end
        if chained != keyword or keyword == "range":
            raise TemplateError(f"unexpected {_words(rest)[0].text!r} in else")
        branch = self._branch(chained, rest, depth=depth + 1, at_root=at_root)
        # `else if` shares the outer block's end, which the inner branch has just read.
        return (branch,), (TemplateToken(TokenKind.WORD, "end"),)

    def _pipeline(
        self, tokens: tuple[TemplateToken, ...], *, at_root: bool, keyword: str = ""
    ) -> TemplatePipeline:
        reader = _Reader(tokens, self, at_root=at_root)
        pipeline = reader.pipeline(keyword)
        reader.expect_end()
        return pipeline


class _Reader:
    """The tokens of one action, read from left to right."""

    def __init__(
        self, tokens: tuple[TemplateToken, ...], parser: _Parser, *, at_root: bool
    ) -> None:
        self.tokens = tokens
        self.parser = parser
        self.at_root = at_root
        self.position = 0
        self.depth = 0

    def peek(self) -> TemplateToken | None:
        """Return the next token without reading it."""
        return self.tokens[self.position] if self.position < len(self.tokens) else None

    def skip_space(self) -> bool:
        """Read white space; return whether there was any."""
        token = self.peek()
        if token is None or token.kind is not TokenKind.SPACE:
            return False
        self.position += 1
        return True

    def at_symbol(self, text: str) -> bool:
        """Return whether the next token is this symbol."""
        token = self.peek()
        return token is not None and token.kind is TokenKind.SYMBOL and token.text == text

    def expect_end(self) -> None:
        """Raise unless everything was read."""
        token = self.peek()
        if token is not None:
            raise TemplateError(f"unexpected {token.text!r} in command")

    def pipeline(self, keyword: str = "") -> TemplatePipeline:
        """Parse commands joined by `|`, and the variables they set."""
        self.skip_space()
        names, declares = self._declaration(keyword)
        commands = [self._command(piped=False)]
        while self.at_symbol("|"):
            self.position += 1
            commands.append(self._command(piped=True))
        if declares:
            self.parser.variables.extend(names)
        return TemplatePipeline(tuple(commands), names, declares)

    def _declaration(self, keyword: str) -> tuple[tuple[str, ...], bool]:
        start = self.position
        names: list[str] = []
        while (token := self.peek()) is not None and token.kind is TokenKind.VARIABLE:
            names.append(token.text)
            self.position += 1
            self.skip_space()
            if not (keyword == "range" and self.at_symbol(",")):
                break
            self.position += 1
            self.skip_space()
        token = self.peek()
        declares = token is not None and token.kind is TokenKind.DECLARE
        if not names or not (declares or self.at_symbol("=")):
            self.position = start
            return (), False
        if len(names) > 2:
            raise TemplateError("too many declarations in range")
        for name in () if declares else names:
            self._known(name)
        self.position += 1
        return tuple(names), declares

    def _known(self, name: str) -> None:
        if name not in self.parser.variables:
            raise TemplateError(f"undefined variable {name!r}")

    def _command(self, *, piped: bool) -> Operand:
        self.skip_space()
        token = self.peek()
        first = self._operand(as_command=True)
        arguments: list[Operand] = []
        while self.skip_space() and not self._at_command_end():
            arguments.append(self._operand(as_command=False))
        if not self._at_command_end():
            raise TemplateError(f"unexpected {self.tokens[self.position].text!r} in operand")
        if isinstance(first, FunctionCall):
            return self._checked_call(first.function, tuple(arguments), piped=piped)
        text = token.text if token else ""
        if arguments or piped:
            if not self.parser.dialect.is_strict:
                return MethodCall(first, tuple(arguments))
            raise TemplateError(f"can't give argument to non-function {text}")
        if isinstance(first, Nil):
            raise TemplateError("nil is not a command")
        return first

    def _at_command_end(self) -> bool:
        return self.peek() is None or self.at_symbol("|") or self.at_symbol(")")

    def _operand(self, *, as_command: bool) -> Operand:
        token = self.peek()
        if token is None or token.text in {"|", ")"}:
            raise TemplateError("missing value for command")
        self.position += 1
        if token.kind is TokenKind.FIELD:
            return self._checked_fields(Dot((token.text[1:], *self._fields())))
        if token.kind is TokenKind.VARIABLE:
            self._known(token.text)
            return self._checked_fields(Variable(token.text, self._fields()))
        if token.kind is TokenKind.WORD:
            return self._word(token.text, as_command=as_command)
        if token.kind is TokenKind.SYMBOL:
            return self._symbol(token.text)
        if token.kind is TokenKind.RAW:
            return Literal(token.text[1:-1])
        if token.kind is TokenKind.STRING:
            return Literal(_ESCAPE.sub(_unescaped, token.text[1:-1]))
        if token.kind is TokenKind.NUMBER:
            return Literal(_number(token.text))
        raise TemplateError(f"unexpected {token.text!r} in operand")

    def _fields(self) -> tuple[str, ...]:
        names: list[str] = []
        while (token := self.peek()) is not None and token.kind is TokenKind.FIELD:
            names.append(token.text[1:])
            self.position += 1
        return tuple(names)

    def _checked_fields(self, operand: Dot | Variable) -> Operand:
        """Refuse a field that the data can't have, if the field is certainly read from the data."""
        if not self.parser.dialect.is_strict:
            return operand
        of_data = operand.name == "$" if isinstance(operand, Variable) else self.at_root
        if of_data and operand.fields and operand.fields[0] not in self.parser.fields:
            known = ", ".join(f".{name}" for name in sorted(self.parser.fields))
            raise TemplateError(f"unknown field .{operand.fields[0]}; the fields are {known}")
        return operand

    def _word(self, text: str, *, as_command: bool) -> Operand:
        if text in {"true", "false"}:
            return Literal(text == "true")
        if text == "nil":
            return Nil()
        if text in self.parser.dialect.not_served:
            raise TemplateError(f"function {text!r} is not served")
        if text not in self.parser.dialect.functions:
            raise TemplateError(f"function {text!r} not defined")
        return FunctionCall(text, ()) if as_command else self._checked_call(text, (), piped=False)

    def _symbol(self, text: str) -> Operand:
        if text == ".":
            return Dot()
        if text != "(":
            raise TemplateError(f"unexpected {text!r} in operand")
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise TemplateError(f"parentheses are nested more than {MAX_DEPTH} deep")
        inner = self.pipeline()
        if not self.at_symbol(")"):
            raise TemplateError("unclosed left paren")
        self.position += 1
        self.depth -= 1
        return Group(inner, self._fields())

    def _checked_call(
        self, function: str, arguments: tuple[Operand, ...], *, piped: bool
    ) -> FunctionCall:
        count = len(arguments) + piped
        known = self.parser.dialect.functions[function]
        if count < known.least or (known.most is not None and count > known.most):
            want = str(known.least) if known.least == known.most else f"at least {known.least}"
            raise TemplateError(f"wrong number of args for {function}: want {want} got {count}")
        return FunctionCall(function, arguments)


def _words(tokens: tuple[TemplateToken, ...]) -> tuple[TemplateToken, ...]:
    return tuple(token for token in tokens if token.kind is not TokenKind.SPACE)


def _keyword(tokens: tuple[TemplateToken, ...]) -> str:
    words = _words(tokens)
    return words[0].text if words and words[0].kind is TokenKind.WORD else ""


def _after(tokens: tuple[TemplateToken, ...], keyword: str) -> tuple[TemplateToken, ...]:
    """Return the tokens after a leading keyword."""
    start = next(index for index, token in enumerate(tokens) if token.text == keyword)
    return tokens[start + 1 :]


def _number(text: str) -> int | float:
    if len(text) > 64:
        raise TemplateError(f"bad number syntax: {text[:16]!r}...")
    if "x" in text.lower():
        number: int | float = int(text, 16)
    else:
        number = float(text) if any(mark in text for mark in ".eE") else int(text)
    limit = 2**63 if isinstance(number, int) else math.inf
    if abs(number) >= limit:
        raise TemplateError(f"bad number syntax: {text!r} is too large")
    return number


def _unescaped(match: re.Match[str]) -> str:
    code = match[1] or match[2] or match[3]
    if code is not None:
        if int(code, 16) > 0x10FFFF:
            raise TemplateError(f"bad string escape {match[0]!r}")
        return chr(int(code, 16))
    if match[4] not in _ESCAPED:
        raise TemplateError(f"bad string escape {match[0]!r}")
    return _ESCAPED[match[4]]
