"""Metric families to the Prometheus text format 0.0.4.

Source: github.com/prometheus/common/expfmt (text_create.go).
"""

import math
from collections.abc import Callable, Iterable
from functools import lru_cache

from gpuscale.base.exposition.families import Family

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
"""The Content-Type header of an answer that carries this format."""

_ESCAPES = str.maketrans({"\\": "\\\\", "\n": "\\n", '"': '\\"'})
_HELP_ESCAPES = str.maketrans({"\\": "\\\\", "\n": "\\n"})


def render_text(
    families: Iterable[Family], *, float_text: Callable[[float], str] | None = None
) -> str:
    """Return the exposition of the families, in their order.

    Args:
        families: each name at most once.
        float_text: how floats are printed; `shortest` unless given. Ints always print plain.
    """
    text = float_text or shortest
    lines: list[str] = []
    for family in families:
        lines.append(_header(family.name, family.type, family.help))
        name = family.name
        for sample in family.samples:
            value = sample.value
            number = str(value) if isinstance(value, int) else text(value)
            lines.append(f"{name}{sample.suffix}{_labels_text(sample.labels)} {number}\n")
    return "".join(lines)


def shortest(value: float) -> str:
    """Return the shortest text that reads back as the same number, in Go's `%g` form.

    Source: Go strconv.FormatFloat(value, 'g', -1, 64), which Prometheus' own libraries print with.
    """
    if not math.isfinite(value):
        return _special(value)
    text = repr(value)
    if value == 0 or 1e-4 <= abs(value) < 1e6:
        return text.removesuffix(".0")
    sign, figures, exponent = _parts(text)
    mantissa = f"{figures[0]}.{figures[1:]}".rstrip(".")
    return f"{sign}{mantissa}e{exponent:+03d}"


def six_decimals(value: float) -> str:
    """Return the number with six decimals, as dcgm-exporter prints doubles.

    Source: dcgm-exporter internal/pkg/collector (ToString, `%f`).
    """
    return f"{value:f}" if math.isfinite(value) else _special(value)


def positional(value: float) -> str:
    """Return the shortest text that reads back as the same number, never with an exponent.

    Source: Go strconv.FormatFloat(value, 'f', -1, 64), which the Prometheus HTTP API prints with.
    """
    if not math.isfinite(value):
        return _special(value)
    text = repr(float(value))
    if "e" not in text:
        return text.removesuffix(".0")
    sign, figures, exponent = _parts(text)
    if exponent < 0:
        return f"{sign}0.{'0' * (-exponent - 1)}{figures}"
    return sign + figures.ljust(exponent + 1, "0")


def _parts(text: str) -> tuple[str, str, int]:
    """Return the sign, digits and exponent of a number's `repr`.

    It is for numbers that stand with an exponent, or from 10 on. `decimal` could do it, and would cost every
    agent a third of a MiB.
    """
    mantissa, _, power = text.removeprefix("-").partition("e")
    whole, _, fraction = mantissa.partition(".")
    sign = "-" if text.startswith("-") else ""
    return sign, (whole + fraction).rstrip("0"), int(power or "0") + len(whole) - 1


def escape_label_value(value: str) -> str:
    """Return a label value with escapes, as between quotes."""
    return value.translate(_ESCAPES)


def _special(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    return "+Inf" if value > 0 else "-Inf"


@lru_cache(maxsize=1024)
def _header(name: str, type_: str, help_: str) -> str:
    about = f"# HELP {name} {help_.translate(_HELP_ESCAPES)}\n" if help_ else ""
    return f"{about}# TYPE {name} {type_}\n"


@lru_cache(maxsize=65_536)
def _labels_text(labels: tuple[tuple[str, str], ...]) -> str:
    """Return labels in braces, cached as they repeat in every scrape."""
    if not labels:
        return ""
    return "{" + ",".join(f'{key}="{escape_label_value(each)}"' for key, each in labels) + "}"
