"""The pool of queries when its callers are cancelled."""

import asyncio
from contextlib import suppress

import pytest

from gpuscale.series.promapi.query_pool import QueryPool
from gpuscale.series.promql.evaluate import instant
from gpuscale.series.promql.parse import parse_query
from gpuscale.series.promql.rows import QueryRange
from gpuscale.series.storage.store import SeriesStore

ENDLESS = parse_query("sum_over_time(vector(1)[4000000s:1s])")


async def endless(pool: QueryPool) -> object:
    return await pool.evaluate(
        SeriesStore(),
        ENDLESS,
        QueryRange(0, 0, 0),
        lambda samples, check: instant(samples, ENDLESS, 0, check=check),
    )


@pytest.mark.parametrize("turns", range(8))
async def test_a_cancelled_query_ends_as_cancelled_however_far_it_is(turns: int) -> None:
    # Among these turns of the loop is the one in which the query gets its slot.
    pool = QueryPool(timeout_s=5)
    task = asyncio.create_task(endless(pool))
    for _ in range(turns):
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert pool._inside == 0
    assert not pool._slots.locked()


@pytest.mark.parametrize("turns", range(8))
async def test_a_cancelled_query_that_waits_leaves_the_slot_to_the_next(turns: int) -> None:
    pool = QueryPool(timeout_s=20, at_once=1)
    first, second, third = (asyncio.create_task(endless(pool)) for _ in range(3))
    await asyncio.sleep(0.05)
    first.cancel()
    for _ in range(turns):
        await asyncio.sleep(0)
    second.cancel()
    for task in (first, second):
        with pytest.raises(asyncio.CancelledError):
            await task
    await asyncio.sleep(0.05)
    assert not third.done()
    third.cancel()
    with suppress(asyncio.CancelledError):
        await third
    assert not pool._slots.locked()
