"""What an HPA would do with other numbers: by its controller, ceil(replicas x value / target)."""

import pytest

from gpuscale.hpa.decisions import decide_request
from gpuscale.ops.dashboard.what_if import changed, read_change
from seen_hpa import seen

EXTERNAL = (
    "{type: External, external: {metric: {name: queue}, target: {type: AverageValue, averageValue: 20}}}",
    "{samples: ['80']}",
)
OBJECT = (
    "{type: Object, object: {describedObject: {apiVersion: v1, kind: Service, name: s}, "
    "metric: {name: rps}, target: {type: Value, value: 20}}}",
    "{value: '80'}",
)


@pytest.mark.parametrize(
    ("query", "size"),
    [
        ({}, 4),  # 2 pods x 40/20
        ({"target": "30"}, 3),  # 2 x 40/30 = 2.7
        ({"value": "11500m"}, 2),  # 2 x 11.5/20 = 1.15
        ({"value": "70", "target": "50"}, 3),  # 2 x 70/50 = 2.8
        ({"value": "70"}, 4),  # 7, and a sync adds no more than to max(2 x 2, 4)
        ({"max": "3"}, 3),
        ({"value": "0", "min": "2"}, 2),
        ({"min": "6"}, 6),
        ({"target": " ", "max": ""}, 4),  # an empty field of the form
    ],
)
def test_a_metric_of_pods(query: dict[str, str], size: int) -> None:
    assert decide_request(changed(seen(2, "40"), read_change(query))).desired_replicas == size


@pytest.mark.parametrize("metric", [EXTERNAL, OBJECT])
@pytest.mark.parametrize(("value", "size"), [("30", 3), ("21", 2), ("40", 4)])
def test_the_value_is_that_which_is_held_against_the_target(
    metric: tuple[str, str], value: str, size: int
) -> None:
    request = changed(seen(2, "", *metric), read_change({"value": value}))
    assert decide_request(request).desired_replicas == size


@pytest.mark.parametrize(
    ("query", "told"),
    [
        ({"target": "0"}, "target: found '0', expected a number such as"),
        ({"target": "abc"}, "target: found 'abc'"),
        ({"value": "-1"}, "value: found '-1'"),
        ({"value": "1e30"}, "value: found '1e30'"),
        ({"min": "1.5"}, "min: found '1.5', expected a whole number"),
        ({"max": "9" * 40}, "max: found '999"),
        ({"min": "5", "max": "4"}, "max: found 4, expected at least 1 and the minimum, 5"),
        ({"max": "0"}, "max: found 0"),
        ({"min": "0"}, "don't go to zero"),
    ],
)
def test_what_can_not_be(query: dict[str, str], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        changed(seen(2, "40"), read_change(query))


def test_a_metric_without_a_value_has_none_to_change() -> None:
    request = seen(2, "", EXTERNAL[0], "{error: gone}")
    with pytest.raises(ValueError, match="none now that could be changed"):
        changed(request, read_change({"value": "3"}))
