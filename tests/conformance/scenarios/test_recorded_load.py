"""A recorded load: an hour of chat requests, Azure's LLM inference trace of 2023 (CC BY 4.0)."""

import json
from itertools import pairwise
from pathlib import Path

import pytest

from gpuscale.lab.scenarios import find_setup
from gpuscale.lab.sim.simulation import simulate

ROOT = Path(__file__).parents[3]
TRACE = ROOT.parent / "shared/data/traces/azure-llm-2023/AzureLLMInferenceTrace_conv.csv.gz"
EXAMPLE = ROOT / "docs/examples/own-trace/scenario.yaml"
REQUESTS = 19_366
SECONDS = 3_501.7  # 58.4 min from the first to the last request


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory):
    if not TRACE.exists():
        pytest.skip(f"needs the trace {TRACE.name} of azure-llm-2023 in ../shared/data/traces")
    text = EXAMPLE.read_text().replace("requests.csv", str(TRACE))
    text = text.replace("duration: 10m", "duration: 60m").replace("scale: 6", "scale: 2")
    scenario = tmp_path_factory.mktemp("trace") / "scenario.yaml"
    scenario.write_text(text)
    return simulate(find_setup(str(scenario)))


def test_every_request_arrives_and_is_served(run) -> None:
    requests = run["summary"]["requests"]["bert-intent-detection"]
    assert requests["arrived"] == 2 * REQUESTS
    assert requests["served"] == pytest.approx(2 * REQUESTS, abs=1)
    # each costs 0.05 GPU-seconds
    assert run["summary"]["busyGpuHours"] == pytest.approx(2 * REQUESTS * 0.05 / 3600, rel=1e-3)


def test_replicas_settle_where_the_mean_load_puts_them(run) -> None:
    # 2 x 19 366 requests in 3 502 s at 0.05 s are 0.553 GPUs; at a target of 20 % that is 2.8 pods
    mean = 2 * REQUESTS * 0.05 / SECONDS / 0.20
    ready = run["series"]["replicas/bert-intent-detection/ready"]
    settled = sorted(ready[40:-10])  # from 10 min on, when nodes have come
    assert abs(settled[len(settled) // 2] - mean) <= 1


def test_a_steady_load_is_not_followed_by_flapping(run) -> None:
    steps = [e for e in run["events"] if e["kind"] == "SuccessfulRescale" and e["t"] > 600]
    assert len(steps) <= 4, json.dumps(steps, indent=1)
    directions = [step["to"] > step["from"] for step in steps]
    turns = sum(1 for a, b in pairwise(directions) if a != b)
    assert turns <= 2
