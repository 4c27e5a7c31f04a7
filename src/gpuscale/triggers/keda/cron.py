"""KEDA's cron trigger: a number of replicas between two times.

Source: KEDA v2.21 pkg/scalers/cron_scaler.go.
"""

from collections.abc import Callable
from dataclasses import dataclass

from gpuscale.base.cron import check_expression
from gpuscale.base.objects.hpa import MetricSpec
from gpuscale.base.quantity import Quantity
from gpuscale.triggers.keda.metadata import TriggerMetadata
from gpuscale.triggers.keda.scalers import ScalerReading, external_metric
from gpuscale.triggers.schedule import awake, check_timezone
from gpuscale.triggers.trigger import WakeSchedule

_LETTERS = {" ": "", "*": "x", "/": "Sl", "?": "Qm", ",": "Cm"}
_ONE = Quantity.from_milli(1000)


@dataclass(frozen=True, slots=True)
class CronScaler:
    """Active from each start to the next end."""

    metrics: tuple[MetricSpec, ...]
    schedule: WakeSchedule
    replicas: int

    async def read(self, now_ms: int) -> ScalerReading:
        is_awake, _ = awake(self.schedule, now_ms)
        return ScalerReading(self.replicas * 1000 if is_awake else 0, is_awake)


def cron_scaler(metadata: TriggerMetadata) -> CronScaler:
    """Return a trigger's scaler; faults are collected."""
    start, end, timezone = (metadata.text(key) for key in ("start", "end", "timezone"))
    for key, text in (("start", start), ("end", end)):
        _check(metadata, key, text, check_expression)
    _check(metadata, "timezone", timezone, check_timezone)
    if start and start == end:
        metadata.note(("metadata", "end"), "another time than start", repr(end))
    replicas = metadata.text("desiredReplicas")
    if replicas and not (replicas.isascii() and replicas.isdigit() and int(replicas)):
        path = ("metadata", "desiredReplicas")
        metadata.note(path, "a whole number from 1 on", repr(replicas))
        replicas = ""
    name = metadata.metric_name(f"cron-{timezone}-{_shown(start)}-{_shown(end)}")
    metric = external_metric(name, metadata.trigger.metric_type, _ONE)
    return CronScaler((metric,), WakeSchedule(start, end, timezone), int(replicas or "1"))


def _check(metadata: TriggerMetadata, key: str, text: str, check: Callable[[str], None]) -> None:
    try:
        if text:
            check(text)
    except ValueError as error:
        metadata.note(("metadata", key), str(error), repr(text))


def _shown(expression: str) -> str:
    """Return an expression as it appears in the metric's name."""
    for sign, letters in _LETTERS.items():
        expression = expression.replace(sign, letters)
    return expression
