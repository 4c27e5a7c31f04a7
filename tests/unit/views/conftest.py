# mypy: disable-error-code="arg-type"
"""The fake run, as a fixture, for every test of the views."""

import importlib.util
from pathlib import Path

import pytest


def _load():
    spec = importlib.util.spec_from_file_location(
        "fake_run", Path(__file__).with_name("fake_run.py")
    )
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


_MODULE = _load()


@pytest.fixture
def run():
    """A run at its start."""
    return _MODULE.FakeRun()


@pytest.fixture
def finished():
    """A run of half an hour."""
    return _MODULE.finished_run()
