"""Editing values in a YAML text without losing comments, order or quotation marks.

A change is made on the line of its key, and then the whole text is read again: it has to say what it said
before, and the changes. What can't be changed so, such as a value behind an alias, is refused.
"""

import copy
import re
from collections.abc import Mapping, Sequence
from typing import Any

from gpuscale.base.documents.documents import Document, Path, load_documents
from gpuscale.base.errors import ConfigError

Value = str | int | Sequence[Mapping[str, str | int]]
"""A list may be added only, where there was none."""
_STEP = "  "


def with_values(text: str, source: str, index: int, changes: Mapping[Path, Value]) -> str:
    """Return the text with values replaced or added.

    Args:
        text: of the file, YAML or JSON.
        source: its name, for messages.
        index: of the document in it.
        changes: the values by their paths; parents that are missing are made, as mappings.

    Raises:
        ConfigError: not YAML, or a value that stands so that it can't be changed; with its line.
    """
    expected = [copy.deepcopy(each.data) for each in load_documents(text, source)]
    for path, value in changes.items():
        document = load_documents(text, source)[index]
        edited = text
        try:
            edited = _replaced(text, document, path, value)
            found = [each.data for each in load_documents(edited, source)]
            # A number without quotation marks is read as a number, whatever type was given.
            is_written = str(_at(found[index], path)) == str(value)
            _put(expected[index], path, _at(found[index], path))
            is_right = is_written and found == expected
        except (ConfigError, LookupError, TypeError):  # invalid YAML, or the parent is missing
            is_right = False
        if not is_right:
            fix = f"set {path[-1]} to {value} by hand"
            raise ConfigError(
                document.problem(path, "a value that stands on its key's line", fix=fix)
            )
        text = edited
    return text


def _put(data: Any, path: Path, value: object) -> None:  # noqa: ANN401 - plain data of a document
    for part in path[:-1]:
        data = data.setdefault(part, {}) if isinstance(data, dict) else data[part]
    data[path[-1]] = value


def _replaced(text: str, document: Document, path: Path, value: Value) -> str:
    lines = text.splitlines(keepends=True)
    if path not in document.lines:
        return _added(lines, document, path, value)
    if not isinstance(value, str | int):
        raise TypeError("a list is not put in place of another")
    at = document.lines[path] - 1
    key = re.escape(str(path[-1]))
    pattern = re.compile(
        rf"""(?P<key>(?<![\w.-])(["']?){key}\2\s*:\s*)"""
        r"""(?P<value>"[^"]*"|'[^']*'|[^\s,}\]#"'][^,}\]#\r\n]*?)(?=\s*(?:[,}\]#]|$))"""
    )

    def new(found: re.Match[str]) -> str:
        quote = found["value"][0] if found["value"][0] in "\"'" else ""
        return f"{found['key']}{quote}{value}{quote}"

    lines[at] = pattern.sub(new, lines[at], count=1)
    return "".join(lines)


def _added(lines: list[str], document: Document, path: Path, value: Value) -> str:
    """Return the text with a new key, and its missing parents."""
    length = next(size for size in range(len(path) - 1, -1, -1) if path[:size] in document.lines)
    parent, missing = path[:length], path[length:]
    children = [each for each in document.lines if each[:-1] == parent and len(each) == length + 1]
    first = document.lines[children[0]] - 1
    if children and first == document.lines.get(parent, 0) - 1:
        inside = "".join(f"{key}: {{" for key in missing[:-1])
        added = f"{inside}{missing[-1]}: {_flow(value)}{'}' * (len(missing) - 1)}, "
        lines[first] = _behind_brace(lines[first], str(parent[-1]), added)
        return "".join(lines)
    plain = [each for each in children if not isinstance(_at(document.data, each), dict | list)]
    place = document.lines[plain[-1]] if plain else first
    beside = lines[place - 1] if plain else lines[first]
    indent = beside[: len(beside) - len(beside.lstrip(" "))]
    ending = "\r\n" if beside.endswith("\r\n") else "\n"
    if place and not lines[place - 1].endswith("\n"):
        lines[place - 1] += ending
    texts = [f"{key}:" for key in missing[:-1]] + [f"{missing[-1]}: {_flow(value)}"]
    lines[place:place] = [f"{indent}{_STEP * at}{each}{ending}" for at, each in enumerate(texts)]
    return "".join(lines)


def _flow(value: Value) -> str:
    """Return a value in YAML's one-line form."""
    if isinstance(value, str | int):
        return str(value)
    items = (", ".join(f"{key}: {each}" for key, each in item.items()) for item in value)
    return f"[{', '.join(f'{{{item}}}' for item in items)}]"


def _behind_brace(line: str, key: str, added: str) -> str:
    return re.sub(
        rf"({re.escape(key)}\s*:\s*\{{\s*)", lambda found: found[1] + added, line, count=1
    )


def _at(data: Any, path: Path) -> object:  # noqa: ANN401 - plain data of a document
    for part in path:
        data = data[part]
    return data
