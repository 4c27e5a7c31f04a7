"""Faults between an HPA and running pods on a real control plane: each named as the one cause, and cured.

All are there at once, each in a namespace of its own, so that none may be taken for another.
"""

import json
import os
import signal
import sys
from pathlib import Path

import pytest

from gpuscale.base.errors import UnavailableError
from gpuscale.ops.findings_text import chain_document
from gpuscale_testing import wait_until

sys.path.insert(0, str(Path(__file__).parent))
from doctor_faults import COMMAND, FAULTS, POOL_AT_ZERO, PRELUDE
from doctor_stack import LIMIT_S, Cluster, deployment

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.prometheus,
    pytest.mark.xdist_group("cluster"),
    pytest.mark.timeout(400),
]
CASES = [pytest.param(fault, id=fault.name) for fault in FAULTS]
NAMED_S = 40.0
CLUSTER_WIDE = {"no-resource-metrics": "resource", "claim-not-allocated": "claims"}


class FaultyCluster(Cluster):
    """A cluster with GPUs for all faults at once; each counts as many, as with time slicing."""

    gpus = 64
    names = tuple(fault.name for fault in FAULTS)
    labels = {**Cluster.labels, "nvidia.com/gpu.replicas": "32"}

    def run_in(self, namespace, commands):
        """Run commands of a fault."""
        self.shell(f"NS={namespace}\n{PRELUDE}\n{commands}")

    def sample(self):
        """Store what Prometheus would have scraped of every pod that runs."""
        names = set(self.names)
        pods = self.plane.get("pods", "--all-namespaces", "-l", "app")["items"]
        self.others = [
            (pod["metadata"]["namespace"], pod["metadata"]["name"])
            for pod in pods
            if pod["metadata"]["namespace"] in names and pod["status"].get("phase") == "Running"
        ]
        super().sample()

    def causes(self, namespace):
        """Return the causes that are found in a namespace."""
        return [each for each in self.report().findings if f"/{namespace}/" in f"{each.where}/"]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with FaultyCluster(tmp_path_factory.mktemp("faults")) as running:
        running.healthy()
        for fault in FAULTS:
            running.plane.kubectl("create", "namespace", fault.name)
            running.run_in(fault.name, fault.do)
        yield running


def about(fault, finding):
    """Return whether a finding is a fault's, by its namespace, or by its check where it has none."""
    wheres = (each.where for each in (finding, *finding.same))
    return CLUSTER_WIDE.get(finding.check.id) == fault.name or any(
        f"/{fault.name}/" in where for where in wheres
    )


def own(fault, finding):
    """Return the one of the same findings that is the fault's."""
    for each in (finding, *finding.same):
        if f"/{fault.name}/" in each.where or CLUSTER_WIDE.get(each.check.id) == fault.name:
            return each
    return None


@pytest.mark.parametrize("fault", CASES)
def test_a_fault_is_named_as_the_only_cause(cluster, fault):
    found = []

    def only_cause():
        found[:] = [own(fault, each) for each in cluster.report().findings if about(fault, each)]
        ids = {each.check.id for each in found}
        return ids == {fault.check} and fault.says in f"{found[0].what} {found[0].evidence}"

    try:
        wait_until(only_cause, "the cause alone", NAMED_S, 1.0)
    except UnavailableError:
        pytest.fail("\n".join(f"{each.check.id} {each.where}: {each}" for each in found) or "none")
    assert fault.fix in f"{found[0].fix.say} {found[0].fix.command}"


@pytest.mark.parametrize("fault", CASES)
def test_its_fix_ends_it(cluster, fault):
    if fault.cure == COMMAND:
        found = (own(fault, each) for each in cluster.report().findings if about(fault, each))
        finding = next(each for each in found if each.check.id == fault.check)
        cluster.shell(finding.fix.command)
    else:
        cluster.run_in(fault.name, fault.cure)
    if fault.check == "pods-refused":
        # A controller waits ever longer before it tries again; another size makes it try at once.
        cluster.run_in(fault.name, "k scale deployment web --replicas=2")
    left = []

    def is_gone():
        left[:] = [
            each
            for root in cluster.report().findings
            for each in root.whole()
            if each.check.id == fault.check and about(fault, each)
        ]
        return not left

    try:
        wait_until(is_gone, "the fault to end", NAMED_S, 1.0)
    except UnavailableError:
        pytest.fail("\n".join(map(str, left)))


# Of the whole cluster


def test_a_server_without_the_right_to_delegate(cluster):
    cluster.shell("kubectl delete clusterrolebinding gpuscale-metrics-api-delegator")
    finding = cluster.named("server-lacks-right")
    assert "lacks system:auth-delegator" in finding.what
    cluster.shell(finding.fix.command)

    def is_gone():
        return not any(each.check.id == "server-lacks-right" for each in cluster.report().findings)

    wait_until(is_gone, "the right to be back", LIMIT_S)


