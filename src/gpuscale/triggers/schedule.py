"""Schedules that wake a workload, as KEDA's cron trigger reads them.

Source: KEDA 2.20 pkg/scalers/cron_scaler.go (awake while the next end comes before the next start).
"""

from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from gpuscale.base.cron import next_time_ms
from gpuscale.triggers.trigger import WakeSchedule


def check_timezone(name: str) -> None:
    """Raise for an unknown time zone.

    Raises:
        ValueError: it is none.
    """
    try:
        ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise ValueError("a time zone such as Europe/Berlin or UTC") from None


def awake(schedule: WakeSchedule, now_ms: int) -> tuple[bool, int]:
    """Return whether the schedule is active, and when that may change, in milliseconds.

    Raises:
        ValueError: an expression or the zone is wrong.
    """
    start_ms = next_time_ms(schedule.start, schedule.timezone, now_ms)
    end_ms = next_time_ms(schedule.end, schedule.timezone, now_ms)
    return end_ms < start_ms, min(start_ms, end_ms)
