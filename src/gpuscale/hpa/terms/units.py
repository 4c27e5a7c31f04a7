"""A metric's unit, and whether its target is in another one.

`lint`, `doctor`, `decide` and values files ask here. A target is doubted only where another unit of the same
kind makes sense of it: 600m of a percentage is 60 % as a ratio, and 120 of a percentage is left alone.

Source: the tables of what node agents and exporters serve (`series_facts`); Prometheus' naming conventions
    for other names.
"""

import math
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

from gpuscale.base.objects.hpa import (
    ContainerResourceMetric,
    ExternalMetric,
    MetricSpec,
    ObjectMetric,
    ResourceMetric,
    TargetType,
)
from gpuscale.base.quantity import Format, Quantity
from gpuscale.series.promql import Node, Query, metric_names, tree
from gpuscale.signals import facts_of, recorded_from

Dimension = Literal["share", "memory", "power", "temperature", "frequency"]


@dataclass(frozen=True, slots=True)
class Unit:
    """A unit with its range of plausible targets."""

    name: str
    dimension: Dimension
    scale: float
    """How many of the dimension's base unit one of it is."""
    low: float = 0.0
    high: float = math.inf
    words: str = ""
    """Of a metric: what it is."""


_KIB = 1024.0
_UNITS = (
    Unit("%", "share", 0.01, 1, math.inf, "a percentage, 0 to 100"),
    Unit("ratio", "share", 1.0, 0.001, 1, "a ratio, 0 to 1"),
    # A process that has merely opened a GPU takes about 100 MiB of it.
    Unit("MiB", "memory", _KIB**2, 100, 2**24, "in MiB"),
    Unit("GiB", "memory", _KIB**3, 0.1, 2**14, "in GiB"),
    Unit("bytes", "memory", 1.0, 100 * _KIB**2, 2.0**44, "in bytes"),
    Unit("W", "power", 1.0, 1, 30_000, "in watts"),
    Unit("kW", "power", 1000.0, 0.001, 30, "in kilowatts"),
    Unit("mW", "power", 0.001, 30_000, 3e7, "in milliwatts"),
    Unit("°C", "temperature", 1.0, 1, 150, "in °C"),
    Unit("m°C", "temperature", 0.001, 1000, 150_000, "in thousandths of °C"),
    Unit("MHz", "frequency", 1e6, 10, 100_000, "in MHz"),
    Unit("GHz", "frequency", 1e9, 0.01, 100, "in GHz"),
    Unit("Hz", "frequency", 1.0, 1e7, 1e11, "in hertz"),
)
UNITS = MappingProxyType({unit.name: unit for unit in _UNITS})
"""Every unit that targets are judged in, by its name in `signals.fields`; the likelier of a kind first."""
_ANY_BYTES = Unit("bytes", "memory", 1.0, _KIB, math.inf, "in bytes")
"""Of a metric that need not be a GPU's memory, such as what waits in a queue."""
_ENDINGS = MappingProxyType(
    {
        "_ratio": UNITS["ratio"],
        "_percent": UNITS["%"],
        "_percentage": UNITS["%"],
        "_bytes": _ANY_BYTES,
        "_watts": UNITS["W"],
        "_celsius": UNITS["°C"],
        "_hertz": UNITS["Hz"],
    }
)
_KEEPS_UNIT = frozenset({"avg", "min", "max", "quantile", "topk", "bottomk", "limitk", "sum"})
_CALLS_KEEPING_UNIT = frozenset(
    {
        *("abs", "ceil", "floor", "round", "sort", "sort_desc", "label_replace", "label_join"),
        *("avg_over_time", "min_over_time", "max_over_time", "last_over_time", "delta"),
        *("clamp", "clamp_max", "clamp_min", "scalar"),
    }
)


@dataclass(frozen=True, slots=True)
class MetricUnit:
    """A metric's unit, and where it is known from."""

    unit: Unit
    is_certain: bool = True
    """Whether it is in a table of ours; otherwise the metric's name says so."""
    is_sum: bool = False
    """Whether it is a sum, so that a share can be more than all of one GPU."""


@dataclass(frozen=True, slots=True)
class UnitFault:
    """A target that is probably in another unit than its metric."""

    metric: str
    unit: MetricUnit
    target: Quantity
    meant_unit: Unit
    """The unit in which the target makes sense."""

    @property
    def is_certain(self) -> bool:
        return self.unit.is_certain

    @property
    def meant(self) -> Quantity:
        """Return the target that was probably meant, in the metric's unit."""
        factor = self.meant_unit.scale / self.unit.unit.scale
        form = Format.BINARY_SI if self.unit.unit.name == "bytes" else Format.DECIMAL_SI
        value = float(self.target) * factor
        digits = 0 if value >= 100 else 3
        return Quantity(round(round(value, digits) * 1000) * 1_000_000, form)

    @property
    def what(self) -> str:
        """Return what is wrong, in one sentence."""
        unit, value = self.unit.unit, float(self.target)
        shown = f"{value * 100:g} %" if unit.name == "ratio" else f"{value:.12g} {unit.name}"
        return f"The target {self.target} is {shown}: {self.metric} is {unit.words}."

    def fix(self, *, as_number: bool = False) -> str:
        """Return what to do, in one sentence.

        Args:
            as_number: whether the target is written as a plain number, as KEDA's thresholds are.
        """
        write = f"{float(self.meant):.12g}" if as_number else str(self.meant)
        if self.meant_unit.dimension == "share":
            share = float(self.target) * self.meant_unit.scale * 100
            return f"Write {write}, if {share:g} % is meant."
        if self.meant_unit.name == "bytes":
            return f"Write {write}, if {self.target} of memory is meant."
        return f"Write {write}, if {float(self.target):.12g} {self.meant_unit.name} is meant."


