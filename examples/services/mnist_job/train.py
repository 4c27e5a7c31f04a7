"""Train on handwritten digits for a number of steps, then end.

    python -m mnist_job.train --max_steps 500

On a GPU a small network learns. Without one a single layer does, on the CPU, and each step lasts as long as
it would have on a GPU: `--step-ms`. Digits are MNIST's with `--data FOLDER`, and drawn ones without.
"""

import argparse
import os
import signal
import sys
import time
from pathlib import Path
from types import FrameType

import numpy as np

from mnist_job.digits import Digits, drawn, of_mnist
from mnist_job.models import Model, Network, SoftmaxRegression

NAME = "mnist-job"
_BATCH = 128
_TESTED = 1000
_SAID_EVERY = 100
_BY_SIGTERM = 128 + signal.SIGTERM


def main() -> None:
    """Run the job; the exit code is 0 once all steps are done, 143 where SIGTERM came first."""
    parser = argparse.ArgumentParser(prog=NAME, description="Trains on handwritten digits.")
    parser.add_argument("--max_steps", "--max-steps", type=int, default=1000, help="then it ends")
    parser.add_argument("--data", type=Path, help="folder with MNIST's training files, gzipped")
    parser.add_argument("--device", choices=("auto", "gpu", "simulated"), default="auto")
    parser.add_argument("--step-ms", type=float, default=20, help="simulated time of one step")
    parser.add_argument("--seed", type=int, default=1, help="of digits and batches")
    options = parser.parse_args()
    if options.max_steps < 1 or not 0 <= options.step_ms <= 60_000:
        parser.error("expected --max_steps of at least 1 and --step-ms from 0 to 60000")
    signal.signal(signal.SIGTERM, _end)
    try:
        digits = drawn(10_000, options.seed) if options.data is None else of_mnist(options.data)
    except (OSError, ValueError) as error:
        parser.error(f"--data: {error}")
    model = choose(options.device)
    where = f"on {model.gpu}" if model.gpu else "no GPU, the time it takes is simulated"
    print(f"{NAME}: {where}", flush=True)
    train(
        model, digits, options.max_steps, 0.0 if model.gpu else options.step_ms / 1000, options.seed
    )


def choose(device: str) -> Model:
    """Return what is trained, by the option and by what this machine has."""
    if device != "simulated":
        try:
            return Network()
        except (ImportError, RuntimeError) as error:
            if device == "gpu":
                sys.exit(f"{NAME}: can't work on a GPU: {error}")
    return SoftmaxRegression()


def train(model: Model, digits: Digits, steps: int, step_s: float, seed: int) -> None:
    """Train, and print how well it reads digits that it has not learnt from.

    Args:
        model: that learns.
        digits: the last ones are kept for the test.
        steps: how many batches.
        step_s: what a step takes at least, seconds.
        seed: of the choice of batches.
    """
    tested = Digits(digits.pixels[-_TESTED:], digits.labels[-_TESTED:])
    draw = np.random.default_rng(seed)
    started = time.monotonic()
    for step in range(1, steps + 1):
        chosen = draw.integers(0, len(digits.labels) - _TESTED, _BATCH)
        model.step(Digits(digits.pixels[chosen], digits.labels[chosen]))
        time.sleep(max(0.0, started + step * step_s - time.monotonic()))
        if step % _SAID_EVERY == 0 or step == steps:
            print(f"step {step} of {steps}: accuracy {model.accuracy(tested):.3f}", flush=True)
    print(f"{NAME}: done in {time.monotonic() - started:.1f} s", flush=True)


def _end(_number: int, _frame: FrameType | None) -> None:
    # A print here may interrupt another print, which raises RuntimeError.
    os.write(sys.stdout.fileno(), f"{NAME}: SIGTERM, ending\n".encode())
    sys.exit(_BY_SIGTERM)


if __name__ == "__main__":
    main()
