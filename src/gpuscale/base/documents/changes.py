"""Setting fields of a document without editing its file."""

from collections.abc import Mapping, Sequence

from gpuscale.base.documents.documents import Document, Path, dotted, load_documents, parts_of
from gpuscale.base.errors import UsageError

MAX_BYTES = 65_536
"""Of one value."""


def with_values(document: Document, settings: Sequence[str], option: str) -> Document:
    """Return a document with some fields set; a new field gets its nearest parent's line.

    Args:
        document: stays as it is.
        settings: each `PATH=VALUE`, as in `spec.workloads[0].load.rate=20`; values are YAML.
        option: what errors call them.

    Raises:
        UsageError: no such form, or a path that leads through something that has no fields.
        ConfigError: a value is not YAML.
    """
    data = document.data
    for setting in settings:
        field, equals, text = setting.partition("=")
        path = parts_of(field.strip())
        if not equals or not path or dotted(path) != field.strip():
            expected = "PATH=VALUE, such as spec.workloads[0].load.rate=20"
            raise UsageError(f"{option}: found {setting!r}, expected {expected}")
        data = _with(data, path, 0, _value(text, f"{option} {field.strip()}"), option)
    return Document(document.source, document.index, data, document.lines)


def _value(text: str, source: str) -> object:
    if len(text.encode()) > MAX_BYTES:
        raise UsageError(f"{source}: found more than {MAX_BYTES} bytes")
    documents = load_documents(text, source)
    if len(documents) > 1:
        raise UsageError(f"{source}: found {len(documents)} YAML documents, expected one value")
    return documents[0].data if documents else None


def _with(data: object, path: Path, depth: int, value: object, option: str) -> object:
    """Return data with a value at `path[depth:]`; missing mappings are created."""
    if depth == len(path):
        return value
    part, here = path[depth], dotted(path[:depth]) or "the document"
    if isinstance(part, int):
        if not isinstance(data, list) or part >= len(data):
            there = f"{len(data)} items" if isinstance(data, list) else "no list"
            raise UsageError(f"{option} {dotted(path)}: found {there} in {here}")
        items = list(data)
        items[part] = _with(items[part], path, depth + 1, value, option)
        return items
    if data is not None and not isinstance(data, Mapping):
        raise UsageError(
            f"{option} {dotted(path)}: found no fields in {here}, which is {data!r:.40}"
        )
    fields = dict(data or {})
    fields[part] = _with(fields.get(part), path, depth + 1, value, option)
    return fields
