"""The options that objects depend on, as template conditions and as changes of the marked values."""

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from gpuscale.install.chart.fold import Combination, Dimension
from gpuscale.install.chart.placeholders import V, mark, marked_values
from gpuscale.install.values import Values


@dataclass(frozen=True, slots=True)
class Option:
    """A field of the values file whose value decides what is rendered."""

    path: tuple[str, ...]
    """Field names in Python, below `spec`."""
    values: tuple[Any, ...]
    dimension: Dimension


def _expression(path: tuple[str, ...]) -> str:
    first, *rest = path
    start = f"{V}.spec.{_camel(first)}"
    return ".".join([start, *map(_camel, rest)])


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


def _switch(*path: str) -> Option:
    return _either(path, f"{_expression(path)}", values=(True, False))


def _given(path: tuple[str, ...], value: object, nothing: object = None) -> Option:
    return _either(path, _expression(path), values=(value, nothing))


def _either(path: tuple[str, ...], condition: str, values: tuple[Any, ...]) -> Option:
    return Option(path, values, Dimension(_expression(path), (condition, f"not {condition}")))


AGENT = _switch("agent", "enabled")
API = _switch("metrics_api", "enabled")
EXTERNAL_NAME = _given(("metrics_api", "external_name"), "xqexternalqx")
HONOR = _switch("prometheus", "honor_labels")
DASHBOARDS = _switch("dashboards", "enabled")
DASHBOARD_NAMESPACE = _given(("dashboards", "namespace"), mark("dashboards"))


def combinations(options: tuple[Option, ...]) -> Iterator[tuple[Combination, Values]]:
    """Yield marked values for every combination of some options."""
    base = marked_values()
    for indices in itertools.product(*(range(len(option.values)) for option in options)):
        values = base
        for option, index in zip(options, indices, strict=True):
            values = _changed(values, option.path, option.values[index])
        yield indices, values


def _changed(values: Values, path: tuple[str, ...], value: Any) -> Values:  # noqa: ANN401 - of any field
    spec = values.spec
    spec = _deep(spec, path, value)
    return values.model_copy(update={"spec": spec})


def _deep(model: Any, path: tuple[str, ...], value: object) -> Any:  # noqa: ANN401 - models of any part
    first, *rest = path
    inner = _deep(getattr(model, first), tuple(rest), value) if rest else value
    update: Mapping[str, Any] = {first: inner}
    return model.model_copy(update=update)
