"""The command line as users run it: a process of its own."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCENARIO = """\
apiVersion: gpuscale.dev/v1alpha1
kind: Scenario
metadata: {name: mine}
spec:
  duration: 10m
  manifests: [{file: web.yaml}]
  rules: {file: rules.yaml}
  recordingRules: {file: recording.yaml}
  counters: {file: counters.csv}
  nodePools:
    - {name: gpu, gpuModel: Tesla T4, gpus: 1, min: 1, max: 2}
  workloads:
    - deployment: web
      service: {gpuSecondsPerRequest: 0.1}
      load: {shape: constant, rate: 2}
"""
FILES = {
    "scenario.yaml": SCENARIO,
    "web.yaml": """\
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers:
        - name: main
          resources: {limits: {nvidia.com/gpu: 1}}
""",
    "rules.yaml": """\
rules:
  - seriesQuery: DCGM_FI_DEV_GPU_UTIL{exported_pod!=""}
    resources: {overrides: {exported_namespace: {resource: namespace}, exported_pod: {resource: pod}}}
    metricsQuery: avg(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)
""",
    "recording.yaml": """\
groups:
  - name: gpu
    rules:
      - record: gpu_mean
        expr: avg(DCGM_FI_DEV_GPU_UTIL)
""",
    "counters.csv": "DCGM_FI_DEV_GPU_UTIL, gauge, GPU utilization (%).\n",
}


def gpuscale(*arguments, cwd=None):
    return subprocess.run(
        [Path(sys.executable).parent / "gpuscale", *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        cwd=cwd,
        check=False,
    )


@pytest.fixture
def folder(tmp_path: Path):
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    return tmp_path


def broken(folder, name, old, new):
    text = FILES[name]
    assert old in text
    (folder / name).write_text(text.replace(old, new))
    result = gpuscale("simulate", "scenario.yaml", cwd=folder)
    assert (result.returncode, result.stdout) == (2, "")
    return result.stderr.splitlines()


def test_a_users_own_scenario_runs(folder) -> None:
    result = gpuscale("simulate", "scenario.yaml", "-o", "json", cwd=folder)
    assert (result.returncode, result.stderr) == (0, "")
    document = json.loads(result.stdout)
    assert document["scenario"] == "mine"
    assert document["summary"]["requests"]["web"]["arrived"] == 1200.0  # 2/s for 600 s


def test_a_bad_scenario_names_line_and_field(folder) -> None:
    assert broken(folder, "scenario.yaml", "duration: 10m", "duration: ten") == [
        "gpuscale: scenario.yaml:5: spec.duration: found 'ten', expected a duration such as 15s, 5m or 1h30m"
    ]


def test_an_unknown_gpu_model_names_those_that_can_be_simulated(folder) -> None:
    (line,) = broken(folder, "scenario.yaml", "gpuModel: Tesla T4", "gpuModel: Voodoo")
    where = (
        "gpuscale: scenario.yaml:11: spec.nodePools[0].gpuModel: found 'Voodoo', expected one of "
    )
    assert line.startswith(where + "A10, A100 80GB PCIe, ")
    assert line.endswith(", V100-SXM2-32GB; others can be described in spec.gpuModels")


def test_a_bad_manifest_names_line_and_field(folder) -> None:
    assert broken(folder, "web.yaml", "nvidia.com/gpu: 1", "nvidia.com/gpu: one") == [
        "gpuscale: web.yaml:11: spec.template.spec.containers[0].resources.limits.nvidia.com/gpu: "
        "found 'one', expected a quantity such as 20, 500m or 1Gi"
    ]


def test_a_bad_counters_file_tells_every_line_and_the_likely_name(folder) -> None:
    lines = (
        "DCGM_FI_DEV_GPU_UTLI, gauge, x\nDCGM_FI_DEV_FB_USED, gage, y\nDCGM_FI_DEV_SM_CLOCK gauge\n"
    )
    assert broken(folder, "counters.csv", FILES["counters.csv"], lines) == [
        "gpuscale: counters.csv:1: field: found 'DCGM_FI_DEV_GPU_UTLI', expected the name of a DCGM field; "
        "did you mean DCGM_FI_DEV_GPU_UTIL?",
        "gpuscale: counters.csv:2: type: found 'gage', expected gauge, counter, histogram, summary or label; "
        "did you mean gauge?",
        "gpuscale: counters.csv:3: found 1 column, expected 3 columns: "
        "DCGM field, Prometheus type, help text",
    ]


def test_an_unknown_field_of_a_rule_file_is_reported(folder) -> None:
    assert broken(folder, "rules.yaml", "metricsQuery: avg(", "metricQuery: avg(") == [
        "gpuscale: rules.yaml:4: rules[0].metricQuery: no such field here; "
        "did you mean metricsQuery?"
    ]


def test_a_rule_files_selector_and_template_are_checked_as_it_is_read(folder) -> None:
    text = FILES["rules.yaml"].replace("<<.Series>>", "<<.Seres>>").replace('!=""', "!=")
    assert broken(folder, "rules.yaml", FILES["rules.yaml"], text) == [
        "gpuscale: rules.yaml:2: rules[0].seriesQuery: found 'DCGM_FI_DEV_GPU_UTIL{exported_pod!=}', "
        'expected a series selector in PromQL: 1:36: parse error: unexpected "}" in label matching, '
        "expected string",
        "gpuscale: rules.yaml:4: rules[0].metricsQuery: found 'avg(<<.Seres>>{<<.LabelMatchers>>}) by "
        "(<<.GroupBy>>)', expected a query template: unknown field .Seres; the fields are .GroupBy, "
        ".GroupBySlice, .LabelMatchers, .LabelValuesByName, .Series",
    ]


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        ("avg(DCGM_FI_DEV_GPU_UTIL", "1:25: parse error: unclosed left parenthesis"),
        (
            "histogram_avg(x)",
            "function histogram_avg() is of native histograms, which are not supported",
        ),
    ],
)
def test_bad_promql_names_file_line_and_what_is_wrong(folder, query: str, reason: str) -> None:
    assert broken(folder, "recording.yaml", "avg(DCGM_FI_DEV_GPU_UTIL)", query) == [
        f"gpuscale: recording.yaml:5: groups[0].rules[0].expr: found '{query}': {reason}, expected PromQL"
    ]


def test_a_missing_file_is_told_where_it_is_named(folder) -> None:
    (folder / "web.yaml").unlink()
    result = gpuscale("simulate", "scenario.yaml", cwd=folder)
    assert result.returncode == 2
    assert result.stderr.splitlines()[0] == (
        "gpuscale: scenario.yaml:6: spec.manifests[0].file: found no such file: web.yaml, "
        "expected a file that can be read"
    )


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"a: \x80\n", "not UTF-8 text (byte 0x80 at offset 3)"),
        (b"\x1f\x8b\x08 no gzip", "a damaged gzip file"),
        (None, "is a folder, expected a file"),
    ],
)
def test_a_scenario_that_can_not_be_read_is_wrong_input(
    tmp_path: Path, content: bytes | None, reason: str
) -> None:
    path = tmp_path / "bin.yaml"
    if content is None:
        path.mkdir()
    else:
        path.write_bytes(content)
    result = gpuscale("simulate", "bin.yaml", cwd=tmp_path)
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr == f"gpuscale: bin.yaml: {reason}\n"


def test_an_unknown_scenario_names_those_there_are() -> None:
    result = gpuscale("simulate", "bert")
    assert result.returncode == 2
    assert result.stderr == (
        "gpuscale: found no scenario 'bert', expected a file or one of: "
        "ack-bert, ack-bert-quick, ack-bert-v2beta1, aks-mnist-jobs, aks-mnist-jobs-quick, claims-jobs, "
        "eks-vision, eks-vision-karpenter, eks-vision-karpenter-quick, eks-vision-quick, in-flight-credit, "
        "keda-zero, keda-zero-quick, lws-llm\n"
    )


def test_without_a_terminal_the_tables_are_plain_text() -> None:
    result = gpuscale("simulate", "ack-bert")
    assert result.returncode == 0
    assert "\x1b" not in result.stdout
    told = [line.split(maxsplit=3) for line in result.stdout.splitlines()]
    reason = "New size: 2; reason: pods metric DCGM_CUSTOM_PROCESS_SM_UTIL above target"
    assert ["00:01:15", "SuccessfulRescale", "HorizontalPodAutoscaler/gpu-hpa", reason] in told


def test_a_report_is_one_file_that_needs_no_other(tmp_path: Path) -> None:
    report = tmp_path / "run.html"
    assert gpuscale("simulate", "ack-bert", "--output-file", str(report)).returncode == 0
    text = report.read_text()
    assert "SuccessfulRescale" in text
    assert "<script src=" not in text
    assert '<link rel="stylesheet' not in text


@pytest.mark.parametrize("command", [[], ["up"], ["simulate"], ["schema"]])
def test_every_command_has_help_with_an_example(command) -> None:
    result = gpuscale(*command, "--help")
    assert result.returncode == 0
    assert not command or "Example:" in result.stdout


def test_importing_the_package_loads_no_heavy_library() -> None:
    code = (
        "import sys, gpuscale, gpuscale.cli.registry\n"
        "heavy = {'aiohttp', 'pydantic', 'numpy', 're2', 'yaml', 'rich'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert result.stdout == "[]\n"


WITHOUT_EXTRAS = """
import sys

class NotInstalled:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {"httpx2", "lightkube", "grpc", "pynvml", "amdsmi"}:
            raise ModuleNotFoundError(f"no {name} here", name=name)

sys.meta_path.insert(0, NotInstalled())
sys.argv = ["gpuscale", *sys.argv[1:]]
from gpuscale.cli.main import main
main()
"""


@pytest.mark.parametrize(
    "arguments",
    [
        ["up", "--for", "1s", "--port", "0"],
        ["simulate", "aks-mnist-jobs"],
        ["exporter", "--help"],
        ["metrics-api", "--help"],
        ["decide", "--help"],
        ["lint", "--help"],
        ["render", "--help"],
    ],
    ids=lambda words: words[0],
)
def test_the_plain_installation_is_enough(arguments: list[str]) -> None:
    """`make run` installs no extras; what needs one imports it when it is used."""
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_EXTRAS, *arguments],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
