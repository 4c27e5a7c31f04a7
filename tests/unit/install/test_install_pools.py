"""Node pools: scripts run against stand-ins of the clouds' programs, files are read back."""

import json
import os
import subprocess
from pathlib import Path

import pytest
from install_values import scale, values

from gpuscale.base.documents.documents import load_documents
from gpuscale.ops.install.noted import notes
from gpuscale.ops.install.rendering import pool_files

POOL = {
    "cluster": "prod",
    "region": "us-east-1",
    "zone": "us-east-1a",
    "instanceType": "g6.2xlarge",
    "gpu": "nvidia-l4",
    "maxNodes": 8,
}
AKS = {**POOL, "resourceGroup": "rg", "instanceType": "Standard_NC24ads_A100_v4", "zone": "1"}
ACK = {**POOL, "networks": ["vsw-1"], "instanceType": "ecs.gn7i-c8g1.2xlarge"}


def files(provider, pool=POOL, **spec):
    found = values(provider=provider, nodePool=pool, **spec)
    return {each.name: each.text for each in pool_files(found)}


def data(text):
    return [each.data for each in load_documents(text, "pool.yaml")]


@pytest.fixture
def called(tmp_path: Path):
    """A function that runs a script and returns what it called the clouds' programs with."""
    log, programs = tmp_path / "calls", tmp_path / "bin"
    programs.mkdir()

    def run(texts, name, *arguments, exists=False):
        for program in ("az", "gcloud", "aliyun"):
            path = programs / program
            shows = f'[ "$3" = show ] && exit {0 if exists else 1}'
            path.write_text(
                f'#!/bin/sh\n{shows}\nfor a in "$0" "$@"; do echo "$a" >> {log}; done\nexit 0\n'
            )
            path.chmod(0o755)
        for each, text in texts.items():
            (tmp_path / each).write_text(text)
        log.write_text("")
        command = ["bash", tmp_path / name, *arguments]
        environment = {"PATH": f"{programs}:{os.environ['PATH']}"}
        result = subprocess.run(command, env=environment, capture_output=True, text=True)
        assert result.returncode == 0, result.stderr
        return log.read_text().splitlines()[1:]

    return run


def option(words, name):
    return words[words.index(name) + 1]


def test_aks_adds_a_pool_that_grows_from_nothing(called) -> None:
    words = called(files("aks", AKS), "node-pool.sh")
    assert words[:3] == ["aks", "nodepool", "add"]
    assert option(words, "--node-vm-size") == "Standard_NC24ads_A100_v4"
    assert (option(words, "--min-count"), option(words, "--max-count")) == ("0", "8")
    assert option(words, "--node-taints") == "nvidia.com/gpu=present:NoSchedule"
    assert "--enable-cluster-autoscaler" in words
    assert not {"--aks-custom-headers", "--skip-gpu-driver-install"} & set(words)


def test_aks_leaves_a_pool_that_is_there(called) -> None:
    assert called(files("aks", AKS), "node-pool.sh", exists=True) == []


def test_aks_spot_machines_are_deleted_and_not_kept(called) -> None:
    words = called(files("aks", {**AKS, "spot": True}), "node-pool.sh")
    assert option(words, "--priority") == "Spot"
    assert option(words, "--eviction-policy") == "Delete"


def test_aks_autoscaler_waits_longer_than_an_a100_takes(called) -> None:
    words = called(files("aks", AKS), "cluster-autoscaler.sh")
    assert words[words.index("--cluster-autoscaler-profile") + 1 :] == [
        "expander=least-waste",
        "max-node-provision-time=25m",
    ]


def test_eks_tells_the_autoscaler_at_zero_nodes_what_a_node_will_have() -> None:
    (config,) = data(files("eks")["node-pool.yaml"])
    (group,) = config["managedNodeGroups"]
    assert group["labels"]["k8s.amazonaws.com/accelerator"] == "nvidia-l4"
    template = "k8s.io/cluster-autoscaler/node-template"
    assert group["tags"] == {
        f"{template}/label/k8s.amazonaws.com/accelerator": "nvidia-l4",
        f"{template}/resources/nvidia.com/gpu": "1",
        # A bare value is ignored: the effect has to be there.
        f"{template}/taint/nvidia.com/gpu": "present:NoSchedule",
    }
    assert group["propagateASGTags"] is True
    assert group["availabilityZones"] == ["us-east-1a"]


