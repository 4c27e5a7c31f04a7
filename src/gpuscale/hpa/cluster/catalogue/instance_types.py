"""The catalogue of instance types, a CSV file for each cloud, and files of the same form that add to it.

Every row is a type. Prices are lists' of one region and one day, with their source; what was not found out is
empty. Fractions of a GPU are fractions: `1/6`.

Source: GPUs, CPUs and memory from karpenter-provider-aws' reference of instance types, Cluster Autoscaler's
    tables of Azure and AWS, Google's machine types, Alibaba's instance families, Oracle's compute shapes; two
    vCPUs to an x86 OCPU. Prices as each row says.
"""

import csv
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import date
from fractions import Fraction
from functools import cache
from importlib.resources import files
from types import MappingProxyType
from typing import TypeVar

from gpuscale.base.errors import ConfigError, Problem
from gpuscale.base.golang.durations import parse_duration_ms
from gpuscale.base.quantity import Quantity, parse_quantity
from gpuscale.base.words import closest

CLOUDS: Mapping[str, str] = MappingProxyType(
    {
        "aws": "Amazon EC2",
        "azure": "Microsoft Azure",
        "google": "Google Compute Engine",
        "alibaba": "Alibaba Cloud ECS",
        "oracle": "Oracle Cloud Infrastructure",
    }
)
"""The clouds that have a file here, by its name."""
_NEEDED = ("gpuModel", "gpus", "cpu", "memory")
_PRICE = ("pricePerHour", "spotPricePerHour", "currency", "region", "date", "source")
_COLUMNS = ("name", *_NEEDED, "capacityTypes", *_PRICE, "provisioningTime", "provisioningSource")
_CAPACITY_TYPES = ("on-demand", "spot", "capacity-block", "flex-start", "reserved")
_CURRENCY = re.compile(r"[A-Z]{3}")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Price:
    """What a node costs in an hour."""

    per_hour: float | None
    """On demand; None where it is not sold so, or not known."""
    spot_per_hour: float | None = None
    currency: str = "USD"
    """An ISO 4217 code."""
    region: str = ""
    date: str = ""
    """When it was read, such as 2026-07-20."""
    source: str = ""


@dataclass(frozen=True, slots=True)
class ListedType:
    """An instance type as its cloud lists it."""

    name: str
    gpu_model: str
    """As the driver names it; known models are those of `gpuscale.agent.gpu`."""
    gpus: Fraction
    cpu: Quantity
    """Of the machine; the kubelet and the system take a part of it."""
    memory: Quantity
    """Likewise."""
    capacity_types: tuple[str, ...] = ()
    price: Price = Price(None)
    provisioning_ms: int | None = None
    """From the request to a Ready node."""
    provisioning_source: str = ""

    @property
    def whole_gpus(self) -> int:
        """Return the GPUs that node autoscalers count: a part of one counts as none."""
        return int(self.gpus)


def built_in() -> Mapping[str, ListedType]:
    """Return the types of all clouds by name."""
    return {name: each for cloud in CLOUDS for name, each in types_of(cloud).items()}


@cache
def types_of(cloud: str) -> Mapping[str, ListedType]:
    """Return the types of a cloud of `CLOUDS` by name, in the order of its file."""
    text = (files("gpuscale.hpa.cluster.catalogue") / f"{cloud}.csv").read_text(encoding="utf-8")
    return MappingProxyType(parse_instance_types(text, f"{cloud}.csv", {}))


def parse_instance_types(
    text: str, source: str, known: Mapping[str, ListedType] | None = None
) -> dict[str, ListedType]:
    """Return known types with those of a CSV file added or changed.

    A row of a known type changes what it states; the row of another states GPUs, CPU and memory.

    Args:
        text: of the file; its first line names the columns.
        source: what messages call it.
        known: the types by name; None for the built-in ones.

    Raises:
        ConfigError: with every fault.
    """
    types = dict(built_in() if known is None else known)
    rows = csv.reader(text.splitlines(), strict=True)
    problems: list[Problem] = []
    seen: set[str] = set()
    try:
        header = [each.strip() for each in next(rows, [])]
        problems += _header_faults(header, source)
        if not problems:
            for cells in rows:
                if not cells or cells[0].lstrip().startswith("#"):
                    continue
                row = _Row(source, rows.line_num, header, cells)
                name = row.cells.get("name", "")
                if name in seen:
                    row.fault("name", "each type once", repr(name))
                seen.add(name)
                found = row.instance_type(types.get(name))
                if found is not None:
                    types[name] = found
                problems += row.problems
    except csv.Error as error:
        problems.append(Problem(source, rows.line_num, None, str(error), "a line of a CSV file"))
    if problems:
        raise ConfigError(*problems)
    return types


