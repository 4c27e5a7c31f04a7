"""GPUs and drivers that fail, over the stand-in."""

import logging
import threading
import time

import pynvml
import pytest

from gpuscale.agent.nvml import faults
from gpuscale.agent.nvml.reader import NvmlReader
from gpuscale.agent.nvml.settings import NvmlSettings
from gpuscale.base.errors import UnavailableError
from gpuscale.testing.nvml import FakeGpu, FakeProcess

TEMP = "DCGM_FI_DEV_GPU_TEMP"
ACTIVE = "DCGM_FI_PROF_SM_ACTIVE"


HURRIED = {"patience_ms": 30, "deadline_ms": 1_000}
"""For GPUs that hang: each read takes the whole deadline once."""


def two(bench, fields=frozenset({TEMP}), **settings):
    paces = NvmlSettings(**{"patience_ms": 10_000, "deadline_ms": 30_000, **settings})
    return bench(FakeGpu(uuid="GPU-a"), FakeGpu(uuid="GPU-b"), fields=fields, settings=paces)


@pytest.mark.parametrize(
    ("needs_reset", "reason"), [(False, faults.GPU_LOST), (True, faults.RESET_REQUIRED)]
)
def test_lost_gpu_has_one_reason_and_the_others_are_read(bench, needs_reset: bool, reason) -> None:
    b = two(bench)
    b.read()
    b.nvml.lose(1, needs_reset=needs_reset)
    first, second = b.read()
    assert first.values == {TEMP: 35}
    assert second.is_lost
    assert second.absent == {TEMP: reason}
    assert [gpu.uuid for gpu in b.reader.gpus()] == ["GPU-a", "GPU-b"]


def test_lost_gpu_is_tried_again_at_intervals_and_comes_back(bench) -> None:
    b = two(bench, lost_retry_ms=5_000)
    b.read()
    b.nvml.lose(1)
    b.read()
    b.nvml.find(1)
    assert b.read(after_s=1)[1].is_lost
    assert b.read(after_s=5)[1].values == {TEMP: 35}


def test_library_is_opened_anew_for_a_gpu_that_stays_lost(bench) -> None:
    b = two(bench, lost_reopen_ms=30_000)
    b.read()
    b.nvml.lose(1)
    for _ in range(35):
        b.read()
    assert b.nvml.count("nvmlInit") == 2
    assert [gpu.uuid for gpu in b.reader.gpus()] == ["GPU-a", "GPU-b"]
    assert b.read()[1].absent == {TEMP: faults.GPU_LOST}


def test_gpu_that_is_lost_from_the_start_is_told_of(bench) -> None:
    b = two(bench)
    b.nvml.lose(1)
    _, second = b.read()
    assert second.gpu.uuid == "unknown-1"
    assert second.absent == {TEMP: faults.GPU_LOST}


def test_hanging_gpu_delays_one_read_and_no_other(bench) -> None:
    b = two(bench, **HURRIED)
    b.read()
    b.nvml.hang(0)
    first, second = b.read()
    assert first.absent == {TEMP: faults.NO_ANSWER}
    assert second.values == {TEMP: 35}
    calls = b.nvml.count("nvmlDeviceGetTemperature")
    for _ in range(5):
        assert b.read()[0].is_lost
    # Only the GPU that answers was asked: never two calls for one GPU at once.
    assert b.nvml.count("nvmlDeviceGetTemperature") == calls + 5
    b.nvml.release(0)


def test_hanging_gpu_is_read_again_once_it_answers(bench) -> None:
    b = two(bench, **HURRIED)
    b.read()
    b.nvml.hang(0)
    b.read()
    b.nvml.release(0)
    b.reader._slots[0].work.wait(30)
    assert b.read()[0].values == {TEMP: 35}


def test_answer_that_comes_late_is_not_served(bench) -> None:
    b = two(bench, **HURRIED)
    b.read()
    b.nvml.hang(0)
    b.read()
    slot = b.reader._slots[0]
    b.clock.advance(1)
    b.nvml.release(0)
    slot.work.wait(30)
    assert slot.outcome(b.now_ms)[0].absent == {TEMP: faults.NO_ANSWER}


def test_profiling_call_that_hangs_leaves_the_others_without_profiling_alone(bench) -> None:
    b = two(bench, fields={TEMP, ACTIVE}, **HURRIED)
    b.read()
    b.read()
    b.nvml.hang(0, "nvmlGpmSampleGet")
    first, second = b.read()
    assert first.absent == dict.fromkeys((TEMP, ACTIVE), faults.NO_ANSWER)
    assert second.values == {TEMP: 35}
    assert second.absent == {ACTIVE: faults.OTHER_PROFILED}
    b.nvml.release(0)
    b.reader._slots[0].work.wait(30)
    b.read()
    assert [set(reading.values) for reading in b.read()] == [{TEMP, ACTIVE}] * 2


