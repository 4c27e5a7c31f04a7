"""Scenarios under Kubernetes' own scheduler and controllers, against the same scenarios in virtual time."""

import json
import re
import signal
import socket
import subprocess
import sys
import threading
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from gpuscale.lab.rehearse.comparison import NODES, REPLICAS, changes
from gpuscale.lab.rehearse.mark import LABEL
from gpuscale.lab.scenarios import find_setup
from gpuscale.lab.sim.simulation import simulate
from gpuscale_testing import ControlPlane, Settings, local_address, wait_until

sys.path.insert(0, str(Path(__file__).parent))
from all_objects import settled
from terminal import wait_for_text

pytestmark = [pytest.mark.cluster, pytest.mark.xdist_group("cluster"), pytest.mark.timeout(400)]

COMMAND = [sys.executable, "-m", "gpuscale.cli.main", "rehearse"]
SCENARIOS = Path(__file__).parent.parent / "data" / "rehearsals"
NAMESPACE = "gpuscale-rehearsal"
SYNC_PERIOD_S = 5.0
STABILIZATION_S = 12.0
"""Both as in the scenario files."""
HOPS_S = 0.5 + 1.0 + 1.0
"""Collect, scrape and rule interval: how much older than in virtual time a value may be that a look sees."""
LAST_S = 170.0
"""Until the last change of a scenario; on two idle cores it comes within 81 s."""
LAST_CHANGE = {
    "ack-bert": ("ScaleDown ", 1),
    "eks-vision": ("SuccessfulRescale ", 3),
    "aks-mnist-jobs": ("ScaleDown ", 2),
}
"""What standard error says, how often; a rehearsal is interrupted then, long before its end."""
LAST_NODES = {"aks-mnist-jobs": 1}
"""How many there are after that, where a test asks for them."""
END_S = 120.0
"""From a signal to the end of the process; it takes 5 s on two idle cores."""


@dataclass
class Watched:
    """What `kubectl` showed of the HPAs while a rehearsal ran."""

    targets: set[str] = field(default_factory=set)
    """Cells of the column TARGETS."""
    conditions: set[tuple[str, str, str]] = field(default_factory=set)
    """Type, status and reason."""


class Process:
    """One run of the command; it is killed where a test ends before it."""

    def __init__(self, plane, *arguments) -> None:
        command = [*COMMAND, f"--kubeconfig={plane.admin}", *map(str, arguments)]
        self._process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        self._lines: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def __enter__(self):
        return self

    def __exit__(self, *_) -> None:
        if self.is_running:
            self._process.kill()
        self._process.wait(30)
        self._reader.join(30)
        self._process.stdout.close()
        self._process.stderr.close()

    def _read(self) -> None:
        self._lines.extend(iter(self._process.stderr.readline, ""))

    @property
    def is_running(self):
        return self._process.poll() is None

    @property
    def said(self):
        return "".join(tuple(self._lines))

    def wait_for(self, text, times=1) -> None:
        """Return once standard error holds a text so often."""
        wait_for_text(self._process, lambda: self.said, text, times, LAST_S)

    def signal(self, number) -> None:
        self._process.send_signal(number)

    def end(self):
        """Return the exit code and standard output once it has ended by itself."""
        output = self._process.stdout.read()
        code = self._process.wait(END_S)
        self._reader.join(30)
        return code, output


def run(plane, *arguments):
    with Process(plane, *arguments) as process:
        code, output = process.end()
        return code, output, process.said


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory):
    settings = Settings(
        hpa_sync_period_s=SYNC_PERIOD_S, hpa_downscale_stabilization_s=STABILIZATION_S
    )
    with ControlPlane(settings, tmp_path_factory.mktemp("plane")) as running:
        yield running


@pytest.fixture(scope="module")
def before(plane):
    """What there was before the first rehearsal."""
    return settled(plane, everything)


@pytest.fixture(scope="module")
def rehearsed(plane, before):
    """Returns the document of a whole rehearsal and what kubectl showed meanwhile; each is run once."""
    runs = {}

    def result(scenario):
        if scenario not in runs:
            runs[scenario] = rehearse(plane, scenario)
        return runs[scenario]

    return result


@pytest.fixture(autouse=True)
def nothing_left_by_a_failure(plane):
    """A test that fails in the middle of a rehearsal does not stand in the way of the next one."""
    yield
    if plane.get("namespaces", "-l", LABEL)["items"]:
        run(plane, "--clean")


