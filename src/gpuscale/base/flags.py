"""A server's flags in one table, for the command line, the help and error messages."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeVar

from gpuscale.base.errors import BugError, UsageError
from gpuscale.base.golang.durations import GO_BOOLS, parse_duration_ms

Kind = Literal["text", "bool", "duration", "int", "list", "choice"]
MAX_DIGITS = 9
FILE_FLAG = "settings"
"""Name of the flag that names a file with settings."""
_Value = TypeVar("_Value")


@dataclass(frozen=True, slots=True)
class Flag:
    """A setting of a server."""

    name: str
    """Without the dashes."""
    help: str
    kind: Kind = "text"
    default: str = ""
    repeats: bool = False
    """Whether it may be given several times; each adds to the ones before."""
    alias: str = ""
    """A shorter name, without the dashes."""
    no_effect: str = ""
    """Why the flag changes nothing here; empty for those that do."""
    is_ours: bool = False
    """Whether the program that this server replaces does not have it."""
    env: str = ""
    """The variable that is read where the flag is not given; empty for none."""
    choices: tuple[str, ...] = ()
    key: str = ""
    """Where it stands in the file with settings, such as `store.maxSeries`."""


@dataclass(frozen=True, slots=True)
class FileText:
    """A flag's texts in a settings file."""

    texts: tuple[str, ...]
    place: str
    """The file, its line and the key."""


