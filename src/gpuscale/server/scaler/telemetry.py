"""The scaler's own metrics."""

from collections import Counter, OrderedDict
from collections.abc import Mapping

from gpuscale import __version__
from gpuscale.base.exposition.families import Family, Sample
from gpuscale.server.metricsapi.telemetry.histograms import Histogram, Labels, histograms
from gpuscale.triggers import Answer, Basis

PREFIX = "gpuscale_scaler"
_MOST_SHOWN = 2_000
"""Triggers whose state is shown; those asked for longest ago go first."""

_Key = tuple[str, str, str]
"""Namespace, ScaledObject, metric."""


class ScalerMetrics:
    """Counters of the scaler."""

    def __init__(self) -> None:
        self._calls: Counter[tuple[str, str]] = Counter()
        self._durations: dict[str, Histogram] = {}
        self._answers: Counter[Basis] = Counter()
        self._pushes: Counter[bool] = Counter()
        self._last: OrderedDict[_Key, Answer] = OrderedDict()

    def called(self, method: str, code: str, seconds: float | None) -> None:
        """Count a finished call; a stream has no duration."""
        self._calls[method, code] += 1
        if seconds is not None:
            self._durations.setdefault(method, Histogram()).add(seconds)

    def pushed(self, *, is_active: bool) -> None:
        self._pushes[is_active] += 1

    def answered(self, namespace: str, scaled_object: str, metric: str, answer: Answer) -> None:
        self._answers[answer.basis] += 1
        key = (namespace, scaled_object, metric)
        self._last[key] = answer
        self._last.move_to_end(key)
        if len(self._last) > _MOST_SHOWN:
            self._last.popitem(last=False)

    def families(
        self, streams: Mapping[str, int], connections: Counter[str], triggers: int
    ) -> tuple[Family, ...]:
        """Return all metrics of the scaler.

        Args:
            streams: open ones by method.
            connections: that were closed for being too many, by reason; `open` are those there are.
            triggers: that are watched.
        """
        held: dict[Labels, float] = {
            (
                ("namespace", namespace),
                ("scaledobject", name),
                ("metric", metric),
                ("basis", answer.basis),
            ): answer.held_s
            for (namespace, name, metric), answer in self._last.items()
            if answer.basis != "measured"
        }
        closed = {reason: count for reason, count in connections.items() if reason != "open"}
        return (
            _family(
                "build_info", "gauge", "Version of the scaler.", {(("version", __version__),): 1}
            ),
            _family(
                "calls_total",
                "counter",
                "gRPC calls and streams that ended, by method and status code.",
                {
                    (("method", method), ("code", code)): n
                    for (method, code), n in self._calls.items()
                },
            ),
            histograms(
                f"{PREFIX}_call_duration_seconds",
                "Time to answer a call.",
                {(("method", method),): each for method, each in self._durations.items()},
            ),
            _family(
                "answers_total",
                "counter",
                "Values and activities given, by what they rest on: measured, held, fallback, unavailable.",
                {(("basis", basis),): n for basis, n in self._answers.items()},
            ),
            _family(
                "held_seconds",
                "gauge",
                "How long a source has been away, by the trigger that is answered without it.",
                held,
            ),
            _family(
                "pushes_total",
                "counter",
                "Activities sent on streams.",
                {(("active", str(active).lower()),): n for active, n in self._pushes.items()},
            ),
            _family(
                "streams",
                "gauge",
                "Open streams, by method.",
                {(("method", m),): n for m, n in streams.items()},
            ),
            _family("connections", "gauge", "Open connections.", {(): connections["open"]}),
            _family(
                "connections_closed_total",
                "counter",
                "Connections that were closed for being too many.",
                {(("reason", reason),): n for reason, n in closed.items()},
            ),
            _family(
                "triggers", "gauge", "Triggers asked for in the last ten minutes.", {(): triggers}
            ),
        )


def _family(name: str, type_: str, help_: str, values: Mapping[Labels, float]) -> Family:
    samples = tuple(Sample(labels, value) for labels, value in sorted(values.items()))
    return Family(f"{PREFIX}_{name}", type_, help_, samples)
