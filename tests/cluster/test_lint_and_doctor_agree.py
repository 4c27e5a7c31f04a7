"""Faults that a manifest shows: `gpuscale lint` on files and `gpuscale doctor` on a cluster agree."""

import asyncio
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from gpuscale.base.clock import WallClock
from gpuscale.base.findings import Severity
from gpuscale.ops.doctor import Gatherer, GatherSettings, diagnose
from gpuscale.ops.lint import lint
from gpuscale.ops.lint.checks import CHECKS
from gpuscale_testing import wait_until

sys.path.insert(0, str(Path(__file__).parents[1] / "unit" / "lint"))
from scaled_cases import SCALED_CASES
from test_lint_checks import CASES as LINT_CASES

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.xdist_group("cluster"),
    pytest.mark.timeout(300),
]
APPLIED_ONCE = (
    "replicas-owned",
    "replicas-owned/above",
    "replicas-owned/within",
    "replicas-owned/keda",
)
"""Manifests that a cluster does not have: it can't be seen there that they will be applied again."""
NOT_ALIKE = (
    "target-is-owned",  # the garbage collector ends what an absent owner owns
    "no-gpu-util/by another name",  # by rules that no metrics server of this cluster has
    "replicas-owned/of an Application",  # by objects that no cluster here has the kinds of
    "replicas-owned/of a Kustomization",
    "larger-than-any-node",  # in a cluster, by the nodes that are there
    "replicas-owned/argo",  # by the owner, whom a live object has and its manifest has not
)
SAID_OTHERWISE = {
    "no-scale-target",
    "no-gpu-request",
    "no-resource-request",
    "larger-than-any-node",
}
"""What the doctor knows more of: the API server's words on a target, values, pods and nodes."""
OF_FILES = {"no-rules"}


def of_objects(findings):
    return {
        each.check.id
        for each in findings
        if each.check.hop or each.check.severity is not Severity.NOTE
    } - OF_FILES


def seen_by_lint(files):
    return of_objects(lint(list(files.items())).findings)


KINDS = {
    *("HorizontalPodAutoscaler", "ScaledObject", "TriggerAuthentication", "Deployment"),
    *("ResourceQuota", "PodDisruptionBudget"),
}
"""Kinds of other cases that this cluster takes."""
NOT_TAKEN = ("removed-api-version", "refused-manifest", "unknown-field", "not-whole")


def is_taken(name, files):
    """Return whether a case is of objects alone that the cluster has, and of a fault that they show."""
    check, texts = name.partition("/")[0], [*files.values()]
    kinds = {each for text in texts for each in re.findall(r"^kind: (\w+)", text, re.MULTILINE)}
    is_of_objects = kinds <= KINDS and all("\nkind: " in text for text in texts)
    return is_of_objects and check not in NOT_TAKEN and check in seen_by_lint(files)


FILES = {name: files for name, (files, _) in SCALED_CASES.items()}
FILES |= {
    name: files
    for name, (files, _) in LINT_CASES.items()
    if name not in FILES and is_taken(name, files)
}
CASES = {
    f"case-{index}": (name, files)
    for index, (name, files) in enumerate(FILES.items())
    if name not in (*APPLIED_ONCE, *NOT_ALIKE)
}


@pytest.fixture(scope="module")
def cluster(plane):
    plane.define("keda")
    for namespace, (_, files) in CASES.items():
        plane.kubectl("create", "namespace", namespace)
        for text in files.values():
            own = re.sub(r"\bnamespace: [a-z0-9-]+", f"namespace: {namespace}", text)
            plane.kubectl("apply", "-n", namespace, "-f", "-", stdin=own)
    return plane


async def look(plane, gather):
    async with plane.client() as client:
        return await gather(Gatherer(client, WallClock(), GatherSettings()))


@pytest.fixture(scope="module")
def report(cluster):
    return diagnose(asyncio.run(look(cluster, lambda gatherer: gatherer.snapshot())))


@pytest.fixture(scope="module")
def live(cluster):
    return asyncio.run(look(cluster, lambda gatherer: gatherer.objects()))


def test_there_are_faults_enough():
    assert len(CASES) >= 60


@pytest.mark.parametrize("namespace", CASES)
def test_the_file_and_the_cluster_have_the_same_ids(report, namespace):
    name, files = CASES[namespace]
    told = {
        each.check.id
        for root in report.findings
        for each in root.whole()
        for where in (each.where, *(same.where for same in each.same))
        if f"/{namespace}/" in where
    }
    expected = seen_by_lint(files)
    assert name.partition("/")[0] in expected
    # Whether the target is there lint can't say where no file has it.
    beyond = set() if "template:" in str(files) else {"no-scale-target"}
    assert (told & CHECKS.keys()) - beyond == expected - beyond


