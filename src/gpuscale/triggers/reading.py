"""The keys of one trigger: each value read, and held against the others."""

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping

from gpuscale.core.documents.validation import LABEL_PATTERN, SUBDOMAIN_PATTERN
from gpuscale.core.errors import QueryError
from gpuscale.core.golang.durations import MAX_DURATION_MS, parse_duration_ms
from gpuscale.core.quantity import Quantity, parse_quantity
from gpuscale.core.words import closest, printable
from gpuscale.formats.signals import SIGNALS
from gpuscale.formats.units import UNITS, MetricUnit, unit_fault, unit_of_query
from gpuscale.series.promql.parse import parse_once
from gpuscale.triggers.presets import PRESETS, wake_query
from gpuscale.triggers.schedule import check_expression, check_timezone
from gpuscale.triggers.trigger import (
    DEFAULT_HOLD_S,
    Aggregation,
    Load,
    Trigger,
    WakeQuery,
    WakeSchedule,
    WorkloadRef,
)

KEYS = frozenset(
    {
        *("workload", "signal", "metric", "query", "aggregation", "target", "activationTarget"),
        *("window", "wake", "wakeName", "wakeQuery", "wakeThreshold", "wakeStart", "wakeEnd"),
        *("timezone", "wakeReplicas", "wakeDeadline", "hold", "fallbackReplicas", "metricName"),
    }
)
ENTRY_KEYS = KEYS | {"namespace"}
"""Of an entry of a trigger file."""
MAX_TARGET = 1e12
MAX_REPLICAS = 100_000
_MAX_TEXT = 4096
_MAX_NAME = 253
_AGGREGATIONS: Mapping[str, Aggregation] = {"mean": "mean", "max": "max", "sum": "sum"}
_KINDS = {"deployment": "Deployment", "statefulset": "StatefulSet"}
_KIND = re.compile(r"([A-Za-z][A-Za-z0-9]*)\.(?:(v\d+(?:(?:alpha|beta)\d+)?)\.)?([a-z0-9.-]+)")
_METRIC_NAME = re.compile(r"[A-Za-z0-9_:][A-Za-z0-9_.:-]*")
_WORKLOAD = "deployment/NAME, statefulset/NAME or KIND.GROUP/NAME"
_NUMBER = "a number such as 60 or 600m"

Note = Callable[[str, str, str | None, str | None], None]
"""Takes a key, what was expected, what was found, and what to do."""


