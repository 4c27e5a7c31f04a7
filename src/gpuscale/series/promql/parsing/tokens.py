"""The tokens of a PromQL text with positions, up to the first invalid character.

Source: prometheus promql/parser/lex.go, release 3.16.
"""

import re
from typing import NamedTuple

from gpuscale.base.golang.durations import go_quote

AGGREGATIONS = frozenset(
    [
        "sum",
        "avg",
        "count",
        "min",
        "max",
        "group",
        "stddev",
        "stdvar",
        "topk",
        "bottomk",
        "count_values",
        "quantile",
        "limitk",
        "limit_ratio",
    ]
)
KEYWORDS = frozenset(
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
WORDS = AGGREGATIONS | KEYWORDS | WORD_OPERATORS | PREPROCESSORS
END, ERROR = "end of input", "error"

_OPERATORS = WORD_OPERATORS | frozenset(
    ["+", "-", "*", "/", "%", "^", "==", "!=", "<", "<=", ">", ">=", "</", ">/", "=~", "!~", "@"]
)
_NAMED_KINDS = frozenset(["identifier", "metric identifier"])
_SHOWN_KINDS = frozenset(["number", "duration", "string"])

_QUOTED = r"""(?P<string>"[^"\\\n\ufffd]*"|'[^'\\\n\ufffd]*'|`[^`\ufffd]*`)"""
_NUMBERS = (
    r"(?P<number>(?:\d++\.?+\d*+|\.\d++)(?![\w.]))"
    r"|(?P<duration>\d++(?:ms|[smhdwy])(?:\d++(?:ms|[smhdw]))*+(?!\w))"
)
_SPACE = r"(?P<space>[ \t\n\r]+|\#[^\n\r]*)"
_STATEMENT = re.compile(
    rf"{_SPACE}|(?P<word>[a-zA-Z_:][\w:]*+)|{_NUMBERS}|{_QUOTED}"
    r"|(?P<sign>[=!]=|=(?!~)|[<>][=/]?|[-,*/%+^()\[\]{@])",
    re.ASCII,
)
_BRACES = re.compile(
    rf"{_SPACE}|(?P<name>[a-zA-Z_]\w*+)|{_QUOTED}|(?P<sign>=~?|![=~]|[,}}])", re.ASCII
)
# A comment is not allowed where a duration is expected.
_DURATION = re.compile(rf"(?P<space>[ \t\n\r]+)|{_NUMBERS}|(?P<sign>[-+*/%^(),:\]])", re.ASCII)
_DURATION_WORD = re.compile("[a-zA-Z_]+")
_ESCAPE_DIGITS = {"x": (2, 16, 255), "u": (4, 16, 0x10FFFF), "U": (8, 16, 0x10FFFF)}
_ALPHANUMERIC = re.compile(r"\w", re.ASCII)


class FaultError(Exception):
    """A syntax error.

    Args:
        position: in characters; None where no place is named.
        text: as Prometheus says it.
    """

    def __init__(self, position: int | None, text: str) -> None:
        self.position = position
        self.text = text
        super().__init__(text)


class Token(NamedTuple):
    """One token."""

    kind: str
    """A keyword in small letters, `identifier`, `metric identifier`, `number`, `duration`, `string`, `end of
    input`, a sign, or `error`."""
    text: str
    """As written; of an error, what is wrong."""
    start: int

    def described(self) -> str:
        """Return the token as error messages show it."""
        kind, text = self.kind, self.text
        if kind == END:
            return END
        if kind in _NAMED_KINDS:
            return f"{kind} {go_quote(text)}"
        if kind in AGGREGATIONS:
            return f"<aggr:{text}>"
        if kind in KEYWORDS:
            return f"<{text}>"
        if kind in _OPERATORS:
            return f"<op:{text}>"
        shown = (
            go_quote(text)
            if len(text.encode(errors="replace")) <= 10
            else f"{go_quote(text[:10])}..."
        )
        return f"{kind} {shown}" if kind in _SHOWN_KINDS else shown


def tokens_of(text: str) -> list[Token]:
    """Return the tokens; the last is the end of input or an error."""
    found: list[Token] = []
    try:
        _scan(text, found)
    except FaultError as fault:
        found.append(Token(ERROR, fault.text, fault.position or 0))
    return found


def _scan(text: str, found: list[Token]) -> None:
    position, depth = 0, 0
    in_brackets = had_colon = had_duration = False
    pattern = _STATEMENT
    while True:
        match = pattern.match(text, position)
        start = position
        if match is None:
            if position == len(text):
                _check_end(pattern, start, depth, in_brackets=in_brackets)
                found.append(Token(END, "", start))
                return
            # Uncommon or invalid forms.
            kind, position = _unusual(text, start, pattern)
        else:
            kind, position = str(match.lastgroup), match.end()
            if kind == "space":
                continue
        word = text[start:position]
        if kind == "sign":
            kind = word
            if word == "[":
                if in_brackets:
                    raise FaultError(start, "unexpected left bracket '['")
                in_brackets, had_colon, had_duration, pattern = True, False, False, _DURATION
            elif word == "]":
                if not in_brackets:
                    raise FaultError(start, "unexpected right bracket ']'")
                in_brackets, pattern = False, _STATEMENT
            elif word == "(":
                depth += 1
            elif word == ")":
                depth -= 1
                if depth < 0:
                    raise FaultError(position, "unexpected right parenthesis ')'")
            elif word == "{":
                pattern = _BRACES
            elif word == "}":
                pattern = _STATEMENT
            elif word == ":":
                # Only where a duration is expected; elsewhere it belongs to a word.
                if not had_duration:
                    reason = "unexpected colon before duration in duration expression"
                    raise FaultError(position, reason)
                if had_colon:
                    raise FaultError(position, "unexpected repeated colon in duration expression")
                had_colon = True
        elif kind == "word":
            if in_brackets:
                kind, position = _in_brackets(text, start, had_colon=had_colon)
                had_colon = had_colon or kind == ":"
                word = text[start:position]
            else:
                kind = _kind_of_word(text, word, position)
        elif kind == "name":
            # Between braces, keywords are label names.
            kind = "identifier"
        elif pattern is _DURATION:
            had_duration = True
            if kind in _SHOWN_KINDS:
                pattern = _STATEMENT
        found.append(Token(kind, word, start))


def _check_end(pattern: re.Pattern[str], start: int, depth: int, *, in_brackets: bool) -> None:
    if pattern is _BRACES:
        raise FaultError(start, "unexpected end of input inside braces")
    if pattern is _DURATION:
        raise FaultError(start, "unexpected end of input in duration expression")
    if depth:
        raise FaultError(start, "unclosed left parenthesis")
    if in_brackets:
        raise FaultError(start, "unclosed left bracket")


def _kind_of_word(text: str, word: str, end: int) -> str:
    lower = word.lower()
    if lower in WORDS:
        # `fill` is often a metric's name.
        if lower.startswith("fill") and text[end:].lstrip(" \t\n\r")[:1] != "(":
            return "identifier"
        return lower
    if lower in ("inf", "nan"):
        return "number"
    return "metric identifier" if ":" in word else "identifier"


def _in_brackets(text: str, start: int, *, had_colon: bool) -> tuple[str, int]:
    """Return the token after a duration in brackets, and where it ends."""
    if text[start] == ":":
        if had_colon:
            raise FaultError(start, "unexpected colon ':'")
        return ":", start + 1
    found = _duration_word(text, start)
    if found is None:
        raise FaultError(start, f"unexpected character: '{text[start]}', expected ':'")
    return found


def _duration_word(text: str, start: int) -> tuple[str, int] | None:
    match = _DURATION_WORD.match(text, start)
    if match is not None and match[0].lower() in ("step", "range", "max_of", "min_of"):
        return match[0].lower(), match.end()
    return None


def _unusual(text: str, start: int, pattern: re.Pattern[str]) -> tuple[str, int]:
    character, following = text[start], text[start + 1 : start + 2]
    if pattern is _BRACES:
        if character in "\"'`":
            return "string", _end_of_string(text, start)
        if character == "{":
            raise FaultError(start, "unexpected left brace '{'")
        if character == "!":
            found = _quoted_character(following)
            raise FaultError(start, f"unexpected character after '!' inside braces: {found}")
        raise FaultError(
            start, f"unexpected character inside braces: {_quoted_character(character)}"
        )
    if character in "0123456789" or (character == "." and following and following in "0123456789"):
        return _number(text, start)
    if pattern is _DURATION:
        if (word := _duration_word(text, start)) is not None:
            return word
        found = _quoted_character(character)
        raise FaultError(start, f"unexpected character in duration expression: {found}")
    if character in "\"'`":
        return "string", _end_of_string(text, start)
    if character in "=!":
        found = _quoted_character(following)
        raise FaultError(start, f"unexpected character after '{character}': {found}")
    raise FaultError(start, f"unexpected character: {_quoted_character(character)}")


def _quoted_character(character: str) -> str:
    """Return a character like Go's `%q`; an empty one is what Go reads past the end."""
    if character == "'":
        return r"'\''"
    return "'" + go_quote(character or "\ufffd")[1:-1].replace(r"\"", '"') + "'"


def _end_of_string(text: str, start: int) -> int:
    quote, position = text[start], start + 1
    is_raw = quote == "`"
    while (character := text[position : position + 1]) != quote:
        if not character or (character == "\n" and not is_raw):
            raise FaultError(start, f"unterminated {'raw' if is_raw else 'quoted'} string")
        if character == "\ufffd":
            raise FaultError(start, "invalid UTF-8 rune")
        position += 1
        if character == "\\" and not is_raw:
            position = _end_of_escape(text, start, position)
    return position + 1


def _end_of_escape(text: str, start: int, position: int) -> int:
    character = text[position : position + 1]
    if character and character in f"abfnrtv\\{text[start]}":
        return position + 1
    if character in _ESCAPE_DIGITS:
        count, base, most = _ESCAPE_DIGITS[character]
        position += 1
    elif character and character in "01234567":
        count, base, most = 3, 8, 255
    elif not character:
        raise FaultError(start, "escape sequence not terminated")
    else:
        raise FaultError(start, f"unknown escape sequence {_code_point(character)}")
    code = 0
    end = position + count
    for digit in (text[each : each + 1] for each in range(position, end)):
        if not digit:
            raise FaultError(start, "escape sequence not terminated")
        value = "0123456789abcdef".find(digit.lower()) if digit.isascii() else -1
        if not 0 <= value < base:
            raise FaultError(start, f"illegal character {_code_point(digit)} in escape sequence")
        code = code * base + value
    if code > most or 0xD800 <= code < 0xE000:
        raise FaultError(start, "escape sequence is an invalid Unicode code point")
    return end


def _code_point(character: str) -> str:
    shown = f" '{character}'" if character.isprintable() else ""
    return f"U+{ord(character):04X}{shown}"


def _number(text: str, start: int) -> tuple[str, int]:
    """Return the kind of a number or duration in an uncommon form, and where it ends."""
    position, is_number = _end_of_number(text, start)
    if is_number:
        return "number", position
    position, is_duration = _end_of_duration(text, position)
    if is_duration:
        return "duration", position
    raise FaultError(start, f"bad number or duration syntax: {go_quote(text[start:position])}")


def _end_of_number(text: str, position: int) -> tuple[int, bool]:
    digits = "0123456789"

    def at(characters: str) -> bool:
        return position < len(text) and text[position] in characters

    if at("0"):
        position += 1
        if at("xX"):
            position += 1
            position += at("_")
            digits = "0123456789abcdefABCDEF"
    position += at(".")
    position += at(digits)
    had_dot = had_exponent = False
    while at(digits + "._eE"):
        if (had_dot and at(".")) or (had_exponent and at("eE")):
            return position + 1, False
        if at("."):
            position += 1
            had_dot = True
            if at("_."):
                return position + 1, False
            if len(digits) > 10:
                return position, False
        elif at("eE"):
            position += 1
            had_exponent = True
            position += at("+-")
            if at("._eE"):
                return position + 1, False
            if position == len(text):
                return position, False
        elif at("_"):
            position += 1
            if at("._eE"):
                return position + 1, False
            if position == len(text):
                return position, False
        else:
            while at(digits):
                position += 1
    return position, _ALPHANUMERIC.match(text, position) is None


def _end_of_duration(text: str, position: int) -> tuple[int, bool]:
    def at(characters: str) -> bool:
        return position < len(text) and text[position] in characters

    if not at("smhdwy"):
        return position, False
    position += 1
    position += at("s")
    while at("0123456789"):
        while at("0123456789"):
            position += 1
        if not at("smhdw"):
            return position, False
        position += 1
        position += at("s")
    if _ALPHANUMERIC.match(text, position) is not None:
        return position + 1, False
    return position, True