def unit_of(name: str) -> MetricUnit | None:
    """Return the unit of a series or metric by name; None if unknown or not checked."""
    recorded = recorded_from(name)
    facts = facts_of(name) or (facts_of(recorded) if recorded else None)
    if facts is not None:
        unit = UNITS.get(facts.unit)
        is_sum = recorded is not None and name.upper().endswith("_SUM")
        return None if unit is None else MetricUnit(unit, is_sum=is_sum)
    for ending, unit in _ENDINGS.items():
        if name.lower().endswith(ending):
            return MetricUnit(unit, is_certain=False)
    return None


def unit_of_query(node: Node) -> MetricUnit | None:
    """Return the unit of a query's result, from its series and operations."""
    found = _unit_of(node)
    return found if found is not None and found.unit.name else None


def _unit_of(node: Node) -> MetricUnit | None:
    match node:
        case tree.Select():
            name = next(iter(metric_names(Query("", node)) or ()), None)
            return unit_of(name) if name else None
        case tree.SelectRange():
            return _unit_of(node.selector)
        case tree.Subquery() | tree.Negate():
            return _unit_of(node.expression)
        case tree.Aggregate() if node.operator in _KEEPS_UNIT:
            inside = _unit_of(node.expression)
            if inside is None or node.operator != "sum":
                return inside
            return MetricUnit(inside.unit, inside.is_certain, is_sum=True)
        case tree.Call() if node.function in _CALLS_KEEPING_UNIT:
            return _unit_of(node.arguments[0])
        case tree.Binary():
            return _unit_of_binary(node)
        case _:
            return None


def _unit_of_binary(node: tree.Binary) -> MetricUnit | None:
    left, right = _unit_of(node.left), _unit_of(node.right)
    match node.operator, node.left, node.right:
        case "*", _, tree.Number(value=factor):
            return _scaled(left, 1 / factor) if factor > 0 else None
        case "*", tree.Number(value=factor), _:
            return _scaled(right, 1 / factor) if factor > 0 else None
        case "/", _, tree.Number(value=factor):
            return _scaled(left, factor) if factor > 0 else None
        case "/", _, _:
            return _quotient(left, right)
        case "*", _, _:
            return None
        case (("+" | "-"), _, _):
            return left if right is None or left == right else None
        case (("and" | "or" | "unless" | "<" | ">" | "<=" | ">=" | "==" | "!="), _, _):
            return None if node.return_bool else left
        case _:
            return None


def _quotient(left: MetricUnit | None, right: MetricUnit | None) -> MetricUnit | None:
    if left is None or right is None or left.unit.dimension != right.unit.dimension:
        return None
    # Usage divided by requests can be well above 1.
    ratio = MetricUnit(UNITS["ratio"], is_certain=False)
    return _scaled(ratio, left.unit.scale / right.unit.scale)


def _scaled(known: MetricUnit | None, factor: float) -> MetricUnit | None:
    """Return the unit that is `factor` times as large; it may be an intermediate one without a name."""
    if known is None:
        return None
    dimension, scale = known.unit.dimension, known.unit.scale * factor
    named = (u for u in _UNITS if u.dimension == dimension and math.isclose(u.scale, scale))
    unit = next(named, Unit("", dimension, scale))
    return MetricUnit(unit, known.is_certain, known.is_sum)


def unit_fault(metric: str, target: Quantity, unit: MetricUnit | None = None) -> UnitFault | None:
    """Return the fault of a target's unit; None if it has none, or the unit is unknown.

    Args:
        metric: name of the metric or the series, for the words and, without `unit`, to find the unit by.
        target: the value that the metric is compared with.
        unit: where more is known than the name says, such as the query behind the metric.
    """
    known = unit or unit_of(metric)
    value = float(target)
    if known is None or value <= 0:
        return None
    # A sum adds up to 1 for each GPU, of which a cluster has any number.
    high = math.inf if known.is_sum and known.unit.dimension == "share" else known.unit.high
    written_in_bytes = known.unit.name in {"MiB", "GiB"} and target.format is Format.BINARY_SI
    if known.unit.low <= value <= high and not written_in_bytes:
        return None
    for other in _UNITS:
        if other.dimension != known.unit.dimension or other.name == known.unit.name:
            continue
        meant = value * other.scale / known.unit.scale
        if other.low <= value <= other.high and known.unit.low <= meant <= high:
            return UnitFault(metric, known, target, other)
    return None


def spec_unit_fault(spec: MetricSpec, unit: MetricUnit | None = None) -> UnitFault | None:
    """Return what is wrong with the unit of an HPA's metric.

    Args:
        spec: the metric.
        unit: where more is known than the metric's name says.
    """
    target = counted_target(spec)
    if target is None:
        return None
    if isinstance(spec, ResourceMetric | ContainerResourceMetric):
        return unit_fault(spec.name, target, _MEMORY) if spec.name == "memory" else None
    return unit_fault(spec.name, target, unit)


_MEMORY = MetricUnit(Unit("bytes", "memory", 1.0, _KIB**2, math.inf, "in bytes"))


def counted_target(spec: MetricSpec) -> Quantity | None:
    """Return the target's amount that the controller uses; None for a utilization."""
    return spec.target.average_value if counts_average(spec) else spec.target.value


def counts_average(spec: MetricSpec) -> bool:
    """Return whether averageValue is used rather than value."""
    match spec:
        case ObjectMetric(target=target):
            return target.type is TargetType.AVERAGE_VALUE
        case ExternalMetric(target=target):
            return target.average_value is not None
        case _:
            return True
