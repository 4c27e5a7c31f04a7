"""From a bare cluster to a working GPU autoscaler and back to nothing, with the commands that a user types.

All between the load on a GPU and the pod that it brings is the installation's own: its programs run with the
arguments, environments, volumes, accounts, ports and probes that its pods have in the cluster, so that a
wrong word in what is rendered breaks the chain. `running_kubelet` says how, and what is not real: GPUs are a
stand-in for NVML, images are this machine's programs, nothing runs in the pods that are scaled, and nodes
have their GPUs without a device plugin.
"""

import json
import logging
import os
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from http.client import HTTPException
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import yaml

sys.path.insert(0, str(Path(__file__).parent))
import own_network
from all_objects import everything, settled, wait_until_as_before
from bare_cluster import IMAGE, RESULTS, Cluster
from endpoints import endpoint
from loaded_agent import LASTS_S, QUIET_PERCENT
from running_kubelet import GPUSCALE
from terminal import Terminal
from watching import Watching, ask

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.prometheus,
    pytest.mark.xdist_group("cluster"),
    pytest.mark.timeout(900),
]

_log = logging.getLogger(__name__)
MOST = 8
"""Replicas: what there are GPUs for."""
HPA = "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers/vision-api-gpu"
UTILIZATION, POWER = "DCGM_FI_DEV_GPU_UTIL", "gpu_power_watts"
POWER_WATTS = "75"
"""Of every GPU, by the stand-in for NVML."""
VALUES = "/apis/custom.metrics.k8s.io/v1beta2/namespaces/default/pods/*/{}"
# A sum, which would tell of series that are there twice.
POWER_RULE = """
seriesQuery: DCGM_FI_DEV_POWER_USAGE{namespace!="",pod!=""}
resources: {overrides: {namespace: {resource: namespace}, pod: {resource: pod}}}
name: {as: gpu_power_watts}
metricsQuery: sum(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)
"""
HOPS = ["gpu", "value", "hpa", "created", "scheduled", "ready"]


@pytest.mark.parametrize("source", ["streams", "prometheus"])
def test_from_a_bare_cluster_to_a_working_autoscaler_and_back_to_nothing(request, source):
    if not own_network.is_inside():
        if reason := own_network.missing():
            if os.environ.get("CI") and own_network.absent_programs():
                pytest.fail(reason)
            pytest.skip(reason)
        own_network.run_inside(request.node.nodeid, timeout_s=880)
        return
    # A short name: the path of a socket below has 107 characters at most.
    with (
        TemporaryDirectory(prefix="gpuscale-") as folder,
        Cluster(Path(folder)) as cluster,
        Watch(cluster.plane) as watch,
    ):
        walk(cluster, watch, source)
        if RESULTS:
            times = {"source": source, "hops": cluster.hops, **cluster.times}
            with Path(RESULTS).open("a") as results:
                print(json.dumps(times), file=results)


def walk(cluster, watch, source):
    before = comparable(settled(cluster.plane))
    values = cluster.folder / "values.yaml"
    answer_questions(cluster, values, source)
    install(cluster, watch, values)
    scale_under_load(cluster, watch)
    examine(cluster)
    pulse(cluster, watch)
    upgrade(cluster, watch, values)
    examine(cluster)
    uninstall(cluster, before)


def answer_questions(cluster, values, source):
    """Write the values as a person does, who takes what is proposed where it will do."""
    answers = {
        "Workload [deployment/default/vision-api]: ": "",
        "Provider [generic]: ": "",
        "Autoscaler [hpa]: ": "",
        "Signal [gpu-utilization]: ": "",
        "Target of gpu-utilization (%) [60]: ": "",
        "Fewest pods [1]: ": "",
        "Most pods [10]: ": str(MOST),
        "Image, as REPOSITORY:TAG: ": f"{IMAGE}:1",
        "Namespace [gpuscale]: ": "",
        "Source [streams]: ": source,
    }
    with Terminal(GPUSCALE, "init", cluster.admin, f"--output-file={values}") as terminal:
        for question, answer in answers.items():
            terminal.wait_for(question)
            terminal.type(f"{answer}\n")
        code, shown = terminal.end()
    assert code == 0, shown
    assert f"gpuscale install {values} {cluster.admin.replace('=', ' ')}" in shown


def install(cluster, watch, values):
    started = time.monotonic()
    out, cluster.times["install"] = cluster.run("install", values, cluster.admin, "--yes")
    count = len(out) - 1
    assert out[-1] == f"{count} created"
    seen = cluster.wait(
        lambda: next((seen for seen in watch.since(started) if seen.is_good), None),
        "the HPA to have a value",
    )
    cluster.times["first value"] = seen.at - started
    assert cluster.run("install", values, cluster.admin, "--yes")[0] == [f"{count} unchanged"]


def scale_under_load(cluster, watch):
    """One busy pod becomes three at most, however long it is busy: (100 + 40 + 40) / 3 is the target."""
    started = time.monotonic()

    def is_scaled():
        cluster.work_a_little()
        return len(cluster.pods()) > 1

    cluster.wait(is_scaled, "the HPA to scale up")
    cluster.times["scaled up"] = time.monotonic() - started
    settle(cluster, watch)


def settle(cluster, watch):
    """Return once all GPUs of the workload are quiet, and the HPA wants the pods that there are."""
    started = time.monotonic() + 2 * LASTS_S

    def is_settled():
        count, seen = len(cluster.pods()), watch.since(started)[-1:]
        quiet = [str(QUIET_PERCENT)] * count
        return any(each.wanted == count and [*each.values.values()] == quiet for each in seen)

    cluster.wait(is_settled, "the GPUs to be quiet")


