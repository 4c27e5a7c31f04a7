# mypy: disable-error-code="arg-type, func-returns-value"
"""Parts of a running loop crash under load, each and two at once: no wrong decision is made, and all comes
back by itself.

The load is constant, so the right count is the one from before. Whatever is served meanwhile is the true
value, or none.
"""

import importlib.util
import json
import os
import re
import shutil
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from gpuscale.base.errors import UnavailableError
from gpuscale_testing import wait_until

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.prometheus,
    pytest.mark.xdist_group("cluster"),
    pytest.mark.timeout(300),
]

RESULTS = "GPUSCALE_FAULT_RESULTS"
"""Names the file that results are written to, for docs/faults.md; see tools/fault_table.py."""
DOWN_S = 3.0
"""How long a part stays away once its absence shows: three looks of the HPA controller."""
LOOKS_AFTER = 3
METRICS_API, AGENT = "metrics API", "agent gpu-a"


def _load(name):
    path = Path(__file__).with_name(f"{name}.py")
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


REAL = _load("real_loop")
LIMIT_S = REAL.LIMIT_S


def is_scaling(seen, *names):
    return [seen.scaling[name][0] == "True" for name in names]


@dataclass(frozen=True)
class Fault:
    parts: tuple[str, ...]
    """They crash together, and come back in the reverse order."""
    shows: object
    """Tells whether something was seen of their absence."""
    keeps_available: bool = False
    """Whether the API has to stay available: its answers become `no data`."""

    @property
    def name(self):
        return " and ".join(self.parts)


def nobody_scales(seen):
    return not any(is_scaling(seen, *REAL.REPLICAS))


def api_server_is_away(seen):
    return seen.fault


FAULTS = [
    Fault((METRICS_API,), nobody_scales),
    Fault((AGENT,), lambda seen: not all(is_scaling(seen, "by-external")), True),
    Fault(("prometheus",), nobody_scales, True),
    Fault(("kube-apiserver",), api_server_is_away),
    Fault(("etcd",), api_server_is_away),
    Fault(("kube-controller-manager",), lambda seen: True, True),
    Fault((METRICS_API, "prometheus"), nobody_scales),
    Fault(("prometheus", AGENT), nobody_scales, True),
    Fault((AGENT, "kube-apiserver"), api_server_is_away),
]


@pytest.fixture(scope="module")
def loop(tmp_path_factory: pytest.TempPathFactory):
    if shutil.which("prometheus") is None:
        missing = "prometheus is not installed; get it with: apt-get install prometheus"
        pytest.fail(missing) if os.environ.get("CI") else pytest.skip(missing)
    with REAL.RealLoop(tmp_path_factory.mktemp("loop")) as running:
        wait_for_good(running, time.monotonic())
        yield running


@pytest.fixture(scope="module")
def results(loop):
    found = {"available_s": loop.available_s, "faults": []}
    yield found
    if path := os.environ.get(RESULTS):
        Path(path).write_text(json.dumps(found, indent=1))


def wait_for_good(loop, since):
    """Return the first moment from `since` on at which everything is as it should be."""

    def look():
        return next((seen for seen in loop.watch.since(since) if seen.is_good), None)

    try:
        return wait_until(look, "everything to be as it should", LIMIT_S)
    except UnavailableError as error:
        raise AssertionError(f"{error}: {loop.watch.seen[-1]}") from error


def true_values(loop):
    """Return the value of each pod, which is its node's."""
    nodes = {
        name: node for (namespace, name), node in loop.place().items() if namespace == "by-pods"
    }
    return {name: str(REAL.BUSY_PERCENT[node]) for name, node in nodes.items()}


def wait_for_looks(loop, count) -> None:
    """Return once the HPA controller was answered so often since the metrics API began."""
    wait_until(lambda: loop.asked_by_hpas() >= count, "more looks of the HPA controller", LIMIT_S)


def test_kubectl_shows_what_the_gpus_do_for_every_kind_of_metric(loop) -> None:
    # Half of each Deployment's GPUs are 41 % busy, and half 43 %: 42 % on average.
    rows = loop.plane.kubectl("get", "hpa", "-A", "--no-headers").splitlines()
    found = {}
    for row in rows:
        namespace, _, reference, targets, *_ = re.split(r"\s{2,}", row)
        found[namespace] = (reference, targets)
    assert found == {
        "by-pods": ("Deployment/by-pods", "42/40"),
        "by-object": ("Deployment/by-object", "42/40"),
        "by-external": ("Deployment/by-external", "42/40 (avg)"),
    }


