"""What holds for every test: no task is left behind, and missing programs are an error in CI."""

import asyncio
import gc
import os
import shutil
from collections.abc import Generator, Iterator

import pytest
from hypothesis import HealthCheck, settings

# A busy machine is no fault of the example.
settings.register_profile(
    "fixed",
    max_examples=30,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    derandomize=True,
    database=None,
)
settings.register_profile(
    "random", settings.get_profile("fixed"), max_examples=300, derandomize=False
)
# The same few examples everywhere; `make test-long` looks for others.
settings.load_profile("fixed")

_PROGRAMS = {
    "alertmanager": "prometheus-alertmanager",
    "browser": "chromium",
    "prometheus": "prometheus",
    "kubectl": "kubectl",
}
_PACKAGES = {**_PROGRAMS, "kubectl": "kubernetes-client"}


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None]:
    """Keep the collector from what lasts anyway: it looked through a million objects a thousand times.

    That was half of the suite's CPU.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.collect()
        gc.freeze()


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