def rehearse(plane, scenario):
    watched = Watched()
    with Process(plane, "--output=json", SCENARIOS / f"{scenario}.yaml") as process:
        watcher = threading.Thread(target=watch, args=(plane, process, watched))
        watcher.start()
        process.wait_for(*LAST_CHANGE[scenario])
        if scenario in LAST_NODES:
            # A node that goes is there for five more seconds, as `node-delete-delay-after-taint` has it.
            left = LAST_NODES[scenario]
            look = lambda: len(plane.get("nodes", "-l", LABEL)["items"]) == left  # noqa: E731
            wait_until(look, f"{left} nodes", 60)
        process.signal(signal.SIGINT)
        code, output = process.end()
        watcher.join(60)
        assert code == 0, process.said
        return json.loads(output), watched


def watch(plane, process, watched) -> None:
    pause = threading.Event()
    while process.is_running:
        table = plane.kubectl("get", "hpa", "-n", NAMESPACE, "--no-headers", "--ignore-not-found")
        watched.targets |= {line.split()[2] for line in table.splitlines()}
        for item in plane.get("hpa", "-n", NAMESPACE)["items"]:
            conditions = item.get("status", {}).get("conditions", [])
            seen = {(c["type"], c["status"], c["reason"]) for c in conditions}
            # From 1.37 on a new HPA is synced at once, at times before its metric can be asked for.
            if watched.conditions or ("ScalingActive", "True", "ValidMetricFound") in seen:
                watched.conditions |= seen
        pause.wait(1.0)


def simulated(scenario):
    return simulate(find_setup(str(SCENARIOS / f"{scenario}.yaml")))


def everything(plane):
    """Return kind, namespace and name of all objects but events, which expire by themselves."""
    names = plane.kubectl("api-resources", "--verbs=list", "-o", "name").split()
    kinds = ",".join(each for each in names if not each.startswith("events"))
    return {
        (item["kind"], item["metadata"].get("namespace", ""), item["metadata"]["name"])
        for item in plane.get(kinds, "-A")["items"]
    }


def counts(document, kinds):
    return [(change.before, change.after) for change in changes(document, kinds)]


def faults_of_the_controllers(plane):
    """Return the lines in which a controller complains of a metrics API.

    From 1.37 on a new HPA is synced at once, at times before the controller has discovered the API.
    """
    log = (plane.folder / "kube-controller-manager.log").read_text()
    lines = [line for line in log.splitlines() if re.match(r"[EW]\d{4} ", line)]
    early = "no known available metric versions found"
    return [line for line in lines if "metrics" in line and early not in line]


def test_the_guides_deployment_goes_from_one_to_two_pods_and_back(plane, rehearsed) -> None:
    document, watched = rehearsed("ack-bert")
    # ceil(1 x 23 / 20) = 2; without load 0 / 20 asks for none, and one is the least.
    assert counts(document, REPLICAS) == [(1, 2), (2, 1)]
    # The second pod finds no free GPU and brings a node, which goes when it stands empty.
    assert counts(document, NODES) == [(1, 2), (2, 1)]
    # 4.6 requests/s x 0.05 GPU-seconds: 23 % of one GPU; 11.5 % of each of two, which read 11 or 12.
    assert {"0/20", "23/20"} <= watched.targets
    assert {"11/20", "11500m/20", "12/20"} & watched.targets
    assert ("ScalingActive", "True", "ValidMetricFound") in watched.conditions
    assert not [each for each in watched.conditions if each[:2] == ("ScalingActive", "False")]
    assert not faults_of_the_controllers(plane)


def test_a_services_object_metric_scales_out_step_by_step(plane, rehearsed) -> None:
    document, watched = rehearsed("eks-vision")
    # 18 x 0.06 / 3 GPUs = 36 %, 1.2 times the target: ceil(2 x 1.2) and ceil(3 x 1.2), of which one waits.
    assert counts(document, REPLICAS) == [(2, 3), (3, 4), (4, 2)]
    assert {"0/30", "36/30"} <= watched.targets
    assert ("ScalingActive", "True", "ValidMetricFound") in watched.conditions
    assert not [each for each in watched.conditions if each[:2] == ("ScalingActive", "False")]
    assert not faults_of_the_controllers(plane)


def test_twenty_jobs_complete_on_a_pool_that_grows_to_three_nodes_and_returns(rehearsed) -> None:
    document, _ = rehearsed("aks-mnist-jobs")
    summary = document["summary"]
    assert (summary["submittedJobs"], summary["completedJobs"]) == (20, 20)
    assert counts(document, NODES) == [(1, 3), (3, 2), (2, 1)]
    assert summary["nodePools"] == {"gpu": {"maxNodes": 3, "finalNodes": 1}}


