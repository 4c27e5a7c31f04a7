"""What a combined metric is made of: the parts of each object, and which of them is fullest or missing."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from gpuscale.base.errors import GpuscaleError
from gpuscale.base.golang.template import Template
from gpuscale.series import Scalar, Value, Vector
from gpuscale.server.metricsapi.why.series import SeriesLook
from gpuscale.server.rules.combined import Part
from gpuscale.server.rules.config import AdapterRule

_SHOWN = 20
"""Objects whose parts are shown."""


@dataclass(frozen=True, slots=True)
class SeenPart:
    """The values of one part of a combined metric, by object."""

    part: Part
    values: dict[str, float]
    fault: str = ""
    """Why there are none at all; empty where it was answered."""


async def seen_parts(
    look: SeriesLook, rule: AdapterRule, query_of: Callable[[Template], str], label: str
) -> tuple[SeenPart, ...]:
    """Return the values of each part of a combined metric; none for a plain rule.

    Args:
        look: asks the source.
        rule: of the metric.
        query_of: makes the query of the request from a template.
        label: whose values are the names of objects; empty where rows are of no objects.
    """
    found = []
    for part in rule.parts:
        try:
            value = await look.value(query_of(part.query))
        except GpuscaleError as error:
            found.append(SeenPart(part, {}, str(error).partition("\n")[0]))
        else:
            found.append(SeenPart(part, _by_object(value, label)))
    return tuple(found)


def part_lines(seen: Sequence[SeenPart], names: Sequence[str]) -> tuple[str, ...]:
    """Return a line about the parts of each object, objects that lack a part first.

    Args:
        seen: the parts; none give no lines.
        names: of the objects; an empty name is all rows together.
    """
    if not seen:
        return ()
    lines = [f"{each.part.name} is unknown: {each.fault}" for each in seen if each.fault]
    ordered = sorted(names, key=lambda name: not _missing(seen, name))
    lines += [_line(seen, name) for name in ordered[:_SHOWN]]
    if len(ordered) > _SHOWN:
        lines.append(f"and {len(ordered) - _SHOWN} more")
    return tuple(lines)


def missing_text(seen: Sequence[SeenPart], names: Sequence[str]) -> str:
    """Return which missing parts leave a metric without value; empty if that isn't the reason."""
    lacking = [name for name in names if any(name in each.values for each in seen)]
    if not lacking or not all(_missing(seen, name) for name in lacking):
        return ""
    missing = dict.fromkeys(each for name in lacking for each in _missing(seen, name))
    return f"No object has all parts: {', '.join(missing)} has no value"


def _line(seen: Sequence[SeenPart], name: str) -> str:
    of = f"{name}: " if name else ""
    shares = {
        each.part.name: each.values[name] / each.part.threshold
        for each in seen
        if math.isfinite(each.values.get(name, math.nan))
    }
    texts = [
        f"{each.part.name} {each.values[name]:.6g} of {each.part.threshold:.6g}, "
        f"{shares[each.part.name]:.4g} full"
        for each in seen
        if each.part.name in shares
    ]
    missing = _missing(seen, name)
    if missing:
        texts.append(f"no value of {', '.join(missing)}")
        return f"{of}{'; '.join(texts)}: so none of the whole"
    return f"{of}{'; '.join(texts)}: {max(shares, key=lambda part: shares[part])} counts"


def _missing(seen: Sequence[SeenPart], name: str) -> list[str]:
    return [each.part.name for each in seen if not math.isfinite(each.values.get(name, math.nan))]


def _by_object(value: Value, label: str) -> dict[str, float]:
    if isinstance(value, Scalar):
        return {"": value.value}
    found: dict[str, float] = {}
    for row in value.samples if isinstance(value, Vector) else ():
        name = row.labels.get(label, "") if label else ""
        before = found.get(name, math.nan)
        found[name] = row.value if math.isnan(before) else max(before, row.value)
    return found
