"""`gpuscale decide` as users run it: a process of its own."""

import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

# Runs the command line as it is installed, and with the command also where it is not registered yet.

HEAD = """\
apiVersion: gpuscale.dev/v1alpha1
kind: Decision
spec:
  hpa:
    apiVersion: autoscaling/v2
    kind: HorizontalPodAutoscaler
    metadata: {name: vision, namespace: prod}
    spec:
      scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: vision}
      minReplicas: 1
      maxReplicas: 10
      metrics:
        - type: Pods
          pods: {metric: {name: gpu_util}, target: {type: AverageValue, averageValue: 50}}
  scale: {specReplicas: 3, statusReplicas: 3, selector: "app=vision"}
  pods:
    - {name: p0, labels: {app: vision}, ready: "True"}
    - {name: p1, labels: {app: vision}, ready: "True"}
    - {name: p2, labels: {app: vision}, ready: "True"}
"""
TOLERATED = f"""{HEAD}  observed:
    - pods: [{{pod: p0, value: 60}}, {{pod: p1, value: 54}}, {{pod: p2, value: 48}}]
"""
STABILIZED = f"""{HEAD}  observed:
    - pods: [{{pod: p0, value: 10}}, {{pod: p1, value: 12}}, {{pod: p2, value: 8}}]
  history:
    recommendations: [{{replicas: 3, age: 120}}, {{replicas: 1, age: 15}}]
"""
MISSING = f"""{HEAD}  observed:
    - error: the server could not find the metric gpu_util for pods
"""
SCALING = f"""{HEAD}  observed:
    - pods: [{{pod: p0, value: 90}}, {{pod: p1, value: 90}}, {{pod: p2, value: 90}}]
"""


def gpuscale(*arguments, cwd, stdin=""):
    return subprocess.run(
        [sys.executable, "-m", "gpuscale.cli.main", *arguments],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=60,
        cwd=cwd,
        check=False,
    )


def decided(text, folder, *options):
    (folder / "why.yaml").write_text(text)
    result = gpuscale("decide", *options, "why.yaml", cwd=folder)
    assert result.stderr == ""
    return result


def test_one_bad_document_of_many_does_not_stop_the_others(tmp_path: Path) -> None:
    named = SCALING.replace("spec:", "metadata: {name: a, uid: x, labels: {b: c}}\nspec:", 1)
    no_yaml = "kind: Decision\nspec: [x\n"
    unknown = SCALING.replace('ready: "True"}', 'ready: "True", phase: Unknown}')
    (tmp_path / "why.yaml").write_text("---\n".join((named, no_yaml, "kind: Pod\n", unknown)))
    result = gpuscale("decide", "-o", "json", "why.yaml", cwd=tmp_path)
    first, second, third, fourth = map(json.loads, result.stdout.splitlines())
    # 90 / 50 * 3 = 5.4 -> 6, whatever the phase, since the metric counts every pod that has not failed
    assert [each["desiredReplicas"] for each in (first, fourth)] == [6, 6]
    assert ["error" in each for each in (first, second, third, fourth)] == [
        False,
        True,
        True,
        False,
    ]
    assert result.returncode == 2


