"""Cron expressions as github.com/robfig/cron v3 reads them: KEDA's triggers, Karpenter's budgets.

Source: its parser's five fields, and SpecSchedule.Next.
Known difference: a prefix such as `CRON_TZ=Europe/Berlin` is refused; the zone is given apart.
"""

import re
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

_FIELD = re.compile(r"[0-9A-Za-z*?,/-]+")
_LAST = (59, 23, 31, 12, 6)
"""The largest number of each field: to a step without an end belongs the rest."""
_FIRST = (0, 0, 1, 1, 0)
_NEVER = "a time that comes"
_FIVE = "five fields of a cron expression, such as 0 8 * * 1-5"
_MAX_TEXT = 200


def check_expression(text: str) -> None:
    """Raise for an invalid cron expression, or one that never occurs.

    Raises:
        ValueError: it is one; the message says what was expected.
    """
    fields = _expression(text)
    try:
        next(CronSim(fields, datetime(2026, 1, 1)))  # noqa: DTZ001 - the wall time of any zone
    except CronSimError as error:
        raise ValueError(f"{_FIVE} ({str(error).lower()})") from None
    except StopIteration:
        raise ValueError(_NEVER) from None


@lru_cache(maxsize=4096)
def _expression(text: str) -> str:
    """Return the expression in cronsim's dialect (Vixie's cron), where it differs from robfig's."""
    fields = text.split() if len(text) <= _MAX_TEXT else []
    if len(fields) != len(_LAST) or not all(map(_FIELD.fullmatch, fields)):
        raise ValueError(_FIVE)
    return " ".join(_field(field.upper(), place) for place, field in enumerate(fields))


def _field(field: str, place: int) -> str:
    terms = []
    for term in field.replace("?", "*").split(","):
        base, slash, step = term.partition("/")
        if place == 4 and re.fullmatch(r".*7.*", base):
            raise ValueError("0 to 6, or SUN to SAT, as the day of the week")
        if place == 2 and re.search(r"[LW]", base):
            raise ValueError("1 to 31 as the day of the month")
        if place == 4 and base.endswith("L"):
            raise ValueError("0 to 6, or SUN to SAT, as the day of the week")
        # A star with a step restricts days, so that a match of day of month or day of week is
        # enough.
        if slash and base == "*" and step != "1":
            base = f"{_FIRST[place]}-{_LAST[place]}"
        elif slash and "-" not in base and base != "*":
            base = f"{base}-{_LAST[place]}"
        terms.append(base + slash + step)
    return ",".join("*" if term == "*/1" else term for term in terms)


def next_time_ms(text: str, timezone: str, now_ms: int) -> int:
    """Return an expression's next time; one that a clock change skips does not occur that day.

    Raises:
        ValueError: the expression is wrong, or never comes.
    """
    zone = ZoneInfo(timezone)
    now = datetime.fromtimestamp(now_ms / 1000, UTC)
    for local in CronSim(_expression(text), now.astimezone(zone).replace(tzinfo=None)):
        for fold in (
            0,
            1,
        ):  # an hour that a clock change repeats occurs twice, and counts from the first time on
            due = local.replace(tzinfo=zone, fold=fold).astimezone(UTC)
            is_skipped = due.astimezone(zone).replace(tzinfo=None) != local
            if due > now and not is_skipped:
                return round(due.timestamp() * 1000)
        if local - now.replace(tzinfo=None) > timedelta(days=366 * 50):
            break
    raise ValueError(_NEVER)