def test_eks_tags_count_the_shares_of_time_slicing() -> None:
    plugin = {"enabled": True, "replicas": 4}
    (config,) = data(files("eks", {**POOL, "gpus": 2}, devicePlugin=plugin)["node-pool.yaml"])
    tags = config["managedNodeGroups"][0]["tags"]
    assert tags["k8s.io/cluster-autoscaler/node-template/resources/nvidia.com/gpu"] == "8"


@pytest.mark.parametrize(
    ("provider", "pool", "group", "kind"),
    [
        ("eks", POOL, "karpenter.k8s.aws", "EC2NodeClass"),
        ("aks", AKS, "karpenter.azure.com", "AKSNodeClass"),
    ],
)
def test_karpenters_pool_refers_to_its_class(provider: str, pool, group: str, kind: str) -> None:
    given = {**pool, "autoscaler": "karpenter", "gpus": 2}
    node_pool, node_class = data(files(provider, given)["node-pool.yaml"])
    assert node_class["apiVersion"].split("/")[0] == group
    template = node_pool["spec"]["template"]["spec"]
    reference = {"group": group, "kind": kind, "name": node_class["metadata"]["name"]}
    assert template["nodeClassRef"] == reference
    assert node_pool["spec"]["limits"] == {"nvidia.com/gpu": "16"}  # 8 nodes of 2 GPUs
    values_of = [value for each in template["requirements"] for value in each["values"]]
    assert all(isinstance(value, str) for value in values_of)
    assert node_pool["spec"]["disruption"]["consolidateAfter"] == "5m"


def test_gke_brings_taint_driver_and_plugin_itself(called) -> None:
    words = called(files("gke"), "node-pool.sh")
    assert words[:4] == ["container", "node-pools", "create", "gpu"]
    assert option(words, "--accelerator") == "type=nvidia-l4,count=1,gpu-driver-version=latest"
    assert option(words, "--total-max-nodes") == "8"
    assert "--node-taints" not in words


def test_gke_shares_gpus_by_the_pool(called) -> None:
    words = called(files("gke", devicePlugin={"replicas": 4}), "node-pool.sh")
    assert option(words, "--accelerator").endswith(
        "gpu-sharing-strategy=time-sharing,max-shared-clients-per-gpu=4"
    )


READY = "startup-taint.cluster-autoscaler.kubernetes.io/gpuscale"
GATED = {"agent": {"readyTaint": READY}}


def test_aks_gets_a_taint_that_it_lets_others_take_off(called) -> None:
    """AKS puts --node-taints back on; those of --node-init-taints are set once."""
    words = called(files("aks", AKS, **GATED), "node-pool.sh")
    assert option(words, "--node-init-taints") == f"{READY}=true:NoSchedule"
    assert option(words, "--node-taints") == "nvidia.com/gpu=present:NoSchedule"


def test_gke_gets_a_taint_that_its_autoscaler_knows_by_the_prefix(called) -> None:
    words = called(files("gke", **GATED), "node-pool.sh")
    assert option(words, "--node-taints") == f"{READY}=true:NoSchedule"


def test_ack_gets_the_taint_beside_the_one_that_stays(called) -> None:
    words = called(files("ack", ACK, **GATED), "node-pool.sh", "c123")
    body = json.loads("\n".join(words[words.index("--body") + 1 :]))
    assert [each["key"] for each in body["kubernetes_config"]["taints"]] == [
        "nvidia.com/gpu",
        READY,
    ]


@pytest.mark.parametrize(
    ("key", "told"),
    [(READY, {}), ("x.dev/gpu-not-ready", {"startup-taint": "x.dev/gpu-not-ready"})],
)
def test_eks_does_not_tell_the_autoscaler_to_expect_the_taint(key: str, told) -> None:
    """A taint of the template keeps a pool at zero; one without the prefix has to be named as start-up."""
    found = files("eks", agent={"readyTaint": key})
    (config,) = data(found["node-pool.yaml"])
    (group,) = config["managedNodeGroups"]
    assert [each["key"] for each in group["taints"]] == ["nvidia.com/gpu", key]
    assert not any(key in tag for tag in group["tags"])
    (chart,) = data(found["cluster-autoscaler-values.yaml"])
    flags = chart["extraArgs"]
    assert {name: flags[name] for name in flags if name == "startup-taint"} == told


