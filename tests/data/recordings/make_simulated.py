"""Write the synthetic recordings beside this file anew: `python tests/data/recordings/make_simulated.py`.

The same code gives the same bytes; recordings of real GPUs have other names and stay as they are.
"""

import math
from pathlib import Path

from gpuscale.agent.gpu.model_table import MODELS
from gpuscale.agent.gpu.simulated import GpuWork, SimulatedReader
from gpuscale.agent.recordings.recording import ReadingRecorder, RecordingReader

FOLDER = Path(__file__).parent
START_MS = 1_790_000_000_000


def wave(gpu, _from_ms, to_ms):
    """Two processes on every GPU: one that comes and goes in half a minute, and an idle one."""
    busy = 0.5 + 0.45 * math.sin(2 * math.pi * (to_ms - START_MS) / 30_000 + gpu)
    return (
        GpuWork(4100 + gpu, "python", busy, busy / 3, 20_000 + int(4000 * busy)),
        GpuWork(4200 + gpu, "jupyter", 0.0, 0.0, 512),
    )


def reader(node, model, count):
    return SimulatedReader(node, MODELS[model], count, 1, wave)


def recorder(name):
    return ReadingRecorder.open(str(FOLDER / f"simulated-{name}.jsonl.gz"))


def wave_of_one_gpu() -> None:
    """A minute of one H200 at 1 s."""
    file = recorder("wave")
    recorded = RecordingReader(reader("one", "NVIDIA H200", 1), file)
    for second in range(60):
        recorded.read(START_MS + second * 1000)
    file.close()


def loss_of_one_gpu_of_four() -> None:
    """Two minutes of four A100 at 5 s; the third is lost after one minute."""
    inner = reader("four", "NVIDIA A100-SXM4-80GB", 4)
    file = recorder("lost-gpu")
    recorded = RecordingReader(inner, file)
    for second in range(0, 120, 5):
        if second == 60:
            inner.lose(2)
        recorded.read(START_MS + second * 1000)
    file.close()


def driver_that_goes_and_comes() -> None:
    """Half a minute of one T4 at 1 s; from 10 s to 15 s no GPU can be read."""
    inner = reader("driver", "Tesla T4", 1)
    file = recorder("driver-gone")
    for second in range(30):
        now_ms = START_MS + second * 1000
        if 10 <= second < 15:
            file.write_failure(now_ms, "the driver is not loaded")
        else:
            file.write(inner.read(now_ms), now_ms=now_ms, gpus=inner.gpus())
    file.close()


if __name__ == "__main__":
    wave_of_one_gpu()
    loss_of_one_gpu_of_four()
    driver_that_goes_and_comes()