class TriggerReader:
    """Reads the values of one trigger.

    Args:
        values: by key; texts, or what YAML made of them.
        note: called for each fault.
    """

    def __init__(self, values: Mapping[str, object], note: Note) -> None:
        self._values = values
        self._note = note
        self._faults = 0

    def trigger(self, namespace: str) -> Trigger | None:
        """Return the trigger; None where something was noted."""
        workload = self._workload()
        load, unit_name, unit = self._load()
        target = self._target(load is not None, unit_name, unit)
        activation = self._number("activationTarget", 0.0, least=0.0)
        wakes = tuple(self._wakes(namespace))
        schedule = self._schedule()
        replicas = self._count("wakeReplicas", 1, least=1) or 1
        deadline_s = self._deadline()
        hold_s = self._seconds("hold", DEFAULT_HOLD_S)
        fallback = self._count("fallbackReplicas", None, least=1)
        if load is None and not wakes and schedule is None:
            expected = "a load (signal, metric or query), a wake source, or both"
            self.note("signal", expected, "none of them")
        if workload is None and self._text("workload") is None:
            needed = [key for key in ("signal", "metric") if self._has(key)]
            if self._text("wakeDeadline") not in {None, "auto"}:
                needed.append("wakeDeadline")
            if needed:
                self.note("workload", f"{_WORKLOAD}, for {needed[0]}", "none")
        name = self._name(workload, load, wakes)
        if self._faults:
            return None
        return Trigger(
            namespace,
            name,
            workload,
            load,
            target,
            activation,
            wakes,
            schedule,
            replicas,
            deadline_s,
            hold_s,
            fallback,
        )

    def note(
        self, key: str, expected: str, found: str | None = None, fix: str | None = None
    ) -> None:
        self._faults += 1
        shown = None if found is None else printable(found[:120])
        self._note(key, expected, shown, fix)

    def namespace(self, key: str, value: object) -> str:
        if not isinstance(value, str) or len(value) > 63 or not re.match(LABEL_PATTERN, value):
            found = "none" if value is None else str(value)
            self.note(key, "a namespace such as team-a", found)
            return ""
        return value

    def _has(self, key: str) -> bool:
        return self._text(key) is not None

    def _text(self, key: str) -> str | None:
        """Return a value as text; None where it is absent or empty."""
        value = self._values.get(key)
        if value is None or isinstance(value, bool | list | dict):
            if value is not None:
                self.note(key, "text or a number", type(value).__name__)
            return None
        text = str(value).strip()
        if len(text) > _MAX_TEXT:
            self.note(key, f"at most {_MAX_TEXT} characters", f"{len(text)}")
            return None
        return text or None

    def _workload(self) -> WorkloadRef | None:
        text = self._text("workload")
        if text is None:
            return None
        kind, slash, name = text.partition("/")
        if not slash or len(name) > _MAX_NAME or not re.match(SUBDOMAIN_PATTERN, name):
            self.note("workload", _WORKLOAD, repr(text))
            return None
        known = _KINDS.get(kind.lower())
        if known is not None:
            return WorkloadRef(known, name)
        other = _KIND.fullmatch(kind)
        if other is None:
            meant = closest(kind, _KINDS)
            fix = f"write {meant}/{name}" if meant else None
            self.note("workload", _WORKLOAD, repr(text), fix)
            return None
        if other[1].lower() in _KINDS and other[3] == "apps":
            return WorkloadRef(_KINDS[other[1].lower()], name)
        version = f"{other[3]}/{other[2]}" if other[2] else other[3]
        return WorkloadRef(other[1], name, version)

    def _load(self) -> tuple[Load | None, str, MetricUnit | None]:
        """Return the load, what it is called in words about its unit, and the unit."""
        given = [key for key in ("signal", "metric", "query") if self._has(key)]
        if len(given) > 1:
            self.note(given[1], "one of signal, metric and query", " and ".join(given))
        aggregation = self._aggregation()
        window_s = self._seconds("window", 0.0)
        if not given:
            for key in ("aggregation", "window"):
                if self._has(key):
                    self.note(key, f"{key} with signal, metric or query", "none of these")
            return None, "", None
        key = given[0]
        text = self._text(key) or ""
        if key == "query":
            if self._has("aggregation"):
                self.note("aggregation", "none with query, which answers for the whole workload")
            unit = self._query_unit("query", text)
            return Load(query=text, window_s=window_s), "the query's answer", unit
        if key == "metric":
            if not _METRIC_NAME.fullmatch(text) or len(text) > _MAX_NAME:
                self.note("metric", "the name of a metric of pods", repr(text))
            return Load(text, "", aggregation, window_s), text, None
        for name, signal in SIGNALS.items():
            if name == text:
                unit = MetricUnit(UNITS[signal.unit], is_sum=signal.is_sum)
                return Load(signal.metric, "", aggregation, window_s), text, unit
        self._not_among("signal", text, SIGNALS)
        return None, "", None

    def _query_unit(self, key: str, text: str) -> MetricUnit | None:
        try:
            return unit_of_query(parse_once(text).root)
        except QueryError as error:
            self.note(key, f"PromQL ({error})", repr(text))
        return None

    def _aggregation(self) -> Aggregation:
        text = self._text("aggregation") or "mean"
        if text not in _AGGREGATIONS:
            self._not_among("aggregation", text, _AGGREGATIONS)
        return _AGGREGATIONS.get(text, "mean")

    def _not_among(self, key: str, text: str, known: Iterable[str]) -> None:
        meant = closest(text, known)
        fix = f"write {meant}" if meant else None
        self.note(key, f"one of {', '.join(known)}", repr(text), fix)

    def _quantity(self, key: str) -> Quantity | None:
        text = self._text(key)
        if text is None:
            return None
        try:
            return parse_quantity(text)
        except ValueError:
            self.note(key, _NUMBER, repr(text))
            return None

    def _number(self, key: str, default: float, *, least: float) -> float:
        quantity = self._quantity(key)
        if quantity is None:
            return default
        if not least <= float(quantity) <= MAX_TARGET:
            self.note(key, f"a number from {least:g} to {MAX_TARGET:g}", str(quantity))
        return float(quantity)

    def _target(self, has_load: bool, name: str, unit: MetricUnit | None) -> float:
        if not self._has("target"):
            if has_load:
                self.note("target", "the load per pod, more than 0", "none")
            return 1.0
        quantity = self._quantity("target")
        if quantity is None:
            return 1.0
        target = float(quantity)
        if not 0.001 <= target <= MAX_TARGET or not math.isfinite(target):
            self.note("target", f"more than 0, at most {MAX_TARGET:g}", str(quantity))
            return 1.0
        fault = unit_fault(name, quantity, unit) if name else None
        if fault is not None:
            self.note("target", fault.what, None, fault.fix(as_number=True))
        return target

    def _count(self, key: str, default: int | None, *, least: int) -> int | None:
        text = self._text(key)
        if text is None:
            return default
        if not re.fullmatch(r"\d{1,7}", text) or not least <= int(text) <= MAX_REPLICAS:
            self.note(key, f"a whole number from {least} to {MAX_REPLICAS}", repr(text))
            return default
        return int(text)

    def _seconds(self, key: str, default: float) -> float:
        text = self._text(key)
        if text is None:
            return default
        try:
            length_ms = parse_duration_ms(text)
        except ValueError:
            self.note(key, "a duration such as 90s, 10m or 1h30m", repr(text))
            return default
        if length_ms > MAX_DURATION_MS:
            self.note(key, "a duration of at most a year", repr(text))
        return length_ms / 1000

    def _deadline(self) -> float | None:
        if (self._text("wakeDeadline") or "auto") == "auto":
            return None
        seconds = self._seconds("wakeDeadline", 0.0)
        if seconds == 0 and not self._faults:
            self.note("wakeDeadline", "auto, or a duration such as 20m", "0")
        return seconds

    def _wakes(self, namespace: str) -> Iterator[WakeQuery]:
        threshold = self._number("wakeThreshold", 0.0, least=0.0)
        names = [each.strip() for each in (self._text("wake") or "").split(",") if each.strip()]
        of = self._text("wakeName")
        for name in dict.fromkeys(names):
            if name not in PRESETS:
                self._not_among("wake", name, PRESETS)
            elif of is None:
                self.note("wakeName", f"the name of {PRESETS[name].names}, for {name}", "none")
            else:
                yield wake_query(PRESETS[name], of, namespace, threshold)
        query = self._text("wakeQuery")
        if query is not None:
            self._query_unit("wakeQuery", query)
            yield WakeQuery(query, threshold)
        if not names and of is not None:
            self.note("wakeName", f"wake, one of {', '.join(PRESETS)}, with it", "none")
        if not names and query is None and self._has("wakeThreshold"):
            self.note("wakeThreshold", "wake or wakeQuery with it", "neither")

    def _schedule(self) -> WakeSchedule | None:
        start, end, zone = (self._text(key) for key in ("wakeStart", "wakeEnd", "timezone"))
        if start is None and end is None:
            if zone is not None:
                self.note("timezone", "wakeStart and wakeEnd with it", "neither")
            return None
        for key, text in (("wakeStart", start), ("wakeEnd", end)):
            if text is None:
                self.note(key, "a cron expression; a schedule has a start and an end", "none")
                continue
            try:
                check_expression(text)
            except ValueError as error:
                self.note(key, str(error), repr(text))
        try:
            check_timezone(zone or "UTC")
        except ValueError as error:
            self.note("timezone", str(error), repr(zone))
        if start is not None and start == end:
            self.note("wakeEnd", "another expression than that of wakeStart", repr(end))
        return WakeSchedule(start or "", end or "", zone or "UTC")

    def _name(
        self, workload: WorkloadRef | None, load: Load | None, wakes: tuple[WakeQuery, ...]
    ) -> str:
        text = self._text("metricName")
        if text is not None:
            if not _METRIC_NAME.fullmatch(text) or len(text) > _MAX_NAME:
                self.note("metricName", "letters, digits, '_', '.', ':' and '-'", repr(text))
            return text
        what = self._text("signal") or self._text("metric") or ("load" if load else "")
        what = what or (wakes[0].source if wakes else "schedule")
        whole = f"{workload.name}-{what}" if workload else f"gpuscale-{what}"
        return re.sub(r"[^a-z0-9]+", "-", whole.lower()).strip("-")[:_MAX_NAME]
