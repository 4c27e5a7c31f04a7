"""The tests of growth find what looks at each pair of things, and nothing else."""

from growing import steps_per_pair


def looks(size: int, each: int) -> int:
    return sum(1 for _ in range(size) for _ in range(each))


def test_a_look_at_each_pair_is_found() -> None:
    assert steps_per_pair(lambda size: lambda: looks(size, size)) > 1


def test_a_look_at_each_thing_is_none() -> None:
    assert steps_per_pair(lambda size: lambda: looks(size, 100)) == 0
