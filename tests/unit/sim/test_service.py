import pytest

from gpuscale.base.loads import StepsLoad
from gpuscale.lab.sim.load.costs import ServiceModel
from gpuscale.lab.sim.load.service import SimulatedService


def service(rate, gpu_seconds=0.05, other=0.0, concurrency=100, gpus=1, limit=1e9):
    model = ServiceModel(gpu_seconds, other, concurrency, limit, gpus)
    return SimulatedService(model, StepsLoad(((0.0, rate),)), start_ms=0)


def run(item, seconds, pods) -> None:
    for second in range(1, seconds + 1):
        item.advance(second * 1000, pods)


def test_light_load_keeps_gpus_busy_by_rate_times_cost() -> None:
    item = service(rate=4.6)
    run(item, 60, pods=1)
    assert item.busy_ratio(50_000, 60_000) == pytest.approx(0.23)  # 4.6/s x 0.05 s
    assert item.waiting == 0.0


def test_pods_share_the_work_evenly() -> None:
    item = service(rate=4.6)
    run(item, 60, pods=2)
    assert item.busy_ratio(50_000, 60_000) == pytest.approx(0.115)


def test_overload_saturates_and_queues() -> None:
    item = service(rate=30.0)  # one pod can do 1 / 0.05 = 20 per second
    run(item, 10, pods=1)
    assert item.busy_ratio(0, 10_000) == pytest.approx(1.0)
    assert item.waiting == pytest.approx((30 - 20) * 10)


def test_a_queue_is_worked_off_before_gpus_rest() -> None:
    item = service(rate=0.0)
    item.waiting = 100.0
    run(item, 4, pods=1)  # 20 per second
    assert item.waiting == pytest.approx(20.0)
    assert item.busy_ratio(3_000, 4_000) == pytest.approx(1.0)


def test_slots_can_be_the_limit_instead_of_gpus() -> None:
    # 2 slots, each held 0.05 + 0.45 = 0.5 s: 4 requests/s, which keep the GPU 4 x 0.05 = 20 % busy
    item = service(rate=100.0, other=0.45, concurrency=2)
    run(item, 5, pods=1)
    assert item.model.largest_rate == pytest.approx(4.0)
    assert item.busy_ratio(0, 5_000) == pytest.approx(0.2)


def test_work_spreads_over_the_gpus_of_a_pod() -> None:
    item = service(rate=4.0, gpu_seconds=0.5, gpus=4)
    run(item, 5, pods=1)
    assert item.busy_ratio(0, 5_000) == pytest.approx(4.0 * 0.5 / 4)


def test_without_pods_requests_wait_and_nothing_is_busy() -> None:
    item = service(rate=5.0)
    run(item, 3, pods=0)
    assert item.waiting == pytest.approx(15.0)
    assert item.busy_ratio(0, 3_000) == 0.0


def test_a_full_queue_turns_requests_away() -> None:
    item = service(rate=5.0, limit=12.0)
    run(item, 3, pods=0)
    assert (item.waiting, item.rejected) == (pytest.approx(12.0), pytest.approx(3.0))


def test_a_rate_set_by_hand_overrides_the_load() -> None:
    item = service(rate=4.6)
    item.manual_rate = 10.0
    run(item, 10, pods=1)
    assert item.arrived == pytest.approx(100.0)
    assert item.planned_rate(10_000) == 4.6


def test_a_window_between_steps_is_in_a_straight_line() -> None:
    item = service(rate=0.0)
    item.advance(1_000, 1)
    item.manual_rate = 10.0  # 50 % from second 1 on
    item.advance(2_000, 1)
    assert item.busy_ratio(500, 1_500) == pytest.approx(0.25)
