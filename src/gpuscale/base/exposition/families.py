"""Metric families as data, for exporters and scrapes."""

from dataclasses import dataclass

TYPES = ("gauge", "counter", "histogram", "summary", "untyped")
"""The metric types of the text format 0.0.4."""


@dataclass(frozen=True, slots=True)
class Sample:
    """A sample of a family."""

    labels: tuple[tuple[str, str], ...]
    """In printing order."""
    value: int | float
    suffix: str = ""
    """What follows the family's name on this line, such as `_sum`, `_count` or `_bucket`."""


@dataclass(frozen=True, slots=True)
class Family:
    """A metric with its samples, type and help."""

    name: str
    type: str
    """One of `TYPES`."""
    help: str
    """Empty where there is none; the HELP line is then left out."""
    samples: tuple[Sample, ...]
