"""Schedules, as KEDA's cron trigger reads them: awake while the next end comes before the next start."""

from datetime import datetime
from zoneinfo import ZoneInfo

import pytest

from gpuscale.base.cron import check_expression
from gpuscale.triggers.schedule import awake
from gpuscale.triggers.trigger import WakeSchedule


def _ms(text, zone="UTC"):
    return round(datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone)).timestamp() * 1000)


DAYS = WakeSchedule("0 8 * * 1-5", "0 18 * * 1-5", "Europe/Berlin")
NIGHTS = WakeSchedule("0 22 * * *", "0 6 * * *")
SKIPPED = WakeSchedule("30 2 * * *", "0 12 * * *", "Europe/Berlin")


@pytest.mark.parametrize(
    ("schedule", "now", "is_awake", "until"),
    [
        (DAYS, "2026-11-23T07:59:59", False, "2026-11-23T08:00:00"),
        (DAYS, "2026-11-23T08:00:00", True, "2026-11-23T18:00:00"),
        (DAYS, "2026-11-23T17:59:59", True, "2026-11-23T18:00:00"),
        (DAYS, "2026-11-23T18:00:00", False, "2026-11-24T08:00:00"),
        (DAYS, "2026-11-28T12:00:00", False, "2026-11-30T08:00:00"),
        (NIGHTS, "2026-11-23T23:00:00", True, "2026-11-24T06:00:00"),
        (NIGHTS, "2026-11-23T12:00:00", False, "2026-11-23T22:00:00"),
        # On 2026-03-29 clocks in Berlin go from 2:00 to 3:00: 2:30 does not come.
        (SKIPPED, "2026-03-29T01:00:00", True, "2026-03-29T12:00:00"),
        # On 2026-10-25 they go from 3:00 to 2:00: the first 2:30 counts.
        (SKIPPED, "2026-10-25T01:00:00", False, "2026-10-25T02:30:00"),
    ],
)
def test_awake(schedule, now, is_awake, until):
    zone = schedule.timezone
    assert awake(schedule, _ms(now, zone)) == (is_awake, _ms(until, zone))


@pytest.mark.parametrize(
    "text",
    ["*/5 * * * *", "0 0 */2 * 1", "0 8 ? JAN-MAR mon-fri", "5/10 0-6,22 1,15 * *", "0 0 * * 5/1"],
)
def test_expressions_that_keda_takes(text):
    check_expression(text)


@pytest.mark.parametrize(
    "text",
    [
        *("", "* * * *", "* * * * * *", "@daily", "61 * * * *", "0 8 * * 7", "0 0 L * *"),
        *("0 0 * * 5L", "0 0 * * 1#2", "0 0 31 2 *", "CRON_TZ=UTC 0 8 * *", "0 0 * * 1-0"),
        *("x" * 10_000, "*/0 * * * *", "0 8 * * " + "1," * 300 + "1"),
    ],
)
def test_expressions_that_keda_refuses(text):
    with pytest.raises(ValueError, match=r"field|day of the|comes"):
        check_expression(text)


def test_a_star_with_a_step_restricts_the_days():
    # robfig's cron: day of the month 1, 3, 5, ... or Monday. 2026-11-23 is a Monday, 2026-11-25 the 25th.
    schedule = WakeSchedule("0 0 */2 * 1", "0 12 */2 * 1")
    assert awake(schedule, _ms("2026-11-23T06:00:00"))[0] is True
    assert awake(schedule, _ms("2026-11-24T06:00:00"))[0] is False
    assert awake(schedule, _ms("2026-11-25T06:00:00"))[0] is True
