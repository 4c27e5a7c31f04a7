"""Fields that parts of a Decision document share: ages, counts, values, and unknown names."""

from fractions import Fraction

from gpuscale.base.documents.documents import Path
from gpuscale.base.objects.fields import QUANTITY, Fields
from gpuscale.base.objects.fields import shown as shown_whole
from gpuscale.base.quantity import Quantity, parse_quantity
from gpuscale.hpa.kernel.numbers import MAX_INT32, MAX_INT64

NOW_MS = 1_000_000_000_000
"""The moment that the ages of a document count back from. Any would do that all of them share."""
MAX_SPAN_S = 1_000_000_000
"""Thirty years; ages up to it stay after the epoch."""
_REQUIRED = "this field is required"
_LONGEST_SHOWN = 60


def note_unknown(fields: Fields, *names: str) -> None:
    """Record each unknown field."""
    for name in fields.data:
        if name not in names:
            known = f"the fields here are {', '.join(names)}"
            fields.note((name,), "no such field here", fix=known)


def span_ms(fields: Fields, key: str) -> int | None:
    """Return a field given in seconds as whole milliseconds, or None where it is not set.

    Decimals count as written, so that 0.29 is 290 ms; what lies below a millisecond is rounded.
    """
    value = fields.data.get(key)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        fields.note((key,), "a number of seconds, such as 30 or 0.5", found=shown(value))
        return None
    if not 0 <= value <= MAX_SPAN_S:
        fields.note((key,), f"seconds from 0 to {MAX_SPAN_S}", found=shown(value))
        return None
    return round(Fraction(str(value)) * 1000)


def moment_ms(fields: Fields, key: str) -> int | None:
    """Return a time given as seconds before now; None if absent."""
    age_ms = span_ms(fields, key)
    return None if age_ms is None else NOW_MS - age_ms


def measured_ms(fields: Fields) -> int:
    """Return a measurement's time, from its `age`; now if absent."""
    found_ms = moment_ms(fields, "age")
    return NOW_MS if found_ms is None else found_ms


def whole_number(
    fields: Fields, key: str, default: int | None = None, *, least: int = 0, most: int = MAX_INT32
) -> int:
    """Return an integer within bounds; it is required if there is no default."""
    if default is None and key not in fields:
        fields.note((key,), _REQUIRED)
        return least
    faults = len(fields.problems)
    number = fields.integer(key, default)
    if number is not None and least <= number <= most:
        return number
    if len(fields.problems) == faults:
        fields.note((key,), f"a whole number from {least} to {most}", found=shown(number))
    return least


def value_milli(fields: Fields, key: str) -> int:
    """Return a required metric value in thousandths; 0 where it can't be read."""
    if key not in fields:
        fields.note((key,), _REQUIRED)
        return 0
    return milli_of(fields, (key,), fields.data[key])


def milli_of(fields: Fields, path: Path, value: object) -> int:
    """Return the value at a path below these fields, in thousandths; 0 if invalid."""
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        fields.note(path, QUANTITY, found=shown(value))
        return 0
    try:
        milli = parse_quantity(value).milli_value()
    except ValueError:
        fields.note(path, QUANTITY, found=shown(value))
        return 0
    if abs(milli) > MAX_INT64:
        fields.note(path, f"at most {MAX_INT64}m, as a metrics API can say", found=shown(value))
        return 0
    return milli


def requests(fields: Fields, key: str = "requests") -> dict[str, Quantity]:
    """Return a mapping of requests, none of them negative."""
    found = fields.quantities(key)
    for name, quantity in found.items():
        if not 0 <= quantity.milli_value() <= MAX_INT64:
            amount = shown(fields.child(key).data[name])
            fields.note((key, name), "an amount of zero or more", found=amount)
    return found


def shown(value: object) -> str:
    """Return a value as a complaint quotes it, cut where it is long."""
    try:
        text = shown_whole(value)
    except ValueError:
        return "a number of thousands of digits"
    return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}..."
