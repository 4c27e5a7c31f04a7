"""Utilisation asked for several times a second, beside the reads."""

import time
from types import SimpleNamespace

import pynvml
import pytest

from gpuscale.agent.nvml.calls import Caller
from gpuscale.agent.nvml.reader import NvmlReader
from gpuscale.agent.nvml.settings import NvmlSettings
from gpuscale.agent.nvml.values.polls import Poller, Polls
from gpuscale.agent.nvml.values.utilization import Utilization
from gpuscale.base.clock import ManualClock
from gpuscale.testing.nvml import FakeGpu, FakeNvml

UTIL = "DCGM_FI_DEV_GPU_UTIL"
MEM_UTIL = "DCGM_FI_DEV_MEM_COPY_UTIL"
PERIOD_US = 200_000
LIMIT_S = 30


def polls(*stamps_us):
    """Return figures of 10, 20, 30 and so on, taken at these times."""
    made = Polls(PERIOD_US // 1000)
    for n, stamp_us in enumerate(stamps_us, 1):
        made.add(stamp_us, SimpleNamespace(gpu=10 * n, memory=n))
    return made


@pytest.mark.parametrize(
    ("stamps_us", "window"),
    [
        pytest.param((), None, id="nothing yet"),
        pytest.param((5_000_000, 5_200_000), [(5_200_000, 20)], id="what came after the start"),
        pytest.param((5_000_000,), [], id="covered, and nothing new"),
        # A figure stands for 200 ms; the first may come 300 ms after the window's start.
        pytest.param((5_300_000,), [(5_300_000, 10)], id="begun within the first figure's time"),
        pytest.param((5_300_001,), None, id="begun too late"),
        pytest.param((4_000_000,), None, id="the thread is held up"),
    ],
)
def test_figures_are_given_where_they_cover_the_window(stamps_us, window) -> None:
    assert polls(*stamps_us).window("gpu", since_us=5_000_000, now_us=5_500_000) == window


def test_clock_that_was_set_back_covers_nothing() -> None:
    assert polls(9_000_000).window("gpu", since_us=9_000_000, now_us=5_000_000) is None


class Desk:
    """A poller over the stand-in that asks when told to."""

    def __init__(self, *gpus) -> None:
        self.clock = ManualClock(1_700_000_000_000)
        self.nvml = FakeNvml(gpus, now_us=self.now_us)
        self.nvml.nvmlInit()
        self.poller = Poller(Caller(self.nvml), self.now_us, PERIOD_US // 1000, retry_ms=60_000)
        self.start_us = self.now_us()
        handles = [self.nvml.nvmlDeviceGetHandleByIndex(n) for n in range(len(gpus))]
        self.polls = [self.poller.watch(handle) for handle in handles]

    def now_us(self):
        return self.clock.now_ms() * 1000

    def poll(self, times=1) -> None:
        for _ in range(times):
            self.poller.poll()
            self.clock.advance(PERIOD_US / 1e6)

    def figures(self, index, rate="gpu"):
        window = self.polls[index].window(rate, self.start_us - 1, self.now_us())
        return None if window is None else [percent for _, percent in window]


def test_every_gpu_is_asked_for_both_figures() -> None:
    desk = Desk(FakeGpu(busy_percent=40, memory_busy_percent=9), FakeGpu(busy_percent=70))
    desk.poll(times=3)
    assert desk.figures(0) == [40, 40, 40]
    assert desk.figures(0, "memory") == [9, 9, 9]
    assert desk.figures(1) == [70, 70, 70]


def test_gpu_that_is_lost_covers_nothing_and_the_others_go_on() -> None:
    desk = Desk(FakeGpu(busy_percent=40), FakeGpu(busy_percent=70))
    desk.poll()
    desk.nvml.lose(0)
    desk.poll()
    assert desk.figures(0) is None
    assert desk.figures(1) == [70, 70]


def test_what_is_not_supported_is_asked_again_only_after_a_while() -> None:
    desk = Desk(FakeGpu())
    desk.nvml.not_supported("nvmlDeviceGetUtilizationRates")
    desk.poll(times=10)
    assert desk.nvml.count("nvmlDeviceGetUtilizationRates") == 1
    desk.clock.advance(60)
    desk.poll()
    assert desk.nvml.count("nvmlDeviceGetUtilizationRates") == 2


def test_gpu_that_was_left_is_asked_no_more() -> None:
    desk = Desk(FakeGpu())
    desk.poll()
    desk.poller.leave(desk.polls[0])
    desk.poll()
    assert desk.nvml.count("nvmlDeviceGetUtilizationRates") == 1
    assert desk.figures(0) is None


# With the thread, in real time


def reading_until(reader, condition, pause_s=0.1):
    """Read at a pace, until a condition of the reading holds."""
    deadline = time.monotonic() + LIMIT_S
    while time.monotonic() < deadline:
        (reading,) = reader.read(time.time_ns() // 1_000_000)
        if condition(reading):
            return reading
        time.sleep(pause_s)
    raise AssertionError("it did not come")


def calls_of(reader):
    return {each.source: each.calls for each in reader.stats()}


@pytest.fixture
def beside():
    """Make a stand-in and a reader with its own thread for polls."""
    made = []

    def make(gpu, **settings):
        nvml = FakeNvml([gpu])
        fields = frozenset({UTIL, MEM_UTIL})
        reader = NvmlReader(NvmlSettings(**settings), library=nvml, fields=fields)
        made.append(reader)
        return nvml, reader

    yield make
    for reader in made:
        reader.close()


def test_reads_that_come_often_are_served_from_polls_and_leave_the_buffers_alone(beside) -> None:
    nvml, reader = beside(FakeGpu(busy_percent=40, memory_busy_percent=9), poll_period_ms=20)
    buffered = nvml.count("nvmlDeviceGetSamples")

    def is_from_polls(_reading):
        nonlocal buffered
        before, buffered = buffered, nvml.count("nvmlDeviceGetSamples")
        return before == buffered > 0

    reading = reading_until(reader, is_from_polls)
    assert reading.values == {UTIL: 40, MEM_UTIL: 9}
    assert calls_of(reader)["utilization_rates"] > 1


def test_without_polls_in_time_the_driver_is_asked(beside) -> None:
    nvml, reader = beside(FakeGpu(busy_percent=40), poll_period_ms=20)
    reading_until(reader, lambda _: nvml.count("nvmlDeviceGetUtilizationRates") > 3)
    nvml.fail("nvmlDeviceGetUtilizationRates", pynvml.NVML_ERROR_UNKNOWN)
    before = nvml.count("nvmlDeviceGetSamples")
    reading = reading_until(reader, lambda _: nvml.count("nvmlDeviceGetSamples") > before)
    assert reading.values[UTIL] == 40


def test_reader_that_does_not_read_polls_nothing(beside) -> None:
    nvml, reader = beside(FakeGpu(busy_percent=40), poll_period_ms=20)
    reader.read(time.time_ns() // 1_000_000)
    time.sleep(0.2)
    assert nvml.count("nvmlDeviceGetUtilizationRates") == 0


def test_reads_that_come_as_often_as_figures_leave_the_thread_nothing_to_ask() -> None:
    desk = Desk(FakeGpu(), FakeGpu())
    poller = Asked(Caller(desk.nvml), desk.now_us, PERIOD_US // 1000, retry_ms=60_000)
    polls = [poller.watch(n) for n in range(2)]
    assert not poller.is_asked_by_reads(gap_s=0.25)  # no figure is there yet
    for each in polls:
        each.add(desk.now_us(), None)
    assert poller.is_asked_by_reads(gap_s=0.25)
    assert not poller.is_asked_by_reads(gap_s=0.5)
    desk.clock.advance(0.5)
    polls[0].add(desk.now_us(), None)
    assert not poller.is_asked_by_reads(gap_s=0.25)  # the other GPU's newest figure is too old


def test_closing_ends_the_thread_and_then_the_library(beside) -> None:
    nvml, reader = beside(FakeGpu(), poll_period_ms=20)
    reading_until(reader, lambda _: nvml.count("nvmlDeviceGetUtilizationRates") > 3)
    reader.close()
    assert not nvml.is_open
    asked = nvml.count("nvmlDeviceGetUtilizationRates")
    time.sleep(0.2)
    assert nvml.count("nvmlDeviceGetUtilizationRates") == asked


class Asked(Poller):
    """A poller that is read at a pace."""

    def is_asked_by_reads(self, gap_s):
        self._gap_s, self._last_read_s = gap_s, time.monotonic()
        return self._is_asked_by_reads()


class Polling(Poller):
    """A poller whose thread counts as running."""

    is_polling = True


def edge(polled_for_us, read_after_us):
    """Return what a read says of a GPU that became busy between two polls."""
    desk = Desk(FakeGpu(busy_percent=lambda now_us: 100 * (now_us > 1_700_000_000_900_000)))
    desk.poller = Polling(Caller(desk.nvml), desk.now_us, PERIOD_US // 1000, retry_ms=60_000)
    handle = desk.nvml.nvmlDeviceGetHandleByIndex(0)
    paces = NvmlSettings(first_window_ms=400)
    fields = frozenset({UTIL})
    util = Utilization(Caller(desk.nvml), handle, fields, paces, desk.poller, shift=0.0)
    desk.poll(times=polled_for_us // PERIOD_US)
    desk.clock.advance(read_after_us / 1e6)
    return util.read(desk.now_us() // 1000).values[UTIL]


def test_read_has_the_figure_of_its_own_moment() -> None:
    # Polls at 0.4, 0.6 and 0.8 s say 0; the read at 1.0 s has the 100 of the last 200 ms.
    assert edge(1_000_000, read_after_us=0) == 50


def test_read_does_not_fill_in_for_a_poller_that_is_held_up() -> None:
    # The last poll is 700 ms old, so that the driver's buffer is asked: nothing but 100 since 0.9 s.
    assert edge(1_000_000, read_after_us=500_000) == 100