# (60 + 54 + 48) / 3 = 54, / 50 = 1.08 <= 1.1; exact, 1.08 * 3 = 3.24 -> 4
TOLERATED_TEXT = """\
why.yaml:1: HPA prod/vision of Deployment/vision, 1 to 10 replicas
Stays at 3.

Metric         Current  Target  Asks for
Pods gpu_util       54      50         3

Why
  Pods gpu_util: The average over 3 pods is 54 against a target of 50: ratio 1.08.
  Pods gpu_util: No change: the ratio lies within the tolerance, 0.9 to 1.1.
  The count stays at 3.

What shaped it
  tolerance: A ratio from 0.9 to 1.1 counts as on target; without that the metrics would ask for 4.
    -> Set spec.behavior.scaleUp.tolerance below 0.1 (from Kubernetes 1.35 on; in 1.33 and 1.34 with the \
feature gate HPAConfigurableTolerance), or move the target.

Conditions
  AbleToScale     True   ReadyForNewScale    recommended size matches current size
  ScalingActive   True   ValidMetricFound    the HPA was able to successfully calculate a replica count \
from pods metric gpu_util
  ScalingLimited  False  DesiredWithinRange  the desired count is within the acceptable range
"""
# (10 + 12 + 8) / 3 = 10, / 50 = 0.2, * 3 = 0.6 -> 1; the 3 of two minutes ago holds for three more
STABILIZED_TEXT = """\
why.yaml:1: HPA prod/vision of Deployment/vision, 1 to 10 replicas
Stays at 3.

Metric         Current  Target  Asks for
Pods gpu_util       10      50         1

Why
  Pods gpu_util: The average over 3 pods is 10 against a target of 50: ratio 0.2.
  Pods gpu_util: 3 pods x 0.2 rounds up to 1.
  Stabilization keeps 3, the highest asked for within the last 5m.
  The count stays at 3.

What shaped it
  stabilization: The metrics ask for 1; the highest count of the last 5m holds.
    -> Wait: if they go on asking for 1, it holds for another 3m. A shorter \
spec.behavior.scaleDown.stabilizationWindowSeconds ends it earlier.

Conditions
  AbleToScale     True   ScaleDownStabilized  recent recommendations were higher than current one, \
applying the highest recent recommendation
  ScalingActive   True   ValidMetricFound     the HPA was able to successfully calculate a replica count \
from pods metric gpu_util
  ScalingLimited  False  DesiredWithinRange   the desired count is within the acceptable range
"""
MISSING_TEXT = """\
why.yaml:1: HPA prod/vision of Deployment/vision, 1 to 10 replicas
Can't decide, and leaves the count at 3.

Metric         Current  Target  Asks for
Pods gpu_util        -      50    failed

Why
  Pods gpu_util failed: unable to get metric gpu_util: unable to fetch metrics from custom metrics API: \
the server could not find the metric gpu_util for pods.
  No metric gave a count, so nothing is scaled.
  The count stays at 3.

What shaped it
  failed metric Pods gpu_util: Without a metric there is no count to scale to.
    -> Ask as the controller does: kubectl get --raw \
'/apis/custom.metrics.k8s.io/v1beta2/namespaces/prod/pods/*/gpu_util?labelSelector=app%3Dvision'; \
or follow it hop by hop: gpuscale metrics-api why 'pods/prod/*' gpu_util -l app=vision

Conditions
  AbleToScale    True   SucceededGetScale    the HPA controller was able to get the target's current scale
  ScalingActive  False  FailedGetPodsMetric  the HPA was unable to compute the replica count: \
unable to get metric gpu_util: unable to fetch metrics from custom metrics API: \
the server could not find the metric gpu_util for pods

Event
  Warning  FailedComputeMetricsReplicas  invalid metrics (1 invalid out of 1), first error is: \
failed to get pods metric value: unable to get metric gpu_util: unable to fetch metrics from custom \
metrics API: the server could not find the metric gpu_util for pods
"""


@pytest.mark.parametrize(
    ("text", "told", "code"),
    [
        pytest.param(TOLERATED, TOLERATED_TEXT, 0, id="tolerance kept it"),
        pytest.param(STABILIZED, STABILIZED_TEXT, 0, id="stabilization kept it"),
        pytest.param(MISSING, MISSING_TEXT, 1, id="metric missing"),
    ],
)
def test_text(tmp_path: Path, text, told, code: int) -> None:
    result = decided(text, tmp_path)
    assert result.stdout == told
    assert result.returncode == code


def test_json_of_a_rescale(tmp_path: Path) -> None:
    # 90 / 50 = 1.8, * 3 = 5.4 -> 6
    result = decided(SCALING, tmp_path, "--output", "json")
    assert result.returncode == 0
    assert result.stdout.count("\n") == 1
    assert json.loads(result.stdout) == {
        "desiredReplicas": 6,
        "conditions": [
            {
                "type": "AbleToScale",
                "status": "True",
                "reason": "SucceededRescale",
                "message": "the HPA controller was able to update the target scale to 6",
            },
            {
                "type": "ScalingActive",
                "status": "True",
                "reason": "ValidMetricFound",
                "message": "the HPA was able to successfully calculate a replica count "
                "from pods metric gpu_util",
            },
            {
                "type": "ScalingLimited",
                "status": "False",
                "reason": "DesiredWithinRange",
                "message": "the desired count is within the acceptable range",
            },
        ],
        "metrics": [{"index": 0, "current": "90", "proposedReplicas": 6, "error": None}],
        "event": {
            "reason": "SuccessfulRescale",
            "message": "New size: 6; reason: pods metric gpu_util above target",
        },
        "explanation": [
            "pods metric gpu_util: The average over 3 pods is 90 against a target of 50: ratio 1.8.",
            "pods metric gpu_util: 3 pods x 1.8 rounds up to 6.",
            "Scale from 3 to 6.",
        ],
    }


