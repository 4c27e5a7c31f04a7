"""`gpuscale load gpu` on a real GPU: what NVML counts while it runs, and that nothing is left.

Five minutes. It takes the driver, pytest, nvidia-ml-py and what the command line needs:

pip install --no-compile --target build/gpu-site --python-version 3.12 --only-binary=:all: \
    typer nvidia-ml-py pytest pydantic pyyaml
PYTHONPATH=src:build/gpu-site python3 -m pytest -c tests/gpu/pytest.ini -p no:cacheprovider \
    tests/gpu/test_load_gpu.py
"""

import json
import os
import signal
import statistics
import subprocess
import sys
import time

import pytest

UTIL = "DCGM_FI_DEV_GPU_UTIL"
USED = "DCGM_FI_DEV_FB_USED"
ACTIVE = "DCGM_FI_PROF_SM_ACTIVE"
FIELDS = frozenset({UTIL, USED, ACTIVE})
SETTLE = 6
"""Seconds for contexts, memory and the correction."""
SECONDS = 12
MIB = 1 << 20


def command(*arguments):
    return [sys.executable, "-m", "gpuscale.cli.main", "load", "gpu", *arguments]


def idle_mib(reads):
    """Return what is used once nothing of an earlier test is left."""
    used = [reads.read().values[USED]]
    for _ in range(20):
        time.sleep(0.5)
        used.append(reads.read().values[USED])
        if used[-1] == used[-2]:
            break
    return used[-1]


def mean(readings, field):
    return statistics.fmean(each.values[field] for each in readings if field in each.values)


@pytest.mark.parametrize("processes", [1, 3])
@pytest.mark.parametrize("wanted", [30, 60, 90])
def test_a_use_is_held_within_five_points(pace, results, wanted, processes) -> None:
    reads = pace(fields=FIELDS)
    options = (f"--util={wanted}", f"--processes={processes}", f"--for={SETTLE + SECONDS + 4}s")
    with subprocess.Popen(
        command(*options, "-o", "json"), stdout=subprocess.PIPE, text=True
    ) as load:
        reads.run(SETTLE)
        readings = reads.run(SECONDS)
        out, _ = load.communicate(timeout=120)
    document = json.loads(out)
    found = mean(readings, UTIL)
    results.setdefault("load_gpu", {})[f"{wanted} % by {processes}"] = {
        "seen_from_outside": found,
        "by_second": [each.values.get(UTIL) for each in readings],
        "told": document["gpus"][0],
        "faults": document["faults"],
    }
    assert found == pytest.approx(wanted, abs=5)
    assert load.returncode == 0, document["faults"]


@pytest.mark.parametrize("size_mib", [2048, 8192])
def test_memory_is_held_within_two_percent_and_freed(pace, results, size_mib) -> None:
    reads = pace(fields=FIELDS)
    before = idle_mib(reads)
    with subprocess.Popen(
        command("--util=20", f"--memory={size_mib}MiB", "--for=10s", "--processes=2"),
    ) as load:
        reads.run(SETTLE)
        during = mean(reads.run(2), USED)
        assert load.wait(120) == 0
    after = idle_mib(reads)
    results.setdefault("load_gpu_memory", {})[str(size_mib)] = {
        "before_mib": before,
        "during_mib": during,
        "after_mib": after,
    }
    assert during - before == pytest.approx(size_mib, rel=0.02)
    assert after == pytest.approx(before, abs=8)


def test_fewer_multiprocessors_are_active_where_fewer_are_asked_for(pace, results) -> None:
    reads = pace(fields=FIELDS)
    with subprocess.Popen(command("--util=80", "--sms=50", "--for=14s")) as load:
        reads.run(SETTLE)
        readings = reads.run(6)
        load.wait(120)
    if ACTIVE not in readings[-1].values:
        pytest.skip(f"this GPU has no SM activity: {readings[-1].absent.get(ACTIVE)}")
    found = 100 * mean(readings, ACTIVE)
    results["load_gpu_half_of_the_multiprocessors"] = found
    assert found == pytest.approx(40, abs=6)  # half of them for 80 % of the time


def test_without_nvml_the_open_loop_is_close(pace, results, tmp_path) -> None:
    """What the correction is worth: the same load by a Python that finds no pynvml."""
    (tmp_path / "pynvml.py").write_text("raise ImportError('hidden by the test')\n")
    path = os.pathsep.join(filter(None, (str(tmp_path), os.environ.get("PYTHONPATH"))))
    reads = pace(fields=FIELDS)
    with subprocess.Popen(
        command("--util=60", "--for=16s"), env={**os.environ, "PYTHONPATH": path}
    ) as load:
        reads.run(SETTLE)
        readings = reads.run(8)
        load.wait(120)
    results["load_gpu_open_loop_60"] = mean(readings, UTIL)
    assert mean(readings, UTIL) == pytest.approx(60, abs=10)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_load_that_is_ended_frees_the_gpu(pace, number) -> None:
    reads = pace(fields=FIELDS)
    before = idle_mib(reads)
    with subprocess.Popen(command("--util=50", "--memory=4GiB", "--for=5m")) as load:
        for _ in range(60):
            time.sleep(0.5)
            if reads.read().values[USED] > before + 3_500:
                break
        assert reads.read().values[USED] > before + 3_500
        load.send_signal(number)
        load.wait(30)
    time.sleep(2)
    assert idle_mib(reads) == pytest.approx(before, abs=8)


def test_more_memory_than_is_free_is_refused(identity) -> None:
    found = subprocess.run(
        command("--util=5", "--memory=4TiB", "--for=1s"),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert found.returncode == 1
    assert "of free memory, expected" in found.stderr
