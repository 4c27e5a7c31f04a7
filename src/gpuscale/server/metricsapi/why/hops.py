"""The way of one metric's value, hop by hop, as far as it came."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum

from gpuscale.server.metricsapi.wire.paths import CustomTarget, ExternalTarget

CUSTOM_HOPS = ("rule", "series", "labels", "objects", "query", "rows", "value")
EXTERNAL_HOPS = ("rule", "series", "labels", "query", "value")
WRONG_SELECTOR = "Correct the metric's selector in the HPA."
"""What to do where series are there, and the HPA's selector takes none of them."""
MAX_SHOWN = 200
"""Rows and objects that an explanation holds; the rest is counted."""


def asked_text(target: CustomTarget | ExternalTarget) -> str:
    """Return what a request asks for: `gpu_util of pods ml/web-0`."""
    if isinstance(target, ExternalTarget):
        return f"{target.metric}, external, in {target.namespace}"
    place = f"{target.namespace}/{target.name}" if target.namespace else target.name
    return f"{target.metric} of {target.resource} {place}"


class HopState(Enum):
    """Whether a step succeeded, failed, found nothing, or was not reached."""

    OK = "ok"
    FAILED = "failed"
    UNKNOWN = "unknown"
    """It is not known, and does not matter where a value came in the end."""
    ABSENT = "absent"
    """Nothing is there; that ends the way only where no value came in the end."""
    NOT_REACHED = "not reached"


@dataclass(frozen=True, slots=True)
class Hop:
    """One step on the way from the rules to the value."""

    name: str
    state: HopState
    said: str = ""
    more: tuple[str, ...] = ()
    """What shows it."""
    fix: str = ""
    """What most likely helps."""


@dataclass(frozen=True, slots=True)
class AnswerRow:
    """One row of the query's answer."""

    labels: Mapping[str, str]
    value: str
    """As Prometheus writes it."""
    age_ms: int
    """Since it was measured, as far as the source reports it."""
    belongs_to: str | None
    """The object; empty where it is of none that was asked for, None where rows are of no objects."""


@dataclass(frozen=True, slots=True)
class ServedValue:
    """What the API answers."""

    what: str
    """The object, or the labels of an external value."""
    value: str
    """A quantity."""
    age_ms: int


@dataclass(slots=True)
class Explanation:
    """The explanation of one metric request, filled step by step."""

    asked: str
    """See `asked_text`."""
    hop_names: tuple[str, ...]
    hops: list[Hop] = field(default_factory=list)
    rule: Mapping[str, object] | None = None
    query: str | None = None
    rows: list[AnswerRow] = field(default_factory=list)
    more_rows: int = 0
    """Rows that are not shown."""
    matched: list[str] = field(default_factory=list)
    missed: list[str] = field(default_factory=list)
    values: list[ServedValue] = field(default_factory=list)

    def ok(self, name: str, said: str, *more: str) -> None:
        self.hops.append(Hop(name, HopState.OK, said, more))

    def unknown(self, name: str, said: str) -> None:
        """Add a step whose result can't be known."""
        self.hops.append(Hop(name, HopState.UNKNOWN, said))

    def absent(self, name: str, said: str, fix: str, *more: str) -> None:
        """Add a step that found nothing, which later steps may not need."""
        self.hops.append(Hop(name, HopState.ABSENT, said, more, fix))

    def failed(self, name: str, said: str, fix: str, *more: str) -> "Explanation":
        """Add the step at which the value was lost; return the explanation, which ends there."""
        self.hops.append(Hop(name, HopState.FAILED, said, more, fix))
        return self

    def document(self) -> dict[str, object]:
        """Return the explanation as JSON-shaped data, with the steps that were not reached."""
        hops = self._ended()
        failed = next((hop.name for hop in hops if hop.state is HopState.FAILED), None)
        return {
            "kind": "MetricExplanation",
            "asked": self.asked,
            "failedHop": failed,
            "hops": [_hop(hop) for hop in hops],
            "rule": self.rule,
            "query": self.query,
            "rows": [_row(row) for row in self.rows[:MAX_SHOWN]],
            "moreRows": self.more_rows + len(self.rows[MAX_SHOWN:]),
            "matched": self.matched[:MAX_SHOWN],
            "matchedCount": len(self.matched),
            "missed": self.missed[:MAX_SHOWN],
            "missedCount": len(self.missed),
            "values": [
                {"of": each.what, "value": each.value, "ageMs": each.age_ms}
                for each in self.values[:MAX_SHOWN]
            ],
        }

    def _ended(self) -> list[Hop]:
        """Return the final state of all steps, now that it is known whether a value came."""
        state = HopState.UNKNOWN if self.values else HopState.FAILED
        hops = [
            replace(hop, state=state) if hop.state is HopState.ABSENT else hop for hop in self.hops
        ]
        explanation = {hop.name for hop in hops}
        rest = (
            Hop(name, HopState.NOT_REACHED) for name in self.hop_names if name not in explanation
        )
        return [*hops, *rest]


def _hop(hop: Hop) -> dict[str, object]:
    return {
        "hop": hop.name,
        "state": hop.state.value,
        "said": hop.said,
        "evidence": list(hop.more),
        "fix": hop.fix,
    }


def _row(row: AnswerRow) -> dict[str, object]:
    return {
        "labels": dict(row.labels),
        "value": row.value,
        "ageMs": row.age_ms,
        "object": row.belongs_to,
    }
