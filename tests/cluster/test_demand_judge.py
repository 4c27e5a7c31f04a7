"""The judge of scale-ins against arithmetic: latency 10 s, times in seconds."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from demand_judge import LATENCY_S, Judge
from keda_objects import Asked
from keda_world import Need

NEEDS = [Need(0, 0), Need(100, 4), Need(200, 1), Need(300, 3)]
SEEN = [(at, True) for at in range(400)]
AWAY = [(at, not 195 <= at <= 305) for at in range(400)]


def judged(before, after, at, sights=SEEN):
    asked = [Asked(0, "d", before), Asked(at, "d", after)]
    (found,) = Judge(NEEDS, sights).scale_ins(asked)
    return found.is_wrong, found.is_blind


@pytest.mark.parametrize(
    ("before", "after", "at", "is_wrong"),
    [
        pytest.param(5, 4, 150, False, id="to what is needed"),
        pytest.param(5, 3, 150, True, id="below what is needed"),
        pytest.param(4, 0, 150, True, id="to zero"),
        pytest.param(4, 1, 200, False, id="as the need falls"),
        pytest.param(4, 1, 300 + LATENCY_S - 1, False, id="on a need of just before"),
        pytest.param(4, 1, 300 + LATENCY_S + 1, True, id="on a need of too long ago"),
    ],
)
def test_a_scale_in_is_wrong_where_no_recent_need_justifies_it(
    before, after, at, is_wrong: bool
) -> None:
    assert judged(before, after, at) == (is_wrong, False)


@pytest.mark.parametrize(
    ("after", "at", "sights", "found"),
    [
        # At 195 the source went away, and said 4 last; it came back at 306, with 3 needed.
        pytest.param(1, 250, AWAY, (False, False), id="the need fell unseen"),
        pytest.param(1, 312, AWAY, (False, True), id="the need fell and rose unseen"),
        pytest.param(0, 250, AWAY, (True, False), id="zero was never needed"),
        pytest.param(1, 317, AWAY, (True, False), id="back for long enough"),
        pytest.param(2, 312, [(at, at < 305) for at in range(400)], (False, True), id="still away"),
    ],
)
def test_what_the_source_said_last_justifies_a_scale_in_while_it_is_away(
    after, at, sights, found
) -> None:
    assert judged(4, after, at, sights) == found
