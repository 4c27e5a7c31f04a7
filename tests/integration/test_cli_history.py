"""`gpuscale history` on what a real Prometheus recorded: figures by hand beside the samples."""

import csv
import io
import json
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import pytest

from cluster_samples import write_in_order
from gpuscale.ops.history.reading import History
from gpuscale.testing.prometheus import Sample, serve

pytestmark = [
    pytest.mark.prometheus,
    pytest.mark.skipif(shutil.which("prometheus") is None, reason="needs Debian's prometheus"),
]

GPUSCALE = Path(sys.executable).parent / "gpuscale"
START_S = 1_767_225_600
MINUTES = 120
SCRAPE_S = 15
CHAT = {"exported_namespace": "prod", "exported_pod": "chat-1", "exported_container": "main"}
EXPORTER = {"job": "dcgm", "instance": "10.0.0.1:9400", "namespace": "monitoring", "pod": "dcgm-x"}
HPA = {"namespace": "prod", "horizontalpodautoscaler": "chat"}
METRIC = {**HPA, "metric_name": "queue", "metric_target_type": "average"}
_HPA = "kube_horizontalpodautoscaler"


def gpu(index: int, **more: str) -> dict[str, str]:
    labels = {
        "Hostname": "gpu-a",
        "gpu": str(index),
        "UUID": f"GPU-{index}",
        "modelName": "NVIDIA L4",
    }
    return {**EXPORTER, **labels, **more}


def recorded() -> Iterator[Sample]:
    """Yield two hours.

    | GPU | whose | what |
    | --- | --- | --- |
    | 0 | prod/chat-1, main | use 10, 20, 30, 40 in the four scrapes of a minute of the first hour, then 80 |
    | 1 | nobody: `pod` is the exporter's | use 0; a reading of 1000 % each minute, which can't be |
    | 2 | lab/mig-1, an instance | engines at 0.5 |
    | 3 | two pods of team | use 60, memory as dcgm-exporter 4.9 has it |
    """
    for number in range(1, MINUTES * 4 + 1):
        at_ms = (START_S + number * SCRAPE_S) * 1000
        use = 10.0 * ((number - 1) % 4 + 1) if number <= 240 else 80.0
        idle = 1000.0 if number % 4 == 1 else 0.0
        mig = {"exported_namespace": "lab", "exported_pod": "mig-1", "GPU_I_ID": "3"}
        for name, labels, value in (
            ("up", EXPORTER, 1.0),
            ("DCGM_FI_DEV_GPU_UTIL", gpu(0, **CHAT), use),
            ("DCGM_FI_DEV_FB_USED", gpu(0, **CHAT), 1000.0),
            ("DCGM_FI_DEV_FB_FREE", gpu(0, **CHAT), 3000.0),
            ("DCGM_FI_DEV_POWER_USAGE", gpu(0, **CHAT), 70.0),
            ("DCGM_FI_DEV_GPU_UTIL", gpu(1), idle),
            ("DCGM_FI_PROF_GR_ENGINE_ACTIVE", gpu(2, GPU_I_PROFILE="1g.10gb", **mig), 0.5),
            ("DCGM_FI_DEV_GPU_UTIL", gpu(3, exported_namespace="team", exported_pod="a"), 60.0),
            ("DCGM_FI_DEV_GPU_UTIL", gpu(3, exported_namespace="team", exported_pod="b"), 60.0),
            (
                "DCGM_FI_DEV_FB_USED_BYTES",
                gpu(3, exported_pod="a", exported_namespace="team"),
                2.0**30,
            ),
        ):
            yield {"__name__": name, **labels}, at_ms, value
        if number % 4 == 0:
            wanted = 2 if number <= 240 else 4
            yield {"__name__": f"{_HPA}_status_desired_replicas", **HPA}, at_ms, wanted
            yield {"__name__": f"{_HPA}_status_target_metric", **METRIC}, at_ms, 50.0 * wanted
            yield {"__name__": f"{_HPA}_spec_target_metric", **METRIC}, at_ms, 100.0
            yield (
                {
                    "__name__": "kube_node_status_allocatable",
                    "node": "gpu-a",
                    "resource": "nvidia_com_gpu",
                },
                at_ms,
                4.0,
            )
            labels = {"node": "gpu-a", "label_node_kubernetes_io_instance_type": "g6.12xlarge"}
            yield {"__name__": "kube_node_labels", **labels}, at_ms, 1.0


