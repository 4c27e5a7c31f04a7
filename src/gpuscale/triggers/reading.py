"""Parses and checks the keys of one trigger."""

import math
import re
from collections.abc import Iterator, Mapping

from gpuscale.base.cron import check_expression
from gpuscale.base.documents.validation import SUBDOMAIN_PATTERN
from gpuscale.base.words import closest
from gpuscale.hpa.terms import UNITS, MetricUnit, unit_fault
from gpuscale.signals import SIGNALS
from gpuscale.triggers.credit import DEFAULT_DRAIN_S
from gpuscale.triggers.keys import MAX_TARGET, KeyReader, Note
from gpuscale.triggers.policy_keys import POLICY_KEYS, PolicyCheck, any_policy, read_policy
from gpuscale.triggers.presets import PRESETS, wake_query
from gpuscale.triggers.schedule import check_timezone
from gpuscale.triggers.trigger import (
    DEFAULT_HOLD_S,
    Aggregation,
    Credit,
    PodLoad,
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
        *("waiting", "throughput", "startTime", "drain"),
        *POLICY_KEYS,
    }
)
ENTRY_KEYS = KEYS | {"namespace"}
"""Of an entry of a trigger file."""
_MAX_NAME = 253
_POD_SIGNALS = tuple(name for name, each in SIGNALS.items() if each.kind == "pods")
_AGGREGATIONS: Mapping[str, Aggregation] = {"mean": "mean", "max": "max", "sum": "sum"}
_KINDS = {"deployment": "Deployment", "statefulset": "StatefulSet"}
_KIND = re.compile(r"([A-Za-z][A-Za-z0-9]*)\.(?:(v\d+(?:(?:alpha|beta)\d+)?)\.)?([a-z0-9.-]+)")
_METRIC_NAME = re.compile(r"[A-Za-z0-9_:][A-Za-z0-9_.:-]*")
_WORKLOAD = "deployment/NAME, statefulset/NAME or KIND.GROUP/NAME"