class FlagReader:
    """The values of flags, converted to the types of settings; faults are collected for `finish`.

    A value that can't be read counts as the flag's default, so that the others are still checked.

    Args:
        flags: by name.
        given: the texts of each flag that was given, by name; of one that does not repeat, the last counts.
        environment: of the process; a flag wins over its variable.
        words: further booleans, in lower case.
        file: what a file says, by name; a flag and its variable win over it.
    """

    def __init__(
        self,
        flags: Mapping[str, Flag],
        given: Mapping[str, Sequence[str]],
        environment: Mapping[str, str] | None = None,
        words: Mapping[str, bool] | None = None,
        file: Mapping[str, FileText] | None = None,
    ) -> None:
        self._flags = flags
        self._given = given
        self._environment = environment or {}
        self._file = file or {}
        self._words = {**{text.lower(): value for text, value in GO_BOOLS.items()}, **(words or {})}
        self._faults: dict[str, None] = {}

    def untouched(self) -> "FlagReader":
        """Return a reader of the same flags with none given."""
        return FlagReader(self._flags, {})

    def with_fallback(self, file: Mapping[str, FileText]) -> "FlagReader":
        """Return a reader with another file as fallback."""
        file = {**file, **self._file}
        return FlagReader(self._flags, self._given, self._environment, self._words, file)

    def fault(self, text: str) -> None:
        """Record a fault, each text once."""
        self._faults[text] = None

    def finish(self) -> None:
        """Raise the collected faults.

        Raises:
            UsageError: with a line for each fault.
        """
        if self._faults:
            raise UsageError("\n".join(self._faults))

    def notes(self, *, skips_off: bool = False) -> tuple[str, ...]:
        """Return notes on given flags without effect.

        Args:
            skips_off: whether to say nothing of booleans that are switched off.
        """
        return tuple(
            f"--{flag.name} changes nothing: {flag.no_effect}"
            for flag in self._flags.values()
            if flag.no_effect and self.is_given(flag.name)
            if not (skips_off and flag.kind == "bool" and not self.boolean(flag.name))
        )

    # Texts

    def is_given(self, name: str) -> bool:
        """Return whether a flag, its variable or its key in the file is given."""
        return bool(self._texts(name))

    def variable(self, name: str) -> str:
        """Return a variable of the environment; empty where there is none."""
        return self._environment.get(name, "")

    def text(self, name: str) -> str:
        texts = self._texts(name)
        return texts[-1] if texts else self._flags[name].default

    def every(self, name: str) -> Sequence[str]:
        """Return all texts of a repeatable flag."""
        default = self._flags[name].default
        return self._texts(name) or ([default] if default else [])

    def items(self, name: str) -> tuple[str, ...]:
        """Return the items of all texts, which commas separate."""
        found = (item.strip() for text in self.every(name) for item in text.split(","))
        return tuple(item for item in found if item)

    def path(self, name: str) -> Path | None:
        """Return a path; None if not given."""
        text = self.text(name)
        return Path(text) if text else None

    def pair(self, first: str, second: str) -> tuple[Path, Path] | None:
        """Return two paths that are only valid together."""
        one, other = self.path(first), self.path(second)
        if one is not None and other is not None:
            return one, other
        if one is not None or other is not None:
            given, missing = (first, second) if other is None else (second, first)
            self.fault(f"--{given}: found it alone, expected --{missing} beside it")
        return None

    # Values

    def converted(self, name: str, convert: Callable[[str], _Value], fallback: _Value) -> _Value:
        """Return a converted text; where that fails with a ValueError or UsageError, note it.

        Args:
            name: of the flag.
            convert: its error says what was found and expected.
            fallback: returned for a text that can't be converted.
        """
        try:
            return convert(self.text(name))
        except (ValueError, UsageError) as error:
            self.fault(f"{self._where(name)}: {error}")
            return fallback

    def each(
        self, name: str, texts: Sequence[str], convert: Callable[[str], _Value]
    ) -> tuple[_Value, ...]:
        """Return each of a flag's texts, converted; failures become faults."""
        found = []
        for text in texts:
            try:
                found.append(convert(text))
            except (ValueError, UsageError) as error:
                self.fault(f"{self._where(name)}: {error}")
        return tuple(found)

    def boolean(self, name: str) -> bool:
        """Return a boolean, in Go's spellings and any case."""
        return self._known(name, lambda text: self._words.get(text.lower()), "true or false")

    def number(self, name: str) -> int:
        """Return a whole number of at most nine digits."""
        return self._known(name, _whole_number, "a whole number")

    def port(self, name: str) -> int:
        """Return a port; 0 is none."""
        return self._known(name, _port, "a port from 0 to 65535")

    def seconds(self, name: str) -> float:
        return self._known(name, _seconds, "a duration such as 30s or 10m")

    def choice(self, name: str, *choices: str) -> str:
        """Return one of the choices; an empty text means the first, if it is allowed.

        Args:
            name: of the flag.
            choices: those of the table, and its default, if there are none here.
        """
        flag = self._flags[name]
        if not choices:
            text = self.text(name)
            if text in flag.choices or text == flag.default:
                return text
            self._wrong(name, f"one of: {', '.join(flag.choices)}")
            return flag.default
        text = self._known(
            name,
            lambda text: text if text in choices else None,
            " or ".join(choice for choice in choices if choice),
        )
        return text or choices[0]

    def _known(self, name: str, read: Callable[[str], _Value | None], expected: str) -> _Value:
        """Return the value of a known text; record a fault for an unknown one, and return the default."""
        value = read(self.text(name))
        if value is None:
            self._wrong(name, expected)
            value = read(self._flags[name].default)
        if value is None:
            raise BugError(f"--{name}: its default is not {expected}")
        return value

    def _wrong(self, name: str, expected: str) -> None:
        self.fault(f"{self._where(name)}: found {self.text(name)!r}, expected {expected}")

    def _texts(self, name: str) -> Sequence[str]:
        """Return the given texts; none if the default applies."""
        if texts := self._given.get(name):
            return texts
        if text := self._environment.get(self._flags[name].env, ""):
            return [text]
        return self._file[name].texts if name in self._file else ()

    def _where(self, name: str) -> str:
        if name in self._given:
            return f"--{name}"
        if (env := self._flags[name].env) and (
            self._environment.get(env) or name not in self._file
        ):
            return env
        return self._file[name].place if name in self._file else f"--{name}"


def _whole_number(text: str) -> int | None:
    is_number = text.isascii() and text.isdigit() and len(text) <= MAX_DIGITS
    return int(text) if is_number else None


def _port(text: str) -> int | None:
    number = _whole_number(text) if len(text) <= 5 else None
    return None if number is None or number > 65_535 else number


def _seconds(text: str) -> float | None:
    try:
        return parse_duration_ms(text) / 1000
    except ValueError:
        return None
