"""The sample's language model in virtual time, against arithmetic."""

from collections import deque

import pytest

from text.engine import Engine, Sequence, Speed

SPEED = Speed(step=0.020, per_sequence=0.001, per_prompt_token=0.0001)


def finished(sequences, most_sequences=64, cache_tokens=10_000):
    """Return when the first and the last token of each come, seconds, where all are there at 0."""
    engine = Engine(SPEED, most_sequences, cache_tokens, waiting=deque(sequences))
    first: dict[Sequence, float] = {}
    last: dict[Sequence, float] = {}
    now = 0.0
    while engine.waiting or engine.running:
        now += engine.begin_step()[0]
        assert engine.cache_use <= 1
        assert len(engine.running) <= most_sequences
        for each in engine.end_step():
            first.setdefault(each, now)
            last[each] = now
    return [(first[each], last[each]) for each in sequences]


def test_the_first_token_takes_the_prompt_and_a_step() -> None:
    ((first, last),) = finished([Sequence(prompt_tokens=200, most_tokens=10)])
    assert first == pytest.approx(0.020 + 0.001 + 200 * 0.0001)
    assert last - first == pytest.approx(9 * 0.021)


def test_a_batch_shares_its_steps() -> None:
    times = finished([Sequence(100, 10) for _ in range(8)])
    # All prompts in the first step, then nine steps of eight sequences.
    assert times == [pytest.approx((0.020 + 8 * 0.001 + 800 * 0.0001, 0.108 + 9 * 0.028))] * 8


def test_who_finds_the_batch_full_waits_for_its_end() -> None:
    one, two, three = finished([Sequence(10, 5) for _ in range(3)], most_sequences=2)
    assert one == two
    assert three[0] == pytest.approx(one[1] + 0.020 + 0.001 + 10 * 0.0001)


def test_who_finds_the_cache_full_waits_and_nobody_overtakes() -> None:
    # 100 + 100 tokens of 250 are held; the second needs 200, and the small third stays behind it.
    one, two, three = finished(
        [Sequence(100, 100), Sequence(100, 100), Sequence(10, 10)], cache_tokens=250
    )
    assert two[0] > one[1]
    assert three[0] == two[0]


def test_who_leaves_makes_room() -> None:
    engine = Engine(SPEED, 1, 1000)
    gone, stays, waits = Sequence(10, 5), Sequence(10, 5), Sequence(10, 5)
    engine.waiting.extend([stays, gone, waits])
    engine.begin_step()
    engine.leave(gone)
    engine.leave(stays)
    assert engine.begin_step()[1] == [waits]
    assert engine.cache_use == pytest.approx(0.015)
