"""`gpuscale lint` as users run it: a process of its own, also on the files of published guides."""

import json
import re
import subprocess
import sys
import textwrap
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

import gpuscale
from gpuscale.base.documents.documents import load_documents

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
def folder(tmp_path: Path):
    (tmp_path / "rules.yaml").write_text(RULES)
    (tmp_path / "hpa.yaml").write_text(HPA)
    return tmp_path


def test_nothing_to_do(folder) -> None:
    result = run("rules.yaml", "hpa.yaml", cwd=folder)
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout == "0 errors, 0 warnings, 0 notes; 1 rule and 1 HPA in 2 files\n"


def test_findings(folder) -> None:
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


def test_doctor_of_files_is_the_same(folder) -> None:
    (folder / "hpa.yaml").write_text(HPA.replace("name: gpu_util", "name: gpu_use"))
    of_lint = run("rules.yaml", "hpa.yaml", "-o", "json", cwd=folder)
    command = [sys.executable, "-m", "gpuscale.cli.main", "doctor", "rules.yaml", "hpa.yaml"]
    done = subprocess.run([*command, "-o", "json"], capture_output=True, text=True, cwd=folder)
    assert (done.returncode, done.stdout) == (1, of_lint.stdout)
    done = subprocess.run([*command, "--fix"], capture_output=True, text=True, cwd=folder)
    assert (done.returncode, done.stderr[:15]) == (2, "gpuscale: FILE:")


def test_wrong_input(folder) -> None:
    (folder / "binary.yaml").write_bytes(b"a: b\n\x80")
    result = run("rules.yaml", "none.yaml", "binary.yaml", cwd=folder)
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr.splitlines() == [
        "gpuscale: none.yaml: no such file",
        "gpuscale: binary.yaml: not UTF-8 text (byte 0x80 at offset 5)",
    ]


def test_nothing_to_check_is_said(folder) -> None:
    (folder / "more.yaml").write_text("kind: Secret\napiVersion: v1\n")
    result = run("more.yaml", cwd=folder)
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.splitlines()[:2] == [
        "1 object has nothing to check: 1 Secret",
        "Nothing to check: no rules, autoscalers, pods with GPUs or pools of nodes.",
    ]
    assert run("more.yaml", "--strict", cwd=folder).returncode == 2
    (folder / "empty").mkdir()
    assert run("empty", "--strict", cwd=folder).returncode == 2
    result = run("more.yaml", "rules.yaml", "hpa.yaml", cwd=folder)
    assert result.returncode == 0
    assert result.stdout.splitlines()[0] == "1 object has nothing to check: 1 Secret"


VALUES = """\
apiVersion: gpuscale.dev/v1alpha1
kind: Values
spec:
  scale:
  - workload: {name: web}
    target: 60
    maxReplicas: 4
"""
CLEAN = "0 errors, 0 warnings, 0 notes; 9 rules, 1 HPA and 1 values file in 1 file\n"


@pytest.mark.parametrize(
    "text",
    [VALUES, VALUES.split("\n", 1)[1], VALUES.split("\n", 2)[2]],
    ids=["whole", "without version", "without kind"],
)
def test_values(folder, text) -> None:
    (folder / "v.yaml").write_text(text)
    result = run("v.yaml", cwd=folder)
    assert (result.returncode, result.stdout, result.stderr) == (0, CLEAN, "")


def test_a_target_of_values_that_is_out_of_reach(folder) -> None:
    (folder / "v.yaml").write_text(VALUES.replace("target: 60", "target: 600"))
    result = run("v.yaml", cwd=folder)
    assert result.returncode == 1
    assert result.stdout.startswith("v.yaml:6: warning [unreachable-target] spec.scale[0].target\n")


def test_an_hpa_is_held_against_the_rules_of_values_beside_it(folder) -> None:
    (folder / "v.yaml").write_text(VALUES)
    (folder / "hpa.yaml").write_text(HPA.replace("name: web", "name: other"))
    assert ids(folder, "v.yaml", "hpa.yaml") == ["unknown-metric"]
    known = HPA.replace("name: web", "name: other").replace("gpu_util", "DCGM_FI_DEV_GPU_UTIL")
    (folder / "hpa.yaml").write_text(known)
    assert ids(folder, "v.yaml", "hpa.yaml") == []


def test_several_values_do_not_mix(folder) -> None:
    for name in ("a.yaml", "b.yaml"):
        (folder / name).write_text(VALUES)
    result = run("a.yaml", "b.yaml", cwd=folder)
    assert result.returncode == 0
    assert "18 rules, 2 HPAs and 2 values files in 2 files" in result.stdout


