"""What several kinds of request have in common: parameters, and the ways they can be wrong."""

from functools import lru_cache

from aiohttp import web

from gpuscale.metricsapi.paths import REMEMBERED_TEXT, REMEMBERED_TEXTS
from gpuscale.metricsapi.statuses import Status, bad_request
from gpuscale.objects.selectors import Selector, parse_selector

TRUE = {"1", "t", "T", "TRUE", "true", "True"}
"""Go's spellings."""


class RequestError(Exception):
    """A request that ends in a Status."""

    def __init__(self, status: Status) -> None:
        self.status = status
        super().__init__(status.message)


def selector_of(request: web.Request, parameter: str) -> Selector:
    """Return the label selector of a parameter.

    Raises:
        RequestError: it is none.
    """
    text = request.query.get(parameter, "")
    parse = _parsed if len(text) <= REMEMBERED_TEXT else parse_selector
    try:
        return parse(text)
    except ValueError as error:
        raise RequestError(bad_request(str(error))) from None


@lru_cache(maxsize=REMEMBERED_TEXTS)
def _parsed(text: str) -> Selector:
    return parse_selector(text)


def is_watch(request: web.Request) -> bool:
    """Return whether a request asks for a watch."""
    return request.query.get("watch") in TRUE