@pytest.mark.parametrize(("provider", "pool"), [("eks", POOL), ("aks", AKS)])
@pytest.mark.parametrize("key", [READY, "x.dev/gpu-not-ready"])
def test_karpenter_waits_for_its_start_up_taints(provider: str, pool, key: str) -> None:
    given = {**pool, "autoscaler": "karpenter"}
    node_pool, _ = data(files(provider, given, agent={"readyTaint": key})["node-pool.yaml"])
    spec = node_pool["spec"]["template"]["spec"]
    assert spec["startupTaints"] == [{"key": key, "value": "true", "effect": "NoSchedule"}]
    assert [each["key"] for each in spec["taints"]] == ["nvidia.com/gpu"]


@pytest.mark.parametrize("provider", ["aks", "gke", "ack"])
def test_a_key_that_a_managed_autoscaler_takes_for_one_that_stays_is_refused(provider: str) -> None:
    pool = {"aks": AKS, "ack": ACK}.get(provider, POOL)
    with pytest.raises(ValueError, match="expected a key that begins with startup-taint"):
        files(provider, pool, agent={"readyTaint": "x.dev/gpu-not-ready"})


@pytest.mark.parametrize(
    "spec", [{}, {"agent": {"enabled": False, "readyTaint": READY}}], ids=["unset", "no agent"]
)
def test_without_an_agent_that_takes_it_off_there_is_no_such_taint(called, spec) -> None:
    assert "--node-init-taints" not in called(files("aks", AKS, **spec), "node-pool.sh")
    assert "startupTaints" not in str(files("eks", {**POOL, "autoscaler": "karpenter"}, **spec))


def test_ack_asks_for_a_scaling_group_of_gpus(called) -> None:
    words = called(files("ack", ACK), "node-pool.sh", "c123")
    assert words[:3] == ["cs", "POST", "/clusters/c123/nodepools"]
    body = json.loads("\n".join(words[words.index("--body") + 1 :]))
    assert body["auto_scaling"] == {
        "enable": True,
        "type": "gpu",
        "min_instances": 0,
        "max_instances": 8,
    }
    assert body["scaling_group"]["vswitch_ids"] == ["vsw-1"]


@pytest.mark.parametrize(
    ("spec", "told"),
    [
        pytest.param({"nodePool": POOL, "provider": "eks"}, [], id="8 pods, 8 GPUs"),
        pytest.param(
            {"nodePool": {**POOL, "maxNodes": 2}, "provider": "eks"},
            ["scale asks for up to 8 pods, and nodePool gpu has GPUs for 2"],
            id="too few nodes",
        ),
        pytest.param(
            {"nodePool": {**POOL, "autoscaler": "karpenter", "minNodes": 1}, "provider": "eks"},
            ["nodePool.minNodes 1 has no effect with autoscaler: karpenter"],
            id="a minimum under Karpenter",
        ),
        pytest.param(
            {"devicePlugin": {"enabled": True, "replicas": 2}},
            ["gpu-utilization has no pods"],
            id="shared GPUs",
        ),
        pytest.param(GATED, [f"have to tolerate {READY}"], id="start-up taint"),
        pytest.param({**GATED, "devicePlugin": {"enabled": True}}, [], id="and its plugin"),
        pytest.param({"provider": "gke"}, ["needs deviceAccess: host"], id="gke"),
        pytest.param({"metricsApi": {"enabled": False}}, ["that the cluster has"], id="no API"),
        pytest.param(
            {"scale": [scale(autoscaler="keda")], "metricsApi": {"enabled": False}}, [], id="keda"
        ),
    ],
)
def test_what_values_allow_but_may_not_mean_is_reported(spec, told) -> None:
    found = notes(values(**spec))
    assert len(found) == len(told)
    assert all(each in text for each, text in zip(told, found, strict=True))
