"""Settings as dataclasses: each field names its flags and their types.

From that one place come the command line, the help, the tables of the docs, and the keys of the file that
`--settings` names.

    STORE = Panel("Store")

    @dataclass(frozen=True, slots=True, kw_only=True)
    class StoreSettings:
        max_series: int = STORE.option(NUMBER, "store-max-series", "Series that are kept at most.", "200000")

    read(StoreSettings, reader)       # from flags, variables and the file
    StoreSettings()                   # what the defaults of the flags mean
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cache
from pathlib import Path
from typing import Any, Generic, TypeVar, cast

from gpuscale.base.flags import FILE_FLAG, FileText, Flag, FlagReader, Kind

T = TypeVar("T")
_Other = TypeVar("_Other")
_FROM = "from"


@dataclass(frozen=True, slots=True)
class Reading(Generic[T]):
    """A conversion from a flag's text to a value."""

    kind: Kind
    read: Callable[[FlagReader, str], T]
    """Of the name of a flag."""
    repeats: bool = False
    choices: tuple[str, ...] = ()

    def unless_zero(self, value: _Other) -> "Reading[T | _Other]":
        """Return a conversion with another value for 0 and for an empty text."""
        return Reading(
            self.kind,
            lambda flags, name: self.read(flags, name) or value,
            self.repeats,
            self.choices,
        )

    def unless_empty(self) -> "Reading[T | None]":
        """Return a conversion with None for an empty text."""
        return Reading(
            self.kind,
            lambda flags, name: self.read(flags, name) if flags.text(name) else None,
            self.repeats,
            self.choices,
        )

    def or_default(self) -> "Reading[T]":
        """Return a conversion with the default for 0."""

        def read_(flags: FlagReader, name: str) -> T:
            return self.read(flags, name) or self.read(flags.untouched(), name)

        return Reading(self.kind, read_, self.repeats, self.choices)


TEXT = Reading("text", FlagReader.text)
PATH = Reading("text", FlagReader.path)
SWITCH = Reading("bool", FlagReader.boolean)
NUMBER = Reading("int", FlagReader.number)
PORT = Reading("int", FlagReader.port)
SECONDS = Reading("duration", FlagReader.seconds)
MILLISECONDS = Reading("duration", lambda flags, name: round(flags.seconds(name) * 1000))
ITEMS = Reading("list", FlagReader.items)
"""Behind one another, with commas between."""
REPEATED_ITEMS = Reading("list", FlagReader.items, repeats=True)
PATHS = Reading(
    "text", lambda flags, name: tuple(Path(text) for text in flags.every(name)), repeats=True
)


def one_of(*choices: str) -> Reading[str]:
    """Return a conversion of one of these texts; an empty one means the first, if it is listed."""
    return Reading("text", lambda flags, name: flags.choice(name, *choices))


def chosen(values: Mapping[str, T]) -> Reading[T]:
    """Return a conversion from texts to values; an empty one means the default."""
    return Reading(
        "choice",
        lambda flags, name: values[flags.choice(name)],
        choices=tuple(text for text in values if text),
    )


def converted(convert: Callable[[str], T], fallback: T, kind: Kind = "text") -> Reading[T]:
    """Return a conversion by a function that raises ValueError or UsageError for a wrong text."""
    return Reading(kind, lambda flags, name: flags.converted(name, convert, fallback))


def each(convert: Callable[[str], T]) -> Reading[tuple[T, ...]]:
    """Return a conversion for a repeatable flag."""
    return Reading(
        "text", lambda flags, name: flags.each(name, flags.every(name), convert), repeats=True
    )


def each_item(convert: Callable[[str], T]) -> Reading[tuple[T, ...]]:
    """Return a conversion of comma-separated items."""
    return Reading("list", lambda flags, name: flags.each(name, flags.items(name), convert))


@dataclass(frozen=True, slots=True)
class _From:
    """A field's flags and their conversion."""

    read: Callable[[FlagReader], object]
    flags: tuple[Flag, ...]


