"""What a rehearsal creates: marked, on its own nodes, without what a cloud would bill."""

import pytest

from gpuscale.base.objects.taints import Taint
from gpuscale.lab.rehearse.manifests import (
    hpa_manifests,
    job_manifest,
    namespace_manifest,
    path_of,
    simulated_node,
    workload_manifests,
)
from gpuscale.lab.rehearse.mark import LABEL, RehearsalMark, rehearsal_id
from gpuscale.lab.rehearse.placing import namespaces, placed
from gpuscale.lab.scenarios import find_setup

MARK = RehearsalMark("demo-1", "rehearsed")
TOLERATION = {"key": LABEL, "operator": "Equal", "value": "demo-1", "effect": "NoSchedule"}


def made(name):
    setup = placed(find_setup(name), MARK)
    return setup, {
        m["kind"] + "/" + m["metadata"]["name"]: m for m in workload_manifests(setup, MARK)
    }


def test_an_id_fits_into_a_label_whatever_the_scenario_is_called() -> None:
    assert rehearsal_id("ack-bert", "f00") == "ack-bert-f00"
    # 63 characters at most, and none of them a dot or dash before the last part
    assert rehearsal_id("a" * 58 + "." + "b" * 4, "f00") == "a" * 58 + "-f00"


def test_a_scenarios_default_namespace_becomes_the_rehearsals_and_others_go_beside_it() -> None:
    assert (MARK.namespace_of("default"), MARK.namespace_of("ml")) == ("rehearsed", "rehearsed-ml")
    assert MARK.key_of("ml/a") == "rehearsed-ml/a"


def test_pods_of_a_deployment_go_to_the_rehearsals_nodes_only() -> None:
    _, objects = made("eks-vision")
    deployment = objects["Deployment/vision-api"]
    assert deployment["metadata"]["namespace"] == "rehearsed"
    assert deployment["metadata"]["labels"][LABEL] == "demo-1"
    template = deployment["spec"]["template"]
    assert template["metadata"]["labels"] == {"app": "vision-api", LABEL: "demo-1"}
    assert template["spec"]["nodeSelector"] == {"accelerator": "nvidia-gpu", LABEL: "demo-1"}
    assert template["spec"]["tolerations"] == [TOLERATION]


def test_a_scenario_is_not_changed_by_being_rehearsed() -> None:
    setup = find_setup("eks-vision")
    before = repr(setup.manifests)
    list(workload_manifests(placed(setup, MARK), MARK))
    assert repr(setup.manifests) == before


def test_a_load_balancer_is_a_plain_service() -> None:
    _, objects = made("ack-bert")
    service = objects["Service/bert-intent-detection-svc"]
    assert service["spec"] == {
        "selector": {"app": "bert-intent-detection"},
        "ports": [{"protocol": "TCP", "name": "http", "port": 80, "targetPort": 80}],
    }


def test_the_service_that_object_metrics_describe_is_there() -> None:
    setup, objects = made("eks-vision")
    assert setup.pipeline.agent_namespace == "rehearsed"
    assert objects["Service/dcgm-exporter"]["metadata"]["namespace"] == "rehearsed"


@pytest.mark.parametrize("name", ["ack-bert", "ack-bert-v2beta1", "eks-vision"])
def test_hpas_of_every_version_are_created_as_v2(name: str) -> None:
    setup = placed(find_setup(name), MARK)
    (hpa,) = hpa_manifests(setup, MARK)
    assert hpa["apiVersion"] == "autoscaling/v2"
    assert hpa["metadata"]["labels"] == {LABEL: "demo-1"}
    assert path_of(hpa) == "/apis/autoscaling/v2/namespaces/rehearsed/horizontalpodautoscalers"


def test_each_submission_of_a_job_is_a_job_of_its_own() -> None:
    setup = placed(find_setup("aks-mnist-jobs"), MARK)
    manifests = [job_manifest(run, setup, MARK) for run in setup.jobs]
    assert len(manifests) == len({each["metadata"]["name"] for each in manifests}) == 20
    spec = manifests[0]["spec"]["template"]["spec"]
    assert [each["key"] for each in spec["tolerations"]] == ["sku", LABEL]
    assert spec["nodeSelector"] == {LABEL: "demo-1"}


def test_a_node_is_the_pools_with_the_mark_and_no_operating_system() -> None:
    setup = placed(find_setup("aks-mnist-jobs"), MARK)
    node = simulated_node("n", setup.pools[0], setup.pools[0].machine, MARK)
    # Its GPUs come with the device plugin.
    assert (node.gpus, node.cpu, node.memory, node.os) == (0, "6", "56Gi", "")
    assert node.taints == (Taint("sku", "gpu"), Taint(LABEL, "demo-1"))
    assert node.labels[LABEL] == node.marks[LABEL] == "demo-1"


def test_namespaces_are_those_of_the_objects() -> None:
    setup = placed(find_setup("eks-vision"), MARK)
    assert namespaces(setup) == ("rehearsed",)
    assert namespace_manifest("rehearsed", MARK)["metadata"]["labels"] == {LABEL: "demo-1"}