def test_json_of_a_metric_that_failed(tmp_path: Path) -> None:
    result = decided(MISSING, tmp_path, "--output", "json")
    answer = json.loads(result.stdout)
    error = (
        "unable to get metric gpu_util: unable to fetch metrics from custom metrics API: "
        "the server could not find the metric gpu_util for pods"
    )
    assert result.returncode == 1
    assert answer["desiredReplicas"] == 3
    assert answer["metrics"] == [
        {"index": 0, "current": None, "proposedReplicas": None, "error": error}
    ]
    assert answer["event"] == {
        "reason": "FailedComputeMetricsReplicas",
        "message": "invalid metrics (1 invalid out of 1), first error is: "
        f"failed to get pods metric value: {error}",
    }


def test_json_has_no_event_where_nothing_happens(tmp_path: Path) -> None:
    assert json.loads(decided(TOLERATED, tmp_path, "-o", "json").stdout)["event"] is None


def at_zero(text):
    return text.replace("specReplicas: 3, statusReplicas: 3", "specReplicas: 0, statusReplicas: 0")


def with_queue(text, answer):
    """Return a document that has a second metric, with a target of 1 per pod."""
    metric = (
        "        - type: External\n"
        "          external: {metric: {name: queue}, target: {type: AverageValue, averageValue: 1}}\n"
    )
    text = text.replace("  scale:", f"{metric}  scale:")
    return f"{text}    - {answer}\n"


@pytest.mark.parametrize(
    ("text", "code"),
    [
        pytest.param(SCALING, 0, id="it would scale"),
        pytest.param(TOLERATED, 0, id="it is content"),
        pytest.param(STABILIZED, 0, id="it waits"),
        pytest.param(with_queue(MISSING, "samples: [9]"), 0, id="one failed and it would scale up"),
        pytest.param(
            with_queue(MISSING, "samples: [3]"), 0, id="one failed and the other is content"
        ),
        pytest.param(
            with_queue(MISSING, "samples: [1]"), 1, id="one failed and blocks the way down"
        ),
        pytest.param(MISSING, 1, id="all failed"),
        pytest.param(at_zero(SCALING), 1, id="paused at zero"),
        pytest.param(SCALING.replace('"app=vision"', '""'), 1, id="no selector"),
        pytest.param(
            MISSING.replace("specReplicas: 3", "specReplicas: 30"), 0, id="above max, metric or not"
        ),
    ],
)
def test_the_exit_code_is_1_where_it_can_not_decide(tmp_path: Path, text, code: int) -> None:
    assert decided(text, tmp_path, "--output", "json").returncode == code


