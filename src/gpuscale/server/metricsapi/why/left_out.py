"""Values that their series can't have, which count as absent wherever they came from."""

from collections.abc import Collection

from gpuscale.base.errors import GpuscaleError
from gpuscale.series.labels import METRIC_NAME
from gpuscale.series.matchers import Matcher, MatchOp
from gpuscale.series.possible import IMPOSSIBLE_SERIES, OF_SERIES
from gpuscale.series.values import Vector
from gpuscale.server.sources.asking.single_flight import SharedSource

IMPOSSIBLE_FIX = (
    "The exporter or the driver gave a number that is no reading. If it lasts, restart the exporter, and "
    "look at the GPU with its vendor's tool."
)
_MAX_TOLD = 5


async def left_out_of(
    questions: SharedSource, promql: str, now_ms: int, label: str = "", names: Collection[str] = ()
) -> tuple[str, ...]:
    """Return what a query passes over, a sentence each; nothing where that is not known.

    Args:
        questions: go to the source of the values.
        promql: the query.
        now_ms: when it is asked.
        label: names an object.
        names: of objects that may be named; others are counted.
    """
    from gpuscale.server.sources.prometheus.guards import impossible_query

    try:
        asked = impossible_query(promql)
    except GpuscaleError:
        return ()
    return () if asked is None else await _told(questions, asked, now_ms, label, names)


async def left_out_series(
    questions: SharedSource, series: str, conditions: Collection[Matcher], now_ms: int
) -> tuple[str, ...]:
    """Return what is left out of the series of a name, a sentence each."""
    matchers = (
        Matcher(METRIC_NAME, MatchOp.EQUAL, IMPOSSIBLE_SERIES),
        Matcher(OF_SERIES, MatchOp.EQUAL, series),
        *conditions,
    )
    return await _told(questions, f"{{{','.join(map(str, matchers))}}}", now_ms, "", ())


async def _told(
    questions: SharedSource, promql: str, now_ms: int, label: str, names: Collection[str]
) -> tuple[str, ...]:
    from gpuscale.signals import impossible

    try:
        value = (await questions.query(promql, now_ms)).value
    except GpuscaleError:
        return ()
    samples = value.samples if isinstance(value, Vector) else ()
    said: list[str] = []
    for sample in samples:
        # What a Prometheus has is outside at some time of the last minutes, and so it is said here.
        reason = impossible(sample.labels.get(OF_SERIES, ""), sample.value)
        name = sample.labels.get(label, "")
        if reason is not None:
            whose = f" of {name}" if name in names else ""
            said.append(f"a series{whose} is left out: {reason}")
    more = len(said) - _MAX_TOLD
    return (*said[:_MAX_TOLD], *((f"and {more} more are left out",) if more > 0 else ()))
