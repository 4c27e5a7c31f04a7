"""The books of a shadow: its own windows and count, the real one's values; expected numbers by arithmetic."""

import math

import pytest

from gpuscale.hpa.decisions import DecisionRequest
from gpuscale.ops.dashboard.what_if import changed, read_change
from gpuscale.ops.money.prices import HourPrice
from gpuscale.ops.shadow import Shadow, shadow_document, shadow_lines, step_lines
from seen_hpa import seen

SYNC_MS = 15_000
TOTAL = "{type: External, external: {metric: {name: queue}, target: {type: AverageValue, averageValue: 20}}}"


def total(replicas: int, amount: int) -> DecisionRequest:
    """Return what an HPA sees of a queue, with 20 for each replica."""
    return seen(replicas, "", TOTAL, f"{{samples: ['{amount}']}}")


def with_change(request: DecisionRequest, **change: str) -> DecisionRequest:
    return changed(request, read_change(change), 0)


def run(*syncs: tuple[DecisionRequest, DecisionRequest]) -> Shadow:
    shadow = Shadow(longest_ms=3 * SYNC_MS)
    for number, (real, other) in enumerate(syncs):
        shadow.sync(number * SYNC_MS, real, other)
    return shadow


def test_the_values_are_of_the_pods_that_run() -> None:
    # Two pods at 40 are 80 in all: 80 / 30 = 2.7, however many the shadow has already.
    request = seen(2, "40")
    shadow = run(*[(request, with_change(request, target="30"))] * 3)
    assert (shadow.real.replicas, shadow.shadow.replicas) == (2, 3)
    (step,) = shadow.steps
    assert (step.real, step.shadow) == ((2, 2), (2, 3))
    assert "Scale from 2 to 3." in step.shadow_why


def test_a_mean_within_the_tolerance_asks_for_the_pods_that_run() -> None:
    # At first 2 x 40 / 20 = 4. Then 21 is within a tenth, for the two pods that it is the mean of.
    high, low = seen(2, "40"), seen(2, "21")
    assert run((high, high), *[(low, low)] * 21).shadow.replicas == 2


def test_a_total_is_shared_by_its_own_replicas() -> None:
    # 84 / 4 = 21 is within a tenth of 20; the real HPA has 5, and 84 / 20 = 4.2 asks for 5.
    shadow = run((total(4, 80), total(4, 80)), (total(5, 84), total(5, 84)))
    assert (shadow.real.replicas, shadow.shadow.replicas) == (5, 4)


def test_it_has_a_stabilization_window_of_its_own() -> None:
    # 80 / 20 = 4 at first, then 1: what was recommended 300 s ago still counts, 315 s ago no more.
    low = total(1, 20)
    syncs = [(total(1, 80), total(1, 80)), *[(low, low)] * 21]
    assert run(*syncs[:21]).shadow.replicas == 4
    shadow = run(*syncs)
    assert shadow.shadow.replicas == 1
    assert [step.shadow for step in shadow.steps] == [(1, 4), (4, 1)]
    assert shadow.steps[-1].at_ms == 21 * SYNC_MS


def test_hours_and_what_is_short() -> None:
    # The real one goes from 2 to 4 between two looks, and the shadow is kept at 3: 80 / 20 = 4.
    before, after = total(2, 80), total(4, 80)
    shadow = run(
        (before, with_change(before, max="3")),
        (after, with_change(after, max="3")),
        (after, with_change(after, max="3")),
    )
    assert math.isclose(shadow.real.pod_hours, (3 + 4) * 15 / 3600)
    assert math.isclose(shadow.shadow.pod_hours, (3 + 3) * 15 / 3600)
    assert math.isclose(shadow.real.short_pod_hours, (2 / 2) * 15 / 3600)
    assert math.isclose(shadow.shadow.short_pod_hours, 2 * 15 / 3600)
    assert (shadow.real.short_ms, shadow.shadow.short_ms) == (SYNC_MS, 2 * SYNC_MS)
    # At the begin it had more, at the end fewer: only the second span is a difference.
    assert (shadow.more_ms, shadow.fewer_ms) == (0, SYNC_MS)
    assert shadow.steps[-1].real_why


def test_the_same_hpa_differs_in_nothing() -> None:
    request = seen(4, "20")
    shadow = run(*[(request, request)] * 5)
    assert not shadow.steps
    assert shadow.real == shadow.shadow
    assert (shadow.more_ms, shadow.fewer_ms, shadow.seen_ms) == (0, 0, 4 * SYNC_MS)


def test_a_gap_counts_for_nothing() -> None:
    request = total(4, 80)
    shadow = Shadow(longest_ms=3 * SYNC_MS)
    shadow.sync(0, request, request)
    shadow.fault("the API server can't be reached")
    shadow.sync(10 * SYNC_MS, request, request)
    assert (shadow.seen_ms, shadow.real.pod_hours) == (0, 0)
    told = "\n".join(shadow_lines(shadow, 1, "no price"))
    assert "Not seen, and not counted: 2 min 30 s." in told
    assert "1 x the API server can't be reached" in told


def test_without_a_metric_it_stays_and_says_why() -> None:
    high, gone = total(2, 80), seen(2, "", TOTAL, "{error: the server is away}")
    shadow = run((high, high), (gone, gone))
    assert shadow.shadow.replicas == 4
    ((reason, times),) = shadow.faults.items()
    assert "the server is away" in reason
    assert times == 1


def test_it_is_told() -> None:
    before, after = total(2, 80), total(4, 80)
    shadow = run(
        (before, with_change(before, target="10")), (after, with_change(after, target="10"))
    )
    price = HourPrice(3.5, "USD", "p5.48xlarge")
    document = shadow_document(shadow, 2, price)
    real, other = document["real"], document["shadow"]
    assert isinstance(real, dict)
    assert isinstance(other, dict)
    # A step goes to 2 x 2 or 4 at most: 4 pods, where 80 / 10 = 8 are asked for.
    assert math.isclose(other["gpuHours"], 2 * 4 * 15 / 3600)
    assert math.isclose(other["money"], 3.5 * 2 * 4 * 15 / 3600)
    assert math.isclose(real["gpuHours"], 2 * 3 * 15 / 3600)
    assert document["gpusPerPod"] == 2
    told = "\n".join(line for step in shadow.steps for line in step_lines(step))
    assert "00:00:00  real 2, shadow 2 -> 4" in told
    assert "00:00:15  real 2 -> 4, shadow 4 -> 8" in told
    assert "Price: 3.5 USD for a GPU-hour; p5.48xlarge." in "\n".join(
        shadow_lines(shadow, 2, price)
    )


@pytest.mark.parametrize("gpus", [None, 2])
def test_what_is_not_known_is_no_number(gpus: int | None) -> None:
    request = total(4, 80)
    document = shadow_document(run((request, request), (request, request)), gpus, "no label")
    real = document["real"]
    assert isinstance(real, dict)
    assert real["money"] is None
    assert (real["gpuHours"] is None) == (gpus is None)
    assert (document["gpuHourPrice"], document["priceSource"]) == (None, "no label")
