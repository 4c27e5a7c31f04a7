"""The grammar of PromQL: from tokens to a syntax tree, up to the first error.

A fault is named as Prometheus' generated parser names it: by the innermost rule that has words for its
faults, and in the order in which that parser, which looks one token ahead, comes upon them.

Source: prometheus promql/parser (generated_parser.y, parse.go), release 3.16.
"""

import math
from dataclasses import replace

from gpuscale.base.golang.durations import go_quote
from gpuscale.series.labels import METRIC_NAME
from gpuscale.series.matchers import Matcher, MatchOp
from gpuscale.series.promql import tree
from gpuscale.series.promql.functions.aggregate import AGGREGATORS
from gpuscale.series.promql.functions.functions import FUNCTIONS, OF_NATIVE_HISTOGRAMS
from gpuscale.series.promql.parsing import literals, meaning
from gpuscale.series.promql.parsing.meaning import SIGNATURES, Written
from gpuscale.series.promql.parsing.tokens import (
    AGGREGATIONS,
    END,
    ERROR,
    PREPROCESSORS,
    WORDS,
    FaultError,
    Token,
)
from gpuscale.series.promql.tree import ValueType

RANKS = {
    **dict.fromkeys(["or"], 1),
    **dict.fromkeys(["and", "unless"], 2),
    **dict.fromkeys(["==", "!=", "<", "<=", ">", ">=", "</", ">/"], 3),
    **dict.fromkeys(["+", "-"], 4),
    **dict.fromkeys(["*", "/", "%", "atan2"], 5),
    **dict.fromkeys(["^"], 6),
}
"""How tightly each operator binds."""
_RANK_OF_SIGNS = 5
_ARITHMETIC = frozenset("+-*/%^")
_METRICS = frozenset(["identifier", "metric identifier"]) | WORDS - frozenset(
    ["bool", "group_left", "group_right", "ignoring", "on", "atan2"]
)
_FUNCTIONS = frozenset(["identifier"]) | PREPROCESSORS
_LABELS = frozenset(["identifier", "metric identifier", "string"]) | WORDS - frozenset(["without"])
_BEGINNINGS = _METRICS | frozenset(["(", "+", "-", "{", "number", "duration", "string"])
_FILLS = frozenset(["fill", "fill_left", "fill_right"])
_LENGTHS = "number, duration, step(), or range()"
_PRECEDED = (
    "modifier must be preceded by an instant vector selector or range vector selector or a subquery"
)
_WITH_PARAMETER = frozenset(
    ["topk", "bottomk", "quantile", "count_values", "limitk", "limit_ratio"]
)
_GO_WORDS = {
    "invalid escape sequence": "invalid escape sequence",
    "invalid character class range": "invalid character class range",
    "invalid character class": "invalid character class",
    "missing ]": "missing closing ]",
    "missing )": "missing closing )",
    "unexpected )": "unexpected )",
    "trailing \\": "trailing backslash at end of expression",
    "no argument for repetition operator": "missing argument to repetition operator",
    "invalid repetition size": "invalid repeat count",
    "bad repetition operator": "invalid nested repetition operator",
    "invalid perl operator": "invalid or unsupported Perl syntax",
    "invalid named capture group": "invalid named capture",
}
"""What Go says for what RE2's library says of an expression."""
_OPS = {op.value: op for op in MatchOp}
_MOST_SECONDS = 2**63 / 1e9
_MOST_SHIFT_S = 200 * 365 * 86_400
_MOST_TIME_MS = 2**62


