"""When a scale-out was decided and when its pods were ready, as times are reported one by one."""

import pytest

from gpuscale.base.errors import ConfigError
from gpuscale.lab.sim.document.document import summary
from gpuscale.lab.sim.scale_outs import ScaleOuts
from gpuscale.lab.sim.scenario.loading import load_setup
from gpuscale.lab.sim.world import World

WEB = "default/web"


def test_a_step_is_followed_to_its_decision_and_to_its_ready_pods() -> None:
    seen = ScaleOuts()
    seen.load_changed(WEB, 0, 5, 60_000)
    seen.resized(WEB, 1, 2, 75_000)
    assert seen.pods_ready(WEB, 1, 80_000) == ()
    assert seen.awaited() == (WEB,)
    assert seen.pods_ready(WEB, 2, 240_000) == tuple(seen.all)
    assert seen.awaited() == ()
    (rise,) = seen.rises
    assert (rise.to_decision_ms, rise.to_ready_ms) == (15_000, 180_000)


def test_several_scale_outs_of_one_step_are_ready_with_the_last() -> None:
    seen = ScaleOuts()
    seen.load_changed(WEB, 0, 5, 0)
    seen.resized(WEB, 1, 2, 15_000)
    seen.pods_ready(WEB, 2, 40_000)
    seen.resized(WEB, 2, 4, 45_000)
    (rise,) = seen.rises
    assert (rise.to_decision_ms, rise.to_ready_ms) == (15_000, None)
    seen.pods_ready(WEB, 3, 70_000)
    assert rise.to_ready_ms is None
    seen.pods_ready(WEB, 4, 90_000)
    assert rise.to_ready_ms == 90_000
    assert [each.ready_ms - each.decided_ms for each in seen.all] == [25_000, 45_000]


def test_pods_that_come_after_a_spike_are_what_it_led_to() -> None:
    seen = ScaleOuts()
    seen.load_changed(WEB, 1, 9, 0)
    seen.load_changed(WEB, 9, 1, 10_000)
    seen.resized(WEB, 1, 3, 15_000)
    seen.pods_ready(WEB, 3, 200_000)
    assert [rise.to_ready_ms for rise in seen.rises] == [200_000]


def test_a_scale_in_ends_the_waiting_for_what_it_takes_back() -> None:
    seen = ScaleOuts()
    seen.load_changed(WEB, 0, 5, 0)
    seen.resized(WEB, 1, 2, 15_000)
    seen.resized(WEB, 2, 5, 30_000)
    seen.resized(WEB, 5, 3, 60_000)
    seen.pods_ready(WEB, 3, 90_000)
    assert [each.ready_ms for each in seen.all] == [90_000, None]
    assert seen.rises[0].to_ready_ms is None
    seen.resized(WEB, 3, 4, 300_000)
    assert seen.all[-1].load_ms is None, "a scale-in ended the rise; this is another story"


def test_a_rise_starts_its_own_account() -> None:
    seen = ScaleOuts()
    seen.load_changed(WEB, 0, 5, 0)
    seen.resized(WEB, 1, 2, 15_000)
    seen.load_changed(WEB, 5, 9, 20_000)
    seen.resized(WEB, 2, 3, 30_000)
    seen.pods_ready(WEB, 3, 50_000)
    assert [rise.to_decision_ms for rise in seen.rises] == [15_000, 10_000]
    assert [rise.to_ready_ms for rise in seen.rises] == [50_000, 30_000]


def test_a_smooth_load_has_decisions_and_no_rise() -> None:
    seen = ScaleOuts()
    seen.resized(WEB, 1, 2, 100_000)
    seen.pods_ready(WEB, 2, 130_000)
    assert (len(seen.rises), seen.all[0].load_ms) == (0, None)
    assert seen.all[0].ready_ms == 130_000


# ---- the summary's figures

MANIFESTS = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers:
      - {name: main, image: "web:1", resources: {limits: {nvidia.com/gpu: 1}}}
"""
SCENARIO = """
apiVersion: gpuscale.dev/v1alpha1
kind: Scenario
metadata: {name: s}
spec:
  duration: 20m
  manifests: [{file: web.yaml}]
  nodePools:
  - {name: a, gpuModel: Tesla T4, gpus: 1, min: 1, max: 3, provisioningTime: 60s, PRICE_A}
  - {name: b, gpuModel: NVIDIA L4, gpus: 1, min: 1, max: 1, PRICE_B}
  workloads:
  - deployment: web
    imagePull: 20s
    startup: 10s
    service: {gpuSecondsPerRequest: 0.1}
    load: {shape: constant, rate: 1}
