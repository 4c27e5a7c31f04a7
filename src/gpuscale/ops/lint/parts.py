"""Parts of documents of any kind, read without judging their types."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from gpuscale.base.documents.documents import Document, Path, dotted
from gpuscale.ops.lint.findings import Place


@dataclass(frozen=True, slots=True)
class Part:
    """A value in a document, and where it is."""

    document: Document
    path: Path
    data: object

    def at(self, *keys: str | int) -> "Part":
        """Return the value below; one that is not there has the data None."""
        data = self.data
        for key in keys:
            if isinstance(data, dict):
                data = data.get(key)
            elif isinstance(data, list) and isinstance(key, int) and key < len(data):
                data = data[key]
            else:
                data = None
        return Part(self.document, (*self.path, *keys), data)

    def items(self, *keys: str | int) -> Iterator["Part"]:
        """Yield the items of a list below."""
        listed = self.at(*keys)
        if isinstance(listed.data, list):
            yield from (listed.at(index) for index in range(len(listed.data)))

    def fields(self, *keys: str | int) -> Mapping[str, object]:
        """Return a mapping below; an empty one where there is none."""
        data = self.at(*keys).data
        return data if isinstance(data, dict) else {}

    def text(self, *keys: str | int) -> str:
        """Return a text or number below as text; empty where there is none."""
        data = self.at(*keys).data
        is_plain = isinstance(data, str | int | float) and not isinstance(data, bool)
        return str(data) if is_plain else ""

    def texts(self, *keys: str | int) -> tuple[str, ...]:
        """Return the texts of a list below."""
        return tuple(each.text() for each in self.items(*keys))

    def whole(self, *keys: str | int) -> int | None:
        """Return a whole number below, as which 3.0 counts too; None where there is none."""
        data = self.at(*keys).data
        if isinstance(data, float) and data.is_integer():
            return int(data)
        return data if isinstance(data, int) and not isinstance(data, bool) else None

    def place(self, *keys: str | int) -> Place:
        """Return the place of a value below."""
        return place_in(self.document, (*self.path, *keys))


def place_in(document: Document, path: Path) -> Place:
    """Return the place of a field in a document."""
    return Place(document.source, document.line(path), dotted(document.written(path)) or None)


def whole_document(document: Document) -> Part:
    """Return a document as a part."""
    return Part(document, (), document.data)
