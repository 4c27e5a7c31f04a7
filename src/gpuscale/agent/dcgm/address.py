"""Where a DCGM host engine listens, in dcgm-exporter's words."""

import re

_PLACE = re.compile(r"(\[[0-9a-fA-F:.%]+\]|[^:/\[\]\s]+)(?::([0-9]{1,5}))?")
_EXPECTED = "expected HOST[:PORT], tcp://HOST[:PORT] or unix:///PATH"


def parse_address(text: str) -> str | None:
    """Return where a DCGM host engine listens, as its library takes it; None for an empty text.

    Raises:
        ValueError: not of the form.
    """
    if text.startswith("unix://"):
        path = text.removeprefix("unix://")
        if not path.startswith("/"):
            raise ValueError(f"found {text!r}, {_EXPECTED}")
        return path
    place = text.removeprefix("tcp://")
    if not text:
        return None
    match = _PLACE.fullmatch(place)
    if match is None or not 0 < int(match[2] or 1) <= 65_535:
        raise ValueError(f"found {text!r}, {_EXPECTED}")
    return place