"""


def site(price_a="", price_b=""):
    text = SCENARIO.replace(", PRICE_A", price_a).replace(", PRICE_B", price_b)
    return World(load_setup(text, "s.yaml", {"web.yaml": MANIFESTS}.__getitem__), 0)


def test_the_summary_has_the_mean_times_and_the_events_say_when_pods_were_ready() -> None:
    world = site()
    world.engine.run_until(100_000)
    world.set_rate(WEB, 9.0)
    world.engine.run_until(130_000)
    world.set_replicas(WEB, 2)  # pool b has a free GPU: 20 s of image and 10 s of start
    world.engine.run_until(200_000)
    # The load of 1 request/s from second 0 on is a rise too; no scale-out came of it.
    assert summary(world)["scaleOuts"] == {
        "count": 1,
        "ready": 1,
        "loadRises": 2,
        "answeredRises": 1,
        "loadToReadyTimeP50": 60.0,
        "loadToReadyTimeP95": 60.0,
        "loadToReadyTimeMax": 60.0,
        "meanLoadToDecisionTime": 30.0,
        "meanLoadToReadyTime": 60.0,
        "meanDecisionToReadyTime": 30.0,
    }
    (ready,) = [event for event in world.cluster.events.since(0) if event.kind == "ReplicasReady"]
    assert (ready.time_ms, ready.object) == (160_000, "Deployment/web")
    assert ready.reason == "2 of 2 pods are ready, 30s after the decision, 1m after the load rose"


def test_ready_capacity_has_percentiles_over_all_rises_that_a_scale_out_followed() -> None:
    world = site()
    # 20 rises whose pods came after 1 to 20 s: half are within the 10th, 95 % within the 19th.
    for second in (*range(1, 21), None):
        at_ms = world.engine.now_ms
        world.scale_outs.load_changed(WEB, 1.0, 2.0, at_ms)
        world.scale_outs.resized(WEB, 1, 2, at_ms)
        if second == 20:
            before = summary(world)["scaleOuts"]
        if second is not None:
            world.scale_outs.pods_ready(WEB, 2, at_ms + second * 1000)
            world.scale_outs.resized(WEB, 2, 1, at_ms + second * 1000)
        if second == 20:
            told = summary(world)["scaleOuts"]
    times = [told[f"loadToReadyTime{which}"] for which in ("P50", "P95", "Max")]
    assert times == [10.0, 19.0, 20.0]
    assert told["answeredRises"] == 20
    # While the 20th is on its way, the longest is not known.
    assert (before["loadToReadyTimeP95"], before["loadToReadyTimeMax"]) == (19.0, None)
    # Of 21, with one that never came: ceil(0.5 x 21) = 11 and ceil(0.95 x 21) = 20.
    last = summary(world)["scaleOuts"]
    times = [last[f"loadToReadyTime{which}"] for which in ("P50", "P95", "Max")]
    assert times == [11.0, 20.0, None]


@pytest.mark.parametrize(
    ("price_a", "price_b", "cost", "without"),
    [
        # Half an hour at 3 and at 1 an hour.
        (", pricePerHour: 3", ", pricePerHour: 1", 2.0, []),
        (", pricePerHour: 0", ", pricePerHour: 0", 0.0, []),
        (", pricePerHour: 3", "", None, ["b"]),
        ("", "", None, ["a", "b"]),
    ],
)
def test_a_cost_without_a_price_is_absent(
    price_a: str, price_b: str, cost: float | None, without
) -> None:
    world = site(price_a, price_b)
    world.engine.run_until(1_800_000)
    told = summary(world)
    assert (told["cost"], told["currency"], told["poolsWithoutPrice"]) == (cost, "USD", without)


def test_costs_have_one_currency() -> None:
    world = site(", pricePerHour: 3, currency: EUR", ", pricePerHour: 1, currency: EUR")
    assert summary(world)["currency"] == "EUR"
    with pytest.raises(ConfigError, match=r"nodePools\[1\].currency: found 'USD', expected EUR"):
        site(", pricePerHour: 3, currency: EUR", ", pricePerHour: 1")


def test_a_pool_without_a_price_has_no_say_in_the_currency() -> None:
    assert summary(site("", ", pricePerHour: 1, currency: CNY"))["currency"] == "CNY"
