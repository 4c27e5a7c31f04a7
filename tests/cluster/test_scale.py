# mypy: disable-error-code="has-type"
"""Hundreds of HPAs at once: Kubernetes' own HPA controller asks for the values of a large cluster's pods.

Whatever an HPA ever shows is the right value for the load of that moment, and everything stays available.
GPUSCALE_SCALE_PODS is the size, with a quarter as many nodes and a tenth as many HPAs; `make test-scale` runs
it with 2 000 pods.
"""

import asyncio
import json
import os
import sys
import time
from contextlib import closing
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path

import pytest

from gpuscale.base.errors import UnavailableError
from gpuscale_testing import ControlPlane, Settings, aggregated_api, wait_until
from gpuscale_testing.metrics_apis import gpuscale_metrics_api

sys.path.insert(0, str(Path(__file__).parent))
from fleet import EVEN, RULES, Fleet, Load, between, current_milli, expected_milli
from fleet_costs import cpu_s, peak_mib, percentile, processes, requests
from fleet_objects import (
    delete_hpas,
    delete_odd_pods,
    make_cluster,
    make_hpas,
    make_pods,
    missing_replicas,
)
from fleet_values import InAgents, InPrometheus
from watching import Watching, ask

pytestmark = [
    pytest.mark.scale,
    pytest.mark.prometheus,
    pytest.mark.xdist_group("cluster"),
    pytest.mark.timeout(600),
]

PODS = int(os.environ.get("GPUSCALE_SCALE_PODS", "500"))
RESULTS = "GPUSCALE_SCALE_RESULTS"
"""Names the file that measurements are written to; see benchmarks/scale.py."""
SYNC_S = 5.0
LIMIT_S = 150.0
PROBE_S = 5.0
"""What a kubelet's probe and the aggregator's look at an API wait for an answer."""
GROUP_VERSIONS = (
    "custom.metrics.k8s.io/v1beta1",
    "custom.metrics.k8s.io/v1beta2",
    "external.metrics.k8s.io/v1beta1",
)
HPA_USER = "system:serviceaccount:kube-system:horizontal-pod-autoscaler"
AUDIT = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [
        {
            "level": "Metadata",
            "users": [HPA_USER],
            "resources": [{"group": "custom.metrics.k8s.io"}, {"group": "external.metrics.k8s.io"}],
        },
        {"level": "None"},
    ],
}
MOST_MIB = {"prometheus": 128, "streams": 257}
"""Of all processes of the server: what an installation requests for a replica, and what docs/sizing.md
says of 500 nodes, which have more GPUs there."""


@pytest.fixture(scope="module")
def audit_log(tmp_path_factory: pytest.TempPathFactory):
    return tmp_path_factory.mktemp("audit") / "audit.log"


@pytest.fixture(scope="module")
def plane(audit_log):
    policy = audit_log.with_name("policy.json")
    policy.write_text(json.dumps(AUDIT))
    flags = {
        "kube-apiserver": [
            "--disable-admission-plugins=ServiceAccount",
            f"--audit-policy-file={policy}",
            f"--audit-log-path={audit_log}",
        ],
        # The nodes have no kubelets that would renew their leases. By default the controller asks 20 times a
        # second at most, which is enough for 300 HPAs every 15 seconds, but not for 200 every 5.
        "kube-controller-manager": [
            "--node-monitor-grace-period=1h",
            "--kube-api-qps=100",
            "--kube-api-burst=200",
        ],
    }
    with ControlPlane(Settings(hpa_sync_period_s=SYNC_S, extra_flags=flags)) as running:
        yield running


@pytest.fixture(scope="module")
def fleet(plane):
    made = Fleet(PODS)
    asyncio.run(make_cluster(plane, made))
    return made


@pytest.fixture(scope="module")
def results():
    found = {"pods": PODS, "sync_s": SYNC_S}
    yield found
    if path := os.environ.get(RESULTS):
        Path(path).write_text(json.dumps(found, indent=1))


@dataclass(frozen=True)
class Seen:
    """What there was to see at one moment."""

    at: float
    values: dict
    """By application: what its HPA shows, in thousandths."""
    faults: tuple = ()