def test_values_that_render_refuses(folder) -> None:
    (folder / "v.yaml").write_text(VALUES.replace("maxReplicas: 4", "maxReplicas: 0"))
    result = run("v.yaml", "rules.yaml", "hpa.yaml", cwd=folder)
    assert result.returncode == 1
    assert result.stdout.startswith("v.yaml:7: error [refused-values] spec.scale[0].maxReplicas\n")
    assert "1 rule, 1 HPA and 1 values file in 3 files" in result.stdout


def test_values_stand_alone_in_their_file(folder) -> None:
    (folder / "v.yaml").write_text(f"{VALUES}---\n{HPA}")
    result = run("v.yaml", cwd=folder)
    assert result.returncode == 1
    assert result.stdout.startswith(
        "v.yaml: error [refused-values]\n  Found 2 documents, expected "
    )


def test_what_render_writes(folder) -> None:
    (folder / "v.yaml").write_text(VALUES)
    command = [sys.executable, "-m", "gpuscale.cli.main", "render", "v.yaml"]
    text = subprocess.run(command, capture_output=True, text=True, check=True, cwd=folder).stdout
    result = run("-", cwd=folder, stdin=text)
    assert (result.returncode, result.stderr) == (0, "")
    passed, summary = result.stdout.splitlines()
    assert re.fullmatch(r"\d+ objects have nothing to check: \d+ \w+, .*", passed)
    assert summary == "0 errors, 0 warnings, 0 notes; 9 rules and 1 HPA in 1 file"
    listed = run("--verbose", "-", cwd=folder, stdin=text).stdout.splitlines()
    assert len(listed) == int(passed.split()[0]) + 2 + 3
    assert listed[-5] == (
        "not looked at: HPA default/web-gpu: Deployment web, with its replicas, requests and labels"
    )


SCENARIO = """\
apiVersion: gpuscale.dev/v1alpha1
kind: Scenario
metadata: {name: s}
spec:
  duration: 5m
  manifests: [{file: web.yaml}, {file: hpa.yaml}]
  rules: {file: rules.yaml}
  nodePools: [{name: gpu, gpuModel: Tesla T4, gpus: 1, min: 1, max: 2}]
"""
WEB = """\
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: c, image: i, resources: {limits: {nvidia.com/gpu: 1}}}]}
"""


@pytest.fixture
def scenario(folder):
    inside = folder / "s"
    inside.mkdir()
    (inside / "web.yaml").write_text(WEB)
    for name in ("hpa.yaml", "rules.yaml"):
        (inside / name).write_text((folder / name).read_text())
    (inside / "scenario.yaml").write_text(SCENARIO)
    return inside


def test_a_scenario_with_the_files_beside_it(folder, scenario) -> None:
    result = run("s/scenario.yaml", cwd=folder)
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout == (
        "0 errors, 0 warnings, 0 notes; 1 rule, 1 HPA and 1 scenario in 4 files\n"
    )
    hpa = (scenario / "hpa.yaml").read_text()
    (scenario / "hpa.yaml").write_text(hpa.replace("gpu_util", "gpu_use"))
    result = run("s/scenario.yaml", cwd=folder)
    assert result.returncode == 1
    assert result.stdout.startswith("s/hpa.yaml:9: error [unknown-metric] spec.metrics[0]")


def test_a_scenario_that_simulate_refuses(folder, scenario) -> None:
    (scenario / "web.yaml").unlink()
    text = SCENARIO.replace("Tesla T4", "Tesla T5").replace("duration: 5m", "duration: 5 m")
    (scenario / "scenario.yaml").write_text(SCENARIO.replace("Tesla T4", "Tesla T5"))
    assert ids(folder, "s/scenario.yaml") == ["refused-scenario"] * 2
    (scenario / "scenario.yaml").write_text(text)
    assert ids(folder, "s/scenario.yaml") == ["refused-scenario"]


def test_one_document_as_yaml(folder) -> None:
    result = run("-o", "yaml", "hpa.yaml", "rules.yaml", cwd=folder)
    (found,) = load_documents(result.stdout, "out")
    assert (result.returncode, found.data["rules"], found.data["findings"]) == (0, 1, [])


def test_standard_input_and_json(folder) -> None:
    result = run("--output", "json", "hpa.yaml", "-", cwd=folder, stdin=RULES)
    assert (result.returncode, result.stderr) == (0, "")
    assert json.loads(result.stdout)["findings"] == []


def test_a_file_is_read_once(folder) -> None:
    result = run("hpa.yaml", "rules.yaml", "hpa.yaml", cwd=folder)
    assert (result.returncode, "in 2 files" in result.stdout) == (0, True)


def test_notes_fail_where_one_wants_to_be_strict(folder) -> None:
    assert run("hpa.yaml", cwd=folder).returncode == 0
    assert run("--strict", "hpa.yaml", cwd=folder).returncode == 1


