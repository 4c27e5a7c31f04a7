"""The pre-commit hook and the steps of the GitHub action, from a clone that pip installs."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

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
    pods: {metric: {name: gpu_use}, target: {type: AverageValue, averageValue: 70}}
"""


def git(folder, *arguments):
    subprocess.run(
        ["git", "-c", "user.name=a", "-c", "user.email=a@example.com", *arguments],
        cwd=folder,
        check=True,
        capture_output=True,
    )


def repository(folder):
    """Make a Git repository of what is in a folder."""
    git(folder, "init", "--quiet")
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "-m", "all")
    return folder


@pytest.fixture(scope="module")
def clone(published):
    """Return a repository of the project."""
    return repository(published)


@pytest.fixture
def project(tmp_path):
    """Return a user's repository with an HPA that has an error."""
    folder = tmp_path / "project"
    (folder / "deploy").mkdir(parents=True)
    (folder / "deploy" / "rules.yaml").write_text(RULES)
    (folder / "deploy" / "hpa.yaml").write_text(HPA)
    (folder / "compose.yaml").write_text("services: {}\n")
    return repository(folder)


@pytest.fixture(scope="module")
def shell(tmp_path_factory, shell_of):
    """Return the environment of a stranger's shell, and a folder for what is installed."""
    folder = tmp_path_factory.mktemp("shell")
    return shell_of(folder / ".venv"), folder


def run(command, folder, environment):
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )


@pytest.mark.timeout(600)
def test_the_hook(clone, project, shell) -> None:
    environment, folder = shell
    environment = {**environment, "PRE_COMMIT_HOME": str(folder / "pre-commit")}
    venv = folder / ".venv"
    for command in (
        [sys.executable, "-m", "venv", str(venv)],
        [str(venv / "bin" / "pip"), "install", "--quiet", "pre-commit"],
    ):
        done = run(command, folder, environment)
        assert done.returncode == 0, done.stderr
    revision = run(["git", "rev-parse", "HEAD"], clone, environment).stdout.strip()
    config = {"repos": [{"repo": str(clone), "rev": revision, "hooks": [{"id": "gpuscale-lint"}]}]}
    (project / ".pre-commit-config.yaml").write_text(yaml.safe_dump(config))
    git(project, "add", "--all")
    hook = [str(venv / "bin" / "pre-commit"), "run", "--all-files"]
    done = run(hook, project, environment)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "deploy/hpa.yaml:9: error [unknown-metric]" in done.stdout
    (project / "deploy" / "hpa.yaml").write_text(HPA.replace("gpu_use", "gpu_util"))
    done = run(hook, project, environment)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Passed" in done.stdout


@pytest.mark.timeout(600)
def test_the_action(clone, project, shell) -> None:
    action = yaml.safe_load((clone / "action.yml").read_text())
    inputs = {name: each.get("default", "") for name, each in action["inputs"].items()}
    inputs["files"] = "deploy/*.yaml compose.yaml"
    environment, folder = shell
    done = [
        step_done(step, inputs, project, {**environment, "RUNNER_TEMP": str(folder)}, clone)
        for step in action["runs"]["steps"]
        if "run" in step
    ]
    *before, last = done
    assert [each.returncode for each in before] == [0], before[0].stderr
    assert last.returncode == 1, last.stdout + last.stderr
    assert "deploy/hpa.yaml:9: error [unknown-metric]" in last.stdout
    (results,) = [
        each["results"] for each in json.loads((project / "gpuscale.sarif").read_text())["runs"]
    ]
    (found,) = results
    where = found["locations"][0]["physicalLocation"]
    assert where["artifactLocation"]["uri"] == "deploy/hpa.yaml"
    assert where["region"] == {"startLine": 9}


def step_done(step, inputs, folder, environment, action_path):
    """Return how a step ended that the runner runs as it runs steps with `shell: bash`."""
    assert step["shell"] == "bash"
    given = {name: value_of(each, inputs) for name, each in step["env"].items()}
    environment = {**environment, **given, "GITHUB_ACTION_PATH": str(action_path)}
    script = Path(environment["RUNNER_TEMP"]) / "step.sh"
    script.write_text(step["run"])
    bash = ["bash", "--noprofile", "--norc", "-eo", "pipefail", str(script)]
    return run(bash, folder, environment)


def value_of(expression, inputs):
    """Return the value of `${{ inputs.NAME }}`, or the Python that the step before has set up."""
    name = expression.removeprefix("${{ ").removesuffix(" }}")
    if name == "steps.python.outputs.python-path":
        return sys.executable
    return inputs[name.removeprefix("inputs.")]
