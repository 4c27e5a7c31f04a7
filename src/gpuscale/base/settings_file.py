"""The file with a server's settings: YAML whose keys are those of its flags.

    prometheus:
      url: http://prometheus.monitoring:9090
      timeout: 10s
    streams:
      scrape: [http://127.0.0.1:8000, http://127.0.0.1:8001]

A value means what the flag with the same text means, so that there is one set of rules for both.
"""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from gpuscale.base.documents import documents
from gpuscale.base.documents.documents import Document, load_documents
from gpuscale.base.errors import ConfigError, Problem
from gpuscale.base.flags import FILE_FLAG, FileText, Flag
from gpuscale.base.objects.fields import shown
from gpuscale.base.text_files import read_text
from gpuscale.base.words import closest

_MAX_MIB = 1
_DURATION = r"^-?[0-9.]+(ns|us|µs|ms|s|m|h)([0-9.]+(ns|us|µs|ms|s|m|h))*$|^[0-9]+$"
_KINDS = {
    "text": "a text",
    "choice": "a text",
    "int": "a whole number",
    "duration": "a duration such as 30s",
    "list": "texts",
}
Note = Callable[[documents.Path, str, str], None]
"""Takes where something is wrong, what was found there, and what belongs there."""


def read_settings_file(path: Path, flags: Mapping[str, Flag]) -> dict[str, FileText]:
    """Return the flags' texts in a settings file, by name.

    Raises:
        ConfigError: it can't be read, or is not of the format; all faults are named.
    """
    found = load_documents(read_text(str(path), _MAX_MIB), str(path))
    if len(found) > 1:
        raise ConfigError(Problem(str(path), None, None, f"{len(found)} documents", "one"))
    if not found:
        return {}
    document, problems = found[0], []

    def note(path: documents.Path, found: str, expected: str) -> None:
        problems.append(document.problem(path, expected, found=found))

    texts = dict(texts_of(document.data, flags, note))
    if problems:
        raise ConfigError(*problems)
    return {name: FileText(each, _place(document, flags[name].key)) for name, each in texts.items()}


def texts_of(
    data: object, flags: Mapping[str, Flag], note: Note
) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield flag names and texts from plain data.

    Args:
        data: a mapping of panels to mappings of their keys; what has no value counts as absent.
        flags: by name.
        note: takes what is wrong.
    """
    known = _panels(flags)
    for panel, values in _mapping(data, (), note):
        if panel not in known:
            note((panel,), panel, _expected(panel, known))
            continue
        for key, value in _mapping(values, (panel,), note):
            path = (panel, key)
            if (flag_or_none := known[panel].get(key)) is None:
                note(path, key, _expected(key, known[panel]))
            elif value is not None:
                yield flag_or_none.name, tuple(_texts(flag_or_none, value, path, note))


def settings_schema(flags: Mapping[str, Flag]) -> dict[str, Any]:
    """Return a JSON schema of the data, with a description of each key."""
    panels = {
        panel: {
            "type": ["object", "null"],
            "additionalProperties": False,
            "properties": {
                key: {"description": flag.help, **_type_of(flag)} for key, flag in keys.items()
            },
        }
        for panel, keys in _panels(flags).items()
    }
    return {"type": "object", "additionalProperties": False, "properties": panels}


def _panels(flags: Mapping[str, Flag]) -> dict[str, dict[str, Flag]]:
    """Return the flags that a settings file may have, by section and key."""
    found: dict[str, dict[str, Flag]] = {}
    for flag in flags.values():
        panel, _, key = flag.key.partition(".")
        if flag.name != FILE_FLAG and not flag.no_effect:
            found.setdefault(panel, {})[key] = flag
    return found


def _type_of(flag: Flag) -> dict[str, Any]:
    if _is_list(flag):
        return {"type": ["array", "string", "null"], "items": {"type": ["string", "number"]}}
    if flag.kind == "bool":
        return {"type": ["boolean", "null"]}
    if flag.kind == "int":
        return {"type": ["integer", "null"], "minimum": 0}
    if flag.kind == "duration":
        return {"type": ["string", "integer", "null"], "pattern": _DURATION}
    if "on" in flag.choices:
        return {"type": ["string", "boolean", "null"]}
    return {"type": ["string", "number", "null"]}


def _is_list(flag: Flag) -> bool:
    return flag.repeats or flag.kind == "list"


def _mapping(data: object, path: documents.Path, note: Note) -> Iterator[tuple[str, object]]:
    if isinstance(data, dict):
        yield from data.items()
    elif data is not None:
        note(path, _shown(data), "a mapping")


def _texts(flag: Flag, value: object, path: documents.Path, note: Note) -> Iterator[str]:
    """Yield a value's texts; a list has several."""
    if not isinstance(value, list):
        yield from _text(flag, value, path, note)
        return
    if not _is_list(flag):
        note(path, "a list", "one value")
        return
    found = [
        text for index, each in enumerate(value) for text in _text(flag, each, (*path, index), note)
    ]
    yield from found if flag.repeats else [",".join(found)]


def _text(flag: Flag, value: object, path: documents.Path, note: Note) -> Iterator[str]:
    if isinstance(value, bool):
        if "on" in flag.choices:
            yield "on" if value else "off"  # YAML's spellings of true and false
        elif flag.kind == "bool":
            yield "true" if value else "false"
        else:
            note(path, _shown(value), _KINDS[flag.kind])
    elif isinstance(value, str | int | float):
        yield str(value)
    else:
        note(path, _shown(value), "a value" if not _is_list(flag) else "a value, or a list of them")


def _expected(key: str, known: Mapping[str, object]) -> str:
    meant = closest(key, known)
    return meant or f"one of {', '.join(known)}"


def _place(document: Document, key: str) -> str:
    path = tuple(key.split("."))
    return f"{document.source}:{document.line(path)}: {key}"


def _shown(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else shown(value)
