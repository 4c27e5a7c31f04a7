"""Ledgers of many workloads, as text or Markdown and for programs."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime

from gpuscale.base.pages.columns import Table, aligned
from gpuscale.base.pages.words import NO_DATA, plain_text
from gpuscale.base.words import counted, rfc3339
from gpuscale.lab.sim.history.ledger import Ledger, LedgerDay

_HEADS = ("GPU-HOURS", "MONEY", "AT MAXIMUM", "DEFAULT HPA", "BEFORE")


def ledger_lines(
    found: Sequence[Ledger], unseen: Mapping[str, str], currency: str, table: Table = aligned
) -> Iterator[str]:
    """Return ledgers as text: each day of all workloads, each workload, and what became of advice.

    Args:
        found: of workloads that could be replayed.
        unseen: the others, with the reason.
        currency: of prices.
        table: writes one; `aligned` or `markdown`.
    """
    days: dict[int, list[tuple[LedgerDay, float | None]]] = {}
    for each in found:
        for day in each.days:
            days.setdefault(day.begin_s, []).append((day, each.gpu_hour))
    rows = [(_day(day_s), *_sums(of_day, currency)) for day_s, of_day in sorted(days.items())]
    yield from table([("DAY (UTC)", *_HEADS), *rows], {0})
    yield ""
    yield from table(
        [
            ("WORKLOAD", *_HEADS, "TWIN OFF", "CHANGED"),
            *(
                (
                    plain_text(each.name),
                    *_sums([(day, each.gpu_hour) for day in each.days], currency),
                    f"{each.error:+.1%}",
                    NO_DATA if each.changed_s is None else _moment(each.changed_s),
                )
                for each in found
            ),
        ],
        {0, 7},
    )
    advised = [(each.name, each.outcome) for each in found if each.outcome is not None]
    if advised:
        yield ""
        yield from table(
            [
                (
                    "ADVICE FOR",
                    "PROMISED A MONTH",
                    "SAVED SO FAR",
                    "A MONTH",
                    "SINCE",
                    "KEPT",
                    "WHY",
                ),
                *(
                    (
                        plain_text(name),
                        f"{outcome.promised:,.0f}",
                        _number(outcome.came),
                        _number(outcome.a_month),
                        NO_DATA if outcome.since_s is None else _moment(outcome.since_s),
                        outcome.verdict,
                        plain_text(outcome.why),
                    )
                    for name, outcome in advised
                ),
            ],
            {0, 4, 5, 6},
        )
    yield from assumed_lines(((each.name, each.notes) for each in found), unseen)


def assumed_lines(
    noted: Iterable[tuple[str, Sequence[str]]], unseen: Mapping[str, str]
) -> Iterator[str]:
    """Yield what was assumed of which workloads, and which were not looked at; behind an empty line."""
    notes: dict[str, list[str]] = {}
    for name, of_name in noted:
        for note in of_name:
            notes.setdefault(note, []).append(name)
    if notes or unseen:
        yield ""
    for note, names in notes.items():
        shown = names[0] if len(names) == 1 else counted(len(names), "workload")
        yield f"Assumed of {shown}: {note}."
    for name, reason in unseen.items():
        yield f"Not looked at: {name}: {reason}"


def ledger_document(
    found: Sequence[Ledger], unseen: Mapping[str, str], currency: str
) -> dict[str, object]:
    """Return the same for programs, day by day of each workload; nothing is rounded."""
    return {
        "currency": currency or None,
        "workloads": [_fields(each) for each in found],
        "notLookedAt": [{"workload": name, "reason": why} for name, why in unseen.items()],
    }


def _fields(each: Ledger) -> dict[str, object]:
    outcome = each.outcome
    return {
        "workload": each.name,
        "gpuHourPrice": each.gpu_hour,
        "twinErrorShare": each.error,
        "changed": None if each.changed_s is None else rfc3339(each.changed_s),
        "days": [
            {
                "day": _day(day.begin_s),
                "knownHours": day.hours,
                "gpuHours": day.took,
                "gpuHoursAtMaximum": day.at_maximum,
                "gpuHoursDefaultHpa": day.default,
                "gpuHoursBefore": day.before,
                "money": None if each.gpu_hour is None else day.took * each.gpu_hour,
            }
            for day in each.days
        ],
        "advice": None
        if outcome is None
        else {
            "verdict": outcome.verdict,
            "why": outcome.why,
            "gpuHoursPromisedAMonth": outcome.promised,
            "gpuHoursSaved": outcome.came,
            "gpuHoursSavedAMonth": outcome.a_month,
            "since": None if outcome.since_s is None else rfc3339(outcome.since_s),
        },
        "notes": list(each.notes),
    }


def _sums(days: Sequence[tuple[LedgerDay, float | None]], currency: str) -> tuple[str, ...]:
    """Return the cells of some days: where nothing changed, what was before is what is."""
    took = sum(day.took for day, _ in days)
    defaults = [day.default for day, _ in days]
    money = [None if price is None else day.took * price for day, price in days]
    befores = [day.before for day, _ in days]
    return (
        f"{took:,.1f}",
        NO_DATA if None in money else f"{sum(each or 0 for each in money):,.2f} {currency}",
        f"{sum(day.at_maximum for day, _ in days):,.1f}",
        NO_DATA if None in defaults else f"{sum(each or 0 for each in defaults):,.1f}",
        NO_DATA
        if all(each is None for each in befores)
        else f"{sum(day.took if day.before is None else day.before for day, _ in days):,.1f}",
    )


def _number(value: float | None) -> str:
    return NO_DATA if value is None else f"{value:,.0f}"


def _day(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d")


def _moment(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M")
