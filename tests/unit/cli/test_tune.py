"""`gpuscale tune`: what it reads, what it prints, and the manifest that it writes."""

import itertools
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gpuscale.base.documents.documents import load_documents
from gpuscale.base.errors import ConfigError, UsageError
from gpuscale.cli.commands.tuning.writing import tuned_text
from gpuscale.lab.plan.tuning.pooled import on_nodes
from gpuscale.lab.scenarios import find_setup
from gpuscale.lab.sim.simulation import simulate
from gpuscale.lab.tuning.autoscaler import ControllerDefaults, autoscaler_of
from gpuscale.lab.tuning.changing import changes, value_text
from gpuscale.lab.tuning.inputs import Overrides, manifest_of, of_demand, of_setup
from gpuscale.triggers.policies.replaying import ReplaySettings

HPA = """# Of the vision team.
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: vision}
spec:
  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: vision}
  minReplicas: 1 # never none
  maxReplicas: 30
  metrics:
  - type: Pods
    pods:
      metric: {name: DCGM_FI_DEV_GPU_UTIL}
      target: {type: AverageValue, averageValue: "60"} # percent
"""
UP = Overrides(start_up_s=120.0)


def gpuscale(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run the command line in a folder."""
    command = [sys.executable, "-m", "gpuscale.cli.main", *arguments]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)


def four_days(folder: Path) -> None:
    """Write a demand of 4 pods by night and 16 by day, and an HPA."""
    rows = "".join(f"{hour * 3600},{16 if hour % 24 >= 12 else 4}\n" for hour in range(4 * 24))
    (folder / "demand.csv").write_text("time,demand\n" + rows)
    (folder / "hpa.yaml").write_text(HPA)


def test_a_scenario_becomes_a_demand_and_a_service():
    workload, autoscaler = of_setup(find_setup("ack-bert"), "ack-bert", None, None, Overrides())
    # 4.6 requests/s of 0.05 s from 60 s to 10 min; a sync every 15 s, 35 minutes.
    assert workload.demand.tolist() == pytest.approx([0.0] * 4 + [0.23] * 36 + [0.0] * 100)
    # A new node in 100 s, the image in 15 s, the model in 15 s; scrapes every 15 s.
    assert (workload.service.start_up_s, workload.service.lag_s) == (130, 15)
    assert (workload.service.least, workload.service.most) == (1, 10)
    assert (workload.nodes.price_per_hour, workload.nodes.gpus_per_node) == (3.5, 1)
    named = autoscaler.contender(workload.service, 1, 1.0)
    assert named.named(named.today) == {
        "target": 0.2,
        "down_window_s": 300,
        "tolerance": 0.1,
        "min_replicas": 1,
        "max_replicas": 10,
        "up_window_s": 0,
        "up_tolerance": 0.1,
        "up_pods": 4,
        "up_percent": 100,
        "down_percent": 100,
    }


def test_the_behavior_of_an_hpa_is_replayed():
    workload, autoscaler = of_setup(
        find_setup("ack-bert-quick"), "ack-bert-quick", None, None, Overrides()
    )
    one = autoscaler.contender(workload.service, 1, 1.0)
    assert one.named(one.today)["down_window_s"] == 40
    # Scale-up: tolerance 0.1, no window, the largest (0) of one policy; scale-down: the largest of one. Each
    # is 100 % (kind 1) in 30 s.
    assert one.fixed.tolist() == [0.1, 0, 0, 0, 1, 1, 100, 30_000, 1, 100, 30_000]


@pytest.mark.parametrize(("name", "most"), [("ack-bert", 0.02), ("eks-vision", 0.02)])
def test_the_replay_is_as_near_to_the_simulation_as_the_page_says(name, most):
    workload, autoscaler = of_setup(find_setup(name), name, None, None, Overrides())
    one = autoscaler.contender(workload.service, 1, 1.0)
    replayed, _ = one.replayed_and_paid(one.today, workload.demand, workload.service)
    replay_s = float(replayed.replicas.sum()) * workload.service.step_s
    series: Any = simulate(find_setup(name))["series"]
    current = next(key for key in series if key.startswith("hpa/") and key.endswith("/current"))
    seconds = zip(itertools.pairwise(series["t"]), series[current], strict=False)
    exact_s = sum((end - begin) * count for (begin, end), count in seconds if count is not None)
    assert abs(replay_s / exact_s - 1) < most


def test_options_come_before_the_scenario():
    given = Overrides(start_up_s=10.0, price_per_hour=1.0, currency="EUR", gpus_per_node=4)
    workload, _ = of_setup(find_setup("ack-bert"), "ack-bert", "bert-intent-detection", None, given)
    assert workload.service.start_up_s == 10
    assert (workload.nodes.price_per_hour, workload.nodes.currency) == (1, "EUR")
    assert workload.nodes.gpus_per_node == 4


def demand_of(folder: Path, text: str, seconds_per_request: float | None = None):
    """Read a demand file."""
    (folder / "d.csv").write_text(text)
    return of_demand(str(folder / "d.csv"), "time", None, seconds_per_request, None, UP)


def test_a_demand_file_of_a_spreadsheet_is_read(tmp_path):
    pods, _ = demand_of(tmp_path, "\ufefftime,demand\r\n0,2\r\n30,4\r\n")
    assert pods.demand.tolist() == [2, 2, 4, 4]


def test_a_demand_file_has_pods_or_requests(tmp_path):
    pods, _ = demand_of(tmp_path, "time,demand\n0,2\n30,4\n")
    # The last row holds as long as the one before it.
    assert pods.demand.tolist() == [2, 2, 4, 4]
    requests, _ = demand_of(tmp_path, "time,rate\n0,20\n15,40\n", 0.1)
    assert requests.demand.tolist() == pytest.approx([2, 4])
    assert requests.requests.service_s == 0.1


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "time,demand\n0,2\n30,many\n",
            "d.csv:3: found 'many', expected a rate of zero or more pods",
        ),
        ("time,load\n0,2\n", "d.csv:1: found time, load, expected a column named 'demand'"),
        ("time,demand\n0,2\n", "d.csv: found one row, expected two or more"),
        ("time,demand\n0,2\n99999999,2\n", "expected more than 0 and at most 366"),
        ("time,demand\n30,2\n0,2\n", "d.csv:3: found a time not after the one above"),
        ("", "d.csv:1: found an empty file"),
        (
            'time,demand\n0,"' + "9" * 200_000 + '"\n',
            "d.csv:2: found field larger than field limit",
        ),
    ],
)
def test_a_wrong_demand_file_is_refused_with_its_line(tmp_path, text, said):
    with pytest.raises(ConfigError) as error:
        demand_of(tmp_path, text)
    assert said in str(error.value)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("DCGM_FI_DEV_GPU_UTIL", "queue_length", "give --metric-full"),
        ("DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_FB_USED_PERCENT", "give --metric-full"),
        ('averageValue: "60"', 'averageValue: "0"', "must be positive|target of 0"),
    ],
)
def test_an_hpa_that_can_not_be_replayed_is_refused(old, new, said):
    with pytest.raises((UsageError, ConfigError), match=said):
        autoscaler_of(manifest_of("h", HPA.replace(old, new)).hpa, None, 1.0, ControllerDefaults())


def test_a_metric_of_demand_is_searched_as_demand():
    text = HPA.replace("type: Pods", "type: External").replace("pods:", "external:")
    found = autoscaler_of(
        manifest_of("h", text.replace('"60"', '"5"')).hpa, 20.0, 1.0, ControllerDefaults()
    )
    assert found.policy.name == "hpa-demand"
    # 5 of the 20 that one busy pod has.
    assert changes(found, {"target": 0.5, "down_window_s": 300, "min_replicas": 1}, {}) == {
        ("spec", "metrics", 0, "external", "target", "averageValue"): "10"
    }


BEHAVIOR = """  behavior:
    scaleUp:
      policies: # slowly
      - {type: Pods, value: 2, periodSeconds: 60}
      - {type: Pods, value: 1, periodSeconds: 15}
    scaleDown:
      selectPolicy: Disabled
"""


def written(text: str, **values: float) -> str:
    """Return a manifest with values in it."""
    manifest = manifest_of("h.yaml", text)
    autoscaler = autoscaler_of(manifest.hpa, None, 1.0, ControllerDefaults())
    one = autoscaler.contender(ReplaySettings(least=1.0, most=30.0), 1, 1.0)
    return tuned_text("h.yaml", manifest, autoscaler, one.named(one.today) | values)


def test_rates_are_written_as_a_list_where_there_was_none():
    text = written(HPA, up_percent=50, up_window_s=60, down_percent=20, up_tolerance=0.05)
    spec: Any = load_documents(text, "h")[0].data["spec"]
    assert spec["behavior"] == {
        "scaleUp": {
            "tolerance": 0.05,
            "stabilizationWindowSeconds": 60,
            "policies": [
                {"type": "Pods", "value": 4, "periodSeconds": 15},
                {"type": "Percent", "value": 50, "periodSeconds": 15},
            ],
        },
        "scaleDown": {"policies": [{"type": "Percent", "value": 20, "periodSeconds": 15}]},
    }
    assert "# never none" in text


def test_rates_are_written_in_their_places():
    text = written(HPA + BEHAVIOR, up_pods=3, up_pods_2=2, max_replicas=20)
    before, after = (HPA + BEHAVIOR).splitlines(), text.splitlines()
    changed = [new for old, new in zip(before, after, strict=True) if old != new]
    assert changed == [
        "  maxReplicas: 20",
        "      - {type: Pods, value: 3, periodSeconds: 60}",
        "      - {type: Pods, value: 2, periodSeconds: 15}",
    ]


def test_values_of_today_change_nothing():
    assert written(HPA) == HPA
    assert written(HPA + BEHAVIOR) == HPA + BEHAVIOR


def test_rates_that_count_for_nothing_are_not_searched():
    manifest = manifest_of("h.yaml", HPA + BEHAVIOR)
    autoscaler = autoscaler_of(manifest.hpa, None, 1.0, ControllerDefaults())
    one = autoscaler.contender(ReplaySettings(least=1.0, most=30.0), 5, 12.3)
    bounds = {each.name: (each.least, each.most) for each in one.parameters}
    assert bounds["down_percent"] == (100, 100)
    assert bounds["up_pods_2"] == (1, 64)
    # The minimum never falls and stays below what keeps the promise; the maximum has room for the peak.
    assert (bounds["min_replicas"], bounds["max_replicas"]) == ((1, 5), (13, 30))


def test_values_are_written_with_four_digits():
    texts = [value_text(each) for each in (88.0, 0.37, 5.78312, 1_234_567.0, 0.00001)]
    assert texts == ["88", "0.37", "5.783", "1234567", "0.00001"]


def test_the_tuned_hpa_is_written_with_its_comments_and_is_better(tmp_path):
    four_days(tmp_path)
    done = gpuscale(
        *(
            "tune",
            "--demand",
            "demand.csv",
            "--start-up=2m",
            "--hpa=hpa.yaml",
            "--promise=short=3%",
        ),
        *("--policy=hpa-demand", "--tries=64", "-o", "json", "--write=tuned.yaml"),
        *("--output-file=run.html", "--output-file=run.json"),
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    today, tuned, other = document["rows"]
    assert [row["name"] for row in document["rows"]] == ["today", "tuned", "hpa-demand"]
    assert document["isHeldBack"]
    offers = [each for each in document["offers"] if each["name"] == "tuned"]
    percents = [float(each["promise"].removeprefix("short=")[:-1]) for each in offers]
    assert percents == sorted(set(percents))
    assert offers[percents.index(3)]["settings"] == tuned["settings"]
    assert json.loads((tmp_path / "run.json").read_text()) == document
    assert f"{tuned['gpuHours']:,.1f}" in (tmp_path / "run.html").read_text()
    assert tuned["gpuHours"] < today["gpuHours"]
    assert tuned["shortShare"] <= 0.03
    assert "cost" not in tuned
    assert other["settings"].keys() == tuned["settings"].keys()
    written = (tmp_path / "tuned.yaml").read_text()
    target = f'"{tuned["settings"]["target"] * 100:.0f}"'
    assert f"averageValue: {target}}} # percent" in written
    assert written.startswith("# Of the vision team.\n")
    assert "# never none" in written
    assert (tmp_path / "hpa.yaml").read_text() == HPA


def test_a_manifest_that_is_there_is_changed_only_when_told_to(tmp_path):
    four_days(tmp_path)
    words = [
        *("tune", "--demand=demand.csv", "--start-up=2m", "--hpa=hpa.yaml", "--policy=none"),
        *("--promise=short=3%", "--tries=16", "--write=hpa.yaml"),
    ]
    done = gpuscale(*words, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert "hpa.yaml is there already; --force changes its HPA" in done.stderr
    assert (tmp_path / "hpa.yaml").read_text() == HPA
    done = gpuscale(*words, "--force", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "hpa.yaml").read_text() != HPA


def test_a_scenario_is_tuned_end_to_end(tmp_path):
    done = gpuscale("tune", "ack-bert", "--policy=none", "--write=new.yaml", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    # 23 % of one V100 for nine minutes: one pod is enough all the time.
    assert "As it is, autoscaling costs more than 1 pod standing still" in done.stdout
    assert "35m is too short to hold days back" in done.stdout
    hpa = manifest_of("new.yaml", (tmp_path / "new.yaml").read_text()).hpa
    target = hpa.metrics[0].target.average_value
    assert target is not None
    assert float(target) > 23


@pytest.mark.parametrize(("name", "most"), [("ack-bert", 0.03), ("eks-vision", 0.03)])
def test_the_replay_on_nodes_is_near_to_the_simulation(name, most):
    workload, autoscaler = of_setup(find_setup(name), name, None, None, Overrides())
    assert workload.pool is not None
    one = on_nodes(autoscaler.contender(workload.service, 1, 1.0), workload.pool, 1)
    _, nodes = one.replayed_and_paid(one.today, workload.demand, workload.service)
    exact: Any = simulate(find_setup(name))["summary"]
    hours = float(nodes.sum()) * workload.service.step_s / 3600
    assert abs(hours / exact["nodeHours"] - 1) < most


SCENARIO = """# Of the vision team.
apiVersion: gpuscale.dev/v1alpha1
kind: Scenario
metadata: {name: vision}
spec:
  duration: 4h
  manifests: [{file: vision.yaml}]
  nodePools:
    - {name: gpu, provider: PROVIDER, gpuModel: NVIDIA L4, gpus: 1, min: 6, max: 30, pricePerHour: 2} # warm
  nodeAutoscaler:
    unneededTime: 1h # long
  workloads:
    - deployment: vision
      service: {gpuSecondsPerRequest: 0.5, concurrency: 8}
      load: {shape: constant, rate: 5.8}
"""


@pytest.mark.parametrize("provider", ["aks", "gke"])
def test_a_node_pool_is_tuned_and_written_with_its_comments(tmp_path, provider):
    scenario = SCENARIO.replace("PROVIDER", provider)
    (tmp_path / "scenario.yaml").write_text(scenario)
    (tmp_path / "vision.yaml").write_text(DEPLOYMENT + HPA)
    done = gpuscale(
        *("tune", "scenario.yaml", "--policy=none", "--tries=32", "-o", "json"),
        *("--write-scenario=tuned.yaml", "--write=hpa.yaml"),
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    pool = json.loads(done.stdout)["nodePool"]
    today, _, best = pool["rows"]
    # 2.9 pods of work take three nodes, twelve hours in all, and six are kept today.
    assert today["nodeHours"] >= 24
    assert best["nodeHours"] < 12 * 1.1
    assert best["cost"] == pytest.approx(2 * best["nodeHours"])
    text = (tmp_path / "tuned.yaml").read_text()
    least = f"{best['settings']['min_nodes']:.0f}"
    changed = {line for line in text.splitlines() if line not in scenario.splitlines()}
    assert next(line for line in changed if "warm" in line) == next(
        line for line in scenario.splitlines() if "warm" in line
    ).replace("min: 6", f"min: {least}")
    if provider == "gke":
        assert len(changed) == 1
    tuned = manifest_of("hpa.yaml", (tmp_path / "hpa.yaml").read_text()).hpa
    target = tuned.metrics[0].target.average_value
    assert target is not None
    assert float(target) == pytest.approx(best["settings"]["target"] * 100)
    again = gpuscale(
        *("tune", "tuned.yaml", "--hpa=hpa.yaml", "--policy=none", "--tries=1", "-o", "json"),
        cwd=tmp_path,
    )
    assert json.loads(again.stdout)["nodePool"]["rows"][0]["nodeHours"] == best["nodeHours"]


def test_a_node_pool_that_others_use_is_not_searched(tmp_path):
    done = gpuscale(
        *("tune", "in-flight-credit", "--workload=plain", "--policy=none", "-o", "json"),
        *("--tries=4", "--no-nodes"),
        cwd=tmp_path,
    )
    assert json.loads(done.stdout)["nodePool"] is None
    shared = find_setup("eks-vision")
    other = replace(
        shared.deployments[0], metadata=replace(shared.deployments[0].metadata, name="other")
    )
    both = replace(shared, deployments=(*shared.deployments, other))
    workload, _ = of_setup(both, "both", None, None, Overrides())
    assert workload.pool is None
    assert workload.without_pool.startswith("Other workloads use the node pool gpu-g4dn too")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("ack-bert", "--write-scenario=x.yaml"), "found the shipped scenario ack-bert"),
        (("ack-bert", "--demand=x.csv"), "expected one of: a SCENARIO, --demand"),
        (("ack-bert", "--seconds-per-request=2"), "--seconds-per-request without --demand"),
        (("ack-bert", "--column=x", "--time-column=t"), "--time-column, --column without --demand"),
        (("no-such",), "found no scenario 'no-such'"),
        (("ack-bert", "--workload=x"), "expected --workload with one of: default/bert"),
        (("--demand=x.csv", "--start-up=1m"), "x.csv: no such file"),
        (("--demand=x.csv",), "found no --start-up"),
        (("ack-bert", "--policy=x"), "--policy: found 'x', expected none, or of: static"),
        (("ack-bert", "--metric-full=-1"), "--metric-full: found -1, expected 1e-9 to 1e12"),
        (("ack-bert", "--metric-full=nan"), "--metric-full: found nan, expected 1e-9 to 1e12"),
        (("ack-bert", "--metric-full=inf"), "--metric-full: found inf, expected 1e-9 to 1e12"),
        (("ack-bert", "--gpus-per-replica=9"), "expected a replica that fits a node"),
        (("ack-bert", "--write=/no/such/x.yaml"), "found no folder"),
        (("aks-mnist-jobs",), "found no Deployment with a load"),
    ],
)
def test_wrong_words_are_one_line(tmp_path, words, said):
    done = gpuscale("tune", *words, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_setting_that_is_to_stay_is_named_as_it_is_shown(tmp_path):
    four_days(tmp_path)
    words = ("tune", "--demand=demand.csv", "--start-up=2m", "--hpa=hpa.yaml", "--policy=none")
    done = gpuscale(*words, "--keep=window", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert "--keep: found 'window', expected of: target, down_window_s, tolerance" in done.stderr
    shown = gpuscale(*words, "--keep=target", "--tries=16", "-o", "json", cwd=tmp_path)
    today, tuned = json.loads(shown.stdout)["rows"]
    assert tuned["settings"]["target"] == today["settings"]["target"] == 0.6
    assert tuned["settings"] != today["settings"]


RECORDED = """time,replicas,ready,utilization
2026-03-02T09:00:00Z,1,1,40
2026-03-02T09:10:00Z,2,1,88
2026-03-02T09:20:00Z,3,3,54
2026-03-02T09:30:00Z,3,3,57
2026-03-02T09:40:00Z,2,2,42
2026-03-02T09:50:00Z,1,1,55
"""
DEPLOYMENT = """apiVersion: apps/v1
kind: Deployment
metadata: {name: vision}
spec:
  selector: {matchLabels: {app: vision}}
  template:
    metadata: {labels: {app: vision}}
    spec:
      containers:
      - {name: main, image: "vision:1", resources: {limits: {nvidia.com/gpu: 1}}}
---
"""


def test_a_recording_is_tuned_as_simulate_replays_it(tmp_path):
    (tmp_path / "recorded.csv").write_text(RECORDED)
    (tmp_path / "vision.yaml").write_text(DEPLOYMENT + HPA)
    words = ("tune", "--from-file=recorded.csv", "--workload=default/vision", "--policy=none")
    refused = gpuscale(*words, cwd=tmp_path)
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "found --from-file without --manifests" in refused.stderr
    done = gpuscale(*words, "--manifests=vision.yaml", "--tries=16", "-o", "json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["workload"] == "default/vision"
    # Where nothing else is known, a pod is ready after 60 s and a node after 120, 35 of them to ask for it.
    assert document["service"]["start_up_s"] == 60 + 120 - 35
    assert document["days"] == pytest.approx(1 / 24, rel=0.2)


def test_a_scenario_that_was_kept_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir()
    edited = tmp_path / "kept" / "scenario.yaml"
    edited.write_text("# mine\n")
    for command in ("simulate", "tune"):
        words = (command, "--from-file=recorded.csv", "--workload=default/vision")
        done = gpuscale(*words, "--manifests=v.yaml", "--save-scenario=kept", cwd=tmp_path)
        assert (done.returncode, done.stdout) == (2, "")
        assert "found kept/scenario.yaml, expected a folder without one" in done.stderr
    assert [each.name for each in edited.parent.iterdir()] == ["scenario.yaml"]
    assert edited.read_text() == "# mine\n"


@pytest.mark.parametrize("is_rate", [True, False])
def test_signals_of_requests_need_the_time_of_one(tmp_path: Path, *, is_rate: bool) -> None:
    rows = "".join(f"{step * 900},{4 + step % 8}\n" for step in range(192))
    (tmp_path / "d.csv").write_text(f"time,{'rate' if is_rate else 'demand'}\n{rows}")
    done = gpuscale(
        *("tune", "--demand=d.csv", "--start-up=2m", "--policy=hpa-waiting", "--tries=4"),
        *("--policy=hpa-in-flight", "-o", "json"),
        *(["--seconds-per-request=2"] if is_rate else []),
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    names = [row["name"] for row in document["rows"]]
    assert names == ["today", "tuned", *(["hpa-waiting", "hpa-in-flight"] if is_rate else [])]
    assert any("--seconds-per-request says it" in each for each in document["said"]) is not is_rate