class Watch(Watching):
    """Looks at all HPAs and the ways to the metrics API, and notes what must not be."""

    def __init__(self, plane, api, fleet, load) -> None:
        super().__init__(plane, self._sight, every_s=0.5)
        self._api = api
        self._fleet = fleet
        self.settle(load)

    def begin(self, load) -> None:
        """Let values follow from one load to the next."""
        before, self._load = self._load, load
        self._right = {app: between(app, before, load) for app in self._fleet.apps}

    def settle(self, load) -> None:
        """Take no other value than that of this load for right."""
        self._load = load
        self._right = {app: (expected_milli(app, load),) * 2 for app in self._fleet.apps}

    def wait_for_all(self):
        """Return how long it takes until every HPA shows the value of the load; from then on it has to."""
        started = time.monotonic()
        wanted = {app: expected_milli(app, self._load) for app in self._fleet.apps}

        def look():
            return next((seen for seen in self.since(started) if seen.values == wanted), None)

        try:
            seen = wait_until(look, "all HPAs to show the values of the load", LIMIT_S)
        except UnavailableError:
            seen = self.seen[-1]
            wrong = {
                app: seen.values.get(app) for app in wanted if seen.values.get(app) != wanted[app]
            }
            pytest.fail(
                f"{len(wrong)} HPAs differ, such as {list(wrong.items())[:5]}; {seen.faults}"
            )
        self.settle(self._load)
        return seen.at - started

    def _sight(self, connection):
        at, faults, values = time.monotonic(), [], {}
        try:
            self._look_at_hpas(connection, values, faults)
            self._look_at_ways(connection, faults)
            for path in ("/livez", "/readyz"):
                with closing(self._api.connect(timeout_s=PROBE_S)) as direct:
                    code, answer = ask(direct, path)
                    if code != 200:
                        faults.append(f"{code} for {path}: {answer}")
        except (OSError, HTTPException, KeyError) as error:
            faults.append(f"{type(error).__name__}: {error}")
        return Seen(at, values, tuple(faults))

    def _look_at_hpas(self, connection, values, faults) -> None:
        _, found = ask(connection, "/apis/autoscaling/v2/horizontalpodautoscalers")
        for item in found["items"]:
            app = int(item["metadata"]["name"].removeprefix("app-"))
            conditions = {
                each["type"]: each for each in item.get("status", {}).get("conditions", ())
            }
            active = conditions.get("ScalingActive")
            if active is None:
                continue
            if active["status"] != "True":
                faults.append(f"app {app}: {active['reason']} {active['message']}")
                continue
            milli = current_milli(item)
            low, high = self._right[app]
            if milli is None or not low <= milli <= high:
                faults.append(f"app {app}: found {milli}, expected {low} to {high}")
            values[app] = milli

    def _look_at_ways(self, connection, faults) -> None:
        _, services = ask(connection, "/apis/apiregistration.k8s.io/v1/apiservices")
        for item in services["items"]:
            name = item["metadata"]["name"]
            conditions = {c["type"]: c for c in item.get("status", {}).get("conditions", ())}
            if "metrics.k8s.io" in name and conditions["Available"]["status"] != "True":
                faults.append(f"{name}: {conditions['Available']['message']}")
        code, found = ask(connection, "/apis/custom.metrics.k8s.io/v1beta2")
        names = {each["name"] for each in found.get("resources", ())}
        if "pods/gpu_util" not in names:
            faults.append(f"{code} for discovery: {sorted(names)}")


@pytest.mark.parametrize("source", [InPrometheus, InAgents], ids=lambda each: each.name)
def test_every_hpa_shows_the_right_value_all_the_time(
    plane, fleet, audit_log, results, tmp_path: Path, source
) -> None:
    rules = tmp_path / "rules.yaml"
    rules.write_text(RULES)
    first = Load(base=10)
    asyncio.run(make_pods(plane, fleet, missing_replicas(plane)))
    values = source(fleet, first, tmp_path)
    with (
        values.running(),
        gpuscale_metrics_api(plane, values.url, rules, tmp_path, more=values.flags) as api,
        aggregated_api(plane, GROUP_VERSIONS, api.port, timeout_s=LIMIT_S),
    ):
        if source is InAgents:
            wait_until(
                lambda: are_followed(plane, api, fleet), "all agents to be followed", LIMIT_S
            )
        logged = audit_log.stat().st_size if audit_log.exists() else 0
        pids = processes(plane, api, values)
        before, began = {name: cpu_s(pid) for name, pid in pids.items()}, time.monotonic()
        try:
            with Watch(plane, api, fleet, first) as watch:
                asyncio.run(make_hpas(plane, fleet))
                took = {"first values": watch.wait_for_all()}

                watch.begin(higher := Load(base=40))
                values.show(higher)
                took["changed load"] = watch.wait_for_all()

                watch.begin(halved := Load(base=40, replicas=EVEN))
                asyncio.run(delete_odd_pods(plane, fleet))
                values.show(halved)
                took["half of the pods"] = watch.wait_for_all()
                time.sleep(2 * SYNC_S)  # Nothing that comes later is wrong either.
            seconds = time.monotonic() - began
            cpu = {name: (cpu_s(pid) - before[name]) / seconds for name, pid in pids.items()}
            asked = requests(audit_log, logged)
            events = plane.get("events", "-A", "--field-selector=type=Warning")["items"]
        finally:
            delete_hpas(plane)
        peak = {name: peak_mib(pid) for name, pid in pids.items()}
    results[values.name] = {
        "seconds_until": took,
        "cores": cpu,
        "peak_mib": peak,
        "requests": len(asked),
        "requests_per_s": len(asked) / seconds,
        "request_p50_ms": percentile(asked, 0.5),
        "request_p99_ms": percentile(asked, 0.99),
    }

    faults = [(seen.at, fault) for seen in watch.seen for fault in seen.faults]
    assert not faults, f"{len(faults)} faults: {faults[:10]}"
    failed = {each["message"] for each in events if each["reason"].startswith("Failed")}
    # The controller learns of new kinds every half minute, whatever serves the metrics.
    assert failed <= {'no matches for kind "Fleet" in group "gpuscale.dev"'}
    # Each HPA was looked at for each of the three loads.
    assert len(asked) >= 3 * len(fleet.apps)
    assert {code for code, _ in asked} == {200}
    assert peak["metrics-api"] <= MOST_MIB[values.name]


def are_followed(plane, api, fleet):
    admin = plane.client_certificate("admin", ["system:masters"])
    with closing(api.connect(admin)) as connection:
        connection.request("GET", "/readyz?verbose")
        text = connection.getresponse().read().decode()
    return f"{fleet.nodes} of {fleet.nodes} targets answer" in text
