"""The fallback's formulas and counters.

Expected values: KEDA v2.21 pkg/fallback/fallback_test.go (threshold 3 and 10 replicas at a target of 10 give
100; counts start at 3), and the formulas of fallback.go.
"""

import pytest

from gpuscale.base.objects.hpa import MetricTarget, TargetType
from gpuscale.base.objects.scaled_object import Fallback, FallbackBehavior
from gpuscale.base.quantity import Quantity, parse_quantity
from gpuscale.triggers.keda.fallback import Health, fallback_milli

METRIC = "s0-queue"


def average(text: str) -> MetricTarget:
    return MetricTarget(TargetType.AVERAGE_VALUE, average_value=parse_quantity(text))


def value(text: str) -> MetricTarget:
    return MetricTarget(TargetType.VALUE, value=parse_quantity(text))


@pytest.mark.parametrize(
    ("behavior", "current", "expected"),
    [
        (FallbackBehavior.STATIC, 12, 100),
        (FallbackBehavior.CURRENT, 8, 80),
        (FallbackBehavior.CURRENT_IF_HIGHER, 8, 100),
        (FallbackBehavior.CURRENT_IF_HIGHER, 12, 120),
        (FallbackBehavior.CURRENT_IF_LOWER, 8, 80),
        (FallbackBehavior.CURRENT_IF_LOWER, 12, 100),
    ],
)
def test_an_average_value_is_target_times_replicas(
    behavior: FallbackBehavior, current: int, expected: int
) -> None:
    fallback = Fallback(3, 10, behavior)
    assert fallback_milli(fallback, average("10"), current, 0) == expected * 1000


def test_a_value_is_shared_by_the_ready_pods_and_needs_one() -> None:
    fallback = Fallback(3, 10)
    assert fallback_milli(fallback, value("10"), 4, 4) == 25_000  # 10 x 10 / 4
    assert fallback_milli(fallback, value("10"), 4, 0) is None


def test_the_value_is_cut_to_thousandths() -> None:
    assert fallback_milli(Fallback(3, 3), average("333m"), 1, 1) == 999
    assert (
        fallback_milli(Fallback(3, 1), MetricTarget(TargetType.VALUE, value=Quantity(0)), 1, 3) == 0
    )


def test_the_fallback_applies_from_the_failure_after_the_threshold_on() -> None:
    health = Health(Fallback(3, 10))
    assert [health.failed(METRIC) for _ in range(5)] == [False, False, False, True, True]
    assert health.failures(METRIC) == 5
    assert health.is_falling_back


def test_one_success_begins_the_count_again() -> None:
    health = Health(Fallback(1, 10))
    health.failed(METRIC)
    health.failed(METRIC)
    health.succeeded(METRIC)
    assert (health.failures(METRIC), health.is_falling_back) == (0, False)
    assert not health.failed(METRIC)


def test_a_threshold_of_zero_applies_at_once_and_metrics_count_apart() -> None:
    health = Health(Fallback(0, 1))
    assert health.failed(METRIC)
    assert health.failures("s1-other") == 0


def test_nothing_is_counted_without_a_fallback() -> None:
    health = Health(None)
    assert not health.failed(METRIC)
    assert (health.failures(METRIC), health.is_falling_back) == (0, False)
