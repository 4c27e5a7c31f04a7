"""A bill as text and for programs."""

import math
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from statistics import fmean

from gpuscale.base.pages.columns import Table, aligned
from gpuscale.base.pages.words import NO_DATA, plain_text
from gpuscale.base.words import counted
from gpuscale.ops.money.bill import Bill, Line
from gpuscale.ops.money.forecast import Forecast
from gpuscale.ops.money.sizes import Smaller

_MONTH_HOURS = 730.0
"""Of a month, as clouds count it: 365 * 24 / 12."""
_HEADS = ("GPU-HOURS", "USED", "STARTING", "IDLE", "IDLE %", "MONEY", "OF THAT IDLE", "A MONTH")


def bill_lines(
    bill: Bill, by: Sequence[str], sizes: Sequence[Smaller] = (), table: Table = aligned
) -> Iterator[str]:
    """Return a bill as text, its lines added up by parts of their keys, and what would do with less."""
    yield _range_line(bill)
    yield ""
    rows = [
        (*(plain_text(each) or NO_DATA for each in keys), *_cells(line, bill))
        for keys, line in bill.grouped(*by).items()
    ]
    total = _total(bill)
    rows.append(("all", *("" for _ in by[1:]), *_cells(total, bill)))
    yield from table([(*(each.upper() for each in by), *_HEADS), *rows], range(len(by)))
    yield ""
    for less in sizes:
        yield f"Could be smaller: {less.namespace}/{less.workload}: {less.says}."
    yield from _known_lines(bill)


def bill_document(
    bill: Bill, by: Sequence[str], sizes: Sequence[Smaller] = ()
) -> Mapping[str, object]:
    """Return a bill for programs; hours and money are not rounded."""
    return {
        **_known(bill),
        "lines": [
            {**dict(zip(by, keys, strict=True)), **_fields(line, bill)}
            for keys, line in bill.grouped(*by).items()
        ],
        "total": _fields(_total(bill), bill),
        "smaller": [
            {
                "namespace": each.namespace,
                "workload": each.workload,
                "gpu": each.gpu,
                "gpusPerPod": each.peak.gpus,
                "memoryMibHighest": each.peak.memory_mib,
                "smShareHighest": each.peak.sms,
                "to": {
                    "migProfile" if each.is_mig else "instanceType": each.to,
                    "memoryMib": each.memory_mib,
                },
                "says": each.says,
            }
            for each in sizes
        ],
    }


def forecast_lines(bill: Bill, found: Forecast, table: Table = aligned) -> Iterator[str]:
    """Return a forecast as text: the sum, each day, and how sure that is."""
    price = _price_of_hour(bill)
    money = "" if price is None else f", {_between(found, price, 2)} {bill.currency}"
    yield _range_line(bill)
    yield f"The next {len(found.days)} days: {_between(found, 1, 0)} GPU-hours{money}"
    yield ""
    rows = [
        (_moment(bill.end_s + day * 86_400), f"{each:,.1f}", _cell(price, each))
        for day, each in enumerate(found.days)
    ]
    yield from table([("24 HOURS FROM", "GPU-HOURS", "MONEY"), *rows], {0})
    yield ""
    if found.season == "none":
        yield "Pattern: none that repeats by the day or week, so all days are alike but for a trend."
    else:
        yield (
            f"Pattern: {found.season}; it explains {found.skill:.0%} of the ups and downs of hours that "
            "were held back."
        )
    if bill.end_s - bill.start_s < 14 * 86_400:
        yield "Fewer than two weeks say nothing of weekends or of a trend."
    if found.errors:
        off = math.sqrt(fmean(each**2 for each in found.errors))
        yield (
            f"Sure to: {counted(len(found.errors), 'forecast')} of {counted(found.held_back_days, 'day')} "
            f"out of a part of this past, {off:.0%} off (root mean square)."
        )
    yield from _known_lines(bill)