def test_a_shipped_scenario(folder) -> None:
    where = Path(gpuscale.__file__).parent / "lab" / "sim" / "scenarios" / "ack-bert"
    names = [str(where / f"{name}.yaml") for name in ("rules", "deployment", "hpa")]
    assert ids(folder, *names) == ["replicas-owned", "ignored-target-type"]


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


def test_the_guide_of_alibaba_cloud(tmp_path: Path) -> None:
    text = seed("002")
    rules = re.search(
        r"^    - metricsQuery.*?(?=^    The following figure)", text, re.MULTILINE | re.DOTALL
    )
    new, old = documents(text, "apiVersion: autoscaling")
    workload, *_ = documents(text, "apiVersion: apps/v1")
    for name, content in (("rules", rules[0]), ("new", new), ("old", old), ("web", workload)):
        (tmp_path / f"{name}.yaml").write_text(content)
    found = ids(tmp_path, "rules.yaml", "web.yaml", "new.yaml")
    assert found == ["replicas-owned", "ignored-target-type"]
    found = ids(tmp_path, "rules.yaml", "web.yaml", "old.yaml")
    assert found == ["replicas-owned", "removed-api-version"]


def test_the_guide_for_eks(tmp_path: Path) -> None:
    (hpa,) = documents(seed("003"), "apiVersion: autoscaling")
    (tmp_path / "hpa.yaml").write_text(hpa)
    (tmp_path / "values.yaml").write_text("rules: {default: true}\n")
    found = ids(tmp_path, "values.yaml", "hpa.yaml")
    assert found == ["removed-api-version", "recorded-gpu-series"]


@pytest.fixture
def faulty(folder):
    """Return a folder that is a repository, with an HPA that has an error, a warning and a note."""
    metrics = (
        "  - {type: External, external: {metric: {name: queue}, "
        "target: {type: AverageValue, averageValue: 5}}}\n"
    )
    (folder / ".git").mkdir()
    (folder / "deploy").mkdir()
    wrong = HPA.replace("gpu_util", "gpu_use").replace("AverageValue, a", "Utilization, a")
    (folder / "deploy" / "hpa.yaml").write_text(wrong + metrics)
    return folder


@pytest.mark.parametrize(
    ("options", "left", "code"),
    [
        ([], set(), 1),
        (["--fail-on", "error"], {"unknown-metric"}, 0),
        (["--fail-on", "warning"], {"unknown-metric"}, 1),
        (["--fail-on", "warning"], {"unknown-metric", "ignored-target-type"}, 0),
        (["--fail-on", "note"], {"unknown-metric", "ignored-target-type"}, 1),
        (["--strict"], {"unknown-metric", "ignored-target-type"}, 1),
    ],
)
def test_what_fails(faulty, options, left, code) -> None:
    """`left` is what comments leave out."""
    hpa = faulty / "deploy" / "hpa.yaml"
    comments = "".join(f"# gpuscale: ignore {each} so it is\n" for each in left)
    hpa.write_text(comments + hpa.read_text())
    result = run("rules.yaml", "deploy/hpa.yaml", *options, cwd=faulty)
    assert (result.returncode, result.stderr) == (code, "")
    assert (f"; {len(left)} ignored\n" in result.stdout) is bool(left)


def test_options_that_contradict_each_other(faulty) -> None:
    for options in (["--strict", "--fail-on", "error"], ["--baseline=b", "--write-baseline=b"]):
        result = run("rules.yaml", *options, cwd=faulty)
        assert (result.returncode, result.stdout) == (2, "")
        assert "expected one of them" in result.stderr


def test_sarif_has_paths_as_the_repository_has_them(faulty) -> None:
    result = run("-o", "sarif", "../rules.yaml", "hpa.yaml", cwd=faulty / "deploy")
    assert (result.returncode, result.stderr) == (1, "")
    (found,) = json.loads(result.stdout)["runs"]
    uris = {
        location["physicalLocation"]["artifactLocation"]["uri"]
        for each in found["results"]
        for location in each["locations"]
    }
    assert uris == {"deploy/hpa.yaml"}
    levels = {each["level"] for each in found["results"]}
    assert levels == {"error", "warning", "note"}


def test_junit(faulty) -> None:
    result = run("-o", "junit", "rules.yaml", "deploy/hpa.yaml", cwd=faulty)
    assert (result.returncode, result.stderr) == (1, "")
    suites = ET.fromstring(result.stdout)
    assert [(each.get("name"), each.get("failures")) for each in suites] == [
        ("rules.yaml", "0"),
        ("deploy/hpa.yaml", "2"),
    ]