@pytest.mark.parametrize("scenario", ["ack-bert", "eks-vision"])
def test_virtual_time_and_the_real_controller_change_replicas_alike(
    rehearsed, scenario: str
) -> None:
    virtual = changes(simulated(scenario), REPLICAS)
    real = changes(rehearsed(scenario)[0], REPLICAS)
    assert [each.what for each in real] == [each.what for each in virtual]
    apart = [r.seconds - v.seconds for r, v in zip(real, virtual, strict=True)]
    # A value that comes just too late for one look is seen by the next. Without that it is below 1 s.
    assert max(map(abs, apart)) < SYNC_PERIOD_S + HOPS_S, apart


@pytest.mark.parametrize("scenario", ["ack-bert", "eks-vision", "aks-mnist-jobs"])
def test_virtual_time_and_the_real_scheduler_change_node_pools_alike(
    rehearsed, scenario: str
) -> None:
    # Times are not held: the scheduler tries a pod that failed again after 1 s, 2 s, 4 s, at most 10 s.
    virtual = changes(simulated(scenario), NODES)
    real = changes(rehearsed(scenario)[0], NODES)
    assert [each.what for each in real] == [each.what for each in virtual]


def test_both_documents_have_the_same_form(rehearsed) -> None:
    real, virtual = rehearsed("ack-bert")[0], simulated("ack-bert")
    # It says how a run was computed; nothing was, here.
    assert real.keys() | {"fidelity"} == virtual.keys()
    assert real["summary"].keys() == virtual["summary"].keys()
    common = {name for name in virtual["series"] if not name.startswith(("gpu/", "pod/"))}
    assert common <= real["series"].keys()
    for run in (real, virtual):
        served = run["summary"]["requests"]["bert-intent-detection"]["served"]
        assert served == pytest.approx(55.5 * 4.6)  # from 6 s to 61.5 s


def test_after_whole_rehearsals_nothing_is_left(plane, before, rehearsed) -> None:
    rehearsed("eks-vision")
    assert everything(plane) == before


FOREIGN = """
apiVersion: v1
kind: Pod
metadata: {name: foreign}
spec: {containers: [{name: c, image: none, resources: {limits: {nvidia.com/gpu: 1}}}]}
"""


def shown(plane, namespace):
    """Return the cells of the column TARGETS of the HPAs in a namespace."""
    arguments = ("-n", namespace, "--no-headers", "--ignore-not-found")
    return [line.split()[2] for line in plane.kubectl("get", "hpa", *arguments).splitlines()]


def test_several_hpas_show_what_the_gpus_did_and_nothing_of_others_is_touched(
    plane, before
) -> None:
    plane.apply(FOREIGN)

    with Process(plane, "--output=json", SCENARIOS / "mixed.yaml") as process:
        process.wait_for("Scheduled", times=3)
        wait_until(lambda: shown(plane, NAMESPACE) == ["25/50"], "the Pods metric", 60.0)
        speech = f"{NAMESPACE}-speech"
        wait_until(lambda: shown(plane, speech) == ["40/100"], "the External one", 60.0)
        foreign = plane.get("pod", "foreign")
        process.signal(signal.SIGINT)
        code, output = process.end()
        assert code == 0, process.said
    assert not counts(json.loads(output), REPLICAS)
    assert "nodeName" not in foreign["spec"]
    assert plane.get("pod", "foreign")["metadata"]["uid"] == foreign["metadata"]["uid"]
    plane.kubectl("delete", "pod", "foreign", "--force")
    assert everything(plane) == before


def test_a_half_used_node_is_drained_into_the_other(plane, before) -> None:
    """Its pod is evicted by the real API, as a budget allows, and the real scheduler finds its new place."""
    with Process(plane, "--output=json", SCENARIOS / "drain.yaml") as process:
        process.wait_for(" Scheduled ", 3)
        wait_until(
            lambda: len(plane.get("nodes", "-l", LABEL)["items"]) == 1, "one node", 60, every_s=0.2
        )
        process.signal(signal.SIGINT)
        code, output = process.end()
    assert code == 0, process.said
    document = json.loads(output)
    (gone,) = (e for e in document["events"] if e["kind"] == "ScaleDown")
    assert (gone["from"], gone["to"]) == (2, 1)
    moved = [e["t"] for e in document["events"] if e["kind"] == "Scheduled"][-1]
    assert moved >= gone["t"] + 4.5, "node-delete-delay-after-taint is 5 s"
    assert document["summary"]["nodePools"]["gpu"] == {"maxNodes": 2, "finalNodes": 1}
    assert everything(plane) == before


