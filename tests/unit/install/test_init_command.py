"""`gpuscale init`: what flags say, what is asked for on a terminal, and what is written."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from gpuscale.base.errors import UsageError
from gpuscale.cli.interview.answers import check_so_far, checked_answers, read_workload
from gpuscale.ops.install.cluster.detection import Detected, FoundWorkload
from gpuscale.ops.install.propose import Answers
from gpuscale.ops.install.values import Values
from gpuscale.ops.providers import NAMES
from gpuscale.ops.providers.eks import EKS
from gpuscale.signals import SIGNALS, by_family

sys.path.insert(0, str(Path(__file__).parents[2] / "cluster"))
from terminal import CTRL_C, CTRL_D, Terminal

GPUSCALE = Path(sys.executable).parent / "gpuscale"
IMAGE = "registry.example/gpuscale:1"
ENOUGH = ("--no-cluster", "--workload=vision-api", "--provider=eks", f"--image={IMAGE}")
VISION = FoundWorkload("Deployment", "default", "vision-api")
SAID = Answers(VISION, provider=EKS, image=IMAGE)


def init(folder, *arguments):
    command = [GPUSCALE, "init", *arguments]
    done = subprocess.run(
        command, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    return done.returncode, done.stdout, done.stderr.splitlines()


def spec_of(path):
    data = yaml.safe_load(path.read_text())
    Values.model_validate(data)
    return data["spec"]


def test_without_a_terminal_all_that_is_missing_is_named_at_once(tmp_path: Path) -> None:
    code, out, err = init(tmp_path, "--no-cluster")
    assert (code, out) == (2, "")
    assert err[:2] == [
        "gpuscale: --workload: expected what to scale",
        "gpuscale: --provider: expected one of: aks, eks, ack, gke, generic",
    ]
    (image,) = err[2:]
    assert image.startswith("gpuscale: --image: expected an image that nodes can pull")
    assert "make image IMAGE=" in image
    assert list(tmp_path.iterdir()) == []


def test_a_file_is_written_once(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    flags = (*ENOUGH, "--output-file", path.name)
    code, out, err = init(tmp_path, *flags)
    assert (code, out) == (0, "")
    assert err[0] == "gpuscale: wrote mine.yaml; next:"
    assert [line.split("  #")[0].strip() for line in err[1:]] == [
        "gpuscale render mine.yaml",
        "gpuscale install mine.yaml --dry-run server",
        "gpuscale install mine.yaml",
    ]
    assert spec_of(path)["image"] == {"repository": "registry.example/gpuscale", "tag": "1"}
    code, _, err = init(tmp_path, *flags)
    assert (code, err[0].split(";")[0]) == (2, "gpuscale: mine.yaml is there already")
    assert init(tmp_path, *flags, "--force")[0] == 0


def test_a_file_that_can_not_be_written_is_refused_before_the_questions(tmp_path: Path) -> None:
    for place in ("nowhere/values.yaml", "."):
        code, _, err = init(tmp_path, "--output-file", place)
        assert (code, err) == (
            2,
            [
                f"gpuscale: --output-file: found {place}, expected a file in a folder that is there",
            ],
        )


def test_values_are_printed_instead_of_written(tmp_path: Path) -> None:
    code, out, err = init(tmp_path, *ENOUGH, "-o", "yaml")
    assert (code, err) == (0, [])
    assert yaml.safe_load(out)["spec"]["provider"] == "eks"
    code, out, err = init(tmp_path, *ENOUGH, "-o", "json")
    assert (code, err) == (0, [])
    assert json.loads(out)["spec"]["provider"] == "eks"
    assert list(tmp_path.iterdir()) == []


def test_old_spellings_of_the_output_still_work(tmp_path: Path) -> None:
    code, out, err = init(tmp_path, *ENOUGH, "--output", "-")
    assert (code, err) == (0, ["gpuscale: --output - is deprecated; use -o yaml"])
    assert yaml.safe_load(out)["kind"] == "Values"
    code, out, err = init(tmp_path, *ENOUGH, "-o", "old.yaml")
    assert (code, out) == (0, "")
    assert err[0] == "gpuscale: --output old.yaml is deprecated; use --output-file old.yaml"
    assert spec_of(tmp_path / "old.yaml")["provider"] == "eks"


def test_a_wrong_word_names_its_flag_and_the_word_that_may_be_meant(tmp_path: Path) -> None:
    code, _, err = init(tmp_path, "--provider=gkee")
    assert (code, err) == (
        2,
        [
            "gpuscale: --provider: found 'gkee', expected one of: aks, eks, ack, gke, generic; did you "
            "mean gke?"
        ],
    )


@pytest.mark.parametrize(
    ("said", "flags", "word"),
    [
        pytest.param({"max_replicas": 0}, ["--max-replicas"], "0", id="too few pods"),
        pytest.param(
            {"min_replicas": 12, "max_replicas": 3},
            ["--min-replicas", "--max-replicas"],
            "12",
            id="fewest above most",
        ),
        pytest.param({"target": 600.0}, ["--target"], "600", id="what lint calls an error"),
        pytest.param(
            {"signal": "graphics-engine", "target": 60.0}, ["--target"], "ratio", id="unit"
        ),
        pytest.param(
            {"workload": replace(VISION, name="Vision API")}, ["--workload"], "Vision", id="name"
        ),
        pytest.param({"namespace": "My_NS"}, ["--namespace"], "My_NS", id="namespace"),
        pytest.param({"scrapes_pods": True}, ["--scrape-pods", "--source"], "streams", id="source"),
        pytest.param(
            {"serves_resource": True}, ["--resource-metrics"], "operator", id="no Prometheus"
        ),
        pytest.param({"team_rules": "a in b"}, ["--rules-configmaps"], "a in b", id="selector"),
        pytest.param({"prometheus_url": "p:9090"}, ["--prometheus-url"], "p:9090", id="no URL"),
    ],
)
def test_what_is_wrong_is_named_by_its_flag(said, flags: list[str], word: str) -> None:
    with pytest.raises(UsageError) as caught:
        checked_answers(replace(SAID, **said), Detected())
    text = str(caught.value)
    assert all(flag in text for flag in flags), text
    assert word in text
    assert "spec." not in text
    assert "the values" not in text


def test_the_help_names_every_provider() -> None:
    done = subprocess.run([GPUSCALE, "init", "--help"], capture_output=True, text=True, check=True)
    words = {word.strip(",.") for word in done.stdout.split()}
    assert {*NAMES} <= words


def test_the_list_has_every_signal_and_what_serves_it(tmp_path: Path) -> None:
    code, out, err = init(tmp_path, "--signal=list")
    assert (code, err) == (0, [])
    assert {*SIGNALS} <= {*out.split()}
    assert {family.title for family, _ in by_family()} <= {
        line.rpartition(" (")[0] for line in out.splitlines()
    }
    code, out, err = init(tmp_path, "--signal=list", "-o", "json")
    assert json.loads(out)["epp-queue"]["names"] == "the InferencePool"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("flags", "load"),
    [
        (["--signal=vllm-waiting"], {"signal": "vllm-waiting", "target": 5}),
        (["--signal=epp-queue", "--of=chat"], {"signal": "epp-queue", "of": "chat", "target": 5}),
        (["--query=sum(up)", "--target=3"], {"query": "sum(up)", "target": 3}),
    ],
)
def test_what_it_is_scaled_on(tmp_path: Path, flags, load) -> None:
    assert init(tmp_path, *ENOUGH, *flags)[0] == 0
    spec = spec_of(tmp_path / "values.yaml")
    (scale,) = spec["scale"]
    assert scale.items() >= load.items()
    assert spec.get("metricsApi", {}).get("external", False) == ("query" in load)


@pytest.mark.parametrize(
    ("flags", "text"),
    [
        (
            ["--signal=vllm-wating"],
            "--signal: found 'vllm-wating', expected a signal, such as vllm-waiting",
        ),
        (["--signal=epp-queue"], "without --of, expected the name of the InferencePool"),
        (["--signal=vllm-waiting", "--query=sum(up)"], "--query: expected no --signal beside it"),
        (["--query=sum(up", "--target=1"], "--query: found a query that is no PromQL"),
        (["--combined=a=vllm-waiting:5", "--of=x"], "--combined: expected neither --signal"),
        (["--combined=vllm-waiting:5"], "--combined: found 'vllm-waiting:5', expected NAME="),
        (["--combined=a=vllm-wating:5"], "--combined: found 'vllm-wating', expected a signal"),
        (["--combined=a=vllm-waiting:x"], "--combined: found 'x', expected a number"),
        (["--combined=a=epp-queue:5"], "--combined: found signal epp-queue in a combined"),
    ],
)
def test_a_signal_that_can_t_be_is_refused(tmp_path: Path, flags, text: str) -> None:
    code, _, err = init(tmp_path, *ENOUGH, *flags)
    assert code == 2
    (line,) = err
    assert text in line


def test_several_limits_are_one_metric(tmp_path: Path) -> None:
    limits = "--combined=fullness=vllm-waiting:5,vllm-kv-cache:0.9"
    assert init(tmp_path, *ENOUGH, limits)[0] == 0
    (scale,) = spec_of(tmp_path / "values.yaml")["scale"]
    (metric,) = Values.model_validate({"spec": {"scale": [scale]}}).spec.scale[0].combined_metrics
    assert (metric.combined, metric.target) == ("fullness", 1)
    found = [(part.signal, part.threshold) for part in metric.parts]
    assert found == [("vllm-waiting", 5), ("vllm-kv-cache", 0.9)]
    code, out, _ = init(tmp_path, *ENOUGH, limits, "--target=0.8", "-o", "json")
    assert code == 0
    assert json.loads(out)["spec"]["scale"][0]["metrics"][0]["target"] == 0.8


def test_shared_gpus_in_a_combined_metric_take_processes(tmp_path: Path) -> None:
    limits = "--combined=fullness=gpu-share:80,gpu-memory:20000"
    assert init(tmp_path, *ENOUGH, limits)[0] == 0
    assert spec_of(tmp_path / "values.yaml")["agent"]["attribution"] == "processes"


def test_selected_pods_and_pushes_are_taken(tmp_path: Path) -> None:
    said = [
        "--source=streams",
        "--scrape-selected-pods=ml/app=vllm,tier=gpu:8000",
        "--scrape-selected-pods=*/app=tgi:https:metrics/stats",
        "--scrape-selected-pods=team-b/*:9",
        "--otlp-client=observability/otel-collector",
        "--otlp-client=ml/web",
    ]
    assert init(tmp_path, *ENOUGH, *said)[0] == 0
    api = Values.model_validate({"spec": spec_of(tmp_path / "values.yaml")}).spec.metrics_api
    assert [each.flag for each in api.scrape_selected_pods] == [
        "ml/app=vllm,tier=gpu:8000",
        "*/app=tgi:https:metrics/stats",
        "team-b/*:9",
    ]
    assert api.otlp.enabled
    clients = [(each.namespace, each.name) for each in api.otlp.clients]
    assert clients == [("observability", "otel-collector"), ("ml", "web")]
    assert api.replicas == 1


@pytest.mark.parametrize(
    ("flags", "text"),
    [
        (
            ["--scrape-selected-pods=ml/app=vllm:8000", "--source=prometheus"],
            "found --scrape-selected-pods with --source prometheus",
        ),
        (["--otlp-client=a/b", "--source=prometheus"], "found --otlp-client with --source"),
        (["--scrape-selected-pods=vllm"], "--scrape-selected-pods: found 'vllm', expected NAME"),
        (["--scrape-selected-pods=ml/app in (a):1"], "found labels app in (a), expected KEY=VALUE"),
        (["--scrape-selected-pods=*/*:1"], "found neither namespace nor matchLabels"),
        (["--otlp-client=web"], "--otlp-client: found 'web', expected NAMESPACE/NAME"),
        (["--otlp-client=A_/b"], "--otlp-client: found"),
    ],
)
def test_what_can_not_be_collected_is_refused(tmp_path: Path, flags, text: str) -> None:
    code, _, err = init(tmp_path, *ENOUGH, *flags)
    assert code == 2
    (line,) = err
    assert text in line


def test_what_is_not_said_yet_stops_nobody() -> None:
    check_so_far(Answers(), Detected())
    check_so_far(Answers(min_replicas=50), Detected())
    with pytest.raises(UsageError, match="--min-replicas"):
        check_so_far(Answers(min_replicas=50, max_replicas=5), Detected())


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("vision-api", VISION),
        ("ml/llm", FoundWorkload("Deployment", "ml", "llm")),
        ("StatefulSet/ml/llm", FoundWorkload("StatefulSet", "ml", "llm")),
        ("deployment/llm", FoundWorkload("Deployment", "default", "llm")),
        ("a/b/c/d", None),
        ("ml/", None),
    ],
)
def test_a_workload_is_named_as_with_kubectl(text: str, wanted) -> None:
    if wanted is None:
        with pytest.raises(ValueError, match=r"KIND/\]\[NAMESPACE/\]NAME"):
            read_workload(text)
    else:
        assert read_workload(text) == wanted


def test_an_image_without_a_registry_is_noted_unless_the_nodes_have_it() -> None:
    for image in ("gpuscale:1", "localhost/gpuscale:1"):
        *_, notes = checked_answers(replace(SAID, image=image), Detected())
        assert [note.split(":1 ")[1].split(",")[0] for note in notes] == ["names no registry"]
        data, _, notes = checked_answers(
            replace(SAID, image=image, is_image_present=True), Detected()
        )
        assert (data["spec"]["image"]["pullPolicy"], notes) == ("Never", [])


# On a terminal


def talk(folder, *flags):
    """Return a terminal at which `init` asks."""
    words = ("env", "-C", folder, GPUSCALE, "init", "--no-cluster", *flags)
    return Terminal("/usr/bin/env", *words[1:])


def answer(terminal, *pairs) -> None:
    """Wait for each prompt, which may be asked several times, and type its answer."""
    asked = {}
    for prompt, text in pairs:
        asked[prompt] = asked.get(prompt, 0) + 1
        terminal.wait_for(prompt, asked[prompt])
        terminal.type(f"{text}\n")


def test_every_question_has_its_choices_and_is_asked_until_the_answer_is_right(
    tmp_path: Path,
) -> None:
    with talk(tmp_path) as terminal:
        answer(
            terminal,
            ("Workload: ", "a/b/c/d"),
            ("Workload: ", "statefulset/ml/llm"),
            ("Provider [generic]: ", "aws"),
            ("Provider [generic]: ", "gke"),
            ("Autoscaler [hpa]: ", ""),
            ("Signal [gpu-utilization]: ", "cpu"),
            ("Signal [gpu-utilization]: ", "gpu-memory"),
            ("Target of gpu-memory (MiB) [12000]: ", "9000 MiB"),
            ("Fewest pods [1]: ", "some"),
            ("Fewest pods [1]: ", "12"),
            ("Most pods [12]: ", "3"),
            ("Most pods [12]: ", "14"),
            ("REPOSITORY:TAG: ", "gpuscale"),
            ("REPOSITORY:TAG: ", "gpuscale:1"),
            ("(yes, no) [no]: ", "perhaps"),
            ("(yes, no) [no]: ", "yes"),
            ("Namespace [gpuscale]: ", "gpus"),
            ("Source [prometheus]: ", "streams"),
        )
        code, shown = terminal.end()
    assert code == 0
    for choice in ("Elastic Kubernetes Service", "ScaledObject", "graphics-engine", "streams  "):
        assert choice in shown
    assert "found 'aws', expected one of: aks, eks, ack, gke, generic" in shown
    assert "found 'some', expected a whole number" in shown
    assert "found --min-replicas 12 above --max-replicas 3" in shown
    assert "gpuscale install values.yaml" in shown
    spec = spec_of(tmp_path / "values.yaml")
    (scale,) = spec["scale"]
    assert scale["workload"] == {"kind": "StatefulSet", "namespace": "ml", "name": "llm"}
    assert (scale["signal"], scale["target"]) == ("gpu-memory", 9000)
    assert (scale["minReplicas"], scale["maxReplicas"]) == (12, 14)
    assert (spec["provider"], spec["namespace"]) == ("gke", "gpus")
    assert spec["image"] == {"repository": "gpuscale", "tag": "1", "pullPolicy": "Never"}
    assert spec["metricsApi"] == {"source": "streams"}


def test_what_flags_say_is_not_asked_for_and_the_rest_has_proposals(tmp_path: Path) -> None:
    flags = (*ENOUGH[1:], "--signal=gpu-utilization", "--min-replicas=2", "--namespace=gpus")
    with talk(tmp_path, *flags) as terminal:
        prompts = ("Autoscaler [hpa]: ", "(%) [60]: ", "Most pods [10]: ", "Source [prometheus]: ")
        answer(terminal, *((prompt, "") for prompt in prompts))
        code, shown = terminal.end()
    assert code == 0
    assert shown.count("]: ") == len(prompts)
    assert spec_of(tmp_path / "values.yaml")["scale"][0]["maxReplicas"] == 10


@pytest.mark.parametrize(("key", "code"), [(CTRL_C, 130), (CTRL_D, 1)])
def test_who_stops_leaves_no_file(tmp_path: Path, key, code: int) -> None:
    with talk(tmp_path) as terminal:
        answer(terminal, ("Workload: ", "vision-api"))
        terminal.wait_for("Provider [generic]: ")
        terminal.type(key)
        ended, shown = terminal.end()
    assert ended == code
    assert shown.splitlines()[-1] == "gpuscale: stopped; nothing was written"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("given", "wake"),
    [
        ("llm-d-queue/pool", {"sources": ["llm-d-queue"], "name": "pool"}),
        ("sum(queue)", {"query": "sum(queue)"}),
        ("a / b", {"query": "a / b"}),
    ],
)
@pytest.mark.parametrize("autoscaler", ["hpa", "keda"])
def test_zero_takes_what_wakes_from_it(tmp_path: Path, given, wake, autoscaler) -> None:
    flags = ("--min-replicas=0", f"--wake={given}", f"--autoscaler={autoscaler}", "-o", "json")
    code, out, _ = init(tmp_path, *ENOUGH, *flags)
    spec = json.loads(out)["spec"]
    assert code == 0
    assert (spec["scale"][0]["minReplicas"], spec["scale"][0]["wake"]) == (0, wake)
    # With KEDA the scaler serves it; KEDA has the external metrics API.
    assert ("metricsApi" in spec) is (autoscaler == "hpa")
    Values.model_validate({"spec": spec})


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (("--min-replicas=0",), "--min-replicas: found 0, expected at least 1"),
        (
            ("--min-replicas=0", "--wake=llmd-queue/p"),
            "--wake: found 'llmd-queue/p', expected SOURCE/NAME or PromQL; did you mean llm-d-queue/p?",
        ),
        (("--min-replicas=0", "--wake=sum(queue"), "--wake: found a query that is no PromQL"),
    ],
)
def test_a_zero_that_nothing_wakes_is_refused(tmp_path: Path, flags, words) -> None:
    code, _, err = init(tmp_path, *ENOUGH, *flags)
    assert code == 2
    assert words in err[0]


def test_who_answers_zero_is_asked_what_wakes(tmp_path: Path) -> None:
    with talk(tmp_path) as terminal:
        answer(
            terminal,
            ("Workload: ", "llm"),
            ("Provider [generic]: ", "gke"),
            ("Autoscaler [hpa]: ", "keda"),
            ("Signal [gpu-utilization]: ", ""),
            ("[60]: ", ""),
            ("Fewest pods [1]: ", "0"),
            ("Wakes it: ", "sum(queue"),
            ("Wakes it: ", "rabbitmq/prompts"),
            ("Most pods [10]: ", ""),
            ("REPOSITORY:TAG: ", IMAGE),
            ("Namespace [gpuscale]: ", ""),
        )
        code, shown = terminal.end()
    assert code == 0
    assert "llm-d-queue/NAME" in shown
    assert spec_of(tmp_path / "values.yaml")["scale"][0]["wake"] == {
        "sources": ["rabbitmq"],
        "name": "prompts",
    }
