"""What `report` and `money` say of a time of which a history is kept, with no Prometheus to ask."""

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime

from gpuscale.ops.history.reading import History
from gpuscale.ops.history.taking import MINUTE_S, Span, gaps
from gpuscale.ops.money.bill import Bill, bought_by_hour
from gpuscale.ops.money.prices import PriceBook
from gpuscale.ops.money.questions import HOUR_S, STEP_S, BillQueries
from gpuscale.ops.past.incidents import Past, past_of

_DAY_S = 86_400
_CHARTED = {
    "value": "hpa/{}/value",
    "target": "hpa/{}/target",
    "wanted": "hpa/{}/desired",
    "replicas": "hpa/{}/current",
    "running": "replicas/{}/ready",
    "pending": "replicas/{}/pending",
}
"""Series of a page by the columns of `hpas`."""
_SPAN = "time BETWEEN make_timestamp($1) AND make_timestamp($2)"


def spans_kept(history: History) -> dict[str, list[Span]]:
    """Return the spans that a history keeps, in seconds since the epoch, by `minutes` and `hours`."""
    found: dict[str, list[Span]] = {"minutes": [], "hours": []}
    sql = "SELECT what, epoch_ms(time) // 1000, epoch_ms(until) // 1000 FROM kept"
    with history.ask(sql) as answer:
        for what, begin, end in answer.rows:
            found[what].append((begin, end))
    return found


def recall_past(history: History, begin_s: int, end_s: int, namespace: str | None = None) -> Past:
    """Return what happened, as `past_of` tells it; what was not kept is unseen.

    Raises:
        UnavailableError: the history can't be read.
    """
    sql = (
        "SELECT question[8:], labels, list([epoch_ms(time) / 1000, value] ORDER BY time) FROM answers "
        f"WHERE question LIKE 'report/%' AND {_SPAN} GROUP BY ALL ORDER BY ALL"
    )
    answers: dict[str, list[tuple[Mapping[str, str], Sequence[tuple[int, float]]]]] = defaultdict(
        list
    )
    with history.ask(sql, begin_s * 1_000_000, end_s * 1_000_000) as answer:
        for name, text, points in answer.rows:
            labels = json.loads(text)
            if namespace is None or labels.get("namespace", namespace) == namespace:
                answers[name].append((labels, [(round(at_s), value) for at_s, value in points]))
    makers = [labels for labels, _ in answers.pop("makers", ())]
    unseen = list(_unkept(history, "minutes", begin_s, end_s - end_s % MINUTE_S))
    return past_of(answers, begin_s, end_s, MINUTE_S, makers, unseen)


def recall_bill(
    history: History, start_s: int, end_s: int, book: PriceBook, pod_label: str | None
) -> Bill:
    """Return the bill of the whole hours of a range; hours that were not kept are unseen.

    Raises:
        UnavailableError: the history can't be read.
    """
    start_s, end_s = -(-start_s // HOUR_S) * HOUR_S, end_s - end_s % HOUR_S
    bill = Bill(start_s, end_s)
    # Values are sums over an hour, and their sums those over a day; others are not looked at.
    sql = (
        f"SELECT (epoch_ms(time) // 1000 - {start_s}) // {_DAY_S} AS day, question[7:], labels, sum(value) "
        f"FROM answers WHERE question LIKE 'money/%' AND {_SPAN} GROUP BY ALL ORDER BY ALL"
    )
    days: dict[int, dict[str, list[tuple[Mapping[str, str], float]]]] = defaultdict(
        lambda: {name: [] for name in BillQueries(_DAY_S, pod_label).all()}
    )
    with history.ask(sql, start_s * 1_000_000, end_s * 1_000_000 - 1) as answer:
        for day, name, labels, value in answer.rows:
            days[day].setdefault(name, []).append((json.loads(labels), value))
    for answers in days.values():
        bill.add(answers, book, pod_label)
        if pod_label is not None and not answers["podLabels"]:
            bill.unseen.add(f"label {pod_label}: not kept; gpuscale history keep --label keeps one")
    bill.unseen.update(_unkept(history, "hours", start_s, end_s))
    return bill


def recall_hours(history: History, bill: Bill) -> list[float | None]:
    """Return the GPU-hours that were bought in each hour of a bill's range; None where it was not kept.

    Raises:
        UnavailableError: the history can't be read.
    """
    moments = {
        end: HOUR_S / STEP_S
        for begin, until in spans_kept(history)["hours"]
        for end in range(begin + HOUR_S, until + 1, HOUR_S)
    }
    sql = (
        f"SELECT epoch_ms(time) // 1000 + {HOUR_S}, labels, value FROM answers "
        f"WHERE question = 'money/nodes' AND {_SPAN}"
    )
    with history.ask(sql, bill.start_s * 1_000_000, bill.end_s * 1_000_000 - 1) as answer:
        rows = [(end_s, json.loads(labels), value) for end_s, labels, value in answer.rows]
    return bought_by_hour(bill, rows, moments)


def recall_charts(
    history: History, begin_s: int, end_s: int
) -> Sequence[tuple[float, Mapping[str, float | None]]]:
    """Return the minutes of a span by the names that a page gives its series, oldest first.

    Raises:
        UnavailableError: the history can't be read.
    """
    minute = f"epoch_ms(time) // {MINUTE_S * 1000} * {MINUTE_S}"
    points: dict[float, dict[str, float | None]] = defaultdict(dict)
    hpas = (
        f"SELECT {minute}, namespace || '/' || hpa, {', '.join(_CHARTED)} FROM hpas WHERE {_SPAN}"
    )
    with history.ask(hpas, begin_s * 1_000_000, end_s * 1_000_000) as answer:
        for at_s, key, *values in answer.rows:
            for name, value in zip(_CHARTED.values(), values, strict=True):
                points[at_s][name.format(key)] = value
    # A GPU has a row for each pod that has it.
    gpus = (
        f"SELECT moment, avg(used) FROM (SELECT {minute} AS moment, max(use_mean) AS used FROM gpus "
        f"WHERE {_SPAN} GROUP BY moment, node, gpu) GROUP BY moment"
    )
    with history.ask(gpus, begin_s * 1_000_000, end_s * 1_000_000) as answer:
        for at_s, used in answer.rows:
            points[at_s]["use/all GPUs"] = used
    return sorted(points.items(), key=lambda each: each[0])


def _unkept(history: History, what: str, begin_s: int, end_s: int) -> Iterator[str]:
    for begin, end in gaps(spans_kept(history)[what], begin_s, end_s):
        if end - begin < MINUTE_S:
            continue
        first, last = (
            datetime.fromtimestamp(each, UTC).strftime("%Y-%m-%d %H:%M") for each in (begin, end)
        )
        yield f"{first} to {last}: no {what} of it are kept"
