"""What holds of readings whatever the driver says."""

import pynvml
from hypothesis import given
from hypothesis import strategies as st

from examples import at_most
from gpuscale.agent.nvml.faults import REASONS
from gpuscale.agent.nvml.reader import NvmlReader
from gpuscale.agent.nvml.settings import NvmlSettings
from gpuscale.agent.nvml.values.plan import EVENT_FIELDS, READABLE
from gpuscale.agent.nvml.values.windows import ProcessSample, ProcessUse, mean_percent, process_uses
from gpuscale.base.clock import ManualClock
from gpuscale.base.errors import UnavailableError
from gpuscale.testing.nvml import FakeGpu, FakeInstance, FakeNvml, FakeProcess

stamps = st.integers(0, 2**63)
percents = st.integers(0, 2**32 - 1)
CODES = sorted(pynvml.NVMLError._valClassMapping)
CALLS = sorted(
    name
    for name in dir(FakeNvml)
    if name.startswith("nvml") and name not in ("nvmlLib", "nvmlEventSetWait_v2")
)


@given(st.lists(st.tuples(stamps, percents)), stamps)
def test_mean_lies_among_the_samples_or_is_none(samples, since) -> None:
    mean = mean_percent(samples, since)
    fresh = [value for stamp, value in samples if stamp > since and value <= 100]
    if mean is None:
        assert not fresh
    else:
        assert min(fresh) - 1e-6 <= mean <= max(fresh) + 1e-6


@given(
    st.lists(
        st.builds(
            ProcessSample,
            st.integers(0, 3),
            stamps,
            st.builds(ProcessUse, percents, percents, percents, percents),
        )
    ),
    stamps,
)
def test_use_is_a_percentage_of_a_real_process(samples, since) -> None:
    for pid, use in process_uses(samples, since).items():
        assert pid > 0
        assert 0 <= use.sm_util <= 100
        assert 0 <= use.decode_util <= 100


@at_most(60)
@given(
    st.dictionaries(st.sampled_from(CALLS), st.sampled_from(CODES), max_size=4),
    st.booleans(),
)
def test_whatever_calls_fail_a_read_ends_with_readings_or_its_own_error(failing, is_split) -> None:
    clock = ManualClock(1_700_000_000_000)
    instances = [FakeInstance(7, processes=[FakeProcess(3)])] if is_split else None
    nvml = FakeNvml(
        [FakeGpu(processes=[FakeProcess(1, 50)], instances=instances), FakeGpu()],
        now_us=lambda: clock.now_ms() * 1000,
    )
    paces = NvmlSettings(patience_ms=2_000, deadline_ms=5_000, xid_wait_ms=1)
    reader = NvmlReader(paces, nvml, clock=clock, present=nvml.present)
    for call, code in failing.items():
        nvml.fail(call, code)
    for _ in range(3):
        clock.advance(1)
        try:
            readings = reader.read(clock.now_ms())
        except UnavailableError:
            continue
        for reading in readings:
            assert set(reading.absent.values()) <= REASONS
            assert not reading.values.keys() & reading.absent.keys()
            assert reading.values.keys() | reading.absent.keys() <= READABLE | EVENT_FIELDS
    reader.close()
