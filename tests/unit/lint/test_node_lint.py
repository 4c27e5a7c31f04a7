"""What `gpuscale lint` reads of nodes: kinds, sets of files, scenarios, instance types of one's own."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from node_lint_cases import LATE, SOLD, hpa, node_pool, pods, sharing, types

from gpuscale.cli.linted import linted
from gpuscale.ops.findings_text import lint_lines
from gpuscale.ops.lint.linting import lint

GROUP = """\
apiVersion: leaderworkerset.x-k8s.io/v1
kind: LeaderWorkerSet
metadata: {name: web}
spec:
  leaderWorkerTemplate:
    size: 3
    LEADER
    workerTemplate: {spec: {containers: [{name: w, resources: {limits: {nvidia.com/gpu: 4}}}]}}
"""
LEADER = (
    "leaderTemplate: {spec: {containers: [{name: l, resources: {limits: {nvidia.com/gpu: 1}}}]}}"
)
SCENARIO = """\
apiVersion: gpuscale.dev/v1alpha1
kind: Scenario
metadata: {name: s}
spec:
  duration: 20m
  manifests: [{file: web.yaml}]
  nodePools:
  - {name: gpu, gpuModel: NVIDIA T4, gpus: 1, cpu: "16", min: 1, max: 3MORE}
  workloads: [{deployment: web, service: {gpuSecondsPerRequest: 0.1}, load: {shape: constant, rate: 8}}]
"""


def found(**files):
    report = lint([(f"{name}.yaml", text) for name, text in files.items()])
    return {each.check.id: each for each in report.findings}


def of_kind(kind, api_version, spec="{}"):
    return f"apiVersion: {api_version}\nkind: {kind}\nmetadata: {{name: x}}\nspec: {spec}\n"


@pytest.mark.parametrize(
    "text",
    [
        of_kind("JobSet", "jobset.x-k8s.io/v1alpha2"),
        of_kind("LeaderWorkerSet", "leaderworkerset.x-k8s.io/v1"),
        of_kind("Job", "batch/v1"),
        of_kind("LocalQueue", "kueue.x-k8s.io/v1beta1"),
        of_kind("ResourceFlavor", "kueue.x-k8s.io/v1beta1"),
        of_kind("DeviceClass", "resource.k8s.io/v1"),
        "apiVersion: eksctl.io/v1alpha5\nkind: ClusterConfig\nmetadata: {name: c}\n",
        "autoDiscovery: {clusterName: c}\nextraArgs: {expander: least-waste}\n",
        pods(),
    ],
)
def test_a_file_about_nodes_alone_is_looked_at(text) -> None:
    report = lint([("a.yaml", text)])
    assert (report.has_checked, report.findings, report.passed_over) == (True, (), ())


def test_the_last_line_counts_objects_of_nodes() -> None:
    *_, last = lint_lines(lint([("p.yaml", node_pool([SOLD]))]))
    assert last == "0 errors, 0 warnings, 0 notes; 0 rules, 0 HPAs and 1 node object in 1 file"


def test_pods_are_found_in_objects_of_any_kind() -> None:
    workers = "{pytorchReplicaSpecs: {Worker: {template: {spec: {containers: [CONTAINER]}}}}}"
    half = "{name: c, resources: {limits: {nvidia.com/gpu: 0.5}}}"
    text = of_kind("PyTorchJob", "kubeflow.org/v1", workers.replace("CONTAINER", half))
    place = found(a=text)["refused-manifest"].where
    assert place.field == (
        "spec.pytorchReplicaSpecs.Worker.template.spec.containers[0].resources.limits.nvidia.com/gpu"
    )


@pytest.mark.parametrize(("leader", "most", "gpus"), [("", 2, 24), (LEADER, 2, 18)])
def test_a_replica_of_a_group_takes_the_gpus_of_all_its_pods(leader, most, gpus) -> None:
    # 3 pods of 4 GPUs a replica; with a leader of its own, 1 and 2 times 4.
    limits = f"  limits: {{nvidia.com/gpu: 17}}\n{LATE}"
    scaled = hpa(most).replace(
        "apps/v1, kind: Deployment", "leaderworkerset.x-k8s.io/v1, kind: LeaderWorkerSet"
    )
    files = {
        "p": node_pool([types("g6.12xlarge", "g6.48xlarge"), SOLD], limits),
        "w": GROUP.replace("LEADER", leader),
        "h": scaled,
    }
    assert f"take {gpus} GPUs" in found(**files)["pools-below-max"].what
    assert "pools-below-max" not in found(
        **{**files, "h": scaled.replace("maxReplicas: 2", "maxReplicas: 1")}
    )


def test_shared_gpus_say_nothing_about_sizes() -> None:
    files = {
        "p": node_pool([types("g6.xlarge"), SOLD], f"  limits: {{nvidia.com/gpu: 1}}\n{LATE}"),
        "w": pods("{limits: {nvidia.com/gpu: 1}}"),
        "h": hpa(4),
    }
    assert "pools-below-max" in found(**files)
    assert "pools-below-max" not in found(**files, c=sharing())


def test_a_part_of_a_gpu_may_have_a_resource_by_a_node_overlay() -> None:
    gpu = pods("{limits: {nvidia.com/gpu: 1}}")
    assert "fits-no-pool" not in found(p=node_pool([types("g6f.4xlarge"), SOLD], LATE), w=gpu)


def lint_scenario(folder, more="", gpus=1, instance_types=None):
    (folder / "s.yaml").write_text(SCENARIO.replace("MORE", more))
    (folder / "web.yaml").write_text(pods(f"{{limits: {{nvidia.com/gpu: {gpus}}}}}"))
    report = linted([str(folder / "s.yaml")], instance_types=instance_types).report
    return {each.check.id: each for each in report.findings}


def test_the_pools_of_a_scenario_count(tmp_path) -> None:
    large = lint_scenario(tmp_path, gpus=2)["fits-no-pool"]
    assert large.where.file.endswith("web.yaml")
    assert "1 × NVIDIA T4, 16 CPUs" in large.what
    assert "fits-no-pool" not in lint_scenario(tmp_path)


@pytest.mark.parametrize(
    ("sharing", "field"),
    [
        ("{timeSlicing: {replicas: 4}}", "timeSlicing.replicas"),  # as the device plugin has it
        ("{strategy: time-slicing, replicas: 4}", "replicas"),
    ],
)
def test_shares_in_a_scenario_are_named(tmp_path, sharing, field) -> None:
    shared = lint_scenario(tmp_path, f", sharing: {sharing}")["shares-unseen"]
    assert shared.where.field == f"spec.nodePools[0].sharing.{field}"


def test_instance_types_of_ones_own_are_known(tmp_path) -> None:
    pool = node_pool([types("m9.large"), SOLD], f"  limits: {{nvidia.com/gpu: 4}}\n{LATE}")
    (tmp_path / "p.yaml").write_text(pool)
    (tmp_path / "w.yaml").write_text(pods("{limits: {nvidia.com/gpu: 2}}"))
    (tmp_path / "t.csv").write_text("name,gpuModel,gpus,cpu,memory\nm9.large,NVIDIA L4,1,4,16Gi\n")
    files = [str(tmp_path / name) for name in ("p.yaml", "w.yaml")]
    ids = {each.check.id for each in linted(files).report.findings}
    assert "fits-no-pool" not in ids
    ids = {each.check.id for each in linted(files, None, str(tmp_path / "t.csv")).report.findings}
    assert "fits-no-pool" in ids
