"""`gpuscale render`: what it prints, what it refuses, and its old spelling."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from install_values import scale

GPUSCALE = Path(sys.executable).parent / "gpuscale"
SPEC = {
    "image": {"repository": "registry.example/gpuscale"},
    "scale": [scale()],
    "metricsApi": {"enabled": False},
    "alerts": {"enabled": False},
    "dashboards": {"enabled": False},
}


@pytest.fixture
def render(tmp_path: Path):
    def run(*arguments, **spec):
        (tmp_path / "values.yaml").write_text(json.dumps({"spec": {**SPEC, **spec}}))
        command = [GPUSCALE, "render", "values.yaml", *arguments]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        notes = [line for line in done.stderr.splitlines() if "metricsApi is off" not in line]
        return done.returncode, done.stdout, notes

    return run


def test_objects_are_printed_as_yaml_or_as_one_list(render) -> None:
    code, out, notes = render()
    documents = list(yaml.safe_load_all(out))
    assert (code, notes) == (0, [])
    code, out, notes = render("-o", "json")
    assert (code, notes) == (0, [])
    # What `kubectl apply -f` takes as JSON.
    found = json.loads(out)
    assert (found["apiVersion"], found["kind"]) == ("v1", "List")
    assert found["items"] == documents


def test_the_old_spelling_of_a_folder_still_works(render, tmp_path: Path) -> None:
    code, out, notes = render("-o", "out")
    assert (code, out) == (0, "")
    assert notes[0] == "gpuscale: -o out is deprecated; use --output-dir out"
    files = list((tmp_path / "out").rglob("*.*"))
    assert notes[1] == f"gpuscale: {len(files)} files in out"


def test_a_folder_for_an_installers_role_has_nothing_else(render, tmp_path: Path) -> None:
    boards = {"alerts": {"enabled": True}, "dashboards": {"enabled": True}}
    who = "--installer=ServiceAccount:ci/deployer"
    code, out, _ = render(who, "--output-dir", "role", **boards)
    assert (code, out) == (0, "")
    files = sorted(path for path in (tmp_path / "role").rglob("*") if path.is_file())
    _, printed, _ = render(who, **boards)
    assert [yaml.safe_load(path.read_text()) for path in files] == [*yaml.safe_load_all(printed)]
    assert {path.parent.name for path in files} == {"role"}
    render("--output-dir", "all", **boards)
    assert {path.name for path in (tmp_path / "all").iterdir()} >= {"rules", "dashboards"}


def test_text_is_no_form_of_objects(render) -> None:
    code, _, notes = render("-o", "text")
    assert (code, notes) == (2, ["gpuscale: --output: found 'text', expected yaml or json"])


def test_what_lint_calls_an_error_is_refused_at_its_line(render) -> None:
    code, out, notes = render(scale=[scale(target=600)])
    assert (code, out) == (2, "")
    (line,) = notes
    # A utilization is at most 100 %, and the HPA's tolerance is 10 %: 100 / 1.1 = 90.9.
    assert line.startswith("gpuscale: values.yaml:1: spec.scale[0].target: ")
    assert "at most 100" in line
    assert "90.9" in line


RATE_OF_A_GAUGE = """
rules:
- seriesQuery: DCGM_FI_DEV_GPU_UTIL{namespace!="",pod!=""}
  resources: {overrides: {namespace: {resource: namespace}, pod: {resource: pod}}}
  metricsQuery: avg(rate(<<.Series>>{<<.LabelMatchers>>}[5m])) by (<<.GroupBy>>)
"""


def test_what_lint_warns_of_is_a_note(render) -> None:
    code, out, notes = render(metricsApi={"rules": RATE_OF_A_GAUGE})
    assert code == 0
    assert out
    (line,) = notes
    assert line.startswith("gpuscale: values.yaml:1: warning: ")
    assert "rate" in line


def test_an_image_without_a_registry_is_a_note(render) -> None:
    code, out, notes = render(image={"tag": "1"})
    assert code == 0
    assert out
    assert [line.split(", ")[0] for line in notes] == [
        "gpuscale: image gpuscale:1 names no registry"
    ]
