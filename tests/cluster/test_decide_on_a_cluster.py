# mypy: disable-error-code="dict-item"
"""`gpuscale decide hpa/NAME` says what the cluster's own HPA controller then does.

The HPA controller stops, every HPA is made and asked about, and the controller starts again: the first
status that it writes has to be the answer. Then it runs on, and once all is settled the answers have to be
its statuses again, now with what it remembers.
"""

import json
import subprocess
import sys
import threading
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from gpuscale_testing import (
    ControlPlane,
    Settings,
    SimulatedNode,
    aggregated_api,
    serving_name,
    simulated_nodes,
    wait_until,
)

sys.path.insert(0, str(Path(__file__).parent))
from served_metrics import GROUP_VERSIONS, SM_UTIL, USAGE_GROUP_VERSION, MetricsServer

pytestmark = [pytest.mark.cluster, pytest.mark.xdist_group("cluster")]

NAMESPACE = "decide"
MANAGER = "kube-controller-manager"
DEFINITION = """
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: trainers.example.com}
spec:
  group: example.com
  names: {kind: Trainer, plural: trainers, singular: trainer}
  scope: Namespaced
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
    subresources:
      status: {}
      scale:
        specReplicasPath: .spec.replicas
        statusReplicasPath: .status.replicas
        labelSelectorPath: .status.selector
"""
TRAINER = {"apiVersion": "example.com/v1", "kind": "Trainer"}
DEPLOYMENT = {"apiVersion": "apps/v1", "kind": "Deployment"}
EXTERNAL = {
    "type": "External",
    "external": {
        "metric": {"name": "jobs_waiting", "selector": {"matchLabels": {"team": "vision"}}},
        "target": {"type": "AverageValue", "averageValue": "20"},
    },
}


def pods_metric(name=SM_UTIL, target="20"):
    metric, target = {"name": name}, {"type": "AverageValue", "averageValue": target}
    return {"type": "Pods", "pods": {"metric": metric, "target": target}}


def object_metric(target, described=None):
    described = described or {"apiVersion": "v1", "kind": "Service", "name": "front"}
    metric = {"name": "queue_length"}
    return {
        "type": "Object",
        "object": {"describedObject": described, "metric": metric, "target": target},
    }


def cpu_metric(**target):
    return {"type": "Resource", "resource": {"name": "cpu", "target": target}}


@dataclass(frozen=True)
class Case:
    """An HPA, and its Deployment where it has one."""

    metric: dict
    replicas: int | None = 1
    """Of the Deployment; None makes none."""
    target: tuple = ()
    """What the HPA scales instead of its Deployment: kind and name."""
    maximum: int = 10
    behavior: dict | None = None
    desired: int | None = None
    """What the first sync has to ask for, by arithmetic; None where it can't decide."""


