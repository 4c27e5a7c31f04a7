"""Other projects' kinds on a control plane, by their own definitions."""

from contextlib import contextmanager

import pytest

from gpuscale.base.errors import UpstreamError
from gpuscale_testing import find_definitions, missing_definitions, wait_until


@contextmanager
def upstream_kinds(plane, *names):
    """Have the kinds of these projects served while the block runs."""
    if reason := missing_definitions(names):
        pytest.skip(reason)
    given = [f"--filename={find_definitions(name)}" for name in names]
    plane.kubectl("apply", "--server-side", *given)
    plane.wait(given[0], "condition=Established", *given[1:], timeout_s=60.0)
    # Established is written a moment before the API server serves the kind.
    wait_until(lambda: all_served(plane, given), "the kinds to be served")
    yield
    plane.kubectl("delete", *given)


def all_served(plane, given):
    try:
        for definition in plane.kubectl("get", *given, "--output=name").split():
            plane.kubectl("get", definition.split("/")[1], "--all-namespaces")
    except UpstreamError:
        return False
    return True
