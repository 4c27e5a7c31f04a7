"""The reader on several real GPUs of one host: whose values are whose, and traffic between them."""

import itertools
import statistics
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gpuscale.agent.nvml.reader import NvmlReader
from gpuscale.agent.nvml.settings import NvmlSettings

UTIL = "DCGM_FI_DEV_GPU_UTIL"
USED = "DCGM_FI_DEV_FB_USED"
ACTIVE = "DCGM_FI_PROF_GR_ENGINE_ACTIVE"
LINK = "DCGM_FI_PROF_NVLINK_{way}_BYTES"
PCIE = "DCGM_FI_PROF_PCIE_{way}_BYTES"
TRAFFIC = frozenset(name.format(way=way) for name in (LINK, PCIE) for way in ("TX", "RX"))
COPIES = Path(__file__).with_name("copies.py")


@pytest.fixture
def several(identity):
    """A reader of at least two GPUs."""
    fields = frozenset({UTIL, USED, ACTIVE, *TRAFFIC})
    reader = NvmlReader(NvmlSettings(processes=True), fields=fields)
    if len(reader.gpus()) < 2:
        reader.close()
        pytest.skip("needs two NVIDIA GPUs of one host")
    yield reader
    reader.close()


def read_for(reader, seconds):
    """Return, by GPU index, the readings of some seconds."""
    found = {}
    for _ in range(seconds):
        time.sleep(1)
        for reading in reader.read(time.time_ns() // 1_000_000):
            found.setdefault(reading.gpu.index, []).append(reading)
    return found


def mean(readings, field):
    return statistics.fmean(each.values[field] for each in readings if field in each.values)


def test_values_and_processes_are_of_the_gpu_that_is_loaded(several, load, results) -> None:
    gpus = several.gpus()
    worker = load("--steps", "20x0.6", "--hold-mib", "2048", gpu_uuid=gpus[-1].uuid)
    worker.go()
    read_for(several, 4)
    found = read_for(several, 8)
    last = len(gpus) - 1
    utils = {index: mean(readings, UTIL) for index, readings in found.items()}
    results["one_of_several_loaded"] = {"utils": utils}
    # The load keeps its duty within 8 points; the others have no process of ours.
    assert utils[last] == pytest.approx(60, abs=12)
    assert all(util <= 5 for index, util in utils.items() if index != last)
    assert found[last][-1].values[USED] > 2048
    assert worker.pid in {process.pid for process in found[last][-1].processes}
    for index in range(last):
        assert worker.pid not in {process.pid for process in found[index][-1].processes}


def test_copies_between_any_two_gpus_are_seen_on_both_and_no_other(
    several, torch_there, results
) -> None:
    found = results["copies_between_gpus"] = []
    pairs = list(itertools.combinations(range(len(several.gpus())), 2))
    for n, pair in enumerate(pairs):
        giver, taker = pair if n % 2 else reversed(pair)
        copying = subprocess.Popen(
            [sys.executable, str(COPIES), "8", str(giver), str(taker)],
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            assert copying.stdout.readline().strip() == "ready"
            read_for(several, 2)
            seen = read_for(several, 4)
        finally:
            told, _ = copying.communicate(timeout=60)
        rates = {
            index: {
                way: max(
                    (
                        mean(readings, name.format(way=way))
                        for name in (LINK, PCIE)
                        if name.format(way=way) in readings[-1].values
                    ),
                    default=0,
                )
                for way in ("TX", "RX")
            }
            for index, readings in seen.items()
        }
        copied = float(told.split()[-1])
        found.append({"from": giver, "to": taker, "copied_bytes_per_s": copied, "rates": rates})
        for index, each in rates.items():
            # Headers count, and readings have other seconds than copies: what was copied, within a third.
            sent, received = (copied if index == at else 0 for at in (giver, taker))
            assert each["TX"] == pytest.approx(sent, rel=0.34, abs=copied / 10)
            assert each["RX"] == pytest.approx(received, rel=0.34, abs=copied / 10)