def test_an_agent_whose_port_is_taken_says_so_itself(cluster):
    cluster.shell("""
pod=$(kubectl get pods -n gpuscale -l app.kubernetes.io/component=node-agent -o name | head -1)
kubectl patch -n gpuscale --subresource=status --type=merge $pod -p '{"status":{"containerStatuses":[{
"name":"agent","ready":false,"started":false,"restartCount":9,"image":"none","imageID":"","state":{"waiting":{"reason":
"CrashLoopBackOff","message":"back-off 5m0s restarting failed container"}},"lastState":{"terminated":{
"exitCode":1,"reason":"Error","message":"listen tcp :9400: bind: address already in use"}}}],
"conditions":[{"type":"Ready","status":"False"},{"type":"ContainersReady","status":"False"}]}}'""")
    finding = cluster.named("agent-not-ready")
    assert "bind: address already in use" in finding.evidence
    assert "Another program has the port" in finding.fix.say
    cluster.shell(
        "kubectl delete pods -n gpuscale -l app.kubernetes.io/component=node-agent --wait=false"
    )


def test_a_frozen_agent_is_named_and_not_the_network(cluster):
    def is_well():
        return not any("agent" in each.check.id for each in cluster.report().findings)

    wait_until(is_well, "the agent to be ready again", LIMIT_S)
    part = "app.kubernetes.io/component=node-agent"
    (pod,) = cluster.plane.get("pods", "-n", "gpuscale", "-l", part)["items"]
    cluster.agent_address = pod["status"]["podIP"]
    # The process of a component is its supervisor; the agent is its child.
    children = Path(f"/proc/{cluster.agent.pid}/task/{cluster.agent.pid}/children").read_text()
    agent = int(children.split()[0])
    os.kill(agent, signal.SIGSTOP)
    cluster.up = 0
    try:
        finding = cluster.named("agent-silent")
        assert "neither here nor Prometheus" in finding.what
        roots = {each.check.id for each in cluster.report().findings}
        assert not roots & {"agent-unreachable", "target-down", "no-value"}
    finally:
        os.kill(agent, signal.SIGCONT)
        cluster.up = 1


def test_a_prometheus_that_is_no_service_of_the_cluster_was_not_looked_at(cluster):
    managed = "https://aps-workspaces.eu-west-1.amazonaws.com/workspaces/ws-1"
    adapter = deployment("prometheus-adapter", resources={}, args=[f"--prometheus-url={managed}"])
    with cluster.objects(adapter):
        report = cluster.report(prometheus_url=None)
        code, shown = cluster.run_plain()
    (unseen,) = (each for each in report.unseen if each.hop == "Prometheus")
    assert f"uses {managed}, which is no Service of this cluster" in unseen.why
    assert "--prometheus-url" in unseen.fix.say
    assert "Prometheus: not looked at" in shown, (code, shown)
    assert "Prometheus: nothing wrong" not in shown
    document = json.loads(json.dumps(chain_document(report)))
    assert {each["hop"] for each in document["notLookedAt"]} >= {"Prometheus"}


def test_a_pool_at_zero_is_told_by_karpenters_own_words_and_its_fix_ends_it(cluster):
    cluster.run_in("pool", POOL_AT_ZERO)
    try:
        finding = cluster.named("node-pool-refuses", "deployment/pool/web")
        assert "NodePool h100: did not tolerate taint" in finding.what
        assert not [each for each in cluster.causes("pool") if each.check.id == "no-matching-node"]
        cluster.shell(finding.fix.command)

        def is_gone():
            found = {each.check.id for each in cluster.causes("pool")}
            return not found & {"node-pool-refuses", "no-matching-node", "taint-not-tolerated"}

        wait_until(is_gone, "Karpenter's refusal to be of the past", LIMIT_S)
        (pod, *_) = cluster.plane.get("pods", "-n", "pool", "-l", "app=web")["items"]
        assert {"key": "example.com/h100", "operator": "Exists", "effect": "NoSchedule"} in (
            pod["spec"]["tolerations"]
        )
    finally:
        cluster.shell("kubectl delete namespace pool --wait=false; kubectl delete nodepool h100")


def test_a_node_that_is_being_removed_is_named_and_never_tolerated(cluster):
    cluster.shell("kubectl taint node gpu-1 ToBeDeletedByClusterAutoscaler=1732640000:NoSchedule")
    try:
        finding = cluster.named("gpu-node-out-of-use", "node/gpu-1")
        assert "is being removed" in finding.what
        told = [each for root in cluster.report().findings for each in root.whole()]
        texts = [each.fix.command for one in told for each in (one, *one.same)]
        assert not [each for each in texts if "ToBeDeleted" in each]
    finally:
        cluster.shell("kubectl taint node gpu-1 ToBeDeletedByClusterAutoscaler-")


def test_two_hpas_with_two_causes_show_two(cluster):
    name = "selectors"
    cluster.shell(f"kubectl create namespace {name}")
    cluster.run_in(
        name,
        """workload a; workload b
        patch hpa/a '{"spec":{"metrics":[{"type":"External","external":{"metric":{"name":"queue"},
        "target":{"type":"AverageValue","averageValue":"30"}}}]}}'
        patch hpa/b '{"spec":{"metrics":[{"type":"Pods","pods":{"metric":{"name":"DCGM_FI_DEV_GPU_UTIL",
        "selector":{"matchLabels":{"modelName":"A100"}}},"target":{"type":"AverageValue","averageValue":"60"}}}]}}'""",
    )
    try:
        finding = cluster.named("no-metrics-api", "external.metrics.k8s.io")
        assert "external rule that gives queue" in finding.fix.say

        def are_two():
            roots = {(each.check.id, each.where) for each in cluster.report().findings}
            return ("no-value", f"hpa/{name}/b") in roots

        wait_until(are_two, "the second cause beside the first", LIMIT_S)
    finally:
        cluster.shell(f"kubectl delete namespace {name} --wait=false")
