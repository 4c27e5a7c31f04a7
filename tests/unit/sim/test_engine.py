import pytest

from gpuscale.lab.sim.engine import Engine, EventStage


def test_events_run_by_time_then_stage_then_order_of_asking() -> None:
    engine, seen = Engine(0), []
    engine.at(20, EventStage.LOAD, lambda now: seen.append((now, "later")))
    engine.at(10, EventStage.SCHEDULER, lambda now: seen.append((now, "scheduler")))
    engine.at(10, EventStage.HPA, lambda now: seen.append((now, "hpa 1")))
    engine.at(10, EventStage.HPA, lambda now: seen.append((now, "hpa 2")))
    engine.run_until(20)
    assert seen == [(10, "hpa 1"), (10, "hpa 2"), (10, "scheduler"), (20, "later")]


def test_an_event_may_ask_for_a_later_stage_of_its_own_moment() -> None:
    engine, seen = Engine(0), []
    engine.at(5, EventStage.HPA, lambda now: engine.after(0, EventStage.SCHEDULER, seen.append))
    engine.run_until(5)
    assert seen == [5]


def test_the_past_is_now() -> None:
    engine, seen = Engine(100), []
    engine.at(3, EventStage.LOAD, seen.append)
    engine.run_until(100)
    assert seen == [100]


def test_periods_keep_their_pace_whatever_the_steps_of_running() -> None:
    engine, seen = Engine(0), []
    engine.every(15, EventStage.SCRAPE, seen.append, first_ms=7)
    for end in (6, 7, 30, 52):
        engine.run_until(end)
    assert seen == [7, 22, 37, 52]


def test_a_period_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="expected more than zero"):
        Engine(0).every(0, EventStage.LOAD, lambda now: None, first_ms=0)


def test_time_reaches_the_end_also_without_events() -> None:
    engine = Engine(0)
    engine.run_until(123)
    assert engine.now_ms == 123