def test_several_files_and_standard_input_are_answered_in_order(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(f"{SCALING}---\n{MISSING}")
    (tmp_path / "b.yaml").write_text(TOLERATED)
    result = gpuscale(
        "decide", "-o", "json", "b.yaml", "-", "a.yaml", cwd=tmp_path, stdin=STABILIZED
    )
    events = [json.loads(line)["event"] for line in result.stdout.splitlines()]
    assert [event and event["reason"] for event in events] == [
        None,
        None,
        "SuccessfulRescale",
        "FailedComputeMetricsReplicas",
    ]
    assert result.returncode == 1  # one of them can't decide


def test_texts_of_several_documents_stand_apart_and_name_their_lines(tmp_path: Path) -> None:
    result = decided(f"{SCALING}---\n{TOLERATED}", tmp_path)
    second = f"\n\n{TOLERATED_TEXT.replace('why.yaml:1:', 'why.yaml:23:')}"
    assert result.stdout.endswith(second)


FAULTS = [
    "b.yaml:21: spec.observed[0].pods[0].value: found 'ninety', expected a "
    "quantity such as 20, 500m or 1Gi",
    "c.yaml:23: apiVersion: found nothing, expected gpuscale.dev/v1alpha1",
    "c.yaml:23: kind: found 'Pod', expected Decision",
    "d.yaml:2: not YAML (column 1): a value is missing, or a bracket is not closed",
    "e.yaml: not UTF-8 text (byte 0xff at offset 0)",
    "empty.yaml: found no document, expected at least one Decision",
    "none.yaml: no such file",
    ".: is a folder, expected a file",
]


def make_faulty(folder):
    """Make files of which two documents can be answered, and return their names."""
    (folder / "b.yaml").write_text(SCALING.replace("value: 90", "value: ninety", 1))
    (folder / "c.yaml").write_text(f"{MISSING}---\nkind: Pod\n")
    (folder / "d.yaml").write_text("a: [")
    (folder / "e.yaml").write_bytes(b"\xff\xfe\x00")
    (folder / "empty.yaml").write_text("---\n")
    (folder / "z.yaml").write_text(TOLERATED)
    return ["b.yaml", "c.yaml", "d.yaml", "e.yaml", "empty.yaml", "none.yaml", ".", "z.yaml"]


def test_what_is_wrong_with_one_document_does_not_stop_the_answers_to_others(
    tmp_path: Path,
) -> None:
    result = gpuscale("decide", *make_faulty(tmp_path), cwd=tmp_path)
    assert result.returncode == 2
    told = MISSING_TEXT.replace("why.yaml:1:", "c.yaml:1:")
    assert result.stdout == f"{told}\n{TOLERATED_TEXT.replace('why.yaml:1:', 'z.yaml:1:')}"
    assert result.stderr.splitlines() == [f"gpuscale: {fault}" for fault in FAULTS]


def test_in_json_each_document_has_its_line_whatever_is_wrong_with_it(tmp_path: Path) -> None:
    result = gpuscale("decide", "-o", "json", *make_faulty(tmp_path), cwd=tmp_path)
    assert result.returncode == 2
    lines = [json.loads(line) for line in result.stdout.splitlines()]
    assert [line.get("error") for line in lines] == [
        [FAULTS[0]],
        None,
        [FAULTS[1], FAULTS[2]],
        *([fault] for fault in FAULTS[3:]),
        None,
    ]
    assert lines[-1]["desiredReplicas"] == 3


def test_yaml_has_a_document_for_each(tmp_path: Path) -> None:
    result = gpuscale("decide", "-o", "yaml", *make_faulty(tmp_path), cwd=tmp_path)
    documents = list(yaml.safe_load_all(result.stdout))
    assert [each.get("desiredReplicas") for each in documents] == [None, 3, *[None] * 6, 3]


HPA_MANIFEST = """\
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: vision, namespace: prod}
spec: {scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: vision}, maxReplicas: 10}
"""


def test_an_hpas_manifest_says_how_to_go_on(tmp_path: Path) -> None:
    (tmp_path / "hpa.yaml").write_text(HPA_MANIFEST)
    result = gpuscale("decide", "hpa.yaml", cwd=tmp_path)
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr == (
        "gpuscale: hpa.yaml:2: kind: found 'HorizontalPodAutoscaler', expected Decision; this is an HPA's "
        "manifest, and what it would do depends on what it sees: `gpuscale decide hpa/vision -n prod` reads "
        "that from the cluster; `gpuscale decide hpa/vision -n prod --save why.yaml` writes both to a "
        "Decision document, see docs/decide.md\n"
    )


@pytest.mark.parametrize(
    ("words", "told"),
    [
        pytest.param(
            ["vision"],
            "vision: no such file; if that is an HPA on the cluster, say hpa/vision",
            id="a name alone",
        ),
        pytest.param(
            ["deployment/vision"],
            "deployment/vision: no such file; "
            "of what is on the cluster decide reads HPAs: hpa/NAME, or hpa for all",
            id="another kind",
        ),
        pytest.param(
            ["hpa/Vision"],
            "found 'hpa/Vision', expected an HPA's name such as hpa/vision",
            id="name",
        ),
        pytest.param(
            ["hpa/vision", "-n", "../x"],
            "--namespace: found '../x', expected a namespace's name such as prod",
            id="-n",
        ),
        pytest.param(
            ["hpa/vision", "-A"], "found --all-namespaces and a name, expected one of them", id="-A"
        ),
        pytest.param(
            ["-", "--save", "x"],
            "--save: expected an HPA on the cluster, such as hpa/vision",
            id="--save of a file",
        ),
        pytest.param(
            ["hpa", "-w", "--save", "x"],
            "found --save and --watch, expected one of them",
            id="both",
        ),
        pytest.param(
            ["-", "hpa", "-w"],
            "found --watch and a file, which does not change; expected HPAs alone",
            id="--watch of a file",
        ),
    ],
)
def test_words_that_do_not_go_together(tmp_path: Path, words: list[str], told: str) -> None:
    result = gpuscale("decide", *words, cwd=tmp_path)
    assert (result.returncode, result.stdout, result.stderr) == (2, "", f"gpuscale: {told}\n")


def test_a_file_may_be_called_like_an_hpa(tmp_path: Path) -> None:
    (tmp_path / "hpa").mkdir()
    (tmp_path / "hpa" / "vision").write_text(TOLERATED)
    result = gpuscale("decide", "hpa/vision", cwd=tmp_path)
    assert result.stdout == TOLERATED_TEXT.replace("why.yaml:1:", "hpa/vision:1:")


def test_standard_input_is_named_in_faults(tmp_path: Path) -> None:
    result = gpuscale("decide", "-", cwd=tmp_path, stdin="kind: Decision\n")
    assert result.returncode == 2
    assert result.stderr == (
        "gpuscale: <stdin>:1: apiVersion: found nothing, expected gpuscale.dev/v1alpha1\n"
    )


def test_a_file_that_is_too_large_is_refused(tmp_path: Path) -> None:
    (tmp_path / "big.yaml").write_text("# é" * (3 * 1024 * 1024))
    result = gpuscale("decide", "big.yaml", cwd=tmp_path)
    assert result.returncode == 2
    assert result.stderr == "gpuscale: big.yaml: found a larger file, expected at most 8 MiB\n"


def test_what_standard_output_can_not_carry_is_escaped(tmp_path: Path) -> None:
    text = MISSING[: MISSING.index("error: ")] + 'error: "no \\u0394\\n\\e[31m"\n'
    (tmp_path / "why.yaml").write_text(text)
    result = subprocess.run(
        [sys.executable, "-m", "gpuscale.cli.main", "decide", "why.yaml"],
        capture_output=True,
        cwd=tmp_path,
        check=False,
        env={"PYTHONIOENCODING": "ascii"},
    )
    assert result.returncode == 1
    assert b"API: no \\u0394 [31m." in result.stdout
    assert b"\x1b" not in result.stdout


def on_a_terminal(folder):
    """Return what the command writes to a terminal."""
    master, slave = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "gpuscale.cli.main", "decide", "why.yaml"],
        stdout=slave,
        cwd=folder,
        env={**os.environ, "TERM": "xterm-256color", "COLUMNS": "60"},
    )
    os.close(slave)
    chunks = []
    try:
        while chunk := os.read(master, 65536):
            chunks.append(chunk)
    except OSError:  # how Linux ends a terminal that nobody holds open any more
        pass
    os.close(master)
    assert process.wait(timeout=60) == 1
    return b"".join(chunks).decode()