def test_every_pod_has_its_own_gpus_value_in_both_versions(loop) -> None:
    for version in ("v1beta1", "v1beta2"):
        path = REAL.VALUES.replace("v1beta1", version)
        items = json.loads(loop.plane.kubectl("get", "--raw", path))["items"]
        assert {i["describedObject"]["name"]: i["value"] for i in items} == true_values(loop)
    external = "/apis/external.metrics.k8s.io/v1beta1/namespaces/by-external/gpus_busy"
    (item,) = json.loads(loop.plane.kubectl("get", "--raw", external))["items"]
    # Two pods on each node.
    assert item["value"] == str(2 * 41 + 2 * 43)


def test_the_server_tells_how_late_its_values_come(loop) -> None:
    def hops():
        return {
            dict(labels)["hop"]: seconds
            for (name, labels), seconds in loop.own_metrics().items()
            if name == "hop_lag_seconds" and dict(labels)["metric"] == "gpu_util"
        }

    found = wait_until(lambda: len(hops()) == 4 and hops(), "all hops to be known", LIMIT_S)
    assert found.keys() == {"scrape", "store", "answer", "total"}
    # The agents read every half second; scrapes come every second, and a slow machine may miss some.
    assert 0 <= found["scrape"] < 30
    assert 0 <= found["store"] < 30
    assert found["total"] == pytest.approx(sum(found.values()) - found["total"])


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name.replace(" ", "-"))
def test_a_crash_changes_no_count_and_all_comes_back_by_itself(loop, results, fault) -> None:
    values = true_values(loop)
    before = wait_for_good(loop, time.monotonic())

    killed = time.monotonic()
    for part in fault.parts:
        loop.kill(part)
    wait_until(
        lambda: any(fault.shows(seen) for seen in loop.watch.since(killed)),
        f"the absence of {fault.name} to show",
        LIMIT_S,
    )
    time.sleep(DOWN_S)
    looks = 0 if METRICS_API in fault.parts else loop.asked_by_hpas()
    restarted = time.monotonic()
    for part in reversed(fault.parts):
        loop.restart(part)
    wait_for_good(loop, restarted)
    wait_for_looks(loop, looks + 1)
    back_s = time.monotonic() - restarted
    wait_for_looks(loop, looks + 1 + LOOKS_AFTER)

    seen = loop.watch.since(killed)
    shown = [each for each in seen if not each.fault]
    assert {name: {each.replicas[name] for each in shown} for name in REAL.REPLICAS} == {
        name: {before.replicas[name]} for name in REAL.REPLICAS
    }
    answers = [each.values for each in shown if isinstance(each.values, dict)]
    assert all(answer.items() <= values.items() for answer in answers)
    if fault.keeps_available:
        assert all(each.is_available for each in shown)
    results["faults"].append(
        {
            "part": fault.name,
            "saw": sorted({told for each in shown for told in _told(each)}),
            "unreachable_s": _unreachable_s(seen),
            "stayed_available": all(each.is_available for each in shown),
            "replicas": {
                name: [
                    before.replicas[name][0],
                    sorted({each.replicas[name][0] for each in shown}),
                    seen[-1].replicas[name][0],
                ]
                for name in REAL.REPLICAS
            },
            "down_s": restarted - killed,
            "back_s": back_s,
        }
    )


def _told(seen):
    """Return what the HPAs say that can't scale: namespace, reason and message."""
    return [
        (name, reason, message)
        for name, (status, reason, message) in seen.scaling.items()
        if (status, reason) != REAL.GOOD
    ]


def _unreachable_s(seen):
    at = [each.at for each in seen if each.fault]
    return at[-1] - at[0] if at else 0.0


def test_after_all_of_it_the_loop_scales_to_the_right_count_by_the_old_version_too(loop) -> None:
    loop.plane.kubectl("delete", "apiservice", "v1beta2.custom.metrics.k8s.io")
    wait_until(
        lambda: "custom.metrics.k8s.io/v1beta2" not in loop.plane.kubectl("api-versions"),
        "v1beta2 to be gone",
        LIMIT_S,
    )
    metric = {
        "metric": {"name": "gpu_util"},
        "target": {"type": "AverageValue", "averageValue": "20"},
    }
    patch = json.dumps({"spec": {"metrics": [{"type": "Pods", "pods": metric}]}})
    loop.plane.kubectl("patch", "hpa", "by-pods", "-n", "by-pods", "--type=merge", "-p", patch)

    def replicas():
        loop.place()
        return loop.plane.get("deployment", "by-pods", "-n", "by-pods")["spec"]["replicas"]

    # ceil(4 x 42 / 20) = 9. The five new pods have no value at first and count as idle; then there are nine
    # at 42 %, which asks for ceil(9 x 42 / 20) = 19, and the HPA allows ten.
    seen = set()
    wait_until(lambda: seen.add(replicas()) or 10 in seen, "ten replicas", LIMIT_S)
    assert seen <= {4, 9, 10}
