"""The taint of new nodes on a real control plane: an agent takes it off its own node, and may do no more."""

import asyncio
import json
import time
from pathlib import Path

import pytest

from gpuscale.agent.attribution.settings import KubeletSettings
from gpuscale.agent.exporter.settings import ReadyTaint
from gpuscale.agent.exporter.taint_remover import TaintRemover
from gpuscale.base.clock import WallClock
from gpuscale.kube.client.client import KubeClient
from gpuscale.kube.client.errors import ApiStatusError
from gpuscale.kube.client.settings import KubeSettings
from gpuscale.ops.install.rendering import manifest, outline
from gpuscale.ops.install.values import Values

pytestmark = [pytest.mark.cluster, pytest.mark.xdist_group("cluster"), pytest.mark.timeout(600)]

KEY = "startup-taint.cluster-autoscaler.kubernetes.io/gpuscale"
OURS = {"key": KEY, "value": "true", "effect": "NoSchedule"}
POOLS = {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}
NAMESPACE, ACCOUNT = "gpuscale", "gpuscale-node-agent"
NODES = "/api/v1/nodes"
FORBIDDEN = 403
DRY = "?dryRun=All"


@pytest.fixture(scope="module", autouse=True)
def installed(plane):
    """The account with its role and policy, and a pod of it on n1; no kubelet runs the pod."""
    spec = {
        "agent": {"readyTaint": KEY},
        "metricsApi": {"enabled": False},
        "prometheus": {"kind": "plain", "url": "http://p:9090"},
    }
    kinds = ("Namespace", "ServiceAccount", "ClusterRole", "ClusterRoleBinding")
    found = outline(Values.model_validate({"spec": spec}))
    plane.apply(
        manifest(
            [
                each
                for each in found
                if each["kind"] in kinds or each["kind"].startswith("ValidatingAdmission")
            ]
        )
    )
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "agent", "namespace": NAMESPACE},
        "spec": {
            "nodeName": "n1",
            "serviceAccountName": ACCOUNT,
            "automountServiceAccountToken": False,
            "tolerations": [{"operator": "Exists"}],
            "containers": [{"name": "agent", "image": "none"}],
        },
    }
    plane.apply(json.dumps(pod))


@pytest.fixture
async def admin(plane):
    async with plane.client() as client:
        for name in ("n1", "n2"):
            if await client.find(f"{NODES}/{name}") is None:
                body = {"kind": "Node", "apiVersion": "v1", "metadata": {"name": name}}
                await client.create(NODES, body)
            await client.patch(f"{NODES}/{name}", {"spec": {"taints": [POOLS, OURS]}})
            amounts = {"nvidia.com/gpu": "8"}
            status = {"status": {"capacity": amounts, "allocatable": amounts}}
            await client.patch(f"{NODES}/{name}/status", status)
        yield client


async def token(admin: KubeClient, *, of_pod: bool = True) -> str:
    spec = {}
    if of_pod:
        pod = await admin.get(f"/api/v1/namespaces/{NAMESPACE}/pods/agent")
        uid = pod["metadata"]["uid"]
        spec["boundObjectRef"] = {"kind": "Pod", "apiVersion": "v1", "name": "agent", "uid": uid}
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
    path = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/{ACCOUNT}/token"
    return (await admin.create(path, body))["status"]["token"]