def examine(cluster):
    """The doctor finds nothing, by way of the API server and with no more than its role.

    A Prometheus has one scrape, of 15 s, to see an agent that has just been replaced.
    """
    deadline = time.monotonic() + 45
    while True:
        command = "doctor", cluster.reader, "--output=json"
        out, cluster.times["doctor"] = cluster.run(*command, codes=(0, 1))
        findings = json.loads("\n".join(out))["findings"]
        if not findings:
            return
        assert {each["id"] for each in findings} <= {"target-down", "pods-without-value"}, findings
        assert time.monotonic() < deadline, findings
        time.sleep(1)


def pulse(cluster, watch):
    """Every hop moves, and all that stays of it is what the HPA did."""
    before = comparable(everything(cluster.plane)).keys()
    pods = {pod["metadata"]["uid"] for pod in cluster.pods()}
    with endpoint(200, cluster.work) as url:
        flags = (f"--pulse-url={url}", "--pulse-for=180", "--output=json")
        out, cluster.times["pulse"] = cluster.run("doctor", cluster.reader, "--pulse", *flags)
    found = json.loads("\n".join(out))
    assert (found["about"], found["through"]) == ("hpa/default/vision-api-gpu", True)
    cluster.hops = {each["hop"]: each["after_s"] for each in found["hops"]}
    assert [*cluster.hops] == HOPS
    assert None not in cluster.hops.values()
    assert {pod["metadata"]["uid"] for pod in cluster.pods()} > pods
    settle(cluster, watch)
    assert comparable(everything(cluster.plane)).keys() == before


def upgrade(cluster, watch, values):
    """Other values change what they are about and nothing else; all the while the HPA has its value."""
    data = yaml.safe_load(values.read_text())
    served = cluster.plane.get("configmap", "gpuscale-metrics-api", "-n=gpuscale")["data"]
    rules = [*yaml.safe_load(served["rules.yaml"])["rules"], yaml.safe_load(POWER_RULE)]
    data["spec"]["scale"][0] |= {"target": 50, "maxReplicas": MOST + 1}
    data["spec"].setdefault("agent", {})["collectInterval"] = "500ms"
    data["spec"].setdefault("metricsApi", {})["rules"] = yaml.safe_dump({"rules": rules})
    values.write_text(yaml.safe_dump(data))

    started = time.monotonic()
    out, cluster.times["upgrade"] = cluster.run("install", values, cluster.admin, "--yes")
    assert sorted(out[:-1]) == [
        "ConfigMap gpuscale/gpuscale-metrics-api configured",
        "DaemonSet gpuscale/gpuscale-node-agent configured",
        "HorizontalPodAutoscaler default/vision-api-gpu configured",
    ]
    assert all("--collect-interval=500ms" in words for words in cluster.arguments("node-agent"))
    count = len(cluster.pods())
    cluster.wait(lambda: len(watch.seen[-1].power) == count, "the new metric to have values")
    seen = [each for each in watch.since(started) if each.is_answered]
    assert all(each.is_good and each.values for each in seen), seen
    assert {watts for each in seen for watts in each.power.values()} == {POWER_WATTS}
    changed = cluster.plane.get("hpa", "vision-api-gpu")["spec"]
    assert changed["maxReplicas"] == MOST + 1


def uninstall(cluster, before):
    out, cluster.times["uninstall"] = cluster.run("uninstall", cluster.admin, "--yes")
    assert out[-1] == "nothing of installation gpuscale is left"
    cluster.plane.kubectl("scale", "deployment/vision-api", "--replicas=1")
    cluster.wait_replicas(1)
    wait_until_as_before(cluster.plane, before, of=comparable)


def comparable(objects):
    """Return objects with the pods of a workload as their number: which of them stays is its own affair."""
    pods = Counter(
        ("Pod", namespace, name.rpartition("-")[0])
        for kind, namespace, name in objects
        if kind == "Pod"
    )
    return {**{key: spec for key, spec in objects.items() if key[0] != "Pod"}, **pods}


@dataclass(frozen=True)
class Seen:
    """What there was to see at one moment."""

    at: float
    is_answered: bool = False
    active: str = ""
    """Of the HPA's condition ScalingActive."""
    wanted: int = 0
    values: dict = field(default_factory=dict)
    """By pod."""
    power: dict = field(default_factory=dict)

    @property
    def is_good(self):
        return self.active == "True ValidMetricFound"


class Watch(Watching):
    """Looks at the HPA and its values."""

    def __init__(self, plane):
        super().__init__(plane, self._sight)

    def _sight(self, connection):
        at = time.monotonic()
        try:
            _, hpa = ask(connection, HPA)
            values = {name: _values(connection, name) for name in (UTILIZATION, POWER)}
        except (OSError, HTTPException):
            return Seen(at)  # A busy machine: the API server did not answer in time.
        status = hpa["status"] if "spec" in hpa else {}
        active = [
            f"{each['status']} {each['reason']}"
            for each in status.get("conditions", ())
            if each["type"] == "ScalingActive"
        ]
        wanted = status.get("desiredReplicas", 0)
        return Seen(at, True, " ".join(active), wanted, values[UTILIZATION], values[POWER])


def _values(connection, metric):
    _, answer = ask(connection, VALUES.format(metric))
    return {each["describedObject"]["name"]: each["value"] for each in answer.get("items", ())}