@pytest.mark.parametrize("namespace", CASES)
def test_lint_over_the_cluster_has_them_too(live, namespace):
    found = lint([], cluster=live).findings
    told = of_objects(each for each in found if f" {namespace}/" in each.where.file)
    assert told >= seen_by_lint(CASES[namespace][1])


def test_lint_over_the_cluster_and_the_doctor_say_the_same(live, report):
    """Of all cases at once, but for what only the doctor has read: what the API server says of a target."""
    by_lint = {
        (each.where.file.partition(" ")[2], each.check.id)
        for each in lint([], cluster=live).findings
        if each.check.hop or each.check.severity is not Severity.NOTE
    }
    by_doctor = {
        (each.where.partition("/")[2], each.check.id)
        for root in report.findings
        for found in root.whole()
        for each in (found, *found.same)
        if each.check.id in CHECKS
    }
    apart = {each for each in by_lint ^ by_doctor if each[1] not in SAID_OTHERWISE}
    assert apart == set()


def test_a_file_that_is_laid_over_the_cluster_ends_its_fault(live):
    namespace = next(key for key, (name, _) in CASES.items() if name == "min-is-max")
    text = SCALED_CASES["min-is-max"][1]["web.yaml"]
    mended = text.replace("name: web}\nspec", f"name: web, namespace: {namespace}}}\nspec", 1)
    found = lint([("web.yaml", mended)], cluster=live).findings
    assert not [
        each
        for each in found
        if each.check.id == "min-is-max" and f" {namespace}/" in each.where.file
    ]


def test_the_doctor_writes_what_lint_says_for_code_hosts(cluster):
    command = [sys.executable, "-m", "gpuscale.cli.main", "doctor", "-o", "sarif"]
    done = subprocess.run(
        [*command, f"--kubeconfig={cluster.admin}"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1, done.stderr
    (run,) = json.loads(done.stdout)["runs"]
    rules = [each["id"] for each in run["tool"]["driver"]["rules"]]
    told = {each["ruleId"] for each in run["results"]}
    assert {"several-rows", "min-is-max"} <= told <= set(rules)


def test_the_command_looks_at_the_cluster(cluster, tmp_path):
    namespace = next(key for key, (name, _) in CASES.items() if name == "slow-scale-up")
    command = [sys.executable, "-m", "gpuscale.cli.main", "lint", "--live"]
    done = subprocess.run(
        [*command, f"--kubeconfig={cluster.admin}"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr.count("Traceback")) == (1, 0)
    head = f"HorizontalPodAutoscaler {namespace}/web: warning [slow-scale-up]"
    (found,) = re.findall(
        rf"^{re.escape(head)}.*?(kubectl patch hpa [^\n]*)", done.stdout, re.MULTILINE | re.DOTALL
    )
    subprocess.run(["bash", "-c", f"{found} --kubeconfig={cluster.admin}"], check=True)
    window = cluster.get("hpa", "web", "-n", namespace)["spec"]["behavior"]["scaleUp"]
    assert window["stabilizationWindowSeconds"] == 0


@pytest.mark.parametrize(
    "case", ["wrong-target-version/version alone", "no-scale-target/lower case"]
)
def test_a_target_that_is_only_noted_is_found_by_the_controller(cluster, case):
    namespace = next(key for key, (name, _) in CASES.items() if name == case)
    text = SCALED_CASES["no-gpu-request"][1]["web.yaml"].partition("---\n")[0]
    cluster.kubectl("apply", "-n", namespace, "-f", "-", stdin=text)

    def is_able():
        status = cluster.get("hpa", "web", "-n", namespace).get("status", {})
        reasons = {each["type"]: each["reason"] for each in status.get("conditions", [])}
        return reasons.get("AbleToScale") == "SucceededGetScale"

    wait_until(is_able, "the controller to read the scale")


POOL = """\
apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {name: h100}
spec:
  template:
    spec:
      nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: h100}
      taints: [{key: example.com/h100, value: "true", effect: NoSchedule}]
      requirements: [{key: node.kubernetes.io/instance-type, operator: In, values: [p5.48xlarge]}]
"""


def test_decide_says_whether_nodes_come_for_pods_that_wait(cluster):
    namespace = next(key for key, (name, _) in CASES.items() if name == "no-gpu-util")
    command = [sys.executable, "-m", "gpuscale.cli.main", "decide", "hpa/web", "-n", namespace]

    def told(words):
        done = subprocess.run(
            [*command, f"--kubeconfig={cluster.admin}"], capture_output=True, text=True, check=False
        )
        return words in done.stdout and done.stdout

    waits = "1 pod waits for a node, such as web-"
    assert waits in wait_until(
        lambda: told("no pool is known that could make a node"), "words", 20.0
    )
    cluster.define("karpenter-aws")
    cluster.apply(POOL)
    told_of_taint = wait_until(lambda: told("until something is changed: h100: "), "the pool", 20.0)
    assert "its taint example.com/h100=true:NoSchedule is not tolerated" in told_of_taint
