"""Forecasts of GPU-hours whose right answer is arithmetic, and of public traces."""

import random
import sys
from pathlib import Path

import pytest

from gpuscale.ops.money.forecast import look_ahead

ROOT = Path(__file__).parents[3]
TRACES = ROOT.parent / "shared" / "data" / "traces"
sys.path.insert(0, str(ROOT / "benchmarks"))
NIGHT_AND_DAY = [0.0] * 12 + [10.0] * 12
WORKDAY, WEEKEND = [10.0] * 24, [2.0] * 24


def test_what_never_changes_goes_on() -> None:
    found = look_ahead([8.0] * 24 * 28)
    assert found.days == pytest.approx([8 * 24] * 14)
    assert (found.low, found.high) == pytest.approx((8 * 24 * 14, 8 * 24 * 14))
    assert found.season == "none"


def test_a_day_that_repeats_is_a_daily_pattern() -> None:
    found = look_ahead(NIGHT_AND_DAY * 4, days=2)
    assert found.season == "daily"
    assert found.skill == pytest.approx(1)
    assert found.days == pytest.approx([120, 120])
    assert found.errors == pytest.approx([0, 0])


def test_a_week_that_repeats_is_a_weekly_pattern() -> None:
    week = [*WORKDAY * 5, *WEEKEND * 2]
    found = look_ahead(week * 4, days=7)
    assert found.season == "weekly"
    assert found.days == pytest.approx([240] * 5 + [48] * 2)


def test_noise_does_not_hide_the_days_of_the_week() -> None:
    # On 20 GPUs by day and 8 by night and at weekends is noise with a standard deviation of 3.
    draw = random.Random(1)
    week = [*([8.0] * 12 + [20.0] * 12) * 5, *[8.0] * 48]
    found = look_ahead([each + draw.gauss(0, 3) for each in week * 4], days=7)
    assert found.season == "weekly"
    assert found.days[:5] == pytest.approx([12 * 8 + 12 * 20] * 5, rel=0.1)
    assert found.days[5:] == pytest.approx([24 * 8] * 2, rel=0.15)


def test_a_day_that_repeats_for_weeks_is_no_weekly_pattern() -> None:
    draw = random.Random(1)
    found = look_ahead([each + draw.gauss(0, 2) for each in NIGHT_AND_DAY * 28], days=2)
    assert found.season == "daily"
    assert found.days == pytest.approx([120] * 2, rel=0.1)


def test_the_range_may_begin_and_end_within_a_day() -> None:
    week = [*WORKDAY * 5, *WEEKEND * 2]
    found = look_ahead((week * 5)[30:-20], days=7)
    # The last week lacks 20 hours of its Sunday: they come first, then 4 hours of a workday.
    assert found.days == pytest.approx([20 * 2 + 4 * 10, *[240] * 4, 20 * 10 + 4 * 2, 48])


def test_a_trend_goes_on_at_half_its_slope() -> None:
    # The Theta method's drift is half the slope of the line through the past (Hyndman and Billah, 2003).
    rising = [float(hour // 24) for hour in range(24 * 28)]
    found = look_ahead(rising)
    assert found.days == pytest.approx([24 * (27 + ahead / 2) for ahead in range(1, 15)])


def test_two_weeks_are_needed_for_a_trend() -> None:
    rising = [float(hour // 24) for hour in range(24 * 6)]
    assert look_ahead(rising, days=3).days == pytest.approx([24 * 5] * 3)


def test_gaps_are_as_the_day_before_and_leading_ones_no_past() -> None:
    hours: list[float | None] = [*NIGHT_AND_DAY * 5]
    hours[50:60] = [None] * 10
    assert look_ahead([None] * 100 + hours, days=2) == look_ahead(NIGHT_AND_DAY * 5, days=2)


def test_held_back_errors_make_the_interval() -> None:
    # Out of 3 days, and of 4, two more days of 8 GPUs are forecast: 8 and 8 came, then 8 and 16.
    found = look_ahead([8.0] * 24 * 5 + [16.0] * 24, days=2)
    assert found.errors == pytest.approx([0, 16 / 24 - 1])
    assert found.low < found.total < found.high


@pytest.mark.parametrize("hours", [[], [None] * 500, [1.0] * 71, [1.0, *[None] * 100, 1.0] * 3])
def test_too_little_is_no_past(hours) -> None:
    with pytest.raises(ValueError, match="expected 3 days"):
        look_ahead(hours)


def test_public_traces_that_are_long_enough_are_met_within_a_tenth() -> None:
    if not TRACES.exists():
        pytest.skip("needs the public traces in ../shared/data/traces")
    from bench_forecast import LONG_DAYS, held_back

    long = {each.name: each for each in held_back(TRACES) if each.days >= LONG_DAYS}
    for each in long.values():
        assert each.found.low <= each.came <= each.found.high, each
    # The six weeks of Philly before it was resized end in a weekend, and a drop that no week before had.
    assert abs(long.pop("philly").error) <= 0.15
    assert len(long) == 4
    for each in long.values():
        assert abs(each.error) <= 0.1, each
