"""Rows of a history out of a Prometheus: what GPUs did by the minute, and what `report` and `money` ask.

A minute has the samples after its begin and up to its end. Answers for `report` are of the minute's end.
"""

import json
from collections import defaultdict
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from gpuscale.base.errors import UpstreamError
from gpuscale.ops.history.tables import Batch, Rows
from gpuscale.ops.history.writing import HistoryWriter
from gpuscale.ops.money.bill import nodes_of
from gpuscale.ops.money.prices import HourPrice, NodeFacts, PriceBook
from gpuscale.ops.money.questions import HOUR_S, BillQueries
from gpuscale.ops.past.incidents import queries
from gpuscale.ops.past.kinds import makers_query
from gpuscale.ops.top.gpu_rows import (
    ENGINE,
    POWER,
    SERIES,
    USE,
    USED,
    field_of,
    gpu_key,
    gpu_row,
    owner_of,
)
from gpuscale.series import Matrix, MatrixSeries, Value, Vector
from gpuscale.server.sources.prometheus import PrometheusSource, persistently
from gpuscale.signals import impossible

MINUTE_S = 60
_VALUES = "kube_horizontalpodautoscaler_status_target_metric"
"""What each HPA's metrics were."""
_NAMES = [name for name in SERIES if not any(each in name for each in ("TEMP", "XID", "health"))]
"""Series of GPUs of which minutes are kept."""

Key = tuple[str, str, str]
Owner = tuple[str, str, str]
Span = tuple[int, int]


