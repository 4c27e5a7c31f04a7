"""The stand-in for libdcgm, built once, with the state of the host engine behind it."""

import ctypes
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from gpuscale.agent.dcgm.engine import HostEngine
from gpuscale.agent.dcgm.library import DcgmLibrary

SOURCE = Path(__file__).with_name("libdcgm.c")


@pytest.fixture(scope="session")
def libdcgm(tmp_path_factory):
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("needs a C compiler, cc; install Debian's package gcc")
    path = tmp_path_factory.mktemp("libdcgm") / "libdcgm.so.4"
    flags = ["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-pthread"]
    subprocess.run([compiler, *flags, "-o", path, SOURCE], check=True)
    return path


class Engine:
    """The host engine of the stand-in: two GPUs unless it is told otherwise."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)
        self.library = ctypes.CDLL(self.path)
        self.library.standin_fault.restype = ctypes.c_char_p
        self.library.standin_interval_us.restype = ctypes.c_longlong
        self._opened: list[HostEngine] = []
        self.reset(2)

    def __getattr__(self, name):
        return getattr(self.library, f"standin_{name}")

    def load(self):
        return DcgmLibrary(["libdcgm-of-no-release.so", self.path])

    def follow(self, *, interval_ms=500, address="localhost:5555"):
        found = HostEngine(address, interval_ms, self.load)
        self._opened.append(found)
        return found

    def put(self, kind, entity, field, value, *, age_s=-3600.0):
        """Set a value, by default of an hour from now, so that a slow test does not find it old."""
        time_us = ctypes.c_int64(int((time.time() - age_s) * 1e6))
        if isinstance(value, float):
            self.double(kind, entity, field, ctypes.c_double(value), time_us)
        else:
            self.integer(kind, entity, field, ctypes.c_int64(value), time_us)

    def end(self):
        self.hang(0)
        for each in self._opened:
            each.close()
        assert self.fault() == b""


@pytest.fixture
def engine(libdcgm):
    found = Engine(libdcgm)
    yield found
    found.end()