CASES = {
    # ceil(23 / 20) = 2
    "pods": Case(pods_metric(), desired=2),
    # 23 / 22 = 1.045 lies within 1.1
    "tolerated": Case(pods_metric(target="22"), desired=1),
    # ceil(23 / 2) = 12, cut to the maximum
    "at-max": Case(pods_metric(target="2"), maximum=3, desired=3),
    # 12 again; 4 more in 15 s are allowed
    "limited": Case(
        pods_metric(target="2"),
        maximum=20,
        behavior={
            "scaleUp": {"policies": [{"type": "Pods", "value": 4, "periodSeconds": 60}]},
        },
        desired=5,
    ),
    # ceil(27 / 10) = 3
    "object-average": Case(
        object_metric({"type": "AverageValue", "averageValue": "10"}), desired=3
    ),
    # 1 x 27 / 9 = 3
    "object-value": Case(object_metric({"type": "Value", "value": "9"}), desired=3),
    # ceil((25 + 20) / 20) = 3
    "external": Case(EXTERNAL, desired=3),
    # 90m of 100m requested is 90 %; 1 x 90 / 50 = 1.8
    "cpu": Case(cpu_metric(type="Utilization", averageUtilization=50), desired=2),
    # 90m / 85m = 1.06
    "cpu-value": Case(cpu_metric(type="AverageValue", averageValue="85m"), desired=1),
    # ceil(2 x 23 / 230), and the first sync starts the window with 2
    "held": Case(pods_metric(target="230"), replicas=2, desired=2),
    "over-max": Case(pods_metric(), replicas=4, maximum=2, desired=2),
    "paused": Case(pods_metric(), replicas=0),
    "not-served": Case(pods_metric("not_measured")),
    "not-external": Case(
        {
            "type": "External",
            "external": {
                "metric": {"name": "not_there"},
                "target": {"type": "Value", "value": "1"},
            },
        }
    ),
    "no-such-kind": Case(
        object_metric(
            {"type": "Value", "value": "1"},
            {"apiVersion": "example.com/v9", "kind": "Nothing", "name": "x"},
        )
    ),
    "no-target": Case(pods_metric(), replicas=None, target=(DEPLOYMENT, "not-there")),
    "no-target-kind": Case(
        pods_metric(), replicas=None, target=({"apiVersion": "example.com/v1", "kind": "Foo"}, "x")
    ),
    # DaemonSets have no scale.
    "no-scale": Case(
        pods_metric(), None, target=({"apiVersion": "apps/v1", "kind": "DaemonSet"}, "x")
    ),
    # ceil(45 / 20) = 3, whoever the pods are
    "custom-resource": Case(EXTERNAL, replicas=None, target=(TRAINER, "trainer"), desired=3),
}
TWINS = ("twin-a", "twin-b")
"""Two HPAs of one Deployment. A controller that just started knows no selectors, so these come later."""


def deployment(name: str, replicas: int) -> dict:
    labels = {"app": name}
    container = {"name": "model", "image": "none", "resources": {"requests": {"cpu": "100m"}}}
    return {
        **DEPLOYMENT,
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
        },
    }


def hpa(name: str, case: Case) -> dict:
    kind, target = case.target or (DEPLOYMENT, name)
    return {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {
            "scaleTargetRef": {**kind, "name": target},
            "minReplicas": 1,
            "maxReplicas": case.maximum,
            "metrics": [case.metric],
            **({"behavior": case.behavior} if case.behavior else {}),
        },
    }


def listed(items) -> str:
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": list(items)})


@pytest.fixture(scope="module")
def plane():
    """A control plane whose HPA controller looks every two seconds."""
    with ControlPlane(Settings(hpa_sync_period_s=2.0)) as running:
        yield running


@pytest.fixture(scope="module")
def world(plane):
    """The targets, ready, with their metrics served; the HPA controller is not running."""
    certificate = plane.serving_certificate(serving_name("gpuscale"))
    groups = (*GROUP_VERSIONS, USAGE_GROUP_VERSION)
    bundle = {"service": "gpuscale", "ca_bundle": plane.ca}
    with (
        simulated_nodes(plane, SimulatedNode("h200", gpus=64)),
        MetricsServer(plane, certificate).running() as metrics,
        aggregated_api(plane, groups, metrics.port, **bundle),
    ):
        plane.kubectl("create", "namespace", NAMESPACE)
        plane.apply(DEFINITION)
        plane.wait("crd/trainers.example.com", "condition=Established")
        targets = {name: each.replicas for name, each in CASES.items() if each.replicas is not None}
        targets["twin"] = 1
        plane.apply(listed(deployment(*each) for each in targets.items()))
        make_trainer(plane)
        for name, replicas in targets.items():
            if replicas:
                ready = f"jsonpath={{.status.readyReplicas}}={replicas}"
                plane.wait(f"deployment/{name}", ready, "-n", NAMESPACE, timeout_s=90.0)
        measure(plane, metrics)
        yield metrics