def test_two_readers_of_one_process_never_profile_at_once(bench) -> None:
    b = two(bench, fields={ACTIVE})
    within, most = [], []

    def watched(function):
        def call(*args):
            within.append(function)
            most.append(len(within))
            time.sleep(0.001)
            try:
                return function(*args)
            finally:
                within.pop()

        return call

    for name in ("Alloc", "Free", "Get"):
        setattr(b.nvml, f"nvmlGpmSample{name}", watched(getattr(b.nvml, f"nvmlGpmSample{name}")))
    b.nvml.nvmlGpmMetricsGet = watched(b.nvml.nvmlGpmMetricsGet)
    settings = NvmlSettings(patience_ms=10_000, deadline_ms=30_000, poll_period_ms=0)
    readers = [
        NvmlReader(settings, b.nvml, frozenset({ACTIVE}), clock=b.clock, present=b.nvml.present)
        for _ in range(2)
    ]

    for _ in range(10):
        b.clock.advance(1)
        threads = [threading.Thread(target=reader.read, args=(b.now_ms,)) for reader in readers]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    for reader in readers:
        reader.close()
    # Each of two readers takes ten samples of each of two GPUs, and computes nine values from them.
    assert len(most) >= 2 * 2 * (10 + 9)
    assert max(most) == 1


def test_hanging_gpu_keeps_the_library_open_at_the_end(
    bench, caplog: pytest.LogCaptureFixture
) -> None:
    b = two(bench, **HURRIED)
    b.read()
    b.nvml.hang(0)
    b.read()
    b.reader.close()
    assert b.nvml.is_open
    assert "NVML is left open: a call to it has not come back" in caplog.text
    b.nvml.release(0)


def test_driver_that_goes_away_is_told_and_its_return_is_noticed(bench) -> None:
    b = two(bench, reopen_first_ms=1_000)
    b.read()
    b.nvml.reset(code=pynvml.NVML_ERROR_DRIVER_NOT_LOADED)
    with pytest.raises(
        UnavailableError, match=r"^NVML can't be used: the NVIDIA driver is not loaded$"
    ):
        b.read()
    b.nvml.restore()
    assert [reading.values for reading in b.read(after_s=1)] == [{TEMP: 35}] * 2


def test_opening_is_tried_less_and_less_often(bench) -> None:
    b = two(bench, reopen_first_ms=1_000, reopen_last_ms=4_000)
    b.nvml.reset(code=pynvml.NVML_ERROR_DRIVER_NOT_LOADED)
    for _ in range(16):
        with pytest.raises(UnavailableError):
            b.read()
    # At second 1, 2, 4, 8, 12 and 16.
    assert b.nvml.count("nvmlInit") == 6


def test_driver_that_was_replaced_says_to_restart(bench) -> None:
    b = two(bench)
    b.nvml.reset(code=pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH)
    with pytest.raises(UnavailableError, match=r"restart the exporter$"):
        b.read()


def test_plugged_gpu_is_found(bench) -> None:
    b = two(bench)
    b.read()
    b.nvml.plug(FakeGpu(uuid="GPU-c"))
    assert [reading.gpu.uuid for reading in b.read()] == ["GPU-a", "GPU-b", "GPU-c"]


def test_unplugged_gpu_is_told_of_as_gone_for_a_while(bench) -> None:
    b = two(bench, forget_gone_ms=60_000)
    b.read()
    b.nvml.unplug(0)
    readings = {reading.gpu.uuid: reading for reading in b.read()}
    assert readings["GPU-a"].absent == {TEMP: faults.GPU_GONE}
    assert readings["GPU-b"].values == {TEMP: 35}
    assert [gpu.uuid for gpu in b.reader.gpus()] == ["GPU-a", "GPU-b"]
    b.read(after_s=61)
    assert [reading.gpu.uuid for reading in b.read()] == ["GPU-b"]


def test_unplugged_gpu_that_returns_is_not_gone_any_more(bench) -> None:
    b = two(bench)
    b.read()
    gpu = b.nvml.unplug(0)
    b.read()
    b.nvml.plug(FakeGpu(uuid="GPU-new"))
    b.nvml.plug(gpu)
    b.nvml.find(2)
    assert all(reading.values for reading in b.read())


def test_permission_is_told_apart_from_support(bench) -> None:
    b = two(bench)
    b.nvml.no_permission("nvmlDeviceGetTemperature", index=0)
    first, second = b.read()
    assert first.absent == {TEMP: faults.NO_PERMISSION}
    assert second.values


def test_fault_in_the_reader_is_told_and_logged(bench, caplog: pytest.LogCaptureFixture) -> None:
    b = two(bench)
    b.read()
    b.nvml.nvmlDeviceGetTemperature = None.__class__  # not callable with these arguments
    with caplog.at_level(logging.ERROR):
        assert [reading.absent for reading in b.read()] == [{TEMP: faults.READER_FAULT}] * 2
    assert "reading GPU 0 (GPU-a) broke off" in caplog.text


def test_lists_of_processes_that_fail_leave_the_rest(bench) -> None:
    b = bench(FakeGpu(processes=[FakeProcess(7, 50)]), fields={TEMP})
    b.nvml.not_supported("nvmlDeviceGetMPSComputeRunningProcesses_v3")
    reading = b.one()
    assert reading.values == {TEMP: 35}
    assert [process.pid for process in reading.processes] == [7]


def test_close_twice_is_as_good_as_once(bench) -> None:
    b = two(bench)
    b.read()
    b.reader.close()
    b.reader.close()
    assert not b.nvml.is_open
