"""Threads for GPUs: one in good times, more where some hang."""

import threading

import pytest

from gpuscale.agent.nvml.workers import Lanes, Work

PATIENCE_S = 0.02
LONG_S = 30.0


def jobs(*functions):
    works = []
    for function in functions:
        works.append(Work())
        works[-1].begin(function)
    return works


def name():
    return threading.current_thread().name


def test_one_thread_does_everything_in_order() -> None:
    done = []
    works = jobs(*(lambda n=n: done.append((n, name())) for n in range(8)))
    Lanes("lane").run(works, LONG_S, LONG_S)
    assert done == [(n, "lane-0") for n in range(8)]


def test_what_a_job_raises_is_for_whoever_takes_its_result() -> None:
    def fail() -> None:
        raise ValueError("no")

    first, second = jobs(fail, lambda: 7)
    Lanes("lane").run([first, second], LONG_S, LONG_S)
    assert second.take() == 7
    with pytest.raises(ValueError, match=r"^no$"):
        first.take()


def test_another_thread_goes_on_where_one_hangs_and_both_serve_later() -> None:
    release = threading.Event()
    lanes = Lanes("lane")
    stuck, *others = jobs(lambda: release.wait(LONG_S), name, name)
    lanes.run([stuck, *others], PATIENCE_S, 1.0)
    assert stuck.is_busy
    assert [work.take() for work in others] == ["lane-1", "lane-1"]
    release.set()
    assert stuck.wait(LONG_S)
    assert not stuck.is_busy
    again = jobs(name, name)
    lanes.run(again, LONG_S, LONG_S)
    assert {work.take() for work in again} <= {"lane-0", "lane-1"}


def test_several_hang_and_the_last_is_done_all_the_same() -> None:
    release = threading.Event()
    works = jobs(*(lambda: release.wait(LONG_S) for _ in range(3)), name)
    Lanes("lane").run(works, PATIENCE_S, 2.0)
    assert [work.is_busy for work in works] == [True, True, True, False]
    assert works[-1].take() == "lane-3"
    release.set()


def test_what_has_not_begun_at_the_deadline_does_not_begin_later() -> None:
    release = threading.Event()
    begun = []
    works = jobs(lambda: release.wait(LONG_S), lambda: begun.append(1))
    Lanes("lane").run(works, patience_s=LONG_S, deadline_s=0.1)
    assert [work.is_busy for work in works] == [True, False]
    release.set()
    assert works[0].wait(LONG_S)
    assert not works[1].wait(0.2)
    assert begun == []
