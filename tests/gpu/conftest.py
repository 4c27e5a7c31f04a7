"""A real GPU, loads on it, and one file for what was measured.

PYTHONPATH=src:<wheels> python3 -m pytest -c tests/gpu/pytest.ini -p no:cacheprovider tests/gpu
"""

import contextlib
import json
import os
import platform
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gpuscale.agent.nvml.reader import NvmlReader
from gpuscale.agent.nvml.settings import NvmlSettings
from gpuscale.base.errors import UnavailableError

HERE = Path(__file__).parent
RESULTS = HERE.parent.parent / "benchmarks" / "results"
READY_S = 90


def pytest_collection_modifyitems(items) -> None:
    for item in items:
        if HERE in Path(item.path).parents:
            item.add_marker(pytest.mark.gpu)


@pytest.fixture(scope="session")
def identity():
    """The first GPU; without one the tests are skipped."""
    try:
        reader = NvmlReader(NvmlSettings())
        gpus = reader.gpus()
        reader.close()
    except UnavailableError as error:
        pytest.skip(f"needs an NVIDIA GPU: {error}")
    if not gpus:
        pytest.skip("needs an NVIDIA GPU: NVML finds none on this machine")
    return gpus[0]


def gpus_there():
    """Return how many GPUs NVML reads."""
    reader = NvmlReader(NvmlSettings())
    count = len(reader.gpus())
    reader.close()
    return count


@pytest.fixture(scope="session")
def torch_there() -> None:
    """Whether loads can run."""
    code = "import torch, sys; sys.exit(not torch.cuda.is_available())"
    if subprocess.run([sys.executable, "-c", code], check=False, capture_output=True).returncode:
        pytest.skip("needs PyTorch with CUDA to load the GPU")


@pytest.fixture(scope="session")
def results(identity):
    """A dictionary that is written out in the end, pass or fail."""
    found = {
        "gpu": identity.model,
        "python": platform.python_version(),
        "user": "root" if os.getuid() == 0 else "other",
        "measured_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }
    yield found
    found["gpus"] = gpus_there()
    model = identity.model.removeprefix("NVIDIA ").lower().replace(" ", "-")
    named = os.environ.get("GPUSCALE_GPU_RESULTS")
    path = Path(named) if named else RESULTS / f"gpu_{found['gpus']}x{model}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(found, indent=2) + "\n")


class Pace:
    """Reads at fixed times, and records where recordings are wanted."""

    def __init__(self, reader, name=None) -> None:
        self.reader = reader
        self.readings = []
        self.spent_cpu_s = 0.0
        self._recorder = None
        folder = os.environ.get("GPUSCALE_GPU_RECORDINGS")
        if name and folder:
            from gpuscale.agent.recordings.recording import ReadingRecorder

            Path(folder).mkdir(parents=True, exist_ok=True)
            self._recorder = ReadingRecorder(Path(folder) / f"{name}.jsonl.gz")

    def read(self):
        """Return the first GPU's reading of now."""
        now_ms = time.time_ns() // 1_000_000
        cpu_s = time.process_time()
        readings = self.reader.read(now_ms)
        self.spent_cpu_s += time.process_time() - cpu_s
        if self._recorder is not None:
            self._recorder.write(readings, now_ms=now_ms, gpus=self.reader.gpus())
        self.readings.append(readings[0])
        return readings[0]

    def run(self, seconds, interval_s=1.0, also=None):
        """Return the readings of some seconds; `also` is called with each."""
        begin = time.monotonic()
        found = []
        for n in range(round(seconds / interval_s)):
            time.sleep(max(0.0, begin + (n + 1) * interval_s - time.monotonic()))
            found.append(self.read())
            if also is not None:
                also(found[-1])
        return found

    def close(self) -> None:
        if self._recorder is not None:
            self._recorder.close()
        self.reader.close()


@pytest.fixture
def pace(identity):
    """Make readers that read at a pace."""
    with contextlib.ExitStack() as stack:

        def make(name=None, fields=None, **settings):
            reader = NvmlReader(NvmlSettings(**settings), fields=fields)
            made = Pace(reader, name)
            stack.callback(made.close)
            made.read()
            return made

        yield make


class Load:
    """A load that runs beside the test."""

    def __init__(self, *options, gpu_uuid=None) -> None:
        only = {} if gpu_uuid is None else {"CUDA_VISIBLE_DEVICES": gpu_uuid}
        self.process = subprocess.Popen(
            [sys.executable, str(HERE / "load.py"), "--wait", *options],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **only},
        )
        self.ready = json.loads(self.process.stdout.readline() or '{"event": "none"}')
        assert self.ready["event"] == "ready", "the load did not start"

    @property
    def pid(self):
        return self.process.pid

    def go(self) -> None:
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def stop(self) -> None:
        self.process.kill()
        self.process.communicate()


@pytest.fixture
def load(torch_there: None):
    """Start loads; they end with the test. One is calibrated after the other, each on a free GPU."""
    with contextlib.ExitStack() as stack:

        def make(*options, gpu_uuid=None):
            made = Load(*options, gpu_uuid=gpu_uuid)
            stack.callback(made.stop)
            return made

        yield make
