"""The hops of scale-outs, against the times that the scenario itself names."""

from gpuscale.lab.local.lags import lags
from gpuscale.lab.scenarios import find_setup
from gpuscale.lab.sim.autoscaler import HpaController
from gpuscale.lab.sim.pipeline import VirtualPipeline
from gpuscale.lab.sim.scale_outs import PodPath, ScaleOut, ScaleOuts
from gpuscale.lab.sim.world import World


def after(scenario: str, minutes: int) -> World:
    world = World(find_setup(scenario), 0)
    VirtualPipeline(world, HpaController(world))
    world.engine.run_until(minutes * 60_000)
    return world


def test_the_hops_of_a_scale_out_are_the_times_of_its_events() -> None:
    world = after("ack-bert", 9)
    latest = lags(world)["latest"]
    assert (latest["workload"], latest["from"], latest["to"]) == ("bert-intent-detection", 1, 2)
    at_s = {event.kind: event.time_ms / 1000 for event in world.cluster.events.since(0)}
    ends = {name: latest["at"] + end for name, _, end in latest["hops"]}
    assert latest["at"] == at_s["LoadChanged"] == 60
    told = {
        "HPA sync": "SuccessfulRescale",
        "pod created": "SuccessfulCreate",
        "node asked for": "TriggeredScaleUp",
        "node ready": "NodeReady",
        "scheduled": "Scheduled",
        "container started": "Started",
        "all ready": "ReplicasReady",
    }
    assert {name: ends[name] for name in told} == {name: at_s[kind] for name, kind in told.items()}
    starts = [start for _, start, _ in latest["hops"]]
    assert starts == [0, *(end for _, _, end in latest["hops"][:-1])]  # without a gap between


def test_without_a_scale_out_there_is_nothing_to_show() -> None:
    assert lags(after("ack-bert", 1)) == {"latest": None, "spread": []}


def scale_out(took_s: int, at_s: int) -> ScaleOut:
    at_ms = at_s * 1000
    path = PodPath(at_ms, None, None, at_ms, at_ms)
    return ScaleOut(1, 2, at_ms, None, at_ms + took_s * 1000, "default/web", path=path)


def test_spread_is_by_nearest_rank_over_all_that_had_the_hop() -> None:
    world = World(find_setup("ack-bert"), 0)
    world.scale_outs = ScaleOuts()
    world.scale_outs.all.extend(scale_out(took_s, 100 * took_s) for took_s in range(1, 21))
    spread = {str(name): rest for name, *rest in lags(world)["spread"]}
    # of 1 to 20 s: the 10th and the 19th
    assert spread["all ready"] == spread["in all"] == [20, 10, 19]
    assert "node ready" not in spread


def test_hops_are_in_their_order_whichever_came_first() -> None:
    world = World(find_setup("ack-bert"), 0)
    world.scale_outs = ScaleOuts()
    later = scale_out(60, 900)
    later.path = PodPath(900_000, 910_000, 950_000, 950_000, 955_000)
    world.scale_outs.all.extend([scale_out(20, 100), later])
    names = [name for name, *_ in lags(world)["spread"]]
    assert names == [
        *("pod created", "node asked for", "node ready", "scheduled", "container started"),
        *("all ready", "in all"),
    ]


def test_a_second_scale_out_of_a_rise_begins_with_its_reading() -> None:
    seen = ScaleOuts()
    seen.load_changed("default/web", 0, 9, 0)
    for size, now_ms in ((2, 15_000), (4, 45_000)):
        seen.seen_ms, seen.scraped_ms = now_ms - 8_000, now_ms - 5_000
        seen.resized("default/web", size - 1, size, now_ms)
    for each in seen.pods_ready("default/web", 4, 60_000):
        each.path = PodPath(each.decided_ms, None, None, None, None)
    first, second = seen.all
    assert first.hops()[:3] == [
        ("reading", 0, 7_000),
        ("scrape", 7_000, 10_000),
        ("HPA sync", 10_000, 15_000),
    ]
    assert second.hops()[:2] == [("scrape", 37_000, 40_000), ("HPA sync", 40_000, 45_000)]


def test_what_was_there_before_is_no_hop() -> None:
    one = scale_out(30, 100)
    one.seen_ms, one.scraped_ms = 95_000, 90_000  # scraped before that reading
    assert one.hops()[0] == ("HPA sync", 95_000, 100_000)
