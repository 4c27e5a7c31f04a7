"""The sample job, run as a stranger runs it: it learns, ends, and ends early when it is asked to."""

import gzip
import re
import signal
import struct
import subprocess

import pytest

import samples

pytestmark = pytest.mark.timeout(600)  # of the installation, most of it


def test_it_learns_and_ends(sample_venv) -> None:
    done = samples.run(sample_venv, "mnist_job.train", "--max_steps", "300", "--step-ms", "1")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == "mnist-job: no GPU, the time it takes is simulated"
    steps = re.findall(r"step (\d+) of 300: accuracy ([\d.]+)", done.stdout)
    assert [step for step, _ in steps] == ["100", "200", "300"]
    assert float(steps[-1][1]) > 0.5  # guessing reads one in ten
    assert float(steps[-1][1]) > float(steps[0][1])


def test_the_same_seed_learns_the_same(sample_venv) -> None:
    options = ("--max_steps", "20", "--step-ms", "0", "--seed", "7")
    one, two = (samples.run(sample_venv, "mnist_job.train", *options).stdout for _ in range(2))
    assert one.splitlines()[1] == two.splitlines()[1]


def test_a_step_takes_what_was_declared(sample_venv) -> None:
    done = samples.run(sample_venv, "mnist_job.train", "--max_steps", "10", "--step-ms", "100")
    assert float(re.search(r"done in ([\d.]+) s", done.stdout)[1]) >= 1.0


def test_sigterm_ends_it_with_the_code_that_kubernetes_expects(sample_venv) -> None:
    process = subprocess.Popen(
        samples.command(sample_venv, "mnist_job.train", "--max_steps", "1000000"),
        cwd=samples.SERVICES,
        env=samples.environment(),
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        assert "simulated" in process.stdout.readline()
        process.send_signal(signal.SIGTERM)
        rest = process.stdout.read()
    assert process.returncode == 143
    assert rest.endswith("mnist-job: SIGTERM, ending\n")


def idx(magic, sizes, data):
    return gzip.compress(struct.pack(f">{1 + len(sizes)}I", magic, *sizes) + bytes(data))


def test_mnists_own_files_are_read(sample_venv, tmp_path) -> None:
    """2 000 pictures in the format of yann.lecun.com/exdb/mnist: a bright half says which of two."""
    halves = [bytes([250] * 392 + [0] * 392), bytes([0] * 392 + [250] * 392)]
    pixels = b"".join(halves[number % 2] for number in range(2000))
    labels = bytes(number % 2 for number in range(2000))
    images = idx(2051, (2000, 28, 28), pixels)
    (tmp_path / "train-images-idx3-ubyte.gz").write_bytes(images)
    (tmp_path / "train-labels-idx1-ubyte.gz").write_bytes(idx(2049, (2000,), labels))
    options = ("--max_steps", "50", "--step-ms", "0", "--data", str(tmp_path))
    done = samples.run(sample_venv, "mnist_job.train", *options)
    assert "step 50 of 50: accuracy 1.000" in done.stdout

    (tmp_path / "train-labels-idx1-ubyte.gz").write_bytes(idx(2049, (7,), labels))
    done = samples.run(sample_venv, "mnist_job.train", *options)
    assert done.returncode == 2
    assert "expected 2000 labels in IDX format" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "words", "code"),
    [
        (("--max_steps", "0"), "--max_steps of at least 1", 2),
        (("--data", "/nowhere"), "--data: ", 2),
        (("--device", "gpu"), "can't work on a GPU: No module named 'torch'", 1),
    ],
)
def test_what_it_cannot_do_it_says(sample_venv, arguments, words, code) -> None:
    done = samples.run(sample_venv, "mnist_job.train", *arguments)
    assert done.returncode == code
    assert words in done.stderr
    assert "Traceback" not in done.stderr
