"""A control plane for each file of tests marked `cluster`, and what to do where its programs are not built.

One for all would show a file what another has left behind, such as pods that go at a time of their own.
"""

import os
import shutil
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import NoReturn

import pytest

from gpuscale_testing import ControlPlane, Settings, missing, missing_definitions
from gpuscale_testing.keda import Keda
from gpuscale_testing.programs import toolset
from gpuscale_testing.programs.toolset import KEDA

HPA_SYNC_PERIOD_S = 1.0


IS_REQUIRED = bool(os.environ.get("CI")) and os.environ.get("GPUSCALE_REQUIRE_CLUSTER") == "1"
REQUIRED = [each.name for each in toolset.TOOLS if not each.apart]
"""What `make cluster-tools` builds, prometheus-adapter and the compiled controllers included."""


@cache
def _reasons() -> tuple[str, ...]:
    needed = [missing(REQUIRED), missing_definitions()] if IS_REQUIRED else [missing()]
    reasons = list(filter(None, needed))
    if shutil.which("kubectl") is None:
        reasons.append("needs the program kubectl; install Debian's package kubernetes-client")
    return tuple(reasons)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip what needs programs that are not built; where they are required, that is an error."""
    reasons = _reasons() if item.get_closest_marker("cluster") else ()
    if reasons:
        _leave_out("; ".join(reasons))


def _leave_out(reason: str) -> NoReturn:
    if IS_REQUIRED:
        pytest.fail(reason)
    pytest.skip(reason)


@pytest.fixture(scope="session")
def built() -> Callable[[str], Path]:
    """Finds a program by its name; without it, the test is left out like one without a control plane."""

    def find(name: str) -> Path:
        if reason := missing([name]):
            _leave_out(reason)
        return toolset.find(name)

    return find


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]):
    """Show the ends of the logs with what failed."""
    report = yield
    used = getattr(item, "funcargs", {})
    running = used.get("loop") or used.get("plane")
    if report.failed and running is not None:
        report.sections.append(("logs", running.logs()))
    return report


@pytest.fixture(scope="module")
def plane() -> Iterator[ControlPlane]:
    """A control plane that looks at HPAs every second."""
    with ControlPlane(Settings(hpa_sync_period_s=HPA_SYNC_PERIOD_S)) as running:
        yield running


@pytest.fixture(scope="module")
def keda(plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Keda]:
    """KEDA on that control plane, which serves the external metrics API by it."""
    if reason := missing(KEDA):
        pytest.skip(reason)
    with Keda(plane, tmp_path_factory.mktemp("keda"), webhooks=True) as running:
        yield running