def test_what_a_killed_rehearsal_leaves_is_refused_and_then_removed(plane, before) -> None:
    scenario = SCENARIOS / "eks-vision.yaml"
    with Process(plane, "--output=json", scenario) as process:
        process.wait_for("LoadChanged")
        process.signal(signal.SIGKILL)
        process.end()
    assert plane.get("nodes", "-l", LABEL)["items"]
    code, _, said = run(plane, scenario)
    assert code == 2
    assert "belongs to rehearsal eks-vision-short-" in said
    assert "--clean" in said
    code, output, said = run(plane, "--clean")
    assert code == 0, said
    assert f"removed Namespace/{NAMESPACE}" in output
    assert everything(plane) == before
    assert run(plane, "--clean")[1] == "nothing to remove\n"


API_SERVICE = """
apiVersion: apiregistration.k8s.io/v1
kind: APIService
metadata: {name: v1beta1.custom.metrics.k8s.io}
spec:
  group: custom.metrics.k8s.io
  version: v1beta1
  service: {namespace: default, name: somebodys-adapter}
  groupPriorityMinimum: 100
  versionPriority: 100
  insecureSkipTLSVerify: true
"""


@pytest.mark.parametrize(
    ("manifest", "expected"),
    [
        pytest.param(API_SERVICE, "served by default/somebodys-adapter", id="metrics API"),
        pytest.param(
            f"apiVersion: v1\nkind: Namespace\nmetadata: {{name: {NAMESPACE}}}",
            f"Namespace {NAMESPACE} is there already",
            id="namespace",
        ),
    ],
)
def test_what_belongs_to_others_is_refused_and_kept(plane, manifest, expected: str) -> None:
    plane.apply(manifest)
    there = everything(plane)
    code, _, said = run(plane, SCENARIOS / "eks-vision.yaml")
    assert (code, expected in said) == (2, True), said
    assert run(plane, "--clean")[1] == "nothing to remove\n"
    assert everything(plane) == there
    plane.kubectl("delete", "--wait=false", "-f", "-", stdin=manifest)


ADVERTISED = Settings(
    hpa_sync_period_s=SYNC_PERIOD_S,
    hpa_downscale_stabilization_s=STABILIZATION_S,
    # Nothing here leads from a cluster IP to endpoints, as kube-proxy would; so the API server goes to them.
    extra_flags={"kube-apiserver": ["--enable-aggregator-routing=true"]},
)


@pytest.fixture(scope="module")
def elsewhere(tmp_path_factory: pytest.TempPathFactory):
    """A control plane that reaches this machine at an address of its own, as one in a container does."""
    with (
        local_address() as address,
        ControlPlane(ADVERTISED, tmp_path_factory.mktemp("elsewhere")) as running,
    ):
        yield running, address


def test_an_api_server_elsewhere_reaches_the_metrics_api_at_the_advertised_address(
    elsewhere,
) -> None:
    plane, address = elsewhere
    before = settled(plane, everything)
    arguments = ("--output=json", f"--advertise-address={address}", SCENARIOS / "mixed.yaml")
    with Process(plane, *arguments) as process:
        process.wait_for("Scheduled", times=3)
        wait_until(lambda: shown(plane, NAMESPACE) == ["25/50"], "the Pods metric", 60.0)
        speech = f"{NAMESPACE}-speech"
        wait_until(lambda: shown(plane, speech) == ["40/100"], "the External one", 60.0)
        (port,) = plane.get("service/gpuscale-metrics", "-n", NAMESPACE)["spec"]["ports"]
        socket.create_connection((address, port["port"]), timeout=10).close()
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port["port"]), timeout=10)
        assert endpoints(plane) == {("Endpoints", address), ("EndpointSlice", address)}
        process.signal(signal.SIGINT)
        code, _ = process.end()
        assert code == 0, process.said
    assert everything(plane) == before


def endpoints(plane):
    """Return kind and address of all that says where the metrics API is; releases look at either."""
    old = plane.get("endpoints/gpuscale-metrics", "-n", NAMESPACE)
    selector = "kubernetes.io/service-name=gpuscale-metrics"
    new = plane.get("endpointslices", "-n", NAMESPACE, "-l", selector)["items"]
    return {
        *(("Endpoints", each["ip"]) for each in old["subsets"][0]["addresses"]),
        *(("EndpointSlice", each["addresses"][0]) for body in new for each in body["endpoints"]),
    }


def test_an_address_of_another_machine_is_refused_before_anything_is_made(plane, before) -> None:
    address = "--advertise-address=198.51.100.7"
    code, output, said = run(plane, address, SCENARIOS / "mixed.yaml")
    assert (code, output) == (2, ""), said
    assert said.startswith("gpuscale: --advertise-address: found 198.51.100.7, where this machine")
    assert everything(plane) == before
