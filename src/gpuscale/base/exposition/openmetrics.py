"""Metric families to OpenMetrics text 1.0.

A counter there is called `x_total` by rule, and a scraper that asked for OpenMetrics stores the name that
it gets. So a counter of another name, which every DCGM counter is, is written as `unknown`: its series
keeps the name that dashboards and rules know.

Source: OpenMetrics 1.0 (prometheus/OpenMetrics, specification/OpenMetrics.md, "Text format").
"""

from collections.abc import Callable, Iterable

from gpuscale.base.exposition.families import Family
from gpuscale.base.exposition.write import render_text

CONTENT_TYPE = "application/openmetrics-text; version=1.0.0; charset=utf-8"
"""The Content-Type header of an answer that carries this format."""

UNITS = ("seconds", "bytes", "ratio", "celsius", "watts", "joules", "hertz", "volts", "amperes")
"""Units that a name may end with and that then get a UNIT line."""

_TOTAL = "_total"
_END = "# EOF\n"
_HELP_ESCAPES = str.maketrans({"\\": "\\\\", "\n": "\\n", '"': '\\"'})
_PLAIN_TYPES = {"untyped": "unknown"}


def render_openmetrics(
    families: Iterable[Family], *, float_text: Callable[[float], str] | None = None
) -> str:
    """Return the exposition of the families, in their order.

    Args:
        families: each name at most once.
        float_text: how floats are printed; `shortest` unless given. Ints always print plain.
    """
    known = tuple(families)
    names = {family.name for family in known}
    lines: list[str] = []
    for family in known:
        name, type_ = _name_and_type(family, names)
        lines.extend(_header(name, type_, family.help))
        lines.append(_sample_lines(family, float_text))
    lines.append(_END)
    return "".join(lines)


def _name_and_type(family: Family, names: set[str]) -> tuple[str, str]:
    """Return the name and type for the family's header; samples keep their names."""
    if family.type != "counter":
        return family.name, _PLAIN_TYPES.get(family.type, family.type)
    base = family.name.removesuffix(_TOTAL)
    if base and base != family.name and base not in names:
        return base, "counter"
    return family.name, "unknown"


def _header(name: str, type_: str, help_: str) -> list[str]:
    lines = [f"# TYPE {name} {type_}\n"]
    unit = name.rpartition("_")[2]
    if unit in UNITS and unit != name:
        lines.append(f"# UNIT {name} {unit}\n")
    if help_:
        lines.append(f"# HELP {name} {help_.translate(_HELP_ESCAPES)}\n")
    return lines


def _sample_lines(family: Family, float_text: Callable[[float], str] | None) -> str:
    """Return the lines with values, which are those of the older text format."""
    bare = Family(family.name, family.type, "", family.samples)
    return render_text((bare,), float_text=float_text).partition("\n")[2]
