"""The tokens of a PromQL text with their positions, up to the first character that does not belong.

Source: prometheus promql/parser/lex.go, release 3.16.
"""

import json
import re
from dataclasses import dataclass

AGGREGATIONS = frozenset(
    [
        *["sum", "avg", "count", "min", "max", "group", "stddev", "stdvar", "topk", "bottomk"],
        *["count_values", "quantile", "limitk", "limit_ratio"],
    ]
)
KEYWORDS = frozenset(
    [
        *["offset", "smoothed", "anchored", "by", "without", "on", "ignoring", "group_left"],
        *["group_right", "fill", "fill_left", "fill_right", "bool"],
    ]
)
WORD_OPERATORS = frozenset(["and", "or", "unless", "atan2"])
PREPROCESSORS = frozenset(["start", "end", "step", "range", "max_of", "min_of"])
OPERATORS = frozenset(
    [
        *["+", "-", "*", "/", "%", "^", "==", "!=", "<", "<=", ">", ">=", "</", ">/"],
        *["=~", "!~", "@"],
    ]
)
WORDS = frozenset(
    [
        "offset",
        "smoothed",
        "anchored",
        "by",
        "without",
        "on",
        "ignoring",
        "group_left",
        "group_right",
        "fill",
        "fill_left",
        "fill_right",
        "bool",
    ]
)
WORD_OPERATORS = frozenset(["and", "or", "unless", "atan2"])
PREPROCESSORS = frozenset(["start", "end", "step", "range", "max_of", "min_of"])
OPERATORS = frozenset(
    ["+", "-", "*", "/", "%", "^", "==", "!=", "<", "<=", ">", ">=", "</", ">/", "=~", "!~", "@"]
)
WORDS = AGGREGATIONS | KEYWORDS | WORD_OPERATORS | PREPROCESSORS
END = "end of input"

_DIGITS = frozenset("0123456789")
_HEX_DIGITS = frozenset("0123456789abcdefABCDEF")
_ALPHA = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_")
_LETTERS = re.compile("[a-zA-Z_]+")
_SPACE = " \t\n\r"
_ESCAPES = {"x": 2, "u": 4, "U": 8}
_SHOWN_CHARS = 10
_BAD_RUNE = "\ufffd"


class FaultError(Exception):
    """What is wrong.

    Args:
        position: in characters.
        text: as Prometheus says it; None where only the place is known.
    """

    def __init__(self, position: int, text: str | None) -> None:
        self.position = position
        self.text = text
        super().__init__(text)


class UndecidedError(Exception):
    """The text uses what is not looked at here."""


@dataclass(frozen=True, slots=True)
class Token:
    """One token."""

    kind: str
    """`word`, `metric`, `name` between braces, `number`, `duration`, `string`, `end of input`, or the token
    itself."""
    text: str
    start: int

    @property
    def word(self) -> str:
        """Return a keyword, in small letters; empty for what is none."""
        lower = self.text.lower()
        return lower if self.kind == "word" and lower in WORDS else ""

    def described(self) -> str:
        """Return the token as a message names it."""
        if self.kind == END:
            return END
        if self.word in AGGREGATIONS:
            return f"<aggr:{self.text}>"
        if self.word in KEYWORDS:
            return f"<{self.text}>"
        if self.word in WORD_OPERATORS or self.kind in OPERATORS:
            return f"<op:{self.text}>"
        if self.word in PREPROCESSORS:
            return _shortened(self.text)
        if self.kind in ("word", "name"):
            return f"identifier {quoted(self.text)}"
        if self.kind == "metric":
            return f"metric identifier {quoted(self.text)}"
        if self.kind in ("number", "duration", "string"):
            return f"{self.kind} {_shortened(self.text)}"
        return quoted(self.text)


def quoted(text: str) -> str:
    """Return a text as Go's `%q` writes it."""
    return json.dumps(text, ensure_ascii=False)


def _shortened(text: str) -> str:
    return quoted(text) if len(text.encode()) <= _SHOWN_CHARS else f"{quoted(text[:10])}..."


def quoted_character(character: str) -> str:
    """Return a character as Go's `%q` writes it; none at all is what Go reads past the end."""
    if not character:
        return f"'{_BAD_RUNE}'"
    inner = json.dumps(character, ensure_ascii=False)[1:-1].replace('\\"', '"').replace("'", "\\'")
    return f"'{inner}'"


