"""Numbers as the sentences of an explanation write them."""

import math


def shown_number(milli: int) -> str:
    """Return a value in plain digits, such as `31.4`."""
    whole, rest = divmod(abs(milli), 1000)
    sign = "-" if milli < 0 else ""
    return f"{sign}{whole}.{rest:03d}".rstrip("0").rstrip(".")


def shown_ratio(ratio: float) -> str:
    """Return a ratio to three places."""
    return f"{round(ratio, 3):g}" if math.isfinite(ratio) else "undefined"
