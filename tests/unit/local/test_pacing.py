"""A pace that holds."""

import asyncio

import pytest

from gpuscale.base.clock import ManualClock
from gpuscale.lab.local.present import every, paced
from gpuscale.lab.scenarios import find_setup
from gpuscale.lab.sim.pipeline import phase_ms
from gpuscale.lab.sim.world import World


async def turns(took_s, until_ms):
    """Return when each turn began, where each takes so long."""
    clock, began = ManualClock(0), []

    async def act() -> None:
        if clock.now_ms() > until_ms:
            raise asyncio.CancelledError
        began.append(clock.now_ms())
        clock.advance(took_s)

    with pytest.raises(asyncio.CancelledError):
        await every(clock, 1_000, 2_000, act)
    return began


async def test_turns_come_at_the_pace_from_the_first_on_whatever_they_take() -> None:
    assert await turns(0.5, 7_000) == [1_000, 3_000, 5_000, 7_000]


async def test_turns_that_were_missed_are_not_made_up_for() -> None:
    # The first turn lasts from 1 s to 6 s, over those at 3 s and 5 s; the next is at 7 s.
    assert await turns(5.0, 13_000) == [1_000, 7_000, 13_000]


@pytest.mark.parametrize("name", ["ack-bert", "eks-vision"])
async def test_a_hop_looks_when_it_does_in_virtual_time_and_not_with_the_hpas(name) -> None:
    setup = find_setup(name)
    world, clock, began = World(setup, 7_000_000), ManualClock(7_000_000), []

    async def scrape() -> None:
        began.append(clock.now_ms() - world.start_ms)
        if len(began) == 5:
            raise asyncio.CancelledError

    period_ms = setup.pipeline.scrape_interval
    with pytest.raises(asyncio.CancelledError):
        await paced(clock, world, "scrape", period_ms, scrape)
    first_ms = phase_ms(setup.seed, "scrape", period_ms)
    assert began == [first_ms + turn * period_ms for turn in range(5)]
    # The controller syncs at multiples of its period: what it sees was scraped seconds before.
    assert all(each % setup.pipeline.hpa_sync_period >= 1000 for each in began)
