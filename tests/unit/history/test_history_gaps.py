"""What of a range is not kept yet, whatever the order of spans and where they overlap."""

import pytest

from gpuscale.ops.history.taking import gaps


@pytest.mark.parametrize(
    ("covered", "left"),
    [
        ([], [(10, 20)]),
        ([(0, 30)], []),
        ([(12, 14), (16, 18)], [(10, 12), (14, 16), (18, 20)]),
        ([(16, 18), (8, 12), (11, 13)], [(13, 16), (18, 20)]),
        ([(0, 10), (20, 30)], [(10, 20)]),
    ],
)
def test_gaps_are_what_no_span_covers(covered, left) -> None:
    assert list(gaps(covered, 10, 20)) == left