def _header_faults(header: list[str], source: str) -> Iterator[Problem]:
    if "name" not in header:
        expected = f"a first line with columns, such as {','.join(('name', *_NEEDED))},pricePerHour"
        yield Problem(source, 1, None, repr(",".join(header)), expected)
        return
    for index, each in enumerate(header):
        if each not in _COLUMNS:
            near = closest(each, _COLUMNS)
            meant = f"; did you mean {near}?" if near else ""
            yield Problem(source, 1, each, None, f"one of the columns {', '.join(_COLUMNS)}{meant}")
        elif each in header[:index]:
            yield Problem(source, 1, each, "the column twice", "each column once")


class _Row:
    """A row of the file, and the faults in it."""

    def __init__(self, source: str, line: int, header: list[str], cells: list[str]) -> None:
        self.problems: list[Problem] = []
        self.cells = {key: cell.strip() for key, cell in zip(header, cells, strict=False)}
        self._source = source
        self._line = line
        if len(cells) != len(header):
            self.fault(None, f"{len(header)}, as the first line has", f"{len(cells)} cells")

    def fault(self, column: str | None, expected: str, found: str, fix: str | None = None) -> None:
        self.problems.append(Problem(self._source, self._line, column, found, expected, fix))

    def instance_type(self, known: ListedType | None) -> ListedType | None:
        """Return the row's type, with the known one's values where cells are empty; None after a fault."""
        name = self.cells.get("name", "")
        if not name:
            self.fault("name", "the name of an instance type", "an empty cell")
        missing = [each for each in _NEEDED if not self.cells.get(each)]
        if name and known is None and missing:
            self.fault(
                None,
                f"{', '.join(missing)} too: the type is not in the catalogue",
                repr(name),
                "a row such as m9.xlarge,NVIDIA L4,1,4,16Gi describes a type",
            )
        old = known or ListedType(name, "", Fraction(0), Quantity(0), Quantity(0))
        price = Price(
            self._value("pricePerHour", _amount, old.price.per_hour),
            self._value("spotPricePerHour", _amount, old.price.spot_per_hour),
            self._value("currency", _currency, old.price.currency),
            self._value("region", str, old.price.region),
            self._value("date", _day, old.price.date),
            self._value("source", str, old.price.source),
        )
        is_other = price.currency != old.price.currency and old.price.per_hour is not None
        if is_other and not self.cells.get("pricePerHour"):
            self.fault("currency", "a price in it too", repr(price.currency))
        if price.per_hour != old.price.per_hour and known is not None:
            # Where and when the old price was read says nothing about the new one.
            region, day, origin = (
                self.cells.get(each, "") for each in ("region", "date", "source")
            )
            price = replace(price, region=region, date=day, source=origin)
        found = replace(
            old,
            gpu_model=self._value("gpuModel", str, old.gpu_model),
            gpus=self._value("gpus", _gpus, old.gpus),
            cpu=self._value("cpu", _capacity, old.cpu),
            memory=self._value("memory", _capacity, old.memory),
            capacity_types=self._value("capacityTypes", _capacity_types, old.capacity_types),
            price=price,
            provisioning_ms=self._value("provisioningTime", parse_duration_ms, old.provisioning_ms),
            provisioning_source=self._value("provisioningSource", str, old.provisioning_source),
        )
        return None if self.problems else found

    def _value(self, column: str, read: Callable[[str], T], default: T) -> T:
        cell = self.cells.get(column)
        if not cell:
            return default
        try:
            return read(cell)
        except ValueError as error:
            self.fault(column, str(error), repr(cell))
            return default


def _gpus(cell: str) -> Fraction:
    if not re.fullmatch(r"\d{1,4}(/\d{1,4})?", cell):
        raise ValueError("a number of GPUs, or a part of one such as 1/6")
    top, _, bottom = cell.partition("/")
    if int(top) == 0 or bottom.strip("0") == "" != bottom:
        raise ValueError("more than 0 GPUs")
    return Fraction(cell)


def _capacity(cell: str) -> Quantity:
    try:
        found = parse_quantity(cell)
    except ValueError:
        found = Quantity(0)
    if found.nano <= 0:
        raise ValueError("an amount above 0, such as 8 or 64Gi")
    return found


def _amount(cell: str) -> float:
    if not re.fullmatch(r"\d{1,7}(\.\d{1,9})?", cell):
        raise ValueError("a price such as 0.8048")
    return float(cell)


def _currency(cell: str) -> str:
    if not _CURRENCY.fullmatch(cell):
        raise ValueError("an ISO 4217 code such as USD")
    return cell


def _day(cell: str) -> str:
    try:
        return date.fromisoformat(cell).isoformat()
    except ValueError:
        raise ValueError("a day such as 2026-07-20") from None


def _capacity_types(cell: str) -> tuple[str, ...]:
    given = tuple(cell.split())
    if not set(given) <= set(_CAPACITY_TYPES):
        raise ValueError(f"some of {', '.join(_CAPACITY_TYPES)}, with blanks between")
    return given