def test_a_terminal_gets_colours_and_whole_lines(tmp_path: Path) -> None:
    (tmp_path / "why.yaml").write_text(MISSING)
    told = on_a_terminal(tmp_path)
    assert "\x1b[1;31mCan't decide, and leaves the count at 3." in told
    assert "pods/*/gpu_util?labelSelector=app%3Dvision';" in told.replace("\r\n", "\n")


def test_help_has_an_example(tmp_path: Path) -> None:
    result = gpuscale("decide", "--help", cwd=tmp_path)
    assert result.returncode == 0
    assert "Example:  gpuscale decide why.yaml" in result.stdout


def test_without_a_file_it_says_what_is_missing(tmp_path: Path) -> None:
    result = gpuscale("decide", cwd=tmp_path)
    assert result.returncode == 2
    assert "hpa/NAME|FILE" in result.stderr


def test_a_thousand_documents_are_answered_in_order(tmp_path: Path) -> None:
    text = "---\n".join(
        SCALING.replace("specReplicas: 3", f"specReplicas: {11 + i}") for i in range(1000)
    )
    lines = decided(text, tmp_path, "--output", "json").stdout.splitlines()
    # each is above max, and its own count stands in its answer
    told = [json.loads(line)["explanation"][-1] for line in lines]
    assert told == [f"Scale from {11 + i} to 10." for i in range(1000)]
