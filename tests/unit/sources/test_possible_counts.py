"""How often a Prometheus is asked for the number of its impossible values: no more than it pays."""

import asyncio

import pytest

from gpuscale.series.values import Vector
from gpuscale.server.sources.prometheus import possible
from gpuscale.server.sources.prometheus.possible import PossibleSource

NAME = "DCGM_FI_DEV_GPU_UTIL"
MINUTE_MS = 60_000


class Slow:
    """Answers nothing, and takes its time for a count."""

    def __init__(self) -> None:
        self.counts: list[str] = []

    async def query(self, promql: str, at_ms: int) -> Vector:
        if promql.startswith("count("):
            self.counts.append(promql)
            await asyncio.sleep(0.001)
        return Vector(())

    async def close(self) -> None:
        return


@pytest.mark.parametrize(
    ("share", "windows"),
    [
        pytest.param(1e9, ["60000ms"] * 21, id="cheap: once a minute"),
        # A millisecond is no such share of ten minutes, which are the longest.
        pytest.param(1e-9, ["60000ms", "600000ms", "600000ms"], id="dear: every ten minutes"),
    ],
)
async def test_a_count_that_takes_long_is_made_less_often_and_looks_back_as_long(
    share: float, windows: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(possible, "_SHARE", share)
    inner = Slow()
    source = PossibleSource(inner)  # type: ignore[arg-type]
    for minute in range(21):
        before = len(inner.counts)
        await source.query(f"avg({NAME})", minute * MINUTE_MS)
        await asyncio.gather(*source._counting)
        assert len(inner.counts) - before in (0, 1)
    await source.close()
    found = [text.partition("[")[2].partition("]")[0] for text in inner.counts]
    assert found == windows
