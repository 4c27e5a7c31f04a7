"""`gpuscale tune` of a scenario with several workloads: one answer for all of them, and one file of HPAs."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from gpuscale.base.documents.documents import dump_documents, load_documents
from gpuscale.base.errors import UsageError
from gpuscale.lab.plan.promise import Promise
from gpuscale.lab.scenarios import find_setup
from gpuscale.lab.tuning import Overrides, TuningRequest, answer_together, fleet_text, of_fleet

RULES = """\
rules:
- seriesQuery: DCGM_FI_DEV_GPU_UTIL{exported_pod!=""}
  resources:
    overrides: {exported_namespace: {resource: namespace}, exported_pod: {resource: pod}}
  metricsQuery: avg(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)
"""
SCENARIO = """\
apiVersion: gpuscale.dev/v1alpha1
kind: Scenario
metadata: {name: shop}
spec:
  duration: 6h
  manifests: [{file: shop.yaml}]
  rules: {file: rules.yaml}
  nodePools:
  - {name: gpu, gpuModel: NVIDIA L4, gpus: 4, min: 3, max: 20, cpu: "64", memory: 256Gi,
     provisioningTime: 60s, pricePerHour: 2}
  nodeAutoscaler: {unneededTime: 10m, delayAfterAdd: 10m}
  workloads:
"""
WORKLOAD = """\
  - deployment: {name}
    imagePull: 0s
    startup: 15s
    service: {{gpuSecondsPerRequest: 1, concurrency: 1}}
    load: {{shape: constant, rate: {rate}}}
"""


def manifests(name: str, gpus: int, *, has_hpa: bool = True) -> list[dict[str, object]]:
    """Return a Deployment, and its HPA at half of what a pod can do."""
    labels = {"app": name}
    container = {
        "name": "main",
        "image": "i",
        "resources": {"limits": {"nvidia.com/gpu": gpus, "cpu": gpus}},
    }
    template = {"metadata": {"labels": labels}, "spec": {"containers": [container]}}
    target = {"type": "AverageValue", "averageValue": "50"}
    metric = {"metric": {"name": "DCGM_FI_DEV_GPU_UTIL"}, "target": target}
    found: list[dict[str, object]] = [
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": name},
            "spec": {"replicas": 2, "selector": {"matchLabels": labels}, "template": template},
        },
        {
            "apiVersion": "autoscaling/v2",
            "kind": "HorizontalPodAutoscaler",
            "metadata": {"name": name},
            "spec": {
                "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name},
                "minReplicas": 1,
                "maxReplicas": 12,
                "metrics": [{"type": "Pods", "pods": metric}],
            },
        },
    ]
    return found if has_hpa else found[:1]


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    """Return a scenario's file: two services with HPAs, and one of two pods that stay as they are."""
    (tmp_path / "rules.yaml").write_text(RULES)
    (tmp_path / "shop.yaml").write_text(
        dump_documents(
            [*manifests("chat", 1), *manifests("code", 2), *manifests("batch", 1, has_hpa=False)]
        )
    )
    loads = (("chat", 3.4), ("code", 3.6), ("batch", 1.0))
    text = SCENARIO + "".join(WORKLOAD.format(name=name, rate=rate) for name, rate in loads)
    file = tmp_path / "shop-scenario.yaml"
    file.write_text(text)
    return file


def asked(**more: object) -> TuningRequest:
    """Return the request of a short search."""
    return TuningRequest((), Promise(), 0.33, 16, 1, 1, **more)  # type: ignore[arg-type]


def test_all_workloads_are_tuned_on_the_nodes_that_they_share(shop):
    found = of_fleet(find_setup(str(shop)), "shop", (), Overrides())
    result = answer_together(found, asked())
    today, alone, together = result.document["rows"]
    # At half a pod's work each: 7 pods of one GPU, 4 of two and 2 more are 17 GPUs, on 5 nodes of 4. The work
    # of 3.4 and 1.8 pods needs 4 and 2: with the 2 that stay 10 GPUs, on 3 nodes.
    assert today["nodeHours"] == pytest.approx(5 * 6, abs=0.5)
    assert together["nodeHours"] == pytest.approx(3 * 6, abs=0.5)
    assert together["nodeHours"] <= alone["nodeHours"]
    assert together["cost"] == pytest.approx(2 * together["nodeHours"])
    assert result.is_gain
    assert [each["isTuned"] for each in together["workloads"]] == [True, True, False]
    before, after = (each["workloads"][2] for each in (today, together))
    assert before["settings"] == after["settings"] == {"replicas": 2}
    text = fleet_text(result)
    assert text.startswith("shop: 6h of demand of 3 workloads on 1 node pool.")
    assert "keep short=0.5%" in text
    assert "2 of 2" in text
    assert "of the node-hours are saved" in text


