"""Parts of a loop with KEDA crash at random while the demand goes up and down: no scale-in is wrong.

The same Deployment under KEDA's own Prometheus trigger goes along, for comparison.
"""

import json
import os
import random
import sys
import threading
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path

import pytest

from gpuscale_testing import missing, wait_until
from gpuscale_testing.addresses import free_ports
from gpuscale_testing.programs.toolset import KEDA

sys.path.insert(0, str(Path(__file__).parent))
from demand_judge import LATENCY_S, Judge
from keda_objects import apply, deployment, prometheus_trigger, scaled_job, scaled_object
from keda_world import KEDA_PROGRAMS, SCALERS, TARGET, KedaWorld

KILLS = int(os.environ.get("GPUSCALE_KEDA_KILLS", "12"))
RESULTS = "GPUSCALE_KEDA_RESULTS"
"""Names the file that results are written to."""
SEED = int(os.environ.get("GPUSCALE_KEDA_SEED", "1"))
PARTS = (*SCALERS, "source", "prometheus", *KEDA_PROGRAMS)
MOST = 5
DOWN_S, BETWEEN_S = 6.0, 3.0
"""At most."""

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.prometheus,
    pytest.mark.xdist_group("cluster"),
    pytest.mark.timeout(300 + 15 * KILLS),
]


class Sights:
    """Looks at the source again and again while the `with` lasts."""

    def __init__(self, world) -> None:
        self.seen = []
        self._world = world
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="sights")

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_) -> None:
        self._stop.set()
        self._thread.join(30)

    def _run(self) -> None:
        while not self._stop.wait(0.25):
            is_there = self._world.is_fresh()
            self.seen.append((time.monotonic(), is_there))


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    if reason := missing(KEDA):
        pytest.skip(reason)
    with KedaWorld(tmp_path_factory.mktemp("world")) as running:
        yield running


def test_a_scaled_job_on_the_scaler_makes_a_job_for_each_item(world) -> None:
    put_jobs(world, 0)
    keys = {"query": "jobs_waiting", "target": "1"}
    apply(world.plane, scaled_job("batch", world.trigger(keys)))
    world.plane.wait("scaledjob/batch", "condition=Ready", timeout_s=60)
    put_jobs(world, 3)
    wait_until(lambda: len(jobs(world)) == 3, "three Jobs", 60)
    put_jobs(world, 0)
    world.plane.kubectl("delete", "scaledjob", "batch")
    wait_until(lambda: not jobs(world), "the Jobs to be gone")


def test_a_scaler_with_a_certificate_that_keda_trusts_wakes_a_workload(world) -> None:
    pair = world.plane.serving_certificate("127.0.0.1")
    certificate = (f"--tls-cert-file={pair.certificate}", f"--tls-private-key-file={pair.key}")
    (port,) = free_ports(1)
    keys = {"query": "queue_length", "target": "10", "enableTLS": "true"}
    trigger = world.push_trigger({**keys, "scalerAddress": f"127.0.0.1:{port}"})
    with ExitStack() as stack:
        world.start_scaler(stack, "scaler with TLS", "127.0.0.1", port, *certificate)
        apply(world.plane, deployment("trusted"), scaled_object("trusted", trigger))
        world.plane.wait("scaledobject/trusted", "condition=Ready", timeout_s=60)
        world.need(1)
        world.watch.await_count("trusted", 1)
        world.need(0)
        world.watch.await_count("trusted", 0)
        world.plane.kubectl("delete", "scaledobject,deployment", "trusted")


def put_jobs(world, count) -> None:
    world.database.write([({"__name__": "jobs_waiting"}, round(time.time() * 1000), float(count))])


def jobs(world):
    return world.plane.get("jobs", "-l", "scaledjob.keda.sh/name=batch")["items"]


def test_no_crash_scales_in_or_to_zero_what_is_needed(world) -> None:
    compared = prometheus_trigger(world.prometheus_url, "load_total", TARGET)
    apply(world.plane, deployment("compared"), scaled_object("compared", compared, most=MOST))
    world.apply_scaled("scaled", most=MOST)
    for name in ("compared", "scaled"):
        world.plane.wait(f"scaledobject/{name}", "condition=Ready", timeout_s=60)
    with Sights(world) as sights:
        crashes = let_crash(world, random.Random(SEED))
        for part in PARTS:
            world.restart(part)
        for pods in (3, 1, 0):
            world.need(pods)
            world.watch.await_count("scaled", pods, timeout_s=90)
    judge = Judge(world.needs, sights.seen)
    found = {name: judge.scale_ins(world.watch.of(name)) for name in ("scaled", "compared")}
    report(world, crashes, found)
    assert [each for each in found["scaled"] if each.is_wrong] == []
    assert any(each.after == 0 for each in found["scaled"])


def let_crash(world, rng):
    """Return which parts crashed, in order."""
    crashes = []
    while len(crashes) < KILLS:
        if rng.random() < 0.3:
            world.need(
                rng.choice([pods for pods in range(MOST + 1) if pods != world.needs[-1].pods])
            )
        parts = rng.sample(PARTS, 2 if rng.random() < 0.25 else 1)
        for part in parts:
            world.kill(part)
            crashes.append(part)
        time.sleep(rng.uniform(0, DOWN_S))
        for part in parts:
            world.restart(part)
        time.sleep(rng.uniform(0.3, BETWEEN_S))
    return crashes


def report(world, crashes, found) -> None:
    if not (path := os.environ.get(RESULTS)):
        return
    began = world.needs[0].at
    document = {
        "seed": SEED,
        "crashes": len(crashes),
        "crashes_by_part": dict(sorted(Counter(crashes).items())),
        "changes_of_demand": len(world.needs) - 1,
        "seconds": round(time.monotonic() - began, 1),
        "latency_s": LATENCY_S,
        **{name: counts(world.watch.of(name), found[name]) for name in found},
    }
    Path(path).write_text(json.dumps(document, indent=2) + "\n")


def counts(asked, scale_ins):
    wrong = [each for each in scale_ins if each.is_wrong]
    return {
        "changes_of_replicas": len(asked) - 1,
        "scale_ins": len(scale_ins),
        "zeroes": sum(each.after == 0 for each in scale_ins),
        "wrong_scale_ins": len(wrong),
        "wrong_zeroes": sum(each.after == 0 for each in wrong),
        "scale_ins_of_a_demand_that_rose_unseen": sum(each.is_blind for each in scale_ins),
    }
