"""What several request kinds share: parameters, and errors in them."""

from aiohttp import web

from gpuscale.base.byte_cache import remembered
from gpuscale.base.golang.durations import GO_BOOLS
from gpuscale.base.objects.selectors import Selector, parse_selector
from gpuscale.server.metricsapi.wire.statuses import Status, bad_request

MAX_SELECTOR = 6 * 1024
"""Characters of a label selector. An HPA's has a few dozen; a long one takes time here and at the source."""


class RequestError(Exception):
    """A request that is answered with an error Status."""

    def __init__(self, status: Status) -> None:
        self.status = status
        super().__init__(status.message)


def selector_of(request: web.Request, parameter: str) -> Selector:
    """Return the label selector of a parameter.

    Raises:
        RequestError: it is none.
    """
    text = request.query.get(parameter, "")
    if len(text) > MAX_SELECTOR:
        found = f"{parameter}: found {len(text)} characters, expected at most {MAX_SELECTOR}"
        raise RequestError(bad_request(found))
    try:
        return _parsed(text)
    except ValueError as error:
        raise RequestError(bad_request(str(error))) from None


def is_true(text: str) -> bool:
    """Return whether a parameter is true; what Go can't read is false."""
    return GO_BOOLS.get(text, False)


_parsed = remembered("selectors", 2 * 1024 * 1024)(parse_selector)


def is_watch(request: web.Request) -> bool:
    """Return whether a request asks for a watch."""
    return is_true(request.query.get("watch", ""))