def run(*arguments: object) -> "subprocess.CompletedProcess[str]":
    command = [str(GPUSCALE), "history", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def keep(
    url: str, folder: Path, since: str, until_minute: int
) -> "subprocess.CompletedProcess[str]":
    until = START_S + until_minute * 60
    to = ("--to", folder, "--since", since, "--until", until)
    return run("keep", "--prometheus-url", url, *to)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Keep the first hour and a half, and then all two hours."""
    folder = tmp_path_factory.mktemp("histories") / "kept"
    with serve([], tmp_path_factory.mktemp("prometheus")) as prometheus:
        write_in_order(prometheus, recorded())
        first = keep(prometheus.url, folder, "90m", 90)
        second = keep(prometheus.url, folder, "2h", MINUTES)
    assert (first.stdout, first.stderr) == (f"kept 90 minutes in {folder}\n", "")
    assert second.stdout == f"kept 30 minutes in {folder}\n"
    return folder


def rows(folder: Path, sql: str) -> list[tuple[object, ...]]:
    with History(str(folder)) as history, history.ask(sql) as answer:
        return [tuple(row) for row in answer.rows]


def test_a_minute_has_the_least_mean_and_highest_value_of_its_samples(folder: Path) -> None:
    found = rows(
        folder,
        "SELECT namespace, pod, container, use_min, use_mean, use_max, use_count, memory_mean, "
        "memory_total, power_max FROM gpus WHERE gpu = '0' AND model = 'NVIDIA L4' ORDER BY time",
    )
    first = ("prod", "chat-1", "main", 10, (10 + 20 + 30 + 40) / 4, 40, 4, 1000, 1000 + 3000, 70)
    later = ("prod", "chat-1", "main", 80, 80, 80, 4, 1000, 4000, 70)
    assert found == [first] * 60 + [later] * 60


def test_what_can_not_be_is_left_out_and_the_exporter_owns_nothing(folder: Path) -> None:
    asked = "SELECT DISTINCT pod, owners, use_max, use_count FROM gpus WHERE gpu = '1'"
    assert rows(folder, asked) == [(None, 0, 0, 3)]


def test_instances_and_shared_gpus(folder: Path) -> None:
    asked = "SELECT DISTINCT gpu, model, pod, owners, use_mean, memory_mean FROM gpus WHERE gpu {} ORDER BY 3"
    assert rows(folder, asked.format("= '2/3'")) == [
        ("2/3", "NVIDIA L4 1g.10gb", "mig-1", 1, 50, None)
    ]
    # 2**30 bytes are 1024 MiB
    assert rows(folder, asked.format("= '3'")) == [
        ("3", "NVIDIA L4", pod, 2, 60, 1024) for pod in ("a", "b")
    ]


def test_hours_are_made_of_all_their_minutes(folder: Path) -> None:
    asked = (
        "SELECT use_min, use_mean, use_max, use_count FROM gpu_hours WHERE gpu = '0' ORDER BY time"
    )
    with History(str(folder)) as history, history.ask(asked) as answer:
        parts = list(answer.rows)
    # The second hour was kept in two parts: 30 minutes each.
    assert parts == [(10, 25, 40, 240), (80, 80, 80, 120), (80, 80, 80, 120)]


def test_hpas_decisions_nodes_and_prices(folder: Path) -> None:
    asked = 'SELECT epoch(time)::BIGINT, hpa, "from", "to", metric, value, target FROM decisions'
    assert rows(folder, asked) == [(START_S + 61 * 60, "chat", 2, 4, "queue", 200, 100)]
    asked = (
        "SELECT epoch(time)::BIGINT, node, instance_type, gpus, hour_price > 0, currency FROM nodes"
    )
    assert sorted(rows(folder, asked)) == [
        (START_S + hour * 3600, "gpu-a", "g6.12xlarge", 4, True, "USD") for hour in (0, 1)
    ]


def asked_use(folder: Path, *arguments: object) -> str:
    span = ("--from", folder, "--since", "25m", "--until", START_S + 30 * 60)
    done = run(*span, *arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_question_of_container_insights_is_one_line(folder: Path) -> None:
    """Average duty cycle by container, in 60 s bins between two times."""
    text = asked_use(folder, "--every", "60s", "-o", "csv")
    found = list(csv.DictReader(io.StringIO(text)))
    chat = [each for each in found if each["container"] == "main"]
    assert [each["time"] for each in chat] == [f"2026-01-01T00:{m:02}:00Z" for m in range(5, 30)]
    assert {(each["pod"], each["mean"], each["min"], each["max"]) for each in chat} == {
        ("chat-1", "25.0", "10.0", "40.0")
    }
    assert {each["pod"] for each in found} == {"chat-1", "mig-1", "a", "b"}  # and nobody's is none


def test_one_line_for_all_and_bins_of_hours(folder: Path) -> None:
    (line,) = json.loads(asked_use(folder, "--by", "all", "--every", "5m", "-o", "json"))[:1]
    # of each minute: GPU 0 has 4 samples of 25 %, 1 three of 0, the instance 4 of 50, and 3 for each of two
    # pods 4 of 60
    assert line["mean"] == pytest.approx((4 * 25 + 3 * 0 + 4 * 50 + 2 * 4 * 60) / 19, abs=0.001)
    done = run(
        "--from", folder, "--since", "2h", "--until", START_S + 7200, "--every", "1h", "-o", "csv"
    )
    chat = [row for row in csv.DictReader(io.StringIO(done.stdout)) if row["pod"] == "chat-1"]
    assert [(row["time"], row["mean"]) for row in chat] == [
        ("2026-01-01T00:00:00Z", "25.0"),
        ("2026-01-01T01:00:00Z", "80.0"),
    ]


def test_charts_have_the_same_figures(folder: Path) -> None:
    text = asked_use(folder)
    assert text.startswith(
        "GPU use, mean of each 60 seconds, 2026-01-01 00:05 to 2026-01-01 00:30 UTC"
    )
    (line,) = [each for each in text.splitlines() if "chat-1" in each]
    assert line.split() == ["prod/chat-1/main", "25", "10", "40", "▃" * 25]
    picture = ElementTree.fromstring(asked_use(folder, "-o", "svg"))
    texts = [each.text for each in picture.iter("{http://www.w3.org/2000/svg}text")]
    assert "prod/chat-1/main: 25 %" in texts


def test_sql_in_a_shell(folder: Path) -> None:
    done = run(
        "sql",
        "SELECT pod, max(use_max) AS most FROM gpus GROUP BY pod ORDER BY pod",
        "--from",
        folder,
    )
    assert done.stdout.splitlines() == [
        *("pod     most", "a       60", "b       60", "chat-1  80", "mig-1   50", "        0")
    ]
    few = run(
        "sql", "SELECT time FROM gpus ORDER BY time", "--from", folder, "--rows", 2, "-o", "json"
    )
    assert json.loads(few.stdout) == [{"time": "2026-01-01T00:00:00Z"}] * 2
    assert few.stderr == "gpuscale: there are more than 2 rows; see --rows\n"
    no = run("sql", "COPY gpus TO '/tmp/x.csv'", "--from", folder)
    assert (no.returncode, no.stderr) == (
        2,
        "gpuscale: found COPY, expected one SELECT: a history is only read\n",
    )


def test_following_begins_with_the_last_hours_and_ends_by_a_signal(tmp_path: Path) -> None:
    now_s, kept = int(time.time()), tmp_path / "kept"
    samples = [
        ({"__name__": "DCGM_FI_DEV_GPU_UTIL", **gpu(0, **CHAT)}, (now_s - age) * 1000, 50.0)
        for age in range(1800, 0, -15)
    ]
    with serve(samples, tmp_path) as prometheus:
        arguments = ["history", "keep", "--prometheus-url", prometheus.url, f"--to={kept}"]
        with subprocess.Popen(
            [str(GPUSCALE), *arguments], stdout=subprocess.PIPE, text=True
        ) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == f"keeping minutes in {kept}; Ctrl-C ends it\n"
            while not rows(kept, "SELECT 1 FROM gpus"):
                time.sleep(0.2)
            process.send_signal(signal.SIGTERM)
    assert process.returncode == 0
    ((count, use),) = rows(kept, "SELECT count(*), max(use_max) FROM gpus")
    assert count in (29, 30, 31)  # of 30 minutes, the first and the last in part
    assert use == 50


def test_a_live_run_keeps_its_own_history(tmp_path: Path) -> None:
    up = ["up", "ack-bert-quick", "--port=0", "--for=8s", f"--history={tmp_path / 'kept'}"]
    done = subprocess.run([GPUSCALE, *up], capture_output=True, text=True, timeout=110, check=False)
    assert done.returncode == 0, done.stderr
    asked = "SELECT DISTINCT hpa, question FROM hpas, answers WHERE question = 'report/present'"
    assert rows(tmp_path / "kept", asked) == [("gpu-hpa", "report/present")]
