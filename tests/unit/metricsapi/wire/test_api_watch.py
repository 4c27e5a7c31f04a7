"""A request is authorised as what it is answered as: a list, or a watch."""

import pytest
from aiohttp.test_utils import make_mocked_request

from gpuscale.server.metricsapi.security.guard import _attributes
from gpuscale.server.metricsapi.wire.requests import is_watch

PATH = "/apis/external.metrics.k8s.io/v1beta1/namespaces/default/queue"


@pytest.mark.parametrize("text", ["1", "t", "T", "TRUE", "true", "True"])
def test_what_go_reads_as_true_is_a_watch(text: str) -> None:
    request = make_mocked_request("GET", f"{PATH}?watch={text}")
    assert (is_watch(request), _attributes(request).verb) == (True, "watch")


@pytest.mark.parametrize("query", ["", "?watch=", "?watch=0", "?watch=false", "?watch=tRUE"])
def test_everything_else_is_a_list(query: str) -> None:
    request = make_mocked_request("GET", f"{PATH}{query}")
    assert (is_watch(request), _attributes(request).verb) == (False, "list")
