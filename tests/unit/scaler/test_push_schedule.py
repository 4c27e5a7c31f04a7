"""When a stream tells KEDA that a workload is active: on the edge, and again for a KEDA not ready for it."""

from gpuscale.server.scaler.pushes import PushSchedule


def sent(schedule, activities, until_s):
    """Return what is sent and when, where the activity changes at these times and nothing else happens."""
    found, changes = [], sorted(activities.items())
    now_s, is_active = 0.0, None
    while True:
        while changes and changes[0][0] <= now_s:
            is_active = changes.pop(0)[1]
        told = schedule.due(now_s, is_active=is_active)
        if told is not None:
            found.append((now_s, told))
            continue
        next_s = schedule.next_s(is_active=is_active)
        upcoming = [
            each for each in (next_s, changes[0][0] if changes else None) if each is not None
        ]
        if not upcoming or min(upcoming) > until_s:
            return found
        now_s = max(now_s, min(upcoming))


def test_the_first_true_is_repeated_and_then_only_once_a_polling_interval() -> None:
    assert sent(PushSchedule(30.0), {0.0: True}, 80.0) == [
        (0.0, True),
        (2.0, True),
        (5.0, True),
        (15.0, True),
        (45.0, True),
        (75.0, True),
    ]


def test_an_edge_is_told_at_once_and_the_way_back_too() -> None:
    found = sent(PushSchedule(30.0), {0.0: False, 7.0: True, 8.0: False, 50.0: True}, 60.0)
    assert found == [(0.0, False), (7.0, True), (8.0, False), (50.0, True)]


def test_a_true_that_returns_within_a_second_waits_for_the_second() -> None:
    found = sent(PushSchedule(30.0), {0.0: True, 0.2: False, 0.4: True}, 1.9)
    assert found == [(0.0, True), (0.2, False), (1.0, True)]


def test_nothing_is_said_while_nothing_is_known() -> None:
    assert sent(PushSchedule(30.0), {0.0: None}, 100.0) == []
    assert sent(PushSchedule(30.0), {0.0: None, 4.0: True}, 5.0) == [(4.0, True)]


def test_a_short_polling_interval_does_not_add_to_the_repeats() -> None:
    found = sent(PushSchedule(5.0), {0.0: True}, 21.0)
    assert [at_s for at_s, _ in found] == [0.0, 2.0, 5.0, 10.0, 15.0, 20.0]
