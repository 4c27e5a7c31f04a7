"""Our own questions to a history."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gpuscale.base.errors import UsageError
from gpuscale.ops.history.reading import History
from gpuscale.ops.history.tables import MEASURES
from gpuscale.ops.history.taking import Span
from gpuscale.ops.money.questions import HOUR_S

_PARTS = {
    "container": "namespace, pod, container",
    "pod": "namespace, pod",
    "namespace": "namespace",
    "node": "node",
    "gpu": "node, gpu",
    "model": "model",
    "all": "",
}
PARTS = tuple(_PARTS)
_NOBODY = "(nobody)"


@dataclass(frozen=True, slots=True)
class Use:
    """What GPUs did, in bins of time."""

    measure: str
    every_s: int
    begin_s: int
    end_s: int
    names: Sequence[str]
    """Columns of the keys."""
    series: Mapping[tuple[str, ...], Sequence[tuple[int, float, float, float]]]
    """Begin of the bin in seconds since the epoch, then mean, least and highest value, by key."""


def ask_use(history: History, measure: str, by: str, every_s: int, span: Span) -> Use:
    """Return means of what GPUs did, each sample counting alike.

    Args:
        history: where it is kept.
        measure: one of `MEASURES`.
        by: one of `PARTS`; GPUs that nobody has are left out of containers, pods and namespaces.
        every_s: length of a bin, in whole minutes; whole hours are read from the table of hours.
        span: begin and end in seconds since the epoch.

    Raises:
        UsageError: an argument is none of those.
        UnavailableError: it can't be read.
    """
    if measure not in MEASURES:
        raise UsageError(f"--measure: found {measure!r}, expected one of {', '.join(MEASURES)}")
    if by not in PARTS:
        raise UsageError(f"--by: found {by!r}, expected one of {', '.join(PARTS)}")
    if every_s <= 0 or every_s % 60:
        raise UsageError(f"--every: found {every_s} s, expected whole minutes")
    names = _PARTS[by].split(", ") if _PARTS[by] else []
    is_hourly = every_s % HOUR_S == 0 and span[0] % HOUR_S == span[1] % HOUR_S == 0
    owned = "AND pod IS NOT NULL" if "namespace" in names else ""
    keys = "".join(f", coalesce({each}, '')" for each in names)
    sql = (
        f"SELECT epoch_ms(time) // {every_s * 1000} * {every_s} AS begin{keys}, "
        f"sum({measure}_mean::DOUBLE * {measure}_count) / sum({measure}_count), "
        f"min({measure}_min), max({measure}_max) "
        f"FROM {'gpu_hours' if is_hourly else 'gpus'} "
        "WHERE time >= make_timestamp($1) AND time < make_timestamp($2) "
        f"AND {measure}_mean IS NOT NULL {owned} GROUP BY ALL ORDER BY ALL"
    )
    found: dict[tuple[str, ...], list[tuple[int, float, float, float]]] = {}
    with history.ask(sql, *(each * 1_000_000 for each in span)) as answer:
        for begin, *key, mean, least, most in answer.rows:
            found.setdefault(tuple(map(str, key)), []).append((begin, mean, least, most))
    return Use(measure, every_s, *span, names, dict(sorted(found.items())))