def make_trainer(plane) -> None:
    """Make a custom resource with a scale, and a pod that its selector finds."""
    meta = {"name": "trainer", "namespace": NAMESPACE}
    pod = {"containers": [{"name": "model", "image": "none"}]}
    body = {**TRAINER, "metadata": meta, "spec": {"replicas": 1}}
    meta = {**meta, "labels": {"app": "trainer"}}
    plane.apply(listed([body, {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": pod}]))
    status = json.dumps({"status": {"replicas": 1, "selector": "app=trainer"}})
    plane.kubectl(
        *("patch", "trainer/trainer", "-n", NAMESPACE, "--subresource=status"),
        *("--type=merge", "-p", status),
    )
    plane.wait("pod/trainer", "condition=Ready", "-n", NAMESPACE)


def measure(plane, metrics) -> None:
    """Give every pod 23 % of a GPU and 90 thousandths of a CPU, and the queues their lengths."""
    for pod in plane.get("pods", "-n", NAMESPACE)["items"]:
        name = pod["metadata"]["name"]
        metrics.put(SM_UTIL, 23.0, PodName=name, NamespaceName=NAMESPACE, NodeName="h200")
        labels = {"namespace": NAMESPACE, "pod": name, "container": "model"}
        metrics.put("container_cpu_cores", 0.09, **labels)
        metrics.put("container_memory_bytes", 1e6, **labels)
    metrics.put("queue_length", 27.0, namespace=NAMESPACE, service="front")
    metrics.put("jobs_waiting", 25.0, namespace=NAMESPACE, team="vision", queue="a")
    metrics.put("jobs_waiting", 20.0, namespace=NAMESPACE, team="vision", queue="b")


def decided(plane, *words: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        [
            sys.executable,
            "-m",
            "gpuscale.cli.main",
            "decide",
            *words,
            f"--kubeconfig={plane.admin}",
        ],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def answers(plane) -> dict[str, dict]:
    """Return what is answered for every HPA, by its name."""
    result = decided(plane, "hpa", "-n", NAMESPACE, "-o", "json")
    assert result.stderr == ""
    assert result.returncode == 1  # about some it can't decide
    found = [json.loads(line) for line in result.stdout.splitlines()]
    return {each["name"]: each for each in found}


class FirstStatuses:
    """The first status of each HPA, by its name, as a watch brings them."""

    def __init__(self, plane) -> None:
        command = ["kubectl", f"--kubeconfig={plane.admin}", "get", "hpa", "-n", NAMESPACE]
        self._process = subprocess.Popen(
            [*command, "-w", "-o", "json"], stdout=subprocess.PIPE, text=True
        )
        self._thread = threading.Thread(target=self._read)
        self.found: dict[str, dict] = {}

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_) -> None:
        self._process.terminate()
        self._thread.join(10)
        self._process.stdout.close()
        self._process.wait(10)

    def _read(self) -> None:
        lines = []
        for line in self._process.stdout:
            lines.append(line)
            if line == "}\n":
                body = json.loads("".join(lines))
                lines = []
                if body["status"].get("conditions"):
                    self.found.setdefault(body["metadata"]["name"], body["status"])


def conditions(body) -> dict[str, tuple[str, str, str]]:
    return {c["type"]: (c["status"], c["reason"], c["message"]) for c in body["conditions"]}


def test_the_first_status_that_the_controller_writes_is_the_answer(plane, world) -> None:
    plane.kill(MANAGER)
    plane.apply(listed(hpa(name, case) for name, case in CASES.items()))
    with FirstStatuses(plane) as statuses:
        measure(plane, world)
        own = answers(plane)
        plane.restart(MANAGER)
        wait_until(lambda: set(statuses.found) >= set(CASES), "every HPA to have a status", 60.0)
    for name, case in CASES.items():
        real = statuses.found[name]
        assert conditions(own[name]) == conditions(real), name
        if case.desired is not None:
            assert own[name]["desiredReplicas"] == real["desiredReplicas"] == case.desired, name
            proposals = [metric["error"] for metric in own[name]["metrics"]]
            assert not any(proposals), name


def test_once_settled_the_answers_are_the_statuses(plane, world) -> None:
    twins = (hpa(name, Case(pods_metric(), target=(DEPLOYMENT, "twin"))) for name in TWINS)
    plane.apply(listed(twins))
    world.put("jobs_waiting", 2.0, namespace=NAMESPACE, team="vision", queue="a")
    world.put("jobs_waiting", 3.0, namespace=NAMESPACE, team="vision", queue="b")

    def settled():
        before = real_statuses(plane)
        own = answers(plane)
        same = before == real_statuses(plane) and "twin-b" in before
        return (own, before) if same and all(map(is_at_rest, before.values())) else None

    own, real = wait_until(settled, "the statuses to hold still", 90.0)
    # (2 + 3) / 20 asks for 1; the 3 of a moment ago holds.
    assert reason(real["external"], "AbleToScale") == "ScaleDownStabilized"
    assert reason(real["twin-a"], "ScalingActive") == "AmbiguousSelector"
    # The controller still knows the 4 that it found at first, which no status and no event shows.
    assert reason(real.pop("over-max"), "AbleToScale") == "ScaleDownStabilized"
    for name, status in real.items():
        told = conditions(status)
        for kind, words in conditions(own[name]).items():
            assert in_order(words) == in_order(told[kind]), name
        # Where it can't decide, the status has the count of the last decision: 0 before the first.
        if reason(status, "ScalingActive") == "ValidMetricFound":
            assert own[name]["desiredReplicas"] == status["desiredReplicas"], name
        if name not in TWINS:
            assert own[name]["status"]["differences"] == [], name


def real_statuses(plane):
    found = plane.get("hpa", "-n", NAMESPACE)["items"]
    return {each["metadata"]["name"]: each["status"] for each in found}


def is_at_rest(status) -> bool:
    return (
        status.get("currentReplicas") == status.get("desiredReplicas")
        or reason(status, "ScalingActive") != "ValidMetricFound"
    )


def reason(status, kind: str) -> str:
    return next((c["reason"] for c in status.get("conditions", ()) if c["type"] == kind), "")


def in_order(words):
    """Return a condition without the random order in which the controller lists HPAs."""
    status, reason, message = words
    head, bracket, keys = message.partition("more than one HPA (e.g. [")
    return status, reason, head, bracket, sorted(keys.rstrip("])").split())


def test_a_saved_document_is_answered_the_same(plane, world, tmp_path: Path) -> None:
    file = tmp_path / "why.yaml"
    live = decided(plane, "hpa/cpu", "-n", NAMESPACE, "-o", "json", "--save", str(file))
    assert live.stderr == f"gpuscale: wrote {file}\n"
    command = [sys.executable, "-m", "gpuscale.cli.main", "decide", "-o", "json", str(file)]
    saved = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (saved.stdout, saved.stderr, saved.returncode) == (live.stdout, "", live.returncode)
    first = file.read_text().splitlines()[0]
    assert first.startswith(f"# hpa/cpu in namespace {NAMESPACE}, read at 20")
    assert plane.url in first


def test_without_a_role_it_says_which_one_is_missing(plane, world) -> None:
    stranger = plane.kubeconfig("stranger")
    command = [sys.executable, "-m", "gpuscale.cli.main", "decide", f"--kubeconfig={stranger}"]
    refused = subprocess.run(
        [*command, "hpa/pods", "-n", NAMESPACE], capture_output=True, text=True, check=False
    )
    assert (refused.returncode, refused.stdout) == (2, "")
    assert refused.stderr == (
        'gpuscale: hpa/pods in namespace decide: horizontalpodautoscalers.autoscaling "pods" is '
        'forbidden: User "stranger" cannot get resource "horizontalpodautoscalers" in API group '
        '"autoscaling" in the namespace "decide"; the role in docs/decide.md allows all that decide reads\n'
    )


def test_the_role_of_the_docs_is_enough(plane, world) -> None:
    page = (Path(__file__).parents[2] / "docs" / "decide.md").read_text()
    role = page.partition("```yaml title=role.yaml\n")[2].partition("```")[0]
    plane.apply(role)
    name = yaml.safe_load(role)["metadata"]["name"]
    binding = ("create", "rolebinding", "reader", f"--clusterrole={name}", "--user=reader")
    plane.kubectl(*binding, "-n", NAMESPACE)
    kubeconfig = plane.kubeconfig("reader")
    command = [sys.executable, "-m", "gpuscale.cli.main", "decide", f"--kubeconfig={kubeconfig}"]
    told = subprocess.run(
        [*command, "hpa", "-n", NAMESPACE, "-o", "json"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert told.stderr == ""
    assert len(told.stdout.splitlines()) == len(CASES) + len(TWINS)


DOWN = ("pods", "object-value", "external", "cpu", "custom-resource")


def test_apis_that_are_down_fail_in_the_controllers_words(plane, world) -> None:
    for group_version in (*GROUP_VERSIONS, USAGE_GROUP_VERSION):
        group, version = group_version.split("/")
        patch = json.dumps({"spec": {"service": {"name": "gone"}}})
        name = f"apiservice/{version}.{group}"
        plane.kubectl("patch", name, "--type=merge", "-p", patch)
        plane.wait(name, "condition=Available=false")
    own = agreed_words(plane)
    assert "no known available metric versions found" in own["pods"]
    assert "is currently unable to handle the request" in own["external"]
    assert "is currently unable to handle the request" in own["cpu"]


def test_what_the_controller_may_not_read_fails_in_its_words(plane, world) -> None:
    for group_version in (*GROUP_VERSIONS, USAGE_GROUP_VERSION):
        group, version = group_version.split("/")
        patch = json.dumps({"spec": {"service": {"name": "gpuscale"}}})
        name = f"apiservice/{version}.{group}"
        plane.kubectl("patch", name, "--type=merge", "-p", patch)
        plane.wait(name, "condition=Available")
    role = plane.get("clusterrole", "system:controller:horizontal-pod-autoscaler")
    role["rules"] = [rule for rule in role["rules"] if "metrics.k8s.io" not in str(rule)]
    plane.kubectl("replace", "-f", "-", stdin=json.dumps(role))
    own = agreed_words(plane)
    # Of an HPA that the controller has not looked at yet it is known all the same.
    plane.kill(MANAGER)
    plane.kubectl("delete", "hpa", "pods", "-n", NAMESPACE)
    plane.apply(listed([hpa("new", Case(EXTERNAL, target=(DEPLOYMENT, "pods")))]))
    new = answers(plane)["new"]
    plane.restart(MANAGER)
    account = "system:serviceaccount:kube-system:horizontal-pod-autoscaler"
    assert f'is forbidden: User "{account}" cannot list' in words(new)
    for name in DOWN:
        assert f'is forbidden: User "{account}" cannot' in own[name], name


def agreed_words(plane) -> dict[str, str]:
    """Return why ScalingActive is False for those that look at metrics, once both say the same."""

    def same():
        real = {name: words(each) for name, each in real_statuses(plane).items()}
        own = {name: words(each) for name, each in answers(plane).items()}
        agree = all(own[name] == real[name] and own[name] for name in DOWN)
        return own if agree else None

    return wait_until(same, "the answers to be those of the controller", 60.0)


def words(body) -> str:
    """Return the message of a ScalingActive that is False; empty where it is not."""
    status, _, message = conditions(body).get("ScalingActive", ("", "", ""))
    return message if status == "False" else ""