class TriggerReader(KeyReader):
    """Reads the values of one trigger.

    Args:
        values: by key; texts, or what YAML made of them.
        note: called for each fault.
        check: judges a policy's name and settings.
    """

    def __init__(
        self, values: Mapping[str, object], note: Note, check: PolicyCheck = any_policy
    ) -> None:
        super().__init__(values, note)
        self._check = check

    def trigger(self, namespace: str) -> Trigger | None:
        """Return the trigger; None if there are faults."""
        workload = self._workload()
        load, unit_name, unit = self._load()
        policy = read_policy(self, self._check)
        credit = None if policy else self._credit(load, workload)
        target = 1.0 if policy else self._target(load is not None, unit_name, unit)
        activation = self.number("activationTarget", 0.0, least=0.0)
        wakes = tuple(self._wakes(namespace))
        schedule = self._schedule()
        replicas = self.count("wakeReplicas", 1, least=1) or 1
        deadline_s = self._deadline()
        hold_s = self.seconds("hold", DEFAULT_HOLD_S)
        fallback = self.count("fallbackReplicas", None, least=1)
        if load is None and not wakes and schedule is None:
            expected = "a load (signal, metric or query), a wake source, or both"
            self.note("signal", expected, "none of them")
        if workload is None and self.text("workload") is None:
            needed = [key for key in ("signal", "metric") if self.has(key)]
            if self.text("wakeDeadline") not in {None, "auto"}:
                needed.append("wakeDeadline")
            if needed:
                self.note("workload", f"{_WORKLOAD}, for {needed[0]}", "none")
        name = self._name(workload, load, wakes)
        if self.faults:
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
            credit,
            policy,
        )

    def _workload(self) -> WorkloadRef | None:
        text = self.text("workload")
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

    def _load(self) -> tuple[PodLoad | None, str, MetricUnit | None]:
        """Return the load, its name for messages about units, and its unit."""
        given = [key for key in ("signal", "metric", "query") if self.has(key)]
        if len(given) > 1:
            self.note(given[1], "one of signal, metric and query", " and ".join(given))
        stated = self.text("aggregation") or "mean"
        if stated not in _AGGREGATIONS:
            self.not_among("aggregation", stated, _AGGREGATIONS)
        aggregation = _AGGREGATIONS.get(stated, "mean")
        window_s = self.seconds("window", 0.0)
        if not given:
            for key in ("aggregation", "window"):
                if self.has(key):
                    self.note(key, f"{key} with signal, metric or query", "none of these")
            return None, "", None
        key = given[0]
        text = self.text(key) or ""
        if key == "query":
            if self.has("aggregation"):
                self.note("aggregation", "none with query, which answers for the whole workload")
            unit = self.query_unit("query", text)
            return PodLoad(query=text, window_s=window_s), "the query's answer", unit
        if key == "metric":
            if not _METRIC_NAME.fullmatch(text) or len(text) > _MAX_NAME:
                self.note("metric", "the name of a metric of pods", repr(text))
            return PodLoad(text, "", aggregation, window_s), text, None
        signal = SIGNALS.get(text)
        if signal is not None and signal.kind == "pods":
            known = UNITS.get(signal.unit)
            unit = None if known is None else MetricUnit(known, is_sum=signal.is_sum)
            return PodLoad(signal.metric, "", aggregation, window_s), text, unit
        meant = closest(text, _POD_SIGNALS)
        fix = f"write {meant}" if meant else None
        every = "a signal of pods; gpuscale init --signal list shows them"
        self.note("signal", every, repr(text), fix)
        return None, "", None

    def _credit(self, load: PodLoad | None, workload: WorkloadRef | None) -> Credit | None:
        given = [key for key in ("waiting", "throughput") if self.has(key)]
        if not given:
            for key in ("startTime", "drain"):
                if self.has(key):
                    self.note(key, f"{key} with waiting and throughput", "neither")
            return None
        for key in {"waiting", "throughput"}.difference(given):
            self.note(key, f"PromQL, with {given[0]}", "none")
        if load is None or not load.query:
            self.note(given[0], "query with it: what runs and what waits", "none")
        elif load.window_s:
            self.note("window", "no window with waiting; growth is measured over a minute", "one")
        if workload is None:
            self.note("workload", f"{_WORKLOAD}, for {given[0]}", "none")
        for key in given:
            self.query_unit(key, self.text(key) or "")
        is_learned = (self.text("startTime") or "auto") == "auto"
        start_s = None if is_learned else self.seconds("startTime", 0.0)
        drain_s = self.seconds("drain", DEFAULT_DRAIN_S)
        for key, seconds in (("startTime", start_s), ("drain", drain_s)):
            if seconds is not None and seconds < 1:
                self.note(key, "a duration of at least 1s", self.text(key))
        return Credit(self.text("waiting") or "", self.text("throughput") or "", start_s, drain_s)

    def _target(self, has_load: bool, name: str, unit: MetricUnit | None) -> float:
        if not self.has("target"):
            if has_load:
                self.note("target", "the load per pod, more than 0", "none")
            return 1.0
        quantity = self.quantity("target")
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

    def _deadline(self) -> float | None:
        if (self.text("wakeDeadline") or "auto") == "auto":
            return None
        seconds = self.seconds("wakeDeadline", 0.0)
        if seconds == 0 and not self.faults:
            self.note("wakeDeadline", "auto, or a duration such as 20m", "0")
        return seconds

    def _wakes(self, namespace: str) -> Iterator[WakeQuery]:
        threshold = self.number("wakeThreshold", 0.0, least=0.0)
        names = [each.strip() for each in (self.text("wake") or "").split(",") if each.strip()]
        of = self.text("wakeName")
        for name in dict.fromkeys(names):
            if name not in PRESETS:
                self.not_among("wake", name, PRESETS)
            elif of is None:
                self.note("wakeName", f"the name of {PRESETS[name].names}, for {name}", "none")
            else:
                yield wake_query(PRESETS[name], of, namespace, threshold)
        query = self.text("wakeQuery")
        if query is not None:
            self.query_unit("wakeQuery", query)
            yield WakeQuery(query, threshold)
        if not names and of is not None:
            self.note("wakeName", f"wake, one of {', '.join(PRESETS)}, with it", "none")
        if not names and query is None and self.has("wakeThreshold"):
            self.note("wakeThreshold", "wake or wakeQuery with it", "neither")

    def _schedule(self) -> WakeSchedule | None:
        start, end, zone = (self.text(key) for key in ("wakeStart", "wakeEnd", "timezone"))
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
        self, workload: WorkloadRef | None, load: PodLoad | None, wakes: tuple[WakeQuery, ...]
    ) -> str:
        text = self.text("metricName")
        if text is not None:
            if not _METRIC_NAME.fullmatch(text) or len(text) > _MAX_NAME:
                self.note("metricName", "letters, digits, '_', '.', ':' and '-'", repr(text))
            return text
        what = self.text("signal") or self.text("metric") or ("load" if load else "")
        if self.values.get("policy") is not None:
            what = "wanted-replicas"
        what = what or (wakes[0].source if wakes else "schedule")
        whole = f"{workload.name}-{what}" if workload else f"gpuscale-{what}"
        return re.sub(r"[^a-z0-9]+", "-", whole.lower()).strip("-")[:_MAX_NAME]
