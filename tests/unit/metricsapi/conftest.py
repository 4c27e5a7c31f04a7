# mypy: disable-error-code="arg-type"
"""Certificates for the tests of the metrics API."""

import importlib.util
from pathlib import Path

import pytest


def _load():
    path = Path(__file__).with_name("certificates_for_tests.py")
    spec = importlib.util.spec_from_file_location("certificates_for_tests", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


_MODULE = _load()


@pytest.fixture(scope="session")
def cas():
    """The CAs of clients, of front proxies, and of strangers, by name."""
    return {name: _MODULE.Ca(name) for name in ("clients", "proxies", "strangers")}


@pytest.fixture(scope="session")
def make_ca():
    """Makes a CA of a name, and of an issuer."""
    return _MODULE.Ca


@pytest.fixture(scope="session")
def connect():
    """Lets a client and a server of pyOpenSSL shake hands."""
    return _MODULE.connect