def test_one_workload_of_several_is_tuned_beside_the_others(shop):
    setup = find_setup(str(shop))
    found = of_fleet(setup, "shop", ("chat", "batch"), Overrides())
    assert [each.is_tuned for each in found.workloads] == [True, False, False]
    result = answer_together(found, asked(has_nodes=False))
    today, _, together = result.document["rows"]
    assert together["workloads"][1]["settings"] == today["workloads"][1]["settings"]
    pools = [each["nodePools"][0] for each in (today, together)]
    assert [each["min"] for each in pools] == [3, 3]
    assert pools[0]["unneededSeconds"] == pools[1]["unneededSeconds"] == 600


def test_nodes_that_are_reserved_are_paid_for_anyway(shop):
    type_of_nodes = (
        "instanceTypes: [{name: l4, gpuModel: NVIDIA L4, gpus: 4, cpu: '64', memory: 256Gi, offerings: ["
        "{capacityType: reserved, count: 2, pricePerHour: 1}, {pricePerHour: 3}]}]"
    )
    text = shop.read_text().replace(
        'gpuModel: NVIDIA L4, gpus: 4, min: 3, max: 20, cpu: "64", memory: 256Gi,',
        f"{type_of_nodes}, min: 3, max: 20,",
    )
    shop.write_text(text.replace("provisioningTime: 60s, pricePerHour: 2", "provisioningTime: 60s"))
    found = of_fleet(find_setup(str(shop)), "shop", (), Overrides())
    (pool,) = found.pools
    assert (pool.reserved, pool.price_per_hour) == (2, 3)
    # Of three nodes, one is not reserved: 6 hours at 3.
    _, _, together = answer_together(found, asked()).document["rows"]
    assert together["cost"] == pytest.approx(6 * 3, abs=1)


def test_what_cannot_be_is_said(shop):
    setup = find_setup(str(shop))
    for given, workloads, said in (
        (Overrides(gpus_per_node=2), (), "--gpus-per-node: found several workloads, expected one"),
        (Overrides(), ("none", "chat"), "found none, expected --workload with one of"),
        (Overrides(), ("batch",), "found no HPA of default/batch, expected one"),
    ):
        with pytest.raises(UsageError, match=said):
            of_fleet(setup, "shop", workloads, given)
    with pytest.raises(UsageError, match="found ScaledObjects"):
        of_fleet(find_setup("in-flight-credit"), "in-flight-credit", (), Overrides())
    found = of_fleet(setup, "shop", (), Overrides())
    with pytest.raises(UsageError, match="--keep: found 'window', expected of: target"):
        answer_together(found, asked(kept=("window",)))


def test_all_hpas_are_written_into_one_file_and_changed_there(shop):
    def tune(*words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "gpuscale.cli.main", "tune", shop.name, *words]
        return subprocess.run(command, cwd=shop.parent, capture_output=True, text=True, check=False)

    done = tune("--tries=16", "--write=hpas.yaml", "-o", "json", "--output-file=run.json")
    assert done.returncode == 0, done.stderr
    together = json.loads(done.stdout)["rows"][2]["workloads"]
    assert json.loads((shop.parent / "run.json").read_text()) == json.loads(done.stdout)
    written = load_documents((shop.parent / "hpas.yaml").read_text(), "hpas.yaml")
    assert [each.data["metadata"]["name"] for each in written] == ["chat", "code"]
    for each, tuned in zip(written, together, strict=False):
        target = each.data["spec"]["metrics"][0]["pods"]["target"]["averageValue"]
        assert float(target) == pytest.approx(100 * tuned["settings"]["target"])
    # The manifests that the scenario has are changed in their place, where --force says so.
    done = tune("--tries=16", "--write=shop.yaml", "--force")
    assert done.returncode == 0, done.stderr
    after = load_documents((shop.parent / "shop.yaml").read_text(), "shop.yaml")
    assert [each.data["kind"][:10] for each in after].count("Horizontal") == 2
    assert [after[at].data["spec"]["metrics"] for at in (1, 3)] == [
        each.data["spec"]["metrics"] for each in written
    ]
    refused = tune("--state=x")
    assert refused.returncode == 2
    assert "--state: found several workloads, expected one with --workload" in refused.stderr
