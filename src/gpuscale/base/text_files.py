"""Reading text from files and standard input, as users name them."""

import sys
from pathlib import Path

from gpuscale.base.errors import ConfigError, Problem

STDIN = "-"
_STDIN_NAME = "<stdin>"


def shown_name(name: str) -> str:
    """Return a file's name for messages."""
    return _STDIN_NAME if name == STDIN else name


def read_text(name: str, most_mib: int = 8) -> str:
    """Return the text of a file, or of standard input for `-`.

    Args:
        name: of the file.
        most_mib: how large it may be; documents are read up to 8.

    Raises:
        ConfigError: it can't be read, is too large, or is no UTF-8.
    """
    source = shown_name(name)
    most_bytes = most_mib * 1024 * 1024
    try:
        data = _bytes(name, most_bytes + 1)
        if len(data) > most_bytes:
            expected = f"at most {most_mib} MiB"
            raise ConfigError(Problem(source, None, None, "a larger file", expected))
        return data.decode("utf-8-sig")  # spreadsheets write a byte order mark
    except (ValueError, OSError) as error:  # also a name with a NUL, or with half a character
        raise ConfigError(Problem(source, None, None, None, unreadable(error))) from None


def unreadable(error: ValueError | OSError) -> str:
    """Return why a file can't be read, worded to follow its name."""
    match error:
        case UnicodeDecodeError():
            return (
                f"not UTF-8 text (byte 0x{error.object[error.start]:02x} at offset {error.start})"
            )
        case FileNotFoundError():
            return "no such file"
        case IsADirectoryError():
            return "is a folder, expected a file"
        case PermissionError():
            return "permission denied"
        case OSError(strerror=str(text)):
            return f"can't be read: {text.lower()}"
        case _:
            return f"can't be read: {str(error).lower()}"


def _bytes(name: str, most: int) -> bytes:
    if name == STDIN:
        return sys.stdin.buffer.read(most)
    with Path(name).open("rb") as file:
        return file.read(most)
