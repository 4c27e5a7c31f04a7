"""Means over windows, against sums done by hand."""

import pytest

from gpuscale.gpu.nvml.windows import ProcessSample, ProcessUse, mean_percent, process_uses


@pytest.mark.parametrize(
    ("samples", "since", "mean"),
    [
        pytest.param([], 0, None, id="none"),
        pytest.param([(100, 50)], 100, None, id="the sample at the window's start is not in it"),
        pytest.param([(200, 40), (400, 80)], 0, 60.0, id="equal spans: (40 + 80) / 2"),
        pytest.param([(100, 40), (400, 80)], 0, 70.0, id="(40 * 100 + 80 * 300) / 400"),
        pytest.param([(400, 80), (200, 40)], 0, 60.0, id="any order"),
        pytest.param(
            [(200, 40), (300, 101), (400, 80)], 0, 60.0, id="impossible values passed over"
        ),
        pytest.param([(50, 100), (200, 40)], 100, 40.0, id="older samples do not count"),
        # The buffer begins 15 s after the window does: its first sample stands for 1 s and no more,
        # (90 * 1.0 + 20 * 0.2) / 1.2 = 78.3
        pytest.param(
            [(16_000_000, 90), (16_200_000, 20)],
            1_000_000,
            pytest.approx(94 / 1.2),
            id="a buffer that does not reach back far enough",
        ),
    ],
)
def test_mean_is_weighted_by_time(samples, since, mean):
    assert mean_percent(samples, since) == mean


def sample(pid, stamp, sm):
    return ProcessSample(pid, stamp, sm, 0, 0, 0)


def test_one_sample_per_process_is_its_mean():
    uses = process_uses([sample(1, 1000, 70), sample(2, 1000, 30)], 0)
    assert (uses[1].sm_util, uses[2].sm_util) == (70, 30)


def test_process_that_went_idle_counts_as_idle_up_to_the_newest_sample():
    # Process 1 has 60 % until 500, then nothing until 1000: 60 * 500 / 1000 = 30.
    assert process_uses([sample(1, 500, 60), sample(2, 1000, 10)], 0)[1] == ProcessUse(30, 0, 0, 0)


def test_several_samples_of_a_process_are_weighted_by_time():
    # (20 * 250 + 40 * 750) / 1000 = 35
    assert process_uses([sample(1, 250, 20), sample(1, 1000, 40)], 0)[1].sm_util == 35


@pytest.mark.parametrize(
    "junk",
    [
        pytest.param(sample(0, 1000, 50), id="no process"),
        pytest.param(sample(1, 1000, 4_000_000), id="more than all"),
        pytest.param(sample(1, 900, 50), id="stale"),
    ],
)
def test_junk_in_the_buffer_is_no_use(junk):
    assert process_uses([junk], 900) == {}
