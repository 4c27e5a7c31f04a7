"""A PromQL text to a tree with positions, up to its first fault.

Source: prometheus promql/parser (generated_parser.y, parse.go), release 3.16.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from gpuscale.base.regex import compile_re2
from gpuscale.series.promql.diagnosis.tokens import (
    AGGREGATIONS,
    END,
    PREPROCESSORS,
    FaultError,
    Lexer,
    Token,
    UndecidedError,
    quoted,
)

PRECEDENCE = {
    **dict.fromkeys(["or"], 1),
    **dict.fromkeys(["and", "unless"], 2),
    **dict.fromkeys(["==", "!=", "<", "<=", ">", ">=", "</", ">/"], 3),
    **dict.fromkeys(["+", "-"], 4),
    **dict.fromkeys(["*", "/", "%", "atan2"], 5),
    **dict.fromkeys(["^"], 6),
}
_TIGHTEST = 6
_ARITHMETIC = frozenset("+-*/%^")
_DURATION = re.compile(
    r"(?:\d+y)?(?:\d+w)?(?:\d+d)?(?:\d+h)?(?:\d+m(?!s))?(?:\d+s)?(?:\d+ms)?", re.ASCII
)
_UNITS = re.compile(r"(?:\d+(?:ms|[smhdwy]))+", re.ASCII)
_NUMBER = re.compile(
    r"0[xX][0-9a-fA-F]{1,15}|(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?|inf|nan", re.IGNORECASE | re.ASCII
)
_NOT_METRICS = frozenset(["bool", "group_left", "group_right", "ignoring", "on", "atan2"])
_WITH_PARAMETER = frozenset(
    ["topk", "bottomk", "quantile", "count_values", "limitk", "limit_ratio"]
)
_LENGTHS = "number, duration, step(), or range()"
_PRECEDED = (
    "modifier must be preceded by an instant vector selector or range vector selector or a subquery"
)


@dataclass(slots=True)
class SyntaxNode:
    """A part of the tree."""

    kind: str
    """`number`, `string`, `vector`, `matrix`, `subquery`, `call`, `aggregate`, `binary`, `unary`, `paren`."""
    start: int
    name: str = ""
    """The function, aggregation, operator or metric."""
    children: list["SyntaxNode"] = field(default_factory=list)
    matchers: list[tuple[str, str, str]] = field(default_factory=list)
    """Name, operator, and value as written."""
    operator_start: int = 0
    has_bool: bool = False
    on: bool = False
    labels: list[str] = field(default_factory=list)
    include: list[str] = field(default_factory=list)
    grouping: bool = False
    fills: bool = False
    offset: bool = False
    at: bool = False


class Parser:
    """Reads one text.

    Args:
        text: the query.
        functions: the names of those that are known.
    """

    def __init__(self, text: str, functions: Iterable[str]) -> None:
        self._lexer = Lexer(text)
        self._functions = frozenset(functions)
        self._ahead: Token | None = None
        self._aggregations = 0
        self.faults: list[FaultError] = []
        """Those after which reading goes on, in the order in which they were found."""

    def parse(self) -> SyntaxNode:
        """Return the tree.

        Raises:
            FaultError: the first fault after which nothing can be read.
            UndecidedError: the text uses what is not looked at here.
        """
        if self._peek().kind == END:
            raise FaultError(0, "no expression found in input")
        node = self._expression(0)
        if self._peek().kind != END:
            raise self._unexpected()
        return node

    def _peek(self) -> Token:
        if self._ahead is None:
            self._ahead = self._lexer.next()
        return self._ahead

    def _take(self) -> Token:
        token = self._peek()
        self._ahead = None
        return token

    def _unexpected(self, context: str = "", expected: str = "") -> FaultError:
        token = self._peek()
        where = context or ("aggregation" if self._aggregations else "")
        text = f"unexpected {token.described()}"
        text += f" in {where}" if where else ""
        text += f", expected {expected}" if expected else ""
        return FaultError(token.start, text)

    def _note(self, position: int, text: str | None) -> None:
        self.faults.append(FaultError(position, text))

    def _expression(self, least: int) -> SyntaxNode:
        left = self._unary()
        while True:
            token = self._peek()
            operator = token.word if token.kind == "word" else token.kind
            precedence = PRECEDENCE.get(operator, 0)
            if not precedence or precedence < least or (precedence == least and operator != "^"):
                return left
            self._take()
            node = SyntaxNode("binary", left.start, operator, operator_start=token.start)
            self._modifiers(node)
            right = self._expression(precedence)
            node.children = [left, right]
            left = node

    def _modifiers(self, node: SyntaxNode) -> None:
        if self._peek().word == "bool":
            self._take()
            node.has_bool = True
        if self._peek().word in ("on", "ignoring"):
            node.on = self._take().word == "on"
            node.labels = self._grouping_labels()
            if self._peek().word in ("group_left", "group_right"):
                self._take()
                node.grouping = True
                following = self._peek()
                if following.kind == "(" or not _may_begin(following):
                    node.include = self._grouping_labels()
        if self._peek().word in ("fill", "fill_left", "fill_right"):
            raise UndecidedError

    def _unary(self) -> SyntaxNode:
        token = self._peek()
        if token.kind not in ("+", "-"):
            return self._postfix(self._primary())
        self._take()
        operand = self._expression(_TIGHTEST - 1)
        if operand.kind == "number":
            operand.start = token.start
            return operand
        return SyntaxNode("unary", token.start, children=[operand])

    def _primary(self) -> SyntaxNode:
        token = self._peek()
        match token.kind:
            case "(":
                self._take()
                inner = self._expression(0)
                if self._peek().kind != ")":
                    raise self._unexpected()
                self._take()
                return SyntaxNode("paren", token.start, children=[inner])
            case "number" | "duration":
                return self._number(self._take())
            case "string":
                self._take()
                return SyntaxNode("string", token.start)
            case "{":
                return self._selector(SyntaxNode("vector", token.start))
            case "word" | "metric":
                return self._named(token)
        raise self._unexpected()

    def _number(self, token: Token) -> SyntaxNode:
        if token.kind == "number" and _NUMBER.fullmatch(token.text) is None:
            raise UndecidedError
        if token.kind == "duration":
            if _DURATION.fullmatch(token.text) is None:
                is_known = _UNITS.fullmatch(token.text) is not None
                text = f"not a valid duration string: {quoted(token.text)}"
                self._note(token.start, text if is_known else None)
            elif len(token.text) > 12:
                raise UndecidedError
        return SyntaxNode("number", token.start)

    def _named(self, token: Token) -> SyntaxNode:
        word = token.word
        if word in _NOT_METRICS:
            raise self._unexpected()
        self._take()
        following = self._peek()
        if word in AGGREGATIONS and (following.kind == "(" or following.word in ("by", "without")):
            return self._aggregation(token)
        is_function = token.kind == "word" and (not word or word in PREPROCESSORS)
        if is_function and following.kind == "(":
            return self._call(token)
        node = SyntaxNode("vector", token.start, token.text)
        return self._selector(node) if following.kind == "{" else node

    def _call(self, name: Token) -> SyntaxNode:
        arguments = self._arguments()
        if name.text not in self._functions:
            self._note(name.start, f"unknown function with name {quoted(name.text)}")
        return SyntaxNode("call", name.start, name.text, arguments)

    def _arguments(self) -> list[SyntaxNode]:
        self._take()
        if self._peek().kind == ")":
            self._take()
            return []
        found = [self._expression(0)]
        while self._peek().kind == ",":
            comma = self._take()
            if not _may_begin(self._peek()):
                self._note(comma.start, "trailing commas not allowed in function call args")
                break
            found.append(self._expression(0))
        if self._peek().kind != ")":
            raise self._unexpected()
        self._take()
        return found

    def _aggregation(self, operator: Token) -> SyntaxNode:
        name = operator.word
        self._aggregations += 1
        is_grouped = self._peek().word in ("by", "without")
        if is_grouped:
            self._take()
            self._grouping_labels()
            if self._peek().kind != "(":
                raise self._unexpected()
        arguments = self._arguments()
        if not is_grouped and self._peek().word in ("by", "without"):
            self._take()
            self._grouping_labels()
        self._aggregations -= 1
        wanted = 2 if name in _WITH_PARAMETER else 1
        if not arguments:
            self._note(operator.start, "no arguments for aggregate expression provided")
        elif len(arguments) != wanted:
            self._note(
                operator.start,
                "wrong number of arguments for aggregate expression provided, "
                f"expected {wanted}, got {len(arguments)}",
            )
        return SyntaxNode("aggregate", operator.start, name, arguments)

    def _grouping_labels(self) -> list[str]:
        if self._peek().kind != "(":
            raise self._unexpected("grouping opts", '"("')
        self._take()
        found: list[str] = []
        while (token := self._peek()).kind != ")":
            if token.kind not in ("word", "metric", "string") or token.word == "without":
                raise self._unexpected("grouping opts", "label")
            self._take()
            is_quoted = token.kind == "string"
            found.append(token.text[1:-1] if is_quoted else token.text)
            if is_quoted and not found[-1]:
                self._note(token.start, 'invalid label name for grouping: ""')
            if self._peek().kind == ",":
                self._take()
            elif self._peek().kind != ")":
                raise self._unexpected("grouping opts", '"," or ")"')
        self._take()
        return found

    def _selector(self, node: SyntaxNode) -> SyntaxNode:
        self._take()
        while self._peek().kind != "}":
            self._matcher(node)
            if self._peek().kind == ",":
                self._take()
            elif self._peek().kind != "}":
                raise self._unexpected("label matching", '"," or "}"')
        self._take()
        return node

    def _matcher(self, node: SyntaxNode) -> None:
        name = self._peek()
        if name.kind not in ("name", "string"):
            raise self._unexpected("label matching", 'identifier or "}"')
        self._take()
        operator = self._peek()
        if operator.kind not in ("=", "!=", "=~", "!~"):
            if name.kind == "name":
                raise self._unexpected("label matching", "label matching operator")
            node.matchers.append(("__name__", "=", name.text))
            return
        self._take()
        value = self._peek()
        if value.kind != "string":
            raise self._unexpected("label matching", "string")
        self._take()
        label = name.text[1:-1] if name.kind == "string" else name.text
        node.matchers.append((label, operator.kind, value.text))
        if operator.kind in ("=~", "!~") and not _is_pattern(value.text):
            # The words of Go's library for regular expressions are not known here.
            self._note(name.start, None)

    def _postfix(self, node: SyntaxNode) -> SyntaxNode:
        while True:
            token = self._peek()
            if token.kind == "[":
                node = self._brackets(node)
            elif token.word == "offset":
                self._take()
                self._length("offset", _LENGTHS)
                self._modify(node, "offset")
            elif token.kind == "@":
                self._take()
                self._moment()
                self._modify(node, "@")
            elif token.word in ("anchored", "smoothed"):
                raise UndecidedError
            else:
                return node

    def _brackets(self, node: SyntaxNode) -> SyntaxNode:
        bracket = self._take()
        self._length("subquery or range selector", _LENGTHS, is_positive=True)
        token = self._peek()
        if token.kind == "]":
            self._take()
            self._check_ranged(node, bracket)
            return SyntaxNode("matrix", node.start, children=[node])
        if token.kind != ":":
            if token.kind in _ARITHMETIC:
                raise UndecidedError
            raise self._unexpected("subquery or range", '":" or "]"')
        self._take()
        if self._peek().kind != "]":
            expected = 'number, duration, step(), range(), or "]"'
            self._length("subquery selector", expected, is_positive=True)
            if self._peek().kind in _ARITHMETIC:
                raise UndecidedError
            if self._peek().kind != "]":
                raise self._unexpected("subquery selector", '"]"')
        self._take()
        return SyntaxNode("subquery", node.start, children=[node])

    def _check_ranged(self, node: SyntaxNode, bracket: Token) -> None:
        if node.kind != "vector":
            self._note(bracket.start, "ranges only allowed for vector selectors")
        elif node.offset:
            self._note(bracket.start, "no offset modifiers allowed before range")
        elif node.at:
            self._note(bracket.start, "no @ modifiers allowed before range")

    def _length(self, context: str, expected: str, *, is_positive: bool = False) -> None:
        sign = self._take() if self._peek().kind in ("+", "-") else None
        token = self._peek()
        if token.kind == "(" or token.word in PREPROCESSORS or token.kind in ("+", "-"):
            raise UndecidedError
        if token.kind not in ("number", "duration"):
            raise self._unexpected(context, expected)
        self._take()
        if token.text.lower() in ("inf", "nan"):
            raise UndecidedError
        self._number(token)
        is_zero = not token.text.strip("0.smhdwy")
        if is_positive and (is_zero or (sign is not None and sign.kind == "-")):
            start = token.start if sign is None else sign.start
            # Prometheus looks at the next token before it looks at the number.
            self._peek()
            self._note(start, "duration must be greater than 0")

    def _moment(self) -> None:
        if self._peek().kind in ("+", "-"):
            self._take()
        elif self._peek().word in ("start", "end"):
            self._take()
            for kind in "()":
                if self._peek().kind != kind:
                    raise self._unexpected("@", "timestamp")
                self._take()
            return
        moment = self._peek()
        if moment.kind not in ("number", "duration"):
            raise self._unexpected("@", "timestamp")
        if moment.text.lower() in ("inf", "nan"):
            raise UndecidedError
        self._number(self._take())

    def _modify(self, node: SyntaxNode, modifier: str) -> None:
        if node.kind not in ("vector", "matrix", "subquery"):
            self._note(node.start, f"{modifier} {_PRECEDED}")
            return
        if node.kind == "matrix":
            node = node.children[0]
            if node.kind != "vector":
                self._note(node.start, "ranges only allowed for vector selectors")
                return
        was_set = node.offset if modifier == "offset" else node.at
        if was_set:
            name = "offset" if modifier == "offset" else "@ <timestamp>"
            self._note(node.start, f"{name} may not be set multiple times")
        if modifier == "offset":
            node.offset = True
        else:
            node.at = True


def _may_begin(token: Token) -> bool:
    """Return whether an expression may begin with a token."""
    if token.kind in ("word", "metric"):
        return token.word not in _NOT_METRICS
    return token.kind in ("(", "+", "-", "{", "number", "duration", "string")


def _is_pattern(written: str) -> bool:
    """Return whether a quoted text is a regular expression."""
    if "\\" in written and written[0] != "`":
        return True
    try:
        compile_re2(written[1:-1])
    except ValueError:
        return False
    return True