def access(plane, folder: Path, text: str) -> KubeSettings:
    config = {
        "current-context": "c",
        "clusters": [
            {
                "name": "c",
                "cluster": {"server": plane.url, "certificate-authority": str(plane.ca)},
            }
        ],
        "users": [{"name": "u", "user": {"token": text}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
    }
    path = folder / "kubeconfig"
    path.write_text(json.dumps(config))
    return KubeSettings(kubeconfig=path)


async def keys(admin: KubeClient, name: str) -> set[str]:
    taints = (await admin.get(f"{NODES}/{name}"))["spec"].get("taints") or []
    return {each["key"] for each in taints if not each["key"].startswith("node.kubernetes.io/")}


async def without(admin: KubeClient, name: str, key: str):
    """A JSON patch that takes a taint off a node."""
    taints = (await admin.get(f"{NODES}/{name}"))["spec"]["taints"]
    rest = [each for each in taints if each["key"] != key]
    return [{"op": "replace", "path": "/spec/taints", "value": rest}]


async def refusal(agent: KubeClient, path: str, operations) -> str:
    """What the server says; empty where it would have done it."""
    try:
        await agent.json_patch(path + DRY, operations)
    except ApiStatusError as error:
        return error.said if error.code == FORBIDDEN else f"{error.code}"
    return ""


async def in_force(admin: KubeClient, agent: KubeClient) -> None:
    """Wait until the policy holds: that takes the API server a moment."""
    patch = await without(admin, "n2", KEY)
    until_s = time.monotonic() + 60
    while not await refusal(agent, f"{NODES}/n2", patch):
        assert time.monotonic() < until_s
        await asyncio.sleep(0.2)


def remover(settings: KubeSettings, node: str) -> TaintRemover:
    taint = ReadyTaint(KEY, node)
    return TaintRemover(taint, settings, KubeletSettings(), lambda: None, WallClock(10.0))


async def test_an_agent_takes_its_taint_off_its_own_node(plane, admin, tmp_path: Path) -> None:
    settings = access(plane, tmp_path, await token(admin))
    async with KubeClient(settings) as agent:
        await in_force(admin, agent)
    async with asyncio.timeout(60):
        await remover(settings, "n1").run()
    assert await keys(admin, "n1") == {"nvidia.com/gpu"}
    assert await keys(admin, "n2") == {"nvidia.com/gpu", KEY}


async def test_it_is_refused_on_another_node(plane, admin, tmp_path: Path) -> None:
    settings = access(plane, tmp_path, await token(admin))
    async with KubeClient(settings) as agent:
        await in_force(admin, agent)
        said = await refusal(agent, f"{NODES}/n2", await without(admin, "n2", KEY))
    assert "a node agent may only change the node that it runs on" in said
    other = remover(settings, "n2")
    task = asyncio.create_task(other.run())
    async with asyncio.timeout(60):
        while not other.status.errors.get("forbidden"):  # noqa: ASYNC110 - until it was refused
            await asyncio.sleep(0.05)
    task.cancel()
    await asyncio.wait({task})
    assert await keys(admin, "n2") == {"nvidia.com/gpu", KEY}


async def test_it_may_change_nothing_else_of_its_node(plane, admin, tmp_path: Path) -> None:
    async with KubeClient(access(plane, tmp_path, await token(admin))) as agent:
        await in_force(admin, agent)
        path = f"{NODES}/n1"
        assert await refusal(agent, path, await without(admin, "n1", KEY)) == ""
        pools = await refusal(agent, path, await without(admin, "n1", "nvidia.com/gpu"))
        assert f"may only take off the taint {KEY}" in pools
        every = [{"op": "remove", "path": "/spec/taints"}]
        assert f"may only take off the taint {KEY}" in await refusal(agent, path, every)
        taint = {"key": "x", "effect": "NoExecute"}
        added = [{"op": "add", "path": "/spec/taints/-", "value": taint}]
        assert f"may only take off the taint {KEY}" in await refusal(agent, path, added)
        ours = await without(admin, "n1", KEY)
        for field, value in (
            ("/spec/unschedulable", True),
            ("/spec/providerID", "aws:///i-1"),
            ("/metadata/labels", {"a": "b"}),
            ("/metadata/annotations", {"a": "b"}),
            ("/metadata/finalizers", ["x.dev/stays"]),
        ):
            change = {"op": "add", "path": field, "value": value}
            assert f"may only take off the taint {KEY}" in await refusal(agent, path, [change])
            said = await refusal(agent, path, [*ours, change])
            assert "a node agent may change nothing else of a node" in said, field
        amounts = [{"op": "add", "path": "/status/capacity/nvidia.com~1gpu", "value": "99"}]
        assert "nodes/status" in await refusal(agent, f"{path}/status", amounts)
        with pytest.raises(ApiStatusError, match="cannot list resource"):
            await agent.get(NODES)


async def test_a_token_of_no_pod_changes_no_node(plane, admin, tmp_path: Path) -> None:
    async with KubeClient(access(plane, tmp_path, await token(admin, of_pod=False))) as agent:
        await in_force(admin, agent)
        said = await refusal(agent, f"{NODES}/n1", await without(admin, "n1", KEY))
    assert "a node agent may only change the node that it runs on" in said


async def test_the_expressions_fit_nodes(admin) -> None:
    """The API server checks their types against those of Nodes, and tells the first doubts in the status."""
    path = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies/gpuscale-node-agent-taint"
    async with asyncio.timeout(60):
        while (status := (await admin.get(path)).get("status", {})).get(  # noqa: ASYNC110 - it waits for the server
            "observedGeneration"
        ) is None:
            await asyncio.sleep(0.2)
    assert status.get("typeChecking", {}).get("expressionWarnings", []) == []


async def test_others_may_change_nodes_as_before(admin) -> None:
    await admin.json_patch(f"{NODES}/n2", await without(admin, "n2", "nvidia.com/gpu"))
    assert await keys(admin, "n2") == {KEY}


async def test_a_test_that_does_not_hold_is_422(admin) -> None:
    test = {"op": "test", "path": "/spec/taints", "value": []}
    with pytest.raises(ApiStatusError) as refused:
        await admin.json_patch(f"{NODES}/n2", [test])
    assert refused.value.code == 422
