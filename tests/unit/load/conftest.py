"""The stand-in for libcuda, built once, and what a load did to it by its log."""

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

SOURCE = Path(__file__).with_name("libcuda.c")


@pytest.fixture(scope="session")
def libcuda(tmp_path_factory):
    """The folder of a stand-in for libcuda.so.1."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("needs a C compiler, cc; install Debian's package gcc")
    folder = tmp_path_factory.mktemp("libcuda")
    flags = ["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC"]
    subprocess.run([compiler, *flags, "-o", folder / "libcuda.so.1", SOURCE], check=True)
    return folder


@dataclass(frozen=True)
class Run:
    """A kernel, in nanoseconds of the machine's monotonic clock."""

    pid: int
    begin: int
    length: int
    blocks: int


class Cuda:
    """Programs that find the stand-in, and its log."""

    def __init__(self, folder: Path, log: Path) -> None:
        self._log = log
        self.folder = folder
        self.environment = {
            **os.environ,
            "LD_LIBRARY_PATH": str(folder),
            "STANDIN_LOG": str(log),
        }

    def lines(self):
        """Return (pid, words) of each line."""
        text = self._log.read_text() if self._log.exists() else ""
        split = (line.split(maxsplit=1) for line in text.splitlines())
        return [(int(pid), words) for pid, words in split]

    def calls(self, word: str):
        return [words for _, words in self.lines() if words.split()[0] == word]

    def runs(self):
        """Return every kernel, by its beginning."""
        found = [
            Run(pid, *map(int, words.split()[1:]))
            for pid, words in self.lines()
            if words.startswith("RUN ")
        ]
        return sorted(found, key=lambda run: run.begin)


@pytest.fixture
def cuda(libcuda, tmp_path):
    """The stand-in with a log of its own; in the end nothing may be wrong with a call."""
    made = Cuda(libcuda, tmp_path / "cuda.log")
    yield made
    assert made.calls("FAULT") == []
