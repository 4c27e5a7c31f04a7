"""What passing a request on costs: prometheus-adapter asked directly, and behind gpuscale's metrics API.

    python benchmarks/bench_federation.py                # about three minutes
    python benchmarks/bench_federation.py --seconds 60   # of a round

Both are asked as the API server asks for an HPA controller with 1 000 HPAs: 66 requests a second over TLS,
each authenticated and authorised, by turns, so that other work on the machine meets both. The member checks
gpuscale's token and right on each passed-on request, as it would in a cluster. A request's time counts
from when it was due. Needs the programs of `make cluster-tools`, `prometheus` and Go, and says so where they
are missing. The result goes to benchmarks/results/federation.json.
"""

import argparse
import asyncio
import sys
import tempfile
from pathlib import Path

import harness
from bench_metrics_api import (
    RELIST,
    RULES,
    Round,
    ask_until,
    built_load,
    compile_ahead,
    hpa_paths,
    make_pods,
    plane_settings,
    prometheus_of,
    run,
    samples,
    unusable,
)
from gpuscale_testing import ControlPlane
from gpuscale_testing.metrics_apis import gpuscale_metrics_api, prometheus_adapter

RATE, PODS, TURNS = 66, 1_000, 3
WARM_S = 5.0
OWN_RULES = "rules: [{seriesQuery: nothing_of_ours, metricsQuery: <<.Series>>}]\n"
ACCOUNT = """
apiVersion: v1
kind: ServiceAccount
metadata: {name: front}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: front}
rules: [{apiGroups: [custom.metrics.k8s.io], resources: ["*"], verbs: [get, list]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: front}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: front}
subjects: [{kind: ServiceAccount, name: front, namespace: default}]
"""


def main() -> int:
    """Measure, and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=15.0, help="of a round")
    given = parser.parse_args()
    if reason := unusable():
        print(f"bench_federation: left out: {reason}")
        return 0
    compile_ahead()
    rounds: list[list[Round]] = []
    with tempfile.TemporaryDirectory(prefix="gpuscale-bench-") as name:
        folder = Path(name)
        load = [str(built_load(folder))]
        theirs, ours, token = (folder / each for each in ("theirs.yaml", "ours.yaml", "token"))
        theirs.write_text(RULES)
        ours.write_text(OWN_RULES)
        more = [f"--metrics-relist-interval={RELIST}", "--metrics-max-age=10m"]
        with ControlPlane(plane_settings()) as plane, prometheus_of(folder) as prometheus:
            asyncio.run(make_pods(plane, 0, PODS))
            prometheus.write(samples(PODS, {}))
            plane.apply(ACCOUNT)
            token.write_text(plane.kubectl("create", "token", "front"))
            paths = hpa_paths(PODS, RATE)
            with prometheus_adapter(plane, prometheus.url, theirs, folder, more=more) as member:
                target = f"https://127.0.0.1:{member.port},insecure,tokenFile={token}"
                flags = [*more, f"--federate=member={target}"]
                with gpuscale_metrics_api(plane, prometheus.url, ours, folder, more=flags) as front:
                    for _ in range(TURNS):
                        pair = []
                        for api in (member, front):
                            ask_until(api, plane, paths[0])
                            asked = (paths, RATE, WARM_S, given.seconds)
                            pair.append(run(load, api, plane, prometheus, *asked))
                            print(f"{api.name}: {pair[-1]}", file=sys.stderr, flush=True)
                        rounds.append(pair)
    return write(rounds, given.seconds)


def write(rounds: list[list[Round]], seconds: float) -> int:
    """Keep the figures; return the exit code."""
    figures = []
    for place, name in enumerate(("asked directly", "behind gpuscale")):
        for key in ("p50_ms", "p99_ms"):
            values = [pair[place].told[key] for pair in rounds]
            figures.append(harness.figure(f"{name}: {key[:3]}", "ms", values))
    for key in ("p50_ms", "p99_ms"):
        values = [through.told[key] - direct.told[key] for direct, through in rounds]
        figures.append(harness.figure(f"added {key[:3]}", "ms", values))
    cores = [through.cpu_s / through.seconds for _, through in rounds]
    figures.append(harness.figure("gpuscale's CPU", "cores", cores))
    per_request = [1e6 * through.cpu_s / (RATE * through.seconds) for _, through in rounds]
    figures.append(harness.figure("gpuscale's CPU of a request", "us", per_request))
    settings = {"rate": RATE, "pods": PODS, "seconds_of_a_round": seconds, "turns": TURNS}
    return harness.write("federation", figures, settings=settings)


if __name__ == "__main__":
    sys.exit(main())