@dataclass(slots=True)
class _Minute:
    """What was read of a GPU in a minute."""

    values: dict[str, dict[int, float]] = field(default_factory=lambda: defaultdict(dict))
    """By field and moment: each pod that has the GPU has a series with the same values."""
    owners: dict[Owner, None] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class PrometheusTaker:
    """Takes rows from a Prometheus.

    Args:
        source: open.
        book: prices of nodes.
        pod_label: of pods, as kube-state-metrics writes it without `label_`; None keeps none.
    """

    source: PrometheusSource
    book: PriceBook
    pod_label: str | None = None
    _window_s: int = HOUR_S
    """Of samples that are asked for at a time; less once that was too many for an answer."""

    async def minutes(self, begin_s: int, end_s: int) -> Batch:
        """Return the rows of whole minutes.

        Raises:
            UnavailableError, UpstreamError: Prometheus could not be asked.
        """
        found = {}
        for name, query in queries().items():
            found[name] = await self._range(query, begin_s, end_s)
        found["values"] = await self._range(_VALUES, begin_s, end_s)
        makers = await self._rows(makers_query(end_s - begin_s), end_s)
        return {
            "gpus": await self._gpus(begin_s, end_s),
            "hpas": list(_hpa_rows(found["scaled"], found["metrics"], found.pop("values"))),
            "answers": [
                *(
                    (time_ms, f"report/{name}", _text(each.labels), value)
                    for name, series in found.items()
                    for each in series
                    for time_ms, value in each.points
                ),
                *((end_s * 1000, "report/makers", _text(row), 1.0) for row, _ in makers),
            ],
            "kept": [(begin_s * 1000, end_s * 1000, "minutes", self.source.settings.shown_url)],
        }

    async def hour(self, begin_s: int) -> Batch:
        """Return the rows of an hour.

        Raises:
            UnavailableError, UpstreamError: Prometheus could not be asked.
        """
        end_s = begin_s + HOUR_S
        asked = BillQueries(HOUR_S, self.pod_label).all()
        answers = {name: await self._rows(query, end_s) for name, query in asked.items()}
        begin_ms = begin_s * 1000
        return {
            "nodes": [
                node_row(begin_ms, name, node.facts, node.gpus, self.book)
                for name, node in nodes_of(answers).items()
            ],
            "answers": [
                (begin_ms, f"money/{name}", _text(row), value)
                for name, rows in answers.items()
                for row, value in rows
            ],
            "kept": [(begin_ms, end_s * 1000, "hours", self.source.settings.shown_url)],
        }

    async def _range(self, query: str, begin_s: int, end_s: int) -> Sequence[MatrixSeries]:
        span = ((begin_s + MINUTE_S) * 1000, end_s * 1000, MINUTE_S * 1000)
        value = await persistently(self.source.query_range, query, *span)
        return value.series if isinstance(value, Matrix) else ()

    async def _rows(self, query: str, at_s: int) -> list[tuple[Mapping[str, str], float]]:
        value = await persistently(self.source.query, query, at_s * 1000)
        rows = value.samples if isinstance(value, Vector) else ()
        return [(row.labels, row.value) for row in rows]

    async def _gpus(self, begin_s: int, end_s: int) -> Rows:
        up = await self._rows(f'last_over_time(up{{pod!=""}}[{end_s - begin_s}s])', end_s)
        targets = {
            (row.get("job"), row.get("instance"), row.get("namespace"), row.get("pod"))
            for row, _ in up
        }
        minutes: dict[tuple[Key, int], _Minute] = defaultdict(_Minute)
        known = f'{{__name__=~"{"|".join(_NAMES)}"}}[{end_s - begin_s}s]'
        for labels, _ in await self._rows(f"group by (__name__) (last_over_time({known}))", end_s):
            name = labels["__name__"]
            for series in await self._samples(name, begin_s, end_s):
                _add(series, name, begin_s, targets, minutes)
        return list(_gpu_rows(minutes))

    async def _samples(self, name: str, begin_s: int, end_s: int) -> Sequence[MatrixSeries]:
        """Return all samples of a name in a span, asked for in windows that an answer can hold."""
        found: list[MatrixSeries] = []
        at_s = begin_s
        while at_s < end_s:
            window_s = min(self._window_s, end_s - at_s)
            try:
                value: Value = await persistently(
                    self.source.query, f"{name}[{window_s}s]", (at_s + window_s) * 1000
                )
            except UpstreamError:
                if window_s <= MINUTE_S:
                    raise
                self._window_s = max(MINUTE_S, window_s // 2 // MINUTE_S * MINUTE_S)
                continue
            found += value.series if isinstance(value, Matrix) else ()
            at_s += window_s
        return found


def node_row(
    hour_ms: int, name: str, facts: NodeFacts, gpus: float, book: PriceBook
) -> Sequence[object]:
    """Return a row of `nodes`, with the price or why it is not known."""
    price = book.of(facts, gpus)
    return (
        *(hour_ms, name, facts.instance_type, facts.pool, facts.is_spot, facts.model, gpus),
        *(
            (price.amount, price.currency, price.source)
            if isinstance(price, HourPrice)
            else (None, None, price)
        ),
    )


def _add(
    series: MatrixSeries,
    name: str,
    begin_s: int,
    targets: Container[tuple[str | None, ...]],
    minutes: dict[tuple[Key, int], _Minute],
) -> None:
    labels = series.labels
    key = gpu_key(labels)
    if not key[1]:
        return
    owner = owner_of(labels)
    target = tuple(map(labels.get, ("job", "instance", "namespace", "pod")))
    if target in targets and owner[:2] == target[2:]:
        owner = ("", "", "")  # the exporter's own pod, as Prometheus' service discovery labels it
    older, factor = field_of(name)
    for time_ms, value in series.points:
        if time_ms <= begin_s * 1000 or impossible(older, amount := value * factor):
            continue
        minute = minutes[key, (time_ms - 1) // 60_000]
        minute.values[older][time_ms] = amount
        if len(labels) > len(minute.labels):
            minute.labels = labels
        if owner[1]:
            minute.owners[owner] = None


def _gpu_rows(minutes: Mapping[tuple[Key, int], _Minute]) -> Iterator[Sequence[object]]:
    split = {(key[:2], number) for (key, number) in minutes if key[2]}
    for (key, number), minute in minutes.items():
        if not key[2] and (key[:2], number) in split:
            continue
        values = {name: list(of_name.values()) for name, of_name in minute.values.items()}
        least, mean, most = (
            gpu_row(key[0], minute.labels, {name: of(each) for name, each in values.items()}, ())
            for of in (min, _mean, max)
        )
        use = ENGINE if key[2] or USE not in values else USE
        counts = (len(values.get(name, ())) for name in (use, USED, POWER))
        use_count, memory_count, power_count = counts
        for namespace, pod, container in minute.owners or [("", "", "")]:
            yield (
                *(number * 60_000, key[0], mean.index, mean.uuid, mean.model),
                *(namespace or None, pod or None, container or None, len(minute.owners)),
                *(least.use_percent, mean.use_percent, most.use_percent, use_count),
                *(least.memory_used_mib, mean.memory_used_mib, most.memory_used_mib, memory_count),
                mean.memory_total_mib,
                *(least.power_watts, mean.power_watts, most.power_watts, power_count),
            )


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _hpa_rows(
    wanted: Iterable[MatrixSeries],
    metrics: Iterable[MatrixSeries],
    values: Iterable[MatrixSeries],
) -> Iterator[Sequence[object]]:
    """Yield what each HPA wanted at each minute, with the metric that was highest above its target."""
    highest: dict[tuple[str, str, int], tuple[float, str]] = {}
    for series in metrics:
        name = series.labels.get("metric_name", "")
        for time_ms, value in series.points:
            at = (*_hpa(series.labels), time_ms)
            highest[at] = max(highest.get(at, (value, name)), (value, name))
    seen = {
        (*_hpa(series.labels), series.labels.get("metric_name", ""), time_ms): value
        for series in values
        for time_ms, value in series.points
    }
    for series in wanted:
        namespace, hpa = _hpa(series.labels)
        for time_ms, replicas in series.points:
            times, metric = highest.get((namespace, hpa, time_ms), (None, None))
            amount = None if metric is None else seen.get((namespace, hpa, metric, time_ms))
            target = amount / times if amount is not None and times else None
            yield (
                *(time_ms, namespace, hpa, metric, amount, target, times),
                *(round(replicas), None, None, None, None),
            )


def _hpa(labels: Mapping[str, str]) -> tuple[str, str]:
    return labels.get("namespace", ""), labels.get("horizontalpodautoscaler", "")


def _text(labels: Mapping[str, str]) -> str:
    return json.dumps(dict(sorted(labels.items())), ensure_ascii=False)


def gaps(covered: Iterable[Span], begin_s: int, end_s: int) -> Iterator[Span]:
    """Yield the spans of a range that are not covered."""
    at = begin_s
    for begin, end in sorted(covered):
        if begin >= end_s:
            break
        if begin > at:
            yield at, begin
        at = max(at, end)
    if at < end_s:
        yield at, end_s


async def keep_range(
    taker: PrometheusTaker,
    writer: HistoryWriter,
    covered: Mapping[str, list[Span]],
    begin_s: int,
    end_s: int,
    show: Callable[[str], None],
) -> int:
    """Keep what is not kept yet of a range; return how many minutes that were.

    Args:
        taker: where rows are from.
        writer: where they go.
        covered: spans that are kept, by `minutes` and `hours`; new ones are added.
        begin_s: a whole minute.
        end_s: likewise.
        show: is told how far it is.

    Raises:
        UnavailableError, UpstreamError: Prometheus could not be asked, or the disk not be written.
    """
    total = 0
    for begin, end in list(gaps(covered["minutes"], begin_s, end_s)):
        at = begin
        while at < end:
            until = min(end, at - at % HOUR_S + HOUR_S)
            show(f"asking Prometheus: {(at - begin_s) / (end_s - begin_s):.0%}")
            writer.write(await taker.minutes(at, until))
            covered["minutes"].append((at, until))
            total += (until - at) // MINUTE_S
            at = until
    first = -(-begin_s // HOUR_S) * HOUR_S
    for begin, end in list(gaps(covered["hours"], first, end_s - end_s % HOUR_S)):
        for at in range(begin, end, HOUR_S):
            show("asking Prometheus for hours of nodes and pods")
            writer.write(await taker.hour(at))
            covered["hours"].append((at, at + HOUR_S))
    return total
