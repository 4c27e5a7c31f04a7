"""Typed reading of a manifest's fields, collecting every fault instead of stopping at the first.

Manifests are Kubernetes' own format: fields that gpuscale does not use are passed over, as a client of
an older API server would.
"""

from collections.abc import Iterator
from datetime import UTC, datetime

from gpuscale.base.documents.documents import Document, Path
from gpuscale.base.errors import ConfigError, Problem
from gpuscale.base.golang.durations import parse_duration_ms
from gpuscale.base.objects.selectors import Selector, selector_of_expressions, selector_of_labels
from gpuscale.base.quantity import Quantity, parse_quantity

QUANTITY = "a quantity such as 20, 500m or 1Gi"
"""What is expected where a quantity is due."""


class Fields:
    """A mapping inside a document, read field by field.

    A field of the wrong type is noted and read as its default; `finish` raises all that was noted.
    """

    def __init__(
        self,
        document: Document,
        data: object,
        path: Path = (),
        problems: list[Problem] | None = None,
    ) -> None:
        self.document = document
        self.path = path
        self.problems: list[Problem] = [] if problems is None else problems
        self.data: dict[str, object] = data if isinstance(data, dict) else {}
        if data is not None and not isinstance(data, dict):
            self.note((), "a mapping", found=shown(data))

    def __contains__(self, key: str) -> bool:
        return self.data.get(key) is not None

    def note(
        self, path: Path, expected: str, *, found: str | None = None, fix: str | None = None
    ) -> None:
        """Record a fault at `path` below this mapping."""
        self.problems.append(
            self.document.problem((*self.path, *path), expected, found=found, fix=fix)
        )

    def finish(self) -> None:
        """Raise the recorded faults.

        Raises:
            ConfigError: at least one field was wrong.
        """
        if self.problems:
            raise ConfigError(*self.problems)

    def text(self, key: str, default: str = "", *, required: bool = False) -> str:
        """Return a string field; a number or a truth value there is a fault, as for the API server."""
        value = self.data.get(key)
        if value is None or value == "":
            if required:
                self.note((key,), "this field is required")
            return default
        return self._as_text((key,), value, default)

    def integer(self, key: str, default: int | None = None) -> int | None:
        """Return a whole-number field; 3.0 is one too, as for the API server."""
        value = self.data.get(key)
        if value is None:
            return default
        if isinstance(value, float) and value.is_integer():
            return int(value)
        if isinstance(value, int) and not isinstance(value, bool):
            return value
        self.note((key,), "a whole number", found=shown(value))
        return default

    def boolean(self, key: str, *, default: bool = False) -> bool:
        value = self.data.get(key)
        if value is None:
            return default
        if isinstance(value, bool):
            return value
        self.note((key,), "true or false", found=shown(value))
        return default

    def quantity(self, key: str) -> Quantity | None:
        """Return a quantity field, or None where it is not set."""
        value = self.data.get(key)
        if value is None:
            return None
        if isinstance(value, (str, int, float)) and not isinstance(value, bool):
            try:
                return parse_quantity(value)
            except ValueError:
                pass
        self.note((key,), QUANTITY, found=shown(value))
        return None

    def duration_ms(self, key: str, default: int) -> int:
        """Return a duration field in milliseconds."""
        value = self.data.get(key)
        if value is None:
            return default
        try:
            return parse_duration_ms(value)  # type: ignore[arg-type]
        except ValueError as error:
            self.note((key,), str(error))
            return default

    def time_ms(self, key: str) -> int | None:
        """Return an RFC 3339 time field in milliseconds since the epoch."""
        value = self.data.get(key)
        if value is None:
            return None
        try:
            moment = value if isinstance(value, datetime) else datetime.fromisoformat(str(value))
        except ValueError:
            self.note((key,), "a time such as 2026-01-02T03:04:05Z", found=shown(value))
            return None
        aware = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
        return int(aware.timestamp() * 1000)

    def labels(self, key: str) -> dict[str, str]:
        """Return a mapping of texts, such as labels or a node selector."""
        child = self.child(key)
        return {name: child.text(name) for name in child.data}

    def quantities(self, key: str) -> dict[str, Quantity]:
        """Return a mapping of quantities, such as resource limits."""
        child = self.child(key)
        found = {name: child.quantity(name) for name in child.data}
        return {name: quantity for name, quantity in found.items() if quantity is not None}

    def child(self, key: str, *, required: bool = False) -> "Fields":
        """Return the mapping below `key`; an empty one where it is not set."""
        value = self.data.get(key)
        if value is None and required:
            self.note((key,), "this field is required")
        return Fields(self.document, value, (*self.path, key), self.problems)

    def items(self, key: str) -> Iterator["Fields"]:
        """Return the mappings of the list below `key`."""
        for index, value in enumerate(self._list(key)):
            yield Fields(self.document, value, (*self.path, key, index), self.problems)

    def texts(self, key: str) -> tuple[str, ...]:
        """Return the list of texts below `key`."""
        result: list[str] = []
        for index, value in enumerate(self._list(key)):
            result.append(self._as_text((key, index), "" if value is None else value))
        return tuple(result)

    def _as_text(self, path: Path, value: object, default: str = "") -> str:
        if isinstance(value, str):
            return value
        if isinstance(value, dict | list):
            self.note(path, "text", found=shown(value))
            return default
        self.note(path, "text", found=shown(value), fix="put it into quotes")
        return str(value)

    def selector(self, key: str) -> Selector | None:
        """Return the LabelSelector below `key`, or None where it is not set."""
        if key not in self:
            return None
        child = self.child(key)
        labels = child.labels("matchLabels")
        expressions = tuple(
            (
                item.text("key", required=True),
                item.text("operator", required=True),
                item.texts("values"),
            )
            for item in child.items("matchExpressions")
        )
        try:
            return selector_of_expressions(labels, expressions)
        except ValueError as error:
            self.note((key, "matchExpressions"), str(error))
            return selector_of_labels(labels)

    def _list(self, key: str) -> list[object]:
        value = self.data.get(key)
        if value is None:
            return []
        if isinstance(value, list):
            return value
        self.note((key,), "a list", found=shown(value))
        return []


def shown(value: object) -> str:
    """Return a value as a complaint quotes it, however long."""
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, list):
        return "a list"
    if value is None:
        return "nothing"
    return repr(value)
