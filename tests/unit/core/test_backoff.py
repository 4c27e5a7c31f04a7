from gpuscale.base.backoff import Backoff


def test_waits_double_up_to_the_longest_and_begin_again() -> None:
    waits = Backoff(1_000, 5_000)
    assert [waits.advance() for _ in range(5)] == [1_000, 2_000, 4_000, 5_000, 5_000]
    waits.reset()
    assert waits.advance() == 1_000


def test_a_jittered_wait_is_at_least_half() -> None:
    for _ in range(200):
        waits = Backoff(1.0, 8.0)
        for whole in (1.0, 2.0, 4.0, 8.0, 8.0):
            assert whole / 2 <= waits.jittered() <= whole