@dataclass(frozen=True, slots=True)
class Panel:
    """A section of help, docs and settings file, with its flags."""

    title: str
    is_ours: bool = False
    """Whether the program that the server replaces has none of its flags."""

    @property
    def key(self) -> str:
        """Return its key in the settings file."""
        return self.title[0].lower() + self.title[1:]

    def flag(
        self,
        name: str,
        help_: str,
        kind: Kind = "text",
        default: str = "",
        **more: Any,  # noqa: ANN401 - fields of Flag
    ) -> Flag:
        """Return a flag of this panel."""
        more = {"is_ours": self.is_ours, **more}
        start = f"{self.key}-"
        key = more.pop("key", "") or _camel(name.removeprefix(start))
        return Flag(name, help_, kind, default, key=f"{self.key}.{key}", **more)

    def option(
        self,
        reading: Reading[T],
        name: str,
        help_: str,
        default: str = "",
        *,
        is_secret: bool = False,
        **more: Any,  # noqa: ANN401 - fields of Flag
    ) -> T:
        """Return a dataclass field for one flag.

        Args:
            reading: of its text.
            name: of the flag, without dashes.
            help_: what it is for, with its unit.
            default: as a text.
            is_secret: whether it is left out of what is printed of the settings.
            more: further fields of the flag.
        """
        more = {"repeats": reading.repeats, "choices": reading.choices, **more}
        flag = self.flag(name, help_, reading.kind, default, **more)
        return made(lambda flags: reading.read(flags, name), flag, is_secret=is_secret)

    def pair(
        self, certificate: str, help_: str, key: str, key_help: str = "Key of that certificate."
    ) -> tuple[Path, Path] | None:
        """Return a field for two files that belong together: a certificate and its key."""
        return made(
            lambda flags: flags.pair(certificate, key),
            self.flag(certificate, help_),
            self.flag(key, key_help),
        )


def made(
    read: Callable[[FlagReader], T],
    *flags: Flag,
    usual: Callable[[], T] | None = None,
    is_secret: bool = False,
) -> T:
    """Return a field that is computed from several flags.

    Args:
        read: returns its value, and notes faults.
        flags: those that belong to it alone.
        usual: returns its default, where reading looks at other flags too.
        is_secret: whether it is left out of what is printed of the settings.
    """
    table = {flag.name: flag for flag in flags}

    @cache  # a simulation makes the agent's settings anew for each scrape
    def default() -> T:
        return read(FlagReader(table, {}))

    source = _From(read, flags)
    return field(default_factory=usual or default, repr=not is_secret, metadata={_FROM: source})


def part(kind: type[T]) -> T:
    """Return a field that is itself a dataclass of settings."""
    source = _From(lambda flags: read(kind, flags), tuple(flags_of(kind)))
    return field(default_factory=kind, metadata={_FROM: source})


def read(kind: type[T], flags: FlagReader, **others: object) -> T:
    """Return settings read from flags; the reader collects faults for its caller.

    Args:
        kind: the dataclass.
        flags: given and not given.
        others: fields that are not to be read, but to be these.
    """
    for each_ in fields(cast("Any", kind)):
        if (source := each_.metadata.get(_FROM)) is not None and each_.name not in others:
            others[each_.name] = source.read(flags)
    return kind(**others)


def groups_of(*kinds: type, more: Iterable[Flag] = ()) -> Mapping[str, tuple[Flag, ...]]:
    """Return dataclasses' flags by section title, each once.

    Args:
        kinds: dataclasses of settings.
        more: flags that no field comes from.
    """
    found: dict[str, Flag] = {}
    for kind in kinds:
        found |= {flag.name: flag for flag in flags_of(kind)}
    found |= {flag.name: flag for flag in more}
    groups: dict[str, list[Flag]] = {}
    for flag in found.values():
        key = flag.key.partition(".")[0]
        groups.setdefault(key[0].upper() + key[1:], []).append(flag)
    return {title: tuple(flags) for title, flags in groups.items()}


def flags_of(kind: type) -> Iterable[Flag]:
    """Yield the flags of a dataclass."""
    for each_ in fields(cast("Any", kind)):
        if (source := each_.metadata.get(_FROM)) is not None:
            yield from source.flags


def _camel(name: str) -> str:
    return re.sub("-(.)", lambda found: found[1].upper(), name)


def reader_of(
    table: Mapping[str, Flag],
    given: Mapping[str, Sequence[str]],
    environment: Mapping[str, str] | None = None,
    words: Mapping[str, bool] | None = None,
    file: Mapping[str, FileText] | None = None,
) -> FlagReader:
    """Return a reader of flags, and of the file that `--settings` names.

    Args:
        table: all flags of the server, by name.
        given: the texts of each flag that was given, by name.
        environment: of the process.
        words: further booleans.
        file: what a file says that was read already.

    Raises:
        ConfigError: the file can't be read, or is not of the format.
    """
    flags = FlagReader(table, given, environment, words, file)
    if (path := flags.path(FILE_FLAG)) is None:
        return flags
    from gpuscale.base.settings_file import read_settings_file  # YAML takes memory for good

    return FlagReader(table, given, environment, words, read_settings_file(path, table))
