"""What lint and the doctor read of a cluster, over HTTP: custom resources, nodes, and what is refused."""

import asyncio
import sys
from pathlib import Path

import pytest
import yaml

sys.path.insert(0, str(Path(__file__).parents[1] / "unit" / "lint"))
from custom_resource_cases import ISVC_KEDA
from scaled_cases import hpa, workload

from gpuscale.base.clock import ManualClock
from gpuscale.kube.client import KubeClient, KubeSettings
from gpuscale.ops.doctor import Gatherer, GatherSettings, diagnose
from gpuscale.ops.doctor.judges import KINDS
from gpuscale.ops.lint import lint
from gpuscale.ops.lint.node_inputs import CUSTOM_KINDS
from gpuscale.testing.api_server import FakeApiServer

PATHS = {each.plural: each.path for each in KINDS}
KSERVE = "serving.kserve.io/v1beta1"
SERVICES = f"/apis/{KSERVE}/inferenceservices"
IGNORED = ISVC_KEDA.replace("    serving.kserve.io/autoscalerClass: keda\n", "")
POOL = """\
apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {name: gpu}
spec:
  limits: {nvidia.com/gpu: 4}
  template:
    spec:
      nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: gpu}
      requirements: [{key: node.kubernetes.io/instance-type, operator: In, values: [g6.4xlarge, g6.8xlarge]}]
"""


def node(gpus):
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": "own"},
        "status": {"allocatable": {"nvidia.com/gpu": str(gpus)}},
    }


def body(text, **more):
    found = yaml.safe_load(text)
    found["metadata"] |= {"namespace": "default", "uid": found["metadata"]["name"], **more}
    return found


def looked(tmp_path, objects, refused=(), served=True):
    """Return what lint gets of a cluster, the doctor's report and the paths that were asked for."""

    async def look():
        async with FakeApiServer() as server:
            server.objects = {
                path: {str(number): each for number, each in enumerate(items)}
                for path, items in {PATHS["nodes"]: [], **objects}.items()
            }
            server.refusals = dict.fromkeys(refused, (403, "not for you"))
            server.others |= {"/readyz": {}, "/apis/autoscaling": {"versions": []}}
            if served:
                group = {"name": "serving.kserve.io", "preferredVersion": {"groupVersion": KSERVE}}
                kinds = [{"name": "inferenceservices", "kind": "InferenceService"}]
                server.others |= {
                    "/apis": {"groups": [group]},
                    f"/apis/{KSERVE}": {"resources": kinds},
                }
            async with KubeClient(KubeSettings(kubeconfig=server.kubeconfig(tmp_path))) as client:
                gatherer = Gatherer(client, ManualClock(0), GatherSettings())
                live = await gatherer.objects()
                paths = {path for path, *_ in server.requests}
                return live, diagnose(await gatherer.snapshot()), paths

    return asyncio.run(look())


def ids(report):
    return {each.check.id for root in report.findings for each in root.whole()}


def test_custom_resources_are_read_as_files_are(tmp_path) -> None:
    live, doctor, _ = looked(tmp_path, {SERVICES: [body(IGNORED)]})
    (found,) = [
        each for each in lint((), cluster=live).findings if each.check.id == "ignored-field"
    ]
    assert found.where.file == "InferenceService default/phi"
    assert "ignored-field" in ids(lint([("isvc.yaml", IGNORED)]))
    assert "ignored-field" in ids(doctor)


def test_the_role_in_the_docs_has_all_custom_resources() -> None:
    text = (Path(__file__).parents[2] / "docs" / "examples" / "doctor-role.yaml").read_text()
    rules = yaml.safe_load(text)["rules"]
    for group, kind in CUSTOM_KINDS - {("eksctl.io", "ClusterConfig")}:  # eksctl's own file
        listed = {
            resource
            for each in rules
            if group in each["apiGroups"] and "list" in each["verbs"]
            for resource in each["resources"]
        }
        assert f"{kind.lower()}s".replace("classs", "classes") in listed


def test_what_the_cluster_does_not_serve_is_not_asked_for(tmp_path) -> None:
    live, doctor, paths = looked(tmp_path, {PATHS["nodes"]: []}, served=False)
    assert not [path for path in paths if "kserve" in path]
    assert live.unseen == ()
    assert not [each for each in doctor.unseen if "kserve" in each.about]


def test_what_may_not_be_read_is_said_with_the_right_that_it_takes(tmp_path) -> None:
    live, doctor, _ = looked(tmp_path, {SERVICES: [body(IGNORED)]}, refused=[SERVICES])
    name = "inferenceservices.serving.kserve.io"
    for listed in (live.unseen, doctor.unseen):
        (unseen,) = [each for each in listed if each.about == name]
        assert f"--resource={name}" in unseen.fix.command
    assert "cannot-see" not in ids(doctor)


def test_what_an_operator_has_made_is_not_made_once_more(tmp_path) -> None:
    kind = {"kind": "InferenceService", "name": "phi", "controller": True}
    made = body(
        hpa(name="other", target="apps/v1 Deployment phi-predictor"), ownerReferences=[kind]
    )
    service = body(ISVC_KEDA.replace("keda\n", "hpa\n"))
    live, _, _ = looked(tmp_path, {SERVICES: [service], PATHS["hpas"]: [made]})
    assert "two-hpas" not in ids(lint((), cluster=live))


WEB = body(workload())
ROOM = [
    (4, 0, False),
    (5, 0, True),
    (6, 2, False),
    (7, 2, True),
]
"""maxReplicas, GPUs on nodes of no pool beside the pool's 4, and whether that is too little."""


@pytest.mark.parametrize(("most", "gpus", "is_told"), ROOM)
def test_nodes_and_pools_are_room(tmp_path, most, gpus, is_told) -> None:
    objects = {
        PATHS["nodepools"]: [body(POOL)],
        PATHS["nodes"]: [node(gpus)],
        PATHS["deployments"]: [WEB],
        PATHS["hpas"]: [body(hpa(most=most))],
    }
    live, doctor, _ = looked(tmp_path, objects)
    assert ("pools-below-max" in ids(lint((), cluster=live))) is is_told
    assert ("pools-below-max" in ids(doctor)) is is_told
    # A file is judged over what is there.
    over = lint([("hpa.yaml", hpa(most=most))], cluster=replaced(live))
    assert ("pools-below-max" in ids(over)) is is_told


def replaced(live):
    """Return the cluster without its HPA."""
    kept = [each for each in live.objects if each["kind"] != "HorizontalPodAutoscaler"]
    return type(live)(kept)


@pytest.mark.parametrize("hidden", ["nodes", "autoscaler-status"])
def test_room_that_may_not_be_seen_is_not_judged(tmp_path, hidden) -> None:
    objects = {
        PATHS["nodepools"]: [body(POOL)],
        PATHS["deployments"]: [WEB],
        PATHS["hpas"]: [body(hpa(most=50))],
    }
    live, doctor, _ = looked(tmp_path, objects, refused=[PATHS[hidden]])
    assert "pools-below-max" not in ids(lint((), cluster=live)) | ids(doctor)
    assert hidden in {each.about for each in live.unseen}


def test_rules_that_are_no_yaml_don_t_end_the_look(tmp_path) -> None:
    objects = {PATHS["deployments"]: [WEB], PATHS["hpas"]: [body(hpa(least=8))]}
    live, _, _ = looked(tmp_path, objects)
    broken = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "rules"},
        "data": {"config.yaml": "rules: ["},
    }
    found = ids(lint((), cluster=type(live)([*live.objects, broken])))
    assert found >= {"broken-file", "min-is-max"}