class Lexer:
    """Gives one token after another.

    Args:
        text: the query.
    """

    def __init__(self, text: str) -> None:
        self._text = text
        self._position = 0
        self._depth = 0
        self._in_braces = False
        self._in_brackets = False
        self._expects_duration = False
        self._had_colon = False

    def next(self) -> Token:
        """Return the next token.

        Raises:
            FaultError: no token begins here.
        """
        self._skip()
        start = self._position
        character = self._peek()
        if self._in_braces:
            return self._inside_braces(start, character)
        if self._expects_duration:
            return self._duration_token(start, character)
        if not character:
            return self._end(start)
        if character in _DIGITS or (
            character == "." and self._peek(1) in _DIGITS and self._peek(1)
        ):
            return self._number(start)
        if character in "\"'`":
            return self._string(start, character)
        if character in _ALPHA or character == ":":
            return self._word(start, character)
        return self._punctuation(start, character)

    def _peek(self, ahead: int = 0) -> str:
        position = self._position + ahead
        return self._text[position] if position < len(self._text) else ""

    def _token(self, kind: str, start: int) -> Token:
        return Token(kind, self._text[start : self._position], start)

    def _skip(self) -> None:
        text, position = self._text, self._position
        while position < len(text):
            if text[position] in _SPACE:
                position += 1
            elif text[position] == "#" and not self._expects_duration:
                while position < len(text) and text[position] not in "\r\n":
                    position += 1
            else:
                break
        self._position = position

    def _end(self, start: int) -> Token:
        if self._depth:
            raise FaultError(start, "unclosed left parenthesis")
        if self._in_brackets:
            raise FaultError(start, "unclosed left bracket")
        return Token(END, "", start)

    def _punctuation(self, start: int, character: str) -> Token:
        following = self._peek(1)
        length = 1
        if character == "=":
            if following == "~":
                raise FaultError(start, f"unexpected character after '=': {quoted_character('~')}")
            length = 2 if following == "=" else 1
        elif character == "!":
            if following != "=":
                found = quoted_character(following)
                raise FaultError(start, f"unexpected character after '!': {found}")
            length = 2
        elif character in "<>":
            length = 2 if following and following in "=/" else 1
        elif character not in ",*/%+-^()[]{@":
            raise FaultError(start, f"unexpected character: {quoted_character(character)}")
        if character == "[" and self._in_brackets:
            raise FaultError(start, "unexpected left bracket '['")
        if character == "]" and not self._in_brackets:
            raise FaultError(start, "unexpected right bracket ']'")
        self._position += length
        self._enter_or_leave(character)
        return self._token(self._text[start : self._position], start)

    def _enter_or_leave(self, character: str) -> None:
        if character == "(":
            self._depth += 1
        elif character == ")":
            self._depth -= 1
            if self._depth < 0:
                raise FaultError(self._position, "unexpected right parenthesis ')'")
        elif character == "{":
            self._in_braces = True
        elif character == "[":
            self._in_brackets = self._expects_duration = True
            self._had_colon = False
        elif character == "]":
            self._in_brackets = self._expects_duration = False

    def _inside_braces(self, start: int, character: str) -> Token:
        if not character:
            raise FaultError(start, "unexpected end of input inside braces")
        if character in _ALPHA:
            self._take(_ALPHA | _DIGITS)
            # Keywords are names here.
            return Token("name", self._text[start : self._position], start)
        if character in "\"'`":
            return self._string(start, character)
        if character == "{":
            raise FaultError(start, "unexpected left brace '{'")
        following = self._peek(1)
        if character == "!" and (not following or following not in "=~"):
            found = quoted_character(following)
            raise FaultError(start, f"unexpected character after '!' inside braces: {found}")
        if character not in ",=!}":
            found = quoted_character(character)
            raise FaultError(start, f"unexpected character inside braces: {found}")
        self._position += 2 if character == "!" or (character == "=" and following == "~") else 1
        if character == "}":
            self._in_braces = False
        return self._token(self._text[start : self._position], start)

    def _duration_token(self, start: int, character: str) -> Token:
        if not character:
            raise FaultError(start, "unexpected end of input in duration expression")
        if character in _DIGITS or (
            character == "." and self._peek(1) in _DIGITS and self._peek(1)
        ):
            self._expects_duration = False
            return self._number(start)
        if character == "]":
            self._position += 1
            self._enter_or_leave(character)
            return self._token("]", start)
        if character in "+-":
            self._position += 1
            return self._token(character, start)
        if character in "(),:*/%^" or self._is_duration_word():
            raise UndecidedError
        found = quoted_character(character)
        raise FaultError(start, f"unexpected character in duration expression: {found}")

    def _word(self, start: int, character: str) -> Token:
        if self._in_brackets:
            if character == ":" and not self._had_colon:
                self._had_colon = True
                self._position += 1
                return self._token(":", start)
            if character == ":":
                raise FaultError(start, "unexpected colon ':'")
            if self._is_duration_word():
                raise UndecidedError
            found = quoted_character(character)
            raise FaultError(start, f"unexpected character: {found}, expected ':'")
        self._take(_ALPHA | _DIGITS | {":"})
        word = self._text[start : self._position]
        if word.lower() in ("inf", "nan"):
            return self._token("number", start)
        return self._token("metric" if ":" in word else "word", start)

    def _is_duration_word(self) -> bool:
        word = _LETTERS.match(self._text, self._position)
        return word is not None and word[0].lower() in ("step", "range", "max_of", "min_of")

    def _take(self, characters: frozenset[str]) -> None:
        while self._peek() and self._peek() in characters:
            self._position += 1

    def _string(self, start: int, quote: str) -> Token:
        self._position += 1
        is_raw = quote == "`"
        while (character := self._peek()) != quote:
            if not character or (character == "\n" and not is_raw):
                kind = "raw" if is_raw else "quoted"
                raise FaultError(start, f"unterminated {kind} string")
            if character == _BAD_RUNE:
                raise UndecidedError
            self._position += 1
            if character == "\\" and not is_raw:
                self._escape(start, quote)
        self._position += 1
        return self._token("string", start)

    def _escape(self, start: int, quote: str) -> None:
        character = self._peek()
        if character and character in f"abfnrtv\\{quote}":
            self._position += 1
        elif character in _ESCAPES or (character and character in "01234567"):
            # Digits that do not fit are rare, and Prometheus' words for them are many.
            length = _ESCAPES.get(character, 3)
            self._position += character in _ESCAPES
            digits = self._text[self._position : self._position + length]
            base = 16 if character in _ESCAPES else 8
            try:
                code = int(digits, base)
            except ValueError:
                raise UndecidedError from None
            if len(digits) < length or code > (0x10FFFF if length > 3 else 255):
                raise UndecidedError
            self._position += length
        elif not character:
            raise FaultError(start, "escape sequence not terminated")
        else:
            code_point = f"U+{ord(character):04X}"
            raise FaultError(start, f"unknown escape sequence {code_point} '{character}'")

    def _number(self, start: int) -> Token:
        if self._scan_number():
            return self._token("number", start)
        if self._scan_duration():
            return self._token("duration", start)
        found = quoted(self._text[start : self._position])
        raise FaultError(start, f"bad number or duration syntax: {found}")

    def _scan_number(self) -> bool:
        digits = _DIGITS
        if self._peek() == "0":
            self._position += 1
            if self._accept("xX"):
                self._accept("_")
                digits = _HEX_DIGITS
        self._accept(".")
        self._accept(digits)
        had_dot = had_exponent = False
        while (character := self._peek()) and (character in digits or character in "._eE"):
            if (character == "." and had_dot) or (character in "eE" and had_exponent):
                self._position += 1
                return False
            if character == ".":
                self._position += 1
                had_dot = True
                if self._accept("_.") or digits is _HEX_DIGITS:
                    return False
            elif character in "eE" and character not in digits:
                self._position += 1
                had_exponent = True
                self._accept("+-")
                if self._accept("._eE") or not self._peek():
                    return False
            elif character == "_":
                self._position += 1
                if self._accept("._eE") or not self._peek():
                    return False
            else:
                self._take(digits)
        return (self._peek() not in _ALPHA and self._peek() not in _DIGITS) or not self._peek()

    def _scan_duration(self) -> bool:
        if not self._accept("smhdwy"):
            return False
        self._accept("s")
        while self._accept(_DIGITS):
            self._take(_DIGITS)
            if not self._accept("smhdw"):
                return False
            self._accept("s")
        following = self._peek()
        if following and (following in _ALPHA or following in _DIGITS):
            self._position += 1
            return False
        return True

    def _accept(self, characters: "str | frozenset[str]") -> bool:
        if self._peek() and self._peek() in characters:
            self._position += 1
            return True
        return False
