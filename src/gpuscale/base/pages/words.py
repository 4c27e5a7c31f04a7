"""Formatting of times, numbers and names for terminals. An absent value is a dash, never a zero."""

import re

NO_DATA = "-"


def clock_text(seconds: float) -> str:
    """Return scenario time as `HH:MM:SS`; hours go on counting after a day."""
    whole = max(0, int(seconds))
    return f"{whole // 3600:02}:{whole // 60 % 60:02}:{whole % 60:02}"


def seconds_text(seconds: float) -> str:
    """Return a duration as `22.5 s`, from two minutes on as `2 min 45 s`, or as `1 h 5 min`."""
    if seconds < 120:
        return f"{number_text(seconds)} s"
    if seconds < 3600:
        return _two_units(round(seconds), "s", "min")
    return _two_units(round(seconds / 60), "min", "h")


def _two_units(count: int, small: str, large: str) -> str:
    whole, rest = divmod(count, 60)
    return f"{whole} {large}" + (f" {rest} {small}" if rest else "")


def plain_text(value: object) -> str:
    """Return text that stays on its line and can't steer the terminal."""
    return re.sub(r"[\x00-\x1f\x7f-\x9f]+", " ", "" if value is None else str(value)).strip()


def number_text(value: object) -> str:
    """Return a number as people write it; a dash where there is none."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return NO_DATA if value is None else plain_text(value)
    digits = 0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 2
    text = f"{value:.{digits}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def label_text(key: str) -> str:
    """Return a key of the summary in words: `maxReplicas` becomes `Max replicas`."""
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", key).replace("_", " ").split()
    text = " ".join(_word(word) for word in words)
    return text[:1].upper() + text[1:]


def _word(word: str) -> str:
    capitals = {"gpu": "GPU", "gpus": "GPUs", "hpa": "HPA", "hpas": "HPAs", "slo": "SLO"}
    return capitals.get(word.lower(), word.lower())
