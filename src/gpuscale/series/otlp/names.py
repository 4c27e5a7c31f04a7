"""Names of OTLP metrics and attributes in Prometheus' form: underscores, unit and type suffixes.

Source: prometheus/otlptranslator v1 (metric_namer.go, unit_namer.go, label_namer.go) with the strategy
UnderscoreEscapingWithSuffixes, which is Prometheus' default.
"""

import re
from enum import Enum

_NO_NAME_CHARACTER = re.compile(r"[^a-zA-Z0-9:]+")
_NO_UNIT_CHARACTER = re.compile(r"[^a-zA-Z0-9:]")
_NO_LABEL_CHARACTER = re.compile(r"[^a-zA-Z0-9_]")
_UNITS = {
    "d": "days",
    "h": "hours",
    "min": "minutes",
    "s": "seconds",
    "ms": "milliseconds",
    "us": "microseconds",
    "ns": "nanoseconds",
    "By": "bytes",
    "KiBy": "kibibytes",
    "MiBy": "mebibytes",
    "GiBy": "gibibytes",
    "TiBy": "tibibytes",
    "KBy": "kilobytes",
    "MBy": "megabytes",
    "GBy": "gigabytes",
    "TBy": "terabytes",
    "m": "meters",
    "V": "volts",
    "A": "amperes",
    "J": "joules",
    "W": "watts",
    "g": "grams",
    "Cel": "celsius",
    "Hz": "hertz",
    "1": "",
    "%": "percent",
}
_PER_UNITS = {
    "s": "second",
    "m": "minute",
    "h": "hour",
    "d": "day",
    "w": "week",
    "mo": "month",
    "y": "year",
}


class MetricKind(Enum):
    """The part of a metric's type that shows in its name."""

    COUNTER = "counter"
    """A sum that only grows."""
    GAUGE = "gauge"
    OTHER = "other"
    """A sum that falls too, a histogram, a summary."""


def metric_name(name: str, unit: str, kind: MetricKind) -> str:
    """Return the name of a metric's series; empty if no valid name is left.

    Args:
        name: such as `http.server.request.duration`.
        unit: in UCUM, such as `s`, `By/s` or `{request}`.
        kind: of the metric.
    """
    tokens = [each for each in _NO_NAME_CHARACTER.split(name) if each]
    main, per = _unit_suffixes(unit)
    if main in tokens:
        main = ""
    per = "" if per == "per_" else per.removesuffix("_")
    if per in tokens:
        per = ""
    if per:
        main = main.removesuffix("_")
    tokens += [suffix for suffix in (main, per) if suffix]
    if kind is MetricKind.COUNTER:
        tokens = [*(each for each in tokens if each != "total"), "total"]
    if unit == "1" and kind is MetricKind.GAUGE:
        tokens = [*(each for each in tokens if each != "ratio"), "ratio"]
    found = "_".join(tokens)
    return f"_{found}" if found[:1].isdigit() else found


def label_name(attribute: str) -> str:
    """Return the label name of an attribute; empty if no valid name is left."""
    found = _NO_LABEL_CHARACTER.sub("_", attribute)
    if not found.strip("_"):
        return ""
    if found[0].isdigit():
        return f"key_{found}"
    return f"key{found}" if found[0] == "_" and found[:2] != "__" else found


def _unit_suffixes(unit: str) -> tuple[str, str]:
    main, _, per = unit.partition("/")
    main, per = main.strip(), per.strip()
    if {"{", "}"} & set(main):
        main = ""
    if {"{", "}"} & set(per):
        per = ""
    main = _UNITS.get(main, main)
    per = f"per_{_PER_UNITS.get(per, per)}" if per else ""
    return _clean(main), _clean(per)


def _clean(unit: str) -> str:
    return re.sub(r"__+", "_", _NO_UNIT_CHARACTER.sub("_", unit)).removeprefix("_")
