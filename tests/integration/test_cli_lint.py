"""`gpuscale lint` as users run it: a process of its own, also on the files of published guides."""

import json
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import gpuscale

SEEDS = Path(__file__).parents[2] / ".." / "shared" / "seeds"
RULES = """\
- seriesQuery: gpu_util{}
  resources: {template: <<.Resource>>}
  metricsQuery: avg(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)
"""
HPA = """\
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: web}
spec:
  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: web}
  maxReplicas: 10
  metrics:
  - type: Pods
    pods: {metric: {name: gpu_util}, target: {type: AverageValue, averageValue: 70}}
"""


def run(*arguments, cwd, stdin=""):
    return subprocess.run(
        [sys.executable, "-m", "gpuscale.cli.main", "lint", *arguments],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=60,
        cwd=cwd,
        check=False,
    )


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "rules.yaml").write_text(RULES)
    (tmp_path / "hpa.yaml").write_text(HPA)
    return tmp_path


def test_nothing_to_do(folder):
    result = run("rules.yaml", "hpa.yaml", cwd=folder)
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout == "0 errors, 0 warnings, 0 notes; 1 rule and 1 HPA in 2 files\n"


def test_findings(folder):
    (folder / "hpa.yaml").write_text(HPA.replace("name: gpu_util", "name: gpu_use"))
    result = run("rules.yaml", "hpa.yaml", cwd=folder)
    assert (result.returncode, result.stderr) == (1, "")
    assert (
        result.stdout
        == """\
hpa.yaml:9: error [unknown-metric] spec.metrics[0].pods.metric.name
  No rule gives a custom metric 'gpu_use'.
  | The rules name gpu_util (rules.yaml:1).
  -> Ask for gpu_util.

1 error, 0 warnings, 0 notes; 1 rule and 1 HPA in 2 files
"""
    )


def test_wrong_input(folder):
    result = run("rules.yaml", "none.yaml", "none.txt", cwd=folder)
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr == "".join(
        f"gpuscale: {name}: found No such file or directory, expected a file that can be read\n"
        for name in ("none.yaml", "none.txt")
    )


def test_standard_input_and_json(folder):
    result = run("--output", "json", "hpa.yaml", "-", cwd=folder, stdin=RULES)
    assert (result.returncode, result.stderr) == (0, "")
    assert json.loads(result.stdout)["findings"] == []


def test_a_file_is_read_once(folder):
    result = run("hpa.yaml", "rules.yaml", "hpa.yaml", cwd=folder)
    assert (result.returncode, "in 2 files" in result.stdout) == (0, True)


def test_notes_fail_where_one_wants_to_be_strict(folder):
    assert run("hpa.yaml", cwd=folder).returncode == 0
    assert run("--strict", "hpa.yaml", cwd=folder).returncode == 1


def test_a_shipped_scenario(folder):
    where = Path(gpuscale.__file__).parent / "sim" / "scenarios" / "ack-bert"
    names = [str(where / f"{name}.yaml") for name in ("rules", "deployment", "hpa")]
    assert ids(folder, *names) == ["ignored-target-type"]


def seed(name):
    """Return the text of a published guide, where it is at hand."""
    found = sorted(SEEDS.glob(f"{name}_*.txt"))
    if not found:
        pytest.skip(f"needs the guide {name} in ../shared/seeds")
    return found[0].read_text(encoding="utf-8")


def documents(text, start):
    """Return the YAML blocks that begin with a line, as far as their fence or their EOF."""
    blocks = re.findall(rf"^([ ]*{start}.*?)^[ ]*(?:EOF|```)", text, re.MULTILINE | re.DOTALL)
    return [textwrap.dedent(block) for block in blocks]


def ids(folder, *names):
    result = run("--output", "json", *names, cwd=folder)
    assert result.returncode in {0, 1}, result.stderr
    return [finding["id"] for finding in json.loads(result.stdout)["findings"]]


def test_the_guide_of_alibaba_cloud(tmp_path):
    text = seed("002")
    rules = re.search(
        r"^    - metricsQuery.*?(?=^    The following figure)", text, re.MULTILINE | re.DOTALL
    )
    new, old = documents(text, "apiVersion: autoscaling")
    workload, *_ = documents(text, "apiVersion: apps/v1")
    for name, content in (("rules", rules[0]), ("new", new), ("old", old), ("web", workload)):
        (tmp_path / f"{name}.yaml").write_text(content)
    assert ids(tmp_path, "rules.yaml", "web.yaml", "new.yaml") == ["ignored-target-type"]
    assert ids(tmp_path, "rules.yaml", "web.yaml", "old.yaml") == ["removed-api-version"]


def test_the_guide_for_eks(tmp_path):
    (hpa,) = documents(seed("003"), "apiVersion: autoscaling")
    (tmp_path / "hpa.yaml").write_text(hpa)
    (tmp_path / "values.yaml").write_text("rules: {default: true}\n")
    found = ids(tmp_path, "values.yaml", "hpa.yaml")
    assert found == ["removed-api-version", "recorded-gpu-series"]
