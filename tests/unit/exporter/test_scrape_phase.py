"""Collects that move to end just before the scrapes."""

from itertools import pairwise

import pytest

from gpuscale.agent.exporter.pacing import ScrapePhase

INTERVAL_MS, TOOK_MS, MARGIN_MS = 250, 5, 15


def phase(*scrapes_ms):
    made = ScrapePhase()
    for at_ms in scrapes_ms:
        made.note(at_ms)
    return made


def shifted(due_ms, *scrapes_ms):
    return phase(*scrapes_ms).shifted_ms(due_ms, INTERVAL_MS, TOOK_MS)


@pytest.mark.parametrize("scrapes_ms", [(), (1_000,)])
def test_nothing_moves_before_two_scrapes(scrapes_ms) -> None:
    assert shifted(1_100, *scrapes_ms) == 1_100


@pytest.mark.parametrize("gap_ms", [250, 1_000, 15_000, 255, 245])
def test_a_collect_ends_just_before_the_next_scrape(gap_ms) -> None:
    last_ms = 1_000 + gap_ms
    due_ms = last_ms + 140
    # The next scrape is 250 ms after the last one: 110 ms after the collect was due.
    assert shifted(due_ms, 1_000, last_ms) == last_ms + INTERVAL_MS - TOOK_MS - MARGIN_MS


def test_a_collect_moves_to_the_nearer_side() -> None:
    # At 1230 and 1480 collects would end in time; 1340 is nearer to the first, 1370 to the second.
    assert shifted(1_340, 1_000, 1_250) == 1_230
    assert shifted(1_370, 1_000, 1_250) == 1_480


@pytest.mark.parametrize("gap_ms", [300, 350, 400, 3_125, 124, 5, 0])
def test_scrapes_at_other_points_move_nothing(gap_ms) -> None:
    assert shifted(9_999, 1_000, 1_000 + gap_ms) == 9_999


def test_two_scrapers_at_different_points_move_nothing() -> None:
    # One at 1000, 2000, 3000, the other 400 ms after it.
    assert phase(1_000, 1_400, 2_000, 2_400, 3_000).shifted_ms(3_050, 1_000, 5) == 3_050


def test_a_slow_collect_moves_by_half_an_interval_at_most() -> None:
    moved = phase(1_000, 1_250).shifted_ms(1_300, INTERVAL_MS, took_ms=900)
    assert abs(moved - 1_300) <= INTERVAL_MS // 2
    assert (moved + INTERVAL_MS // 2 - 1_250) % INTERVAL_MS == 0


def test_collects_settle_and_keep_their_pace() -> None:
    scrapes, starts, next_scrape = ScrapePhase(), [0], 97
    while len(starts) < 20:
        due_ms = scrapes.shifted_ms(starts[-1] + INTERVAL_MS, INTERVAL_MS, TOOK_MS)
        while next_scrape < due_ms:
            scrapes.note(next_scrape)
            next_scrape += INTERVAL_MS
        starts.append(due_ms)
    gaps = {after - before for before, after in pairwise(starts[5:])}
    assert gaps == {INTERVAL_MS}
    assert (97 - starts[-1]) % INTERVAL_MS == TOOK_MS + MARGIN_MS