class Parser:
    """A parser of one text.

    Args:
        text: the query.
        tokens: its tokens.
    """

    def __init__(self, text: str, tokens: list[Token]) -> None:
        self._text = text
        self._tokens = tokens
        self._next = 0
        self._kind = tokens[0].kind
        self._aggregations = 0
        self.unsupported: str | None = None
        """The first part of the language that can't be evaluated."""

    def parse(self) -> Written:
        """Parse the text.

        Raises:
            FaultError: the first fault.
        """
        if self._kind == END:
            raise FaultError(0, "no expression found in input")
        found = self._expression()
        if self._kind != END:
            raise self._unexpected()
        if found.fault is not None:
            raise found.fault
        return found

    def _take(self) -> Token:
        token = self._tokens[self._next]
        self._next += 1
        self._kind = self._tokens[self._next].kind
        return token

    def _end(self) -> int:
        """Return the end of the last token."""
        last = self._tokens[self._next - 1]
        return last.start + len(last.text)

    def _look(self) -> None:
        """Raise if the next token is invalid, at the point where Prometheus would look at it."""
        if self._kind == ERROR:
            raise self._unexpected()

    def _unexpected(self, context: str = "", expected: str = "") -> FaultError:
        token = self._tokens[self._next]
        if token.kind == ERROR:
            return FaultError(token.start, token.text)
        where = context or ("aggregation" if self._aggregations else "")
        text = f"unexpected {token.described()}"
        text += f" in {where}" if where else ""
        text += f", expected {expected}" if expected else ""
        return FaultError(token.start, text)

    # A level of nesting takes at most three calls, and 200 levels are allowed.

    def _expression(self, least: int = 0) -> Written:
        left = self._operand()
        while (rank := RANKS.get(self._kind, 0)) > least or (rank == least == RANKS["^"]):
            operator_start = left.end
            while self._text[operator_start] in " \t\n\r":
                operator_start += 1
            operator = self._take()
            if operator.kind in ("</", ">/"):
                self._refuse(
                    f"operator {operator.kind} is of native histograms, which are not supported"
                )
            return_bool = self._kind == "bool"
            if return_bool:
                self._take()
            matching = self._matching()
            right = self._expression(rank)
            left = meaning.binary(
                left,
                operator,
                right,
                matching,
                return_bool=return_bool,
                operator_start=operator_start,
            )
        return left

    def _operand(self) -> Written:
        kind = self._kind
        if kind in ("+", "-"):
            sign = self._take()
            return meaning.signed(sign, self._expression(_RANK_OF_SIGNS))
        if kind == "(":
            start = self._take().start
            inner = self._expression()
            if self._kind != ")":
                raise self._unexpected()
            self._take()
            found = meaning.in_parentheses(inner, start, self._end())
        elif kind in ("number", "duration"):
            token = self._take()
            node, form = tree.Number(_seconds(token)), "duration" if kind == "duration" else ""
            found = Written(node, token.start, self._end(), ValueType.SCALAR, form=form)
        elif kind == "string":
            token = self._take()
            text = tree.Text(literals.unquoted(token.text))
            found = Written(text, token.start, self._end(), ValueType.STRING)
        elif kind == "{":
            found = self._selector(None, self._tokens[self._next].start)
        elif kind in _METRICS:
            token = self._take()
            if (kind in AGGREGATIONS and self._kind in ("(", "by", "without")) or (
                kind in _FUNCTIONS and self._kind == "("
            ):
                found = self._applied(token)
            else:
                found = self._selector(token, token.start)
        else:
            raise self._unexpected()
        while True:
            if self._kind == "[":
                found = self._brackets(found)
            elif self._kind == "offset":
                found = self._offset(found)
            elif self._kind == "@":
                found = self._at(found)
            elif self._kind in ("anchored", "smoothed"):
                raise FaultError(None, f"the modifier {self._kind} is not supported")
            else:
                return found

    def _applied(self, name: Token) -> Written:
        """Parse an aggregation or a function call."""
        is_aggregation = name.kind in AGGREGATIONS
        self._check_support(name, is_aggregation=is_aggregation)
        by, labels, is_grouped = True, tuple[str, ...](), False
        self._aggregations += is_aggregation
        if self._kind != "(":
            by, labels, is_grouped = self._take().kind == "by", self._grouping(), True
            if self._kind != "(":
                raise self._unexpected()
        self._take()
        arguments: list[Written] = []
        while self._kind != ")" or arguments:
            arguments.append(self._expression())
            if self._kind != ",":
                break
            comma = self._take()
            self._look()
            if self._kind not in _BEGINNINGS:
                raise FaultError(comma.start, "trailing commas not allowed in function call args")
        if self._kind != ")":
            raise self._unexpected()
        self._take()
        if not is_aggregation:
            if name.text not in SIGNATURES:
                raise FaultError(name.start, f"unknown function with name {go_quote(name.text)}")
            return meaning.call(name, arguments, self._end())
        if not is_grouped:
            self._look()
            if self._kind in ("by", "without"):
                by, labels = self._take().kind == "by", self._grouping()
        self._aggregations -= 1
        wanted = 2 if name.kind in _WITH_PARAMETER else 1
        if not arguments:
            raise FaultError(name.start, "no arguments for aggregate expression provided")
        if len(arguments) != wanted:
            reason = "wrong number of arguments for aggregate expression provided"
            raise FaultError(name.start, f"{reason}, expected {wanted}, got {len(arguments)}")
        return meaning.aggregate(name, arguments, labels, self._end(), by=by)

    def _check_support(self, name: Token, *, is_aggregation: bool) -> None:
        if is_aggregation:
            if name.kind not in AGGREGATORS:
                self._refuse(f"aggregation {name.kind} is not supported")
        elif name.text in OF_NATIVE_HISTOGRAMS:
            self._refuse(f"function {name.text}() is of native histograms, which are not supported")
        elif name.text not in FUNCTIONS:
            self._refuse(f"function {name.text}() is not supported")

    def _refuse(self, text: str) -> None:
        self.unsupported = self.unsupported or text

    def _matching(self) -> tree.Matching:
        on, labels, include = False, tuple[str, ...](), tuple[str, ...]()
        cardinality = tree.Cardinality.ONE_TO_ONE
        if self._kind in ("on", "ignoring"):
            on, labels = self._take().kind == "on", self._grouping()
            if self._kind in ("group_left", "group_right"):
                cardinality = tree.Cardinality(self._take().kind)
                self._look()
                if self._kind == "(" or self._kind not in _BEGINNINGS | _FILLS:
                    include = self._grouping()
        fills: dict[str, float] = {}
        if self._kind == "fill":
            self._take()
            fills = dict.fromkeys(["fill_left", "fill_right"], self._fill())
        elif self._kind in _FILLS:
            side = self._take().kind
            fills[side] = self._fill()
            if self._kind in _FILLS and self._kind not in ("fill", side):
                side = self._take().kind
                fills[side] = self._fill()
        left, right = fills.get("fill_left"), fills.get("fill_right")
        return tree.Matching(cardinality, on, labels, include, left, right)

    def _fill(self) -> float:
        self._take()
        is_negative = False
        if self._kind in ("+", "-"):
            is_negative = self._take().kind == "-"
        if self._kind not in ("number", "duration"):
            raise self._unexpected()
        value = _seconds(self._take())
        if self._kind != ")":
            raise self._unexpected()
        self._take()
        return -value if is_negative else value

    def _grouping(self) -> tuple[str, ...]:
        if self._kind != "(":
            raise self._unexpected("grouping opts", '"("')
        self._take()
        found: list[str] = []
        while self._kind != ")":
            if self._kind not in _LABELS:
                raise self._unexpected("grouping opts", "label")
            token = self._take()
            label = literals.unquoted(token.text) if token.kind == "string" else token.text
            if not label:
                raise FaultError(token.start, 'invalid label name for grouping: ""')
            found.append(label)
            if self._kind == ",":
                self._take()
            elif self._kind != ")":
                raise self._unexpected("grouping opts", '"," or ")"')
        self._take()
        return tuple(found)

    def _selector(self, name: Token | None, start: int) -> Written:
        matchers: list[Matcher] = []
        if self._kind == "{":
            self._take()
            while self._kind != "}":
                matchers.append(self._matcher())
                if self._kind == ",":
                    self._take()
                elif self._kind != "}":
                    raise self._unexpected("label matching", '"," or "}"')
            self._take()
        return meaning.selector(name, matchers, start, self._end())

    def _matcher(self) -> Matcher:
        if self._kind not in ("identifier", "string"):
            raise self._unexpected("label matching", 'identifier or "}"')
        token = self._take()
        is_quoted = token.kind == "string"
        name = literals.unquoted(token.text) if is_quoted else token.text
        if self._kind not in _OPS:
            if not is_quoted:
                raise self._unexpected("label matching", "label matching operator")
            return Matcher(METRIC_NAME, MatchOp.EQUAL, name)
        op = _OPS[self._take().kind]
        if self._kind != "string":
            raise self._unexpected("label matching", "string")
        matcher = Matcher(name, op, literals.unquoted(self._take().text))
        try:
            matcher.predicate()
        except ValueError as error:
            raise FaultError(token.start, _in_words_of_go(str(error))) from None
        return matcher

    def _brackets(self, inner: Written) -> Written:
        bracket = self._take()
        range_ms = self._range("subquery or range selector", _LENGTHS)
        if self._kind == "]":
            self._take()
            vector = inner.node
            if not isinstance(vector, tree.Select) or inner.form not in ("", "name"):
                raise FaultError(bracket.start, "ranges only allowed for vector selectors")
            if vector.moment.offset_ms:
                raise FaultError(bracket.start, "no offset modifiers allowed before range")
            if vector.moment.at is not None:
                raise FaultError(bracket.start, "no @ modifiers allowed before range")
            node = tree.SelectRange(vector, range_ms)
            return replace(inner, node=node, end=self._end(), type=ValueType.MATRIX)
        if self._kind != ":":
            raise self._unexpected("subquery or range", '":" or "]"')
        self._take()
        step_ms = None
        if self._kind != "]":
            expected = 'number, duration, step(), range(), or "]"'
            step_ms = self._range("subquery selector", expected)
            if self._kind != "]":
                raise self._unexpected("subquery selector", '"]"')
        self._take()
        return meaning.subquery(inner, range_ms, step_ms, self._end())

    def _range(self, context: str, expected: str) -> int:
        start, seconds = self._length(context, expected)
        self._look()
        if self._kind in _ARITHMETIC:
            raise FaultError(None, "arithmetic on durations is not supported")
        if seconds <= 0:
            raise FaultError(start, "duration must be greater than 0")
        length_ms = _milliseconds(seconds)
        if not length_ms:
            raise FaultError(None, "a range or step is shorter than a millisecond")
        return length_ms

    def _length(self, context: str, expected: str) -> tuple[int, float]:
        """Parse a duration; return where it begins, and its seconds."""
        start, sign, signs = self._tokens[self._next].start, 1, 0
        while self._kind in ("+", "-"):
            sign *= -1 if self._take().kind == "-" else 1
            signs += 1
        if self._kind in ("(", "step", "range", "max_of", "min_of"):
            raise FaultError(None, "arithmetic on durations is not supported")
        if self._kind not in ("number", "duration"):
            raise self._unexpected(context, expected)
        token = self._take()
        seconds = _seconds(token)
        if not abs(seconds) <= _MOST_SECONDS:
            raise FaultError(start if context == "offset" else token.start, "duration out of range")
        if abs(seconds) > _MOST_SHIFT_S:
            raise FaultError(token.start, "duration out of range")
        # After one sign an offset ends; after two, an operator belongs to duration arithmetic.
        if signs > 1 and self._kind in _ARITHMETIC:
            raise FaultError(None, "arithmetic on durations is not supported")
        return start, sign * seconds

    def _offset(self, inner: Written) -> Written:
        self._take()
        _, seconds = self._length("offset", _LENGTHS)
        moment = self._moment(inner, "offset")
        if moment.offset_ms:
            raise FaultError(inner.start, "offset may not be set multiple times")
        return self._moved(inner, replace(moment, offset_ms=_milliseconds(seconds)))

    def _at(self, inner: Written) -> Written:
        self._take()
        at: int | tree.Anchor
        if self._kind in ("start", "end"):
            at = tree.Anchor(f"{self._take().kind}()")
            for kind in "()":
                if self._kind != kind:
                    raise self._unexpected("@", "timestamp")
                self._take()
        else:
            sign = 1
            if self._kind in ("+", "-"):
                sign = -1 if self._take().kind == "-" else 1
            if self._kind not in ("number", "duration"):
                raise self._unexpected("@", "timestamp")
            seconds = sign * _seconds(self._take())
            if not abs(seconds) < _MOST_TIME_MS / 1000:
                shown = (
                    f"{seconds:.6f}"
                    if math.isfinite(seconds)
                    else f"{seconds:+}".replace("inf", "Inf")
                )
                shown = "NaN" if math.isnan(seconds) else shown
                raise FaultError(inner.start, f"timestamp out of bounds for @ modifier: {shown}")
            at = _rounded(seconds * 1000)
        moment = self._moment(inner, "@")
        if moment.at is not None:
            raise FaultError(inner.start, "@ <timestamp> may not be set multiple times")
        return self._moved(inner, replace(moment, at=at))

    def _moment(self, inner: Written, modifier: str) -> tree.Moment:
        if inner.form in ("", "name"):
            if isinstance(inner.node, tree.SelectRange):
                return inner.node.selector.moment
            if isinstance(inner.node, tree.Select | tree.Subquery):
                return inner.node.moment
        raise FaultError(inner.start, f"{modifier} {_PRECEDED}")

    def _moved(self, inner: Written, moment: tree.Moment) -> Written:
        node = inner.node
        if isinstance(node, tree.SelectRange):
            node = replace(node, selector=replace(node.selector, moment=moment))
        elif isinstance(node, tree.Select | tree.Subquery):
            node = replace(node, moment=moment)
        return replace(inner, node=node, end=self._end())


def _in_words_of_go(reason: str) -> str:
    for words, told in _GO_WORDS.items():
        found = reason.removeprefix(f"not a regular expression of RE2: {words}")
        if found != reason:
            return f"error parsing regexp: {told}: `{found[2:]}`"
    return reason


def _seconds(token: Token) -> float:
    """Return a number's or duration's value in seconds."""
    convert = literals.number if token.kind == "number" else literals.duration_seconds
    try:
        return convert(token.text)
    except ValueError as error:
        raise FaultError(token.start, str(error)) from None


def _milliseconds(seconds: float) -> int:
    nanoseconds = _rounded(seconds * 1e9)
    return nanoseconds // 10**6 if nanoseconds >= 0 else -(-nanoseconds // 10**6)


def _rounded(value: float) -> int:
    """Return the nearest integer; ties go away from zero."""
    whole = math.floor(abs(value))
    whole += abs(value) - whole >= 0.5
    return whole if value >= 0 else -whole
