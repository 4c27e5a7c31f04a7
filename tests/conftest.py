"""What holds for every test: no task is left behind, and missing programs are an error in CI."""

import asyncio
import os
import shutil
from collections.abc import Iterator

import pytest
from hypothesis import settings

settings.register_profile(
    "gpuscale",
    deadline=None,  # a busy machine is no fault of the example
    derandomize="GPUSCALE_FIXED_EXAMPLES" in os.environ,
)
settings.load_profile("gpuscale")

_PROGRAMS = {
    "alertmanager": "prometheus-alertmanager",
    "browser": "chromium",
    "prometheus": "prometheus",
    "kubectl": "kubectl",
}
_PACKAGES = {**_PROGRAMS, "kubectl": "kubernetes-client"}


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip, by name, what needs a program that is not here; in CI that is an error."""
    for marker, program in _PROGRAMS.items():
        if item.get_closest_marker(marker) is None or shutil.which(program):
            continue
        reason = f"needs the program {program}; install Debian's package {_PACKAGES[marker]}"
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)


@pytest.fixture(autouse=True)
def _no_task_left_behind() -> Iterator[None]:
    yield
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        return
    assert not [task for task in asyncio.all_tasks(loop) if not task.done()]
