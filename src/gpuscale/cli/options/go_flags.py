"""Flags from a table, given as Go's programs take them."""

from collections.abc import Callable, Mapping, Sequence

from gpuscale.base.errors import UsageError
from gpuscale.base.flags import Flag


def plain_arguments(args: Sequence[str], find: Callable[[str], Flag | None]) -> list[str]:
    """Return Go-style arguments in click's form: long names, a value for each flag.

    Args:
        args: as they were typed.
        find: returns the flag of a name with its dashes; None for an unknown name.
    """
    return [part for arg in args for part in _plain_argument(arg, find)]


def _plain_argument(arg: str, find: Callable[[str], Flag | None]) -> list[str]:
    name, equals, value = arg.partition("=")
    flag = find(name)
    if flag is None:
        return [arg]
    if equals:
        return [f"--{flag.name}", value]
    return [f"--{flag.name}", "true"] if flag.kind == "bool" else [f"--{flag.name}"]


def names_of(flags: Mapping[str, Flag]) -> dict[str, Flag]:
    """Return flags by each of their names with dashes."""
    return {f"--{name}": flag for name, flag in flags.items()} | {
        f"-{flag.alias}": flag for flag in flags.values() if flag.alias
    }


def given_texts(
    plain: Sequence[str], find: Callable[[str], Flag | None]
) -> dict[str, list[str]] | None:
    """Return all flags' texts by name; None if there are other arguments, such as help or a command.

    Args:
        plain: as `plain_arguments` returns them.
        find: as there.
    """
    texts: dict[str, list[str]] = {}
    words = iter(plain)
    for word in words:
        flag, text = find(word), next(words, None)
        if flag is None or text is None:
            return None
        before = texts.get(flag.name, []) if flag.repeats else []
        texts[flag.name] = [*before, text]
    return texts


def texts_of_server(
    given: Mapping[str, str | list[str] | None], subcommand: str | None
) -> dict[str, list[str]]:
    """Return the texts of a server's flags by name, as typer gave them.

    Raises:
        UsageError: flags stand before a subcommand, which would not see them.
    """
    texts = {
        name.replace("_", "-"): [value] if isinstance(value, str) else value
        for name, value in given.items()
        if value is not None and value != []
    }
    if subcommand is not None and texts:
        flag = f"--{next(iter(texts))}"
        raise UsageError(f"found {flag} before {subcommand}, expected it after")
    return texts
