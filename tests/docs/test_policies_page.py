"""The page about policies: its policy scores, and its table is that of the result file."""

import importlib.util
import json
import re
import statistics
import sys
from pathlib import Path

import numpy
import pytest

from gpuscale.triggers.policies.compiled import policy_function, replay
from gpuscale.triggers.policies.hpa import HPA_ON_DEMAND
from gpuscale.triggers.policies.registry import POLICIES
from gpuscale.triggers.policies.replaying import ReplaySettings

SIMPLE_RULE = "best simple rule in hindsight"
ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "policies.md").read_text(encoding="utf-8")
RESULT = json.loads((ROOT / "benchmarks" / "results" / "policies.json").read_text(encoding="utf-8"))


def test_the_pages_policy_replays(tmp_path, monkeypatch):
    code = re.search(r"```python title=my_policy.py\n(.*?)```", PAGE, re.DOTALL)
    path = tmp_path / "my_policy.py"
    path.write_text(code[1], encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    spec = importlib.util.spec_from_file_location("my_policy", path)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "my_policy", module)
    spec.loader.exec_module(module)
    policy = module.POLICY
    demand = numpy.array([5.0] * 20 + [1.0] * 100)
    result = replay(
        policy_function(policy.desired), policy.settings(), policy.memory, demand, ReplaySettings()
    )
    # 5 x 1.2 = 6, held for the 600 s and the 30 s of lag after the demand fell; then 1 x 1.2, rounded up.
    fell = 20 + (600 + 30) // 15
    assert result.replicas[19 : fell - 1].tolist() == [6] * (fell - 20)
    assert result.replicas[fell:].tolist() == [2] * (120 - fell)


@pytest.fixture
def bench(monkeypatch):
    """Return the benchmark's module."""
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return importlib.import_module("bench_policies")


@pytest.mark.parametrize("kind", ["long", "a day"])
def test_the_tables_are_those_of_the_result(bench, kind):
    summed = [bench.Summary(**each) for each in RESULT["settings"]["summaries"]]
    lines = list(bench.table(each for each in summed if each.traces == kind))
    assert len(lines) >= len(POLICIES) + 1
    assert [line for line in lines if line not in PAGE.splitlines()] == []


@pytest.mark.parametrize("name", [SIMPLE_RULE, *POLICIES])
def test_a_result_counts_what_its_rows_say(name):
    rows = [each for each in RESULT["settings"]["rows"] if each["policy"] == name]
    for summed in RESULT["settings"]["summaries"]:
        if summed["policy"] != name:
            continue
        is_long = summed["traces"] == "long"
        own = [
            each
            for each in rows
            if each["promise"] == summed["promise"]
            and (each["days"] >= 7 if is_long else 0.9 <= each["days"] < 7)
        ]
        traces = {each["trace"] for each in own}
        assert len(traces) == (5 if is_long else 3)
        kept = sum(each["missed_percent"] <= 0.5 for each in own)
        assert (kept, len(own)) == (summed["kept"], summed["answers"])
        means = [
            statistics.mean(each["saved_percent"] for each in own if each["trace"] == trace)
            for trace in traces
        ]
        assert statistics.mean(means) == pytest.approx(summed["saved_percent"])


def test_what_is_fitted_on_the_scored_half_is_caught(bench):
    demand = 5 + 3 * numpy.sin(numpy.arange(400) / 20)
    service = ReplaySettings(start_up_s=60.0)

    def on_the_first_half(days):
        return bench.chosen(HPA_ON_DEMAND, days, service, 16)

    def on_all_of_it(days):
        # `chosen` takes the first half of what it is given: here that is the whole trace.
        return bench.chosen(HPA_ON_DEMAND, numpy.concatenate([days, days]), service, 16)

    bench.must_not_leak(on_the_first_half, demand)
    with pytest.raises(SystemExit, match="fitted on it"):
        bench.must_not_leak(on_all_of_it, demand)


def test_every_policy_is_described():
    for policy in POLICIES.values():
        assert f"`{policy.name}`" in PAGE