def test_a_baseline_from_another_folder(faulty) -> None:
    files = ["rules.yaml", "deploy/hpa.yaml"]
    result = run(*files, "--write-baseline", "deploy/known.yaml", cwd=faulty)
    assert (result.returncode, result.stderr) == (0, "wrote deploy/known.yaml\n")
    assert "; 3 in the baseline\n" in result.stdout
    inside = faulty / "deploy"
    result = run("--baseline", "known.yaml", "../rules.yaml", "hpa.yaml", cwd=inside)
    assert (result.returncode, result.stderr) == (0, "")
    hpa = inside / "hpa.yaml"
    hpa.write_text(f"# more\n{hpa.read_text()}")
    assert run("--baseline", "known.yaml", "../rules.yaml", "hpa.yaml", cwd=inside).returncode == 0
    hpa.write_text(hpa.read_text().replace("name: web}\nspec", "name: web2}\nspec"))
    assert run("--baseline", "known.yaml", "../rules.yaml", "hpa.yaml", cwd=inside).returncode == 1
    (inside / "known.yaml").write_text("findings: [{id: 1}]\n")
    result = run("--baseline", "deploy/known.yaml", *files, cwd=faulty)
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr.startswith("gpuscale: deploy/known.yaml:1: ")


def test_files_of_another_kind_are_passed_over_where_one_says_so(faulty) -> None:
    (faulty / "compose.yaml").write_text("services: {}\n")
    (faulty / "chart.yaml").write_text("a: {{ .Values.a }\n")
    (faulty / "secret.yaml").write_text("kind: Secret\napiVersion: v1\n")
    names = ["compose.yaml", "chart.yaml", "secret.yaml", "deploy/hpa.yaml", "rules.yaml"]
    assert run(*names, cwd=faulty).returncode == 2
    result = run("--skip-unknown", *names, cwd=faulty)
    assert result.returncode == 1
    assert "1 error, 1 warning, 1 note; 1 rule and 1 HPA in 3 files" in result.stdout
    assert re.fullmatch(
        r"gpuscale: passed over: compose.yaml:1: .*\ngpuscale: passed over: chart.yaml:1: .*\n",
        result.stderr,
    )
    assert run("--skip-unknown", "secret.yaml", cwd=faulty).returncode == 0
    assert run("--skip-unknown", "compose.yaml", cwd=faulty).returncode == 0


def test_a_folder_is_read_at_any_depth(faulty) -> None:
    chart = faulty / "charts" / "web"
    for made in (
        chart / "templates",
        faulty / ".git",
        faulty / "node_modules",
        faulty / "deep" / "er",
    ):
        made.mkdir(parents=True, exist_ok=True)
    (chart / "Chart.yaml").write_text("name: web\n")
    (chart / "templates" / "hpa.yaml").write_text("a: {{ .Values.a }\n")
    for hidden in (".git", "node_modules"):
        (faulty / hidden / "hpa.yaml").write_text("a: {\n")
    (faulty / "deep" / "er" / "data.json").write_text("[1]\n")
    (faulty / "deep" / "binary.yaml").write_bytes(b"\xff\xfe")
    (faulty / "notes.txt").write_text("a: {\n")
    result = run(".", cwd=faulty)
    assert result.returncode == 1
    assert "1 error, 1 warning, 1 note; 1 rule and 2 HPAs in 3 files" in result.stdout
    told = result.stderr
    assert "charts/web/templates: found templates of a Helm chart, expected manifests" in told
    assert "passed over 1 more; --verbose lists them" in told
    assert "deep/er/data.json" in run("-v", ".", cwd=faulty).stderr


def test_a_folder_without_anything_to_check_is_no_fault(tmp_path) -> None:
    (tmp_path / "inside").mkdir()
    result = run(".", cwd=tmp_path)
    assert (result.returncode, result.stderr) == (0, "")
    assert "0 rules and 0 HPAs in 0 files" in result.stdout
    assert run("gone", cwd=tmp_path).returncode == 2


def test_comments_in_values_and_in_files_of_a_scenario(folder, scenario) -> None:
    values = VALUES.replace(
        "target: 60", "target: 600 # gpuscale: ignore unreachable-target a test"
    )
    (folder / "v.yaml").write_text(values)
    result = run("v.yaml", cwd=folder)
    assert (result.returncode, "; 1 ignored" in result.stdout) == (0, True)
    hpa = (scenario / "hpa.yaml").read_text().replace("gpu_util", "gpu_use")
    (scenario / "hpa.yaml").write_text(f"# gpuscale: ignore unknown-metric served elsewhere\n{hpa}")
    result = run("s/scenario.yaml", cwd=folder)
    assert (result.returncode, "; 1 ignored" in result.stdout) == (0, True)
