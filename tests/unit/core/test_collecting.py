"""Collecting rarely: nothing is looked at until there are many more objects, and cycles go then."""

import gc
import weakref

import pytest

from gpuscale.base import memory


class Knot:
    def __init__(self) -> None:
        self.itself = self


def test_cycles_stay_until_there_are_enough_objects_and_go_then(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(memory, "_FIRST", 5_000)
    gc.collect()
    with memory.collecting_rarely() as collector:
        knot = weakref.ref(Knot())
        assert not collector.look()
        assert knot() is not None
        many = [[index] for index in range(6_000)]
        assert collector.look()
        assert knot() is None
        # As many new objects again as there are now have to come first.
        assert not collector.look()
    assert len(many) == 6_000


def test_the_collector_is_on_again_after_an_error() -> None:
    def fail() -> None:
        with memory.collecting_rarely():
            assert not gc.isenabled()
            raise RuntimeError

    assert gc.isenabled()
    with pytest.raises(RuntimeError):
        fail()
    assert gc.isenabled()
