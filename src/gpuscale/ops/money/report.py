"""A bill as text and for programs."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime

from gpuscale.base.pages.columns import aligned
from gpuscale.base.pages.words import NO_DATA, plain_text
from gpuscale.ops.money.bill import Bill, Line
from gpuscale.ops.money.sizes import Smaller

_MONTH_HOURS = 730.0
"""Of a month, as clouds count it: 365 * 24 / 12."""
_HEADS = ("GPU-HOURS", "USED", "STARTING", "IDLE", "IDLE %", "MONEY", "OF THAT IDLE", "A MONTH")


def bill_lines(bill: Bill, by: Sequence[str], sizes: Sequence[Smaller] = ()) -> Iterator[str]:
    """Return a bill as text, its lines added up by parts of their keys, and what would do with less."""
    days = (bill.end_s - bill.start_s) / 86_400
    yield (
        f"{_moment(bill.start_s)} to {_moment(bill.end_s)} UTC, {days:.1f} days: "
        f"{bill.bought:,.1f} GPU-hours bought{_cost(bill)}"
    )
    yield ""
    rows = [
        (*(plain_text(each) or NO_DATA for each in keys), *_cells(line, bill))
        for keys, line in bill.grouped(*by).items()
    ]
    total = _total(bill)
    rows.append(("all", *("" for _ in by[1:]), *_cells(total, bill)))
    yield from aligned([(*(each.upper() for each in by), *_HEADS), *rows], range(len(by)))
    yield ""
    if bill.prices:
        yield f"Prices: {'; '.join(sorted(bill.prices))}."
    for less in sizes:
        yield f"Could be smaller: {less.namespace}/{less.workload}: {less.says}."
    for reason, gpu_hours in sorted(bill.unpriced.items()):
        yield f"Without a price: {gpu_hours:,.1f} GPU-hours; {reason}."
    for each in sorted(bill.unseen):
        yield f"Not seen: {each}."


def bill_document(
    bill: Bill, by: Sequence[str], sizes: Sequence[Smaller] = ()
) -> Mapping[str, object]:
    """Return a bill for programs; hours and money are not rounded."""
    return {
        "from": f"{_moment(bill.start_s)}Z".replace(" ", "T"),
        "to": f"{_moment(bill.end_s)}Z".replace(" ", "T"),
        "currency": bill.currency or None,
        "gpuHoursBought": bill.bought,
        "nodesMoney": bill.nodes_money,
        "lines": [
            {**dict(zip(by, keys, strict=True)), **_fields(line, bill)}
            for keys, line in bill.grouped(*by).items()
        ],
        "total": _fields(_total(bill), bill),
        "prices": sorted(bill.prices),
        "unpriced": [
            {"gpuHours": hours, "reason": reason} for reason, hours in sorted(bill.unpriced.items())
        ],
        "unseen": sorted(bill.unseen),
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