def forecast_document(bill: Bill, found: Forecast) -> Mapping[str, object]:
    """Return a forecast for programs; nothing is rounded."""
    price = _price_of_hour(bill)
    interval = _interval(found)
    return {
        **_known(bill),
        "next": {
            "days": len(found.days),
            "gpuHours": found.total,
            "gpuHoursInterval": interval,
            "money": None if price is None else found.total * price,
            "moneyInterval": None
            if price is None or interval is None
            else [each * price for each in interval],
            "gpuHoursByDay": list(found.days),
        },
        "pattern": found.season,
        "patternExplains": found.skill,
        "heldBackErrors": list(found.errors),
        "heldBackDays": found.held_back_days,
    }


def _price_of_hour(bill: Bill) -> float | None:
    """Return what a GPU-hour costs on average; None where a part of them has no price."""
    return bill.nodes_money / bill.bought if bill.bought and not bill.unpriced else None


def _interval(found: Forecast) -> list[float] | None:
    return [found.low, found.high] if found.errors else None


def _between(found: Forecast, price: float, digits: int) -> str:
    """Return the sum with what it is between."""
    shown = f"{found.total * price:,.{digits}f}"
    if not found.errors:
        return shown
    return (
        f"{shown} (90 of 100: {found.low * price:,.{digits}f} to {found.high * price:,.{digits}f})"
    )


def _cell(price: float | None, gpu_hours: float) -> str:
    return NO_DATA if price is None else f"{gpu_hours * price:,.2f}"


def _range_line(bill: Bill) -> str:
    days = (bill.end_s - bill.start_s) / 86_400
    return (
        f"{_moment(bill.start_s)} to {_moment(bill.end_s)} UTC, {days:.1f} days: "
        f"{bill.bought:,.1f} GPU-hours bought{_cost(bill)}"
    )


def _known_lines(bill: Bill) -> Iterator[str]:
    """Yield whose prices were taken, what has none, and what no series says."""
    if bill.prices:
        yield f"Prices: {'; '.join(sorted(bill.prices))}."
    for reason, gpu_hours in sorted(bill.unpriced.items()):
        yield f"Without a price: {gpu_hours:,.1f} GPU-hours; {reason}."
    for each in sorted(bill.unseen):
        yield f"Not seen: {each}."


def _known(bill: Bill) -> dict[str, object]:
    return {
        "from": f"{_moment(bill.start_s)}Z".replace(" ", "T"),
        "to": f"{_moment(bill.end_s)}Z".replace(" ", "T"),
        "currency": bill.currency or None,
        "gpuHoursBought": bill.bought,
        "nodesMoney": bill.nodes_money,
        "prices": sorted(bill.prices),
        "unpriced": [
            {"gpuHours": hours, "reason": reason} for reason, hours in sorted(bill.unpriced.items())
        ],
        "unseen": sorted(bill.unseen),
    }


def _total(bill: Bill) -> Line:
    total = Line()
    for line in bill.lines.values():
        total.add(line)
    return total


def _fields(line: Line, bill: Bill) -> dict[str, object]:
    return {
        "gpuHours": line.asked,
        "gpuHoursUsed": line.used,
        "gpuHoursStarting": line.starting,
        "gpuHoursIdle": line.idle,
        "gpuHoursPriced": line.priced,
        "money": line.money if line.priced else None,
        "moneyIdle": line.idle_money if line.priced else None,
        "moneyAMonth": _a_month(line.money, bill) if line.priced else None,
    }


def _cells(line: Line, bill: Bill) -> tuple[str, ...]:
    share = f"{100 * line.idle / line.asked:.0f}%" if line.asked else NO_DATA
    hours = (line.asked, line.used, line.starting, line.idle)
    money = (line.money, line.idle_money, _a_month(line.money, bill))
    return (
        *(f"{each:,.1f}" for each in hours),
        share,
        *(f"{each:,.2f}" if line.priced else NO_DATA for each in money),
    )


def _a_month(money: float, bill: Bill) -> float:
    """Return what it costs in a month at the range's rate."""
    return money * _MONTH_HOURS * 3600 / (bill.end_s - bill.start_s)


def _cost(bill: Bill) -> str:
    return f", {bill.nodes_money:,.2f} {bill.currency}" if bill.currency else ""


def _moment(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M")
